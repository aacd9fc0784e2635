"""The page as one widget: header, panels built when opened, everything ended by `close`."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from watched import Watched

from explorer.app.dashboard import Dashboard, Tab, dashboard
from explorer.app.explore.panel import Explore
from explorer.app.tabs import tabs
from explorer.app.widgets.parts import Part
from explorer.config import Config
from explorer.glossary import LESSONS
from explorer_serve.start import notebooks

SMALL = Config(n_layers=2, d_model=16, n_heads=2, n_ctx=8, batch_size=1, n_seeds=1)


@pytest.fixture
def page() -> Iterator[Dashboard]:
    page = dashboard(SMALL)
    yield page
    page.close()


def test_page_starts_with_the_given_design_and_measures_it(page: Dashboard) -> None:
    panel = page.panels["explore"]
    assert isinstance(panel, Explore)
    assert panel.controls.config == SMALL
    Watched(panel).until("idle", "Measured 2 layers of width 16")
    assert panel.verdict.findings


def test_page_is_one_widget_that_a_notebook_can_show(page: Dashboard) -> None:
    assert "ex-root" in page.top.classes
    assert page.top.children[0] is page.header
    assert "application/vnd.jupyter.widget-view+json" in page._repr_mimebundle_()[0]


def test_header_shows_only_what_exists(page: Dashboard) -> None:
    assert page.header.tabs == [panel.title for panel in tabs().values()]


def test_close_ends_the_thread(page: Dashboard) -> None:
    panel = page.panels["explore"]
    page.close()
    assert isinstance(panel, Explore)
    assert not panel.worker.alive
    assert page.comm is None


def test_panels_are_built_when_first_opened_and_then_kept() -> None:
    built: list[str] = []

    def build(name: str) -> Part:
        built.append(name)
        return Part()

    page = Dashboard(
        SMALL, {name: Tab(name, lambda _, name=name: build(name)) for name in ("one", "two")}
    )
    assert built == ["one"]
    for index in (1, 0, 1):
        page.header.set_state({"selected": index})
    assert built == ["one", "two"]
    assert [panel.hidden for panel in page.panels.values()] == [True, False]
    page.header.set_state({"selected": 9})  # a browser may send anything
    assert page.header.selected == 1
    page.close()


def test_each_call_makes_a_page_of_its_own() -> None:
    first, second = dashboard(SMALL), dashboard(SMALL)
    assert first.panels["explore"] is not second.panels["explore"]
    first.close()
    assert second.panels["explore"].worker.alive  # type: ignore[attr-defined]
    second.close()


ALONE = """
import os, sys, time
from explorer.app.dashboard import dashboard
page = dashboard()
lines = [chart.figure["data"] for chart in page.panels["explore"].charts.values()]
print(sum(bool(line) for line in lines), flush=True)
while page.panels["explore"].phase != "idle":
    time.sleep(0.01)
print(len(page.panels["explore"].schedule.result.seeds))
page.show("race")
panel = page.panels["race"]
panel.controls.set_state({"values": {**panel.controls.values, "n_layers": 2, "d_model": 16, "steps": 7, "every": 2}})
panel.bar.handle("start", [])
while panel.phase != "idle":
    time.sleep(0.01)
print(panel.status.text, len(panel.race.frame()) > 100, len(panel.race.archive) > 1000, sep=";")
print("torch" in sys.modules, flush=True)
os._exit(0)
"""
"""Builds the page, which is displayed nowhere, and runs a race on it."""


def test_the_lines_are_drawn_at_once_and_dots_and_a_race_come_without_torch() -> None:
    shown = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ALONE], capture_output=True, text=True, check=True
    )
    assert shown.stdout.splitlines() == ["5", "4", "Finished at step 7 of 7;True;True", "False"]


def test_the_lessons_are_cards_that_open_their_notebooks(page: Dashboard) -> None:
    page.header.handle(["lab", "04_normalization"], [])  # a browser may send anything
    assert page.opened == "explore"
    page.header.set_state({"selected": list(tabs()).index("lessons")})
    cards = page.panels["lessons"].children[1].value  # type: ignore[attr-defined]
    files = re.findall(r'<a href="([^"]+)" target="_blank"><b>', cards)
    assert files == [row.file for row in LESSONS.values()]
    assert [(notebooks() / file).exists() for file in files] == [True] * len(files)
    assert cards.count("arxiv.org") + cards.count("kexue.fm") >= len(files)
    chinese = re.findall(r'<a href="([^"]+)" lang="zh-CN" target="_blank">中文</a>', cards)
    assert chinese == [row.chinese_file for row in LESSONS.values() if row.minutes]
    assert [(notebooks() / file).exists() for file in chinese] == [True] * len(chinese)
    titles = [row.title for row in LESSONS.values() if row.minutes]
    assert re.findall(r"<b>(\d+ · [^<]+)</b>", cards) == [
        f"{place} · {name}" for place, name in enumerate(titles, 1)
    ]
    for words in (
        "40 minutes · after lesson 1 · ",
        "50 minutes · after lessons 2 and 4",
        "after lessons 6, 7 and 8",
    ):
        assert words in cards
