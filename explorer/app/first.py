"""The first picture: what a visitor sees while Python starts, as HTML without a script.

It is the frame of the page with the theory's lines of its first design, made by the functions that draw the live page,
under the live page's style sheet, so that nothing moves when that takes its place. `explorer serve` runs this module
once, and hands the result to Voilà's template: the server itself need not import what draws it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any

from explorer.app.explore.flatten import SOLVED, TARGETS
from explorer.app.sentences import name_of, residual_words
from explorer.app.stories.story import OFFER
from explorer.app.widgets.controls import sections
from explorer.app.widgets.header import Header
from explorer.app.widgets.runtime import STYLE
from explorer.app.widgets.wording import in_words
from explorer.config import Config
from explorer.diagnosis import diagnose
from explorer.display import table
from explorer.figures import FIGURES, Row
from explorer.figures.diagram import diagram
from explorer.figures.pages import sketch
from explorer.figures.words import typeset
from explorer.profile import Profile
from explorer.schemes.preset import PRESETS
from explorer.theory import predict

OWN = """
#ex-first { position: fixed; z-index: 900; inset: 0; overflow-y: auto; background: var(--ex-paper); }
.ex-first .ex-tabs span { padding: 6px 12px; border-radius: 6px; color: var(--ex-muted); }
.ex-first .ex-tabs span:first-child { background: var(--ex-accent-soft); color: var(--ex-accent); font-weight: 600; }
.ex-first .ex-explore { --ex-verdict-height: 75px; }
.ex-first .ex-chart-tools { width: 115px; height: 24px; }
.ex-first .ex-chart-plot { position: relative; color: var(--ex-muted); font-size: 12px; }
.ex-first .ex-note { padding: 0; text-align: left; font-size: 13px; }
.ex-sketch { position: absolute; }
.ex-sketch svg { position: absolute; width: 100%; height: 100%; overflow: hidden; }
.ex-sketch span { position: absolute; line-height: 1; white-space: nowrap; }
.ex-sketch-tick[data-axis="x"] { top: calc(100% + 6px); transform: translateX(-50%); }
.ex-sketch-tick[data-axis="y"] { right: 100%; transform: translateY(50%); padding-right: 6px; }
.ex-sketch-grid { fill: none; stroke: var(--ex-grid); }
.ex-sketch-title[data-axis="x"] { left: 50%; top: calc(100% + 25px); transform: translateX(-50%); }
.ex-sketch-title[data-axis="y"] { top: 50%; left: -50px; transform: translate(-50%, -50%) rotate(-90deg); }
@container explorer (max-width: 699.9px) {
  .ex-first .ex-cell:first-child .ex-sketch-title[data-axis="y"] { display: none; } /* as plotly's */
}
#ex-first .widget-box { overflow: visible; } /* or the controls stick to another box when the widgets' style is there */
.ex-first [data-later] { visibility: hidden; }
.ex-first :is(.ex-tabs, .ex-stories button, summary) { opacity: .5; }
[data-offered] .ex-first .ex-stories { display: none; }
body:has(> #ex-first) #rendered_cells { visibility: hidden; } /* the page, while it is put together */
.ex-first [data-waits] { display: grid; place-items: center; }
"""
"""Style where the first picture differs from the live page: it has words and numbers only, no controls."""
WHY = '<details class="ex-chart-why"><summary>Why?</summary></details>'
TOOLS = ("Stories", "Undo", "Redo", "Reset all", "Share", "Glossary")
"""Words of the head's tools, for their room: they come with the live page (`address.js`)."""


def first_picture(config: Config, tabs: Sequence[str]) -> str:
    """The frame of the page and the theory's lines of a design, with the style sheet that it needs.

    Args:
        config: the design.
        tabs: titles of the page's panels.
    """
    predicted = predict(config)
    tools = "".join(f'<button class="ex-tool">{words}</button>' for words in TOOLS)
    names = "".join(f"<span>{html.escape(title)}</span>" for title in tabs)
    cells = "".join(f'<div class="ex-cell widget-box">{_card(row, predicted)}</div>' for row in FIGURES.values())
    open_section, *folded = sections(Config.specs())
    controls = "".join(map(_control, open_section["fields"]))
    groups = "".join(f'<details class="ex-section"><summary>{html.escape(group["title"])}</summary></details>'
                     for group in folded)
    row = next((row for row in PRESETS.values() if row.title == name_of(config)), None)
    design = _list("Model or design", name_of(config), below=_hint(row.words.rstrip("."), row.source) if row else "")
    name, about = html.escape(name_of(config)), typeset(html.escape(residual_words(config), quote=False))
    style = STYLE.replace(".ex-root", ".ex-first") + OWN
    return f"""<div id="ex-first"><style>{style}</style><div class="ex-first widget-box">
<div inert aria-hidden="true">
<div class="ex-header"><h1>{html.escape(Header.name.default_value)}</h1><div class="ex-tabs">{names}</div>
<div class="ex-tools" data-later>{tools}</div></div>
{_stories()}
<div class="ex-panel widget-box"><div class="ex-explore widget-box">
<div class="ex-side widget-box"><div class="ex-controls"><div class="ex-section">{design}</div></div>
<div class="ex-controls"><div class="ex-section">{controls}</div>{groups}</div></div>
<div class="ex-main widget-box"><div class="ex-top widget-box">{_verdict(predicted)}{_diagram(config, predicted)}</div>
<div class="ex-pins"><div class="ex-pin-head"><span class="ex-now"><b>{name}</b>
<span class="ex-pin-about">{about}</span></span><button class="ex-button ex-pin-button" data-later>Pin</button>
<span class="ex-marks"><span>— predicted</span></span></div></div>
<div class="ex-charts ex-pictures widget-box">{cells}</div></div>
</div></div></div>
<div class="ex-status" data-state="computing"><span class="ex-mark"></span>
<p class="ex-note" id="loading" role="status">Starting Python for this page…</p>
<span class="ex-status-detail">The lines are the theory's prediction for the default design.</span></div>
</div></div>"""


def _stories() -> str:
    """The line that offers stories, for a browser that was never here."""
    bold, plain = map(html.escape, OFFER)
    return (f'<div class="ex-stories"><section class="ex-stories-offer"><p><b>{bold}</b>{plain}</p>'
            '<button class="ex-link ex-unfold">New here? Take a tour</button><button class="ex-link">Close</button>'
            "</section></div>")


def _card(row: Row, predicted: Profile) -> str:
    """A chart's card: title, caption, and its lines if the theory has some."""
    figure = row.draw([predicted])
    known = any("lines" in (trace.mode or "") for trace in figure.data)
    plot = f">{sketch(figure)}" if known else " data-waits>Comes with the measurement"
    badge = "prediction" if known else ""
    below = _list("Show", row.title, "ex-place") if row.name == next(iter(FIGURES)) else ""
    return (f'<div><figure class="ex-chart"><figcaption class="ex-chart-words"><div class="ex-chart-header">'
            f'<h3 class="ex-chart-title">{html.escape(row.title)}</h3><span class="ex-chart-badge">{badge}</span></div>'
            f'<p class="ex-chart-caption">{typeset(html.escape(row.caption, quote=False))}</p>'
            f'{WHY if any(row.why(predicted)) else ""}<div class="ex-chart-tools"></div></figcaption>'
            f'<div class="ex-chart-plot"{plot}</div></figure></div>{below}')


def _hint(formula: str, source: str) -> str:
    """The line below a choice; the live page has the papers' numbers in its links only."""
    words = " · ".join(filter(None, (formula, re.sub(r", arXiv [\w./]+", "", source).partition("\n")[0])))
    return f'<p class="ex-hint">{typeset(html.escape(words, quote=False))}</p>' if words else ""


SIGNS = {"good": "✓", "warning": "!", "bad": "×"}


def _verdict(predicted: Profile) -> str:
    """The most serious finding on the theory's numbers, worded as the live page words it on the measured ones."""
    findings = diagnose(predicted)[:1]
    return "".join(f'<div class="ex-verdict"><div class="ex-finding" data-severity="{finding.severity}">'
                   f'<span class="ex-sign">{SIGNS[finding.severity]}</span>'
                   f'<p><strong>{html.escape(finding.meaning)}</strong></p>'
                   f'<details class="ex-evidence"><summary>Evidence</summary><p>{html.escape(finding.evidence)}</p>'
                   f'{table("", ("Number", "Here", "Limit"), finding.numbers)}</details></div></div>'
                   for finding in findings)


def _diagram(config: Config, predicted: Profile) -> str:
    """The last layer, with the numbers that theory expects."""
    n_layers = config.n_layers
    return (f'<div class="ex-diagram"><p class="ex-diagram-head">Layer <input class="ex-entry" disabled '
            f'value="{n_layers}"><span> of {n_layers}</span><span>q = mean x², predicted</span></p>'
            f'<div class="ex-blocks">{diagram(config, n_layers, predicted, Config())}</div></div>')


def _list(label: str, value: str, place: str = "", below: str = "") -> str:
    """A list, with the one entry that is chosen."""
    control = (f'<div class="ex-control ex-disabled" data-look="list"><div class="ex-head"><span class="ex-label">'
               f'{html.escape(label)}</span></div><select disabled><option>{html.escape(value)}</option></select>'
               f"{below}</div>")
    return f'<div class="ex-controls {place}"><div class="ex-section">{control}</div></div>' if place else control


def _control(field: dict[str, Any]) -> str:
    """A choice and its value."""
    about = ", ".join(filter(None, (field["symbol"], field["unit"])))
    value, steps = html.escape(in_words(field["initial"])), field["steps"]
    below = f"<select disabled><option>{value}</option></select>"
    chosen: dict[str, str] = next((option for option in field["options"] if option["value"] == field["initial"]), {})
    buttons = "".join(f'<button class="ex-offer" data-later>{label}</button>' for label, _ in TARGETS.values())
    offers = f'<div class="ex-offers">{buttons}</div>' if field["name"] in SOLVED else ""
    if field["look"] == "slider":
        at = f'max="{len(steps) - 1}" value="{steps.index(field["initial"])}"'
        below = (f'<div class="ex-row"><input type="range" disabled {at}>'
                 f'<input class="ex-entry" disabled value="{value}"></div>')
    return (f'<div class="ex-control ex-disabled"><div class="ex-head"><span class="ex-title"><span class="ex-label">'
            f'{html.escape(field["label"])}</span><span class="ex-symbol">{typeset(html.escape(about))}</span></span>'
            f"</div>{below}{offers}{_hint(chosen.get('formula', ''), chosen.get('source', ''))}</div>")
