"""The MLP sublayer of the model."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from explorer.design import Design
from explorer.model.functions import activation, linear, norms, plus
from explorer.schemes.mlp import MLPS


class MLP(nn.Module):
    """Two matrices with a nonlinearity between; or three, where the activation of W_gate's product
    multiplies W_in's.

    Args:
        layer: from 1.
        weights: of this layer, by name; of several seeds with an axis of seeds in front.
    """

    def __init__(self, design: Design, layer: int, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.matrices = design.matrices
        self.normed = norms(design, 2 * layer - 1)
        self.W_gate = nn.Parameter(weights["W_gate"]) if "W_gate" in design.readers else None
        self.W_in, self.W_out = nn.Parameter(weights["W_in"]), nn.Parameter(weights["W_out"])
        self.b_gate, self.b_in, self.b_out = (
            nn.Parameter(weights[name]) if name in weights else None
            for name in ("b_gate", "b_in", "b_out")
        )
        self.activation, self.shift = activation(design), MLPS[design.settings.mlp].shift

    def forward(self, x: Tensor) -> Tensor:
        """`[batch, token, d_model]` to the same, through `[batch, token, d_mlp]`."""
        hidden = plus(linear(x, self.W_in, self.matrices["W_in"].forward), self.b_in)
        if self.W_gate is None:
            hidden = self.activation(hidden)
        else:
            gate = plus(linear(x, self.W_gate, self.matrices["W_gate"].forward), self.b_gate)
            if self.shift:
                hidden = hidden + self.shift
            hidden = self.activation(gate) * hidden
        hidden = self.normed("read", hidden)
        return plus(linear(hidden, self.W_out, self.matrices["W_out"].forward), self.b_out)
