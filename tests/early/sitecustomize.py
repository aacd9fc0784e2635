"""On the path of a Python process, makes it start sooner; and with `EXPLORER_PLUGINS=absent`, makes
it one in which the plug-ins cannot be imported."""

from __future__ import annotations

import os
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


if os.environ.get("EXPLORER_PLUGINS") == "absent":
    sys.meta_path.insert(0, Absent)
# jsonschema compiles a grammar of international addresses where it finds it: 1.6 s of a processor
# in each process that reads the format of notebooks, which has no such address.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
