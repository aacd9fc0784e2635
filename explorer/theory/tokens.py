"""Tokens in law, and what norms, sums, and a branch's finite widths make of them.

The scatter v of the overlaps and w, u of the lengths, all of order 1/width, are taken alike for all
positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from explorer.profile import Array
from explorer.theory.gains import Gains, Point
from explorer.theory.positions import Positions

Value = TypeVar("Value")
ZERO, ONE = np.array(0.0), np.array(1.0)
TINY = np.array(1e-300)
"""Arrays, for numpy takes them sooner than floats."""
STEP = 0.01
"""In ρ, of differences of a kernel's slopes, which tables have to 1e-7."""


class Tokens(NamedTuple):
    """Tokens at one site, averaged over positions: second moment, mean overlap of two, and scatter
    of the overlaps."""

    q: float
    p: float
    v: float
    """Variance of centered overlaps over (q − p)²."""
    w: float
    """Relative variance of a token's squared length; 0 after a norm."""
    u: float = 0.0
    """Relative variance of the squared length as rows of attention differ: scatter that two tokens
    do not share."""

    @property
    def rho(self) -> float:
        """Correlation of two tokens, in [0, 1]."""
        return min(max(self.p / self.q, 0.0), 1.0) if self.q > 0 else 0.0


class lazy(Generic[Value]):  # noqa: N801 - used like a property
    """`functools.cached_property` without the lock that it has before Python 3.12, which takes
    longer than most values."""

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute, self._name = compute, compute.__name__

    def __get__(self, instance: Any, owner: type | None = None) -> Value:
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


class State:
    """Tokens at one site: `y`, `[pair]` (see `Positions`), and the scatter v, w and u as in
    `Tokens`."""

    def __init__(
        self, place: Positions, y: Array, v: float = 0.0, w: float = 0.0, u: float = 0.0
    ) -> None:
        self.place, self.y, self.v, self.w, self.u = place, y, v, w, u
        self.q: Array = y[0]
        """`[position]`: the second moments."""

    @lazy
    def square(self) -> Array:
        """`[pair]`: geometric mean of the two tokens' second moments."""
        return self.place.lift(self.q)

    @lazy
    def rho(self) -> Array:
        """`[pair]`: correlation of two tokens, in [0, 1]."""
        return correlation(self.y, self.square)

    @lazy
    def mean(self) -> Tokens:
        """The tokens' law, averaged over positions."""
        return Tokens(*self.place.average(self.y), self.v, self.w, self.u)

    def scaled(self, factor: float) -> State:
        """Times √factor."""
        return self if factor == 1 else State(self.place, self.y * factor, self.v, self.w, self.u)

    def plus(self, bias: float, width: int) -> State:
        """With a bias of this variance and so many coordinates, the same for all tokens; its length
        scatters, too."""
        if not bias:
            return self
        square = (self.mean.q / (self.mean.q + bias)) ** 2
        return State(
            self.place,
            self.y + bias,
            self.v,
            square * self.w + (1 - square) * 2 / width,
            square * self.u,
        )


class Keys(NamedTuple):
    """Averages over the keys that rows see."""

    mean: Array
    """`[position]`: of the keys' second moments, by row."""
    tokens: Array
    """`[position, position]`: of the overlaps of a row's keys with a token, `[row, token]`."""
    shared: Array
    """`[pair]`: overlap of a row's keys with each other, and of two rows' keys."""
    own: Array
    """`[position]`: the part of the keys that a row sees which they do not share."""


def keys_of(x: State) -> Keys:
    """Tokens as keys of the rows that see them."""
    y, prefix, shared = x.y, x.place.prefix, np.empty_like(x.y)
    mean, tokens = x.q, y[1:]
    if x.place.alike:
        shared[:] = tokens
    else:
        mean, tokens = prefix.dot(mean), prefix.dot(tokens)
        np.dot(tokens, prefix.T, out=shared[1:])
        shared[0] = shared[1:].diagonal()
    return Keys(mean, tokens, shared, np.maximum(mean - shared[0], ZERO))


def scattered(x: State, keys: Keys) -> Array:
    """`[position]`: variance of centered overlaps over own², for the keys of each row: by chance,
    and because positions differ. Over the keys of a row, of p_ij less the means over i and over j:
    E p² − 2 E_i (E_j p)² + (E p)²."""
    place, (_, tokens, shared, own) = x.place, keys
    if place.alike:
        return np.full_like(x.q, x.v)
    p, rows = x.y[1:], (place.prefix * (tokens * tokens)).dot(place.ones[0])
    varied = place.key_pairs.dot((p * p).ravel()) - (rows + rows) + shared[0] * shared[0]
    total: Array = np.minimum(np.maximum(varied, ZERO) / np.maximum(own * own, TINY) + x.v, ONE)
    return total


def correlation(y: Array, square: Array) -> Array:
    """`[pair]`: overlaps over the geometric mean of the squares, in [0, 1], 0 of nothing; of a
    token with itself 1."""
    rho: Array = np.fmin(np.fmax(y / square, ZERO), ONE)
    rho[0] = 1.0
    return rho


class Norm(NamedTuple):
    """Input of a norm: what it divided by, and the scatter of the tokens' squared lengths."""

    q: Array
    """`[position]`: the second moment it divided by, ε included."""
    width: int
    """Coordinates that it averages."""
    w: float
    u: float
    rho: Array
    """`[pair]`"""
    slopes: Array | None = None
    """`[pair]`: factor of a function in the norm's place on a gradient."""
    regained: Array | None = None
    """`[pair]`: factor on the overlap of two tokens, of gates that the norm divides out: see
    `Gate.regained`."""

    @property
    def square(self) -> Array:
        """`[position]`: what it divides overlaps by."""
        return self.q if self.slopes is None else 1 / self.slopes[1:].diagonal()

    @property
    def same(self) -> float:
        """Relative variance of a token's squared length."""
        return self.w + self.u


def normalize(
    x: State,
    gains: Gains,
    width: int,
    scale: float = 1.0,
    lower: Array | None = None,
    regained: Array | None = None,
) -> tuple[State, Norm]:
    """A norm on signals of so many coordinates, and a factor on overlaps after it.

    Args:
        lower: `[pair]`, the correlations after the norm where they are known; see
            `correlation_of_sum`.
        regained: `[pair]`, one more factor on the correlations; see `Norm`.

    Delta method: of (1 + a)^−½ (1 + b)^−½, a and b the relative deviations of two squared lengths,
    the mean is 1 + ¾ Var a + ¼ Cov(a, b), with Var a = w + u and Cov(a, b) = w ρ²; the overlap's
    own covariance with a + b takes w away. That leaves 1 + ¾ u − ¼ w (1 − ρ²) for two tokens."""
    if gains.point:
        return _bend(x, gains.point, width, scale)
    place, rho, w, u, q = x.place, x.rho, x.w, x.u, x.q + gains.epsilon
    scale = 0.0 if gains.centers and width == 1 else scale  # a single coordinate is its mean
    square = place.lift(x.q / q)
    if scale != 1:
        square *= scale
    if lower is None:
        lower = (
            rho
            if not (w or u)
            else np.minimum(  # a token with itself stays at 1
                rho * (rho * rho * (w / 4) + (0.75 * u + (1 - w / 4))), ONE
            )
        )
    if regained is not None:
        lower = np.minimum(lower * regained, ONE)
    out = State(place, square * lower, x.v)
    out.square, out.rho = square, lower
    return out, Norm(q, width, w, u, rho, regained=regained)


def correlation_of_sum(x: State, y: State, total: State, d_model: int, gated: float = 0.0) -> Array:
    """`[pair]`: correlations after a norm on the sum, `total`, of two signals of independent
    directions.

    As in `normalize`: |x + y|² = |x|² + |y|² + 2 x·y, and x·y of independent directions has the
    variance q_x q_y / d; of two tokens' such products p_x p_y / d is the covariance, and (q_x p_y +
    p_x q_y) / d that with their overlap.

    Args:
        gated: what gates of independent tokens have in y's `u`. Gates multiply lengths and
            overlaps: ½ of it is the covariance of the overlap with each of the two lengths.
    """
    (a, _, _, w_x, u_x), (b, _, _, w_y, u_y), chance = x.mean, y.mean, 2 / d_model
    a, b = (part / max(a + b, 1e-300) for part in (a, b))
    same = (w_x + u_x) * a * a + (w_y + u_y) * b * b + 2 * chance * a * b
    rho = total.rho
    first = x.y / total.square
    second = rho - first
    cross = first * (w_x * first + (2 * chance) * second) + w_y * second * second
    mixed = (w_x * a + chance * b) * first + ((w_y + gated / 2) * b + chance * a) * second
    lower: Array = np.minimum(
        np.maximum(rho + (rho * (0.75 * same + 0.25 * cross) - mixed), ZERO), ONE
    )
    lower[0] = 1.0
    return lower


def _bend(x: State, point: Point, width: int, scale: float) -> tuple[State, Norm]:
    """The function in a norm's place.

    Over d coordinates fresh overlaps scatter by 1/d, of whatever function; what is beyond follows
    the kernel. Of tanh and erf, which end at 1, q̂ grows about as the power 1 − q̂ of q (.606 for
    .58 at q = 1), and so does a length."""
    kernel, square = point
    units = square * x.square, x.rho
    out = State(x.place, kernel.overlaps(*units)[1])
    slopes = square * kernel.slopes(*units)[1]
    (q, p, *_), chance, overlap = out.mean, 1 / width, x.place.average(slopes)[1]
    follows = min(overlap * max(x.mean.q - x.mean.p, 0.0) / max(q - p, 1e-300), 1.0)
    out.v, out.w = chance + max(x.v - chance, 0.0) * follows**2, x.w * min((1 - q) ** 2, 1.0)
    return out.scaled(scale), Norm(x.q, width, 0.0, 0.0, x.rho, slopes)


def times(factor: float | Array, x: Array) -> Array:
    """The product; x itself where the factor is 1, as most are."""
    return x if isinstance(factor, float) and factor == 1 else factor * x


def add(
    x: Tokens, y: Tokens, d_model: int, follows: float, longer: float = 0.0
) -> tuple[Tokens, float]:
    """Two signals of independent directions added; the second's overlaps deviate as `follows` times
    the first's.

    (x + y)·(x′ + y′): variances add, with 2ab/d of the two mixed products x·y′ and y·x′, and 2ab ·
    `follows` · v of what is common to x·x′ and y·y′, with a and b what each has apart. |x + y|² =
    |x|² + |y|² + 2 x·y, and x·y of independent directions has the variance q_x q_y / d; of the two
    signals' squared lengths `longer` is the relative covariance.

    Returns:
        the sum, and how far deviations of the first's overlaps survive in it.
    """
    (q_x, p_x, v_x, w_x, u_x), (q_y, p_y, v_y, w_y, u_y) = x, y
    a, b, q = max(q_x - p_x, 0.0), max(q_y - p_y, 0.0), q_x + q_y
    both, square, of_x, of_y = max(a + b, 1e-150), max(q * q, 1e-300), q_x**2, q_y**2
    v = (a * a * v_x + b * b * v_y + 2 * a * b * (1 / d_model + follows * v_x)) / (both * both)
    w = (w_x * of_x + w_y * of_y + (4 / d_model + 2 * longer) * q_x * q_y) / square
    return Tokens(q, p_x + p_y, v, w, (u_x * of_x + u_y * of_y) / square), (a + follows * b) / both


def passed(gains: Gains, x: Tokens) -> tuple[float, float]:
    """Factor of an MLP on deviations of an overlap, relative to its factor on Δ; and half its
    kernel's curvature in ρ.

    The factor is κ′(ρ)(1 − ρ)/(1 − κ(ρ)), κ the kernel at unit second moment: .733 at ρ = 0 for
    relu, .852 at ½, 1 at 1 (Cho & Saul 2009). √(½ + ½ρ) is .707, .866 and 1, nowhere 4 % away.
    Units of higher degree begin flat at ρ = 0, so that their curvature counts: deviations of
    variance v Δ² add ½κ″ v (1 − ρ)² to the overlap."""
    if gains.degree == 1:
        return math.sqrt(0.5 + 0.5 * x.rho), 0.0
    rho = min(max(x.rho, STEP), 1 - STEP)
    units = gains.units(np.full(3, x.q), np.array([rho - STEP, rho, rho + STEP]))
    same, overlap = gains.kernel.overlaps(*units)
    before, slope, after = gains.hidden * x.q * gains.kernel.slopes(*units)[1]
    follows = slope * (1 - rho) / max(same[1] - overlap[1], 1e-300)
    return float(min(follows, 1.0)), float((after - before) / (4 * STEP))


def lengths(gains: Gains, w: float) -> tuple[float, float]:
    """Relative excess of E |x|²ᵏ over (E |x|²)ᵏ, and relative covariance of |x|² and |x|²ᵏ, for an
    MLP of degree k.

    Of tokens whose |x|² have the relative variance w. For k = 1 no second moment depends on the
    latter: it is left out."""
    return gains.degree * (gains.degree - 1) / 2 * w, gains.degree * w if gains.degree != 1 else 0.0


def scattered_by_attention(gains: Gains, v: float, overlap: float) -> float:
    """Scatter of the overlaps of what W_O reads, from that of its tokens and Y11.

    Overlaps are read in random directions by W_V and once more by W_O: a sample of m coordinates
    scatters by 1/m each time, and grouped heads have fewer. And two rows mix by chance: what they
    give to common keys, Y11, is drawn anew in each head."""
    return min(v + 1 / gains.d_model + 1 / gains.d_kv + overlap / gains.n_heads, 1.0)
