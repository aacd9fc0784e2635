"""Figures of any shape, as a browser is sent them."""

from __future__ import annotations

from hypothesis import strategies as st

WORDS = st.text("abc", max_size=2)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-1, 1) | WORDS,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(WORDS, part, max_size=3), max_leaves=8)
FIGURE = st.fixed_dictionaries({
    "data": st.lists(st.dictionaries(WORDS, PLAIN, max_size=4), max_size=3),
    "layout": st.dictionaries(WORDS, PLAIN, max_size=4),
})
