"""Downloads of the Race panel beside the race itself: its line-up as Python, and the sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date

from explorer.app.explore.home import PYTHON, TEXT
from explorer.app.race.preparation import Start
from explorer.app.widgets.takehome import File
from explorer.choices import Choices
from explorer.export import snippet
from explorer.export.bibtex import bibliography


def files(start: Callable[[], Start]) -> Iterator[File]:
    """The files of the panel; `start` gives everything that a race starts with, or refuses."""
    yield File("Python", "A script that runs this race from its first step.", "race.py", PYTHON,
               lambda: script(start()))
    yield File("BibTeX", "This tool, and the papers of what designs and recipes use.", "race.bib", TEXT,
               lambda: sources(start()))


def script(start: Start) -> str:
    """The race as Python."""
    task = start.plan.task
    contenders = [
        snippet.Run(design.label, task.fit(design.config), recipe)
        for design, recipe in zip(start.designs, start.recipes, strict=True) if design.config
    ]
    return snippet.race(contenders, task, start.plan.steps, start.plan.every, own_text=start.text is not None)


def sources(start: Start) -> str:
    """The sources of every design and every recipe."""
    configs = [design.config for design in start.designs if design.config]
    records: list[Choices] = [*dict.fromkeys(configs), *dict.fromkeys(start.recipes), start.plan.task]
    return bibliography(*records, year=date.today().year)
