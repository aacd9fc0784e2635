"""`LABS`: every lab by name, in the order of their numbers. A folder of this room with a `row.py` is a lab."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

import explorer.labs
from explorer.labs.lab import Lab

_FOLDERS = (folder.name for folder in pkgutil.iter_modules(explorer.labs.__path__) if folder.ispkg)
_ROWS: list[Lab] = [import_module(f"explorer.labs.{name}.row").ROW for name in _FOLDERS]
LABS: Mapping[str, Lab] = MappingProxyType({row.name: row for row in sorted(_ROWS, key=lambda row: row.name)})
