"""Facts and traits that all layers share: a mistake that every layer has does not show in a
comparison of layers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from explorer.sites import BRANCHES
from explorer_models.facts import Facts
from explorer_models.matched import norms_of
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
"""Relative difference up to which two numbers are the same."""


def shared(layers: Sequence[Facts], blocks: Sequence[Block]) -> dict[str, float | str]:
    """The facts that all layers share, as `Profile.facts` has them. Facts of attention must be
    the same in every layer that attends.

    Args:
        layers: the facts of each call of a block.
        blocks: the modules, in order, as their container holds them.
    """
    facts: dict[str, float | str] = {}
    for name, place in READ.items():
        values = [layer[place] for layer in layers if place in layer]
        whole = len(values) == len(layers) or place[0] not in BRANCHES
        if values and whole and all(_same(value, values[0]) for value in values):
            facts |= _entry(name, values[0])
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
    """Whether two facts are equal; numbers may differ by `APART`."""
    if isinstance(value, float) and isinstance(first, float):
        return math.isclose(value, first, rel_tol=APART)
    return value == first


def _entry(name: str, value: object) -> Mapping[str, float | str]:
    """A fact as an entry of `Profile.facts`, which are numbers and words; empty where it says
    nothing, such as an empty word."""
    if name == "normed" and isinstance(value, tuple):
        return {"qk_norm": "yes" if any(value[:2]) else "no"}
    if isinstance(value, str):
        return {name: value} if value else {}
    if isinstance(value, (int, float)) and math.isfinite(value) and (value or name != "restart"):
        return {name: float(value)}
    return {}


def _distinct(blocks: Sequence[Block]) -> int:
    """Number of modules that a container repeats from end to end, as `[block] * n` does; the number
    of its entries where it does not."""
    modules = [id(block.module) for block in blocks]
    count = len(set(modules))
    repeats = len(modules) // count if count else 0
    return count if modules == modules[:count] * repeats else len(modules)


def traits_of(layers: Sequence[Facts], normed: bool, final: bool | None) -> Iterator[str]:
    """Words of `TRAITS`: properties that all layers have and on which a remedy depends. A fact that
    was not read in some layer gives no trait.

    Args:
        layers: facts of each.
        normed: whether any operation in them is a norm, be it one that no fact describes.
        final: whether a norm follows the last layer; None where that is not known.
    """
    if not layers:
        return
    branches = [(facts, site) for facts in layers for site in BRANCHES if (site, "branch") in facts]
    unread = any(facts.get(("layer", "unread"), True) for facts in layers)
    if branches and not unread:
        norms = [norms_of(facts, site) for facts, site in branches]
        if not any(norms) and not normed:
            yield "no norm"
        elif all("sum" in sites and not sites & {"input", "output"} for sites in norms):
            yield "norm on the sum alone"
        if all(facts[site, "skip"] == 0 for facts, site in branches):
            yield "no residual"
    attending = [facts for facts in layers if facts.get(("layer", "attends"))]
    if attending:
        normed_heads = [facts.get(("attn_scores", "qk_normed")) for facts in attending]
        if all(normed_heads):
            yield "norm on queries and keys"
        elif all(value is False for value in normed_heads):
            yield "no norm on queries and keys"
        if all(facts.get(("attn_scores", "divisor")) == 1 for facts in attending):
            yield "logits not divided"
    if final is not None:
        yield "norm after the layers" if final else "no norm after the layers"
