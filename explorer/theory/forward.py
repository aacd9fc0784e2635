"""The forward recursion: second moments q by position and overlaps p by pair of positions, sublayer
by sublayer.

For a softmax over Gaussian logits of variance s², rows that average the keys, and independent
weights in each layer:
    attention  q_F = g_v g_o [p̂ + Δ Y2],  p_F = g_v g_o [p̂ + Δ Y11],  Δ = q̂ − p̂
    its gate   q_F × E σ²,               p_F × E σσ′(ρ)              at second moment g_G q̂
    MLP        q_F = g₂ E φ²,              p_F = g₂ E φφ′(ρ)            at input second moment g₁ q̂
    gated      q_F = g₂ E φ² g₃ q̂,         p_F = g₂ E φφ′(ρ) g₃ p̂       g₁ of W_gate, g₃ of W_in
with (q̂, p̂) the branch's input: (1, ρ) after a norm. A norm on the values or before the last
matrix divides what it reads; if it centers, it takes (E φ)² from hidden units, which have a mean.
Kernels of two positions are taken at the geometric mean of their second moments. Two corrections of
order 1/width are kept: overlaps of single pairs scatter around p (see `attention`), and a norm
divides each token by its own length (see `tokens.normalize`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dtbsv

from explorer.profile import Array
from explorer.schemes.placement import Part, Placement
from explorer.schemes.residual import profiled_factor
from explorer.theory.attention import Attention, attention, stack
from explorer.theory.gains import Gains, biased
from explorer.theory.logits import Logits
from explorer.theory.positions import Positions
from explorer.theory.tables import Sloped, Softmax, Tables, softmax
from explorer.theory.tokens import (
    Norm,
    State,
    Tokens,
    add,
    correlation_of_sum,
    covariance_with_power,
    excess_of_power,
    normalize,
    overlap_response,
    times,
)

LARGEST = 1e60
"""Second moments beyond this, or below its inverse, leave float32's range: nothing is claimed
there. Entries of 1e30 leave 1e8 to its end at 3e38, for the largest of many and for sums over a
width."""
LARGEST_LOGIT = 1e37
"""Logits of this standard deviation overflow float32."""
FINITE = 1e70
"""The loop ends when a mean second moment leaves this range; which sublayers are covered is decided
afterwards."""


class Step(NamedTuple):
    """One sublayer, as the backward recursion needs it; its overlaps are in `Steps`."""

    placement: Placement
    attention: Attention | None
    """None at an MLP."""
    norms: Mapping[Part, Norm]
    """The sublayer's norms, by the signal that they stand on."""
    added: Tokens
    """Law of the branch's term of the sum, after the norm where there is one."""
    site: Tokens
    """Law of the output of the sublayer."""
    kept: float
    """The stream's part of the sum's second moment."""
    followed: float
    """Factor on deviations of overlaps through the sublayer."""
    present: bool = True
    """Whether the design has the sublayer."""


class Steps(list[Step]):
    """The sublayers, and overlaps of all of them as arrays, which the statistics and the way back
    read at once.

    What is copied into them needs no array of its own, so that the next sublayer finds room in the
    processor's cache."""

    def __init__(self, count: int, first: State) -> None:
        pairs, self.last = first.axis.ones.shape, first
        """The output of the last sublayer that was added, covered or not."""
        self.inside, self.rho, self.final_input, self.added, self.site = np.empty(
            (5, count, *pairs)
        )
        """`[sublayer, pair]`: the branch's input, after its norm where there is one, and its
        correlations; the input of the branch's last matrix; the branch's term of the sum, after its
        norm; and the output of the sublayer."""
        self.total = np.empty((count, pairs[1]))
        """`[sublayer, position]`: second moment of skip · x + branch · F(x), before a norm on
        it."""

    def note(
        self, step: Step, inside: State, final_input: State, added: State, total: Array, site: State
    ) -> None:
        """Adds a sublayer."""
        at = len(self)
        self.inside[at], self.rho[at], self.final_input[at] = inside.y, inside.rho, final_input.y
        self.added[at], self.total[at], self.site[at], self.last = added.y, total, site.y, site
        self.append(step)

    def cover(self) -> None:
        """Cuts off the sublayers from the first one on whose second moments or logits are beyond
        their ranges."""
        total = self.total[: len(self)]
        fine = (total.min(1) > 1 / LARGEST) & (total.max(1) < LARGEST)
        if attends := [step.attention.logits.s for step in self if step.attention]:
            fine[: 2 * len(attends) : 2] &= ~(
                stack(attends).reshape(len(attends), -1).max(1) > LARGEST_LOGIT
            )
        del self[len(self) if fine.all() else int(fine.argmin()) :]
        for name in ("inside", "rho", "final_input", "added", "site"):
            setattr(self, name, getattr(self, name)[: len(self)])


def run(
    gains: Gains, axis: Positions, table: Tables | Sloped, n_layers: int, first: State
) -> Steps:
    """The recursion over 2N sublayers; shorter where a second moment leaves the range of
    `LARGEST`."""
    x, steps, total = first, Steps(2 * n_layers, first), first.mean.q
    below, kept, before, source, past = None, 1.0, first, None, None
    if gains.period < 2 * n_layers and axis.unmasked:
        past = Overlaps(
            gains, softmax(int(axis.visible[0]), gains.d_head, gains.fixed), n_layers, first.mean
        )
    for index in range(2 * n_layers):
        attends = not index % 2
        if attends or not gains.parallel:
            before = x
        if gains.profiled:
            gains.skip[index] = profiled_factor(index if gains.attends else index // 2, total)
        inside, step = (
            _absent(steps)
            if attends and not gains.attends
            else sublayer(
                gains, table, steps, before, (below, kept, source) if attends else None, past
            )
        )
        if attends:
            below, kept = step.attention.logits if step.attention else None, 1.0
            source = inside if source is None and gains.value_residual else source
        kept *= step.followed
        x = steps.last
        if gains.profiled:
            total += step.added.q
        if past:
            past.close(index, float(steps.total[index, 0]), x.mean)
        if not 1 / FINITE < step.site.q < FINITE:
            break
    steps.cover()
    return steps


def _absent(steps: Steps) -> tuple[State, Step]:
    """As `sublayer`, of one that is not there."""
    x, nothing = steps.last, State(steps.last.axis, np.zeros_like(steps.last.y))
    step = Step(Placement(), None, {}, nothing.mean, x.mean, 1.0, 1.0, present=False)
    steps.note(step, x, nothing, nothing, x.q, x)
    return x, step


def sublayer(
    gains: Gains,
    table: Tables | Sloped,
    steps: Steps,
    before: State,
    below: tuple[Logits | None, float, State | None] | None,
    past: Overlaps | None = None,
) -> tuple[State, Step]:
    """One branch, of what was `before` it, and its way back into the stream.

    Args:
        below: of attention the logits below it, what is kept of deviations of overlaps, and the
            tokens whose values it mixes into its own; None for an MLP.
        past: the overlaps with the sublayers below, where layers are copies of others.
    Returns:
        the branch's input, and the step, which is noted in `steps`.
    """
    x, index = steps.last, len(steps)
    placement, d, widths = gains.placements[index], gains.d_model, gains.norm_widths[index % 2]
    sites, softmax, follows, longer = placement.norms, None, 0.0, 0.0
    norms: dict[Part, Norm] = {}
    inside = before.scaled(placement.reads**2)
    if "input" in sites:
        inside, norms["input"] = normalize(inside, gains, widths["input"], placement.scale**2)
    if below:
        lower, kept_from, source = below
        values, last, bias = _values(gains, inside, source), gains.o, gains.biases.o
        if "heads" in sites:
            values = State(x.axis, values.y, values.v, inside.w + 2 / gains.d_head, values.u)
            values, norms["values"] = normalize(values, gains, widths["heads"])
        final_input, softmax = attention(gains, table, inside, values, lower, kept_from)
    else:
        final_input, follows = mlp(gains, inside, gains.centers and "read" in sites)
        last, bias = gains.out, gains.biases.out
        longer = (
            0.0 if "read" in sites or "output" in sites else covariance_with_power(gains, inside.w)
        )
    if "read" in sites:  # the last matrix makes lengths scatter by 2/d once more
        final_input.w = max(final_input.w - 2 / d, 0.0)
        final_input, norms["last"] = normalize(final_input, gains, widths["read"])
        final_input.w = 2 / d
    gain = last * gains.last[index].item()
    added = branch = steady = final_input.scaled(gain).plus(bias, d)
    regained = None
    if softmax and gains.gate and softmax.opened is not None and not gains.point:
        # a norm divides gates out again: they do not scatter lengths after it
        steady, opened = softmax.ungated.scaled(gain).plus(bias, d), softmax.opened
        regained = 1 + (gains.gate.regained(opened / x.axis.lift(opened[0])) - 1) * (
            1 - bias / branch.y
        )
    if "output" in sites:
        added, norm = normalize(steady, gains, widths["output"], regained=regained)
        # of rows of uneven weights, and so longer ones, gradients through the values are larger by
        # as much
        norms["output"] = norm._replace(w=min(steady.w, gains.noise[0]), u=0.0) if softmax else norm
    skip, scale = gains.skip[index], gains.branch[index]
    stream, term = x.scaled(skip**2), added.scaled(scale**2)
    both, followed = add(stream.mean, term.mean, d, follows, longer)
    y = stream.y + term.y
    if past:
        std = float(softmax.logits.s[0]) if softmax else 0.0
        y = (
            y
            + 2
            * skip
            * scale
            * past.meet(index, x.mean, inside.mean, std, branch.mean, added.mean)[:, None]
        )
    site = State(x.axis, y, both.v, both.w, both.u)
    if not past:
        site.mean = both
    q, total = site.mean.q, site.q
    kept = skip**2 * x.mean.q / q if q > 0 else 0.0
    if "sum" in sites:
        gated = branch.u - steady.u if added is branch else 0.0
        rho = None if past or gains.point else correlation_of_sum(stream, term, site, d, gated)
        site, norms["sum"] = normalize(site, gains, widths["sum"], lower=rho)
        if added is branch and steady is not branch:
            of_branch, norm = (term.mean.q / q) ** 2, norms["sum"]
            norms["sum"] = norm._replace(
                w=norm.w - of_branch * (branch.w - steady.w), u=norm.u - of_branch * gated
            )
    step = Step(placement, softmax, norms, added.mean, site.mean, kept, followed)
    steps.note(step, inside, final_input, added, total, site)
    return inside, step


def _values(gains: Gains, x: State, source: State | None) -> State:
    """The values of tokens x; ½ (V_1 + V_l) by independent matrices where the first layer's
    `source` is mixed in."""
    mixed = (x.y + source.y) / 4 if source else x.y
    bias = gains.biases.v / (2 if source else 1)
    if mixed is x.y and gains.v == 1 and not bias:
        return x
    return State(x.axis, times(gains.v, mixed) + bias, x.v, x.w, x.u)


def mlp(gains: Gains, x: State, centered: bool) -> tuple[State, float]:
    """Hidden units, without their mean if `centered`; and how far their overlaps follow those of
    the MLP's input."""
    square, overlap = gains.kernel.overlaps(*gains.units(x.square, x.rho))
    follows, bend = overlap_response(gains, x.mean)
    if gains.degree != 1:
        length = excess_of_power(gains, x.w)
        overlap = (overlap + bend * x.v * (1 - x.rho) ** 2) * (1 + length * x.rho**2)
        overlap = np.minimum(overlap, square * (1 + length))
    w = gains.noise[1] + gains.degree**2 * x.w
    if centered:
        overlap = (
            overlap
            - gains.kernel.overlaps(gains.units(x.square, x.rho)[0], np.zeros_like(x.rho))[1]
        )
    return State(x.axis, overlap, scatter_after_mlp(gains, x.v, follows), w), follows


def scatter_after_mlp(gains: Gains, v: float, follows: float) -> float:
    """Scatter of the overlaps of what an MLP's last matrix reads, from that of its tokens.

    W_out reads in d directions: 1/d. A sum over m hidden units scatters by E[V²]/(E V)²/m, V the
    variance of φ given what two inputs share. For relu that is 1 at ρ = 0, 1.56 at ½ and 2 at 1:
    1.6 stands for all of them."""
    return v * follows**2 + 1 / gains.d_model + 1.6 / gains.d_mlp


class Overlaps:
    """Overlaps between layers that are copies of others, without which their branches would not add
    up coherently.

    Two branches of the same weights, in layers k and l, read tokens that overlap, and so do their
    outputs. Let r be the correlation of one token's inputs to both, d that of two tokens' inputs,
    and ρ_k the correlation of two tokens within a layer. Outputs of MLPs overlap by E φφ′ at r for
    one token, and at d for two. Outputs of attention overlap by d + (r − d) Y11, where the logits
    of the two layers correlate by r f for one token and by d f for two, with f = (r − d) / √((1 −
    ρ_k)(1 − ρ_l)).

    A stream is a sum of branches, so its overlap with the next branch is a sum of overlaps of
    branches; branches of different weights have none. As x_(k+1) = a_k x_k + b_k F_k, a branch F
    overlaps with the streams below it by X_(k+1) = a_k X_k + b_k F·F_k: N layers take N² steps, and
    only the overlaps of the present stream with the streams below it are kept. There is no such law
    with a causal mask.

    Kept are the overlaps of all sites so far; on the axis `which`, 0 is a token with itself and 1
    two different tokens."""

    def __init__(self, gains: Gains, softmax: Softmax, n_layers: int, first: Tokens) -> None:
        self.gains, self.softmax = gains, softmax
        size = 2 * n_layers
        self.stream = np.array([[first.q], [first.p]])
        """`[which, site]`: overlaps of the stream at all sites so far with the present stream."""
        self.passed = np.zeros((2, size))
        """`[factor, sublayer]`: factors on the stream and on the branch's term, with those of a
        norm on the sum."""
        self.branch_input = np.zeros((4, size))
        """`[value, sublayer]` of branches' inputs: factor on the stream, second moment, 1 − ρ,
        deviation of logits."""
        self.out = np.zeros(size)
        """`[sublayer]`: factor on a branch's output, of the norm on it."""
        self.bend = 0.0
        """Half the curvature of the MLP's kernel, times the scatter of the overlaps that it reads:
        `tokens.overlap_response`."""
        self.cross = np.zeros((2, 1))
        """`[which, site]`: overlaps of the stream at all sites with the present branch's term."""

    def meet(
        self, index: int, tokens: Tokens, inside: Tokens, std: float, branch: Tokens, added: Tokens
    ) -> Array:
        """Overlaps of a sublayer's input with its term of the sum, `[which]`.

        Args:
            tokens: the stream; `inside` what the branch reads of it, with logits of deviation
                `std`.
            branch: the branch's output; `added` after a norm on it.
        """
        self.branch_input[:, index] = math.sqrt(inside.q / tokens.q), inside.q, 1 - inside.rho, std
        self.out[index] = math.sqrt(added.q / branch.q) if branch.q > 0 else 0.0
        if index % 2:
            self.bend = overlap_response(self.gains, inside)[1] * inside.v
        earlier, terms = (
            np.arange(index % self.gains.period, index, self.gains.period),
            np.zeros((2, index)),
        )
        if len(earlier):
            terms[:, earlier] = self.out[index] * self.out[earlier] * self.alike(index, earlier)
        kept, joined = self.passed[:, :index]
        self.cross = np.array([summed(kept, joined, row) for row in terms])
        return np.asarray(self.cross[:, index])

    def alike(self, index: int, earlier: NDArray[np.intp]) -> Array:
        """Overlaps of a branch's output with those of earlier branches of the same weights,
        `[which, branch]`."""
        factor, square, own, std = self.branch_input
        q = np.sqrt(square[index] * square[earlier])
        both = self.stream[:, earlier] * factor[index] * factor[earlier] / q
        same, cross = np.clip(both, -1.0, 1.0)
        if index % 2:
            rho = np.maximum([same, cross], 0.0)
            overlap = self.gains.kernel.overlaps(*self.gains.units(q + 0 * rho, rho))[1]
            overlap[1] += self.bend * (same - cross) ** 2
            return np.asarray(self.gains.out * overlap + self.gains.biases.out)
        rows = biased(self.gains.q * q, np.array([same, cross]), self.gains.biases.q)[1]
        share = (same - cross) / np.sqrt(np.maximum(own[index] * own[earlier], 1e-12))
        s = np.sqrt(std[index] * std[earlier])
        overlap = self.softmax.overlap(
            np.broadcast_to(s, rows.shape), np.clip(share * rows, -1.0, 1.0)
        )
        mixed = self.gains.v * q * (cross + (same - cross) * overlap) + self.gains.biases.v
        return np.asarray(self.gains.o * mixed + self.gains.biases.o)

    def close(self, index: int, total: float, site: Tokens) -> None:
        """Notes the stream after a sublayer, of second moment `total` before a norm on the sum."""
        present = self.gains.attends or index % 2
        skip, branch = (self.gains.skip[index], self.gains.branch[index]) if present else (1.0, 0.0)
        if not present:
            self.cross = np.zeros((2, index + 1))
        shrink = math.sqrt(site.q / total)
        self.passed[:, index] = shrink * skip, shrink * branch
        past = shrink * (skip * self.stream + branch * self.cross)
        self.stream = np.append(past, [[site.q], [site.p]], axis=1)


def summed(kept: Array, joined: Array, terms: Array) -> Array:
    """X_0 = 0 and X_(k+1) = kept_k X_k + joined_k terms_k: all X, one more than there are terms."""
    band = np.array([np.ones(len(terms) + 1), np.append(-kept, 0.0)])
    solution: Array = dtbsv(1, band, np.append(0.0, joined * terms), lower=1, diag=1)
    return solution
