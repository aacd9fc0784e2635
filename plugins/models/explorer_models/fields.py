"""Fields of a config from the facts that most layers share; and a sentence for each thing that no
field says."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from explorer.measuring.statistics import Signal
from explorer.schemes.activation import second_moment
from explorer.schemes.attention import DIVISORS
from explorer.schemes.placement import FINAL_NORMS, PLACEMENTS
from explorer.sites import BRANCHES
from explorer_models.facts import Facts
from explorer_models.matched import placement_of
from explorer_models.texts import text

EXACT = 0.02
"""Up to which share a number that was read is taken for one of a table's."""
GAINED = 0.05
"""From this deviation on a gain is not taken for 1."""


class Majority:
    """The facts that most layers share, and sentences on what no field of a config says.

    Args:
        layers: the facts of each layer.
        unread: a sentence for each thing that could not be read.
    """

    def __init__(self, layers: Sequence[Facts], unread: Sequence[str]) -> None:
        self.layers, self.unread = layers, list(unread)
        self.differs: list[str] = []
        self.parts: list[str] = []

    def values(self, site: str, name: str) -> list[Any]:
        """A fact's values in the layers that have it."""
        return [facts[site, name] for facts in self.layers if (site, name) in facts]

    def usual(self, site: str, name: str, default: Any = None) -> Any:
        """The most common value of a fact over the layers; the default where no layer has it."""
        counts = Counter(self.values(site, name))
        return counts.most_common(1)[0][0] if counts else default

    def of_branches(self, name: str) -> Any:
        """The usual value of a fact, of attention where it has one, else of the MLP."""
        return next(
            (value for site in BRANCHES if (value := self.usual(site, name)) is not None), None
        )

    def middle(self, site: str, name: str) -> float:
        """The median of a number over the layers; nan where no layer has it."""
        values = self.values(site, name)
        return float(np.median(values)) if values else np.nan


SURE = 4.0
"""Standard errors above 0 from which on a correlation of tokens is no chance."""
LEARNED = (0.2, 0.8)
"""Share of the second moment that tokens at one place of different sequences have in common, where
each place has a vector of its own: half of it, where both tables are drawn alike."""


class Source(NamedTuple):
    """Statistics of the tensor that goes into a stack's first block."""

    second_moment: float
    correlation: float
    placed: float | None
    """Overlap of tokens at one place of different sequences beyond that of any; None with a single
    sequence."""
    tokens: int
    batch: int

    @classmethod
    def of(cls, stream: Tensor) -> Source:
        """The statistics of the first block's input, `[batch, token, d]`.

        The sum over all pairs of tokens splits into four: a token with itself, others of its
        sequence, others at its position, and all others. `placed` compares the last two."""
        x = stream.detach().float()
        signal = Signal.of(x[None])
        q, batch, tokens = float(signal.q), x.shape[0], x.shape[1]
        correlation = float(signal.overlap) / q if tokens > 1 and q else 0.0
        placed = None
        if batch > 1 and tokens > 1 and q:
            same_position = float(Signal.of(x.transpose(0, 1)[None]).overlap)
            total = float(x.double().sum(dim=(0, 1)).square().mean())
            total -= q * batch * tokens
            total -= float(signal.overlap) * batch * tokens * (tokens - 1)
            total -= same_position * tokens * batch * (batch - 1)
            elsewhere = total / (batch * tokens * (batch - 1) * (tokens - 1))
            placed = (same_position - elsewhere) / q
        return cls(q, correlation, placed, tokens, batch)

    def fields(self, fields: Mapping[str, Any], unread: list[str]) -> dict[str, Any]:
        """Fields of a config that describe the input.

        Args:
            fields: those so far, among them the width and the positions.
            unread: gets a sentence for each thing that could not be read.
        """
        own: dict[str, Any] = {"n_ctx": max(2, self.tokens), "batch_size": self.batch}
        if not 0 < self.second_moment < math.inf:
            unread.append(text("unread", "input"))
            return own
        own["input_second_moment"] = min(max(self.second_moment, 1e-8), 1e8)
        correlation, learned = self.correlation, False
        if fields.get("position", "none") == "none":
            if self.placed is None:
                unread.append(text("unread", "positions"))
            elif LEARNED[0] < self.placed < LEARNED[1]:
                own["position"], learned = "learned", True
                correlation *= 2  # of the tokens before their half of the second moment
        pairs = self.batch * self.tokens * (self.tokens - 1) / 2
        error = 1 / math.sqrt(max(1.0, pairs) * fields["d_model"])
        if correlation > SURE * error * (1 + learned):
            own |= {"input": "correlated", "input_correlation": min(max(correlation, 0.0), 1.0)}
        return own


SHAPES = {"normal": 3.0, "uniform": 1.8, "truncated_normal": 2.36}
"""Kurtosis of the entries under each distribution."""
READERS = (("W_Q", "W_K", "W_V", "W_G"), ("W_gate", "W_in"))
"""Matrices that read the norm before each branch."""


def sizes(majority: Majority) -> dict[str, Any]:
    """Fields of width, depth, and the MLP's hidden width."""
    width = majority.usual("layer", "width")
    shape = majority.usual("W_out", "shape")
    fields: dict[str, Any] = {"n_layers": len(majority.layers), "d_model": width}
    if shape is None:
        majority.unread.append(text("unread", "mlp_matrices"))
    else:
        fields["mlp_ratio"] = shape[0] / width
    return fields


def attention(majority: Majority) -> dict[str, Any]:
    """Fields of attention: heads, divisor, cap, mask, positions, QK-norm, gates, sink, and what is
    carried from the layer before."""
    if not majority.usual("layer", "attends"):
        if "attn_out" in majority.usual("layer", "branches", ()):
            majority.parts.append(text("parts", "no_attention"))
        return {"attention": "none"}
    d_head = majority.usual("attn_scores", "d_head")
    if d_head is None:
        majority.unread.append(text("unread", "logits"))
        return {}
    heads = max(1, majority.usual("attn_scores", "n_heads"))
    fields: dict[str, Any] = {
        "n_heads": heads,
        "logit_cap": majority.usual("attn_scores", "cap"),
        "sink": majority.usual("attn_scores", "sink"),
    }
    if d_head * heads != majority.usual("layer", "width"):
        fields["head_size"] = d_head
    shape = majority.usual("W_K", "shape")
    key_heads = shape[1] // d_head if shape else heads
    if 0 < key_heads < heads:
        fields["n_kv_heads"] = key_heads
    fields |= _logits(majority, d_head)
    fields |= _places(majority)
    fields |= _qk_norm(majority, heads, fields.get("qk_gain", 1.0))
    gates = {0: "none", heads: "head", heads * d_head: "coordinate"}
    fields["attention_gate"] = gates.get(majority.usual("attn_out", "gates", 0), "none")
    last = majority.layers[-1]  # the first layer has nothing that it could carry on
    if last.get(("attn_scores", "mixes_values")):
        fields["value_residual"] = True
    if (inherited := last.get(("attn_scores", "inherits"), "none")) != "none":
        fields["residual_attention"] = inherited
    return fields


def _qk_norm(majority: Majority, heads: int, factor: float) -> dict[str, Any]:
    """Fields of norms on queries and keys; none where values are normed too, which is a placement
    of the norms.

    Args:
        heads: number of them.
        factor: on queries and keys, which `_logits` has found beside their norms.
    """
    queries, keys, values = majority.usual("attn_scores", "normed")
    if not queries or not keys or values:
        return {}
    gain = majority.middle("attn_scores", "gain") * factor
    return {
        "qk_norm": True,
        "qk_norm_over": queries if heads > 1 else "head",
        "qk_gain": gain if abs(math.log(max(gain, 1e-9))) > GAINED else 1.0,
    }


def _logits(majority: Majority, d_head: int) -> dict[str, Any]:
    """The field of the divisor: the row that divides the logits so, else the nearest one, with a
    sentence. Beside norms on queries and keys, any other divisor is a factor on them."""
    divisor = majority.middle("attn_scores", "divisor")
    for name, row in DIVISORS.items():
        if "ssmax_scale" not in row.uses and abs(divisor / row.of(d_head) - 1) <= EXACT:
            return {"attention_scale": name}
    if any(majority.usual("attn_scores", "normed", ("",))):
        return {"attention_scale": "sqrt_d", "qk_gain": math.sqrt(d_head) / divisor}
    majority.differs.append(text("differs", "divisor", divisor=divisor, d_head=d_head))
    distances = {
        name: abs(math.log(abs(divisor) / row.of(d_head)))
        for name, row in DIVISORS.items()
        if not row.uses
    }
    return {"attention_scale": min(distances, key=lambda name: (distances[name], name))}


def _places(majority: Majority) -> dict[str, Any]:
    """Fields of mask and positions."""
    mask, position, turn = (
        majority.usual("attn_scores", name) for name in ("mask", "position", "turn")
    )
    fields: dict[str, Any] = {"causal": mask == "causal"}
    if mask is None:
        majority.unread.append(text("unread", "mask"))
    elif mask not in ("causal", "none"):
        majority.differs.append(text("differs", "mask"))
    if position == "another":
        majority.differs.append(text("differs", "positions"))
    elif position == "rotary" and turn is not None:
        fields["position"] = "rotary"
        fields["rope_base"] = min(max(turn.base, 1.0), 1e8)
        fields["rope_fraction"] = turn.share
    elif position == "alibi":
        fields["position"] = "alibi"
    return fields


def norms(majority: Majority, final: bool | None) -> dict[str, Any]:
    """Fields of the norms: placement, kind, ε, and whether one follows the last block.

    Args:
        final: whether a norm follows the last block; None where that is not known.
    """
    name, wrong = placement_of(majority.layers)
    if len(wrong) > len(majority.layers):
        majority.differs.append(text("differs", "placement"))
    fields: dict[str, Any] = {"norm_placement": name}
    kind = majority.of_branches("norm")
    if kind == "another":
        majority.differs.append(text("differs", "norm"))
    elif kind is not None:
        fields["norm"] = kind
    if (epsilon := majority.of_branches("epsilon")) is not None:
        fields["norm_epsilon"] = min(max(float(epsilon), 1e-12), 1.0)
    if slope := majority.of_branches("norm_alpha"):
        fields["norm_alpha"] = slope
    if final is None:
        majority.unread.append(text("unread", "final_norm"))
    elif final != FINAL_NORMS["design"].present(PLACEMENTS[name]):
        fields["final_norm"] = "yes" if final else "no"
    if majority.usual("layer", "parallel"):
        fields["stream"] = "parallel"
    return fields


def mlp(majority: Majority) -> dict[str, Any]:
    """Fields of the MLP: gated or not, its activation, and whether that is rescaled to a second
    moment of 1."""
    kind, name = majority.usual("mlp_out", "mlp"), majority.usual("mlp_out", "nearest")
    if kind is None:
        majority.unread.append(text("unread", "mlp_function"))
        return {"activation_rescaled": False}
    if majority.usual("mlp_out", "activation") == "another":
        majority.differs.append(text("differs", "activation", nearest=name))
    factor, unit = majority.middle("mlp_out", "factor"), second_moment(name) ** -0.5
    rescaled = abs(factor / unit - 1) < EXACT and (abs(factor - 1) > EXACT or abs(unit - 1) < EXACT)
    if not rescaled and abs(factor - 1) > EXACT:
        majority.differs.append(text("differs", "factor", factor=factor))
    return {"mlp": kind, "activation": name, "activation_rescaled": rescaled}


def folded(majority: Majority, fields: Mapping[str, Any]) -> dict[str, float]:
    """Squared gains of the norms before each matrix, by the matrix' name, where they are not 1.

    A config has no such gain: the matrix' variance is multiplied by it instead. A model whose gains
    are 0 in a norm has no such variance: `majority.differs` gets a sentence on that.

    Args:
        majority: the facts of the model's layers.
        fields: of its config so far, with "norm_placement".
    """
    place = PLACEMENTS[fields["norm_placement"]].sublayer
    factors: dict[str, float] = {}
    # attention, then the MLP: the branch, and the matrices that read its normalized input
    for index, (site, names) in enumerate(zip(BRANCHES, READERS, strict=True)):
        # ln of the mean gain over the factor that the placement has itself, of each layer
        logs = [
            math.log(facts[site, "gain"] / place(2 * layer + index, len(majority.layers)).scale)
            for layer, facts in enumerate(majority.layers)
            if 0 < facts.get((site, "gain"), 0.0) < math.inf
        ]
        if not logs and any(facts.get((site, "gain")) == 0 for facts in majority.layers):
            majority.differs.append(text("differs", "no_gain"))
        if logs and abs(mean := float(np.median(logs))) > GAINED:
            factors |= dict.fromkeys(names, math.exp(2 * mean))
    return factors


def weights(majority: Majority) -> dict[str, Any]:
    """Fields of the weights: distribution, biases, and whether layers share or copy them."""
    names = {name for facts in majority.layers for name, fact in facts if fact == "variance"}
    kurtosis = [size for name in names if not math.isnan(size := majority.middle(name, "kurtosis"))]
    fields: dict[str, Any] = {"distribution": "normal"}
    if kurtosis:
        fields["distribution"] = min(
            SHAPES, key=lambda name: abs(SHAPES[name] - float(np.median(kurtosis)))
        )
    biases = [
        facts[name, "bias"] * facts[name, "shape"][0]
        for facts in majority.layers
        for name in ("W_gate", "W_in", "W_out")
        if (name, "bias") in facts
    ]
    if biases and (mean := float(np.mean(biases))) > 1e-12:
        fields["bias_variance"] = mean
    if len(majority.layers) > 1:
        ids = [tuple(facts.get((name, "identity")) for name in names) for facts in majority.layers]
        unique, n_layers = len(set(ids)), len(ids)
        alike = [
            len({facts.get((name, "start")) for facts in majority.layers}) == 1
            for name in names
            if majority.middle(name, "variance") > 0
        ]
        if alike and all(alike):
            fields["layer_weights"] = "shared" if unique == 1 else "copied"
        elif 1 < unique < n_layers and ids == ids[:unique] * (n_layers // unique):
            fields |= {"layer_weights": "looped", "n_loops": n_layers // unique}
    return fields
