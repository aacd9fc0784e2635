"""Activation functions, and the constant that gives each a unit second moment under N(0, 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from explorer.config import Config

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType({
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "elu": F.elu,
    "selu": F.selu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "identity": lambda z: z,
})


@cache
def second_moment(name: str) -> float:
    """E φ(z)² for z ~ N(0, 1), by the trapezoid rule with a node on the kink at 0; good to 1e-9."""
    z = torch.linspace(-12, 12, 2**18 + 1, dtype=torch.float64)
    density = torch.exp(-z * z / 2) / (2 * torch.pi) ** 0.5
    return float(torch.trapezoid(ACTIVATIONS[name](z) ** 2 * density, z))


def activation(config: Config) -> Callable[[Tensor], Tensor]:
    """The MLP's nonlinearity, rescaled to keep a unit second moment if the config says so."""
    function = ACTIVATIONS[config.activation]
    if not config.activation_rescaled:
        return function
    factor = second_moment(config.activation) ** -0.5
    return lambda z: function(z) * factor
