"""The labs that train, as pages of their own: they begin at once, can be stopped, and obey every control."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from explorer.labs.lab import Lab
from explorer.labs.table import LABS

from .axe import RAW, SHARED, look
from .dashboard import Dashboard
from .test_labs import EMPTY, OPEN, WATCH, Bench, must_fit

TRAINING = tuple(row for row in LABS.values() if row.grows)
SMALL = ("steps", "n_layers", "widest")
"""What the time goes with; at the lower ends a lab answers like any other."""
ONE_BY_ONE = ("17_trainability",)
"""Labs whose charts begin one after the other."""
DRAWN = f"() => [...{OPEN}.querySelectorAll('.ex-chart-plot')].map((plot) => Number(plot.dataset.drawn || 0))"


class Training(Bench):
    """A lab that is still at work when it is opened."""

    def __init__(self, visit: Dashboard, row: Lab) -> None:
        self.visit, self.page, self.specs = visit, visit.page, row.settings.specs()
        self.panel = self.page.locator(".ex-lab")
        self.open(row)
        self.page.evaluate(WATCH)

    @property
    def said(self) -> str:
        return self.panel.locator(".ex-status-text").inner_text()


@pytest.mark.parametrize("row", TRAINING, ids=lambda row: row.name)
def test_it_can_be_stopped_and_then_answers_to_every_control(visit: Dashboard, row: Lab) -> None:
    bench = Training(visit, row)
    expect(bench.panel.locator(".ex-status-detail")).to_contain_text("so far")  # its curves grow meanwhile
    visit.page.wait_for_function(f"() => ({DRAWN})().every(Boolean)")
    empty = visit.page.evaluate(EMPTY)
    assert len(empty) < len(row.plots) if row.name in ONE_BY_ONE else empty == []
    bench.panel.get_by_role("button", name="Stop", exact=True).click()
    bench.panel.locator(".ex-status[data-state=stale]").wait_for()
    assert bench.said == "Stopped."
    small = [bench.specs.pop(name) for name in SMALL if name in bench.specs]
    for spec in small:
        bench.set(spec, spec.low)
    for spec in bench.specs.values():
        with bench.redrawn():
            bench.set(spec, bench.other(spec))
    assert visit.page.evaluate(EMPTY) == []
    visit.must_be_clean()


@pytest.mark.parametrize("row", TRAINING, ids=lambda row: row.name)
def test_axe_finds_nothing_formulas_are_typeset_and_narrow_windows_have_room(visit: Dashboard, row: Lab) -> None:
    bench = Training(visit, row)
    bench.panel.locator("details").evaluate_all("(folds) => folds.forEach((fold) => { fold.open = true; })")
    assert look(visit.page, ()) == ""
    assert visit.page.evaluate(RAW) == []
    assert visit.page.evaluate(SHARED) == []
    must_fit(visit)


@pytest.mark.parametrize("row", TRAINING, ids=lambda row: row.name)
def test_a_long_training_says_how_far_it_is(visit: Dashboard, row: Lab) -> None:
    bench = Training(visit, row)
    bench.set(bench.specs["steps"], bench.specs["steps"].high)
    expect(bench.panel.locator(".ex-status-detail")).to_contain_text("%")
    bench.panel.get_by_role("button", name="Stop", exact=True).click()
    expect(bench.panel.locator(".ex-status")).to_have_attribute("data-state", "stale")
    with bench.redrawn():
        bench.set(bench.specs["steps"], bench.specs["steps"].low)
    visit.must_be_clean()
