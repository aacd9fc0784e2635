"""The Race panel for tests: opened without a browser, its buttons pressed, its charts read, and
closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import here
import pytest
from watched import WAIT, Watched

from explorer import tasks
from explorer.app.widgets.parts import LOCK
from explorer_race.archive import from_bytes
from explorer_race.page.lineup import Lineup, Plan, named_design
from explorer_race.page.panel import RacePanel
from explorer_race.race import Race
from explorer_race.recipe import Recipe

SMALL = {"n_layers": 2, "d_model": 32, "n_heads": 2, "n_ctx": 16, "batch_size": 4}
LONG = 100_000
"""Steps of a race that does not end by itself."""


def lineup(*names: str, **recipe: object) -> Lineup:
    made = Lineup()
    for name in names or ("post_ln", "pre_ln"):
        made.add(named_design(name, Recipe(**recipe)))
    return made


class Page(Watched[RacePanel]):
    """The panel, its buttons and its table."""

    def __init__(self, panel: RacePanel) -> None:
        super().__init__(panel)
        panel.gallery.standings.observe(self.notify, names="rows")
        panel.bar.observe(self.notify, names="buttons")

    def press(self, verb: str) -> None:
        self.panel.bar.handle(verb, [])

    def ask(self, *content: object) -> str:
        box = self.panel.preparation.contenders
        box.handle(list(content), [])
        return box.said

    def wait(self, there: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(
                lambda: there() or self.panel.status.state == "failed", WAIT
            )
        assert there(), self.panel.status.text

    def begin(self) -> None:
        """Starts a race, and waits for its first numbers."""
        self.press("start")
        self.wait_for_a_table()

    def stop(self) -> None:
        """Stops the race that runs or is paused."""
        self.press("stop")
        self.until("idle", "Stopped at step ")

    def prescribe(self, **values: object) -> None:
        """Changes the recipe of the contender that is selected."""
        recipe = self.panel.preparation.recipe
        recipe.set_state({"values": {**recipe.values, **values}})

    def run(self, words: str = "Finished") -> None:
        self.press("start")
        self.until("idle", words)

    def wait_for_a_table(self) -> None:
        self.wait(lambda: bool(self.panel.gallery.standings.rows))
        with LOCK:  # the charts follow the table
            assert self.panel.gallery.curves["training_loss"].figure

    @property
    def saved(self) -> bytes:
        """The race that stands still, as a file."""
        assert self.panel.race is not None
        assert self.panel.race.archive
        return self.panel.race.archive

    @property
    def race(self) -> Race:
        """The same with its models, which the page has not."""
        return from_bytes(self.saved, "race.zip")

    @property
    def enabled(self) -> set[str]:
        return {button["verb"] for button in self.panel.bar.buttons if button["enabled"]}

    @property
    def names(self) -> list[str]:
        return [entry["name"] for entry in self.panel.preparation.contenders.entries]

    def points(self, chart: str = "held_out_loss") -> dict[str, int]:
        figure = self.panel.gallery.curves[chart].figure
        return {trace["name"]: trace["x"]["bdata"] for trace in figure["data"] if "marker" in trace}


Open = Callable[..., Page]


def opened(apart: bool = False) -> Iterator[Open]:
    """A fixture's body: opens panels, and closes them.

    Args:
        apart: whether their races have processes of their own.
    """
    panels: list[RacePanel] = []

    def make(entries: Lineup | None = None, **plan: object) -> Page:
        panels.append(
            RacePanel(entries or lineup(), Plan(**{**SMALL, "steps": 12, "every": 4, **plan}))
        )
        return Page(panels[-1])

    with pytest.MonkeyPatch.context() as patch:
        if not apart:
            patch.setattr(tasks, "place", here.place)
        yield make
        for panel in panels:
            panel.close()
            assert not panel.worker.alive
