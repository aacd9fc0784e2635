"""Formulas as plotly and HTML have them; in HTML also papers as links."""

from __future__ import annotations

import html
import re

from explorer.glossary import HOSTS

NOTATION = re.compile(r"(?<!\w)([^\W\d_]²?|fan)_(\([^()]+\)|[^\W_]+)|\^(\([^()]+\)|[-+−]?[^\W_]+)")
"""A letter with its index, W_Q or A_(l−1): groups 1 and 2; or an exponent, ^2 or ^(−l/2): group
3."""
CITED = re.compile(r"(?:([^;:·\n,\s][^;:·\n]*?),? )?\b(arXiv|kexue) (\d{4}\.\d{4,5}|\d+)")
"""A cited paper, 'Xiong et al. 2020, arXiv 2002.04745': its authors and year if they are there, its
host, and its number there."""


def typeset(text: str) -> str:
    """Formulas such as W_Q, A_(l−1) and 2^(−l/2) with tags for indices and exponents, as plotly and
    HTML have them.

    `typeset` of `glossary.js` does the same for the page. Text from outside must be escaped
    before."""
    return NOTATION.sub(_script, text)


def linked(source: str) -> str:
    """A source as HTML, its papers as links: 'Xiong et al. 2020, arXiv 2002.04745' shows author and
    year."""
    parts, end = [], 0
    for match in CITED.finditer(source):
        authors, host, number = match.groups()
        parts.append(html.escape(source[end : match.start()]))
        parts.append(_link(HOSTS[host] + number, f"{host} {number}", authors))
        end = match.end()
    parts.append(html.escape(source[end:]))
    return "".join(parts)


def _link(address: str, number: str, authors: str | None) -> str:
    """A link to a paper, which shows its authors, or else its number at its host."""
    return (
        f'<a class="ex-paper" href="{html.escape(address)}" target="_blank" rel="noopener noreferrer" '
        f'title="{html.escape(number)}">{html.escape(authors or number)}</a>'
    )


def _script(match: re.Match[str]) -> str:
    """The HTML of one match of `NOTATION`: W_Q becomes W<sub>Q</sub>, ^(−l/2) <sup>−l/2</sup>."""
    letter, index, exponent = match.groups(default="")
    tag = "sub" if index else "sup"
    words = (index or exponent).removeprefix("(").removesuffix(")")
    # ¼ and ½ are too small to be read where they are raised
    words = words.replace("¼", "1/4").replace("½", "1/2")
    return f"{letter}<{tag}>{words}</{tag}>"
