"""Tests of a rotation are left out only where all have passed with the same files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import rotation
from rotation import PARTS, ROTATIONS, Rotation

THEORY, INSTRUMENTS, LESSONS = ROTATIONS


def item(path: str, name: str = "", tag: str = "") -> Any:
    """As much of a test as `rotation` looks at."""
    cell = SimpleNamespace(metadata={"tags": [tag]})
    return SimpleNamespace(path=rotation.ROOT / path, nodeid=f"{path}::{name}", cell=cell)


OTHERS = [item("tests/test_config.py"), item("notebooks/lessons/a.ipynb", tag="nbval-ignore")]
TESTS = [item("tests/theory/test_laws.py", str(number)) for number in range(12)]
ON_MODELS = [
    item(f"tests/models/test_{name}.py", str(number)) for name in "abcdef" for number in range(2)
]
CELLS = [
    item(f"notebooks/lessons/{lesson}.ipynb", str(number), "train")
    for lesson in "abcdef"
    for number in range(3)
]


@pytest.mark.parametrize(
    ("rotated", "tests"), [(THEORY, TESTS), (INSTRUMENTS, ON_MODELS), (LESSONS, CELLS)]
)
def test_each_test_is_in_one_part_and_others_are_in_all(
    rotated: Rotation, tests: list[Any]
) -> None:
    """All cells of a lesson, and all tests of a file of instruments, are in the same."""
    times = [0] * len(tests)
    for number in range(PARTS):
        left = rotated.left_out([*tests, *OTHERS], number)
        assert not any(other in left for other in OTHERS)
        for place, test in enumerate(tests):
            times[place] += test not in left
        paths = {test.path for test in left} & {test.path for test in tests if test not in left}
        assert rotated is THEORY or not paths
    assert times == [1] * len(tests)


@pytest.mark.parametrize("asked", ["fifth", "all"])
def test_all_run_after_a_change_and_where_somebody_asks(
    asked: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    file = tmp_path / "theory.py"
    file.write_text("variance = 1", encoding="utf-8")
    monkeypatch.setattr(rotation, "ROOT", tmp_path)
    monkeypatch.setenv(rotation.VARIABLE, asked)
    rotated = THEORY._replace(about=("theory.py",), noted="noted.txt")
    assert rotated.part() is None
    (tmp_path / "noted.txt").write_text(rotated.digest(), encoding="utf-8")
    today = datetime.now(UTC).toordinal() % PARTS
    assert rotated.part() == (today if asked == "fifth" else None)
    file.write_text("variance = 2", encoding="utf-8")
    assert rotated.part() is None


def test_every_file_that_the_tests_are_about_is_there() -> None:
    for rotated in ROTATIONS:
        assert [name for name in rotated.about if not (rotation.ROOT / name).exists()] == []
