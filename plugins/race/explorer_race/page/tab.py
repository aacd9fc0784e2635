"""The tab of the Race."""

from __future__ import annotations

from explorer.app.link.state import seated
from explorer.app.page import Tab
from explorer.choices import ConfigError
from explorer_race.page.lineup import Lineup, RacePart
from explorer_race.page.panel import RacePanel


def check(part: RacePart) -> tuple[RacePart, list[str]]:
    """A part that the panel can have, and a sentence for each contender that it refuses.

    Raises:
        ConfigError: no contender has the selected place.
    """
    contenders, sentences = seated(part.contenders, Lineup())
    last = max(0, len(contenders) - 1)
    if not 0 <= part.selected <= last:
        raise ConfigError(
            f"selected must be a whole number between 0 and {last}; got {part.selected}"
        )
    return part._replace(contenders=contenders), sentences


TAB = Tab("Race", lambda _: RacePanel(), part=RacePart, check=check, after="map")
