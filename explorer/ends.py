"""Values at the end of a stack: one number of each statistic, with its spread over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from explorer.profile import Profile
from explorer.sites import MATRICES, STREAM
from explorer.translation import translated, with_messages
from explorer.vocabulary import STATISTICS, Array, AtEnd, Statistic


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


@with_messages("title", "words")
@dataclass(frozen=True, eq=False)
class End:
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


def _last_layer(row: Statistic, profile: Profile) -> tuple[Array, str] | None:
    """The value after the last layer, at the last of the statistic's sites in a layer."""
    site = STREAM[-1] if row.on_stream else row.sites[-1]
    values = profile.values.get((row.name, site))
    return None if values is None else (values[:, -1], "")


def _input(row: Statistic, profile: Profile) -> tuple[Array, str] | None:
    """The value at the input of the first layer."""
    values = profile.values.get((row.name, STREAM[0]))
    return None if values is None else (values[:, 0], "")


def _largest_matrix(row: Statistic, profile: Profile) -> tuple[Array, str] | None:
    """The value of the matrix whose mean over seeds is the largest, and where that is."""
    matrices = [matrix for matrix in MATRICES if (row.name, matrix) in profile.values]
    if not matrices:
        return None
    every = np.stack([profile[row.name, matrix] for matrix in matrices])  # [matrix, seed, layer]
    mean = row.mean(every, axis=1)
    matrix, layer = np.unravel_index(np.argmax(mean), mean.shape)
    where = translated("{matrix}, layer {layer}", matrix=matrices[matrix], layer=layer + 1)
    return every[matrix, :, layer], where


def _first_token(row: Statistic, profile: Profile) -> tuple[Array, str] | None:
    """The value of the first token in the last layer."""
    values = profile.values.get((row.name, row.sites[0]))
    return None if values is None else (values[:, -1, 0], "")


_READERS = {
    "last layer": _last_layer,
    "input": _input,
    "largest matrix": _largest_matrix,
    "first token": _first_token,
}


def _end(row: Statistic) -> End:
    """The end of a statistic, as its row says."""
    if row.end is not None:
        end = row.end
    elif row.by_head:
        end = AtEnd(row.label, "The median head of the last layer.", row.symbol)
    elif row.on_stream:
        end = AtEnd(row.label, "The stream after the last layer.", row.symbol)
    else:
        end = AtEnd(row.label, "The last layer.", row.symbol)
    return End(row.name, end.title, end.words, end.symbol, partial(_READERS[end.place], row))


_FIRST = (
    "second_moment",
    "activation_gradient",
    "attention_entropy_normalized",
    "token_correlation",
    "parameter_gradient",
)
"""Statistics that lists begin with."""
ENDS: Mapping[str, End] = MappingProxyType(
    {
        name: _end(STATISTICS[name])
        for name in dict.fromkeys((*_FIRST, *STATISTICS))
        if STATISTICS[name].end or (STATISTICS[name].caption and not STATISTICS[name].by_position)
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
        value = draws.item()
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
