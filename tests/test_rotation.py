"""Tests of theory against measurement are left out only where all have passed with the same
files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import rotation


class Item:
    """As much of a test as `rotation` looks at."""

    def __init__(self, path: str) -> None:
        self.path = rotation.ROOT / path


ITEMS: list[Any] = [Item("tests/theory/test_laws.py") for _ in range(12)] + [
    Item("tests/test_config.py")
]


def test_each_test_is_in_one_part_and_others_are_in_all() -> None:
    parts = [rotation.chosen(ITEMS, number)[0] for number in range(rotation.PARTS)]
    assert [part.count(ITEMS[-1]) for part in parts] == [1] * rotation.PARTS
    assert [sum(item in part for part in parts) for item in ITEMS[:-1]] == [1] * 12


@pytest.mark.parametrize("asked", ["fifth", "all"])
def test_all_run_after_a_change_and_where_somebody_asks(
    asked: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    file = tmp_path / "theory.py"
    file.write_text("variance = 1", encoding="utf-8")
    monkeypatch.setattr(rotation, "ROOT", tmp_path)
    monkeypatch.setattr(rotation, "ABOUT", ("theory.py",))
    monkeypatch.setattr(rotation, "NOTED", tmp_path / "noted.txt")
    monkeypatch.setenv(rotation.VARIABLE, asked)
    assert rotation.part() is None
    rotation.NOTED.write_text(rotation.digest(), encoding="utf-8")
    today = datetime.now(UTC).toordinal() % rotation.PARTS
    assert rotation.part() == (today if asked == "fifth" else None)
    file.write_text("variance = 2", encoding="utf-8")
    assert rotation.part() is None


def test_every_file_that_the_tests_are_about_is_there() -> None:
    assert [name for name in rotation.ABOUT if not (rotation.ROOT / name).exists()] == []
