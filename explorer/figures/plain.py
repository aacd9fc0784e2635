"""Figures as plain data: drawn so, packed for a browser, and the difference between two of them.

`plotly.graph_objects.Figure` checks each of its properties, which takes a page longer than all else that it draws. The
page therefore packs what was drawn as it is; the tests have plotly check it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from functools import update_wrapper
from typing import Any, Generic, ParamSpec

import numpy as np
import plotly.graph_objects as go

Plain = dict[str, Any]
"""`{data, layout}` of dicts, lists, numbers, words and numpy's arrays."""
Drawn = ParamSpec("Drawn")


class Picture(Generic[Drawn]):
    """A function that gives a figure, which plotly has checked; `plain` is the one that draws it.

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
    """A drawn part, as `Figure.to_dict` of plotly has it: an array is `{dtype, bdata}`, in 2-D also `shape`."""
    if part is None or isinstance(part, str | bool | int):
        return part
    if isinstance(part, dict):
        return {name: packed(value) for name, value in part.items() if value is not None}
    if isinstance(part, list | tuple):
        return [packed(value) for value in part]
    if isinstance(part, np.ndarray):
        kind, data = f"{part.dtype.kind}{part.dtype.itemsize}", base64.b64encode(part.tobytes()).decode()
        return {"dtype": kind, "bdata": data} | ({"shape": ", ".join(map(str, part.shape))} if part.ndim > 1 else {})
    return part.item() if isinstance(part, np.generic) else part


def changes(before: Any, after: Any) -> list[list[Any]]:
    """Edits that make one packed figure the other: `[path, value]` for a new value, `[path]` for a removed one."""
    return [[list(path), *value] for path, *value in _changes(before, after, ())]


def _changes(before: Any, after: Any, path: tuple[str | int, ...]) -> Iterator[tuple[Any, ...]]:
    if type(before) is type(after) and before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        yield from (((*path, name),) for name in before.keys() - after.keys())
        for name, value in after.items():
            if name in before:
                yield from _changes(before[name], value, (*path, name))
            else:
                yield (*path, name), value
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after) and path[-1:] == ("data",):
        for place, pair in enumerate(zip(before, after, strict=True)):
            yield from _changes(*pair, (*path, place))
    elif json.dumps(before) != json.dumps(after):  # as they travel: to Python, 1, 1.0 and True are the same
        yield path, after
