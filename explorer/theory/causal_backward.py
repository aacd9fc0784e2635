"""The backward recursion under a causal mask: γ by position and by pair of positions.

The adjoint of `causal_forward`: a key at s collects from all rows t ≥ s. Of a row's squared weights Y2(t), each of its
t keys has an equal part, and so on for the other statistics; see `attention` for the three paths.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from explorer.theory.backward import ISOTROPIC, Along
from explorer.theory.causal_forward import Norm, Step
from explorer.theory.causal_logits import Logits, factors
from explorer.theory.causal_state import State, outer
from explorer.theory.gains import EPSILON, Gains
from explorer.theory.grids import Array
from explorer.theory.positions import Positions, Stacked


class Backward(NamedTuple):
    """Gradients relative to the mean at the last layer's output, as lists over sites, sublayers and layers."""

    site: list[State]
    total: list[State]
    """At each sum of stream and branch, before a norm on it."""
    branch: list[State]
    query: list[State]
    """What comes down to what each attention reads through its queries."""
    key: list[State]
    """The same through its keys."""
    alike: list[Array]
    """Of γ_q in `query`, over γ_q behind the branch, the part of keys that are alike."""
    hidden: list[State]
    """At the inputs of each MLP's hidden units."""
    unit: float
    """Mean square at the last layer's output, over that behind the final norm."""


def run(gains: Gains, place: Positions, table: Stacked, steps: list[Step], overlap: float) -> Backward:
    """The recursion from (1, `overlap`) behind the last of the steps and its final norm, if the design has one."""
    gradient, unit, along = State(np.ones_like(place.t), np.full((len(place.t),) * 2, overlap)), 1.0, ISOTROPIC
    if gains.final:  # tokens are divided by their own length
        along = Along(0.0, 0.0)
        gradient = _across(gradient, Norm(steps[-1].site.q + EPSILON, 0.0), along, gains)
        unit = float(place.mean @ gradient.q)
        gradient = gradient.scaled(1 / unit)
    out = Backward([gradient], [], [], [], [], [], [], unit)
    inherited, kept = None, 1.0
    for index in range(len(steps) - 1, -1, -1):
        step, mlp = steps[index], index % 2 == 1
        if step.after:
            gradient = _across(gradient, step.after, along, gains, 1 - step.kept)
        out.total.append(gradient)
        inner = gradient.scaled(gains.branch**2)
        if step.behind:
            inner = _across(inner, step.behind, ISOTROPIC, gains)
        out.branch.append(inner)
        if step.logits is None:
            inner = _mlp(gains, step, inner, out)
        else:
            value, own = _attention(gains, place, table, step.logits, inner)
            inherited, kept = inherit(gains, step.logits, own, inherited, kept), 1.0
            inner = collect(gains, place, step.inside, step.logits, inherited, value, out)
        if step.before:
            inner = _across(inner.scaled(step.place.scale**2), step.before, ISOTROPIC, gains)
        kept *= step.followed
        along, lost = _along(gains, place, step, gradient, inner, mlp)
        skip = gradient.scaled(gains.skip**2 - lost)
        gradient = State(np.maximum(skip.q + inner.q, 0.0), skip.p + inner.p)
        out.site.append(gradient)
    for part in out[:-1]:
        part.reverse()
    return out


def _across(gradient: State, norm: Norm, along: Along, gains: Gains, mean: float = 1.0) -> State:
    """Through a norm, from its output to its input; see `backward.across`."""
    ones, mean = (along.ones, mean) if gains.centers else (0.0, 0.0)
    factor = (1 + norm.same) * (1 - (along.token + ones) / gains.d_model) / (norm.q * (1 - mean / gains.d_model))
    return State(gradient.q * factor, gradient.p * outer(factor))


def _along(gains: Gains, place: Positions, step: Step, gradient: State, inner: State, mlp: bool) -> tuple[Along, float]:
    """What is left along the token and the ones, and the skip's loss to their meeting: see `backward.join`."""
    if step.after is None:
        return ISOTROPIC, 0.0
    skip, branch = gains.skip**2 * float(place.mean @ gradient.q), float(place.mean @ inner.q)
    if mlp:
        return Along(0.0, branch / (skip + branch)), 2 * gains.skip**2 * (1 - step.kept) / gains.d_model
    return Along((skip * (1 - step.kept) + branch) / (skip + branch), branch / (skip + branch)), 0.0


def _mlp(gains: Gains, step: Step, gradient: State, out: Backward) -> State:
    x = step.inside
    same, _ = gains.kernel.slopes(gains.hidden * x.q, np.ones_like(x.q))
    _, cross = gains.kernel.slopes(gains.hidden * outer(x.q), x.rho())
    up = gains.out * gains.d_model / gains.d_mlp
    hidden = State(up * same * gradient.q, up * cross * gradient.p)
    out.hidden.append(hidden)
    return hidden.scaled(gains.hidden * gains.d_mlp / gains.d_model)


class Inherited(NamedTuple):
    """Energy of the gradients by the logits of this layer and of those above that inherit them; see `attention`."""

    row: State
    alike: State
    key: State


def _attention(gains: Gains, place: Positions, table: Stacked, law: Logits, gradient: State
               ) -> tuple[State, Inherited]:
    """What comes down through the values, and the energy of the gradient by the layer's logits."""
    t, ratio = place.t, place.ratio
    rows = table.rows(law.s)
    square, jacobian, spread, by_query = rows[:, 2], rows[:, 3], rows[:, 4], rows[:, 8]
    overlap, overlap_j = np.moveaxis(table.pairs(outer(law.s**2), law.rho, place.smaller), -1, 0)
    gain = gains.v * gains.o
    longer = t[place.larger]
    apart = np.where(longer > 1, (1 - overlap * ratio) / (1 - 1 / np.maximum(longer, 1.5)), 0.0)
    value = _gather(place, t * square * gradient.q, t[place.smaller] * overlap * gradient.p,
                    _others(t, (1 - square) * gradient.q), apart * gradient.p).scaled(gain)
    energy = gain * law.apart * law.slope
    scattered, overlap_j = law.scatter * spread * law.keys, overlap_j * law.rows
    return value, Inherited(
        State(energy * jacobian * gradient.q, outer(energy) * overlap_j * ratio * gradient.p),
        State(energy * scattered * gradient.q, outer(energy * scattered) * gradient.p),
        State(energy * by_query * gradient.q, outer(energy) * overlap_j * gradient.p),
    )


def inherit(gains: Gains, law: Logits, own: Inherited, above: Inherited | None, kept: float) -> Inherited:
    """What a layer's logits pass on to its own queries and keys and to those below; see `attention.inherit`."""
    if not gains.residual_attention:
        return own
    if gains.residual_attention == "qk":
        key, query = gains.scale * (law.key + (1 - law.keys) * law.key_p), gains.scale * law.query
        own = Inherited(
            State(key * own.row.q, outer(key) * own.row.p), State(key * own.alike.q, outer(key) * own.alike.p),
            State(query * own.key.q, gains.scale * law.query_p * own.key.p),
        )
    if above is None:
        return own
    return Inherited(_sum(own.row, above.row), _sum(own.alike, above.alike.scaled(kept)), _sum(own.key, above.key))


def _sum(x: State, y: State) -> State:
    return State(x.q + y.q, x.p + y.p)


def collect(gains: Gains, place: Positions, x: State, law: Logits, passed: Inherited, value: State, out: Backward
            ) -> State:
    """Before the branch, through values, queries and keys together."""
    t = place.t
    by_query, by_key = factors(gains, place, x.q)
    if gains.residual_attention == "qk":
        query, same, cross = by_query, by_key, outer(by_key)
    else:
        both = gains.scale * by_query * by_key
        seen = law.key + (1 - law.keys) * law.key_p
        query, same, cross = gains.scale * by_query * seen, both * x.q, outer(both) * x.p
    by_row = State(query * (passed.row.q + passed.alike.q), outer(query) * (passed.row.p + passed.alike.p))
    one, two = same * passed.key.q, cross * passed.key.p
    by_keys = _gather(place, t * one, t[place.smaller] * two, -law.keys * _others(t, one),
                      -outer(law.keys) * two * place.ratio)
    behind = out.branch[-1].q
    out.alike.append(np.divide(query * passed.alike.q, behind, out=np.zeros_like(behind), where=behind > 0))
    out.query.append(by_row)
    out.key.append(by_keys)
    return _sum(value, _sum(by_row, by_keys))


def _others(t: Array, x: Array) -> Array:
    """A row's total over its pairs of different keys, as t² times the part of one pair."""
    return np.where(t > 1, x * t / np.maximum(t - 1, 1), 0.0)


def _gather(place: Positions, same: Array, cross: Array, apart: Array, cross_apart: Array) -> State:
    """From rows to keys: t² times a row's part of one key (`same`), of one pair of keys (`apart`), and of two rows'.

    Two rows' parts are t t′ times what their common keys (`cross`), or a pair of different ones, receive.
    """
    up, up_2 = place.suffix, place.suffix_2
    q = up_2 @ (same - cross.diagonal()) + ((up @ cross) * up).sum(1)
    p = up @ cross_apart @ up.T + (up_2 @ (apart - cross_apart.diagonal()))[place.larger]
    return State(q, p)
