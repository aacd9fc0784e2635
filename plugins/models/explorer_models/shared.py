"""Facts that all layers share: a mistake that no layer is alone with shows in no comparison of
layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from explorer.profile import BRANCHES
from explorer_models.facts import Facts
from explorer_models.model import Block

READ = {
    "softmax": ("attn_scores", "softmax"),
    "mask": ("attn_scores", "mask"),
    "divisor": ("attn_scores", "divisor"),
    "d_head": ("attn_scores", "d_head"),
    "rotary": ("attn_scores", "rotary"),
    "restart": ("attn_scores", "restart"),
    "normed": ("attn_scores", "normed"),
    "attention_skip": ("attn_out", "skip"),
    "mlp_skip": ("mlp_out", "skip"),
}
"""Name of a fact in `Profile.facts` to its site and name in a layer's facts."""
APART = 1e-3
"""Relative difference up to which a number is the same in all layers."""


def shared(layers: Sequence[Facts], blocks: Sequence[Block]) -> dict[str, float | str]:
    """`Profile.facts`, as far as blocks show them: of attention where it was read, the same in each
    layer that has it.

    Args:
        layers: the facts of each call of a block.
        blocks: the modules, in order, as their container holds them.
    """
    facts: dict[str, float | str] = {}
    for name, place in READ.items():
        values = [layer[place] for layer in layers if place in layer]
        whole = len(values) == len(layers) or place[0] not in BRANCHES
        if values and whole and all(_same(value, values[0]) for value in values):
            facts |= _told(name, values[0])
    attends = [layer for layer in layers if layer.get(("layer", "attends"))]
    if len(attends) == len(layers) and not any(
        "attn_out" in layer.get(("layer", "branches"), ()) for layer in layers
    ):
        facts["attention_added"] = "no"
    speeds = {
        turn.speed
        for layer in layers
        if (turn := layer.get(("attn_scores", "turn"))) is not None and turn.fits
    }
    if len(speeds) == 1 and (speed := speeds.pop()) != 1:
        facts["rotary_speed"] = speed
    count = _distinct(blocks)
    if count < len(blocks):
        facts |= {"modules": float(count), "entries": float(len(blocks))}
    return facts


def _same(value: object, first: object) -> bool:
    if isinstance(value, float) and isinstance(first, float):
        return math.isclose(value, first, rel_tol=APART)
    return value == first


def _told(name: str, value: object) -> Mapping[str, float | str]:
    """A fact as a number or a word; nothing of what is neither."""
    if name == "normed" and isinstance(value, tuple):
        return {"qk_norm": "yes" if any(value[:2]) else "no"}
    if isinstance(value, str):
        return {name: value} if value else {}
    if isinstance(value, (int, float)) and math.isfinite(value) and (value or name != "restart"):
        return {name: float(value)}
    return {}


def _distinct(blocks: Sequence[Block]) -> int:
    """Number of modules that a container repeats from end to end, as `[block] * n` does; else of
    its entries."""
    modules = [id(block.module) for block in blocks]
    count = len(set(modules))
    turns = len(modules) // count if count else 0
    return count if modules == modules[:count] * turns else len(modules)
