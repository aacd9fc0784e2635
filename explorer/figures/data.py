"""Figures as data: drawn so, and packed for a browser.

`plotly.graph_objects.Figure` checks each of its properties, which takes a page longer than all else
that it draws. The page therefore packs what was drawn as it is; the tests have plotly check it."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Generic, ParamSpec

import numpy as np
import plotly.graph_objects as go

Plain = dict[str, Any]
"""`{data, layout}` of dicts, lists, numbers, words and numpy's arrays."""
Drawn = ParamSpec("Drawn")
"""The arguments of a function that draws."""


class Picture(Generic[Drawn]):
    """A function that draws a figure: a call gives plotly's, which plotly has checked, and `plain`
    the same as plain data.

    Args:
        draw: gives the figure as plain data.
    """

    def __init__(self, draw: Callable[Drawn, Plain]) -> None:
        update_wrapper(self, draw)
        self.plain = draw

    def __call__(self, *args: Drawn.args, **more: Drawn.kwargs) -> go.Figure:
        """The figure as plotly's, which raises ValueError for a property that it does not know."""
        return go.Figure(self.plain(*args, **more))


def packed(part: Any) -> Any:
    """A figure or a part of one, ready for JSON, as plotly's `Figure.to_dict` has it.

    An array becomes `{dtype, bdata}`, its bytes in base64, and `shape` if it is 2-D. Properties
    that are None are left out."""
    if part is None or isinstance(part, str | bool | int):
        return part
    if isinstance(part, dict):
        return {name: packed(value) for name, value in part.items() if value is not None}
    if isinstance(part, list | tuple):
        return [packed(value) for value in part]
    if isinstance(part, np.generic):
        return part.item()
    if not isinstance(part, np.ndarray):
        return part
    if part.dtype.itemsize == 8 and part.dtype.kind in "iu":  # a browser has no such numbers
        part = part.astype(np.float64)
    array = {
        "dtype": f"{part.dtype.kind}{part.dtype.itemsize}",
        "bdata": base64.b64encode(part.tobytes()).decode(),
    }
    if part.ndim > 1:
        array["shape"] = ", ".join(map(str, part.shape))
    return array


def untagged(markup: str) -> str:
    """A label of a figure as plain text: tags become _ and ^, as in W_Q and 2^(−l/2), or are left
    out."""
    markup = re.sub("<br ?/?>", " ", markup.replace("<sub>", "_").replace("<sup>", "^"))
    return html.unescape(re.sub(r"</?(sub|sup|b|i|em)>", "", markup))
