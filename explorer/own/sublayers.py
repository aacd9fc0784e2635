"""The design of each branch of a block: norms, multipliers, functions, and the stream that it reads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import Tensor

from explorer.own.bends import FITS, read_bend
from explorer.own.branches import Anatomy, Sum, kinds
from explorer.own.nodes import FACTOR, MATRIX, NORM, VIEW, Node
from explorer.own.trace import Step, alpha, trace
from explorer.schemes.placement import NORMS

ROUNDED = 0.1
"""Deviation of a length from 1 that an ε outside the root explains, and the rounding of half precision."""


def of_sublayers(anatomy: Anatomy) -> Iterator[tuple[tuple[str, str], Any]]:
    """Norms, multipliers and functions of each branch."""
    afters = {id(term.after) for term in anatomy.sums}
    for index, term in enumerate(anatomy.sums):
        following = anatomy.sums[index + 1].before if index + 1 < len(anatomy.sums) else anatomy.output
        on_sum = _norms(trace(following, partial(_is, term.after))[0]) if following else []
        skip, lineage = _skip(term, afters)
        for site, part in kinds(anatomy, term):
            facts = _of_branch(site, part, afters | lineage)
            facts["on_sum"], facts["skip"] = bool(on_sum), skip
            facts["branch"] *= alpha(term.after) * _outer(term.branch, part)
            norms = facts.pop("norms") + on_sum
            if norms:
                facts["epsilon"] = norms[0].epsilon
                facts["norm"] = "layer" if norms[0].centered else "rms"
            yield from (((site, name), value) for name, value in facts.items())
    if {"attn_out", "mlp_out"} <= set(anatomy.sites):
        yield ("layer", "parallel"), _parallel(anatomy)


def _is(wanted: Node, node: Node) -> bool:
    return node is wanted


def _outer(branch: Node, part: Node) -> float:
    """Factor on a sum of two branches at once."""
    if branch is part:
        return 1.0
    return math.prod(step.factor for step in trace(branch, lambda node: node is part)[0] if step.kind == "factor")


def _norms(steps: list[Step]) -> list[Step]:
    return [step for step in steps if step.kind == "norm"]


def _skip(term: Sum, afters: set[int]) -> tuple[float, set[int]]:
    """The factor on the stream, and the tensors that are the stream as it was before it."""
    if term.before is None:
        return 0.0, set()
    lineage: set[int] = set()

    def stop(node: Node) -> bool:
        lineage.add(id(node))
        return id(node) in afters
    factor = 1.0
    for step in trace(term.before, stop)[0]:
        lineage.add(id(step.node))
        if step.kind == "norm":  # beyond it lies what the norm was made of, which is no stream any more
            _, end = trace(step.before, lambda node: id(node) in afters)
            lineage -= {id(end)} - {id(step.node)}
            factor *= _length(step)
            break
        factor *= step.factor if step.kind in ("factor", "gain") else 1.0
    return factor, lineage


def _of_branch(site: str, part: Node, streams: set[int]) -> dict[str, Any]:
    """Facts of a branch: norms and factors from its term of the sum back to the stream."""
    steps, end = trace(part)
    out = _norms(steps)
    first = next((index for index, step in enumerate(steps) if step.kind == "norm"), len(steps))
    outer = [step for step in steps[:first] if step.kind in ("factor", "gain")]
    if out:  # what follows a norm's own gain is a multiplier
        outer = [step for step in outer if step.kind == "factor"]
    facts: dict[str, Any] = {"on_output": bool(out), "branch": math.prod(step.factor for step in outer)}
    if out:
        facts["branch"] *= _length(out[0])
    weights = [operand for step in outer for operand in step.node.inputs if operand.parameter is not None]
    facts["learned"] = "" if not weights else "number" if weights[0].tensor.numel() == 1 else "vector"
    facts["learned_by"] = tuple((id(weight.parameter), weight.tensor.storage_offset()) for weight in weights)
    norms = out
    width = part.tensor.shape[-1]
    last = end if end.op in MATRIX else next((node for node in part.matrix if node.tensor.shape[-1] == width), None)
    hidden = None if last is None else next((operand for operand in last.inputs if operand.role == "deep"), None)
    if hidden is not None:
        line, inmost = trace(hidden)
        inner = _norms(line)
        facts["on_read"] = bool(inner)
        norms = norms + inner
        if site == "mlp_out" and (bend := read_bend(hidden)) is not None:
            facts.update(mlp=bend.mlp, activation=bend.activation if bend.misfit <= FITS else "another",
                         nearest=bend.activation, factor=bend.factor)
            facts["on_read"] = bend.norms > 0
        if site == "attn_out":
            facts["gates"] = _gates(inmost, math.prod(part.tensor.shape[:-1]))
    operand = _operand(part)
    if operand is not None:
        line, _ = trace(operand, lambda node: id(node) in streams or node.op == "input", bends=True)
        before = _norms(line)
        point = next((step for step in line if step.kind == "bend"), None)
        facts["on_input"] = bool(before) or point is not None
        if before:
            facts["gain"] = _gain(operand.tensor, before[0].before.tensor, before[0])
            norms = before + norms
        elif point is not None:
            facts.update(_point(point, line))
    facts["norms"] = norms
    return facts


def _operand(part: Node) -> Node | None:
    """The stream as the branch's first matrix reads it."""
    for node in part.inside():
        if node.op in MATRIX and any(operand.parameter is not None for operand in node.inputs):
            for operand in node.inputs:
                if operand.role in ("stream", "reduced") and operand.parameter is None:
                    return operand
    return None


def _gates(node: Node, tokens: int) -> int:
    """Number of gates on what attention's last matrix reads; 0 where there are none."""
    deep = [operand for operand in node.inputs if operand.role == "deep"]
    if node.op not in FACTOR or len(deep) != 2:
        return 0
    for gate in deep:
        while gate.op in VIEW and len(made := [operand for operand in gate.inputs if operand.role == "deep"]) == 1:
            gate = made[0]
        if gate.op == "sigmoid":
            return gate.tensor.numel() // tokens
    return 0


def _gain(after: Tensor, before: Tensor, norm: Step) -> float:
    """Factor that a norm applies to normalized vectors: its gains' root mean square, times any factor after it."""
    x, y = before.detach().float(), after.detach().float()  # a product may have the tokens in another order
    q = (x.var(dim=-1, correction=0) if norm.centered else x.square().mean(dim=-1)).double()
    left = float((q / (q + norm.epsilon).clamp(min=1e-300)).mean())
    return math.sqrt(float(y.square().mean()) / left) if left else 0.0


def _length(norm: Step) -> float:
    """Root mean square that a norm leaves, without its own gain: 1, or 1/√d where it divides by a length."""
    length = 0.0 if norm.node.op in NORM else _gain(norm.node.tensor, norm.before.tensor, norm)
    return length if length and abs(length - 1) > ROUNDED else 1.0


def _point(bend: Step, line: list[Step]) -> dict[str, Any]:
    """The function in a norm's place, and what multiplies its argument."""
    inner = math.prod(step.factor for step in line[line.index(bend) + 1:] if step.kind in ("factor", "gain"))
    names = [name for name, row in NORMS.items() if row.point and bend.node.op == row.point]
    return {"norm": names[0] if names else "another", "norm_alpha": inner}


def _parallel(anatomy: Anatomy) -> bool:
    """Whether the MLP reads the stream as it was before attention."""
    mlp = anatomy.sites["mlp_out"]
    attention = anatomy.sites["attn_out"]
    if any(mlp in term.branch.inside() and attention in term.branch.inside() for term in anatomy.sums):
        return True
    operand = _operand(mlp)
    afters = [term.after for term in anatomy.sums if attention in term.branch.inside()]
    if operand is None or not afters:
        return False
    return not any(above is afters[0] for above in _stream_above(operand))


def _stream_above(node: Node) -> Iterator[Node]:
    left, visited = [node], {id(node)}
    while left:
        above = left.pop()
        yield above
        for part in above.inputs:
            if part.role in ("stream", "reduced") and id(part) not in visited:
                visited.add(id(part))
                left.append(part)
