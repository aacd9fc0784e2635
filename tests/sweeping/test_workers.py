"""Where cells are computed: this machine's processes and anybody's executor; none of them changes a number."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import xarray as xr
from small_sweeps import DEADLY, ENVIRONMENT, OVER, SMALL, deadly, same, threads

from explorer import Stopped, Sweep, sweep
from explorer.sweeping.cell import Cell, Found
from explorer.sweeping.engine import BROKEN, KILLED, Engine, run
from explorer.sweeping.workers import Here, Pool, local_workers, processors, workers_of


@pytest.fixture(scope="module")
def whole() -> xr.Dataset:
    return sweep(SMALL, OVER, executor=Here())


def cells(origin: str = "measured") -> list[Cell]:
    """Four small cells; predicted ones are handed out together."""
    points = Sweep(SMALL, {"alpha": OVER["alpha"]}, origins=origin).grid.points.values()
    return [point.cell for point in points if point.cell]


def children(kind: str = "LokyProcess") -> list[psutil.Process]:
    """The pool's processes, or others whose command says what they are."""
    alive = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in alive if kind in " ".join(child.cmdline())]


def in_a_thread(found: list[xr.Dataset], **others: Any) -> None:
    """Sweeps in a thread that is not the main one, as a page does."""
    thread = threading.Thread(target=lambda: found.append(sweep(SMALL, OVER, **others)))
    thread.start()
    thread.join()


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processors, whatever this machine has."""
    monkeypatch.setattr("explorer.sweeping.workers.processors", lambda: 2)


@pytest.mark.usefixtures("two")
def test_the_pool_finds_what_one_process_finds(whole: xr.Dataset) -> None:
    """Bit for bit. Threads that sweep one after the other have the same processes."""
    found: list[xr.Dataset] = []
    in_a_thread(found)
    first = {child.pid for child in children()}
    in_a_thread(found)
    assert [same(one, whole) for one in found] == [True, True]
    assert {child.pid for child in children()} == first
    assert len(first) == 2


@pytest.mark.usefixtures("two")
def test_a_process_that_is_killed_costs_only_what_it_computed(whole: xr.Dataset) -> None:
    killed: list[int] = []

    def kill(cell: Any) -> None:
        if cell.origin == "measured" and not killed:
            killed.append(children()[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    assert same(sweep(SMALL, OVER, on_cell=kill), whole)
    assert killed


class Deadly(Pool):
    """Its processes die at some cells."""

    def submit(self, compute: Any, batch: list[Cell]) -> Future[list[Found]]:
        return super().submit(partial(deadly, compute), batch)


def test_a_cell_that_kills_its_process_each_time_fails_alone() -> None:
    failures: dict[float, str] = {}
    run([(cells("predicted"), Deadly(1))], lambda: False,
        lambda cell, found: failures.update({cell.config.alpha: found.failure}))
    assert failures == {alpha: KILLED if alpha == DEADLY else "" for alpha in OVER["alpha"]}


class Counting(Pool):
    """Its cells' numbers are torch's threads."""

    def submit(self, compute: Any, batch: list[Cell]) -> Future[list[Found]]:
        return super().submit(partial(threads, compute), batch)


def test_a_slot_has_its_share_of_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six processors make three threads for each of two slots."""
    monkeypatch.setattr("explorer.sweeping.workers.processors", lambda: 6)
    found: list[Any] = []
    run([(cells(), Counting(2))], lambda: False, lambda _, what: found.append(what.numbers.get("second_moment")))
    assert found == [3.0] * 4


def test_a_large_cell_has_the_machine_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots are as many as memory holds of the largest cell."""
    monkeypatch.setattr("explorer.sweeping.workers.free_memory", lambda: 8e9)
    monkeypatch.setattr("explorer.sweeping.workers.processors", lambda: 4)
    assert [local_workers(need).slots for need in (1e9, 3e9)] == [4, 2]
    assert local_workers(5e9).inside


def test_somebodys_processes_find_the_same(whole: xr.Dataset) -> None:
    """And when they are broken, the sweep says so and another executor goes on."""
    one = Sweep(SMALL, OVER, executor=(pool := ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))))
    with pool:
        def kill(_: Any) -> None:
            if one.done == 14:
                for process in children("spawn_main"):
                    process.kill()

        with pytest.warns(UserWarning, match="cells were not computed: its executor broke: a process of it was killed"):
            one.run(on_cell=kill)
    assert 14 <= one.done < 24
    assert set(one.failures.ravel()) == {"", BROKEN}
    one.executor = ThreadPoolExecutor(2)
    assert same(one.run().dataset(), whole)
    one.executor.shutdown()
    with pytest.warns(UserWarning, match="its executor takes nothing more: cannot schedule new futures after shutdown"):
        assert (sweep(SMALL, OVER, executor=one.executor).failure != "").all()


def test_any_executor_will_do(whole: xr.Dataset) -> None:
    class Own(Executor):
        """Says nothing of itself."""

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            return Here().submit(fn, *args, **kwargs)

    assert workers_of(Own()).slots == processors()
    assert same(sweep(SMALL, OVER, executor=Own()), whole)


def test_a_stop_is_seen_inside_a_cell() -> None:
    """In another process, by a flag. The processes live on."""
    deep = Sweep(SMALL.replace(n_layers=1000, d_model=64), {"alpha": [0.1, 0.2]}, origins="measured")
    pool = Pool(2)
    run([(cells(), pool)], lambda: False, lambda *_: None)
    first = {child.pid for child in children()}
    engine = Engine([point.cell for point in deep.grid.points.values() if point.cell], pool, lambda: False, pytest.fail)
    engine.hand_out()
    futures = list(engine.running)
    time.sleep(0.3)
    engine.close(None)
    assert [type(future.exception(60)) for future in futures] == [Stopped, Stopped]
    assert {child.pid for child in children()} == first


INTERRUPTED = """
import signal
import explorer
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in its background
explorer.sweep(explorer.Config(), {"alpha": [0.01 * step for step in range(1, 100)]}, origins="measured",
               on_cell=lambda cell: print(cell.failure or "found", flush=True))
"""
"""As people write it: without `if __name__ == "__main__"`."""


@pytest.mark.skipif(sys.platform == "win32", reason="sessions are of POSIX")
def test_ctrl_c_ends_a_script_and_its_processes(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(INTERRUPTED)
    script = subprocess.Popen([sys.executable, "-W", "error", str(tmp_path / "script.py")], start_new_session=True,
                              env={**ENVIRONMENT, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    assert script.stdout
    assert script.stdout.readline() == "found\n"
    os.killpg(script.pid, signal.SIGINT)  # as a terminal does: to everyone
    _, said = script.communicate(timeout=20)
    assert script.returncode == -signal.SIGINT
    assert said.count("Traceback") == 1, said
    assert said.endswith("KeyboardInterrupt\n")
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"], "a file was left"
    end = time.monotonic() + 20
    while (left := [process for process in psutil.process_iter() if of_session(process, script.pid)]
           ) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left
    shared = Path("/dev/shm")  # noqa: S108
    assert not shared.exists() or not list(shared.glob(f"sem.loky-{script.pid}-*"))


def of_session(process: psutil.Process, session: int) -> bool:
    """Whether a process is of a session, and lives."""
    try:
        return os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE
    except (OSError, psutil.Error):
        return False


def test_the_environment_limits_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPLORER_PROCESSES", "1")
    assert isinstance(local_workers(1e6).executor, Here)
    monkeypatch.setenv("EXPLORER_PROCESSES", "many")
    with pytest.raises(ValueError, match="EXPLORER_PROCESSES must be a number of at least 0; got 'many'"):
        local_workers(1e6)
