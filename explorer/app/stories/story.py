"""`STORIES`: tours of the page, each in a few steps; a table each of `stories.toml`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from explorer.app.explore.question import Choose, Draw, Question
from explorer.glossary import rows
from explorer.profile import Profile

FIRST_TAB = "explore"
"""The panel that a link opens which names none."""
VERDICT = "verdict"
"""Stands for the verdict, where a step says what to look at."""


class Step(NamedTuple):
    """A state of the page, with the words for it; the keys of a step in `stories.toml`."""

    link: str
    words: str
    look_at: str
    """Name of a chart of the open panel, or `VERDICT`; empty where the whole panel is meant."""
    question: Question | None
    """Asked before the page shows what the answer is."""


class Story(NamedTuple):
    """A tour in a few steps; the keys of a table of `stories.toml`."""

    name: str
    title: str
    words: str
    steps: tuple[Step, ...]

    @property
    def tabs(self) -> set[str]:
        """Names of the panels that its steps open."""
        queries = [dict(parse_qsl(step.link.lstrip("?"))) for step in self.steps]
        return {query.get("tab", FIRST_TAB) for query in queries}


def _growth(measured: Profile) -> int:
    """The option that is right: how the second moment of a stack without norms ends."""
    first = measured.first_nonfinite
    if first is not None and first.layer < 100:
        return 2
    return int(measured["second_moment", "resid_post"].mean(axis=0)[-1] > 1e4)


RIGHT: Mapping[str, Callable[[Profile], int]] = MappingProxyType({"growth": _growth})
"""Which option of a question a measured profile makes right, by the name of the rule."""


def _step(link: str, words: str, look_at: str = "", question: str = "", **asked: Any) -> Step:
    """A step from its row; `asked` are the other parts of its question."""
    if not question:
        return Step(link, words, look_at, None)
    given = (question, look_at, tuple(asked["extent"]), asked["reveal"])
    options = tuple(asked.get("options", ()))
    return Step(
        link,
        words,
        look_at,
        Choose(*given, options, RIGHT[asked["right"]]) if options else Draw(*given),
    )


STORIES: Mapping[str, Story] = MappingProxyType(
    {
        row["name"]: Story(**row | {"steps": tuple(_step(**step) for step in row["steps"])})
        for row in rows(Path(__file__).with_name("stories.toml"), "story")
    }
)
