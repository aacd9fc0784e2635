"""Functions of each token or each number alone: norms, and nonlinearities."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor

from explorer.design import Design
from explorer.schemes.activation import ACTIVATIONS, second_moment


def norm(design: Design) -> Callable[[Tensor], Tensor]:
    """The norm over the last axis, without learned parameters, or the function in its place."""
    if design.point:
        bend, alpha = nonlinearity(design.point), design.settings.norm_alpha
        return lambda x: bend(x * alpha)
    divide, epsilon = F.layer_norm if design.centers else F.rms_norm, design.settings.norm_epsilon
    return lambda x: divide(x, x.shape[-1:], eps=epsilon)


def norms(design: Design, sublayer: int) -> Callable[[str, Tensor], Tensor]:
    """A function of a site's name and a signal: the norm of it where the sublayer has one, else the signal."""
    there, divide = design.sublayers[sublayer].norms, norm(design)
    return lambda name, x: divide(x) if name in there else x


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
