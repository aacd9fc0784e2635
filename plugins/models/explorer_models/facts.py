"""The design of a block, in facts that are compared with those of its siblings and with the
schemes' rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import takewhile
from operator import is_
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.schemes.activation import ACTIVATIONS
from explorer.schemes.mlp import MLPS
from explorer.schemes.placement import NORMS
from explorer.sites import BRANCHES
from explorer_models.anatomy import Anatomy, Fact, Sum, attends, branches_by_site
from explorer_models.heads import of_heads
from explorer_models.matrices import of_matrices
from explorer_models.model import named_error
from explorer_models.nodes import FACTOR, MATRIX, NORM, VIEW, Node, walk, whole
from explorer_models.trace import Step, alpha, arguments, trace, unscaled

# The function of an MLP.


SAMPLED = 2**13
"""Numbers by which activations are compared."""
FITS = 1e-3
"""Largest misfit, as a share of the output's mean square, of the right activation: what bfloat16
rounds away is 1e-5."""


LEAST = 8
"""Least count of different numbers that show a function."""
STRAIGHT = 1e-12
"""Share of the output's mean square up to which a straight line describes it, in float32, whose
rounding is `EQUAL`."""
EQUAL = float(torch.finfo(torch.float32).eps) ** 2
"""Share up to which two functions are the same number by number, such as tanh and erf of small
arguments."""


class Bend(NamedTuple):
    """The activation of an MLP."""

    mlp: str
    activation: str
    factor: float
    """On the activation."""
    misfit: float
    """Mean square of what the function leaves unexplained, as a share of the output's."""
    norms: int
    """Between the function and the last matrix."""


def read_bend(hidden: Node) -> Bend | None:
    """The activation of an MLP, by a comparison of its arguments and its result with every
    activation that we know; None where it is no function of one or two products.

    Args:
        hidden: what the MLP's last matrix multiplies.
    """
    norms = [step for step in trace(hidden)[0] if step.kind == "norm"]
    end = whole(norms[-1].before if norms else hidden)
    operands = arguments(end)
    if len(operands) > 2:
        return None
    # of two arguments either may be the one that is bent
    orders: list[list[Node]] = [operands, operands[::-1]] if len(operands) == 2 else [operands]
    # a factor may come before the activation or after it
    tried = [
        _best(argument, order[1] if len(order) == 2 else None, end)
        for order in orders
        if order
        for argument in (order[0], unscaled(order[0]))
    ]
    fits = [bend for bend in tried if bend is not None]
    best = min(fits, key=lambda bend: bend.misfit, default=None)
    # a small argument is a line in any function
    if best is None or (best.activation == LINE and None in tried):
        return None
    return best._replace(norms=len(norms))


def _best(argument: Node, value: Node | None, end: Node) -> Bend | None:
    """The activation that comes closest to making `end`; None where the numbers do not show which
    it is.

    Args:
        argument: of the activation.
        value: what the activation is multiplied by, in a gated MLP.
        end: the result.
    """
    operands = [argument] if value is None else [argument, value]
    if any(operand.tensor.numel() != end.tensor.numel() for operand in operands):
        return None
    out, *samples = (_sample(node.tensor) for node in (end, *operands))
    if not tells_functions(out, *samples):
        return None
    tried: list[Bend] = []
    for kind, row in MLPS.items():
        if row.gated != (value is not None):
            continue
        factor_of_value = samples[1] + row.shift if row.gated else 1.0
        for name, bend in ACTIVATIONS.items():
            made = bend.torch(F, samples[0]) * factor_of_value
            norm = float(made.square().sum())
            factor = float((made * out).sum()) / norm if norm else 0.0
            rest = (out - factor * made).square().sum()
            misfit = float(rest / out.square().sum().clamp(min=1e-300))
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


def tells_functions(*samples: Tensor) -> bool:
    """Whether samples of arguments and result can tell functions from each other: all numbers are
    finite, and no sample is 0 or has fewer than `LEAST` different numbers."""
    return all(
        bool(sample.isfinite().all()) and bool(sample.any()) and len(torch.unique(sample)) >= LEAST
        for sample in samples
    )


def _sample(tensor: Tensor) -> Tensor:
    """Some `SAMPLED` numbers of a tensor, evenly spread, in float64."""
    flat = tensor.detach().flatten()
    return flat[:: max(1, len(flat) // SAMPLED)].to(torch.float64)


# Each branch: norms, multipliers, functions, and the stream that it reads.


ROUNDED = 0.1
"""Deviation of a length from 1 that an ε outside the root explains, and the rounding of half
precision."""


def of_sublayers(anatomy: Anatomy) -> Iterator[Fact]:
    """Facts of each branch: norms, multipliers, the activation; and whether both branches read the
    same stream."""
    afters = {id(term.after) for term in anatomy.sums}
    following = [*(term.before for term in anatomy.sums[1:]), anatomy.output]
    for term, stream in zip(anatomy.sums, following, strict=False):
        on_sum = _norms(trace(stream, partial(is_, term.after))[0]) if stream else []
        skip, lineage = _skip(term, afters)
        for site, branch in branches_by_site(anatomy, term):
            facts = _of_branch(site, branch, afters | lineage)
            facts["norm sum"], facts["skip"] = bool(on_sum), skip
            # factors on a sum of two branches at once
            steps, _ = trace(term.branch, partial(is_, branch))
            facts["branch"] *= alpha(term.after) * _factor(steps, "factor")
            norms = facts.pop("norms") + on_sum
            if norms:
                facts["epsilon"] = norms[0].epsilon
                facts["norm"] = "layer" if norms[0].centered else "rms"
            yield from (((site, name), value) for name, value in facts.items())
    if {"attn_out", "mlp_out"} <= set(anatomy.sites):
        yield ("layer", "parallel"), _parallel(anatomy)


def _norms(steps: list[Step]) -> list[Step]:
    """The norms among some steps."""
    return [step for step in steps if step.kind == "norm"]


def _factor(steps: Iterable[Step], *kinds: str) -> float:
    """Product of the factors of all steps of some kinds."""
    return math.prod(step.factor for step in steps if step.kind in kinds)


def _skip(term: Sum, afters: set[int]) -> tuple[float, set[int]]:
    """The factor on the stream in a residual addition, and the ids of the nodes that are the stream
    before it, back to the previous addition.

    A norm on the stream that is added divides its length: nodes before such a norm are another
    stream.

    Args:
        afters: ids of the streams after all additions of the block.
    """
    if term.before is None:
        return 0.0, set()
    lineage: set[int] = set()

    def stop(node: Node) -> bool:
        lineage.add(id(node))
        return id(node) in afters

    factor = 1.0
    for step in trace(term.before, stop)[0]:
        lineage.add(id(step.node))
        if step.kind == "norm":
            _, end = trace(step.before, lambda node: id(node) in afters)
            lineage -= {id(end)} - {id(step.node)}
            return factor * _length(step), lineage
        factor *= _factor([step], "factor", "gain")
    return factor, lineage


def _of_branch(site: str, branch: Node, streams: set[int]) -> dict[str, Any]:
    """Facts of a branch by name, from its term of the residual addition back to the stream.

    Args:
        site: attn_out or mlp_out.
        branch: the term.
        streams: ids of the nodes that are the stream.
    """
    steps, end = trace(branch)
    out = _norms(steps)
    # what follows a norm's own gain is a multiplier
    multipliers = ("factor",) if out else ("factor", "gain")
    after_norm = takewhile(lambda step: step.kind != "norm", steps)
    outer = [step for step in after_norm if step.kind in multipliers]
    weights = [
        operand for step in outer for operand in step.node.inputs if operand.parameter is not None
    ]
    learned = ""
    if weights:
        learned = "number" if weights[0].tensor.numel() == 1 else "vector"
    facts: dict[str, Any] = {
        "norm output": bool(out),
        "branch": _factor(outer, *multipliers) * (_length(out[0]) if out else 1.0),
        "learned": learned,
        "learned_by": tuple(
            (id(weight.parameter), weight.tensor.storage_offset()) for weight in weights
        ),
    }
    inner = _inside(site, branch, end, facts)
    before = _before(branch, streams, facts)
    facts["norms"] = before + out + inner
    return facts


def _inside(site: str, branch: Node, end: Node, facts: dict[str, Any]) -> list[Step]:
    """Adds the facts of what a branch's last matrix reads, and gives the norms there.

    Args:
        end: where the branch's line of factors and norms begins.
    """
    width = branch.tensor.shape[-1]
    wide = (node for node in branch.matrix if node.tensor.shape[-1] == width)
    last = end if end.op in MATRIX else next(wide, None)
    hidden = None if last is None else next(iter(last.made_of("deep")), None)
    if hidden is None:
        return []
    line, inmost = trace(hidden)
    norms = _norms(line)
    facts["norm read"] = bool(norms)
    if site == "attn_out":
        facts["gates"] = _gates(inmost, math.prod(branch.tensor.shape[:-1]))
    elif (bend := read_bend(hidden)) is not None:
        facts["mlp"], facts["nearest"], facts["factor"] = bend.mlp, bend.activation, bend.factor
        facts["activation"] = bend.activation if bend.misfit <= FITS else "another"
        facts["norm read"] = bend.norms > 0
    return norms


def _before(branch: Node, streams: set[int], facts: dict[str, Any]) -> list[Step]:
    """Adds the facts of what a branch's first matrix reads, and gives the norms before it.

    Args:
        streams: ids of the nodes that are the stream.
    """
    operand = _operand(branch)
    if operand is None:
        return []
    line, _ = trace(operand, lambda node: id(node) in streams or node.op == "input", bends=True)
    norms = _norms(line)
    point = next((step for step in line if step.kind == "bend"), None)
    facts["norm input"] = bool(norms) or point is not None
    if norms:
        facts["gain"] = _gain(operand.tensor, norms[0].before.tensor, norms[0])
    elif point is not None:
        facts.update(_point(point, line))
    return norms


def _operand(branch: Node) -> Node | None:
    """The stream, or a norm of it, as the branch's first matrix reads it; None where no matrix of
    the branch reads the stream."""
    for node in branch.inside():
        if node.op in MATRIX and any(operand.parameter is not None for operand in node.inputs):
            for operand in node.made_of("stream", "reduced"):
                if operand.parameter is None:
                    return operand
    return None


def _gates(node: Node, tokens: int) -> int:
    """Number of gates for each token on the output of attention: heads or coordinates; 0 without a
    gate.

    Args:
        node: what attention's last matrix reads.
        tokens: of all sequences.
    """
    factors = node.made_of("deep")
    if node.op not in FACTOR or len(factors) != 2:
        return 0
    for gate in factors:
        while gate.op in VIEW and len(made := gate.made_of("deep")) == 1:
            gate = made[0]
        if gate.op == "sigmoid":
            return gate.tensor.numel() // tokens
    return 0


def _gain(after: Tensor, before: Tensor, norm: Step) -> float:
    """Factor on normalized vectors: the root mean square of the norm's gains, times any factor
    after it. nan where the vectors are 0.

    Args:
        after: the vectors with gain; a product may have the tokens in another order.
        before: the vectors before the norm.
    """
    x, y = before.detach().float(), after.detach().float()
    q = (x.var(dim=-1, correction=0) if norm.centered else x.square().mean(dim=-1)).double()
    # the mean square that ε leaves of 1
    left = float((q / (q + norm.epsilon).clamp(min=1e-300)).mean())
    return math.sqrt(float(y.square().mean()) / left) if left else math.nan


def _length(norm: Step) -> float:
    """Root mean square that a norm leaves, without its own gain: 1, or 1/√d where it divides by
    a vector's length."""
    length = 0.0 if norm.node.op in NORM else _gain(norm.node.tensor, norm.before.tensor, norm)
    return length if length and abs(length - 1) > ROUNDED else 1.0


def _point(bend: Step, line: list[Step]) -> dict[str, Any]:
    """Facts of a function in a norm's place, such as tanh of α x: its name and α."""
    before = line[line.index(bend) + 1 :]
    names = [name for name, row in NORMS.items() if row.point and bend.node.op == row.point]
    name = names[0] if names else "another"
    return {"norm": name, "norm_alpha": _factor(before, "factor", "gain")}


def _parallel(anatomy: Anatomy) -> bool:
    """Whether the MLP reads the stream as it was before attention."""
    mlp, attention = anatomy.sites["mlp_out"], anatomy.sites["attn_out"]
    attending = [term for term in anatomy.sums if attention in term.branch.inside()]
    if any(mlp in term.branch.inside() for term in attending):
        return True
    operand = _operand(mlp)
    if operand is None or not attending:
        return False
    return attending[0].after not in walk(operand, lambda node: node.made_of("stream", "reduced"))


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
"""Activation that every other one equals where its arguments are small."""
UNREADABLE = (RuntimeError, ValueError, TypeError, IndexError, KeyError, ArithmeticError)
"""Errors that an unknown way to build a block may cause while it is read: that part is then called
unread, and the block is measured all the same."""


def read_facts(anatomy: Anatomy, block: nn.Module) -> Facts:
    """All facts of a block's design. At ("layer", "unread") are pairs: a part of the block that
    could not be read, and the error."""
    attending = {
        id(term.branch) for term in anatomy.sums if any(map(attends, term.branch.inside()))
    }
    # in evaluation no number is dropped; what a module would drop says how the layer is built
    drops = [float(module.p) for module in block.modules() if isinstance(module, DROPOUTS)]
    # with repetition, so that a matrix in two places is not a matrix less
    parameters = [weight for _, weight in block.named_parameters(remove_duplicate=False)]
    facts: dict[tuple[str, str], Any] = {
        ("layer", "width"): anatomy.source.tensor.shape[-1],
        ("layer", "attentions"): len(attending),
        ("layer", "attends"): anatomy.attention is not None,
        ("layer", "branches"): tuple(site for site in BRANCHES if site in anatomy.sites),
        ("layer", "dropout"): max([0.0, *drops, *map(_dropped, anatomy.order)]),
        ("layer", "matrices"): tuple(
            sorted(tuple(weight.shape) for weight in parameters if weight.ndim > 1)
        ),
        ("attn_out", "normed before"): _has_one_size(anatomy.source.tensor),
    }
    if any(node.op == "topk" for node in anatomy.order):
        facts["layer", "experts"] = True
    unread = []
    for name, read_part in (
        ("branches", of_sublayers),
        ("attention", of_heads),
        ("matrices", of_matrices),
    ):
        try:
            facts.update(dict(read_part(anatomy)))
        except UNREADABLE as error:
            unread.append((name, named_error(error)))
    facts["layer", "unread"] = tuple(unread)
    return facts


def _has_one_size(stream: Tensor) -> bool:
    """Whether all tokens of the stream have one variance, or one second moment, because a norm has
    just made them so."""
    x = stream.detach().float()
    for sizes in (x.var(dim=-1, correction=0), x.square().mean(dim=-1)):
        if sizes.numel() > 1 and float(sizes.max() - sizes.min()) <= SAME_SIZE * float(sizes.max()):
            return True
    return False


def _dropped(node: Node) -> float:
    """Share of the numbers that an operation sets to zero at random; 0 of any but dropout."""
    rate = node.named.get("p" if node.op in ("native_dropout", "bernoulli_") else "dropout_p")
    if not isinstance(rate, float):
        return 0.0
    return 1 - rate if node.op == "bernoulli_" else rate
