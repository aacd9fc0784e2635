"""The lessons: `LESSONS`, a row each of `lessons.toml`, by name."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple


class Lesson(NamedTuple):
    """One lesson; the keys of a table of `lessons.toml`."""

    notebook: str
    title: str
    question: str
    minutes: int = 0
    essay: str = ""
    labs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The notebook's name without its folder; rows of terms and charts refer to a lesson by it."""
        return self.notebook.rpartition("/")[2]

    @property
    def file(self) -> str:
        """The notebook's address, relative to the page's: the same in Voilà, in JupyterLab and in a folder."""
        return f"{self.notebook}.ipynb"


def rows(table: Path, name: str) -> list[dict[str, Any]]:
    """The tables of a name in a TOML file, whose lists become tuples."""
    return [{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
            for row in tomllib.loads(table.read_text(encoding="utf-8"))[name]]


TABLE = Path(__file__).with_suffix(".toml")
ROWS = tuple(Lesson(**row) for row in rows(TABLE, "lesson"))
LESSONS: Mapping[str, Lesson] = MappingProxyType({row.name: row for row in ROWS})
OF_LABS: Mapping[str, Lesson] = MappingProxyType({name: row for row in ROWS for name in (*row.labs, row.name)})
"""Lessons by the names of the labs whose links open them."""
