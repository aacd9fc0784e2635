"""The backward recursion under a causal mask: γ by position and by pair of positions.

The adjoint of `causal_forward`: a key at s collects from all rows t ≥ s. Of a row's squared weights Y2(t), each of its
t keys has an equal part, and so on for the other statistics; see `attention` for the three paths. A gradient is linear
in the one after it: its factors are made of all layers' tokens at once, and the loop only multiplies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from explorer.theory.backward import ISOTROPIC, Along, Backward, left, longer, through_norm
from explorer.theory.causal_forward import Attention, Logits, Step, key_factors
from explorer.theory.causal_tokens import TINY, Norm, normalize
from explorer.theory.gains import Gains
from explorer.theory.grids import Array
from explorer.theory.logits import factors
from explorer.theory.positions import Positions, Reading, Stacked
from explorer.theory.sink import Shared, Sunk, shared
from explorer.theory.tables import RowValues


class Paths(NamedTuple):
    """Factors on a gradient after each attention, `[layer, ..., pair]`."""

    value: Array
    """`[layer, 2, pair]`: factors of the rows' gradients, through the values, to one key and to two different keys."""
    energy: Array
    """`[layer, 3, pair]`: energy of the gradient by the logits, as queries see it, its part of keys that are alike, and
    as keys see it; see `attention.Inherited`."""
    query: Array
    """`[layer, 2, pair]`: factors from the first two kinds of energy to the gradient through the queries."""
    key: Array
    """`[layer, 2, pair]`: factors from energy to the gradient through the keys, as in `value`."""
    unbiased: Array
    """As `query`, of keys without their biases, see `attention.unbiased`."""
    gates: dict[str, Array]
    """`[layer, pair]`, as in `attention.Paths`."""


def run(gains: Gains, place: Positions, table: Stacked, steps: list[Step], overlap: float) -> tuple[Backward, float]:
    """The recursion from (1, `overlap`) after the last of the steps and its final norm, if the design has one.

    Returns:
        gradients relative to the mean at the last layer's output, `[..., pair]`, and that mean over the mean after the
        final norm.
    """
    gradient, unit, along = np.full_like(place.ratio, overlap), 1.0, ISOTROPIC
    gradient[0] = 1.0
    if gains.final:  # tokens are divided by their own length
        along = ISOTROPIC if gains.point else Along(0.0, 0.0)
        norm = normalize(steps[-1].site, gains, gains.d_model)[1]
        gradient = gradient * _through(gains, place, norm._replace(same=0.0), along, 1.0)
        unit = float(place.mean @ gradient[0])
        gradient = gradient / unit
    loop = Descent(gains, place, paths(gains, place, table, steps[::2]), steps)
    sites = [gradient]
    for index in range(len(steps) - 1, -1, -1):
        gradient, along = loop.sublayer(index, gradient, along)
        sites.append(gradient)
    return loop.record(stack(sites[::-1])), unit


class Descent:
    """The loop, from the last step to the first."""

    def __init__(self, gains: Gains, place: Positions, paths: Paths, steps: list[Step]) -> None:
        self.gains, self.place, self.paths, self.steps = gains, place, paths, steps
        self.before = _isotropic(gains, place, [step.on_input for step in steps])
        self.before *= np.array([step.placement.scale * step.placement.reads for step in steps])[:, None, None] ** 2
        scale = np.array(gains.branch[:len(steps)])[:, None, None] ** 2
        self.branch = scale * _isotropic(gains, place, [step.on_output for step in steps])
        self.read = self.branch * _isotropic(gains, place, [step.on_read for step in steps])
        self.on_heads = _isotropic(gains, place, [step.on_heads for step in steps])
        square, rho = (stack([getattr(step.inside, name) for step in steps[1::2]]) for name in ("square", "rho"))
        self.units = gains.units(square, rho)
        """Second moments and correlations of hidden units before the activation, `[layer, pair]` each."""
        slopes = gains.kernel.slopes(*self.units)[1]
        self.hidden = self.read[1::2] * (gains.out * gains.hidden * slopes)
        """`[layer, pair]`: from an MLP's term of the sum to what it reads."""
        # where logits inherit nothing, all of an attention is one factor on what is gathered, and one on the rest
        self.plain = not (gains.adds or gains.value_residual or gains.biases.v or any(step.on_heads for step in steps))
        self.given = paths.value + paths.key * paths.energy[:, 2:]
        self.gate = paths.gates.get("W_G", np.zeros(len(paths.value)))
        self.query = (paths.query * paths.energy[:, :2]).sum(1)
        self.totals: list[Array] = []
        self.values: list[Array] = []
        self.borrowed = np.zeros_like(place.ratio)
        self.energies: list[Array] = []
        self.beside = np.zeros_like(place.ratio)
        """Through a parallel MLP, to what its layer reads."""
        self.kept = 1.0
        """How far deviations of overlaps survive from the layer at hand to the one above."""
        self.longer = -1.0 if gains.final else 0.0
        """See `backward.longer`."""

    def sublayer(self, index: int, gradient: Array, along: Along) -> tuple[Array, Along]:
        """From after a sublayer to before it."""
        gains, step, mean, skip = self.gains, self.steps[index], self.place.mean, self.gains.skip[index] ** 2
        if step.on_sum:
            gradient = gradient * _through(gains, self.place, step.on_sum, along, 1 - step.kept)
        self.totals.append(gradient)
        inner = self.attention(index // 2, gradient) if step.attention else self.hidden[index // 2] * gradient
        if step.on_input:
            inner = self.before[index] * inner
        if step.on_input and not gains.point:
            above = self.longer * step.kept
            inner *= 1 - above * step.on_input.same
            self.longer = longer(above, skip * float(mean.dot(gradient[0])), float(mean.dot(inner[0])))
        self.kept *= step.followed
        along = ISOTROPIC
        if step.on_sum:
            stream, branch = skip * float(mean.dot(gradient[0])), float(mean.dot(inner[0]))
            along, meet = left(gains, step, stream, branch, mlp=step.attention is None)
            skip *= 1 - meet
        gradient = gradient if skip == 1 else skip * gradient
        if gains.parallel and not step.attention:  # what it reads is before the attention
            self.beside = inner
        else:
            gradient = inner + gradient + (self.beside if gains.parallel else 0.0)
        np.maximum(gradient[0], 0.0, out=gradient[0])
        return gradient, along

    def attention(self, layer: int, gradient: Array) -> Array:
        """The three paths together; see `attention.inherit` for what comes from the logits of the layers above."""
        inner = self.read[2 * layer] * gradient
        if self.plain:
            plain: Array = (self.query[layer] + self.gate[layer]) * inner
            return plain + self.place.gather(self.given[layer] * inner)
        value, own, query, key = (part[layer] for part in self.paths[:4])
        through: Array = self.by_values(layer, self.on_heads[2 * layer] * self.place.gather(value * inner))
        through = through + self.gate[layer] * inner
        energy: Array = own * inner
        if self.energies and self.gains.adds:
            energy += self.energies[-1] * np.array([1.0, self.kept, 1.0])[:, None, None]
        self.energies.append(energy)
        self.kept = 1.0
        through = through + query[0] * energy[0] + query[1] * energy[1]
        return through + self.place.gather(key * energy[2])

    def by_values(self, layer: int, value: Array) -> Array:
        """As `backward.Descent.by_values`."""
        self.values.append(value)
        if self.gains.value_residual:
            value = value + self.borrowed if layer == 0 else value / 4
            self.borrowed = self.borrowed + value
        return value

    def record(self, site: Array) -> Backward:
        """All of it, once the loop is through."""
        gains, total = self.gains, stack(self.totals[::-1])
        branch, read = self.branch * total, self.read * total
        energy = stack(self.energies[::-1]) if self.energies else self.paths.energy * read[::2, None]
        query = self.paths.query * energy[:, :2]
        after, alike = branch[::2, 0], query[:, 1, 0]
        query = query.sum(1)
        alike = np.divide(alike, after, out=np.zeros_like(after), where=after > 0)
        key = query
        if gains.adds == "qk":
            key = np.array([self.place.gather(gradient) for gradient in self.paths.key * energy[:, 2:]])
        elif gains.biases.k:
            key = (self.paths.unbiased * energy[:, :2]).sum(1)
        after = gains.out * gains.d_model / gains.d_mlp * read[1::2]
        parts = zip(gains.readers, gains.kernel.parts, strict=True)
        hidden = {name: after * part(*self.units)[1] for name, part in parts}
        gates = {name: factor * read[::2] for name, factor in self.paths.gates.items()}
        value = np.array(self.values[::-1])
        return Backward(site, total, branch, read, query, key, value, alike, hidden, gates)


def _isotropic(gains: Gains, place: Positions, norms: list[Norm | None]) -> Array:
    """`[sublayer, pair]`: factor through each norm, of gradients that have no direction; 1 where there is none."""
    return stack([_through(gains, place, norm, ISOTROPIC, 1.0) if norm else place.ones for norm in norms])


def _through(gains: Gains, place: Positions, norm: Norm, along: Along, mean: float) -> Array:
    """`[pair]`: factor on a gradient through a norm; `mean` as in `through_norm`."""
    if norm.slopes is not None:
        return norm.slopes
    return place.lift((1 + norm.same) / norm.q * through_norm(gains, along, mean, norm.width))


def paths(gains: Gains, place: Positions, table: Stacked, steps: list[Step]) -> Paths:
    """The factors of all layers' attention."""
    layers = [step.attention for step in steps if step.attention]
    law = Logits(*map(stack, zip(*(layer.logits for layer in layers), strict=True)))
    rows, cells, at_x, at_v = zip(*(layer.reading for layer in layers), strict=True)
    reading = Reading(stack(rows), stack(cells).astype(int), stack(at_x), stack(at_v))
    longer, shorter = place.t[place.larger], place.t[place.smaller]
    overlap, jacobian = stack([layer.overlap for layer in layers]), table.jacobian(reading)
    square, ratio = reading.rows[:, 2], place.ratio[1:]
    x, gates, by_common = stack([step.inside.y for step in steps]), {}, np.zeros_like(square)
    kept, both = np.ones_like(square), np.ones_like(overlap)
    if gains.sink is not None:
        kept, (both, by_common, jacobian, alone, taken) = _shared(place, layers, law.rho, reading.rows, jacobian)
        law = law._replace(keys=law.keys * alone, both=law.both * place.lift(alone)[:, 1:])
        gates["sink"] = taken
    apart = np.where(longer > 1, (both - overlap * ratio) / (1 - 1 / np.maximum(longer, 1.5)), 0.0)
    value = np.stack([
        _join(place.t * square, shorter * overlap), _join(_others(place.t, kept - square), apart),
    ], 1)
    # energy of a row's gradients by its logits; a pair of rows has it on the keys that they share
    energy = gains.o * stack([layer.apart for layer in layers]) * law.slope
    lifted, scatter = place.lift(energy), stack([layer.scatter for layer in layers])
    jacobian = jacobian * law.slopes[:, 1:]
    own = np.stack([
        lifted * _join(reading.rows[:, 3] + by_common, jacobian * ratio),
        place.lift(energy * scatter * reading.rows[:, 4] * law.keys),
        lifted * _join(reading.rows[:, 8] + by_common, jacobian),
    ], 1)
    # of the keys, what a row's gradients do not cancel, and what of those that are alike
    left = np.stack([key_factors(place, law.key, law.key_p, law.keys, law.both), place.lift(law.key)], 1)
    query, key, bias, key_bias = _by_logits(gains, place, x)
    scale = gains.scale * place.sharp
    unbiased = by_row = scale * query[:, None] * left
    if gains.biases.k:
        shared = np.maximum(law.key_p - key_bias, 0.0)
        unbiased = by_row.copy()
        unbiased[:, 0] = scale * query * key_factors(place, law.key, shared, law.keys, law.both)
    if gains.adds == "qk":  # the other factor of the product, summed over the layers
        own[:, :2] *= scale * left
        own[:, 2] *= scale * law.query
        query = np.stack([query, query], 1)
    else:
        key = scale * key * (query * x + bias)
        query = by_row
    first, pair = key[:, 0], key[:, 1:]
    lost = law.both * ratio * pair
    given = _join(place.t * first, shorter * place.turns.rows * pair), -_join(law.keys * _others(place.t, first), lost)
    value *= gains.v * gains.o
    if gains.gate:
        square, rho = (stack([getattr(step.inside, name) for step in steps]) for name in ("square", "rho"))
        units, inputs = gains.gate.units(square, rho), stack([step.read.y for step in steps])
        opened = gains.gate.kernel.overlaps(*units)[1]
        value, own = value * opened[:, None], own * opened[:, None]
        gates["W_G"] = gains.o * gains.gate.gain * gains.gate.kernel.slopes(*units)[1] * inputs / opened
    return Paths(value, own, query, np.stack(given, 1), unbiased, gates)


def _shared(place: Positions, layers: list[Attention], rho: Array, rows: Array, jacobian: Array
            ) -> tuple[Array, Shared]:
    """E M², M the weight that a sink leaves to a row's keys, and the averages of pairs of rows; `taken` is `[pair]`."""
    lost = Sunk(*map(stack, zip(*(layer.lost for layer in layers if layer.lost), strict=True)))
    own, common, overlap = (stack([getattr(x, name) for x in layers]) for name in ("apart", "common", "overlap"))
    pairs = shared(lost, RowValues(*rows.swapaxes(0, 1)), overlap, jacobian, rho[:, 1:],
                   np.maximum(common, 0.0) / np.maximum(own, TINY), lambda part: place.lift(part)[:, 1:])
    return lost.square, pairs._replace(taken=_join(lost.shared / lost.square, pairs.taken))


def _by_logits(gains: Gains, place: Positions, x: Array) -> tuple[Array, Array, Array, Array]:
    """Factors from the overlaps of tokens to those of their queries and keys, and the biases of both, see `Factors`."""
    mean = x[:, 0] @ place.prefix.T
    every = (factor + 0 * mean for factor in factors(gains, mean, mean))
    query, key, bias = (place.lift(next(every)) for _ in range(3))
    return query, key, bias, next(every)


def stack(rows: Sequence[Array]) -> Array:
    """`np.stack`, sooner."""
    return np.concatenate(rows).reshape(len(rows), *np.shape(rows[0]))


def _join(same: Array, different: Array) -> Array:
    """`[pair]` from a token with itself and from two."""
    return np.concatenate([same[..., None, :], different], -2)


def _others(t: Array, x: Array) -> Array:
    """A row's total over its pairs of different keys, as t² times the part of one pair."""
    return np.where(t > 1, x * t / np.maximum(t - 1, 1), 0.0)
