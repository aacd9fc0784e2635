"""Files that a person takes home from the Race panel: a script, and sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from explorer.app.home import PYTHON, TEXT, sources
from explorer.app.widgets.files import File
from explorer.config import Config
from explorer.export.snippet import call, design, listed, written
from explorer_race.page.preparation import Start
from explorer_race.recipe import Recipe
from explorer_race.tasks import Task


def race_files(start: Callable[[], Start]) -> Iterator[File]:
    """The files of the Race panel beside the race itself; `start` gives everything that a race
    starts with."""

    def papers() -> str:
        race = start()
        return sources(
            *(design.config for design in race.designs if design.config),
            *race.recipes,
            race.plan.task,
        )

    yield File(
        "Python",
        "A script that runs this race from its first step.",
        "race.py",
        PYTHON,
        lambda: race_script(start()),
    )
    yield File(
        "BibTeX",
        "This tool, and the papers of what designs and recipes use.",
        "race.bib",
        TEXT,
        papers,
    )


def race_script(start: Start) -> str:
    """The race as Python."""
    contenders, task, steps, every, text, spectra, positions = start.terms
    return script(
        contenders,
        task,
        steps,
        every,
        own_text=text is not None,
        spectra=spectra,
        positions=positions,
    )


def script(
    contenders: Sequence[tuple[str, Config, Recipe]],
    task: Task,
    steps: int,
    every: int,
    *,
    own_text: bool = False,
    spectra: bool = False,
    positions: bool = False,
) -> str:
    """The script of a race, from its first step.

    Args:
        contenders: name, design and recipe of each.
        own_text: whether it learns a file of a person's own, whose place only they know.
        spectra: whether singular values of the updates are read, too.
        positions: whether statistics by token position are read, too.
    """
    runs = [
        listed(
            "ex.Contender(",
            [written(name), design(config), call("ex.Recipe", recipe.changed)],
            ")",
        )
        for name, config, recipe in contenders
    ]
    rest = [
        f"task={call('ex.Task', task.changed)}",
        f"steps={steps}",
        f"every={every}",
        *(["text=text"] * own_text),
        *(["spectra=True"] * spectra),
        *(["positions=True"] * positions),
    ]
    text = (
        ["from explorer.text import load", "", 'text = load("the file that was learned.txt")']
        if own_text
        else [""]
    )
    whole = listed("race = ex.race(", [listed("[", runs, "]"), *rest], ")")
    return "\n".join(
        [
            "import explorer as ex",
            *text,
            whole,
            "for outcome in race.verdict():",
            "    print(outcome)",
            'race.plot("held_out_loss").show()',
            "",
        ]
    )
