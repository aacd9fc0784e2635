"""Functions of each token or each number alone: norms, and nonlinearities."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor

from explorer.config import Config
from explorer.schemes.activation import ACTIVATIONS, second_moment
from explorer.schemes.placement import centers, point


def norm(config: Config) -> Callable[[Tensor], Tensor]:
    """The norm over the last axis, without learned parameters, or the function in its place."""
    if function := point(config):
        bend, alpha = nonlinearity(function), config.norm_alpha
        return lambda x: bend(x * alpha)
    divide = F.layer_norm if centers(config) else F.rms_norm
    return lambda x: divide(x, x.shape[-1:], eps=config.norm_epsilon)


def activation(config: Config) -> Callable[[Tensor], Tensor]:
    """The MLP's nonlinearity, rescaled to keep a unit second moment if the config says so."""
    function = nonlinearity(config.activation)
    if not config.activation_rescaled:
        return function
    factor = second_moment(config.activation) ** -0.5
    return lambda z: function(z) * factor


def nonlinearity(name: str) -> Callable[[Tensor], Tensor]:
    """An activation of the table, for tensors."""
    return partial(ACTIVATIONS[name].torch, F)
