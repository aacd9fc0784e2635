"""What a person set, read as a record and restored from it, panel by panel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from explored import SMALL, Open, Page, opened

from explorer.app.dashboard import Dashboard
from explorer.app.explore.panel import Explore
from explorer.app.link.params import Params
from explorer.app.map.plan import MapPart, Plan
from explorer.app.page import ExplorePart
from explorer.app.page import Page as Record
from explorer.app.tabs import tabs
from explorer.config import Config
from explorer.figures import BY_CHOICE
from explorer.theory import predict

open_panel = pytest.fixture(name="open_panel")(opened)
CHANGES: dict[str, Any] = {
    "n_layers": 3,
    "norm_placement": "post",
    "init_variance": 0.1 + 0.2,
    "loss": "next_token",
    "input": "text",
}
"""A fraction without an exact decimal, and two fields that are only accepted together."""


def pin(page: Page, *content: object) -> None:
    page.comparison.box.handle(list(content), [])


def test_explore_comes_back_from_its_part(open_panel: Open) -> None:
    first = open_panel(predict=predict)
    pin(first, "pin")
    first.set(**CHANGES)
    pin(first, "pin")
    pin(first, "name", 2, "Öfter “tief”")
    pin(first, "hide", 1)
    first.set(n_layers=2)
    first.pattern.set_state({"values": {"layer": 2, "head": 2}})
    first.matrix.set_state({"values": {"matrix": "W_Q"}})
    part = first.part
    assert (part.pattern_of, part.matrix) == ((2, 1), "W_Q")

    second = open_panel(Config(), predict=predict, ready=False)
    second.restore(part)
    assert second.controls.config == SMALL.replace(**{**CHANGES, "n_layers": 2})
    assert second.pattern.pattern_of == (2, 1)
    assert second.matrix.value == "W_Q"
    assert list(second.comparison.pins.designs().values()) == list(
        first.comparison.pins.designs().values()
    )
    assert [one.visible for one in second.comparison.pins] == [False, True]
    assert second.part == part
    second.until("idle", "Measured 2 layers of width 16")
    assert second.stale() == {False}
    assert second.comes(
        lambda: all(second.schedule.known(one.config).measured for one in second.comparison.pins)
    )


def test_a_record_that_is_taken_back_brings_its_pins_with_their_measurements(
    open_panel: Open,
) -> None:
    page = open_panel()
    pin(page, "pin")
    part = page.part
    page.choose(n_layers=3)
    page.restore(part)
    page.until("idle", "Measured 2 layers")
    (one,) = page.comparison.pins
    found = page.schedule.known(one.config).measured
    assert found is not None
    assert found.pattern is None, "which is only shown of the current design"
    assert page.worker.computations == 2, "nothing was measured again"


def test_a_wrong_field_keeps_its_default_and_the_others_count() -> None:
    params = Params("")
    config = params.design({**CHANGES, "alpha": "much", "n_hats": 2, "n_heads": 7})
    assert config == Config(**CHANGES)
    assert len(params.sentences) == 3
    assert {
        field
        for field in ("Residual α", "n_hats", "Heads")
        if any(field in one for one in params.sentences)
    } >= {"n_hats", "Heads"}


@pytest.fixture
def page() -> Iterator[Dashboard]:
    page = Dashboard(SMALL, {name: tabs()[name] for name in ("explore", "map")})
    yield page
    page.close()


def test_a_page_restores_panels_when_they_are_built(page: Dashboard) -> None:
    part = MapPart(Config(n_layers=2, d_model=16, n_heads=2, n_ctx=8), Plan(compute="theory"))
    page.restore(
        Record("explore", {"explore": ExplorePart(Config(n_layers=2, d_model=32)), "map": part})
    )
    explore = page.panels["explore"]
    assert isinstance(explore, Explore)
    assert explore.controls.config == Config(n_layers=2, d_model=32)
    assert page.page.panels["map"] == part
    assert list(page.panels) == ["explore"]
    page.header.set_state({"selected": 1})
    assert page.panels["map"].part == part  # type: ignore[attr-defined]
    assert page.page.open == "map"


def set_everything(page: Dashboard) -> None:
    """Makes choices in all tabs."""
    explore, race = page.panels["explore"], page.show("race")
    explore.controls.apply(CHANGES)
    for message in (["pin"], ["name", 1, "“Deep”"], ["hide", 1]):
        explore.comparison.box.handle(message, [])
    explore.pattern.set_state({"values": {"layer": 3, "head": 2}})
    explore.matrix.set_state({"values": {"matrix": "W_out"}})
    explore.statistic.set_state({"values": {"statistic": "kurtosis"}})
    explore.layer.set_state({"values": {"layer": 2}})
    race.preparation.plan.apply({"steps": 50, "every": 5, "kind": "masked_character", "seed": 3})
    for message in (["remove", 1], ["add", "preset:deepnorm"], ["name", 2, "Slow"], ["select", 2]):
        race.preparation.contenders.handle(message, [])
    page.show("map").restore(
        MapPart(
            Config(n_layers=2, d_model=16, n_heads=2, n_ctx=8),
            Plan(
                x="alpha",
                x_from=0.1 + 0.2,
                x_to=2.0,
                x_count=3,
                y_to=2.0,
                y_count=2,
                compute="theory",
            ),
        )
    )
    race.preparation.recipe.apply({"learning_rate": 1e-3, "warmup": 7})
    page.show("lessons")


@pytest.mark.plugins
def test_all_tabs_come_back_from_the_record() -> None:
    first, second = (Dashboard(config) for config in (SMALL, Config(n_layers=1)))
    set_everything(first)
    record = first.page
    second.restore(record)
    assert second.page == record, "parts of tabs that are not built are part of the record"
    for name in tabs():
        second.show(name)
    second.show(first.opened)
    assert second.link == first.link
    assert second.panels["explore"].charts["second_moment"].title == BY_CHOICE["kurtosis"].title
    contenders = second.panels["race"].preparation.lineup
    assert [one.recipe.warmup for one in contenders if one.name == "Slow"] == [7]
    for one in (first, second):
        one.close()
