"""Taps: functions that are shown each named tensor of a pass as it is made, and must not change
it."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

Tap = Callable[[str, int, Tensor], None]
"""Called with the name of a site (see `explorer.sites`), the layer from 1 (0 of the embedding) and
the tensor."""


def ignore(site: str, layer: int, tensor: Tensor) -> None:
    """The tap of a pass of which nothing is read."""
