"""Gradients through attention: γ_q, the mean square of ∂L/∂x a coordinate, and γ_p, two tokens' mean overlap.

Three paths, whose weights are independent and whose contributions therefore add: through the values, the queries and
the keys. With u_ts = g_t·v_s the logits' gradient is A_ts(u_ts − Σ_r A_tr u_tr); what all keys share drops out of it,
which leaves Δ = q̂ − p̂ of the values, and once more Δ of the keys in the gradient by the query.

After a soft cap a row's gradients by its logits no longer add up to 0, for each has a slope of its own: of what all
keys share the part 1 − κ passes, κ the mean product of two slopes over the mean square of one (`Capped.keys`). With a
sink ΣA < 1, and what all keys share no longer drops out (`sink.shared`). Gates multiply γ, and are a path of their own.

Where logits inherit those of the layers below (RealFormer), a layer's own queries and keys also get the gradients of
all logits above. Each layer draws its values anew, so the gradients by two layers' logits are uncorrelated given the
stream, and their energies add: `Inherited` is their sum, gathered on the way down.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from explorer.theory.forward import Step, columns
from explorer.theory.gains import Gains, Gate
from explorer.theory.grids import Array
from explorer.theory.logits import factors
from explorer.theory.sink import Sunk, drain, shared, sinks
from explorer.theory.tables import Softmax

Pair = tuple[float, float]


class Paths(NamedTuple):
    """The attention of each layer."""

    value: Array
    """`[layer, 2, 2]`, rows (γ_q, γ_p) before, columns after."""
    logits: Array
    """`[layer, 6]`: energy of the gradient by the logits for γ = 1, in the order of `Inherited`."""
    uneven: Array
    """`[layer]`: factor on `Capped.keys`, the part of a row's energy that cancels over its keys; 1 without a sink."""
    gates: dict[str, Array]
    """`[layer, 2]`, from (γ_q, γ_p) after the branch: "W_G" to what comes down through the gates, "sink" to the energy
    by the sink's logit over what W_O reads."""


class Inherited(NamedTuple):
    """Energy of the gradients by the logits of this layer and of those above that inherit them, in `Paths`' order."""

    row: float = 0.0
    rows: float = 0.0
    alike: float = 0.0
    alike_2: float = 0.0
    key: float = 0.0
    keys: float = 0.0


def paths(gains: Gains, softmax: Softmax, steps: list[Step]) -> Paths:
    """The paths of the attention sublayers among the steps."""
    n = softmax.n
    own, p, v, share = np.array([(step.values.own, step.values.p, step.inside.v, step.logits.own) for step in steps]).T
    _, s, slope, rho, _, across_rows, across_keys, _, common = np.array([step.capped for step in steps]).T
    rows = softmax.rows(s)
    y11, j11 = softmax.pairs(s, rho)
    kept, both, uneven, by_common, down = np.ones_like(s), np.ones_like(s), np.ones_like(s), np.zeros_like(s), {}
    if gains.sink is not None:
        lost = Sunk(*(part[:, 0] for part in sinks((n,), gains.sink).read(s[:, None], common[:, None])))
        rows, y11 = drain(rows, lost), y11 * lost.together(rho) * lost.focus**rho
        kept, (both, by_common, j11, uneven, taken) = lost.square, shared(
            lost, rows, y11, j11, rho, p / np.maximum(own, 1e-300))
        down["sink"] = np.stack([lost.shared / lost.square, taken], -1)
    others = max(n - 1, 1)
    shares = np.array([[rows.square, others * y11], [(kept - rows.square) / others, both - y11]])
    value = gains.v * gains.o * shares.transpose(2, 0, 1)
    energy = gains.o * own * slope
    # overlaps scatter by v, so keys of a row point in fewer than all directions; along the query logits order them
    along = share / gains.d_head
    jacobian = rows.jacobian * (1 - along) + gains.tilted * rows.tilted * along + by_common
    j11, scattered = j11 * across_rows, v * rows.spread * across_keys * uneven
    parts = jacobian, j11, scattered, scattered, rows.jacobian_by_query + by_common, j11
    logits = np.stack([energy * part for part in parts], -1)
    if gains.gate:
        opened, down["W_G"] = gating(gains, gains.gate, *columns(steps, "inside"), *columns(steps, "read"))
        value, logits = value * opened[:, None], logits * np.tile(opened, 3)
    return Paths(value, logits, uneven, down)


def gating(gains: Gains, gate: Gate, q: Array, p: Array, square: Array, overlap: Array) -> tuple[Array, Array]:
    """Factors on (γ_q, γ_p), `[layer, 2]`: past the gates, and down through them to attention's input.

    Args:
        q: second moment of attention's input, p its overlap; `square` and `overlap` are those of W_O's input.
    """
    units = gate.units(q, np.clip(p / q, 0.0, 1.0))
    opened = np.stack(gate.kernel.overlaps(*units), -1)
    slopes = np.stack(gate.kernel.slopes(*units), -1)
    return opened, gains.o * gate.gain * slopes * np.stack([square, overlap], -1) / opened


def inherit(gains: Gains, step: Step, logits: list[float], uneven: float, after: Pair, above: Inherited, kept: float
            ) -> Inherited:
    """Gradients that a layer's logits pass to its own queries and keys and to those below.

    Args:
        logits: the layer's entry of `Paths.logits`, `uneven` that of `Paths.uneven`.
        after: (γ_q, γ_p) after the branch.
        above: the same of the layer above.
        kept: how far deviations of overlaps survive from here to the layer above.
    """
    q, p = after
    row, rows, alike, alike_2, key, keys = logits
    row, rows, alike, alike_2, key, keys = row * q, rows * p, alike * q, alike_2 * p, key * q, keys * p
    law = step.logits
    if not gains.adds:
        return Inherited(row, rows, alike, alike_2, key, keys)
    if gains.adds == "qk":  # the other factor of the product, summed over the layers
        factors = *key_factors(gains, step, uneven, law.key, law.key_p), law.key, law.query, law.query_p
        by_row, by_rows, by_key, by_query, by_query_p = (gains.scale * factor for factor in factors)
    else:
        by_row = by_rows = by_key = by_query = by_query_p = 1.0
    return Inherited(
        by_row * row + above.row, by_rows * rows + above.rows,
        by_key * alike + kept * above.alike, by_key * alike_2 + kept * above.alike_2,
        by_query * key + above.key, by_query_p * keys + above.keys,
    )


def key_factors(gains: Gains, step: Step, uneven: float, own: float, p: float) -> Pair:
    """Factors from gradients by logits to those by queries, of a row and of two; keys have `own` apart, p in common."""
    turns, law = gains.turns, step.capped
    return own + (1 - uneven * law.keys) * p, turns.rows * own + (turns.rows - uneven * law.both) * p


def unbiased(gains: Gains, step: Step, uneven: float, passed: Inherited) -> Pair:
    """(γ_q, γ_p) through the queries as in `collect`, but of keys without biases: by symmetry, for W_K."""
    law, by = step.logits, factors(gains, step.inside.q, step.inside.q)
    row, rows = key_factors(gains, step, uneven, law.key, max(law.key_p - by.key_bias, 0.0))
    factor = gains.scale * by.query
    return (factor * (row * passed.row + law.key * passed.alike),
            factor * (rows * passed.rows + law.key * passed.alike_2))


def collect(gains: Gains, step: Step, uneven: float, passed: Inherited, others: int) -> tuple[Pair, float, Pair]:
    """(γ_q, γ_p) before the branch through the queries, of that γ_q the part of keys alike, and through the keys."""
    law, own, q = step.capped, step.logits, step.inside.q
    by = factors(gains, q, q)
    if gains.adds == "qk":
        row = rows = query = by.query
        same = cross = by.key
    else:
        (row, rows), scale = key_factors(gains, step, uneven, own.key, own.key_p), gains.scale
        row, rows, query = scale * by.query * row, scale * by.query * rows, scale * (by.query * own.key)
        same, cross = scale * (by.key * own.query), scale * (by.key * own.query_p)
    alike, key, keys = query * passed.alike, same * passed.key, cross * passed.keys
    return (
        (row * passed.row + alike, rows * passed.rows + query * passed.alike_2), alike,
        (key + others * gains.turns.rows * keys, -uneven * (law.keys * key / others + law.both * keys)),
    )
