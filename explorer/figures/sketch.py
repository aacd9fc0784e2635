"""Lines of a figure as HTML and SVG that need no script: for a page whose drawing kit has not come yet.

Only what a browser can stretch is drawn: lines fill the frame, whatever its size, and ticks stand beside it as text.
The frame keeps the figure's own margins, so that nothing moves when plotly draws the same figure in its place.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from explorer.figures.data import untagged
from explorer.numbers import number
from explorer.profile import Array

DASHES = {"dash": "6 4", "dot": "2 3", "dashdot": "6 3 2 3", "longdash": "10 4", "longdashdot": "10 3 2 3"}
"""plotly's dashes that figures use, in pixels; any other is solid."""
Mark = tuple[float, float]
"""A value of an axis, and its place in per cent."""
STEPS = (1.0, 2.0, 5.0, 10.0)
"""Distances of ticks, times a power of ten."""


def sketch(figure: go.Figure) -> str:
    """The lines, the ticks and the titles of a figure's axes, in a box that fills whatever it is put into."""
    layout = figure.layout
    margin = layout.margin
    box = f"inset: {margin.t}px {margin.r}px {margin.b}px {margin.l}px"
    lines, across, up, grid = _parts(figure)
    marks = "".join([*_ticks(across, "left", "x"), *_ticks(up, "bottom", "y")])
    titles = "".join(f'<span class="ex-sketch-title" data-axis="{name}">{axis.title.text or ""}</span>'
                     for name, axis in (("x", layout.xaxis), ("y", layout.yaxis)))
    below = f'<path class="ex-sketch-grid" d="{grid}" vector-effect="non-scaling-stroke"/>'
    return (f'<div class="ex-sketch" style="{box}">{marks}<svg viewBox="0 0 100 100" preserveAspectRatio="none" '
            f'aria-hidden="true">{below}{lines}</svg>{titles}</div>')


def image(figure: go.Figure, title: str, width: int = 440, height: int = 280) -> str:
    """A figure's lines as an `<img>` that needs neither style nor script, on white, with a description in words."""
    layout, (left, right, top, bottom) = figure.layout, (66, 12, 34, 46)
    names = [trace for trace in figure.data if trace.name and layout.showlegend and trace.showlegend is not False]
    top += 20 * bool(names)
    lines, across, up, grid = _parts(figure)
    inner, tall, base = width - left - right, height - top - bottom, height - bottom
    words = [(left, 20, "start", title), (left + inner / 2, height - 8, "middle", layout.xaxis.title.text),
             *((left + at / 100 * inner, base + 18, "middle", number(value)) for value, at in across),
             *((left - 8, base - at / 100 * tall + 4, "end", number(value)) for value, at in up)]
    texts = "".join(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(untagged(text or ""))}</text>'
                   for x, y, anchor, text in words)
    starts = np.cumsum([left, *(8 * len(untagged(trace.name)) + 16 for trace in names)])
    texts += "".join(f'<text x="{x:.0f}" y="40" fill="{html.escape(hue(trace))}">'
                     f'{html.escape(untagged(trace.name))}</text>' for x, trace in zip(starts, names, strict=False))
    up_title = html.escape(untagged(layout.yaxis.title.text or ""))
    side = f'<text transform="translate(14 {top + tall / 2}) rotate(-90)" text-anchor="middle">{up_title}</text>'
    drawn = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
             f'font-size="12" fill="#1b1f24"><rect width="100%" height="100%" fill="#fff"/>{texts}{side}'
             f'<svg x="{left}" y="{top}" width="{inner}" height="{tall}" viewBox="0 0 100 100" '
             f'preserveAspectRatio="none"><path d="{grid}" stroke="#e3e6ea" fill="none" '
             f'vector-effect="non-scaling-stroke"/>{lines}</svg></svg>')
    description = html.escape(str((layout.meta or {}).get("description", title)))
    return f'<img alt="{description}" src="data:image/svg+xml;base64,{base64.b64encode(drawn.encode()).decode()}">'


def _parts(figure: go.Figure) -> tuple[str, list[Mark], list[Mark], str]:
    """Lines as paths, the marks of both axes, and the grid; in per cent of the frame."""
    axes = (figure.layout.xaxis, figure.layout.yaxis)
    lines = "".join(part(trace, *axes) for trace in figure.data for kind, part in (("lines", _path), ("markers", _dots))
                    if kind in (trace.mode or ""))
    across, up = ([(value, float(place(np.array(value), axis))) for value in ticks(axis)] for axis in axes)
    grid = " ".join([*(f"M{at:.2f} 0V100" for _, at in across), *(f"M0 {100 - at:.2f}H100" for _, at in up)])
    return lines, across, up, grid


def place(values: Array, axis: Any) -> Array:
    """Positions along an axis in per cent of its length; nan where a value has none."""
    low, high = axis.range
    with np.errstate(all="ignore"):
        scaled = np.log10(values) if axis.type == "log" else np.asarray(values, dtype=float)
    return np.where(np.isfinite(scaled), 100 * (scaled - low) / (high - low), np.nan)


def ticks(axis: Any) -> list[float]:
    """Round values along an axis, about as many as it asks for: powers of ten, with 2 and 5 where there are few."""
    low, high = axis.range
    if axis.type == "log":
        within = (1.0, 2.0, 5.0) if high - low < 2 else (1.0,)
        powers = range(int(np.floor(low)), int(np.ceil(high)) + 1)
        round_values = [factor * 10.0**power for power in powers for factor in within]
        return [value for value in round_values if low <= np.log10(value) <= high]
    rough = (high - low) / (axis.nticks or 7)
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(factor * power for factor in STEPS if factor * power >= rough)
    first, last = int(np.ceil(low / step)), int(np.floor(high / step))
    return [float(step * count) for count in range(first, last + 1)]


def _path(trace: Any, across: Any, up: Any) -> str:
    """One line; it breaks where a value has no place."""
    x, y = place(np.asarray(trace.x, dtype=float), across), 100 - place(np.asarray(trace.y, dtype=float), up)
    known = np.isfinite(x) & np.isfinite(y)
    starts = known & ~np.concatenate([[False], known[:-1]])
    points = " ".join(f"{'M' if start else 'L'}{left:.2f} {top:.2f}"
                      for left, top, ok, start in zip(x, y, known, starts, strict=True) if ok)
    line = trace.line
    dash = f' stroke-dasharray="{DASHES[line.dash]}"' if line.dash in DASHES else ""
    return (f'<path d="{points}" fill="none" stroke="{html.escape(hue(trace))}" stroke-width="{line.width or 2}"'
            f'{dash} vector-effect="non-scaling-stroke"/>')


def _dots(trace: Any, across: Any, up: Any) -> str:
    """The dots of one series: strokes without length, which stay round where the frame is stretched."""
    if trace.marker.opacity == 0:
        return ""
    x, y = place(np.asarray(trace.x, dtype=float), across), 100 - place(np.asarray(trace.y, dtype=float), up)
    points = "".join(f"M{left:.2f} {top:.2f}h0" for left, top in zip(x, y, strict=True) if np.isfinite(left + top))
    return (f'<path d="{points}" stroke="{html.escape(hue(trace))}" stroke-width="{trace.marker.size or 7}" '
            'stroke-linecap="round" vector-effect="non-scaling-stroke"/>')


def hue(trace: Any) -> str:
    """The color of a series: of its dots where it has only these, else of its line."""
    color = trace.line.color if "lines" in (trace.mode or "") else trace.marker.color
    return color if isinstance(color, str) else "#1b1f24"


def _ticks(marks: Sequence[Mark], side: str, axis: str) -> Iterator[str]:
    """The numbers beside an axis, from their values and places."""
    for value, at in marks:
        yield f'<span class="ex-sketch-tick" data-axis="{axis}" style="{side}: {at:.2f}%">{number(value)}</span>'
