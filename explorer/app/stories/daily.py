"""`of_day`: the question of a day, the same for everybody: a design, and a curve to draw."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from explorer.app.explore.question import Draw
from explorer.app.sentences import model_words, name_of
from explorer.app.stories.story import Step, Story
from explorer.config import Config
from explorer.figures import FIGURES
from explorer.figures.series import by_depth
from explorer.figures.why import why
from explorer.glossary import rows
from explorer.numbers import number
from explorer.theory import predict
from explorer.vocabulary import STATISTICS

DAILY = "day"
"""Its name, as it stands in a link."""
STRIDE = 11
"""Rows of the table from one day to the next, so that neighbors in it are days apart; it shares no
factor with their number."""
TABLE = Path(__file__).with_name("stories.toml")
DAYS = tuple((row["link"], row["look_at"]) for row in rows(TABLE, "day"))
"""The link of a design, and the name of the chart on which a curve is drawn."""
ASKED: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {row["look_at"]: row for row in rows(TABLE, "day_question")}
)
"""By the name of a chart: question, and extent of its axis."""


def today() -> date:
    """The date in UTC, which is the same for everybody."""
    return datetime.now(UTC).date()


def row_of_day(day: date) -> tuple[str, str]:
    """The row of `DAYS` that is asked about on a day."""
    return DAYS[day.toordinal() * STRIDE % len(DAYS)]


@lru_cache(maxsize=4)
def of_day(day: date, config: Config) -> Story:
    """The question of a day as a story of one step.

    Args:
        config: the design of the day's link.
    """
    link, chart = row_of_day(day)
    asked = ASKED[chart]
    title = f"Guess of {day.day} {day:%B}"
    words = f"Today's design, for everybody: {name_of(config)}, {model_words(config)}."
    question = Draw(asked["question"], chart, asked["extent"], _answer(config, chart))
    return Story(DAILY, title, "", (Step(link, words, chart, question),))


def _answer(config: Config, chart: str) -> str:
    """Both ends of the curve that theory predicts, and the law that it follows."""
    statistic = STATISTICS[FIGURES[chart].statistic]
    site = "" if statistic.on_stream else statistic.sites[0]
    predicted = predict(config)
    curve = by_depth([predicted], statistic.name, site)[0].middle
    start = "at the input" if statistic.on_stream else "in layer 1"
    ends = f"Theory expects {number(curve[0], 2)} {start} and {number(curve[-1], 2)} in the last layer."
    return f"{ends} {why(statistic.name, predicted).words}".strip()
