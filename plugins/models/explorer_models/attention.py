"""Attention of any code, by head: of a fused call from its queries and keys, or of a softmax that
is written out.

Logits are looked at a few queries at a time, so that a fused kernel's saving of memory is not
undone. `read_attention` reads what a graph recorded of a block. `reader` takes sums while a block
runs: its dispatch mode sees the kernels' own arguments, and is entered only around calls that may
come to one, as each operator that runs within it costs some 25 µs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from explorer.measuring.statistics import Rows
from explorer_models.nodes import FUSED, MATRIX, SOFTMAX, Node, named_arguments, pattern_of
from explorer_models.sums import Sums, wide_on
from explorer_models.trace import trace

AT_ONCE = 2**20
"""Logits that are looked at together: 4 MB in float32."""
CALLS = ("attention", "softm", "transformer")
"""One of these is in the name of each function of torch that comes to a softmax or a fused
kernel."""

ByToken = Callable[[Mapping[str, Tensor]], None]
"""Takes statistics by token position, each `[token]`."""
LogitsAndWeights = tuple[Tensor, Tensor | None]
"""Logits `[batch, head, query, key]` of some queries, and their weights where those were
computed."""


# The logits of a fused call, and which keys a query sees.


GAP = 50.0
"""Between what a mask adds to logits and what it leaves: e^−50 of a weight is nothing in
float32."""
HIDDEN = 5e3
"""A logit that far below the row's largest is hidden: masks add −1e4 or less, and ALiBi no less
than −n."""


def visible(scores: Tensor) -> Tensor:
    """Which keys each query sees, by its logits `[…, query, key]`: all keys but those whose logit a
    mask has made very low. In a row with a nan all count as seen."""
    highest = scores.amax(dim=-1, keepdim=True)
    finite = scores > torch.finfo(torch.float32).min / 4
    near = scores >= highest - HIDDEN
    return finite & near | highest.isnan()


def below(bias: Tensor) -> Tensor | None:
    """Which entries of an additive mask hide a key, whatever number it adds there: those that a gap
    parts from the others, such as Swin's −100 beside other biases. None where there is no such
    gap. Biases by position fall in steps of at most 1."""
    bias = bias.detach().float().clamp(min=-1e9)
    if not bias.numel() or float(bias.amin()) > -GAP:
        return None
    # two clusters on either side, most of the time: then nothing needs to be sorted
    low = bias <= -GAP
    if not bool(low.all()) and float(bias[~low].amin() - bias[low].amax()) >= GAP:
        return low
    values = bias.flatten().sort().values
    gaps = values.diff()
    if not len(gaps) or float(gaps.max()) < GAP:
        return None
    return bias <= values[int(gaps.argmax())]


def masked(scores: Tensor, mask: Tensor | None, causal: bool, start: int = 0) -> Tensor:
    """Logits of a fused call with its mask: −∞ where the mask hides a key.

    Args:
        scores: logits `[…, query, key]` of the queries from `start` on.
        mask: the call's own: a bias, or True where a key is seen.
        causal: whether the call also hides later keys.
    """
    n, keys = scores.shape[-2:]
    if mask is not None:
        mask = mask.detach()[..., :keys]
        if mask.shape[-2] > 1:
            mask = mask[..., start : start + n, :]
        if mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, -math.inf)
        else:
            scores, low = scores + mask.float(), below(mask)
            scores = scores if low is None else scores.masked_fill(low, -math.inf)
    if causal:
        earlier = torch.ones(n, keys, dtype=torch.bool, device=scores.device).tril(start)
        scores = scores.masked_fill(~earlier, -math.inf)
    return scores


def hidden(soft: Node) -> Tensor | None:
    """Which keys the masks hide that were added to the logits of a softmax, in the logits' shape;
    None where no mask was added."""
    scores = soft.inputs[0].tensor
    steps, _ = trace(soft.inputs[0], lambda node: node.op in MATRIX, bends=True)
    low: Tensor | None = None
    for step in steps:
        bias = step.extra if step.kind == "add" else None
        if bias is None or bias.role or step.node.tensor.numel() != scores.numel():
            continue
        if (entries := below(bias.tensor)) is not None:
            entries = entries.expand(step.node.tensor.shape).reshape(scores.shape)
            low = entries if low is None else low | entries
    return low


def fused_logits(named: Mapping[str, Any]) -> Iterator[Tensor]:
    """Logits `[batch, head, query, key]` of a fused call, some queries at a time; −∞ where a mask
    hides a key.

    Args:
        named: the kernel's arguments by their names.
    """
    query, key = named["query"].detach(), named["key"].detach()
    scale = query.shape[-1] ** -0.5 if named.get("scale") is None else float(named["scale"])
    if query.ndim != 4 or not query.numel() or not key.numel():
        return
    if key.shape[1] != query.shape[1]:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    mask, keys = named.get("attn_mask", named.get("attn_bias")), key.float().mT
    step = max(1, AT_ONCE // (query[:, :, 0, 0].numel() * key.shape[2]))
    for start in range(0, query.shape[2], step):
        scores = query[:, :, start : start + step].float() @ keys * scale
        yield masked(scores, mask, named["is_causal"], start)


# Of a block that a graph has recorded.


def read_attention(attention: Node, batch: int) -> Rows | None:
    """Statistics of one attention: means over batch and rows by head, the pattern of the first head
    in the first sequence, and no scores. None where its logits are not seen.

    Args:
        attention: the node of its output.
        batch: number of sequences, where heads lie within the batch.
    """
    logits_and_weights: Iterator[LogitsAndWeights]
    if attention.op in FUSED:
        named = {
            name: value.tensor if isinstance(value, Node) else value
            for name, value in attention.named.items()
        }
        logits_and_weights = ((scores, None) for scores in fused_logits(named))
    else:
        logits_and_weights = _written_out(attention, batch)
    chunks, pattern = [], []
    for scores, weights in logits_and_weights:
        sums = row_sums(scores.masked_fill(~visible(scores), -math.inf), weights)
        chunks.append(sums._replace(weights=sums.weights[:0]))
        pattern.append(sums.weights[0, 0])
    if not chunks:
        return None
    rows, entropy, several, normalized, largest, variance = _by_head_of(chunks)
    # no head has one where no row sees several keys
    spread = slice(None) if bool((several > 0).all()) else slice(0)
    by_head = (
        (variance / several)[spread],
        entropy / rows,
        (normalized / several)[spread],
        largest / rows,
    )
    whole = torch.cat(pattern)[None, None, None]
    by_token = [mean[None] for mean in _by_token_of(chunks)]
    means = [mean[None, None, :, None] for mean in by_head]
    return Rows(whole[..., :0], whole, *means, *by_token)


class RowSums(NamedTuple):
    """Sums over the rows of some queries, `[batch, head, query, key]`."""

    by_head: Tensor
    """`[6, head]`: rows that see a key; Σ H; rows that see several keys; Σ H / ln(keys) over
    those; Σ of the largest weight; Σ of the logits' variance over the rows that see several."""
    entropy: Tensor
    """`[query]`, H, the mean over batch and heads."""
    received: Tensor
    """`[key]`, the weights that a key gets from all rows; of no meaning where they are not
    wanted."""
    weights: Tensor
    """`[batch, head, query, key]`, after the softmax."""


def row_sums(
    scores: Tensor,
    pattern: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
    by_key: bool = True,
) -> RowSums:
    """The sums over some rows of logits.

    A row that sees no key counts in none of them, and one that sees a single key has no variance.
    What is not a number stays so.

    Args:
        scores: logits `[batch, head, query, key]`, −∞ where a key is hidden.
        pattern: weights after the softmax, where they were computed; after dropout, for one.
        dtype: of the terms of the sums.
        by_key: whether to sum what each key receives, which takes as long as the rest.
    """
    wide = wide_on(scores.device)
    scores = scores.detach().float()
    seen_keys = ~scores.isneginf()
    count = seen_keys.sum(dim=-1)
    # faster than exp of the logarithms: e to the power of −∞ takes processors twenty times as long
    shares = scores.softmax(dim=-1)
    weights = shares if pattern is None else pattern.detach().float()
    # H = Σ p ln(1/p), with ln(1/p) = (highest − score) − ln(largest p)
    gaps = (scores.amax(dim=-1, keepdim=True) - scores).where(seen_keys, 0).to(dtype)
    entropy = (gaps * shares).sum(dim=-1) - shares.amax(dim=-1).to(dtype).log()
    variance = gaps.square().sum(dim=-1) / count - (gaps.sum(dim=-1) / count).square()
    some, several = count > 0, count > 1
    numbers = (
        some.to(wide),
        entropy.where(some, 0),
        several.to(wide),
        (entropy / count.to(wide).log()).where(several, 0),
        weights.amax(dim=-1).to(wide).where(some, 0),
        variance.where(several, 0),
    )
    received = weights[0, 0, 0]
    if by_key:
        received = weights.where(some[..., None], 0).sum(dim=(0, 1, 2), dtype=wide)
    return RowSums(
        torch.stack([number.to(wide).sum(dim=(0, 2)) for number in numbers]),
        numbers[1].to(wide).sum(dim=(0, 1)) / numbers[0].sum(dim=(0, 1)),
        received,
        weights,
    )


def _by_head_of(chunks: Sequence[RowSums]) -> Tensor:
    """`RowSums.by_head` over the rows of all chunks."""
    return torch.stack([chunk.by_head for chunk in chunks]).sum(dim=0)


def _by_token_of(chunks: Sequence[RowSums]) -> tuple[Tensor, Tensor]:
    """Mean entropy of each query, and mean weight that each key receives, `[token]`, over the rows
    of all chunks."""
    received = torch.stack([chunk.received for chunk in chunks]).sum(dim=0)
    return torch.cat([chunk.entropy for chunk in chunks]), received / _by_head_of(chunks)[0].sum()


def _written_out(attention: Node, batch: int) -> Iterator[LogitsAndWeights]:
    """Logits and weights of a softmax that the block computes, some queries at a time. Further keys
    than there are values belong to a sink, and are left out."""
    soft = pattern_of(attention)
    if soft is None or soft.tensor.ndim not in (3, 4, 5):
        return
    keys = attention.inputs[1].tensor.shape[-2]
    logits, weights, low = soft.inputs[0].tensor, soft.tensor, hidden(soft)
    logits = logits if low is None else logits.masked_fill(low, -math.inf)
    # as the product with the values has its axes
    if soft.named["dim"] % soft.tensor.ndim != soft.tensor.ndim - 1:
        weights = attention.inputs[0].tensor
        logits = weights.log()
    scores, pattern = (_with_heads(tensor, batch)[..., :keys] for tensor in (logits, weights))
    step = max(1, AT_ONCE // max(1, math.prod(scores.shape[:2]) * keys))
    yield from zip(torch.split(scores, step, 2), torch.split(pattern, step, 2), strict=True)


def _with_heads(scores: Tensor, batch: int) -> Tensor:
    """`[batch, head, query, key]` of logits whose heads lie within the batch, or in groups."""
    if scores.ndim == 3:
        whole = scores.shape[0] % batch == 0
        return scores.reshape(batch, -1, *scores.shape[1:]) if whole else scores[:, None]
    return scores.flatten(1, 2) if scores.ndim == 5 else scores


# Of a block that runs in training.


class Reader(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that reads every attention that runs within it, and alters nothing.

    Args:
        take: called with sums over one attention's rows, by head: the first five rows of
            `RowSums.by_head`, and the largest logit.
        by_token: called with means by token position; None where they are not wanted.
    """

    def __init__(self, take: Callable[[Sums], None], by_token: ByToken | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.take, self.by_token = take, by_token

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Compiled blocks are never entered within it, so torch need not guard each call against
        being compiled."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **kwargs or {})
        if func.overloadpacket.__name__ in FUSED | SOFTMAX:
            with torch.no_grad(), torch.autocast(args[0].device.type, enabled=False):
                self.sum_rows(named_arguments(func, args, kwargs or {}))
        return out

    def sum_rows(self, named: Mapping[str, Any]) -> None:
        """Hands over the sums of a fused call or of a softmax.

        Args:
            named: the operator's arguments by their names.
        """
        chunks, tops = [], []
        for scores in logits(named):
            sums = row_sums(scores, dtype=torch.float32, by_key=self.by_token is not None)
            chunks.append(sums._replace(weights=scores[:0]))  # no large weights are kept
            tops.append(scores.amax(dim=(0, 2, 3)).to(sums.by_head))
        if not chunks:
            return
        if self.by_token:
            self.by_token(by_position(chunks))
        self.take(Sums(_by_head_of(chunks)[:5], torch.stack(tops).amax(0)))


class Calls(TorchFunctionMode):
    """Enters a reader around the calls that may come to an attention, and looks at no others."""

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self.reader = reader

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        attends = any(fragment in name for fragment in CALLS)
        with self.reader if attends else nullcontext():
            return func(*args, **kwargs or {})


def reader(
    block: nn.Module, take: Callable[[Sums], None], by_token: ByToken | None = None
) -> AbstractContextManager[Any]:
    """A context in which a block runs, so that its attention is read, see `Reader`. Scripted code
    makes no calls that `Calls` would see, and needs the whole mode."""
    scripted = any(isinstance(module, torch.jit.ScriptModule) for module in block.modules())
    mode = Reader(take, by_token)
    return mode if scripted else Calls(mode)


def by_position(chunks: Sequence[RowSums]) -> dict[str, Tensor]:
    """Entropy of each query, and weight that each key receives, by token position.

    Nothing where queries and keys are not the same tokens, as beside a sink's key.
    """
    entropy, received = _by_token_of(chunks)
    if len(entropy) != len(received):
        return {}
    return {"attention_entropy_by_position": entropy, "attention_received": received}


def logits(named: Mapping[str, Any]) -> Iterator[Tensor]:
    """Logits of a fused call or of a softmax, some queries at a time; −∞ where a key is hidden.

    Models mask with −∞ or with the least number of the type. A softmax over another axis, or of
    another shape, chooses experts and has none.
    """
    if "query" in named:
        yield from fused_logits(named)
        return
    scores = named["self"].detach()
    if scores.ndim == 4 and scores.numel() and named["dim"] in (-1, 3):
        least = torch.finfo(scores.dtype).min / 2
        for some in torch.split(scores, max(1, AT_ONCE // scores[:, :, 0].numel()), dim=2):
            yield some.float().masked_fill(some <= least, -math.inf)
