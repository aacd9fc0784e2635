"""Figures of any shape, as a browser is sent them, and what it makes of a patch."""

from __future__ import annotations

import copy

from hypothesis import strategies as st

WORDS = st.text("abc", max_size=2)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-1, 1) | WORDS,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(WORDS, part, max_size=3), max_leaves=8)
FIGURE = st.fixed_dictionaries({
    "data": st.lists(st.dictionaries(WORDS, PLAIN, max_size=4), max_size=3),
    "layout": st.dictionaries(WORDS, PLAIN, max_size=4),
})


def applied(figure, found):
    """A figure with the changes of a patch, as a browser makes them."""
    figure = copy.deepcopy(figure)
    for (*path, last), *value in found:
        part = figure
        for name in path:
            part = part[name]
        if value:
            part[last] = value[0]
        else:
            del part[last]
    return figure
