"""`Kernels`: the Python processes of a server's visitors: how many there may be, and when each
ends."""

# mypy: disallow-untyped-calls = False
# Much of jupyter_server has no types.

from __future__ import annotations

import asyncio
import math
import os
import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from filelock import Timeout
from jupyter_core.utils import ensure_async
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from tornado.ioloop import IOLoop
from tornado.web import HTTPError
from traitlets import Int

from explorer.log import note
from explorer.memory import LEDGER, PAGE, Ledger, environment
from explorer_serve.visits import Connection

GRACE = 50.0
"""Seconds that a kernel waits for its page: a network that fails for a moment must not end a
visit."""
RETURN = 5.0
"""Seconds where the browser said that it goes to another page; a proxy that restarts may say so,
too."""
IDLE = 3600.0
"""Seconds after which a kernel ends whose page is open, but neither sends nor is sent anything."""
ASKED = 60.0
"""Seconds before that at which the page asks whether anybody is there; half of them all where they
are few."""
AT_ONCE = 2
"""Kernels that start at the same time; more would only be slower together."""
LINE = 50.0
"""Seconds that a visitor waits in line for a kernel to start; a proxy gives up after 60."""
LONGEST_START, SETTLED, GLANCE = 30.0, 0.2, 0.1
"""Seconds: a start takes no longer than the first; it is over when the kernel has been idle for the
second."""
HEARTBEAT = 10.0
"""Seconds in which a kernel answers that waits for a visitor, however busy the machine is."""
STOPPED = {
    psutil.STATUS_STOPPED,
    psutil.STATUS_TRACING_STOP,
    psutil.STATUS_ZOMBIE,
    psutil.STATUS_DEAD,
}
"""States of a process that runs no further."""
UNSENT = 16_000_000
"""Bytes of messages that are kept for a page that is out of reach."""


class NoRoomError(Exception):
    """There can be no further page now: the reason in a word, and a sentence for the visitor who
    asked for a page."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class Kernels(AsyncMappingKernelManager):
    """The visitors' kernels.

    One without a page ends: at once when the page says so, else after `grace` seconds. One whose
    page has been idle for `idle` seconds ends, too."""

    max_pages = Int(
        100,
        config=True,
        help="Visitors' pages at a time, without the kernels that wait for a visitor.",
    )
    ready, draining = False, False
    """Whether a first kernel has run the notebook; whether the server is about to end."""
    memory: Mapping[str, int] = {}
    """Bytes that each kernel and its processes have for themselves, when they were last looked
    at."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.grace = environment("EXPLORER_GRACE_SECONDS", GRACE)
        self.idle = environment("EXPLORER_IDLE_SECONDS", IDLE)
        self.cull_interval = max(1, round(environment("EXPLORER_LOOK_SECONDS", self.cull_interval)))
        self.most_memory = environment("EXPLORER_KERNEL_MB", math.inf) * 1e6
        self._visited: dict[str, float] = {}
        """Kernels whose page has come, and when, in the event loop's seconds."""
        self._expected: dict[str, bool] = {}
        """Kernels that start, or wait for their turn to start, and whether each will wait for a
        visitor."""
        self._preheated: set[str] = set()
        """Kernels that wait for a visitor: nobody's page is theirs yet."""
        self.being_given = 0
        """Visitors for whom a kernel was chosen that waits, or has yet to start."""
        self._without_page: dict[str, float] = {}
        """Since when a kernel has had no page, in the event loop's seconds."""
        self._left: dict[str, float] = {}
        """When a browser said that it leaves the page of a kernel, in the same seconds."""
        self._unsent: dict[str, list[tuple[str, Any]]] = {}
        """Messages that are kept for a page that is out of reach, with the name of their
        channel."""
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._runs: set[str] = set()
        """Kernels that run a lesson's cells: their pages show the text already, and the next kernel
        may start."""

    # --- how many there may be --------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Kernels that wait for a visitor."""
        manager: Any = self  # Voilà adds the pool in a class of its own
        return int(
            manager.get_pool_size(
                os.path.relpath(manager.parent.notebook_path, manager.parent.root_dir)
            )
        )

    @property
    def pages(self) -> int:
        """Visitors' pages, open or about to be.

        Voilà counts a kernel among those that wait some time before it starts it, so `waiting`
        cannot be subtracted."""
        waiting = {kernel_id for kernel_id, waits in self._expected.items() if waits}
        owned = self._all_kernels() - waiting - self._preheated
        return len(owned) + self.being_given

    def _all_kernels(self) -> set[str]:
        """Kernels that are there, or expected."""
        return self._expected.keys() | set(self.list_kernel_ids())

    def must_have_room(self, ahead: int = 0) -> None:
        """Refuses a visitor for whom there is no page now.

        Args:
            ahead: visitors who come first.
        Raises:
            NoRoomError: the server ends, or every page is in use.
        """
        if self.draining:
            raise NoRoomError("draining", "This server is about to be restarted.")
        if self.pages + ahead >= self.max_pages:
            raise NoRoomError(
                "full",
                f"Every page that this server can show at a time is in use ({self.max_pages}).",
            )

    async def start_kernel(self, *, kernel_id: str | None = None, **options: Any) -> str:  # type: ignore[override]
        """Starts a kernel when its turn comes, and returns its id.

        Raises:
            NoRoomError: there are as many pages as there may be, memory is short, or too many
                kernels start.
        """
        kernel_id = kernel_id or str(uuid.uuid4())
        preheated = (options.get("env") or {}).get("VOILA_PREHEAT") == "True"
        if not preheated:
            self.must_have_room()
        self._expected[kernel_id] = preheated
        try:
            if not await self._claim() and not preheated:
                raise NoRoomError(
                    "memory", "Other visitors' computations take all memory that this server has."
                )
            try:
                async with asyncio.timeout(None if preheated else LINE):
                    await self._turns.acquire()
            except TimeoutError:
                raise NoRoomError(
                    "starting", "Many pages are being opened at this moment."
                ) from None
            # A start cannot be broken off without leaving a process behind that nobody knows.
            starting = asyncio.ensure_future(self._start(kernel_id, preheated, options))
            try:
                return await asyncio.shield(starting)
            except asyncio.CancelledError:  # the visitor has gone: the kernel will be nobody's
                starting.add_done_callback(self._end_started)
                raise
        except BaseException:
            self._expected.pop(kernel_id, None)
            raise

    async def _start(self, kernel_id: str, preheated: bool, options: dict[str, Any]) -> str:
        """Starts a kernel whose turn it is, and lets the next one start when this one has run its
        notebook."""
        try:
            await super().start_kernel(kernel_id=kernel_id, **options)
        except BaseException:
            self._turns.release()
            raise
        finally:
            self._expected.pop(kernel_id, None)
        if preheated:
            self._preheated.add(kernel_id)
        with suppress(OSError):  # Linux: where memory runs out, a page ends and not the server
            kernel: Any = self.get_kernel(kernel_id)
            Path(f"/proc/{kernel.provisioner.pid}/oom_score_adj").write_text(
                "1000", encoding="ascii"
            )
        IOLoop.current().spawn_callback(self._end_turn, kernel_id)
        return kernel_id

    def _end_started(self, starting: asyncio.Future[str]) -> None:
        """Ends a kernel that was started for a visitor who has gone."""
        if not starting.cancelled() and starting.exception() is None:
            IOLoop.current().spawn_callback(self.end, starting.result())

    def run(self, kernel_id: str) -> None:
        """Notes that a lesson's cells run, which may take minutes: the start of their kernel is
        over."""
        self._runs.add(kernel_id)

    def has_run(self, kernel_id: str) -> bool:
        """Whether a lesson's cells run, or have run."""
        return kernel_id in self._runs

    async def _end_turn(self, kernel_id: str) -> None:
        left, quiet = LONGEST_START, 0.0
        while left > 0 and quiet < SETTLED:
            await asyncio.sleep(GLANCE)
            left -= GLANCE
            if kernel_id not in self or kernel_id in self._runs:
                break
            quiet = (
                quiet + GLANCE if self.kernel_model(kernel_id)["execution_state"] == "idle" else 0.0
            )
        self.ready = True
        self._turns.release()

    async def _claim(self) -> bool:
        """Claims memory for all kernels from the server's ledger; another process may hold it for a
        moment.

        A plain Voilà with our settings has none.
        """
        if LEDGER not in os.environ:
            return True
        size = PAGE * len(self._all_kernels())
        try:
            return await IOLoop.current().run_in_executor(
                None, Ledger(os.environ[LEDGER]).claim, size
            )
        except Timeout:
            return False

    async def look(self) -> None:
        """Looks how much memory each kernel takes, and ends those that take more than they may."""
        owners = {}
        for kernel_id in self.list_kernel_ids():
            kernel: Any = self.get_kernel(kernel_id)
            if pid := getattr(kernel.provisioner, "pid", None):
                owners[pid] = kernel_id
        self.memory = await IOLoop.current().run_in_executor(None, own_memory, owners)
        for kernel_id, size in self.memory.items():
            # before, no page would hear why
            if size > self.most_memory and kernel_id in self._visited:
                most = f"{self.most_memory / 1e6:,.0f} MB"
                await self.end(
                    kernel_id, f"This page took more memory than a visitor may have here ({most})."
                )

    # --- which are fit for a visitor --------------------------------------------------------------

    def give(self, kernel_id: str) -> None:
        """Notes that a kernel which waited is a visitor's from now on: it may be slow, and must not
        be ended for it."""
        self._preheated.discard(kernel_id)

    async def bury(self, *, listen: bool = False) -> None:
        """Ends the kernels that were killed, and of those that wait for a visitor also the stopped
        ones.

        A visitor whose page is not connected yet would wait for ever.

        Args:
            listen: whether to hear the hearts of the kernels that wait, which may take seconds.
        """
        for kernel_id in self.list_kernel_ids():
            with suppress(HTTPError, KeyError):  # it has ended while another was looked at
                lives = await self._runs_on(kernel_id) and (
                    not listen or await self._beats(kernel_id)
                )
                if not lives:
                    await self.end(kernel_id, "It was killed: memory may have run out.")

    async def _runs_on(self, kernel_id: str) -> bool:
        """Whether a kernel's process runs; one that waits for a visitor must not stand still
        either."""
        if not await ensure_async(self.is_alive(kernel_id)):
            return False
        kernel: Any = self.get_kernel(kernel_id)
        with suppress(psutil.NoSuchProcess):
            return (
                kernel_id not in self._preheated
                or psutil.Process(kernel.provisioner.pid).status() not in STOPPED
            )
        return False

    async def _beats(self, kernel_id: str) -> bool:
        """Whether the heart of a kernel beats that waits for a visitor, unless it only just
        starts."""
        if (
            kernel_id not in self._preheated
            or self.kernel_model(kernel_id)["execution_state"] == "starting"
        ):
            return True
        beat = asyncio.Event()
        kernel: Any = self.get_kernel(kernel_id)
        stream = kernel.connect_hb()
        stream.on_recv(lambda _: beat.set())
        try:
            stream.send(b"ping")
            await asyncio.wait_for(beat.wait(), HEARTBEAT)
        except TimeoutError:
            return kernel_id not in self._preheated  # somebody may have got it meanwhile
        finally:
            stream.close(linger=0)
        return True

    # --- when each ends ---------------------------------------------------------------------------

    def notify_connect(self, kernel_id: str) -> None:
        """Notes that a page has come, or come back."""
        super().notify_connect(kernel_id)
        self._visited.setdefault(kernel_id, IOLoop.current().time())
        self._without_page.pop(kernel_id, None)

    def notify_disconnect(self, kernel_id: str) -> None:
        """Notes that a page has gone, or is out of reach."""
        super().notify_disconnect(kernel_id)
        now = self._without_page[kernel_id] = IOLoop.current().time()
        # Firefox closes a connection as one that is left while its page still runs. The page may
        # then open another, which breaks off without a word when the browser ends the page's
        # process.
        if now - self._left.get(kernel_id, -math.inf) < RETURN:
            self.leave(kernel_id)

    def leave(self, kernel_id: str) -> None:
        """Notes that a browser has left its page. Firefox may end a page's process before it sends
        the goodbye."""
        now = self._left[kernel_id] = IOLoop.current().time()
        self._without_page[kernel_id] = now - max(0.0, self.grace - RETURN)

    async def cull_kernel_if_idle(self, kernel_id: str) -> None:
        """Ends a kernel without a page, busy or not, and one whose page does nothing. Asked
        often."""
        # One may have ended while another of the same round was looked at, or have no time yet
        # while it is made.
        if kernel_id not in self or not self.get_kernel(kernel_id).trait_has_value("last_activity"):
            return
        model = self.kernel_model(kernel_id)
        kernel: Any = self.get_kernel(kernel_id)
        silent = (datetime.now(UTC) - kernel.last_activity).total_seconds()
        state = model["execution_state"]
        # A kernel stays "starting" until it is asked something: for ever, if its visitor has gone.
        works = state == "busy" or (state == "starting" and silent < LONGEST_START)
        being_made = kernel_id not in self._visited and works
        if model["connections"] > 0 or being_made:
            self._without_page.pop(kernel_id, None)
            if silent >= self.idle:
                await self.end(kernel_id, f"This page was not used for {self.idle / 60:g} minutes.")
        else:
            now = IOLoop.current().time()
            if now - self._without_page.setdefault(kernel_id, now) >= self.grace:
                await self.end(kernel_id)

    async def end(self, kernel_id: str, reason: str = "") -> None:
        """Ends a kernel with whatever it computes, and tells its page; nothing happens to one that
        has ended.

        Args:
            reason: a sentence that the page shows.
        """
        if page := Connection.newest.get(kernel_id):
            page.end(reason)
        with suppress(HTTPError, KeyError):
            await self.shutdown_kernel(kernel_id, now=True)
        if begun := self._visited.pop(kernel_id, None):
            note(
                "ended",
                pages=self.pages,
                seconds=round(IOLoop.current().time() - begun),
                reason=reason or "left",
            )
        self._preheated.discard(kernel_id)
        self._runs.discard(kernel_id)
        self._without_page.pop(kernel_id, None)
        self._left.pop(kernel_id, None)
        self._unsent.pop(kernel_id, None)
        await self._claim()

    async def shutdown_all(  # type: ignore[override] # Jupyter takes either kind
        self,
        now: bool = False,  # noqa: ARG002 - the server ends: nobody waits for a kernel
    ) -> None:
        """Ends every kernel at once, also those that are only starting."""
        for kernel_id in self.list_kernel_ids():
            await self.end(kernel_id, "The server has been stopped.")

    async def drain(self, seconds: float) -> None:
        """Lets no further page be made, and waits until those that are open are left, at most so
        many seconds."""
        self.draining, left = True, seconds
        note("draining", pages=self.pages, seconds=seconds)
        for kernel_id in list(self._preheated):
            await self.end(kernel_id)
        while self.pages and left > 0:
            await asyncio.sleep(GLANCE)
            left -= GLANCE
        await self.shutdown_all()

    # --- messages for a page that is out of reach -------------------------------------------------

    def start_buffering(self, kernel_id: str, session_key: str, channels: dict[str, Any]) -> None:
        """Keeps messages for a page whose connection broke, up to `UNSENT` bytes; beyond, its
        kernel ends."""
        if not channels:  # the connection was never made
            return
        super().start_buffering(kernel_id, session_key, channels)
        kept = self._unsent[kernel_id] = []
        held = 0

        def keep(channel: str, message: list[Any]) -> None:
            nonlocal held
            kept.append((channel, message))
            held += sum(map(len, message))
            if held > UNSENT:
                self.stop_buffering(kernel_id)
                IOLoop.current().spawn_callback(self.end, kernel_id)

        for name, stream in channels.items():
            stream.on_recv(lambda message, name=name: keep(name, message))

    def get_buffer(self, kernel_id: str, session_key: str) -> dict[str, Any] | None:
        """Messages that were kept for a page that comes back, and the channels that it had; None
        for another page."""
        buffer: dict[str, Any] | None = super().get_buffer(kernel_id, session_key)
        if buffer:
            buffer["buffer"] = self._unsent.pop(kernel_id, [])
        return buffer


def own_memory(owners: Mapping[int, str]) -> Counter[str]:
    """Bytes that processes, and all that they have started, share with nobody (USS), by their
    owner.

    These are free when the owner ends. What a kernel shares with the process of which it is a fork
    does not count."""
    children, total = defaultdict[int, list[int]](list), Counter[str]()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            children[process.ppid()].append(process.pid)
    waiting = list(owners.items())
    for pid, name in waiting:  # which grows meanwhile
        with suppress(psutil.Error):
            total[name] += psutil.Process(pid).memory_full_info().uss
            waiting += [(child, name) for child in children[pid] if child not in owners]
    return total
