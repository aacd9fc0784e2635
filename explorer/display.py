"""Records as a notebook shows and copies them: a static table, or a figure that a higher layer of
the package draws.

Imports go strictly down, so a record cannot name the figures. The public face, which stands above
both and is always imported first, says who draws what; nothing is loaded before it is asked for.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any, TypeVar

from explorer import plugins
from explorer.translation import translated

DRAWERS: dict[str, Callable[[], Callable[..., Any]]] = {}
"""A record's class name to what loads the function that draws it; filled by
`explorer/__init__.py`."""
Kind = TypeVar("Kind")


def draw(record: object, *arguments: Any, **options: Any) -> Any:
    """The figure of a record, drawn by the function in `DRAWERS`, or by a plug-in's."""
    name = type(record).__name__
    if name in DRAWERS:
        return DRAWERS[name]()(record, *arguments, **options)
    return plugins.load(plugins.references("drawers")[name])(record, *arguments, **options)


GLANCES: dict[str, Callable[[], Callable[..., dict[str, Any]]]] = {}
"""By type of record: loads the function that gives a notebook a richer output than the table, by
mime type."""


def glance(record: object) -> dict[str, Any]:
    """Outputs that a notebook shows instead of the table, by mime type; empty where `GLANCES` has
    no such record."""
    load = GLANCES.get(type(record).__name__)
    return load()(record) if load else {}


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table without style or script, which survives wherever a notebook is shown; every
    cell is escaped."""

    def line(tag: str, cells: Sequence[object]) -> str:
        return (
            "<tr>"
            + "".join(f"<{tag}>{html.escape(cell(value))}</{tag}>" for value in cells)
            + "</tr>"
        )

    body = "".join(line("td", row) for row in rows)
    head = f"<thead>{line('th', header)}</thead>" if header else ""
    return f"<table><caption>{html.escape(caption)}</caption>{head}<tbody>{body}</tbody></table>"


def cell(value: object) -> str:
    """A value as a table shows it: numbers with four digits, whatever is not finite as such."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class Copied:
    """Base of a frozen dataclass whose pickles and copies are made by its constructor: their
    mappings are read-only."""

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Class and arguments, in the order of the fields; a `MappingProxyType`, which has no
        pickle, as a dict."""
        values = (getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]  # of a dataclass
        return type(self), tuple(
            dict(value) if isinstance(value, MappingProxyType) else value for value in values
        )


def must_be(kind: type[Kind], name: str, value: object) -> Kind:
    """The value, if it is of that kind.

    Raises:
        TypeError: it is not; names the argument, the type that it must have, and its own.
    """
    if isinstance(value, kind):
        return value
    message = "{name} must be a {kind}; got {value} of type {type}"
    if kind.__name__[0] in "AEIOUaeio":
        message = "{name} must be an {kind}; got {value} of type {type}"
    values = {"kind": kind.__name__, "value": shown(value), "type": type(value).__name__}
    raise TypeError(translated(message, name=name, **values))


def reason(path: object, error: Exception) -> str:
    """Why a path cannot be opened: the system's words, or that it has a character which no path can
    have."""
    if "\0" in str(path):
        return translated("no path has the character NUL")
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).strip()


def shown(value: object) -> str:
    """A value for a message: quoted, and cut when it is long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…" + text[-1]
