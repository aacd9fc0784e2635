"""Fields of a config that say sizes, norms, MLP and how the weights were drawn, from what most layers have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from explorer.numbers import number
from explorer.own.majority import EXACT, GAINED, Majority
from explorer.own.matched import placement_of
from explorer.profile import BRANCHES
from explorer.schemes.activation import second_moment
from explorer.schemes.placement import FINAL_NORMS, PLACEMENTS

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
