"""A story on the page without a browser: its steps, its record, undo, and questions that withhold
their answer."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from explored import plain
from linked import state
from watched import Watched

from explorer.app.dashboard import Dashboard, dashboard
from explorer.app.explore.panel import Explore
from explorer.app.stories.daily import DAILY
from explorer.app.stories.story import STORIES
from explorer.app.stories.telling import LARGE, MARK, box_of
from explorer.app.tabs import tabs
from explorer.app.widgets.parts import Part
from explorer.config import Config
from explorer.figures.layers import WITHHELD

ENTROPY = "attention_entropy"
RACE = state(race={"plan": {"steps": 30}})
WORDS = "On average your line is off by "


def send(part: Part, message: tuple[Any, ...]) -> None:
    """A message as a browser's widget sends it."""
    page: Any = part.page
    page._take(page, [1, part.number, "act", list(message)], [])


class Visit:
    """A page, and what somebody does on it."""

    def __init__(self, page: Dashboard) -> None:
        self.page, self.strip = page, page.telling.strip

    @property
    def explore(self) -> Explore:
        panel = self.page.panels["explore"]
        assert isinstance(panel, Explore)
        return panel

    def press(self, *message: Any) -> None:
        send(self.strip, message)

    def draw(self, *message: Any) -> None:
        send(self.explore.charts[ENTROPY], message)

    def click(self, *message: Any) -> None:
        send(self.page.header, message)

    def measured(self) -> None:
        """Waits until the page shows what its controls say."""
        Watched(self.explore).until("idle")

    def traces(self) -> list[str]:
        return [trace["name"] for trace in self.explore.charts[ENTROPY].figure["data"]]


@pytest.fixture(scope="module")
def page() -> Iterator[Dashboard]:
    page = dashboard()
    yield page
    page.close()


@pytest.fixture
def visit(page: Dashboard) -> Visit:
    """The page as it opens."""
    page.open_link("")
    page.telling.strip.shown = False
    return Visit(page)


@pytest.fixture
def asked(visit: Visit) -> Visit:
    visit.press("tell", "root_d")
    visit.press("next")
    visit.measured()
    return visit


@pytest.mark.plugins
def test_every_story_is_offered_to_who_asks(visit: Visit) -> None:
    assert [card["name"] for card in visit.strip.cards] == [*STORIES, DAILY]
    assert visit.page.top.children[:2] == (visit.page.header, visit.strip)
    assert visit.page.page.story is None
    assert not visit.strip.shown
    visit.click("stories")
    assert visit.strip.shown


def test_a_story_is_walked_by_its_buttons_and_left(visit: Visit) -> None:
    visit.press("tell", "root_d")
    assert visit.page.link == "?story=root_d&step=1"
    assert not visit.strip.shown
    visit.press("next")
    assert visit.page.link == "?story=root_d&step=2&attention_scale=none"
    assert visit.page.page.story == ("root_d", 2)
    assert visit.strip.step["look"] == "Attention entropy"
    assert [name for name, cell in visit.explore.cells.items() if "ex-looked" in cell.classes] == [
        ENTROPY
    ]
    for _ in range(9):
        visit.press("next")
    assert visit.page.page.story == ("root_d", 5)  # there are no more
    visit.press("back")
    visit.press("leave")
    assert visit.page.page.story is None
    assert visit.page.link == "?scale_rule=t5&attention_scale=none"  # it stays as it is
    assert not visit.strip.step
    assert not any("ex-looked" in cell.classes for cell in visit.explore.cells.values())


@pytest.mark.plugins
def test_a_small_picture_is_framed_with_its_grid_and_a_large_chart_alone(visit: Visit) -> None:
    """A small picture is drawn large only where its grid is marked, too."""
    framed = {}
    for link, look in (
        ("?story=root_d&step=2", ENTROPY),
        ("?story=warmup&step=1", "gradient_by_layer"),
    ):
        visit.page.open_link(link)
        cell = visit.explore.cells[look]
        grid = box_of(cell, visit.explore)
        assert grid
        assert MARK in cell.classes
        framed[grid.children.index(cell)] = MARK in grid.classes
    assert framed == {LARGE: True, LARGE - 1: False}


def test_a_step_may_stand_in_a_tab_without_charts(visit: Visit) -> None:
    assert visit.page.open_link("?tab=lessons&story=mup&step=3") == []
    assert visit.strip.step["look"] == ""
    visit.press("leave")
    assert visit.page.link == "?tab=lessons"


@pytest.mark.plugins
def test_a_step_is_one_step_of_undo_and_sets_nothing_of_other_panels(visit: Visit) -> None:
    visit.page.open_link(f"?{RACE}")
    visit.page.follow()
    visit.press("tell", "root_d")
    visit.press("next")
    assert visit.page.link == "?story=root_d&step=2&attention_scale=none" + RACE
    visit.click("undo")
    assert visit.page.link == "?story=root_d&step=1" + RACE
    assert visit.strip.step["number"] == 1
    visit.click("undo")
    assert not visit.strip.step
    visit.click("redo")
    assert visit.strip.step["number"] == 1


@pytest.mark.plugins
def test_a_link_opens_a_step_with_whatever_else_it_says(visit: Visit) -> None:
    assert visit.page.open_link("?story=warmup&step=3&design=post_ln&n_layers=2&d_model=16") == []
    assert visit.strip.step["number"] == 3
    assert visit.explore.controls.config == Config(norm_placement="post", n_layers=2, d_model=16)
    assert not visit.strip.shown
    assert visit.page.open_link("?n_layers=3") == []
    assert not visit.strip.step


REFUSED = [
    (
        "?story=nobody",
        "story must be one of root_d, warmup, thousand, mup, gpt2_llama, day; got 'nobody'",
    ),
    ("?story=root_d&step=6", "step must be a whole number between 1 and 5; got 6"),
    ("?story=root_d&step=0", "step must be a whole number between 1 and 5; got 0"),
    ("?story=root_d&step=two", "step must be a whole number between 1 and 5; got 'two'"),
    (
        "?story=<b>x</b>&step=1",
        "story must be one of root_d, warmup, thousand, mup, gpt2_llama, day; got '<b>x</b>'",
    ),
]


@pytest.mark.plugins
def test_what_is_no_story_is_a_sentence(visit: Visit) -> None:
    for link, sentence in REFUSED:
        assert visit.page.open_link(link) == [sentence]
        assert visit.page.page.story == (("root_d", 1) if "root_d" in link else None)


NONSENSE: list[Any] = [
    None,
    3,
    "next",
    [],
    ["tell"],
    ["tell", "nobody"],
    ["tell", ["root_d"]],
    ["tell", {}],
    ["story", 1],
    ["next"],
    ["back"],
    ["reveal"],
    ["reveal", [0.5] * 6],
    ["skip"],
    ["cards", "yes"],
    ["leave"],
    {"tell": "root_d"},
]


def test_messages_that_make_no_sense_change_nothing(visit: Visit) -> None:
    before = visit.page.page, visit.strip.get_state()
    for message in NONSENSE:
        visit.page.telling.act(message)
        assert (visit.page.page, visit.strip.get_state()) == before, message


def test_a_question_withholds_the_chart_and_the_verdict(asked: Visit) -> None:
    """Whatever the controls do meanwhile, nothing of a design is in what the browser gets."""
    for _ in ("of the step", "of another design"):
        assert asked.traces() == ["uniform", "one-hot"]
        chart = asked.explore.charts[ENTROPY]
        assert "Withheld" in chart.description
        assert "easured" not in json.dumps(
            [chart.figure, chart.description, chart.caption], default=str
        )
        assert chart.badge == ""
        assert [finding["severity"] for finding in asked.explore.verdict.findings] == ["withheld"]
        for name, other in asked.explore.charts.items():
            assert name == ENTROPY or (other.figure["data"], other.description) == ([], WITHHELD)
        asked.explore.controls.apply({"n_layers": 3, "d_model": 16})
        asked.measured()


def test_a_question_withholds_its_design_from_the_table_too(visit: Visit) -> None:
    """Beside a pinned design there is a table of end values: measured, predicted, and the
    verdict."""
    visit.page.open_link("?story=gpt2_llama&step=3&n_layers=2&d_model=16&pin=gpt2")
    visit.measured()
    table = visit.explore.comparison.table
    values = [row["cells"] for group in table.groups[1:] for row in group["rows"]]
    assert values
    assert {(cell["text"], cell["theory"]) for cell, _ in values} == {(WITHHELD, "")}
    visit.press("skip")
    visit.measured()
    assert not any(
        row["cells"][0]["text"] == WITHHELD for group in table.groups for row in group["rows"]
    )


def test_a_line_is_drawn_and_told_how_near_it_was(asked: Visit) -> None:
    asked.draw("reveal", [0.9] * 6)
    assert {"your guess"} < set(asked.traces())
    traces = asked.explore.charts[ENTROPY].figure["data"]
    guess = next(trace for trace in traces if trace["name"] == "your guess")
    assert plain(guess["y"]) == pytest.approx([0.9] * 6)
    dots = plain(next(trace["y"] for trace in traces if trace["mode"] == "markers"))
    off = float(abs(0.9 - dots).mean())
    assert asked.strip.step["said"].startswith(f"{WORDS}{off:.2g}, theory's by 0.00")
    assert asked.strip.step["said"].endswith(STORIES["root_d"].steps[1].question.reveal)  # type: ignore[union-attr]
    assert asked.explore.charts[ENTROPY].ask == {"said": asked.strip.step["said"]}
    assert asked.explore.verdict.findings[0]["severity"] == "bad"
    asked.press("next")
    assert "your guess" not in asked.traces()
    assert asked.explore.charts[ENTROPY].ask == {}


def test_reveal_goes_back_to_the_design_that_was_asked_about(asked: Visit) -> None:
    asked.explore.controls.apply({"n_layers": 3, "d_model": 16})
    asked.draw("skip")
    assert asked.explore.controls.config == Config(attention_scale="none")
    asked.measured()
    assert asked.strip.step["said"] == STORIES["root_d"].steps[1].question.reveal  # type: ignore[union-attr]
    assert "your guess" not in asked.traces()


def test_what_is_no_guess_reveals_nothing(asked: Visit) -> None:
    for guess in (None, "0.5", [0.5] * 5, [math.nan] * 6, [2.0] * 6, [[0.5]] * 6, 0, {}):
        asked.draw("reveal", guess)
        assert asked.traces() == ["uniform", "one-hot"]
        assert asked.strip.step["said"].startswith(("A guess must", "Each height"))


def test_an_answer_is_chosen(visit: Visit) -> None:
    step = STORIES["thousand"].steps[1]
    visit.page.open_link(f"{step.link}&n_layers=100&story=thousand&step=2")  # as good, and quicker
    visit.explore.asking.config = visit.explore.controls.config
    visit.measured()
    assert visit.strip.step["options"] == list(step.question.options)  # type: ignore[union-attr]
    assert "ot finite" not in visit.explore.status.text
    visit.press("reveal", 3)
    assert visit.strip.step["said"].startswith("An answer must be one of 3")
    visit.press("reveal", 0)
    assert visit.strip.step["said"].startswith(
        "Not so. The right answer: it stops being finite before layer 100."
    )
    assert "ot finite from layer 69" in visit.explore.status.text


def test_a_fixed_design_is_offered_no_stories_and_tells_the_one_of_its_link(visit: Visit) -> None:
    assert visit.page.open_link("?show=depth&story=root_d&step=2&attention_scale=none") == []
    assert not visit.page.header.stories
    assert visit.strip.step["number"] == 2
    visit.press("next")
    assert visit.page.link == "?show=depth&story=root_d&step=3&attention_scale=none"
    visit.page.open_link("")
    assert visit.page.header.stories


@pytest.mark.plugins
def test_a_page_without_the_panels_tells_no_stories() -> None:
    page = Dashboard(Config(), {"race": tabs()["race"]})
    assert page.telling.strip.cards == []
    assert not page.header.stories
    assert len(page.open_link("?story=root_d&step=2")) == 1
    page.close()
