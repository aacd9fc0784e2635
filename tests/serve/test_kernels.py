"""The kernels of a server's visitors, without a server: see `tests/browser/test_crowds.py` for the
rest."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import psutil
import pytest

from explorer_serve.kernels import AT_ONCE, LONGEST_START, Kernels, NoRoomError, own_memory


def test_a_kernel_that_has_ended_meanwhile_is_passed_over() -> None:
    """A round of looks waits for each kernel that it ends; others may end by themselves until their
    turn comes."""

    async def look() -> None:
        kernels: Any = Kernels()
        await kernels.cull_kernel_if_idle("gone")
        kernels.list_kernel_ids = lambda: ["gone"]
        await kernels.bury()

    with ThreadPoolExecutor(
        1
    ) as thread:  # this thread may hold the loop of a browser that an earlier test has opened
        thread.submit(asyncio.run, look()).result()


def test_a_kernel_that_is_being_made_is_passed_over() -> None:
    """It is among the others before it has a time of its last message. It is nobody's page until a
    visitor is given it."""

    async def look() -> None:
        kernels = Kernels()
        try:
            starting = asyncio.create_task(
                kernels.start_kernel(env={**os.environ, "VOILA_PREHEAT": "True"})
            )
            while not starting.done():
                for name in kernels.list_kernel_ids():
                    await kernels.cull_kernel_if_idle(name)
                assert kernels.pages == 0
                await asyncio.sleep(0)
            assert await starting in kernels
            assert kernels.pages == 0
            kernels.give(await starting)
            assert kernels.pages == 1
        finally:
            await kernels.shutdown_all()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, look()).result()


def test_a_kernel_whose_visitor_goes_while_it_starts_is_ended() -> None:
    """Nothing would be asked of it, and its state be "starting" for ever."""

    async def go() -> None:
        kernels: Any = Kernels()
        started = asyncio.Event()
        start = kernels._start

        async def _start(*arguments: Any) -> str:
            started.set()
            return str(await start(*arguments))

        kernels._start = _start
        try:
            waiting = {**os.environ, "VOILA_PREHEAT": "True"}
            visit = asyncio.create_task(kernels.start_kernel(env=waiting))
            await asyncio.wait_for(started.wait(), LONGEST_START)
            visit.cancel()
            with pytest.raises(asyncio.CancelledError):
                await visit
            async with asyncio.timeout(LONGEST_START):
                while not kernels.list_kernel_ids():
                    await asyncio.sleep(0.01)
                while kernels.list_kernel_ids():
                    await asyncio.sleep(0.1)
        finally:
            await kernels.shutdown_all()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, go()).result()


def test_the_next_kernel_starts_while_lessons_run_their_cells() -> None:
    """A class opens a lesson at once: nobody waits for the text until others' cells have trained a
    model."""

    async def start() -> None:
        kernels, waiting = Kernels(), {**os.environ, "VOILA_PREHEAT": "True"}
        clients: list[Any] = []
        try:
            for _ in range(AT_ONCE):
                name = await kernels.start_kernel(env=waiting)
                client: Any = kernels.get_kernel(name).client()
                client.start_channels()
                clients.append(client)
                client.execute("import time; time.sleep(120)")
                kernels.run(name)
            await asyncio.wait_for(kernels.start_kernel(env=waiting), LONGEST_START / 2)
        finally:
            for client in clients:
                client.stop_channels()
            await kernels.shutdown_all()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, start()).result()


@pytest.mark.parametrize(("seconds", "interval"), [("2", 2), ("0", 1)])
def test_kernels_are_looked_at_as_often_as_the_operator_says(
    seconds: str,
    interval: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EXPLORER_LOOK_SECONDS", seconds)
    assert Kernels().cull_interval == interval


class Alone(Kernels):
    """Kernels of which none waits for a visitor: Voilà keeps those, in a class of its own."""

    waiting = 0


@pytest.mark.parametrize(("seconds", "is_left"), [(600, True), (3, False)])
def test_a_server_that_ends_waits_for_its_last_page_and_no_longer_than_it_may(
    seconds: float, is_left: bool
) -> None:
    async def drain() -> None:
        kernels = Alone()
        name = await kernels.start_kernel(env=dict(os.environ))
        begun = time.monotonic()
        draining = asyncio.create_task(kernels.drain(seconds))
        await asyncio.sleep(1)
        assert name in kernels
        with pytest.raises(NoRoomError) as refusal:
            await kernels.start_kernel(env=dict(os.environ))
        assert refusal.value.reason == "draining"
        if is_left:
            await kernels.end(name)
        await asyncio.wait_for(draining, 60)
        assert name not in kernels
        assert is_left or time.monotonic() - begun >= seconds

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, drain()).result()


def test_a_page_that_takes_more_memory_than_it_may_is_ended_once_it_can_hear_why(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def look() -> None:
        kernels = Alone()
        name = await kernels.start_kernel(env=dict(os.environ))
        while kernels.memory.get(name, 0) < 10e6:
            await kernels.look()
        assert name in kernels
        kernels.notify_connect(name)
        await kernels.look()
        assert name not in kernels

    monkeypatch.setenv("EXPLORER_KERNEL_MB", "10")
    with caplog.at_level("INFO", "explorer.events"), ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, look()).result()
    (event,) = caplog.records
    assert event.message == "ended"
    assert "memory" in vars(event)["more"]["reason"]
    assert "10 MB" in vars(event)["more"]["reason"]


def test_the_memory_of_an_owner_is_that_of_all_its_processes() -> None:
    """50 MB in a process, 100 MB in its child; somebody else's process has little."""
    child = "x = bytearray(100_000_000); print(flush=True); input()"
    parent = (
        f"import subprocess, sys; x = bytearray(50_000_000); "
        f"subprocess.run([sys.executable, '-c', {child!r}])"
    )
    with ExitStack() as running:
        owners = {}
        for name, code in (
            ("large", parent),
            ("small", "print(flush=True); input()"),
            ("nobody", child),
        ):
            process = running.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
            )
            running.callback(process.kill)
            process.stdout.readline()  # type: ignore[union-attr]
            owners[process.pid] = name
        found = own_memory({process: name for process, name in owners.items() if name != "nobody"})
        assert found.keys() == {"large", "small"}
        assert found["large"] - 2 * found["small"] == pytest.approx(150e6, rel=0.05)
        for process in map(psutil.Process, owners):
            for below in process.children():
                below.kill()
