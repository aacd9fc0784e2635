"""Results of measuring, before they are a profile; and the function that computes them, here or elsewhere. No torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from explorer.config import Config
from explorer.profile import Array, Key
from explorer.stopping import Stop


class Run(NamedTuple):
    """The numbers of the seeds that share a pass."""

    values: list[dict[Key, Array]]
    """For each seed, statistic and site to `[layer]` or `[layer, head]`."""
    pattern: Array | None
    """The attention pattern that is kept, of the first of them."""


Compute = Callable[
    [Config, Sequence[range], tuple[int, int], bool, Stop, Callable[[int, float], None], Callable[[Run], None]], None]
"""Computes the runs of a config, each the seeds of one pass. After them it takes `measure`'s pattern_of, backward and
stop, a function called with the number of a run and the fraction of it that is done, from any thread, and one called
with the result of each, in order and on the calling thread."""


@dataclass(frozen=True, eq=False)
class Update:
    """One step W ← W − η ∂L/∂W of every parameter, on one batch; arrays are `[seed]`, float64."""

    learning_rate: float
    """η."""
    loss: Array
    """Before the step."""
    change: Array
    """Loss after the step, on the same batch, minus the loss before."""
    first_order: Array
    """−η ‖∇L‖², which the change approaches as η goes to 0."""

    @property
    def ratio(self) -> Array:
        """The change over its first-order prediction, `[seed]`: 1 for a small step; nan where no gradient is left."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self.change / self.first_order)

    @property
    def gradient(self) -> Array:
        """‖∇L‖², `[seed]`, summed over all parameters."""
        return -self.first_order / self.learning_rate
