"""Rules for adding a branch to the stream: the multipliers, and which of them are learned; and the
stream itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from explorer.fields import Option
from explorer.schemes.attention import ATTENTIONS
from explorer.schemes.distribution import LAYER_WEIGHTS
from explorer.schemes.mlp import MLPS

if TYPE_CHECKING:
    from explorer.settings import Settings

VALUE_PATH = ("W_V", "W_O", "W_in", "W_out")
"""The matrices between a branch's input and its output; W_Q and W_K only choose among the tokens.
W_gate is not named, as in torchscale, whose rules know the two matrices of a plain MLP."""
LAST = ("W_O", "W_out")
"""The last matrix of each branch."""


class Rule(NamedTuple):
    """`skip · x + branch · F(x)` in every sublayer, with some matrices drawn larger or smaller than
    usual."""

    skip: float
    branch: float
    drawn: Mapping[str, float] = MappingProxyType({})
    """Matrix to factor on its standard deviation; 1 where none is named."""


@dataclass(frozen=True, kw_only=True)
class ResidualRule(Option):
    """The multipliers from the config, and what of the branch's multiplier is a learned
    parameter."""

    multipliers: Callable[[Settings], Rule]
    learned: Callable[[Settings], tuple[int, ...]] | None = None
    """Shape of the learned multiplier of a layer's branches: (), (branch,) or (branch, coordinate);
    None: not learned. """
    plain: bool = False
    """Adds both as they are, but for α: what a placement needs that has factors on them of its
    own."""
    scales_stream: bool = False
    """α is a factor on the stream in place of the branch."""
    profiled: bool = False
    """Factors on the stream are found in a first pass, see `profiled_factor`: until then they are
    1."""
    shrinks_last: bool = False
    """W_O and W_out are drawn smaller by the depth, and nothing else is: what a scale rule may do
    itself."""


def _drawn(skip: float, factor: float, matrices: tuple[str, ...] = VALUE_PATH) -> Rule:
    """A stream times `skip`, and some matrices drawn `factor` times their usual size."""
    return Rule(skip, 1.0, MappingProxyType(dict.fromkeys(matrices, factor)))


def _by_depth(power: float) -> Callable[[Settings], Rule]:
    """A branch times (2N)^power, 2N the number of branches."""
    return lambda config: Rule(1.0, (2 * config.n_layers) ** power)


def _looped(config: Settings) -> Rule:
    """A branch times α √L / N, for R passes through L layers, N = R L: the outputs of one layer in
    its R passes are alike and add up as R, those of L different layers as √L."""
    layers = LAYER_WEIGHTS[config.layer_weights].unique(config)
    return Rule(1.0, config.alpha * math.sqrt(layers) / config.n_layers)


def _layer_scale(config: Settings) -> Rule:
    """A branch times λ of the paper, which is smaller in deeper models."""
    if config.n_layers <= 18:
        branch = 0.1
    elif config.n_layers <= 24:
        branch = 1e-5
    else:
        branch = 1e-6
    return Rule(1.0, branch)


def _fixup(config: Settings) -> Rule:
    """Matrices of a branch drawn smaller: of m, the last is zero, and the others have the factor
    (2N)^(−1 / (2m − 2))."""
    branches, readers = 2 * config.n_layers, MLPS[config.mlp].readers
    drawn = {"W_V": branches**-0.5, **dict.fromkeys(LAST, 0.0)}
    # a product of a gated MLP's two readers has the factor of the plain one's single reader
    drawn |= dict.fromkeys(readers, branches ** (-0.5 / len(readers)))
    return Rule(1.0, 1.0, MappingProxyType(drawn))


def _admin(config: Settings) -> Rule:
    """The stream times ω, ω² + 1 = (2N + 1) / ln(2N + 1)."""
    branches = 2 * config.n_layers
    return Rule(math.sqrt((branches + 1) / math.log(branches + 1) - 1), 1.0)


ALPHA = ("alpha",)
RESIDUALS: dict[str, ResidualRule] = {
    "absent": ResidualRule("F(x)", multipliers=lambda config: Rule(0.0, 1.0)),
    "constant": ResidualRule(
        "x + α F(x)",
        "He et al. 2015",
        ALPHA,
        multipliers=lambda config: Rule(1.0, config.alpha),
        plain=True,
    ),
    "scaled_skip": ResidualRule(
        "α x + F(x)",
        "Highway form, without gates: Srivastava et al. 2015",
        ALPHA,
        multipliers=lambda config: Rule(config.alpha, 1.0),
        scales_stream=True,
    ),
    "rezero": ResidualRule(
        "x + α F(x), one α a layer, learned from 0",
        "ReZero: Bachlechner et al. 2020, eq. 2",
        multipliers=lambda config: Rule(1.0, 0.0),
        learned=lambda config: (),
    ),
    "skipinit": ResidualRule(
        "x + α F(x), one α a branch, learned from 0",
        "SkipInit: De & Smith 2020, section 4",
        multipliers=lambda config: Rule(1.0, 0.0),
        learned=lambda config: (2,),
    ),
    "layer_scale": ResidualRule(
        "x + λ ⊙ F(x), λ learned from 0.1, 1e-5 or 1e-6",
        "CaiT: Touvron et al. 2021, eq. 4 and section 3.1",
        multipliers=_layer_scale,
        learned=lambda config: (2, config.d_model),
    ),
    "inverse_sqrt_depth": ResidualRule(
        "x + F(x) / √(2N)", "Taki 2017; Bordelon et al. 2023", multipliers=_by_depth(-0.5)
    ),
    "looped": ResidualRule(
        "x + α F(x) / (R √(N / R)), R passes",
        "Wang et al. 2026",
        ALPHA,
        multipliers=_looped,
    ),
    "inverse_depth": ResidualRule(
        "x + F(x) / (2N)", "Hanin & Rolnick 2018", multipliers=_by_depth(-1)
    ),
    "scaled_init": ResidualRule(
        "x + F(x), W_O W_out × 1/√(2N)",
        "GPT-2: Radford et al. 2019, section 2.3",
        multipliers=lambda config: _drawn(1.0, (2 * config.n_layers) ** -0.5, LAST),
        shrinks_last=True,
    ),
    "fixup": ResidualRule(
        "x + F(x), W_O W_out = 0, W_V W_in × 1/√(2N)",
        "Fixup, without its scalar biases: Zhang et al. 2019, section 4",
        multipliers=_fixup,
    ),
    "zero_last": ResidualRule(
        "x + F(x), W_O W_out = 0",
        "nanochat: Karpathy 2025",
        multipliers=lambda config: _drawn(1.0, 0.0, LAST),
    ),
    "t_fixup": ResidualRule(
        "x + F(x), W_V W_O MLP × 0.67 N^−¼",
        "T-Fixup: Huang et al. 2020, section 3.2, encoder",
        multipliers=lambda config: _drawn(1.0, 0.67 * config.n_layers**-0.25),
    ),
    "magneto": ResidualRule(
        "x + F(x), W_V W_O MLP × √ln 2N",
        "Magneto: Wang et al. 2022, encoder or decoder only",
        multipliers=lambda config: _drawn(1.0, math.sqrt(math.log(2 * config.n_layers))),
    ),
    "deepnorm": ResidualRule(
        "(2N)^¼ x + F(x), W_V W_O MLP × (8N)^−¼",
        "DeepNet: Wang et al. 2022, encoder or decoder only",
        multipliers=lambda config: _drawn(
            (2 * config.n_layers) ** 0.25, (8 * config.n_layers) ** -0.25
        ),
    ),
    "deepnorm_encoder": ResidualRule(
        "0.81 N^(5/16) x + F(x), W_V W_O MLP × 0.87 N^(−5/16)",
        "DeepNet: Wang et al. 2022, figure 2, encoder beside a decoder of as many layers",
        multipliers=lambda config: _drawn(
            0.81 * config.n_layers ** (5 / 16), 0.87 * config.n_layers ** (-5 / 16)
        ),
    ),
    "deepnorm_decoder": ResidualRule(
        "(3N)^¼ x + F(x), W_V W_O MLP × (12N)^−¼",
        "DeepNet: Wang et al. 2022, figure 2, decoder beside an encoder",
        multipliers=lambda config: _drawn(
            (3 * config.n_layers) ** 0.25, (12 * config.n_layers) ** -0.25
        ),
    ),
    "admin": ResidualRule(
        "ω x + F(x), ω² + 1 = (2N + 1) / ln(2N + 1)",
        "Admin, for branches of unit variance: Liu et al. 2020",
        multipliers=_admin,
    ),
    "admin_profiled": ResidualRule(
        "ω_i x + F_i(x), ω_1 = 1, ω_i² = E x_0² + Σ_(j<i) E F_j² of a first pass",
        "Admin: Liu et al. 2020, section 4; one number each, not learned",
        multipliers=lambda config: Rule(1.0, 1.0),
        profiled=True,
    ),
}


def profiled_factor(below: int, total: float) -> float:
    """Factor on the stream before a branch, found by a first pass in which the factors of the
    branches below are in place.

    Args:
        below: number of the branches below it.
        total: second moments of the stream before the first layer and of all branches below, added
            up. In the authors' code it is the factor's square times x's variance, which their norms
            keep at 1, and the last branch's.
    """
    return total**0.5 if below else 1.0


# The stream itself: one, or several that mix, or none but the outputs of all earlier branches.


@dataclass(frozen=True, kw_only=True)
class StreamRule(Option):
    """How a branch's input is made of what was before it, and where its output goes."""

    parallel: bool = False
    """Both branches of a layer read the same stream, and its one sum adds both."""
    mixes: Literal["", "streams", "outputs"] = ""
    """Learned weights mix several streams, or the outputs of all earlier branches, to what a branch
    reads."""
    constrained: bool = False
    """Weights between streams are positive, and their matrix is doubly stochastic."""
    reads: Callable[[Settings, int], float] = lambda config, index: 1.0
    """At initialization, a branch's input over the sum of all outputs so far; from the sublayer, 0
    … 2N − 1."""


def outputs_before(config: Settings, index: int) -> int:
    """Number of outputs before a sublayer, 0 … 2N: the embedding and all branches so far."""
    return 1 + (index if ATTENTIONS[config.attention].present else index // 2)


STREAMS: dict[str, StreamRule] = {
    "one": StreamRule("x + A(x), and to the sum its own M", "He et al. 2015"),
    "parallel": StreamRule(
        "x + A(x) + M(x); x + A(x) is shown after attention",
        "GPT-J: Wang & Komatsuzaki 2021; PaLM 2022",
        parallel=True,
    ),
    "hyper": StreamRule(
        "n streams, H_res x + H_post F(H_pre x), H from I, 1, one stream each",
        "Hyper-connections: Zhu et al. 2024",
        ("n_streams",),
        mixes="streams",
    ),
    "manifold": StreamRule(
        "the same, H_res doubly stochastic; φ, b from 0.02 z and 0, which the paper leaves open",
        "mHC: Xie et al. 2025",
        ("n_streams",),
        mixes="streams",
        constrained=True,
        reads=lambda config, index: config.n_streams / 2,
    ),
    "depth_attention": StreamRule(
        "F(Σ a_i v_i), a softmax over all earlier outputs v, its queries from 0",
        "AttnRes: Kimi Team 2026",
        mixes="outputs",
        reads=lambda config, index: 1 / outputs_before(config, index),
    ),
}
"""Rows by name. Values of several streams are shown as of one: the mean of n, or the mix of outputs
times their number.

Streams that start alike stay alike, so at initialization the last three are Pre-LN but for `reads`,
which only a norm's ε sees. Left out is what mHC's token adds, 0.01 · 0.02 · √(n d) z: at most 0.5 %
of a gradient at width 64 and n = 4. """
