"""Functions of tensors: products with weight matrices, norms, nonlinearities.

A model may hold several draws at once: each parameter then has an axis more, `[seed, ...]`, and the
activations of all seeds follow each other along their first axis, `[seed · batch, ...]`. Only what
meets a parameter has to know."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from explorer.design import Design
from explorer.schemes.activation import ACTIVATIONS, second_moment


def norm(design: Design) -> Callable[[Tensor], Tensor]:
    """The norm over the last axis, without learned parameters; or, of a design without norms, the
    function of α x in its place."""
    if design.point:
        function, alpha = nonlinearity(design.point), design.settings.norm_alpha
        return lambda x: function(x * alpha)
    divide, epsilon = F.layer_norm if design.centers else F.rms_norm, design.settings.norm_epsilon
    return lambda x: divide(x, x.shape[-1:], eps=epsilon)


def norms(design: Design, sublayer: int) -> Callable[[str, Tensor], Tensor]:
    """A function of a site's name and the signal there: it normalizes the signal if the sublayer,
    0 … 2N − 1, has a norm at the site, and leaves it alone if not."""
    sites, divide = design.sublayers[sublayer].norms, norm(design)
    return lambda name, x: divide(x) if name in sites else x


def activation(design: Design) -> Callable[[Tensor], Tensor]:
    """The MLP's nonlinearity, rescaled to keep a unit second moment if the config says so."""
    name = design.settings.activation
    function = nonlinearity(name)
    if not design.settings.activation_rescaled:
        return function
    factor = second_moment(name) ** -0.5
    return lambda z: function(z) * factor


def nonlinearity(name: str) -> Callable[[Tensor], Tensor]:
    """An activation of the table, for tensors."""
    return partial(ACTIVATIONS[name].torch, F)


def linear(x: Tensor, weight: Tensor, multiplier: float) -> Tensor:
    """`x Wᵀ`, times the multiplier of the parametrization."""
    return times(product(x, weight), multiplier)


def product(x: Tensor, weight: Tensor) -> Tensor:
    """`x Wᵀ`, `[batch, token, fan_in]` to `[batch, token, fan_out]`; each seed's by its own
    matrix."""
    if weight.ndim == 2:
        return F.linear(x, weight)
    by_seed = x.reshape(len(weight), -1, x.shape[-1])  # [seed, batch · token, fan_in]
    return torch.bmm(by_seed, weight.mT).view(*x.shape[:-1], -1)


def times(x: Tensor, multiplier: float) -> Tensor:
    """The product with a number; by 1, the tensor itself."""
    return x if multiplier == 1 else x * multiplier


def plus(x: Tensor, bias: Tensor | None) -> Tensor:
    """`x + b`, where there is a bias, `[fan_out]`; each seed's with its own."""
    if bias is None:
        return x
    return x + (bias if bias.ndim == 1 else beside(x, bias)[:, None])


def beside(x: Tensor, parameter: Tensor) -> Tensor:
    """A parameter `[seed, ...]` repeated for each sequence of `x`, `[seed · batch, ...]`."""
    batch = len(x) // len(parameter)
    return parameter[:, None].expand(-1, batch, *parameter.shape[1:]).flatten(0, 1)
