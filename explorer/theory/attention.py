"""Attention, forward and back: means of the values by a softmax over the keys that a row sees.

Row t attends to t keys of mean second moment Q_t and mean overlap P_t; the t common keys of rows t
< t′ weigh t/t′ of the longer row's softmax. Overlaps of single pairs scatter around p: by 1/d for
Gaussian tokens, by more for text. Keys that happen to be alike get alike logits, are weighted
together, and add s²·v·Δ·D to Y2 Δ (v: variance of the centered overlaps over Δ²; D: `crowding`). It
counts where n is not small against d.

Back, γ_q is the mean square of ∂L/∂x a coordinate, and γ_p two tokens' mean overlap. There are
three paths, whose weights are independent and whose contributions therefore add: through the
values, the queries and the keys. With u_ts = g_t·v_s the logits' gradient is A_ts(u_ts − Σ_r A_tr
u_tr); what all keys share drops out of it, which leaves Δ = q̂ − p̂ of the values, and once more Δ
of the keys in the gradient by the query. A key at s collects from all rows t ≥ s: of a row's
squared weights Y2(t), each of its t keys has an equal part, and so on for the other statistics.

After a soft cap a row's gradients by its logits no longer add up to 0, for each has a slope of its
own: of what all keys share the part 1 − κ passes, κ the mean product of two slopes over the mean
square of one (`Logits.keys`). With a sink ΣA < 1, and what all keys share no longer drops out
(`sink.shared`). Gates multiply γ, and are a path of their own.

Where logits inherit those of the layers below (RealFormer), a layer's own queries and keys also get
the gradients of all logits above. Each layer draws its values anew, so the gradients by two layers'
logits are uncorrelated given the stream, and their energies add on the way down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from explorer.profile import Array
from explorer.theory.gains import Gains
from explorer.theory.logits import Logits, key_factors, logits
from explorer.theory.positions import Positions
from explorer.theory.sink import Sunk, drain, shared, sinks
from explorer.theory.tables import Sloped, Tables
from explorer.theory.tokens import ONE, TINY, State, key_scatter, keys_of, scatter_after_attention


class Attention(NamedTuple):
    """The softmax of one layer, as the backward recursion needs it."""

    logits: Logits
    apart: Array
    """`[position]`: part of the values that a row sees which they do not share, and the next that
    they share."""
    common: Array
    scatter: Array
    """`[position]`: variance of their centered overlaps over `apart`²."""
    overlap: Array
    """`[pair]`: Y2 of a row, and Y11 of two rows over the shorter one's part of the longer one's
    keys."""
    lost: Sunk | None
    """Averages of the rows' weight that a sink leaves; None without one."""
    ungated: State
    """Input of W_O, without the scatter of lengths that comes of gates; without gates the input
    itself."""
    opened: Array | None
    """`[pair]`: E σσ′ of two tokens' gates; None without gates."""


def attention(
    gains: Gains, table: Tables | Sloped, x: State, values: State, below: Logits | None, kept: float
) -> tuple[State, Attention]:
    """Input of W_O: means of the values by logits of x, times their gates; and the softmax, for the
    way back."""
    if isinstance(table, Sloped):
        return _sloped(gains, table, x, values, below, kept)
    axis, keys = x.axis, keys_of(x)
    *_, shared, own = keys if values is x else keys_of(values)
    scatter = key_scatter(x, keys)
    law = logits(gains, x, keys, scatter, below, kept)
    overlap, spread, crowding, unevenness = table.lookup(law.s, law.rho)
    rho, alike, common, lost = law.rho, law.alike, shared, None
    if gains.sink is not None:
        lost = sinks(tuple(map(int, axis.visible)), gains.sink).lookup(law.s, law.common * law.bent)
        spread, crowding = np.maximum(spread + lost.spread, 0.0), crowding + lost.crowding
        both = lost.together(rho, axis.lift)
        common, overlap = both * common, overlap * both * lost.focus.take(axis.shorter) ** rho
    if gains.cap or gains.sphere:
        alike = alike * law.bent
    alike = alike / (ONE + alike)
    # at ρ = 1 two rows crowd as one does
    more = (alike * (crowding - spread))[axis.shorter]
    crowd = rho * (axis.lift(alike * spread) + rho * more)
    y = common + own[axis.shorter] * (overlap * axis.ratio + crowd)
    # rows whose Σp² differ have outputs of different length: their relative variance, of its share
    # of q, over the heads
    uneven = own * overlap[0] / np.maximum(y[0], TINY)
    uneven_mean = float(axis.weights.dot(unevenness * uneven * uneven)) / gains.n_heads
    v = scatter_after_attention(gains, x.v, float(axis.weights.dot(overlap[1:].diagonal())))
    alike_rows = axis.average(rho)[1]
    mixed = State(
        axis, y, v, gains.noise[0] + alike_rows * uneven_mean, (1 - alike_rows) * uneven_mean
    )
    return _gated(
        gains, x, mixed, Attention(law, own, shared[0].copy(), scatter, overlap, lost, mixed, None)
    )


def _gated(gains: Gains, x: State, mixed: State, softmax: Attention) -> tuple[State, Attention]:
    """The mixed values times their gates, which see x; and the softmax with what is known of the
    gates."""
    if not gains.gate:
        return mixed, softmax
    opened, rho = gains.gate.kernel.overlaps(*gains.gate.units(x.square, x.rho))[1], x.mean.rho
    noise, y = gains.gate.noise, mixed.y * opened
    gated = State(x.axis, y, mixed.v, mixed.w + rho * noise, mixed.u + (1 - rho) * noise)
    return gated, softmax._replace(
        ungated=State(x.axis, y, mixed.v, mixed.w, mixed.u), opened=opened
    )


def _sloped(
    gains: Gains, table: Sloped, x: State, values: State, below: Logits | None, kept: float
) -> tuple[State, Attention]:
    """`attention` where logits fall with the distance of query and key (ALiBi); without a sink."""
    axis, keys = x.axis, keys_of(x)
    scatter = key_scatter(x, keys)
    spread = logits(gains, x, keys, scatter, below, kept).std
    own = table.apart(x.y, 0 * spread)
    shared = keys.shared.copy()
    shared[0] = np.maximum(keys.mean - own, 0.0)
    law = logits(gains, x, keys._replace(shared=shared, own=own), scatter, below, kept)
    law = law._replace(std=np.sqrt(spread**2 + table.bias))  # of each head
    y, rows = table.mix(values.y, law.s, law.rho[1:])
    _, _, square, squared = rows
    # of the values, whose sum y is
    mixed_own = own if values is x else table.apart(values.y, 0 * spread)
    uneven = (squared / square**2 - 1) * (mixed_own * square / y[0]) ** 2
    v = scatter_after_attention(gains, x.v, float(axis.weights.dot(square)))
    mixed = State(axis, y, v, gains.noise[0] + float(axis.weights.dot(uneven)) / gains.n_heads)
    return _gated(
        gains, x, mixed, Attention(law, own, keys.shared[0], scatter, law.rho, None, mixed, None)
    )


class Paths(NamedTuple):
    """Factors on a gradient after each attention, `[layer, ..., pair]`."""

    value: Array
    """`[layer, 2, pair]`: factors of the rows' gradients, through the values, to one key and to two
    different keys."""
    energy: Array
    """`[layer, 3, pair]`: energy of the gradient by the logits, as queries see it, its part of keys
    that are alike, and as keys see it."""
    query: Array
    """`[layer, 2, pair]`: factors from the first two kinds of energy to the gradient through the
    queries."""
    key: Array
    """`[layer, 2, pair]`: factors from energy to the gradient through the keys, as in `value`."""
    unbiased: Array
    """As `query`, but of keys without biases: by symmetry, for W_K."""
    gates: dict[str, Array]
    """`[layer, pair]`, from the gradient after the branch: "W_G" to what comes down through the
    gates, "sink" to the energy by the sink's logit over what W_O reads."""


def paths(
    gains: Gains,
    axis: Positions,
    table: Tables,
    layers: Sequence[Attention],
    x: Array,
    correlations: Array,
    mixed: Array,
) -> Paths:
    """The factors of all layers' attention, `[layer, pair]` of what it reads; W_O reads `mixed`."""
    laws = [layer.logits for layer in layers]
    law = laws[0]._replace(
        **{name: _by_layer([getattr(law, name) for law in laws]) for name in BACK}
    )
    rows, jacobian = table.rows(law.s), table.jacobian(law.s, law.rho)[:, 1:]
    longer, shorter = axis.visible[axis.longer], axis.visible[axis.shorter[1:]]
    overlap, square = (
        stack([layer.overlap for layer in layers])[:, part] for part in (slice(1, None), 0)
    )
    ratio, gates, by_common = axis.ratio[1:], {}, np.zeros_like(square)
    kept, both = np.ones_like(square), np.ones_like(overlap)
    if gains.sink is not None:
        lost = Sunk(*map(stack, zip(*(layer.lost for layer in layers if layer.lost), strict=True)))
        own, common = (
            stack([getattr(layer, name) for layer in layers]) for name in ("apart", "common")
        )
        kept, rows = lost.square, drain(rows, lost)
        both, by_common, jacobian, summed, taken = shared(
            lost,
            rows,
            overlap,
            jacobian,
            law.rho[:, 1:],
            np.maximum(common, 0.0) / np.maximum(own, TINY),
            lambda part: axis.lift(part)[:, 1:],
        )
        law = law._replace(
            keys=law.keys * (1 - summed), both=law.both * (1 - axis.lift(summed)[:, 1:])
        )
        gates["sink"] = _kinds((lost.shared / lost.square, taken))[:, 0]
    apart = _different(longer, both - overlap * ratio)
    value = _kinds(
        (axis.visible * square, shorter * overlap), (_others(axis.visible, kept - square), apart)
    )
    # energy of a row's gradients by its logits; a pair of rows has it on the keys that they share
    energy = gains.o * stack([layer.apart for layer in layers]) * law.slope
    jacobian = jacobian * law.slopes[:, 1:] * axis.lift(energy)[:, 1:]
    # overlaps scatter by v, so keys of a row point in fewer than all directions; along the query
    # logits order them
    along, scatter = law.own / gains.d_head, stack([layer.scatter for layer in layers])
    by_row = rows.jacobian * (1 - along) + gains.tilted * rows.tilted * along
    alike = axis.lift(energy * scatter * rows.spread * np.maximum(law.keys, 0.0))
    own = _kinds(
        (energy * (by_row + by_common), jacobian * ratio),
        (alike[:, 0], alike[:, 1:]),
        (energy * (rows.jacobian_by_query + by_common), jacobian),
    )
    # parts of the keys that a row's gradients do not cancel: of all keys, and of keys that happen
    # to be alike
    left = np.stack(
        [key_factors(gains, axis, law.key, law.key_p, law.keys, law.both), axis.lift(law.key)], 1
    )
    mean = x[:, 0] @ axis.key_mean.T
    *factors, key_bias = gains.factors(mean, mean)
    query, key, bias = (
        axis.lift(part) if gains.qk_norm else np.broadcast_to(part, x.shape) for part in factors
    )
    scale = axis.logit_factor
    unbiased = by_row = scale * query[:, None] * left
    if gains.biases.k:
        lone = np.maximum(law.key_p - key_bias, 0.0)
        unbiased = by_row.copy()
        unbiased[:, 0] = scale * query * key_factors(gains, axis, law.key, lone, law.keys, law.both)
    if gains.adds == "qk":  # the other factor of the product, summed over the layers
        own[:, :2] *= scale * left
        own[:, 2] *= scale * law.query
        query = np.stack([query, query], 1)
    else:
        key = scale * key * (query * x + bias)
        query = by_row
    first, pair = key[:, 0], key[:, 1:]
    given = _kinds(
        (axis.visible * first, shorter * axis.turns.rows * pair),
        (-law.keys * _others(axis.visible, first), _different(longer, -law.both * ratio * pair)),
    )
    value *= gains.v * gains.o
    if gains.gate:
        units = gains.gate.units(axis.lift(x[:, 0]), correlations)
        opened = gains.gate.kernel.overlaps(*units)[1]
        value, own = value * opened[:, None], own * opened[:, None]
        gates["W_G"] = (
            gains.o * gains.gate.gain * gains.gate.kernel.slopes(*units)[1] * mixed / opened
        )
    return Paths(value, own, query, given, unbiased, gates)


BACK = ("query", "key", "key_p", "own", "s", "slope", "rho", "slopes", "keys", "both")
"""Fields of `Logits` that the way back reads, of every layer."""


def stack(rows: Sequence[Array]) -> Array:
    """`np.stack`, sooner."""
    return np.concatenate(rows).reshape(len(rows), *np.shape(rows[0]))


def _by_layer(rows: Sequence[Array]) -> Array:
    """As `stack`; of one array that all layers have in common only that, with a first axis of
    length 1."""
    return rows[0][None] if all(row is rows[0] for row in rows) else stack(rows)


def _kinds(*kinds: tuple[Array, Array]) -> Array:
    """`[layer, kind, pair]`, each kind from a token with itself and from two."""
    layers, n = kinds[0][0].shape
    out = np.empty((layers, len(kinds), n + 1, n))
    for kind, (same, different) in enumerate(kinds):
        out[:, kind, 0], out[:, kind, 1:] = same, different
    return out


def _others(t: Array, x: Array) -> Array:
    """A row's total over its pairs of different keys, as t² times the part of one pair."""
    return np.where(t > 1, x * t / np.maximum(t - 1, 1), 0.0)


def _different(longer: Array, x: Array) -> Array:
    """Two rows' total over their pairs of different keys, as t t′ times the part of one pair."""
    return np.where(longer > 1, x / (1 - 1 / np.maximum(longer, 1.5)), 0.0)
