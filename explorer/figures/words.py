"""What a picture shows, in words: the text that stands in for it where it cannot be seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from explorer.figures.series import Series
from explorer.numbers import number


def describe(subject: str, named: Sequence[tuple[str, Series]]) -> str:
    """One sentence a series (its name may be empty): where it starts and ends, its lowest and highest point."""
    return f"{subject} by layer. {' '.join(_sentence(*pair) for pair in named) or 'Nothing measured yet.'}"


def _sentence(name: str, row: Series) -> str:
    who = ", ".join(filter(None, (name, row.name)))
    start = f"{who[0].upper()}{who[1:]}:"
    seen = np.flatnonzero(np.isfinite(row.middle))
    if not len(seen):
        return f"{start} no finite value."
    first, last = seen[0], seen[-1]
    low, high = seen[np.argmin(row.middle[seen])], seen[np.argmax(row.middle[seen])]
    value = [f"{number(row.middle[at])} at depth {row.depth[at]:g}" for at in (first, last, low, high)]
    text = f"{start} {value[0]}, {value[1]}; lowest {value[2]}, highest {value[3]}"
    lost = len(row.middle) - len(seen)
    return f"{text}; not finite at {lost} of {len(row.middle)} depths." if lost else f"{text}."
