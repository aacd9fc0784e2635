"""A profile as a page of its own: the verdict in words, then every figure. One file, which loads nothing."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from explorer.diagnosis import Finding, diagnose
from explorer.figures import BY_CHOICE, FIGURES, plot
from explorer.figures.words import typeset
from explorer.profile import Profile
from explorer.theory import predict

SEVERITIES = {"good": "Good", "warning": "Careful", "bad": "Bad"}
CONFIG = {"responsive": True, "displaylogo": False, "showSendToCloud": False, "plotlyServerURL": ""}
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c;
       background: white }
h1 { font-size: 1.5rem } h2 { font-size: 1.2rem } li { margin: .5rem 0 } small { color: #555 }
"""


def page(profile: Profile) -> str:
    """The HTML of a page: profile, findings, figures, and the same of its other stacks; all text is escaped."""
    title = escape(profile.heading)
    parts = [part for number, one in enumerate((profile, *profile.others)) for part in _section(one, number == 0)]
    return "\n".join((
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        f"<style>{STYLE}</style></head><body><h1>{title}</h1>", *parts, "</body></html>",
    ))


def _cure(finding: Finding) -> str:
    """The change that mends it, where there is one to offer."""
    code = f": <code>{escape(finding.code)}</code>" if finding.code else ""
    return f"<br><small>{typeset(escape(finding.remedy))}{code}</small>" if finding.remedy else ""


def _section(profile: Profile, first: bool) -> Iterator[str]:
    """Words and figures of one stack; the first figure of the page brings the script that draws them all."""
    if profile.layers:
        names = profile.layers[0], profile.layers[-1]
        yield f"<h2>{len(profile.layers)} layers: {escape(' … '.join(dict.fromkeys(names)))}</h2>"
    findings = (f"<li><b>{SEVERITIES[one.severity]}.</b> {typeset(escape(one.meaning))} "
                f"<small>{typeset(escape(one.evidence))}</small>{_cure(one)}</li>" for one in diagnose(profile))
    yield f"<ul>{''.join(findings)}</ul>"
    theory = [] if profile.twin is None else [predict(profile.twin)]
    if profile.twin is not None:
        yield f"<p>Lines are what theory expects of the nearest design: {escape(str(profile.twin))}.</p>"
    yield from (f"<p><small>{escape(one)}.</small></p>" for one in profile.remarks)
    for name in dict.fromkeys((*FIGURES, *BY_CHOICE, "weight_variance")):
        statistic = FIGURES[name].statistic if name in FIGURES else name
        if (statistic in profile) if statistic else profile.pattern is not None:
            figure = plot(profile, name, *(theory if statistic else []))
            yield figure.to_html(config=CONFIG, include_plotlyjs=first, full_html=False)
            first = False
    for statistic, note in profile.notes.items():
        yield f"<p><small>{escape(statistic)}: {escape(note)}.</small></p>"
