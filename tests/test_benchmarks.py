"""The benchmarks: each can be run, as far as its imports go."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.mutations import MIRRORS, SCRIPTS

FOLDER = Path(__file__).parents[1] / "benchmarks"
NAMES = [path.stem for path in sorted(FOLDER.glob("*.py")) if path.stem[0] != "_"]


@pytest.mark.plugins
@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_is_importable(name: str) -> None:
    assert import_module(f"benchmarks.{name}").__doc__


@pytest.mark.plugins
def test_mistakes_are_tried_by_tests_that_there_are() -> None:
    tests, root = FOLDER.parent / "tests", FOLDER.parent
    for place, mirrors in {**MIRRORS, **SCRIPTS}.items():
        for mirror in mirrors:
            assert (tests / mirror).is_dir() or (tests / f"{mirror}.py").is_file(), mirror
        assert place in SCRIPTS or [*root.glob(f"{place}*")], place
