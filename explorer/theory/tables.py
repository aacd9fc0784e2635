"""Softmax statistics for rows of one length, read from `tables.npz` and averaged over the
fluctuations of finite heads.

With d_head coordinates a row's logit variance is s²·χ, χ the query's squared length over its mean
(relative variance 2/d_head), and two rows' logits correlate by the sample correlation of d_head
coordinates, not by ρ itself. Where keys lie on a sphere (QK-norm) a logit is s √d cos θ, which has
less of a tail than a normal one: `as_normal`."""

from __future__ import annotations

import math
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline, RectBivariateSpline
from scipy.special import log_ndtr, ndtr, ndtri

from explorer.profile import Array
from explorer.theory.gaussian import PATH, v_of
from explorer.theory.positions import positions
from explorer.theory.softmax import ROOT, SIZES, Row, V, X, s_of, x_of

FINE_X, FINE_R = 91, 51
"""Nodes of the piecewise linear tables that the recursions read."""
S_MAX = float(s_of(X[-1]))
NODES, WEIGHTS = np.array([-math.sqrt(3.0), 0.0, math.sqrt(3.0)]), np.array([1 / 6, 2 / 3, 1 / 6])
"""Three-point rule for averages over N(0, 1)."""
WIDEST = 10.0
SPREADS = np.linspace(0.0, float(x_of(np.array(WIDEST))), 20)
"""Nodes of the spread of logits that fall with distance, as `softmax.X`."""
DRAWS = 40_000
"""Logits of each head and node that are drawn for them."""


class Softmax:
    """Rows of `n` keys, `d_head` coordinates to a query.

    Args:
        fixed_length: of the queries.
    """

    def __init__(self, n: int, d_head: int, fixed_length: bool = False) -> None:
        self.n = n
        self._rows, self._share, self._j_share = _splines(n)
        self._chi = np.ones(1) if fixed_length else _chi(d_head)
        self._weights = np.ones(1) if fixed_length else WEIGHTS
        self._noise = NODES / math.sqrt(d_head)

    def rows(self, s: Array) -> Row:
        """Single rows, averaged over the queries' lengths."""
        raw = self._raw(self._lengths(s))
        mean = np.tensordot(self._weights, raw, 1)
        by_query = np.tensordot(self._weights * self._chi, raw[..., 3], 1)
        return Row(*np.moveaxis(np.append(mean, by_query[..., None], -1), -1, 0))

    def overlap(self, s: Array, rho: Array) -> Array:
        """Y11 of two rows alone, as in `pairs`."""
        return self._mean(self._overlaps(s, rho)[1])

    def pairs(self, s: Array, rho: Array) -> tuple[Array, Array]:
        """Y11 and J11 of two rows, averaged over their queries' lengths and sample correlation."""
        at, y11, raw = self._overlaps(s, rho)
        return self._mean(y11), self._mean(self._j_share.ev(*at) * raw[..., 3])

    def _lengths(self, s: Array) -> Array:
        """`[length, ...]`: for queries of each length."""
        return np.multiply.outer(np.sqrt(self._chi), s)

    def _raw(self, s: Array) -> Array:
        """`[..., 8]`: the rows' averages at infinite head width, as in `softmax.Row`."""
        inside = np.minimum(s, S_MAX)
        raw = self._rows(np.sqrt(x_of(inside)))
        tail = inside / np.maximum(s, 1e-300)
        tail = np.where(s > S_MAX, tail, 1.0)
        raw[..., 3:6] = np.exp(raw[..., 3:6])
        raw[..., 3:7] *= tail[..., None]
        raw[..., 0] *= math.log(self.n) * tail
        raw[..., 1:3] = 1 / self.n + (1 - 1 / self.n) * raw[..., 1:3]
        raw[..., 1:3] = 1 - (1 - raw[..., 1:3]) * tail[..., None]
        return raw

    def _overlaps(self, s: Array, rho: Array) -> tuple[tuple[Array, Array], Array, Array]:
        """Places in the tables, Y11, and the rows' averages, `[length, sample, ...]`."""
        s, rho = (
            self._lengths(s),
            np.minimum(rho + np.multiply.outer(self._noise, 1 - rho * rho), 1.0),
        )
        raw, s = self._raw(s)[:, None], s[:, None]
        inside, even = np.minimum(s, S_MAX), 1 / self.n
        at = x_of(inside), v_of(np.abs(rho), inside)
        y11 = even * (raw[..., 2] / even) ** self._share.ev(*at)
        # opposite rows avoid each other as equal ones meet: exp(−a) against exp(a)
        return at, np.where(rho < 0, even * even / y11, y11), raw

    def _mean(self, values: Array) -> Array:
        """Over the queries' lengths and the sample correlation."""
        return np.tensordot(np.outer(self._weights, WEIGHTS), values, 2)


softmax = lru_cache(maxsize=256)(Softmax)
"""The statistics for one row length and head width, kept."""


class Tables:
    """Softmax statistics for the row lengths of all positions, as piecewise linear tables read with
    arrays.

    Nodes are even in √ln(1 + s²), for the largest weight rises with s itself, and in r = √(1 − ρ):
    between them ln Y11 is right to 3e-3, J11 to 2 %; where s < 3, to 2e-3 and 1 %."""

    def __init__(self, n: int, causal: bool, d_head: int, fixed_length: bool) -> None:
        self._axis = axis = positions(n, causal)
        line = s_of(np.linspace(0, math.sqrt(float(X[-1])), FINE_X) ** 2)
        s = line[:, None] + np.zeros(FINE_R)
        rho = 1 - np.linspace(0, 1, FINE_R) ** 2 + 0 * s
        tables = [
            None if size == 1 else softmax(int(size), d_head, fixed_length) for size in axis.visible
        ]
        alone = (np.ones_like(s), np.zeros_like(s))
        pairs = np.array(
            [alone if table is None else table.pairs(s, rho) for table in tables]
        ).swapaxes(0, 1)
        pairs[0] = np.log(pairs[0])
        along = np.stack([pairs, _steps(pairs, 2)], 1)
        # [(ln Y11, J11), (value, step in √x, step in r, change of one by the other), position · √x
        # · r]
        self._pairs = np.stack([along, _steps(along, 4)], 1).reshape(2, 4, -1)
        self._first = axis.shorter * (FINE_X * FINE_R)
        only = ONE_HOT + np.zeros(FINE_X)
        rows = np.stack(
            [only if table is None else np.array(table.rows(line)) for table in tables], 1
        )
        # [(value, step), Row, position · √x]
        self._rows = np.stack([rows, _steps(rows, 2)]).reshape(2, len(ONE_HOT), -1)
        self._read = np.ascontiguousarray(self._rows[:, IN_LOOP])
        self._row = np.arange(len(axis.visible)) * FINE_X

    def lookup(self, s: Array, rho: Array) -> tuple[Array, Array, Array, Array]:
        """Averages that the forward recursion reads, of rows `[position]` of s and pairs of rows
        `[pair]` of ρ.

        Returns:
            `[pair]` (see `Positions`), Y2 of a row and Y11 of two rows over the shorter one's keys;
            then `[position]`, `spread`, `crowding` and `unevenness` as in `softmax.Row`.
        """
        at, low, x, r = self._cells(s[self._axis.first] * s[self._axis.second], rho)
        overlap, rows = (
            np.exp(_between(self._pairs[0], at, x, r)),
            self._along(self._read, low[0], x[0]),
        )
        if max(s.tolist()) > S_MAX:  # nearly one-hot: what is missing falls as 1/s
            tail, square = S_MAX / np.maximum(s, S_MAX), overlap[0]
            rows, overlap = (
                rows * tail,
                overlap * self._axis.lift((1 - (1 - square) * tail) / square),
            )
        return overlap, *rows

    def rows(self, s: Array) -> Row:
        """Single rows, `[..., position]`."""
        x = np.sqrt(np.log1p(np.fmin(np.fmax(s * s, LEAST), MOST))) * CELLS_X
        low, tail = np.floor(x), S_MAX / np.maximum(s, S_MAX)
        ends = ONE_HOT.reshape(-1, *np.ones(s.ndim, int))
        return Row(*(ends + (self._along(self._rows, low, x - low) - ends) * tail))

    def jacobian(self, s: Array, rho: Array) -> Array:
        """J11 of pairs of rows, `[..., pair]`."""
        at, _, x, r = self._cells(s.take(self._axis.first, -1) * s.take(self._axis.second, -1), rho)
        return _between(self._pairs[1], at, x, r)

    def _cells(self, square: Array, rho: Array) -> tuple[NDArray[np.intp], Array, Array, Array]:
        """Places in the tables of pairs: the cell, the node in √x below, and the place in the cell,
        in [0, 1]."""
        # where the tables end; the least for what is not a number
        square = np.fmin(np.fmax(square, LEAST), MOST)
        x, r = np.sqrt(np.log1p(square)) * CELLS_X, np.sqrt(ONE - rho) * CELLS_R
        low, k = np.floor(x), np.floor(r)
        return self._first + (low * NODES_R + k).astype(int), low, x - low, r - k

    def _along(self, table: Array, low: Array, x: Array) -> Array:
        """Linear in √x, `[value, ..., position]`."""
        value, step = table.take(self._row + low.astype(int), 2, mode="clip")
        along: Array = value + x * step
        return along


ONE_HOT = np.array([[0], [1], [1], [0], [0], [0], [0], [0], [0.0]])
"""`Row` of a row with all its weight on one key."""
IN_LOOP = [Row._fields.index(name) for name in ("spread", "crowding", "unevenness")]
ONE, NODES_R, CELLS_R = np.array(1.0), np.array(float(FINE_R)), np.array(FINE_R - 1.0)
CELLS_X = np.array((FINE_X - 1) / math.sqrt(float(X[-1])))
LEAST, MOST = np.array(0.0), np.array(S_MAX**2)
"""Arrays, for numpy takes them sooner than floats."""


def _steps(values: Array, axis: int) -> Array:
    """From each node to the next along an axis; 0 from the last."""
    steps: Array = np.diff(values, axis=axis, append=values.take([-1], axis))
    return steps


def _between(table: Array, at: NDArray[np.intp], x: Array, r: Array) -> Array:
    """Linear in √x and in r within a cell."""
    value, in_x, in_r, mixed = table.take(at, 1, mode="clip")
    between: Array = value + x * in_x + r * (in_r + x * mixed)
    return between


tables = lru_cache(maxsize=64)(Tables)
"""The tables of one sequence length and head width, cached."""


def highest(n: int) -> float:
    """About as high as n normal variables reach, in standard deviations: one row in four has one
    beyond."""
    return float(ndtri(1 - 0.25 / n))


def contrast(s: Array, top: float) -> Array:
    """ln of R = E e^2ℓ / (E e^ℓ)² over normal logits of deviation s, cut at `top`: Y2 is R/n where
    many keys share."""
    value: Array = s * s + log_ndtr(top) + log_ndtr(top - 2 * s) - 2 * log_ndtr(top - s)
    return value


def as_normal(s: float, n: int, dimensions: int, single: float = 1.0) -> float:
    """Standard deviation of the normal logits that softmax treats like n on a sphere, of standard
    deviation s.

    Args:
        dimensions: in which the keys' directions are even; 0 where their lengths vary, and logits
            are normal.
        single: Σ of the squared shares that independent parts have in s², 1 of one part. The tail
            that a logit lacks falls with it, as the excess kurtosis of a sum does.
    """
    if not dimensions or n == 1:
        return s
    return s * (1 - single * (1 - float(np.interp(min(s, S_MAX), *_on_sphere(n, dimensions)))))


@lru_cache(maxsize=1024)
def _on_sphere(n: int, dimensions: int) -> tuple[Array, Array]:
    """Standard deviation s of logits s √d cos θ, and over it that of normal logits of the same R,
    both cut.

    Cut at √(2 ln n), a little above `highest`: sampling agrees best there (7 % at seven dimensions,
    less with more)."""
    top, d = math.sqrt(2 * math.log(n)), max(dimensions, 3)
    line, cosine = s_of(np.linspace(0.01, float(X[-1]), FINE_X)), np.linspace(-1, 1, 2001)
    weight = (1 - cosine**2) ** ((d - 3) / 2)
    weight[np.cumsum(weight[::-1])[::-1] < ndtr(-top) * weight.sum()] = 0.0
    weight /= weight.sum()
    power = np.exp(line[:, None] * math.sqrt(d) * (cosine - 1))
    logs = np.log(power**2 @ weight) - 2 * np.log(power @ weight)
    return line, np.interp(logs, contrast(line, top), line) / line


def _chi(d_head: int) -> Array:
    """Nodes of χ²/d_head, the squared length of a Gaussian vector (Wilson & Hilferty 1931)."""
    spread = 2 / (9 * d_head)
    return np.maximum(1 - spread + NODES * math.sqrt(spread), 1e-3) ** 3


@cache
def _stored() -> tuple[CubicSpline, CubicSpline]:
    """The tables as splines over ln n."""
    with np.load(PATH) as file:
        rows, pairs = file["rows"].astype(float), file["pairs"].astype(float)
    log_n = np.log(SIZES)
    return CubicSpline(log_n, rows), CubicSpline(log_n, pairs)


@lru_cache(maxsize=64)
def _splines(n: int) -> tuple[CubicSpline, RectBivariateSpline, RectBivariateSpline]:
    rows, pairs = (table(math.log(n)) for table in _stored())
    return (
        CubicSpline(ROOT, rows),
        RectBivariateSpline(X, V, pairs[..., 0]),
        RectBivariateSpline(X, V, pairs[..., 1]),
    )


class Sloped:
    """Rows of n tokens whose logits fall with distance (ALiBi): their weights differ before
    anything is random.

    With A = W + δ, W the mean weights of a row, two rows' outputs overlap by Σ_ss' W_s W′_s' p_ss',
    the tokens' own part of it where s = s', and E Σ δδ′ of what the keys of a row have apart. W and
    E Σ A² are averages over rows of Gaussian logits, drawn once, `[node, head, …]`: row t is the
    first t distances of the longest one. Of two rows whose logits correlate by ρ, E Σ δδ′ is to
    lognormal weights as (e^(ρs²) − 1) / (e^(s²) − 1) is to one row's."""

    def __init__(self, n: int, slopes: tuple[float, ...], d_head: int, fixed_length: bool) -> None:
        rng, count = np.random.default_rng(n), DRAWS // n
        rows = []
        for slope in slopes:
            z = rng.standard_normal((count, n))
            z = (z - z.mean(0)) / z.std(0)
            if not fixed_length:  # queries of d_head coordinates differ in length
                z *= np.sqrt(rng.chisquare(d_head, (count, 1)) / d_head)
            rows.append([_falling(s * z - slope * np.arange(n)) for s in s_of(SPREADS)])
        self._values = np.array([[row for row, _ in head] for head in rows]).swapaxes(0, 1)
        self._weights = np.array([[mean for _, mean in head] for head in rows]).swapaxes(0, 1)
        t = np.arange(1.0, n + 1)
        self.bias: Array = np.multiply.outer(np.square(slopes), t * (t + 1) / 12)
        """`[head, position]`: what the slopes add to the variance of a row's logits, over its keys,
        but for 1 − 1/t."""

    def rows(self, s: Array) -> Array:
        """`[head, value, position]`: entropy, largest weight, Σp², its square, of logits of spread
        s, `[position]`."""
        return self._at(self._values, s)

    def weights(self, s: Array) -> Array:
        """`[head, position, key]`: mean weights."""
        return np.swapaxes(self._at(self._weights, s), -1, -2)

    @staticmethod
    def _at(table: Array, s: Array) -> Array:
        """Linear between nodes; the positions are last."""
        axis = x_of(np.minimum(s, WIDEST)) / SPREADS[1]
        low = np.minimum(axis.astype(int), len(SPREADS) - 2)
        share, position = axis - low, np.arange(len(s))
        below, above = (np.moveaxis(table[low + step, ..., position], 0, -1) for step in (0, 1))
        value: Array = below + share * (above - below)
        return value

    def apart(self, y: Array, s: Array) -> Array:
        """`[position]`: what the keys of a row have apart, of tokens `y` (`positions` has
        `[pair]`), over the heads."""
        return np.asarray(_apart(y, self.weights(s)).mean(0))

    def mix(self, y: Array, s: Array, rho: Array) -> tuple[Array, Array]:
        """`[pair]` of what rows of logits of spread s make of tokens y, and `[value, position]` of
        their averages.

        Args:
            rho: `[position, position]`, of two rows' logits.
        """
        weights, rows = self.weights(s), self.rows(s)
        share = np.multiply.outer(s, s)
        share = np.where(
            share > 1e-9, np.expm1(share * rho) / np.expm1(np.maximum(share, 1e-9)), rho
        )
        own = weights * (y[0] - y[1:].diagonal())
        same, both = own @ weights.swapaxes(1, 2), weights @ y[1:] @ weights.swapaxes(1, 2)
        even = weights @ weights.swapaxes(1, 2)
        square = np.einsum("hii->hi", even)
        chance = np.maximum(rows[:, 2] - square, 0.0) * _apart(y, weights)
        root = np.sqrt(chance / square)
        together = share * root[:, :, None] * root[:, None] * even
        out = np.empty_like(y)
        out[1:] = (both + same + together).mean(0)
        out[0] = (np.einsum("hii->hi", both + same) + chance).mean(0)
        return out, rows.mean(0)


def _apart(y: Array, weights: Array) -> Array:
    """`[head, position]`"""
    alike = ((weights @ y[1:]) * weights).sum(-1)
    apart: Array = np.maximum(weights @ y[0] - alike, 0.0)
    return apart


def _falling(logits: Array) -> tuple[Array, Array]:
    """`[value, position]` and `[key, position]`, of `[draw, distance]`: see `Sloped.rows` and
    `Sloped.weights`."""
    e = np.exp(logits - logits.max(1, keepdims=True))
    total = np.maximum(np.cumsum(e, 1), 1e-300)
    p2 = np.cumsum(e * e, 1) / total**2
    entropy = np.log(total) - np.cumsum(e * np.log(np.maximum(e, 1e-300)), 1) / total
    entropy[:, 0] = 0.0  # of one key: without the rounding
    largest = np.maximum.accumulate(e, 1) / total
    by_distance = e.T @ (1 / total) / len(e)  # [distance, position]
    t, n = np.arange(e.shape[1]), e.shape[1]
    distance = t - t[:, None]  # of key and position
    weights = np.where(distance >= 0, by_distance[np.maximum(distance, 0), t], 0.0)
    return np.array(
        [entropy.mean(0), largest.mean(0), p2.mean(0), (p2 * p2).mean(0)]
    ), weights.reshape(n, n)


sloped = lru_cache(maxsize=8)(Sloped)
"""The averages of one design, kept."""
