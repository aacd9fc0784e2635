"""The design of one block, in facts that are compared with those of its siblings and with the schemes' rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from explorer.probes.branches import Anatomy, attends
from explorer.probes.entries import of_matrices
from explorer.probes.graph import Node
from explorer.probes.heads import read_heads
from explorer.probes.sublayers import of_sublayers

Facts = Mapping[tuple[str, str], Any]
"""Site (attn_out, mlp_out, or layer) and name to a number or a word."""


def read_facts(found: Anatomy) -> Facts:
    """Everything that a block shows of its design."""
    facts: dict[tuple[str, str], Any] = {("layer", "width"): found.source.tensor.shape[-1]}
    if "topk" in {node.op for node in found.graph.order}:
        facts["layer", "experts"] = True
    facts["layer", "attentions"] = len({id(one.branch) for one in found.sums if _attention_in(one.branch)})
    facts["layer", "attends"] = found.attention is not None
    facts["layer", "branches"] = tuple(site for site in ("attn_out", "mlp_out") if site in found.sites)
    facts.update(of_sublayers(found))
    heads = read_heads(found)
    if heads is not None:
        facts.update({("attn_scores", name): value for name, value in heads._asdict().items()})
    facts.update(of_matrices(found))
    return facts


def _attention_in(branch: Node) -> bool:
    return any(attends(node) for node in branch.inside())
