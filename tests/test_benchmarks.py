"""The benchmarks: each can be run, as far as its imports go."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.mutations import ROOMS, mirrors

FOLDER = Path(__file__).parents[1] / "benchmarks"
NAMES = [path.stem for path in sorted(FOLDER.glob("*.py")) if path.stem[0] != "_"]


@pytest.mark.plugins
@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_is_importable(name: str) -> None:
    assert import_module(f"benchmarks.{name}").__doc__


@pytest.mark.plugins
@pytest.mark.parametrize("room", ROOMS)
def test_mistakes_are_tried_by_tests_that_there_are(room: str) -> None:
    root = FOLDER.parent
    files = [file for file in (root / room).rglob("*") if file.suffix in (".py", ".js")]
    for file in files:
        for mirror in mirrors(file.relative_to(root).as_posix()):
            assert (root / mirror).is_file(), mirror
    assert files
