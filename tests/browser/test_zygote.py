"""The process that kernels are forks of, killed and stopped; and a kernel that is slow while its page is on its way."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import psutil
import pytest

from .conftest import server
from .test_crowds import health, rests
from .visitor import SOON, answers, arrive, enter, kernels, processes, seconds_until_gone, serving, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kernels are forks on Linux alone")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of this file's own, which looks at its kernels every second."""
    limits = {"EXPLORER_LOOK_SECONDS": "1", "EXPLORER_PROCESSES": "1", "EXPLORER_GRACE_SECONDS": "200"}
    with server(["serve"], tmp_path_factory.mktemp("zygote") / "log", **limits) as running:
        yield running


def zygote(address: str) -> psutil.Process:
    """The process of a server that kernels are forks of."""
    (found,) = [child for child in serving(address).children() if "zygote" in " ".join(child.cmdline())]
    return found


def rested(address: str) -> None:
    """Waits until a kernel waits for a visitor that has run the page's notebook, and nothing else starts."""
    wait_until(lambda: health(address)["status"] == "ok" and health(address)["waiting"] == 1)
    wait_until(lambda: all(rests(process) for process in kernels(address)))


def test_a_kernel_that_was_given_to_a_page_is_not_ended_for_being_slow(address: str) -> None:
    """It is stopped between the page and its websocket, for longer than a heart may miss, and looked at meanwhile."""
    rested(address)
    kernel = arrive(address)
    (process,) = processes(kernel)
    process.suspend()
    time.sleep(6)
    process.resume()
    with enter(address, kernel) as visit:
        assert answers(visit)


def test_pages_go_on_where_the_zygote_dies_and_new_ones_come(address: str) -> None:
    rested(address)
    with ExitStack() as visits:
        before = visits.enter_context(enter(address, arrive(address)))
        rested(address)
        killed = zygote(address)
        killed.kill()
        time.sleep(0.2)
        for _ in range(2):  # the kernel that waited, and one that is forked by another zygote
            visit = visits.enter_context(enter(address, arrive(address)))
            assert answers(visit)
        assert zygote(address) != killed
        time.sleep(3)  # a kernel that looked for its parent would have ended
        assert answers(before)
        assert answers(visit)


def test_a_zygote_that_stands_still_is_replaced(address: str) -> None:
    rested(address)
    stopped = zygote(address)
    stopped.suspend()
    for _ in range(2):
        with enter(address, arrive(address)) as visit:
            assert answers(visit)
    assert zygote(address) != stopped


def test_kernels_of_a_zygote_that_has_died_end_with_the_server(address: str) -> None:
    """The last test: the server is killed."""
    rested(address)
    kernel = arrive(address)
    zygote(address).kill()
    os.kill(serving(address).pid, signal.SIGKILL)
    assert seconds_until_gone(kernel) < SOON
