"""The design of a stack, gathered block by block: its twin, and the layers that are unlike their siblings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor
from torch.nn.modules.dropout import _DropoutNd

from explorer.probes.behavior import gaps
from explorer.probes.blocks import Block
from explorer.probes.branches import Anatomy
from explorer.probes.differences import FEW, Difference, differences
from explorer.probes.facts import UNREADABLE, Facts, read_facts
from explorer.probes.graph import Node
from explorer.probes.source import Source, ends_with_norm, read_source
from explorer.probes.twin import Twin, twin_of
from explorer.profile import Profile
from explorer.theory import predict


class Design:
    """What is read of each block of one stack."""

    def __init__(self) -> None:
        self.layers: list[Facts] = []
        self.paths: list[str] = []
        self.source: Source | None = None
        self.tail: Sequence[Node] = ()
        """What was computed after the block that ran last."""

    def begin(self, stream: Tensor) -> None:
        """The first block's input, `[batch, token, d]`."""
        self.source = read_source(stream)

    def take(self, block: Block, found: Anatomy) -> None:
        """Reads a block whose tensors are still there."""
        self.paths.append(block.path)
        try:
            facts = dict(read_facts(found))
            # in evaluation no number is dropped; what a module would drop says how the layer is built
            drops = [float(one.p) for one in block.module.modules() if isinstance(one, _DropoutNd)]
            facts["layer", "dropout"] = max([facts.get(("layer", "dropout"), 0.0), *drops])
            self.layers.append(facts)
        except UNREADABLE as error:
            self.layers.append({("layer", "unread"): (("design", f"{type(error).__name__}: {error}"),)})

    def end(self) -> None:
        """The model has run."""
        if self.source is not None:
            self.source = self.source._replace(final=ends_with_norm(self.tail))
        self.tail = ()

    def twin(self, measured: Profile) -> Twin | None:
        """The nearest design of ours, and how it behaves beside what was measured; None where there is none."""
        found = None if self.source is None else twin_of(self.layers, self.source, measured.model, self.unread)
        if found is None:
            return None
        beside = list(gaps(measured, predict(found.config)))
        parts = [*found.parts, *(one.words(measured.layers) for one in beside if one.apart)]
        if (count := sum(bool(facts.get(("layer", "unread"))) for facts in self.layers)) > FEW * len(self.layers):
            parts.insert(0, f"{count} of {len(self.layers)} layers could not be read")
        sizes = [one.size for one in beside if one.apart] or [0.0]
        distance = math.hypot(found.distance, math.sqrt(float(np.mean(np.square(sizes)))))
        return replace(found, distance=distance, parts=tuple(parts))

    @property
    def unread(self) -> tuple[str, ...]:
        """A sentence for each part of a layer that could not be read, and how many layers it is so in."""
        where: dict[tuple[str, str], list[str]] = {}
        for path, facts in zip(self.paths, self.layers, strict=True):
            for part in facts.get(("layer", "unread"), ()):
                where.setdefault(part, []).append(path)
        return tuple(f"the {what} of {paths[0]}{f' and {len(paths) - 1} more' if len(paths) > 1 else ''}: {why}"
                     for (what, why), paths in where.items())

    def shapes(self) -> dict[str, tuple[int, int]]:
        """`(fan_in, fan_out)` of each matrix that all layers have in one shape."""
        names = [name for name, fact in (self.layers[0] if self.layers else {}) if fact == "shape"]
        found = {name: {facts.get((name, "shape")) for facts in self.layers} for name in names}
        return {name: one for name, sizes in found.items() if len(sizes) == 1 and (one := sizes.pop()) is not None}

    def differences(self) -> tuple[Difference, ...]:
        """Layers that are built otherwise than their siblings."""
        return differences(self.layers)
