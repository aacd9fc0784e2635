"""Faults: what is wrong in itself, read off parameters and operations: zeros, constants, sizes, the
first NaN.

A symptom is many layers away from its cause: a gain of 10³⁰ shows as attention logits that are
infinite. So numbers are looked at where they arise, and the diagnosis hangs its remedies on what is
found here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from explorer.foreign import Fault
from explorer.sites import BRANCHES, SITE_WORDS
from explorer.vocabulary import Key
from explorer_models.anatomy import Anatomy, queries_keys_values
from explorer_models.nodes import (
    BENT,
    FACTOR,
    FUSED,
    MATRIX,
    NORM,
    REDUCTION,
    SOFTMAX,
    SUM,
    VIEW,
    Node,
    is_norm,
    tensors_in,
    walk,
)

LARGEST = 1e4
"""Root mean square of a parameter that no rule draws and no training reaches; float16 ends at 6.6
times as much."""
HIDING = {"masked_fill", "masked_fill_", "where", "full", "full_like", "log", "scalar_tensor"}
"""Operations that put −∞ where a key is hidden."""
ORIGINS = {
    "weight_not_finite",
    "batch",
    "input",
    "loss",
    "empty_row",
    "leaf",
    "divided_by_zero",
    "overflow",
    "undefined",
}
"""Kinds of faults that say where the first value is that is not finite."""


def of_block(anatomy: Anatomy, layer: int) -> list[Fault]:
    """Faults of a block that has just run, while its tensors are there.

    Args:
        layer: of the block, from 1.
    """
    if layer == 1 and not bool(anatomy.source.tensor.any()):
        return [Fault("zero_input", 0, "", float(anatomy.source.tensor.numel()))]
    faults = [*_gains(anatomy, layer), *_constants(anatomy, layer), *_doubled(anatomy, layer)]
    output = anatomy.output.tensor
    if bool(anatomy.source.tensor.isfinite().all()) and not bool(output.isfinite().all()):
        first = origin(anatomy.order, layer, anatomy)
        faults += [first] if first else []
    elif not any(fault.kind == "zero_gain" for fault in faults):
        faults += _dead(anatomy, layer)
    return faults


# Gains of norms.


class Gains(NamedTuple):
    """The vector by which a norm multiplies its coordinates, and where the norm is."""

    place: str
    """Where the norm stands, in words."""
    node: Node
    """The factors; 1 + w where a norm is written so."""

    @property
    def parameter(self) -> nn.Parameter | None:
        """The parameter that they are, or are made of."""
        node: Node | None = self.node
        while node is not None and node.parameter is None:
            node = next(iter(node.inputs), None)
        return None if node is None else node.parameter


def gains_of(anatomy: Anatomy) -> Iterator[Gains]:
    """The gains of a block's norms, in the order of their computation."""
    for index, node in enumerate(anatomy.order):
        gain = gain_of(node)
        if gain is not None:
            yield Gains(_place(anatomy, node, index), gain)


def gain_of(node: Node) -> Node | None:
    """The vector by which an operation multiplies what a norm has divided; None of any other
    operation."""
    made = node.made_of()
    if node.op in NORM:  # which puts out means and sizes, too
        weight = node.named.get("weight")
        whole = bool(made) and node.tensor.shape == made[0].tensor.shape
        return weight if whole and isinstance(weight, Node) else None
    if node.op not in FACTOR or len(made) != 1 or len(node.inputs) != 2:
        return None
    other = next(operand for operand in node.inputs if operand is not made[0])
    before = made[0]
    while before.op in VIEW and before.inputs:
        before = before.inputs[0]
    vector = other.tensor.numel() == other.tensor.shape[-1] > 1 if other.tensor.ndim else False
    return other if vector and is_norm(before) else None


def _place(anatomy: Anatomy, node: Node, index: int) -> str:
    """The place of a norm in a block, in words.

    Args:
        node: the norm, or the product with its gains.
        index: its number in `anatomy.order`.
    """
    numbers = {id(computed): number for number, computed in enumerate(anatomy.order)}
    attends = numbers.get(id(anatomy.attention), -1)
    if node.role == "deep":
        if index < attends:
            return "the norm on queries or keys"
        later = (
            site
            for site in BRANCHES
            if site in anatomy.sites and index <= numbers.get(id(anatomy.sites[site]), -1)
        )
        branch = next(later, "mlp_out")
        return "the norm after attention" if branch == "attn_out" else "the norm after the MLP"
    for site, place in (
        ("resid_post", "the norm on the sum after the MLP"),
        ("resid_mid", "the norm on the sum after attention"),
    ):
        if anatomy.sites.get(site) is node:
            return place
    return "the norm before attention" if index < attends else "the norm before the MLP"


def _gains(anatomy: Anatomy, layer: int) -> Iterator[Fault]:
    """A fault for each norm whose gains are all 0."""
    for place, node in gains_of(anatomy):
        if not bool(node.tensor.any()):
            yield Fault("zero_gain", layer, place, float(node.tensor.numel()))


# Matrices, units and sums.


def _constants(anatomy: Anatomy, layer: int) -> Iterator[Fault]:
    """Matrices with one number in all entries, other than 0: their units are equal, and stay so
    in training."""
    for name, pieces in anatomy.matrices.items():
        finite = [piece.numbers() for piece in pieces if bool(piece.parameter.isfinite().all())]
        # an expert that no token was sent to has no numbers
        matrices = [matrix for matrix in finite if matrix.numel()]
        firsts = [matrix.flatten()[0] for matrix in matrices]
        constant = all(
            min(matrix.shape[-2:]) > 1 and bool((matrix == first).all())
            for matrix, first in zip(matrices, firsts, strict=True)
        )
        values = {float(first) for first in firsts}
        if constant and len(values) == 1 and any(values):
            yield Fault("constant", layer, name, values.pop())


def _dead(anatomy: Anatomy, layer: int) -> Iterator[Fault]:
    """MLPs whose hidden units are all 0, though neither the matrix before them nor its input is."""
    if "mlp_out" not in anatomy.sites or not bool(anatomy.source.tensor.any()):
        return
    for last in anatomy.sites["mlp_out"].matrix:
        hidden = next(iter(last.made_of("deep")), None)
        if hidden is None or not hidden.matrix or bool(hidden.tensor.any()):
            continue
        zero = any(
            operand.parameter is not None and not bool(operand.tensor.any())
            for product in hidden.matrix
            for operand in product.inputs
            if operand.tensor.ndim > 1
        )
        if not zero:
            yield Fault("dead_units", layer, "mlp_out", float(hidden.tensor.shape[-1]))


def _doubled(anatomy: Anatomy, layer: int) -> Iterator[Fault]:
    """Branches that are added to themselves in place of the stream, as in `x = branch + branch`."""
    streams = [anatomy.source, *(term.after for term in anatomy.sums if term.before is not None)]
    for node in anatomy.order:
        same = node.op in SUM and len(node.inputs) == 2 and node.inputs[0] is node.inputs[1]
        if not same or node.tensor.shape != anatomy.source.tensor.shape:
            continue
        nearest = walk(node, lambda maker: [] if maker in streams else maker.inputs, nearest=True)
        made = next((maker.op for maker in nearest if maker.op in FUSED | SOFTMAX | BENT), "")
        if made:  # a stream that is doubled comes from no branch
            yield Fault("doubled", layer, "mlp_out" if made in BENT else "attn_out", 0.0)


def gains_after(tail: Sequence[Node]) -> list[Gains]:
    """The gains of norms among what follows the layers."""
    return [
        Gains("the norm after the last layer", gain)
        for gain in map(gain_of, tail)
        if gain is not None
    ]


def after_layers(tail: Sequence[Node]) -> list[Fault]:
    """Norms after the last layer whose gains are all 0; and the first value that is not finite,
    where the stream is finite."""
    zero = [
        Fault("zero_gain", 0, gains.place, float(gains.node.tensor.numel()))
        for gains in gains_after(tail)
        if not bool(gains.node.tensor.any())
    ]
    stream = next(iter(tail), None)
    first = None
    if stream is not None and bool(stream.tensor.isfinite().all()):
        first = origin(tail, 0)
    return zero + ([] if first is None else [first])


# The first value that is not finite.


def origin(order: Sequence[Node], layer: int, anatomy: Anatomy | None = None) -> Fault | None:
    """The fault at the first value that is not finite in what a block computed; None where a
    parameter is not finite, which `of_parameters` names.

    Args:
        order: the nodes, in the order of their computation.
        layer: of the block, from 1; 0 for what follows the layers.
        anatomy: of the block, which has words for a place.
    """
    operands = (
        operand for node in order for operand in node.inputs if operand.parameter is not None
    )
    if not all(bool(operand.tensor.isfinite().all()) for operand in operands):
        return None
    node = next((node for node in order if _breaks(node)), None)
    if node is None:
        return None
    given = [operand.tensor for operand in node.inputs if operand.tensor.is_floating_point()]
    place = _words(node, anatomy)
    if rows := sum(map(_empty_rows, given)):
        return Fault("empty_row", layer, place, float(rows))
    if any(bool(tensor.isnan().any()) for tensor in given):
        # a mask, a buffer, or what comes from another block
        return Fault("leaf", layer, place, 0.0)
    if "div" in node.op and len(given) > 1 and not bool(given[1].all()):
        return Fault("divided_by_zero", layer, place, 0.0)
    end = torch.finfo(node.tensor.dtype).max
    peaks = [float(tensor.detach().abs().max()) for tensor in given if tensor.numel()]
    squares_overflow = node.op in NORM | REDUCTION and max(peaks, default=0.0) > end**0.5
    if bool(node.tensor.isinf().any()) or node.op in MATRIX or squares_overflow:
        return Fault("overflow", layer, place, end, str(node.tensor.dtype).removeprefix("torch."))
    return Fault("undefined", layer, place, 0.0, node.op)


def _breaks(node: Node) -> bool:
    """Whether an operation makes a value that is not finite, beside the −∞ by which a mask hides
    keys."""
    tensor = node.tensor
    if not node.role or not tensor.is_floating_point() or tensor.device.type == "meta":
        return False
    if bool(tensor.isfinite().all()):
        return False
    if bool(tensor.isnan().any()):
        return True
    operands = [operand.tensor for operand in node.inputs if operand.tensor.is_floating_point()]
    finite = all(bool(operand.isfinite().all()) for operand in operands)
    return finite and node.op not in HIDING


def _empty_rows(tensor: Tensor) -> int:
    """How many rows of logits hide every key."""
    if tensor.ndim < 2 or tensor.shape[-1] < 2:
        return 0
    return int((tensor == -torch.inf).all(dim=-1).sum())


def _words(node: Node, anatomy: Anatomy | None) -> str:
    """The place of a number in words: a matrix's output, a site, or a branch."""
    if anatomy is None:
        return "what follows the layers"
    names = anatomy.names
    for operand in node.inputs:
        if node.op in MATRIX and id(operand.parameter) in names:
            return f"the output of {names[id(operand.parameter)]}"
    for site, end in anatomy.sites.items():
        if end is node:
            return f"the {SITE_WORDS[site]}"
    number = anatomy.order.index(node)
    if node.op in NORM:
        return _place(anatomy, node, number)
    heads = queries_keys_values(anatomy.attention)
    if heads is not None and node.op in MATRIX and list(heads[:2]) == node.inputs[-2:]:
        return "the attention logits"
    branch = anatomy.sites.get("attn_out")
    inside = branch in anatomy.order and number <= anatomy.order.index(branch)
    return "attention" if inside else "the MLP"


def of_pass(
    known_faults: Sequence[Fault],
    values: Mapping[Key, Mapping[int, Tensor]],
    batch: object,
    loss: Tensor,
) -> list[Fault]:
    """The place of the first value that is not finite, outside the layers: in the batch, before
    the layers, or in the loss. Empty where a parameter or a layer has it.

    Args:
        known_faults: of the layers and parameters.
        values: statistics by layer, from 0.
        batch: as for `probe`.
        loss: the scalar that is differentiated.
    """
    given = [tensor for tensor in tensors_in((batch,)) if tensor.is_floating_point()]
    wrong = sum(int((~tensor.isfinite()).sum()) for tensor in given)
    if wrong:
        return [Fault("batch", 0, "", float(wrong))]
    if any(fault.kind in ORIGINS for fault in known_faults) or bool(loss.isfinite().all()):
        return []
    for site, kind in (("embed", "input"), ("resid_post", "")):
        largest = values.get(("max_abs", site), {}).values()
        if not all(bool(size.isfinite().all()) for size in largest):
            return [Fault(kind, 0, "", 0.0)] if kind else []
    return [Fault("loss", 0, "", 0.0)]


# Parameters.


def of_parameters(
    model: nn.Module,
    layers: Sequence[str],
    anatomies: Sequence[Anatomy],
    norm_gains: Mapping[int, tuple[int, str]],
) -> list[Fault]:
    """Parameters that are not finite, or larger than anybody draws them; and a model, or its
    layers, whose weights are all 0.

    Args:
        layers: names of the blocks.
        anatomies: of the blocks.
        norm_gains: see `Stack.norm_gains`.
    """
    parameters = {
        name: weight for name, weight in model.named_parameters() if weight.is_floating_point()
    }
    places: dict[int, str] = {}
    for anatomy in anatomies:
        places |= anatomy.names
    places |= {key: f"the gains of {norm}" for key, (_, norm) in norm_gains.items()}
    faults = _zeros(parameters, anatomies)
    for name, parameter in parameters.items():
        weight = parameter.detach()
        inside = (at for at, path in enumerate(layers, start=1) if name.startswith(f"{path}."))
        layer, place = next(inside, 0), places.get(id(parameter), "")
        wrong = int((~weight.isfinite()).sum())
        size = 0.0 if wrong or not weight.numel() else float(weight.double().square().mean().sqrt())
        if wrong:
            faults.append(Fault("weight_not_finite", layer, place, float(wrong), name))
        elif size > LARGEST:
            faults.append(Fault("weight_huge", layer, place, size, name))
    return faults


def with_names(
    faults: Sequence[Fault], model: nn.Module, norm_gains: Mapping[int, tuple[int, str]]
) -> list[Fault]:
    """Faults of a norm's gains with the names of their parameters, see `Stack.norm_gains`."""
    names = {norm_gains.get(id(weight)): name for name, weight in model.named_parameters()}
    return [
        fault._replace(name=names.get((fault.layer, fault.place), ""))
        if fault.kind == "zero_gain"
        else fault
        for fault in faults
    ]


def _zeros(parameters: Mapping[str, Tensor], anatomies: Sequence[Anatomy]) -> list[Fault]:
    """A fault where all parameters are 0, or all matrices, or those of the layers."""
    inner = [
        piece.parameter
        for anatomy in anatomies
        for pieces in anatomy.matrices.values()
        for piece in pieces
    ]
    groups: dict[str, Sequence[Tensor]] = {
        "parameter": [*parameters.values()],
        "matrix": [weight for weight in parameters.values() if weight.ndim > 1],
        "matrix of the layers": inner,
    }
    for name, weights in groups.items():
        if weights and not any(bool(weight.any()) for weight in weights):
            return [Fault("zero_all", 0, name, float(len(weights)))]
    return []
