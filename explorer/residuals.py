"""How a branch joins the stream: where the norms stand, and what multiplies what. Plain data, one row a design."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from explorer.config import Config


class Placement(NamedTuple):
    """Where a norm stands around `skip · x + branch · F(x)`."""

    before: bool = False
    """On the branch's input."""
    behind: bool = False
    """On the branch's output."""
    after: bool = False
    """On the sum."""
    final: bool = False
    """Once more on the stream, after the last layer."""


PLACEMENTS: Mapping[str, Placement] = MappingProxyType({
    "none": Placement(),
    "pre": Placement(before=True, final=True),
    "post": Placement(after=True),
    "peri": Placement(before=True, behind=True, final=True),
})


class Multipliers(NamedTuple):
    """`skip · x + branch · F(x)`, with W_V, W_O and the MLP's matrices drawn `beta` times their usual size."""

    skip: float
    branch: float
    beta: float = 1.0


class ResidualRule(NamedTuple):
    """A row: the multipliers from the config, and whether the branch's multiplier is a learned parameter."""

    multipliers: Callable[[Config], Multipliers]
    source: str
    learned: bool = False


RESIDUAL_RULES: Mapping[str, ResidualRule] = MappingProxyType({
    "absent": ResidualRule(lambda config: Multipliers(0.0, 1.0), "a plain stack"),
    "constant": ResidualRule(lambda config: Multipliers(1.0, config.alpha), "He et al. 2015"),
    "rezero": ResidualRule(lambda config: Multipliers(1.0, 0.0), "Bachlechner et al. 2020", learned=True),
    "inverse_sqrt_depth": ResidualRule(
        lambda config: Multipliers(1.0, (2 * config.n_layers) ** -0.5), "Taki 2017; Radford et al. 2019"
    ),
    "inverse_depth": ResidualRule(
        lambda config: Multipliers(1.0, 1 / (2 * config.n_layers)), "Hanin & Rolnick 2018"
    ),
    "deepnorm": ResidualRule(
        lambda config: Multipliers((2 * config.n_layers) ** 0.25, 1.0, (8 * config.n_layers) ** -0.25),
        "Wang et al. 2022, table of constants, encoder or decoder only",
    ),
})


def multipliers(config: Config) -> Multipliers:
    """The multipliers of a config's residual rule at initialization."""
    return RESIDUAL_RULES[config.residual].multipliers(config)
