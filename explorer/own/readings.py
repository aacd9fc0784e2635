"""A reading: what one step's pass, gradients and update came to, and tables and profiles of readings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd

from explorer.profile import VOCABULARY, Array, Key, Profile, tidy

COLUMNS = ["step", "layer", "site", "head", "statistic", "value"]
UNITS: Mapping[str, str] = MappingProxyType({
    "mean": "mean of x over batch, token and coordinate",
    "second_moment": "mean of x²",
    "fourth_moment_ratio": "mean of x⁴ over the squared mean of x²: 3 for a normal distribution, more with outliers",
    "max_abs": "largest |x|",
    "nonfinite": "how many numbers are not finite",
    "activation_gradient": "mean of (∂L/∂x)² per coordinate, relative to the last layer",
    "largest_logit": "largest attention logit of a head, after scale and mask",
    "attention_entropy": "mean over rows of their entropy, nats",
    "attention_entropy_normalized": "mean over rows of their entropy over ln(visible keys)",
    "attention_max": "mean over rows of the largest weight",
    "parameter_gradient": "Frobenius norm of the gradient by a matrix, as the optimizer sees it",
    "update_ratio": "Frobenius norm of a step's change of a matrix, over the matrix's own",
    "weight_norm": "Frobenius norm of a matrix before the step",
})
"""Statistics of a reading and their definitions."""


class Reading(NamedTuple):
    """One step, read."""

    step: int
    """Updates made before it: 0 is the model as it was drawn."""
    values: Mapping[Key, Array]
    """`(statistic, site)` to `[layer]` or `[layer, head]`; `[]` of a matrix that is in no block. Site `embed` has the
    single layer 0."""
    seen: Mapping[Key, Array]
    """Where layers lack a statistic that others have: 1 where it is, of the values' shape; nan stands where it is not.
    """
    dtype: str
    """Data type of the stream."""
    notes: Mapping[str, str]
    """Statistic to why it is absent, or unlike what one expects; as a profile has them."""

    def frame(self) -> pd.DataFrame:
        """Tidy: one number a row; columns step, layer, site, head, statistic, value."""
        columns, held = _columns(tuple((key, value.shape) for key, value in self.values.items())), self.seen
        values = np.concatenate([value.ravel() for value in self.values.values()] or [np.empty(0)])
        frame = columns.assign(step=self.step, value=values)[COLUMNS]
        if held:
            there = [held.get(key, np.ones(value.shape)).ravel() for key, value in self.values.items()]
            frame = frame[np.concatenate(there) > 0].reset_index(drop=True)
        return frame

    def profile(self, model: str, layers: tuple[str, ...]) -> Profile:
        """The part that profiles have words for."""
        values = {key: value[None] for key, value in self.values.items()
                  if key[0] in VOCABULARY and value.ndim and key not in self.seen}
        return Profile("measured", values, model=model, layers=layers, dtype=self.dtype, step=self.step,
                       notes=self.notes)


def frames(readings: Iterable[Reading]) -> pd.DataFrame:
    """All readings, one below the other."""
    parts = [reading.frame() for reading in readings]
    if not parts:
        return pd.DataFrame(columns=COLUMNS)
    return pd.concat(parts, ignore_index=True)


def gather(cells: Mapping[Key, Mapping[int | None, Array]], n_layers: int) -> tuple[dict[Key, Array], dict[Key, Array]]:
    """Numbers by layer to arrays over layers, and where they are if some layers have none."""
    values: dict[Key, Array] = {}
    seen: dict[Key, Array] = {}
    for key, by_layer in cells.items():
        if None in by_layer:
            values[key] = by_layer[None]
            continue
        length = 1 if key[1] == "embed" else n_layers
        shape = tuple(np.max([value.shape for value in by_layer.values()], axis=0))
        values[key], there = np.full((length, *shape), np.nan), np.zeros((length, *shape))
        for layer, value in by_layer.items():
            place = (layer, *map(slice, value.shape))
            values[key][place], there[place] = value, 1
        if not there.all():
            seen[key] = there
    return values, seen


@lru_cache(maxsize=16)
def _columns(shapes: tuple[tuple[Key, tuple[int, ...]], ...]) -> pd.DataFrame:
    """All columns but step and value, which readings have in common."""
    parts = [tidy(key, np.zeros((1, *shape))) for key, shape in shapes]
    frame = pd.concat(parts, ignore_index=True) if parts else tidy(("", ""), np.zeros(0))
    return frame.drop(columns=["row", "value"])
