"""One chart as a page of its own: a file with its title, its words and its script, which loads nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from explorer.figures.page import CONFIG, LAYOUT, STYLE
from explorer.figures.words import typeset

SIGNS = {"circle": "●", "square": "■", "diamond": "◆", "triangle-up": "▲", "cross": "✚", "star": "★"}
HUE = re.compile(r"#[0-9a-fA-F]{6}")
OWN = """
h1 { margin: 0 } p { margin: .3rem 0; color: var(--muted) } ul { margin: .5rem 0; padding: 0 } li { list-style: none }
"""


def standalone(figure: Mapping[str, Any], title: str, said: Sequence[str] = (),
               designs: Sequence[Mapping[str, str]] = ()) -> str:
    """The HTML of a figure; all text is escaped.

    Args:
        figure: as `plotly.graph_objects.Figure.to_dict` gives it.
        said: lines below the title: the caption, and what dots and lines are.
        designs: the drawn designs, `{name, about, hue, symbol}`.
    Raises:
        ValueError: plotly does not know such a figure.
    """
    drawn = go.Figure(figure)
    drawn.update_layout(**LAYOUT)
    meta = drawn.layout.meta
    words = str(meta.get("description", title)) if isinstance(meta, dict) else title
    head = (f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
            f"<style>{STYLE}{OWN}</style>")
    lines = "".join(f"<p>{typeset(escape(line))}</p>" for line in said if line)
    marks = "".join(_marks(designs))
    chart = drawn.to_html(config=CONFIG, include_plotlyjs=True, full_html=False, div_id="chart")
    return (f'<!DOCTYPE html><html lang="en"><head>{head}</head><body><h1>{typeset(escape(title))}</h1>{lines}'
            f'<ul>{marks}</ul><div role="img" aria-label="{escape(words)}">{chart}</div></body></html>')


def _marks(designs: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """A line a design, with its symbol in its hue."""
    for design in designs:
        hue = design.get("hue", "")
        color = f' style="color: {hue}"' if HUE.fullmatch(hue) else ""
        name, about = escape(design.get("name", "")), escape(design.get("about", ""))
        rest = about.removeprefix(name) if about.startswith(name) else f": {about}" if about else ""
        yield f"<li><span{color}>{SIGNS.get(design.get('symbol', ''), '●')}</span> <b>{name}</b>{rest}</li>"
