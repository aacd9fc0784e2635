"""Figures outside the page: a profile or one chart as a file of its own, which loads nothing, and a notebook's cell."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from explorer.diagnosis import Finding, diagnose
from explorer.figures import BY_CHOICE, FIGURES, Row, row_of
from explorer.figures.words import typeset
from explorer.profile import Profile
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
"""plotly's texts have no color of the figure's own; here they follow the reader's light or dark; not where
they have a shadow, as on a map's colors."""
LAYOUT = {"hoverlabel": {"bgcolor": "white", "font": {"color": "#1b1f24"}}, "autosize": True}
SIGNS = {"circle": "●", "square": "■", "diamond": "◆", "triangle-up": "▲", "cross": "✚", "star": "★"}
HUE = re.compile(r"#[0-9a-fA-F]{6}")
CHART_STYLE = """
h1 { margin: 0 } p { margin: .3rem 0; color: var(--muted) } ul { margin: .5rem 0; padding: 0 } li { list-style: none }
"""
SHOWN = ("second_moment", "gradient_by_layer", "attention_entropy", "token_correlation")
MIME = "application/vnd.plotly.v1+json"
LINE = 150
"""Letters of a line of the verdict."""
PLACES = tuple((across, up) for up in ([0.58, 1.0], [0.0, 0.42]) for across in ([0.0, 0.46], [0.54, 1.0]))
"""Across and up, as parts of the figure."""


def page(profile: Profile) -> str:
    """The HTML of a page: profile, findings, figures, and the same of its other stacks; all text is escaped."""
    parts = [part for number, stack in enumerate((profile, *profile.others)) for part in _section(stack, number == 0)]
    heading = escape(profile.heading)
    return _document(heading, heading, STYLE, parts)


def _document(title: str, heading: str, style: str, parts: Iterable[str]) -> str:
    """A page of HTML; its parts, title and heading are HTML already."""
    return "\n".join((
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        f'<meta name="viewport" content="width=device-width"><title>{title}</title>',
        f"<style>{style}</style></head><body><h1>{heading}</h1>", *parts, "</body></html>",
    ))


def _cure(finding: Finding) -> str:
    """The finding's remedy and its line of code, as HTML; empty where there is none."""
    code = f": <code>{escape(finding.code)}</code>" if finding.code else ""
    return f"<br><small>{typeset(escape(finding.remedy))}{code}</small>" if finding.remedy else ""


def _section(profile: Profile, first: bool) -> Iterator[str]:
    """Words and figures of one stack; the first figure of the page brings the script that draws them all."""
    if profile.layers:
        names = profile.layers[0], profile.layers[-1]
        yield f"<h2>{len(profile.layers)} layers: {escape(' … '.join(dict.fromkeys(names)))}</h2>"
    findings = (f"<li><b>{SEVERITIES[row.severity]}.</b> {typeset(escape(row.meaning))} "
                f"<small>{typeset(escape(row.details))}</small>{_cure(row)}</li>" for row in diagnose(profile))
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
    drawn.update_layout(**LAYOUT, title=None, showlegend=True, margin={"t": 80},
                        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
    chart = drawn.to_html(config=CONFIG, include_plotlyjs=first, full_html=False)
    return (f"<h3>{typeset(escape(title))}</h3><figure><figcaption>{typeset(escape(row.caption))}</figcaption>{chart}"
            "</figure>")


def standalone(figure: Mapping[str, Any], title: str, lines: Sequence[str] = (),
               designs: Sequence[Mapping[str, str]] = ()) -> str:
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
    return _document(escape(title), typeset(escape(title)), STYLE + CHART_STYLE, [
        *(f"<p>{typeset(escape(line))}</p>" for line in lines if line), f"<ul>{''.join(_marks(designs))}</ul>",
        f'<div role="img" aria-label="{escape(words)}">{chart}</div>',
    ])


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
    return {MIME: {**json.loads(overview(profile).to_json()), "config": CONFIG}}


def overview(profile: Profile) -> go.Figure:
    """The first finding, and charts of what the profile has, with theory's line where a config or a twin gives one."""
    twin = profile.config or profile.twin
    profiles = [profile] if twin is None or profile.origin == "predicted" else [predict(twin), profile]
    rows = [FIGURES[name] for name in SHOWN if FIGURES[name].statistic in profile]
    data: list[Any] = []
    finding = diagnose(profile)[0]
    evidence = "<br>".join(map(escape, textwrap.wrap(finding.details, LINE)))
    title = {"text": typeset(escape(finding.meaning)), "subtitle": {"text": typeset(evidence)}}
    layout: dict[str, Any] = {
        "height": 580, "margin": {"t": 130, "l": 60, "r": 20, "b": 50}, "template": "plotly_white", "title": title,
        "paper_bgcolor": "white", "showlegend": False, "annotations": [],
    }
    for number, (row, (across, up)) in enumerate(zip(rows, PLACES, strict=False), start=1):
        drawn, own = row.draw(profiles), "" if number == 1 else str(number)
        layout |= {f"xaxis{own}": {**drawn.layout.xaxis.to_plotly_json(), "domain": across, "anchor": f"y{own}"},
                   f"yaxis{own}": {**drawn.layout.yaxis.to_plotly_json(), "domain": up, "anchor": f"x{own}"}}
        layout["annotations"].append({"text": f"<b>{row.title}</b>", "x": across[0], "y": up[1], "xref": "paper",
                                      "yref": "paper", "yanchor": "bottom", "xanchor": "left", "showarrow": False})
        data += [{**trace.to_plotly_json(), "xaxis": f"x{own}", "yaxis": f"y{own}"} for trace in drawn.data]
    return go.Figure({"data": data, "layout": layout})
