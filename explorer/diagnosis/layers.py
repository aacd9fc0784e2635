"""`odd_weights`: one layer's matrices beside its siblings', and their effect there."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from explorer.diagnosis.cures import Cure, fix
from explorer.diagnosis.finding import Finding
from explorer.diagnosis.reading import by_layer, called, layer_name, path
from explorer.diagnosis.siblings import LIKE, unlike, worst
from explorer.numbers import number
from explorer.profile import MATRICES, SITE_WORDS, Array, Profile

FEEDS = {"attn_scores": ("W_Q", "W_K"), "attn_out": ("W_V", "W_G", "W_O"), "mlp_out": ("W_gate", "W_in", "W_out")}
"""A site, and the matrices that set its size."""
SIZE = {"attn_scores": "logit_std", "attn_out": "second_moment", "mlp_out": "second_moment"}
"""The statistic that is its size."""


def odd_weights(profile: Profile) -> Finding | None:
    """Matrices of another size than the same ones of the other layers."""
    odd_by_matrix = unlike({name: by_layer(profile, "weight_variance", name) for name in MATRICES})
    if not odd_by_matrix:
        return None
    layer, odd = worst(odd_by_matrix)
    name = max(odd, key=lambda matrix: abs(math.log(odd[matrix])))
    theirs = beside(by_layer(profile, "weight_variance", name), layer)
    scale = number(theirs / profile.shapes[name][0]) if name in profile.shapes else f"{number(theirs)} / fan_in"
    cure = Cure(f"Draw {name} of layer {layer} as its siblings are",
                f"nn.init.normal_({name}.weight, std=({scale}) ** 0.5)  # in {path(profile, layer)}")
    matrices = ", ".join(_matrix(profile, matrix, layer, ratio) for matrix, ratio in odd.items())
    others = sorted({other for layers in odd_by_matrix.values() for other in layers} - {layer})
    too = f" So do {', '.join(layer_name(profile, other) for other in others)}." if others else ""
    return Finding("warning", f"{called(profile, layer)} has weights unlike its siblings'.",
                   f"{matrices}; {_effect(profile, layer, odd)}.{too}", *fix(profile, cure))


def _matrix(profile: Profile, name: str, layer: int, ratio: float) -> str:
    """How a matrix differs: "W_out is 1.66 × wider than its siblings (weight variance 2.76, theirs 1)"."""
    size = by_layer(profile, "weight_variance", name)
    factor = math.sqrt(ratio)
    wider = f"{number(factor)} × wider" if factor > 1 else f"{number(1 / factor)} × narrower"
    fan_in, fan_out = profile.shapes.get(name, (1, 1))
    sides = fan_in / fan_out
    swapped = abs(math.log(sides)) > math.log(LIKE) and abs(math.log(ratio / sides)) < math.log(LIKE) / 2
    return (f"{name} is {wider} than its siblings (weight variance {number(float(size[layer - 1]))}, theirs "
            f"{number(beside(size, layer))}{f'; fan_out {fan_out} for fan_in {fan_in} does this' if swapped else ''})")


def _effect(profile: Profile, layer: int, odd: Mapping[str, float]) -> str:
    """Words on how far odd matrices move the sites that they feed."""
    clauses = []
    for site, names in FEEDS.items():
        size = by_layer(profile, SIZE[site], site)
        if len(size) and any(name in odd for name in names):
            ratio = float(size[layer - 1]) / beside(size, layer)
            kind = "spread" if site == "attn_scores" else "second moment"
            verb = "leaves the line there" if abs(math.log(ratio)) > math.log(LIKE) else "stays near the line"
            clauses.append(f"the {kind} of the {SITE_WORDS[site]} {verb}, {number(ratio)} × its neighbors'")
    return " and ".join(clauses) or "what it does is not part of this profile"


def beside(size: Array, layer: int) -> float:
    """Geometric mean of the layers beside one."""
    return float(np.exp(np.mean([np.log(size[near]) for near in (layer - 2, layer) if 0 <= near < len(size)])))
