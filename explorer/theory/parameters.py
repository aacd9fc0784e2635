"""Norms of the loss gradient by the weights, from the two recursions.

∂L/∂W = Σ_t δ_t x_tᵀ over the tokens, so ‖∂L/∂W‖² averages to fan_in · fan_out · Σ_tt' (x_t·x_t')(δ_t·δ_t'), each a
coordinate: per sequence n [q_x δ_q + (n − 1) p_x δ_p], with x what W reads and δ the gradient after it. Different
sequences have independent gradients under the linear loss. What is predicted is the root of the mean square.
"""

from __future__ import annotations

import numpy as np

from explorer.config import Config
from explorer.theory.backward import Backward
from explorer.theory.gains import Gains
from explorer.theory.grids import Array


def norms(config: Config, gains: Gains, own: dict[str, Array], across: dict[str, Array], unit: float
          ) -> dict[str, Array]:
    """Matrix to `[layer]`, "sink" and "alpha" where they are learned; nan where a sum's terms cancel to less than 0.

    Args:
        own: Σ_tt' (x_t·x_t')(δ_t·δ_t') a coordinate within a sequence, `[layer]`; "alpha" stands for both branches'
            outputs and is `[sublayer]`. W_V sees what W_O sees, transposed: Σ_ss' A_ts A_ts' (x_s·x_s') g_t·g_t.
        across: the same over the pairs with other sequences' tokens, by sequence.
        unit: the gradient's mean square at the last site.
    """
    design = config.design
    total = {name: unit * (part + across.get(name, 0.0)) for name, part in own.items()}
    alpha = total.pop("alpha")
    if gains.attends:
        # the gradient after W has d / fan_out of what comes down to the stream through it, over its gain, a coordinate
        shape, last = design.shapes, total["W_O"] * gains.o
        if "W_V" in across:
            last = total["W_V"]
        elif "W_V" in own:  # of other sequences as much as W_O has
            last = unit * own["W_V"] * np.divide(total["W_O"], unit * own["W_O"], where=own["W_O"] > 0, out=0 * last)
        total["W_V"] = last
        for name, gain in (("W_Q", gains.q), ("W_K", gains.k), ("W_V", gains.v)):
            total[name] = total[name] / gain * (config.d_model / shape[name][1])
        if gains.gate:
            total["W_G"] = total["W_G"] / gains.gate.gain * (config.d_model / shape["W_G"][1])
    # where σ is in the forward pass, the stored weight is the one divided by it
    out = {
        name: np.sqrt(config.batch_size * matrix.fan_in * matrix.fan_out * matrix.forward**2 * total[name])
        for name, matrix in design.matrices.items()
    }
    if design.sink.std:
        out["sink"] = np.sqrt(config.batch_size * config.d_model * gains.o * total["sink"])
    if design.alpha_shape is not None:  # it multiplies what both branches compute, as one number or by coordinate
        out["alpha"] = np.sqrt(config.batch_size * config.d_model * alpha.reshape(-1, 2).sum(1))
    return out


def within(gains: Gains, total: Array, inside: Array, final_input: Array, added: Array, backward: Backward
           ) -> dict[str, Array]:
    """`own` of `norms`.

    Args:
        total: `[pair]`, Σ over the ordered pairs of tokens of a sequence, each with itself among them.
        inside: `[sublayer, pair]`, of what a branch reads; `read` of what its last matrix reads; `added` of its term of
            the sum.
    """
    def pairs(x: Array, delta: Array) -> Array:
        """Σ_tt' (x_t·x_t')(δ_t·δ_t') a coordinate."""
        energy: Array = np.einsum("lij,lij,ij->l", x, delta, total)
        return energy

    own = {
        **{name: pairs(inside[1::2], delta) for name, delta in backward.hidden.items()},
        "W_out": pairs(final_input[1::2], backward.branch[1::2]),
        "alpha": pairs(added, backward.total),
    }
    if gains.attends:
        # of one product W_Q and W_K see the same, but for their biases
        bias = 0.0 if gains.adds == "qk" else gains.biases.q / max(gains.q, 1e-300)
        own["W_Q"], own["W_K"] = pairs(inside[::2], backward.query), pairs(inside[::2] + bias, backward.key)
        own["W_O"] = pairs(final_input[::2], backward.branch[::2])
        reads = {"W_G": inside[::2], "sink": final_input[::2]}
        own |= {name: pairs(reads[name], part) for name, part in backward.gates.items()}
        if gains.value_residual or gains.biases.v:  # else W_V sees what W_O sees
            x, value, bias = inside[::2], backward.value, gains.biases.v / max(gains.v, 1e-300)
            part, first = (0.25, x[:1]) if gains.value_residual else (1.0, 0 * x[:1])
            mixed = np.concatenate([x[:1] + bias, part * (x[1:] + first) + bias * (0.5 if gains.value_residual else 1)])
            more = own["W_O"] * gains.o / np.maximum(pairs(mixed, value), 1e-300)  # by keys that happen to be alike
            own["W_V"] = more * np.where(np.arange(len(x)), part, 1.0) * pairs(x, value)
            own["W_V"][0] += part * (more * pairs(np.broadcast_to(first, x.shape), value))[1:].sum()
    return own
