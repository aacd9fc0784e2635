"""What all tests share: hypothesis draws the same examples on every machine, and no test waits for
ever."""

from __future__ import annotations

import os
from pathlib import Path

import core
import pytest
import rotation
from hypothesis import HealthCheck, settings

# tests run beside each other; torch reads it when it is imported
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# So do the processes that compute for a page, a server or a notebook, each of which takes two
# seconds of a processor to start. Tests that are about several have them.
os.environ.setdefault("EXPLORER_PROCESSES", "1")
os.environ["LC_ALL"] = "C.UTF-8"  # the language of what commands say, which tests read

settings.register_profile(
    "explorer",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("explorer")

ROOT = Path(__file__).parents[1]
LONGER = {
    "notebooks": "a cell may train, and waits for a kernel; nbval has a limit of its own",
    "tests/browser": "the first test of a file starts a server and a browser, and each wait there has a limit",
    "tests/models/test_processes.py": "waits up to two minutes for processes that train together",
    "tests/test_packaging.py": "builds a wheel",
}
"""Folders and files whose tests may take longer than `timeout` in pyproject.toml, each with the
reason."""
LONG = 600.0
"""Seconds that they may take."""


def pytest_report_header() -> list[str]:
    """Says which tests of each rotation run."""
    lines = []
    for rotated in rotation.ROTATIONS:
        number = rotated.part()
        if number is None:
            lines.append(f"{rotated.words}: all tests")
        else:
            part = f"part {number + 1} of {rotation.PARTS}"
            lines.append(f"{rotated.words}: {part}; {rotation.VARIABLE}=all runs all")
    return lines


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marks."""
    config.addinivalue_line("markers", "plugins: the test needs a plug-in, see core.py")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leaves out files without a test to run: those that cannot be imported without plug-ins, where
    these are absent; where they are present, those that need none."""
    if not core.part() or (collection_path.is_dir() and core.part() == "present"):
        return None
    if collection_path.is_dir():
        return collection_path.parent == core.TESTS and collection_path.name in core.OTHERS
    is_test = collection_path.name.startswith("test_") or collection_path.suffix == ".ipynb"
    if core.part() == "present":
        return is_test and core.is_core(collection_path) and not core.has_marks(collection_path)
    return is_test and not core.is_core(collection_path)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what `core` and `rotation` do; gives the tests of `LONGER` their limit, where they
    have none of their own."""
    if core.part():
        left_out = [item for item in items if core.is_left_out(item)]
        items[:] = [item for item in items if not core.is_left_out(item)]
        config.hook.pytest_deselected(items=left_out)
    for rotated in rotation.ROTATIONS:
        number = rotated.part()
        if number is not None:
            others = set(rotated.left_out(items, number))
            config.hook.pytest_deselected(items=list(others))
            items[:] = [item for item in items if item not in others]
    for item in items:
        path = item.path.relative_to(ROOT)
        places = {place.as_posix() for place in (path, *path.parents)}
        if places & LONGER.keys() and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONG))
