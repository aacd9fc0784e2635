"""Dares: each breaks what it says, is taken back, and is never in the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from watched import Watched

from explorer.app.dashboard import Dashboard, dashboard
from explorer.app.explore.panel import Explore
from explorer.app.first import first_picture
from explorer.app.stories.dare import CELLS, DARES, Dare, shades, weights
from explorer.config import Config, preset
from explorer.measuring import measure
from explorer.theory import predict


class Visit:
    """A page that has just been opened, and its card."""

    def __init__(self, page: Dashboard) -> None:
        self.page, self.card = page, page.telling.daring.card
        explore = page.panels["explore"]
        assert isinstance(explore, Explore)
        self.explore = explore

    def press(self, *message: Any) -> None:
        page: Any = self.page
        page._take(page, [1, self.card.number, "act", list(message)], [])

    def click(self, *message: Any) -> None:
        page: Any = self.page
        page._take(page, [1, self.page.header.number, "act", list(message)], [])

    @property
    def config(self) -> Config:
        config: Config = self.explore.controls.config
        return config


@pytest.fixture
def visit() -> Iterator[Visit]:
    page = dashboard()
    yield Visit(page)
    page.close()


@pytest.mark.parametrize("dare", DARES, ids=[dare.label for dare in DARES])
def test_a_dare_changes_its_number_and_theory_knows(dare: Dare) -> None:
    """The number that is read moves by a quarter of its bar, predicted as measured."""
    config = Config().replace(**dare.changes)
    assert dare.is_on(config)
    assert not dare.is_on(Config())
    before = dare.number_of(predict(Config()))
    predicted, measured = dare.number_of(predict(config)), dare.number_of(measure(config))
    assert abs(measured["share"] - before["share"]) > 0.25
    assert predicted["share"] == pytest.approx(measured["share"], abs=0.03)
    assert dare.number_of(None) == {}


def test_what_the_words_say_is_so() -> None:
    root, doubled, deep = DARES
    spread = {dare.label: measure(Config(**dare.changes, n_seeds=2)) for dare in (root, doubled)}
    default = measure(Config(n_seeds=2))["logit_std"][:, 0].mean()
    wider = {label: each["logit_std"][:, 0].mean() / default for label, each in spread.items()}
    assert "4 times as wide" in doubled.words
    assert wider[doubled.label] == pytest.approx(4, rel=0.02)
    assert wider[root.label] == pytest.approx(8, rel=0.02)
    assert deep.changes["n_layers"] == 200
    assert "200 layers" in deep.label
    assert f"{deep.changes['d_model']} wide" in deep.words
    assert "overflows in layer" in deep.number_of(predict(Config(**deep.changes)))["words"]


def test_a_switch_is_the_pages_own_change_and_goes_back(visit: Visit) -> None:
    Watched(visit.explore).until("idle")
    assert not visit.card.hidden
    assert (visit.card.on, visit.card.tried, visit.card.origin) == (False, False, "measured")
    visit.press("switch", True)
    assert visit.page.link == "?attention_scale=none"
    assert (visit.card.on, visit.card.tried) == (True, True)
    assert visit.card.predicted["words"] == "0.14"  # at once
    Watched(visit.explore).until("idle")
    assert visit.card.measured["words"] == "0.14"
    assert len(visit.card.pattern) == CELLS**2
    visit.click("undo")
    assert not visit.card.on
    visit.click("redo")
    visit.press("switch", False)
    assert visit.config == Config()


def test_the_next_dare_starts_from_the_design_before(visit: Visit) -> None:
    visit.explore.controls.apply({"n_layers": 6})
    for number, dare in enumerate(DARES, 1):
        assert (visit.card.dare["number"], visit.card.tried) == (number, False)
        visit.press("switch", True)
        assert dare.is_on(visit.config)
        if number < len(DARES):
            visit.press("next")
            assert visit.config == Config(n_layers=6)
    assert not visit.card.pattern
    visit.press("next")  # there are no more
    visit.press("close")
    assert visit.config == Config(n_layers=6)
    assert visit.card.hidden
    visit.press("switch", True)  # it is closed
    assert visit.config == Config(n_layers=6)


@pytest.mark.parametrize("end", ["close", "switch"])
def test_a_dare_is_taken_back_wherever_its_fields_were_moved(visit: Visit, end: str) -> None:
    visit.explore.controls.apply({"alpha": 2.0})
    visit.press("next")
    visit.press("next")
    visit.press("switch", True)
    visit.explore.controls.apply({"n_layers": 256})
    assert visit.card.on
    visit.press("switch", True)  # as a browser might send it twice
    visit.explore.controls.apply({"n_layers": 300, "n_ctx": 32})
    visit.press(end, *([False] if end == "switch" else []))
    assert visit.config == Config(alpha=2.0, n_ctx=32)


def test_a_dare_is_for_the_first_page_alone(visit: Visit) -> None:
    visit.page.show("lessons")
    assert visit.card.hidden
    visit.page.show("explore")
    assert not visit.card.hidden
    visit.page.open_link("?n_layers=6")
    assert visit.card.hidden
    other = Visit(dashboard(preset("post_ln")))
    assert other.card.hidden
    other.page.close()


def test_a_story_takes_its_place(visit: Visit) -> None:
    visit.page.telling.act(["tell", "root_d"])
    assert visit.card.hidden


def test_nonsense_from_a_browser_is_ignored(visit: Visit) -> None:
    messages: list[list[Any]] = [["switch"], ["switch", "on"], ["close", 1], [], [{}], [["next"]]]
    for message in messages:
        visit.press(*message)
    assert visit.config == Config()
    assert visit.card.hidden is False


def test_a_predicted_pattern_has_the_entropy_that_theory_expects() -> None:
    for spread in (1.0, 8.0):
        pattern = weights(spread, 64)
        assert pattern.sum(axis=1) == pytest.approx(1)
        entropy = -(pattern * np.log(pattern + 1e-300)).sum(axis=1) / np.log(64)
        config = Config(attention_scale="none" if spread > 1 else "sqrt_d")
        expected = predict(config)["attention_entropy_normalized"][0, 0].mean()
        assert entropy.mean() == pytest.approx(expected, abs=0.05)
    assert max(shades(weights(8.0, 64))) > 90
    assert len(shades(weights(1.0, 64))) == CELLS**2


def test_the_first_picture_has_theorys_number() -> None:
    assert "predicted: 0.89" in first_picture(Config(), ["Explore"])
