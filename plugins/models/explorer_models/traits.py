"""Traits: what the code of all layers has in common, as far as a remedy depends on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from explorer.profile import BRANCHES
from explorer_models.facts import Facts
from explorer_models.matched import norms_of


def traits_of(layers: Sequence[Facts], normed: bool, final: bool | None) -> tuple[str, ...]:
    """Words of `TRAITS` that hold in every layer; a fact that was not read in one of them has none.

    Args:
        layers: facts of each.
        normed: whether any operation in them is a norm, be it one that is not read as such.
        final: whether a norm follows the last layer; None where that is not known.
    """
    return tuple(_traits(layers, normed, final)) if layers else ()


def _traits(layers: Sequence[Facts], normed: bool, final: bool | None) -> Iterator[str]:
    branches = [(facts, site) for facts in layers for site in BRANCHES if (site, "branch") in facts]
    norms = [norms_of(facts, site) for facts, site in branches]
    unread = any(("layer", "unread") not in facts or facts["layer", "unread"] for facts in layers)
    if branches and not unread:
        if not any(norms) and not normed:
            yield "no norm"
        elif all("sum" in places and not places & {"input", "output"} for places in norms):
            yield "norm on the sum alone"
        if all(facts[site, "skip"] == 0 for facts, site in branches):
            yield "no residual"
    heads = [facts for facts in layers if facts.get(("layer", "attends"))]
    if heads and all(facts.get(("attn_scores", "qk_normed")) for facts in heads):
        yield "norm on queries and keys"
    elif heads and not any(facts.get(("attn_scores", "qk_normed"), True) for facts in heads):
        yield "no norm on queries and keys"
    if heads and all(facts.get(("attn_scores", "divisor")) == 1 for facts in heads):
        yield "logits not divided"
    if final is not None:
        yield "norm after the layers" if final else "no norm after the layers"
