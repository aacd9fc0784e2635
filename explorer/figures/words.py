"""Formulas as plotly typesets them."""

from __future__ import annotations

import re

NOTATION = re.compile(r"(?<!\w)([^\W\d_]²?|fan)_(\([^()]+\)|[^\W_]+)|\^(\([^()]+\)|[-+−]?[^\W_]+)")


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
