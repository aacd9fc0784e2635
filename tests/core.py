"""The tests of the package alone: those that run where no plug-in can be imported.

`EXPLORER_PLUGINS=absent` runs them alone, and expects `tests/early` on PYTHONPATH; `present` runs
all others. Without it, and where plug-ins are, all tests run.

A test file is the package's if it is in none of the folders `OTHERS`, and names no plug-in, nothing
that one brings, and no benchmark, some of which do. In such a file the mark `plugins` says that a
test needs one."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

import pytest

from explorer.plugins import KNOWN

TESTS = Path(__file__).parent
OTHERS = ("browser", "models", "race", "serve")
"""Folders of tests that need plug-ins."""
NAMES = "|".join(name for names in KNOWN.values() for name in names)
PLUGIN = re.compile(
    rf"explorer_(?:models|race|serve)|\b(?:ex|explorer)\.(?:{NAMES})\b"
    r"|from (?:benchmarks|raced|test_live|test_notebooks)\b"
    rf"|^from explorer import (?:\([^)]*|[^\n(]*)\b(?:{NAMES})\b",
    re.MULTILINE,
)


def part() -> str:
    """Which tests are to run: those where plug-ins are absent, or present; empty for all."""
    name = os.environ.get("EXPLORER_PLUGINS", "")
    if name not in ("", "absent", "present"):
        raise ValueError(f"EXPLORER_PLUGINS must be absent or present; got {name!r}")
    return name


@cache
def is_core(path: Path) -> bool:
    """Whether a test file is one of the package alone."""
    if not path.is_relative_to(TESTS) or path.suffix != ".py":
        return False
    if path.relative_to(TESTS).parts[0] in OTHERS:
        return False
    return not PLUGIN.search(path.read_text(encoding="utf-8"))


@cache
def has_marks(path: Path) -> bool:
    """Whether some tests of a file need plug-ins."""
    return "mark.plugins" in path.read_text(encoding="utf-8")


def is_left_out(item: pytest.Item) -> bool:
    """Whether a test is of the other part."""
    alone = is_core(item.path) and item.get_closest_marker("plugins") is None
    return alone != (part() == "absent")
