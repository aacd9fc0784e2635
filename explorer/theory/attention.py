"""How gradients pass through attention, as the 2×2 matrix that maps (γ_q, γ_p) behind the branch to before it.

γ_q is the mean square of ∂L/∂x a coordinate, γ_p the mean overlap of two tokens' gradients. Three paths, whose weights
are independent and whose contributions therefore add: through the values, the queries and the keys. With u_ts = g_t·v_s
the logits' gradient is A_ts(u_ts − Σ_r A_tr u_tr); what all keys share drops out of it, which leaves Δ = q̂ − p̂.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from explorer.theory.gains import EPSILON, Gains
from explorer.theory.grids import Array
from explorer.theory.tables import Softmax


class Paths(NamedTuple):
    """The three paths of the attention of each layer; each `[layer, 2, 2]`, rows (γ_q, γ_p) before, columns behind."""

    value: Array
    query: Array
    key: Array

    @property
    def total(self) -> Array:
        """All paths together."""
        return self.value + self.query + self.key


def paths(gains: Gains, softmax: Softmax, s: Array, q: Array, p: Array, v: Array) -> Paths:
    """The paths of attention layers that read tokens of second moment `q`, overlap `p`, scatter `v` (see `Tokens`)."""
    n, own = softmax.n, np.maximum(q - p, 0.0)
    rows = softmax.rows(s)
    y11, j11 = softmax.pairs(s, np.clip(p / q, 0.0, 1.0))
    others = max(n - 1, 1)
    gain = gains.v * gains.o
    value = gain * matrix(rows.square, others * y11, (1 - rows.square) / others, 1 - y11)
    logits = gain * gains.scale * ((q + EPSILON) ** -2.0 if gains.qk_norm else gains.q * gains.k * np.ones_like(q))
    # overlaps scatter by v, so keys of a row point in fewer than all directions; along the query logits order them
    alike, none = v * rows.spread, np.zeros_like(q)
    along = 1 / gains.d_head
    jacobian = rows.jacobian * (1 - along) + (0.0 if gains.qk_norm else 1.0) * rows.tilted * along
    query = (logits * own**2)[:, None, None] * matrix(jacobian + alike, none, none, j11 + alike)
    same, cross = q * rows.jacobian_by_query, p * j11
    key = (logits * own)[:, None, None] * matrix(same, others * cross, -same / others, -cross)
    return Paths(value, query, key)


def matrix(qq: Array, qp: Array, pq: Array, pp: Array) -> Array:
    """`[layer, 2, 2]` from its four entries."""
    return np.stack([np.stack([qq, qp], -1), np.stack([pq, pp], -1)], -2)
