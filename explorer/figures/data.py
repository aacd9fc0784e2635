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


class Picture(Generic[Drawn]):
    """A function that gives a figure, which plotly has checked; its `plain` gives the same as plain
    data.

    Args:
        draw: gives the figure as plain data.
    """

    def __init__(self, draw: Callable[Drawn, Plain]) -> None:
        update_wrapper(self, draw)
        self.plain = draw

    def __call__(self, *args: Drawn.args, **more: Drawn.kwargs) -> go.Figure:
        """Draws."""
        return go.Figure(self.plain(*args, **more))


def packed(part: Any) -> Any:
    """A drawn part, as `Figure.to_dict` of plotly has it: an array is `{dtype, bdata}`, in 2-D also
    `shape`."""
    if part is None or isinstance(part, str | bool | int):
        return part
    if isinstance(part, dict):
        return {name: packed(value) for name, value in part.items() if value is not None}
    if isinstance(part, list | tuple):
        return [packed(value) for value in part]
    if isinstance(part, np.ndarray):
        kind, data = (
            f"{part.dtype.kind}{part.dtype.itemsize}",
            base64.b64encode(part.tobytes()).decode(),
        )
        return {"dtype": kind, "bdata": data} | (
            {"shape": ", ".join(map(str, part.shape))} if part.ndim > 1 else {}
        )
    return part.item() if isinstance(part, np.generic) else part


def untagged(markup: str) -> str:
    """A name or title of a figure without its tags: W_Q, 2^(−l/2)."""
    markup = re.sub("<br ?/?>", " ", markup.replace("<sub>", "_").replace("<sup>", "^"))
    return html.unescape(re.sub(r"</?(sub|sup|b|i|em)>", "", markup))
