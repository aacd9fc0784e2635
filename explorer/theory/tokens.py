"""Tokens in law, and what norms, sums, and a branch's finite widths make of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from explorer.theory.gains import Gains, Point


class Tokens(NamedTuple):
    """Tokens at one site, in law: second moment, mean overlap of two, and scatter of the overlaps."""

    q: float
    p: float
    v: float
    """Variance of centered overlaps over (q − p)²."""
    w: float
    """Relative variance of a token's squared length; 0 after a norm."""
    u: float = 0.0
    """Relative variance of the squared length as rows of attention differ: scatter that two tokens do not share."""

    @property
    def own(self) -> float:
        """The part of a token that it does not share with the others."""
        return max(self.q - self.p, 0.0)

    @property
    def rho(self) -> float:
        """Correlation of two tokens, in [0, 1]."""
        return min(max(self.p / self.q, 0.0), 1.0) if self.q > 0 else 0.0

    def scaled(self, factor: float) -> Tokens:
        """Times √factor."""
        return self if factor == 1 else Tokens(self.q * factor, self.p * factor, self.v, self.w, self.u)

    def plus(self, bias: float, width: int) -> Tokens:
        """With a bias of this variance and so many coordinates, the same for all tokens; its length scatters, too."""
        if not bias:
            return self
        q, square = self.q + bias, (self.q / (self.q + bias)) ** 2
        return Tokens(q, self.p + bias, self.v, square * self.w + (1 - square) * 2 / width, square * self.u)


STEP = 0.01
"""In ρ, of differences of a kernel's slopes, which tables have to 1e-7."""
NOTHING = Tokens(0.0, 0.0, 0.0, 0.0)


class Norm(NamedTuple):
    """Input of a norm: the second moment it divided by, and the scatter of the tokens' squared lengths."""

    q: float = math.nan
    width: int = 0
    """Coordinates that it averages."""
    same: float = 0.0
    """Relative variance of a token's squared length."""
    cross: float = 0.0
    """Relative covariance of two tokens' squared lengths."""
    slopes: tuple[float, float] | None = None
    """Factors of a function in the norm's place on a gradient's square and on two tokens' overlap."""


def bend(x: Tokens, point: Point, d_model: int) -> tuple[Tokens, Norm]:
    """The function in a norm's place.

    Over d coordinates fresh overlaps scatter by 1/d, of whatever function; what is beyond follows the kernel. Of tanh
    and erf, which end at 1, q̂ grows about as the power 1 − q̂ of q (.606 for .58 at q = 1), and so does a length.
    """
    kernel, square = point
    q, p = kernel.pair(square * x.q, x.rho)
    same, cross = (square * float(part) for part in kernel.slopes(np.array(square * x.q), np.array(x.rho)))
    chance, follows = 1 / d_model, cross * x.own / max(q - p, 1e-300)
    v = chance + max(x.v - chance, 0.0) * min(follows, 1.0) ** 2
    return Tokens(q, p, v, x.w * min((1 - q) ** 2, 1.0)), Norm(x.q, d_model, slopes=(same, cross))


def normalize(x: Tokens, gains: Gains, width: int) -> tuple[Tokens, Norm]:
    """A norm on one signal of so many coordinates.

    Delta method: of (1 + a)^−½ (1 + b)^−½, a and b the relative deviations of two squared lengths, the mean is
    1 + ¾ Var a + ¼ Cov(a, b), and the overlap's own covariance with a + b takes w away.
    """
    if gains.point:
        return bend(x, gains.point, width)
    q, p, same = x.q, x.p, x.w + x.u
    if q <= 0 or (gains.centers and width == 1):  # a single coordinate is its mean
        return NOTHING, Norm(q, width)
    cross = x.w * (p / q) ** 2
    overlap = (p * (1 + 0.75 * same + 0.25 * cross) - x.w * p) / (q + gains.epsilon)
    return Tokens(q / (q + gains.epsilon), overlap, x.v, 0.0), Norm(q, width, same, cross)


def normalize_sum(x: Tokens, y: Tokens, gains: Gains, total: Tokens) -> tuple[Tokens, Norm]:
    """A norm on the sum, `total`, of two signals of independent directions.

    As `normalize`: |x + y|² = |x|² + |y|² + 2 x·y, and x·y of independent directions has the variance q_x q_y / d; of
    two tokens' such products p_x p_y / d is the covariance.
    """
    if gains.point:
        return bend(total, gains.point, gains.d_model)
    q, p, d_model = x.q + y.q, x.p + y.p, gains.d_model
    if q <= 0:
        return NOTHING, Norm(q, d_model)
    same = ((x.w + x.u) * x.q**2 + (y.w + y.u) * y.q**2 + 4 / d_model * x.q * y.q) / q**2
    cross = (x.w * x.p**2 + y.w * y.p**2 + 4 / d_model * x.p * y.p) / q**2
    mixed = (x.w * x.q * x.p + y.w * y.q * y.p + 2 / d_model * (x.q * y.p + x.p * y.q)) / q
    overlap = (p * (1 + 0.75 * same + 0.25 * cross) - mixed) / (q + gains.epsilon)
    return Tokens(q / (q + gains.epsilon), overlap, total.v, 0.0), Norm(q, d_model, same, cross)


def add(x: Tokens, y: Tokens, d_model: int, follows: float, longer: float = 0.0) -> tuple[Tokens, float]:
    """Two signals of independent directions added; the second's overlaps deviate as `follows` times the first's.

    (x + y)·(x′ + y′): variances add, with 2ab/d of the two mixed products x·y′ and y·x′, and 2ab · `follows` · v of
    what is common to x·x′ and y·y′, with a and b what each has apart. Squared lengths as in `normalize_sum`; of the two
    signals' squared lengths `longer` is the relative covariance.

    Returns:
        the sum, and how far deviations of the first's overlaps survive in it.
    """
    a, b, q = x.own, y.own, x.q + y.q
    both, square = max(a + b, 1e-150), max(q * q, 1e-300)
    v = (a * a * x.v + b * b * y.v + 2 * a * b * (1 / d_model + follows * x.v)) / (both * both)
    w = (x.w * x.q**2 + y.w * y.q**2 + (4 / d_model + 2 * longer) * x.q * y.q) / square
    u = (x.u * x.q**2 + y.u * y.q**2) / square
    return Tokens(q, x.p + y.p, v, w, u), (a + follows * b) / both


def passed(gains: Gains, x: Tokens) -> tuple[float, float]:
    """Factor of an MLP on deviations of an overlap, relative to its factor on Δ; and half its kernel's curvature in ρ.

    The factor is κ′(ρ)(1 − ρ)/(1 − κ(ρ)), κ the kernel at unit second moment: .733 at ρ = 0 for relu, .852 at ½, 1 at 1
    (Cho & Saul 2009). √(½ + ½ρ) is .707, .866 and 1, nowhere 4 % away. Units of higher degree begin flat at ρ = 0, so
    that their curvature counts: deviations of variance v Δ² add ½κ″ v (1 − ρ)² to the overlap.
    """
    if gains.degree == 1:
        return math.sqrt(0.5 + 0.5 * x.rho), 0.0
    rho = min(max(x.rho, STEP), 1 - STEP)
    units = gains.units(np.full(3, x.q), np.array([rho - STEP, rho, rho + STEP]))
    same, overlap = gains.kernel.overlaps(*units)
    before, slope, after = gains.hidden * x.q * gains.kernel.slopes(*units)[1]
    follows = slope * (1 - rho) / max(same[1] - overlap[1], 1e-300)
    return float(min(follows, 1.0)), float((after - before) / (4 * STEP))


def lengths(gains: Gains, w: float) -> tuple[float, float]:
    """Relative excess of E |x|²ᵏ over (E |x|²)ᵏ, and relative covariance of |x|² and |x|²ᵏ, for an MLP of degree k.

    Of tokens whose |x|² have the relative variance w. For k = 1 no second moment depends on the latter: it is left out.
    """
    return gains.degree * (gains.degree - 1) / 2 * w, gains.degree * w if gains.degree != 1 else 0.0


def scattered_by_attention(gains: Gains, v: float, overlap: float) -> float:
    """Scatter of the overlaps of what W_O reads, from that of its tokens and Y11.

    Overlaps are read in random directions by W_V and once more by W_O: a sample of m coordinates scatters by 1/m each
    time, and grouped heads have fewer. And two rows mix by chance: what they give to common keys, Y11, is drawn anew in
    each head.
    """
    return min(v + 1 / gains.d_model + 1 / gains.d_kv + overlap / gains.n_heads, 1.0)


def scattered_by_mlp(gains: Gains, v: float, follows: float) -> float:
    """Scatter of the overlaps of what an MLP's last matrix reads, from that of its tokens.

    W_out reads in d directions: 1/d. A sum over m hidden units scatters by E[V²]/(E V)²/m, V the variance of φ given
    what two inputs share. For relu that is 1 at ρ = 0, 1.56 at ½ and 2 at 1: 1.6 stands for all of them.
    """
    return v * follows**2 + 1 / gains.d_model + 1.6 / gains.d_mlp
