"""Callbacks of long work: `Stop` asks whether to stop, `Progress` takes how far it is."""

from __future__ import annotations

from collections.abc import Callable

Stop = Callable[[], bool]
"""Asked often; true once the result is no longer wanted."""
Progress = Callable[[float], None]
"""Told the fraction that is done."""


class Stopped(Exception):  # noqa: N818 - not an error: somebody asked for it
    """A computation was abandoned because `stop()` was true."""


def check(stop: Stop) -> None:
    """Raises: Stopped: `stop()` is true."""
    if stop():
        raise Stopped
