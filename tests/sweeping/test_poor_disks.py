"""Disks that are full, or may not be written: a sweep says so in a sentence, and returns what it
computed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_sweeps import ENVIRONMENT

COMMON = """
import json, os, resource, signal, subprocess, sys, warnings
from concurrent.futures import ThreadPoolExecutor
from small_sweeps import OVER, SMALL, same
from explorer import ConfigError, sweep

folder, said = sys.argv[1], []
store = os.path.join(folder, "store")

def run(**others):
    computed = []
    with ThreadPoolExecutor(1) as pool, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = sweep(SMALL, OVER, executor=pool, on_cell=computed.append, **others)
    said.append({"computed": len(computed), "warnings": [str(one.message) for one in caught]})
    return found

whole = run()
"""

FULL_THEN_READ_ONLY = (
    COMMON
    + """
def mount(options):
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)

mount("size=120k")
assert same(run(store=store), whole)  # full
mount("remount,ro")
assert same(run(store=store), whole)  # not complete
try:
    sweep(SMALL, OVER, store=os.path.join(folder, "other"))
except ConfigError as error:
    said.append(str(error))
mount("remount,rw,size=1m")
assert same(run(store=store), whole)
mount("remount,ro")
assert same(run(store=store), whole)  # complete
print(json.dumps(said))
"""
)

SHORT = (
    COMMON
    + """
sweep(SMALL, OVER, store=store, stop=lambda: True)
resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))  # bytes, less than a cell's
assert same(run(store=store), whole)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert same(run(store=store), whole)
print(json.dumps(said))
"""
)


def said(code: str, folder: Path, *before: str) -> list[Any]:
    """What a script says; its assertions are part of the test."""
    command = [*before, sys.executable, "-c", code, str(folder)]
    return list(json.loads(subprocess.check_output(command, env=ENVIRONMENT, text=True)))


ALONE = ("unshare", "--map-root-user", "--mount")


def mounts() -> bool:
    """Whether this system lets us make a small disk."""
    try:
        return not subprocess.run(
            [*ALONE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
        ).returncode
    except OSError:
        return False


@pytest.mark.skipif(
    sys.platform == "win32" or mounts(),
    reason="a real disk is better, and Windows has no such limit",
)
def test_where_files_may_not_grow_nothing_is_lost_but_the_store(tmp_path: Path) -> None:
    whole, limited, again = said(SHORT, tmp_path)
    assert whole == {"computed": 24, "warnings": []}
    assert limited == {
        "computed": 24,
        "warnings": [
            f"the store {tmp_path}/store cannot be written (File too large): cells from here on are not kept"
        ],
    }
    assert again == {"computed": 24, "warnings": []}


@pytest.mark.skipif(not mounts(), reason="no small disk can be made here")
def test_a_full_or_read_only_disk_is_one_sentence(tmp_path: Path) -> None:
    whole, full, read_only, refusal, larger, complete = said(FULL_THEN_READ_ONLY, tmp_path, *ALONE)
    assert whole == {"computed": 24, "warnings": []}
    assert full == {
        "computed": 24,
        "warnings": [
            f"the store {tmp_path}/store cannot be written (No space left on device): cells from here on are not kept"
        ],
    }
    kept = 24 - read_only["computed"]
    assert 0 < kept < 24
    assert read_only["warnings"] == [
        f"the store {tmp_path}/store cannot be written (Read-only file system): cells from here on are not kept"
    ]
    assert refusal == (
        f"store must be a place where a Zarr store can be read or made; got '{tmp_path}/other' "
        "(Read-only file system)"
    )
    assert larger == {"computed": 24 - kept, "warnings": []}
    assert complete == {"computed": 0, "warnings": []}
