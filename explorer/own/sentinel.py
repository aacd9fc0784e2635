"""The first value that is not finite: where, at which step, forward or backward. Looked for at every step.

Each look leaves one number on the device; at the end of a step a handful of calls turns them into the earliest place,
and nothing waits for the device before a reading does.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from explorer.own.sums import wide_on

NEVER, PLACES = 2**53, 2**20
"""A step and a position within it are one whole number, position last, that float64 still holds exactly."""


class Breakdown(NamedTuple):
    """Where a value first was not finite."""

    step: int
    """Updates made before it."""
    module: str
    """Whose output it is in, or whose output's gradient."""
    direction: str
    """forward or backward."""

    def __str__(self) -> str:
        signal = "output" if self.direction == "forward" else "gradient by the output"
        return f"step {self.step}, {self.direction}: the {signal} of {self.module}"


class Sentinel:
    """Gathers the largest |x| of every place, and remembers when each first was not finite.

    Args:
        places: what the places are called.
    """

    def __init__(self, places: list[str]) -> None:
        self.places = places
        self.pending: list[tuple[int, Tensor]] = []
        self.earliest: Tensor | None = None
        self.known: tuple[tuple[int, ...], Tensor, Tensor] | None = None

    def look(self, place: int, backward: bool, largest: Tensor) -> None:
        """Takes the largest |x| at a place."""
        self.pending.append((2 * place + backward, largest))

    def fold(self, step: int) -> None:
        """Ends a step: keeps the earliest time of each place that was not finite."""
        if not self.pending:
            return
        order = tuple(place for place, _ in self.pending)
        if self.earliest is None:
            device = self.pending[0][1].device
            self.earliest = torch.full((2 * len(self.places),), NEVER, dtype=torch.int64, device=device)
        device = self.earliest.device
        values = torch.stack([value.to(device, torch.float32, non_blocking=True) for _, value in self.pending])
        if self.known is None or self.known[0] != order:
            index = torch.tensor(order, device=device)
            self.known = order, index, torch.arange(len(order), device=device)
        now = (self.known[2] + step * PLACES).masked_fill(values.isfinite(), NEVER)
        self.earliest.scatter_reduce_(0, self.known[1], now, "amin")
        self.pending.clear()

    def times(self, device: torch.device) -> Tensor:
        """`[2 place]`, negative, so that the maximum over processes is the earliest."""
        if self.earliest is None:
            return torch.full((2 * len(self.places),), -float(NEVER), dtype=wide_on(device), device=device)
        return -self.earliest.to(device, wide_on(device))

    def first(self, times: Tensor) -> Breakdown | None:
        """The earliest of all places, from what `times` gave."""
        if not len(times) or float(times.max()) == -NEVER:
            return None
        place = int(times.argmax())
        step = int(-times[place]) // PLACES
        return Breakdown(step, self.places[place // 2], ("forward", "backward")[place % 2])
