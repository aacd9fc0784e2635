"""Facts of one attention's queries and keys: divisor, cap, norms, positions, mask and sink."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from explorer.config import Config
from explorer_models.anatomy import Anatomy, Fact, axis_at, queries_keys_values
from explorer_models.attention import GAP, hidden, masked, visible
from explorer_models.nodes import FUSED, MATRIX, Node, pattern_of, walk
from explorer_models.trace import Step, alpha, size, trace

# Rotary positions: the angles between the same numbers before and after a rotation.


TURNED = 1e-3
"""Error of an angle, in radians, that float16 has; bfloat16 has eight times as much."""
ROUNDED = 1e-3
"""Share of a logit that two orders of its operations may differ by, in half precision."""
NEAR = 5e-3
"""Error of a base that is read."""
EXACT = 1e-2
"""Largest deviation of an angle from a power of one base, as a share of it; and of what pairs may
lose in length."""


RESTARTED = 0.05
"""Largest difference of two angles, in radians, that half precision makes of one position."""


class Turn(NamedTuple):
    """Rotary positions: each pair of coordinates is rotated by the position times its own angle."""

    base: float
    share: float
    """Share of a head's coordinates that are rotated."""
    fits: bool
    """Whether the angles are the powers of one base, times the speed."""
    speed: float = 1.0
    """Factor on the positions: the first pair's angle in radians between two neighbors."""


def turns_unread(step: Step) -> bool:
    """Whether the numbers of a rotation do not show its angles: a coordinate is 0 for every token,
    or a number is not finite."""
    before = _real(step.before.tensor.detach())
    zero_somewhere = not bool((before.flatten(0, -2) != 0).any(dim=0).all())
    return zero_somewhere or not bool(before.isfinite().all())


def _real(tensor: Tensor) -> Tensor:
    """Complex numbers as pairs of neighboring coordinates; real numbers as they are."""
    return torch.view_as_real(tensor).flatten(-2) if tensor.is_complex() else tensor


class Angles(NamedTuple):
    """Angles by which queries or keys are rotated, relative to the first position."""

    misfit: float
    """Largest deviation from a rotation, as a share of the squared length."""
    by_position: Tensor
    """`[position, pair]`, in radians."""
    axis: int
    """Axis of the positions in the tensor."""
    halves: bool
    """Whether a pair is a coordinate of the first half and one of the second; else two
    neighbors."""
    tokens: int | None
    """Axis of the tokens; None where it is not known."""
    d_head: int
    error: float = TURNED
    """Error of an angle, in radians, that the numbers' precision has."""

    @property
    def steps(self) -> Tensor:
        """`[pair]`, the angles between the first two positions."""
        return self.by_position[1]

    @property
    def turn(self) -> Turn:
        """The rotary positions that have these angles."""
        return _base(self.steps, self.d_head, self.error)

    @property
    def over_tokens(self) -> bool:
        """Whether the angles grow from token to token, as they should, and not from head to
        head."""
        return self.tokens is None or self.axis == self.tokens

    @property
    def restart(self) -> int:
        """The token, from 0, at which the positions start again at 0; 0 where they do not.

        The pair with the largest angle shows where the angles leave position × step."""
        fastest = int(self.steps.abs().argmax())
        angles, step = self.by_position[:, fastest], self.steps[fastest]
        expected = step * torch.arange(len(angles), dtype=angles.dtype, device=angles.device)
        off = (_wrapped(angles - expected).abs() > RESTARTED).nonzero()
        first = int(off[0]) if len(off) else 0
        return first if abs(float(angles[first])) <= RESTARTED else 0

    def same(self, other: Angles) -> bool:
        """Whether queries and keys turn by the same angles, so that logits depend on the distance
        of two tokens alone."""
        if self.steps.shape != other.steps.shape or self.halves != other.halves:
            return False
        difference = (self.steps - other.steps).abs()
        return bool((difference <= EXACT * self.steps.abs() + self.error).all())


def read_angles(step: Step, tokens: int | None = None) -> Angles | None:
    """The angles of a rotation; None where the numbers do not turn in pairs.

    Pairs may be halves or neighbors, and positions may lie along any axis: the way that fits is
    taken.

    Args:
        step: by which queries or keys were rotated.
        tokens: axis of the tokens in the result; None where it is not known.
    """
    after, before = step.node.tensor.detach().double(), _real(step.before.tensor.detach()).double()
    if after.ndim == before.ndim + 1:
        after = after.flatten(-2)
    if after.shape != before.shape or after.ndim < 3:
        return None
    axes = {*range(1, after.ndim - 1)} | ({tokens} if tokens is not None else set())
    ways = itertools.product(
        sorted(axis for axis in axes if after.shape[axis] > 1),
        (True, False),
        _widths(after, before),
    )
    precision = torch.finfo(step.node.tensor.dtype).eps
    error, d_head = max(TURNED, precision), after.shape[-1]
    tried = [
        Angles(*_angles(after, before, axis, halves, width), axis, halves, tokens, d_head, error)
        for axis, halves, width in ways
    ]
    fitting = [angles for angles in tried if angles.misfit <= max(EXACT, 3 * precision)]
    # where all tokens turn alike, heads do so, too: the tokens' axis comes first
    return min(fitting, key=lambda way: (not way.over_tokens, way.misfit), default=None)


def _widths(after: Tensor, before: Tensor) -> list[int]:
    """Candidates for the number of coordinates that are rotated: up to the last one that differs
    before and after, and all."""
    change = (after - before).abs().amax(dim=tuple(range(after.ndim - 1)))
    moved = (change > 1e-12 * float(before.abs().max())).nonzero()
    last = int(moved.max()) + 1 if len(moved) else 0
    return sorted({last + last % 2, after.shape[-1]} - {0})


def _angles(
    after: Tensor, before: Tensor, axis: int, halves: bool, width: int
) -> tuple[float, Tensor]:
    """Angles of a rotation of pairs of coordinates, read under assumptions that the misfit tests.

    Args:
        after, before: `[…, coordinate]`.
        axis: of the positions.
        halves: whether pairs are of the first and the second half, or else neighbors.
        width: number of coordinates that are rotated.
    Returns:
        the misfit, see `Angles`, and the angles `[position, pair]` less the first position's.
    """

    def pairs(x: Tensor) -> tuple[Tensor, Tensor]:
        x = x[..., :width].movedim(axis, 0)
        flat = x.reshape(x.shape[0], -1, width)  # [position, any, coordinate]
        if halves:
            return flat[..., : width // 2], flat[..., width // 2 :]
        return flat[..., ::2], flat[..., 1::2]

    (a, b), (c, d) = pairs(before), pairs(after)
    size = (a.square() + b.square()).sum(dim=1)
    cos, sin = (a * c + b * d).sum(dim=1) / size, (a * d - b * c).sum(dim=1) / size
    misfit = float((1 - cos.square() - sin.square()).abs().max())
    angles = torch.atan2(sin, cos)
    return misfit, _wrapped(angles - angles[0])


def _wrapped(angles: Tensor) -> Tensor:
    """Angles in radians, between −π and π."""
    return (angles + torch.pi) % (2 * torch.pi) - torch.pi


def _base(angles: Tensor, d_head: int, error: float) -> Turn:
    """The rotary positions of which the angles `[pair]` between two neighbors are.

    They should be base^(−2i/r) of pair i of r/2. Least squares of their logarithms give the base;
    where that does not fit, a second fit has a free factor, the speed of the positions.
    """
    steps = angles.abs()
    count = len(steps)
    share = 2 * count / d_head
    if count < 2:
        return Turn(1e4, share, True)
    exponent = torch.arange(count, dtype=torch.float64, device=steps.device) / count
    logs, weight = steps.clamp(min=1e-30).log(), steps.square()  # small angles are read less well

    def fit(made: Tensor) -> bool:
        return bool(((steps - made).abs() <= EXACT * made + error).all())

    log = float(-(weight * logs * exponent).sum() / (weight * exponent.square()).sum())
    fits, speed = fit((-exponent * log).exp()), 1.0
    if not fits and float(steps.max()) > error:
        middle, center = ((weight * x).sum() / weight.sum() for x in (exponent, logs))
        spread = (weight * (exponent - middle).square()).sum().clamp(min=1e-300)
        slope = float(-(weight * (logs - center) * (exponent - middle)).sum() / spread)
        first = float(center + slope * middle)
        if fit((first - exponent * slope).exp()) and 0 < slope < MOST_LOG:
            fits, speed, log = True, _written(math.exp(first)), slope
    return Turn(_written(math.exp(min(log, MOST_LOG))), share, fits, speed)


MOST_LOG = 60.0
"""Largest logarithm of a base: beyond it a base is infinite in effect."""


def _written(value: float) -> float:
    """The number with two digits that a person may have written, such as 1e4, where the value is
    close to one; else the value."""
    rounded = float(f"{value:.2g}")
    return rounded if rounded and abs(value / rounded - 1) < NEAR else value


ROTARY = ("", "heads", "one_place", "restart", "queries", "keys", "apart")
"""Mistakes of rotary positions. Empty: none. heads: angles grow from head to head, not from
token to token. one_place: all tokens have one position. restart: positions start again at 0.
queries, keys: these alone are rotated. apart: queries and keys are rotated by different angles."""


def _rotary(
    queries: tuple[list[Step], Node], keys: tuple[list[Step], Node], angles: list[Angles | None]
) -> tuple[str, int]:
    """The mistake in the rotary positions, a row of `ROTARY`, and the token at which positions
    start again; empty and 0 without a mistake, and where the rotations were not read.

    Args:
        queries, keys: what `trace` gives of them.
        angles: of the queries' and of the keys' rotation.
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
    if all(float(side.by_position.abs().max()) <= TURNED for side in (q, k)):
        return "one_place", 0
    if q.restart and q.restart == k.restart and q.turn.fits:
        return "restart", q.restart
    # keys of a cache, for one, begin elsewhere
    if q.by_position.shape == k.by_position.shape and not q.same(k):
        return "apart", 0
    return "", 0


# Which keys a query sees, and what its position adds to the logits: read off the first sequence's.


LOOKED_AT = 128
"""Tokens of the first sequence whose logits show mask and bias."""


def masking(
    attention: Node, q: Node, k: Node, product: Node | None, after: list[Step], cap: float
) -> tuple[str, str]:
    """Bias by position, and mask, of an attention, each in a word, see `_position_and_mask`.

    The bias is the logits less what product, factors and cap make of queries and keys.

    Args:
        attention: its output.
        q, k: queries and keys.
        product: of both; None in a fused call.
        after: the steps from the softmax back to the product.
        cap: of a soft cap, 0 without one.
    Raises:
        ValueError: the logits were bent or added to before their axes have their final order.
    """
    if attention.op in FUSED:
        n_queries, n_keys = (min(x.tensor.shape[-2], LOOKED_AT) for x in (q, k))
        return _of_fused(attention, n_queries, n_keys)
    soft = pattern_of(attention)
    if soft is None or product is None:
        return "another", "another"
    keys = attention.inputs[1].tensor.shape[-2]
    low = hidden(soft)
    logits = soft.inputs[0].tensor
    scores = (logits if low is None else logits.masked_fill(low, -math.inf))[..., :keys]
    first = _first(scores, scores.shape[-3])
    # the product with its axes in their places; what was done to it before it had them is done to
    # it there
    tensors = [(index, step.before.tensor[..., :keys]) for index, step in enumerate(after)]
    index, plain = next(
        (index, tensor)
        for index, tensor in [*reversed(tensors), (-1, scores)]
        if tensor.shape == scores.shape
    )
    if any(step.kind not in ("factor", "gain") for step in after[index + 1 :]):
        raise ValueError("the logits are bent or added to before their axes are in their places")
    if product.op == "baddbmm" and not product.inputs[0].role:
        bias = product.inputs[0].tensor.expand_as(product.tensor)
        plain = plain - bias.reshape(plain.shape).to(plain)
    factor = math.prod(step.factor for step in after[: index + 1] if step.kind == "factor")
    scaled = _first(plain, first.shape[0]) * factor
    if cap:
        scaled = torch.tanh(scaled / cap) * cap
    return _position_and_mask(first - scaled, first)


def _first(scores: Tensor, heads: int) -> Tensor:
    """`[head, query, key]` of the first sequence's first `LOOKED_AT` tokens."""
    flat = scores.detach().reshape(-1, *scores.shape[-2:])[:heads]
    return flat[:, :LOOKED_AT, :LOOKED_AT].float()


def _of_fused(attention: Node, n: int, keys: int) -> tuple[str, str]:
    """Bias by position and mask of a fused call: what its mask adds to logits of 0."""
    node, mask = attention.named.get("attn_mask") or attention.named.get("attn_bias"), None
    if isinstance(node, Node):
        heads = node.tensor.shape[-3] if node.tensor.ndim > 2 else 1
        mask = node.tensor.detach().reshape(-1, *node.tensor.shape[-2:])[:heads].cpu()
    zeros = torch.zeros(1 if mask is None else len(mask), n, keys)
    bias = masked(zeros, mask, bool(attention.named["is_causal"]))
    return _position_and_mask(bias, bias)


NO_BIAS = 1e-3
"""Share of the largest logit, or of 1, up to which what was added is rounding."""
OFF_ALIBI = 0.02
"""Relative difference from ALiBi's line up to which a bias is this one, in bfloat16, too."""
MOST_HEADS = 64
"""Heads up to which a bias may be ALiBi's."""


def _position_and_mask(bias: Tensor, scores: Tensor) -> tuple[str, str]:
    """The position, see `_position`, and the mask, see `_mask`, each in a word; both empty where a
    number is not finite that no mask has made so.

    Args:
        bias: what was added to the logits, `[head, query, key]`.
        scores: the logits with it, of the same shape.
    """
    # a key is hidden by a low logit, and by what was added: one that is low by itself is seen
    not_masked = bias > -(GAP + ROUNDED * scores.abs().where(scores.isfinite(), 0))
    seen_keys = visible(scores) | not_masked
    n, keys = scores.shape[-2:]
    if bool(scores.where(seen_keys, 0).isnan().any()) or bool(scores.isposinf().any()):
        return "", ""
    lower = torch.ones(n, keys, dtype=torch.bool, device=scores.device).tril()
    largest = float(scores.where(seen_keys, 0).abs().max())
    return _position(bias, seen_keys, largest), _mask(seen_keys, lower)


def _position(bias: Tensor, seen_keys: Tensor, largest: float) -> str:
    """The position in a word, by what was added to the logits: "none", "alibi" or "another".

    Args:
        bias: `[head, query, key]`.
        seen_keys: whether the query sees the key, of the same shape.
        largest: the largest |logit| of a key that is seen.
    """
    # A softmax is the same when a row of logits is shifted, so the bias of each key is taken
    # relative to the first key's, `[..., :1]`, where both are seen.
    compared = seen_keys & seen_keys[..., :1]
    relative = (bias - bias[..., :1]).where(compared, 0)
    if float(relative.abs().max()) <= NO_BIAS * max(1.0, largest):
        return "none"
    heads, _, keys = bias.shape
    if heads > MOST_HEADS:
        return "another"
    # ALiBi adds −slope · distance; relative to the first key this is slope · key, of each head
    alibi = Config(n_heads=heads, head_size=8, position="alibi", causal=True)
    slopes = torch.tensor(alibi.design.slopes)[:, None, None].to(relative)
    line = (slopes * torch.arange(keys, device=relative.device)).where(compared, 0)
    off = float((relative - line).abs().max())
    return "alibi" if off <= OFF_ALIBI * float(line.abs().max()) else "another"


def _mask(seen_keys: Tensor, lower: Tensor) -> str:
    """A mask in a word, the same for all heads. "none"; "causal"; "ahead": causal, but the next key
    is seen too; "reversed": a query sees itself and later keys; "window": no later key is seen, and
    some earlier ones are hidden; "another": none of these.

    Args:
        seen_keys: whether the query sees the key, `[head, query, key]`.
        lower: the same of a causal mask, `[query, key]`.
    """
    kinds = {
        "none": torch.ones_like(lower),
        "causal": lower,
        "ahead": torch.ones_like(lower).tril(1),
    }
    if lower.shape[0] == lower.shape[1]:
        kinds["reversed"] = lower.T
    for kind, keys in kinds.items():
        if bool((seen_keys == keys).all()):
            return kind
    return "another" if bool((seen_keys & ~lower).any()) else "window"


# The facts.


def of_heads(anatomy: Anatomy) -> Iterator[Fact]:
    """Facts of a block's attention; none where its logits are not seen."""
    operands = queries_keys_values(anatomy.attention)
    if anatomy.attention is None or operands is None:
        return
    for name, value in _facts(anatomy, anatomy.attention, *operands).items():
        if name not in ("mask", "position") or value != "":
            yield ("attn_scores", name), value


def _facts(anatomy: Anatomy, attention: Node, q: Node, k: Node, v: Node) -> dict[str, Any]:
    """Facts of an attention by name, from its queries, keys and values."""
    keys = k.inputs[0] if k.op in ("transpose", "t") and len(k.inputs) == 1 else k
    traced = [trace(operand) for operand in (q, keys, v)]
    lines = [steps for steps, _ in traced]
    norms = [[step for step in line if step.kind == "norm"] for line in lines]
    d_head = q.tensor.shape[-1]
    product, factor, cap, after = _logits(attention, d_head, anatomy.softmax)
    scales = [_scale_after_norm(line) for line in lines[:2]]
    factor *= math.prod(scales)
    inherits = _inherits(lines[0], after)
    position, mask = masking(attention, q, k, product, after, cap)
    if inherits == "scores":
        position = "none"  # what is added is no bias
    # a product by hand has its keys as [coordinate, token]
    last = -2 if attention.op in FUSED else -1
    angles = [_turned(lines[0], q, -2), _turned(lines[1], k, last)]
    readable = angles[0] or angles[1]  # where the queries are 0, the keys may show the angles
    turn = None if readable is None else readable.turn
    rotary, restart = _rotary(traced[0], traced[1], angles)
    turns = [step for line in lines[:2] for step in line if step.kind == "turn"]
    if turn is not None:
        position = "rotary" if turn.fits and turn.speed == 1.0 and not rotary else "another"
    elif position == "none" and turns and all(map(turns_unread, turns)):
        position = ""
    gain = 1.0
    if norms[0]:
        gain = math.prod(
            size(operand.tensor) / abs(scale or 1.0)
            for operand, scale in zip((q, k), scales, strict=True)
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


def _scale_after_norm(line: list[Step]) -> float:
    """Factor on queries or keys that no norm undoes: the steps come last first."""
    after_norm = itertools.takewhile(lambda step: step.kind != "norm", line)
    return math.prod(step.factor for step in after_norm if step.kind == "factor")


def _inherits(queries: list[Step], after: list[Step]) -> str:
    """The part of the previous block's attention that is added: "qk" of queries and keys,
    "scores" of logits, or "none".

    Args:
        queries: the steps that made them.
        after: the steps from the softmax back to the product of queries and keys.
    """
    if any(map(_carried, queries)):
        return "qk"
    for step in after:
        if _carried(step) and step.extra is not None and _varies(step.extra.tensor):
            return "scores"
    return "none"


def _turned(line: list[Step], operand: Node, axis: int) -> Angles | None:
    """The angles by which queries or keys are rotated; None where they are not, or it is not seen.

    Args:
        line: the steps that made them.
        operand: the queries or keys.
        axis: of their tokens.
    """
    turn = next((step for step in line if step.kind == "turn" and not turns_unread(step)), None)
    return None if turn is None else read_angles(turn, axis_at(turn.node, operand, axis))


def _logits(
    attention: Node, d_head: int, axis: str
) -> tuple[Node | None, float, float, list[Step]]:
    """The way from queries and keys to the softmax.

    Args:
        attention: its output.
        d_head: width of a head.
        axis: over which the softmax is; see `Anatomy.softmax`.
    Returns:
        the product of queries and keys, None in a fused call; the factor on it; the soft cap, 0
        without one; and the steps from the softmax back to the product.
    Raises:
        ValueError: the softmax is over the keys, and they are not the last axis of the logits.
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
    # cap · tanh(logit / cap): the factors after tanh, which come first
    bends = [index for index, step in enumerate(factors) if step.node.op == "tanh"]
    cap = math.prod(step.factor for step in factors[: bends[0]]) if bends else 0.0
    return product, factor, cap, steps


def _count(anatomy: Anatomy, d_head: int) -> int:
    """Number of heads: the width of what attention's last matrix reads, over that of a head."""
    pieces = anatomy.matrices.get("W_O", [])
    return sum(piece.of(piece.parameter).shape[-1] for piece in pieces[:1]) // d_head


def _carried(step: Step) -> bool:
    """Whether a sum adds a tensor that comes from another block: of the same size, and no
    parameter."""
    other = step.extra
    return (
        step.kind == "add"
        and other is not None
        and other.op == "leaf"
        and other.parameter is None
        and other.tensor.numel() == step.node.tensor.numel()
    )


def _varies(tensor: Tensor) -> bool:
    """Whether a tensor differs between the first two sequences, which no bias by position does."""
    return tensor.shape[0] > 1 and not torch.equal(tensor[0], tensor[1])


def _sink(attention: Node) -> str:
    """Whether the softmax has a sink, one key more than there are values: "none", "learned"
    where its logit is a parameter, or "zero"."""
    soft = pattern_of(attention)
    if soft is None or soft.inputs[0].tensor.shape[-1] != attention.inputs[1].tensor.shape[-2] + 1:
        return "none"
    makers = walk(soft.inputs[0], lambda node: [] if node.op in MATRIX else node.inputs)
    return "learned" if any(maker.parameter is not None for maker in makers) else "zero"
