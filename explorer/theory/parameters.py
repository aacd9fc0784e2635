"""Norms of the loss gradient by the weights, from the two recursions.

∂L/∂W = Σ_t δ_t x_tᵀ over the tokens, so ‖∂L/∂W‖² averages to fan_in · fan_out · Σ_tt' (x_t·x_t')(δ_t·δ_t'), each a
coordinate: per sequence n [q_x δ_q + (n − 1) p_x δ_p], with x what W reads and δ the gradient behind it. Different
sequences have independent gradients under the linear loss. What is predicted is the root of the mean square.
"""

from __future__ import annotations

import numpy as np

from explorer.config import Config
from explorer.initializers import shapes, variances
from explorer.theory.backward import Backward
from explorer.theory.forward import Step, columns
from explorer.theory.gains import Gains
from explorer.theory.grids import Array


def norms(config: Config, gains: Gains, steps: list[Step], backward: Backward, unit: float) -> dict[str, Array]:
    """Matrix to `[layer]` for the layers that `steps` covers; `unit` is the gradient's mean square at the last site."""
    inside = np.stack(columns(steps, "inside"), -1)  # [sublayer, (q, p)]
    attended, read = inside[::2], inside[1::2]
    behind, behind_mlp = backward.branch[::2] * unit, backward.branch[1::2] * unit
    mixed = np.stack(columns(steps, "branch"), -1)[::2] / gains.o
    hidden = np.stack(columns(steps, "branch"), -1)[1::2] / gains.out
    paths = backward.attention
    pairs = {
        "W_O": (mixed, behind),
        "W_in": (read, _through(backward.hidden, behind_mlp)),
        "W_out": (hidden, behind_mlp),
    }
    n = config.n_ctx
    square = {name: x[:, 0] * delta[:, 0] + (n - 1) * x[:, 1] * delta[:, 1] for name, (x, delta) in pairs.items()}
    query = _through(paths.query, behind)
    logits = attended[:, 0] * query[:, 0] + (n - 1) * attended[:, 1] * query[:, 1]
    # W_V sees what W_O sees, transposed: Σ_ss' A_ts A_ts' (x_s·x_s') g_t·g_t either way
    square["W_V"] = square["W_O"] * gains.o / gains.v
    square["W_Q"], square["W_K"] = logits / gains.q, logits / gains.k
    out = frobenius(config, {name: n * part for name, part in square.items()})
    if config.residual == "rezero":
        out["alpha"] = by_alpha(config, steps, backward, unit)
    return out


def frobenius(config: Config, square: dict[str, Array]) -> dict[str, Array]:
    """Norms over a batch, from the mean square of an entry of each matrix's gradient from one sequence."""
    ntk = config.parametrization == "ntk"  # there the stored weight is the one divided by its spread
    spread = variances(config) if ntk else dict.fromkeys(square, 1.0)
    return {
        name: np.sqrt(config.batch_size * fan_in * fan_out * spread[name] * np.maximum(square[name], 0.0))
        for name, (fan_in, fan_out) in shapes(config).items()
    }


def by_alpha(config: Config, steps: list[Step], backward: Backward, unit: float) -> Array:
    """|∂L/∂α| by layer, both branches together: α multiplies the sum of what they compute, at α = 0."""
    q, p = columns(steps, "added")
    n = config.n_ctx
    site = backward.site[1:] * unit
    square = config.batch_size * n * config.d_model * (q * site[:, 0] + (n - 1) * p * site[:, 1])
    total: Array = np.sqrt(square.reshape(-1, 2).sum(1))
    return total


def _through(path: Array, gradient: Array) -> Array:
    """`[layer, 2, 2]` on `[layer, 2]`."""
    behind: Array = np.einsum("lij,lj->li", path, gradient)
    return behind
