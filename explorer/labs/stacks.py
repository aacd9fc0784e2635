"""One statistic of a design over depth, measured beside predicted: what the labs on whole stacks draw and compare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import numpy as np

from explorer.config import Config
from explorer.labs import Progress, Stop, check
from explorer.profile import MATRICES, Array, Profile

Key = TypeVar("Key")

MOST_KNOWN = 128
"""Designs that are remembered, at most some 200 kB each: one setting moves, and most of a lab's stacks stay."""


class Line(NamedTuple):
    """A statistic along a stack."""

    depth: Array
    """`[site]`, in layers."""
    measured: Array
    """`[seed, site]`."""
    predicted: Array
    """`[site]`; nan where the theory does not cover it."""

    @property
    def apart(self) -> Array:
        """`[seed]` the largest over the smallest of what was measured."""
        with np.errstate(all="ignore"):
            return np.asarray(self.measured.max(1) / self.measured.min(1))


class Pair(NamedTuple):
    """A design's two profiles."""

    measured: Profile
    predicted: Profile

    def stream(self, statistic: str) -> Line:
        """A statistic of the residual stream, from the input on."""
        depth, measured = self.measured.stream(statistic)
        return Line(depth, measured, self.predicted.stream(statistic)[1][0])

    def attention(self, statistic: str, site: str) -> Line:
        """A statistic of attention by layer, mean over heads."""
        measured, predicted = (profile[statistic, site].mean(2) for profile in self)
        return Line(self.measured.depth(site), measured, predicted[0])

    def matrix(self, name: str) -> Line:
        """‖∂L/∂W‖ of one matrix, by layer."""
        measured, predicted = (profile["parameter_gradient", name] for profile in self)
        return Line(self.measured.depth("resid_post"), measured, predicted[0])

    def weights(self) -> Line:
        """‖∂L/∂W‖ of all matrices of a layer together, by layer."""
        squares = [
            sum(profile["parameter_gradient", name] ** 2 for name in MATRICES
                if ("parameter_gradient", name) in profile.values)
            for profile in self
        ]
        measured, predicted = (np.sqrt(square) for square in squares)
        return Line(self.measured.depth("resid_post"), measured, predicted[0])


_known: dict[Config, Pair] = {}


def pairs(configs: Mapping[Key, Config], stop: Stop = lambda: False, progress: Progress = lambda _: None
          ) -> dict[Key, Pair]:
    """Measures each design over its seeds, and predicts it; what has just been measured is not measured again.

    Raises:
        explorer.probe.Stopped: `stop()` said true.
    """
    from explorer.probe import measure
    from explorer.theory import predict

    found, done = {}, 0
    whole = sum(config.n_layers for config in configs.values())
    for key, config in configs.items():
        check(stop)
        share = lambda part, done=done, own=config.n_layers: progress((done + own * part) / whole)  # noqa: E731
        one = _known.get(config)
        if one is None:
            one = Pair(measure(config, stop, share), predict(config))
            if len(_known) >= MOST_KNOWN:
                _known.clear()
            _known[config] = one
        found[key] = one
        done += config.n_layers
        progress(done / whole)
    return found


def streams(found: Mapping[Key, Pair], statistic: str) -> dict[Key, Line]:
    """A statistic of the residual stream of each."""
    return {key: one.stream(statistic) for key, one in found.items()}
