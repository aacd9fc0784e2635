"""Norms of the loss gradient by the weights, from the two recursions.

∂L/∂W = Σ_t δ_t x_tᵀ over the tokens, so ‖∂L/∂W‖² averages to fan_in · fan_out · Σ_tt'
(x_t·x_t')(δ_t·δ_t'), each a coordinate: per sequence n [q_x δ_q + (n − 1) p_x δ_p], with x what W
reads and δ the gradient after it. Different sequences have independent gradients under the linear
loss. What is predicted is the root of the mean square.

On real text two tokens of different sequences may be the same character, may stand at the same
position, and may be followed by the same character. So neither they nor their gradients are
independent, and ∂L/∂W sums over the pairs of the whole batch. The recursions are the ones within a
sequence, but two rows of different sequences have no keys in common.

And what two tokens share goes together with what their gradients share: pairs of one character are
followed by one character more often than others, and windows that repeat themselves have more of
both. The excess over the mean is carried on as a small change; attention mixes that of single pairs
away, and passes that of whole windows on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import numpy as np

from explorer.config import Config
from explorer.profile import Array
from explorer.schemes.placement import Part
from explorer.theory.backward import Backward, of_heads
from explorer.theory.forward import Steps
from explorer.theory.gains import Gains
from explorer.theory.inputs import (
    BIGRAM,
    FREQUENT,
    coincidence,
    followings,
    loss_gradient,
    own_share,
)
from explorer.theory.positions import Positions
from explorer.theory.tokens import Tokens

FIRST = np.array([1.0, 0.0, 0.0])[:, None, None]
"""The first of the kinds of `Others.kinds` alone."""


def norms(
    config: Config, gains: Gains, own: dict[str, Array], across: dict[str, Array], unit: float
) -> dict[str, Array]:
    """Matrix to `[layer]`, "sink" and "alpha" where they are learned; nan where a sum's terms
    cancel to less than 0.

    Args:
        own: Σ_tt' (x_t·x_t')(δ_t·δ_t') a coordinate within a sequence, `[layer]`; "alpha" stands
            for both branches' outputs and is `[sublayer]`. W_V sees what W_O sees, transposed:
            Σ_ss' A_ts A_ts' (x_s·x_s') g_t·g_t.
        across: the same over the pairs with other sequences' tokens, by sequence.
        unit: the gradient's mean square at the last site.
    """
    design = config.design
    total = {name: unit * (part + across.get(name, 0.0)) for name, part in own.items()}
    if gains.attends and "W_V" not in across:
        last = total["W_O"] * gains.o * gains.last[::2, 0, 0]
        if "W_V" in own:  # of other sequences as much as W_O has
            last = (
                unit
                * own["W_V"]
                * np.divide(total["W_O"], unit * own["W_O"], where=own["W_O"] > 0, out=0 * last)
            )
        total["W_V"] = last
    squares = {}
    for name, matrix in design.matrices.items():
        square = total[name] * matrix.fan_out
        if name in ("W_Q", "W_K", "W_V", "W_G"):
            # the gradient after W has d / fan_out of what comes down to the stream through it, over
            # its gain
            square = total[name] / matrix.gain * config.d_model
        # where σ is in the forward pass, the stored weight is the one divided by it
        squares[name] = square * (matrix.fan_in * matrix.forward**2)
    if design.sink.std:
        squares["sink"] = config.d_model * gains.o * total["sink"]
    # it multiplies what both branches compute, as one number or by coordinate
    if design.alpha_shape is not None:
        squares["alpha"] = config.d_model * total["alpha"].reshape(-1, 2).sum(1)
    return {name: np.sqrt(config.batch_size * square) for name, square in squares.items()}


def within(gains: Gains, axis: Positions, steps: Steps, back: Backward) -> dict[str, Array]:
    """`own` of `norms`."""

    def pairs(x: Array, delta: Array) -> Array:
        """Σ_tt' (x_t·x_t')(δ_t·δ_t') a coordinate, over the ordered pairs of tokens, each with
        itself among them."""
        return np.asarray(np.einsum("lij,lij,ij->l", x, delta, axis.pair_sum))

    inside, final_input = steps.inside, steps.final_input
    own = {
        **{name: pairs(inside[1::2], delta) for name, delta in back.hidden.items()},
        "W_out": pairs(final_input[1::2], back.branch[1::2]),
        "alpha": pairs(steps.added, back.total),
    }
    if gains.attends:
        x = inside[::2]
        # of one product W_Q and W_K see the same, but for their biases
        bias = 0.0 if gains.adds == "qk" else gains.biases.q / max(gains.q, 1e-300)
        own["W_Q"], own["W_K"] = pairs(x, back.query), pairs(x + bias, back.key)
        own["W_O"] = pairs(final_input[::2], back.branch[::2])
        reads = {"W_G": x, "sink": final_input[::2]}
        own |= {name: pairs(reads[name], part) for name, part in back.gates.items()}
        if gains.value_residual or gains.biases.v:  # else W_V sees what W_O sees
            bias = gains.biases.v / max(gains.v, 1e-300)
            part, first = (0.25, x[:1]) if gains.value_residual else (1.0, 0 * x[:1])
            mixed = np.concatenate(
                [x[:1] + bias, part * (x[1:] + first) + bias * (0.5 if gains.value_residual else 1)]
            )
            # more, by keys that happen to be alike
            more = (
                own["W_O"]
                * gains.o
                * gains.last[::2, 0, 0]
                / np.maximum(pairs(mixed, back.value), 1e-300)
            )
            own["W_V"] = more * np.where(np.arange(len(x)), part, 1.0) * pairs(x, back.value)
            own["W_V"][0] += (
                part * (more * pairs(np.broadcast_to(first, x.shape), back.value))[1:].sum()
            )
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
    """`across` of `norms`: terms of other sequences; none under the linear loss.

    Args:
        last: the tokens at the output.
        alike: as in `backward.Backward`: by layer, the gradient's overlap before an attention,
            through the queries that keys which are alike share, over that after it.
        length: `[position]`, factor on a gradient's square through the final norm.
        bent: factor that turns overlaps of the last stream into overlaps of `last`.
    """
    if not config.design.predicts_text:
        return {}
    others = Others(config, gains, axis, steps)
    overlap = bent * float(axis.weights @ others.last @ axis.weights)
    start = loss_gradient(config, last._replace(p=overlap), FREQUENT, own_share(config, steps))
    shape = _pair(axis, length)[0]
    return others.totals(
        _pair(axis, alike), start.overlap * shape, start.target * shape, start.character
    )


class Others:
    """Overlaps of tokens in different sequences, forward and back, `[sublayer, pair]` or `[layer,
    pair]`.

    A pair here is `[position, position]`. Through a branch F and its sum p → stay · p + join ·
    F(enter · p)."""

    def __init__(self, config: Config, gains: Gains, axis: Positions, steps: Steps) -> None:
        self.config, self.gains, self.axis = config, gains, axis
        self.o, self.out = gains.o * gains.last[::2], gains.out * gains.last[1::2]
        """`[layer, 1, 1]`: gains of W_O and W_out."""
        self._links(steps)
        self._gate(steps)
        centered = gains.centers and any(step.placement.has("last") for step in steps[1::2])
        square = gains.hidden * _pair(axis, steps.inside[1::2, 0]) + gains.biases.hidden
        # from the embedding: half of a token is its character's, half its position's; or all of it
        # its character's
        size, part = config.input_second_moment, config.design.token_part
        p: Array = np.full_like(square[0], size * (part * FREQUENT + (1 - part) / config.n_ctx))
        self.part = size * part
        """Part of an embedded token's second moment that is its character's."""
        bias = gains.biases.v / max(gains.v, 1e-300)
        inside: list[Array] = []
        final_input: list[Array] = []
        for index in range(0, len(steps), 2):
            second = index + 1
            x = p * self.enter[index]
            lent = bool(inside) and gains.value_residual
            values, shared = ((x + inside[0]) / 4, bias / 2) if lent else (x, bias)
            mixed = self.reach[index] * (self._attended(values) + shared)
            mid = self.stay[index] * p + self.join[index] * (
                self.o[index // 2] * mixed + gains.biases.o
            )
            y = (p if gains.parallel else mid) * self.enter[second]
            units = square[index // 2]
            bent = gains.kernel.overlaps(units, self._rho(y, units))[1]
            if centered:
                bent = bent - gains.kernel.overlaps(units, self._rho(0 * y, units))[1]
            bent = self.reach[second] * bent
            p = self.stay[second] * mid + self.join[second] * (
                self.out[index // 2] * bent + gains.biases.out
            )
            inside += [x, y]
            final_input += [mixed, bent]
        self.inside, self.final_input, self.last = np.array(inside), np.array(final_input), p
        """Overlaps of the branches' inputs, of the inputs of their last matrices, and after the
        last sublayer."""
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
        """Factors on overlaps: see the class; `added` is `join` without the branch's multiplier,
        `reach` leads from the values' input, or from hidden units, to what the branch's last matrix
        reads."""
        gains, unit = self.gains, np.ones_like(self.axis.weights)
        divided = {
            part: _pair(
                self.axis,
                [norm.square if (norm := step.norms.get(part)) else unit for step in steps],
            )
            for part in get_args(Part)
        }
        scale = np.array([step.placement.scale * step.placement.reads for step in steps])[
            :, None, None
        ]
        skip, branch = (
            np.array(part)[: len(steps), None, None] ** 2 for part in (gains.skip, gains.branch)
        )
        self.enter, self.stay = (
            scale**2 / divided["input"],
            skip / (divided["sum"] * divided["skip"]),
        )
        self.added: Array = 1 / (divided["sum"] * divided["output"])
        self.reach: Array = 1 / (divided["values"] * divided["last"])
        self.reach[::2] *= gains.v
        if not gains.attends:
            self.enter[::2], self.stay[::2], self.added[::2] = 0.0, 1.0, 0.0
        self.join = branch * self.added

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

    def _attended(self, x: Array) -> Array:
        """Average over the keys of two rows, of `[..., position, position]`."""
        return self.axis.key_mean @ x @ self.axis.key_mean.T

    def _rho(self, x: Array, square: Array) -> Array:
        """Correlation of the inputs of two hidden units."""
        return np.minimum(
            np.maximum((self.gains.hidden * x + self.gains.biases.hidden) / square, 0.0), 1.0
        )

    def totals(
        self, query: Array, overlap: Array, target: Array, character: float
    ) -> dict[str, Array]:
        """Terms added to the totals of `norms`, `[layer]`: of other sequences' tokens, of
        correlated factors.

        Args:
            query: `alike` of `across`, by pair.
            overlap: at the last sublayer's output, of two tokens' gradients the mean.
            target: there, the excess of pairs of tokens with the same next character.
            character: excess of pairs of tokens that are the same character, over the excess for
                the same next one.
        """
        config, gains = self.config, self.gains
        n, others = config.n_ctx, (config.batch_size - 1) * config.n_ctx**2
        followed, varied = followings(n)
        same = coincidence(n)
        single = (n - 1) * n * (followed + character * same * (1 - same))
        single += others * (BIGRAM - FREQUENT**2 + character * FREQUENT * (1 - FREQUENT))
        pairs = np.array([others, single, (n - 1) * n * varied])
        inside, final_input, after = self._kinds(query, overlap, target)
        query = FIRST * query[:, None]
        weights = np.einsum("k,i,j->kij", pairs, self.axis.weights, self.axis.weights)

        def total(x: Array) -> Array:
            return np.asarray(np.einsum("lkij,kij->l", x, weights))

        joined, units = self.join[:, None] * after, self.out[:, 0, 0] * gains.d_model / gains.d_mlp
        last = np.stack([self.o, self.out], 1).ravel()
        logits, values = total(inside[::2] * query * joined[::2]), {}
        if gains.biases.v and not gains.value_residual:  # W_O reads a bias that W_V does not
            bias = FIRST * self.reach[::2, None] * (gains.biases.v / gains.v)
            values["W_V"] = self.o[:, 0, 0] * total((final_input[::2] - bias) * joined[::2])
        return {
            **values,
            "W_Q": logits,
            "W_K": logits,  # alike, of one product; where queries and keys add up, the products differ
            "W_G": total(
                inside[::2] * final_input[::2] * (self.gate[:, None] * FIRST) * joined[::2]
            ),
            "W_O": total(final_input[::2] * joined[::2]),
            **{
                name: units * total(part[:, None] * inside[1::2] * joined[1::2])
                for name, part in self.parts.items()
            },
            "W_out": total(final_input[1::2] * joined[1::2]),
            "alpha": last * total(final_input * self.added[:, None] * after),
        }

    def _kinds(self, query: Array, overlap: Array, target: Array) -> Iterator[Array]:
        """`[sublayer, kind, pair]` of what branches read, their last matrices, and gradients, see
        `totals`.

        Of all pairs the mean; of single pairs the excess, which attention mixes away; of whole
        windows the excess."""
        columns = [(self.inside, self.final_input, self._descend(overlap, query, 1.0))]
        columns += [
            (*self._excess(passed), self._descend(target, 0 * query, passed))
            for passed in (0.0, 1.0)
        ]
        return (np.stack(column, 1) for column in zip(*columns, strict=True))

    def _excess(self, passed: float) -> tuple[Array, Array]:
        """The excess, `[sublayer, pair]`, in what a branch reads and in what its last matrix reads.

        A small change in a character's part of a token, carried on; `passed` by attention, all of
        it or nothing."""
        join = passed * self.o * self.reach[::2] * self.join[::2]
        own, stream = np.full_like(self.last, self.part), []
        for stay, enter, joined, after, mlp in zip(
            self.stay[::2], self.enter[::2], join, self.stay[1::2], self.mlp, strict=True
        ):
            mid = stay * own + joined * self._attended(enter * own)
            read_by_mlp = own if self.gains.parallel else mid
            stream += [own, read_by_mlp]
            own = after * mid + mlp * read_by_mlp
        inside = np.array(stream) * self.enter
        final_input = passed * self.reach * self._attended(inside)
        final_input[1::2] = self.gains.hidden * self.slopes * inside[1::2]
        return inside, final_input

    def _descend(self, gradient: Array, query: Array, passed: float) -> Array:
        """The backward recursion, `[sublayer, pair]`: gradients after each sublayer."""
        after, stream, suffix = gradient, [], self.axis.row_sum
        enter, join = self.enter[::2], self.join[::2]
        keep, collected = (
            self.stay[::2] + enter * join * query,
            passed * self.o * self.reach[::2] * enter,
        )
        parts = (self.stay[1::2], self.mlp, keep, collected, join)
        for stay, mlp, kept, given, joined in zip(*(part[::-1] for part in parts), strict=True):
            beside = after * mlp
            mid = after * stay + (0 if self.gains.parallel else beside)
            stream += [after, mid]
            # the adjoint of `_attended`: from two rows to their keys
            collect = suffix @ (joined * mid) @ suffix.T
            after = kept * mid + given * collect + (beside if self.gains.parallel else 0)
        return np.array(stream[::-1])


def _pair(axis: Positions, x: Any) -> Array:
    """`[layer, position]` to `[layer, pair]`: the geometric mean at two positions."""
    root = np.sqrt(np.reshape(x, (-1, len(axis.weights))))
    return np.asarray(root[:, :, None] * root[:, None, :])
