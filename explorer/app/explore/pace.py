"""When the Explore panel draws what it has while it measures. Pure functions."""

from __future__ import annotations

from explorer.profile import Profile

PATIENCE = 0.8
"""Seconds of measuring still to come for which the theory's lines are drawn ahead of the dots."""
BEGINNING = 0.25
"""Seconds of measuring after which it is known how long it takes; the first dots of a usual model are there by then."""
SOON = 0.1
"""Seconds of measuring still to come for which the first dots wait for the others."""
AGAIN, LATER = 0.5, 1.5
"""Seconds still to come for which dots are drawn once more before all are there, where they took so much longer."""


def lines_first(busy: float, fraction: float) -> bool:
    """Whether the dots of a measurement that is busy for so many seconds, and done in part, are far away."""
    return busy > BEGINNING and busy * (1 - fraction) > PATIENCE * fraction


def worth_drawing(some: Profile, before: Profile | None) -> bool:
    """Whether the other seeds of a partial measurement take longer than a drawing.

    Args:
        before: an earlier part of it that is on the charts, or another design's.
    """
    if some.config is None:
        return False
    left = some.seconds * (some.config.n_seeds / len(some.seeds) - 1)
    if before is None or before.config != some.config:
        return left > SOON
    return left > AGAIN and some.seconds > LATER * before.seconds
