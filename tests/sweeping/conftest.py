"""The small sweep as one process computes it, which every other way must equal bit for bit."""

import pytest
import xarray as xr
from small_sweeps import OVER, SMALL

from explorer import sweep
from explorer.sweeping.workers import Here


@pytest.fixture(scope="session")
def whole() -> xr.Dataset:
    """The dataset of the small sweep."""
    return sweep(SMALL, OVER, executor=Here())
