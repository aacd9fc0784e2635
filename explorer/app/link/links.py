"""`Links`: the page's record as a link, and back:
`?tab=race&design=post_ln&n_layers=24&pin=pre_ln&v=1`.

A link says only what differs from the page as it opens. It may come from anybody: unknown parts are
ignored, with a notice. Here everything is checked: a page's record is valid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote_plus, urlencode

from explorer.app import view
from explorer.app.link.panels import PARTS, Pairs
from explorer.app.link.params import Params
from explorer.app.page import Page
from explorer.app.stories.story import STORIES
from explorer.app.view import View
from explorer.display import shown
from explorer.glossary import OF_LABS

VERSION = 1
SAFE = ",:()"
"""Characters that are not percent-encoded in a value, beside letters, digits and _.-~."""
TABS_OF_LABS = ("foundations", "depth", "training")
"""Tabs of labs in links of old."""
STORY, MOST_STEPS = ("story", "step"), 100
LONGEST_SENTENCE, MOST_SENTENCES = 120, 3


class Links:
    """Links to a page of these panels.

    Args:
        panels: their names; the first is open at the start.
        stories: whether the page tells stories.
    """

    def __init__(self, panels: Sequence[str], *, stories: bool = True) -> None:
        self._panels, self.stories = tuple(panels), STORIES if stories else {}

    def write(self, page: Page) -> str:
        """The link of a page, with its question mark; empty for the page as it opens."""
        pairs = list(self._pairs(page))
        query = urlencode([*pairs, ("v", VERSION)], safe=SAFE, quote_via=quote_plus)
        return f"?{query}" if pairs else ""

    def _pairs(self, page: Page) -> Pairs:
        yield from view.write(page.view)
        yield from zip(STORY, map(str, page.story or ()), strict=False)
        if page.open != self._panels[0]:
            yield "tab", page.open
        for name in self._panels:
            if (part := page.panels.get(name)) and name in PARTS:
                yield from PARTS[name][0](part)

    def parse(self, text: object) -> tuple[Page, list[str]]:
        """The page that a link stands for, and a sentence for each part that was not understood.

        What a link does not say is as on the page that opens; so is all of it if it is no link, or
        of another version."""
        try:
            params = Params(text)
        except ValueError as error:
            return self._page(Params("")), [str(error)]
        if (version := params.take("v", str(VERSION))) != str(VERSION):
            return self._page(Params("")), [
                f"v, the link's version, must be {VERSION}; got {shown(version)}"
            ]
        page = self._page(params)
        return page, [*params.sentences, *params.rest()]

    def _page(self, params: Params) -> Page:
        tab = params.take("tab", self._panels[0])
        panels: dict[str, Any] = {}
        for name in self._panels:
            if name in PARTS:
                panels[name] = PARTS[name][1](params)
        if "lessons" in self._panels:
            tab = self._lesson_of(tab, params)
        if tab not in self._panels:
            params.sentences.append(
                f"tab must be one of {', '.join(self._panels)}; got {shown(tab)}"
            )
            tab = self._panels[0]
        return Page(tab, panels, self._read_view(params), self._read_story(params))

    def _lesson_of(self, tab: str, params: Params) -> str:
        """The tab of lessons in place of a lab's or of a tab of labs, with a sentence; a lab's
        settings are gone."""
        params.take_all("lab")
        for name in (*OF_LABS, *TABS_OF_LABS):
            params.drop(f"{name}.")
        if tab in OF_LABS:
            params.sentences.append(
                f"{tab} is the lesson “{OF_LABS[tab].title}” now, which has a page of its own"
            )
        return "lessons" if tab in OF_LABS or tab in TABS_OF_LABS else tab

    def _read_view(self, params: Params) -> View:
        """The view that a link asks for."""
        lists = {name: view.split(params.take(name)) for name in view.LISTS if params.has(name)}
        wanted, sentences = view.parse(
            lists, self._panels, embed=params.take("embed") in ("1", "true")
        )
        params.sentences += sentences
        return wanted

    def _read_story(self, params: Params) -> tuple[str, int] | None:
        """The name of the open story, and its step; None for none."""
        name = params.take(STORY[0])
        if name and name not in self.stories:
            params.sentences.append(
                f"story must be one of {', '.join(self.stories)}; got {shown(name)}"
            )
        known = self.stories.get(name)
        step = params.position(STORY[1], 1, 1, len(known.steps) if known else MOST_STEPS)
        return (name, step) if known else None


def in_a_sentence(sentences: Sequence[str]) -> str:
    """One short sentence on the ignored parts of a link, of whatever length it was; empty where
    nothing was ignored."""
    cut = [
        sentence if len(sentence) <= LONGEST_SENTENCE else sentence[: LONGEST_SENTENCE - 1] + "…"
        for sentence in sentences[:MOST_SENTENCES]
    ]
    more = len(sentences) - len(cut)
    return (
        f"Ignored in the link: {'; '.join([*cut, *([f'and {more} more'] if more else [])])}."
        if sentences
        else ""
    )
