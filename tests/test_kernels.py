"""The kernels of a server's visitors, without a server: see `tests/browser/test_crowds.py` for the rest."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from explorer.serve.kernels import Kernels


def test_a_kernel_that_has_ended_meanwhile_is_passed_over() -> None:
    """A round of looks waits for each kernel that it ends; others may end by themselves until their turn comes."""

    async def look() -> None:
        await Kernels().cull_kernel_if_idle("gone")

    with ThreadPoolExecutor(1) as thread:  # this thread may hold the loop of a browser that an earlier test has opened
        thread.submit(asyncio.run, look()).result()
