"""Norms of the loss gradient by the weights, from the two recursions.

∂L/∂W = Σ_t δ_t x_tᵀ over the tokens, with x what W reads and δ the gradient after W. So ‖∂L/∂W‖²
averages to fan_in · fan_out · Σ_tt' (x_t·x_t')(δ_t·δ_t'), both products a coordinate. Within a
sequence of n tokens the sum is n [q γ_q + (n − 1) p γ_p]. Different sequences have independent
gradients under the linear loss. What is predicted is the root of the mean square.

On real text two tokens of different sequences may be the same character, may stand at the same
position, and may be followed by the same character. So neither they nor their gradients are
independent, and ∂L/∂W sums over the pairs of the whole batch. The recursions are the ones within a
sequence, but two rows of different sequences have no keys in common.

And what two tokens share goes together with what their gradients share: pairs of one character are
followed by one character more often than others, and windows that repeat themselves have more of
both. The excess over the mean is carried on as a small change; attention mixes that of single pairs
away, and passes that of whole windows on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from explorer.config import Config
from explorer.design import Design
from explorer.schemes.placement import Part
from explorer.theory.backward import Backward, of_heads
from explorer.theory.forward import Steps
from explorer.theory.gains import Gains, column
from explorer.theory.inputs import (
    BIGRAM,
    FREQUENT,
    coincidence,
    followings,
    loss_gradient,
    own_share,
)
from explorer.theory.positions import Positions
from explorer.theory.several import at_least, equals
from explorer.theory.tokens import Tokens, ratio
from explorer.vocabulary import Array

ONLY_MEAN = column([1.0, 0.0, 0.0])
"""`[kind, 1, 1]`: the mean over all pairs, without the two kinds of excess; see
`OtherSequences.totals`."""


def norms(
    design: Design, gains: Gains, own: dict[str, Array], across: dict[str, Array], unit: Any
) -> dict[str, Array]:
    """Norms ‖∂L/∂W‖ over a batch, `[layer]` by matrix, "sink" and "alpha" where they are learned;
    nan where a sum's terms cancel to less than 0.

    Args:
        design: whose matrices they are.
        own: Σ_tt' (x_t·x_t')(δ_t·δ_t') a coordinate within a sequence, `[layer]`; "alpha" stands
            for both branches' outputs and is `[sublayer]`.
        across: the same over the pairs with other sequences' tokens, by sequence.
        unit: the gradient's mean square at the last site.
    """
    total = {name: unit * (part + across.get(name, 0.0)) for name, part in own.items()}
    if gains.attends and "W_V" not in across:
        # W_V sees what W_O sees, transposed: Σ_ss' A_ts A_ts' (x_s·x_s') g_t·g_t
        if "W_V" in own:  # W_O's sum over all sequences is so much more than that within one
            total["W_V"] = unit * own["W_V"] * ratio(total["W_O"], unit * own["W_O"])
        else:
            of_output = gains.o * _by_layer(gains.last[::2], total["W_O"])  # gain of W_O
            total["W_V"] = total["W_O"] * of_output
    squares = {}
    for name, matrix in gains.matrices.items():
        if name in ("W_Q", "W_K", "W_V", "W_G"):
            # of these the sums have the gradient before W. That after W has d / fan_out of it, over
            # W's gain
            square = total[name] / matrix.gain * gains.d_model
        else:
            square = total[name] * matrix.fan_out
        # where σ is in the forward pass, the stored weight is the one divided by it
        squares[name] = square * (matrix.fan_in * matrix.forward**2)
    if design.sink.std:
        squares["sink"] = gains.d_model * gains.o * total["sink"]
    # it multiplies what both branches compute, as one number or by coordinate
    if design.alpha_shape is not None:
        alpha = total["alpha"]
        squares["alpha"] = gains.d_model * (alpha[::2] + alpha[1::2])
    return {name: np.sqrt(gains.batch_size * square) for name, square in squares.items()}


def _over_pairs(axis: Positions, x: Array, delta: Array) -> Array:
    """Σ_tt' (x_t·x_t')(δ_t·δ_t') a coordinate, over the ordered pairs of tokens of a sequence, each
    with itself among them: `[layer]`.

    Args:
        x: `[layer, 1 + position, position]`, the tokens that a matrix reads: second moments in row
            0, overlaps of two tokens below.
        delta: the same of the gradients after the matrix.
    """
    weights = axis.pair_sum  # of the sum, for row 0 and for two tokens
    return np.asarray(np.einsum("lij...,lij...,ij->l...", x, delta, weights))


def within(gains: Gains, axis: Positions, steps: Steps, back: Backward) -> dict[str, Array]:
    """`own` of `norms`: sums over the pairs within a sequence, `[layer]`."""
    inside, final_input = steps.inside, steps.final_input
    own = {name: _over_pairs(axis, inside[1::2], delta) for name, delta in back.hidden.items()}
    own["W_out"] = _over_pairs(axis, final_input[1::2], back.branch[1::2])
    own["alpha"] = _over_pairs(axis, steps.added, back.total)
    if not gains.attends:
        return own
    x, mixed = inside[::2], final_input[::2]
    # of one product W_Q and W_K see the same, but for their biases
    bias = 0.0 if gains.adds == "qk" else gains.biases.q / at_least(gains.q, 1e-300)
    own["W_Q"] = _over_pairs(axis, x, back.query)
    own["W_K"] = _over_pairs(axis, x + bias, back.key)
    own["W_O"] = _over_pairs(axis, mixed, back.branch[::2])
    for name, delta in back.gates.items():
        own[name] = _over_pairs(axis, x if name == "W_G" else mixed, delta)
    if gains.value_residual or not equals(gains.biases.v, 0):  # else W_V sees what W_O sees
        own["W_V"] = _of_values(gains, axis, x, back, own["W_O"])
    return own


def over_copies(
    design: Design, own: Mapping[str, Array], added_up: Mapping[str, Array]
) -> dict[str, Array]:
    """Sums over pairs of tokens, as `own` of `norms`, of weights that several layers have in
    common: the same in each of them.

    ∂L/∂W is a sum over those layers, and its square has products of different layers, too.

    Args:
        own: of each layer by itself.
        added_up: the products of different layers, as in `Backward`.
    """
    copies = design.settings.n_layers // design.unique
    sums = {}
    for name, by_layer in own.items():
        total = by_layer + added_up[name][: len(by_layer)]
        by_copy = total.reshape(copies, -1)  # the layers come in the same order in each pass
        sums[name] = np.tile(by_copy.sum(0), copies)
    return sums


def _of_values(gains: Gains, axis: Positions, x: Array, back: Backward, of_output: Array) -> Array:
    """`own` of W_V where values have biases, or ½ (V_1 + V_l) is mixed: `[layer]`.

    Values of independent matrices add up with a quarter of each one's overlaps, `part`.

    Args:
        x: `[layer, 1 + position, position]`, what attention reads: second moments in row 0,
            overlaps below.
        of_output: `own` of W_O. It has more than the values' means, by keys that happen to be
            alike, and W_V has as much more.
    """
    later = _by_layer(range(len(x)), of_output) > 0
    bias = gains.biases.v / at_least(gains.v, 1e-300)
    part, from_first, bias_of_later = 1.0, np.zeros_like(x), bias
    if gains.value_residual:
        part, from_first, bias_of_later = 0.25, np.broadcast_to(x[:1], x.shape), bias / 2
    values = part * (x + from_first) + bias_of_later
    values[0] = x[0] + bias
    scale = of_output * gains.o * _by_layer(gains.last[::2], of_output)
    more = scale / np.maximum(_over_pairs(axis, values, back.value), 1e-300)
    own: Array = more * np.where(later, part, 1.0) * _over_pairs(axis, x, back.value)
    # the first layer's W_V makes the values that later layers mix in
    lent = more * _over_pairs(axis, from_first, back.value)
    own[0] += part * lent[1:].sum(0)
    return own


def across(
    config: Config,
    gains: Gains,
    axis: Positions,
    steps: Steps,
    last: Tokens,
    alike: Array,
    length: Array,
    bent: float,
) -> dict[str, Array]:
    """`across` of `norms`: sums over the pairs with other sequences, `[layer]`; none under the
    linear loss.

    Args:
        last: the tokens at the output.
        alike: as in `backward.Backward`: by layer, the gradient's overlap before an attention,
            through the queries that keys which are alike share, over that after it.
        length: `[position]`, factor on a gradient's square through the final norm.
        bent: factor that turns overlaps of the last stream into overlaps of `last`.
    """
    if not config.design.predicts_text:
        return {}
    others = OtherSequences(config, gains, axis, steps)
    overlap = bent * float(axis.weights @ others.last @ axis.weights)
    start = loss_gradient(config, last._replace(p=overlap), FREQUENT, own_share(config, steps))
    shape = _pair(axis, length)[0]
    return others.totals(
        _pair(axis, alike), start.overlap * shape, start.target * shape, start.character
    )


def _by_layer(numbers: Sequence[float], x: Array) -> Array:
    """Numbers by layer, to multiply x, `[layer]`."""
    return np.reshape(numbers, (-1, *[1] * (x.ndim - 1)))


class OtherSequences:
    """Overlaps p of tokens in different sequences, forward and back, `[sublayer, pair]` or `[layer,
    pair]`, where a pair is `[position, position]`.

    With a branch F and the norms around it a sublayer is

        p → stay · p + join · F(enter · p)

    and its gradient's overlap goes back through the same factors."""

    def __init__(self, config: Config, gains: Gains, axis: Positions, steps: Steps) -> None:
        self.config, self.gains, self.axis = config, gains, axis
        last = column(gains.last)
        self.o, self.out = gains.o * last[::2], gains.out * last[1::2]
        """`[layer, 1, 1]`: gains of W_O and W_out."""
        self.character = config.input_second_moment * config.design.token_part
        """Part of an embedded token's second moment that is its character's."""
        self._links(steps)
        self._gate(steps)
        square = gains.hidden * _pair(axis, steps.inside[1::2, 0]) + gains.biases.hidden
        centered = gains.centers and any(step.placement.has("last") for step in steps[1::2])
        self._forward(square, centered)
        rho = self._rho(self.inside[1::2], square)
        self.slopes: Array = self.reach[1::2] * gains.kernel.slopes(square, rho)[1]
        """Through an MLP to its hidden units, of gradients' overlaps and small changes in the
        tokens'."""
        hidden = zip(gains.readers, gains.kernel.parts, strict=True)
        self.parts = {name: self.reach[1::2] * slope(square, rho)[1] for name, slope in hidden}
        """The slopes to each factor of a hidden unit, by the name of the matrix that makes the
        factor."""
        self.mlp: Array = self.join[1::2] * self.out * gains.hidden * self.slopes * self.enter[1::2]
        """Through a whole MLP, of gradients' overlaps and of small changes; the same both ways."""

    def _links(self, steps: Steps) -> None:
        """Sets the factors on overlaps `enter`, `stay` and `join` (see the class); `added`, which
        is `join` without the branch's multiplier; and `reach`, from the values' input, or from
        hidden units, to what the branch's last matrix reads."""
        gains, unit = self.gains, np.ones_like(self.axis.weights)
        divided = {}  # by norms on each signal
        for part in get_args(Part):
            squares = [step.norms[part].square if part in step.norms else unit for step in steps]
            divided[part] = _pair(self.axis, squares)
        scale = column(step.placement.scale * step.placement.reads for step in steps)
        skip, branch = column(gains.skip[: len(steps)]), column(gains.branch[: len(steps)])
        self.enter = scale**2 / divided["input"]
        self.stay = skip**2 / (divided["sum"] * divided["skip"])
        self.added: Array = 1 / (divided["sum"] * divided["output"])
        self.reach: Array = 1 / (divided["values"] * divided["last"])
        self.reach[::2] *= gains.v
        if not gains.attends:
            self.enter[::2], self.stay[::2], self.added[::2] = 0.0, 1.0, 0.0
        self.join = branch**2 * self.added

    def _gate(self, steps: Steps) -> None:
        """Sets `gate`, and multiplies `reach` of attention by what sinks and gates do to overlaps
        of mixed values.

        `gate`, `[layer, pair]`, is 0 without gates. It is the factor on overlaps of gradients that
        pass back through the gates, relative to the overlap of what W_O reads, of which the open
        gates' overlap is a factor."""
        gains, gate = self.gains, self.gains.gate
        self.gate = np.zeros_like(self.reach[::2])  # every second sublayer is attention
        lost = [
            step.attention.lost.mass for step in steps if step.attention and step.attention.lost
        ]
        if lost:
            self.reach[::2] *= _pair(self.axis, np.square(lost))
        if not gate:
            return
        units = gate.units(_pair(self.axis, steps.inside[::2, 0]), steps.rho[::2, 1:])
        _, opened = gate.kernel.overlaps(*units)
        _, slopes = gate.kernel.slopes(*units)
        self.reach[::2] *= opened
        self.gate += self.o * gate.gain * slopes / opened
        heads = of_heads(gains, self.axis, steps)
        if heads:
            self.gate *= heads.own

    def _forward(self, square: Array, centered: bool) -> None:
        """Sets the overlaps `inside` of the branches' inputs, `final_input` of the inputs of their
        last matrices, `[sublayer, pair]`, and `last` after the last sublayer.

        At the embedding two tokens agree in their character, with the probability Σ f², and in
        their position, with the probability 1/n.

        Args:
            square: `[layer, pair]`, second moments of hidden units' inputs.
            centered: whether a norm takes the mean from hidden units.
        """
        config, gains = self.config, self.gains
        position = config.input_second_moment - self.character
        p: Array = np.full_like(square[0], self.character * FREQUENT + position / config.n_ctx)
        bias = gains.biases.v / max(gains.v, 1e-300)
        inside: list[Array] = []
        final_input: list[Array] = []
        for layer, units in enumerate(square):
            index, second = 2 * layer, 2 * layer + 1
            x = p * self.enter[index]
            values, of_bias = x, bias
            if inside and gains.value_residual:  # ½ (V_1 + V_l)
                values, of_bias = (x + inside[0]) / 4, bias / 2
            mixed = self.reach[index] * (self._attended(values) + of_bias)
            added = self.o[layer] * mixed + gains.biases.o
            mid = self.stay[index] * p + self.join[index] * added
            y = (p if gains.parallel else mid) * self.enter[second]
            hidden = gains.kernel.overlaps(units, self._rho(y, units))[1]
            if centered:
                hidden = hidden - gains.kernel.overlaps(units, self._rho(0 * y, units))[1]
            hidden = self.reach[second] * hidden
            added = self.out[layer] * hidden + gains.biases.out
            p = self.stay[second] * mid + self.join[second] * added
            inside += [x, y]
            final_input += [mixed, hidden]
        self.inside, self.final_input, self.last = np.array(inside), np.array(final_input), p

    def _attended(self, x: Array) -> Array:
        """Mean over the keys of two rows, of `[..., position, position]`."""
        return self.axis.key_mean @ x @ self.axis.key_mean.T

    def _rho(self, x: Array, square: Array) -> Array:
        """Correlation of the inputs of two hidden units, of tokens of overlap x."""
        overlap = self.gains.hidden * x + self.gains.biases.hidden
        return np.minimum(np.maximum(overlap / square, 0.0), 1.0)

    def totals(
        self, query: Array, overlap: Array, target: Array, character: float
    ) -> dict[str, Array]:
        """Σ (x_t·x_t')(δ_t·δ_t') a coordinate over the pairs with other sequences, `[layer]`, and
        what tokens and gradients share together within a sequence.

        A pair has three kinds of terms: of all pairs the mean; of single pairs the excess over it,
        which attention mixes away; of whole windows the excess, which attention passes on.

        Args:
            query: `alike` of `across`, by pair.
            overlap: `[pair]`, mean overlap of two tokens' gradients at the last sublayer's output.
            target: there, the excess of pairs of tokens with the same next character.
            character: excess of pairs of tokens that are the same character, over the excess for
                the same next one.
        """
        n = self.config.n_ctx
        others = (self.config.batch_size - 1) * n**2
        followed, varied = followings(n)
        same = coincidence(n)
        # covariance of being one character, and of being followed by one
        within = followed + character * same * (1 - same)
        between = BIGRAM - FREQUENT**2 + character * FREQUENT * (1 - FREQUENT)
        single = (n - 1) * n * within + others * between
        # ordered pairs of a token with others, of the three kinds; then by the two positions
        pairs = np.array([others, single, (n - 1) * n * varied])
        weights = np.einsum("k,i,j->kij", pairs, self.axis.weights, self.axis.weights)

        # of each kind the overlaps of tokens in two places, and of gradients
        kinds = [(self.inside, self.final_input, self._descend(overlap, query, 1.0))]
        kinds += [
            (*self._excess(passed), self._descend(target, 0 * query, passed))
            for passed in (0.0, 1.0)  # of single pairs, of whole windows
        ]
        # [sublayer, kind, position, position]
        inside, final_input, after = (np.stack(kind, 1) for kind in zip(*kinds, strict=True))
        return self._by_matrix(ONLY_MEAN * query[:, None], inside, final_input, after, weights)

    def _by_matrix(
        self, query: Array, inside: Array, final_input: Array, after: Array, weights: Array
    ) -> dict[str, Array]:
        """The sums of `totals` by matrix. Here, too, a pair is `[position, position]`.

        Args:
            query: `[layer, kind, pair]`, factor on gradients through the queries.
            inside: `[sublayer, kind, pair]`, overlaps of the branches' inputs, `final_input` of
                their last matrices' inputs, and `after` of gradients after sublayers.
            weights: `[kind, pair]`, number of pairs.
        """
        gains = self.gains

        def total(x: Array) -> Array:
            """Sum over kinds and pairs of `[layer, kind, pair]`."""
            return np.asarray(np.einsum("lkij,kij->l", x, weights))

        # even sublayers are attentions, odd ones are MLPs
        joined = self.join[:, None] * after  # at the branches' outputs
        x, of_attention = inside[::2], joined[::2]
        mixed, of_mlp = final_input[::2], joined[1::2]
        logits = total(x * query * of_attention)
        totals = {
            "W_Q": logits,
            # equal, of one product; where queries and keys add up, the products differ
            "W_K": logits,
            "W_G": total(x * mixed * (self.gate[:, None] * ONLY_MEAN) * of_attention),
            "W_O": total(mixed * of_attention),
            "W_out": total(final_input[1::2] * of_mlp),
        }
        if gains.biases.v and not gains.value_residual:  # W_O reads a bias that W_V does not
            bias = ONLY_MEAN * self.reach[::2, None] * (gains.biases.v / gains.v)
            totals["W_V"] = self.o[:, 0, 0] * total((mixed - bias) * of_attention)
        units = self.out[:, 0, 0] * gains.d_model / gains.d_mlp
        for name, part in self.parts.items():
            totals[name] = units * total(part[:, None] * inside[1::2] * of_mlp)
        last = np.stack([self.o, self.out], 1).ravel()
        totals["alpha"] = last * total(final_input * self.added[:, None] * after)
        return totals

    def _excess(self, passed: float) -> tuple[Array, Array]:
        """The excess overlap of two tokens of one character, `[sublayer, pair]`: in what a branch
        reads, and in what its last matrix reads. It is carried on as a small change.

        Args:
            passed: part of it that attention passes on, 0 or 1.
        """
        join = passed * self.o * self.reach[::2] * self.join[::2]
        own, stream = np.full_like(self.last, self.character), []
        for stay, enter, joined, after, mlp in zip(
            self.stay[::2], self.enter[::2], join, self.stay[1::2], self.mlp, strict=True
        ):
            mid = stay * own + joined * self._attended(enter * own)
            seen_by_mlp = own if self.gains.parallel else mid
            stream += [own, seen_by_mlp]
            own = after * mid + mlp * seen_by_mlp
        inside = np.array(stream) * self.enter
        final_input = passed * self.reach * self._attended(inside)
        final_input[1::2] = self.gains.hidden * self.slopes * inside[1::2]
        return inside, final_input

    def _descend(self, gradient: Array, query: Array, passed: float) -> Array:
        """The backward recursion: overlaps of gradients after each sublayer, `[sublayer, pair]`.

        Args:
            gradient: `[pair]`, at the last sublayer's output.
            query: `[layer, pair]`, factor through the queries.
            passed: part of it that attention passes on, 0 or 1.
        """
        after, stream, row_sum = gradient, [], self.axis.row_sum
        enter, join = self.enter[::2], self.join[::2]
        keep = self.stay[::2] + enter * join * query
        collected = passed * self.o * self.reach[::2] * enter
        parts = (self.stay[1::2], self.mlp, keep, collected, join)
        for stay, mlp, kept, given, joined in zip(*(part[::-1] for part in parts), strict=True):
            through_mlp = after * mlp
            mid = after * stay
            if not self.gains.parallel:
                mid = mid + through_mlp
            stream += [after, mid]
            # the adjoint of `_attended`: from two rows to their keys
            after = kept * mid + given * (row_sum @ (joined * mid) @ row_sum.T)
            if self.gains.parallel:
                after = after + through_mlp
        return np.array(stream[::-1])


def _pair(axis: Positions, x: Any) -> Array:
    """Geometric mean √(x_i x_j) at two positions: `[layer, position, position]`.

    Args:
        x: `[layer, position]`, or what reshapes to it.
    """
    root = np.sqrt(np.reshape(x, (-1, len(axis.weights))))
    return root[:, :, None] * root[:, None, :]
