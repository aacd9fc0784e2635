"""Which of the tests run that take long and depend on few files: all where one of these files has
changed, else every fifth, another fifth each day. A nightly run has all, and so has plain pytest.

Tests of theory against measurement take some four minutes of a processor, those of instruments on
models that are not ours as many. The cells of lessons that train, too, and are plain torch: they
depend on nothing but the lesson.

    python tests/rotation.py    # runs all, and where they pass notes for which files they did
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PARTS = 5
OF_THE_PAGE = "test_your_model.py"
VARIABLE = "EXPLORER_THEORY_TESTS"
"""`all`, which is what plain pytest runs, or `fifth`, as the Makefile sets it where nobody else
has."""


class Rotation(NamedTuple):
    """Tests of which a fifth runs."""

    words: str
    about: tuple[str, ...]
    """The files and folders on which they depend."""
    noted: str
    """The file with the digest of those for which all have passed."""
    options: tuple[str, ...]
    """Arguments of pytest that runs them all."""
    unit: Callable[[pytest.Item], str]
    """Names what is left out or run as a whole; empty for any other test."""

    def digest(self) -> str:
        """Of the names and contents of all files that the tests are about."""
        whole = hashlib.sha256()
        for name in self.about:
            place = ROOT / name
            files = [place] if place.is_file() else sorted(place.rglob("*"))
            for file in files:
                if file.is_file() and "__pycache__" not in file.parts:
                    whole.update(file.relative_to(ROOT).as_posix().encode())
                    whole.update(file.read_bytes())
        return whole.hexdigest()

    def part(self) -> int | None:
        """The number of today's fifth; None where all are to run."""
        if os.environ.get(VARIABLE, "all") == "all":
            return None
        noted = ROOT / self.noted
        if not noted.exists() or noted.read_text(encoding="utf-8").strip() != self.digest():
            return None
        return datetime.now(UTC).toordinal() % PARTS

    def left_out(self, items: list[pytest.Item], number: int) -> list[pytest.Item]:
        """The tests that a part does not have."""
        units = [self.unit(item) for item in items]
        order = list(dict.fromkeys(filter(None, units)))
        left = {unit for place, unit in enumerate(order) if place % PARTS != number}
        return [item for item, unit in zip(items, units, strict=True) if unit in left]


def theory_test(item: pytest.Item) -> str:
    """A test of theory, by its name."""
    return item.nodeid if ROOT / "tests/theory" in item.path.parents else ""


def instrument_test(item: pytest.Item) -> str:
    """A file of tests of the instruments for a person's own model: a file's tests share models.
    Those of their tab need the page."""
    is_rotated = ROOT / "tests/models" in item.path.parents and item.path.name != OF_THE_PAGE
    return str(item.path) if is_rotated else ""


def training_lesson(item: pytest.Item) -> str:
    """The notebook of a cell that trains: such a cell may need the ones before it."""
    cell = getattr(item, "cell", None)
    trains = cell is not None and "train" in cell.metadata.get("tags", ())
    return str(item.path) if trains else ""


ROTATIONS = (
    Rotation(
        "theory against measurement",
        (
            "explorer/choices.py",
            "explorer/config.py",
            "explorer/design.py",
            "explorer/profile.py",
            "explorer/sites.py",
            "explorer/vocabulary.py",
            "explorer/measuring",
            "explorer/model",
            "explorer/schemes",
            "explorer/theory",
            "tests/theory",
            "benchmarks/goldens.json.gz",
            "constraints.txt",
        ),
        "tests/rotation.txt",
        ("tests/theory",),
        theory_test,
    ),
    Rotation(
        "instruments for a person's own model",
        (
            "explorer/choices.py",
            "explorer/command.py",
            "explorer/config.py",
            "explorer/design.py",
            "explorer/display.py",
            "explorer/fields.py",
            "explorer/foreign.py",
            "explorer/numbers.py",
            "explorer/plugins.py",
            "explorer/profile.py",
            "explorer/sites.py",
            "explorer/stopping.py",
            "explorer/stored.py",
            "explorer/text.py",
            "explorer/translation.py",
            "explorer/vocabulary.py",
            "explorer/diagnosis",
            "explorer/figures",
            "explorer/measuring",
            "explorer/model",
            "explorer/schemes",
            "explorer/tasks",
            "explorer/theory",
            "plugins/models",
            "tests/models",
            "constraints.txt",
        ),
        "tests/rotation_models.txt",
        ("tests/models",),
        instrument_test,
    ),
    Rotation(
        "cells of lessons that train",
        (
            "explorer/text.py",
            "plugins/models/explorer_models/example.py",
            "notebooks/lessons",
            "constraints.txt",
        ),
        "tests/rotation_lessons.txt",
        ("--nbval", "--nbval-current-env", "notebooks/lessons", "--ignore=notebooks/lessons/zh"),
        training_lesson,
    ),
)


def main() -> int:
    """Runs all of each rotation, and notes its digest where they pass."""
    os.environ[VARIABLE] = "all"
    failed = 0
    for rotation in ROTATIONS:
        status = pytest.main(["-q", f"--rootdir={ROOT}", *rotation.options, *sys.argv[1:]])
        if status == pytest.ExitCode.OK:
            (ROOT / rotation.noted).write_text(f"{rotation.digest()}\n", encoding="utf-8")
        failed = failed or int(status)
    return failed


if __name__ == "__main__":
    os.chdir(ROOT)
    raise SystemExit(main())
