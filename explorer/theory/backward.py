"""The backward recursion: mean square γ_q and token overlap γ_p of ∂L/∂x, sublayer by sublayer,
from the output down.

Gradients start from the linear loss's independent directions, (1, 0), and meet weights as
independent as the forward pass does. A norm divides by the second moment, averaged over the scatter
of the tokens' lengths, and removes what points along the token, and along the ones when it centers:
1/d of an isotropic gradient each. In a post-norm design the stream's gradient is not isotropic, for
the norms above have been there already; `Along` keeps that account."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from explorer.profile import Array
from explorer.schemes.placement import Part
from explorer.theory.attention import paths, stack
from explorer.theory.forward import Step, Steps
from explorer.theory.gains import Gains
from explorer.theory.logits import NODES, WEIGHTS
from explorer.theory.positions import Positions
from explorer.theory.tables import Tables
from explorer.theory.tokens import ZERO, Norm, normalize


class Backward(NamedTuple):
    """Gradients relative to that at the last layer's output; a `[pair]` is (γ_q, γ_p), under a mask
    see `Positions`."""

    site: Array
    """`[2N + 1, pair]`: at the embedding and after every sublayer."""
    total: Array
    """`[2N, pair]`: at each sum of stream and branch, before a norm on it."""
    branch: Array
    """`[2N, pair]`: at what each branch computes, before any norm on its output."""
    query: Array
    """`[N, pair]`: at the input of each attention, the gradient through its queries."""
    key: Array
    """`[N, pair]`: at that input, through its keys where queries and keys add up; else `query`
    without keys' biases."""
    value: Array
    """`[N, pair]`: at that input, through all values that the attention mixes."""
    alike: Array
    """`[N, position]`: of γ_q in `query`, over γ_q after the branch, the part of keys that are
    alike."""
    hidden: dict[str, Array]
    """`[N, pair]`: at the inputs of each MLP's hidden units, by the matrix that they come from."""
    gates: dict[str, Array]
    """`[N, pair]` by parameter, see `attention.Paths`."""


STEP = 0.75
TIMES = np.exp(np.arange(-18.0, 16.0, STEP))
"""Nodes of integrals over ln t, and their distance; t in units of f / E S, see `of_heads`."""


class Along(NamedTuple):
    """Energy of the stream's gradient along its own token and along the ones, over the isotropic
    1/d."""

    token: float
    ones: float


ISOTROPIC, ACROSS = Along(1.0, 1.0), Along(0.0, 0.0)
"""A gradient that points everywhere alike, and one with nothing along its token, as that before a
final norm."""


def run(
    gains: Gains, axis: Positions, table: Tables, steps: Steps, overlap: float
) -> tuple[Backward, float]:
    """The recursion from (1, `overlap`) after the last of the steps and its final norm, if the
    design has one.

    Returns:
        gradients relative to the mean at the last layer's output, `[..., pair]`, and that mean over
        the mean after the final norm.
    """
    gradient, unit, along = np.full_like(axis.ratio, overlap), 1.0, ISOTROPIC
    gradient[0] = 1.0
    if gains.final:  # tokens are divided by their own length
        norm = normalize(steps.last, gains, gains.d_model)[1]
        along = ISOTROPIC if gains.point else ACROSS
        gradient = gradient * (axis.lift(1 / norm.q) if norm.slopes is None else norm.slopes)
        unit = float(axis.weights @ gradient[0])
        gradient = gradient / unit
    descent, sites = (
        Descent(gains, axis, table, steps),
        np.empty((len(steps) + 1, *gradient.shape)),
    )
    sites[-1] = gradient
    for index in range(len(steps) - 1, -1, -1):
        gradient, along = descent.sublayer(index, gradient, along)
        sites[index] = gradient
    return descent.record(sites), unit


class Descent:
    """The loop, from the last step to the first. A gradient is linear in the one after it: its
    factors are made of all layers' tokens at once, and the loop only multiplies."""

    def __init__(self, gains: Gains, axis: Positions, table: Tables, steps: Steps) -> None:
        self.gains, self.axis, self.steps = gains, axis, steps
        self.before = isotropic(gains, axis, steps, "input")
        self.before *= (
            np.array([step.placement.scale * step.placement.reads for step in steps])[:, None, None]
            ** 2
        )
        skip = (
            np.array([gains.skip[i] if step.present else 1.0 for i, step in enumerate(steps)])[
                :, None, None
            ]
            ** 2
        )
        self.skip = skip * isotropic(gains, axis, steps, "skip")
        scale = (
            np.array([gains.branch[i] * step.present for i, step in enumerate(steps)])[
                :, None, None
            ]
            ** 2
        )
        self.branch = scale * isotropic(gains, axis, steps, "output")
        heads = of_heads(gains, axis, steps) if gains.attends else None
        if heads:
            self.skip, self.branch = (part * axis.ones for part in (self.skip, self.branch))
            self.skip[::2] *= heads.skip
            self.branch[::2] *= heads.branch
        self.final_input = self.branch * isotropic(gains, axis, steps, "last")
        self.final_input *= gains.last[: len(steps)]
        """As `branch`, with the last matrix's own factor: what comes through it is multiplied by
        its gain alone."""
        self.on_values = isotropic(gains, axis, steps, "values")
        sums = {index: step.norms["sum"] for index, step in enumerate(steps) if "sum" in step.norms}
        factors = zip(*through(gains, axis, list(sums.values())), strict=True) if sums else ()
        self.on_sum = dict(zip(sums, factors, strict=True))
        """By sublayer: see `through`."""
        units = gains.units(axis.lift(steps.inside[1::2, 0]), steps.rho[1::2])
        self.parts = [part(*units)[1] for part in gains.kernel.parts]
        """`[layer, pair]`: slopes to each factor of a hidden unit."""
        slopes = sum(ratio * part for ratio, part in zip(gains.ratios, self.parts, strict=True))
        self.hidden = self.final_input[1::2] * (gains.out * gains.hidden * slopes)
        """`[layer, pair]`: from an MLP's term of the sum to what it reads."""
        # where logits inherit nothing, all of an attention is one factor on what is gathered, and
        # one on the rest
        self.plain = not (
            gains.adds
            or gains.value_residual
            or gains.biases.v
            or any(step.placement.has("values") for step in steps)
        )
        if layers := [step.attention for step in steps if step.attention]:
            self.paths = paths(
                gains,
                axis,
                table,
                layers,
                steps.inside[::2],
                steps.rho[::2],
                steps.final_input[::2],
            )
            if heads:
                self.paths.gates.update(
                    {name: part * heads.own for name, part in self.paths.gates.items()}
                )
            self.gate, last = (
                self.paths.gates.get("W_G", np.zeros((len(layers), 1, 1))),
                self.final_input[::2],
            )
            self.given = last[:, None] * (
                self.paths.value + self.paths.key * self.paths.energy[:, 2:]
            )
            self.rest = last * ((self.paths.query * self.paths.energy[:, :2]).sum(1) + self.gate)
        self.least = -1 / np.maximum(axis.visible - 1, 1.0)
        self.totals: list[Array] = []
        self.values: list[Array] = []
        self.borrowed = np.zeros_like(axis.ratio)
        self.energies: list[Array] = []
        self.beside = np.zeros_like(axis.ratio)
        """Through a parallel MLP, to what its layer reads."""
        self.kept = 1.0
        """How far deviations of overlaps survive from the layer at hand to the one above."""
        self.longer = -1.0 if gains.final else 0.0
        """See `longer`."""

    def sublayer(self, index: int, gradient: Array, along: Along) -> tuple[Array, Along]:
        """From after a sublayer to before it."""
        gains, step, mean = self.gains, self.steps[index], self.axis.weights
        norms = step.norms
        if "sum" in norms:
            gradient = gradient * self.through_sum(index, along)
        if self.on_sum:
            self.totals.append(gradient)
        inner = (
            self.attention(index // 2, gradient)
            if step.attention
            else (self.hidden[index // 2] * gradient if step.present else np.zeros_like(gradient))
        )
        skip = self.skip[index]
        stream = gradient if skip.size == 1 and skip.item() == 1 else skip * gradient
        if "input" in norms:
            inner = self.before[index] * inner
            if not gains.point:
                above = self.longer * step.kept
                inner *= 1 - above * norms["input"].length_variance
                self.longer = longer(above, float(mean.dot(stream[0])), float(mean.dot(inner[0])))
        self.kept *= step.followed
        if self.on_sum and step.present:
            energies = float(mean.dot(stream[0])), float(mean.dot(inner[0]))
            fresh, meet = left(gains, step, *energies, mlp=step.attention is None)
            # a norm on this sum has removed what points along it; else a norm above has, in part
            along = ACROSS if "sum" in norms else along
            meet *= 1 - along.token
            stream = stream * (1 - meet) if meet else stream
            along = Along(*(had + (1 - had) * new for had, new in zip(along, fresh, strict=True)))
        elif step.present:
            along = ISOTROPIC
        if gains.parallel and index % 2:  # what it reads is before the attention
            self.beside, gradient = inner, stream
        else:
            gradient = inner + stream + self.beside if gains.parallel else inner + stream
        square = np.maximum(gradient[0], ZERO, out=gradient[0])
        if self.axis.unmasked:
            # overlaps of n vectors of square q lie between −q/(n − 1) and q; first order may
            # overstep
            gradient[1] = np.minimum(np.maximum(gradient[1], square * self.least), square)
        return gradient, along

    def through_sum(self, index: int, along: Along) -> Array:
        """`[pair]`: factor through the norm on a sum. What points along the ones is removed, but of
        the sum's own mean, which the norm has removed, only the branch's part, 1 − `kept`, is
        fresh."""
        norm, (even, doubled) = self.steps[index].norms["sum"], self.on_sum[index]
        if self.gains.point:
            return np.asarray(even)
        ones, mean = (
            part / norm.width if self.gains.centers else 0.0
            for part in (along.ones, 1 - self.steps[index].kept)
        )
        if mean == 1:
            return np.zeros_like(even)
        factor: Array = (
            (1 - ones) / (1 - mean) - along.token / norm.width / (1 - mean) * doubled
        ) * even
        return factor

    def attention(self, layer: int, gradient: Array) -> Array:
        """The three paths together."""
        if self.plain:
            rest: Array = self.rest[layer] * gradient
            return rest + self.axis.gather(self.given[layer] * gradient)
        gains, inner = self.gains, self.final_input[2 * layer] * gradient
        value, own, query, key = (part[layer] for part in self.paths[:4])
        through: Array = self.on_values[2 * layer] * self.axis.gather(value * inner)
        self.values.append(through)
        # it mixes ½ (V_1 + V_l): a quarter goes to each, so V_1 collects one from every layer
        if gains.value_residual:
            through = through + self.borrowed if layer == 0 else through / 4
            self.borrowed = self.borrowed + through
        through = through + self.gate[layer] * inner
        energy: Array = own * inner
        if self.energies and gains.adds:
            energy += self.energies[-1] * np.array([1.0, self.kept, 1.0])[:, None, None]
        self.energies.append(energy)
        self.kept = 1.0
        through = through + query[0] * energy[0] + query[1] * energy[1]
        return through + self.axis.gather(key * energy[2])

    def record(self, site: Array) -> Backward:
        """All of it, once the loop is through."""
        gains, total = self.gains, stack(self.totals[::-1]) if self.on_sum else site[1:]
        branch, final_input = self.branch * total, self.final_input * total
        after = gains.out * gains.d_model / gains.d_mlp * final_input[1::2]
        hidden = {name: after * part for name, part in zip(gains.readers, self.parts, strict=True)}
        if not gains.attends:
            nothing = np.zeros_like(branch[::2])
            return Backward(
                site, total, branch, nothing, nothing, nothing, nothing[:, 0], hidden, {}
            )
        energy = (
            stack(self.energies[::-1])
            if self.energies
            else self.paths.energy * final_input[::2, None]
        )
        query = self.paths.query * energy[:, :2]
        after, alike = branch[::2, 0], query[:, 1, 0]
        query = query.sum(1)
        key = query
        if gains.adds == "qk":
            key = np.array(
                [self.axis.gather(gradient) for gradient in self.paths.key * energy[:, 2:]]
            )
        elif gains.biases.k:
            key = (self.paths.unbiased * energy[:, :2]).sum(1)
        alike = np.divide(alike, after, out=np.zeros_like(after), where=after > 0)
        gates = {name: factor * final_input[::2] for name, factor in self.paths.gates.items()}
        return Backward(
            site, total, branch, query, key, np.array(self.values[::-1]), alike, hidden, gates
        )


def through(gains: Gains, axis: Positions, norms: Sequence[Norm]) -> tuple[Array, Array]:
    """Factors through norms, `[norm, pair]`: of what they divide by, averaged over the scatter of
    the tokens' lengths as in `tokens.normalize`; and 2 − ρ² of what points along the tokens, for
    two tokens lose what points along either."""
    if gains.point:
        return (even := np.array([norm.slopes for norm in norms])), np.ones_like(even)
    w, u = (np.array([getattr(norm, name) for norm in norms])[:, None, None] for name in ("w", "u"))
    square = stack([norm.rho for norm in norms]) ** 2
    even = 0.25 * w * square + (1 + 0.75 * w + 0.75 * u)
    even[:, 0] += 0.25 * u[:, 0]
    even *= axis.lift(1 / stack([norm.q for norm in norms]))
    for factor, norm in zip(even, norms, strict=True):
        if norm.regained is not None:
            factor *= norm.regained
    return even, 2 - square


class Heads(NamedTuple):
    """Factors on gradients where a norm divides by a length that gates, or sinks, have a part in:
    see `of_heads`."""

    skip: Array
    """`[layer, pair]`: on the stream's part of a sum."""
    branch: Array
    """`[layer, pair]`: on the branch's part."""
    own: Array
    """`[layer, 1, 1]`: on gradients by what multiplies the heads, beside `branch`."""


def of_heads(gains: Gains, axis: Positions, steps: Steps) -> Heads | None:
    """Factors for gradients that correlate with the length that a norm after attention divides by;
    None without them.

    That length's square is 1 − f + f S / E S in the mean, f the branch's part of it and S = Σσ² of
    a token's gates: 1 + g = E 1 / (1 − f + f S / E S) is the stream's factor; the branch's
    gradient, which S multiplies, has the factor 1 + g − g/f, for the two make 1. Two tokens' gates
    are nearly independent: to first order they keep ¾ of g, and ½ of g/f. A norm on the branch
    alone (f = 1) leaves the branch as it is, and two tokens as `Gate.regained` says.

    And the norm takes what points along its input: of the part of one head the share σ² / ((1 − f)
    E S / f + S) of its square; with one head and f = 1 all, but for what ε leaves, (ε / (q + ε))².
    Over independent gates 1/S = ∫ e^(−tS) dt and 1/S² = ∫ t e^(−tS) dt, in which each gate is one
    factor. Beside sinks all heads keep about the same weight: 1 − f/H is left. (Our derivation.)
    """
    gate, rows = gains.gate, []
    if gains.point or not (gate or gains.sink is not None):
        return None
    for layer, step in enumerate(steps[::2]):
        norm = step.norms.get("output") or step.norms.get("sum")
        if norm and step.attention:
            share = 1.0 if "output" in step.norms else max(1 - step.kept, 1e-6)
            left = float(axis.weights.dot(np.square(gains.epsilon / norm.q)))
            rows.append((layer, share, 1 - left))
    if not rows:
        return None
    pairs = steps.rho[::2]
    heads = Heads(np.ones_like(pairs), np.ones_like(pairs), np.ones((len(pairs), 1, 1)))
    layers, f, taken = (np.array(column) for column in zip(*rows, strict=True))
    if not gate:
        heads.own[layers, 0, 0] = 1 - taken * f / gains.n_heads
        return heads
    square, _ = gate.units(steps.inside[::2, 0][layers] @ axis.weights, np.ones(len(layers)))
    opened = expit(np.sqrt(square)[:, None] * NODES)
    size, slope = opened**2, (opened * (1 - opened)) ** 2  # σ² and σ′², [layer, node]
    total = gate.number * (size @ WEIGHTS)
    t = TIMES * (f / total)[:, None]
    each = np.exp(-t[..., None] * size[:, None]) * WEIGHTS  # [layer, t, node]
    beside = t * STEP * np.exp(-TIMES * (1 - f)[:, None]) * each.sum(-1) ** (gate.number - 1)
    by_time = each @ np.stack([np.ones_like(size), slope, slope * size], 2)  # [layer, t, average]
    mean, alone, along = (by_time * np.stack([beside, beside, beside * t], 2)).sum(1).T
    mean = mean * total / f
    along = np.where((gate.number == 1) & (f == 1), alone, along)  # exactly, where they cancel
    on_sum = np.where(f < 1, mean - 1, 0.0)[:, None, None]
    rho, f = pairs[layers], f[:, None, None]
    heads.skip[layers] += (0.75 + 0.25 * rho) * on_sum
    heads.branch[layers] += (0.75 + 0.25 * rho - (0.5 + 0.5 * rho) / f) * on_sum
    own = (alone - taken * along) * total / (slope @ WEIGHTS)
    heads.own[layers] = own[:, None, None] / (f + (f - 1) * on_sum)
    return heads


def isotropic(gains: Gains, axis: Positions, steps: Sequence[Step], part: Part) -> Array:
    """`[sublayer, pair]`: factor through the norm on a signal of gradients that have no direction;
    1 without a norm, `[sublayer, 1, 1]` if there are none at all.

    The norm removes what points along the token, and along the ones if it centers, 1/d each; it
    then divides by the variance, of which the ones have 1/d, too."""
    norms = {index: step.norms[part] for index, step in enumerate(steps) if part in step.norms}
    if not norms:
        return np.ones((len(steps), 1, 1))
    factor, doubled = through(gains, axis, list(norms.values()))
    if not gains.point:
        share = np.array([1 / norm.width for norm in norms.values()])[:, None, None]
        rest = 1 - gains.centers * share
        factor *= (rest > 0) * (1 - share / np.where(rest > 0, rest, 1.0) * doubled)
    if len(norms) == len(steps):
        return factor
    out = np.ones((len(steps), *axis.ones.shape))
    out[list(norms)] = factor
    return out


def longer(above: float, skip: float, branch: float) -> float:
    """Power of a token's squared length with which its gradient's square grows; norms above divide
    by that length.

    Of the stream's gradient it is `above`; what comes through the norm of a branch, which does not
    see the length, was divided by it once: −1."""
    total = skip + branch
    return (above * skip - branch) / total if total > 0 else 0.0


def left(gains: Gains, step: Step, skip: float, branch: float, mlp: bool) -> tuple[Along, float]:
    """After a norm on the sum and a sublayer: what is left along its input's tokens, and what
    cancels.

    The norm has removed what pointed along the sum, of which the stream's gradient keeps the part 1
    − `kept` along the stream; along the ones all of it. An MLP is nearly homogeneous of a degree k:
    J x = k F, so of what the stream has along x the branch has −k times as much: for k = 1 the two
    cancel, and they meet in 2k times the stream's energy. A branch that begins or ends with a norm
    does not see the length of x: nothing of its gradient is along x.

    Args:
        skip: energy of the stream's gradient; `branch` of that through the branch.
    Returns:
        the gradient's part along, and the part of the stream's gradient lost to the meeting.
    """
    total, lost = skip + branch, 1 - step.kept
    if total <= 0 or gains.point:
        return ISOTROPIC, 0.0
    ones = 0.0 if step.placement.has("input") else branch / total
    # the branch does not see how long its input is
    if step.placement.has("input", "values", "last", "output"):
        return Along(skip * lost / total, ones), 0.0
    if mlp:
        return Along(
            (1 - gains.degree) ** 2 * skip * lost / total, ones
        ), 2 * gains.degree * lost / gains.d_model
    return Along((skip * lost + branch) / total, ones), 0.0
