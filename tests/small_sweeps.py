"""A small sweep that the tests share, computed here and, bit for bit the same, anywhere else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from explorer import Config

SMALL = Config(n_layers=2, d_model=16, n_heads=2, n_ctx=8, batch_size=2, n_seeds=1)
OVER: dict[str, Any] = {"alpha": [0.1, 0.5, 1.0, 2.0], "n_layers": [1, 2, 3]}
REFUSED = {"n_heads": [1, 2, 3, 4]}
"""The third does not divide the width."""

ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(
        [
            str(Path(__file__).parent),
            str(Path(__file__).parents[2]),
            *filter(None, [os.environ.get("PYTHONPATH")]),
        ]
    ),
}
"""Another Python's, which finds this module."""


def same(one: xr.Dataset, other: xr.Dataset) -> bool:
    """Whether two sweeps have the same labels, failures and numbers, bit for bit; time is
    nobody's."""
    assert np.isfinite(one.second_moment).any(), "nothing was computed"
    return bool(one.drop_vars("seconds").identical(other.drop_vars("seconds")))
