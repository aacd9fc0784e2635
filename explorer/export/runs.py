"""Runs of layers whose norms stand at the same places, each with a class of its own, and the list of all layers."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from explorer.config import Config
from explorer.export.factors import factor
from explorer.export.mixing import starts_by_number
from explorer.schemes.attention import attends
from explorer.schemes.placement import Placement, placements

LONGEST = 76
"""Letters of a list that stands on one line."""


class Run(NamedTuple):
    """Layers in a row that have their norms at the same places."""

    name: str
    """Name of their class."""
    numbers: tuple[int, ...]
    """Theirs, from 1."""
    alike: tuple[int, ...]
    """Numbers of all layers of the class."""


def runs(config: Config) -> list[Run]:
    """All layers, in order."""
    keys = [_arrangement(config, layer) for layer in range(1, config.n_layers + 1)]
    spans = [tuple(numbers) for _, numbers in groupby(range(1, len(keys) + 1), key=lambda layer: keys[layer - 1])]
    kinds = list(dict.fromkeys(keys))
    names = ["Layer"] if len(kinds) == 1 else [f"Layer{1 + index}" for index in range(len(kinds))]
    if len(kinds) == len(spans) == 2:
        names = ["FirstLayer", "Layer"] if len(spans[0]) == 1 else ["EarlyLayer", "LateLayer"]
    alike = {kind: tuple(layer for layer, key in enumerate(keys, 1) if key == kind) for kind in kinds}
    return [Run(names[kinds.index(kind)], numbers, alike[kind])
            for numbers in spans for kind in (keys[numbers[0] - 1],)]


def _arrangement(config: Config, layer: int) -> tuple[Placement, ...]:
    """The norms of a layer, without the factors."""
    places = placements(config)[2 * layer - 2 + (not attends(config)): 2 * layer]
    return tuple(place._replace(scale=1.0, skip=1.0, branch=1.0, reads=1.0) for place in places)


def stacked(config: Config) -> str:
    """Text of the list of all layers."""
    every = runs(config)
    parts = [_several(config, run, run is every[-1]) for run in every]
    if len(parts) == 1:
        return parts[0]
    items = [f"*({part})" if " for " in part else part for part in parts]
    if len(line := ", ".join(items)) <= LONGEST:
        return f"[{line}]"
    return "\n".join(("[", *(f"            {item}," for item in items), "        ]"))


def _several(config: Config, run: Run, last: bool) -> str:
    """Text of the layers of a run, one after the other; the last run goes on to the last layer."""
    first, end = run.numbers[0], run.numbers[-1]
    if counts(config, run):
        return f"{run.name}(number) for number in range({first}, {'N_LAYERS + 1' if last else end + 1})"
    if not last:
        return f"{run.name}()" if first == end else f"{run.name}() for _ in range({len(run.numbers)})"
    return f"{run.name}() for _ in range({'N_LAYERS' if first == 1 else f'N_LAYERS - {first - 1}'})"


def counts(config: Config, run: Run) -> bool:
    """Whether the layers of a run take their number as an argument."""
    return "number" in "".join(kept(config, run)) or starts_by_number(config)


def kept(config: Config, run: Run) -> list[str]:
    """Lines that keep factors which differ from layer to layer."""
    first = int(not attends(config))
    lines = [factor(config, kind, branch, run.alike).kept for kind in ("scale", "skip", "branch")
            for branch in (0, 1)[first:]]
    return list(dict.fromkeys(filter(None, lines)))
