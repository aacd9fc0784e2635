"""Figures as data: drawn so, packed for a browser, and their numbers as a table.

`plotly.graph_objects.Figure` checks each of its properties, which takes a page longer than all else
that it draws. The page therefore packs what was drawn as it is; the tests have plotly check it."""

from __future__ import annotations

import base64
import csv
import html
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import update_wrapper
from itertools import zip_longest
from typing import Any, Generic, NamedTuple, ParamSpec

import numpy as np
import plotly.graph_objects as go

Plain = dict[str, Any]
"""`{data, layout}` of dicts, lists, numbers, words and numpy's arrays."""
Drawn = ParamSpec("Drawn")
DTYPES = {"i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8"}
"""Types of plotly's packed arrays."""
FORMULA = tuple("=+-@＝＋－＠")
"""Characters that start a formula in a spreadsheet, the wide forms too."""
HIDDEN = "band"
"""Kind of a trace whose numbers stand in another one: a band's ends are its dots' lowest and
highest."""


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


# The numbers of a figure, a row each.


class Point(NamedTuple):
    """One number of a figure, as a row of the table; None stands for a field that its trace
    lacks."""

    series: str
    kind: str
    """measured, theory, or mark: of the scale, or of where a curve ends."""
    x: object
    y: object
    z: object = None
    low: object = None
    high: object = None
    error: object = None
    """Standard error of the mean over seeds."""


def to_csv(figure: Mapping[str, Any]) -> str:
    """The numbers of a figure as CSV, with no cell that a spreadsheet takes for a formula; see
    `table`."""
    names, rows = table(figure)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(map(guarded, names))
    writer.writerows([cell(value) for value in row] for row in rows)
    return text.getvalue()


def table(figure: Mapping[str, Any]) -> tuple[list[str], list[list[object]]]:
    """Headings and rows of a figure's numbers: its axis titles with their units; nan and infinities
    are kept.

    Args:
        figure: as `plotly.graph_objects.Figure.to_dict` gives it, typed arrays and all.
    Raises:
        ValueError, TypeError, KeyError: it is no figure.
    """
    drawn = [point for trace in figure.get("data", ()) for point in points(trace)]
    names = ["series", "kind", *headings(figure), "lowest", "highest", "standard error"]
    kept = [
        place
        for place, name in enumerate(Point._fields)
        if name in ("series", "kind", "x", "y") or any(point[place] is not None for point in drawn)
    ]
    return [names[place] for place in kept], [[point[place] for place in kept] for point in drawn]


def headings(figure: Mapping[str, Any]) -> tuple[str, str, str]:
    """Titles of the two axes and the color, each with its unit; x, y, z where traces have several
    axes."""
    layout, data = figure.get("layout", {}), figure.get("data", ())
    titles = []
    for name in ("x", "y"):
        axes = {
            str(trace.get(f"{name}axis", name)).replace(name, f"{name}axis", 1) for trace in data
        }
        titled = {_title(layout.get(axis, {})) for axis in axes or {f"{name}axis"}}
        titles.append(titled.pop() if len(titled) == 1 else "")
    bars = [_title(trace.get("colorbar", {})) for trace in data if trace.get("type") == "heatmap"]
    return titles[0] or "x", titles[1] or "y", (bars or [""])[0] or "z"


def points(trace: Mapping[str, Any]) -> Iterator[Point]:
    """The numbers of one trace."""
    name, kind = untagged(trace.get("name") or ""), kind_of(trace)
    if kind == HIDDEN:
        return
    if trace.get("type") == "heatmap":
        yield from _cells(trace, name, kind)
        return
    x, y, words = (unpacked(trace.get(key, ())) for key in ("x", "y", "text"))
    own, meta = unpacked(trace.get("customdata", ())), trace.get("meta") or {}
    ends = _ends(trace, y) or ([row[: meta["ends"]] for row in own] if meta.get("ends") else [])
    if "exact" in meta:  # values that have no place on the axis
        y = [row[meta["exact"]] if isinstance(row, list) else row for row in own]
    for across, up, word, (low, high, *error) in zip_longest(
        x, y, words, ends or [(None, None)] * len(y)
    ):
        if not (
            kind == "mark" and (word or across is None)
        ):  # a word stands where there is room, not at a number
            yield Point(
                name,
                kind,
                _untagged(across),
                "nan" if up is None else _untagged(up),
                None,
                low,
                high,
                *error,
            )


def kind_of(trace: Mapping[str, Any]) -> str:
    """Whether a trace was measured or is theory: it says so itself, or else dots are measured,
    lines are theory."""
    kind, mode = (trace.get("meta") or {}).get("kind"), str(trace.get("mode", "lines"))
    if kind:
        return str(kind)
    if trace.get("type") == "heatmap":
        return "measured"
    if "text" in mode or trace.get("hoverinfo") == "skip":
        return "mark"
    return "measured" if "markers" in mode else "theory"


def _cells(trace: Mapping[str, Any], name: str, kind: str) -> Iterator[Point]:
    """The cells of a heat map; where they show a logarithm, `customdata` has the numbers
    themselves.

    Of several numbers a cell the first is its own, and where `meta` says `ends`, the next two are
    its spread."""
    rows = unpacked(trace.get("customdata", trace.get("z", ())))
    x, y = (unpacked(trace[key]) if key in trace else None for key in ("x", "y"))
    ends = bool((trace.get("meta") or {}).get("ends"))
    for down, row in enumerate(rows):
        for across, held in enumerate(row):
            value, *more = list(np.atleast_1d(held))
            low, high = more[:2] if ends else (None, None)
            yield Point(
                name,
                kind,
                _place(trace, "x", x, across),
                _place(trace, "y", y, down),
                "nan" if value is None else value,
                low,
                high,
            )


def _place(trace: Mapping[str, Any], key: str, given: Sequence[Any] | None, number: int) -> object:
    if given is None:
        return trace.get(f"{key}0", 0) + number * trace.get(f"d{key}", 1)
    return _untagged(given[number])


def _untagged(value: object) -> object:
    """A number, or a category without its tags."""
    return untagged(value) if isinstance(value, str) else value


def _ends(trace: Mapping[str, Any], y: Sequence[Any]) -> list[tuple[Any, Any]]:
    """The ends of each dot's error bars; empty where it has none."""
    bars = trace.get("error_y") or {}
    up = unpacked(bars.get("array", ()))
    down = unpacked(bars["arrayminus"]) if "arrayminus" in bars else up
    return (
        [(value - below, value + above) for value, below, above in zip(y, down, up, strict=True)]
        if up
        else []
    )


def _title(part: Mapping[str, Any]) -> str:
    title = part.get("title") or {}
    return untagged(str(title.get("text") or "") if isinstance(title, Mapping) else str(title))


def unpacked(values: Any) -> list[Any]:
    """A list of numbers or texts, nested where there are rows, from a list or from one of plotly's
    typed arrays.

    Raises:
        ValueError: it is packed in a way that plotly has not.
    """
    if not isinstance(values, Mapping):
        return [list(row) if isinstance(row, list | tuple) else row for row in values]
    if values["dtype"] not in DTYPES:
        raise ValueError(
            f"dtype must be one of {', '.join(sorted(DTYPES))}; got {values['dtype']!r}"
        )
    array = np.frombuffer(base64.b64decode(values["bdata"]), dtype=f"<{values['dtype']}")
    shape = [int(size) for size in str(values.get("shape", len(array))).split(",")]
    rows = array.reshape(shape)
    return [list(row) if rows.ndim > 1 else row for row in rows]


def cell(value: object) -> object:
    """A number with every digit that its type has, a text that no spreadsheet takes for a formula,
    "" for None."""
    return guarded(value) if isinstance(value, str) else "" if value is None else str(value)


def guarded(text: str) -> str:
    """A text with an apostrophe before it where a spreadsheet would compute it."""
    return (
        f"'{text}" if text[:1] in ("\t", "\r", "\n") or text.lstrip().startswith(FORMULA) else text
    )


def untagged(markup: str) -> str:
    """A name or title of a figure without its tags: W_Q, 2^(−l/2)."""
    markup = re.sub("<br ?/?>", " ", markup.replace("<sub>", "_").replace("<sup>", "^"))
    return html.unescape(re.sub(r"</?(sub|sup|b|i|em)>", "", markup))
