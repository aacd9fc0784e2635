"""From tensors to numbers: each function reduces a stack of layers to one number a layer (and head).

Reductions run on the tensor's own device, in float32, and once more in float64 where squares left float32's range: what
is reported as infinite is so itself. Nothing is masked: a value that is not finite comes out as such.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Stream = Float[Tensor, "layer batch token d"]
Rows = Float[Tensor, "layer batch head query key"]
Mask = Bool[Tensor, "query key"]
PerLayer = Float[Tensor, " layer"]
PerHead = Float[Tensor, "layer head"]

LEAST, MOST = 1e-15, 1e15
"""Between these a norm summed in float32 is right: its squares neither overflowed nor sank below the normal numbers."""


def second_moment(x: Stream) -> PerLayer:
    """Mean of x² over batch, token and coordinate."""
    return _norm(x.flatten(1), (1,)).square() / x[0].numel()


def token_overlap(x: Stream, q: PerLayer) -> PerLayer:
    """Mean of x_t · x_t' / d over pairs of different tokens of a sequence, given the second moment q.

    From the sum over tokens: ‖Σ x_t‖² holds each pair twice and each token once.
    """
    n = x.shape[2]
    total = second_moment(x.sum(dim=2, keepdim=True))  # ‖Σ_t x_t‖² / d, mean over the batch
    return (total - n * q) / (n * (n - 1))


def attention(scores: Rows, pattern: Rows, mask: Mask | None) -> dict[str, PerHead]:
    """Spread of the logits, entropy in nats and over ln(visible keys), largest weight: per layer and head.

    All from how far each logit lies below its row's largest, b_k = s_j − s_k. The spread is the RMS over visible keys
    of the centered logits: mean b² − (mean b)², where nothing cancels as it would in the logits themselves. And since
    log p_k = log p_j − b_k, the entropy is H = Σ p_k b_k − log p_j: one logarithm a row where −Σ p log p takes one a
    weight. Rows that see one key have neither a spread nor an ln 1 to divide by, and are left out of both.
    """
    largest = pattern.amax(dim=-1)  # [layer, batch, head, query]
    if mask is None:
        below = scores.amax(dim=-1, keepdim=True) - scores
        seen = torch.full((pattern.shape[-1],), pattern.shape[-1], device=pattern.device)
    else:
        below = (scores.where(mask, -math.inf).amax(dim=-1, keepdim=True) - scores).where(mask, 0)
        seen = mask.sum(dim=-1)
    several = seen > 1 if mask is not None else slice(None)
    square = _norm(below, (-1,), least=0).square() / seen  # a row of equal logits is a true 0
    variance = square - (below.sum(dim=-1) / seen).double().square()
    nats = below.mul_(pattern).sum(dim=-1) - largest.log()
    return {
        "logit_std": variance[..., several].mean(dim=(1, 3)).clamp(min=0).sqrt(),
        "attention_entropy": nats.mean(dim=(1, 3)),
        "attention_entropy_normalized": (nats[..., several] / seen[several].log()).mean(dim=(1, 3)),
        "attention_max": largest.mean(dim=(1, 3)),
    }


def norms(tensors: list[Tensor]) -> list[float]:
    """Frobenius norm of each tensor, in one call for all."""
    found: list[float] = torch.stack(torch._foreach_norm(tensors)).tolist()
    if min(found) >= LEAST and max(found) <= MOST:
        return found
    return [
        size if LEAST <= size <= MOST else float(torch.linalg.vector_norm(tensor, dtype=torch.float64))
        for size, tensor in zip(found, tensors, strict=True)
    ]


def _norm(x: Tensor, dim: tuple[int, ...], least: float = LEAST) -> Tensor:
    """Euclidean norm along some axes, float64."""
    found: Tensor = torch.linalg.vector_norm(x, dim=dim).double()
    if bool(((found >= least) & (found <= MOST)).all()):
        return found
    exact: Tensor = torch.linalg.vector_norm(x, dim=dim, dtype=torch.float64)
    return exact
