"""The labs' panels without a browser: any row of `LABS` computes, obeys its controls, refuses in words and stops."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
import pytest
from pydantic import model_validator
from watched import WAIT, Watched

import explorer as ex
from explorer.__main__ import main
from explorer.app.dashboard import Dashboard, lab
from explorer.app.labs import LabPanel
from explorer.app.widgets.controls import Controls, sections
from explorer.choices import Choices
from explorer.fields import setting
from explorer.labs import stages
from explorer.labs.lab import Lab, Plot
from explorer.labs.table import LABS
from explorer.measuring import Stopped
from explorer.serve import notebooks
from explorer.stopping import check


class Toy(Choices):
    """Settings of a lab whose result is known by heart."""

    side: int = setting(2, "Side", "", "Of the square.", 0, 9, symbol="a", unit="m")
    holes: int = setting(0, "Holes", "More", "Cut out.", 0, 9, unit="m²")

    @model_validator(mode="after")
    def _room(self) -> Toy:
        if self.holes > self.side**2:
            raise ValueError(f"holes must be at most side²; got {self.holes} and side {self.side}")
        return self


@dataclass(frozen=True)
class Square:
    settings: Toy
    area: int


def measure(settings: Toy, *_: Any) -> Square:
    return Square(settings, settings.side**2)


def judge(result: Square) -> tuple[str, str, str]:
    return "good" if result.area else "bad", f"The area is {result.area}.", f"From {result.settings.side}."


def area(result: Square) -> go.Figure:
    dot = {"type": "scatter", "x": [0], "y": [result.area]}
    return go.Figure({"data": [dot], "layout": {"meta": {"description": "An area."}}})


def toy(run: Callable[..., Square] = measure) -> Lab:
    return Lab(
        "toy", "Squares", "An area is a side < squared.", "Not of a circle & such.", Toy, run, judge,
        (Plot(area, "Area", "In m²."),), "Euclid & others, arXiv 0000.00000",
    )


class Page(Watched[LabPanel]):
    """A lab's panel, and what its chart holds."""

    @property
    def area(self) -> float:
        return self.panel.charts["area"].figure["data"][0]["y"][0]


Open = Callable[..., Page]


@pytest.fixture
def open_lab() -> Iterator[Open]:
    panels: list[LabPanel] = []

    def make(lab: Lab, settings: Choices | None = None) -> Page:
        panels.append(LabPanel(lab, settings))
        return Page(panels[-1])

    yield make
    for panel in panels:
        panel.close()
        assert not panel.worker.alive


def words(widget: Any) -> str:
    """All HTML of a panel."""
    return getattr(widget, "value", "") + "".join(words(child) for child in getattr(widget, "children", ()))


def test_a_lab_computes_draws_and_judges(open_lab: Open) -> None:
    page = open_lab(toy())
    page.until("idle", "Computed: Squares")
    assert page.area == 4
    assert page.panel.charts["area"].description == "An area."
    (finding,) = page.panel.verdict.findings
    assert finding == {"severity": "good", "meaning": "The area is 4.", "evidence": "From 2.", "remedy": ""}
    assert page.panel.status.detail.startswith("in 0.")


def test_claim_and_caveat_stand_on_the_panel_as_text(open_lab: Open) -> None:
    said = words(open_lab(toy()).panel)
    assert '<h2>Squares</h2><p>An area is a side &lt; squared. <small><a class="ex-paper" href="https://arxiv' in said
    assert 'title="arXiv 0000.00000">Euclid &amp; others</a>.</small>' in said
    assert "<b>Beware.</b> Not of a circle &amp; such." in said


def test_a_control_recomputes_and_the_verdict_follows(open_lab: Open) -> None:
    page = open_lab(toy(), Toy(side=3))
    page.until("idle")
    assert page.area == 9
    page.set(side=0)
    page.until("idle")
    assert page.area == 0
    assert page.panel.verdict.findings[0]["severity"] == "bad"


def test_a_refused_value_leaves_the_charts_stale_and_can_be_undone(open_lab: Open) -> None:
    page = open_lab(toy())
    page.until("idle")
    page.set(holes=5)
    page.until("refused", "Refused: holes must be at most side²; got 5 and side 2.")
    assert page.panel.charts["area"].stale
    assert page.panel.status.detail == "The charts show the last computed setting."
    assert page.area == 4
    page.panel.status._handle_custom_msg("action", [])
    page.until("idle")
    assert not page.panel.charts["area"].stale
    assert page.panel.worker.computations == 1


def test_a_press_of_a_button_that_has_gone_means_nothing(open_lab: Open) -> None:
    page = open_lab(toy())
    page.until("idle")
    states: list[str] = []
    page.panel.status.observe(lambda change: states.append(change["new"]), names="state")
    page.panel.status._handle_custom_msg("action", [])  # a Stop that was on its way when the work was done
    assert states == []


def test_an_exception_is_told_and_the_next_move_works(open_lab: Open) -> None:
    def breaks(settings: Toy, *_: Any) -> Square:
        return Square(settings, 12 // settings.side)

    page = open_lab(toy(breaks))
    page.until("idle")
    page.set(side=0)
    page.until("failed", "ZeroDivisionError")
    page.set(side=3)
    page.until("idle")
    assert page.area == 4


def test_long_work_tells_its_progress_and_can_be_stopped(open_lab: Open) -> None:
    left = threading.Event()

    def endless(settings: Toy, stop: Any, progress: Any) -> Square:
        try:
            while True:
                check(stop)
                progress(0.25)
        finally:
            left.set()

    page = open_lab(toy(endless))
    with page.changed:
        assert page.changed.wait_for(lambda: page.panel.status.action == "Stop", WAIT)
    assert page.comes(lambda: "left" in page.panel.status.detail)
    said = re.fullmatch(r"25 % · about (\d+) s left", page.panel.status.detail)
    spent = page.panel.worker.busy_for
    assert said
    assert 2 <= int(said[1]) / 3 < spent + 0.2  # a quarter is done
    page.panel.status._handle_custom_msg("action", [])
    page.until("stale", "Stopped.")
    assert left.wait(WAIT)


def test_stages_tell_and_stop() -> None:
    told: list[float] = []
    assert list(stages("ab", lambda: False, told.append)) == ["a", "b"]
    assert told == [0.5, 1.0]
    with pytest.raises(Stopped):
        list(stages("ab", lambda: len(told) > 2, told.append))
    assert told == [0.5, 1.0, 0.5]


def test_controls_take_any_choices() -> None:
    controls = Controls(Toy(), label="Settings")
    top, more = sections(Toy.specs())
    assert [field["name"] for field in top["fields"]] == ["side"]
    assert (top["title"], more["title"]) == ("", "More")
    controls.set_state({"values": {"side": 12, "holes": 0}})
    assert controls.refusal == "Side must be a whole number between 0 and 9; got 12"
    assert controls.config == Toy()
    assert controls.notes == {"side": "refused; still 2"}
    assert controls.summary == ""
    controls.close()


# --- the rows -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", LABS.values(), ids=lambda row: row.name)
def test_every_lab_computes_with_its_defaults(open_lab: Open, row: Lab) -> None:
    """Those that train, for a few steps of a few layers only."""
    page = open_lab(row, row.settings(steps=20, n_layers=4) if row.grows else None)
    page.until("idle", "Computed")
    assert all(chart.figure["data"] for chart in page.panel.charts.values())
    (finding,) = page.panel.verdict.findings
    assert finding["severity"] in ("good", "warning", "bad")
    assert finding["meaning"].endswith(".")


@pytest.mark.parametrize("row", LABS.values(), ids=lambda row: row.name)
def test_every_row_is_worded(row: Lab) -> None:
    assert row.claim.endswith(".")
    assert row.caveat.endswith(".")
    assert re.search(r"\b20\d\d, (arXiv \d{4}\.\d{5}|kexue \d{4})", row.source)
    for plot in row.plots:
        assert plot.caption.endswith("."), plot.name
        assert len(plot.caption) <= 90, plot.name
    for spec in row.settings.specs().values():
        assert spec.description.endswith("."), spec.name
        assert spec.about.label, spec.name


def test_names_are_those_of_the_notebooks() -> None:
    assert list(LABS) == sorted(LABS)
    assert {notebook.stem for notebook in notebooks().glob("[0-9]*.ipynb")} >= set(LABS)


# --- where they stand -----------------------------------------------------------------------------------------


def test_one_lab_is_a_page_of_its_own() -> None:
    page = ex.lab("10_realformer")
    assert isinstance(page, Dashboard)
    assert isinstance(page.panels["10_realformer"], LabPanel)
    assert "ex-root" in page._dom_classes
    page.close()


def test_an_unknown_lab_is_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match=r"lab must be one of .*10_realformer, .*; got '07_alchemy'"):
        lab("07_alchemy")


def test_listing_the_labs_does_not_wait_for_torch() -> None:
    code = "import sys, explorer.labs.table; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_serving_an_unknown_notebook_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "07_alchemy"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("explorer: the notebook must be one of ")
    assert ", explorer, lessons/01_drawing_weights, " in said
    assert said.endswith("; got '07_alchemy'\n")
