"""Whole stacks, measured beside predicted: the designs of the labs on depth, and the settings that those labs share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import numpy as np
from pydantic import Field

from explorer.config import Config
from explorer.fields import About
from explorer.profile import MATRICES, Array, Profile
from explorer.stopping import Progress, Stop, check

if TYPE_CHECKING:
    from torch import Tensor

Key = TypeVar("Key")

Seeds = Annotated[
    int, Field(ge=1, le=8, description="Independent draws of weights and inputs; bands and bars are their range."),
    About("Seeds", "", unit="draws", log=True),
]
FirstSeed = Annotated[int, Field(ge=0, le=2**31 - 64, description="Seed of the first draw."), About("First seed", "")]

MOST_KNOWN = 128
"""Designs that are remembered, at most some 200 kB each: one setting moves, and most of a lab's stacks stay."""


class Pair(NamedTuple):
    """A design's two profiles."""

    measured: Profile
    predicted: Profile


_known: OrderedDict[Config, Pair] = OrderedDict()


def pairs(configs: Mapping[Key, Config], stop: Stop = lambda: False, progress: Progress = lambda _: None
          ) -> dict[Key, Pair]:
    """Measures each design over its seeds, and predicts it; what has just been measured is not measured again.

    Raises:
        explorer.Stopped: `stop()` said true.
    """
    from explorer.measuring import measure
    from explorer.theory import predict

    profiles, done = {}, 0
    whole = sum(config.n_layers for config in configs.values())
    for key, config in configs.items():
        check(stop)
        share = lambda part, done=done, own=config.n_layers: progress((done + own * part) / whole)  # noqa: E731
        known = _known.pop(config, None)
        profiles[key] = _known[config] = known or Pair(measure(config, stop, share), predict(config))
        if len(_known) > MOST_KNOWN:
            _known.popitem(last=False)
        done += config.n_layers
        progress(done / whole)
    return profiles


def gradient(profile: Profile) -> Array:
    """`[seed, site]` squared ∂L/∂x along the stream, relative to the output's."""
    return profile.stream("activation_gradient")[1]


def weight_gradient(profile: Profile) -> Array:
    """`[seed, layer]` ‖∂L/∂W‖ of all matrices of a layer together."""
    held = [("parameter_gradient", matrix) for matrix in MATRICES if ("parameter_gradient", matrix) in profile.values]
    return np.asarray(np.linalg.norm([profile[key] for key in held], axis=0))


def apart(values: Array) -> Array:
    """`[seed, site]` to `[seed]`: the largest over the smallest."""
    with np.errstate(all="ignore"):
        return np.asarray(values.max(1) / values.min(1))


def slope(depths: Sequence[int], values: Array, least: int = 4) -> float:
    """Exponent of the depth in `[depth]`, from stacks of `least` layers on where there are two of them."""
    deep = np.array(depths) >= min(least, depths[-2])
    return float(np.polyfit(np.log(np.array(depths)[deep]), np.log(values[deep]), 1)[0])


def powers_of_two(deepest: int) -> list[int]:
    """Depths of stacks: 1, 2, 4, … and the deepest."""
    return [2**power for power in range((deepest - 1).bit_length())] + [deepest]


def tensors(config: Config, seed: int, sites: tuple[str, ...], stop: Stop) -> list[Tensor]:
    """Tensors that pass some sites in one forward pass, in its order."""
    import torch

    from explorer.model import Transformer, batch

    gradients: list[Tensor] = []

    def tap(site: str, _: int, tensor: Tensor) -> None:
        check(stop)
        if site in sites:
            gradients.append(tensor)

    model = Transformer(config, seed, lambda: check(stop))
    with torch.no_grad():
        model(model.embed(batch.draw(config, seed)), tap)
    return gradients
