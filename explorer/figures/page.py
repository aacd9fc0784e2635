"""A profile as a page of its own: the verdict in words, then every figure. One file, which loads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

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


def page(profile: Profile) -> str:
    """The HTML of a page: profile, findings, figures, and the same of its other stacks; all text is escaped."""
    title = escape(profile.heading)
    parts = [part for number, stack in enumerate((profile, *profile.others)) for part in _section(stack, number == 0)]
    return "\n".join((
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        f'<meta name="viewport" content="width=device-width"><title>{title}</title>',
        f"<style>{STYLE}</style></head><body><h1>{title}</h1>", *parts, "</body></html>",
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
