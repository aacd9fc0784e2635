"""How a branch joins the stream: where the norms stand, and what multiplies what. Plain data, one row a design."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

from explorer.config import Config


class Placement(NamedTuple):
    """Where a norm stands around `skip · x + branch · F(x)` in one layer."""

    before: bool = False
    """On the branch's input."""
    behind: bool = False
    """On the branch's output."""
    after: bool = False
    """On the sum."""
    scale: float = 1.0
    """What the norm before the branch is multiplied by."""


class PlacementRule(NamedTuple):
    """A row: the placement in a layer (from 1) of so many, and whether there is a norm behind the last."""

    layer: Callable[[int, int], Placement]
    final: bool
    source: str


def _everywhere(place: Placement) -> Callable[[int, int], Placement]:
    return lambda layer, n_layers: place


PRE, POST = Placement(before=True), Placement(after=True)
POST_SHARE = 0.25
"""Of Mix-LN's layers, from the input; the paper's best at every size it tried."""

PLACEMENTS: Mapping[str, PlacementRule] = MappingProxyType({
    "none": PlacementRule(_everywhere(Placement()), False, "He et al. 2015, without their norms"),
    "pre": PlacementRule(_everywhere(PRE), True, "Xiong et al. 2020, figure 1b"),
    "post": PlacementRule(_everywhere(POST), False, "Vaswani et al. 2017, section 3.1"),
    "peri": PlacementRule(_everywhere(Placement(before=True, behind=True)), True, "Ding et al. 2021; Kim et al. 2025"),
    "branch_output": PlacementRule(_everywhere(Placement(behind=True)), True, "OLMo 2 2025, section 3.2"),
    "scaled_pre": PlacementRule(
        lambda layer, n_layers: PRE._replace(scale=layer**-0.5), True, "Sun et al. 2025, eq. 4: N(x) / √l"
    ),
    "mix": PlacementRule(
        lambda layer, n_layers: POST if layer <= POST_SHARE * n_layers else PRE, True, "Li et al. 2025, eq. 8"
    ),
})


@lru_cache(maxsize=64)
def placements(config: Config) -> tuple[Placement, ...]:
    """Where the norms stand in each layer."""
    rule = PLACEMENTS[config.norm_placement]
    return tuple(rule.layer(layer, config.n_layers) for layer in range(1, config.n_layers + 1))


def has_final_norm(config: Config) -> bool:
    """Whether the stream is normalized once more behind the last layer."""
    return PLACEMENTS[config.norm_placement].final if config.final_norm == "design" else config.final_norm == "yes"


VALUE_PATH = ("W_V", "W_O", "W_in", "W_out")
"""The matrices between a branch's input and its output; W_Q and W_K only choose among the tokens."""


class Multipliers(NamedTuple):
    """`skip · x + branch · F(x)`, with some matrices drawn so many times their usual size."""

    skip: float
    branch: float
    drawn: Mapping[str, float] = MappingProxyType({})
    """Matrix to factor on its standard deviation; 1 where none is named."""


def _smaller(factor: float) -> Mapping[str, float]:
    return MappingProxyType(dict.fromkeys(VALUE_PATH, factor))


class ResidualRule(NamedTuple):
    """A row: the multipliers from the config, and what of the branch's multiplier is a learned parameter."""

    multipliers: Callable[[Config], Multipliers]
    source: str
    learned: Literal["", "layer", "branch", "coordinate"] = ""
    """Nothing; one number a layer; one a branch; one a coordinate of each branch."""


def _layer_scale(config: Config) -> Multipliers:
    return Multipliers(1.0, 0.1 if config.n_layers <= 18 else 1e-5 if config.n_layers <= 24 else 1e-6)


def _scaled_init(config: Config) -> Multipliers:
    factor = (2 * config.n_layers) ** -0.5
    return Multipliers(1.0, 1.0, MappingProxyType({"W_O": factor, "W_out": factor}))


def _fixup(config: Config) -> Multipliers:
    # m = 2 matrices to a branch, of which the last is zero: the others are scaled by (2N)^(−1 / (2m − 2))
    factor = (2 * config.n_layers) ** -0.5
    return Multipliers(1.0, 1.0, MappingProxyType({"W_V": factor, "W_O": 0.0, "W_in": factor, "W_out": 0.0}))


def _admin(config: Config) -> Multipliers:
    branches = 2 * config.n_layers
    return Multipliers(math.sqrt((branches + 1) / math.log(branches + 1) - 1), 1.0)


RESIDUAL_RULES: Mapping[str, ResidualRule] = MappingProxyType({
    "absent": ResidualRule(lambda config: Multipliers(0.0, 1.0), "a plain stack"),
    "constant": ResidualRule(lambda config: Multipliers(1.0, config.alpha), "He et al. 2015"),
    "scaled_skip": ResidualRule(lambda config: Multipliers(config.alpha, 1.0), "Srivastava et al. 2015, without gates"),
    "rezero": ResidualRule(lambda config: Multipliers(1.0, 0.0), "Bachlechner et al. 2020, eq. 2", "layer"),
    "skipinit": ResidualRule(lambda config: Multipliers(1.0, 0.0), "De & Smith 2020, section 4", "branch"),
    "layer_scale": ResidualRule(_layer_scale, "Touvron et al. 2021, eq. 4 and section 3.1", "coordinate"),
    "inverse_sqrt_depth": ResidualRule(
        lambda config: Multipliers(1.0, (2 * config.n_layers) ** -0.5), "Taki 2017; Bordelon et al. 2023"
    ),
    "inverse_depth": ResidualRule(
        lambda config: Multipliers(1.0, 1 / (2 * config.n_layers)), "Hanin & Rolnick 2018"
    ),
    "scaled_init": ResidualRule(_scaled_init, "Radford et al. 2019, section 2.3"),
    "fixup": ResidualRule(_fixup, "Zhang et al. 2019, section 4, without its scalar biases"),
    "t_fixup": ResidualRule(
        lambda config: Multipliers(1.0, 1.0, _smaller(0.67 * config.n_layers**-0.25)),
        "Huang et al. 2020, section 3.2, encoder",
    ),
    "deepnorm": ResidualRule(
        lambda config: Multipliers((2 * config.n_layers) ** 0.25, 1.0, _smaller((8 * config.n_layers) ** -0.25)),
        "Wang et al. 2022, table of constants, encoder or decoder only",
    ),
    "admin": ResidualRule(_admin, "Liu et al. 2020, for branches of unit variance"),
})


def multipliers(config: Config) -> Multipliers:
    """The multipliers of a config's residual rule at initialization."""
    return RESIDUAL_RULES[config.residual].multipliers(config)


def learned(config: Config) -> str:
    """What of the branch's multiplier is a learned parameter: see `ResidualRule.learned`."""
    return RESIDUAL_RULES[config.residual].learned
