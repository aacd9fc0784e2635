"""The edge of chaos: where a stack without norms passes from vanishing to exploding, and where attention freezes.

Without a norm and without a residual, a layer of two matrices multiplies the second moment by σ⁴ at unit gain, so that
a stack has q_N = σ^(4N): all of it lies between two decades of q only within 10^(± 1 / 2N) of σ² = 1. Attention has an
edge of its own: n normal logits of spread s freeze onto their largest few beyond s = √(2 ln n) (Derrida's Random Energy
Model); undivided, with unit queries and keys, s = σ² √d.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from explorer.choices import Choices
from explorer.config import Config
from explorer.fields import Option, setting
from explorer.labs import Verdict
from explorer.labs.maps import crossing, same_side, swept
from explorer.labs.stacks import FirstSeed, Seeds
from explorer.numbers import number, percent
from explorer.profile import Array
from explorer.stopping import Progress, Stop

if TYPE_CHECKING:
    import xarray as xr

DEPTHS = (1, 2, 4, 8, 16, 32, 64)
VARIANCES = tuple(np.geomspace(0.25, 4, 9).tolist())
SHARES = tuple(np.geomspace(0.03, 3, 7).tolist())
"""Variances of attention and MLP in the stack with residuals."""
TOKENS = (4, 16, 64, 256)
D_HEAD = 64
SPREADS = tuple(np.geomspace(0.25, 16, 11).tolist())
"""Of the logits."""
ROOM = 0.5
"""Decades around 1 within which a gradient is on the edge, and on no side of it."""
AGREE = 0.95
"""Share of the cells from which on theory and measurement are said to agree."""


class Rule(NamedTuple):
    """How an activation is used: at unit gain for what is small, where its edge is at σ² = 1."""

    rescaled: bool
    formula: str


RULES: Mapping[str, Rule] = {
    "relu": Rule(True, "√2 max(0, z): any size passes alike"),
    "tanh": Rule(False, "tanh z: what is large saturates, what is small passes"),
}


class EdgeOfChaos(Choices):
    """Activation, and sizes of the stacks."""

    activation: str = setting("relu", "Activation", "", "Of the MLPs in the stack without residuals.",
                              options={name: Option(rule.formula) for name, rule in RULES.items()})
    n_layers: int = setting(12, "Depth", "", "Layers of the stack with residuals.", 1, 24, symbol="N", unit="layers",
                            log=True)
    width: int = setting(64, "Width", "", "Of the stacks; theory is for infinite width.", 32, 256, symbol="d",
                         unit="coordinates", log=True)
    n_seeds: Seeds = 2
    seed: FirstSeed = 0

    @property
    def plain(self) -> Config:
        """MLPs alone, without norms and residuals."""
        return Config(
            norm_placement="none", residual="absent", attention="none", activation=self.activation,
            activation_rescaled=RULES[self.activation].rescaled, d_model=self.width, n_heads=1, n_ctx=8,
            n_seeds=self.n_seeds, seed=self.seed,
        )

    @property
    def residual(self) -> Config:
        """Attention and MLPs, with residuals and without norms."""
        return Config(norm_placement="none", d_model=self.width, n_heads=2, n_ctx=16, n_layers=self.n_layers,
                      n_seeds=self.n_seeds, seed=self.seed)

    @property
    def undivided(self) -> Config:
        """One layer whose logits are not divided by √d, of unrelated tokens that a norm gives unit length."""
        return Config(norm_placement="pre", norm="rms", attention_scale="none", input_correlation=0.0, n_layers=1,
                      d_model=D_HEAD, n_heads=1, batch_size=4, n_seeds=self.n_seeds, seed=self.seed)


@dataclass(frozen=True, eq=False)
class EdgeResult:
    """Three maps."""

    settings: EdgeOfChaos
    depth: xr.Dataset
    """Without residuals, over init variance and depth."""
    shares: xr.Dataset
    """With residuals, over the variances of attention and MLP."""
    attention: xr.Dataset
    """Undivided, over init variance and sequence length."""


def spread(variance: float) -> float:
    """Of undivided logits: σ² √d."""
    return variance * math.sqrt(D_HEAD)


def freezing(n: float) -> float:
    """√(2 ln n)."""
    return math.sqrt(2 * math.log(n))


def run(settings: EdgeOfChaos, stop: Stop = lambda: False, progress: Progress = lambda _: None) -> EdgeResult:
    """Predicts and measures the maps.

    Raises:
        Stopped: `stop()` said true.
    """
    def third(number: int) -> Progress:
        return lambda share: progress((number + share) / 3)

    depth = swept(settings.plain, {"n_layers": DEPTHS, "init_variance": VARIANCES},
                  ("second_moment", "activation_gradient"), stop, third(0))
    shares = swept(settings.residual, {"attention_variance": SHARES, "mlp_variance": SHARES}, ("second_moment",),
                   stop, third(1))
    variances = [s / math.sqrt(D_HEAD) for s in SPREADS]
    attention = swept(settings.undivided, {"n_ctx": TOKENS, "init_variance": variances},
                      ("attention_entropy_normalized", "logit_std"), stop, third(2))
    return EdgeResult(settings, depth, shares, attention)


def edges(dataset: xr.Dataset, origin: str) -> Array:
    """`[depth]`: σ² at which the gradient of the first layer is the last one's; 1 at infinite width."""
    values = dataset["activation_gradient"].sel(origin=origin).transpose("n_layers", "init_variance").values
    return np.array([crossing(VARIANCES, row, 1.0) for row in values])


def halves(dataset: xr.Dataset, origin: str, tokens: Sequence[int] = TOKENS) -> Array:
    """`[n]`: spread of the logits at which half of the entropy is gone, over √(2 ln n); 1/√2 for n to infinity."""
    rows = dataset["attention_entropy_normalized"].sel(origin=origin).transpose("n_ctx", "init_variance")
    return np.array([spread(crossing(rows["init_variance"].values.tolist(), rows.sel(n_ctx=n).values, 0.5))
                     / freezing(n) for n in tokens])


def verdict(result: EdgeResult) -> Verdict:
    """Whether the borders lie where theory has them."""
    alike, asked = same_side(result.depth, "activation_gradient", room=ROOM)
    edge = {origin: edges(result.depth, origin)[-1] for origin in ("measured", "predicted")}
    half = {origin: halves(result.attention, origin)[-1] for origin in ("measured", "predicted")}
    evidence = (
        f"Without residuals {alike} of {asked} cells vanish or explode as predicted; {DEPTHS[-1]} layers have their "
        f"edge at σ² = {number(edge['measured'])}, predicted {number(edge['predicted'])}. Of {TOKENS[-1]} undivided "
        f"logits, half of the entropy is gone at {number(half['measured'])} √(2 ln n), predicted "
        f"{number(half['predicted'])}; for n to infinity, 0.707."
    )
    if alike < AGREE * asked:
        return "warning", f"Only {percent(alike / asked)} of the cells lie on the side that theory says.", evidence
    return "good", "Both edges lie where theory draws them; the deeper the stack, the sharper its own.", evidence


def invariants(settings: EdgeOfChaos = EdgeOfChaos()) -> dict[str, float]:  # noqa: B008 - frozen
    """The edge by depth, and half of the entropy by length; predicted and measured."""
    result = run(settings)
    numbers: dict[str, float] = {}
    for origin in ("predicted", "measured"):
        at = edges(result.depth, origin)
        numbers |= {f"edge σ² at {DEPTHS[k]} layers, {origin}": float(at[k]) for k in (2, 4, 6)}
        half = halves(result.attention, origin)
        numbers |= {f"half entropy at {TOKENS[k]} tokens / √(2 ln n), {origin}": float(half[k]) for k in (0, 1, 3)}
    return numbers
