"""Facts of one attention's queries and keys: divisor, cap, norms, positions, mask and sink."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from explorer.config import Config
from explorer.own.anatomy import Anatomy, queries_keys_values
from explorer.own.attention import GAP, hidden, masked, visible
from explorer.own.nodes import FUSED, MATRIX, Node, pattern_of, walk
from explorer.own.trace import Step, alpha, trace

# By which angles queries are turned: read off the same numbers before and after.


TURNED = 1e-3
"""Error of an angle, in radians, that half precision has."""
ROUNDED = 1e-3
"""Share of a logit that two orders of its operations may differ by, in half precision."""
NEAR = 5e-3
"""Error of a base that is read."""
EXACT = 1e-2
"""Largest deviation of an angle from a power of one base, as a share of it; and of what pairs may lose in length."""


class Turn(NamedTuple):
    """Rotary positions."""

    base: float
    share: float
    """Share of a head's coordinates that are rotated."""
    fits: bool
    """Whether the angles are the powers of one base."""


def turns_unread(step: Step) -> bool:
    """Whether a turn's numbers say nothing of it: a coordinate is 0 for every token, or a number is not finite."""
    before = step.before.tensor.detach()
    before = torch.view_as_real(before).flatten(-2) if before.is_complex() else before
    return not bool(before.isfinite().all()) or not bool((before.flatten(0, -2) != 0).any(dim=0).all())


def read_turn(step: Step) -> Turn | None:
    """The base and the share of the coordinates; None where the numbers do not turn in pairs."""
    after, before = step.node.tensor.detach().double(), step.before.tensor.detach()
    before = torch.view_as_real(before).flatten(-2).double() if before.is_complex() else before.double()
    if after.ndim == before.ndim + 1:
        after = after.flatten(-2)
    if after.shape != before.shape or after.ndim < 3:
        return None
    axes = [axis for axis in range(1, after.ndim - 1) if after.shape[axis] > 1]
    tried = [_angles(after, before, *way) for way in itertools.product(axes, (True, False), _widths(after, before))]
    misfit, angles = min(tried, key=lambda way: way[0], default=(math.inf, after))
    return None if not misfit <= EXACT else _base(angles, after.shape[-1])


def _widths(after: Tensor, before: Tensor) -> list[int]:
    """How many of the first coordinates may be turned: up to the last that a position changes."""
    moved = (after - before).abs().amax(dim=tuple(range(after.ndim - 1)))
    turned = int((moved > 1e-12 * float(before.abs().max())).nonzero().max()) + 1 if bool(moved.any()) else 0
    return sorted({turned + turned % 2, after.shape[-1]} - {0})


def _angles(after: Tensor, before: Tensor, axis: int, halves: bool, width: int) -> tuple[float, Tensor]:
    """Misfit of a rotation between two positions, and the angle by which it turns each pair of coordinates."""
    def pairs(x: Tensor) -> tuple[Tensor, Tensor]:
        x = x[..., :width].movedim(axis, 0)
        flat = x.reshape(x.shape[0], -1, width)
        return (flat[..., : width // 2], flat[..., width // 2:]) if halves else (flat[..., ::2], flat[..., 1::2])

    (a, b), (c, d) = pairs(before), pairs(after)
    size = (a.square() + b.square()).sum(dim=1)
    cos, sin = ((a * c + b * d).sum(dim=1) / size, (a * d - b * c).sum(dim=1) / size)
    misfit = float((1 - cos.square() - sin.square()).abs().max())
    angles = torch.atan2(sin, cos)
    return misfit, (angles[1] - angles[0] + torch.pi) % (2 * torch.pi) - torch.pi


def _base(angles: Tensor, d_head: int) -> Turn:
    """The base of which the angles are the powers 0, −2/r, −4/r …"""
    steps = angles.abs()
    count = len(steps)
    if count < 2:
        return Turn(1e4, 2 * count / d_head, True)
    place = torch.arange(count, dtype=torch.float64, device=steps.device) / count
    logs, weight = steps.clamp(min=1e-30).log(), steps.square()  # small angles are read less well
    log = float(-(weight * logs * place).sum() / (weight * place.square()).sum())
    made = (-place * log).exp()
    fits = bool(((steps - made).abs() <= EXACT * made + TURNED).all())
    base = math.exp(log)
    plain = float(f"{base:.2g}")  # what somebody wrote down
    return Turn(plain if abs(base / plain - 1) < NEAR else base, 2 * count / d_head, fits)


# Which keys a query sees, and what its position adds to the logits: read off the first sequence's.


LOOKED_AT = 128
"""Tokens of the first sequence in whose logits masks and biases are looked for."""


def masking(attention: Node, q: Node, k: Node, product: Node | None, after: list[Step], cap: float) -> tuple[str, str]:
    """Bias by position and mask, from the logits of the first sequence."""
    if attention.op in FUSED:
        return _of_fused(attention, min(q.tensor.shape[-2], LOOKED_AT), min(k.tensor.shape[-2], LOOKED_AT))
    soft = pattern_of(attention)
    if soft is None or product is None:
        return "another", "another"
    keys = attention.inputs[1].tensor.shape[-2]
    mask = hidden(soft)
    logits = soft.inputs[0].tensor
    scores = (logits if mask is None else logits.masked_fill(mask, -math.inf))[..., :keys]
    first = _first(scores, scores.shape[-3])
    # the product with its axes in their places; what was done to it before it had them is done to it there
    placed = [(index, step.before.tensor[..., :keys]) for index, step in reversed([*enumerate(after)])]
    index, plain = next(((index, tensor) for index, tensor in [*placed, (-1, scores)] if tensor.shape == scores.shape))
    if any(step.kind not in ("factor", "gain") for step in after[index + 1:]):
        raise ValueError("the logits are bent or added to before their axes are in their places")
    if product.op == "baddbmm" and not product.inputs[0].role:
        bias = product.inputs[0].tensor.expand_as(product.tensor)
        plain = plain - bias.reshape(plain.shape).to(plain)
    scaled = _first(plain, first.shape[0])
    factor = math.prod(step.factor for step in after[:index + 1] if step.kind == "factor")
    scaled = torch.tanh(scaled * factor / cap) * cap if cap else scaled * factor
    return _named(first - scaled, first)


def _first(scores: Tensor, heads: int) -> Tensor:
    """`[head, query, key]` of the first sequence's first tokens."""
    flat = scores.detach().reshape(-1, *scores.shape[-2:])[:heads]
    return flat[:, :LOOKED_AT, :LOOKED_AT].float()


def _of_fused(attention: Node, n: int, keys: int) -> tuple[str, str]:
    """Bias by position and mask of a fused call, which adds to logits what it adds to zeros."""
    node, mask = attention.named.get("attn_mask") or attention.named.get("attn_bias"), None
    if isinstance(node, Node):
        heads = node.tensor.shape[-3] if node.tensor.ndim > 2 else 1
        mask = node.tensor.detach().reshape(-1, *node.tensor.shape[-2:])[:heads].cpu()
    bias = masked(torch.zeros(1 if mask is None else len(mask), n, keys), mask, bool(attention.named["is_causal"]))
    return _named(bias, bias)


def _named(bias: Tensor, scores: Tensor) -> tuple[str, str]:
    """Position and mask from `[head, query, key]`: what is added to the logits, and the logits themselves."""
    # a logit that is low though nothing was added to it is not hidden
    plain = bias > -(GAP + ROUNDED * scores.abs().where(scores.isfinite(), 0))
    shown = visible(scores) | plain
    n, keys = scores.shape[-2:]
    if bool(scores.where(shown, 0).isnan().any()) or bool(scores.isposinf().any()):
        return "", ""  # which keys are hidden, and what is added to the others, is not seen
    lower = torch.ones(n, keys, dtype=torch.bool, device=scores.device).tril()
    mask = _mask(shown, lower)
    left = (bias - bias[..., :1]).where(shown & shown[..., :1], 0)
    if float(left.abs().max()) <= 1e-3 * max(1.0, float(scores.where(shown, 0).abs().max())):
        return "none", mask
    heads = bias.shape[0]
    if heads <= 64:
        fall = torch.tensor(Config(n_heads=heads, head_size=8, position="alibi", causal=True).design.slopes)
        line = fall[:, None, None].to(left) * torch.arange(keys, device=left.device)
        line = line.where(shown & shown[..., :1], 0)
        if float((left - line).abs().max()) <= 0.02 * float(line.abs().max()):
            return "alibi", mask
    return "another", mask


def _mask(shown: Tensor, lower: Tensor) -> str:
    """A mask in a word, from which keys are shown; a window is a causal mask that hides keys of the past, too."""
    if bool(shown.all()):
        return "none"
    if bool((shown == lower).all()):
        return "causal"
    return "another" if bool((shown & ~lower).any()) else "window"


# The facts.


def of_heads(anatomy: Anatomy) -> Iterator[tuple[tuple[str, str], Any]]:
    """Facts of a block's first attention; none where its logits are not seen."""
    if anatomy.attention is not None and (parts := queries_keys_values(anatomy.attention)) is not None:
        facts = _facts(anatomy, anatomy.attention, *parts)
        unknown = {name for name in ("mask", "position") if facts[name] == ""}
        yield from ((("attn_scores", name), value) for name, value in facts.items() if name not in unknown)


def _facts(anatomy: Anatomy, attention: Node, q: Node, k: Node, v: Node) -> dict[str, Any]:
    """Facts of an attention by name."""
    keys = k.inputs[0] if k.op in ("transpose", "t") and len(k.inputs) == 1 else k
    lines = [trace(operand)[0] for operand in (q, keys, v)]
    norms = [[step for step in line if step.kind == "norm"] for line in lines]
    d_head = q.tensor.shape[-1]
    logits, factor, cap, after = _logits(attention, d_head)
    # what no norm undoes
    after_norm = [itertools.takewhile(lambda step: step.kind != "norm", line) for line in lines[:2]]
    scaled = [math.prod(step.factor for step in steps if step.kind == "factor") for steps in after_norm]
    factor *= math.prod(scaled)
    inherits = "qk" if any(map(_carried, lines[0])) else "scores" if any(
        _carried(step) and step.extra is not None and _varies(step.extra.tensor) for step in after) else "none"
    position, mask = masking(attention, q, k, logits, after, cap)
    if inherits == "scores":
        position = "none"  # what is added is no bias
    turns = [step for line in lines[:2] for step in line if step.kind == "turn"]
    known = [step for step in turns if not turns_unread(step)]  # where the queries are 0, the keys may show it
    turn = read_turn(known[0]) if known else None
    if position == "none" and turns and not known:
        position = ""
    if turn is not None:
        position = "rotary" if turn.fits else "another"
    sizes = [float(operand.tensor.detach().float().square().mean()) ** 0.5 for operand in (q, k)]
    gain = math.prod(size / abs(by or 1.0) for size, by in zip(sizes, scaled, strict=True)) if norms[0] else 1.0
    # each of q, k and v is normed over a head, over all heads, or not
    normed = tuple("" if not steps else "head" if steps[0].before.tensor.shape[-1] == d_head else "all"
                   for steps in norms)
    return {
        "d_head": d_head, "n_heads": _count(anatomy, d_head), "divisor": 1 / factor if factor else math.inf, "cap": cap,
        "normed": normed, "qk_normed": bool(normed[0] and normed[1]),
        "gain": gain,  # root mean square of normalized queries times that of the keys
        "mask": mask, "position": position, "turn": turn, "sink": _sink(attention),
        "mixes_values": any(map(_carried, lines[2])), "inherits": inherits,
    }


def _logits(attention: Node, d_head: int) -> tuple[Node | None, float, float, list[Step]]:
    """The product of queries and keys, the factor on it until the softmax, the soft cap, and the steps between."""
    if attention.op in FUSED:
        scale = attention.named.get("scale")
        return None, d_head**-0.5 if scale is None else float(scale), 0.0, []
    soft = pattern_of(attention)
    if soft is None:
        return None, 1.0, 0.0, []
    if soft.named["dim"] % soft.tensor.ndim != soft.tensor.ndim - 1:
        raise ValueError("the softmax is not over the last axis of the logits")
    steps, product = trace(soft.inputs[0], lambda node: node.op in MATRIX, bends=True)
    factors = [step for step in steps if step.kind in ("factor", "bend")]
    factor = math.prod(step.factor for step in factors)
    if product.op == "baddbmm":
        factor *= alpha(product)
    bends = [index for index, step in enumerate(factors) if step.kind == "bend" and step.node.op == "tanh"]
    cap = math.prod(step.factor for step in factors[:bends[0]]) if bends else 0.0
    return product, factor, cap, steps


def _count(anatomy: Anatomy, d_head: int) -> int:
    """Number of heads, from what the last matrix reads."""
    pieces = anatomy.matrices.get("W_O", [])
    return sum(piece.of(piece.parameter).shape[-1] for piece in pieces[:1]) // d_head


def _carried(step: Step) -> bool:
    """Whether the other term of a sum comes from another block: no parameter, and of the same size."""
    other = step.extra
    return (step.kind == "add" and other is not None and other.op == "leaf" and other.parameter is None
            and other.tensor.numel() == step.node.tensor.numel())


def _varies(tensor: Tensor) -> bool:
    """Whether it is another for another sequence: no bias by position is."""
    return tensor.shape[0] > 1 and not torch.equal(tensor[0], tensor[1])


def _sink(attention: Node) -> str:
    """Whether the softmax has one key more than there are values, and whether its logit is learned."""
    soft = pattern_of(attention)
    if soft is None or soft.inputs[0].tensor.shape[-1] != attention.inputs[1].tensor.shape[-2] + 1:
        return "none"
    parts = walk(soft.inputs[0], lambda node: [] if node.op in MATRIX else node.inputs)
    return "learned" if any(part.parameter is not None for part in parts) else "zero"
