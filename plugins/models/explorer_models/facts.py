"""The design of a block, in facts that are compared with those of its siblings and with the
schemes' rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import takewhile
from operator import is_
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.profile import BRANCHES
from explorer.schemes.activation import ACTIVATIONS
from explorer.schemes.mlp import MLPS
from explorer.schemes.placement import NORMS
from explorer_models.anatomy import Anatomy, Sum, attends, branches_by_site
from explorer_models.heads import of_heads
from explorer_models.matrices import of_matrices
from explorer_models.nodes import FACTOR, MATRIX, NORM, VIEW, Node, walk, whole
from explorer_models.trace import Step, alpha, arguments, trace, unscaled

# The function of an MLP.


SAMPLED = 2**13
"""Numbers of which a function is judged."""
FITS = 1e-3
"""Share of the output's mean square up to which a function describes it: what bfloat16 rounds away
is 1e-5."""


LEAST = 8
"""Least numbers, all different, that show which function it is."""
STRAIGHT = 1e-12
"""Share of the output's mean square up to which a straight line describes it, in float32, whose
rounding is `EQUAL`."""
EQUAL = float(torch.finfo(torch.float32).eps) ** 2
"""Share up to which two functions are the same number by number, such as tanh and erf of small
arguments."""


class Bend(NamedTuple):
    """The function of an MLP."""

    mlp: str
    activation: str
    factor: float
    """On the activation."""
    misfit: float
    """Mean square of what the function leaves unexplained, as a share of the output's."""
    norms: int
    """Between the function and the last matrix."""


def read_bend(hidden: Node) -> Bend | None:
    """The function that makes what an MLP's last matrix reads; None where it is not one of one or
    two products."""
    norms = [step for step in trace(hidden)[0] if step.kind == "norm"]
    end = whole(norms[-1].before if norms else hidden)
    parts = arguments(end)
    orders: list[tuple[Node, Node | None]] = [(part, None) for part in parts[:1]]
    if len(parts) == 2:
        orders = [(parts[0], parts[1]), (parts[1], parts[0])]
    elif len(parts) > 2:
        return None
    # what is multiplied by a number may be an argument before it or after
    tried = [_best(form, value, end) for bent, value in orders for form in (bent, unscaled(bent))]
    best = min(
        (bend for bend in tried if bend is not None), key=lambda bend: bend.misfit, default=None
    )
    # a small argument is a line in any function
    if best is None or (best.activation == LINE and None in tried):
        return None
    return best._replace(norms=len(norms))


def _best(before: Node | None, value: Node | None, end: Node) -> Bend | None:
    """The rows that come nearest to the output."""
    size = end.tensor.numel()
    if (
        before is None
        or before.tensor.numel() != size
        or (value is not None and value.tensor.numel() != size)
    ):
        return None
    z, out = _sample(before.tensor), _sample(end.tensor)
    v = None if value is None else _sample(value.tensor)
    if not shown(z, out, *([] if v is None else [v])):
        return None
    tried: list[Bend] = []
    for kind, row in MLPS.items():
        if row.gated != (v is not None):
            continue
        for name, bend in ACTIVATIONS.items():
            made = bend.torch(F, z) * (1.0 if v is None else v + row.shift)
            norm = float(made.square().sum())
            factor = float((made * out).sum()) / norm if norm else 0.0
            misfit = float(
                (out - factor * made).square().sum() / out.square().sum().clamp(min=1e-300)
            )
            tried.append(Bend(kind, name, factor, misfit, 0))
    best = min(tried, key=lambda bend: bend.misfit, default=None)
    if best is None:
        return None
    same = [bend for bend in tried if bend.mlp == best.mlp]
    # arguments of one sign, or next to 0, show a straight line, which several functions have there
    exact = max(STRAIGHT, torch.finfo(end.tensor.dtype).eps ** 2)
    lines = [bend for bend in same if bend.misfit <= exact]
    straight = len(lines) > 1 and any(bend.activation == LINE for bend in lines)
    equal = [bend for bend in same if bend.misfit <= EQUAL]
    return None if straight or len(equal) > 1 else best


def shown(*samples: Tensor) -> bool:
    """Whether numbers say anything of a function of them: all are finite, and they are neither 0
    nor all alike."""
    return all(
        bool(sample.isfinite().all()) and bool(sample.any()) and len(torch.unique(sample)) >= LEAST
        for sample in samples
    )


def _sample(tensor: Tensor) -> Tensor:
    flat = tensor.detach().flatten()
    step = max(1, len(flat) // SAMPLED)
    return flat[::step].to(torch.float64)


# Each branch: norms, multipliers, functions, and the stream that it reads.


ROUNDED = 0.1
"""Deviation of a length from 1 that an ε outside the root explains, and the rounding of half
precision."""


def of_sublayers(anatomy: Anatomy) -> Iterator[tuple[tuple[str, str], Any]]:
    """Norms, multipliers and functions of each branch."""
    afters = {id(term.after) for term in anatomy.sums}
    for index, term in enumerate(anatomy.sums):
        following = (
            anatomy.sums[index + 1].before if index + 1 < len(anatomy.sums) else anatomy.output
        )
        on_sum = _norms(trace(following, partial(is_, term.after))[0]) if following else []
        skip, lineage = _skip(term, afters)
        for site, part in branches_by_site(anatomy, term):
            facts = _of_branch(site, part, afters | lineage)
            facts["norm sum"], facts["skip"] = bool(on_sum), skip
            # factors on a sum of two branches at once
            both, _ = trace(term.branch, partial(is_, part))
            facts["branch"] *= alpha(term.after) * math.prod(
                step.factor for step in both if step.kind == "factor"
            )
            norms = facts.pop("norms") + on_sum
            if norms:
                facts["epsilon"] = norms[0].epsilon
                facts["norm"] = "layer" if norms[0].centered else "rms"
            yield from (((site, name), value) for name, value in facts.items())
    if {"attn_out", "mlp_out"} <= set(anatomy.sites):
        yield ("layer", "parallel"), _parallel(anatomy)


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
        # beyond it lies what the norm was made of, which is no stream any more
        if step.kind == "norm":
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
    # what follows a norm's own gain is a multiplier
    multipliers = ("factor",) if out else ("factor", "gain")
    outer = [
        step
        for step in takewhile(lambda step: step.kind != "norm", steps)
        if step.kind in multipliers
    ]
    facts: dict[str, Any] = {
        "norm output": bool(out),
        "branch": math.prod(step.factor for step in outer),
    }
    if out:
        facts["branch"] *= _length(out[0])
    weights = [
        operand for step in outer for operand in step.node.inputs if operand.parameter is not None
    ]
    facts["learned"] = (
        "" if not weights else "number" if weights[0].tensor.numel() == 1 else "vector"
    )
    facts["learned_by"] = tuple(
        (id(weight.parameter), weight.tensor.storage_offset()) for weight in weights
    )
    norms = out
    width = part.tensor.shape[-1]
    last = (
        end
        if end.op in MATRIX
        else next((node for node in part.matrix if node.tensor.shape[-1] == width), None)
    )
    hidden = None if last is None else next(iter(last.made_of("deep")), None)
    if hidden is not None:
        line, inmost = trace(hidden)
        inner = _norms(line)
        facts["norm read"] = bool(inner)
        norms = norms + inner
        if site == "mlp_out" and (bend := read_bend(hidden)) is not None:
            facts.update(
                mlp=bend.mlp,
                activation=bend.activation if bend.misfit <= FITS else "another",
                nearest=bend.activation,
                factor=bend.factor,
            )
            facts["norm read"] = bend.norms > 0
        if site == "attn_out":
            facts["gates"] = _gates(inmost, math.prod(part.tensor.shape[:-1]))
    operand = _operand(part)
    if operand is not None:
        line, _ = trace(operand, lambda node: id(node) in streams or node.op == "input", bends=True)
        before = _norms(line)
        point = next((step for step in line if step.kind == "bend"), None)
        facts["norm input"] = bool(before) or point is not None
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
            for operand in node.made_of("stream", "reduced"):
                if operand.parameter is None:
                    return operand
    return None


def _gates(node: Node, tokens: int) -> int:
    """Number of gates on what attention's last matrix reads; 0 where there are none."""
    deep = node.made_of("deep")
    if node.op not in FACTOR or len(deep) != 2:
        return 0
    for gate in deep:
        while gate.op in VIEW and len(made := gate.made_of("deep")) == 1:
            gate = made[0]
        if gate.op == "sigmoid":
            return gate.tensor.numel() // tokens
    return 0


def _gain(after: Tensor, before: Tensor, norm: Step) -> float:
    """Factor that a norm applies to normalized vectors: its gains' root mean square, times any
    factor after it."""
    # a product may have the tokens in another order
    x, y = (
        before.detach().float(),
        after.detach().float(),
    )
    q = (x.var(dim=-1, correction=0) if norm.centered else x.square().mean(dim=-1)).double()
    left = float((q / (q + norm.epsilon).clamp(min=1e-300)).mean())
    # a norm of zeros shows no gain
    return math.sqrt(float(y.square().mean()) / left) if left else math.nan


def _length(norm: Step) -> float:
    """Root mean square that a norm leaves, without its own gain: 1, or 1/√d where it divides by a
    length."""
    length = 0.0 if norm.node.op in NORM else _gain(norm.node.tensor, norm.before.tensor, norm)
    return length if length and abs(length - 1) > ROUNDED else 1.0


def _point(bend: Step, line: list[Step]) -> dict[str, Any]:
    """The function in a norm's place, and what multiplies its argument."""
    inner = math.prod(
        step.factor for step in line[line.index(bend) + 1 :] if step.kind in ("factor", "gain")
    )
    names = [name for name, row in NORMS.items() if row.point and bend.node.op == row.point]
    return {"norm": names[0] if names else "another", "norm_alpha": inner}


def _parallel(anatomy: Anatomy) -> bool:
    """Whether the MLP reads the stream as it was before attention."""
    mlp = anatomy.sites["mlp_out"]
    attention = anatomy.sites["attn_out"]
    if any(
        mlp in term.branch.inside() and attention in term.branch.inside() for term in anatomy.sums
    ):
        return True
    operand = _operand(mlp)
    afters = [term.after for term in anatomy.sums if attention in term.branch.inside()]
    if operand is None or not afters:
        return False
    return all(
        part is not afters[0]
        for part in walk(operand, lambda part: part.made_of("stream", "reduced"))
    )


# All facts of a block.


Facts = Mapping[tuple[str, str], Any]
"""Site (attn_out, mlp_out, or layer) and name to a number or a word."""


SAME_SIZE = 0.02
"""Relative spread of the tokens' sizes up to which a norm has made them: its ε and half precision
leave that much. Tokens of 1,000 independent numbers have 0.3."""
DROPOUTS = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
LINE = "identity"
"""Function to which every other one is equal where its arguments are small."""
UNREADABLE = (RuntimeError, ValueError, TypeError, IndexError, KeyError, ArithmeticError)
"""Errors that a block built in no known way may cause; it is said which of its parts is unread, and
it is measured all the same."""


def read_facts(anatomy: Anatomy, block: nn.Module) -> Facts:
    """Everything that a block shows of its design; at ("layer", "unread") pairs of a part that it
    does not, and why."""
    attending = {
        id(term.branch) for term in anatomy.sums if any(map(attends, term.branch.inside()))
    }
    # in evaluation no number is dropped; what a module would drop says how the layer is built
    drops = [float(module.p) for module in block.modules() if isinstance(module, DROPOUTS)]
    facts: dict[tuple[str, str], Any] = {
        ("layer", "width"): anatomy.source.tensor.shape[-1],
        ("layer", "attentions"): len(attending),
        ("layer", "attends"): anatomy.attention is not None,
        ("layer", "branches"): tuple(site for site in BRANCHES if site in anatomy.sites),
        ("layer", "dropout"): max([0.0, *drops, *map(_dropped, anatomy.order)]),
        # with repetition, so that a matrix in two places is not a matrix less
        ("layer", "matrices"): tuple(
            sorted(
                tuple(parameter.shape)
                for _, parameter in block.named_parameters(remove_duplicate=False)
                if parameter.ndim > 1
            )
        ),
        ("attn_out", "normed before"): _has_one_size(anatomy.source.tensor),
    }
    if any(node.op == "topk" for node in anatomy.order):
        facts["layer", "experts"] = True
    unread = []
    for words, part in (
        ("branches", of_sublayers),
        ("attention", of_heads),
        ("matrices", of_matrices),
    ):
        try:
            facts.update(dict(part(anatomy)))
        except UNREADABLE as error:
            unread.append((words, f"{type(error).__name__}: {error}"))
    facts["layer", "unread"] = tuple(unread)
    return facts


def _has_one_size(stream: Tensor) -> bool:
    """Whether all tokens of the stream have one variance, or one second moment: it comes from a
    norm."""
    x = stream.detach().float()
    for sizes in (x.var(dim=-1, correction=0), x.square().mean(dim=-1)):
        if sizes.numel() > 1 and float(sizes.max() - sizes.min()) <= SAME_SIZE * float(sizes.max()):
            return True
    return False


def _dropped(node: Node) -> float:
    """Share of the numbers that an operation sets to zero at random."""
    rate = node.named.get("p" if node.op in ("native_dropout", "bernoulli_") else "dropout_p")
    return 0.0 if not isinstance(rate, float) else 1 - rate if node.op == "bernoulli_" else rate
