"""Memory of the machine and of its control groups; the ledger in which a server's processes claim
it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from filelock import FileLock, Timeout

from explorer import memory
from explorer.choices import ConfigError
from explorer.config import Config
from explorer.limits import claimed, free_memory, settle
from explorer.memory import LEDGER, PAGE, WORKER, Ledger, control_group_limits, environment
from explorer_serve.start import MOST_PAGES, shared_out

GROUPS = {
    "a container of its own": ("0::/\n", {".": {"memory.max": "4000"}}, [4000]),
    "a systemd service": (
        "0::/system.slice/explorer.service\n",
        {
            ".": {},
            "system.slice": {"memory.max": "max"},
            "system.slice/explorer.service": {"memory.max": "3000"},
        },
        [3000],
    ),
    "a slice around a service": (
        "0::/small.slice/explorer.service\n",
        {
            "small.slice": {"memory.max": "2000"},
            "small.slice/explorer.service": {"memory.max": "max"},
        },
        [2000],
    ),
    "the first version": (
        "12:memory:/docker/abc\n11:cpu,cpuacct:/docker/abc\n",
        {
            "memory/docker/abc": {"memory.limit_in_bytes": "5000"},
            "memory": {"memory.limit_in_bytes": "9000"},
            "cpu": {"memory.limit_in_bytes": "1"},
        },
        [5000, 9000],
    ),
    "a container that sees its host's path": (
        "5:memory:/docker/abc\n",
        {"memory": {"memory.limit_in_bytes": "5000"}},
        [5000],
    ),
    "no limit": ("0::/user.slice\n", {"user.slice": {"memory.max": "max"}}, []),
    "nonsense": ("what\n\n0::\n", {".": {"memory.max": ""}}, []),
}


@pytest.mark.parametrize(("text", "folders", "limits"), GROUPS.values(), ids=GROUPS)
def test_limits_of_control_groups(
    text: str,
    folders: dict[str, dict[str, str]],
    limits: list[float],
    tmp_path: Path,
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(text)
    for folder, files in folders.items():
        (place := tmp_path / "sys/fs/cgroup" / folder).mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (place / name).write_text(content + "\n")
    assert control_group_limits(tmp_path) == limits


def test_memory_of_the_machine_is_psutil_s_with_and_without_sysconf(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert memory.physical_memory() == psutil.virtual_memory().total
    monkeypatch.delattr(os, "sysconf")  # as on Windows
    assert memory.physical_memory() == psutil.virtual_memory().total


def test_other_systems_have_no_control_groups(tmp_path: Path) -> None:
    assert control_group_limits(tmp_path) == []


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """A ledger over 10 GB, in which this process claims."""
    monkeypatch.setenv(LEDGER, str(tmp_path / "memory.json"))
    made = Ledger(tmp_path / "memory.json")
    made.open(10e9)
    return made


CLAIM = """
import sys
from explorer.limits import claimed
with claimed(float(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def somebody(need: float) -> subprocess.Popen[str]:
    """Another visitor's process, which holds so much until its input ends."""
    other = subprocess.Popen(
        [sys.executable, "-c", CLAIM, str(need)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    return other


def test_what_one_visitor_claims_another_does_not_get(ledger: Ledger) -> None:
    with somebody(6e9 + WORKER) as other:
        with claimed(4e9 + WORKER):
            assert ledger.free() == 4e9
        with (
            pytest.raises(
                ConfigError, match=r"needs about 5\.6 GB, and others leave 4\.6 GB: try again in a"
            ),
            claimed(5e9 + WORKER),
        ):
            pass
        with (
            claimed(4e9 + WORKER),
            pytest.raises(ConfigError, match=r"others leave 0\.6 GB"),
            claimed(1e9),
        ):
            pass  # two computations of one process add up
        other.kill()
    with claimed(9e9):
        assert free_memory() == 10e9, "a claim ends with its process, however that ends"


@pytest.mark.parametrize(
    "use", [lambda ledger: ledger.claim(1e9), lambda ledger: ledger.free()], ids=["claim", "free"]
)
def test_the_ledger_is_used_by_one_process_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Ledger], float]
) -> None:
    """Two that read the same free bytes would both claim them."""
    monkeypatch.setattr(memory, "PATIENCE", 0.05)
    ledger = Ledger(tmp_path / "memory.json")
    ledger.open(10e9)
    with FileLock(tmp_path / "memory.json.lock"), pytest.raises(Timeout):
        use(ledger)
    assert use(ledger)


def test_ordinary_designs_claim_nothing(ledger: Ledger) -> None:
    with somebody(10e9 + WORKER), claimed(WORKER):
        assert ledger.free() == 0


def test_nothing_is_claimed_where_no_server_shares_its_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(LEDGER, raising=False)
    with claimed(1e15):
        settle(1e15)


def test_a_measurement_is_refused_that_does_not_fit_beside_others(ledger: Ledger) -> None:
    from explorer.measuring import measure

    large = Config(n_layers=200, d_model=256, n_ctx=64, n_seeds=1)
    assert large.sizes.memory_bytes > WORKER
    with (
        somebody(9.9e9 + WORKER),
        pytest.raises(ConfigError, match="memory must suffice for all visitors of this"),
    ):
        measure(large)


FILLS = """
import sys
with open(sys.argv[1], "wb", buffering=0) as file:
    said = False
    while True:
        try:
            file.write(bytes(4096))
        except OSError:
            if not said:
                print("full", flush=True)
            said = True
"""


def test_claims_go_on_while_something_else_takes_all_room_of_the_disk(tmp_path: Path) -> None:
    disk = ["-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if (
        sys.platform != "linux"
        or subprocess.run(["mount", *disk], capture_output=True, check=False).returncode
    ):
        pytest.skip("a disk can be made by root alone")
    try:
        ledger = Ledger(tmp_path / "ledger")
        ledger.open(10e9)
        assert ledger.claim(1e9)
        with subprocess.Popen(
            [sys.executable, "-c", FILLS, tmp_path / "fill"], stdout=subprocess.PIPE
        ) as filling:
            assert filling.stdout
            try:
                filling.stdout.readline()
                assert all(ledger.claim(size * 1e6) for size in range(5000))
                assert ledger.free() == 10e9
            finally:
                filling.kill()
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


@pytest.mark.parametrize("text", ["soon", "-1", "nan", ""])
def test_a_limit_that_is_no_number_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPLORER_GRACE_SECONDS", text)
    with pytest.raises(
        ValueError, match=f"EXPLORER_GRACE_SECONDS must be a number of at least 0; got '{text}'"
    ):
        environment("EXPLORER_GRACE_SECONDS", 50)


@pytest.mark.parametrize(
    ("memory", "slots", "largest", "files", "max_pages", "pages", "budget"),
    [
        (2 * WORKER + 11 * PAGE, 2, PAGE, 10_000, None, 10, 2 * WORKER + 11 * PAGE),
        (2 * WORKER + 11 * PAGE, 2, 2 * PAGE, 10_000, None, 4, 2 * WORKER + 11 * PAGE),
        (1e12, 2, PAGE, 10_000, None, MOST_PAGES, 1e12),
        (1e12, 2, PAGE, 400, None, 19, 1e12),
        (1e8, 1, PAGE, 10_000, None, 1, WORKER + 2 * PAGE),
        (1e8, 1, PAGE, 10_000, 40, 40, WORKER + 41 * PAGE),
        (1e12, 1, PAGE, 10_000, 3, 3, 1e12),
    ],
    ids=[
        "by memory",
        "larger pages",
        "at most",
        "by open files",
        "too small",
        "more are wanted",
        "fewer are wanted",
    ],
)
def test_pages_and_the_ledger_follow_from_memory_and_files(
    memory: float,
    slots: int,
    largest: float,
    files: int,
    max_pages: int | None,
    pages: int,
    budget: float,
) -> None:
    """Beside one kernel that waits."""
    assert shared_out(memory, slots, largest, files, 1, max_pages) == (pages, budget)
