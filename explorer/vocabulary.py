"""The vocabulary: every statistic that is measured or predicted, a row each.

A row says what the statistic is, how it is read of the tensors at its sites, and how it is shown.
The recorder, predictions, agreement, tables, charts, maps and sweeps follow from it."""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from explorer.sites import BRANCHES, MATRICES, ROWS, STREAM, TAPS, VECTORS
from explorer.translation import speaking, with_messages

Array = NDArray[np.float64]
Key = tuple[str, str]
"""Names of a statistic and of a site."""


@with_messages("title", "words")
@dataclass(frozen=True)
class AtEnd:
    """How the one value of a statistic at the end of a stack is read, for maps and tables."""

    title: str
    words: str
    """The place of the value, for a caption."""
    symbol: str
    place: Literal["last layer", "input", "largest matrix", "first token"] = "last layer"


@with_messages("label", "definition", "unit", "caption", "compared")
@dataclass(frozen=True, eq=False)
class Statistic:
    """One quantity of the vocabulary: recorder, predictions, agreement, tables, charts, maps and
    sweeps follow."""

    name: str
    label: str
    symbol: str
    definition: str
    sites: tuple[str, ...]
    unit: str = "ratio"
    reduce: Callable[[Any], Any] | None = None
    """From `measuring.statistics.Signal`, or `Rows` at the sites of attention, to `[layer]` or
    `[layer, head]`, by the tensors' own methods; None of the backward pass, whose gradients become
    norms as they arrive."""
    caption: str = ""
    """A sentence below its chart, and whether the page offers it at all; a chart without one has
    the definition. Of a statistic by position {layer} stands for the layer that is drawn."""
    healthy: tuple[float, str] | None = None
    """The value that a map takes for healthy at the end of a stack, and its words."""
    log: bool = False
    bounds: tuple[float, float] = (-math.inf, math.inf)
    marks: Mapping[float, str] = field(default_factory=lambda: MappingProxyType({}))
    """Levels that a figure marks, and their words."""
    compared: str = ""
    """Words after a value, which say what it is a multiple of."""
    reference: Literal["", "input", "last layer"] = ""
    """The site that fixes the values by definition: they are set there, or relative to it."""
    backward: bool = False
    """Whether it is of the backward pass, which begins where the forward pass ends."""
    unpredicted: str = "not covered: it is measured only"
    """The note of a statistic without a row in `theory.laws`."""
    root: bool = False
    """Whether it is the root of a mean square: what is predicted is the root mean square over
    draws."""
    by_factors: bool = False
    """Whether draws scatter by factors, as products of many random numbers do: what is predicted is
    a typical draw, and the mean over draws is that of their logarithms."""
    power: float = 1.0
    """Of what scatters by factors: the power of a second moment that it is, ½ of a root."""
    band: bool = False
    """Whether the scatter over draws is predicted, too. The largest of many numbers scatters by
    more than their second moment does."""
    by_position: bool = False
    """Whether it has a value of each token position, mean over batch and heads; a chart has those
    of one layer."""
    undefined_at_0: bool = False
    """Whether it is no number where the signal is 0, since it divides by its second moment."""
    end: AtEnd | None = None
    """Its value at the end of a stack, where that is not simply the one after the last layer."""

    def mean(self, draws: Array, axis: int | tuple[int, ...] = 0) -> Array:
        """Mean over some axes, as it is predicted."""
        if self.by_factors:
            return geometric_mean(draws, axis)
        if not self.root:
            return np.asarray(np.mean(draws, axis))
        total = np.hypot.reduce(draws, axis)  # squares of gradients may leave float64's range
        return np.asarray(total / math.sqrt(draws.size / max(total.size, 1)))

    def standard_error(self, draws: Array) -> Array:
        """Standard error of `mean` over the first axis; nan of a single draw, or where a draw is
        not finite."""
        if len(draws) < 2:
            return np.full(draws.shape[1:], math.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = self.mean(draws)
            if self.by_factors:
                same = np.isfinite(mean) & (draws == draws[0]).all(0)  # zeros, too
                spread = np.where(same, 0.0, np.std(np.log(draws), axis=0, ddof=1))
                return np.asarray(mean * spread / math.sqrt(len(draws)))
            if not self.root:
                return np.asarray(np.std(draws, axis=0, ddof=1) / math.sqrt(len(draws)))
            squares = np.square(draws / np.where(mean == 0, 1, mean))
            return np.asarray(mean / 2 * np.std(squares, axis=0, ddof=1) / math.sqrt(len(draws)))

    @property
    def bounded(self) -> bool:
        """Whether its values lie between two numbers: those are compared by their difference,
        others by their ratio."""
        return all(map(math.isfinite, self.bounds))

    @property
    def on_stream(self) -> bool:
        """Whether it is read along the residual stream."""
        return any(site in STREAM for site in self.sites)

    @property
    def by_head(self) -> bool:
        """Whether it is read of each head."""
        return not self.by_position and any(site in ROWS for site in self.sites)


def geometric_mean(draws: Array, axis: int | tuple[int, ...] = 0) -> Array:
    """The number whose logarithm is the mean of the draws' logarithms: 0 where a draw is 0, and nan
    where another is infinite."""
    with np.errstate(invalid="ignore", divide="ignore"):
        largest = np.max(draws, axis, keepdims=True)
        unit = np.where(np.isfinite(largest) & (largest > 0), largest, 1.0)
        # equal draws are their own mean to the last digit
        mean = np.exp(np.mean(np.log(draws / unit), axis))
        return np.asarray(mean * np.squeeze(unit, axis))


@speaking("en")  # a copy has the messages, which are translated where they are read
def with_own_sites(row: Statistic) -> Statistic:
    """A row with the sites that name its statistic, beside those that it names itself."""
    asking = tuple(site.name for site in TAPS.values() if row.name in site.statistics)
    return replace(row, sites=row.sites + asking)


STATISTICS: dict[str, Statistic] = {
    row.name: with_own_sites(row)
    for row in (
        Statistic(
            "second_moment",
            "Second moment",
            "q = mean x²",
            "mean of x² over batch, token and coordinate",
            (*STREAM, *BRANCHES),
            "input² units",
            lambda signal: signal.q,
            "The average squared size of a token's numbers.",
            (1.0, "q = 1"),
            log=True,
            marks={1.0: "q = 1"},
            reference="input",
            by_factors=True,
            band=True,
        ),
        Statistic(
            "token_correlation",
            "Token correlation",
            "ρ = p / q",
            "mean overlap of two different tokens, divided by the second moment",
            STREAM,
            reduce=lambda signal: signal.overlap / signal.q,
            bounds=(0.0, 1.0),
            caption="Overlap of two tokens. At 1 all tokens are alike: rank collapse.",
            healthy=(0.0, "unrelated tokens"),
            marks={1.0: "all tokens alike", 0.0: "unrelated"},
            reference="input",
            undefined_at_0=True,
        ),
        Statistic(
            "max_abs",
            "Largest |x|",
            "max |x|",
            "largest |x| over batch, token and coordinate; float16 ends at 65,504, bfloat16 (8 bits) at 3.39e38",
            (*STREAM, *BRANCHES),
            "input units",
            lambda signal: signal.largest,
            "The largest |x| of the batch. float16 ends at 65,504: what is larger becomes infinite.",
            # √(2 ln M) of M = 32,768 unit normal numbers, the default's 2 × 64 × 256
            (4.6, "unit normal"),
            log=True,
            marks={65504.0: "float16 ends"},
            by_factors=True,
            power=0.5,
        ),
        # He et al. 2024, arXiv 2405.19279: kurtosis of neurons' activation norms, their measure of
        # outlier features
        Statistic(
            "kurtosis",
            "Kurtosis of features",
            "mean s⁴ / (mean s²)²",
            "of each coordinate's RMS s over a sequence: 1 if all are alike, d if one has it all",
            STREAM,
            reduce=lambda signal: signal.features.square().mean(dim=(1, 2)),
            log=True,
            caption="1: features are alike. Up to the width d: one outlier dominates, and low precision loses "
            "the rest.",
            healthy=(1.0, "features alike"),
            marks={1.0: "all features alike", 3.0: "all tokens alike"},
            undefined_at_0=True,
        ),
        # massive activations stand out in a few spike channels: Sun et al. 2026, arXiv 2603.05498
        Statistic(
            "feature_ratio",
            "Largest / median feature",
            "max s / median s",
            "largest over median of the coordinates' RMS s over a sequence, mean over the batch",
            STREAM,
            reduce=lambda signal: signal.largest_feature,
            log=True,
            caption="1: features are alike. Far above: a few spike channels hold massive activations.",
            healthy=(1.0, "features alike"),
            marks={1.0: "all features alike"},
            undefined_at_0=True,
        ),
        Statistic(
            "logit_std",
            "Logit spread",
            "s",
            "RMS over keys of the centered attention logits",
            ("attn_scores",),
            reduce=lambda rows: rows.variance.mean(dim=(1, 3)).clamp(min=0).sqrt(),
            log=True,
            caption="RMS of the centered logits. Far below 1, attention is uniform; far above, one-hot.",
            healthy=(1.0, "unit logits"),
            root=True,
        ),
        Statistic(
            "attention_entropy",
            "Attention entropy",
            "H",
            "Shannon entropy of an attention row's keys, without any sink, nats",
            ("pattern",),
            "nats",
            lambda rows: rows.entropy.mean(dim=(1, 3)),
            marks={0.0: "one-hot"},
        ),
        Statistic(
            "attention_entropy_normalized",
            "Attention entropy",
            "H / ln n",
            "entropy of an attention row's keys over ln(their number); 1 is uniform, 0 one-hot",
            ("pattern",),
            reduce=lambda rows: rows.normalized.mean(dim=(1, 3)),
            bounds=(0.0, 1.0),
            caption="The median head of each layer. 1 is uniform, 0 is one-hot.",
            healthy=(1.0, "uniform"),
            marks={1.0: "uniform", 0.0: "one-hot"},
            compared="of the uniform one",
        ),
        Statistic(
            "attention_max",
            "Largest attention weight",
            "max p",
            "mean over rows of the largest attention weight",
            ("pattern",),
            reduce=lambda rows: rows.largest.mean(dim=(1, 3)),
            bounds=(0.0, 1.0),
            marks={1.0: "one-hot"},
            caption="Mean of each token's largest attention weight. 1 is one-hot, 1/n is uniform.",
            # one-hot is the far end; what is healthy, 1/n and little more, is near 0 from some 10
            # tokens on
            healthy=(0.0, "spread out"),
        ),
        Statistic(
            "second_moment_by_position",
            "Second moment by position",
            "q_t",
            "mean of x² over batch and coordinate, of the token at each position",
            ("resid_post",),
            "input² units",
            lambda signal: signal.by_token,
            "Mean x² of each token after {layer}.",
            log=True,
            marks={1.0: "q = 1"},
            by_position=True,
            by_factors=True,
        ),
        Statistic(
            "token_correlation_by_position",
            "Token correlation by position",
            "ρ_t",
            "mean overlap of a token with the others, over the mean product of their RMS",
            ("resid_post",),
            reduce=lambda signal: signal.correlation_by_token,
            bounds=(0.0, 1.0),
            caption="Overlap of each token with the others after {layer}.",
            marks={1.0: "all tokens alike", 0.0: "unrelated"},
            by_position=True,
            undefined_at_0=True,
        ),
        Statistic(
            "attention_entropy_by_position",
            "Attention entropy by position",
            "H_t",
            "Shannon entropy of the row of each query, without any sink, mean over batch and heads, nats",
            ("pattern",),
            "nats",
            lambda rows: rows.by_query,
            "Entropy of each token's attention in {layer}. Under a causal mask at most ln t: token t sees "
            "t keys.",
            marks={0.0: "one-hot"},
            by_position=True,
        ),
        # a sink by its mean attention: Gu et al. 2025, arXiv 2410.10781, who count the queries that
        # see the key alone
        Statistic(
            "attention_received",
            "Attention received by position",
            "a_t",
            "mean over queries, batch and heads of the weight that the key at each position receives",
            ("pattern",),
            "share",
            lambda rows: rows.received,
            "Mean weight that each token receives in {layer}. A causal mask alone favors the first tokens; "
            "1 on the first is an attention sink.",
            log=True,
            by_position=True,
            end=AtEnd(
                "Attention on the first token",
                "Mean weight that the first token receives in the last layer.",
                "a_1",
                "first token",
            ),
        ),
        Statistic(
            "output_logit_rms",
            "Output logits, RMS",
            "RMS z",
            "root mean square of the logits that the readout gives the stream after a layer, through the final "
            "norm",
            ("logits",),
            "logit",
            lambda signal: signal.q.sqrt(),
            "RMS of the readout's logits of each layer's stream; those of the last layer are the output's.",
            (1.0, "unit logits"),
            log=True,
            marks={1.0: "unit logits"},
            by_factors=True,
            power=0.5,
        ),
        Statistic(
            "output_logit_largest",
            "Output logits, largest",
            "max |z|",
            "largest of these logits, without its sign, over batch, token and character",
            ("logits",),
            "logit",
            lambda signal: signal.largest,
            "The largest of the readout's logits of each layer's stream, without its sign.",
            # √(2 ln M) of M = 13,184 unit normal numbers, the default's 2 × 64 tokens of 103
            # characters
            (4.4, "unit normal"),
            log=True,
            by_factors=True,
            power=0.5,
        ),
        Statistic(
            "activation_gradient",
            "Gradient by layer",
            "γ / γ_N",
            "mean of (∂L/∂x)² per coordinate, relative to the last layer",
            STREAM,
            log=True,
            caption="Flat: all layers train evenly.",
            healthy=(1.0, "flat"),
            marks={1.0: "flat"},
            compared="× that of the last layer",
            reference="last layer",
            backward=True,
            end=AtEnd(
                "Gradient, first / last layer",
                "Mean squared ∂L/∂x at the input of the first layer, relative to the last layer.",
                "γ_0 / γ_N",
                "input",
            ),
            by_factors=True,
            band=True,
        ),
        Statistic(
            "parameter_gradient",
            "Gradient by matrix",
            "‖∂L/∂W‖",
            "Frobenius norm of the loss gradient by one matrix",
            (*MATRICES, *VECTORS),
            "loss/weight",
            log=True,
            backward=True,
            end=AtEnd(
                "Largest gradient of a matrix",
                "Over all matrices of all layers.",
                "‖∂L/∂W‖",
                "largest matrix",
            ),
            by_factors=True,
            power=0.5,
            band=True,
        ),
    )
}


WEIGHT_STATISTICS: dict[str, Statistic] = {
    row.name: row
    for row in (
        Statistic(
            "weight_variance",
            "Weight variance",
            "fan_in · mean W²",
            "mean square of a matrix's entries times its fan_in; 1 keeps a unit second moment",
            MATRICES,
            "× 1/fan_in",
            log=True,
            marks={1.0: "unit"},
        ),
        Statistic(
            "weight_likeness",
            "Likeness of weights",
            "max cos(W_l, W_k)",
            "largest cosine between a matrix and the same one of another layer, of up to 4096 entries of each",
            MATRICES,
            bounds=(-1.0, 1.0),
            marks={1.0: "a copy", 0.0: "independent"},
        ),
        # Yang, Simon & Bernstein 2023, arXiv 2310.17813: the same at every width, of W and of its
        # change, where features are learned
        Statistic(
            "spectral_norm",
            "Spectral norm",
            "‖W‖₂ √(fan_in / fan_out)",
            "largest singular value over √(fan_out / fan_in): the largest factor on the RMS of a vector",
            MATRICES,
            "× √(fan_out / fan_in)",
            log=True,
            marks={1.0: "√(fan_out / fan_in)"},
        ),
        Statistic(
            "stable_rank",
            "Stable rank",
            "‖W‖_F² / ‖W‖₂²",
            "sum of the squared singular values over the largest: 1 of an outer product, fan_in of a rotation",
            MATRICES,
            log=True,
            marks={1.0: "one direction"},
        ),
        Statistic(
            "largest_possible_logit",
            "Largest possible logit",
            "‖W_Qᵀ W_K‖₂ d / √d_head",
            "largest singular value of a head's W_Qᵀ W_K, before any rotation by position, times the width over "
            "the divisor of the logits: the largest logit of two vectors of RMS 1",
            ("attn_scores",),
            "logit",
            log=True,
        ),
        Statistic(
            "logit_rank",
            "Stable rank of a head",
            "‖W_Qᵀ W_K‖_F² / ‖W_Qᵀ W_K‖₂²",
            "sum of the squared singular values of a head's W_Qᵀ W_K over the largest: 1 where its logits follow "
            "one direction",
            ("attn_scores",),
            log=True,
            marks={1.0: "one direction"},
        ),
    )
}
"""Statistics of the weights themselves: the first two where no config describes the model, the
others on request."""
VOCABULARY: Mapping[str, Statistic] = ChainMap(WEIGHT_STATISTICS, STATISTICS)
