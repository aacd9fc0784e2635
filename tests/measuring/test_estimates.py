"""The memory and time that are estimated for a design are what a fresh process takes: see `benchmarks.estimates`."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from benchmarks.estimates import apart


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system decides what a process keeps")
@pytest.mark.parametrize("choices", [
    {"n_layers": 200},
    {"n_layers": 2, "n_ctx": 512, "n_heads": 8, "batch_size": 4},
    {"n_layers": 200, "d_model": 64, "n_ctx": 16, "n_seeds": 4},
    {"n_layers": 24, "n_ctx": 128, "batch_size": 4, "norm_placement": "peri", "mlp": "gated", "activation": "gelu"},
], ids=str)
def test_the_estimated_memory_is_right_to_30_percent_and_the_time_to_a_factor_of_two(choices: dict[str, Any]) -> None:
    """Processor time is compared, which depends little on what else runs, with a piece of work in the same process."""
    taken = apart(choices)
    assert 0.5 < taken.seconds_estimated / taken.seconds_measured < 2, taken
    assert taken.bytes_measured > 450e6, "beside what Python and torch take, it is too little to tell"
    assert 0.7 < taken.bytes_estimated / taken.bytes_measured < 1.3, taken
