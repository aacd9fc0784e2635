"""Attention of any eager model, by head: read from the kernels' own arguments, in blocks of queries.

A dispatch mode sees the queries and keys of the fused kernels, and the logits that go into a softmax written out. It is
entered only around calls that may come to one, in the blocks of a step that is read: each operator that runs within it
costs some 25 µs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from explorer.own.sums import wide_on

BLOCK_LOGITS = 2**22
"""About so many logits are looked at together: 16 MB in float32."""
LEAST_LOG = -1e30
CALLS = ("attention", "softm", "transformer")
"""One of these is in the name of each function of torch that comes to a softmax or a fused kernel."""
FUSED, SOFTMAX = "aten::_scaled_dot_product_", ("aten::_softmax", "aten::_safe_softmax")


class Heads(NamedTuple):
    """Mergeable sums over the rows of attention, by head."""

    parts: Tensor
    """`[5, head]`: rows, Σ H, rows that see several keys, Σ H / ln(keys) over those, Σ of the largest weight."""
    largest: Tensor
    """`[head]`: the largest logit."""

    def __add__(self, other: Heads) -> Heads:  # type: ignore[override]
        """The sums over both."""
        return Heads(self.parts + other.parts, torch.maximum(self.largest, other.largest))


class Reader(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Hands the attention of what runs within it to `found`, and alters nothing."""

    def __init__(self, take: Callable[[Heads], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.take = take

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Compiled blocks are never entered within it, so torch need not guard each call against being compiled."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (),
                           kwargs: Mapping[str, Any] | None = None) -> Any:
        out = func(*args, **kwargs) if kwargs else func(*args)
        if is_attention(func):
            with torch.no_grad(), torch.autocast(args[0].device.type, enabled=False):
                named = {argument.name: argument.default_value for argument in func._schema.arguments}
                named |= dict(zip(named, args, strict=False)) | dict(kwargs or {})
                self.read(named)
        return out

    def read(self, named: Mapping[str, Any]) -> None:
        """Reads one call, given by the names of the kernel's arguments."""
        if "query" in named:
            blocks = products(named)
        elif named["self"].ndim == 4 and named["dim"] in (-1, 3):  # other softmaxes choose experts or words
            blocks = logits(named["self"].detach())
        else:
            return
        parts = [rows(*block) for block in blocks]
        if parts:
            self.take(Heads(torch.stack([heads.parts for heads in parts]).sum(0),
                            torch.stack([heads.largest for heads in parts]).amax(0)))


class Calls(TorchFunctionMode):
    """Enters a reader around the calls that may come to an attention, and looks at no others."""

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self.reader = reader

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (),
                           kwargs: Mapping[str, Any] | None = None) -> Any:
        name = getattr(func, "__name__", "")
        if not any(part in name for part in CALLS):
            return func(*args, **kwargs) if kwargs else func(*args)
        with self.reader:
            return func(*args, **kwargs or {})


def reader(block: nn.Module, take: Callable[[Heads], None]) -> AbstractContextManager[Any]:
    """A context for the run of a block that hands its attention to `take`; scripted code makes no visible calls."""
    scripted = any(isinstance(part, torch.jit.ScriptModule) for part in block.modules())
    return Reader(take) if scripted else Calls(Reader(take))


@cache
def is_attention(func: Any) -> bool:
    """Whether an operator is a softmax or a fused kernel's forward pass."""
    name = func._schema.name
    return name in SOFTMAX or (name.startswith(FUSED) and "backward" not in name)


def products(named: Mapping[str, Any]) -> Iterator[tuple[Tensor, float]]:
    """Logits `[batch, head, query, key]` of a fused kernel's call, a block of queries at a time, and what masks."""
    query, key = named["query"].detach(), named["key"].detach()
    mask = named.get("attn_mask", named.get("attn_bias"))
    scale = named.get("scale")
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if query.ndim != 4 or not query.numel() or not key.numel():
        return
    groups = query.shape[1] // key.shape[1]
    turned = key.float().repeat_interleave(groups, dim=1).transpose(-2, -1)
    step = max(1, BLOCK_LOGITS // (query[:, :, 0, 0].numel() * key.shape[2]))
    for start in range(0, query.shape[2], step):
        part = query[:, :, start : start + step].float() @ turned * scale
        if mask is not None:
            here = mask.expand(*mask.shape[:-2], query.shape[2], key.shape[2])[..., start : start + step, :]
            part = part.masked_fill(~here, -math.inf) if here.dtype == torch.bool else part + here
        if named["is_causal"]:
            at = torch.arange(start, start + part.shape[2], device=part.device)
            part = part.masked_fill(torch.arange(key.shape[2], device=part.device) > at[:, None], -math.inf)
        yield part, -math.inf if mask is None else floor(mask.dtype)


def logits(x: Tensor) -> Iterator[tuple[Tensor, float]]:
    """Logits that are already there, a block of queries at a time, and what masks."""
    if x.numel():
        step = max(1, BLOCK_LOGITS // (x[:, :, 0].numel() or 1))
        for part in torch.split(x, step, dim=2):
            yield part.float(), floor(x.dtype)


def floor(dtype: torch.dtype) -> float:
    """A logit at or below this is masked: models mask with −∞ or with the least number of the type."""
    return torch.finfo(dtype).min / 2 if dtype.is_floating_point else -math.inf


def rows(scores: Tensor, masked: float) -> Heads:
    """The sums over some rows `[batch, head, query, key]`; a row that sees no key is none."""
    keys = scores.shape[-1] - (scores <= masked).sum(dim=-1)  # nan is not masked: it stays
    log = scores.log_softmax(dim=-1)
    weight = scores.softmax(dim=-1)  # e to the power of −∞ takes processors twenty times as long
    entropy = -torch.linalg.vecdot(weight, log.clamp(min=LEAST_LOG))  # of a weight of 0 it is −inf
    some, several = keys > 0, keys > 1
    normalized = entropy / keys.clamp(min=2).log()
    parts = [some, entropy.where(some, 0), several, normalized.where(several, 0),
             weight.amax(dim=-1).where(some, 0)]
    total = torch.stack([part.float().sum(dim=(0, 2)) for part in parts])
    wide = wide_on(scores.device)
    top = scores.amax(dim=-1).where(some, -math.inf).amax(dim=(0, 2))
    return Heads(total.to(wide), top.to(wide))
