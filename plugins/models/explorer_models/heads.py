"""Facts of one attention's queries and keys: divisor, cap, norms, positions, mask and sink."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from explorer.config import Config
from explorer_models.anatomy import Anatomy, axis_at, queries_keys_values
from explorer_models.attention import GAP, hidden, masked, visible
from explorer_models.nodes import FUSED, MATRIX, Node, pattern_of, walk
from explorer_models.trace import Step, alpha, trace

# By which angles queries are turned: read off the same numbers before and after.


TURNED = 1e-3
"""Error of an angle, in radians, that half precision has."""
ROUNDED = 1e-3
"""Share of a logit that two orders of its operations may differ by, in half precision."""
NEAR = 5e-3
"""Error of a base that is read."""
EXACT = 1e-2
"""Largest deviation of an angle from a power of one base, as a share of it; and of what pairs may
lose in length."""


RESTARTED = 0.05
"""Difference of two angles, in radians, up to which they are of one position: that of half
precision is smaller."""


class Turn(NamedTuple):
    """Rotary positions."""

    base: float
    share: float
    """Share of a head's coordinates that are rotated."""
    fits: bool
    """Whether the angles are the powers of one base, times the speed."""
    speed: float = 1.0
    """Factor on the positions, which is the first pair's angle in radians between two neighbors."""


def turns_unread(step: Step) -> bool:
    """Whether a turn's numbers say nothing of it: a coordinate is 0 for every token, or a number is
    not finite."""
    before = step.before.tensor.detach()
    before = torch.view_as_real(before).flatten(-2) if before.is_complex() else before
    return not bool(before.isfinite().all()) or not bool(
        (before.flatten(0, -2) != 0).any(dim=0).all()
    )


class Angles(NamedTuple):
    """Angles by which queries or keys are turned, relative to the first position."""

    misfit: float
    """Largest deviation from a rotation, as a share of the squared length."""
    by_position: Tensor
    """`[position, pair]`, in radians."""
    axis: int
    """Axis of the positions in what is turned."""
    halves: bool
    """Whether a pair is a coordinate of the first half and one of the second; else two
    neighbors."""
    tokens: int | None
    """Axis of the tokens; None where it is not known."""
    d_head: int

    @property
    def steps(self) -> Tensor:
        """`[pair]`, the angles between the first two positions."""
        return self.by_position[1]

    @property
    def turn(self) -> Turn:
        """The base of which the angles are the powers."""
        return _base(self.steps, self.d_head)

    @property
    def over_tokens(self) -> bool:
        """Whether they turn from token to token, and not from head to head."""
        return self.tokens is None or self.axis == self.tokens

    @property
    def restart(self) -> int:
        """The token, from 0, at which the positions begin anew; 0 where they go on to the last."""
        fastest = int(self.steps.abs().argmax())
        angles, step = self.by_position[:, fastest], self.steps[fastest]
        expected = step * torch.arange(len(angles), dtype=angles.dtype, device=angles.device)
        off = (_wrapped(angles - expected).abs() > RESTARTED).nonzero()
        first = int(off[0]) if len(off) else 0
        return first if abs(float(angles[first])) <= RESTARTED else 0

    def same(self, other: Angles) -> bool:
        """Whether another one turns alike, so that logits depend on the distance of two tokens
        alone."""
        if self.steps.shape != other.steps.shape or self.halves != other.halves:
            return False
        apart = (self.steps - other.steps).abs()
        return bool((apart <= EXACT * self.steps.abs() + TURNED).all())


def read_angles(step: Step, tokens: int | None = None) -> Angles | None:
    """The angles of a turn; None where the numbers do not turn in pairs.

    Args:
        step: by which queries or keys were turned.
        tokens: axis of the tokens after it; None where it is not known.
    """
    after, before = step.node.tensor.detach().double(), step.before.tensor.detach()
    before = (
        torch.view_as_real(before).flatten(-2).double() if before.is_complex() else before.double()
    )
    if after.ndim == before.ndim + 1:
        after = after.flatten(-2)
    if after.shape != before.shape or after.ndim < 3:
        return None
    axes = {
        axis
        for axis in (*range(1, after.ndim - 1), tokens)
        if axis is not None and after.shape[axis] > 1
    }
    tried = [
        Angles(*_angles(after, before, axis, halves, width), axis, halves, tokens, after.shape[-1])
        for axis, halves, width in itertools.product(
            sorted(axes), (True, False), _widths(after, before)
        )
    ]
    right = [way for way in tried if way.misfit <= EXACT]
    # where all tokens turn alike, heads do so, too: the tokens' axis comes first
    return min(right, key=lambda way: (not way.over_tokens, way.misfit), default=None)


def _widths(after: Tensor, before: Tensor) -> list[int]:
    """How many of the first coordinates may be turned: up to the last that a position changes."""
    moved = (after - before).abs().amax(dim=tuple(range(after.ndim - 1)))
    turned = (
        int((moved > 1e-12 * float(before.abs().max())).nonzero().max()) + 1
        if bool(moved.any())
        else 0
    )
    return sorted({turned + turned % 2, after.shape[-1]} - {0})


def _angles(
    after: Tensor, before: Tensor, axis: int, halves: bool, width: int
) -> tuple[float, Tensor]:
    """Misfit of a rotation, and the angles `[position, pair]` by which it turns pairs of
    coordinates, less the first position's."""

    def pairs(x: Tensor) -> tuple[Tensor, Tensor]:
        x = x[..., :width].movedim(axis, 0)
        flat = x.reshape(x.shape[0], -1, width)
        return (
            (flat[..., : width // 2], flat[..., width // 2 :])
            if halves
            else (flat[..., ::2], flat[..., 1::2])
        )

    (a, b), (c, d) = pairs(before), pairs(after)
    size = (a.square() + b.square()).sum(dim=1)
    cos, sin = ((a * c + b * d).sum(dim=1) / size, (a * d - b * c).sum(dim=1) / size)
    misfit = float((1 - cos.square() - sin.square()).abs().max())
    angles = torch.atan2(sin, cos)
    return misfit, _wrapped(angles - angles[0])


def _wrapped(angles: Tensor) -> Tensor:
    """Angles between −π and π."""
    return (angles + torch.pi) % (2 * torch.pi) - torch.pi


def _base(angles: Tensor, d_head: int) -> Turn:
    """The base of which the angles are the powers 0, −2/r, −4/r …, or multiples of them."""
    steps = angles.abs()
    count = len(steps)
    if count < 2:
        return Turn(1e4, 2 * count / d_head, True)
    place = torch.arange(count, dtype=torch.float64, device=steps.device) / count
    logs, weight = steps.clamp(min=1e-30).log(), steps.square()  # small angles are read less well
    log = float(-(weight * logs * place).sum() / (weight * place.square()).sum())
    made = (-place * log).exp()
    fits, speed = bool(((steps - made).abs() <= EXACT * made + TURNED).all()), 1.0
    if not fits and float(steps.max()) > TURNED:
        middle, center = ((weight * part).sum() / weight.sum() for part in (place, logs))
        slope = float(
            -(weight * (logs - center) * (place - middle)).sum()
            / (weight * (place - middle).square()).sum().clamp(min=1e-300)
        )
        first = float(center + slope * middle)
        made = (first - place * slope).exp()
        if bool(((steps - made).abs() <= EXACT * made + TURNED).all()) and 0 < slope < MOST_LOG:
            fits, speed, log = True, _written(math.exp(first)), slope
    return Turn(_written(math.exp(min(log, MOST_LOG))), 2 * count / d_head, fits, speed)


MOST_LOG = 60.0
"""Logarithm of the largest base that is told."""


def _written(value: float) -> float:
    """A number as somebody wrote it down, with two digits, where it is near to one."""
    plain = float(f"{value:.2g}")
    return plain if plain and abs(value / plain - 1) < NEAR else value


ROTARY = ("", "heads", "one_place", "restart", "queries", "keys", "apart")
"""Mistakes of rotary positions: none; heads are turned for tokens; all tokens have one position;
positions begin anew; queries alone, or keys alone, are turned; queries and keys are turned by
different angles."""


def _rotary(
    queries: tuple[list[Step], Node], keys: tuple[list[Step], Node], angles: list[Angles | None]
) -> tuple[str, int]:
    """A row of `ROTARY`, and the token at which positions begin anew; empty where the turns were
    not read.

    Args:
        queries, keys: the steps that made them, and where they were made.
        angles: of the turn of both.
    """
    turned = [any(step.kind == "turn" for step in steps) for steps, _ in (queries, keys)]
    whole = all(end.op in MATRIX for _, end in (queries, keys))
    q, k = angles
    if whole and sum(turned) == 1 and (q or k) is not None:
        return ("queries" if turned[0] else "keys"), 0
    if q is None or k is None:
        return "", 0
    if not q.over_tokens and not k.over_tokens:
        return "heads", 0
    if not q.over_tokens or not k.over_tokens:
        return "apart", 0
    if (
        not float(q.by_position.abs().max()) > TURNED
        and not float(k.by_position.abs().max()) > TURNED
    ):
        return "one_place", 0
    if q.restart and q.restart == k.restart and q.turn.fits:
        return "restart", q.restart
    # keys of a cache, for one, begin elsewhere
    if q.by_position.shape == k.by_position.shape and not q.same(k):
        return "apart", 0
    return "", 0


# Which keys a query sees, and what its position adds to the logits: read off the first sequence's.


LOOKED_AT = 128
"""Tokens of the first sequence in whose logits masks and biases are looked for."""


def masking(
    attention: Node, q: Node, k: Node, product: Node | None, after: list[Step], cap: float
) -> tuple[str, str]:
    """Bias by position and mask, from the logits of the first sequence."""
    if attention.op in FUSED:
        return _of_fused(
            attention, min(q.tensor.shape[-2], LOOKED_AT), min(k.tensor.shape[-2], LOOKED_AT)
        )
    soft = pattern_of(attention)
    if soft is None or product is None:
        return "another", "another"
    keys = attention.inputs[1].tensor.shape[-2]
    mask = hidden(soft)
    logits = soft.inputs[0].tensor
    scores = (logits if mask is None else logits.masked_fill(mask, -math.inf))[..., :keys]
    first = _first(scores, scores.shape[-3])
    # the product with its axes in their places; what was done to it before it had them is done to
    # it there
    placed = [
        (index, step.before.tensor[..., :keys]) for index, step in reversed([*enumerate(after)])
    ]
    index, plain = next(
        (
            (index, tensor)
            for index, tensor in [*placed, (-1, scores)]
            if tensor.shape == scores.shape
        )
    )
    if any(step.kind not in ("factor", "gain") for step in after[index + 1 :]):
        raise ValueError("the logits are bent or added to before their axes are in their places")
    if product.op == "baddbmm" and not product.inputs[0].role:
        bias = product.inputs[0].tensor.expand_as(product.tensor)
        plain = plain - bias.reshape(plain.shape).to(plain)
    scaled = _first(plain, first.shape[0])
    factor = math.prod(step.factor for step in after[: index + 1] if step.kind == "factor")
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
    bias = masked(
        torch.zeros(1 if mask is None else len(mask), n, keys),
        mask,
        bool(attention.named["is_causal"]),
    )
    return _named(bias, bias)


def _named(bias: Tensor, scores: Tensor) -> tuple[str, str]:
    """Position and mask from `[head, query, key]`: what is added to the logits, and the logits
    themselves."""
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
        fall = torch.tensor(
            Config(n_heads=heads, head_size=8, position="alibi", causal=True).design.slopes
        )
        line = fall[:, None, None].to(left) * torch.arange(keys, device=left.device)
        line = line.where(shown & shown[..., :1], 0)
        if float((left - line).abs().max()) <= 0.02 * float(line.abs().max()):
            return "alibi", mask
    return "another", mask


def _mask(shown: Tensor, lower: Tensor) -> str:
    """A mask in a word, from which keys are shown: `[head, query, key]` and, of a causal mask,
    `[query, key]`.

    A window is a causal mask that hides keys of the past, too; one ahead of it shows the next key
    as well."""
    kinds = {
        "none": torch.ones_like(lower),
        "causal": lower,
        "ahead": torch.ones_like(lower).tril(1),
    }
    if lower.shape[0] == lower.shape[1]:
        kinds["reversed"] = lower.T
    for kind, keys_seen in kinds.items():
        if bool((shown == keys_seen).all()):
            return kind
    return "another" if bool((shown & ~lower).any()) else "window"


# The facts.


def of_heads(anatomy: Anatomy) -> Iterator[tuple[tuple[str, str], Any]]:
    """Facts of a block's first attention; none where its logits are not seen."""
    if (
        anatomy.attention is not None
        and (parts := queries_keys_values(anatomy.attention)) is not None
    ):
        facts = _facts(anatomy, anatomy.attention, *parts)
        unknown = {name for name in ("mask", "position") if facts[name] == ""}
        yield from (
            (("attn_scores", name), value) for name, value in facts.items() if name not in unknown
        )


def _facts(anatomy: Anatomy, attention: Node, q: Node, k: Node, v: Node) -> dict[str, Any]:
    """Facts of an attention by name."""
    keys = k.inputs[0] if k.op in ("transpose", "t") and len(k.inputs) == 1 else k
    traced = [trace(operand) for operand in (q, keys, v)]
    lines = [steps for steps, _ in traced]
    norms = [[step for step in line if step.kind == "norm"] for line in lines]
    d_head = q.tensor.shape[-1]
    logits, factor, cap, after = _logits(attention, d_head, anatomy.softmax)
    # what no norm undoes
    after_norm = [itertools.takewhile(lambda step: step.kind != "norm", line) for line in lines[:2]]
    scaled = [
        math.prod(step.factor for step in steps if step.kind == "factor") for steps in after_norm
    ]
    factor *= math.prod(scaled)
    inherits = (
        "qk"
        if any(map(_carried, lines[0]))
        else "scores"
        if any(
            _carried(step) and step.extra is not None and _varies(step.extra.tensor)
            for step in after
        )
        else "none"
    )
    position, mask = masking(attention, q, k, logits, after, cap)
    if inherits == "scores":
        position = "none"  # what is added is no bias
    # a product by hand has its keys as [coordinate, token]
    last = -2 if attention.op in FUSED else -1
    angles = [
        _turned(line, operand, axis)
        for operand, axis, line in zip((q, k), (-2, last), lines, strict=False)
    ]
    shown = angles[0] or angles[1]  # where the queries are 0, the keys may show it
    turn = None if shown is None else shown.turn
    rotary, restart = _rotary(traced[0], traced[1], angles)
    turns = [step for line in lines[:2] for step in line if step.kind == "turn"]
    if position == "none" and turns and all(map(turns_unread, turns)):
        position = ""
    if turn is not None:
        position = "rotary" if turn.fits and turn.speed == 1.0 and not rotary else "another"
    sizes = [float(operand.tensor.detach().float().square().mean()) ** 0.5 for operand in (q, k)]
    gain = (
        math.prod(size / abs(by or 1.0) for size, by in zip(sizes, scaled, strict=True))
        if norms[0]
        else 1.0
    )
    # each of q, k and v is normed over a head, over all heads, or not
    normed = tuple(
        "" if not steps else "head" if steps[0].before.tensor.shape[-1] == d_head else "all"
        for steps in norms
    )
    return {
        "d_head": d_head,
        "n_heads": _count(anatomy, d_head),
        "divisor": 1 / factor if factor else math.inf,
        "cap": cap,
        "normed": normed,
        "qk_normed": bool(normed[0] and normed[1]),
        "gain": gain,  # root mean square of normalized queries times that of the keys
        "mask": mask,
        "position": position,
        "turn": turn,
        "rotary": rotary,
        "restart": restart,
        "sink": _sink(attention),
        "softmax": anatomy.softmax,
        "mixes_values": any(map(_carried, lines[2])),
        "inherits": inherits,
    }


def _turned(line: list[Step], operand: Node, axis: int) -> Angles | None:
    """The angles by which queries or keys, whose tokens lie along an axis, are turned on their
    line."""
    turn = next((step for step in line if step.kind == "turn" and not turns_unread(step)), None)
    return None if turn is None else read_angles(turn, axis_at(turn.node, operand, axis))


def _logits(
    attention: Node, d_head: int, axis: str
) -> tuple[Node | None, float, float, list[Step]]:
    """The product of queries and keys, the factor on it until the softmax, the soft cap, and the
    steps between.

    Args:
        axis: over which the softmax is; see `Anatomy.softmax`.
    """
    if attention.op in FUSED:
        scale = attention.named.get("scale")
        return None, d_head**-0.5 if scale is None else float(scale), 0.0, []
    soft = pattern_of(attention)
    if soft is None:
        return None, 1.0, 0.0, []
    last = soft.named["dim"] % soft.tensor.ndim == soft.tensor.ndim - 1
    if not last and axis == "keys":
        raise ValueError("the softmax is not over the last axis of the logits")
    steps, product = trace(soft.inputs[0], lambda node: node.op in MATRIX, bends=True)
    factors = [step for step in steps if step.kind in ("factor", "bend")]
    factor = math.prod(step.factor for step in factors)
    if product.op == "baddbmm":
        factor *= alpha(product)
    bends = [
        index
        for index, step in enumerate(factors)
        if step.kind == "bend" and step.node.op == "tanh"
    ]
    cap = math.prod(step.factor for step in factors[: bends[0]]) if bends else 0.0
    return product, factor, cap, steps


def _count(anatomy: Anatomy, d_head: int) -> int:
    """Number of heads, from what the last matrix reads."""
    pieces = anatomy.matrices.get("W_O", [])
    return sum(piece.of(piece.parameter).shape[-1] for piece in pieces[:1]) // d_head


def _carried(step: Step) -> bool:
    """Whether the other term of a sum comes from another block: no parameter, and of the same
    size."""
    other = step.extra
    return (
        step.kind == "add"
        and other is not None
        and other.op == "leaf"
        and other.parameter is None
        and other.tensor.numel() == step.node.tensor.numel()
    )


def _varies(tensor: Tensor) -> bool:
    """Whether it is another for another sequence: no bias by position is."""
    return tensor.shape[0] > 1 and not torch.equal(tensor[0], tensor[1])


def _sink(attention: Node) -> str:
    """Whether the softmax has one key more than there are values, and whether its logit is
    learned."""
    soft = pattern_of(attention)
    if soft is None or soft.inputs[0].tensor.shape[-1] != attention.inputs[1].tensor.shape[-2] + 1:
        return "none"
    parts = walk(soft.inputs[0], lambda node: [] if node.op in MATRIX else node.inputs)
    return "learned" if any(part.parameter is not None for part in parts) else "zero"
