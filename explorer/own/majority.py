"""The facts that most layers of a stack share, and sentences on those that could not be read or expressed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from explorer.own.facts import Facts

EXACT = 0.02
"""Up to which share a number that was read is taken for one of a table's."""
GAINED = 0.05
"""From this deviation on a gain is not taken for 1."""


class Majority:
    """The facts of all layers."""

    def __init__(self, layers: Sequence[Facts]) -> None:
        self.layers = layers
        self.unread: list[str] = []
        self.differs: list[str] = []
        self.parts: list[str] = []

    def usual(self, site: str, name: str, default: Any = None) -> Any:
        """The most common value of a fact over the layers, or the default where no layer has it."""
        values = [facts[site, name] for facts in self.layers if (site, name) in facts]
        if not values:
            return default
        return Counter(values).most_common(1)[0][0]

    def middle(self, site: str, name: str) -> float:
        """The median of a number over the layers."""
        values = [facts[site, name] for facts in self.layers if (site, name) in facts]
        return float(np.median(values)) if values else np.nan
