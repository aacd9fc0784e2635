"""`View`: the part of the page that is shown. A teacher's link hides the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from explorer.app.design_names import lowered
from explorer.choices import Choices
from explorer.config import Config
from explorer.display import shown
from explorer.fields import Spec
from explorer.figures import FIGURES
from explorer.labs.table import LABS

DESIGN = "design"
"""Stands for the list of named designs, among the controls."""
LISTS = ("show", "panels", "charts")
NONE = "none"
"""Stands in a link for an empty list."""


@dataclass(frozen=True)
class View:
    """Visible parts of the page; a list that is None hides nothing."""

    show: tuple[str, ...] | None = None
    """Controls, by field or by label (`depth` is `n_layers`); without any, the design is fixed."""
    panels: tuple[str, ...] | None = None
    charts: tuple[str, ...] | None = None
    """Charts of the Explore panel."""
    embed: bool = False
    """Whether the page stands within another one: it has no header."""

    @property
    def whole(self) -> bool:
        """Whether nothing is hidden."""
        return self == View()

    def shows(self, *names: str) -> bool:
        """Whether a control of one of these names is shown."""
        return self.show is None or any(name in self.show for name in names)


def state(view: View) -> dict[str, object]:
    """A view as a record; empty where nothing is hidden."""
    parts = ((item.name, getattr(view, item.name)) for item in fields(view))
    return {name: list(value) if isinstance(value, tuple) else value for name, value in parts
            if value not in (None, False)}


def write(record: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Parts of a link, of a view's record."""
    for name, value in record.items():
        yield name, (",".join(map(str, value)) or NONE) if isinstance(value, list) else "1"


def split(text: str) -> list[str]:
    """The names in a part of a link."""
    return [] if text == NONE else list(dict.fromkeys(filter(None, text.split(","))))


def parse(record: object, panels: Sequence[str]) -> tuple[View, list[str]]:
    """A view from a record, and a sentence for each name in it that there is not.

    Args:
        record: of `state`, or from anywhere.
        panels: names of the panels that there are.
    """
    parts = record if isinstance(record, Mapping) else {}
    known = {"show": _controls(), "panels": panels, "charts": tuple(FIGURES)}
    shown_parts: dict[str, tuple[str, ...]] = {}
    sentences = []
    for part, names in known.items():
        given = parts.get(part)
        if isinstance(given, list):
            sentences += [f"{part}: {shown(name)} is not one of {_few(names)}" for name in given
                          if not isinstance(name, str) or name not in names]
            shown_parts[part] = tuple(dict.fromkeys(name for name in given if isinstance(name, str) and name in names))
    return View(**shown_parts, embed=parts.get("embed") is True), sentences


def _controls() -> tuple[str, ...]:
    """Names of all controls: fields and labels."""
    kinds: list[type[Choices]] = [*(lab.settings for lab in LABS.values()), Config]
    specs = [item for kind in kinds for item in kind.specs().values()]
    return (DESIGN, *dict.fromkeys((*(item.name for item in specs), *map(label, specs))))


def label(spec: Spec) -> str:
    """A field's label as it stands in a link: `norm_placement`."""
    return lowered(spec.about.label).lower().replace(" ", "_")


def _few(names: Sequence[str]) -> str:
    """The first of some names."""
    first = list(names[:6])
    return ", ".join([*first, *(["…"] if len(names) > len(first) else [])])
