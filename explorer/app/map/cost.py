"""What a map costs, before it is computed: about, from the sizes of its designs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from explorer.app.explore.sweep_work import work
from explorer.choices import ConfigError
from explorer.sweeping.sweeps import Sweep

MOST_MINUTES = 120
"""Minutes of one processor that a map may take, about."""


class Cost(NamedTuple):
    """Seconds of one processor for a cell; of a trained one, for a step."""

    least: float
    layer: float
    unit: float
    """Of `work`."""


COSTS: Mapping[str, Cost] = MappingProxyType({
    "predicted": Cost(0.003, 0.0001, 0.0), "measured": Cost(0.02, 0.008, 3.5e-10), "trained": Cost(0.01, 0.005, 1e-10),
})


def minutes(sweep: Sweep) -> float:
    """Minutes of one processor that the cells take that are not there yet, right to a factor of three or so."""
    total = 0.0
    for place, point in sweep.grid.points.items():
        if (cell := point.cell) and not sweep.state[place]:
            cost = COSTS[cell.origin]
            one = cost.least + cost.layer * cell.config.n_layers + cost.unit * work(cell.config)
            total += one * (cell.training.steps if cell.training else 1)
    return total / 60


def check(sweep: Sweep) -> None:
    """Raises ConfigError where a map would take hours."""
    if (needed := minutes(sweep)) > MOST_MINUTES:
        raise ConfigError(f"the map must take at most about {MOST_MINUTES} minutes of one processor; got about "
                          f"{needed:,.0f}: take fewer values, a smaller design, or theory alone")
