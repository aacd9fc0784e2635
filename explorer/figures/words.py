"""Text of pictures: formulas as plotly typesets them, and the words that stand in for a picture that is not seen."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from explorer.figures.series import Series
from explorer.numbers import number

NOTATION = re.compile(r"(?<!\w)([^\W\d_]|fan)_(\([^()]+\)|[^\W_]+)|\^(\([^()]+\)|[-+−]?[^\W_]+)")


def typeset(text: str) -> str:
    """W_Q, A_(l−1) and 2^(−l/2) with tags for what is low and high, as plotly and HTML have them.

    `app/typeset.js` is its twin for the page. What came from outside must be escaped before.
    """
    return NOTATION.sub(_script, text)


def _script(found: re.Match[str]) -> str:
    base, below, above = found.groups(default="")
    tag = "sub" if below else "sup"
    words = (below or above).removeprefix("(").removesuffix(")").replace("¼", "1/4").replace("½", "1/2")  # legible
    return f"{base}<{tag}>{words}</{tag}>"


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
