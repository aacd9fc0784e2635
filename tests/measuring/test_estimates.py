"""The memory that is estimated for a design is what a fresh process takes; `benchmarks.estimates` has more designs."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from benchmarks.estimates import apart


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system decides what a process keeps")
@pytest.mark.parametrize("choices", [
    {"n_layers": 200}, {"n_layers": 1000, "d_model": 64},
    {"n_layers": 2, "n_ctx": 512, "n_heads": 8, "batch_size": 4},
    {"n_layers": 200, "d_model": 64, "n_ctx": 16, "n_seeds": 4},
    {"n_layers": 24, "n_ctx": 128, "batch_size": 4, "norm_placement": "peri", "mlp": "gated", "activation": "gelu"},
], ids=str)
def test_the_estimated_memory_is_right_to_30_percent(choices: dict[str, Any]) -> None:
    taken = apart(choices)
    assert taken.bytes_measured > 450e6, "beside what Python and torch take, it is too little to tell"
    assert 0.7 < taken.bytes_estimated / taken.bytes_measured < 1.3, taken
