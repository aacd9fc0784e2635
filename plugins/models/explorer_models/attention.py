"""Attention of any code, by head: of a fused call from its queries and keys, or of a softmax that
is written out.

Logits are looked at a few queries at a time, so that a fused kernel's saving of memory is not
undone. `read_attention` reads what a graph recorded of a block. `reader` takes sums while a block
runs: its dispatch mode sees the kernels' own arguments, and is entered only around calls that may
come to one, as each operator that runs within it costs some 25 µs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

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
LEAST_LOG = -1e30
CALLS = ("attention", "softm", "transformer")
"""One of these is in the name of each function of torch that comes to a softmax or a fused
kernel."""

Place = Callable[[Mapping[str, Tensor]], None]
"""Takes statistics by token position, `[token]`."""
Part = tuple[Tensor, Tensor | None]
"""Logits `[batch, head, query, key]` of some queries, and their pattern where it was computed."""


# The logits of a fused call, and which keys a query sees.


GAP = 50.0
"""Between what a mask adds to logits and what it leaves: e^−50 of a weight is nothing in
float32."""
HIDDEN = 5e3
"""A logit that far below the row's largest is hidden: masks add −1e4 or less, and ALiBi no less
than −n."""


def visible(scores: Tensor) -> Tensor:
    """Whether a query sees a key, by its logits `[…, query, key]`; where one is not a number, all
    are seen."""
    highest = scores.amax(dim=-1, keepdim=True)
    return (scores > torch.finfo(torch.float32).min / 4) & (
        scores >= highest - HIDDEN
    ) | highest.isnan()


def below(bias: Tensor) -> Tensor | None:
    """Which entries of what is added to logits hide a key: those that a gap parts from the others,
    as Swin's −100 by any other bias; None where there is no such gap. Biases by position fall in
    steps of one at most."""
    bias = bias.detach().float().clamp(min=-1e9)
    if not bias.numel() or float(bias.amin()) > -GAP:
        return None
    # two clusters on either side, most of the time: then nothing needs to be sorted
    low = bias <= -GAP
    if not bool(low.all()) and float(bias[~low].amin() - bias[low].amax()) >= GAP:
        return low
    values = bias.flatten().sort().values
    gaps = values.diff()
    return bias <= values[int(gaps.argmax())] if len(gaps) and float(gaps.max()) >= GAP else None


def masked(scores: Tensor, mask: Tensor | None, causal: bool, start: int = 0) -> Tensor:
    """Logits `[…, query, key]` of queries from `start` on with the mask of a fused call: −∞ where
    it hides a key."""
    n, keys = scores.shape[-2:]
    if mask is not None:
        part = mask.detach()[..., :keys]
        part = part if part.shape[-2] == 1 else part[..., start : start + n, :]
        gone = ~part if part.dtype == torch.bool else below(part)
        scores = scores if part.dtype == torch.bool else scores + part.float()
        scores = scores if gone is None else scores.masked_fill(gone, -math.inf)
    if causal:
        earlier = torch.ones(n, keys, dtype=torch.bool, device=scores.device).tril(start)
        scores = scores.masked_fill(~earlier, -math.inf)
    return scores


def hidden(soft: Node) -> Tensor | None:
    """Keys that a mask hides that was added to the logits of a softmax, in their shape; None where
    none was."""
    mask: Tensor | None = None
    scores = soft.inputs[0].tensor
    for step in trace(soft.inputs[0], lambda node: node.op in MATRIX, bends=True)[0]:
        bias = (
            step.extra
            if step.kind == "add" and step.node.tensor.numel() == scores.numel()
            else None
        )
        if bias is not None and not bias.role and (part := below(bias.tensor)) is not None:
            part = part.expand(step.node.tensor.shape).reshape(scores.shape)
            mask = part if mask is None else mask | part
    return mask


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
        yield masked(
            query[:, :, start : start + step].float() @ keys * scale,
            mask,
            named["is_causal"],
            start,
        )


# Of a block that a graph has recorded.


def read_attention(attention: Node, batch: int) -> Rows | None:
    """One attention, as `measuring.statistics` reduces it: means over batch and rows, no scores,
    and as pattern that of the first head in the first sequence; None where its rows are not seen.

    Args:
        attention: what it puts out.
        batch: number of sequences, where heads lie within the batch.
    """
    if attention.op in FUSED:
        named = {
            name: value.tensor if isinstance(value, Node) else value
            for name, value in attention.named.items()
        }
        parts: Iterator[Part] = ((scores, None) for scores in fused_logits(named))
    else:
        parts = _written_out(attention, batch)
    sums, queries, keys, patterns = [], [], [], []
    for scores, pattern in parts:
        total, query, key, weights = _sums(
            scores.detach(), None if pattern is None else pattern.detach()
        )
        sums.append(total)
        queries.append(query)
        keys.append(key)
        patterns.append(weights[0, 0])
    if not sums:
        return None
    variance, normalized, entropy, largest, several, rows = torch.stack(sums).sum(dim=0)
    # no head has one where no row sees several keys
    spread = slice(None) if bool((several > 0).all()) else slice(0)
    means = (
        (variance / several)[spread],
        entropy / rows,
        (normalized / several)[spread],
        largest / rows,
    )
    by_head, pattern = (
        [mean[None, None, :, None] for mean in means],
        torch.cat(patterns)[None, None, None],
    )
    positions = [torch.cat(queries)[None], torch.stack(keys).sum(dim=0)[None] / rows.sum()]
    return Rows(pattern[..., :0], pattern, *by_head + positions)


def _sums(scores: Tensor, pattern: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sums over batch and rows by head, `[6, head]`: variance, H / ln n, H, the largest weight, and
    rows of each pair; mean H by query; what each key receives of all rows; and the weights.

    Rows that see no key are left out, those that see one have no spread; one that is not a number
    is kept as such."""
    scores = scores.float()
    highest = scores.amax(dim=-1, keepdim=True)
    shown = visible(scores)
    count = shown.sum(dim=-1)
    shares = scores.masked_fill(~shown, -math.inf).softmax(dim=-1)
    weights = shares if pattern is None else pattern.float()
    below = (highest - scores).where(shown, 0).double()
    variance = below.square().sum(dim=-1) / count - (below.sum(dim=-1) / count).square()
    entropy = (below * shares).sum(dim=-1) - shares.amax(dim=-1).double().log()
    several, some = count > 1, count > 0
    parts = (
        variance.where(several, 0),
        (entropy / count.double().log()).where(several, 0),
        entropy.where(some, 0),
        weights.amax(dim=-1).double().where(some, 0),
        several.double(),
        some.double(),
    )
    by_query = parts[2].sum(dim=(0, 1)) / parts[5].sum(dim=(0, 1))
    received = weights.where(some[..., None], 0).sum(dim=(0, 1, 2), dtype=torch.float64)
    return torch.stack([part.sum(dim=(0, 2)) for part in parts]), by_query, received, weights


def _written_out(attention: Node, batch: int) -> Iterator[Part]:
    """Logits and pattern of a softmax; a sink is a key more than there are values."""
    soft = pattern_of(attention)
    if soft is None or soft.tensor.ndim not in (3, 4, 5):
        return
    keys = attention.inputs[1].tensor.shape[-2]
    logits, weights, mask = soft.inputs[0].tensor, soft.tensor, hidden(soft)
    logits = logits if mask is None else logits.masked_fill(mask, -math.inf)
    # as the product with the values has its axes
    if soft.named["dim"] % soft.tensor.ndim != soft.tensor.ndim - 1:
        weights = attention.inputs[0].tensor
        logits = weights.log()
    scores, pattern = (_by_head(tensor, batch)[..., :keys] for tensor in (logits, weights))
    step = max(1, AT_ONCE // max(1, math.prod(scores.shape[:2]) * keys))
    for start in range(0, scores.shape[2], step):
        yield scores[:, :, start : start + step], pattern[:, :, start : start + step]


def _by_head(scores: Tensor, batch: int) -> Tensor:
    """`[batch, head, query, key]` of logits whose heads lie within the batch, or in groups."""
    if scores.ndim == 3:
        whole = scores.shape[0] % batch == 0
        return scores.reshape(batch, -1, *scores.shape[1:]) if whole else scores[:, None]
    return scores.flatten(1, 2) if scores.ndim == 5 else scores


# Of a block that runs in training.


class Reader(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Hands sums over the attention of what runs within it to `take`, and alters nothing.

    By head, the parts are rows, Σ H, rows that see several keys, Σ H / ln(keys) over those, Σ of
    the largest weight. Means by token position go to `place`, where that is given."""

    def __init__(self, take: Callable[[Sums], None], place: Place | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.take, self.place = take, place

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Compiled blocks are never entered within it, so torch need not guard each call against
        being compiled."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **kwargs) if kwargs else func(*args)
        if func.overloadpacket.__name__ in FUSED | SOFTMAX:
            with torch.no_grad(), torch.autocast(args[0].device.type, enabled=False):
                blocks = [
                    # no large weights
                    (
                        row_sums(scores, least),
                        _sums(scores, None)[:3] if self.place else (),
                    )
                    for scores, least in logits(named_arguments(func, args, kwargs or {}))
                ]
                if blocks and self.place:
                    self.place(by_position([rows for _, rows in blocks]))
                if blocks:
                    self.take(
                        Sums(
                            torch.stack([sums.parts for sums, _ in blocks]).sum(0),
                            torch.stack([sums.largest for sums, _ in blocks]).amax(0),
                        )
                    )
        return out


class Calls(TorchFunctionMode):
    """Enters a reader around the calls that may come to an attention, and looks at no others."""

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self.reader = reader

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = getattr(func, "__name__", "")
        if not any(part in name for part in CALLS):
            return func(*args, **kwargs) if kwargs else func(*args)
        with self.reader:
            return func(*args, **kwargs or {})


def reader(
    block: nn.Module, take: Callable[[Sums], None], place: Place | None = None
) -> AbstractContextManager[Any]:
    """A context for the run of a block, see `Reader`; scripted code makes no visible calls."""
    scripted = any(isinstance(part, torch.jit.ScriptModule) for part in block.modules())
    return Reader(take, place) if scripted else Calls(Reader(take, place))


def by_position(parts: Sequence[tuple[Tensor, ...]]) -> dict[str, Tensor]:
    """Entropy of each query and weight that each key receives, `[token]`, from the `_sums` of all
    rows.

    Nothing where queries and keys are not the same tokens, as beside a sink's key.
    """
    entropy, received = (
        torch.cat([part[1] for part in parts]),
        torch.stack([part[2] for part in parts]).sum(0),
    )
    means = {
        "attention_entropy_by_position": entropy,
        "attention_received": received / sum(part[0][5].sum() for part in parts),
    }
    return means if len(entropy) == len(received) else {}


def logits(named: Mapping[str, Any]) -> Iterator[tuple[Tensor, float]]:
    """Logits of a call, some queries at a time, and the number up to which they are masked.

    Models mask with −∞ or with the least number of the type.
    """
    if "query" in named:
        yield from ((scores, -math.inf) for scores in fused_logits(named))
    elif (
        (x := named["self"].detach()).ndim == 4 and x.numel() and named["dim"] in (-1, 3)
    ):  # others choose experts
        for part in torch.split(x, max(1, AT_ONCE // x[:, :, 0].numel()), dim=2):
            yield part.float(), torch.finfo(x.dtype).min / 2


def row_sums(scores: Tensor, least: float) -> Sums:
    """The sums over some rows `[batch, head, query, key]`; a row that sees no key is none."""
    keys = scores.shape[-1] - (scores <= least).sum(dim=-1)  # nan is not masked: it stays
    log = scores.log_softmax(dim=-1)
    weight = scores.softmax(dim=-1)  # e to the power of −∞ takes processors twenty times as long
    entropy = -torch.linalg.vecdot(weight, log.clamp(min=LEAST_LOG))  # of a weight of 0 it is −inf
    some, several = keys > 0, keys > 1
    normalized = entropy / keys.clamp(min=2).log()
    parts = [
        some,
        entropy.where(some, 0),
        several,
        normalized.where(several, 0),
        weight.amax(dim=-1).where(some, 0),
    ]
    total = torch.stack([part.float().sum(dim=(0, 2)) for part in parts])
    wide = wide_on(scores.device)
    top = scores.amax(dim=-1).where(some, -math.inf).amax(dim=(0, 2))
    return Sums(total.to(wide), top.to(wide))
