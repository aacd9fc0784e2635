"""Parametrizations: the place of σ, and powers of width and depth that keep one learning rate right
at every size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

from explorer.fields import Option

BASE_WIDTH = 64
"""Width at which μP and the standard parametrization are the same; n_0 of Yang et al. 2022, eq.
4."""


class Power(NamedTuple):
    """A factor: width / base width and depth / base depth, each to its power."""

    width: float = 0.0
    depth: float = 0.0


SAME = Power()
"""A factor of 1 at every size."""


class Powers(NamedTuple):
    """Factors on one kind of parameter, beside the standard variance 1/fan_in and one learning rate
    for all.

    The fields with an optimizer's name are factors on its learning rate. `epsilon` is Adam's, which
    is added to the root of a mean squared gradient."""

    variance: Power = Power()
    sgd: Power = Power()
    adam: Power = Power()
    muon: Power = Power()
    muon_rms: Power = Power()
    epsilon: Power = Power()


Quantity = Literal["variance", "sgd", "adam", "muon", "muon_rms", "epsilon"]
# Muon's step has the same size along all singular directions of a matrix. With it the matrix's
# product changes by η in RMS at every width. Where the step is scaled to Adam's RMS of 0.2 η for
# each entry (muon_rms), the product changes by 0.2 η √fan_in: hence the width's power −½.
MUP: Mapping[str, Powers] = MappingProxyType(
    {
        "input": Powers(sgd=Power(1)),  # fan_in does not grow with the width: embeddings
        # both grow: every matrix of the layers
        "hidden": Powers(adam=Power(-1), muon_rms=Power(-0.5)),
        "vector": Powers(sgd=Power(1)),  # one number a coordinate: biases
        # fan_out does not grow: the readout
        "output": Powers(variance=Power(-1), sgd=Power(-1), adam=Power(-1)),
    }
)
"""By which of a parameter's sides grow with the width. Yang et al. 2022, eq. 4 and table 3."""
COMPLETEP: Mapping[str, Powers] = MappingProxyType(
    {
        # Branches are divided by the depth, and so are their gradients. SGD's steps are multiplied
        # by it, so that N branches together change the output as much at every depth.
        "input": MUP["input"]._replace(epsilon=Power(-1, -1)),
        "hidden": MUP["hidden"]._replace(sgd=Power(0, 1), epsilon=Power(-1, -1)),
        "vector": MUP["vector"]._replace(sgd=Power(1, 1), epsilon=Power(-1, -1)),
        # the paper's, with its multiplier of the readout, base / width, taken into the weights
        "output": MUP["output"]._replace(epsilon=Power(0, -1)),
    }
)
"""μP, and the depth's part where branches are divided by it. Dey et al. 2025, for Adam, as
EleutherAI's nanoGPT-mup."""


@dataclass(frozen=True, kw_only=True)
class Parametrization(Option):
    """Place of the standard deviation σ that the scale rule asks for, and the powers of the
    width."""

    scales_forward: bool = False
    """The stored weights have unit variance, and σ multiplies each product in the forward pass."""
    powers: Mapping[str, Powers]
    """By kind of parameter."""
    branch: Power = SAME
    """Power of the width in the factor on every branch."""


PLAIN: Mapping[str, Powers] = MappingProxyType(dict.fromkeys(MUP, Powers()))
PARAMETRIZATIONS: dict[str, Parametrization] = {
    "standard": Parametrization("W ~ (0, σ²)", powers=PLAIN),
    "ntk": Parametrization(
        "W ~ (0, 1), forward × σ", "Jacot et al. 2018", scales_forward=True, powers=PLAIN
    ),
    "mup": Parametrization(
        "layers as standard, readout ~ (0, 64 / d²); its own attention is q·k / d_head",
        "μP: Yang et al. 2022",
        powers=MUP,
    ),
    "completep": Parametrization(
        "μP; branches × N₀ / N",
        "CompleteP, α = 1: Dey et al. 2025",
        ("base_depth",),
        powers=COMPLETEP,
        branch=Power(depth=-1),
    ),
}
