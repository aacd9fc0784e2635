"""The kernels of a server's visitors, without a server: see `tests/browser/test_crowds.py` for the rest."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from explorer.serve.kernels import AT_ONCE, LONGEST_START, Kernels


def test_a_kernel_that_has_ended_meanwhile_is_passed_over() -> None:
    """A round of looks waits for each kernel that it ends; others may end by themselves until their turn comes."""

    async def look() -> None:
        kernels: Any = Kernels()
        await kernels.cull_kernel_if_idle("gone")
        kernels.list_kernel_ids = lambda: ["gone"]
        await kernels.bury()

    with ThreadPoolExecutor(1) as thread:  # this thread may hold the loop of a browser that an earlier test has opened
        thread.submit(asyncio.run, look()).result()


def test_a_kernel_that_is_being_made_is_passed_over() -> None:
    """It is among the others before it has a time of its last message."""

    async def look() -> None:
        kernels = Kernels()
        try:
            starting = asyncio.create_task(kernels.start_kernel(env={**os.environ, "VOILA_PREHEAT": "True"}))
            while not starting.done():
                for name in kernels.list_kernel_ids():
                    await kernels.cull_kernel_if_idle(name)
                await asyncio.sleep(0)
            assert await starting in kernels
        finally:
            await kernels.shutdown_all()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, look()).result()


def test_the_next_kernel_starts_while_lessons_run_their_cells() -> None:
    """A class opens a lesson at once: nobody waits for the text until others' cells have trained a model."""

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
    seconds: str, interval: int, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EXPLORER_LOOK_SECONDS", seconds)
    assert Kernels().cull_interval == interval
