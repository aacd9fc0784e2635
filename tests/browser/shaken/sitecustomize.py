"""With `EXPLORER_SHAKE` set to seconds: a kernel that answers late, now and then by so much.

Python imports a module of this name at its start; `conftest.server` puts this folder on the path of
what it starts. JupyterLab's kernels are processes of their own; those of a server are forks of one
process, which have what it has. With `EXPLORER_SHAKE_LOG` set to a file, a line for each delay is
added to it: the process, and what was delayed."""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path
from typing import Any

KERNELS = ("ipykernel_launcher", "explorer_serve.zygote")
"""Words in the command of a process that is a kernel, or of which kernels are forks."""

if (most := os.environ.get("EXPLORER_SHAKE")) and any(
    kind in word for kind in KERNELS for word in sys.orig_argv
):
    from ipywidgets import Widget

    dice = random.Random(os.getpid())  # noqa: S311 - no secret
    os.register_at_fork(after_in_child=lambda: dice.seed(os.getpid()))
    log = os.environ.get("EXPLORER_SHAKE_LOG")
    take, tell = Widget._handle_msg, Widget._send

    def wait(what: str, seconds: float) -> None:
        if log:
            with Path(log).open("a", encoding="ascii") as file:
                file.write(f"{os.getpid()} {what}\n")
        time.sleep(seconds)

    def take_late(self: Widget, message: dict[str, Any]) -> None:
        if message["content"]["data"].get("method") != "request_state":
            wait("taken", float(most) * dice.random() ** 2)
        take(self, message)

    def tell_late(self: Widget, message: dict[str, Any], buffers: Any = None) -> None:
        wait("told", float(most) / 8 * dice.random() ** 4)
        tell(self, message, buffers)

    Widget._handle_msg, Widget._send = take_late, tell_late
