"""`dashboard()`: the whole page as one widget, in a notebook, in Voilà or on Binder alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import ipywidgets as widgets
from IPython.display import display

from explorer.app import still
from explorer.app.explore.panel import Explore
from explorer.app.labs.labs import Labs, tab
from explorer.app.race.panel import RacePanel
from explorer.app.widgets.header import Header
from explorer.app.widgets.panel import send_again
from explorer.app.widgets.tabbed import Tab, Tabbed
from explorer.app.widgets.worker import Progress, Stop
from explorer.app.yours.panel import YourModel
from explorer.config import Config
from explorer.diagnosis import diagnose
from explorer.display import must_be
from explorer.labs.table import LABS, on
from explorer.profile import Profile
from explorer.theory import predict
from explorer.theory.solve import solve


def measure(config: Config, stop: Stop, progress: Progress, pattern_of: tuple[int, int]) -> Profile:
    """`explorer.probes.measure`, imported on the worker's thread: torch takes a second, and the page need not wait."""
    from explorer.probes import measure as measured

    return measured(config, stop, progress, pattern_of)


def example() -> Profile:
    """`explorer.example.encoder`, imported on the worker's thread as well."""
    from explorer.example import encoder as measured

    return measured()


def _labs(title: str) -> Tab[Config]:
    """The tab of the labs that name it as their panel."""
    return Tab(title, lambda _: Labs(on(title)))


PANELS: Mapping[str, Tab[Config]] = MappingProxyType({
    "explore": Tab("Explore", lambda config: Explore(config, measure, predict, diagnose, solve)),
    **{title.lower(): _labs(title) for title in ("Foundations", "Depth", "Training")},
    "race": Tab("Race", lambda _: RacePanel()),
    "yours": Tab("Your model", lambda _: YourModel(example, predict, diagnose)),
})


class Dashboard(Tabbed[Config]):
    """The page: a header, and the panels, each built when it is first opened.

    Args:
        config: the design that the page starts with.
        panels: rows of `PANELS`.
        still: what stands for it in a saved notebook, as HTML; drawn when the page is displayed.
    """

    def __init__(self, config: Config, panels: Mapping[str, Tab[Config]] = PANELS,
                 still: Callable[[Config], str] = still.page) -> None:
        super().__init__(Header(), config, panels)
        self._still = still
        self.add_class("ex-root")
        self.header.on_shown(lambda: send_again(self))
        self.header.labs = [name for name, row in LABS.items() if row.panel.lower() in panels]
        self.header.on_lab(self.open_lab)

    def __repr__(self) -> str:
        return f"Dashboard({self._start!r})"

    def _ipython_display_(self) -> None:
        """Two outputs, see `still`: a notebook calls this for the last line of a cell."""
        for bundle in (self._repr_mimebundle_(), {"text/html": self._still(self._start), "text/plain": ""}):
            display(bundle, raw=True)  # type: ignore[no-untyped-call]

    def open_lab(self, name: str) -> None:
        """Shows the panel of a lab that this page has, and in it the lab."""
        panel = self.show(LABS[name].panel.lower())
        if isinstance(panel, Tabbed):
            panel.show(name)

    def show(self, name: str) -> widgets.Widget:
        """Shows a panel; a race is offered the designs that the Explore panel has at that moment."""
        panel, explore = super().show(name), self.panels.get("explore")
        if isinstance(panel, RacePanel) and isinstance(explore, Explore):
            panel.preparation.welcome(designs(explore))
        return panel


def designs(explore: Explore) -> list[tuple[str, Config]]:
    """The pinned designs and the current one, by name."""
    pins, now = explore.comparison.pins, explore.controls.config
    pinned = [(pin.name, pin.config) for pin in pins]
    return pinned if pins.holder(now) else [*pinned, (pins.name_for(now), now)]


def dashboard(config: Config | None = None) -> Dashboard:
    """The page, live: display it as the last line of a cell.

    Args:
        config: the design to start with; the default `Config` when left out.
    Raises:
        TypeError: the config is none.
    """
    return Dashboard(Config() if config is None else must_be(Config, "config", config))


def lab(name: str) -> Dashboard:
    """One lab as a page of its own: display it as the last line of a cell.

    Args:
        name: such as "01_sampling".
    Raises:
        TypeError: the name is not a str.
        ValueError: there is no such lab.
    """
    if must_be(str, "name", name) not in LABS:
        raise ValueError(f"lab must be one of {', '.join(LABS)}; got {name!r}")
    return Dashboard(Config(), {name: tab(LABS[name])}, lambda _: still.lab(LABS[name]))
