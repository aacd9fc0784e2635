"""The forward recursion: second moments q by position and overlaps p by pair of positions, sublayer
by sublayer.

For a softmax over Gaussian logits of variance s², rows that average the keys, and independent
weights in each layer:
    attention  q_F = g_v g_o [p̂ + Δ Y2],  p_F = g_v g_o [p̂ + Δ Y11],  Δ = q̂ − p̂
    its gate   q_F × E σ²,               p_F × E σσ′(ρ)              at second moment g_G q̂
    MLP        q_F = g₂ E φ²,              p_F = g₂ E φφ′(ρ)            at input second moment g₁ q̂
    gated      q_F = g₂ E φ² g₃ q̂,         p_F = g₂ E φφ′(ρ) g₃ p̂       g₁ of W_gate, g₃ of W_in

with q a token's second moment and p the overlap of two tokens. (q̂, p̂) is the branch's input, (1,
ρ) after a norm; g are gains, fan_in · Var W; Y2 and Y11 are the overlap of a softmax row's weights
with themselves and with those of another row. A norm on the values or before the last matrix
divides what it reads; if it centers, it takes (E φ)² from hidden units, which have a mean. Kernels
of two positions are taken at the geometric mean of their second moments. Two corrections of order
1/width are kept: overlaps of single pairs scatter around p (see `attention`), and a norm divides
each token by its own length (see `tokens.normalize`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dtbsv

from explorer.schemes.placement import Part, Placement
from explorer.schemes.residual import profiled_factor
from explorer.theory.attention import Attention, attention, stack
from explorer.theory.gains import Gains, biased
from explorer.theory.logits import Logits
from explorer.theory.positions import Positions
from explorer.theory.several import at_least, equals, quotient
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
)
from explorer.vocabulary import Array

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
    """Softmax of an attention; None at an MLP."""
    norms: Mapping[Part, Norm]
    """The sublayer's norms, by the signal that they stand on."""
    added: Tokens
    """The branch's term of the sum, after the norm where there is one, before its factor."""
    site: Tokens
    """The output of the sublayer."""
    kept: float
    """The stream's part of the sum's second moment."""
    followed: float
    """Factor on deviations of overlaps through the sublayer."""
    skip: Any
    """Factor on the stream in the sum."""
    branch: Any
    """Factor on the branch."""
    present: bool = True
    """Whether the design has the sublayer."""


class Steps(list[Step]):
    """The sublayers, and overlaps of all of them as arrays, which the statistics and the way back
    read at once.

    A sublayer's overlaps are copied into these, so that the next sublayer's arrays find room in the
    processor's cache."""

    def __init__(self, count: int, first: State) -> None:
        pairs = first.axis.ones.shape
        self.last = first
        """The output of the last sublayer that was added, covered or not."""
        self.covered: Any = 0
        """Number of sublayers that are covered, once `cut` is called; by design as an array."""
        self.inside, self.rho, self.final_input, self.added, self.site = self._overlaps = np.empty(
            (5, count, *pairs)
        )
        """`[sublayer, pair]`: the branch's input, after its norm where there is one, and its
        correlations; the input of the branch's last matrix; the branch's term of the sum, after its
        norm; and the output of the sublayer."""
        self.total = np.empty((count, *pairs[1:]))
        """`[sublayer, position]`: second moment of skip · x + branch · F(x), before a norm on
        it."""
        self.copies: Copies | None = None
        """Overlaps between layers of the same weights."""

    def note(
        self, step: Step, inside: State, final_input: State, added: State, total: Array, site: State
    ) -> None:
        """Adds a sublayer."""
        at = len(self)
        self.inside[at], self.rho[at], self.final_input[at] = inside.y, inside.rho, final_input.y
        self.added[at], self.total[at], self.site[at], self.last = added.y, total, site.y, site
        self.append(step)

    def cut(self) -> None:
        """Removes all sublayers from the first one whose second moments or logits leave their
        ranges, in all designs. `total`, which is read by index, keeps its length."""
        total = self.total[: len(self)]  # [sublayer, position]
        fine = (total.min(1) > 1 / LARGEST) & (total.max(1) < LARGEST)
        spreads = [step.attention.logits.s for step in self if step.attention]
        if spreads:  # `[position]`, or `[head, position]` where logits fall with distance
            largest = stack(spreads).reshape(len(spreads), -1, *fine.shape[1:]).max(1)
            # sublayers alternate: 0, 2, 4, … are the attentions
            fine[: 2 * len(spreads) : 2] &= ~(largest > LARGEST_LOGIT)
        self.covered = np.where(fine.all(0), len(self), fine.argmin(0))
        most = int(self.covered.max())
        del self[most:]
        overlaps = self._overlaps[:, :most]
        self.inside, self.rho, self.final_input, self.added, self.site = overlaps


class Below(NamedTuple):
    """Numbers that an attention takes from the layers below, beside its input."""

    logits: Logits | None = None
    """Logits of the layer below; None in the first layer."""
    kept: float = 1.0
    """Factor on deviations of overlaps from what that layer read to what this one reads."""
    source: State | None = None
    """Tokens whose values are mixed into its own; None where each layer has its own values."""


def run(
    gains: Gains, axis: Positions, table: Tables | Sloped, n_layers: int, first: State
) -> Steps:
    """The recursion over 2N sublayers, from the embedding `first`; shorter where a second moment
    leaves the range of `LARGEST`."""
    steps, before, below = Steps(2 * n_layers, first), first, Below()
    total = first.mean.q  # of the input and all branches so far, for profiled factors
    copies = None
    if gains.period < 2 * n_layers and axis.unmasked:
        rows = softmax(int(axis.visible[0]), gains.d_head, gains.fixed)
        copies = steps.copies = Copies(gains, rows, n_layers, first.mean)
    for index in range(2 * n_layers):
        attends = not index % 2
        if attends or not gains.parallel:
            before = steps.last
        if gains.profiled:
            gains.skip[index] = profiled_factor(index if gains.attends else index // 2, total)
        if attends and not gains.attends:
            inside, step = _absent(steps)
        else:
            inside, step = sublayer(gains, table, steps, before, below if attends else None, copies)
        if attends:
            source = below.source
            if source is None and gains.value_residual:
                source = inside
            below = Below(step.attention and step.attention.logits, step.followed, source)
        else:
            below = below._replace(kept=below.kept * step.followed)
        if gains.profiled:
            total = total + step.added.q
        if copies:
            copies.close(step, float(steps.total[index, 0]))
        q = step.site.q
        if not (1 / FINITE < q < FINITE if isinstance(q, float) else (q < FINITE).any()):
            break
    steps.cut()
    return steps


def _absent(steps: Steps) -> tuple[State, Step]:
    """As `sublayer`, for an attention that the design does not have: the stream goes on."""
    x = steps.last
    nothing = State(x.axis, np.zeros_like(x.y))
    step = Step(Placement(), None, {}, nothing.mean, x.mean, 1.0, 1.0, 1.0, 0.0, present=False)
    steps.note(step, x, nothing, nothing, x.q, x)
    return x, step


class Branch(NamedTuple):
    """One branch F, from its input to its term of the sum."""

    inside: State
    """Its input, after the norm where there is one."""
    softmax: Attention | None
    """None of an MLP."""
    final_input: State
    """Input of its last matrix."""
    output: State
    """Output of its last matrix."""
    ungated: State
    """The output without the scatter of lengths that comes of gates; without gates the output."""
    added: State
    """The output after a norm on it; without one the output."""
    norms: dict[Part, Norm]
    """The branch's norms; that on the sum joins them."""
    follows: float
    """Its overlaps deviate from their mean as this times its input's."""
    longer: float
    """Relative covariance of the squared lengths of input and output."""


def sublayer(
    gains: Gains,
    table: Tables | Sloped,
    steps: Steps,
    before: State,
    below: Below | None,
    copies: Copies | None = None,
) -> tuple[State, Step]:
    """One sublayer: skip · x + branch · F(x), and the norm on the sum.

    Args:
        before: what the branch reads, before its norm.
        below: what an attention takes from the layers below; None for an MLP.
        copies: the overlaps with the sublayers below, where layers are copies of others.
    Returns:
        the branch's input, and the step, which is noted in `steps`.
    """
    x, index, d = steps.last, len(steps), gains.d_model
    branch = _branch(gains, table, index, before, below)
    placement, norms, added = gains.placements[index], branch.norms, branch.added
    skip, scale = gains.skip[index], gains.branch[index]
    stream, term = x.scaled(skip**2), added.scaled(scale**2)
    both, followed = add(stream.mean, term.mean, d, branch.follows, branch.longer)
    y = stream.y + term.y
    if copies:  # stream and branch are not independent: 2 x·F(x) is added
        std = float(branch.softmax.logits.s[0]) if branch.softmax else 0.0
        overlap = copies.meet(
            index, x.mean, branch.inside.mean, std, branch.output.mean, added.mean
        )
        y = y + 2 * skip * scale * overlap[:, None]
    site = State(x.axis, y, both.v, both.w, both.u)
    if not copies:
        site.mean = both  # already computed, so not to be derived again
    q, total = site.mean.q, site.q
    kept = quotient(skip**2 * x.mean.q, q)
    if branch.added is branch.output is not branch.ungated and not kept:
        # the next norm divides gates out again, for there is nothing beside them
        site.w, site.u, site.regained = branch.ungated.w, branch.ungated.u, branch.ungated.regained
    if "sum" in placement.norms:
        width = gains.norm_widths[index % 2]["sum"]
        site, norms["sum"] = _norm_on_sum(gains, branch, stream, term, site, width, bool(copies))
    tokens = added.mean, site.mean
    step = Step(placement, branch.softmax, norms, *tokens, kept, followed, skip, scale)
    steps.note(step, branch.inside, branch.final_input, added, total, site)
    return branch.inside, step


def _branch(
    gains: Gains, table: Tables | Sloped, index: int, before: State, below: Below | None
) -> Branch:
    """The branch of a sublayer, before it joins the stream; arguments as in `sublayer`."""
    placement, d = gains.placements[index], gains.d_model
    sites, widths = placement.norms, gains.norm_widths[index % 2]
    norms: dict[Part, Norm] = {}
    softmax, follows, longer = None, 0.0, 0.0
    inside = before.scaled(placement.reads**2)
    if "input" in sites:
        inside, norms["input"] = normalize(inside, gains, widths["input"], placement.scale**2)
    if below:
        values = _values(gains, inside, below.source)
        if "heads" in sites:  # a head's values are few, so that their lengths scatter more
            w = inside.w + 2 / gains.d_head
            values = State(values.axis, values.y, values.v, w, values.u)
            values, norms["values"] = normalize(values, gains, widths["heads"])
        final_input, softmax = attention(gains, table, inside, values, below.logits, below.kept)
        gain, bias = gains.o, gains.biases.o
    else:
        final_input, follows = mlp(gains, inside, gains.centers and "read" in sites)
        gain, bias = gains.out, gains.biases.out
        if "read" not in sites and "output" not in sites:
            longer = covariance_with_power(gains, inside.w)
    if "read" in sites:  # the last matrix makes lengths scatter by 2/d once more
        final_input.w = at_least(final_input.w - 2 / d, 0.0)
        final_input, norms["last"] = normalize(final_input, gains, widths["read"])
        final_input.w = 2 / d
    gain = gain * gains.last[index]
    output = ungated = added = final_input.scaled(gain).plus(bias, d)
    if softmax and gains.gate and softmax.opened is not None and not gains.point:
        # a norm divides gates out again: they do not scatter lengths after it
        ungated, opened = softmax.ungated.scaled(gain).plus(bias, d), softmax.opened
        of_gates = gains.gate.regained(opened / before.axis.lift(opened[0]))
        ungated.regained = 1 + (of_gates - 1) * (1 - bias / output.y)
    if "output" in sites:
        added, norms["output"] = normalize(ungated, gains, widths["output"])
    return Branch(inside, softmax, final_input, output, ungated, added, norms, follows, longer)


def _norm_on_sum(
    gains: Gains,
    branch: Branch,
    stream: State,
    term: State,
    site: State,
    width: int,
    copied: bool,
) -> tuple[State, Norm]:
    """The norm on the sum of stream and branch, and the tokens after it.

    Args:
        stream: the stream's term of the sum; `term` the branch's, `site` the sum.
        width: coordinates that the norm averages.
        copied: whether stream and branch are not independent.
    """
    gated = 0.0  # scatter of lengths by gates, that two tokens do not share
    if branch.added is branch.output:  # no norm has divided it out
        gated = branch.output.u - branch.ungated.u
    lower = None  # where stream and branch are not two independent signals
    if not (copied or gains.point or site.regained is not None):
        lower = correlation_of_sum(stream, term, site, gains.d_model, gated)
    out, norm = normalize(site, gains, width, lower=lower)
    if site.regained is None and branch.added is branch.output is not branch.ungated:
        # on the way back `backward.of_heads` has the gates' part in the lengths, and not the norm
        share = (term.mean.q / site.mean.q) ** 2
        w = norm.w - share * (branch.output.w - branch.ungated.w)
        norm = norm._replace(w=w, u=norm.u - share * gated)
    return out, norm


def _values(gains: Gains, x: State, source: State | None) -> State:
    """The values W_V x and biases of tokens x: moments and overlaps times the gain of W_V, plus the
    variance of a bias.

    Args:
        source: tokens of the first layer, where its values V_1 join this layer's V as ½ (V_1 + V).
            The two have independent matrices, so ¼ of each one's moments and bias add up. The
            scatter of lengths and overlaps is taken to be that of x.
    """
    gain, bias, tokens = gains.v, gains.biases.v, x.y
    if source:
        tokens = (x.y + source.y) / 4
        bias = bias / 2  # ¼ of two equal variances
    elif equals(gain, 1) and equals(bias, 0):
        return x
    return State(x.axis, gain * tokens + bias, x.v, x.w, x.u)


def mlp(gains: Gains, x: State, centered: bool) -> tuple[State, float]:
    """Hidden units of an MLP: second moment E φ² of a token, overlap E φφ′(ρ) of two tokens of
    correlation ρ.

    Args:
        x: the MLP's input.
        centered: whether a norm takes the mean from hidden units: (E φ)², which is E φφ′ at ρ = 0.
    Returns:
        the hidden units; and the factor on deviations of two tokens' overlap from its mean, both
        over Δ = q − p, from x to the hidden units (`tokens.overlap_response`).
    """
    units = gains.units(x.square, x.rho)
    square, overlap = gains.kernel.overlaps(*units)
    follows, bend = overlap_response(gains, x.mean)
    if not equals(gains.degree, 1):
        # longer tokens have more than their share, and the overlaps scatter on a bent kernel
        excess = excess_of_power(gains, x.w)
        overlap = (overlap + bend * x.v * (1 - x.rho) ** 2) * (1 + excess * x.rho**2)
        overlap = np.minimum(overlap, square * (1 + excess))
    if centered:
        overlap = overlap - gains.kernel.overlaps(units[0], np.zeros_like(x.rho))[1]
    w = gains.noise[1] + gains.degree**2 * x.w
    return State(x.axis, overlap, scatter_after_mlp(gains, x.v, follows), w), follows


def scatter_after_mlp(gains: Gains, v: float, follows: float) -> float:
    """Variance of the centered overlaps of what an MLP's last matrix reads, over the square of
    their Δ = q − p. Three independent parts add up:

    - the scatter of the input's overlaps. A deviation over Δ is multiplied by `follows`, so its
      variance by the square;
    - of W_out, which reads overlaps by d_model sampled directions: 1/d_model;
    - of the sum over m = d_mlp hidden units: E[V²]/(E V)²/m, V the variance of φ given what two
      inputs share. For relu E[V²]/(E V)² is 1 at ρ = 0, 1.56 at ½ and 2 at 1: 1.6 stands for all.

    Args:
        v: scatter of the MLP's input, as in `Tokens`.
        follows: factor on a deviation of the overlaps over Δ, from the MLP's input to its hidden
            units.
    """
    from_input = v * follows**2
    return from_input + 1 / gains.d_model + 1.6 / gains.d_mlp


class RowsOfCopies(NamedTuple):
    """Rows of an attention and of copies of it."""

    apart: Array
    """`[branch]`: f, the correlation of what two tokens do not share in either layer."""
    queries: Array
    """`[two, branch]`: correlation of the queries."""
    logits: Array
    """`[two, branch]`: correlation of the logits."""
    spread: Array
    """`[branch]`: standard deviation of the logits, the geometric mean."""


class Copies:
    """Overlaps between layers of the same weights, without which their branches would not add up
    coherently.

    Two branches of the same weights, in layers k and l, read tokens that overlap, and so do their
    outputs. Let r be the correlation of one token's inputs to both, c that of two tokens' inputs,
    and ρ_k the correlation of two tokens within a layer. Outputs of MLPs overlap by E φφ′ at r for
    one token, and at c for two. Outputs of attention overlap by c + (r − c) Y11, where the logits
    of the two layers correlate by r f for one token and by c f for two, with f = (r − c) / √((1 −
    ρ_k)(1 − ρ_l)).

    A stream is a sum of branches, so its overlap with the next branch is a sum of overlaps of
    branches; branches of different weights have none. As x_(k+1) = a_k x_k + b_k F_k, a branch F
    overlaps with the streams below it by X_(k+1) = a_k X_k + b_k F·F_k: N layers take N² steps, and
    only the overlaps of the present stream with the streams below it are kept. There is no such law
    with a causal mask.

    On the axis `two`, 0 is a token with itself and 1 two different tokens; a site is the embedding
    or the output of a sublayer so far."""

    def __init__(self, gains: Gains, softmax: Softmax, n_layers: int, first: Tokens) -> None:
        self.gains, self.softmax = gains, softmax
        size, passes = 2 * n_layers, 2 * n_layers // gains.period  # through the layers drawn
        self.stream = np.array([[first.q], [first.p]])
        """`[two, site]`: overlaps of the stream at each site with the present stream."""
        self.factors = np.zeros((2, size))
        """`[2, sublayer]`: a and b, factors on stream and branch, with those of a norm on the
        sum."""
        self.branch_input = np.zeros((4, size))
        """`[4, sublayer]` of branches' inputs: the factor that makes them of the stream, their
        second moment, 1 − ρ of two tokens, and the standard deviation of the logits, 0 of MLPs."""
        self.output_factor = np.zeros(size)
        """`[sublayer]`: factor on a branch's output, of the norm on it."""
        self.bend = 0.0
        """Half the curvature of the MLP's kernel, times the scatter of the overlaps that it reads:
        `tokens.overlap_response`."""
        self.met = np.zeros((2, size, passes))
        """`[two, sublayer, copy]`: correlations r and c of what a branch reads with what its
        earlier copies read."""
        self.rows_met = np.zeros((2, n_layers, passes))
        """`[two, layer, copy]`: Y11 of an attention's rows and those of its earlier copies."""
        self.outputs = np.zeros_like(self.met)
        """`[two, sublayer, copy]`: overlaps of a branch's output with those of its earlier copies,
        before norms on them."""
        self.cross = np.zeros((2, 1))
        """`[two, site]`: overlaps of the stream at each site with the present branch's term."""

    def meet(
        self, index: int, tokens: Tokens, inside: Tokens, std: float, branch: Tokens, added: Tokens
    ) -> Array:
        """Overlaps of a sublayer's input x with its term F(x) of the sum, `[two]`.

        Args:
            tokens: the stream.
            inside: what the branch reads of it; its logits have the standard deviation `std`.
            branch: the branch's output, and `added` after a norm on it.
        """
        self.branch_input[:, index] = math.sqrt(inside.q / tokens.q), inside.q, 1 - inside.rho, std
        self.output_factor[index] = math.sqrt(added.q / branch.q) if branch.q > 0 else 0.0
        if index % 2:
            self.bend = overlap_response(self.gains, inside)[1] * inside.v
        # branches of the same weights below, and the overlaps F·F_k with their terms
        earlier = np.arange(index % self.gains.period, index, self.gains.period)
        with_branches = np.zeros((2, index))
        if len(earlier):
            factor = self.output_factor[index] * self.output_factor[earlier]
            outputs = self.of_copies(index, earlier)
            self.outputs[:, index, : len(earlier)] = outputs
            with_branches[:, earlier] = factor * outputs
        # the overlaps with the streams below, X_(k+1) = a_k X_k + b_k F·F_k, see the class
        a, b = self.factors[:, :index]
        self.cross = np.array([recurrence(a, b, row) for row in with_branches])
        return self.cross[:, index]

    def of_copies(self, index: int, earlier: NDArray[np.intp]) -> Array:
        """Overlaps of a branch's output with those of `earlier` branches of the same weights,
        `[two, branch]`, before norms on them. Notes the correlations of both inputs, and of both
        attentions' rows."""
        factor = self.branch_input[0]
        q = self.square(index, earlier)
        overlaps = self.stream[:, earlier] * factor[index] * factor[earlier]
        correlations = np.clip(overlaps / q, -1.0, 1.0)
        r, c = correlations  # of one token's inputs to both branches, and of two tokens'
        self.met[:, index, : len(earlier)] = correlations
        if index % 2:  # an MLP: E φφ′ at r and at c
            units = self.units(index, earlier, correlations)
            _, overlap = self.gains.kernel.overlaps(*units)
            # two tokens' overlaps scatter by what the tokens do not share, on a bent kernel
            overlap[1] += self.bend * (r - c) ** 2
            return self.gains.out * overlap + self.gains.biases.out
        # attention: c + (r − c) Y11
        rows = self.rows(index, earlier, correlations)
        y11 = self.softmax.overlap(np.broadcast_to(rows.spread, rows.logits.shape), rows.logits)
        self.rows_met[:, index // 2, : len(earlier)] = y11
        mixed = self.gains.v * q * (c + (r - c) * y11) + self.gains.biases.v
        return np.asarray(self.gains.o * mixed + self.gains.biases.o)

    def square(self, index: int, others: NDArray[np.intp]) -> Array:
        """Second moment of what a branch and others read, the geometric mean: `[branch]`."""
        squares = self.branch_input[1]
        return np.asarray(np.sqrt(squares[index] * squares[others]))

    def units(
        self, index: int, others: NDArray[np.intp], correlations: Array
    ) -> tuple[Array, Array]:
        """Second moment and correlation of the hidden units of an MLP and of others, `[two,
        branch]`.

        Args:
            correlations: r and c, as in `met`.
        """
        rho = np.maximum(correlations, 0.0)  # kernels are made for tokens that are not opposed
        square = np.broadcast_to(self.square(index, others), rho.shape)
        return self.gains.units(square, rho)

    def rows(self, index: int, others: NDArray[np.intp], correlations: Array) -> RowsOfCopies:
        """Rows of an attention and of others; arguments as of `units`."""
        r, c = correlations
        _, _, own, std = self.branch_input  # own: 1 − ρ, what two tokens do not share
        apart = (r - c) / np.sqrt(np.maximum(own[index] * own[others], 1e-12))
        squares = self.gains.q * self.square(index, others)
        queries = biased(squares, correlations, self.gains.biases.q)[1]
        # two rows' logits correlate by f times their queries'
        logits = np.clip(apart * queries, -1.0, 1.0)
        spread = np.sqrt(std[index] * std[others])
        return RowsOfCopies(apart, queries, logits, spread)

    def close(self, step: Step, total: float) -> None:
        """Notes the stream after a sublayer, of second moment `total` before a norm on the sum."""
        if not step.present:
            self.cross = np.zeros_like(self.stream)
        after, index = step.site, self.stream.shape[1] - 1  # `stream` starts with the embedding
        of_norm = math.sqrt(after.q / total)  # 1 without a norm on the sum
        self.factors[:, index] = of_norm * step.skip, of_norm * step.branch
        with_below = of_norm * (step.skip * self.stream + step.branch * self.cross)
        self.stream = np.append(with_below, [[after.q], [after.p]], axis=1)


def recurrence(a: Array, b: Array, terms: Array) -> Array:
    """All X_k of X_0 = 0 and X_(k+1) = a_k X_k + b_k terms_k, one more than there are terms."""
    return chain(a[:, None, None], np.append(0.0, b * terms)[:, None])[:, 0]


def chain(matrices: Array, terms: Array) -> Array:
    """All X of X_0 = terms_0 and X_(k+1) = M_k X_k + terms_(k+1): `[step + 1, number]`.

    They solve one triangular system, with 1 on its diagonal and −M_k below. Its band is solved in
    one call, where a loop over the steps would take most of a prediction's time.

    Args:
        matrices: M, `[step, number, number]`.
        terms: `[step + 1, number]`.
    """
    size = terms.shape[1]
    # by column of the system, the numbers on its diagonal and below
    band = np.zeros((*terms.shape, 2 * size))
    for column in range(size):
        band[:-1, column, size - column : 2 * size - column] = -matrices[..., column]
    solved: Array = dtbsv(
        2 * size - 1, band.reshape(-1, 2 * size).T, terms.ravel(), lower=1, diag=1
    )
    return solved.reshape(terms.shape)
