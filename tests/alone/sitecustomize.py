"""On the path of a Python process, makes it one in which the plug-ins cannot be imported."""

from __future__ import annotations

import sys

PLUGINS = ("explorer_models", "explorer_race", "explorer_serve")


class Absent:
    """A finder of modules that has those of the plug-ins nowhere."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Refuses a plug-in, as Python does where there is none; leaves others to the next."""
        if name.partition(".")[0] in PLUGINS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return


sys.meta_path.insert(0, Absent)  # type: ignore[arg-type]
