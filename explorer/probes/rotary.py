"""By which angles queries are turned: read off the same numbers before and after."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from explorer.probes.trace import Step

TURNED = 1e-3
"""Error of an angle, in radians, that half precision has."""
NEAR = 5e-3
"""Error of a base that is read."""
EXACT = 1e-2
"""Largest deviation of an angle from a power of one base, as a share of it; and of what pairs may lose in length."""


class Turn(NamedTuple):
    """Rotary positions."""

    base: float
    share: float
    """Of a head's coordinates that are turned."""
    fits: bool
    """Whether the angles are the powers of one base."""


def read_turn(step: Step) -> Turn | None:
    """The base and the share of the coordinates; None where the numbers do not turn in pairs."""
    after, before = step.node.tensor.detach().double(), step.before.tensor.detach()
    before = torch.view_as_real(before).flatten(-2).double() if before.is_complex() else before.double()
    if after.ndim == before.ndim + 1:
        after = after.flatten(-2)
    if after.shape != before.shape or after.ndim < 3:
        return None
    best: tuple[float, Tensor] | None = None
    for axis in range(1, after.ndim - 1):
        if after.shape[axis] < 2:
            continue
        for halves in (True, False):
            for width in _widths(after, before):
                misfit, angles = _angles(after, before, axis, halves, width)
                if best is None or misfit < best[0]:
                    best = misfit, angles
    return None if best is None or best[0] > EXACT else _base(best[1], after.shape[-1])


def _widths(after: Tensor, before: Tensor) -> list[int]:
    """How many of the first coordinates may be turned: up to the last that a position changes."""
    moved = (after - before).abs().amax(dim=tuple(range(after.ndim - 1)))
    turned = int((moved > 1e-12 * float(before.abs().max())).nonzero().max()) + 1 if bool(moved.any()) else 0
    return sorted({turned + turned % 2, after.shape[-1]} - {0})


def _angles(after: Tensor, before: Tensor, axis: int, halves: bool, width: int) -> tuple[float, Tensor]:
    """What is left unexplained by turns, and the angle of each pair from the first position to the second."""
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
