"""Plug-ins: packages beside this one that may be absent, such as `explorer_race`.

A distribution registers a `Plugin` by the entry point group `explorer.plugins`. It names what it
brings by references, `package.module:name`, which are loaded when they are first asked for: a
plug-in costs nothing until then."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any

GROUP = "explorer.plugins"
KNOWN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "explorer_models": (
            "CoordCheck",
            "Start",
            "Twin",
            "Watch",
            "coord_check",
            "expect",
            "probe",
            "twin",
            "watch",
        ),
        "explorer_race": ("Contender", "Race", "Recipe", "Task", "Training", "race"),
    }
)
"""Public names of this project's own plug-ins, to say which one is absent where a name is asked
for."""


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """The rows that a plug-in adds to registries of this package, each a name and a reference.

    Example:
        >>> Plugin(names={"race": "explorer_race.race:race"}).names["race"]
        'explorer_race.race:race'
    """

    names: Mapping[str, str] = field(default_factory=dict)
    """Public names: `ex.race`."""
    tabs: Mapping[str, str] = field(default_factory=dict)
    """Tabs of the page: `app.page.Tab`."""
    commands: str = ""
    """A function that adds commands to `explorer`: see `command`."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Kinds of task: the function that takes a `tasks.pool.Call` and gives bytes."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Origins of a sweep's numbers: `sweeping.cell.Origin`."""
    trainers: Mapping[str, str] = field(default_factory=dict)
    """Ways to train a `Config`, for other plug-ins: see `explorer_race.trainee.Trainer`."""
    scales: Mapping[str, str] = field(default_factory=dict)
    """Colors of a map's statistics: `figures.map.cells.Scale`."""
    setups: Mapping[str, str] = field(default_factory=dict)
    """Files with set-ups of panels, as `app/setups.toml` has them: a Path."""
    page: Mapping[str, str] = field(default_factory=dict)
    """Folders with scripts and style sheets of the page: a Path."""
    drawers: Mapping[str, str] = field(default_factory=dict)
    """By the class of a record: the function that draws it."""


@cache
def plugins() -> tuple[Plugin, ...]:
    """The plug-ins that are there, by the names of their entry points.

    One whose package cannot be found is absent. Any other error of its import is raised: a plug-in
    that is broken must not look as if nobody had installed it."""
    there = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            there.append(entry.load())
        except ModuleNotFoundError as error:
            if error.name != entry.module:
                raise
    return tuple(there)


def references(registry: str, own: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """The rows of a registry, a field of `Plugin`: this package's own, then those of all plug-ins.

    Args:
        registry: the field's name.
        own: name to reference.
    Raises:
        ValueError: a plug-in has a row of a name that there is already.
    """
    rows = dict(own)
    for plugin in plugins():
        for name, reference in getattr(plugin, registry).items():
            if name in rows:
                raise ValueError(
                    f"{registry} must have each name once; got {name!r} for {reference!r} and "
                    f"{rows[name]!r}"
                )
            rows[name] = reference
    return rows


def load(reference: str) -> Any:
    """The object that a reference names."""
    return pkgutil.resolve_name(reference)


def rows(registry: str, own: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """The rows of a registry, loaded; see `references`."""
    return {name: load(reference) for name, reference in references(registry, own).items()}


def absence(name: str) -> str:
    """The end of a sentence that says which plug-in has a public name, where it is absent; empty
    for other names."""
    for package, names in KNOWN.items():
        if name in names:
            return f"; it is of the plug-in {package}, which is not installed"
    return ""
