"""Fields of a config that say sizes, norms, MLP and how the weights were drawn, from what most layers have."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from explorer.measuring.statistics import Signal
from explorer.numbers import number
from explorer.own.facts import Facts
from explorer.own.matched import placement_of
from explorer.own.nodes import MATRIX, NORM, Node, is_norm
from explorer.profile import BRANCHES
from explorer.schemes.activation import second_moment
from explorer.schemes.placement import FINAL_NORMS, NORMS, PLACEMENTS

EXACT = 0.02
"""Up to which share a number that was read is taken for one of a table's."""
GAINED = 0.05
"""From this deviation on a gain is not taken for 1."""


class Majority:
    """The facts of all layers."""

    def __init__(self, layers: Sequence[Facts]) -> None:
        self.layers = layers
        self.unread: list[str] = []
        self.differs: list[str] = []
        self.parts: list[str] = []

    def usual(self, site: str, name: str, default: Any = None) -> Any:
        """The most common value of a fact over the layers, or the default where no layer has it."""
        values = [facts[site, name] for facts in self.layers if (site, name) in facts]
        if not values:
            return default
        return Counter(values).most_common(1)[0][0]

    def middle(self, site: str, name: str) -> float:
        """The median of a number over the layers."""
        values = [facts[site, name] for facts in self.layers if (site, name) in facts]
        return float(np.median(values)) if values else np.nan


SHAPES = {"normal": 3.0, "uniform": 1.8, "truncated_normal": 2.36}
"""Kurtosis of each distribution."""
READERS = (("W_Q", "W_K", "W_V", "W_G"), ("W_gate", "W_in"))
"""Matrices that read the norm before each branch."""


def sizes(majority: Majority) -> dict[str, Any]:
    """Width, depth, heads, hidden width."""
    width = majority.usual("layer", "width")
    shape = majority.usual("W_out", "shape")
    fields: dict[str, Any] = {"n_layers": len(majority.layers), "d_model": width}
    if shape is None:
        majority.unread.append("the MLP's matrices")
    else:
        fields["mlp_ratio"] = shape[0] / width
    return fields


def norms(majority: Majority, final: bool | None) -> dict[str, Any]:
    """Placement, kind, ε, and whether there is one after the last block."""
    name, wrong = placement_of(majority.layers)
    if len(wrong) > len(majority.layers):
        majority.differs.append("its norms stand where no placement of the table has them")
    fields: dict[str, Any] = {"norm_placement": name}
    kind = next((value for site in BRANCHES if (value := majority.usual(site, "norm"))), None)
    if kind == "another":
        majority.differs.append("a function stands in the norms' place that is not in the table")
    elif kind is not None:
        fields["norm"] = kind
    epsilon = next((value for site in BRANCHES if (value := majority.usual(site, "epsilon")) is not None), None)
    if epsilon is not None:
        fields["norm_epsilon"] = min(max(float(epsilon), 1e-12), 1.0)
    if (slope := next((value for site in BRANCHES if (value := majority.usual(site, "norm_alpha"))), None)) is not None:
        fields["norm_alpha"] = slope
    if final is None:
        majority.unread.append("whether a norm follows the last block")
    elif final != FINAL_NORMS["design"].present(PLACEMENTS[name]):
        fields["final_norm"] = "yes" if final else "no"
    if majority.usual("layer", "parallel"):
        fields["stream"] = "parallel"
    return fields


def mlp(majority: Majority) -> dict[str, Any]:
    """The MLP's row, its activation, and whether that is rescaled."""
    kind, name = majority.usual("mlp_out", "mlp"), majority.usual("mlp_out", "nearest")
    if kind is None:
        majority.unread.append("what the MLP computes between its matrices")
        return {"activation_rescaled": False}
    if majority.usual("mlp_out", "activation") == "another":
        majority.differs.append(f"its activation is none of the table; {name} is the nearest")
    factor, unit = majority.middle("mlp_out", "factor"), second_moment(name) ** -0.5
    rescaled = abs(factor / unit - 1) < EXACT and (abs(factor - 1) > EXACT or abs(unit - 1) < EXACT)
    if not rescaled and abs(factor - 1) > EXACT:
        majority.differs.append(f"its activation is multiplied by {number(factor)}")
    return {"mlp": kind, "activation": name, "activation_rescaled": rescaled}


def folded(majority: Majority, fields: Mapping[str, Any]) -> dict[str, float]:
    """Squared gains of the norms before each matrix, where they are not 1."""
    place = PLACEMENTS[fields["norm_placement"]].sublayer
    factors: dict[str, float] = {}
    for index, (site, names) in enumerate(zip(BRANCHES, READERS, strict=True)):
        logs = [math.log(facts[site, "gain"] / place(2 * layer + index, len(majority.layers)).scale)
                for layer, facts in enumerate(majority.layers) if facts.get((site, "gain"), 0.0) > 0]
        if not logs and any((site, "gain") in facts for facts in majority.layers):
            majority.differs.append("its norms have gains of 0, so that branches read nothing")
        if logs and abs(mean := float(np.median(logs))) > GAINED:
            factors |= dict.fromkeys(names, math.exp(2 * mean))
    return factors


def weights(majority: Majority) -> dict[str, Any]:
    """Distribution, biases, and what the layers' weights have to do with each other."""
    names = {name for facts in majority.layers for name, fact in facts if fact == "variance"}
    kurtosis = [majority.middle(name, "kurtosis") for name in names]
    shape = min(SHAPES, key=lambda name: abs(SHAPES[name] - float(np.nanmedian(kurtosis)))) if kurtosis else "normal"
    fields: dict[str, Any] = {"distribution": shape}
    biases = [facts[name, "bias"] * facts[name, "shape"][0] for facts in majority.layers
              for name in ("W_gate", "W_in", "W_out") if (name, "bias") in facts]
    if biases and (mean := float(np.mean(biases))) > 1e-12:
        fields["bias_variance"] = mean
    if len(majority.layers) > 1:
        same = [len({facts.get((name, "identity")) for facts in majority.layers}) == 1 for name in names]
        alike = [len({facts.get((name, "start")) for facts in majority.layers}) == 1 for name in names
                 if majority.middle(name, "variance") > 0]
        if alike and all(alike):
            fields["layer_weights"] = "shared" if all(same) else "copied"
    return fields


SURE = 4.0
"""Standard errors of the overlap of independent tokens beyond which a correlation is one."""
POINTS = {row.point for row in NORMS.values() if row.point}
"""Functions that stand in a norm's place."""
LEARNED = (0.2, 0.8)
"""Share of the second moment that tokens at one place of different sequences have in common, where each place has a
vector of its own: half of it, where both tables are drawn alike."""


class Source(NamedTuple):
    """Statistics of a stack's input, and whether a norm follows the last block."""

    second_moment: float
    correlation: float
    placed: float | None
    """Overlap of tokens at one place of different sequences beyond that of any; None with a single sequence."""
    tokens: int
    batch: int
    final: bool | None = None

    def fields(self, known: Mapping[str, Any], unread: list[str]) -> dict[str, Any]:
        """Fields of a config that describe the input; `known` has the width and positions."""
        fields: dict[str, Any] = {"n_ctx": max(2, self.tokens), "batch_size": self.batch,
                                  "input_second_moment": min(max(self.second_moment, 1e-8), 1e8)}
        correlation, learned = self.correlation, False
        if known.get("position", "none") == "none":
            if self.placed is None:
                unread.append("whether positions are added to the embeddings: it takes two sequences to see")
            elif LEARNED[0] < self.placed < LEARNED[1]:
                fields["position"], learned = "learned", True
                correlation *= 2  # of the tokens before their half of the second moment
        pairs = self.batch * self.tokens * (self.tokens - 1) / 2
        error = 1 / math.sqrt(max(1.0, pairs) * known["d_model"])
        if correlation > SURE * error * (1 + learned):
            fields |= {"input": "correlated", "input_correlation": min(max(correlation, 0.0), 1.0)}
        return fields


def read_source(stream: Tensor) -> Source:
    """From the first block's input, `[batch, token, d]`."""
    x = stream.detach().float()
    signal = Signal.of(x[None])
    q, batch, tokens = float(signal.q), x.shape[0], x.shape[1]
    correlation = float(signal.overlap) / q if tokens > 1 and q else 0.0
    placed = None
    if batch > 1 and tokens > 1 and q:
        across = Signal.of(x.transpose(0, 1)[None])
        total = x.double().sum(dim=(0, 1)).square().mean()
        within = float(signal.overlap) * batch * tokens * (tokens - 1)
        same = float(across.overlap) * tokens * batch * (batch - 1)
        apart = (float(total) - within - same - q * batch * tokens) / (batch * tokens * (batch - 1) * (tokens - 1))
        placed = (float(across.overlap) - apart) / q
    return Source(q, correlation, placed, tokens, batch)


def ends_with_norm(tail: Sequence[Node]) -> bool:
    """Whether the stream goes through a norm before any matrix, after the last block."""
    for node in tail:
        if node.role == "stream" and (node.op in NORM or is_norm(node.op, node.inputs)):
            return True
        if node.op in POINTS and node.inputs[0].role == "stream":
            return True
        if node.op in MATRIX and node.role:
            return False
    return False
