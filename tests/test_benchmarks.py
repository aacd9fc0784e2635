"""The benchmarks: each can be run, as far as its imports go."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
NAMES = [path.stem for path in sorted(FOLDER.glob("*.py")) if path.stem[0] != "_"]


@pytest.mark.plugins
@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_is_importable(name: str) -> None:
    assert import_module(f"benchmarks.{name}").__doc__
