"""The backward recursion under a causal mask: γ by position and by pair of positions.

The adjoint of `causal_forward`: a key at s collects from all rows t ≥ s. Of a row's squared weights Y2(t), each of its
t keys has an equal part, and so on for the other statistics; see `attention` for the three paths. A gradient is linear
in the one after it: its factors are made of all layers' tokens at once, and the loop only multiplies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from explorer.theory.backward import ISOTROPIC, Along
from explorer.theory.causal_forward import Norm, Step
from explorer.theory.causal_logits import Logits, factors
from explorer.theory.gains import EPSILON, Gains
from explorer.theory.grids import Array
from explorer.theory.positions import Positions, Stacked


class Backward(NamedTuple):
    """Gradients relative to the mean at the last layer's output, `[site, sublayer or layer, pair]`."""

    site: Array
    total: Array
    """At each sum of stream and branch, before a norm on it."""
    branch: Array
    query: Array
    """What comes down to what each attention reads through its queries."""
    key: Array
    """The same through its keys, where it is not the same as by the queries."""
    alike: Array
    """`[layer, position]`: of γ_q in `query`, over γ_q after the branch, the part of keys that are alike."""
    hidden: Array
    """At the inputs of each MLP's hidden units."""
    unit: float
    """Mean square at the last layer's output, over that after the final norm."""


class Paths(NamedTuple):
    """Factors on a gradient after each attention, `[layer, ..., pair]`."""

    value: Array
    """`[layer, 2, pair]`: what the rows give, through the values, to one key and to a pair of different keys."""
    energy: Array
    """`[layer, 3, pair]`: energy of the gradient by the logits, as queries see it, its part of keys that are alike, and
    as keys see it; see `attention.Inherited`."""
    query: Array
    """`[layer, pair]`: from energy to what comes down through the queries."""
    key: Array
    """`[layer, 2, pair]`: from energy to what the rows give through the keys, as in `value`."""


def run(gains: Gains, place: Positions, table: Stacked, steps: list[Step], overlap: float) -> Backward:
    """The recursion from (1, `overlap`) after the last of the steps and its final norm, if the design has one."""
    count = len(place.t)
    gradient, unit, along = np.full(len(place.ratio), overlap), 1.0, ISOTROPIC
    gradient[:count] = 1.0
    if gains.final:  # tokens are divided by their own length
        along = Along(0.0, 0.0)
        gradient = gradient * place.lift(_across(steps[-1].site.q + EPSILON, 0.0, along, gains))
        unit = float(place.mean @ gradient[:count])
        gradient = gradient / unit
    loop = Descent(gains, place, paths(gains, place, table, steps[::2]), through(gains, steps[1::2]), steps)
    sites = [gradient]
    for index in range(len(steps) - 1, -1, -1):
        gradient, along = loop.sublayer(steps[index], index, gradient, along)
        sites.append(gradient)
    site, total, branch, energy = (_stack(part[::-1]) for part in (sites, loop.totals, loop.branches, loop.energies))
    query = loop.paths.query * (energy[:, 0] + energy[:, 1])
    behind, alike = branch[::2, :count], (loop.paths.query * energy[:, 1])[:, :count]
    alike = np.divide(alike, behind, out=np.zeros_like(behind), where=behind > 0)
    hidden = loop.through * branch[1::2] / (gains.hidden * gains.d_mlp / gains.d_model)
    key = _gather(place, loop.paths.key * energy[:, 2:]) if gains.residual_attention == "qk" else query
    return Backward(site, total, branch, query, key, alike, hidden, unit)


class Descent:
    """The loop, from the last step to the first."""

    def __init__(self, gains: Gains, place: Positions, paths: Paths, through: Array, steps: list[Step]) -> None:
        self.gains, self.place, self.paths, self.through = gains, place, paths, through
        self.before = _isotropic(gains, place, [(step.before, step.place.scale) for step in steps])
        self.behind = _isotropic(gains, place, [(step.behind, 1.0) for step in steps])
        self.totals: list[Array] = []
        self.branches: list[Array] = []
        self.energies: list[Array] = []
        self.kept = 1.0
        """How far deviations of overlaps survive from the layer at hand to the one above."""

    def sublayer(self, step: Step, index: int, gradient: Array, along: Along) -> tuple[Array, Along]:
        """From after a sublayer to before it."""
        gains, place, layer = self.gains, self.place, index // 2
        if step.after:
            gradient = gradient * place.lift(_across(*step.after, along, gains, 1 - step.kept))
        self.totals.append(gradient)
        inner = gains.branch**2 * gradient
        if step.behind:
            inner = inner * self.behind[index]
        self.branches.append(inner)
        inner = self.attention(layer, inner) if step.logits else self.through[layer] * inner
        if step.before:
            inner = inner * self.before[index]
        self.kept *= step.followed
        along, lost = _along(gains, place, step, gradient, inner)
        gradient = (gains.skip**2 - lost) * gradient + inner
        square = gradient[:len(place.t)]
        np.maximum(square, 0.0, out=square)
        return gradient, along

    def attention(self, layer: int, gradient: Array) -> Array:
        """The three paths together; see `attention.inherit` for what comes from the logits of the layers above."""
        energy = self.paths.energy[layer] * gradient
        if self.gains.residual_attention and self.energies:
            energy += self.energies[-1] * np.array([[1.0], [self.kept], [1.0]])
        self.energies.append(energy)
        self.kept = 1.0
        given = self.paths.value[layer] * gradient + self.paths.key[layer] * energy[2]
        by_query: Array = self.paths.query[layer] * (energy[0] + energy[1])
        return _gather(self.place, given) + by_query


def _isotropic(gains: Gains, place: Positions, norms: list[tuple[Norm | None, float]]) -> dict[int, Array]:
    """Sublayer to the factor through its norm, which multiplies by a scale, where gradients have no direction."""
    found = {index: (norm, scale) for index, (norm, scale) in enumerate(norms) if norm}
    if not found:
        return {}
    q = _stack([norm.q / scale**2 for norm, scale in found.values()])
    same = np.array([[norm.same] for norm, _ in found.values()])
    return dict(zip(found, place.lift(_across(q, same, ISOTROPIC, gains)), strict=True))


def _across(q: Array, same: float | Array, along: Along, gains: Gains, mean: float = 1.0) -> Array:
    """`[..., position]`: factor through a norm of squares q, from its output to its input; see `backward.across`."""
    ones, mean = (along.ones, mean) if gains.centers else (0.0, 0.0)
    factor: Array = (1 + same) * (1 - (along.token + ones) / gains.d_model) / (q * (1 - mean / gains.d_model))
    return factor


def _along(gains: Gains, place: Positions, step: Step, gradient: Array, inner: Array) -> tuple[Along, float]:
    """What is left along the token and the ones, and the skip's loss to their meeting: see `backward.join`."""
    if step.after is None:
        return ISOTROPIC, 0.0
    count = len(place.t)
    skip, branch = gains.skip**2 * float(place.mean @ gradient[:count]), float(place.mean @ inner[:count])
    if step.logits is None:
        return Along(0.0, branch / (skip + branch)), 2 * gains.skip**2 * (1 - step.kept) / gains.d_model
    return Along((skip * (1 - step.kept) + branch) / (skip + branch), branch / (skip + branch)), 0.0


def through(gains: Gains, steps: list[Step]) -> Array:
    """`[layer, pair]`: factor on a gradient through each MLP."""
    square, rho = (_stack([getattr(step.inside, name) for step in steps]) for name in ("square", "rho"))
    slopes: Array = gains.kernel.slopes(gains.hidden * square, rho)[1]
    return gains.out * gains.hidden * slopes


def paths(gains: Gains, place: Positions, table: Stacked, steps: list[Step]) -> Paths:
    """The factors of all layers' attention."""
    laws = [step.logits for step in steps if step.logits]
    law = Logits(*(_stack(column) for column in zip(*laws, strict=True)))
    t, different = place.t, slice(len(place.t), None)
    longer, shorter = t[place.larger][different], t[place.smaller][different]
    rows = table.rows(law.s)
    square = rows[..., 2]
    overlap, overlap_j = table.pairs(place.lift(law.s)[:, different], law.rho[:, different])
    apart = (1 - overlap * place.ratio[different]) / (1 - 1 / np.maximum(longer, 1.5))
    apart = np.where(longer > 1, apart, 0.0)
    value = np.stack([_join(t * square, shorter * overlap), _join(_others(t, 1 - square), apart)], 1)
    energy = _energy(gains, place, law, rows, overlap_j * law.rows[:, different])
    x = _stack([step.inside.y for step in steps])
    return Paths(gains.v * gains.o * value, energy, *_by_logits(gains, place, law, x))


def _energy(gains: Gains, place: Positions, law: Logits, rows: Array, overlap_j: Array) -> Array:
    """`Paths.energy`, from the statistics of rows and of pairs of rows."""
    jacobian, spread, by_query = (rows[..., i] for i in (3, 4, 8))
    energy = gains.v * gains.o * law.apart * law.slope
    both, ratio = place.lift(energy), place.ratio[len(place.t):]
    own = np.stack([
        both * _join(jacobian, overlap_j * ratio), place.lift(energy * law.scatter * spread * law.keys),
        both * _join(by_query, overlap_j),
    ], 1)
    if gains.residual_attention == "qk":  # the other factor of the product, summed over the layers
        own[:, :2] *= gains.scale * place.lift(_seen(law))[:, None]
        own[:, 2] *= gains.scale * law.query
    return own


def _by_logits(gains: Gains, place: Positions, law: Logits, x: Array) -> tuple[Array, Array]:
    """`Paths.query` and `Paths.key`, of an attention that reads x."""
    t, count = place.t, len(place.t)
    query, key = (place.lift(factor) for factor in factors(gains, place, x[:, :count]))
    if gains.residual_attention != "qk":
        key = gains.scale * query * key * x
        query = gains.scale * query * place.lift(_seen(law))
    one, two = key[:, :count], key[:, count:]
    lost = (place.lift(law.keys) * place.ratio)[:, count:]
    given = _join(t * one, t[place.smaller][count:] * two), -_join(law.keys * _others(t, one), lost * two)
    return query, np.stack(given, 1)


def _seen(law: Logits) -> Array:
    """Of the keys, what a row's gradients by its logits do not cancel: see `attention` on caps."""
    seen: Array = law.key + (1 - law.keys) * law.key_p
    return seen


def _stack(rows: Sequence[Array]) -> Array:
    """`np.stack`, sooner."""
    return np.concatenate(rows).reshape(len(rows), *np.shape(rows[0]))


def _join(same: Array, different: Array) -> Array:
    return np.concatenate([same, different], -1)


def _others(t: Array, x: Array) -> Array:
    """A row's total over its pairs of different keys, as t² times the part of one pair."""
    return np.where(t > 1, x * t / np.maximum(t - 1, 1), 0.0)


def _gather(place: Positions, given: Array) -> Array:
    """From rows to keys: `[..., 2, pair]` to `[..., pair]`, see `Positions.collect`.

    What is given is t² times a row's part of one key, of one pair of keys; of two rows t t′ times what their common
    keys receive, or a pair of different ones.
    """
    return _join(given[..., 0, :] @ place.collect.T, given[..., 1, :] @ place.collect_2.T)
