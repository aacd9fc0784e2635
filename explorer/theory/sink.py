"""Attention with a sink: one more logit in each row, of a key without a value, whose weight p₀
leaves the row.

With A the weights of the keys and M = ΣA = 1 − p₀, a row gives its value path p̂ M² + Δ ΣA² instead
of p̂ + Δ ΣA². The logits' common part m ~ N(0, common), which a softmax forgets, now counts. As in
`softmax`, averages over n keys are integrals over ln t of one-key averages; the sink is one more
factor, that of a key whose logit is its own less m: exact for single rows, whose tables are made
when a sink is first asked for. For two rows M and p₀M are taken as linear in what correlates their
logits: exact at ρ = 0 and 1."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from explorer.profile import Array
from explorer.theory.softmax import REACH, Row, X, s_of, x_of

STEP = 0.5
"""Step of the integrals over ln t, see `softmax.STEP`; averages are exact to 1e-8."""
NODES = s_of(X)
TINY = 1e-60


Lift = Callable[[Array], Array]
"""Geometric mean of a number over two rows."""


class Sunk(NamedTuple):
    """Averages of single rows with a sink, by row length; M is the weight of the keys, p₀ = 1 − M
    the sink's."""

    mass: Array
    """E M."""
    square: Array
    """E M²."""
    focus: Array
    """E ΣA² with a sink, over E M² times E ΣA² without one."""
    jacobian: Array
    """J with a sink − E M² · J without one, J = E[ΣA² − 2ΣA³ + (ΣA²)²]: gradient² by logits of the
    values' own part."""
    spread: Array
    """E (M − ΣA²)² with a sink, less E (1 − ΣA²)² without one."""
    crowding: Array
    """`softmax.Row.crowding` with a sink, less the same without one."""
    own: Array
    """E p₀² ΣA²."""
    shared: Array
    """E p₀² M²."""

    def together(self, rho: Array, lift: Lift) -> Array:
        """E M M′ of two rows whose logits correlate by ρ."""
        mean = self.mass**2
        return lift(mean) + rho * lift(np.maximum(self.square - mean, 0.0))

    def away(self, rho: Array, lift: Lift) -> Array:
        """E p₀ M p₀′ M′ of two rows."""
        mean = (self.mass - self.square) ** 2  # of E p₀ M
        return lift(mean) + rho * lift(np.maximum(self.shared - mean, 0.0))


def drain(rows: Row, lost: Sunk) -> Row:
    """Averages of single rows that lose weight to a sink; the gradient by logits is that of the
    values' own part."""
    return rows._replace(
        largest=rows.largest * lost.mass,
        square=rows.square * lost.square * lost.focus,
        jacobian=rows.jacobian * lost.square + lost.jacobian,
        spread=np.maximum(rows.spread + lost.spread, 0.0),
        tilted=rows.tilted * lost.square,
        crowding=rows.crowding + lost.crowding,
        jacobian_by_query=rows.jacobian_by_query * lost.square + lost.jacobian,
    )


def shared(
    lost: Sunk, rows: Row, overlap: Array, jacobian: Array, rho: Array, common: Array, lift: Lift
) -> tuple[Array, Array, Array, Array, Array]:
    """Averages of pairs of rows with a sink, and the gradient by the logits of what their values
    share, which does not cancel.

    Args:
        rows: averages of single rows, after `drain`.
        overlap: E ΣAA′ of two rows.
        jacobian: mean inner product of two rows' Jacobians, E ΣAA′(1 − A − A′ + ΣAA′), without a
            sink.
        rho: the correlation of two rows' logits.
        common: the shared part of the values over their own.
    Returns:
        E M M′; energy of the gradient by a row's logits from the shared part of the values, over
        that of their own part; `jacobian` with a sink, the shared part included; the square of the
        sum over a row's keys over a row's energy, which is 0 where the gradients cancel, see
        `logits.Logits.keys`, and above 1 where most keys' have one sign; and E p₀ p₀′ o·o′ of two
        rows' outputs o over E o·o′, for the gradient by the sink's logit.
    """
    together, away = lost.together(rho, lift), lost.away(rho, lift)
    row = common * lost.own
    own = overlap * away / together
    focused = (overlap / (together * lift(rows.square / lost.square))) ** 2
    apart = (
        jacobian * together + lift(np.maximum(lost.jacobian, 0.0) / lost.shared) * focused * away
    )
    summed = (lost.own + common * lost.shared) / np.maximum(rows.jacobian + row, 1e-300)
    return together, row, apart + lift(common) * own, summed, away / together


class Sinks:
    """Rows of some lengths with a sink, `[length]`.

    Args:
        sizes: the lengths.
        logit: the sink's.
    """

    def __init__(self, sizes: tuple[int, ...], logit: float) -> None:
        keys, sink = _one_key(0.0), _one_key(logit)
        # [statistic, length, s, common]
        self._table = np.stack([_rows(n, keys, sink) for n in sizes], 1)
        self._at = np.arange(len(sizes))

    def lookup(self, s: Array, common: Array) -> Sunk:
        """Rows `[..., length]` of logits of standard deviation s, whose common part has the
        variance `common`."""
        step = X[1] - X[0]
        (i, along), (k, across) = (
            _cubic(np.clip(x_of(np.nan_to_num(deviation)) / step, 0, len(X) - 1))
            for deviation in (s, np.sqrt(common))
        )
        at = self._table[:, self._at, i[:, None], k]  # [statistic, node, node, ...]
        return Sunk(*np.einsum("i...,k...,sik...->s...", along, across, at))


def _cubic(x: Array) -> tuple[NDArray[np.intp], Array]:
    """The four nodes around each place, `[node, ...]`, and the weights of the cubic through
    them."""
    low = np.clip(x.astype(int), 1, len(X) - 3)
    u = x - low
    a, b, c, d = u + 1, u, u - 1, u - 2
    return (
        np.stack([low - 1, low, low + 1, low + 2]),
        np.stack([-b * c * d / 6, a * c * d / 2, -a * b * d / 2, a * b * c / 6]),
    )


sinks = lru_cache(maxsize=32)(Sinks)
"""The tables of some row lengths, cached."""


@lru_cache(maxsize=4)
def _one_key(logit: float) -> Array:
    """`[k, s, ln t]`: E xᵏ e⁻ˣ over one key, x = exp(ln t + logit + s z)."""
    reach = REACH * float(NODES[-1])
    t = np.arange(-reach - 26, reach + 5, STEP) + logit
    out = np.zeros((5, len(NODES), len(t)))
    out[0] = t < 0
    for row, s in enumerate(NODES):
        z = np.arange(-REACH, REACH, min(0.5, 0.8 / max(s, 1e-9)))
        weight = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
        inside = (t > -REACH * s - 26) & (t < REACH * s + 5)
        x = np.exp(np.minimum(t[inside, None] + s * z, 50.0))
        y = np.exp(-x)
        for k in range(5):
            out[k, row, inside] = _whole(y @ weight)
            y *= x
    return out


def _whole(x: Array) -> Array:
    """Sets tiny numbers to 0, in place: products of subnormal numbers are slow."""
    x[x < TINY] = 0.0
    return x


def _rows(n: int, keys: Array, sink: Array) -> Array:
    """`[statistic, s, common]` of rows of n keys, in the order of `Sunk`."""
    log_m = np.log(np.maximum(keys[0], 1e-300))
    rest = [_whole(np.exp((n - k) * log_m) * STEP) for k in range(3)]

    def mean(keys: Array, power: int) -> Array:
        """Integral over ln t of `keys` times the sink's E xᵏ e⁻ˣ, k = `power`: an average with
        p₀ᵏ."""
        average: Array = keys @ sink[power].T
        return average

    p2, p3, p4 = (n * keys[k] * rest[1] / factor for k, factor in ((2, 1), (3, 2), (4, 6)))
    pairs = n * (n - 1) * keys[2] ** 2 * rest[2] / 6
    own = mean(p2, 2) / 6
    away = [mean(rest[0], k) / factor for k, factor in ((1, 1), (2, 1), (3, 2), (4, 6))]
    sums = np.array(
        [[mean(part, 0), part.sum(1, keepdims=True) + 0 * away[0]] for part in (p2, p3, p4, pairs)]
    )
    # with a sink and without: E M², E p₀ ΣA²
    square = np.array([1 - 2 * away[0] + away[1], np.ones_like(away[0])])
    lost = np.array([mean(p2, 1) / 2, np.zeros_like(away[0])])
    p2, p3, p4, pairs = sums
    jacobian = p2 - 2 * p3 + p4 + pairs
    spread = square - 2 * (p2 - lost) + p4 + pairs
    crowding = square - p2 - 4 * (p2 - lost - p3) + 6 * pairs
    return np.stack(
        [
            1 - away[0],
            square[0],
            p2[0] / np.maximum(square[0] * p2[1], 1e-300),
            jacobian[0] - square[0] * jacobian[1],
            spread[0] - spread[1],
            crowding[0] - crowding[1],
            own,
            away[1] - 2 * away[2] + away[3],
        ]
    )
