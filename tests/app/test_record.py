"""What a person chose, read as a record and restored from one: through JSON, and without trust."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from explored import SMALL, Open, Page, opened

from explorer.app.dashboard import PANELS, Dashboard
from explorer.app.explore.panel import Explore
from explorer.app.labs import LabPanel
from explorer.app.widgets.record import parse_choices
from explorer.config import Config
from explorer.figures import BY_CHOICE
from explorer.labs.table import LABS
from explorer.theory import predict

open_panel = pytest.fixture(name="open_panel")(opened)
CHANGES: dict[str, Any] = {
    "n_layers": 3, "norm_placement": "post", "init_variance": 0.1 + 0.2, "loss": "next_token", "input": "text",
}
"""A fraction without an exact decimal, and two fields that are only accepted together."""


def through_json(state: object) -> Any:
    return json.loads(json.dumps(state))


def pin(page: Page, *content: object) -> None:
    page.panel.comparison.box._handle_custom_msg(list(content), [])


def test_explore_comes_back_from_json(open_panel: Open) -> None:
    first = open_panel(predict=predict)
    pin(first, "pin")
    first.set(**CHANGES)
    pin(first, "pin")
    pin(first, "name", 2, "Öfter “tief”")
    pin(first, "hide", 1)
    first.set(n_layers=2)
    first.panel.pattern.set_state({"values": {"layer": 2, "head": 2}})
    first.panel.matrix.set_state({"values": {"matrix": "W_Q"}})
    state = through_json(first.panel.state())

    second = open_panel(Config(), predict=predict)
    assert second.panel.restore(state) == []
    assert second.panel.controls.config == SMALL.replace(**{**CHANGES, "n_layers": 2})
    assert second.panel.pattern.pattern_of == (2, 1)
    assert second.panel.matrix.value == "W_Q"
    assert list(second.panel.comparison.pins.designs().values()) == list(first.panel.comparison.pins.designs().values())
    assert [one.visible for one in second.panel.comparison.pins] == [False, True]
    assert through_json(second.panel.state()) == state
    second.until("idle", "Measured 2 layers of width 16")
    assert second.stale() == {False}
    assert second.comes(lambda: all(one.measured for one in second.panel.comparison.pins))


def test_a_record_that_is_taken_back_brings_its_pins_with_their_measurements(open_panel: Open) -> None:
    page = open_panel()
    page.until("idle")
    pin(page, "pin")
    state = page.panel.state()
    page.set(n_layers=3)
    page.until("idle")
    assert page.panel.restore(state) == []
    page.until("idle", "Measured 2 layers")
    (one,) = page.panel.comparison.pins
    assert one.measured is not None
    assert page.panel.worker.computations == 2, "nothing was measured again"


@pytest.mark.parametrize(("part", "value", "complaints"), [
    ("design", 7, 1), ("design", [], 1), ("pins", {}, 1), ("pins", [None], 1), ("pins", [{}, {"config": {}}], 1),
    ("pins", [{"config": {}}] * 2, 1), ("pins", [{"config": {}, "visible": 1, "index": "2"}], 2),
    ("pattern", None, 1), ("pattern", {"layer": 3, "head": 0}, 1), ("pattern", {"layer": True, "head": "0"}, 1),
    ("pattern", {"layer": 1, "head": True}, 1),
    ("matrix", "W_X", 1), ("matrix", None, 1), ("matrix", ["W_Q"], 1), ("statistic", "color", 1), ("statistic", {}, 1),
    ("color", "red", 1),
])
def test_a_part_that_is_not_understood_is_said_and_changes_nothing_else(
    open_panel: Open, part: str, value: object, complaints: int,
) -> None:
    page = open_panel()
    before = page.panel.state()
    sentences = page.panel.restore({"version": 1, part: value})
    assert len(sentences) == complaints
    after = page.panel.state()
    assert {name for name in before if before[name] != after[name]} <= ({"pins"} if part == "pins" else set())
    page.until("idle", "Measured 2 layers")


@pytest.mark.parametrize("state", [None, 3, "{}", [], {}, {"version": 2}, {"version": "1", "design": {"n_layers": 5}}])
def test_what_is_no_record_of_this_version_changes_nothing(open_panel: Open, state: object) -> None:
    page = open_panel()
    before = page.panel.state()
    assert len(page.panel.restore(state)) == 1
    assert page.panel.state() == before


def test_a_wrong_field_keeps_its_default_and_the_others_count() -> None:
    fields = {**CHANGES, "alpha": "much", "n_hats": 2, "n_heads": 7, 5: None}
    config, sentences = parse_choices(Config, fields, "design")
    assert config == Config(**CHANGES)
    assert len(sentences) == 4
    assert {field for field in ("Residual α", "n_hats", "Heads", "5") if any(field in one for one in sentences)} >= {
        "n_hats", "Heads", "5"}


def test_a_lab_comes_back_with_its_settings() -> None:
    row = LABS["02_second_moment"]
    name, spec = next((name, spec) for name, spec in row.settings.specs().items() if spec.kind == "integer")
    first, second = LabPanel(row, row.settings(**{name: spec.low})), LabPanel(row)
    state = through_json(first.state())
    assert state["settings"] == {name: spec.low}
    assert second.restore(state) == []
    assert second.controls.config == first.controls.config
    assert len(second.restore({"version": 1, "settings": {name: "x"}})) == 1
    assert len(second.restore({"version": 1, "settings": 1})) == 1
    for panel in (first, second):
        panel.close()


@pytest.fixture
def page() -> Iterator[Dashboard]:
    page = Dashboard(SMALL, {name: PANELS[name] for name in ("explore", "foundations")})
    yield page
    page.close()


def test_a_page_restores_panels_when_they_are_built(page: Dashboard) -> None:
    lab = {"version": 1, "open": "02_second_moment", "panels": {}}
    state = {"version": 1, "open": "explore", "panels": {
        "explore": {"version": 1, "design": {"n_layers": 2, "d_model": 32}}, "foundations": lab,
    }}
    assert page.restore(through_json(state)) == []
    explore = page.panels["explore"]
    assert isinstance(explore, Explore)
    assert explore.controls.config == Config(n_layers=2, d_model=32)
    assert page.state()["panels"]["foundations"] == lab
    assert list(page.panels) == ["explore"]
    page.header.set_state({"selected": 1})
    assert page.panels["foundations"].opened == "02_second_moment"  # type: ignore[attr-defined]
    assert page.state()["open"] == "foundations"
    assert page.complaints == []


SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "foundations": ("06_attention_scale", {"d_head": 4, "n_keys": 8, "n_layers": 1, "draws": 2000}),
    "depth": ("10_realformer", {"n_layers": 2, "width": 32, "n_heads": 2, "init_variance": 0.1 + 0.2, "causal": True}),
    "training": ("12_alpha_schedule", {"norm_placement": "pre", "n_layers": 2, "steps": 20}),
}
"""For each tab of labs, the lab that is opened, and choices that are not its defaults."""


def set_everything(page: Dashboard) -> None:
    """Makes choices in all tabs."""
    explore, race = page.panels["explore"], page.show("race")
    explore.controls.apply(CHANGES)
    for message in (["pin"], ["name", 1, "“Deep”"], ["hide", 1]):
        explore.comparison.box._handle_custom_msg(message, [])
    explore.pattern.set_state({"values": {"layer": 3, "head": 2}})
    explore.matrix.set_state({"values": {"matrix": "W_out"}})
    explore.statistic.set_state({"values": {"statistic": "kurtosis"}})
    for tab, (lab, settings) in SETTINGS.items():
        page.show(tab).show(lab).controls.apply(settings)
    race.preparation.plan.apply({"steps": 50, "every": 5, "kind": "masked_character", "seed": 3})
    for message in (["remove", 1], ["add", "preset:deepnorm"], ["name", 2, "Slow"], ["select", 2]):
        race.preparation.contenders._handle_custom_msg(message, [])
    page.show("map").restore({
        "version": 1, "design": {"n_layers": 2, "d_model": 16, "n_heads": 2, "n_ctx": 8},
        "plan": {"x": "alpha", "x_from": 0.1 + 0.2, "x_to": 2.0, "x_count": 3, "y_to": 2.0, "y_count": 2,
                 "compute": "theory"},
    })
    race.preparation.recipe.apply({"learning_rate": 1e-3, "warmup": 7})
    page.show("depth")


def test_all_tabs_come_back_from_json() -> None:
    first, second = (Dashboard(config) for config in (SMALL, Config(n_layers=1)))
    set_everything(first)
    state = through_json(first.state())
    assert {state["panels"][tab]["panels"][lab]["settings"] == settings
            for tab, (lab, settings) in SETTINGS.items()} == {True}
    assert second.restore(state) == []
    assert through_json(second.state()) == state, "records of tabs that are not built are part of the record"
    for name in PANELS:
        second.show(name)
    second.show(first.opened)
    assert second.complaints == []
    assert through_json(second.state()) == state
    assert second.panels["explore"].charts["second_moment"].title == BY_CHOICE["kurtosis"].title
    contenders = second.panels["race"].preparation.lineup
    assert [one.recipe.warmup for one in contenders if one.name == "Slow"] == [7]
    for one in (first, second):
        one.close()


def test_a_page_says_what_it_does_not_understand(page: Dashboard) -> None:
    sentences = page.restore({"version": 1, "open": "attic", "panels": {
        "cellar": {}, "explore": {"version": 1, "design": {"n_layers": 0}}, "foundations": {"version": 7},
    }})
    assert len(sentences) == 3
    assert page.opened == "explore"
    page.show("foundations")
    assert len(page.complaints) == 1
