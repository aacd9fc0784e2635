"""The tab of the Explore panel, with the functions that compute for it."""

from __future__ import annotations

from explorer.app.explore.ahead import Ahead
from explorer.app.explore.panel import Explore
from explorer.app.explore.pins import Pins
from explorer.app.explore.selections import ALL, MATRIX_WORDS
from explorer.app.link.state import one_of, seated
from explorer.app.page import ExplorePart, Tab
from explorer.diagnosis import diagnose
from explorer.figures import BY_CHOICE
from explorer.measuring.outside import measure
from explorer.theory.solve import solve


def check(part: ExplorePart) -> tuple[ExplorePart, list[str]]:
    """A part that the panel can have, and a sentence for each pin that it refuses.

    Raises:
        ConfigError: no such matrix, or no such statistic.
    """
    one_of("matrix", part.matrix, (ALL, *MATRIX_WORDS))
    one_of("statistic", part.statistic, BY_CHOICE)
    pins, sentences = seated(part.pins, Pins())
    return part._replace(pins=pins), sentences


TAB = Tab(
    "Explore",
    lambda config: Explore(config, measure, Ahead(), diagnose, solve),
    part=ExplorePart,
    check=check,
)
