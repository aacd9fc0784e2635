"""Products with weight matrices, and other operations of several seeds' weights side by side.

A model may hold several draws at once: each parameter then has an axis more, `[seed, ...]`, and the activations of all
seeds follow each other along their first axis, `[seed · batch, ...]`. Only what meets a parameter has to know.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def linear(x: Tensor, weight: Tensor, multiplier: float) -> Tensor:
    """`x Wᵀ`, times the multiplier of the parametrization."""
    return times(product(x, weight), multiplier)


def product(x: Tensor, weight: Tensor) -> Tensor:
    """`x Wᵀ`, `[batch, token, fan_in]` to `[batch, token, fan_out]`; each seed's by its own matrix."""
    if weight.ndim == 2:
        return F.linear(x, weight)
    return torch.bmm(x.reshape(len(weight), -1, x.shape[-1]), weight.mT).view(*x.shape[:-1], -1)


def times(x: Tensor, multiplier: float) -> Tensor:
    """The product with a number; by 1, the tensor itself."""
    return x if multiplier == 1 else x * multiplier


def plus(x: Tensor, bias: Tensor | None) -> Tensor:
    """The sum, where there is a bias, `[fan_out]`; each seed's with its own."""
    if bias is None:
        return x
    return x + (bias if bias.ndim == 1 else beside(x, bias)[:, None])


def beside(x: Tensor, parameter: Tensor) -> Tensor:
    """`[seed, ...]` to `[seed · batch, ...]`, what each sequence of `x` meets."""
    return parameter[:, None].expand(-1, len(x) // len(parameter), *parameter.shape[1:]).flatten(0, 1)
