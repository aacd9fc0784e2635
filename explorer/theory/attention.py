"""Attention, forward and back: means of the values by a softmax over the keys that a row sees.

Row t attends to t keys, whose values have the mean overlap p̂ and, beyond it, the part Δ = q̂ − p̂
that they do not share; the t keys of the shorter of two rows t < t′ weigh t/t′ of the longer one's
softmax. Overlaps of single pairs scatter around p: by 1/d for Gaussian tokens, by more for text.
Keys that happen to be alike get alike logits, are weighted together, and add s²·v·Δ·D to Y2 Δ (v:
variance of the centered overlaps over Δ²; D: `Row.crowding`). It counts where n is not small
against d.

Back, γ_q is the mean square of ∂L/∂x a coordinate, and γ_p two tokens' mean overlap. There are
three paths, whose weights are independent and whose contributions therefore add: through the
values, the queries and the keys. With u_ts = g_t·v_s the logits' gradient is A_ts(u_ts − Σ_r A_tr
u_tr); what all keys share drops out of it, which leaves Δ of the values, and once more Δ of the
keys in the gradient by the query. A key at s collects from all rows t ≥ s: of a row's squared
weights Y2(t), each of its t keys has an equal part, and so on for the other statistics.

After a soft cap a row's gradients by its logits no longer add up to 0, for each has a slope of its
own: of what all keys share the part 1 − κ passes, κ the mean product of two slopes over the mean
square of one (`Logits.cancels`). With a sink ΣA < 1, and what all keys share no longer drops out
(`sink.shared`). Gates multiply γ, and are a path of their own.

Where logits inherit those of the layers below (RealFormer), a layer's own queries and keys also get
the gradients of all logits above. Each layer draws its values anew, so the gradients by two layers'
logits are uncorrelated given the stream, and their energies add on the way down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from explorer.theory.gains import Gains
from explorer.theory.logits import Logits, key_factors, logits
from explorer.theory.positions import Positions
from explorer.theory.several import equals
from explorer.theory.sink import Sunk, drain, shared, sinks
from explorer.theory.softmax import Row
from explorer.theory.tables import Sloped, Tables
from explorer.theory.tokens import ONE, TINY, State, key_scatter, keys_of, scatter_after_attention
from explorer.vocabulary import Array

Record = TypeVar("Record", Logits, Sunk)


class Attention(NamedTuple):
    """The softmax of one layer, as the backward recursion needs it. `[pair]` is `[1 + position,
    position]`, see `Positions`."""

    logits: Logits
    own: Array
    """`[row position]`: Δ of the values that a row sees, the part that they do not share."""
    shared: Array
    """`[row position]`: p̂, the part that they share."""
    scatter: Array
    """`[row position]`: variance of the keys' centered overlaps over their own Δ²."""
    by_square: Array
    """`[row position]`: part Δ Y2 of the output's second moment, which grows with a row's ΣA²."""
    overlap: Array
    """`[pair]`: in row 0 Y2 = E ΣA² of a row; below Y11 = E ΣAA′ of two rows, over
    `Positions.ratio`, the part of the longer row's keys that the shorter row sees."""
    lost: Sunk | None
    """Averages of the weight that rows lose to a sink; None without one."""
    ungated: State
    """Input of W_O, without the scatter of lengths that comes of gates; without gates the input
    itself."""
    opened: Array | None
    """`[pair]`: E σσ′ of two tokens' gates; None without gates."""


def attention(
    gains: Gains, table: Tables | Sloped, x: State, values: State, below: Logits | None, kept: float
) -> tuple[State, Attention]:
    """Input of W_O: means of the values by a softmax of the logits of x, times gates.

        y = p̂ + Δ (Y · ratio + crowd)

    with Y = Y2 of a row and Y11 of two rows, `ratio` the part of the longer row's keys that both
    see, and `crowd` the effect of keys that happen to be alike. With a sink the keys have the
    weight M of a row, and E M M′ multiplies p̂ and Y.

    Args:
        values: the values, by the tokens that they are made of.
        below: the logits of the layer below, and in `kept` how far deviations of overlaps survive
            from there.
    Returns:
        the input of W_O, and the softmax for the way back.
    """
    if isinstance(table, Sloped):
        return _sloped(gains, table, x, values, below, kept)
    axis, keys = x.axis, keys_of(x)
    value_keys = keys if values is x else keys_of(values)
    scatter = key_scatter(x, keys)
    law = logits(gains, x, keys, scatter, below, kept)
    overlap, spread, crowding, unevenness = table.lookup(law.s, law.rho)
    rho, alike, lost = law.rho, law.key_covariance, None
    shared, own = value_keys.shared, value_keys.own
    if gains.sink is not None:
        sizes = tuple(map(int, axis.visible))
        lost = sinks(sizes, gains.sink).lookup(law.s, law.common * law.shrinkage)
        spread, crowding = np.maximum(spread + lost.spread, 0.0), crowding + lost.crowding
        mass = lost.together(rho, axis.lift)
        shared = mass * shared
        overlap = overlap * mass * lost.focus.take(axis.shorter) ** rho
    if gains.cap or gains.sphere:
        alike = alike * law.shrinkage
    # keys that happen to be alike are weighted together: first order in their logits' covariance
    # where it is small, bounded where it is not
    alike = alike / (ONE + alike)
    # two rows crowd as one row does at ρ = 1, where their weights are the same
    beyond = axis.at_shorter(alike * (crowding - spread))
    crowd = rho * (axis.lift(alike * spread) + rho * beyond)
    y = shared + axis.at_shorter(own) * (overlap * axis.ratio + crowd)
    # rows whose ΣA² differ have outputs of different length; each head draws them anew
    uneven = own * overlap[0] / np.maximum(y[0], TINY)
    length_variance = axis.mean(unevenness * uneven * uneven) / gains.n_heads
    alike_rows = axis.average(rho)[1]
    v = scatter_after_attention(gains, x.v, axis.mean(axis.diagonal(overlap[1:])))
    w, u = gains.noise[0] + alike_rows * length_variance, (1 - alike_rows) * length_variance
    mixed = State(axis, y, v, w, u)
    softmax = Attention(
        law, own, value_keys.shared[0].copy(), scatter, uneven, overlap, lost, mixed, None
    )
    return _gated(gains, x, mixed, softmax)


def _gated(gains: Gains, x: State, mixed: State, softmax: Attention) -> tuple[State, Attention]:
    """The mixed values times sigmoid gates, which read x: y E σσ′; and the softmax, with what the
    way back needs of the gates."""
    if not gains.gate:
        return mixed, softmax
    _, opened = gains.gate.kernel.overlaps(*gains.gate.units(x.square, x.rho))
    rho, noise = x.mean.rho, gains.gate.noise
    # the gates of two tokens scatter lengths together as far as the tokens correlate
    w, u = mixed.w + rho * noise, mixed.u + (1 - rho) * noise
    gated = State(x.axis, mixed.y * opened, mixed.v, w, u)
    ungated = State(x.axis, gated.y, mixed.v, mixed.w, mixed.u)
    return gated, softmax._replace(ungated=ungated, opened=opened)


def _sloped(
    gains: Gains, table: Sloped, x: State, values: State, below: Logits | None, kept: float
) -> tuple[State, Attention]:
    """`attention` where logits fall with the distance of query and key (ALiBi); without a sink."""
    axis, keys = x.axis, keys_of(x)
    scatter = key_scatter(x, keys)
    # the spread as measured counts all keys alike; a softmax sees the keys that it weights
    spread = logits(gains, x, keys, scatter, below, kept).std
    own = table.apart(x.y, 0 * spread)
    shared = keys.shared.copy()
    shared[0] = np.maximum(keys.mean - own, 0.0)
    law = logits(gains, x, keys._replace(shared=shared, own=own), scatter, below, kept)
    law = law._replace(std=np.sqrt(spread**2 + table.bias))  # [head, position]
    y, rows = table.mix(values.y, law.s, law.rho[1:])
    _, _, square, fourth = rows  # E ΣA² and E (ΣA²)²
    value_own = own if values is x else table.apart(values.y, 0 * spread)
    by_square = value_own * square / y[0]
    uneven = (fourth / square**2 - 1) * by_square**2
    w = gains.noise[0] + float(axis.weights.dot(uneven)) / gains.n_heads
    v = scatter_after_attention(gains, x.v, float(axis.weights.dot(square)))
    mixed = State(axis, y, v, w)
    softmax = Attention(law, own, keys.shared[0], scatter, by_square, law.rho, None, mixed, None)
    return _gated(gains, x, mixed, softmax)


class Paths(NamedTuple):
    """Factors on a gradient from after each attention to before it. The last two axes are `[pair] =
    [1 + position, position]`: in row 0 a token with itself, below two tokens (`Positions`)."""

    value: Array
    """`[layer, 2, pair]`: from the rows' gradients, through the values, to one key and to two
    different keys, as `Positions.gather` collects them."""
    energy: Array
    """`[layer, 3, pair]`: energy of the gradient by the logits, as queries see it, its part of keys
    that are alike, and as keys see it."""
    query: Array
    """`[layer, 2, pair]`: from the first two kinds of energy to the gradient through the
    queries."""
    key: Array
    """`[layer, 2, pair]`: from the third kind of energy to the gradient through the keys, to one
    key and to two different keys."""
    unbiased: Array
    """As `query`, but of keys without biases: by symmetry, for W_K."""
    gates: dict[str, Array]
    """`[layer, pair]`, from the gradient after the branch: "W_G" to what comes down through the
    gates, "sink" to the energy by the sink's logit over what W_O reads."""
    lengths: Array
    """`[4, layer, pair]`: relative covariances with the squared length of what W_O reads, see
    `_lengths`."""


def _lengths(gains: Gains, averages: Averages, layers: Sequence[Attention]) -> Array:
    """Relative covariances with the squared length |o|² of what W_O reads, by rows of uneven
    weights: of |o|² itself, of what one key receives through the values, of the energy by the
    logits, and of |o|² for gates; `[4, layer, pair]`.

    |o|² is Δ S and what is common to all rows, S = ΣA² of a row, so that S has the relative
    covariance r Var S / (E S)² with it, r the part Δ Y2 of its mean. Each head draws S anew. Two
    rows have it as far as their logits correlate."""
    by_square = stack([layer.by_square for layer in layers])
    uneven = averages.rows.unevenness
    output = uneven * by_square
    of_row = np.array([output, uneven, averages.rows.by_length, output])
    of_row *= by_square / gains.n_heads
    return of_row[:, :, None] * averages.law.rho


class Averages(NamedTuple):
    """Softmax averages of all layers, as the way back needs them: of a row `[layer, position]`, of
    two rows `[layer, position, position]`. Without a sink M is 1."""

    law: Logits
    """The logits of all layers: with a first axis of layers."""
    rows: Row
    square: Array
    """Y2 of a row."""
    overlap: Array
    """Y11 of two rows, as in `Attention.overlap`."""
    jacobian: Array
    """J11 of two rows."""
    mass_square: Array | float = 1.0
    """E M² of a row."""
    mass_product: Array | float = 1.0
    """E M M′ of two rows."""
    by_shared: Array | float = 0.0
    """Energy by a row's logits from the shared part of the values, over that from their own."""
    by_sink: Array | None = None
    """`[layer, pair]`: `Paths.gates["sink"]`."""


def _averages(
    gains: Gains, axis: Positions, table: Tables, layers: Sequence[Attention]
) -> Averages:
    """Softmax averages of all layers, those that lose weight to a sink among them."""
    law = by_layer(layer.logits for layer in layers)
    rows, jacobian = table.rows(law.s), table.jacobian(law.s, law.rho)[:, 1:]
    overlaps = stack([layer.overlap for layer in layers])
    square, overlap = overlaps[:, 0], overlaps[:, 1:]
    if gains.sink is None:
        return Averages(law, rows, square, overlap, jacobian)
    lost = by_layer(layer.lost for layer in layers if layer.lost)
    rows = drain(rows, lost)
    own = stack([layer.own for layer in layers])
    common = np.maximum(stack([layer.shared for layer in layers]), 0.0) / np.maximum(own, TINY)
    pairs = shared(
        lost, rows, overlap, jacobian, law.rho[:, 1:], common, lambda x: axis.lift(x)[:, 1:]
    )
    summed = axis.lift(pairs.summed)
    law = law._replace(
        cancels=law.cancels * (1 - summed[:, 0]),
        cancels_in_two=law.cancels_in_two * (1 - summed[:, 1:]),
    )
    by_sink = _kinds((lost.shared / lost.square, pairs.of_sink))[:, 0]
    return Averages(
        law,
        rows,
        square,
        overlap,
        pairs.jacobian,
        lost.square,
        pairs.together,
        pairs.energy,
        by_sink,
    )


def paths(
    gains: Gains,
    axis: Positions,
    table: Tables,
    layers: Sequence[Attention],
    x: Array,
    correlations: Array,
    mixed: Array,
) -> Paths:
    """The factors of all layers' attention on gradients.

    Args:
        x: `[layer, pair]`, the tokens that attention reads, and next their correlations.
        mixed: `[layer, pair]`, the input of W_O.
    """
    averages = _averages(gains, axis, table, layers)
    lengths = _lengths(gains, averages, layers)
    value = value_factors(
        axis, averages.square, averages.overlap, averages.mass_square, averages.mass_product
    )
    value = gains.v * gains.o * value
    energy = _energies(gains, axis, averages, layers)
    energy, query, key, unbiased = _query_and_key_factors(gains, axis, averages.law, x, energy)
    gates = {} if averages.by_sink is None else {"sink": averages.by_sink}
    if gains.gate:
        units = gains.gate.units(axis.lift(x[:, 0]), correlations)
        opened, slopes = (
            of(*units)[1] for of in (gains.gate.kernel.overlaps, gains.gate.kernel.slopes)
        )
        value, energy = value * opened[:, None], energy * opened[:, None]
        gates["W_G"] = gains.o * gains.gate.gain * slopes * mixed / opened
    return Paths(value, energy, query, key, unbiased, gates, lengths)


def value_factors(
    axis: Positions,
    square: Array,
    overlap: Array,
    mass_square: Array | float = 1.0,
    mass_product: Array | float = 1.0,
) -> Array:
    """Factors of the gradient through the values but for gains, `[layer, 2, 1 + position,
    position]`: to one key and to two different keys, see `Paths.value`.

    A row of weights A sums to M, 1 without a sink. Of M² the squares ΣA² are to one key, the rest
    to two different keys. Of two rows' M M′ likewise ΣAA′ and the rest.

    Args:
        square: ΣA² of a row, `overlap` ΣAA′ of two rows, and M² and M M′: as in `Averages`.
    """
    t, shorter = axis.visible, axis.visible[axis.shorter[1:]]
    rest_of_row = _to_different_keys(t, mass_square - square)
    rest_of_two = _of_two_to_different_keys(axis, mass_product - overlap * axis.ratio[1:])
    return _kinds((t * square, shorter * overlap), (rest_of_row, rest_of_two))


def _energies(
    gains: Gains, axis: Positions, averages: Averages, layers: Sequence[Attention]
) -> Array:
    """Energy of the gradient by the logits, over that after the branch: `[layer, kind, 1 +
    position, position]`, with three kinds, see `Paths.energy`.

    A row has g_o Δ E[slope²] J: the gain of W_O, the part Δ of the values that its keys do not
    share, the soft cap's squared slope, and J, the mean squared norm of ∂weights/∂logits. Two rows
    have in J's place J11, the mean inner product of their Jacobians, on the keys that both see."""
    law, rows = averages.law, averages.rows
    scale = gains.o * stack([layer.own for layer in layers]) * law.slope
    of_two = averages.jacobian * law.slope_of_two[:, 1:] * axis.lift(scale)[:, 1:]
    # one of a head's directions is along the query, by which the logits order the keys
    along = law.own_part / gains.d_head
    by_row = rows.jacobian * (1 - along) + gains.tilted * rows.tilted * along
    # overlaps scatter by v, so that a row's keys point in fewer than all directions
    scatter = stack([layer.scatter for layer in layers])
    alike = axis.lift(scale * scatter * rows.spread * np.maximum(law.cancels, 0.0))
    return _kinds(
        (scale * (by_row + averages.by_shared), of_two * axis.ratio[1:]),
        (alike[:, 0], alike[:, 1:]),
        (scale * (rows.jacobian_by_query + averages.by_shared), of_two),
    )


def _query_and_key_factors(
    gains: Gains, axis: Positions, law: Logits, x: Array, energy: Array
) -> tuple[Array, Array, Array, Array]:
    """Factors from the energy of the gradient by the logits to gradients through queries and keys.

    A logit is (W_Q x)·(W_K x′), but for biases. A gradient by it reaches x by W_Q times the size of
    the key, and x′ by W_K times the size of the query.

    Where queries and keys add up over the layers (`gains.adds` is "qk"), the energies of all layers
    above add up first, each times the keys or queries of its own layer. So the energies are
    multiplied by these here, and the factors are those of W_Q and W_K alone.

    Args:
        law: logits, arrays with a first axis of layers.
        x: `[layer, 1 + position, position]`, the tokens that attention reads: second moments in row
            0, overlaps below.
        energy: `[layer, kind, 1 + position, position]`, its kinds as in `Paths.energy`: as queries
            see it, its part of keys that are alike, as keys see it.
    Returns:
        `Paths.energy`, `query`, `key` and `unbiased`.
    """
    scale = axis.logit_factor
    # [layer, position], second moment of the keys of a row
    mean = axis.over_second(axis.key_mean, x[:, 0])
    *factors, key_bias = gains.factors(mean, mean)
    by_query, by_key, query_bias = (
        axis.lift(part) if gains.qk_norm else np.broadcast_to(part, x.shape) for part in factors
    )
    keys = _keys_met(gains, axis, law, law.key_shared)
    if gains.adds == "qk":
        for_queries = energy[:, :2] * (scale * keys)
        for_keys = energy[:, 2:] * (scale * law.query)[:, None]
        energy = np.concatenate([for_queries, for_keys], axis=1)
        query = np.stack([by_query, by_query], 1)  # W_Q's factor on either kind of energy
        # `unbiased` stands for W_K where its gradient is not known, which here it is
        return energy, query, _to_keys(axis, law, by_key), query
    query = unbiased = scale * by_query[:, None] * keys
    if not equals(gains.biases.k, 0):
        without_bias = np.maximum(law.key_shared - key_bias, 0.0)
        unbiased = scale * by_query[:, None] * _keys_met(gains, axis, law, without_bias)
    key = scale * by_key * (by_query * x + query_bias)
    return energy, query, _to_keys(axis, law, key), unbiased


def _keys_met(gains: Gains, axis: Positions, law: Logits, shared: Array) -> Array:
    """Sizes of the keys that the gradient through queries meets: `[layer, 2, 1 + position,
    position]`.

    First for the gradient as it is by all keys of a row: it keeps what the keys do not share, and
    of the shared part what the softmax does not cancel (see `key_factors`). Then for the gradient
    by keys that happen to be alike: only what the keys do not share.

    Args:
        shared: `[layer, position]`, the part that the keys of a row share.
    """
    by_all = key_factors(gains, axis, law.key_own, shared, law.cancels, law.cancels_in_two)
    return np.stack([by_all, axis.lift(law.key_own)], 1)


def _to_keys(axis: Positions, law: Logits, factor: Array) -> Array:
    """Factors from the energy by the logits to what rows give to their keys, as
    `Positions.gather` collects it: `[layer, 2, 1 + position, position]`, to one key and to two
    different keys.

    The energy of a row is a sum over its t keys, that of two rows over the t keys of the shorter
    one, times t/t′. `gather` reads t t′ times what one key gets: t times the energy in both. The
    softmax makes a row's gradients cancel, so that two different keys together get −κ of the sum
    over single keys (`Logits.cancels`).

    Args:
        factor: `[layer, 1 + position, position]`, of W_K, times the queries that the gradient
            meets.
    """
    t = axis.visible
    of_row, of_two = factor[:, 0], factor[:, 1:]
    return _kinds(
        (t * of_row, t[axis.shorter[1:]] * axis.turns.rows * of_two),
        (
            -law.cancels * _to_different_keys(t, of_row),
            _of_two_to_different_keys(axis, -law.cancels_in_two * axis.ratio[1:] * of_two),
        ),
    )


def stack(rows: Sequence[Array]) -> Array:
    """`np.stack` of arrays of one shape along a new first axis, in less time."""
    return np.concatenate(rows).reshape(len(rows), *np.shape(rows[0]))


def by_layer(layers: Iterable[Record]) -> Record:
    """The records of all layers as one, whose arrays have a first axis of layers; of length 1 for
    an array that all layers have in common."""
    records = list(layers)
    columns = []
    for arrays in zip(*records, strict=True):
        common = all(array is arrays[0] for array in arrays)
        columns.append(arrays[0][None] if common else stack(arrays))
    return type(records[0])(*columns)


def _kinds(*kinds: tuple[Array, Array]) -> Array:
    """Arrays of a row and of two rows joined, row 0 and the rest of the last two axes: `[layer,
    kind, 1 + position, position]`.

    Args:
        kinds: for each kind `[layer, position]`, of a row with itself, and `[layer, position,
            position]`, of two rows.
    """
    layers, n, *designs = kinds[0][0].shape
    out = np.empty((layers, len(kinds), n + 1, n, *designs))
    for kind, (of_row, of_two) in enumerate(kinds):
        out[:, kind, 0], out[:, kind, 1:] = of_row, of_two
    return out


def _to_different_keys(t: Array, total: Array) -> Array:
    """A row's total over its t (t − 1) pairs of different keys, as t² times the part of one pair:
    total · t / (t − 1), and 0 for a single key."""
    return np.where(t > 1, total * t / np.maximum(t - 1, 1), 0.0)


def _of_two_to_different_keys(axis: Positions, total: Array) -> Array:
    """Total of rows t ≤ t′ over their t t′ − t pairs of different keys, as t t′ times the part of
    one pair: total / (1 − 1/t′), and 0 for a single key."""
    longer = axis.visible[axis.longer]
    return np.where(longer > 1, total / (1 - 1 / np.maximum(longer, 1.5)), 0.0)
