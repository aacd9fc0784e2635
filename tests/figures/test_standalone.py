"""A chart as a file: it says what the card says, as text, and asks no host."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np

from explorer.figures import FIGURES, LegendEntry
from explorer.figures.pages import standalone
from explorer.profile import Profile

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


class Elements(HTMLParser):
    """Tags with their attributes, and the text outside scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside if tag != self._inside else ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.text += data


def test_a_chart_as_a_page() -> None:
    profile = Profile("measured", {("second_moment", "resid_post"): np.ones((1, 2))}, seeds=(0,))
    figure = FIGURES["second_moment"].draw([profile], [LegendEntry(0, None, EVIL)]).to_dict()
    design = {
        "name": EVIL,
        "about": "12 layers",
        "hue": "#0072B2",
        "symbol": "square",
        "dash": "solid",
    }
    bad = {"name": "b", "about": "", "hue": "red; background: url(//x)", "symbol": "none"}
    found = Elements(standalone(figure, "Size of W_Q", ["Mean x².", EVIL, ""], [design, bad]))
    names = [tag for tag, _ in found.tags]
    assert "img" not in names
    assert not [
        attributes for _, attributes in found.tags if {"src", "href", "onerror"} & attributes.keys()
    ]
    styles = [
        attributes["style"]
        for tag, attributes in found.tags
        if tag == "span" and "style" in attributes
    ]
    assert styles == ["color: #0072B2"], "and no color that is none"
    for words in ("Size of W", "Mean x².", EVIL, "■", "12 layers"):
        assert words in found.text
    labels = [
        attributes["aria-label"] for _, attributes in found.tags if "aria-label" in attributes
    ]
    assert "over depth" in str(labels[0])
