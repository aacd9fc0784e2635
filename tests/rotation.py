"""Which tests of theory against measurement run: all where what they are about has changed, else
every fifth.

They take some four minutes of a processor, and depend on nothing but the files of `ABOUT`. Where
all have passed with these very files, `make test` runs every fifth, another fifth each day; a
nightly run has all, and so has plain pytest.

    python tests/rotation.py        # runs all, and where they pass notes for which files they did
"""

from __future__ import annotations

import hashlib
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ABOUT = (
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
)
NOTED = ROOT / "tests/rotation.txt"
"""Holds the digest of the files for which all tests have passed."""
PARTS = 5
VARIABLE = "EXPLORER_THEORY_TESTS"
"""`all`, which is what plain pytest runs, or `fifth`, as the Makefile sets it where nobody else
has."""


def digest() -> str:
    """Of the names and contents of all files that the tests are about."""
    whole = hashlib.sha256()
    for name in ABOUT:
        place = ROOT / name
        files = [place] if place.is_file() else sorted(place.rglob("*"))
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                whole.update(file.relative_to(ROOT).as_posix().encode())
                whole.update(file.read_bytes())
    return whole.hexdigest()


def part() -> int | None:
    """The number of today's fifth; None where all are to run."""
    if os.environ.get(VARIABLE, "all") == "all":
        return None
    if not NOTED.exists() or NOTED.read_text(encoding="utf-8").strip() != digest():
        return None
    return datetime.now(UTC).toordinal() % PARTS


def chosen(items: list[pytest.Item], number: int) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests that run, and those of theory against measurement that do not."""
    ours = [item for item in items if ROOT / "tests/theory" in item.path.parents]
    left = {item for place, item in enumerate(ours) if place % PARTS != number}
    return [item for item in items if item not in left], [item for item in items if item in left]


def main() -> int:
    """Runs all, and notes the digest where they pass."""
    os.environ[VARIABLE] = "all"
    status = pytest.main(["-q", str(ROOT / "tests/theory"), *sys.argv[1:]])
    if status == pytest.ExitCode.OK:
        NOTED.write_text(f"{digest()}\n", encoding="utf-8")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
