"""A test that hangs ends, and shows where it hung; those that may take longer are where `LONGER`
says."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

HANGS = """
import threading

def test_hangs():
    threading.Thread(target=waits_elsewhere, daemon=True).start()
    waits_here()

def waits_here():
    threading.Event().wait()

def waits_elsewhere():
    threading.Event().wait()

def test_ends():
    pass
"""


def test_a_test_that_hangs_fails_with_every_stack_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "test_hangs.py").write_text(HANGS, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        ROOT / "pyproject.toml",
        "--rootdir",
        tmp_path,
        "-o",
        "timeout=1",
        "-p",
        "no:cacheprovider",
        tmp_path,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "1 failed, 1 passed" in said
    assert "waits_here" in said
    assert "waits_elsewhere" in said


@pytest.mark.plugins
def test_every_test_has_a_limit(request: pytest.FixtureRequest) -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "pytest"
    ]["ini_options"]
    assert options["timeout"] == 120
    shared = request.config.pluginmanager.get_plugin(str(ROOT / "tests/conftest.py"))
    assert shared
    assert [place for place in shared.LONGER if not (ROOT / place).exists()] == []
    packaging = pytest.Module.from_parent(request.session, path=ROOT / "tests/test_packaging.py")
    shared.pytest_collection_modifyitems(request.config, [request.node, packaging])
    assert request.node.get_closest_marker("timeout") is None
    limit = packaging.get_closest_marker("timeout")
    assert limit
    assert limit.args == (shared.LONG,)
