"""Logits of a model's output whose cross-entropy is its loss: recognized by the gradient, and what
they come to.

The gradient of a cross-entropy by a row of logits is w (p − y): p their softmax, y 1 at the target
and else 0, w the row's weight. No other loss has it, and the one negative entry says what the
target is, so neither the loss's code nor the labels have to be seen. A loss with smoothed labels or
a further term in the logits is not recognized."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from explorer.foreign import LOGITS
from explorer_models.hooks import Hook
from explorer_models.model import Loss, output_of, scalar_of

ROWS = 512
"""Rows that are read of a batch, evenly spread: of 50,304 float32 logits each they take 100 MB."""
LEAST_ROWS, LEAST_CLASSES = 4, 3
"""Least numbers of rows and classes by which the loss is recognized: with two classes, any gradient
that adds up to 0 looks like a cross-entropy's."""
TOLERANCE = 0.05
"""Σ |g − w p| over Σ w p off the target, up to which a row's gradient is that: bfloat16 rounds by
0.004."""


def some(logits: Tensor) -> Tensor | None:
    """Up to `ROWS` rows `[row, class]` of logits `[…, class]`, evenly spread; None of a tensor
    that cannot be logits."""
    if (
        logits.is_nested
        or hasattr(logits, "placements")
        or logits.ndim < 2
        or logits.shape[-1] < LEAST_CLASSES
    ):
        return None
    rows = logits.detach().flatten(0, -2)
    rows = rows[:: max(1, -(-len(rows) // ROWS))]
    return rows.double() if rows.dtype == torch.float64 else rows.float()


@torch.no_grad()
def cross_entropy(logits: Tensor, gradient: Tensor) -> Mapping[str, float]:
    """`LOGITS`, by name, of a model whose loss is a cross-entropy; empty where it is another loss.

    Args:
        logits: `[row, class]`.
        gradient: the loss's gradient by them. Each row must be w (p − y), see above.
    """
    target = gradient.argmin(1, keepdim=True)
    asked = gradient.gather(1, target)[:, 0] < 0  # a row that is not asked has no gradient
    z, g, target = logits[asked], gradient[asked], target[asked]
    if len(z) < LEAST_ROWS:
        return {}
    p, total, own = z.softmax(1), z.logsumexp(1), z.gather(1, target)
    others = p.scatter(1, target, 0.0).sum(1)
    shares = p / others[:, None] * -g.gather(1, target)
    off = (g - shares).scatter(1, target, 0.0).abs().sum(1) / shares.scatter(1, target, 0.0).sum(1)
    if not float((off < TOLERANCE).double().mean()) > 0.9:
        return {}
    losses = (total - own[:, 0]).cpu().double()
    parts = (
        losses.mean(),
        losses.std() / len(losses) ** 0.5,
        losses.new_tensor(z.shape[1]),
        z.var(1, correction=0).mean(),
        z.square().mean().sqrt(),
        z.abs().max(),
        total.square().mean(),
    )
    numbers = torch.stack([number.cpu().double() for number in parts])
    return (
        dict(zip(LOGITS, numbers.tolist(), strict=True)) if bool(numbers.isfinite().all()) else {}
    )


class Asked(NamedTuple):
    """A model's logits, and the targets that its loss has for them."""

    logits: Tensor | None = None
    """The output, `[…, class]`; None without one that may be logits."""
    numbers: Mapping[str, float] = MappingProxyType({})
    """`cross_entropy`; empty where the loss is none."""
    targets: Tensor | None = None
    """The class that each row is asked for, `[…]`, −1 of a row that is not asked; None without a
    cross-entropy."""


def of_output(output: Any, loss: Loss | None, value: Tensor) -> Asked:
    """The logits of a model's output and their targets, from the gradient of its loss.

    Args:
        output: of the model.
        loss: the caller's, if there is one.
        value: the scalar that is differentiated.
    """
    logits, scalar = output_of(output), value if loss else scalar_of(output)
    if logits is None or (rows := some(logits)) is None:
        return Asked()
    if scalar is None:
        return Asked(logits)
    gradient = torch.autograd.grad(scalar, logits, retain_graph=True, allow_unused=True)[0]
    numbers = {} if gradient is None else _compared(rows, gradient)
    if gradient is None or not numbers:
        return Asked(logits)
    least, targets = gradient.min(dim=-1)
    return Asked(logits, numbers, targets.where(least < 0, -1))


def follow(output: Any, take: Callable[[Mapping[str, float]], None]) -> None:
    """Has `take` called with the `cross_entropy` of a model's output, once its gradient is
    known."""
    logits = output_of(output)
    if logits is not None and logits.grad_fn is not None and (rows := some(logits)) is not None:
        # the loop may change them in place
        rows = rows.clone() if rows.data_ptr() == logits.data_ptr() else rows
        logits.register_hook(Hook(lambda gradient: take(_compared(rows, gradient))))  # type: ignore[no-untyped-call]


def _compared(rows: Tensor, gradient: Tensor) -> Mapping[str, float]:
    """`cross_entropy` of some rows of logits, by the gradient of the same rows."""
    g = some(gradient)
    return {} if g is None or g.shape != rows.shape else cross_entropy(rows, g)
