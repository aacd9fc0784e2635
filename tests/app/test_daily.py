"""The question of the day: one for everybody, which changes each day and always has an answer."""

from __future__ import annotations

import re
from datetime import date, timedelta
from functools import cache
from itertools import pairwise
from math import gcd

import numpy as np
import pytest

from explorer.app.dashboard import dashboard
from explorer.app.explore.question import Draw
from explorer.app.link import links as link_module
from explorer.app.link.links import Links
from explorer.app.stories.daily import ASKED, DAILY, DAYS, STRIDE, of_day, row_of_day, today
from explorer.app.tabs import tabs
from explorer.config import Config
from explorer.measuring import measure
from explorer.profile import Profile
from explorer.theory import predict

LINKS = Links(tabs())
YEAR = [date(2027, 1, 1) + timedelta(days=day) for day in range(365)]


def config_of(link: str) -> Config:
    config: Config = LINKS.parse(link)[0].panels["explore"].design
    return config


@cache
def measured(config: Config) -> Profile:
    return measure(config.replace(n_seeds=1))


def question_of(day: date) -> Draw:
    story = of_day(day, config_of(row_of_day(day)[0]))
    question = story.steps[0].question
    assert isinstance(question, Draw)
    return question


def test_each_day_of_a_year_has_an_answer_that_can_be_said() -> None:
    for day in YEAR:
        question = question_of(day)
        numbers = re.search(
            r"^Theory expects (\S+) (?:at the input|in layer 1) and (\S+) in the last layer\.",
            question.reveal,
        )
        assert numbers, question.reveal
        assert not re.search("nan|inf|None", question.reveal)


def test_neighboring_days_differ_and_every_row_has_its_turn() -> None:
    asked = [row_of_day(day) for day in YEAR]
    assert set(asked) == set(DAYS)
    assert len(set(DAYS)) == len(DAYS)
    assert gcd(STRIDE, len(DAYS)) == 1
    assert all(link != tomorrow for link, tomorrow in pairwise(asked))
    assert {chart for _, chart in DAYS} == set(ASKED)


@pytest.mark.parametrize(("link", "chart"), DAYS)
def test_a_days_link_is_whole_and_its_curves_lie_on_the_axis(link: str, chart: str) -> None:
    page, sentences = LINKS.parse(link)
    assert not sentences
    assert LINKS.write(page) == link
    config = config_of(link)
    asked = ASKED[chart]
    question = Draw(asked["question"], chart, asked["extent"], "")
    low, high = question.extent
    for profile in (predict(config), measured(config)):
        curve = question._series(profile).middle
        heights = np.log10(curve) if question.statistic.log else curve
        assert low <= heights.min()
        assert heights.max() <= high


def test_the_page_asks_it_by_link_and_by_its_card(monkeypatch: pytest.MonkeyPatch) -> None:
    day = date(2027, 3, 14)
    monkeypatch.setattr(link_module, "today", lambda: day)
    page = dashboard(f"?story={DAILY}&step=1")
    step = page.telling.strip.step
    assert step["title"] == "Guess of 14 March"
    assert step["text"] == question_of(day).text
    page.telling.act(["leave"])
    page.telling.act(["tell", DAILY])
    assert page.telling.strip.step["title"] == "Guess of 14 March"
    link = row_of_day(day)[0]
    assert page.link == f"?story={DAILY}&step=1&{link.lstrip('?')}"
    page.close()


def test_a_link_of_another_day_asks_about_todays_design() -> None:
    design = config_of(row_of_day(today())[0])
    for link in ("", "&step=1", "&step=1&design=llama3&n_layers=24"):
        assert config_of(f"?story={DAILY}{link}") == design


def test_today_is_a_date() -> None:
    assert abs((today() - date.today()).days) <= 1
