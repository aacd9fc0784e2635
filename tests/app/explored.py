"""The Explore panel for tests: opened without a browser, read as the browser would get it, closed
in the end."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from watched import Watched

from explorer.app.explore.panel import Explore
from explorer.config import Config
from explorer.measuring import measure
from explorer.profile import Profile
from explorer.vocabulary import geometric_mean

SMALL = Config(n_layers=2, d_model=16, n_heads=2, n_ctx=8, batch_size=1, n_seeds=2)


def plain(value: Any) -> np.ndarray:
    """An array as it travels to the browser, read back."""
    if not isinstance(value, dict):
        return np.asarray(value)
    shape = [int(side) for side in str(value.get("shape", -1)).split(",")]
    return np.frombuffer(base64.b64decode(value["bdata"]), dtype=value["dtype"]).reshape(shape)


class Page(Watched[Explore]):
    """The Explore panel, and what its charts hold."""

    def drawn(self, name: str = "second_moment") -> np.ndarray:
        """The dots of a chart."""
        traces = self.panel.charts[name].figure["data"]
        return plain(next(trace["y"] for trace in traces if trace["mode"] == "markers"))

    def stale(self) -> set[bool]:
        return {chart.stale for chart in self.panel.charts.values()} | {self.panel.verdict.stale}


Open = Callable[..., Page]


def opened() -> Iterator[Open]:
    """A fixture's body: opens panels, waits for their first measurement where `ready`, and closes
    them."""
    panels: list[Explore] = []

    def make(
        config: Config = SMALL, measure: Any = measure, ready: bool = True, **parts: Any
    ) -> Page:
        panels.append(Explore(config, measure, **parts))
        page = Page(panels[-1])
        if ready:
            page.until("idle")
        return page

    yield make
    for panel in panels:
        panel.close()
        assert not panel.worker.alive


class Held:
    """A measurement that waits to be let go where `waits` of a design, and breaks for those in
    `broken`."""

    def __init__(self, waits: Callable[[Config], bool] = lambda _: True) -> None:
        self.waits = waits
        self.begun, self.may_end, self.left = (threading.Event() for _ in range(3))
        self.broken: set[Config] = set()
        self.asked: list[Config] = []
        self.abandoned: list[Config] = []

    def __call__(self, config: Config, stop: Any, *rest: Any) -> Profile:
        self.asked.append(config)
        if self.waits(config):
            self.begun.set()
            while not self.may_end.wait(0.01):
                if stop():
                    self.abandoned.append(config)
                    self.left.set()
                    raise InterruptedError
        if config in self.broken:
            raise MemoryError("no room")
        return measure(config, stop, *rest)


def theory(config: Config) -> Profile:
    """A line with the right sites: the measurement of another seed."""
    other = measure(config.replace(seed=7, n_seeds=1))
    return replace(other, origin="predicted", config=config, seeds=())


def some(whole: Profile, count: int, seconds: float) -> Profile:
    """The first seeds of a measurement, as if they had taken so long."""
    values = {key: value[:count] for key, value in whole.values.items()}
    return replace(whole, values=values, seeds=whole.seeds[:count], seconds=seconds)


def as_the_page(config: Config) -> Profile:
    """Measured as the page does: where the first seed is waited for, others share passes, and last
    bits differ."""
    return measure(config, on_seed=lambda partial: None)


def expected(config: Config) -> np.ndarray:
    return np.asarray(
        geometric_mean(as_the_page(config).stream("second_moment")[1]), dtype=np.float32
    )
