"""Norms of the loss gradient by the weights, from the two recursions.

∂L/∂W = Σ_t δ_t x_tᵀ over the tokens, so ‖∂L/∂W‖² averages to fan_in · fan_out · Σ_tt' (x_t·x_t')(δ_t·δ_t'), each a
coordinate: per sequence n [q_x δ_q + (n − 1) p_x δ_p], with x what W reads and δ the gradient behind it. Different
sequences have independent gradients under the linear loss. What is predicted is the root of the mean square.
"""

from __future__ import annotations

import numpy as np

from explorer.config import Config
from explorer.schemes.residual import learned
from explorer.schemes.scale import shapes, variances
from explorer.theory.backward import Backward
from explorer.theory.forward import Step, columns
from explorer.theory.gains import Gains
from explorer.theory.grids import Array


def norms(config: Config, gains: Gains, steps: list[Step], backward: Backward, unit: float) -> dict[str, Array]:
    """Matrix to `[layer]` for the layers that `steps` covers; `unit` is the gradient's mean square at the last site."""
    inside = np.stack(columns(steps, "inside"), -1)  # [sublayer, (q, p)]
    last = np.stack(columns(steps, "read"), -1)  # what W_O and W_out read
    behind, behind_mlp = backward.branch[::2] * unit, backward.branch[1::2] * unit
    square = {
        "W_in": _pairs(config, inside[1::2], np.einsum("lij,lj->li", backward.hidden, behind_mlp)),
        "W_out": _pairs(config, last[1::2], behind_mlp),
    }
    if gains.attends:
        logits = _pairs(config, inside[::2], backward.query * unit)
        # by W_Q and W_K of one product the gradients are alike; where queries and keys add up, the products differ
        by_key = _pairs(config, inside[::2], backward.key * unit) if gains.residual_attention == "qk" else logits
        square |= {"W_Q": logits / gains.q, "W_K": by_key / gains.k, "W_O": _pairs(config, last[::2], behind)}
        # W_V sees what W_O sees, transposed: Σ_ss' A_ts A_ts' (x_s·x_s') g_t·g_t either way
        square["W_V"] = square["W_O"] * gains.o / gains.v
    out = frobenius(config, square)
    if learned(config):
        out["alpha"] = by_alpha(config, steps, backward, unit)
    return out


def _pairs(config: Config, x: Array, delta: Array) -> Array:
    """Σ_tt' (x_t·x_t')(δ_t·δ_t') a coordinate over the tokens of a sequence, from `[layer, (q, p)]` of either."""
    n = config.n_ctx
    total: Array = n * (x[:, 0] * delta[:, 0] + (n - 1) * x[:, 1] * delta[:, 1])
    return total


def frobenius(config: Config, square: dict[str, Array]) -> dict[str, Array]:
    """Norms over a batch, from the mean square of an entry of each matrix's gradient from one sequence."""
    ntk = config.parametrization == "ntk"  # there the stored weight is the one divided by its spread
    spread = variances(config) if ntk else dict.fromkeys(square, 1.0)
    return {
        name: np.sqrt(config.batch_size * fan_in * fan_out * spread[name] * np.maximum(square[name], 0.0))
        for name, (fan_in, fan_out) in shapes(config).items()
    }


def by_alpha(config: Config, steps: list[Step], backward: Backward, unit: float) -> Array:
    """‖∂L/∂α‖ by layer, both branches together: α multiplies what they compute, as one number or by coordinate."""
    added = np.stack(columns(steps, "added"), -1)
    square = config.batch_size * config.d_model * _pairs(config, added, backward.total * unit)
    total: Array = np.sqrt(square.reshape(-1, 2).sum(1))
    return total
