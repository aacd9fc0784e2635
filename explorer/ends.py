"""Values at the end of a stack: one number of each statistic, with its spread over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from explorer.profile import MATRICES, STATISTICS, Array, Profile, Statistic


class Ending(NamedTuple):
    """A statistic of one profile at the end of its stack; values as they are, finite or not."""

    middle: float
    """Mean over seeds; where there are heads, median over seeds and heads."""
    low: float
    """The smallest of the seeds, and of their heads."""
    high: float
    seeds: int
    """Number of draws; 0 for a prediction."""
    where: str = ""
    """The place of the value, where the end does not say it: "W_V, layer 3"."""
    note: str = ""
    """The reason why a prediction is unreliable, or missing."""
    error: float = math.nan
    """Standard error of the mean over seeds; nan of a single one."""

    @property
    def missing(self) -> bool:
        """Whether the theory has no value here, and a note with the reason."""
        return bool(self.note) and not np.isfinite(self.middle)


class End(NamedTuple):
    """A statistic with a value at the end of a stack."""

    name: str
    """The statistic's."""
    title: str
    words: str
    """The place and the value, for a caption."""
    symbol: str
    draws: Callable[[Profile], tuple[Array, str] | None]
    """The draws, `[seed]` or `[seed, head]`, and `Ending.where`; None where the profile has
    none."""

    @property
    def row(self) -> Statistic:
        """Its row of the vocabulary."""
        return STATISTICS[self.name]


def _at(statistic: str, site: str, layer: int) -> Callable[[Profile], tuple[Array, str] | None]:
    """Reads one layer of a site, counted from 0 or from the end."""

    def at_layer(profile: Profile) -> tuple[Array, str] | None:
        values = profile.values.get((statistic, site))
        return None if values is None else (values[:, layer], "")

    return at_layer


def _largest(profile: Profile) -> tuple[Array, str] | None:
    """The gradient of the matrix whose mean is the largest, and where that is."""
    held = [matrix for matrix in MATRICES if ("parameter_gradient", matrix) in profile.values]
    if not held:
        return None
    # [matrix, seed, layer]
    every = np.stack([profile["parameter_gradient", matrix] for matrix in held])
    mean = STATISTICS["parameter_gradient"].mean(every, axis=1)
    place, layer = np.unravel_index(np.argmax(mean), mean.shape)
    return every[place, :, layer], f"{held[place]}, layer {layer + 1}"


def _first_token(profile: Profile) -> tuple[Array, str] | None:
    """The weight that the first token receives in the last layer."""
    values = profile.values.get(("attention_received", "pattern"))
    return None if values is None else (values[:, -1, 0], "")


def _last(row: Statistic) -> End:
    """A statistic at its last site, after the last layer."""
    words = (
        "The median head of the last layer."
        if row.by_head
        else "The stream after the last layer."
        if row.on_stream
        else "The last layer."
    )
    site = "resid_post" if row.on_stream else row.sites[-1]
    return End(row.name, row.label, words, row.symbol, _at(row.name, site, -1))


_FIRST = (
    "second_moment",
    "activation_gradient",
    "attention_entropy_normalized",
    "token_correlation",
    "parameter_gradient",
)
"""Statistics that lists begin with."""
_OTHERWISE: Mapping[str, End] = MappingProxyType(
    {
        end.name: end
        for end in (
            End(
                "activation_gradient",
                "Gradient, first / last layer",
                "Mean squared ∂L/∂x at the input of the first layer, relative to the last layer.",
                "γ_0 / γ_N",
                _at("activation_gradient", "embed", 0),
            ),
            End(
                "parameter_gradient",
                "Largest gradient of a matrix",
                "Over all matrices of all layers.",
                STATISTICS["parameter_gradient"].symbol,
                _largest,
            ),
            End(
                "attention_received",
                "Attention on the first token",
                "Mean weight that the first token receives in the last layer.",
                "a_1",
                _first_token,
            ),
        )
    }
)
ENDS: Mapping[str, End] = MappingProxyType(
    {
        name: _OTHERWISE.get(name) or _last(STATISTICS[name])
        for name in dict.fromkeys((*_FIRST, *STATISTICS))
        if name in _OTHERWISE or (STATISTICS[name].caption and not STATISTICS[name].by_position)
    }
)
"""Values at the end of a stack, of each statistic that the page offers."""


def endings(profile: Profile) -> dict[str, Ending]:
    """Every statistic of `ENDS` that the profile has."""
    with np.errstate(all="ignore"):
        readings = {name: end.draws(profile) for name, end in ENDS.items()}
        return {
            name: _reduced(STATISTICS[name], *reading, profile)
            for name, reading in readings.items()
            if reading
        }


def _reduced(row: Statistic, draws: Array, where: str, profile: Profile) -> Ending:
    note = profile.notes.get(row.name, "")
    if draws.size == 1:  # as of a prediction: it is its own middle, and a map has thousands
        # a number that stands alone is taken for what a draw has; a chart has its note beside it
        value = math.nan if profile.carried_by_few(row.name) else draws.item()
        return Ending(value, value, value, len(profile.seeds), where, note)
    middle, heads = (
        (np.median(draws), row.mean(draws, 1)) if draws.ndim > 1 else (row.mean(draws), draws)
    )
    error = float(row.standard_error(heads))
    return Ending(
        float(middle),
        float(np.min(draws)),
        float(np.max(draws)),
        len(profile.seeds),
        where,
        note,
        error,
    )
