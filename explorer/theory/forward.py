"""The forward recursion: second moment q and overlap p of two tokens, sublayer by sublayer.

For a softmax over Gaussian logits of variance s², rows that average the keys, and independent weights in each layer:
    attention  q_F = g_v g_o [p̂ + Δ Y2],  p_F = g_v g_o [p̂ + Δ Y11],  Δ = q̂ − p̂
    MLP        q_F = g₂ E φ²,              p_F = g₂ E φφ′(ρ)            at input second moment g₁ q̂
with (q̂, p̂) the branch's input: (1, ρ) behind a norm. Two corrections of order 1/width are kept:

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

from explorer.theory.gains import EPSILON, Gains
from explorer.theory.grids import Array
from explorer.theory.tables import Softmax

LARGEST = 1e60
"""Second moments beyond this, or below its inverse, leave float32's range: nothing is claimed there."""
LARGEST_LOGIT = 1e37
"""Logits of this standard deviation overflow float32."""


class Tokens(NamedTuple):
    """Tokens at one site, in law: second moment, mean overlap of two, and scatter of the overlaps."""

    q: float
    p: float
    v: float
    """Variance of centered overlaps over (q − p)²."""
    w: float
    """Relative variance of a token's squared length; 0 behind a norm."""
    u: float = 0.0
    """The same from rows of attention that differ: scatter that two tokens do not share."""

    @property
    def own(self) -> float:
        """What a token does not share with the others."""
        return max(self.q - self.p, 0.0)

    @property
    def rho(self) -> float:
        """Correlation of two tokens, in [0, 1]."""
        return min(max(self.p / self.q, 0.0), 1.0)


class Norm(NamedTuple):
    """What a norm met: the second moment it divided by, and the scatter of the tokens' squared lengths."""

    q: float = math.nan
    same: float = 0.0
    """Relative variance of a token's squared length."""
    cross: float = 0.0
    """Relative covariance of two tokens' squared lengths."""


class Step(NamedTuple):
    """One sublayer, as the backward recursion needs it."""

    s: float
    """Standard deviation of the logits; nan at an MLP."""
    before: Norm
    """The norm before the branch."""
    inside: Tokens
    """What the branch reads: behind its norm where there is one."""
    branch: Tokens
    """What the branch computes, before a norm behind it."""
    added: Tokens
    """What the branch hands to the sum: behind the norm where there is one."""
    behind: Norm
    """The norm behind the branch."""
    after: Norm
    """The norm on the sum."""
    total: float
    """Second moment of skip · x + branch · F(x), before a norm on it."""
    kept: float
    """The stream's part of the sum's second moment."""
    site: Tokens
    """What leaves the sublayer."""


def run(gains: Gains, softmax: Softmax, n_layers: int, tokens: Tokens) -> list[Step]:
    """The recursion over 2N sublayers; shorter where the second moment leaves the range of `LARGEST`."""
    steps: list[Step] = []
    for index in range(2 * n_layers):
        step = sublayer(gains, softmax, tokens, index % 2 == 0)
        if not 1 / LARGEST < step.total < LARGEST or step.s > LARGEST_LOGIT:
            break
        steps.append(step)
        tokens = step.site
    return steps


def sublayer(gains: Gains, softmax: Softmax, tokens: Tokens, attends: bool) -> Step:
    """One branch and its way back into the stream."""
    place = gains.placement
    inside, before = normalize(_NOTHING, tokens, gains.d_model) if place.before else (tokens, Norm())
    s, branch = attention(gains, softmax, inside) if attends else (math.nan, mlp(gains, inside))
    behind, after, added = Norm(), Norm(), branch
    if place.behind:
        added, behind = normalize(_NOTHING, branch, gains.d_model)
    skip, scaled = _rescaled(tokens, gains.skip**2), _rescaled(added, gains.branch**2)
    # an MLP's overlaps follow those that it reads, an attention's hardly do
    follows = 0.0 if attends else passed(inside)
    total = add(skip, scaled, gains.d_model, follows)
    site = total
    if place.after:
        site, after = normalize(skip, scaled, gains.d_model, follows)
    kept = skip.q / total.q if total.q > 0 else 0.0
    return Step(s, before, inside, branch, added, behind, after, total.q, kept, site)


def attention(gains: Gains, softmax: Softmax, x: Tokens) -> tuple[float, Tokens]:
    """Logits' standard deviation, and what the branch computes."""
    own, rho = x.own, x.rho
    variance = logit_variance(gains, x.q, own)
    s = math.sqrt(variance)
    y = softmax.forward(s, rho)
    alike = variance * x.v / (1 + variance * x.v)
    crowd, crowd_2 = alike * y.crowding, alike * rho * (y.spread + (y.crowding - y.spread) * rho)
    gain = gains.v * gains.o
    q, p = gain * (x.p + own * (y.square + crowd)), gain * (x.p + own * (y.overlap + crowd_2))
    uneven = y.unevenness / gains.n_heads * (gain * own * y.square / q) ** 2
    v = x.v + 2 / gains.d_model + y.overlap / gains.n_heads
    return s, Tokens(q, p, min(v, 1.0), gains.noise[0] + rho * uneven, (1 - rho) * uneven)


def logit_variance(gains: Gains, q: float, own: float) -> float:
    """Over the keys of a row, for tokens of second moment q of which `own` is not shared."""
    if gains.qk_norm:
        return gains.scale * own / q
    return gains.scale * gains.q * gains.k * q * own


def mlp(gains: Gains, x: Tokens) -> Tokens:
    """What the MLP computes."""
    square, overlap = gains.kernel.pair(gains.hidden * x.q, x.rho)
    v = x.v * passed(x) ** 2 + 1 / gains.d_model + 1.6 / gains.d_mlp
    return Tokens(gains.out * square, gains.out * overlap, v, gains.noise[1] + x.w)


def passed(x: Tokens) -> float:
    """How far a nonlinearity passes deviations of an overlap on, relative to what it does to Δ (relu's, within 3 %)."""
    return math.sqrt(0.5 + 0.5 * x.rho)


_NOTHING = Tokens(0.0, 0.0, 0.0, 0.0)


def normalize(x: Tokens, y: Tokens, d_model: int, follows: float = 0.0) -> tuple[Tokens, Norm]:
    """A norm on the sum of two signals; see `add`."""
    q, p = x.q + y.q, x.p + y.p
    same = ((x.w + x.u) * x.q**2 + (y.w + y.u) * y.q**2 + 4 / d_model * x.q * y.q) / q**2
    cross = (x.w * x.p**2 + y.w * y.p**2 + 4 / d_model * x.p * y.p) / q**2
    mixed = (x.w * x.q * x.p + y.w * y.q * y.p + 2 / d_model * (x.q * y.p + x.p * y.q)) / q
    overlap = (p * (1 + 0.75 * same + 0.25 * cross) - mixed) / (q + EPSILON)
    return Tokens(q / (q + EPSILON), overlap, add(x, y, d_model, follows).v, 0.0), Norm(q, same, cross)


def add(x: Tokens, y: Tokens, d_model: int, follows: float) -> Tokens:
    """Two signals of independent directions added; the second's overlaps deviate as `follows` times the first's."""
    a, b = x.own, y.own
    v = (a * a * x.v + b * b * y.v + 2 * a * b * (1 / d_model + follows * x.v)) / max((a + b) ** 2, 1e-300)
    w = (x.w * x.q**2 + y.w * y.q**2 + 4 / d_model * x.q * y.q) / max((x.q + y.q) ** 2, 1e-300)
    u = (x.u * x.q**2 + y.u * y.q**2) / max((x.q + y.q) ** 2, 1e-300)
    return Tokens(x.q + y.q, x.p + y.p, v, w, u)


def _rescaled(x: Tokens, factor: float) -> Tokens:
    return Tokens(x.q * factor, x.p * factor, x.v, x.w, x.u)


def columns(steps: list[Step], name: str) -> tuple[Array, Array]:
    """Second moments and overlaps of one of the steps' `Tokens`, as arrays."""
    tokens = [getattr(step, name) for step in steps]
    return np.array([token.q for token in tokens]), np.array([token.p for token in tokens])
