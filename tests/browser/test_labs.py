"""Every lab that Voilà serves, each a page of its own: each control is moved, and every chart goes on showing data.

Where both ends of each control lead, tests/labs/test_both_ends.py computes without a page.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urljoin

import pytest
from playwright.sync_api import Browser, Locator, expect

from explorer.app.widgets.slider_steps import slider_steps
from explorer.fields import Spec, users
from explorer.labs.lab import Lab
from explorer.labs.table import LABS

from .axe import RAW, SHARED, look
from .conftest import server
from .dashboard import Dashboard

OPEN = "document.querySelector('.ex-lab')"
DRAWN = "() => [...document.querySelectorAll('.ex-chart-plot')].every((plot) => Number(plot.dataset.drawn) > 0)"
WATCH = f"""() => {{
  const status = {OPEN}.querySelector('.ex-status');
  window.labBegun = 0;
  window.labWatch?.disconnect();
  window.labWatch = new MutationObserver(() => {{ window.labBegun += status.dataset.state === 'computing'; }});
  window.labWatch.observe(status, {{ attributes: true, attributeFilter: ['data-state'] }});
}}"""
"""Counts how often the open lab was seen computing: a change may leave every chart as it was."""
SETTLED = f"""(before) => {{
  const panel = {OPEN};
  const drawn = [...panel.querySelectorAll('.ex-chart-plot')].map((plot) => Number(plot.dataset.drawn));
  const calm = drawn.every((count) => count > 0) && !(window.labBegun <= before)
    && !document.querySelector('[data-unanswered]') && !panel.querySelector('.ex-chart-is-stale')
    && panel.querySelector('.ex-status').dataset.state === 'idle';
  const now = calm ? String(drawn) : '';
  if (now !== window.labAt?.drawn) window.labAt = {{ drawn: now, since: performance.now() }};
  return calm && performance.now() - window.labAt.since > 150;
}}"""
"""At rest: it has computed since, nothing is stale, and no chart was drawn for 150 ms."""
EMPTY = f"""() => [...{OPEN}.querySelectorAll('figure.ex-chart')].filter((card) => {{
  const traces = card.querySelector('.ex-chart-plot')._fullData ?? [];
  const values = (trace) => trace.z ? [...trace.z].flatMap((row) => [...row]) : [...(trace.y ?? [])];
  return !traces.some((trace) => values(trace).some(Number.isFinite));
}}).map((card) => card.querySelector('.ex-chart-title').textContent)"""


FITS = "() => document.querySelector('.ex-root').scrollWidth <= window.innerWidth"
INSTANT = tuple(row for row in LABS.values() if not row.grows)
"""Labs that answer while one looks; those that train have tests of their own."""
COSTLY = ("n_seeds", "draws", "steps", "widest", "n_layers")
"""Fields that a lab's time goes with."""


class Bench:
    """The open lab, and its controls by field."""

    def __init__(self, visit: Dashboard, row: Lab) -> None:
        self.visit, self.page, self.specs = visit, visit.page, row.settings.specs()
        self.panel = self.page.locator(".ex-lab")
        self.open(row)
        self.page.wait_for_function(SETTLED, arg=-1)
        self.page.evaluate(WATCH)
        self.panel.locator("details").evaluate_all("(folds) => folds.forEach((fold) => { fold.open = true; })")

    def open(self, row: Lab) -> None:
        """Goes to the lab, and waits until all of it is there: a panel's heading comes before its charts."""
        self.page.goto(urljoin(self.page.url, f"/{row.name}.ipynb"))
        self.panel.get_by_role("heading", name=row.title, exact=True, level=2).wait_for()
        expect(self.panel.locator(".ex-chart-plot")).to_have_count(len(row.plots))

    def control(self, field: str) -> Locator:
        return self.panel.locator(f"[data-field={field}]")

    @contextmanager
    def redrawn(self) -> Iterator[None]:
        """After the block the lab must compute and come to rest, and every chart must show something."""
        before = self.page.evaluate("window.labBegun")
        yield
        self.page.wait_for_function(SETTLED, arg=before)
        assert self.page.evaluate(EMPTY) == []

    def other(self, spec: Spec) -> object:
        """The value to be set: the least or the first that is not the default, so that a reset is a change."""
        values = {"choice": list(spec.choices), "switch": [True, False]}.get(spec.kind, [spec.low, spec.high])
        return next(value for value in values if value != spec.default)

    def set(self, spec: Spec, value: object) -> None:
        """What a person does with each kind of control."""
        control = self.control(spec.name)
        if spec.kind == "switch":
            control.locator("label").click()
        elif control.locator("select").count():
            control.locator("select").select_option(str(value))
        elif spec.kind == "choice":
            radio = control.locator(f"input[value='{value}']").get_attribute("id")
            control.locator(f"label[for='{radio}']").click()
        elif slider_steps(spec):
            control.locator("input[type=range]").press("Home" if value == spec.low else "End")
        else:
            control.locator("input.ex-entry").fill(f"{value:.0f}")
            control.locator("input.ex-entry").press("Tab")

    def reset(self, field: str) -> None:
        self.control(field).locator(".ex-reset").click()


def must_fit(visit: Dashboard) -> None:
    """A laptop's window and a telephone's do not have to be scrolled sideways."""
    try:
        for width in (1024, 390):
            visit.page.set_viewport_size({"width": width, "height": 900})
            visit.page.wait_for_function(FITS)
    finally:
        visit.page.set_viewport_size({"width": 1440, "height": 1000})
    visit.must_be_clean()


@pytest.mark.parametrize("row", INSTANT, ids=lambda row: row.name)
def test_every_control_is_obeyed_and_every_chart_shows_data(visit: Dashboard, row: Lab) -> None:
    """What a lab's time goes with goes down first; a control is put back on the way to the next one.

    The charts of the defaults are looked at once, in the end.
    """
    bench = Bench(visit, row)
    assert bench.page.evaluate(EMPTY) == []
    costly = [bench.specs.pop(name) for name in COSTLY if name in bench.specs]
    for spec in costly:
        with bench.redrawn():
            bench.set(spec, bench.other(spec))
    for spec in bench.specs.values():
        needed = [(name, values[0]) for name, values in users(bench.specs, spec.name).items()
                  if bench.specs[name].default not in values]
        for name, value in [*needed, (spec.name, bench.other(spec))]:  # it may only matter beside a certain choice
            with bench.redrawn():
                bench.set(bench.specs[name], value)
        for name in (spec.name, *(name for name, _ in needed)):
            bench.reset(name)
    for spec in costly:
        bench.reset(spec.name)
    expect(bench.panel.locator(".ex-reset:not(.ex-hidden)")).to_have_count(0)
    bench.page.wait_for_function(SETTLED, arg=-1)
    assert bench.page.evaluate(EMPTY) == []
    visit.must_be_clean()


@pytest.mark.parametrize("row", INSTANT, ids=lambda row: row.name)
def test_axe_finds_nothing_formulas_are_typeset_and_narrow_windows_have_room(visit: Dashboard, row: Lab) -> None:
    Bench(visit, row)
    assert look(visit.page, ()) == ""
    assert visit.page.evaluate(RAW) == []
    must_fit(visit)


def test_no_id_and_no_group_of_radio_buttons_is_there_twice(visit: Dashboard) -> None:
    assert visit.page.evaluate(SHARED) == []


def test_a_labs_notebook_serves_as_a_page_of_its_own(browser: Browser, tmp_path: Path) -> None:
    with server(["serve", "10_realformer"], tmp_path / "log") as address:
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        visit = Dashboard(page, "voila")
        page.goto(address)
        page.get_by_role("heading", name="RealFormer", exact=True, level=2).wait_for()
        page.wait_for_selector(".ex-status[data-state=idle]")
        expect(page.locator(".ex-chart")).to_have_count(len(LABS["10_realformer"].plots))
        page.wait_for_function(DRAWN)
        assert page.get_by_role("tab").count() == 0
        assert "Claim." not in page.locator("body").inner_text(), "cells for the notebook's readers are shown"
        visit.must_be_clean()
        page.close()
