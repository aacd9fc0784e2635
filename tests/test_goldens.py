"""What is frozen while the house is rebuilt: see `benchmarks/goldens.py`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.goldens import SECTIONS, plain, stored

SAME = 1e-9
CANCELS = '/{"bias_variance": 100.0, "biases": "all", "causal": true, "norm_placement": "post"}/parameter_gradient W_'
"""Where a small difference of large numbers depends on the order in which a processor's library of
matrices adds up: the last layer's gradients of W_Q and W_K moved by 4e-8 from one machine to
another. Held to 1e-6."""
COUNTS = {"predictions": 300, "torch": 47, "links": 200, "figures": 60, "verdicts": 30}
"""The least number of entries of each section, so that none can be compared with nothing."""


def differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Where two JSON values differ: numbers by more than a relative 1e-9."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() ^ new.keys():
            yield f"{path}/{key} is {'gone' if key in old else 'new'}"
        for key in old.keys() & new.keys():
            yield from differences(old[key], new[key], f"{path}/{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, f"{path}/{index}")
    elif isinstance(old, float) and isinstance(new, float | int):
        same = 1e-6 if path.startswith(CANCELS) else SAME
        if not (
            math.isclose(old, new, rel_tol=same, abs_tol=1e-15)
            or (math.isnan(old) and math.isnan(new))
        ):
            yield f"{path}: {old} became {new}"
    elif old != new:
        yield f"{path}: {str(old)[:300]!r} became {str(new)[:300]!r}"


@pytest.fixture(scope="module")
def frozen() -> dict[str, Any]:
    return stored()


@pytest.mark.parametrize("section", SECTIONS)
def test_nothing_has_changed(section: str, frozen: dict[str, Any]) -> None:
    assert len(frozen[section]) >= COUNTS[section]
    found = list(differences(frozen[section], plain(SECTIONS[section]())))
    assert not found, "\n".join(found[:20])


def test_a_changed_number_text_or_length_is_a_difference() -> None:
    old = {"a": [1.0, "b", float("nan")]}
    assert not list(differences(old, {"a": [1.0 + 1e-12, "b", float("nan")]}))
    for new in (
        {"a": [1.0 + 1e-6, "b", float("nan")]},
        {"a": [1.0, "c", float("nan")]},
        {"a": [1.0, "b"]},
        {},
        {"a": [1.0, "b", 0.0]},
    ):
        assert list(differences(old, new)), new
