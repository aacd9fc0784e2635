"""The design of a stack, gathered block by block: its twin, and the layers that are unlike their siblings."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from explorer.probes.branches import Anatomy
from explorer.probes.differences import Difference, differences
from explorer.probes.facts import Facts, read_facts
from explorer.probes.graph import Node
from explorer.probes.source import Source, ends_with_norm, read_source
from explorer.probes.twin import Twin, twin_of

UNREADABLE = (RuntimeError, ValueError, TypeError, IndexError, KeyError, ArithmeticError)
"""What a block that is built in no known way may cause; it is then said to be unread, and measured all the same."""


class Design:
    """What is read of each block of one stack."""

    def __init__(self) -> None:
        self.layers: list[Facts] = []
        self.unread: list[str] = []
        self.source: Source | None = None
        self.tail: Sequence[Node] = ()
        """What was computed after the block that ran last."""

    def begin(self, stream: Tensor) -> None:
        """The first block's input, `[batch, token, d]`."""
        self.source = read_source(stream)

    def take(self, path: str, found: Anatomy) -> None:
        """Reads a block whose tensors are still there."""
        try:
            self.layers.append(read_facts(found))
        except UNREADABLE as error:
            self.unread.append(f"the design of {path}: {type(error).__name__}: {error}")
            self.layers.append({})

    def end(self) -> None:
        """The model has run."""
        if self.source is not None:
            self.source = self.source._replace(final=ends_with_norm(self.tail))
        self.tail = ()

    def twin(self, model: str) -> Twin | None:
        """The nearest design of ours."""
        if self.source is None:
            return None
        return twin_of(self.layers, self.source, model, tuple(self.unread))

    def shapes(self) -> dict[str, tuple[int, int]]:
        """`(fan_in, fan_out)` of each matrix that all layers have in one shape."""
        names = [name for name, fact in (self.layers[0] if self.layers else {}) if fact == "shape"]
        found = {name: {facts.get((name, "shape")) for facts in self.layers} for name in names}
        return {name: one for name, sizes in found.items() if len(sizes) == 1 and (one := sizes.pop()) is not None}

    def differences(self) -> tuple[Difference, ...]:
        """Layers that are built otherwise than their siblings."""
        return differences(self.layers)
