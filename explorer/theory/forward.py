"""The forward recursion: second moment q and overlap p of two tokens, sublayer by sublayer.

For a softmax over Gaussian logits of variance s², rows that average the keys, and independent weights in each layer:
    attention  q_F = g_v g_o [p̂ + Δ Y2],  p_F = g_v g_o [p̂ + Δ Y11],  Δ = q̂ − p̂
    its gate   q_F × E σ²,               p_F × E σσ′(ρ)              at second moment g_G q̂
    MLP        q_F = g₂ E φ²,              p_F = g₂ E φφ′(ρ)            at input second moment g₁ q̂
    gated      q_F = g₂ E φ² g₃ q̂,         p_F = g₂ E φφ′(ρ) g₃ p̂       g₁ of W_gate, g₃ of W_in
with (q̂, p̂) the branch's input: (1, ρ) after a norm. A norm on the values or before the last matrix divides what it
reads; if it centers, it takes (E φ)² from hidden units, which have a mean. Two corrections of order 1/width are kept:

- Overlaps of single pairs scatter around p: by 1/d for Gaussian tokens, by more for text. Keys that happen to be alike
  get alike logits, are weighted together, and add s²·v·Δ·D to Y2 Δ (v: variance of the centered overlaps over Δ²;
  D: `crowding`). It counts where n is not small against d.
- A norm divides each token by its own length. Averaging the quotient over the lengths' scatter (delta method) lowers
  the overlap a little; the same scatter enters the backward pass.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dtbsv

from explorer.schemes.placement import Placement
from explorer.schemes.residual import profiled_factor
from explorer.theory.gains import Gains, biased
from explorer.theory.grids import Array
from explorer.theory.logits import Capped, Logits, capped, logits
from explorer.theory.sink import sinks
from explorer.theory.step_cache import cached_steps, store_steps
from explorer.theory.tables import Softmax
from explorer.theory.tokens import (
    NOTHING,
    Norm,
    Tokens,
    add,
    lengths,
    normalize,
    normalize_sum,
    passed,
    scattered_by_attention,
    scattered_by_mlp,
)

# Layers that are copies of one: overlaps between layers, without which their branches would not add up coherently.
# Two branches of the same weights read tokens that overlap, and so do their outputs. With r the correlation of what
# one token brings to both, d that of two tokens, and ρ the two tokens' within a layer: MLP E φφ′ at r, and at d
# attention d + (r − d) Y11 for one token, whose logits in the two layers correlate by r f, the same for two tokens
# by d f, with f = (r − d) / √((1 − ρ_k)(1 − ρ_l)). A stream is a sum of branches, so its overlap with the next one
# of them is a sum of those; branches of different weights have none. As x_(k+1) = a_k x_k + b_k F_k, a branch F
# overlaps with the streams below it by X_(k+1) = a_k X_k + b_k F·F_k: N layers take N² steps, and only what the
# present stream shares with those below it is kept.


class Overlaps:
    """Overlaps of all sites so far; those of one token are first, those of two tokens second."""

    def __init__(self, gains: Gains, softmax: Softmax, n_layers: int, first: Tokens) -> None:
        self.gains, self.softmax = gains, softmax
        size = 2 * n_layers
        self.stream = np.array([[first.q], [first.p]])
        """`[which, site]`: of the stream at all sites so far with the present one."""
        self.passed = np.zeros((2, size))
        """`[factor, sublayer]`: on the stream and on the branch's term of the sum, after a norm on it."""
        self.read = np.zeros((4, size))
        """Of what branches read: factor on the stream, second moment, 1 − ρ, and the logits' standard deviation."""
        self.out = np.zeros(size)
        """Factor on a branch's output."""
        self.bend = 0.0
        """Of an MLP's kernel, times the scatter of the overlaps that it reads: see `tokens.passed`."""
        self.cross = np.zeros((2, 1))
        """`[which, site]`: of the stream at all sites with the present branch's term."""

    def meet(self, index: int, tokens: Tokens, inside: Tokens, std: float, branch: Tokens, added: Tokens) -> Array:
        """Overlaps of a sublayer's input with its term of the sum, `[which]`.

        Args:
            tokens: the stream; `inside` what the branch reads of it, with logits of deviation `std`.
            branch: the branch's output; `added` after a norm on it.
        """
        self.read[:, index] = math.sqrt(inside.q / tokens.q), inside.q, 1 - inside.rho, std
        self.out[index] = math.sqrt(added.q / branch.q) if branch.q > 0 else 0.0
        if index % 2:
            self.bend = passed(self.gains, inside)[1] * inside.v
        earlier, terms = np.arange(index % 2, index, 2), np.zeros((2, index))
        if len(earlier):
            terms[:, earlier] = self.out[index] * self.out[earlier] * self.alike(index, earlier)
        kept, joined = self.passed[:, :index]
        self.cross = np.array([summed(kept, joined, row) for row in terms])
        return np.asarray(self.cross[:, index])

    def alike(self, index: int, earlier: NDArray[np.intp]) -> Array:
        """Overlaps of a branch's output with those of earlier branches of the same weights, `[which, branch]`."""
        factor, square, own, std = self.read
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
        overlap = np.array([self.softmax.pairs(s, np.clip(share * rho, -1.0, 1.0))[0] for rho in rows])
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


LARGEST = 1e60
"""Second moments beyond this, or below its inverse, leave float32's range: nothing is claimed there. Entries of 1e30
leave 1e8 to its end at 3e38, for the largest of many and for sums over a width."""
LARGEST_LOGIT = 1e37
"""Logits of this standard deviation overflow float32."""


class Step(NamedTuple):
    """One sublayer, as the backward recursion needs it."""

    placement: Placement
    skip: float
    """Factor on the stream; 1 at a sublayer that is not there."""
    scale: float
    """Factor on the branch."""
    logits: Logits
    """Nothing, at an MLP."""
    capped: Capped
    """The logits after their cap; nan at an MLP."""
    on_input: Norm
    """The norm before the branch."""
    inside: Tokens
    """The branch's input, after its norm where there is one."""
    on_heads: Norm
    """The norm on each head's values."""
    values: Tokens
    """The values, after it; half of each may be the first layer's."""
    on_read: Norm
    """The norm before the branch's last matrix."""
    read: Tokens
    """Input of that matrix."""
    branch: Tokens
    """Output of the branch, before any norm on its output."""
    added: Tokens
    """The branch's term of the sum, after the norm where there is one."""
    on_output: Norm
    """The norm on the branch's output."""
    on_sum: Norm
    """The norm on the sum."""
    total: float
    """Second moment of skip · x + branch · F(x), before a norm on it."""
    kept: float
    """The stream's part of the sum's second moment."""
    followed: float
    """Factor on deviations of overlaps through the sublayer."""
    site: Tokens
    """Output of the sublayer."""


def run(gains: Gains, softmax: Softmax, n_layers: int, tokens: Tokens) -> list[Step]:
    """The recursion over 2N sublayers; shorter where the second moment leaves the range of `LARGEST`."""
    start, steps = tokens, cached_steps(gains, softmax, tokens, n_layers)
    below, kept, before, first = Logits(), 1.0, tokens, None
    if steps:  # go on after the last of them
        *_, attention, mlp = steps
        below, kept, tokens = attention.logits, attention.followed * mlp.followed, mlp.site
        first = steps[0].inside if gains.value_residual else None
    past, total = Overlaps(gains, softmax, n_layers, tokens) if gains.copies else None, tokens.q
    for index in range(len(steps), 2 * n_layers):
        attends = index % 2 == 0
        before = tokens if attends or not gains.parallel else before
        if gains.profiled:
            gains.skip[index] = profiled_factor(index if gains.attends else index // 2, total)
        if attends and not gains.attends:
            step = absent(tokens)
        else:
            step = sublayer(gains, softmax, tokens, before, index, (below, kept, first) if attends else None, past)
        if attends:
            below, kept = step.logits, 1.0
            first = step.inside if first is None and gains.value_residual else first
        kept *= step.followed
        total += step.added.q
        if not 1 / LARGEST < step.total < LARGEST or step.capped.s > LARGEST_LOGIT:
            break
        steps.append(step)
        tokens = step.site
        if past:
            past.close(index, step.total, tokens)
    store_steps(gains, softmax, start, steps)
    return steps


def absent(tokens: Tokens) -> Step:
    """The step of a sublayer that is not there."""
    return Step(
        placement=Placement(), skip=1.0, scale=0.0, logits=Logits(), capped=NO_LOGITS, on_input=Norm(), inside=tokens,
        on_heads=Norm(), values=NOTHING, on_read=Norm(), read=NOTHING, branch=NOTHING, added=NOTHING, on_output=Norm(),
        on_sum=Norm(), total=tokens.q, kept=1.0, followed=1.0, site=tokens,
    )


def sublayer(gains: Gains, softmax: Softmax, tokens: Tokens, before: Tokens, index: int,
             below: tuple[Logits, float, Tokens | None] | None, past: Overlaps | None = None) -> Step:
    """One branch, of what was `before` it, and its way back into the stream; attention takes the logits below it, what
    is kept of overlaps, and the tokens whose values it mixes into its own.
    """
    placement, on_input = gains.placements[index], Norm()
    inside = before.scaled(placement.reads**2)
    if placement.on_input:
        inside, on_input = normalize(inside, gains, gains.d_model)
        inside = inside.scaled(placement.scale**2) if placement.scale != 1 else inside
    law, softened, follows = Logits(), NO_LOGITS, 0.0  # an MLP's overlaps follow its input's, an attention's hardly
    values, on_heads, last, width = NOTHING, Norm(), gains.out, gains.d_mlp
    if below is None:
        read, follows = mlp(gains, inside, placement.on_read and gains.centers)
    else:
        lower, kept_from, first = below
        law = logits(gains, inside.q, inside.p, inside.v, lower, kept_from)
        last, width = gains.o, gains.d_model
        softened = capped(gains, law, softmax.n)
        values = mixed(inside, first).scaled(gains.v).plus(gains.biases.v / (2 if first else 1), gains.d_kv)
        if placement.on_heads:
            values, on_heads = normalize(values._replace(w=inside.w + 2 / gains.d_head), gains, gains.d_head)
        read = attention(gains, softmax, inside, values, softened)
    read, on_read = prepared(gains, read, width) if placement.on_read else (read, Norm())
    branch = read.scaled(last).plus(gains.biases.o if below else gains.biases.out, gains.d_model)
    on_output, on_sum, added = Norm(), Norm(), branch
    if placement.on_output:
        added, on_output = normalize(branch, gains, gains.d_model)
    skip, scaled = tokens.scaled(gains.skip[index] ** 2), added.scaled(gains.branch[index] ** 2)
    longer = lengths(gains, inside.w)[1] if below is None and not placement.sets_length else 0.0
    total, followed = add(skip, scaled, gains.d_model, follows, longer)
    if past:
        met = 2 * gains.skip[index] * gains.branch[index] * past.meet(index, tokens, inside, softened.s, branch, added)
        total = total._replace(q=total.q + float(met[0]), p=total.p + float(met[1]))
    site = total
    if placement.on_sum:
        copied = past is not None
        site, on_sum = normalize(total, gains, gains.d_model) if copied else normalize_sum(skip, scaled, gains, total)
    kept = skip.q / total.q if total.q > 0 else 0.0
    return Step(placement, gains.skip[index], gains.branch[index], law, softened, on_input, inside, on_heads,
                values, on_read, read, branch, added, on_output, on_sum, total.q, kept, followed, site)


def mixed(x: Tokens, first: Tokens | None) -> Tokens:
    """Tokens whose values are ½ (V_1 + V_l), by independent matrices; of x alone, where there is no first layer's."""
    if first is None:
        return x
    a, b = first.own, x.own
    share = b / max(a + b, 1e-150)
    v, w = (share * own + (1 - share) * lent for own, lent in ((x.v, first.v), (x.w, first.w)))
    return Tokens((x.q + first.q) / 4, (x.p + first.p) / 4, v, w)


def prepared(gains: Gains, read: Tokens, width: int) -> tuple[Tokens, Norm]:
    """A norm before a branch's last matrix, which makes lengths scatter by 2/d once more."""
    normal, norm = normalize(read._replace(w=max(read.w - 2 / gains.d_model, 0.0)), gains, width)
    return normal._replace(w=2 / gains.d_model), norm


def attention(gains: Gains, softmax: Softmax, inside: Tokens, x: Tokens, law: Capped) -> Tokens:
    """Means of the values, x, times their gates, which see what is `inside`: the input of W_O."""
    own, rho = x.own, law.rho
    y, kept, both = softmax.forward(law.s, rho), 1.0, 1.0
    if gains.sink is not None:
        lost = sinks((softmax.n,), gains.sink).read(np.array([law.s]), np.array([law.common]))
        kept, both, focus = (float(part[0]) for part in (lost.square, lost.together(np.array(rho)), lost.focus))
        y = y._replace(square=y.square * kept * focus, overlap=y.overlap * both * focus**rho,
                       crowding=y.crowding + float(lost.crowding[0]), spread=y.spread + float(lost.spread[0]))
    alike = law.alike / (1 + law.alike)
    crowd, crowd_2 = alike * y.crowding, alike * rho * (y.spread + (y.crowding - y.spread) * rho)
    q, p = kept * x.p + own * (y.square + crowd), both * x.p + own * (y.overlap + crowd_2)
    # rows whose Σp² differ have outputs of different length: their relative variance, of its share of q, over the heads
    uneven = y.unevenness / gains.n_heads * (own * y.square / max(q, 1e-300)) ** 2
    v = scattered_by_attention(gains, x.v, y.overlap)
    same, cross = gains.gate.kernel.pair(*gains.gate.units(inside.q, inside.rho)) if gains.gate else (1.0, 1.0)
    w, u = gains.noise[0] + rho * uneven, (1 - rho) * uneven
    if gains.gate:
        w, u = w + inside.rho * gains.gate.noise, u + (1 - inside.rho) * gains.gate.noise
    return Tokens(same * q, cross * p, v, w, u)


def mlp(gains: Gains, x: Tokens, centered: bool) -> tuple[Tokens, float]:
    """Hidden units, without their mean if `centered`; and how far their overlaps follow those of the MLP's input."""
    square, overlap = gains.kernel.pair(*gains.units(x.q, x.rho))
    follows, bend = passed(gains, x)
    length, _ = lengths(gains, x.w)
    overlap = min((overlap + bend * x.v * (1 - x.rho) ** 2) * (1 + length * x.rho**2), square * (1 + length))
    square *= 1 + length
    w = gains.noise[1] + gains.degree**2 * x.w
    if centered:
        mean = gains.kernel.pair(gains.units(x.q, x.rho)[0], 0.0)[1]
        square, overlap = square - mean, overlap - mean
    return Tokens(square, overlap, scattered_by_mlp(gains, x.v, follows), w), follows


NO_LOGITS = Capped(math.nan, math.nan, 1.0)


def columns(steps: list[Step], name: str) -> tuple[Array, Array]:
    """Second moments and overlaps of one of the steps' `Tokens`, as arrays."""
    tokens = [getattr(step, name) for step in steps]
    return np.array([token.q for token in tokens]), np.array([token.p for token in tokens])
