"""With `EXPLORER_SHAKE` set to seconds: a kernel that answers late, now and then by so much.

Python imports a module of this name at its start; `conftest.server` puts this folder on the path of what it starts.
"""

from __future__ import annotations

import os
import random
import sys
import time
from typing import Any

if (most := os.environ.get("EXPLORER_SHAKE")) and any("ipykernel_launcher" in word for word in sys.orig_argv):
    from ipywidgets import Widget

    dice = random.Random(os.getpid())  # noqa: S311 - no secret
    take, tell = Widget._handle_msg, Widget._send

    def take_late(self: Widget, message: dict[str, Any]) -> None:
        if message["content"]["data"].get("method") != "request_state":
            time.sleep(float(most) * dice.random() ** 2)
        take(self, message)

    def tell_late(self: Widget, message: dict[str, Any], buffers: Any = None) -> None:
        time.sleep(float(most) / 8 * dice.random() ** 4)
        tell(self, message, buffers)

    Widget._handle_msg, Widget._send = take_late, tell_late
