"""Figures outside the page: a profile or one chart as a file of its own, which loads nothing, and a
notebook's cell.

And a figure's lines as HTML and SVG that need no script: for a page whose drawing kit has not come
yet. Only what a browser can stretch is drawn: lines fill the frame, whatever its size, and ticks
stand beside it as text. The frame keeps the figure's own margins, so that nothing moves when plotly
draws the same figure in its place."""

from __future__ import annotations

import base64
import json
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go

from explorer.diagnosis import Finding, diagnose
from explorer.diagnosis.comparing import Comparison
from explorer.figures import BY_CHOICE, FIGURES, Row, plot_comparison, row_of
from explorer.figures.data import untagged
from explorer.figures.kit import round_values
from explorer.figures.words import typeset
from explorer.numbers import number
from explorer.profile import Profile
from explorer.theory import predict
from explorer.vocabulary import Array

SEVERITIES = {"good": "Good", "warning": "Careful", "bad": "Bad"}
CONFIG = {"responsive": True, "displaylogo": False, "showSendToCloud": False, "plotlyServerURL": ""}
STYLE = """
:root { color-scheme: light dark; --text: light-dark(#1b1f24, #e8ebf0); --muted: light-dark(#57606a, #a3adba);
        --grid: light-dark(#e2e6ec, #2f3640) }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: var(--text);
       background: light-dark(#ffffff, #111418); overflow-wrap: anywhere }
h1 { font-size: 1.3rem } h2 { font-size: 1.2rem } h3 { font-size: 1rem; margin: 2rem 0 0 } li { margin: .5rem 0 }
small, figcaption { color: var(--muted) } figure { margin: 0 } .plotly-graph-div { height: 28rem }
.plotly-graph-div .main-svg text:not([style*="text-shadow"]) { fill: var(--text) !important }
.plotly-graph-div .main-svg .hoverlayer text { fill: #1b1f24 !important }
.plotly-graph-div :is(.gridlayer, .zerolinelayer) path { stroke: var(--grid) !important }
"""
"""plotly's texts have no color of the figure's own; here they follow the reader's light or dark;
not where they have a shadow, as on a map's colors."""
LAYOUT = {"hoverlabel": {"bgcolor": "white", "font": {"color": "#1b1f24"}}, "autosize": True}
SIGNS = {  # plotly's symbols as characters
    "circle": "●",
    "square": "■",
    "diamond": "◆",
    "triangle-up": "▲",
    "cross": "✚",
    "star": "★",
}
HUE = re.compile(r"#[0-9a-fA-F]{6}")
CHART_STYLE = """
h1 { margin: 0 } p { margin: .3rem 0; color: var(--muted) } ul { margin: .5rem 0; padding: 0 } li { list-style: none }
"""
SHOWN = ("second_moment", "gradient_by_layer", "attention_entropy", "token_correlation")
"""The charts of `overview`, rows of `FIGURES`."""
MIME = "application/vnd.plotly.v1+json"
LINE = 150
"""Characters of a line of the finding's details."""
PLACES = tuple(
    (across, up) for up in ([0.58, 1.0], [0.0, 0.42]) for across in ([0.0, 0.46], [0.54, 1.0])
)
"""Frames of the four charts of `overview`, the upper two first: ends across, and upwards, as shares
of the figure."""


def page(profile: Profile) -> str:
    """The HTML of a page: a profile's findings and figures, and those of its other stacks; all text
    is escaped."""
    parts: list[str] = []
    for stack in (profile, *profile.others):
        parts += _section(stack, brings_script=stack is profile)
    heading = escape(profile.heading)
    return _document(heading, heading, STYLE, parts)


def _document(title: str, heading: str, style: str, parts: Iterable[str]) -> str:
    """A page of HTML; its title, heading and parts are HTML already."""
    return "\n".join(
        (
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            f'<meta name="viewport" content="width=device-width"><title>{title}</title>',
            f"<style>{style}</style></head><body><h1>{heading}</h1>",
            *parts,
            "</body></html>",
        )
    )


def _html(text: str) -> str:
    """A text from outside as HTML: escaped, with indices and exponents."""
    return typeset(escape(text))


def _finding(finding: Finding) -> str:
    """A finding as an item of a list, with its remedy and the remedy's line of code if it has
    them."""
    item = f"<b>{SEVERITIES[finding.severity]}.</b> {_html(finding.meaning)} "
    item += f"<small>{_html(finding.details)}</small>"
    if finding.remedy:
        code = f": <code>{escape(finding.code)}</code>" if finding.code else ""
        item += f"<br><small>{_html(finding.remedy)}{code}</small>"
    return f"<li>{item}</li>"


def _section(profile: Profile, *, brings_script: bool) -> Iterator[str]:
    """Words and figures of one stack, as HTML.

    Args:
        brings_script: whether its first figure holds the script that draws all figures of the
            page.
    """
    if profile.layers:
        ends = dict.fromkeys((profile.layers[0], profile.layers[-1]))  # one name if they are alike
        yield f"<h2>{len(profile.layers)} layers: {escape(' … '.join(ends))}</h2>"
    yield f"<ul>{''.join(map(_finding, diagnose(profile)))}</ul>"
    theory = []
    if profile.twin is not None:
        theory = [predict(profile.twin)]
        yield f"<p>Lines are what theory expects of the nearest design: {escape(str(profile.twin))}.</p>"
    yield from (f"<p><small>{escape(remark)}.</small></p>" for remark in profile.remarks)
    for name in dict.fromkeys((*FIGURES, *BY_CHOICE, "weight_variance")):
        statistic = FIGURES[name].statistic if name in FIGURES else name
        if statistic:
            profiles = [profile, *theory] if statistic in profile else []
        else:  # the attention pattern, which theory does not predict
            profiles = [] if profile.pattern is None else [profile]
        if profiles:
            yield _figure(row_of(name), profiles, brings_script)
            brings_script = False
    for statistic, note in profile.notes.items():
        yield f"<p><small>{escape(statistic)}: {escape(note)}.</small></p>"


def _figure(row: Row, profiles: Sequence[Profile], brings_script: bool) -> str:
    """A figure as HTML below its title and caption, which are text that a narrow page wraps; with
    the script that draws if it is the first figure of the page."""
    drawn = row.draw(profiles)
    heading = drawn.layout.title.text  # such as "layer 3, head 1"
    title = f"{row.title}, {heading}" if heading else row.title
    drawn.update_layout(
        **LAYOUT,
        title=None,
        showlegend=True,
        margin={"t": 80},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    )
    chart = drawn.to_html(config=CONFIG, include_plotlyjs=brings_script, full_html=False)
    caption = f"<figcaption>{_html(row.caption)}</figcaption>"
    return f"<h3>{_html(title)}</h3><figure>{caption}{chart}</figure>"


def standalone(
    figure: Mapping[str, Any],
    title: str,
    lines: Sequence[str] = (),
    designs: Sequence[Mapping[str, str]] = (),
) -> str:
    """The HTML of a figure; all text is escaped.

    Args:
        figure: as `plotly.graph_objects.Figure.to_dict` gives it.
        lines: below the title: the caption, and what dots and lines are.
        designs: the drawn designs, `{name, about, hue, symbol}`.
    Raises:
        ValueError: plotly does not know such a figure.
    """
    drawn = go.Figure(figure)
    drawn.update_layout(**LAYOUT)
    meta = drawn.layout.meta  # from outside: it may be anything
    description = str(meta.get("description", title)) if isinstance(meta, dict) else title
    chart = drawn.to_html(config=CONFIG, include_plotlyjs=True, full_html=False, div_id="chart")
    parts = [f"<p>{_html(line)}</p>" for line in lines if line]
    parts.append(f"<ul>{''.join(map(_design, designs))}</ul>")
    parts.append(f'<div role="img" aria-label="{escape(description)}">{chart}</div>')
    return _document(escape(title), _html(title), STYLE + CHART_STYLE, parts)


def _design(design: Mapping[str, str]) -> str:
    """A design as an item of a list: its symbol in its hue, its name, and what it is about."""
    hue, name = design.get("hue", ""), escape(design.get("name", ""))
    color = f' style="color: {hue}"' if HUE.fullmatch(hue) else ""
    about = escape(design.get("about", ""))
    if about.startswith(name):
        about = about.removeprefix(name)  # the name is said once
    elif about:
        about = f": {about}"
    sign = SIGNS.get(design.get("symbol", ""), "●")
    return f"<li><span{color}>{sign}</span> <b>{name}</b>{about}</li>"


def glance(profile: Profile) -> dict[str, Any]:
    """The output of a notebook's cell for a profile, by its mime type: `overview`."""
    return _cell(overview(profile))


def glance_at_comparison(comparison: Comparison) -> dict[str, Any]:
    """The output of a notebook's cell for a comparison, by its mime type: `plot_comparison`."""
    return _cell(plot_comparison(comparison))


def _cell(figure: go.Figure) -> dict[str, Any]:
    """A figure as the output of a notebook's cell, by its mime type."""
    return {MIME: {**json.loads(figure.to_json()), "config": CONFIG}}


def overview(profile: Profile) -> go.Figure:
    """The first finding, and charts of what the profile has, with theory's line where a config or a
    twin gives one."""
    profiles = [profile]
    design = profile.config or profile.twin
    if design is not None and profile.origin != "predicted":
        profiles.insert(0, predict(design))
    rows = [FIGURES[name] for name in SHOWN if FIGURES[name].statistic in profile]
    data: list[Any] = []
    finding = diagnose(profile)[0]
    details = "<br>".join(map(escape, textwrap.wrap(finding.details, LINE)))
    layout: dict[str, Any] = {
        "height": 580,
        "margin": {"t": 130, "l": 60, "r": 20, "b": 50},
        "template": "plotly_white",
        "title": {"text": _html(finding.meaning), "subtitle": {"text": typeset(details)}},
        "paper_bgcolor": "white",
        "showlegend": False,
        "annotations": [],
    }
    for count, (row, frame) in enumerate(zip(rows, PLACES, strict=False), start=1):
        chart = row.draw(profiles)
        suffix = "" if count == 1 else str(count)  # plotly's axes are x, x2, x3 …
        x, y = f"x{suffix}", f"y{suffix}"
        layout[f"xaxis{suffix}"] = _framed(chart.layout.xaxis, frame[0], anchor=y)
        layout[f"yaxis{suffix}"] = _framed(chart.layout.yaxis, frame[1], anchor=x)
        layout["annotations"].append(_chart_title(row.title, frame))
        data += [{**trace.to_plotly_json(), "xaxis": x, "yaxis": y} for trace in chart.data]
    return go.Figure({"data": data, "layout": layout})


def _framed(axis: Any, ends: list[float], *, anchor: str) -> dict[str, Any]:
    """A chart's axis in a part of the figure: its ends, as shares, and the axis that it meets."""
    return {**axis.to_plotly_json(), "domain": ends, "anchor": anchor}


def _chart_title(title: str, frame: tuple[list[float], list[float]]) -> dict[str, Any]:
    """A title above the left upper corner of a frame, see `PLACES`."""
    across, up = frame
    return {
        "text": f"<b>{title}</b>",
        "x": across[0],
        "y": up[1],
        "xref": "paper",
        "yref": "paper",
        "yanchor": "bottom",
        "xanchor": "left",
        "showarrow": False,
    }


DASHES = {
    "dash": "6 4",
    "dot": "2 3",
    "dashdot": "6 3 2 3",
    "longdash": "10 4",
    "longdashdot": "10 3 2 3",
}
"""plotly's dashes that figures use, in pixels; any other is solid."""
Mark = tuple[float, float]
"""A value of an axis, and its position in per cent of the axis, from the left or from below."""


def image(figure: go.Figure, title: str, width: int = 440, height: int = 280) -> str:
    """A figure's lines as an HTML `<img>` that needs neither style nor script, on white, with a
    description in words. The image is an SVG, within the address.

    Args:
        title: in the upper left corner; also the description where the figure has none.
        width, height: of the image, in pixels.
    """
    layout = figure.layout
    # Margins around the frame of the axes, in pixels: for the ticks' labels and the axis's title
    # on the left and at the bottom, for the title at the top. Texts are 12 pixels high.
    left, right, top, bottom = 66, 12, 34, 46
    legend = _legend(figure, left)
    if legend:
        top += 20  # one line more, below the title
    inner_width, inner_height, base = width - left - right, height - top - bottom, height - bottom
    lines, x_marks, y_marks, grid = _parts(figure)
    # the texts as SVG, each at a point in pixels from the upper left corner
    texts = _label(left, 20, "start", title)
    texts += _label(left + inner_width / 2, height - 8, "middle", layout.xaxis.title.text)
    for value, per_cent in x_marks:  # below the frame, each centered at its tick
        x = left + per_cent / 100 * inner_width
        texts += _label(x, base + 18, "middle", number(value))
    for value, per_cent in y_marks:  # left of the frame; 4 pixels lower is the middle of the text
        y = base - per_cent / 100 * inner_height
        texts += _label(left - 8, y + 4, "end", number(value))
    y_title = escape(untagged(layout.yaxis.title.text or ""))
    upwards = f'transform="translate(14 {top + inner_height / 2}) rotate(-90)"'
    texts += f'{legend}<text {upwards} text-anchor="middle">{y_title}</text>'
    # The frame is an SVG of its own, 100 × 100 and stretched to its size in pixels, so that lines
    # and grid are in per cent; strokes keep their width.
    frame = (
        f'<svg x="{left}" y="{top}" width="{inner_width}" height="{inner_height}" viewBox="0 0 100 100" '
        f'preserveAspectRatio="none"><path d="{grid}" stroke="#e3e6ea" fill="none" '
        f'vector-effect="non-scaling-stroke"/>{lines}</svg>'
    )
    drawn = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="12" fill="#1b1f24"><rect width="100%" height="100%" fill="#fff"/>{texts}{frame}</svg>'
    )
    content = base64.b64encode(drawn.encode()).decode()
    description = escape(str((layout.meta or {}).get("description", title)))
    return f'<img alt="{description}" src="data:image/svg+xml;base64,{content}">'


def _legend(figure: go.Figure, x: float) -> str:
    """The names of the traces in a figure's legend, side by side in their hues, from a left edge in
    pixels; empty where it has no legend."""
    names = ""
    for trace in figure.data:
        if figure.layout.showlegend and trace.name and trace.showlegend is not False:
            name = untagged(trace.name)
            names += f'<text x="{x:.0f}" y="40" fill="{escape(hue(trace))}">{escape(name)}</text>'
            # a letter is about 8 pixels wide, and a Chinese character about 12
            x += 16 + sum(12 if sign > "\u2e80" else 8 for sign in name)
    return names


def _label(x: float, y: float, anchor: str, text: str | None) -> str:
    """A text at a point, in pixels; nothing of a missing title."""
    words = escape(untagged(text or ""))
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def _parts(figure: go.Figure) -> tuple[str, list[Mark], list[Mark], str]:
    """Lines and dots as SVG, the marks of both axes, and the grid as a path; in per cent of the
    frame, from its upper left corner."""
    x_axis, y_axis = figure.layout.xaxis, figure.layout.yaxis
    lines = ""
    for trace in figure.data:
        mode = trace.mode or ""
        if "lines" in mode:
            lines += _path(trace, x_axis, y_axis)
        if "markers" in mode:
            lines += _dots(trace, x_axis, y_axis)
    x_marks, y_marks = (
        [(value, float(place(np.array(value), axis))) for value in ticks(axis)]
        for axis in (x_axis, y_axis)
    )
    grid = [f"M{x:.2f} 0V100" for _, x in x_marks] + [f"M0 {100 - y:.2f}H100" for _, y in y_marks]
    return lines, x_marks, y_marks, " ".join(grid)


def place(values: Array, axis: Any) -> Array:
    """Positions along an axis in per cent of its length; nan where a value has none."""
    low, high = axis.range
    with np.errstate(all="ignore"):
        scaled = np.log10(values) if axis.type == "log" else np.asarray(values, dtype=float)
    return np.where(np.isfinite(scaled), 100 * (scaled - low) / (high - low), np.nan)


def ticks(axis: Any) -> list[float]:
    """Round values along an axis, about as many as it asks for: powers of ten, with 2 and 5 where
    there are few."""
    low, high = axis.range
    if axis.type != "log":
        return round_values(low, high, axis.nticks or 7)
    leads = (1.0, 2.0, 5.0) if high - low < 2 else (1.0,)  # less than two decades
    powers = range(int(np.floor(low)), int(np.ceil(high)) + 1)
    values = [lead * 10.0**power for power in powers for lead in leads]
    return [value for value in values if low <= np.log10(value) <= high]


def _points(trace: Any, x_axis: Any, y_axis: Any) -> list[tuple[float, float]]:
    """A trace's points in per cent of the frame, from its upper left corner; nan where a value has
    no position."""
    x = place(np.asarray(trace.x, dtype=float), x_axis)
    y = place(np.asarray(trace.y, dtype=float), y_axis)
    return list(zip(x.tolist(), (100 - y).tolist(), strict=True))


def _path(trace: Any, x_axis: Any, y_axis: Any) -> str:
    """A trace's line as an SVG path; it breaks where a point has no position."""
    steps, step = [], "M"  # a path's commands: M moves to a point, L draws a line to it
    for x, y in _points(trace, x_axis, y_axis):
        if math.isfinite(x + y):
            steps.append(f"{step}{x:.2f} {y:.2f}")
            step = "L"
        else:
            step = "M"
    line = trace.line
    dash = f' stroke-dasharray="{DASHES[line.dash]}"' if line.dash in DASHES else ""
    return (
        f'<path d="{" ".join(steps)}" fill="none" stroke="{escape(hue(trace))}" stroke-width="{line.width or 2}"'
        f'{dash} vector-effect="non-scaling-stroke"/>'
    )


def _dots(trace: Any, x_axis: Any, y_axis: Any) -> str:
    """A trace's dots: strokes without length, which stay round where the frame is stretched."""
    if trace.marker.opacity == 0:
        return ""
    points = ""
    for x, y in _points(trace, x_axis, y_axis):
        if math.isfinite(x + y):
            points += f"M{x:.2f} {y:.2f}h0"
    return (
        f'<path d="{points}" stroke="{escape(hue(trace))}" stroke-width="{trace.marker.size or 7}" '
        'stroke-linecap="round" vector-effect="non-scaling-stroke"/>'
    )


def hue(trace: Any) -> str:
    """The color of a trace: its line's, or its dots' where it has no line; black if that is no
    single color."""
    color = trace.line.color if "lines" in (trace.mode or "") else trace.marker.color
    return color if isinstance(color, str) else "#1b1f24"
