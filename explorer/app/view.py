"""`View`: the part of the page that is shown. A teacher's link hides the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from explorer.app.sentences import lowered
from explorer.config import Config
from explorer.display import shown
from explorer.fields import Spec
from explorer.figures import FIGURES
from explorer.translation import speaking

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
        return self == WHOLE

    def opens(self, panel: str) -> bool:
        """Whether a panel can be opened; a view that names none has all."""
        return not self.panels or panel in self.panels

    def shows(self, *names: str) -> bool:
        """Whether a control of one of these names is shown."""
        return self.show is None or any(name in self.show for name in names)


WHOLE = View()
"""Hides nothing."""


def write(view: View) -> Iterator[tuple[str, str]]:
    """Parts of a link; none where nothing is hidden."""
    for name in LISTS:
        if (names := getattr(view, name)) is not None:
            yield name, ",".join(names) or NONE
    if view.embed:
        yield "embed", "1"


def split(text: str) -> list[str]:
    """The names in a part of a link."""
    return [] if text == NONE else list(dict.fromkeys(filter(None, text.split(","))))


def parse(
    lists: Mapping[str, Sequence[str]], panels: Sequence[str], *, embed: bool
) -> tuple[View, list[str]]:
    """A view, and a sentence for each name of a part that there is not.

    Args:
        lists: names of visible parts, for some of `LISTS`.
        panels: names of the panels that there are.
        embed: as `View` has it.
    """
    known = dict(zip(LISTS, (_controls(), panels, tuple(FIGURES)), strict=True))
    sentences = [
        f"{part}: {shown(name)} is not one of {_few(known[part])}"
        for part, names in lists.items()
        for name in names
        if name not in known[part]
    ]
    visible = {}
    for part, names in lists.items():
        there = tuple(name for name in names if name in known[part])
        if there or not names:  # a list of names that are all wrong hides nothing
            visible[part] = there
    return View(**visible, embed=embed), sentences


def parts(panels: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The parts of the page that a link can show: `{list: {title, parts, none}}`.

    A part is `[name, words, other name]`; `none` says whether a link can hide every part.

    Args:
        panels: titles by name.
    """
    controls = [[item.name, item.about.label, label(item)] for item in Config.specs().values()]
    return {
        "panels": {"title": "Tabs", "parts": [list(row) for row in panels.items()], "none": False},
        "charts": {
            "title": "Charts",
            "parts": [[row.name, row.title] for row in FIGURES.values()],
            "none": True,
        },
        "show": {
            "title": "Controls",
            "parts": [[DESIGN, "Model or design"], *controls],
            "none": True,
        },
    }


def _controls() -> tuple[str, ...]:
    """Names of all controls: fields and labels."""
    specs = Config.specs().values()
    return (DESIGN, *dict.fromkeys((*(item.name for item in specs), *map(label, specs))))


def label(spec: Spec) -> str:
    """A field's label as it stands in a link: `norm_placement`."""
    with speaking("en"):  # links are the same in every language
        return lowered(spec.about.label).lower().replace(" ", "_")


def _few(names: Sequence[str]) -> str:
    """The first of some names."""
    first = list(names[:6])
    return ", ".join([*first, *(["…"] if len(names) > len(first) else [])])
