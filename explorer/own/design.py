"""The design of a stack, gathered block by block: its twin, and the layers that are unlike their siblings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from torch import Tensor
from torch.nn.modules.dropout import _DropoutNd

from explorer.numbers import number
from explorer.own.blocks import Block
from explorer.own.branches import Anatomy
from explorer.own.differences import FEW, Difference, differences
from explorer.own.facts import UNREADABLE, Facts, read_facts
from explorer.own.fields import Source, ends_with_norm, read_source
from explorer.own.nodes import Node
from explorer.own.twin import Twin, twin_of
from explorer.profile import BRANCHES, SITE_WORDS, STATISTICS, STREAM, Array, Key, Profile
from explorer.theory import predict

# How a twin behaves beside its model: what theory expects of it, and what was measured, site by site.


FORWARD, BACKWARD = math.log(2), math.log(4)
"""Up to here the median layer of a model of width 64 is off its twin's line by chance, of one draw: second moments and
logits by 1.35 at most, gradients by 1.8 (15 models of transformers and 38 of ours). A loss of one's own moves
gradients, too."""
ALIKE = 0.2
"""Up to here the median layer's token correlation differs from its twin's by chance: by .10 at most in transformers."""
WIDTH = 64
"""Narrower models scatter by 1/√width more."""


class Gap(NamedTuple):
    """How far a model is from its twin at one site."""

    key: Key
    size: float
    """ln(measured / expected) of the median layer; of the stream, of all layers if each grew as the median one does; of
    a correlation, measured − expected."""
    layer: int
    """The first that is off, from 1."""
    measured: float
    expected: float
    bound: float
    """Sizes up to here are chance."""

    @property
    def apart(self) -> bool:
        """Whether it is more than chance explains."""
        return abs(self.size) > self.bound

    def words(self, layers: tuple[str, ...]) -> str:
        """The sentence that says where the two part."""
        statistic, site = self.key
        path = f" ({layers[self.layer - 1]})" if self.layer <= len(layers) else ""
        place = f"{STATISTICS[statistic].label.lower()} at {SITE_WORDS.get(site, site)} of layer {self.layer}{path}"
        said = f"the {place} is {number(self.measured)} where {number(self.expected)} is expected"
        return said if STATISTICS[statistic].bounded else f"{said}: {number(self.measured / self.expected)} ×"


def gaps(measured: Profile, expected: Profile) -> Iterator[Gap]:
    """Gaps at every site that both have. One layer that is unlike its siblings makes none: `diagnose` names it.

    Gradients by matrices are left out: beside those of the other matrices they moved by up to 2.3 × with the loss, and
    by 7 × where experts share the tokens.
    """
    sites = [("second_moment", site) for site in BRANCHES] + [("logit_std", "attn_scores")]
    for key in sites:
        yield from _gap(key, _logs(measured, expected, key), measured, expected)
    for statistic in ("second_moment", "token_correlation", "activation_gradient"):
        for site in STREAM[1:]:
            yield from _gap((statistic, site), _logs(measured, expected, (statistic, site)), measured, expected)


def _bound(key: Key, expected: Profile) -> float:
    width, row = expected.config.d_model if expected.config else WIDTH, STATISTICS[key[0]]
    return (BACKWARD if row.backward else ALIKE if row.bounded else FORWARD) * math.sqrt(max(1.0, WIDTH / width))


def _values(profile: Profile, key: Key) -> Array:
    """`[layer]`, mean over seeds and heads."""
    values = profile.values.get(key, np.empty((1, 0)))
    mean: Array = values.mean(axis=(0, *range(2, values.ndim)))
    return mean


def _logs(measured: Profile, expected: Profile, key: Key) -> Array:
    """ln(measured / expected), `[layer]`, or their difference; nan where that is none."""
    values, made = _values(measured, key), _values(expected, key)
    if len(values) != len(made):
        return np.empty(0)
    if STATISTICS[key[0]].bounded:
        return values - made
    with np.errstate(all="ignore"):
        return np.where((values > 0) & (made > 0) & np.isfinite(made), np.log(values / made), np.nan)


def _gap(key: Key, log: Array, measured: Profile, expected: Profile) -> Iterator[Gap]:
    """The gap at a site, if most layers have one."""
    known = np.isfinite(log)
    if not known.any() or known.mean() <= 0.5:
        return
    size = float(np.median(log[known]))
    if key[1] in STREAM and not STATISTICS[key[0]].bounded:  # its gap grows from one end to the other, where it is 0
        ended = np.concatenate([log, [0.0]] if STATISTICS[key[0]].backward else [[0.0], log])
        steps = np.diff(ended)
        size = float(np.median(steps[np.isfinite(steps)])) * len(log)
    bound = _bound(key, expected)
    off = np.flatnonzero(known & (np.abs(np.nan_to_num(log)) > bound))
    at = int(off[0]) if len(off) else int(np.argmax(np.abs(np.nan_to_num(log))))
    yield Gap(key, size, at + 1, float(_values(measured, key)[at]), float(_values(expected, key)[at]), bound)


class Design:
    """Facts of the design of one stack, read block by block."""

    def __init__(self) -> None:
        self.layers: list[Facts] = []
        self.paths: list[str] = []
        self.source: Source | None = None
        self.tail: Sequence[Node] = ()
        """Nodes computed after the block that ran last."""

    def begin(self, stream: Tensor) -> None:
        """The first block's input, `[batch, token, d]`."""
        self.source = read_source(stream)

    def take(self, block: Block, anatomy: Anatomy) -> None:
        """Reads a block whose tensors are still there."""
        self.paths.append(block.path)
        try:
            facts = dict(read_facts(anatomy))
            # in evaluation no number is dropped; what a module would drop says how the layer is built
            drops = [float(module.p) for module in block.module.modules() if isinstance(module, _DropoutNd)]
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
        twin = None if self.source is None else twin_of(self.layers, self.source, measured.model, self.unread)
        if twin is None:
            return None
        beside = list(gaps(measured, predict(twin.config)))
        parts = [*twin.parts, *(gap.words(measured.layers) for gap in beside if gap.apart)]
        if (count := sum(bool(facts.get(("layer", "unread"))) for facts in self.layers)) > FEW * len(self.layers):
            parts.insert(0, f"{count} of {len(self.layers)} layers could not be read")
        sizes = [gap.size for gap in beside if gap.apart] or [0.0]
        distance = math.hypot(twin.distance, math.sqrt(float(np.mean(np.square(sizes)))))
        return replace(twin, distance=distance, parts=tuple(parts))

    @property
    def unread(self) -> tuple[str, ...]:
        """A sentence for each part of a layer that could not be read, and how many layers it is so in."""
        where: dict[tuple[str, str], list[str]] = {}
        for path, facts in zip(self.paths, self.layers, strict=True):
            for part in facts.get(("layer", "unread"), ()):
                where.setdefault(part, []).append(path)
        return tuple(f"the {part} of {paths[0]}{f' and {len(paths) - 1} more' if len(paths) > 1 else ''}: {why}"
                     for (part, why), paths in where.items())

    def shapes(self) -> dict[str, tuple[int, int]]:
        """`(fan_in, fan_out)` of each matrix that all layers have in one shape."""
        names = [name for name, fact in (self.layers[0] if self.layers else {}) if fact == "shape"]
        shapes = {name: {facts.get((name, "shape")) for facts in self.layers} for name in names}
        return {name: size for name, sizes in shapes.items() if len(sizes) == 1 and (size := sizes.pop()) is not None}

    def differences(self) -> tuple[Difference, ...]:
        """Layers that are built otherwise than their siblings."""
        return differences(self.layers)
