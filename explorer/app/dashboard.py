"""`dashboard()`: the whole page as one widget, in a notebook, in Voilà or on Binder alike."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol, runtime_checkable

from comm import get_comm_manager

from explorer.app import still
from explorer.app.explore.panel import Explore
from explorer.app.link.links import Links, in_a_sentence
from explorer.app.map.panel import MapPanel
from explorer.app.map.plan import MapPart, over
from explorer.app.page import HasPart, Page, Tab, Undo
from explorer.app.stories.telling import Telling
from explorer.app.tabs import tabs
from explorer.app.view import WHOLE, View, parts
from explorer.app.widgets.header import Header
from explorer.app.widgets.parts import LOCK, PageWidget, Part
from explorer.config import Config
from explorer.display import must_be
from explorer.translation import speaking, spoken

STAY = "explorer.stay"
"""Target of a comm that a browser opens to say that somebody is there; see `page.js`."""


@runtime_checkable
class Hiding(Protocol):
    """Whatever can hide a part of itself."""

    def look(self, view: View) -> None:
        """Shows what a view has of it, and hides the rest."""


@runtime_checkable
class Welcoming(Protocol):
    """A panel that takes over designs of the Explore panel."""

    def welcome(self, designs: list[tuple[str, Config]]) -> None:
        """Offers designs, by name, beside its own."""


class Dashboard(PageWidget):
    """The page: a header, and the panels in tabs, each built when it is first opened and kept from
    then on.

    Args:
        config: the design that the page starts with.
        panels: some of `tabs()`; None is all of them.
    """

    def __init__(self, config: Config, panels: Mapping[str, Tab] | None = None) -> None:
        if panels is None:
            panels = tabs()
        self._start, self._rows = config, dict(panels)
        self.panels: dict[str, Part] = {}
        """The panels that are built, by name."""
        self.view = WHOLE
        self._links, self._start_link = Links(panels), ""
        self._opening = self._links.parse("")[0].panels
        self._unopened: dict[str, object] = {}
        """Parts of panels that are not built yet."""
        self.telling = Telling(self, self._links)
        titles = {name: row.title for name, row in panels.items()}
        self.header = Header(
            stories=bool(self.telling.strip.cards), tabs=list(titles.values()), parts=parts(titles)
        )
        self._above = [self.header, self.telling.strip, self.telling.daring.card]
        super().__init__(Part(self._above, classes=("ex-root",)))
        self.header.observe(self._select, names="selected")
        self.show(next(iter(self._rows)))
        explore = self.panels.get("explore")
        if isinstance(explore, Explore) and config == Config():
            self.telling.daring.join(explore)
        self._steps = Undo(self.page)
        self.header.on_act(self._act)
        get_comm_manager().register_target(STAY, lambda comm, _: comm.close())

    def __repr__(self) -> str:
        return f"Dashboard({self._start!r})"

    def still(self) -> str:
        """The theory of the first design, as HTML that needs no script."""
        explore = self.panels.get("explore")
        return still.page(explore.controls.config if isinstance(explore, Explore) else self._start)

    # --- panels -----------------------------------------------------------------------------------

    def show(self, name: str) -> Part:
        """Shows a panel, and hides the others: they keep what they show.

        It is offered the designs that the Explore panel has at that moment, if it takes any.
        """
        if name not in self.panels:
            self.panels[name] = self._rows[name].build(self._start)
            self._hide_all_but(name)  # before it comes: two at a time would make the page jump
            self.top.children = [*self._above, *self.panels.values()]
            self._hand(name)
            self._join(self.panels[name])
            if not self.view.whole:
                self._look_at(self.panels[name])
        self.header.selected = list(self._rows).index(name)
        self._hide_all_but(name)
        self.telling.daring.show(beside_explore=name == "explore")
        panel, explore = self.panels[name], self.panels.get("explore")
        if isinstance(panel, Welcoming) and isinstance(explore, Explore):
            panel.welcome(designs(explore))
        if isinstance(panel, MapPanel) and isinstance(explore, Explore):
            panel.meet(lambda: explore.controls.config, self.explore)
        return panel

    def _join(self, panel: Part) -> None:
        """Joins a new Explore panel to the Map, where the page has one."""
        if isinstance(panel, Explore) and "map" in self._rows:
            panel.meet(partial(self._map_over, panel))

    def _hide_all_but(self, name: str) -> None:
        for other, panel in self.panels.items():
            panel.hidden = other != name

    def _select(self, _: object) -> None:
        names, index = list(self._rows), self.header.selected
        self.show(names[index] if 0 <= index < len(names) else self.opened)

    @property
    def opened(self) -> str:
        """Name of the panel that is shown."""
        return next(name for name, panel in self.panels.items() if not panel.hidden)

    def explore(self, config: Config) -> None:
        """Puts a design on the Explore panel, and shows it."""
        panel = self.show("explore")
        if isinstance(panel, Explore):
            panel.controls.apply(config.model_dump())

    def _map_over(self, explore: Explore, field: str) -> None:
        """Shows the map of one axis of the Explore panel's design over one of its fields."""
        config, page = explore.controls.config, self.page
        part = MapPart(config, over(field, config))
        self.restore(replace(page, open="map", panels={**page.panels, "map": part}))

    # --- the page as a record ---------------------------------------------------------------------

    @property
    def link(self) -> str:
        """All that a person has set, as a query that `open_link` reads; empty for the page as it
        opens."""
        return self._links.write(self.page)

    def open_link(self, link: str) -> list[str]:
        """Makes the page that a link stands for.

        Args:
            link: an address, its query, or what `link` gave.
        Returns:
            A sentence for each part that was not understood; the page says them as well.
        """
        with LOCK:
            page, sentences = self._links.parse(link)
            self.restore(page)
            self.header.said = in_a_sentence(sentences)
            if link:
                self.telling.strip.shown = False
                self.telling.daring.leave()
            self.follow()
            return sentences

    def start_at(self, link: str) -> None:
        """Opens a link as the page's first: no step leads back from it, and where it hides
        anything, *Reset all* leads back to it."""
        self.open_link(link)
        self._start_link = "" if self.view.whole else self.link
        self._steps = Undo(self.page)

    @property
    def page(self) -> Page:
        """All that a person has set; panels that were never opened are as they open."""
        built = {
            name: panel.part for name, panel in self.panels.items() if isinstance(panel, HasPart)
        }
        return Page(
            self.opened, {**self._opening, **self._unopened, **built}, self.view, self.telling.place
        )

    def restore(self, page: Page) -> None:
        """Makes a page; panels that are not built yet get their part when they are."""
        # a question comes before its design: what it withholds is never on the page
        self.telling.restore(page.story)
        self._unopened |= page.panels
        for name in self.panels:
            self._hand(name)
        self.show(page.open)
        if page.view != self.view:
            self.look(page.view)
        self.telling.point()

    def _hand(self, name: str) -> None:
        """Gives a panel the part that waits for it, if there is one."""
        panel = self.panels[name]
        if name in self._unopened and isinstance(panel, HasPart):
            wanted = self._unopened.pop(name)
            if wanted != panel.part:
                panel.restore(wanted)

    def look(self, view: View) -> None:
        """Shows what a view has of the page; a panel that it does not have is not left open."""
        self.view = view
        for panel in self.panels.values():
            self._look_at(panel)
        names = list(self._rows)
        shown = [name for name in names if view.opens(name)]
        self.header.hidden_tabs = [names.index(name) for name in names if name not in shown]
        # they would set what is fixed
        self.header.stories = view.whole and bool(self.telling.strip.cards)
        (self.top.add_class if view.embed else self.top.remove_class)("ex-embed")
        if self.opened not in shown:
            self.show(shown[0])

    def _look_at(self, panel: Part) -> None:
        if isinstance(panel, Hiding):
            panel.look(self.view)

    def follow(self) -> None:
        """Notes what a person has changed: for the address, and for undo."""
        with LOCK:
            self._steps.note(self.page)
            self._say()

    def _say(self, *, arrived: bool = False) -> None:
        """Tells the header what can be undone, and the link once a browser has asked for it."""
        header, steps = self.header, self._steps
        header.undoes, header.redoes = bool(steps.past), bool(steps.future)
        if arrived or header.link is not None:
            header.link = self._links.write(steps.now)

    def _act(self, message: object) -> None:
        """Handles a message of the header."""
        match message:
            case ["shown", str() as query]:
                self._arrive(query)
            case ["open", str() as link]:
                self.open_link(link)
            case ["code", str() as link]:
                self.header.draw_code(link)
            case ["stories"]:
                self.telling.strip.shown = not self.telling.strip.shown
            case ["undo"]:
                self._show_step(self._steps.back())
            case ["redo"]:
                self._show_step(self._steps.forth())
            case ["reset"]:
                self.open_link(self._start_link)

    def _arrive(self, query: str) -> None:
        """Opens what the address of a browser holds, when the page is first put together."""
        if self.header.link is None and query:
            self.start_at(query)
        self._say(arrived=True)

    def _show_step(self, page: Page) -> None:
        """Shows the page that an undo or a redo leads to."""
        self.restore(page)
        # a panel may hold another record than it was given; `follow` would take that for a change
        self._steps.now = self.page
        self.header.said = ""
        self._say()


def designs(explore: Explore) -> list[tuple[str, Config]]:
    """The pinned designs and the current one, by name."""
    pins, now = explore.comparison.pins, explore.controls.config
    pinned = [(pin.name, pin.config) for pin in pins]
    return pinned if pins.holder(now) else [*pinned, (pins.name_for(now), now)]


def dashboard(start: Config | str | None = None, language: str = "") -> Dashboard:
    """The page, live: display it as the last line of a cell.

    Args:
        start: the design to start with, or a link of the page, as *Share* gives it; the default
            `Config` when left out. What is not understood of a link is ignored, and the page says
            so.
        language: of the page, "en" or "zh"; that of the process when left out, see `ex.language`.
    Raises:
        TypeError: the start is neither.
        ValueError: there is no such language.

    Example:
        In a notebook, by a config or by a link::

            ex.dashboard(ex.preset("post_ln", n_layers=24))
            ex.dashboard("?design=post_ln&n_layers=24")  # the same by a link
    """
    if start is None:
        # as Voilà hands it to a kernel that it starts for a visitor
        start = os.environ.get("QUERY_STRING", "")
    with speaking(language or spoken()):
        if not isinstance(start, str):
            return Dashboard(must_be(Config, "start", start))
        page = Dashboard(Config())
        page.start_at(start)
        return page
