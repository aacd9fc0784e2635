"""Nodes of the stored tables, and the smooth variables of the interpolation.

- The logits' standard deviation s enters as x = ln(1 + s²): linear in s² where softmax is nearly uniform, in ln s where
  it is one-hot.
- A correlation ρ enters as v = asinh(k √(1−ρ)) / asinh(k), with k the scale (s, or √q) at which two inputs of that
  correlation begin to differ: even nodes in v resolve both the neighborhood of ρ = 1 and the rest.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PATH = Path(__file__).with_name("tables.npz")
SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Visible keys."""
X = np.linspace(0.0, 7.5, 31)
"""ln(1 + s²): s up to 42.5."""
ROOT = np.linspace(0.0, float(np.sqrt(X[-1])), 41)
"""√x, for single rows: the largest weight rises linearly with s."""
V = np.linspace(0.0, 1.0, 25)
V_INPUT = np.linspace(0.0, 1.0, 41)
"""Nodes of v for activations: more than in `V`, as they are cheap."""
LOG_Q = np.arange(-12.0, 21.0, 1.0)
"""ln q of an activation's input."""
TABULATED = ("silu", "elu", "selu", "tanh", "sigmoid", "gelu_tanh", "quick")
"""Activations without closed forms for two inputs."""


def x_of(s: Array) -> Array:
    """The smooth variable of a standard deviation."""
    return np.log1p(s * s)


def s_of(x: Array) -> Array:
    """The inverse of `x_of`."""
    return np.sqrt(np.expm1(x))


def v_of(rho: Array, scale: Array) -> Array:
    """The smooth variable of a correlation, in [0, 1]; 0 at ρ = 1."""
    scale = np.maximum(scale, 1e-3)
    return np.arcsinh(scale * np.sqrt(np.maximum(1 - rho, 0.0))) / np.arcsinh(scale)


def rho_of(v: Array, scale: Array) -> Array:
    """The inverse of `v_of`."""
    scale = np.maximum(scale, 1e-3)
    return 1 - (np.sinh(v * np.arcsinh(scale)) / scale) ** 2
