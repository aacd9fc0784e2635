"""The backward recursion: mean square γ_q and token overlap γ_p of ∂L/∂x, sublayer by sublayer,
from the output down.

γ_q is a token's mean square of ∂L/∂x a coordinate, γ_p the mean product of two tokens' gradients,
both over γ_q at the output. Gradients start from the linear loss's independent directions, (γ_q,
γ_p) = (1, 0), and meet weights as independent as the forward pass does:
    norm       γ / q̂, less what points along the token
    MLP        γ_q × g₂ g₁ E φ′²,   γ_p × g₂ g₁ E φ′φ′(ρ)
    attention  three paths, see `attention`
A norm divides by the second moment, averaged over the scatter
of the tokens' lengths, and removes what points along the token, and along the ones when it centers:
1/d of an isotropic gradient each. In a post-norm design the stream's gradient is not isotropic, for
the norms above have been there already; `Along` keeps that account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from explorer.schemes.placement import Part
from explorer.theory.attention import Attention, paths, stack
from explorer.theory.copies import Returning
from explorer.theory.forward import Step, Steps
from explorer.theory.gains import Gains
from explorer.theory.logits import NODES, WEIGHTS
from explorer.theory.positions import Positions
from explorer.theory.several import at_least, equals, quotient
from explorer.theory.tables import Tables
from explorer.theory.tokens import ZERO, Norm, normalize, ratio
from explorer.vocabulary import Array


class Backward(NamedTuple):
    """Gradients relative to that at the last layer's output: `[pair]` has γ_q in row 0 and γ_p
    below (see `Positions`); N layers have 2N sublayers."""

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
    """`[N, position]`: part of γ_q in `query` that comes of keys that happen to be alike, over γ_q
    after the branch."""
    by_logits: Array
    """`[N]`: part of the square that attention passes on which comes through queries and keys."""
    hidden: dict[str, Array]
    """`[N, pair]`: at the inputs of each MLP's hidden units, by the matrix that they come from."""
    gates: dict[str, Array]
    """`[N, pair]` by parameter, see `attention.Paths`."""
    added_up: Mapping[str, Array] = {}
    """By matrix, `[2N]` for "alpha" and else `[N]` and zeros: what the sums of `parameters.norms`
    have besides each layer's own, of a layer and its later copies; empty where none share any."""


STEP = 0.75
TIMES = np.exp(np.arange(-18.0, 16.0, STEP))
"""Nodes of integrals over ln t and the step between them; t in units of f / E S, see `of_heads`."""
OF_ONE = (STEP * TIMES * np.exp(-TIMES)).sum()
"""The integral over e^(−t) at these nodes. It is 1 but for 2e-5."""


class Along(NamedTuple):
    """Energy of the stream's gradient along its own token and along the ones, over that of an
    isotropic gradient, which has 1/d of its square along each direction."""

    token: float
    ones: float


ISOTROPIC, ACROSS = Along(1.0, 1.0), Along(0.0, 0.0)
"""A gradient without a direction; and one with nothing along its token, as before a final norm."""


def run(
    gains: Gains, axis: Positions, table: Tables, steps: Steps, overlap: float
) -> tuple[Backward, float]:
    """The recursion from (γ_q, γ_p) = (1, `overlap`) at the output, after the final norm if the
    design has one.

    Returns:
        gradients relative to the mean at the last layer's output, `[..., pair]`, and that mean over
        the mean at the output.
    """
    gradient, unit, along = np.full_like(axis.ones, overlap), 1.0, ISOTROPIC
    gradient[0] = 1.0
    if gains.final:  # tokens are divided by their own length
        x = steps.last
        if gains.point:
            norm = normalize(x, gains, gains.d_model)[1]
        else:
            norm, along = Norm(x.q + gains.epsilon, gains.d_model, x.w, x.u, x.rho), ACROSS
        division, removed = through(gains, axis, [norm])
        if not gains.point:  # one direction is along the token, of all but that of the mean
            division = division * (1 - removed / (gains.d_model - gains.centers))
        gradient = gradient * division[0]
        unit = axis.mean(gradient[0])
        gradient = gradient / unit
    descent = Descent(gains, axis, table, steps)
    sites = np.empty((len(steps) + 1, *gradient.shape))
    sites[-1] = gradient
    returning = Returning(steps.copies, table, descent) if steps.copies else None
    for index in range(len(steps) - 1, -1, -1):
        after = gradient
        gradient, along = descent.sublayer(index, after, along)
        if returning:
            gradient = returning.meet(index, after, gradient)
        sites[index] = gradient
    gradients = descent.record(sites)
    if returning:
        gradients = gradients._replace(added_up=returning.added_up)
    return gradients, unit


class Descent:
    """The loop, from the last step to the first.

    A gradient is linear in the one after it: the factors are made of all layers' tokens at once,
    and the loop only multiplies."""

    def __init__(self, gains: Gains, axis: Positions, table: Tables, steps: Steps) -> None:
        self.gains, self.axis, self.steps = gains, axis, steps
        placements = [step.placement for step in steps]
        reads = axis.column(placement.scale * placement.reads for placement in placements)
        skip = axis.column(step.skip for step in steps)
        scale = axis.column(step.branch for step in steps)
        self.before = isotropic(gains, axis, steps, "input") * reads**2
        """`[sublayer, pair]`, as the next: from a branch's input after the norm to before it."""
        self.skip = isotropic(gains, axis, steps, "skip") * skip**2
        """From the sum to the stream before it."""
        self.branch = isotropic(gains, axis, steps, "output") * scale**2
        """From the sum to the branch's output."""
        self.final_input = self.branch * isotropic(gains, axis, steps, "last")
        self.final_input = self.final_input * axis.column(gains.last[: len(steps)])
        """From the sum to the input of the branch's last matrix, but for the matrix's gain."""
        self.on_values = isotropic(gains, axis, steps, "values")
        sums = {index: step.norms["sum"] for index, step in enumerate(steps) if "sum" in step.norms}
        factors = zip(*through(gains, axis, list(sums.values())), strict=True) if sums else ()
        self.on_sum = dict(zip(sums, factors, strict=True))
        """By sublayer with a norm on the sum: the two results of `through`."""
        self.through_last_sum = axis.ones
        """`[pair]`: factor of the norm on the last sum."""
        heads = of_heads(gains, axis, steps)
        if heads:
            self._divide_by_gates(heads)
        units = gains.units(axis.lift(steps.inside[1::2, 0]), steps.rho[1::2])
        self.parts = [part(*units)[1] for part in gains.kernel.parts]
        """`[layer, pair]`: slopes to each factor of a hidden unit."""
        slopes = sum(ratio * part for ratio, part in zip(gains.ratios, self.parts, strict=True))
        self.hidden = self.final_input[1::2] * (gains.out * gains.hidden * slopes)
        """`[layer, pair]`: from an MLP's term of the sum to what it reads."""
        layers = [step.attention for step in steps if step.attention]
        if layers:
            self._attention_factors(table, layers, heads)
        self.least_cosine = -1 / np.maximum(axis.visible - 1, 1.0)
        """`[position]`: the least mean cosine that n vectors can have."""
        self.totals: list[Array] = []
        """Gradients at the sums, from the last to the first, where a norm stands on them."""
        self.values: list[Array] = []
        """Gradients at the attentions' inputs through values, from the last to the first."""
        self.energies: list[Array] = []
        """Energies of gradients by logits, from the last to the first."""
        self.borrowed = np.zeros_like(axis.ones)
        """Gradient of the first layer's values by the layers above that mix them in."""
        self.beside = np.zeros_like(axis.ones)
        """Gradient through a parallel MLP, to what its layer reads."""
        self.kept = 1.0
        """How far deviations of overlaps survive from the layer at hand to the one above."""
        self.length_power = -1.0 if gains.final else 0.0
        """See `length_power`."""

    def _divide_by_gates(self, heads: Heads) -> None:
        """Divides by the gates' part of a length: in the norm on the sum, or that before the
        MLP."""
        for layer, factor in enumerate(heads.total):
            if 2 * layer in self.on_sum:
                division, removed = self.on_sum[2 * layer]
                self.on_sum[2 * layer] = division * factor, removed
            elif "input" in self.steps[2 * layer + 1].norms:
                self.before[2 * layer + 1] *= factor

    def _attention_factors(
        self, table: Tables, layers: Sequence[Attention], heads: Heads | None
    ) -> None:
        """Sets `paths`; `excess` and `at_once` of `relative_to_sum`; and `factors`, by which a
        plain attention is one factor on what does not pass values or keys, and two on what keys
        gather."""
        gains, axis, steps = self.gains, self.axis, self.steps
        before, rho, mixed = steps.inside[::2], steps.rho[::2], steps.final_input[::2]
        self.paths = paths(gains, axis, table, layers, before, rho, mixed)
        self.excess, self.at_once = relative_to_sum(gains, axis, steps, self.paths.lengths, heads)
        _, by_value, by_logits, by_gates = self.excess
        self.gate = self.paths.gates.get("W_G", axis.column([0.0] * len(layers)))
        value, energy, query, key, *_ = self.paths
        factor = self.final_input[::2, None]
        through_queries = (query * energy[:, :2]).sum(1)
        through_keys = key * energy[:, 2:]
        self.factors = np.empty((len(layers), 3, *axis.ones.shape))
        """`[layer, 3, pair]`."""
        self.factors[:, 0] = through_queries + self.gate
        self.factors[:, 1:] = value + through_keys
        self.factors *= factor
        self.excess_factors = np.empty_like(self.factors)
        """`[layer, 3, pair]`: their excess where the gradient is divided by the sum's length."""
        self.excess_factors[:, 0] = by_logits * through_queries + by_gates * self.gate
        self.excess_factors[:, 1:] = by_value[:, None] * value + by_logits[:, None] * through_keys
        self.excess_factors *= factor
        self.divided: list[Any] = []
        """How far the gradients at attentions' sums are divided by their lengths, from the last to
        the first: see `relative_to_sum`."""
        normed = any(step.placement.has("values") for step in steps)
        biased = not equals(gains.biases.v, 0)
        self.plain = not (gains.adds or gains.value_residual or biased or normed)

    def sublayer(self, index: int, gradient: Array, along: Along) -> tuple[Array, Along]:
        """The gradient before a sublayer, of the `gradient` after it, `[pair]`: γ = skip² γ + the
        branch's.

        Args:
            along: what of the gradient points along the tokens and the ones after the sublayer;
                that before it is returned.
        """
        gains, step = self.gains, self.steps[index]
        norms = step.norms
        self.through_last_sum = self.axis.ones
        if "sum" in norms:
            self.through_last_sum = self.through_sum(index, along)
            gradient = gradient * self.through_last_sum
            self.length_power = -1.0
        if self.on_sum:
            self.totals.append(gradient)
        if step.attention:
            divided = 1.0 if self.at_once[index // 2] else -self.length_power
            self.divided.append(divided)
            inner = self.attention(index // 2, gradient, divided)
        elif step.present:
            inner = self.hidden[index // 2] * gradient
        else:
            inner = np.zeros_like(gradient)
        skip = self.skip[index]
        stream = gradient if skip.size == 1 and skip.item() == 1 else skip * gradient
        power = self.length_power * step.kept
        if "input" in norms:
            inner = self.before[index] * inner
            if not gains.point:
                inner *= 1 - power * norms["input"].length_variance
        energies = self.axis.mean(stream[0]), self.axis.mean(inner[0])
        if "input" in norms and not gains.point:
            self.length_power = length_power(power, *energies)
        self.kept *= step.followed
        if self.on_sum and step.present:
            fresh, lost = along_after(gains, step, *energies, mlp=step.attention is None)
            # a norm on this sum has removed what points along it; else a norm above has, in part
            along = ACROSS if "sum" in norms else along
            lost = lost * (1 - along.token)
            if not equals(lost, 0):
                stream = stream * (1 - lost)
            along = Along(*(had + (1 - had) * new for had, new in zip(along, fresh, strict=True)))
        elif step.present:
            along = ISOTROPIC
        if not gains.parallel:
            gradient = inner + stream
        elif index % 2:  # what a parallel MLP reads is before the attention
            self.beside, gradient = inner, stream
        else:
            gradient = inner + stream + self.beside
        self.bound(gradient)
        return gradient, along

    def bound(self, gradient: Array) -> None:
        """Brings a gradient, `[pair]`, into the range of squares and overlaps, in place."""
        square = np.maximum(gradient[0], ZERO, out=gradient[0])
        if self.axis.unmasked:
            # overlaps of n vectors of square q lie between −q/(n − 1) and q; first order may
            # overstep
            gradient[1] = np.minimum(np.maximum(gradient[1], square * self.least_cosine), square)

    def through_sum(self, index: int, along: Along) -> Array:
        """Factor on gradients through the norm on a sum, `[1 + position, position]`: in row 0 on a
        token's square, below on the overlap of two tokens.

        The norm divides by the sum's length and removes what points along the token and, where it
        centers, along the ones: 1/width of an isotropic gradient each, times `along`. What it
        divides by lacks the sum's mean, too. The stream comes from such a norm and has none, so of
        1/width only the branch's part, 1 − `kept`, is in the sum.

        Args:
            along: what of the gradient after the norm points along the token and the ones.
        """
        norm = self.steps[index].norms["sum"]
        division, removed = self.on_sum[index]
        if self.gains.point:  # a function in the norm's place: `division` has its slopes
            return np.asarray(division)
        ones = mean = 0.0  # parts of the gradient, and of the sum's square, along the ones
        if self.gains.centers:
            ones, mean = along.ones / norm.width, (1 - self.steps[index].kept) / norm.width
        if equals(mean, 1):
            return np.zeros_like(division)
        of_token = along.token / norm.width * removed
        return np.asarray((1 - ones - of_token) / (1 - mean) * division)

    def attention(self, layer: int, gradient: Array, divided: Any) -> Array:
        """The gradient through an attention, of that after its term of the sum: the three paths
        together, `[pair]`.

        Args:
            divided: how far the gradient is divided by the sum's length.
        """
        axis = self.axis
        if self.plain:
            parts = (self.factors[layer] + divided * self.excess_factors[layer]) * gradient
            rest: Array = parts[0]
            return rest + axis.gather(parts[1:])
        gains, after = self.gains, self.final_input[2 * layer] * gradient
        value, own, query, key = (part[layer] for part in self.paths[:4])
        _, by_value, by_logits, by_gates = 1 + divided * self.excess[:, layer]
        value, own = by_value * value, by_logits * own
        through: Array = self.on_values[2 * layer] * axis.gather(value * after)
        self.values.append(through)
        # it mixes ½ (V_1 + V_l): a quarter goes to each, so V_1 collects one from every layer
        if gains.value_residual:
            through = through + self.borrowed if layer == 0 else through / 4
            self.borrowed = self.borrowed + through
        through = through + by_gates * self.gate[layer] * after
        energy: Array = own * after
        if self.energies and gains.adds:  # the logits are also part of those of the layer above
            energy += self.energies[-1] * axis.column([1.0, self.kept, 1.0])
        self.energies.append(energy)
        self.kept = 1.0
        through = through + query[0] * energy[0] + query[1] * energy[1]
        return through + axis.gather(key * energy[2])

    def record(self, site: Array) -> Backward:
        """All gradients, once the loop is through.

        Args:
            site: `Backward.site`.
        """
        gains, axis = self.gains, self.axis
        total = stack(self.totals[::-1]) if self.on_sum else site[1:]
        branch, final_input = self.branch * total, self.final_input * total
        unit = gains.out * gains.d_model / gains.d_mlp * final_input[1::2]
        hidden = {name: unit * part for name, part in zip(gains.readers, self.parts, strict=True)}
        if not gains.attends:
            none = np.zeros_like(branch[::2])
            no_part = none[:, 0, 0]
            return Backward(site, total, branch, none, none, none, none[:, 0], no_part, hidden, {})
        divided = axis.column(self.divided[::-1])
        by_output, _, by_logits, by_gates = 1 + divided * self.excess
        if self.energies:
            energy = stack(self.energies[::-1])
        else:  # of a plain attention
            energy = self.paths.energy * (by_logits * final_input[::2])[:, None]
        through_queries = self.paths.query * energy[:, :2]
        query = key = through_queries.sum(1)
        if gains.adds == "qk":
            through_keys = self.paths.key * energy[:, 2:]
            key = np.array([axis.gather(gradient) for gradient in through_keys])
        elif not equals(gains.biases.k, 0):
            key = (self.paths.unbiased * energy[:, :2]).sum(1)
        alike = ratio(through_queries[:, 1, 0], branch[::2, 0])
        branch[::2] *= by_output
        after = by_gates * final_input[::2]
        gates = {name: factor * after for name, factor in self.paths.gates.items()}
        value = np.array(self.values[::-1])
        part = self._by_logits(through_queries, energy, final_input[::2])
        return Backward(site, total, branch, query, key, value, alike, part, hidden, gates)

    def _by_logits(self, through_queries: Array, energy: Array, final_input: Array) -> Array:
        """See `Backward.by_logits`.

        Args:
            through_queries: `[layer, 2, pair]`, as the next two of `paths`; `energy` of the logits'
                gradients.
            final_input: `[layer, pair]`, gradient at the input of W_O.
        """
        axis, paths = self.axis, self.paths
        values, keys = (
            axis.over_second(axis.collect_same, given.reshape(len(given), -1, *given.shape[3:]))
            for given in (paths.value[:, 0] * final_input, paths.key[:, 0] * energy[:, 2])
        )
        by_values = axis.total(axis.weights, self.on_values[::2, 0] * values)
        logits = axis.total(axis.weights, keys + through_queries.sum(1)[:, 0])
        return np.asarray(ratio(logits, logits + by_values))


def through(gains: Gains, axis: Positions, norms: Sequence[Norm]) -> tuple[Array, Array]:
    """Factors on gradients through norms, `[norm, 1 + position, position]` each: in row 0 on a
    token's square, below on the overlap of two tokens.

    A norm divides the gradients at two tokens by the tokens' lengths. Let q be the mean of the
    squared lengths, and a and b their relative deviations from it. The mean of 1/√((1 + a)(1 + b))
    is 1 + ⅜ Var a + ⅜ Var b + ¼ Cov(a, b) (delta method). Here Var a = Var b = w + u, w the part
    of the scatter that two tokens share and u the rest; so Cov(a, b) = w ρ² for tokens of
    correlation ρ. For a token with itself it is w + u, which is ¼ u more.

    A norm also removes the direction x̂ along its token. For two tokens, x̂ and x̂′, the trace of
    (1 − x̂x̂ᵀ)(1 − x̂′x̂′ᵀ) is d − (2 − ρ²).

    Returns:
        1/q averaged over the lengths, times `Norm.regained` where the norm divides out what gates
        have multiplied; and the number 2 − ρ² of directions along tokens that it removes. Where a
        function of each coordinate stands in the norms' place (`gains.point`): the mean product of
        its slopes at the two tokens, and 1.
    """
    if gains.point:
        slopes = np.array([norm.slopes for norm in norms])
        return slopes, np.ones_like(slopes)
    w, u = axis.column(norm.w for norm in norms), axis.column(norm.u for norm in norms)
    rho_2 = stack([norm.rho for norm in norms]) ** 2
    division = 0.25 * w * rho_2 + (1 + 0.75 * w + 0.75 * u)
    division[:, 0] += 0.25 * u[:, 0]  # a token with itself
    division *= axis.lift(1 / stack([norm.q for norm in norms]))
    for index, norm in enumerate(norms):
        if norm.regained is not None:
            division[index] *= norm.regained
    return division, 2 - rho_2


class Heads(NamedTuple):
    """Factors on gradients where a norm divides by a length that gates, or sinks, have a part in:
    see `of_heads`."""

    total: Array
    """`[layer, pair]`: on the gradient that comes through the next norm, which leaves out that
    gates scatter lengths, or has it to second order."""
    branch: Array
    """`[layer, pair]`: on the branch's gradient, relative to that at the sum."""
    own: Array
    """`[layer, 1, 1]`: on gradients by what multiplies the heads, beside `branch`."""


def shares(axis: Positions, steps: Steps) -> tuple[Array, list[bool]]:
    """By attention the part f of the squared length that norms divide by that is the branch's,
    `[layer, 1, 1]`, and whether a norm divides by it at once: on its output, before W_O, or on the
    sum."""
    f, at_once = [], []
    for step in steps[::2]:
        alone = "output" in step.norms or "last" in step.norms
        f.append(1.0 if alone else at_least(1 - step.kept, 1e-6))
        at_once.append(alone or "sum" in step.norms)
    return axis.column(f), at_once


def of_heads(gains: Gains, axis: Positions, steps: Steps) -> Heads | None:
    """Factors for gradients that correlate with the length that a norm after attention divides by,
    on that sum or above; None without gates and sinks.

    The norm divides by a squared length of 1 − f + f S / E S in the mean, f the branch's part of it
    and S = Σσ² of a token's gates. Let 1 + g be the mean of its inverse.

    - The stream's gradient does not depend on S: its factor is 1 + g.
    - S multiplies the branch's gradient. Stream and branch together keep their length, (1 − f)(1 +
      g) + f · factor = 1, so that the branch's factor is 1 + g − g/f.
    - Two tokens' gates are nearly independent: to first order they keep ¾ of g, and ½ of g/f.
    - A norm on the branch alone, f = 1, leaves the branch as it is, and two tokens as
      `Gate.regained` says.

    And the norm takes what points along its input: of the part of one head the share σ² / ((1 − f)
    E S / f + S) of its square. With one head and f = 1 that is all, but for what ε leaves, (ε / (q
    + ε))². Beside sinks all heads keep about the same weight: 1 − f/H is left. (Our derivation.)"""
    gate = gains.gate
    if gains.point or not gains.attends or not (gate or gains.sink is not None):
        return None
    (parts, at_once), rho = shares(axis, steps), steps.rho[::2]
    f = parts.ravel()
    heads = Heads(np.ones_like(rho), np.ones_like(rho), np.ones((len(rho), 1, 1)))
    left = np.zeros_like(f)
    for layer, norm in enumerate(map(norm_above, steps[::2], steps[1::2])):
        if norm:
            left[layer] = axis.weights.dot(np.square(gains.epsilon / norm.q))
    taken = 1 - left
    if not gate:
        heads.own[:, 0, 0] = 1 - taken * f / gains.n_heads
        return heads
    seen_by_gates = steps.inside[::2, 0] @ axis.weights
    square, _ = gate.units(seen_by_gates, np.ones_like(f))
    g, own = _over_gates(gate.number, square, f, taken)
    # a norm on the branch finds its length without gates
    g[["output" in step.norms for step in steps[::2]]] = 0.0
    heads.own[:, 0, 0] = own / (f + (f - 1) * g)
    # beside a stream the next input norm has them in its scatter of lengths, to second order
    counted = [bool(step.kept) and not once for step, once in zip(steps[::2], at_once, strict=True)]
    second = (f * f * gate.noise * counted)[:, None, None]
    f, g = f[:, None, None], g[:, None, None]
    alike = 0.75 + 0.25 * rho
    total = 1 + alike * g
    heads.branch[:] = np.where(f < 1, total - (0.5 + 0.5 * rho) / f * g, 1.0) / total
    heads.total[:] = total / (1 + alike * second)
    return heads


def norm_above(step: Step, following: Step) -> Norm | None:
    """The norm on an attention's output or sum, or on the next sublayer's input; None without
    one."""
    norms = step.norms
    return norms.get("output") or norms.get("sum") or following.norms.get("input")


def relative_to_sum(
    gains: Gains, axis: Positions, steps: Steps, lengths: Array, heads: Heads | None
) -> tuple[Array, list[bool]]:
    """Relative excess of gradients through attention, where that at its sum is divided by the sum's
    length, over the product of means: `[4, layer, pair]`, for the output, the values, the logits,
    and what multiplies heads. And whether it is divided at once, by layer, as in `shares`.

    A sum's squared length is 1 − f + f |o|²/E |o|², f the branch's part. Of a factor X on the
    gradient, of relative covariance c with |o|², the mean under that division is E X · (1 + f² V −
    f c), with V the relative variance of |o|²; and 1 + f² V is that of the gradient itself. So X =
    |o|² with f = 1 has a mean of 1, as it must. Gates have what `of_heads` says.

    A gradient that norms above have divided only in part, as |x|²ᵏ with k = `length_power`, has
    the part −k of this excess: its part along the sum is 1 + k of an isotropic gradient's, by the
    same recursion.

    Args:
        lengths: c, see `attention.Paths`; V is its first row.
    """
    f, at_once = shares(axis, steps)
    if gains.point:
        return np.zeros_like(lengths), at_once
    with_gates = f
    if gains.gate:  # beside a stream the product of S and a gate scatters by more than the two
        with_gates = f * (1 + (1 - f) * gains.gate.noise * gains.n_heads)
    # (1 + f² V − f c) / (1 + f² V) − 1
    of_gradient = 1 + f * with_gates * lengths[0]
    excess: Array = -with_gates * lengths / of_gradient
    if heads:
        excess = (1 + excess) * heads.branch - 1
        excess[3] = (1 + excess[3]) * heads.own - 1
    for layer, step in enumerate(steps[::2]):
        if "last" in step.norms:  # W_O reads what is normed
            excess[0, layer] = 0.0
    return excess, at_once


def _over_gates(number: int, square: Array, f: Array, taken: Array) -> tuple[Array, Array]:
    """Averages over the gates σ of a token, by integrals over t, `[layer]` each.

    With D = (1 − f) E S / f + S and S = Σσ² of independent gates, 1/D = ∫ e^(−tD) dt and 1/D² = ∫ t
    e^(−tD) dt, in which each gate is one factor E e^(−tσ²).

    Args:
        number: of gates.
        square: `[layer]`, second moment of the gates' inputs.
        f, taken: `[layer]`, the branch's part of the length's square, and the part of what points
            along its input that the norm takes.
    Returns:
        g = E S / f · E 1/D − 1; and E S / E σ′² · E [σ′²/D − taken σ′² σ² / D²].
    """
    opened = expit(np.sqrt(square)[:, None] * NODES)
    size, slope = opened**2, (opened * (1 - opened)) ** 2  # σ² and σ′², [layer, node]
    total = number * (size @ WEIGHTS)  # E S
    t = TIMES * (f / total)[:, None]
    one_gate = np.exp(-t[..., None] * size[:, None]) * WEIGHTS  # [layer, t, node]
    # the step of the integral over ln t, and the factors of all that is not this one gate
    others = t * STEP * np.exp(-TIMES * (1 - f)[:, None]) * one_gate.sum(-1) ** (number - 1)
    by_time = one_gate @ np.stack(
        [np.ones_like(size), slope, slope * size], 2
    )  # [layer, t, average]
    inverse, alone, along = (by_time * np.stack([others, others, others * t], 2)).sum(1).T
    along = np.where((number == 1) & (f == 1), alone, along)  # exactly, where they cancel
    # callers divide g, which is of the order of f², by f: what the nodes miss would count
    g = inverse * total / (f * OF_ONE) - 1
    return g, (alone - taken * along) * total / (slope @ WEIGHTS)


def isotropic(gains: Gains, axis: Positions, steps: Sequence[Step], part: Part) -> Array:
    """Factor on gradients without a direction through the norm on a signal, `[sublayer, 1 +
    position, position]`: in row 0 on a token's square, below on the overlap of two tokens. It is 1
    at sublayers without a norm, and `[sublayer, 1, 1]` if none has one.

    The norm removes what points along the token, and along the ones if it centers: 1/d of the
    gradient's square each. It then divides by the variance, which lacks the square along the ones,
    1/d of the token's. So a norm that centers leaves (1 − 1/d − 1/d) / (1 − 1/d).

    Args:
        part: the signal, such as "input".
    """
    norms = {index: step.norms[part] for index, step in enumerate(steps) if part in step.norms}
    if not norms:
        return np.ones((len(steps), *[1] * axis.ones.ndim))
    factor, removed = through(gains, axis, list(norms.values()))
    if not gains.point:
        share = axis.column(1 / norm.width for norm in norms.values())
        rest = 1 - gains.centers * share
        factor *= (rest > 0) * (1 - share / np.where(rest > 0, rest, 1.0) * removed)
    if len(norms) == len(steps):
        return factor
    out = np.ones((len(steps), *axis.ones.shape))
    out[list(norms)] = factor
    return out


def length_power(above: Any, skip: Any, branch: Any) -> Any:
    """Power k with which a gradient's square grows with its token's squared length, as |x|²ᵏ, for
    norms above divide by that length.

    Args:
        above: the power of the stream's gradient. What comes through the norm of a branch, which
            does not see the length, was divided by it once: −1.
        skip: energy of the stream's gradient; `branch` of that through the branch.
    """
    return quotient(above * skip - branch, skip + branch)


def along_after(
    gains: Gains, step: Step, skip: float, branch: float, mlp: bool
) -> tuple[Along, float]:
    """How much of the gradient before a sublayer points along its token x, and along the ones, when
    nothing of the gradient g at the sum x + F(x) points along that sum, for a norm removed it.

    The stream passes g on as it is, the branch passes on Jᵀg, with J the Jacobian of F.

    - Stream along x: x has the part `kept` of its square along the sum, where g has nothing. So 1 −
      `kept` of an isotropic gradient's energy is left.
    - MLP along x: F is nearly homogeneous of a degree k, so that J x = k F. And g·(x + F) = 0. So x
      · Jᵀg = k F·g = −k x·g: with the stream's the two make (1 − k) x·g. What they cancel is twice
      their product along x, 2k (1 − `kept`)/d of the stream's energy.
    - Branch with a norm in it along x: F does not depend on the length of x. J x = 0, and nothing
      of Jᵀg is along x.
    - Attention along x: nothing is known, and Jᵀg counts as isotropic.
    - Along the ones: a norm that centers has removed all of g, and Jᵀg is isotropic; unless the
      branch begins with a norm, which removes them of Jᵀg. Norms further in act after a matrix,
      which turns the ones to another direction.

    Args:
        skip: energy of the stream's gradient; `branch` of that through the branch.
        mlp: whether the sublayer is an MLP.
    Returns:
        energy along token and ones over that of an isotropic gradient; and the part of the stream's
        energy that stream and branch cancel.
    """
    if gains.point:  # a function in the norms' place removes no direction
        return ISOTROPIC, 0.0
    total, left = skip + branch, 1 - step.kept
    stream = skip * left
    has = step.placement.has
    ones = 0.0 if has("input") else quotient(branch, total, 1.0)
    if has("input", "values", "last", "output"):
        return Along(quotient(stream, total, 1.0), ones), 0.0
    if not mlp:
        return Along(quotient(stream + branch, total, 1.0), ones), 0.0
    lost = 2 * gains.degree * left / gains.d_model
    return Along(quotient((1 - gains.degree) ** 2 * stream, total, 1.0), ones), lost
