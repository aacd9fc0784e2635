"""Figures outside the page: a profile or one chart as a file of its own, which loads nothing, and a
notebook's cell.

And a figure's lines as HTML and SVG that need no script: for a page whose drawing kit has not come
yet. Only what a browser can stretch is drawn: lines fill the frame, whatever its size, and ticks
stand beside it as text. The frame keeps the figure's own margins, so that nothing moves when plotly
draws the same figure in its place."""

from __future__ import annotations

import base64
import json
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
from explorer.profile import Array, Profile
from explorer.theory import predict

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
SIGNS = {
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
MIME = "application/vnd.plotly.v1+json"
LINE = 150
"""Letters of a line of the verdict."""
PLACES = tuple(
    (across, up) for up in ([0.58, 1.0], [0.0, 0.42]) for across in ([0.0, 0.46], [0.54, 1.0])
)
"""Across and up, as parts of the figure."""


def page(profile: Profile) -> str:
    """The HTML of a page: profile, findings, figures, and the same of its other stacks; all text is
    escaped."""
    parts = [
        part
        for number, stack in enumerate((profile, *profile.others))
        for part in _section(stack, number == 0)
    ]
    heading = escape(profile.heading)
    return _document(heading, heading, STYLE, parts)


def _document(title: str, heading: str, style: str, parts: Iterable[str]) -> str:
    """A page of HTML; its parts, title and heading are HTML already."""
    return "\n".join(
        (
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            f'<meta name="viewport" content="width=device-width"><title>{title}</title>',
            f"<style>{style}</style></head><body><h1>{heading}</h1>",
            *parts,
            "</body></html>",
        )
    )


def _cure(finding: Finding) -> str:
    """The finding's remedy and its line of code, as HTML; empty where there is none."""
    code = f": <code>{escape(finding.code)}</code>" if finding.code else ""
    return f"<br><small>{typeset(escape(finding.remedy))}{code}</small>" if finding.remedy else ""


def _section(profile: Profile, first: bool) -> Iterator[str]:
    """Words and figures of one stack; the first figure of the page brings the script that draws
    them all."""
    if profile.layers:
        names = profile.layers[0], profile.layers[-1]
        yield f"<h2>{len(profile.layers)} layers: {escape(' … '.join(dict.fromkeys(names)))}</h2>"
    findings = (
        f"<li><b>{SEVERITIES[row.severity]}.</b> {typeset(escape(row.meaning))} "
        f"<small>{typeset(escape(row.details))}</small>{_cure(row)}</li>"
        for row in diagnose(profile)
    )
    yield f"<ul>{''.join(findings)}</ul>"
    theory = [] if profile.twin is None else [predict(profile.twin)]
    if profile.twin is not None:
        yield f"<p>Lines are what theory expects of the nearest design: {escape(str(profile.twin))}.</p>"
    yield from (f"<p><small>{escape(remark)}.</small></p>" for remark in profile.remarks)
    for name in dict.fromkeys((*FIGURES, *BY_CHOICE, "weight_variance")):
        statistic = FIGURES[name].statistic if name in FIGURES else name
        if (statistic in profile) if statistic else profile.pattern is not None:
            yield _figure(row_of(name), [profile, *(theory if statistic else [])], first)
            first = False
    for statistic, note in profile.notes.items():
        yield f"<p><small>{escape(statistic)}: {escape(note)}.</small></p>"


def _figure(row: Row, profiles: Sequence[Profile], first: bool) -> str:
    """A figure with its title and caption as text, which a narrow page wraps."""
    drawn = row.draw(profiles)
    title = f"{row.title}, {own}" if (own := drawn.layout.title.text) else row.title
    drawn.update_layout(
        **LAYOUT,
        title=None,
        showlegend=True,
        margin={"t": 80},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    )
    chart = drawn.to_html(config=CONFIG, include_plotlyjs=first, full_html=False)
    return (
        f"<h3>{typeset(escape(title))}</h3><figure><figcaption>{typeset(escape(row.caption))}</figcaption>{chart}"
        "</figure>"
    )


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
    meta = drawn.layout.meta
    words = str(meta.get("description", title)) if isinstance(meta, dict) else title
    chart = drawn.to_html(config=CONFIG, include_plotlyjs=True, full_html=False, div_id="chart")
    return _document(
        escape(title),
        typeset(escape(title)),
        STYLE + CHART_STYLE,
        [
            *(f"<p>{typeset(escape(line))}</p>" for line in lines if line),
            f"<ul>{''.join(_marks(designs))}</ul>",
            f'<div role="img" aria-label="{escape(words)}">{chart}</div>',
        ],
    )


def _marks(designs: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """A line a design, with its symbol in its hue."""
    for design in designs:
        hue = design.get("hue", "")
        color = f' style="color: {hue}"' if HUE.fullmatch(hue) else ""
        name, about = escape(design.get("name", "")), escape(design.get("about", ""))
        rest = about.removeprefix(name) if about.startswith(name) else f": {about}" if about else ""
        yield f"<li><span{color}>{SIGNS.get(design.get('symbol', ''), '●')}</span> <b>{name}</b>{rest}</li>"


def glance(profile: Profile) -> dict[str, Any]:
    """The figure as a cell's output, by its mime type."""
    return _cell(overview(profile))


def glance_at_comparison(comparison: Comparison) -> dict[str, Any]:
    """The chart of a comparison, in the same way."""
    return _cell(plot_comparison(comparison))


def _cell(figure: go.Figure) -> dict[str, Any]:
    return {MIME: {**json.loads(figure.to_json()), "config": CONFIG}}


def overview(profile: Profile) -> go.Figure:
    """The first finding, and charts of what the profile has, with theory's line where a config or a
    twin gives one."""
    twin = profile.config or profile.twin
    profiles = (
        [profile] if twin is None or profile.origin == "predicted" else [predict(twin), profile]
    )
    rows = [FIGURES[name] for name in SHOWN if FIGURES[name].statistic in profile]
    data: list[Any] = []
    finding = diagnose(profile)[0]
    evidence = "<br>".join(map(escape, textwrap.wrap(finding.details, LINE)))
    title = {"text": typeset(escape(finding.meaning)), "subtitle": {"text": typeset(evidence)}}
    layout: dict[str, Any] = {
        "height": 580,
        "margin": {"t": 130, "l": 60, "r": 20, "b": 50},
        "template": "plotly_white",
        "title": title,
        "paper_bgcolor": "white",
        "showlegend": False,
        "annotations": [],
    }
    for count, (row, (across, up)) in enumerate(zip(rows, PLACES, strict=False), start=1):
        drawn, own = row.draw(profiles), "" if count == 1 else str(count)
        layout |= {
            f"xaxis{own}": {
                **drawn.layout.xaxis.to_plotly_json(),
                "domain": across,
                "anchor": f"y{own}",
            },
            f"yaxis{own}": {
                **drawn.layout.yaxis.to_plotly_json(),
                "domain": up,
                "anchor": f"x{own}",
            },
        }
        layout["annotations"].append(
            {
                "text": f"<b>{row.title}</b>",
                "x": across[0],
                "y": up[1],
                "xref": "paper",
                "yref": "paper",
                "yanchor": "bottom",
                "xanchor": "left",
                "showarrow": False,
            }
        )
        data += [
            {**trace.to_plotly_json(), "xaxis": f"x{own}", "yaxis": f"y{own}"}
            for trace in drawn.data
        ]
    return go.Figure({"data": data, "layout": layout})


DASHES = {
    "dash": "6 4",
    "dot": "2 3",
    "dashdot": "6 3 2 3",
    "longdash": "10 4",
    "longdashdot": "10 3 2 3",
}
"""plotly's dashes that figures use, in pixels; any other is solid."""
Mark = tuple[float, float]
"""A value of an axis, and its place in per cent."""


def image(figure: go.Figure, title: str, width: int = 440, height: int = 280) -> str:
    """A figure's lines as an `<img>` that needs neither style nor script, on white, with a
    description in words."""
    layout, (left, right, top, bottom) = figure.layout, (66, 12, 34, 46)
    names = [
        trace
        for trace in figure.data
        if trace.name and layout.showlegend and trace.showlegend is not False
    ]
    top += 20 * bool(names)
    lines, across, up, grid = _parts(figure)
    inner, tall, base = width - left - right, height - top - bottom, height - bottom
    words = [
        (left, 20, "start", title),
        (left + inner / 2, height - 8, "middle", layout.xaxis.title.text),
        *((left + at / 100 * inner, base + 18, "middle", number(value)) for value, at in across),
        *((left - 8, base - at / 100 * tall + 4, "end", number(value)) for value, at in up),
    ]
    texts = "".join(
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(untagged(text or ""))}</text>'
        for x, y, anchor, text in words
    )
    starts = np.cumsum([left, *(8 * len(untagged(trace.name)) + 16 for trace in names)])
    texts += "".join(
        f'<text x="{x:.0f}" y="40" fill="{escape(hue(trace))}">'
        f"{escape(untagged(trace.name))}</text>"
        for x, trace in zip(starts, names, strict=False)
    )
    up_title = escape(untagged(layout.yaxis.title.text or ""))
    side = f'<text transform="translate(14 {top + tall / 2}) rotate(-90)" text-anchor="middle">{up_title}</text>'
    drawn = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="12" fill="#1b1f24"><rect width="100%" height="100%" fill="#fff"/>{texts}{side}'
        f'<svg x="{left}" y="{top}" width="{inner}" height="{tall}" viewBox="0 0 100 100" '
        f'preserveAspectRatio="none"><path d="{grid}" stroke="#e3e6ea" fill="none" '
        f'vector-effect="non-scaling-stroke"/>{lines}</svg></svg>'
    )
    description = escape(str((layout.meta or {}).get("description", title)))
    return f'<img alt="{description}" src="data:image/svg+xml;base64,{base64.b64encode(drawn.encode()).decode()}">'


def _parts(figure: go.Figure) -> tuple[str, list[Mark], list[Mark], str]:
    """Lines as paths, the marks of both axes, and the grid; in per cent of the frame."""
    axes = (figure.layout.xaxis, figure.layout.yaxis)
    lines = "".join(
        part(trace, *axes)
        for trace in figure.data
        for kind, part in (("lines", _path), ("markers", _dots))
        if kind in (trace.mode or "")
    )
    across, up = (
        [(value, float(place(np.array(value), axis))) for value in ticks(axis)] for axis in axes
    )
    grid = " ".join(
        [*(f"M{at:.2f} 0V100" for _, at in across), *(f"M0 {100 - at:.2f}H100" for _, at in up)]
    )
    return lines, across, up, grid


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
    if axis.type == "log":
        within = (1.0, 2.0, 5.0) if high - low < 2 else (1.0,)
        powers = range(int(np.floor(low)), int(np.ceil(high)) + 1)
        values = [factor * 10.0**power for power in powers for factor in within]
        return [value for value in values if low <= np.log10(value) <= high]
    return round_values(low, high, axis.nticks or 7)


def _path(trace: Any, across: Any, up: Any) -> str:
    """One line; it breaks where a value has no place."""
    x, y = (
        place(np.asarray(trace.x, dtype=float), across),
        100 - place(np.asarray(trace.y, dtype=float), up),
    )
    known = np.isfinite(x) & np.isfinite(y)
    starts = known & ~np.concatenate([[False], known[:-1]])
    points = " ".join(
        f"{'M' if start else 'L'}{left:.2f} {top:.2f}"
        for left, top, ok, start in zip(x, y, known, starts, strict=True)
        if ok
    )
    line = trace.line
    dash = f' stroke-dasharray="{DASHES[line.dash]}"' if line.dash in DASHES else ""
    return (
        f'<path d="{points}" fill="none" stroke="{escape(hue(trace))}" stroke-width="{line.width or 2}"'
        f'{dash} vector-effect="non-scaling-stroke"/>'
    )


def _dots(trace: Any, across: Any, up: Any) -> str:
    """The dots of one series: strokes without length, which stay round where the frame is
    stretched."""
    if trace.marker.opacity == 0:
        return ""
    x, y = (
        place(np.asarray(trace.x, dtype=float), across),
        100 - place(np.asarray(trace.y, dtype=float), up),
    )
    points = "".join(
        f"M{left:.2f} {top:.2f}h0"
        for left, top in zip(x, y, strict=True)
        if np.isfinite(left + top)
    )
    return (
        f'<path d="{points}" stroke="{escape(hue(trace))}" stroke-width="{trace.marker.size or 7}" '
        'stroke-linecap="round" vector-effect="non-scaling-stroke"/>'
    )


def hue(trace: Any) -> str:
    """The color of a series: of its dots where it has only these, else of its line."""
    color = trace.line.color if "lines" in (trace.mode or "") else trace.marker.color
    return color if isinstance(color, str) else "#1b1f24"
