"""`Zygote`: a process that has imported what a page needs and forks a visitor's kernel in milliseconds.

A kernel that starts by itself imports for two seconds and fills 200 MB with what every other has, too. A fork has it
all at once, and shares the memory. Only on Linux: elsewhere a fork of a process that has used its libraries is not
safe.

The process speaks in frames: first the page's first picture, then a number for each request for a kernel. It ends when
its stdin is closed, and its kernels, which look for it, end with it.
"""

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

from explorer.tasks.frames import receive, send

IMPORTED = ("ipykernel.kernelapp", "ipykernel.debugger", "IPython.core.completer", "explorer.app.dashboard",
            "explorer.app.first", "xarray")
"""Modules that every kernel has from its start."""
NAME = 15
"""Characters of a process's name, of which "kernel-" and the beginning of its id are made."""
FORKS = sys.platform == "linux"
"""Whether kernels are forks on this system."""


class Zygote:
    """The process, seen from the server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        command = "from explorer.serve.zygote import main; main()"
        self._process = subprocess.Popen(  # noqa: S603 - frozen modules are off wherever ipykernel starts a kernel, for its debugger
            [sys.executable, "-P", "-Xfrozen_modules=off", "-c", command],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._picture: str | None = None

    @property
    def picture(self) -> str:
        """The page as visitors see it while Python starts, as HTML. Raises: EOFError: the process has ended."""
        with self._lock:
            return self._await()

    def _await(self) -> str:
        """Waits until it is ready."""
        if self._picture is None:
            self._picture = receive(self._process.stdout)[1].decode()  # type: ignore[arg-type]
        return self._picture

    def fork(self, arguments: list[str], environment: Mapping[str, str], folder: str) -> Fork:
        """Starts a kernel; a zygote that was killed is replaced.

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
            except (EOFError, OSError):
                self._process.kill()
                self._process.communicate()
                self._start()
                return self._fork(request)

    def _fork(self, request: Mapping[str, Any]) -> Fork:
        self._await()
        send(self._process.stdin, request)  # type: ignore[arg-type]
        return Fork(receive(self._process.stdout)[0]["pid"])  # type: ignore[arg-type]

    def end(self) -> None:
        """Ends it, and the kernels with it."""
        self._process.kill()
        self._process.communicate()


class Fork(psutil.Process):  # type: ignore[misc]
    """A kernel that is no child of this process, with what Jupyter asks a child of."""

    stdin = stdout = stderr = None

    def poll(self) -> int | None:
        """None while it lives."""
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
        arguments = cmd[cmd.index("ipykernel_launcher") + 1:]
        fork = await IOLoop.current().run_in_executor(
            None, self.zygote.fork, arguments, kwargs["env"], str(kwargs.get("cwd", os.curdir)))
        self.process, self.pid, self.pgid = fork, fork.pid, fork.pid
        return self.connection_info


def main() -> None:
    """Imports, draws the first picture, and forks on request."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a kernel's exit code
    target = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for module in IMPORTED:
        import_module(module)
    import_module("ipywidgets").register_comm_target()  # by itself it does so only where a kernel runs already
    send(target, {}, picture().encode())
    rehearse()
    gc.collect()
    gc.freeze()  # a collection in a fork would write to all objects, and have a page of memory of its own for each
    while True:
        try:
            request, _ = receive(sys.stdin.buffer)
        except EOFError:
            return
        process = os.fork()
        if not process:
            target.close()
            become(request)
            return
        send(target, {"pid": process})


def picture() -> str:
    """The first picture of the page that a visitor gets."""
    from explorer.app.dashboard import PANELS
    from explorer.app.first import first_picture
    from explorer.config import Config

    return first_picture(Config(), [tab.title for tab in PANELS.values()])


def rehearse() -> None:
    """Does what pages do, so that their kernels share what it imports and reads: a map without a value, the trials."""
    from explorer.app.explore.similar import trials
    from explorer.app.map.plan import Plan
    from explorer.config import Config
    from explorer.figures.map import heat_map
    from explorer.sweeping.sweeps import Sweep

    plan = Plan()
    job = plan.job(Config())
    heat_map(Sweep(job.config, job.fields, job.statistics).dataset(), plan.statistic, x=plan.x, y=plan.y)
    trials(Config(), lambda: False)


def become(request: Mapping[str, Any]) -> None:
    """Makes this fork a kernel, which runs until it is ended."""
    parent = os.getppid()
    os.setsid()
    for number in (signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    random.seed()
    file = Path(request["arguments"][request["arguments"].index("-f") + 1])
    Path("/proc/self/comm").write_text(file.stem[:NAME], encoding="ascii")  # as `ps` and `top` name it
    sys.argv = ["ipykernel_launcher", *request["arguments"], f"--IPKernelApp.parent_handle={parent}"]
    import_module("ipykernel.kernelapp").launch_new_instance()


if __name__ == "__main__":
    main()
