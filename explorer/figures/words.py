"""Formulas as plotly and HTML have them; in HTML also papers as links."""

from __future__ import annotations

import html
import re

from explorer.glossary import HOSTS

NOTATION = re.compile(r"(?<!\w)([^\W\d_]²?|fan)_(\([^()]+\)|[^\W_]+)|\^(\([^()]+\)|[-+−]?[^\W_]+)")
CITED = re.compile(r"(?:([^;:·\n,\s][^;:·\n]*?),? )?\b(arXiv|kexue) (\d{4}\.\d{4,5}|\d+)")


def typeset(text: str) -> str:
    """W_Q, A_(l−1) and 2^(−l/2) with tags for what is low and high, as plotly and HTML have them.

    `typeset` of `glossary.js` is its twin for the page. What came from outside must be escaped
    before."""
    return NOTATION.sub(_script, text)


def linked(source: str) -> str:
    """A source as HTML, its papers as links: 'Xiong et al. 2020, arXiv 2002.04745' shows author and
    year."""
    parts, end = [], 0
    for match in CITED.finditer(source):
        words, host, number = match.groups()
        parts += [
            html.escape(source[end : match.start()]),
            _link(HOSTS[host] + number, f"{host} {number}", words),
        ]
        end = match.end()
    return "".join([*parts, html.escape(source[end:])])


def _link(address: str, number: str, words: str | None) -> str:
    return (
        f'<a class="ex-paper" href="{html.escape(address)}" target="_blank" rel="noopener noreferrer" '
        f'title="{html.escape(number)}">{html.escape(words or number)}</a>'
    )


def _script(match: re.Match[str]) -> str:
    base, below, above = match.groups(default="")
    tag = "sub" if below else "sup"
    # legible
    words = (
        (below or above).removeprefix("(").removesuffix(")").replace("¼", "1/4").replace("½", "1/2")
    )
    return f"{base}<{tag}>{words}</{tag}>"
