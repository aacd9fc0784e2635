"""Works of what is shown: figures, the page after a move, the table of designs, a link; see
`works`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from explorer.app.explore.comparison import Column, Comparison, groups
from explorer.app.explore.drawing import Drawing
from explorer.app.explore.pins import Known
from explorer.app.explore.question import Asking
from explorer.app.explore.selections import LayerSelection, matrix_list, statistic_list
from explorer.app.link.links import Links
from explorer.app.page import ExplorePart, Page
from explorer.app.roster import Entry
from explorer.app.tabs import tabs
from explorer.app.widgets.chart import Chart
from explorer.config import Config
from explorer.diagnosis import diagnose
from explorer.diagnosis.agreement import agreement
from explorer.figures import FIGURES, LegendEntry
from explorer.measuring import measure
from explorer.profile import Profile
from explorer.theory import predict

Configs = Sequence[Config]
"""The present design first, then those that are pinned."""
Ready = Callable[[int], float | None]
"""Work that is prepared, given the number of the repetition; what it counts, or None if its time
counts."""


def fresh(config: Config, number: int) -> Config:
    """A design that nothing is remembered of."""
    return config.replace(init_variance=config.init_variance * (1 + (number + 1) / 1024))


def void(_: object) -> None:
    """Drops a result: only its time counts."""


def profiles(configs: Configs) -> list[tuple[Profile, Profile]]:
    """Of each design the theory's and the measured profile."""
    return [(predict(config), measure(config)) for config in configs]


def figures(pairs: Sequence[tuple[Profile, Profile]]) -> list[dict[str, Any]]:
    """Every figure of the page with all designs, and the badges of the first."""
    shown = [
        (profile, LegendEntry(index, pair[0].config, f"design {index}"))
        for index, pair in enumerate(pairs)
        for profile in pair
    ]
    for row in FIGURES.values():
        agreement(pairs[0][1], pairs[0][0], row.statistic) if row.statistic else None
    return [row.draw(*map(list, zip(*shown, strict=True))).to_dict() for row in FIGURES.values()]


def drawing(configs: Configs) -> Ready:
    pairs = profiles(configs)
    return lambda _: void(figures(pairs))


def sent(configs: Configs) -> Ready:
    found = figures(profiles(configs))
    return lambda _: float(
        sum(len(json.dumps(figure, default=lambda array: array.tolist())) for figure in found)
    )


def diagnosing(configs: Configs) -> Ready:
    measured = measure(configs[0])
    return lambda _: void(diagnose(measured))


def page(configs: Configs) -> Ready:
    """All that is drawn after a move: every chart, the legend and the table of the pinned
    designs."""
    charts = {row.name: Chart(title=row.title) for row in FIGURES.values()}
    now = [profiles([fresh(configs[0], number)])[0] for number in range(3)]
    shown = [now[0]]
    found = {
        config: Known(*pair)
        for config, pair in zip(configs[1:], profiles(configs[1:]), strict=True)
    }
    comparison = Comparison(
        void,
        lambda: shown[0][0].config or configs[0],
        found.__getitem__,
        void,
        lambda: None,
        diagnose,
    )
    for config in found:
        comparison.pins.add(Entry(config))
    drawing = Drawing(
        charts,
        comparison,
        matrix_list(lambda: None),
        statistic_list(lambda: None),
        LayerSelection(configs[0], lambda: None),
        Asking(charts),
    )

    def once(number: int) -> None:
        shown[0] = now[number % len(now)]
        drawing.draw(*shown[0], stale=False)

    return once


def table(configs: Configs) -> Ready:
    columns = [
        Column(LegendEntry(index, config, f"design {index}"), config, Known(*pair))
        for index, (config, pair) in enumerate(zip(configs, profiles(configs), strict=True))
    ]
    return lambda _: void(groups(columns, diagnose))


def link(configs: Configs) -> Ready:
    entries = tuple(Entry(config, f"design {index}") for index, config in enumerate(configs[1:]))
    links, page = (
        Links(tabs()),
        Page("explore", {"explore": ExplorePart(configs[0], entries)}),
    )
    return lambda _: void(links.write(page))
