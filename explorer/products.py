"""Products with weight matrices."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def linear(x: Tensor, weight: Tensor, multiplier: float) -> Tensor:
    """`x Wᵀ`, times the multiplier of the parametrization."""
    return times(F.linear(x, weight), multiplier)


def times(x: Tensor, multiplier: float) -> Tensor:
    """The product with a number; by 1, the tensor itself."""
    return x if multiplier == 1 else x * multiplier


def plus(x: Tensor, bias: Tensor | None) -> Tensor:
    """The sum, where there is a bias."""
    return x if bias is None else x + bias
