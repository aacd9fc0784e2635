"""The first picture: what a visitor sees while Python starts, as HTML without a script.

It is the frame of the page with what theory says of its first design, made by the functions that
draw the live page, under the live page's style sheet, so that nothing moves when that takes its
place. `explorer serve` runs this module once, and hands the result to Voilà's template: the server
itself need not import what draws it."""

from __future__ import annotations

import html
from collections.abc import Sequence

from explorer.app.explore.diagram import head
from explorer.app.sentences import name_of
from explorer.app.stories import dare
from explorer.app.widgets.header import Header
from explorer.app.widgets.runtime import STYLE
from explorer.config import Config
from explorer.diagnosis import diagnose
from explorer.display import table
from explorer.figures import FIGURES, Row
from explorer.figures.diagram import diagram
from explorer.figures.stack import stack
from explorer.figures.words import typeset
from explorer.profile import Profile
from explorer.theory import predict

OWN = """
#ex-first { position: fixed; z-index: 900; inset: 0; overflow-y: auto; background: var(--ex-paper); }
.ex-first .ex-tabs span:first-child { background: var(--ex-accent-soft); color: var(--ex-accent); font-weight: 600; }
.ex-first .ex-explore { --ex-verdict-height: 49px; }
.ex-first .ex-chart-tools { width: 135px; height: 24px; }
.ex-first .ex-note { padding: 0; text-align: left; font-size: 13px; }
#ex-first .ex-box { overflow: visible; } /* or the controls stick to another box when the widgets' style is there */
.ex-first [data-later] { visibility: hidden; }
.ex-first :is(.ex-tabs, .ex-stories button, summary) { opacity: .5; }
.ex-first .ex-side { min-height: 80vh; }
[data-offered] .ex-first .ex-stories { display: none; }
body:has(> #ex-first) #rendered_cells { visibility: hidden; } /* the page, while it is put together */
"""
"""Style where the first picture differs from the live page: it has words and numbers only, no
controls."""
TOOLS = ("Stories", "↶", "↷", "Share", "☰")
"""Words of the head's tools, for their room: they come with the live page (`address.js`)."""


def first_picture(config: Config, tabs: Sequence[str]) -> str:
    """The frame of the page with the theory's verdict on a design and its last layer, and the style
    sheet for it.

    Args:
        config: the design.
        tabs: titles of the page's panels.
    """
    predicted = predict(config)
    tools = "".join(f'<button class="ex-tool">{words}</button>' for words in TOOLS)
    names = "".join(f"<span>{html.escape(title)}</span>" for title in tabs)
    cells = "".join(f'<div class="ex-cell ex-box">{_card(row)}</div>' for row in FIGURES.values())
    style = STYLE.replace(".ex-root", ".ex-first") + OWN
    return f"""<div id="ex-first"><style>{style}</style><div class="ex-first ex-box">
<div inert aria-hidden="true">
<div class="ex-header"><h1>{html.escape(Header.name.default_value)}</h1><div class="ex-tabs">{names}</div>
<div class="ex-tools" data-later>{tools}</div></div>
{_stories(predicted)}
<div class="ex-panel ex-box"><div class="ex-explore ex-box">
<div class="ex-side ex-box"></div>
<div class="ex-main ex-box">
<div class="ex-top ex-box">{_stack(config, predicted)}{_verdict(predicted)}{_diagram(config, predicted)}</div>
<div class="ex-pins"><div class="ex-pin-head"><span class="ex-now"><b>{html.escape(name_of(config))}</b>
</span><button class="ex-button ex-pin-button" data-later>Pin</button>
<span class="ex-marks"><span>— predicted; outlined: two of three draws</span></span></div></div>
<div class="ex-charts ex-pictures ex-box">{cells}</div></div>
</div></div></div>
<div class="ex-status" data-state="computing"><span class="ex-mark"></span>
<p class="ex-note" id="loading" role="status">Starting Python for this page…</p>
<span class="ex-status-detail">Verdict and layer are the theory's prediction for the default design.</span></div>
</div></div>"""


def _stories(predicted: Profile) -> str:
    """The dare, for a browser that has not closed it."""
    return f'<div class="ex-stories ex-dare">{dare.still(predicted)}</div>'


def _card(row: Row) -> str:
    """A chart's card: title and caption, and room for the chart."""
    return (
        f'<div><figure class="ex-chart"><figcaption class="ex-chart-words"><div class="ex-chart-header">'
        f'<h3 class="ex-chart-title">{html.escape(row.title)}</h3></div>'
        f'<p class="ex-chart-caption">{typeset(html.escape(row.caption, quote=False))}</p>'
        '<details class="ex-chart-why"><summary>Why?</summary></details><div class="ex-chart-tools"></div>'
        '</figcaption><div class="ex-chart-plot"></div></figure></div>'
    )


SIGNS = {"good": "✓", "warning": "!", "bad": "×"}


def _verdict(predicted: Profile) -> str:
    """The most serious finding on the theory's numbers, worded as the live page words it on the
    measured ones."""
    findings = diagnose(predicted)[:1]
    return "".join(
        f'<div class="ex-verdict"><div class="ex-finding" data-severity="{finding.severity}">'
        f'<span class="ex-sign">{SIGNS[finding.severity]}</span>'
        f"<p><strong>{html.escape(finding.meaning)}</strong></p>"
        f'<details class="ex-evidence"><summary>Evidence</summary><p>{html.escape(finding.evidence)}</p>'
        f"{table('', ('Number', 'Here', 'Limit'), finding.numbers)}</details></div></div>"
        for finding in findings
    )


def _stack(config: Config, predicted: Profile) -> str:
    """The picture of all layers, as theory expects them."""
    return f'<div class="ex-stack"><div class="ex-stack-picture">{stack(config, predicted)}</div></div>'


def _diagram(config: Config, predicted: Profile) -> str:
    """The last layer, with the numbers that theory expects."""
    n_layers = config.n_layers
    return (
        f'<div class="ex-diagram"><p class="ex-diagram-head">{head(n_layers, n_layers, predicted.origin)}</p>'
        f'<div class="ex-blocks">{diagram(config, n_layers, predicted, Config())}</div></div>'
    )
