"""Attention with a sink: one more logit in each row, of a key without a value, whose weight p₀
leaves the row.

With A the weights of the keys and M = ΣA = 1 − p₀, a row gives its value path p̂ M² + Δ ΣA² instead
of p̂ + Δ ΣA². The logits' common part m ~ N(0, common), which a softmax forgets, now counts.

As in `softmax`, averages over n keys are integrals over ln t of one-key averages. The sink is one
more factor, that of a key whose logit is its own less m. This is exact for single rows, whose
tables are made when a sink is first asked for. For two rows M and p₀M are taken as linear in what
correlates their logits, which is exact at ρ = 0 and 1."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from explorer.theory.gaussian import normal_weights
from explorer.theory.softmax import REACH, Row, X, s_of, x_of
from explorer.vocabulary import Array

STEP = 0.5
"""Step of the integrals over ln t, see `softmax.STEP`; averages are exact to 1e-8."""
NODES = s_of(X)
"""Nodes of the tables: standard deviations over a row's keys, and of the logits' common part."""
TINY = 1e-60
"""Integrands below this are set to 0."""
LEAST = 1e-300
"""Least divisor, so that 0/0 is 0."""


Lift = Callable[[Array], Array]
"""Geometric mean of a number over two rows, such as `Positions.lift`."""


class Sunk(NamedTuple):
    """Averages of single rows with a sink, each `[row position]` or `[layer, row position]`.

    A are the weights of the row's keys, M = ΣA their sum, and p₀ = 1 − M the sink's weight."""

    mass: Array
    """E M."""
    square: Array
    """E M²."""
    focus: Array
    """E ΣA² with a sink, over E M² times E ΣA² without one."""
    jacobian: Array
    """J with a sink − E M² · J without one, where J = E[ΣA² − 2ΣA³ + (ΣA²)²] is the squared
    gradient by the logits, of the part of the values that a row's keys do not share."""
    spread: Array
    """E (M − ΣA²)² with a sink, less E (1 − ΣA²)² without one."""
    crowding: Array
    """`softmax.Row.crowding` with a sink, less the same without one."""
    own: Array
    """E p₀² ΣA²."""
    shared: Array
    """E p₀² M²."""

    def together(self, rho: Array, lift: Lift) -> Array:
        """E M M′ of two rows whose logits correlate by ρ: (E M)² + ρ Var M."""
        mean_square = self.mass**2
        variance = np.maximum(self.square - mean_square, 0.0)
        return lift(mean_square) + rho * lift(variance)

    def away(self, rho: Array, lift: Lift) -> Array:
        """E p₀M p₀′M′ of two rows whose logits correlate by ρ: (E p₀M)² + ρ Var p₀M."""
        mean_square = (self.mass - self.square) ** 2  # p₀M = M − M²
        variance = np.maximum(self.shared - mean_square, 0.0)
        return lift(mean_square) + rho * lift(variance)


def drain(rows: Row, lost: Sunk) -> Row:
    """Averages of single rows that lose weight to a sink.

    Args:
        rows: averages without the sink.
        lost: `Sunk` of the same rows.
    """
    return rows._replace(
        largest=rows.largest * lost.mass,
        square=rows.square * lost.square * lost.focus,
        jacobian=rows.jacobian * lost.square + lost.jacobian,
        spread=np.maximum(rows.spread + lost.spread, 0.0),
        tilted=rows.tilted * lost.square,
        crowding=rows.crowding + lost.crowding,
        jacobian_by_query=rows.jacobian_by_query * lost.square + lost.jacobian,
    )


class Shared(NamedTuple):
    """Averages of pairs of rows with a sink; see `shared`."""

    together: Array
    """`[layer, position, position]`: E M M′ of two rows."""
    energy: Array
    """`[layer, position]`: energy of the gradient by a row's logits from the shared part of the
    values, over that from their own part."""
    jacobian: Array
    """`[layer, position, position]`: mean inner product of two rows' Jacobians with the sink, the
    shared part of the values included."""
    summed: Array
    """`[layer, position]`: squared sum of the gradient over a row's keys, over its energy. It is 0
    without a sink, where the gradients cancel (see `logits.Logits.cancels`), and above 1 where most
    keys' gradients have one sign."""
    of_sink: Array
    """`[layer, position, position]`: E p₀ p₀′ o·o′ over E o·o′ of two rows' outputs o, for the
    gradient by the sink's logit."""


def shared(
    lost: Sunk, rows: Row, overlap: Array, jacobian: Array, rho: Array, common: Array, lift: Lift
) -> Shared:
    """The gradient by the logits of the part that all values share, which cancels without a sink.

    Per layer: numbers of a row are `[layer, position]`, of two rows `[layer, position, position]`.

    Args:
        rows: averages of single rows, after `drain`.
        overlap: E ΣAA′ of two rows.
        jacobian: mean inner product of two rows' Jacobians, E ΣAA′(1 − A − A′ + ΣAA′), without a
            sink.
        rho: the correlation of two rows' logits.
        common: p̂/Δ, the part of the values that a row's keys share over the part that they do not.
        lift: from a number of a row to one of two rows.
    """
    together, away = lost.together(rho, lift), lost.away(rho, lift)
    energy = common * lost.own
    # two rows' ΣAA′ over E M M′, relative to single rows' ΣA² over E M²
    focused = (overlap / (together * lift(rows.square / lost.square))) ** 2
    beyond = lift(np.maximum(lost.jacobian, 0.0) / lost.shared) * focused * away
    of_shared = lift(common) * (overlap * away / together)
    summed = (lost.own + common * lost.shared) / np.maximum(rows.jacobian + energy, LEAST)
    return Shared(
        together, energy, jacobian * together + beyond + of_shared, summed, away / together
    )


class Sinks:
    """Tables of rows of some lengths with a sink, over the spread of the logits and of their common
    part.

    Args:
        sizes: numbers of keys of the rows.
        logit: the sink's logit.
    """

    def __init__(self, sizes: tuple[int, ...], logit: float) -> None:
        keys, sink = _one_key(0.0), _one_key(logit)
        # [statistic, length, s, common]
        self._table = np.stack([_rows(n, keys, sink) for n in sizes], 1)
        self._length = np.arange(len(sizes))

    def lookup(self, s: Array, common: Array) -> Sunk:
        """Averages of the rows, cubic between the tables' nodes.

        Args:
            s: `[..., length]`, standard deviation of a row's logits over its keys.
            common: `[..., length]`, variance of the part that all logits of a row share.
        """
        i, weight_i = _cubic(s)
        k, weight_k = _cubic(np.sqrt(common))
        at = self._table[:, self._length, i[:, None], k]  # [statistic, node i, node k, ...]
        return Sunk(*np.einsum("i...,k...,sik...->s...", weight_i, weight_k, at))


def _cubic(s: Array) -> tuple[NDArray[np.intp], Array]:
    """The four nodes around a standard deviation, and the weights of the cubic through them, each
    `[node, ...]`."""
    x = np.clip(x_of(np.nan_to_num(s)) / (X[1] - X[0]), 0, len(X) - 1)  # in steps of the nodes
    second = np.clip(x.astype(int), 1, len(X) - 3)
    # distances to the four nodes: Lagrange's polynomials
    b = x - second
    a, c, d = b + 1, b - 1, b - 2
    return (
        np.stack([second - 1, second, second + 1, second + 2]),
        np.stack([-b * c * d / 6, a * c * d / 2, -a * b * d / 2, a * b * c / 6]),
    )


sinks = lru_cache(maxsize=32)(Sinks)
"""The tables of some row lengths, cached."""


@lru_cache(maxsize=4)
def _one_key(logit: float) -> Array:
    """E xᵏ e⁻ˣ over one key, x = t e^(logit + s z) with z ~ N(0, 1): `[k, s, ln t]`, k = 0 … 4."""
    reach = REACH * float(NODES[-1])
    log_t = np.arange(-reach - 26, reach + 5, STEP) + logit
    out = np.zeros((5, len(NODES), len(log_t)))
    out[0] = log_t < 0  # far below x is 0, far above e⁻ˣ is
    for row, s in enumerate(NODES):
        z = np.arange(-REACH, REACH, min(0.5, 0.8 / max(s, 1e-9)))
        weight = normal_weights(z)
        inside = (log_t > -REACH * s - 26) & (log_t < REACH * s + 5)
        x = np.exp(np.minimum(log_t[inside, None] + s * z, 50.0))
        integrand = np.exp(-x)
        for k in range(5):
            out[k, row, inside] = _without_tiny(integrand @ weight)
            integrand *= x
    return out


def _without_tiny(x: Array) -> Array:
    """Sets numbers below `TINY` to 0, in place: products of subnormal numbers are slow."""
    x[x < TINY] = 0.0
    return x


def _rows(n: int, keys: Array, sink: Array) -> Array:
    """The table of rows of n keys, `[statistic, s, common]`, with the statistics of `Sunk`, over
    the logits' standard deviation s and that of their common part.

    With x a key's t e^logit and Z the sum of all, ΣA² = Σ x²/Z², and 1/Zᵏ = ∫ tᵏ e^(−tZ) d ln t /
    (k − 1)!. So an average is an integral over ln t of one-key averages E xᵏ e⁻ˣ: a key that stands
    in the sum gives its power, the n − 1 others give k = 0, and p₀ᵏ gives the sink's power k.

    Args:
        keys: `_one_key` of a key's logit, and `sink` of the sink's.
    """
    log_m = np.log(np.maximum(keys[0], LEAST))
    # [k, s, ln t]: the other keys, where k of them stand in the sum
    rest = [_without_tiny(np.exp((n - k) * log_m) * STEP) for k in range(3)]

    def integral(integrand: Array, power: int) -> Array:
        """E of `integrand` times p₀ to a power but for its factorial, `[s, common]`."""
        return np.asarray(integrand @ sink[power].T)

    # integrands of ΣA², ΣA³, ΣA⁴ and Σ_{i≠j} A_i² A_j², over (k − 1)! for 1/Zᵏ: 1, 2, 6, 6
    in_2, in_3, in_4 = (n * keys[k] * rest[1] / factor for k, factor in ((2, 1), (3, 2), (4, 6)))
    in_pairs = n * (n - 1) * keys[2] ** 2 * rest[2] / 6
    own = integral(in_2, 2) / 6  # E p₀² ΣA²
    # E p₀, E p₀², E p₀³, E p₀⁴, likewise
    p0, p0_2, p0_3, p0_4 = (
        integral(rest[0], k) / factor for k, factor in ((1, 1), (2, 1), (3, 2), (4, 6))
    )
    none = np.zeros_like(p0)
    # from here on [with a sink or without, s, common]
    a2, a3, a4, pairs = (
        np.array([integral(part, 0), part.sum(1, keepdims=True) + none])
        for part in (in_2, in_3, in_4, in_pairs)
    )
    square = np.array([1 - 2 * p0 + p0_2, none + 1])  # E M²
    lost = np.array([integral(in_2, 1) / 2, none])  # E p₀ ΣA²
    jacobian = a2 - 2 * a3 + a4 + pairs
    spread = square - 2 * (a2 - lost) + a4 + pairs
    crowding = square - a2 - 4 * (a2 - lost - a3) + 6 * pairs
    averages = Sunk(
        mass=1 - p0,
        square=square[0],
        focus=a2[0] / np.maximum(square[0] * a2[1], LEAST),
        jacobian=jacobian[0] - square[0] * jacobian[1],
        spread=spread[0] - spread[1],
        crowding=crowding[0] - crowding[1],
        own=own,
        shared=p0_2 - 2 * p0_3 + p0_4,
    )
    return np.stack(averages)
