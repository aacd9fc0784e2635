"""`Links`: the page's record as a link, and back:
`?tab=race&design=post_ln&n_layers=24&pin=pre_ln`.

A link says only what differs from the page as it opens: the design by its fields, what is open and
what is hidden by name, all else by `state`. It may come from anybody: unknown parts are ignored,
with a notice. Here everything is checked: a page's record is valid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any
from urllib.parse import quote_plus, urlencode

from explorer.app import view
from explorer.app.explore.pins import Pins
from explorer.app.link import state
from explorer.app.link.params import Fields, Params, named_fields, write_design, write_value
from explorer.app.page import ExplorePart, Page, Tab
from explorer.app.roster import Entry
from explorer.app.stories.daily import DAILY, of_day, row_of_day, today
from explorer.app.stories.story import FIRST_TAB, STORIES, Story
from explorer.app.view import View
from explorer.choices import ConfigError
from explorer.config import SETTING, Config, preset
from explorer.display import shown
from explorer.schemes.preset import PRESETS

SAFE = ",:()"
"""Characters that are not percent-encoded in a value, beside letters, digits and _.-~."""
STORY, MOST_STEPS = ("story", "step"), 100
LONGEST_SENTENCE, MOST_SENTENCES = 120, 3
FIRST = ExplorePart()


class Links:
    """Links to a page of these panels.

    Args:
        tabs: of the page; the first is open at the start.
    """

    def __init__(self, tabs: Mapping[str, Tab]) -> None:
        self._tabs, self._panels = tabs, tuple(tabs)
        self.stories = {
            name: story for name, story in STORIES.items() if set(self._panels) >= story.tabs
        }
        """The stories whose panels the page has."""

    def story(self, name: str) -> Story | None:
        """A story by its name; that of the day is made anew each day. None where the page has no
        such story."""
        if name == DAILY and FIRST_TAB in self._panels:
            day = today()
            return of_day(day, self._panel_of(day).design)
        return self.stories.get(name)

    def _panel_of(self, day: date) -> ExplorePart:
        """The Explore panel as the question of a day has it."""
        part: ExplorePart = self.parse(row_of_day(day)[0])[0].panels[FIRST_TAB]
        return part

    def write(self, page: Page) -> str:
        """The link of a page, with its question mark; empty for the page as it opens."""
        query = urlencode([*self._pairs(page)], safe=SAFE, quote_via=quote_plus)
        return f"?{query}" if query else ""

    def _pairs(self, page: Page) -> Iterator[tuple[str, str]]:
        yield from view.write(page.view)
        yield from zip(STORY, map(str, page.story or ()), strict=False)
        if page.open != self._panels[0]:
            yield "tab", page.open
        parts = {name: part for name, part in page.panels.items() if self._tabs[name].part}
        if "explore" in parts:
            explore = parts["explore"]
            name, fields = write_design(explore.design)
            if name:
                yield "design", name
            yield from ((field, write_value(value)) for field, value in fields.items())
            pins = _named_pins(explore.pins, fields)
            yield from (("pin", pin) for pin in pins)
            if pins:
                parts["explore"] = explore._replace(pins=FIRST.pins)
        changed = state.write(parts)
        if changed:
            yield "state", state.text_of(changed)

    def parse(self, text: object) -> tuple[Page, list[str]]:
        """The page that a link stands for, and a sentence for each part that was not understood.

        What a link does not say is as on the page that opens; so is all of it if it is no link.

        Example:
            >>> from explorer.app.tabs import tabs
            >>> page, sentences = Links(tabs()).parse("?n_layers=24&pin=pre_ln")
            >>> page.panels["explore"].design, sentences
            (Config(n_layers=24), [])
        """
        try:
            params = Params(text)
        except ValueError as error:
            return self._page(Params("")), [str(error)]
        page = self._page(params)
        return page, [*params.sentences, *params.rest()]

    def _page(self, params: Params) -> Page:
        """The page of a link's parts, each of which is taken from `params` as it is read."""
        parts, sentences = state.parse(params.take("state"), self._tabs)
        params.sentences += sentences
        if "explore" in parts:
            parts["explore"] = _read_explore(params, parts["explore"])
        tab = params.take("tab", self._panels[0])
        if tab not in self._panels:
            params.sentences.append(
                f"tab must be one of {', '.join(self._panels)}; got {shown(tab)}"
            )
            tab = self._panels[0]
        story = self._read_story(params)
        if story and story[0] == DAILY:  # of today, whatever day the link was copied on
            parts[FIRST_TAB] = self._panel_of(today())
        return Page(tab, parts, self._read_view(params), story)

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
        known = self.story(name)
        if name and known is None:
            params.sentences.append(
                f"story must be one of {', '.join((*self.stories, DAILY))}; got {shown(name)}"
            )
        step = params.position(STORY[1], 1, 1, len(known.steps) if known else MOST_STEPS)
        return (name, step) if known else None


def _read_explore(params: Params, part: ExplorePart) -> ExplorePart:
    """The Explore panel's part of a link: its design and named pins beside what its state says."""
    named = params.named(params.take("design"), "design")
    fields = params.fields()
    part = part._replace(design=params.design(named | fields))
    pins = params.take_all("pin")
    if pins:
        entries = [_pin(name, fields, params) for name in pins]
        seated, sentences = state.seated((*filter(None, entries), *part.pins), Pins())
        params.sentences += sentences
        part = part._replace(pins=seated)
    refused = state.fit_design(part)
    if refused:
        params.sentences += refused
        part = part._replace(pattern_of=FIRST.pattern_of, tokens_of=FIRST.tokens_of)
    return part


def _pin(name: str, fields: Fields, params: Params) -> Entry | None:
    """A named design, tried with what the link's is; None, with a sentence, where there is none."""
    if name not in PRESETS:
        params.refuse_name(name, "pin")
        return None
    try:
        return Entry(preset(name, **_shared(fields)))
    except ConfigError as error:
        params.sentences.append(f"pin {name}: {error}")
        return None


def _shared(fields: Mapping[str, object]) -> Any:
    """Of some fields those that say what a design is tried with: its pins are tried with the
    same."""
    return {
        name: value for name, value in fields.items() if Config.specs()[name].about.group in SETTING
    }


def _named_pins(pins: tuple[Entry, ...], fields: Fields) -> list[str]:
    """The pins as names of designs, beside a design of these fields; none where one is more than
    that."""
    names = [_preset_read_as(pin.config, fields) for pin in pins]
    if not all(names):
        return []
    said = tuple(Entry(pin.config) for pin in pins)  # with the names and hues that they get
    return names if state.seated(said, Pins())[0] == pins else []


def _preset_read_as(config: Config, fields: Fields) -> str:
    """The named design that `pin=` must name, in a link whose design has these fields, for `_pin`
    to read this config; empty where none is. Of two that are equal it is the last.

    Fields are compared, and no design is made: a page writes its link after every message."""
    shared = _shared(fields)
    for name in reversed(PRESETS):
        if _without_defaults({**named_fields(name), **shared}) == config.changed:
            return name
    return ""


def _without_defaults(fields: Mapping[str, object]) -> Fields:
    """The fields whose values are not their defaults."""
    specs = Config.specs()
    return {name: value for name, value in fields.items() if value != specs[name].default}


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
