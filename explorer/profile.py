"""`Profile`: what a signal does, layer by layer. The narrow waist: theory, measurement and a
stranger's model fill it.

A profile is a table of arrays. A row is one statistic at one kind of site; its array runs over
`[seed, layer]`, `[seed, layer, head]` where attention is concerned, or `[seed, layer, position]` of
tokens. Layers count from 1; the site `embed` has the single layer 0. A value that is not finite
stays as it is, and `first_nonfinite` says where the trouble began."""

from __future__ import annotations

import json
import math
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from explorer.config import Config
from explorer.display import Copied, draw, glance, shown, table

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Array = NDArray[np.float64]
Key = tuple[str, str]

STREAM = ("embed", "resid_mid", "resid_post")
"""The residual stream: at the input, after each attention sublayer, after each MLP sublayer (norms
included)."""
BRANCHES = ("attn_out", "mlp_out")
"""Each branch's term of the sum: before any multiplier of the residual rule, after a norm on the
branch's output."""
MATRICES = ("W_Q", "W_K", "W_V", "W_G", "W_O", "W_gate", "W_in", "W_out")
"""The weight matrices of a layer, in the order of the forward pass."""
VECTORS = ("sink", "alpha", "mix")
"""Other learned parameters of a layer: a sink's logits, the residual α, and the mix of several
streams."""

FORWARD = (
    "embed",
    "attn_scores",
    "pattern",
    "attn_out",
    "resid_mid",
    "mlp_out",
    "resid_post",
    "logits",
)
"""The order in which a layer's sites are computed."""
ROWS = ("attn_scores", "pattern")
"""Sites of attention, by head."""


class Statistic(NamedTuple):
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
    marks: Mapping[float, str] = MappingProxyType({})
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
    by_position: bool = False
    """Whether it has a value of each token position, mean over batch and heads; a chart has those
    of one layer."""

    def mean(self, draws: Array, axis: int | tuple[int, ...] = 0) -> Array:
        """Mean over some axes, as it is predicted."""
        if not self.root:
            return np.asarray(np.mean(draws, axis))
        total = np.hypot.reduce(draws, axis)  # squares of gradients may leave float64's range
        return np.asarray(total / math.sqrt(draws.size / max(total.size, 1)))

    def standard_error(self, draws: Array) -> Array:
        """Standard error of `mean` over the first axis; nan of a single draw, or where a draw is
        not finite."""
        if len(draws) < 2:
            return np.full(draws.shape[1:], math.nan)
        with np.errstate(invalid="ignore"):
            if not self.root:
                return np.asarray(np.std(draws, axis=0, ddof=1) / math.sqrt(len(draws)))
            mean = self.mean(draws)
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


STATISTICS: dict[str, Statistic] = {
    row.name: row
    for row in (
        Statistic(
            "second_moment",
            "Second moment",
            "q = mean x²",
            "mean of x² over batch, token and coordinate",
            (*STREAM, *BRANCHES),
            "input² units",
            lambda signal: signal.q,
            "Mean x² of the residual stream.",
            (1.0, "q = 1"),
            log=True,
            marks={1.0: "q = 1"},
            reference="input",
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
            root=True,
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
        ),
        Statistic(
            "activation_gradient",
            "Gradient by layer",
            "γ / γ_N",
            "mean of (∂L/∂x)² per coordinate, relative to the last layer",
            STREAM,
            log=True,
            caption="Mean squared ∂L/∂x ÷ the last layer's. Flat: all layers train evenly.",
            healthy=(1.0, "flat"),
            marks={1.0: "flat"},
            compared="× that of the last layer",
            reference="last layer",
            backward=True,
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
            root=True,
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


SITE_WORDS = MappingProxyType(
    {
        "embed": "input",
        "resid_mid": "stream after attention",
        "resid_post": "stream after MLP",
        "attn_out": "attention output",
        "mlp_out": "MLP output",
        "attn_scores": "attention logits",
        "pattern": "attention pattern",
        "logits": "output logits",
    }
)
"""Words for the sites; a weight matrix keeps its name."""


FIRST_STEP = "the first step moves"
"""Begins the note on gradients that are 0 until a readout, or another weight after the layers, is
not."""
ALMOST_ZERO = "almost 0 at the input"
"""Ends the note on gradients at tokens that the first norm makes large."""
FEW_CARRY = "a mean over draws, which few of them carry"
"""Begins the note on a predicted mean that a typical draw is far below."""
OTHER_TOKENS = "the number of tokens changes"
"""Begins the note on correlations along a stack that pools tokens: those of its layers are not of
the same tokens."""


class Breakdown(NamedTuple):
    """The first value that is not finite, in the order of computation."""

    statistic: str
    site: str
    layer: int
    seed: int

    @property
    def site_label(self) -> str:
        """The site as a person calls it."""
        return SITE_WORDS.get(self.site, self.site)


class Fault(NamedTuple):
    """Something that is wrong in itself in a model that is not ours, as `own.faults` reads it."""

    kind: str
    """A key of `diagnosis.faults.KINDS`."""
    layer: int
    """From 1; 0 outside the layers."""
    place: str
    """A matrix, a site or a norm, in words; empty where the parameter's name says all."""
    value: float
    """How many numbers are meant, or of which size they are."""
    name: str = ""
    """Of the parameter, of the operation, or of the data type."""


TRAITS = (
    "no norm",
    "norm on the sum alone",
    "no residual",
    "norm on queries and keys",
    "no norm on queries and keys",
    "logits not divided",
    "norm after the layers",
    "no norm after the layers",
)
"""Words for what all layers of a model have in common, each read off its operations."""
LOGITS = ("loss", "error", "classes", "variance", "rms", "largest", "square_log_sum")
"""Mean cross-entropy in nats and its standard error over rows; number of classes; variance of a
row's logits, mean over rows; their root mean square and largest |z|; mean (ln Σ e^z)² over rows."""

FACTS = {
    "softmax": "axis over which attention's weights sum to 1: keys, queries, heads or sequences",
    "mask": "keys that a query sees: all (none), causal, reversed (later ones alone), ahead (one too many), another",
    "divisor": "of the attention logits",
    "d_head": "coordinates of a head",
    "qk_norm": "whether queries or keys are normalized: yes or no",
    "rotary": "mistake of rotary positions, see `own.heads.ROTARY`",
    "rotary_speed": "factor on rotary positions, where it is not 1",
    "restart": "token, from 0, at which rotary positions begin anew",
    "attention_skip": "factor on the stream that attention is added to",
    "mlp_skip": "factor on the stream that the MLP is added to",
    "attention_added": "no, where attention is computed and added to nothing",
    "modules": "distinct modules that a container of layers repeats from end to end, and the next",
    "entries": "entries of that container",
    "target": "what says that the model predicts tokens: see `own.ahead`",
    "ahead": "share of the gradient of a row of its logits that goes to tokens that it must not see; 0 without any",
}
"""Names in `Profile.facts`, each there where it was read and is the same in all layers that have
it."""


State = Literal[
    "first",
    "second",
    "later",
    "waiting",
    "frozen",
    "idle",
    "zeros",
    "never",
    "unreached",
    "unused",
    "uncalled",
    "checkpoint",
    "no_grad",
    "unheld",
    "no_rate",
    "unmoved",
]
"""Why parameters learn, or do not.

first: a gradient at the first step. second: exactly 0 then, and not at the second step. later: not
at a later one. waiting: exactly 0 so far, with no further step that was read. frozen: requires_grad
is False. idle: no gradient in this batch, where modules of the same name beside them have one, as
experts do.

zeros: exactly 0 at every step that was read, and so are the parameters themselves. never: exactly 0
at every such step. unreached: no path from the loss. unused: no operation reads them. uncalled:
their module was not called. checkpoint: a reentrant gradient checkpoint, none of whose arguments
requires a gradient. no_grad: their layer runs under torch.no_grad(). unheld: a gradient, and no
optimizer that has stepped holds them. no_rate: the learning rate of all their steps is 0. unmoved:
matrices with a gradient, and an optimizer's steps that change no number. """
STUCK: tuple[State, ...] = (
    "unheld",
    "no_rate",
    "unmoved",
    "checkpoint",
    "no_grad",
    "unreached",
    "zeros",
    "never",
    "uncalled",
    "unused",
)
"""States of parameters that do not learn, and are not frozen."""


class Part(NamedTuple):
    """Parameters of one name and state, in all layers that have them."""

    state: State
    name: str
    """Of the parameter or the module within its layer, such as attn.lora_A; within the model where
    it is in none. * stands for a number, and nothing for a whole layer."""
    layers: tuple[int, ...]
    """From 1; empty where they are in no layer of the stack."""
    parameters: int
    """How many they are."""
    matrix: bool
    """Whether one of them has two axes or more; of those whose gradient stays 0, two that are
    longer than 1."""


class Learning(NamedTuple):
    """Which parameters of a model that is not ours learn, and why others do not."""

    parts: tuple[Part, ...] = ()
    steps: int = 0
    """Steps of a training in which they were seen; 0 of a probe, which takes one small step itself
    where it must."""
    projected: bool = False
    """Whether the loss was a projection of the model's first output, which need not depend on all
    of the model."""
    facts: tuple[str, ...] = ()
    """Sentences on what was seen beside the states, such as how a gradient was read."""

    def of(self, *states: State) -> list[Part]:
        """The parts in some states."""
        return [part for part in self.parts if part.state in states]


NOT_READ = Learning()


@dataclass(frozen=True, eq=False)
class Profile(Copied):
    """Statistics of one model, measured or predicted, over independent seeds.

    Args:
        origin: "measured" or "predicted".
        values: `(statistic, site)` to an array `[seed, layer]`, `[seed, layer, head]` or `[seed,
            layer, position]`, float64, read-only. A prediction has one seed and, where heads are
            alike in law, one head.
        config: the experiment; None for a model that is not ours.
        model: name of such a model.
        layers: names of its blocks, in order.
        shapes: of its matrices, (fan_in, fan_out) by name, where they are known.
        dtype: the type in which its stream is computed, where numbers may run out of range:
            "float16".
        twin: the nearest design of ours, which says what theory expects of it; None where none is
            known, or where the model does not behave like it.
        remarks: sentences on how such a model was read: what could not be, what no config can say,
            and where it behaves otherwise than the nearest design.
        differences: layers that are built otherwise than their siblings: layer from 1, site, and
            what it does, such as (3, "attn_out", "has no norm before attention, where its siblings
            have one").
        faults: what is wrong in itself, such as weights that are not finite, in the order of the
            forward pass.
        traits: what the code of all layers of such a model has in common, words of `TRAITS`.
        kinds: name of each layer's kind, such as "attention, a window", where the layers of a model
            that is not ours were read: a layer is compared with those of its kind. "" for a layer
            that could not be read.
        absent: (statistic, site) to the layers, from 1, that have no such value: theirs are nan,
            and no breakdown.
        seeds: the seeds of the first axis; empty for a prediction.
        notes: statistic to the reason why the theory does not cover it (in part), or why it could
            not be measured.
        pattern: `[query, key]` of the layer and head in `pattern_of`, first sequence of the first
            seed.
        pattern_of: layer (from 1) and head (from 0) of `pattern`.
        seconds: duration of the measurement, or of the prediction.
        others: the same model's other stacks, such as an encoder beside its decoder.
        step: of its training, updates made before; 0 is the model as it was drawn.
        logits: of a model that is not ours and whose loss is the cross-entropy of its output: see
            `LOGITS`; else empty.
        learning: of a model that is not ours, which parameters learn; without parts where that was
            not read.
        waits: matrix to the layers, from 1, in which its gradient is exactly 0 before the first
            step and not after it.
        coverage: sentences on what was read of a model that is not ours, and what was not, where
            that is not all.
        facts: what all layers of a model that is not ours were seen to do, and whether it sees what
            it is to predict: see `FACTS`.

    Example:
        >>> profile = ex.predict(ex.Config(n_layers=12))
        >>> profile["second_moment", "resid_post"].shape  # [seed, layer]
        (1, 12)
        >>> profile["attention_entropy", "pattern"].shape  # [seed, layer, head], in nats
        (1, 12, 1)
    """

    origin: Literal["measured", "predicted"]
    values: Mapping[Key, Array]
    config: Config | None = None
    model: str = ""
    layers: tuple[str, ...] = ()
    shapes: Mapping[str, tuple[int, int]] = field(default_factory=lambda: MappingProxyType({}))
    dtype: str = ""
    twin: Config | None = None
    remarks: tuple[str, ...] = ()
    absent: Mapping[Key, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    differences: tuple[tuple[int, str, str], ...] = ()
    faults: tuple[Fault, ...] = ()
    traits: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    notes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    pattern: Array | None = None
    pattern_of: tuple[int, int] | None = None
    seconds: float = math.nan
    others: tuple[Profile, ...] = ()
    step: int = 0
    logits: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    learning: Learning = NOT_READ
    waits: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    coverage: tuple[str, ...] = ()
    facts: Mapping[str, float | str] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        values = {key: np.array(value, dtype=np.float64) for key, value in self.values.items()}
        for (statistic, site), value in values.items():
            if statistic not in VOCABULARY:
                raise ValueError(
                    f"statistic must be one of {', '.join(VOCABULARY)}; got {statistic!r}"
                )
            if value.ndim not in (2, 3):
                raise ValueError(
                    f"{statistic} at {site} must be [seed, layer(, head)]; got {value.shape}"
                )
            value.setflags(write=False)
        if self.pattern is not None:  # a copy, so that it keeps no tensor alive
            object.__setattr__(self, "pattern", np.array(self.pattern, dtype=np.float64))
        object.__setattr__(self, "values", MappingProxyType(values))
        for name in ("notes", "absent", "shapes", "logits", "waits", "facts"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def __getitem__(self, key: Key | str) -> Array:
        """The array of a statistic at a site, `[seed, layer]` or `[seed, layer, head]`.

        Args:
            key: `(statistic, site)`; the statistic alone where it has one site.
        Raises:
            KeyError: there is none, or several; names what there is.
        """
        keys = [held for held in self if key in (held, held[0])]
        if len(keys) == 1:
            return self.values[keys[0]]
        if keys:
            sites = ", ".join(site for _, site in keys)
            raise KeyError(
                f'{key} has several sites: {sites}; say profile["{key}", "{keys[-1][1]}"]'
            )
        held = ", ".join(f"{statistic}@{site}" for statistic, site in self)
        wanted = " at ".join(map(str, key)) if isinstance(key, tuple) else shown(key)
        raise KeyError(f"this profile has no {wanted}; it has {held}")

    def __iter__(self) -> Iterator[Key]:
        """Every `(statistic, site)`."""
        return iter(self.values)

    def __contains__(self, key: object) -> bool:
        """Whether there is such a `(statistic, site)`, or such a statistic at any site."""
        return any(key in (held, held[0]) for held in self)

    def keys(self) -> list[Key]:
        """Every `(statistic, site)`, in the order of the vocabulary; a notebook completes them
        within brackets."""
        return list(self)

    _ipython_key_completions_ = keys

    @property
    def partial(self) -> bool:
        """Whether it is a measurement of some of its config's seeds: the others are still to
        come."""
        return (
            self.origin == "measured"
            and self.config is not None
            and len(self.seeds) < self.config.n_seeds
        )

    @property
    def heading(self) -> str:
        """Origin and subject: 'measured: Config(n_layers=24), 4 seeds'."""
        seeds = f", {len(self.seeds)} seed{'s' * (len(self.seeds) != 1)}" if self.seeds else ""
        return f"{self.origin}: {self.config or self.model or 'a model without a config'}{seeds}"

    def __repr__(self) -> str:
        return f"Profile({self.heading}; {', '.join(dict.fromkeys(statistic for statistic, _ in self))})"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """The verdict and four charts; a table where there is no script to draw them."""
        return {"text/plain": repr(self), "text/html": self._repr_html_(), **glance(self)}

    def _repr_html_(self) -> str:
        """Each statistic in three numbers: the mean over seeds (and heads) where it begins,
        halfway, where it ends."""
        return table(
            self.heading,
            ("Statistic", "", "Where", "First", "Middle", "Last", ""),
            [
                (
                    VOCABULARY[name].label,
                    VOCABULARY[name].symbol,
                    where,
                    *_ends(name, value),
                    self.notes.get(name, ""),
                )
                for name in dict.fromkeys(
                    statistic for statistic, _ in self if not VOCABULARY[statistic].by_position
                )
                for where, value in self._places(name)
            ],
        )

    def _places(self, statistic: str) -> Iterator[tuple[str, Array]]:
        """The residual stream as one, and every other site by itself."""
        if any((statistic, site) in self for site in STREAM):
            yield "residual stream", self.stream(statistic)[1]
        for name, site in self:
            if name == statistic and site not in STREAM:
                without = [layer - 1 for layer in self.absent.get((name, site), ())]
                yield SITE_WORDS.get(site, site), np.delete(self[name, site], without, axis=1)

    def plot(self, statistic: str = "second_moment", *others: Profile, layer: int = 0) -> go.Figure:
        """A chart of the page, of this profile and others beside it.

        Args:
            statistic: a statistic, or the name of a chart.
            others: such as what the theory expects of the same config.
            layer: from 1, whose tokens a chart by position has; 0 is the last one, and so is one
                that a profile does not have.
        Raises:
            ValueError: there is no such chart, which names those there are; or it has all layers,
                and one is given.
        """
        return draw(self, statistic, *others, layer=layer)

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        own = sum(
            array.nbytes for array in (*self.values.values(), self.pattern) if array is not None
        )
        return own + sum(other.nbytes for other in self.others)

    def stream(self, statistic: str) -> tuple[Array, Array]:
        """A statistic along the residual stream, in the order of the forward pass.

        Returns:
            depth `[site]` in layers (0 the input, l − ½ after the attention of layer l, l after its
            MLP), and the values `[seed, site]`.
        """
        sites = [site for site in STREAM if (statistic, site) in self.values]
        parts = [(self.depth(site), self.values[statistic, site]) for site in sites]
        if not parts:
            raise KeyError(f"this profile has no {statistic} on the residual stream")
        depth = np.concatenate([part[0] for part in parts])
        order = np.argsort(depth, kind="stable")
        return depth[order], np.concatenate([part[1] for part in parts], axis=1)[:, order]

    def depth(self, site: str) -> Array:
        """Positions of a site's layers on the depth axis, `[layer]`, in layers."""
        length = next(value.shape[1] for (_, name), value in self.values.items() if name == site)
        if site == "embed":
            return np.zeros(length)
        return np.arange(1, length + 1) - (0.5 if site in ("resid_mid", "attn_out") else 0.0)

    def carried_by_few(self, statistic: str) -> bool:
        """Whether a statistic is a predicted mean over draws, which few draws carry: a typical one
        is far below it."""
        return self.notes.get(statistic, "").startswith(FEW_CARRY)

    @property
    def first_nonfinite(self) -> Breakdown | None:
        """The first value that is not finite, forward before backward, by depth; None when all are
        finite."""
        breakdowns = []
        for (statistic, site), value in self.values.items():
            bad = [
                index
                for index in np.argwhere(~np.isfinite(value)).tolist()
                if index[1] + 1 not in self.absent.get((statistic, site), ())
            ]
            if bad and not (self.origin == "predicted" and statistic in self.notes):
                way = -1 if VOCABULARY[statistic].backward else 1
                seed, layer, *_ = min(bad, key=lambda index: way * index[1])
                layer += site != "embed"
                order = FORWARD.index(site) if site in FORWARD else len(FORWARD)
                breakdown = Breakdown(statistic, site, layer, self.seeds[seed] if self.seeds else 0)
                breakdowns.append(((way < 0, way * layer, way * order), breakdown))
        return min(breakdowns, key=itemgetter(0))[1] if breakdowns else None

    def frame(self) -> pd.DataFrame:
        """Tidy: one number a row; columns origin, seed, site, layer, head, position, statistic,
        value.

        `head` and `position` (both from 0) are missing (<NA>) where the statistic has none; `seed`
        is missing in a prediction."""
        import pandas as pd

        seeds = np.array(self.seeds or [None])
        parts = [
            tidy(key, value).assign(
                origin=self.origin, seed=lambda part: pd.array(seeds[part.row], dtype="Int64")
            )
            for key, value in self.values.items()
        ]
        columns = ["origin", "seed", "site", "layer", "head", "position", "statistic", "value"]
        return pd.concat(parts, ignore_index=True)[columns].astype({"layer": "int64"})

    def to_json(self) -> str:
        """One JSON object that `from_json` reads back; nan and infinities become strings, for JSON
        has none."""
        return json.dumps(
            {
                "origin": self.origin,
                "config": None if self.config is None else self.config.model_dump(),
                "model": self.model,
                "layers": self.layers,
                "shapes": dict(self.shapes),
                "dtype": self.dtype,
                "twin": None if self.twin is None else self.twin.model_dump(),
                "differences": self.differences,
                **({"kinds": self.kinds} if self.kinds else {}),
                "remarks": self.remarks,
                "absent": [[*key, *layers] for key, layers in self.absent.items()],
                "seeds": self.seeds,
                "seconds": _plain(self.seconds),
                "notes": dict(self.notes),
                "first_nonfinite": first._asdict() if (first := self.first_nonfinite) else None,
                "values": [
                    {"statistic": statistic, "site": site, "values": _plain(value.tolist())}
                    for (statistic, site), value in self.values.items()
                ],
                "others": [json.loads(other.to_json()) for other in self.others],
                "step": self.step,
                **({"logits": dict(self.logits)} if self.logits else {}),
                **({"faults": [tuple(fault) for fault in self.faults]} if self.faults else {}),
                **({"traits": self.traits} if self.traits else {}),
                **({"learning": self.learning._asdict()} if self.learning.parts else {}),
                **({"waits": dict(self.waits)} if self.waits else {}),
                **({"coverage": self.coverage} if self.coverage else {}),
                **({"facts": dict(self.facts)} if self.facts else {}),
            },
            allow_nan=False,
        )

    @classmethod
    def from_json(cls, text: str) -> Profile:
        """Reads what `to_json` wrote; the pattern is not part of it.

        Raises:
            ValueError: it is something else; names the field, the rule and the value.
        """
        try:
            return _Stored.model_validate_json(text).profile()
        except (ValueError, OverflowError) as error:
            words = _refusal(error) if isinstance(error, ValidationError) else error
            raise ValueError(f"a profile must be what Profile.to_json wrote; {words}") from None


def index_of(layer: int, count: int) -> int:
    """Index of a layer, counted from 1, among so many: the last one's for 0, and for a layer that
    is not there."""
    return min(layer, count) - 1


def by_site(values: Array) -> dict[str, Array]:
    """Values along the stream, in the order of the forward pass, to those of each of its sites."""
    return dict(zip(STREAM, (values[:1], values[1::2], values[2::2]), strict=True))


def tidy(key: Key, values: Array) -> pd.DataFrame:
    """One number a row of `[row]`, `[row, layer]`, `[row, layer, head]` or `[row, layer,
    position]`.

    An axis that is not there is missing (<NA>). Layers count from 1, and 0 is the input; heads and
    positions from 0."""
    import pandas as pd  # half a second, which a page that shows no table need not wait

    index = np.indices(values.shape).reshape(values.ndim, -1)
    missing = np.full(values.size, None)
    last, placed = (
        index[2] if values.ndim > 2 else missing,
        key[0] in VOCABULARY and VOCABULARY[key[0]].by_position,
    )
    return pd.DataFrame(
        {
            "row": index[0],
            "statistic": key[0],
            "site": key[1],
            "layer": pd.array(
                index[1] + (key[1] != "embed") if values.ndim > 1 else missing, dtype="Int64"
            ),
            "head": pd.array(missing if placed else last, dtype="Int64"),
            "position": pd.array(last if placed else missing, dtype="Int64"),
            "value": values.ravel(),
        }
    )


def _ends(statistic: str, value: Array) -> list[float]:
    """The first, middle and last of `[seed, layer]` or `[seed, layer, head]`, mean over seeds and
    heads."""
    with np.errstate(all="ignore"):
        layers = VOCABULARY[statistic].mean(value, axis=(0, *range(2, value.ndim)))
    return [float(layers[place]) for place in (0, len(layers) // 2, -1)]


def _plain(value: Any) -> Any:
    """Numbers that JSON can hold: finite ones as they are, the others as the strings nan, inf and
    -inf."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if math.isfinite(value) else str(value)


MOST = 1e300
"""The largest number of seconds, or of a logit: a whole number of JSON may have any size."""


def _seconds(value: Any) -> Any:
    """A duration; one that is not finite is a text in JSON."""
    if isinstance(value, int | float) and abs(value) > MOST:
        raise ValueError(f"must be a number of at most {MOST:g}")
    return float(value) if value in ("nan", "inf", "-inf") else value


class _Row(BaseModel, strict=True):
    """One array of a profile as JSON."""

    statistic: str
    site: str
    values: Any


class _StoredLearning(BaseModel, strict=True):
    """`Learning` as JSON."""

    parts: tuple[tuple[State, str, tuple[int, ...], int, bool], ...] = ()
    steps: int = 0
    projected: bool = False
    facts: tuple[str, ...] = ()

    def learning(self) -> Learning:
        """The record."""
        return Learning(
            tuple(Part(*row) for row in self.parts), self.steps, self.projected, self.facts
        )


class _Stored(BaseModel, strict=True):
    """A profile as JSON; parts without a default must be there."""

    origin: Literal["measured", "predicted"]
    values: tuple[_Row, ...]
    config: dict[str, Any] | None
    seeds: tuple[int, ...]
    notes: dict[str, str]
    seconds: Annotated[float, BeforeValidator(_seconds)]
    model: str = ""
    layers: tuple[str, ...] = ()
    shapes: dict[str, tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]] = {}
    dtype: str = ""
    twin: dict[str, Any] | None = None
    remarks: tuple[str, ...] = ()
    absent: tuple[
        Annotated[
            tuple[str, str, tuple[int, ...]],
            BeforeValidator(
                lambda row: (*row[:2], tuple(row[2:])) if isinstance(row, list) else row
            ),
        ],
        ...,
    ] = ()
    differences: tuple[tuple[int, str, str], ...] = ()
    faults: tuple[
        Annotated[
            Fault,
            BeforeValidator(
                lambda row: Fault(*row) if isinstance(row, list) and 4 <= len(row) <= 5 else row
            ),
        ],
        ...,
    ] = ()
    traits: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    others: tuple[_Stored, ...] = ()
    step: int = 0
    logits: dict[str, Annotated[float, Field(ge=0, lt=MOST)]] = {}
    learning: _StoredLearning = Field(default_factory=lambda: _StoredLearning())
    waits: dict[str, tuple[int, ...]] = {}
    coverage: tuple[str, ...] = ()
    facts: dict[str, Annotated[float, Field(gt=-MOST, lt=MOST)] | str] = {}

    def profile(self, at: str = "") -> Profile:
        """The profile; `at` is its place in the file, before the name of a part."""
        values = {
            (row.statistic, row.site): _numbers(row.values, f"{at}values[{place}].values")
            for place, row in enumerate(self.values)
        }
        _must_fit(values, f"{at}values")
        return Profile(
            **dict(self)
            | {
                "values": values,
                "absent": {(statistic, site): layers for statistic, site, layers in self.absent},
                "learning": self.learning.learning(),
                "others": tuple(
                    other.profile(f"{at}others[{place}].")
                    for place, other in enumerate(self.others)
                ),
                **{
                    name: Config(**design) if design else None
                    for name, design in (("config", self.config), ("twin", self.twin))
                },
            }
        )


def _must_fit(values: Mapping[Key, Array], at: str) -> None:
    """Refuses arrays that cannot be of one model: those along the stream are drawn as one line.

    Args:
        values: `[seed, layer]` or `[seed, layer, …]` each.
        at: their place in the file.
    """
    layers: dict[str, int] = {"embed": 1}
    others: dict[str, tuple[int, ...]] = {}
    for (statistic, site), array in values.items():
        if site not in STREAM or array.ndim < 2:  # of fewer axes `Profile` speaks
            continue
        count = layers.setdefault(site, array.shape[1])
        if array.shape[1] != count:
            raise ValueError(
                f"{at} must have one number of layers at {site}; got {array.shape[1]} beside {count}, "
                f"of {statistic}"
            )
        seeds, _, *rest = array.shape
        first = others.setdefault(statistic, (seeds, *rest))
        if (seeds, *rest) != first:
            raise ValueError(
                f"{at} must have as many seeds, and heads or positions, at all sites of {statistic}; got "
                f"{(seeds, *rest)} at {site} beside {first}"
            )


def _refusal(error: ValidationError) -> str:
    """The first thing that is wrong with a file: its place, the rule and the value."""
    first = error.errors()[0]
    place = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]
    ).lstrip(".")
    if first["type"] == "missing":
        return f"it has no {place}"
    if first["type"] == "json_invalid":
        return f"it is no JSON: {first['msg']}"
    rule = (
        first["msg"]
        .replace("Input should", "must")
        .replace("Tuple should", "must")
        .removeprefix("Value error, ")
    )
    return f"{place or 'it'} {rule}; got {shown(first['input'])}"


def _numbers(rows: Any, at: str) -> Array:
    """An array; nan and infinities are strings in JSON."""
    try:
        if not isinstance(rows, list) or None in np.array(rows, dtype=object).ravel():
            raise TypeError
        return np.array(rows, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"{at} must be numbers, [seed, layer] or [seed, layer, head]; got {shown(rows)}"
        ) from None
