"""The memory that is estimated for a design is what a fresh process takes, and the time what one
processor took.

`benchmarks.estimates` measures both anew, for more designs. Time is not measured here: what else
runs on a machine, and how fast its memory is, changes it by as much as the estimate may be off."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from benchmarks.estimates import apart
from explorer import limits
from explorer.config import Config

MANY_LAYERS = {"n_layers": 200}
MANY_LOGITS = {"n_layers": 2, "n_ctx": 512, "n_heads": 8, "batch_size": 4}
MANY_SEEDS = {"n_layers": 200, "d_model": 64, "n_ctx": 16, "n_seeds": 4}
MANY_NORMS = {
    "n_layers": 24,
    "n_ctx": 128,
    "batch_size": 4,
    "norm_placement": "peri",
    "mlp": "gated",
    "activation": "gelu",
}


@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere the system decides what a process keeps"
)
@pytest.mark.parametrize("choices", [MANY_LAYERS, MANY_LOGITS, MANY_SEEDS, MANY_NORMS], ids=str)
def test_the_estimated_memory_is_right_to_30_percent(choices: dict[str, Any]) -> None:
    taken = apart(choices)
    assert taken.bytes_measured > 450e6, (
        "beside what Python and torch take, it is too little to tell"
    )
    assert 0.7 < taken.bytes_estimated / taken.bytes_measured < 1.3, taken


@pytest.mark.parametrize(
    ("choices", "measured"),
    [
        (MANY_LAYERS, 5.9),
        (MANY_LOGITS, 0.90),
        (MANY_SEEDS, 0.44),
        (MANY_NORMS, 2.19),
    ],
    ids=str,
)
def test_the_estimated_time_is_right_to_a_factor_of_two(
    choices: dict[str, Any],
    measured: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`measured` is in seconds of a processor, for one seed, where its fixed piece of work takes
    `limits.REFERENCE`."""
    monkeypatch.setattr(limits, "work", lambda: limits.REFERENCE)
    estimated = limits.sizes(Config(**{"n_seeds": 1, **choices}).design).seconds
    assert 0.5 < estimated / measured < 2


def test_a_machine_that_is_half_as_fast_takes_twice_as_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = []
    for work in (limits.REFERENCE, 2 * limits.REFERENCE):
        monkeypatch.setattr(limits, "work", lambda work=work: work)
        seconds.append(limits.sizes(Config().design).seconds)
    assert seconds[1] == pytest.approx(2 * seconds[0])
