"""Statistics of the tokens at one site, and what norms, sums and a branch's finite widths do to
them.

q is a token's second moment, |x|²/d, and p the overlap x·x′/d of two tokens, both means over draws.
Corrections of order 1/width come from the scatter v of the overlaps and from w and u of the squared
lengths, which are taken to be the same for all positions.

Where several designs are predicted side by side, numbers are `[design]`, and arrays have the axis
of designs last: see `several`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from explorer.theory.gains import Gains, Point
from explorer.theory.positions import Positions
from explorer.theory.several import at_least, at_most, equals, quotient
from explorer.vocabulary import Array

Value = TypeVar("Value")
# arrays, for numpy takes them sooner than floats
ZERO, ONE = np.array(0.0), np.array(1.0)
TINY = np.array(1e-300)
"""Least divisor, so that 0/0 is 0."""
STEP = 0.01
"""Step in ρ for differences of a kernel's slopes, which its tables have to 1e-7."""


class Tokens(NamedTuple):
    """Statistics of the tokens x at one site, averaged over positions; x′ is another token."""

    q: float
    """Second moment |x|²/d."""
    p: float
    """Mean overlap x·x′/d of two different tokens."""
    v: float
    """Variance of the centered overlaps of pairs of tokens, over (q − p)²."""
    w: float
    """Relative variance of a token's squared length; 0 after a norm."""
    u: float = 0.0
    """Relative variance of the squared length that two tokens do not share, such as that between
    rows of attention."""

    @property
    def rho(self) -> Any:
        """Correlation of two tokens, p/q in [0, 1]; 0 for tokens of length 0."""
        return at_most(at_least(quotient(self.p, self.q), 0.0), 1.0)


class lazy(Generic[Value]):  # noqa: N801 - used like a property
    """`functools.cached_property` without the lock that it has before Python 3.12, which takes
    longer than most values."""

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute, self._name = compute, compute.__name__

    def __get__(self, instance: Any, owner: type | None = None) -> Value:
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


class State:
    """Tokens at one site by position: `y` holds second moments in row 0 and overlaps below, `[pair]
    = [1 + position, position]` (see `Positions`); the scatter v, w and u is as in `Tokens`."""

    def __init__(
        self, axis: Positions, y: Array, v: float = 0.0, w: float = 0.0, u: float = 0.0
    ) -> None:
        self.axis, self.y, self.v, self.w, self.u = axis, y, v, w, u
        self.q: Array = y[0]
        """`[position]`: the second moments."""
        self.regained: Array | None = None
        """`[pair]`: factor on overlaps through a norm, of gates that it divides out again, whose
        scatter is then not in w and u; see `Gate.regained`."""

    @lazy
    def square(self) -> Array:
        """Geometric mean √(q_i q_j) of two tokens' second moments, `[pair]`."""
        return self.axis.lift(self.q)

    @lazy
    def rho(self) -> Array:
        """Correlation ρ of two tokens, in [0, 1], `[pair]`."""
        return correlation(self.y, self.square)

    @lazy
    def mean(self) -> Tokens:
        """The tokens' statistics, averaged over positions."""
        return Tokens(*self.axis.average(self.y), self.v, self.w, self.u)

    def scaled(self, factor: float) -> State:
        """The tokens multiplied by √factor."""
        if equals(factor, 1):
            return self
        scaled = State(self.axis, self.y * factor, self.v, self.w, self.u)
        scaled.regained = self.regained
        return scaled

    def plus(self, bias: float, width: int) -> State:
        """The tokens plus a vector of Gaussian biases that all of them share.

        Args:
            bias: variance of a bias.
            width: number of biases, over which the bias's own squared length scatters by 2/width.
        """
        if equals(bias, 0):
            return self
        # the part of the sum's squared variance that is not the bias's
        part = (self.mean.q / (self.mean.q + bias)) ** 2
        w = part * self.w + (1 - part) * 2 / width
        return State(self.axis, self.y + bias, self.v, w, part * self.u)


class Keys(NamedTuple):
    """Means over the keys that each row sees."""

    mean: Array
    """`[row position]`: of the keys' second moments."""
    tokens: Array
    """`[row position, position]`: of the overlaps of a row's keys with a token."""
    shared: Array
    """`[pair]`: p̂, the mean overlap of two keys, of one row or of two rows."""
    own: Array
    """`[row position]`: Δ = mean − shared, the part of its keys that they do not share."""


def keys_of(x: State) -> Keys:
    """Means over the keys of each row, where tokens x are the keys."""
    overlaps, key_mean = x.y[1:], x.axis.key_mean
    if x.axis.unmasked:  # all rows see all keys
        mean, tokens, shared = x.q, overlaps, overlaps.repeat(2, 0)
    else:
        shared = np.empty_like(x.y)
        mean, tokens = key_mean.dot(x.q), x.axis.over_first(key_mean, overlaps)
        shared[1:] = x.axis.over_second(key_mean, tokens)
        shared[0] = x.axis.diagonal(shared[1:])
    return Keys(mean, tokens, shared, np.maximum(mean - shared[0], ZERO))


def key_scatter(x: State, keys: Keys) -> Array:
    """Variance of the centered overlaps of each row's keys over Δ² (`Keys.own`), `[row position]`,
    at most 1.

    By chance it is v. Where positions differ, p_ij less its means over i and over j has the
    variance E p² − 2 E_i (E_j p)² + (E p)² beside, with means over the keys of a row."""
    axis = x.axis
    if axis.unmasked:
        return np.asarray(axis.ones[0] * x.v)
    p, mean = x.y[1:], keys.shared[0]
    mean_square = axis.key_pair_mean.dot(axis.flat(p * p))
    of_means = keys.tokens * keys.tokens
    if axis.last == -1:  # quicker than einsum
        square_of_means = (axis.key_mean * of_means).dot(axis.ones[0])
    else:
        square_of_means = np.einsum("ij,ijd->id", axis.key_mean, of_means)
    variance = mean_square - (square_of_means + square_of_means) + mean * mean
    by_position = np.maximum(variance, ZERO) / np.maximum(keys.own * keys.own, TINY)
    scatter: Array = np.minimum(by_position + x.v, ONE)
    return scatter


def correlation(y: Array, square: Array) -> Array:
    """Overlaps `y` over the geometric means `square` of second moments, `[pair]`, clipped to [0,
    1].

    It is 0 for tokens of length 0, and 1 for a token with itself (row 0)."""
    rho: Array = np.fmin(np.fmax(y / square, ZERO), ONE)
    rho[0] = 1.0
    return rho


class Norm(NamedTuple):
    """The input of a norm, as the backward recursion needs it."""

    q: Array
    """`[position]`: the second moment that it divides by, ε included."""
    width: int
    """Coordinates that it averages."""
    w: float
    """Relative variance of a token's squared length before the norm, that two tokens share; and
    next that they do not, as in `Tokens`."""
    u: float
    rho: Array
    """`[pair]`: correlations before the norm."""
    slopes: Array | None = None
    """`[pair]`: factor on a gradient of a function that stands in the norm's place."""
    regained: Array | None = None
    """`[pair]`: factor on overlaps, of gates that the norm divides out: see `Gate.regained`."""

    @property
    def square(self) -> Array:
        """`[position]`: the number that it divides overlaps by."""
        return self.q if self.slopes is None else 1 / np.einsum("ii...->i...", self.slopes[1:])

    @property
    def length_variance(self) -> float:
        """Relative variance w + u of a token's squared length before the norm."""
        return self.w + self.u


def normalize(
    x: State,
    gains: Gains,
    width: int,
    scale: float = 1.0,
    lower: Array | None = None,
) -> tuple[State, Norm]:
    """Tokens after a norm, or after the function in the norms' place.

    Each token is divided by its own length. With a and b the relative deviations of two tokens'
    squared lengths, the mean of (1 + a)^−½ (1 + b)^−½ is 1 + ¾ Var a + ¼ Cov(a, b) (delta method),
    where Var a = w + u and Cov(a, b) = w ρ². The overlap's own covariance with a + b takes w away.
    So ρ becomes ρ (1 + ¾ u − ¼ w (1 − ρ²)).

    Args:
        width: coordinates that the norm averages.
        scale: factor on second moments and overlaps after the norm.
        lower: `[pair]`, correlations after the norm where they are known; see
            `correlation_of_sum`.
    Returns:
        the tokens after the norm, and the norm for the way back.
    """
    if gains.point:
        return _bend(x, gains.point, width, scale)
    rho, w, u = x.rho, x.w, x.u
    if gains.centers and equals(width, 1):
        scale = 0.0  # a single coordinate is its own mean
    divisor = x.q + gains.epsilon
    square = x.axis.lift(x.q / divisor)
    if not equals(scale, 1):
        square *= scale
    if lower is None:
        lower = rho
        if not (equals(w, 0) and equals(u, 0)):
            factor = rho * rho * (w / 4) + (0.75 * u + (1 - w / 4))
            lower = np.minimum(rho * factor, ONE)  # a token with itself stays at 1
    if x.regained is not None:
        lower = np.minimum(lower * x.regained, ONE)
    out = State(x.axis, square * lower, x.v)
    out.square, out.rho = square, lower  # already computed, so not to be derived again
    return out, Norm(divisor, width, w, u, rho, regained=x.regained)


def correlation_of_sum(x: State, y: State, total: State, d_model: int, gated: float = 0.0) -> Array:
    """Correlations after a norm on the sum of two signals of independent directions, `[1 +
    position, position]`, in row 0 that of a token with itself, 1.

    As in `normalize`, ρ becomes ρ (1 + ¾ Var a + ¼ Cov(a, b)) − Cov(overlap, a + b)/2, with a and b
    the relative deviations of two tokens' squared lengths. Now |x + y|² = |x|² + |y|² + 2 x·y, and
    x·y of independent directions has the variance q_x q_y / d. The covariance of two tokens' x·y is
    p_x p_y / d, and that of x·y with an overlap (q_x p_y + p_x q_y) / d.

    Args:
        x: the stream's term; `y` the branch's, and `total` their sum before the norm.
        gated: part of y's `u` that comes of gates, which tokens have independently. Gates multiply
            lengths and overlaps: the overlap's covariance with each of two lengths is half of it.
    """
    x_mean, y_mean = x.mean, y.mean
    w_x, w_y = x_mean.w, y_mean.w  # scatter of lengths that two tokens share
    q = at_least(x_mean.q + y_mean.q, 1e-300)
    a, b = x_mean.q / q, y_mean.q / q  # shares of x and y in the second moment
    rho = total.rho
    by_x = x.y / total.square  # and in the correlation
    by_y = rho - by_x
    chance = 2 / d_model
    variance = (w_x + x_mean.u) * a * a + (w_y + y_mean.u) * b * b + 2 * chance * a * b
    of_lengths = by_x * (w_x * by_x + (2 * chance) * by_y) + w_y * by_y * by_y
    of_overlap = (w_x * a + chance * b) * by_x + ((w_y + gated / 2) * b + chance * a) * by_y
    lower = rho + (rho * (0.75 * variance + 0.25 * of_lengths) - of_overlap)
    clipped: Array = np.minimum(np.maximum(lower, ZERO), ONE)
    clipped[0] = 1.0
    return clipped


def _bend(x: State, point: Point, width: int, scale: float) -> tuple[State, Norm]:
    """Tokens after the function in a norm's place; arguments and results as in `normalize`.

    Overlaps of fresh coordinates scatter by 1/width, of whatever function. What is beyond that
    follows the kernel, by the factor `follows` on deviations over Δ = q − p.

    A function that ends at 1 (tanh, erf) makes a second moment q̂ of q. q̂ grows about as q^(1 − q̂)
    (.606 for .58 at q = 1), and so does a squared length: its relative variance w is multiplied by
    (1 − q̂)²."""
    kernel, square = point
    units = square * x.square, x.rho
    out = State(x.axis, kernel.overlaps(*units)[1])
    slopes = square * kernel.slopes(*units)[1]
    q, p, *_ = out.mean
    chance = 1 / width
    # Δ after over Δ before, by the slope: how far deviations of overlaps survive
    slope = x.axis.average(slopes)[1]
    own = at_least(x.mean.q - x.mean.p, 0.0)
    follows = at_most(slope * own / at_least(q - p, 1e-300), 1.0)
    out.v = chance + at_least(x.v - chance, 0.0) * follows**2
    out.w = x.w * at_most((1 - q) ** 2, 1.0)
    return out.scaled(scale), Norm(x.q, width, 0.0, 0.0, x.rho, slopes)


def ratio(x: Array, y: Array) -> Array:
    """x / y, and 0 where y is not above 0."""
    return np.divide(x, y, out=np.zeros_like(y), where=y > 0)


def add(
    x: Tokens, y: Tokens, d_model: int, follows: float, longer: float = 0.0
) -> tuple[Tokens, float]:
    """The sum of two signals of independent directions, stream x and branch y.

    Two tokens' overlap is (x + y)·(x′ + y′) = x·x′ + y·y′ + x·y′ + y·x′. With a and b the q − p of
    each signal, the first two have the variances a² v_x and b² v_y and the covariance ab `follows`
    v_x, which counts twice. The last two are products of independent directions: ab/d each.

    A squared length is |x|² + |y|² + 2 x·y. The first two have the variances w q² of each signal
    and the covariance `longer` q_x q_y, which counts twice. x·y has the variance q_x q_y / d, and
    twice it 4 q_x q_y / d. The part u, which two tokens do not share, comes of the signals alone.

    Args:
        follows: where an overlap of x deviates from its mean by some part of a, that of y deviates
            by `follows` times that part of b.
        longer: relative covariance of |x|² and |y|².
    Returns:
        the sum's statistics; and the factor on such a part, from x to the sum.
    """
    a, b = at_least(x.q - x.p, 0.0), at_least(y.q - y.p, 0.0)
    delta = at_least(a + b, 1e-150)  # not 0, nor is its square
    mixed = 2 * a * b * (1 / d_model + follows * x.v)
    v = (a * a * x.v + b * b * y.v + mixed) / (delta * delta)
    q = x.q + y.q
    square, square_x, square_y = at_least(q * q, 1e-300), x.q * x.q, y.q * y.q
    mixed = (4 / d_model + 2 * longer) * x.q * y.q
    w = (x.w * square_x + y.w * square_y + mixed) / square
    u = (x.u * square_x + y.u * square_y) / square
    return Tokens(q, x.p + y.p, v, w, u), (a + follows * b) / delta


def overlap_response(gains: Gains, x: Tokens) -> tuple[Any, Any]:
    """Response of an MLP's overlaps to deviations of its input's: the factor on them relative to
    the factor on Δ = q − p, and half the kernel's curvature in ρ.

    The factor is κ′(ρ)(1 − ρ)/(1 − κ(ρ)), κ the kernel at unit second moment: .733 at ρ = 0 for
    relu, .852 at ½, 1 at 1 (Cho & Saul 2009). √(½ + ½ρ) is .707, .866 and 1, nowhere 4 % away, and
    stands for all units of degree 1. Units of higher degree begin flat at ρ = 0, so that their
    curvature counts: deviations of variance v Δ² add ½κ″ v (1 − ρ)² to the overlap."""
    if equals(gains.degree, 1):
        return (0.5 + 0.5 * x.rho) ** 0.5, 0.0
    rho = at_most(at_least(x.rho, STEP), 1 - STEP)
    three = np.array([rho - STEP, rho, rho + STEP])
    units = gains.units(np.full_like(three, x.q), three)
    same, overlap = gains.kernel.overlaps(*units)
    below, slope, above = gains.hidden * x.q * gains.kernel.slopes(*units)[1]
    follows = slope * (1 - rho) / np.maximum(same[1] - overlap[1], 1e-300)
    follows, bend = np.minimum(follows, 1.0), (above - below) / (4 * STEP)
    if follows.ndim == 0:  # Python's numbers are quicker
        return float(follows), float(bend)
    return follows, bend


def excess_of_power(gains: Gains, w: Any) -> Any:
    """Relative excess k(k − 1)w/2 of E |x|²ᵏ over (E |x|²)ᵏ, for an MLP of degree k and |x|² of
    relative variance w."""
    return gains.degree * (gains.degree - 1) / 2 * w


def covariance_with_power(gains: Gains, w: Any) -> Any:
    """Relative covariance kw of |x|² and |x|²ᵏ, as in `excess_of_power`; 0 for k = 1, where no
    second moment depends on it."""
    return 0.0 if equals(gains.degree, 1) else gains.degree * w


def scatter_after_attention(gains: Gains, v: Any, overlap: Any) -> Any:
    """Scatter v of the overlaps of what W_O reads, at most 1.

    W_V and then W_O read overlaps in random directions: a sample of m coordinates scatters by 1/m
    each time, and grouped heads have fewer. And two rows mix by chance: what they give to common
    keys is drawn anew in each head.

    Args:
        v: scatter of the tokens that attention reads.
        overlap: Y11, the mean overlap of two rows' weights.
    """
    return at_most(v + 1 / gains.d_model + 1 / gains.d_kv + overlap / gains.n_heads, 1.0)
