"""`Zygote`: a process that has imported what a page needs and forks a visitor's kernel in
milliseconds.

A kernel that starts by itself imports for two seconds and fills 200 MB with what every other has,
too. A fork has it all at once, and shares the memory. Only on Linux: elsewhere a fork of a process
that has used its libraries is not safe.

The process speaks in frames: the page's first picture, a word when it is ready, then a number for
each request for a kernel. It ends when its stdin is closed. Its kernels go on without it, and end
with the server."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from tornado.ioloop import IOLoop

from explorer import log
from explorer.tasks.frames import receive, send
from explorer.tasks.signs import Ear, Pulse

IMPORTED = (
    "ipykernel.kernelapp",
    "ipykernel.debugger",
    "IPython.core.completer",
    "explorer.app.dashboard",
    "explorer.app.first",
)
"""Modules that every kernel has from its start."""
NAME = 15
"""Characters of a process's name, of which "kernel-" and the beginning of its id are made."""
PATIENCE = 10
"""Seconds for which the process may stand still where it is to answer."""
FORKS = sys.platform == "linux"
"""Whether kernels are forks on this system."""


class Zygote:
    """The process, seen from the server. One that was killed, or does not answer, is replaced."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._life, self._held = os.pipe()
        """A pipe of which nothing is ever written: kernels read it, and end when this process,
        which holds it, does."""
        self._start()

    def _start(self) -> None:
        command = f"from explorer_serve.zygote import main; main({self._life})"
        inherited = [self._life] if FORKS else []
        self._process = subprocess.Popen(  # noqa: S603 - frozen modules are off wherever ipykernel starts a kernel, for its debugger
            [sys.executable, "-P", "-Xfrozen_modules=off", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=inherited,
        )
        self._ear, self._pulse = Ear(self._process.stdout), Pulse(self._process.pid)  # type: ignore[arg-type]
        self._picture: str | None = None
        self._is_ready = False

    @property
    def picture(self) -> str:
        """The page as visitors see it while Python starts, as HTML.

        Raises:
            EOFError, TimeoutError: the process has ended, or stands still.
        """
        with self._lock:
            if self._picture is None:
                self._picture = self._hear()[1].decode()
            return self._picture

    def fork(self, arguments: list[str], environment: Mapping[str, str], folder: str) -> Fork:
        """Starts a kernel.

        Args:
            arguments: of the kernel's command, without Python's own.
            environment, folder: the kernel's.
        Raises:
            EOFError, OSError: it cannot be started.
        """
        request = {"arguments": arguments, "environment": dict(environment), "folder": folder}
        with self._lock:
            try:
                return self._fork(request)
            except (EOFError, OSError):  # also: a TimeoutError
                self._stop()
                self._start()
                return self._fork(request)

    def _fork(self, request: Mapping[str, Any]) -> Fork:
        while not self._is_ready:  # the picture, if nobody asked for it, and then a word
            self._is_ready = "ready" in self._hear()[0]
        send(self._process.stdin, request)  # type: ignore[arg-type]
        return Fork(self._hear()[0]["pid"])

    def _hear(self) -> tuple[dict[str, Any], bytes]:
        return self._ear.hear_soon(self._pulse, PATIENCE)

    def _stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._ear.close()
        with suppress(OSError):  # a request that it did not take
            self._process.stdin.close()  # type: ignore[union-attr]

    def end(self) -> None:
        """Ends it, and the kernels with it."""
        os.close(self._held)
        self._stop()


class Fork(psutil.Process):  # type: ignore[misc]
    """A kernel that is no child of this process, with what Jupyter asks a child of."""

    stdin = stdout = stderr = None

    def poll(self) -> int | None:
        """None while it lives."""
        # where the process that forked it has ended, it may have become ours
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        return None if self.is_running() else 0

    def send_signal(self, sig: int) -> None:
        """Sends a signal; to one that has ended, none."""
        with suppress(psutil.NoSuchProcess):
            super().send_signal(sig)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Asks it to end."""
        self.send_signal(signal.SIGTERM)


class ForkProvisioner(LocalProvisioner):
    """Starts a server's kernels as forks of its zygote."""

    zygote: Zygote | None = None
    """The server's; without one, kernels start as everywhere."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Starts a kernel; see `LocalProvisioner`."""
        if not self.zygote:
            return await super().launch_kernel(cmd, **kwargs)
        arguments = cmd[cmd.index("ipykernel_launcher") + 1 :]
        fork = await IOLoop.current().run_in_executor(
            None, self.zygote.fork, arguments, kwargs["env"], str(kwargs.get("cwd", os.curdir))
        )
        self.process, self.pid, self.pgid = fork, fork.pid, fork.pid
        return self.connection_info


def main(life: int) -> None:
    """Imports, draws the first picture, and forks on request.

    Args:
        life: the descriptor of a pipe that the server holds.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a kernel's exit code
    target = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    log.listen()
    for module in IMPORTED:
        import_module(module)
    # by itself it does so only where a kernel runs already
    import_module("ipywidgets").register_comm_target()
    send(target, {}, picture().encode())
    rehearse()
    gc.collect()
    gc.freeze()  # a collection in a fork would write to all objects, and have a page of memory of its own for each
    send(target, {"ready": True})
    while True:
        try:
            request, _ = receive(sys.stdin.buffer)
        except EOFError:
            return
        process = os.fork()
        if not process:
            target.close()
            become(request, life)
            return
        send(target, {"pid": process})


def picture() -> str:
    """The first picture of the page that a visitor gets."""
    from explorer.app.first import first_picture
    from explorer.app.tabs import tabs
    from explorer.config import Config

    return first_picture(Config(), [tab.title for tab in tabs().values()])


def rehearse() -> None:
    """Does what pages do, so that their kernels share what it imports and reads: a map without a
    value."""
    from explorer.app.map.plan import Plan
    from explorer.config import Config
    from explorer.figures.map import heat_map
    from explorer.sweeping.sweeps import Sweep

    plan = Plan()
    job = plan.job(Config())
    heat_map(
        Sweep(job.config, job.fields, job.statistics).table(), plan.statistic, x=plan.x, y=plan.y
    )


def become(request: Mapping[str, Any], life: int) -> None:
    """Makes this fork a kernel, which runs until it is ended, or its server has ended."""
    os.setsid()
    threading.Thread(target=end_with, args=(life,), name="explorer-life", daemon=True).start()
    for number in (signal.SIGINT, signal.SIGCHLD):
        signal.signal(
            number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        )
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    log.listen(os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8"))
    for output in (sys.stdout, sys.stderr):
        # what else is written may be a visitor's
        os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    random.seed()
    file = Path(request["arguments"][request["arguments"].index("-f") + 1])
    # as `ps` and `top` name it
    Path("/proc/self/comm").write_text(file.stem[:NAME], encoding="ascii")
    sys.argv = ["ipykernel_launcher", *request["arguments"], "--IPKernelApp.parent_handle=0"]
    own_log: dict[str, Any] = {"loggers": {"IPKernelApp": {"handlers": [], "propagate": True}}}
    import_module("ipykernel.kernelapp").launch_new_instance(logging_config=own_log)


def end_with(life: int) -> None:
    """Waits until nobody holds a pipe any more, and ends this process, whatever it does."""
    os.read(life, 1)
    os._exit(0)
