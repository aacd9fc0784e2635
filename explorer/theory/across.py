"""Overlaps of tokens in different sequences, forward and back, for the loss on real text.

Two tokens of different sequences may be the same character, may stand at the same position, and may be followed by the
same character. So neither they nor their gradients are independent, and ∂L/∂W sums over the pairs of the whole batch.
The recursions are the ones within a sequence, but two rows of different sequences have no keys in common.

And what two tokens share goes together with what their gradients share: pairs of one character are followed by one
character more often than others, and windows that repeat themselves have more of both. The excess over the mean is
carried on as a small change; attention mixes that of single pairs away, and passes that of whole windows on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from explorer.config import Config
from explorer.theory.forward import Step
from explorer.theory.gains import Gains
from explorer.theory.grids import Array
from explorer.theory.inputs import BIGRAM, FREQUENT, coincidence, followings, loss_gradient, own_share
from explorer.theory.positions import Positions
from explorer.theory.tokens import Tokens

FIRST = np.array([1.0, 0.0, 0.0])[:, None, None]
"""The first of the kinds of `_kinds` alone."""


class Forward(NamedTuple):
    """Over the sublayers, `[sublayer, pair]`."""

    enter: Array
    """Factor on overlaps into the branch F, and so on: p → stay · p + join · F(enter · p)."""
    stay: Array
    join: Array
    added: Array
    """`join` without the branch's multiplier."""
    reach: Array
    """Factor on overlaps from values' input, or from hidden units, to what the branch's last matrix reads."""
    gate: Array
    """`[layer, pair]`: through gates, over what W_O reads; 0 without."""
    slopes: Array
    """`[layer, pair]`: through an MLP to its hidden units, of gradients' overlaps and small changes in the tokens'."""
    parts: dict[str, Array]
    """`[layer, pair]`: the slopes to each factor of a hidden unit, by the name of the matrix that makes the factor."""
    mlp: Array
    """`[layer, pair]`: through a whole MLP, of gradients' overlaps and of small changes; the same both ways."""
    parallel: bool
    """Whether the MLP reads the stream from before the attention."""
    inside: Array
    """Overlap of the branch's inputs."""
    final_input: Array
    """Overlap of the inputs of its last matrix."""
    last: Array
    """`[pair]`: after the last sublayer."""
    part: float
    """Part of an embedded token's second moment that is its character's."""


def forward(config: Config, gains: Gains, steps: Sequence[Step], place: Positions) -> Forward:
    """From the embedding: half of a token is its character's, half its position's; or all of it its character's."""
    enter, stay, join, added, reach = _links(gains, steps, place)
    centered = gains.centers and any(step.placement.on_read for step in steps[1::2])
    square = gains.hidden * _pair(place, [step.inside.q for step in steps[1::2]]) + gains.biases.hidden
    size, part = config.input_second_moment, config.design.token_part
    p: Array = np.full_like(square[0], size * (part * FREQUENT + (1 - part) / config.n_ctx))
    weight, gate = _weight(gains, steps[::2], place)
    reach[::2] *= weight
    bias = gains.biases.v / max(gains.v, 1e-300)
    inside: list[Array] = []
    final_input: list[Array] = []
    for index in range(0, len(steps), 2):
        second = index + 1
        x = p * enter[index]
        lent = bool(inside) and gains.value_residual
        values, shared = ((x + inside[0]) / 4, bias / 2) if lent else (x, bias)
        mixed = reach[index] * (_attended(place, values) + shared)
        mid = stay[index] * p + join[index] * (gains.o * mixed + gains.biases.o)
        y = (p if gains.parallel else mid) * enter[second]
        bent = gains.kernel.overlaps(square[index // 2], _rho(gains, y, square[index // 2]))[1]
        if centered:
            bent = bent - gains.kernel.overlaps(square[index // 2], _rho(gains, 0 * y, square[index // 2]))[1]
        bent = reach[second] * bent
        p = stay[second] * mid + join[second] * (gains.out * bent + gains.biases.out)
        inside += [x, y]
        final_input += [mixed, bent]
    x = np.array(inside)
    rho = _rho(gains, x[1::2], square)
    slopes = reach[1::2] * gains.kernel.slopes(square, rho)[1]
    hidden = zip(gains.readers, gains.kernel.parts, strict=True)
    parts = {name: reach[1::2] * slope(square, rho)[1] for name, slope in hidden}
    mlp = join[1::2] * gains.out * gains.hidden * slopes * enter[1::2]
    return Forward(enter, stay, join, added, reach, gate, slopes, parts, mlp, gains.parallel, x,
                   np.array(final_input), p, size * part)


def _weight(gains: Gains, steps: Sequence[Step], place: Positions) -> tuple[Array, Array]:
    """Factors `[layer, pair]` of the sink and the gates on overlaps of mixed values, and `gate` of `Forward`."""
    weight = np.ones((len(steps), len(place.mean), len(place.mean)))
    gate = np.zeros_like(weight)
    lost = [step.attention.lost.mass for step in steps if step.attention and step.attention.lost]
    if lost:
        weight *= _pair(place, np.square(lost))
    if gains.gate:
        units = gains.gate.units(*(np.array([getattr(step.inside, name)[1:] for step in steps])
                                   for name in ("square", "rho")))
        opened = gains.gate.kernel.overlaps(*units)[1]
        weight *= opened
        gate += gains.o * gains.gate.gain * gains.gate.kernel.slopes(*units)[1] / opened
    return weight, gate


def _attended(place: Positions, x: Array) -> Array:
    """Average over the keys of two rows, of `[..., position, position]`."""
    return place.prefix @ x @ place.prefix.T


def _collected(place: Positions, x: Array) -> Array:
    """The adjoint of `_attended`: from two rows to their keys."""
    return place.suffix @ x @ place.suffix.T


def _pair(place: Positions, x: Any) -> Array:
    """`[layer, position]` to `[layer, pair]`: the geometric mean at two positions."""
    root = np.sqrt(np.reshape(x, (-1, len(place.mean))))
    product: Array = root[:, :, None] * root[:, None, :]
    return product


def _rho(gains: Gains, x: Array, square: Array) -> Array:
    """Correlation of the inputs of two hidden units."""
    return np.minimum(np.maximum((gains.hidden * x + gains.biases.hidden) / square, 0.0), 1.0)


def _links(gains: Gains, steps: Sequence[Step], place: Positions) -> tuple[Array, ...]:
    """`enter`, `stay`, `join`, `added` and `reach`."""
    unit = np.ones_like(place.mean)
    on_input, on_output, on_sum, on_heads, on_read = (
        _pair(place, [norm.square if (norm := getattr(step, name)) else unit for step in steps])
        for name in ("on_input", "on_output", "on_sum", "on_heads", "on_read")
    )
    scale = np.array([step.placement.scale * step.placement.reads for step in steps])[:, None, None]
    skip, branch = (np.array(part)[:len(steps), None, None] ** 2 for part in (gains.skip, gains.branch))
    enter, stay, added = scale**2 / on_input, skip / on_sum, 1 / (on_sum * on_output)
    reach = 1 / (on_heads * on_read)
    reach[::2] *= gains.v
    if not gains.attends:
        enter[::2], stay[::2], added[::2] = 0.0, 1.0, 0.0
    return enter, stay, branch * added, added, reach


def by_weights(config: Config, gains: Gains, steps: Sequence[Step], place: Positions, last: Tokens, alike: Array,
               length: Array, bent: float) -> dict[str, Array]:
    """Terms of other sequences in the weights' gradients, see `totals`; none under the linear loss.

    Args:
        last: the tokens at the output.
        alike: as in `backward.Backward`.
        length: `[position]`, factor on a gradient's square through the final norm.
        bent: factor that turns overlaps of the last stream into overlaps of `last`.
    """
    if not config.design.predicts_text:
        return {}
    tokens = forward(config, gains, steps, place)
    overlap = bent * float(place.mean @ tokens.last @ place.mean)
    start = loss_gradient(config, last._replace(p=overlap), FREQUENT, own_share(config, steps))
    shape, query = _pair(place, length)[0], _pair(place, alike)
    starts = start.overlap * shape, start.target * shape
    return totals(config, gains, tokens, query, starts, place, start.character)


def totals(config: Config, gains: Gains, tokens: Forward, query: Array, start: tuple[Array, Array], place: Positions,
           character: float) -> dict[str, Array]:
    """Terms added to the totals of `parameters.norms`, `[layer]`: of other sequences' tokens, of correlated factors.

    Args:
        tokens: the forward pass.
        query: by layer, the gradient's overlap before an attention, through the queries that keys which are alike
            share, over that after it.
        start: at the last sublayer's output, mean overlap of two tokens' gradients, and the excess of pairs of tokens
            with the same next character.
        character: excess of pairs of tokens that are the same character, over the excess for the same next character.
    """
    n, others = config.n_ctx, (config.batch_size - 1) * config.n_ctx**2
    followed, varied = followings(n)
    same = coincidence(n)
    single = (n - 1) * n * (followed + character * same * (1 - same))
    single += others * (BIGRAM - FREQUENT**2 + character * FREQUENT * (1 - FREQUENT))
    pairs = np.array([others, single, (n - 1) * n * varied])
    inside, final_input, after = _kinds(gains, tokens, query, start, place)
    query = FIRST * query[:, None]
    weights = np.einsum("k,i,j->kij", pairs, place.mean, place.mean)

    def total(x: Array) -> Array:
        summed: Array = np.einsum("lkij,kij->l", x, weights)
        return summed

    joined, units = tokens.join[:, None] * after, gains.out * gains.d_model / gains.d_mlp
    last = np.array([gains.o, gains.out] * config.n_layers)
    logits, values = total(inside[::2] * query * joined[::2]), {}
    if gains.biases.v and not gains.value_residual:  # W_O reads a bias that W_V does not
        bias = FIRST * tokens.reach[::2, None] * (gains.biases.v / gains.v)
        values["W_V"] = gains.o * total((final_input[::2] - bias) * joined[::2])
    return {
        **values,
        "W_Q": logits,
        "W_K": logits,  # alike, of one product; where queries and keys add up, the products differ
        "W_G": total(inside[::2] * final_input[::2] * (tokens.gate[:, None] * FIRST) * joined[::2]),
        "W_O": total(final_input[::2] * joined[::2]),
        **{name: units * total(part[:, None] * inside[1::2] * joined[1::2]) for name, part in tokens.parts.items()},
        "W_out": total(final_input[1::2] * joined[1::2]),
        "alpha": last * total(final_input * tokens.added[:, None] * after),
    }


def _kinds(gains: Gains, tokens: Forward, query: Array, start: tuple[Array, Array], place: Positions
           ) -> Iterator[Array]:
    """`[sublayer, kind, pair]` of what branches read, their last matrices, and gradients, see `totals`.

    Of all pairs the mean; of single pairs the excess, which attention mixes away; of whole windows the excess.
    """
    columns = [(tokens.inside, tokens.final_input, _descend(gains, tokens, start[0], query, 1.0, place))]
    for passed in (0.0, 1.0):
        after = _descend(gains, tokens, start[1], 0 * query, passed, place)
        columns.append((*_excess(gains, tokens, passed, place), after))
    return (np.stack(column, 1) for column in zip(*columns, strict=True))


def _excess(gains: Gains, tokens: Forward, passed: float, place: Positions) -> tuple[Array, Array]:
    """The excess, `[sublayer, pair]`, in what a branch reads and in what its last matrix reads.

    A small change in a character's part of a token, carried on; `passed` by attention, all of it or nothing.
    """
    join = passed * gains.o * tokens.reach[::2] * tokens.join[::2]
    own, stream = np.full_like(tokens.last, tokens.part), []
    for stay, enter, joined, after, mlp in zip(
            tokens.stay[::2], tokens.enter[::2], join, tokens.stay[1::2], tokens.mlp, strict=True):
        mid = stay * own + joined * _attended(place, enter * own)
        read_by_mlp = own if tokens.parallel else mid
        stream += [own, read_by_mlp]
        own = after * mid + mlp * read_by_mlp
    inside = np.array(stream) * tokens.enter
    final_input = passed * tokens.reach * _attended(place, inside)
    final_input[1::2] = gains.hidden * tokens.slopes * inside[1::2]
    return inside, final_input


def _descend(gains: Gains, tokens: Forward, gradient: Array, query: Array, passed: float, place: Positions) -> Array:
    """The backward recursion, `[sublayer, pair]`: gradients after each sublayer."""
    after, stream = gradient, []
    enter, join = tokens.enter[::2], tokens.join[::2]
    keep, collected = tokens.stay[::2] + enter * join * query, passed * gains.o * tokens.reach[::2] * enter
    parts = (tokens.stay[1::2], tokens.mlp, keep, collected, join)
    for stay, mlp, kept, given, joined in zip(*(part[::-1] for part in parts), strict=True):
        beside = after * mlp
        mid = after * stay + (0 if tokens.parallel else beside)
        stream += [after, mid]
        after = kept * mid + given * _collected(place, joined * mid) + (beside if tokens.parallel else 0)
    return np.array(stream[::-1])
