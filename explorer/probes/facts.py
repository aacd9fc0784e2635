"""The design of one block, in facts that are compared with those of its siblings and with the schemes' rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from explorer.probes.branches import Anatomy, attends
from explorer.probes.entries import of_matrices
from explorer.probes.graph import Node
from explorer.probes.heads import of_heads
from explorer.probes.sublayers import of_sublayers

Facts = Mapping[tuple[str, str], Any]
"""Site (attn_out, mlp_out, or layer) and name to a number or a word."""


UNREADABLE = (RuntimeError, ValueError, TypeError, IndexError, KeyError, ArithmeticError)
"""Errors that a block built in no known way may cause; it is said which of its parts is unread, and it is measured all
the same."""


def read_facts(found: Anatomy) -> Facts:
    """Everything that a block shows of its design; at ("layer", "unread") pairs of a part that it does not, and why."""
    facts: dict[tuple[str, str], Any] = {("layer", "width"): found.source.tensor.shape[-1]}
    if "topk" in {node.op for node in found.graph.order}:
        facts["layer", "experts"] = True
    facts["layer", "attentions"] = len({id(one.branch) for one in found.sums if _attention_in(one.branch)})
    facts["layer", "attends"] = found.attention is not None
    facts["layer", "branches"] = tuple(site for site in ("attn_out", "mlp_out") if site in found.sites)
    facts["layer", "dropout"] = max((one for node in found.graph.order for one in _dropped(node)), default=0.0)
    unread = []
    for what, part in (("branches", of_sublayers), ("attention", of_heads), ("matrices", of_matrices)):
        try:
            facts.update(dict(part(found)))
        except UNREADABLE as error:
            unread.append((what, f"{type(error).__name__}: {error}"))
    facts["layer", "unread"] = tuple(unread)
    return facts


def _dropped(node: Node) -> Iterator[float]:
    """Share of the numbers that an operation sets to zero at random."""
    if node.op == "native_dropout":
        yield from (one for one in node.scalars if isinstance(one, float))
    if node.op == "bernoulli_":
        yield from (1 - one for one in node.scalars if isinstance(one, float))
    if isinstance(share := node.named.get("dropout_p"), float):
        yield share


def _attention_in(branch: Node) -> bool:
    return any(attends(node) for node in branch.inside())
