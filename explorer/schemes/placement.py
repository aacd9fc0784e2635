"""Norm placements around a branch, and the norms themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from explorer.fields import Option

if TYPE_CHECKING:
    from explorer.config import Config


class Placement(NamedTuple):
    """Norms around `skip · x + branch · F(x)` in one layer."""

    on_input: bool = False
    """On the branch's input."""
    on_output: bool = False
    """On the branch's output."""
    on_sum: bool = False
    """On the sum."""
    scale: float = 1.0
    """Factor on the norm of the branch's input."""

    @property
    def any(self) -> bool:
        """Whether there is a norm in the layer."""
        return self.on_input or self.on_output or self.on_sum

    @property
    def reads_norm(self) -> bool:
        """Whether branches read a normalized stream: by a norm of their own, or by that on the last sum."""
        return self.on_input or self.on_sum


@dataclass(frozen=True, kw_only=True)
class PlacementRule(Option):
    """The placement in a layer (from 1) of so many, and whether the design has a norm after the last."""

    layer: Callable[[int, int], Placement]
    final: bool
    uses: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "uses", ("norm",) if self.normalizes else ())

    @property
    def normalizes(self) -> bool:
        """Whether any layer has a norm."""
        return any(self.layer(layer, 8).any for layer in range(1, 9))


def _everywhere(place: Placement) -> Callable[[int, int], Placement]:
    return lambda layer, n_layers: place


PRE, POST = Placement(on_input=True), Placement(on_sum=True)
POST_SHARE = 0.25
"""Of Mix-LN's layers, from the input; the paper's best at every size it tried."""

PLACEMENTS: dict[str, PlacementRule] = {
    "none": PlacementRule(
        "x + F(x)", "He et al. 2015, without their norms", layer=_everywhere(Placement()), final=False
    ),
    "pre": PlacementRule(
        "x + F(N(x))", "Pre-LN: Xiong et al. 2020, figure 1b", layer=_everywhere(PRE), final=True
    ),
    "post": PlacementRule(
        "N(x + F(x))", "Post-LN: Vaswani et al. 2017, section 3.1", layer=_everywhere(POST), final=False
    ),
    "peri": PlacementRule(
        "x + N(F(N(x)))", "Sandwich-LN: Ding et al. 2021; Peri-LN: Kim et al. 2025",
        layer=_everywhere(Placement(on_input=True, on_output=True)), final=True,
    ),
    "branch_output": PlacementRule(
        "x + N(F(x))", "Swin v2: Liu et al. 2022; OLMo 2 2025, section 3.2",
        layer=_everywhere(Placement(on_output=True)), final=True,
    ),
    "scaled_pre": PlacementRule(
        "x + F(N(x) / √l) in layer l", "LayerNorm scaling: Sun et al. 2025, eq. 4",
        layer=lambda layer, n_layers: PRE._replace(scale=layer**-0.5), final=True,
    ),
    "mix": PlacementRule(
        "post in the first quarter of the layers, then pre", "Mix-LN: Li et al. 2025, eq. 8",
        layer=lambda layer, n_layers: POST if layer <= POST_SHARE * n_layers else PRE, final=True,
    ),
}


@lru_cache(maxsize=64)
def placements(config: Config) -> tuple[Placement, ...]:
    """Placement of the norms in each layer."""
    rule = PLACEMENTS[config.norm_placement]
    return tuple(rule.layer(layer, config.n_layers) for layer in range(1, config.n_layers + 1))


@dataclass(frozen=True, kw_only=True)
class FinalNorm(Option):
    """A norm after the last layer."""

    present: Callable[[PlacementRule], bool]


FINAL_NORMS: dict[str, FinalNorm] = {
    "design": FinalNorm(
        "as the placement requires: yes, except for "
        + " and ".join(name for name, rule in PLACEMENTS.items() if not rule.final),
        present=lambda rule: rule.final,
    ),
    "yes": FinalNorm("once more after the last layer", present=lambda rule: True),
    "no": FinalNorm("the last layer's stream is the output", present=lambda rule: False),
}


def has_final_norm(config: Config) -> bool:
    """Whether the stream is normalized once more after the last layer."""
    return FINAL_NORMS[config.final_norm].present(PLACEMENTS[config.norm_placement])


@dataclass(frozen=True, kw_only=True)
class Norm(Option):
    """Division of each token by its size."""

    centers: bool
    """Whether the token's mean is subtracted first."""


NORMS: dict[str, Norm] = {
    "layer": Norm("(x − mean) / std", "Ba et al. 2016", centers=True),
    "rms": Norm("x / √(mean x²)", "Zhang & Sennrich 2019", centers=False),
}


def centers(config: Config) -> bool:
    """Whether the config's norm subtracts each token's mean."""
    return NORMS[config.norm].centers
