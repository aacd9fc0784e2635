"""Softmax statistics for rows of one length, read from `tables.npz` and averaged over the
fluctuations of finite heads.

With d_head coordinates a row's logit variance is s²·χ, χ the query's squared length over its mean
(relative variance 2/d_head), and two rows' logits correlate by the sample correlation of d_head
coordinates, not by ρ itself. Where keys lie on a sphere (QK-norm) a logit is s √d cos θ, which has
less of a tail than a normal one: `as_normal`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline, RectBivariateSpline
from scipy.special import log_ndtr, ndtr, ndtri

from explorer.theory.gaussian import PATH, v_of
from explorer.theory.positions import Positions, positions
from explorer.theory.several import at_most
from explorer.theory.softmax import ROOT, SIZES, Row, V, X, s_of, x_of
from explorer.vocabulary import Array

FINE_X, FINE_R = 91, 51
"""Nodes of the piecewise linear tables that the recursions read."""
S_MAX = float(s_of(X[-1]))
"""Largest standard deviation of logits in the tables. Beyond it a row is nearly one-hot, and what
it lacks falls as 1/s."""
NODES, WEIGHTS = np.array([-math.sqrt(3.0), 0.0, math.sqrt(3.0)]), np.array([1 / 6, 2 / 3, 1 / 6])
"""Three-point rule for averages over N(0, 1)."""
WIDEST = 10.0
"""Largest standard deviation in the tables of logits that fall with distance."""
SPREADS = np.linspace(0.0, float(x_of(np.array(WIDEST))), 20)
"""Nodes of the spread of logits that fall with distance, as `softmax.X`."""
DRAWS = 40_000
"""Logits of each head and node that are drawn for them."""


class Softmax:
    """Softmax statistics of rows of `n` keys, averaged over the lengths of finite queries.

    Args:
        n: keys of a row.
        d_head: coordinates of a query.
        fixed_length: whether all queries have one length, as after a norm.
    """

    def __init__(self, n: int, d_head: int, fixed_length: bool = False) -> None:
        self.n = n
        self._rows, self._share, self._j_share = _splines(n)
        self._chi = np.ones(1) if fixed_length else _chi(d_head)
        """`[length]`: nodes of χ, a query's squared length over its mean."""
        self._weights = np.ones(1) if fixed_length else WEIGHTS
        """`[length]`: their weights."""
        self._noise = NODES / math.sqrt(d_head)
        """`[sample]`: nodes of the deviation of a sample correlation from ρ, over 1 − ρ²; their
        weights are `WEIGHTS`."""

    def rows(self, s: Array) -> Row:
        """Averages of single rows of logits of standard deviation s, `[...]`."""
        shift = 0.05  # of s, for a derivative
        rows, above, below = (self._rows_at(s * (1 + step)) for step in (0.0, shift, -shift))
        square = np.maximum(s, 1e-3) ** 2
        slope = (second_moment(above) - second_moment(below)) / (4 * shift * square)
        return rows._replace(by_length=covariance_with_square(rows, slope))

    def _rows_at(self, s: Array) -> Row:
        """`rows` without `by_length`."""
        raw = self._raw(self._by_length(s))
        averages = [np.tensordot(self._weights, average, 1) for average in raw[:-2]]
        by_query = np.tensordot(self._weights * self._chi, raw.jacobian, 1)
        return Row(*averages)._replace(jacobian_by_query=by_query)

    def overlap(self, s: Array, rho: Array) -> Array:
        """Y11 = E ΣAB of two rows A and B alone, as in `pairs`."""
        _, y11, _ = self._overlaps(s, rho)
        return self._mean(y11)

    def pairs(self, s: Array, rho: Array) -> tuple[Array, Array]:
        """Y11 = E ΣAB of two rows' weights A and B, and J11, the mean inner product of the rows'
        Jacobians ∂weights/∂logits: `[...]` each, averaged over the lengths of the rows' queries and
        over their sample correlation.

        Args:
            s: `[...]`, standard deviation of the logits.
            rho: `[...]`, correlation of the two rows' logits, in [−1, 1].
        """
        nodes, y11, jacobian = self._overlaps(s, rho)
        j11 = self._j_share.ev(*nodes) * jacobian  # stored is J11 / J
        return self._mean(y11), self._mean(j11)

    def _by_length(self, s: Array) -> Array:
        """Standard deviations √χ s for queries of each length: `[length, ...]`."""
        return np.multiply.outer(np.sqrt(self._chi), s)

    def _raw(self, s: Array) -> Row:
        """Averages of single rows of logits of standard deviation s, at infinite head width: a
        `Row` of arrays like s, without its last two fields.

        The stored table is over √x, x = ln(1 + s²), and ends at `S_MAX`; its transforms, see
        `softmax.stored_rows`, are inverted. Beyond its end a row is nearly one-hot, and what it
        lacks of that falls as 1/s, so by the factor `tail` = S_MAX/s; unevenness stays as it is."""
        stored = self._rows(np.sqrt(x_of(np.minimum(s, S_MAX))))  # [..., statistic]
        table = Row(*np.moveaxis(stored, -1, 0))
        tail = S_MAX / np.maximum(s, S_MAX)  # 1 within the table
        even = 1 / self.n
        return Row(
            entropy=table.entropy * (math.log(self.n) * tail),
            largest=1 - (1 - (even + (1 - even) * table.largest)) * tail,
            square=1 - (1 - (even + (1 - even) * table.square)) * tail,
            jacobian=np.exp(table.jacobian) * tail,
            spread=np.exp(table.spread) * tail,
            tilted=np.exp(table.tilted) * tail,
            crowding=table.crowding * tail,
            unevenness=table.unevenness,
        )

    def _overlaps(self, s: Array, rho: Array) -> tuple[tuple[Array, Array], Array, Array]:
        """Y11 of two rows for each length of the queries and each sample correlation of their
        logits.

        The correlation of d_head sampled coordinates scatters around ρ with the deviation (1 − ρ²)
        / √d_head. Stored is how far ln Y11 is from ln 1/n (0) to the ln Y2 of equal rows (1), see
        `softmax.stored_pairs`.

        Args:
            s: `[...]`, standard deviation of the logits, and `rho` their correlation.
        Returns:
            the variables (x, v) of the tables of pairs, `[length, 1, ...]` and `[length, sample,
            ...]`; Y11, `[length, sample, ...]`; and J of a single row, `[length, 1, ...]`.
        """
        spread = self._by_length(s)[:, None]
        sampled = np.minimum(rho + np.multiply.outer(self._noise, 1 - rho * rho), 1.0)
        inside = np.minimum(spread, S_MAX)
        nodes = x_of(inside), v_of(np.abs(sampled), inside)
        row = self._raw(spread)
        even = 1 / self.n
        y11 = even * (row.square / even) ** self._share.ev(*nodes)
        # of lognormal weights n Y11 = e^(ρs²), which at −ρ is the inverse
        return nodes, np.where(sampled < 0, even * even / y11, y11), row.jacobian

    def _mean(self, values: Array) -> Array:
        """Mean over the queries' lengths and the sample correlation, of `[length, sample, ...]`."""
        return np.tensordot(np.outer(self._weights, WEIGHTS), values, 2)


softmax = lru_cache(maxsize=256)(Softmax)
"""The statistics for one row length and head width, kept."""


class Tables:
    """Softmax statistics for the row lengths of all positions, as piecewise linear tables read with
    arrays.

    Nodes are even in √ln(1 + s²), for the largest weight rises with s itself, and in r = √(1 − ρ):
    between them ln Y11 is right to 3e-3, J11 to 2 %; where s < 3, to 2e-3 and 1 %. A table holds
    the value at a node and its steps to the next ones, so that reading is one look-up.

    `[pair]` stands for two axes, `[1 + position, position]`, as in `positions.Positions`: row 0 is
    a row with itself, the rest are two different rows."""

    def __init__(self, n: int, causal: bool, d_head: int, fixed_length: bool) -> None:
        self._axis = axis = positions(n, causal)
        s = s_of(np.linspace(0, math.sqrt(float(X[-1])), FINE_X) ** 2)
        s_pair = np.repeat(s[:, None], FINE_R, 1)
        rho = np.broadcast_to(1 - np.linspace(0, 1, FINE_R) ** 2, s_pair.shape)
        pairs, rows = [], []
        for size in axis.visible.astype(int).tolist():
            if size == 1:  # all weight is on the single key
                pairs.append((np.ones_like(s_pair), np.zeros_like(s_pair)))
                rows.append(ONE_HOT + np.zeros(FINE_X))
            else:
                table = softmax(size, d_head, fixed_length)
                pairs.append(table.pairs(s_pair, rho))
                rows.append(np.array(table.rows(s)))
        of_pairs = np.array(pairs).swapaxes(0, 1)  # [(Y11, J11), position, √x, r]
        of_pairs[0] = np.log(of_pairs[0])
        by_x = np.stack([of_pairs, _steps(of_pairs, 2)], 1)
        # [(ln Y11, J11), (value, step in √x, step in r, change of one by the other), position · √x
        # · r]
        self._pairs = np.stack([by_x, _steps(by_x, 4)], 1).reshape(2, 4, -1)
        self._first_pair = axis.shorter * (FINE_X * FINE_R)
        of_rows = np.stack(rows, 1)
        # [(value, step), Row, position · √x]
        self._rows = np.stack([of_rows, _steps(of_rows, 2)]).reshape(2, len(ONE_HOT), -1)
        self._rows_in_loop = np.ascontiguousarray(self._rows[:, IN_LOOP])
        self._first_row = np.arange(len(axis.visible)) * FINE_X

    @classmethod
    def side_by_side(cls, axis: Positions, of_designs: Sequence[Tables]) -> Tables:
        """The tables of several designs of one sequence length, as one whose arrays have a last
        axis of designs; they may differ in the head's width.

        Args:
            axis: positions of all designs.
            of_designs: a table for each design.
        """
        different = list(dict.fromkeys(of_designs))
        first = different[0]
        out = object.__new__(cls)
        out._axis = axis
        out._pairs = np.concatenate([table._pairs for table in different], -1)
        out._rows = np.concatenate([table._rows for table in different], -1)
        out._rows_in_loop = np.concatenate([table._rows_in_loop for table in different], -1)
        # where each design's own table begins, in the tables of all
        number = np.array([different.index(table) for table in of_designs])
        out._first_pair = first._first_pair[..., None] + number * first._pairs.shape[-1]
        out._first_row = first._first_row[..., None] + number * first._rows.shape[-1]
        return out

    def lookup(self, s: Array, rho: Array) -> tuple[Array, Array, Array, Array]:
        """Averages that the forward recursion reads.

        Args:
            s: `[position]`, standard deviation of a row's logits.
            rho: `[1 + position, position]`, correlation of two rows' logits.
        Returns:
            `[1 + position, position]`: in row 0 Y2 = E ΣA² of a row's weights A, below Y11 = E ΣAB
            of two rows over the shorter one's keys. Then, `[position]` each, `spread`, `crowding`
            and `unevenness` as in `softmax.Row`.
        """
        axis = self._axis
        cell, low, x, r = self._cells(axis.product(s), rho)
        overlap = np.exp(_between(self._pairs[0], cell, x, r))  # the table has ln Y11
        rows = self._along(self._rows_in_loop, low[0], x[0])
        # beyond the table: what is missing to one-hot falls as 1/s
        if s.ndim > 1 or max(s.tolist()) > S_MAX:
            tail, square = S_MAX / np.maximum(s, S_MAX), overlap[0]
            rows = rows * tail
            overlap = overlap * axis.lift((1 - (1 - square) * tail) / square)
        return overlap, *rows

    def rows(self, s: Array) -> Row:
        """Averages of single rows of logits of standard deviation s, `[..., position]`; beyond the
        table what a row lacks of one-hot falls as 1/s."""
        inside = np.fmin(np.fmax(s * s, LEAST), MOST)
        x = np.sqrt(np.log1p(inside)) * CELLS_X
        low = np.floor(x)
        tail = S_MAX / np.maximum(s, S_MAX)
        one_hot = ONE_HOT.reshape(-1, *np.ones(s.ndim, int))
        rows = self._along(self._rows, low, x - low)
        return Row(*(one_hot + (rows - one_hot) * tail))

    def jacobian(self, s: Array, rho: Array) -> Array:
        """J11 of two rows, the mean inner product of their Jacobians ∂weights/∂logits: `[layer, 1
        + position, position]`.

        Args:
            s: `[layer, position]`, standard deviation of a row's logits. Two rows that differ in
                it are read at the geometric mean of the two.
            rho: `[layer, 1 + position, position]`, correlation of two rows' logits.
        """
        cell, _, x, r = self._cells(self._axis.product(s), rho)
        return _between(self._pairs[1], cell, x, r)

    def _cells(self, square: Array, rho: Array) -> tuple[NDArray[np.intp], Array, Array, Array]:
        """Where two rows stand in the tables of pairs, whose nodes are even in √x = √ln(1 + s²) and
        in r = √(1 − ρ): `[..., 1 + position, position]` each.

        Args:
            square: s², the product of two rows' standard deviations.
            rho: correlation of their logits.
        Returns:
            index of the cell; the node in √x below it; and how far within the cell, from 0 to 1, in
            √x and in r.
        """
        # where the tables end; the least for what is not a number
        square = np.fmin(np.fmax(square, LEAST), MOST)
        # in units of the step between nodes
        x, r = np.sqrt(np.log1p(square)) * CELLS_X, np.sqrt(ONE - rho) * CELLS_R
        low_x, low_r = np.floor(x), np.floor(r)
        cell = self._first_pair + (low_x * NODES_R + low_r).astype(int)
        return cell, low_x, x - low_x, r - low_r

    def _along(self, table: Array, low: Array, x: Array) -> Array:
        """Values of a table of rows, linear in √x: `[statistic, ..., position]`.

        Args:
            table: `[(value, step to the next node), statistic, position · √x]`.
            low: `[..., position]`, the node below, and `x` the place between it and the next.
        """
        value, step = table.take(self._first_row + low.astype(int), 2, mode="clip")
        along: Array = value + x * step
        return along


ONE_HOT = np.array([[0], [1], [1], [0], [0], [0], [0], [0], [0], [-0.3]])
"""`[Row, 1]`: averages of a row with all its weight on one key."""


def second_moment(rows: Row) -> Array:
    """E S² of S = ΣA², a row's weights squared."""
    return np.asarray(rows.square**2 * (1 + rows.unevenness))


def covariance_with_square(rows: Row, slope: Array) -> Array:
    """κ = E [S J + K] / (E S E J) − 1 of rows of weights A, with S = ΣA².

    The energy of the gradient by a row's logits is J = Σ_s A_s² Var (u_s − ū) over independent u.
    Of a gradient that has lost its part along the row's output, u lacks a part along A, and J lacks
    K / S, with K = Σ_s A_s² (A_s − S)². By Gaussian integration by parts

        d E S² / d s² = ½ E Σ_s ∂² S² / ∂ℓ_s²,  so  E [S J + K] = ¼ d E S² / d s² + ½ E [S² − S³].

    For E S³, S is taken to have a beta distribution. Over rows of 8 to 64 keys κ is .07 too large
    at most, of 256 keys .13.

    Args:
        slope: d E S² / d s².
    """
    square, second = rows.square, second_moment(rows)
    variance, room = second - square**2, square * (1 - square)
    # E S³ / E S² of a beta distribution is (α + 2) / (α + β + 2)
    third = second * (square * (room - variance) + 2 * variance) / (room + variance)
    together = slope / 4 + (second - third) / 2
    return np.asarray(together / (rows.jacobian * square) - 1)


IN_LOOP = [Row._fields.index(name) for name in ("spread", "crowding", "unevenness")]
"""Statistics of rows that `Tables.lookup` reads."""
# arrays, for numpy takes them sooner than floats
ONE, NODES_R, CELLS_R = np.array(1.0), np.array(float(FINE_R)), np.array(FINE_R - 1.0)
CELLS_X = np.array((FINE_X - 1) / math.sqrt(float(X[-1])))
LEAST, MOST = np.array(0.0), np.array(S_MAX**2)
"""Ends of the tables in s²."""


def _steps(values: Array, axis: int) -> Array:
    """From each node to the next along an axis; 0 from the last."""
    steps: Array = np.diff(values, axis=axis, append=values.take([-1], axis))
    return steps


def _between(table: Array, cell: NDArray[np.intp], x: Array, r: Array) -> Array:
    """Values of a table of pairs, linear in √x and in r within a cell.

    Args:
        table: `[4, cell]`: the value at a cell's first node, its step in √x, its step in r, and the
            change of one step by the other.
        cell, x, r: as from `Tables._cells`.
    """
    value, in_x, in_r, mixed = table.take(cell, 1, mode="clip")
    between: Array = value + x * in_x + r * (in_r + x * mixed)
    return between


tables = lru_cache(maxsize=64)(Tables)
"""The tables of one sequence length and head width, cached."""


def highest(n: int) -> float:
    """Height in standard deviations that n normal variables reach: one row in four has one beyond
    it."""
    return float(ndtri(1 - 0.25 / n))


def contrast(s: Array, top: float) -> Array:
    """ln of R = E e^2ℓ / (E e^ℓ)² over normal logits of deviation s, cut at `top`: Y2 is R/n where
    many keys share."""
    value: Array = s * s + log_ndtr(top) + log_ndtr(top - 2 * s) - 2 * log_ndtr(top - s)
    return value


def as_normal(s: Any, n: int, dimensions: int, concentration: Any = 1.0) -> Any:
    """Standard deviation of the normal logits that softmax treats like n logits s √d cos θ of keys
    on a sphere.

    Args:
        s: standard deviation of the logits, a number or `[design]`.
        dimensions: d, in which the keys' directions are even; 0 where their lengths vary, and
            logits are normal.
        concentration: Σ of the squared shares that independent parts have in s², 1 of one part. The
            tail that a logit lacks falls with it, as the excess kurtosis of a sum does.
    """
    if not dimensions or n == 1:
        return s
    ratio = np.interp(at_most(s, S_MAX), *_on_sphere(n, dimensions))
    return s * (1 - concentration * (1 - ratio))


@lru_cache(maxsize=1024)
def _on_sphere(n: int, dimensions: int) -> tuple[Array, Array]:
    """Nodes of the standard deviation s of logits s √d cos θ, and over it that of normal logits of
    the same R (see `contrast`), both cut.

    They are cut at √(2 ln n), a little above `highest`: sampling agrees best there (7 % at seven
    dimensions, less with more)."""
    top, d = math.sqrt(2 * math.log(n)), max(dimensions, 3)
    s, cosine = s_of(np.linspace(0.01, float(X[-1]), FINE_X)), np.linspace(-1, 1, 2001)
    density = (1 - cosine**2) ** ((d - 3) / 2)
    beyond = np.cumsum(density[::-1])[::-1]  # probability of a larger cosine
    density[beyond < ndtr(-top) * density.sum()] = 0.0
    density /= density.sum()
    power = np.exp(s[:, None] * math.sqrt(d) * (cosine - 1))  # e^logit, but for a factor
    log_ratio = np.log(power**2 @ density) - 2 * np.log(power @ density)
    return s, np.interp(log_ratio, contrast(s, top), s) / s


def _chi(d_head: int) -> Array:
    """Nodes of χ²/d_head, the squared length of a Gaussian vector (Wilson & Hilferty 1931)."""
    spread = 2 / (9 * d_head)
    return np.maximum(1 - spread + NODES * math.sqrt(spread), 1e-3) ** 3


@cache
def _stored() -> tuple[CubicSpline, CubicSpline]:
    """The stored tables of rows and of pairs as splines over ln n, cached."""
    with np.load(PATH) as file:
        rows, pairs = file["rows"].astype(float), file["pairs"].astype(float)
    log_n = np.log(SIZES)
    return CubicSpline(log_n, rows), CubicSpline(log_n, pairs)


@lru_cache(maxsize=64)
def _splines(n: int) -> tuple[CubicSpline, RectBivariateSpline, RectBivariateSpline]:
    """The stored tables at n keys, cached: of rows over √x, of Y11 and of J11 over (x, v)."""
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
    the tokens' own part of it where s = s', and E Σ δδ′ of what the keys of a row do not share. W
    and E Σ A² are averages over rows of Gaussian logits, drawn once: row t is the first t distances
    of the longest one. Of two rows whose logits correlate by ρ, E Σ δδ′ is to lognormal weights as
    (e^(ρs²) − 1) / (e^(s²) − 1) is to one row's.

    Args:
        n: tokens of a sequence.
        slopes: of each head, in logits a token.
        d_head: coordinates of a query.
        fixed_length: whether all queries have one length.
    """

    def __init__(self, n: int, slopes: tuple[float, ...], d_head: int, fixed_length: bool) -> None:
        rng, count = np.random.default_rng(n), DRAWS // n
        distance, t = np.arange(n), np.arange(1.0, n + 1)
        values, weights = [], []
        for slope in slopes:
            z = rng.standard_normal((count, n))
            z = (z - z.mean(0)) / z.std(0)
            if not fixed_length:  # queries of d_head coordinates differ in length
                z *= np.sqrt(rng.chisquare(d_head, (count, 1)) / d_head)
            rows = [_falling(s * z - slope * distance) for s in s_of(SPREADS)]
            values.append([row for row, _ in rows])
            weights.append([mean for _, mean in rows])
        # [node, head, …]
        self._values = np.array(values).swapaxes(0, 1)
        self._weights = np.array(weights).swapaxes(0, 1)
        self.bias: Array = np.multiply.outer(np.square(slopes), t * (t + 1) / 12)
        """`[head, position]`: what the slopes add to the variance of a row's logits, over its keys,
        but for 1 − 1/t."""

    def rows(self, s: Array) -> Array:
        """Averages of rows of logits of spread s, `[position]`: `[head, value, position]`, where
        the values are the entropy, the largest weight, ΣA² and (ΣA²)²."""
        return self._at(self._values, s)

    def weights(self, s: Array) -> Array:
        """Mean weights W of rows of logits of spread s, `[position]`: `[head, position, key]`."""
        return np.swapaxes(self._at(self._weights, s), -1, -2)

    @staticmethod
    def _at(table: Array, s: Array) -> Array:
        """A table `[node, …, position]` read at s, `[position]`, linear between its nodes."""
        node = x_of(np.minimum(s, WIDEST)) / SPREADS[1]
        low = np.minimum(node.astype(int), len(SPREADS) - 2)
        share, position = node - low, np.arange(len(s))
        below, above = (np.moveaxis(table[low + step, ..., position], 0, -1) for step in (0, 1))
        value: Array = below + share * (above - below)
        return value

    def apart(self, y: Array, s: Array) -> Array:
        """Part Δ of the keys of a row that they do not share, `[position]`, mean over heads.

        Args:
            y: `[1 + position, position]`, the tokens: second moments q in row 0, overlaps p below.
            s: `[position]`, the spread of the logits.
        """
        return np.asarray(_apart(y, self.weights(s)).mean(0))

    def mix(self, y: Array, s: Array, rho: Array) -> tuple[Array, Array]:
        """Second moments and overlaps of what rows of attention mix of tokens, mean over heads.

        Args:
            y: `[1 + position, position]`, the tokens: second moments in row 0, overlaps below.
            s: `[position]`, spread of a row's logits.
            rho: `[position, position]`, correlation of two rows' logits.
        Returns:
            what they mix, like y; and the averages `[value, position]` of `rows`.
        """
        weights, rows = self.weights(s), self.rows(s)
        transposed = weights.swapaxes(1, 2)
        # of two rows' Σδδ′ over one row's: (e^(ρs²) − 1) / (e^(s²) − 1), and ρ for s near 0
        product = np.multiply.outer(s, s)
        share = np.expm1(product * rho) / np.expm1(np.maximum(product, 1e-9))
        share = np.where(product > 1e-9, share, rho)
        by_mean = weights @ y[1:] @ transposed
        by_same_key = (weights * (y[0] - y[1:].diagonal())) @ transposed
        product_of_means = weights @ transposed  # ΣWW′
        square = np.einsum("hii->hi", product_of_means)
        chance = np.maximum(rows[:, 2] - square, 0.0) * _apart(y, weights)  # E Σδ² Δ of one row
        root = np.sqrt(chance / square)
        by_chance = share * root[:, :, None] * root[:, None] * product_of_means
        out, means = np.empty_like(y), by_mean + by_same_key
        out[1:] = (means + by_chance).mean(0)
        out[0] = (np.einsum("hii->hi", means) + chance).mean(0)
        return out, rows.mean(0)


def _apart(y: Array, weights: Array) -> Array:
    """Σ_s W_s q_s − Σ_ss' W_s W_s' p_ss', what the keys of a row do not share: `[head, position]`.

    Args:
        y: `[1 + position, position]`, the tokens: second moments q in row 0, overlaps p below.
        weights: `[head, position, key]`, the mean weights W.
    """
    shared = ((weights @ y[1:]) * weights).sum(-1)
    apart: Array = np.maximum(weights @ y[0] - shared, 0.0)
    return apart


def _falling(logits: Array) -> tuple[Array, Array]:
    """Averages over draws of the softmax rows of logits that fall with distance, for all lengths of
    a row at once: row t is the first t distances of the longest one, so its sums are cumulative.

    Args:
        logits: `[draw, distance]`, of the last query with the key at each distance.
    Returns:
        `[value, position]`: entropy, largest weight, ΣA² and (ΣA²)² of a row's weights A; and the
        mean weights W, `[key position, row position]`, 0 for keys that a row does not see.
    """
    e = np.exp(logits - logits.max(1, keepdims=True))
    total = np.maximum(np.cumsum(e, 1), 1e-300)
    square = np.cumsum(e * e, 1) / total**2
    entropy = np.log(total) - np.cumsum(e * np.log(np.maximum(e, 1e-300)), 1) / total
    entropy[:, 0] = 0.0  # of one key: without the rounding
    largest = np.maximum.accumulate(e, 1) / total
    by_draw = entropy, largest, square, square * square
    values = np.array([value.mean(0) for value in by_draw])
    by_distance = e.T @ (1 / total) / len(e)  # [distance, row position]
    position = np.arange(e.shape[1])
    distance = position - position[:, None]  # [key position, row position]
    visible = by_distance[np.maximum(distance, 0), position]
    return values, np.where(distance >= 0, visible, 0.0)


sloped = lru_cache(maxsize=8)(Sloped)
"""The averages of one design, cached."""
