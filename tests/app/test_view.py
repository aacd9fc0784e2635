"""A teacher's link: what it hides, and that the rest works on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from watched import Watched

from explorer.app.dashboard import Dashboard
from explorer.app.view import LISTS, WHOLE, View, parse, write
from explorer.config import Config

SMALL = Config(n_layers=2, d_model=16, n_heads=2, n_ctx=8, batch_size=1, n_seeds=1)


@pytest.fixture
def page() -> Iterator[Dashboard]:
    page = Dashboard(SMALL)
    yield page
    page.close()


def fields(page: Dashboard) -> list[str]:
    return [
        field["name"]
        for section in page.panels["explore"].controls.sections
        for field in section["fields"]
    ]


@pytest.mark.plugins
def test_controls_panels_and_charts_are_hidden(page: Dashboard) -> None:
    everything = fields(page)
    assert (
        page.open_link(
            "?show=depth,norm_placement&panels=race,explore&charts=attention_entropy&n_layers=3"
        )
        == []
    )
    explore = page.panels["explore"]
    assert fields(page) == ["n_layers", "norm_placement"]
    assert explore.named_designs.hidden
    assert [name for name, cell in explore.cells.items() if not cell.hidden] == [
        "attention_entropy"
    ]
    assert [
        title
        for index, title in enumerate(page.header.tabs)
        if index not in page.header.hidden_tabs
    ] == ["Explore", "Race"]
    assert (
        page.link
        == "?show=depth,norm_placement&panels=race,explore&charts=attention_entropy&n_layers=3"
    )
    page.open_link("")
    assert fields(page) == everything
    assert page.header.hidden_tabs == []
    assert not explore.named_designs.hidden


def test_without_controls_the_design_is_fixed(page: Dashboard) -> None:
    page.open_link("?show=none&design=post_ln")
    explore = page.panels["explore"]
    assert fields(page) == []
    assert explore.side.hidden
    assert explore.controls.hidden
    assert not explore.controls.shows("norm_placement")
    page.open_link("?show=design")
    assert not explore.side.hidden


def test_reset_goes_back_to_the_teachers_page(page: Dashboard) -> None:
    page.header.handle(["shown", "?show=depth&n_layers=3&embed=1"], [])
    assert "ex-embed" in page.top.classes
    page.panels["explore"].controls.apply({"n_layers": 4})
    page.header.handle(["reset"], [])
    assert page.link == "?show=depth&embed=1&n_layers=3"


@pytest.mark.plugins
def test_a_panel_that_is_hidden_is_not_left_open(page: Dashboard) -> None:
    page.open_link("?tab=race&panels=explore")
    assert page.opened == "explore"
    panels = "explore, map, race, lessons, yours"
    assert page.open_link("?panels=attic,race") == [f"panels: 'attic' is not one of {panels}"]
    assert page.opened == "race"


def test_a_remedy_that_moves_a_hidden_control_is_not_offered(page: Dashboard) -> None:
    explore = page.panels["explore"]
    bad = "n_layers=24&d_model=16&n_heads=2&n_ctx=8&n_seeds=1&norm_placement=none&init_variance=20"
    for show, offered in (("&show=depth", False), ("", True)):
        page.open_link(f"?{bad}{show}")
        Watched(explore).until("idle")
        assert any(finding["remedy"] for finding in explore.verdict.findings) is offered


def test_names_of_parts_that_there_are_not_are_said() -> None:
    assert parse({}, ["one"], embed=False) == (WHOLE, [])
    view, sentences = parse(
        {"show": ["n_layers", "x"], "panels": ["one", "two"]}, ["one"], embed=True
    )
    assert view == View(show=("n_layers",), panels=("one",), embed=True)
    assert sentences[1:] == ["panels: 'two' is not one of one"]
    assert list(write(view)) == [("show", "n_layers"), ("panels", "one"), ("embed", "1")]


@pytest.mark.parametrize("part", LISTS)
def test_a_list_without_any_known_name_hides_nothing(part: str) -> None:
    panels = ["explore", "race"]
    unknown, sentences = parse({part: ["attic"]}, panels, embed=False)
    assert unknown.whole
    assert len(sentences) == 1
    nothing, sentences = parse({part: []}, panels, embed=False)
    assert getattr(nothing, part) == ()
    assert not sentences
