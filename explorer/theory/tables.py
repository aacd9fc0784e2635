"""Softmax statistics for rows of one length, read from `tables.npz` and averaged over the fluctuations of finite heads.

With d_head coordinates a row's logit variance is s²·χ, χ the query's squared length over its mean (relative variance
2/d_head), and two rows' logits correlate by the sample correlation of d_head coordinates, not by ρ itself. Where keys
lie on a sphere (QK-norm) a logit is s √d cos θ, which has less of a tail than a normal one: `as_normal`.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline, RectBivariateSpline
from scipy.special import log_ndtr, ndtr, ndtri

from explorer.theory.grids import PATH, ROOT, SIZES, Array, V, X, rho_of, s_of, v_of, x_of

FINE_X, FINE_V = 91, 81
"""Nodes of the piecewise linear table that the forward recursion reads."""
S_MAX = float(s_of(X[-1]))
NODES, WEIGHTS = np.array([-math.sqrt(3.0), 0.0, math.sqrt(3.0)]), np.array([1 / 6, 2 / 3, 1 / 6])
"""Three-point rule for averages over N(0, 1)."""


class RowValues(NamedTuple):
    """Averages of single rows, arrays over s; names as in `softmax.Row`."""

    entropy: Array
    largest: Array
    square: Array
    jacobian: Array
    spread: Array
    tilted: Array
    crowding: Array
    unevenness: Array
    jacobian_by_query: Array
    """E χJ: with the query's squared length over its mean."""


class Step(NamedTuple):
    """Values for the forward recursion: floats, names as in `softmax.Row`."""

    square: float
    overlap: float
    crowding: float
    spread: float
    unevenness: float


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
        self._last: tuple[tuple[int, ...], bytes, Array] = (), b"", np.empty(0)
        self._table, self._extra = self._forward_table()

    def rows(self, s: Array) -> RowValues:
        """Single rows, averaged over the queries' lengths."""
        raw = self._raw(self._lengths(s))
        mean = np.tensordot(self._weights, raw, 1)
        by_query = np.tensordot(self._weights * self._chi, raw[..., 3], 1)
        return RowValues(*np.moveaxis(np.append(mean, by_query[..., None], -1), -1, 0))

    def pairs(self, s: Array, rho: Array) -> tuple[Array, Array]:
        """Y11 and J11 of two rows, averaged over their queries' lengths and sample correlation."""
        at, y11, raw = self._overlaps(s, rho)
        return self._mean(y11), self._mean(self._j_share.ev(*at) * raw[..., 3])

    def forward(self, s: float, rho: float) -> Step:
        """One s and one ρ in [0, 1]: the scalar path, piecewise linear."""
        inside = min(max(s, 1e-3), S_MAX)
        x = math.log1p(inside * inside) * ((FINE_X - 1) / float(X[-1]))
        v = math.asinh(inside * math.sqrt(1 - rho)) / math.asinh(inside) * (FINE_V - 1)
        i, k = min(int(x), FINE_X - 2), min(int(v), FINE_V - 2)
        x, v = x - i, v - k
        low, high = self._table[i], self._table[i + 1]
        y2 = math.exp(low[0] + x * (high[0] - low[0]))
        a, b = low[k] + v * (low[k + 1] - low[k]), high[k] + v * (high[k + 1] - high[k])
        y11 = math.exp(a + x * (b - a))
        extra, extra_2 = self._extra[i], self._extra[i + 1]
        rest = [extra[j] + x * (extra_2[j] - extra[j]) for j in range(3)]
        if s > S_MAX:  # nearly one-hot: what is missing falls as 1/s
            tail = S_MAX / s
            y11, y2 = y11 + (1 - y2) * (1 - tail) * y11 / y2, 1 - (1 - y2) * tail
            rest = [value * tail for value in rest]
        return Step(y2, y11, *rest)

    def _lengths(self, s: Array) -> Array:
        """`[length, ...]`: for queries of each length."""
        return np.multiply.outer(np.sqrt(self._chi), s)

    def _raw(self, s: Array) -> Array:
        """`[..., 8]`: the rows' averages at infinite head width, as in `softmax.Row`; not to be written to.

        Several of one model's values are read at the same s: the last ones are kept.
        """
        *key, raw = self._last
        if key != [s.shape, s.tobytes()]:
            raw = self._looked_up(s)
            self._last = s.shape, s.tobytes(), raw
        return raw

    def _looked_up(self, s: Array) -> Array:
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
        s, rho = self._lengths(s), np.minimum(rho + np.multiply.outer(self._noise, 1 - rho * rho), 1.0)
        raw, s = self._raw(s)[:, None], s[:, None]
        inside, even = np.minimum(s, S_MAX), 1 / self.n
        at = x_of(inside), v_of(np.abs(rho), inside)
        y11 = even * (raw[..., 2] / even) ** self._share.ev(*at)
        # opposite rows avoid each other as equal ones meet: exp(−a) against exp(a)
        return at, np.where(rho < 0, even * even / y11, y11), raw

    def _mean(self, values: Array) -> Array:
        """Over the queries' lengths and the sample correlation."""
        return np.tensordot(np.outer(self._weights, WEIGHTS), values, 2)

    def _forward_table(self) -> tuple[list[list[float]], list[list[float]]]:
        """`[x, v]` of ln Y11, whose first column (ρ = 1) is Y2; and `[x, 3]` of the rest of a `Step`."""
        line = s_of(np.linspace(0, float(X[-1]), FINE_X))
        s = line[:, None]
        rho = np.clip(rho_of(np.linspace(0, 1, FINE_V) + np.zeros_like(s), s + np.zeros(FINE_V)), 0.0, 1.0)
        rows = self.rows(line)
        extra = np.stack([rows.crowding, rows.spread, rows.unevenness], -1)
        return np.log(self._mean(self._overlaps(s, rho)[1])).tolist(), extra.tolist()


@lru_cache(maxsize=256)
def softmax(n: int, d_head: int, fixed_length: bool = False) -> Softmax:
    """The statistics for one row length and head width, kept."""
    return Softmax(n, d_head, fixed_length)


def highest(n: int) -> float:
    """About as high as n normal variables reach, in standard deviations: one row in four has one beyond."""
    return float(ndtri(1 - 0.25 / n))


def contrast(s: Array, top: float) -> Array:
    """ln of R = E e^2ℓ / (E e^ℓ)² over normal logits of deviation s, cut at `top`: Y2 is R/n where many keys share."""
    value: Array = s * s + log_ndtr(top) + log_ndtr(top - 2 * s) - 2 * log_ndtr(top - s)
    return value


def as_normal(s: float, n: int, dimensions: int, single: float = 1.0) -> float:
    """Standard deviation of the normal logits that softmax treats like n on a sphere, of standard deviation s.

    Args:
        dimensions: in which the keys' directions are even; 0 where their lengths vary, and logits are normal.
        single: Σ of the squared shares that independent parts have in s², 1 of one part. The tail that a logit lacks
            falls with it, as the excess kurtosis of a sum does.
    """
    if not dimensions or n == 1:
        return s
    return s * (1 - single * (1 - float(np.interp(min(s, S_MAX), *_on_sphere(n, dimensions)))))


@lru_cache(maxsize=1024)
def _on_sphere(n: int, dimensions: int) -> tuple[Array, Array]:
    """Standard deviation s of logits s √d cos θ, and over it that of normal logits of the same R, both cut.

    Cut at √(2 ln n), a little above `highest`: sampling agrees best there (7 % at seven dimensions, less with more).
    """
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
    return CubicSpline(ROOT, rows), RectBivariateSpline(X, V, pairs[..., 0]), RectBivariateSpline(X, V, pairs[..., 1])
