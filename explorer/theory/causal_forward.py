"""The forward recursion under a causal mask: second moments by position, overlaps by pair of positions.

As `forward` and `logits`, with the averages over keys running over the prefix that a row sees. Row t attends to t keys
of mean second moment Q_t and mean overlap P_t; the t common keys of rows t < t′ weigh t/t′ of the longer row's softmax.
The corrections of order 1/width (scatter v of the overlaps, w of the lengths) are taken alike for all positions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from explorer.schemes.placement import Placement
from explorer.schemes.residual import profiled_factor
from explorer.theory import logits as unmasked
from explorer.theory.causal_tokens import ONE, TINY, ZERO, Norm, State, correlation, normalize, times
from explorer.theory.forward import LARGEST, LARGEST_LOGIT
from explorer.theory.gains import Gains
from explorer.theory.grids import Array
from explorer.theory.positions import Positions, Reading, Stacked
from explorer.theory.sink import Sunk, drain
from explorer.theory.sloped import Sloped
from explorer.theory.tables import RowValues, as_normal
from explorer.theory.tokens import Tokens, add, lengths, passed, scattered_by_attention, scattered_by_mlp
from explorer.theory.turns import STILL

FINITE = 1e70
"""The loop ends when a mean second moment leaves this range; which sublayers are covered is seen afterwards."""


class Logits(NamedTuple):
    """Statistics of a layer's logits, own and inherited, as in `logits.Logits`; the layer above inherits them."""

    query: Array
    """`[pair]`; only `[position]` where the layer above inherits nothing."""
    key: Array
    """`[position]`, as the next two: mean over the keys of a row."""
    key_p: Array
    crowd: Array
    covariance: Array
    """Shape as `query`: covariance of two rows' logits; of a row with itself, their variance."""
    common: Array
    """`[position]`, as all that follow if nothing else is said."""
    alike: Array
    single: Array
    s: Array
    """Standard deviation after the cap, as softmax sees it."""
    std: Array
    """Standard deviation after the cap."""
    slope: Array
    """Mean squared slope of the cap, where the gradient passes."""
    rho: Array
    """`[pair]`: correlation of two rows' logits after the cap."""
    slopes: Array
    """`[pair]`: mean product of the slopes in two rows, over the mean square."""
    keys: Array
    """`[position]`: mean product of the slopes at two keys of a row, over the mean square, times `Turns.keys`."""
    both: Array
    """`[position, position]`: as `keys`, in two rows."""


class Attention(NamedTuple):
    """A softmax over the prefix, as the backward recursion needs it."""

    logits: Logits
    apart: Array
    """`[position]`: part of the values that a row sees which they do not share, and the next that they share."""
    common: Array
    scatter: Array
    """`[position]`: variance of their centered overlaps over `apart`²."""
    reading: Reading
    """Values looked up in the softmax tables, for single rows, and the place of pairs in them."""
    overlap: Array
    """`[position, position]`: Y11 of two rows, over the shorter one's part of the longer one's keys."""
    lost: Sunk | None
    """Averages of the rows' weight that a sink leaves; None without one."""


class Step(NamedTuple):
    """One sublayer, as the backward recursion needs it; names as in `forward.Step`."""

    placement: Placement
    attention: Attention | None
    """None at an MLP."""
    on_input: Norm | None
    inside: State
    on_heads: Norm | None
    on_read: Norm | None
    read: State
    added: State
    on_output: Norm | None
    on_sum: Norm | None
    kept: float
    followed: float
    site: State


def run(gains: Gains, place: Positions, table: Stacked | Sloped, n_layers: int, first: Tokens) -> list[Step]:
    """The recursion over 2N sublayers; shorter where a second moment leaves the range of `LARGEST`."""
    y = np.full_like(place.ratio, first.p)
    y[0] = first.q
    x = State(place, y, first.v, first.w)
    steps: list[Step] = []
    below: Logits | None = None
    kept, before, source, total = 1.0, x, None, first.q
    for index in range(2 * n_layers):
        before = x if index % 2 == 0 or not gains.parallel else before
        if gains.profiled:
            gains.skip[index] = profiled_factor(index, total)
        step = sublayer(gains, table, x, before, index, (below, kept, source) if index % 2 == 0 else None)
        if step.attention:
            below, kept = step.attention.logits, 1.0
            source = step.inside if source is None and gains.value_residual else source
        kept *= step.followed
        total += step.added.mean.q if gains.profiled else 0.0
        steps.append(step)
        x = step.site
        if not 1 / FINITE < x.mean.q < FINITE:
            break
    return steps[:_covered(steps)]


def _covered(steps: list[Step]) -> int:
    """Number of sublayers up to which second moments and logits are within their ranges."""
    sums = np.array([step.on_sum.q if step.on_sum else step.site.q for step in steps])
    fine = (sums.min(1) > 1 / LARGEST) & (sums.max(1) < LARGEST)
    s = np.array([step.attention.logits.s for step in steps if step.attention])
    fine[::2] &= ~(s.max(1) > LARGEST_LOGIT)
    return len(steps) if fine.all() else int(fine.argmin())


def sublayer(gains: Gains, table: Stacked | Sloped, x: State, before: State, index: int,
             below: tuple[Logits | None, float, State | None] | None) -> Step:
    """One branch, of what was `before` it, and its way back into the stream; attention takes the logits below it, what
    is kept, and the tokens whose values it mixes into its own.
    """
    design, d, inside, on_input = gains.placements[index], gains.d_model, before, None
    if design.reads != 1:
        inside = State(before.place, times(design.reads**2, before.y), before.v, before.w)
    if design.on_input:
        inside, on_input = normalize(inside, gains, d, design.scale**2)
    softmax, on_heads, on_read, follows, last, width = None, None, None, 0.0, gains.out, gains.d_mlp
    bias = gains.biases.out
    if below:
        lower, kept_from, source = below
        mixed = (inside.y + source.y) / 4 if source else inside.y  # ½ (V_1 + V_l), by independent matrices
        shared = gains.biases.v / (2 if source else 1)
        values = State(x.place, times(gains.v, mixed) + shared, inside.v, inside.w + 2 / gains.d_head)
        if design.on_heads:
            values, on_heads = normalize(values, gains, gains.d_head)
        read, softmax = attention(gains, table, inside, values, lower, kept_from)
        last, width, bias = gains.o, d, gains.biases.o
    else:
        read, follows = mlp(gains, inside, design.on_read and gains.centers)
    if design.on_read:
        read.w = max(read.w - 2 / d, 0.0)
        read, on_read = normalize(read, gains, width)
        read.w = 2 / d
    added, on_output = State(x.place, times(last, read.y), read.v, read.w).plus(bias, d), None
    if design.on_output:
        added, on_output = normalize(added, gains, d)
    skip, scale = gains.skip[index] ** 2, gains.branch[index] ** 2
    longer = lengths(gains, inside.w)[1] if not (below or design.sets_length) else 0.0
    both, followed = add(x.mean.scaled(skip), added.mean.scaled(scale), d, follows, longer)
    site, on_sum = State(x.place, times(skip, x.y) + times(scale, added.y), both.v, both.w), None
    site.mean = both
    if design.on_sum:
        site, on_sum = normalize(site, gains, d)
    kept = skip * x.mean.q / both.q
    return Step(design, softmax, on_input, inside, on_heads, on_read, read, added, on_output, on_sum, kept, followed,
                site)


def mlp(gains: Gains, x: State, centered: bool) -> tuple[State, float]:
    """Hidden units: kernels at the geometric mean of two positions' second moments; and see `forward.mlp`."""
    square, overlap = gains.kernel.overlaps(*gains.units(x.square, x.rho))
    follows, bend = passed(gains, x.mean)
    if gains.degree != 1:
        length, _ = lengths(gains, x.w)
        overlap = (overlap + bend * x.v * (1 - x.rho) ** 2) * (1 + length * x.rho**2)
        overlap = np.minimum(overlap, square * (1 + length))
    w = gains.noise[1] + gains.degree**2 * x.w
    if centered:
        overlap = overlap - gains.kernel.overlaps(gains.units(x.square, x.rho)[0], np.zeros_like(x.rho))[1]
    return State(x.place, overlap, scattered_by_mlp(gains, x.v, follows), w), follows


def attention(gains: Gains, table: Stacked | Sloped, x: State, values: State, below: Logits | None, kept: float
              ) -> tuple[State, Attention]:
    """Input of W_O: means of the values by logits of x, times their gates; and the softmax, for the way back."""
    place = x.place
    keys, _, common, own = _keys(x)
    scatter = _scatter(x, keys[1:], own, common)
    if isinstance(table, Sloped):
        return sloped(gains, table, x, values, keys[0], common, scatter, below, kept)
    law = logits(gains, x, keys[0], own, common, scatter, below, kept)
    rho = law.rho[1:]
    reading, lost, whole, both = table.read(law.s, rho), None, ONE, ONE
    pair = table.overlap(reading)
    if gains.sink is not None:
        lost = table.sinks(gains.sink).read(law.s, law.common * law.s**2 / np.maximum(law.covariance[0], 1e-300))
        reading = reading._replace(rows=np.stack(drain(RowValues(*reading.rows), lost)))
        whole, both = lost.square, lost.together(rho, lambda part: place.lift(part)[1:])
        pair = pair * both * lost.focus.take(place.smaller) ** rho
    _, _, square, _, spread, _, crowding, unevenness, _ = reading.rows
    alike = law.alike
    if gains.cap or gains.sphere:
        alike = alike * law.s**2 / np.maximum(law.covariance[0], 1e-300)
    alike = alike / (ONE + alike)
    first, second, crowd = place.first[1:], place.second[1:], np.sqrt(alike * spread)
    _, overlaps, common, own = _keys(values)
    y = np.empty_like(x.y)
    y[0] = whole * common + own * (square + alike * crowding)
    y[1:] = both * overlaps + own.take(place.smaller) * (
        pair * place.ratio[1:] + crowd.take(first) * crowd.take(second) * rho)
    uneven = own * square / np.maximum(y[0], TINY)
    uneven = float(place.mean.dot(unevenness * uneven * uneven)) / gains.n_heads
    v = scattered_by_attention(gains, x.v, float(place.mean.dot(pair.diagonal())))
    if gains.gate:
        y, uneven = y * gains.gate.kernel.overlaps(*gains.gate.units(x.square, x.rho))[1], uneven + gains.gate.noise
    return (State(place, y, v, gains.noise[0] + uneven),
            Attention(law, own, common, scatter, reading, pair, lost))


def _keys(x: State) -> tuple[Array, Array, Array, Array]:
    """Averages over a row's keys: second moment, overlaps by token; overlap of two rows' keys; of one's; the rest."""
    prefix = x.place.prefix
    keys = x.y.dot(prefix.T)
    overlaps = prefix.dot(keys[1:])
    common = overlaps.diagonal()
    return keys, overlaps, common, np.maximum(keys[0] - common, ZERO)


def sloped(gains: Gains, table: Sloped, x: State, values: State, mean: Array, common: Array, scatter: Array,
           below: Logits | None, kept: float) -> tuple[State, Attention]:
    """`attention` where logits fall with the distance of query and key (ALiBi); without a sink."""
    place = x.place
    spread = logits(gains, x, mean, np.maximum(mean - common, ZERO), common, scatter, below, kept).std
    own = table.apart(x.y, 0 * spread)
    law = logits(gains, x, mean, own, np.maximum(mean - own, ZERO), scatter, below, kept)
    law = law._replace(std=np.sqrt(spread**2 + table.bias))  # of each head
    y, rows = table.mix(values.y, law.s, law.rho[1:])
    entropy, largest, square, squared = rows
    uneven = (squared / square**2 - 1) * (own * square / y[0]) ** 2
    v = scattered_by_attention(gains, x.v, float(place.mean.dot(square)))
    none = np.zeros((5, *square.shape))
    reading = Reading(np.stack([entropy, largest, square, *none]), place.first[1:], law.rho[1:], law.rho[1:])
    w = gains.noise[0] + float(place.mean.dot(uneven)) / gains.n_heads
    if gains.gate:
        y, w = y * gains.gate.kernel.overlaps(*gains.gate.units(x.square, x.rho))[1], w + gains.gate.noise
    return State(place, y, v, w), Attention(law, own, common, scatter, reading, law.rho[1:], None)


def _scatter(x: State, rows: Array, own: Array, common: Array) -> Array:
    """Variance of centered overlaps over own², for the keys of each row: by chance, and because positions differ.

    Over the keys of a row, of p_ij less the means over i and over j: E p² − 2 E_i (E_j p)² + (E p)².
    """
    p, prefix = x.y[1:], x.place.prefix.T
    rows = rows * rows
    varied = x.place.ones[0].dot(prefix * ((p * p).dot(prefix) - (rows + rows))) + common * common
    total: Array = np.minimum(np.maximum(varied, ZERO) / np.maximum(own * own, TINY) + x.v, ONE)
    return total


def logits(gains: Gains, x: State, mean: Array, own: Array, common: Array, scatter: Array, below: Logits | None,
           kept: float) -> Logits:
    """The logits of a layer's tokens; keys have the mean square `mean`, `own` apart and `common` shared."""
    place, inherits = x.place, gains.adds
    by = unmasked.factors(gains, x.q, mean)
    query, rho = by.query * x.q + by.query_bias, x.rho
    if inherits or gains.biases.q:
        overlaps = queries(place, by, x)
        rho = correlation(overlaps, place.lift(query)) if gains.biases.q else rho
        query = overlaps if inherits else query
    key, key_p = by.key * own, by.key * np.maximum(common, 0.0) + by.key_bias
    crowd, turns, single = key * scatter, place.turns, place.ones[0]
    if below and inherits == "qk":
        single = unmasked.joint(key, below.key, below.single)
        query, key, key_p = query + below.query, key + below.key, key_p + below.key_p
        crowd = crowd + kept * below.crowd
    scale, turned = gains.scale * place.sharp, turns is not STILL
    scaled = scale[0] * (query[0] if inherits else query)
    apart = key_factors(place, key, key_p, turns.keys, turns.both) if inherits or turned else key[None]
    same = np.maximum(turns.keys, ZERO) * scaled
    shared, alike, covariance = same * key_p, same * crowd, (scaled * apart[0])[None]
    if inherits:
        covariance = scale * apart * query
        if below and inherits == "scores":
            single = unmasked.joint(covariance[0], below.covariance[0], below.single)
            covariance, shared, alike = covariance + below.covariance, shared + below.common, alike + kept * below.alike
        rho = correlation(covariance, np.maximum(place.lift(covariance[0]), 1e-300))
    elif turned:
        rho = correlation(rho * apart, np.maximum(place.lift(apart[0]), 1e-300))
    s, *bent = _cap(gains, place, np.sqrt(covariance[0]), np.sqrt(shared), rho)
    if gains.sphere:
        rows = zip(s.tolist(), place.t.tolist(), single.tolist(), strict=True)
        s = np.array([as_normal(deviation, int(t), gains.sphere, part) for deviation, t, part in rows])
    return Logits(query, key, key_p, crowd, covariance, shared, alike, single, s, *bent)


def queries(place: Positions, by: unmasked.Factors, x: State) -> Array:
    """`[pair]`: overlaps of the tokens' queries."""
    factor, bias = (place.lift(part + ZERO * x.q) for part in (by.query, by.query_bias))
    overlaps: Array = factor * x.square * x.rho + bias
    return overlaps


def key_factors(place: Positions, own: Array, p: Array, keys: Any, both: Any) -> Array:
    """Factors `[..., pair]` by which the queries' overlaps become the logits' covariance, of a row and of two rows.

    Args:
        own: part of a row's keys that they do not share, `[..., position]`; `p` the part that they share.
        keys: part of `p` that a softmax forgets in a single row, `both` that in two rows: see `Logits`.
    """
    out, shared = place.lift(own), place.lift(p)[..., 1:, :]
    out[..., 0, :] += (1 - keys) * p
    out[..., 1:, :] = place.turns.rows * (out[..., 1:, :] + shared) - both * shared
    return out


def _cap(gains: Gains, place: Positions, s: Array, mean: Array, rho: Array) -> tuple[Array, ...]:
    """The last seven fields of `Logits`."""
    turns, ones = place.turns, place.ones
    if gains.cap == 0:
        return s, s, ones[0], rho, ones, turns.keys * ones[0], turns.both * ones[1:]
    rows = zip(s.tolist(), mean.tolist(), place.t.tolist(), strict=True)
    bent = [unmasked.cap(deviation, center, gains.cap, max(int(t), 2)) for deviation, center, t in rows]
    std, inside, slope = np.array([statistics[:3] for statistics in bent]).T
    two, slopes = unmasked.pairs(place.lift(s), place.lift(mean), rho, gains.cap)
    _, keys = unmasked.pairs(s, mean, np.zeros_like(s), gains.cap)
    return inside, std, slope, two, slopes, turns.keys * keys, turns.both * place.lift(keys)[1:]
