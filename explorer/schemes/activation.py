"""Activations: what they do to a number, and the constant that gives each a unit second moment
under N(0, 1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, erfc, expit

from explorer.fields import Option
from explorer.schemes import closed_forms
from explorer.schemes.closed_forms import Kernel, gelu, identity, relu, relu_squared

Array = NDArray[np.float64]
Function = Callable[[Array], Array]

SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
"""Klambauer et al. 2017: the λ and α that give E f = 0 and E f² = 1."""

QUICK = 1.702
"""Hendrycks & Gimpel 2016: the sigmoid nearest to the normal distribution's."""


@dataclass(frozen=True, kw_only=True)
class Activation(Option):
    """One nonlinearity, for the theory and for the model: two forms that the tests compare."""

    value: Function
    """φ, in numpy."""
    slope: Function
    """φ′."""
    kernel: Callable[[float], Kernel] | None = None
    """The law in closed form, by a factor on φ²; without one it is integrated."""
    mean: Callable[[float], float] = lambda q: math.nan
    """E φ under N(0, q), of a law in closed form."""
    degree: int = 1
    """Power of x with which φ grows."""
    torch: Callable[[Any, Any], Any]
    """φ for tensors: from torch.nn.functional and z. (Handed in, for the theory reads this table
    without torch.)"""


def _normal_cdf(x: Array) -> Array:
    """Φ(x), the probability that N(0, 1) is below x."""
    return 0.5 * erfc(-x / math.sqrt(2))


def normal_pdf(x: Array) -> Array:
    """Density of N(0, 1)."""
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _cubic(x: Array) -> Array:
    """√(2/π) (x + 0.044715 x³), whose tanh is near 2 Φ(x) − 1: Hendrycks & Gimpel 2016."""
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


def _cubic_slope(x: Array) -> Array:
    """The derivative of `_cubic`."""
    return math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)


def _elu(x: Array, alpha: float = 1.0) -> Array:
    """x above 0, α (eˣ − 1) below."""
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))  # e^x of large x overflows


def _elu_slope(x: Array, alpha: float = 1.0) -> Array:
    """The derivative of `_elu`."""
    return np.where(x > 0, 1.0, alpha * np.exp(np.minimum(x, 0)))


ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(
        "max(0, x)",
        "Nair & Hinton 2010",
        value=lambda x: np.maximum(x, 0),
        slope=lambda x: (x > 0).astype(float),
        torch=lambda F, z: F.relu(z),
        kernel=relu,
        mean=lambda q: math.sqrt(q / (2 * math.pi)),
    ),
    "gelu": Activation(
        "x Φ(x)",
        "Hendrycks & Gimpel 2016",
        value=lambda x: x * _normal_cdf(x),
        slope=lambda x: _normal_cdf(x) + x * normal_pdf(x),
        torch=lambda F, z: F.gelu(z),
        kernel=gelu,
        mean=lambda q: q / math.sqrt(2 * math.pi * (1 + q)),
    ),
    "gelu_tanh": Activation(
        "x (1 + tanh √(2/π)(x + 0.045 x³)) / 2",
        "GPT-2's gelu: Hendrycks & Gimpel 2016, section 2",
        value=lambda x: x * expit(2 * _cubic(x)),
        torch=lambda F, z: F.gelu(z, approximate="tanh"),
        slope=lambda x: (
            expit(2 * _cubic(x)) * (1 + 2 * x * _cubic_slope(x) * expit(-2 * _cubic(x)))
        ),
    ),
    "quick": Activation(
        "x / (1 + e^(−1.702 x))",
        "Hendrycks & Gimpel 2016, section 2; gpt-oss, CLIP",
        value=lambda x: x * expit(QUICK * x),
        torch=lambda F, z: z * (QUICK * z).sigmoid(),
        slope=lambda x: expit(QUICK * x) * (1 + QUICK * x * expit(-QUICK * x)),
    ),
    "silu": Activation(
        "x / (1 + e⁻ˣ)",
        "Elfwing et al. 2017",
        value=lambda x: x * expit(x),
        slope=lambda x: expit(x) * (1 + x * expit(-x)),
        torch=lambda F, z: F.silu(z),
    ),
    "elu": Activation(
        "x, or eˣ − 1 below 0",
        "Clevert et al. 2015",
        value=_elu,
        slope=_elu_slope,
        torch=lambda F, z: F.elu(z),
    ),
    "selu": Activation(
        "λ·elu with α, mean 0 and variance 1",
        "Klambauer et al. 2017",
        value=lambda x: SELU_SCALE * _elu(x, SELU_ALPHA),
        slope=lambda x: SELU_SCALE * _elu_slope(x, SELU_ALPHA),
        torch=lambda F, z: F.selu(z),
    ),
    "relu2": Activation(
        "max(0, x)²",
        "Primer: So et al. 2021",
        value=lambda x: np.maximum(x, 0) ** 2,
        slope=lambda x: 2 * np.maximum(x, 0),
        torch=lambda F, z: F.relu(z).square(),
        kernel=relu_squared,
        mean=lambda q: q / 2,
        degree=2,
    ),
    "tanh": Activation(
        "tanh x",
        value=np.tanh,
        slope=lambda x: 1 / np.cosh(np.clip(x, -300, 300)) ** 2,
        torch=lambda F, z: z.tanh(),
    ),
    "erf": Activation(
        "erf x",
        "Williams 1997",
        value=erf,
        slope=lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
        torch=lambda F, z: z.erf(),
        kernel=closed_forms.erf,
        mean=lambda q: 0.0,
    ),
    "sigmoid": Activation(
        "1 / (1 + e⁻ˣ)",
        value=expit,
        slope=lambda x: expit(x) * expit(-x),
        torch=lambda F, z: z.sigmoid(),
    ),
    "identity": Activation(
        "x",
        value=lambda x: x,
        slope=np.ones_like,
        torch=lambda F, z: z,
        kernel=identity,
        mean=lambda q: 0.0,
    ),
}


@cache
def second_moment(name: str) -> float:
    """E φ(z)² for z ~ N(0, 1), by the trapezoid rule with a node on the kink at 0; good to 1e-9."""
    z = np.linspace(-12, 12, 2**18 + 1)
    return float(np.trapezoid(ACTIVATIONS[name].value(z) ** 2 * normal_pdf(z), z))
