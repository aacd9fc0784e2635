"""Where cells are computed: this machine's processes and anybody's executor; none of them changes a
number."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import xarray as xr
from small_sweeps import ENVIRONMENT, OVER, SMALL, same

from explorer import Sweep, sweep
from explorer.limits import process_count, processors
from explorer.sweeping.cell import Cell
from explorer.sweeping.workers import Engine, Here, Outside, run, workers_of
from explorer.tasks.broker import Remote, RemoteTicket
from explorer.tasks.pool import Notify, Pool, Task


def cells(seed: int) -> list[Cell]:
    """Four small cells."""
    points = Sweep(
        SMALL.replace(seed=seed), {"alpha": OVER["alpha"]}, origins="measured"
    ).grid.points.values()
    return [point.cell for point in points if point.cell]


def children(kind: str) -> list[psutil.Process]:
    """Processes of this one whose command says what they are."""
    alive = [
        child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE
    ]
    return [child for child in alive if kind in " ".join(child.cmdline())]


def in_a_thread(results: list[xr.Dataset], **others: Any) -> None:
    """Sweeps in a thread that is not the main one, as a page does."""
    thread = threading.Thread(target=lambda: results.append(sweep(SMALL, OVER, **others)))
    thread.start()
    thread.join()


@pytest.fixture(scope="module")
def two() -> Iterator[Pool]:
    pool = Pool(2)
    yield pool
    pool.close()


@pytest.fixture
def pool(two: Pool, monkeypatch: pytest.MonkeyPatch) -> Pool:
    """Two workers of this process, whatever this machine has."""
    monkeypatch.setattr("explorer.tasks.place", lambda: two)
    monkeypatch.setenv("EXPLORER_PROCESSES", "2")
    return two


def test_workers_find_what_one_process_finds(pool: Pool, whole: xr.Dataset) -> None:
    """Bit for bit. Threads that sweep one after the other have the same processes."""
    results: list[xr.Dataset] = []
    in_a_thread(results)
    first = list(pool.workers)
    in_a_thread(results)
    assert [same(result, whole) for result in results] == [True, True]
    assert pool.workers == first


def test_a_process_that_is_killed_costs_only_what_it_computed(
    pool: Pool, whole: xr.Dataset
) -> None:
    killed = []

    def kill(cell: Any) -> None:
        if cell.origin == "measured" and not killed:
            killed.append(pool.workers[0])
            killed[0].kill()

    assert same(sweep(SMALL, OVER, on_cell=kill), whole)
    assert killed


def test_a_slot_has_its_share_of_the_processors(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six processors make three threads for each of two slots, or six where one cell fills the
    memory."""
    monkeypatch.setattr("explorer.sweeping.workers.processors", lambda: 6)
    monkeypatch.setattr("explorer.limits.free_memory", lambda: 8e9)
    assert [
        (Outside(need).slots, Outside(need).threads, Outside(need).most) for need in (1e9, 5e9)
    ] == [(2, 3, 4), (1, 6, 1)]
    assert pool.slots == 2


def test_somebodys_processes_find_the_same(whole: xr.Dataset) -> None:
    """And when they are broken, the sweep says so and another executor goes on."""
    one = Sweep(
        SMALL, OVER, executor=(pool := ProcessPoolExecutor(1, multiprocessing.get_context("spawn")))
    )
    with pool:

        def kill(_: Any) -> None:
            if one.done == 14:
                for process in children("spawn_main"):
                    process.kill()

        with pytest.warns(
            UserWarning,
            match="cells were not computed: its executor broke: A process .* was terminated",
        ):
            one.run(on_cell=kill)
    assert 14 <= one.done < 24
    assert {failure.split(":")[0] for failure in one.failures.ravel()} == {"", "its executor broke"}
    one.executor = ThreadPoolExecutor(2)
    assert same(one.run().dataset(), whole)
    one.executor.shutdown()
    with pytest.warns(
        UserWarning,
        match="its executor takes nothing more: cannot schedule new futures after shutdown",
    ):
        assert (sweep(SMALL, OVER, executor=one.executor).failure != "").all()


def test_any_executor_will_do(whole: xr.Dataset) -> None:
    class Own(Executor):
        """Says nothing of itself."""

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            return Here().submit(fn, *args, **kwargs)

    assert workers_of(Own()).most == 2 * processors()
    assert same(sweep(SMALL, OVER, executor=Own()), whole)


def test_a_server_out_of_reach_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not again for each handful of cells: each time it would be looked for."""
    monkeypatch.setattr("explorer.tasks.broker.PATIENCE", 0.2)
    monkeypatch.setenv("EXPLORER_TASKS_KEY", "none")
    asked = []

    class Counted(Remote):
        def submit(self, task: Task, notify: Notify) -> RemoteTicket:
            asked.append(task)
            return super().submit(task, notify)

    away = Counted(str(tmp_path / "tasks"))
    monkeypatch.setattr("explorer.tasks.place", lambda: away)
    outside = Outside()
    over = {"alpha": [0.1 * step for step in range(1, 4 * outside.most)]}
    one = Sweep(SMALL, over, executor=outside, origins="measured")
    with pytest.warns(UserWarning, match="cells were not computed: the server .* out of reach"):
        one.run()
    assert (one.done, len(asked)) == (0, outside.most)


def test_a_stop_is_seen_inside_a_cell(pool: Pool) -> None:
    """In another process, which lives on and is free for others at once."""
    deep = Sweep(
        SMALL.replace(n_layers=1000, d_model=64), {"alpha": [0.1, 0.2]}, origins="measured"
    )
    # a worker that was killed is replaced here
    run([(cells(seed=9), Outside())], lambda: False, lambda *_: None)
    first, before = list(pool.workers), pool.computed
    engine = Engine(
        [point.cell for point in deep.grid.points.values() if point.cell],
        Outside(),
        lambda: False,
        pytest.fail,
    )
    engine.hand_out()
    time.sleep(0.3)
    engine.close()
    run([(cells(seed=10), Outside())], lambda: False, lambda *_: None)
    assert (pool.workers, pool.computed) == (first, before + 4), "a deep one was computed"


INTERRUPTED = """
import signal
import explorer
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in its background
explorer.sweep(explorer.Config(), {"alpha": [0.01 * step for step in range(1, 100)]}, origins="measured",
               on_cell=lambda cell: print(cell.failure or "found", flush=True))
"""
"""As people write it: without `if __name__ == "__main__"`."""


def ignores(process: psutil.Process) -> bool:
    """Whether a process leaves an interrupt to the one that started it, where the system tells."""
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():
        return True
    (ignored,) = (line for line in status.read_text().splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored.split()[1], 16) & 1 << signal.SIGINT - 1)


@pytest.mark.skipif(sys.platform == "win32", reason="sessions are of POSIX")
def test_ctrl_c_ends_a_script_and_its_processes(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(INTERRUPTED)
    script = subprocess.Popen(
        [sys.executable, "-W", "error", str(tmp_path / "script.py")],
        start_new_session=True,
        env={**ENVIRONMENT, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert script.stdout
    assert script.stdout.readline() == "found\n"
    end = time.monotonic() + 60
    while not all(map(ignores, psutil.Process(script.pid).children())) and time.monotonic() < end:
        time.sleep(0.05)  # one of the workers may be only starting
    os.killpg(script.pid, signal.SIGINT)  # as a terminal does: to everyone
    _, said = script.communicate(timeout=60)
    assert script.returncode == -signal.SIGINT
    assert said.count("Traceback") == 1, said
    assert said.endswith("KeyboardInterrupt\n")
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"], "a file was left"
    end = time.monotonic() + 20
    while (
        left := [process for process in psutil.process_iter() if of_session(process, script.pid)]
    ) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left


def of_session(process: psutil.Process, session: int) -> bool:
    """Whether a process is of a session, and lives."""
    try:
        return os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE
    except (OSError, psutil.Error):
        return False


def test_the_environment_limits_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPLORER_PROCESSES", "1")
    assert process_count() == 1
    monkeypatch.setenv("EXPLORER_PROCESSES", "many")
    with pytest.raises(
        ValueError, match="EXPLORER_PROCESSES must be a number of at least 0; got 'many'"
    ):
        process_count()
