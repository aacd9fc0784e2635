"""The forward recursion under a causal mask: second moments by position, overlaps by pair of positions.

As `forward`, with the averages over keys running over the prefix that a row sees. Row t attends to t keys of mean
second moment Q_t and mean overlap P_t; the t common keys of rows t < t′ weigh t/t′ of the longer row's softmax. The
corrections of order 1/width (scatter v of the overlaps, w of the lengths) are taken alike for all positions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from explorer.schemes.placement import Placement
from explorer.theory.causal_logits import Logits, logits
from explorer.theory.causal_state import State
from explorer.theory.forward import LARGEST, LARGEST_LOGIT, Tokens, add, passed
from explorer.theory.gains import EPSILON, Gains
from explorer.theory.grids import Array
from explorer.theory.positions import Positions, Stacked

FINITE = 1e70
"""The loop ends when a mean second moment leaves this range; which sublayers are covered is seen afterwards."""


class Norm(NamedTuple):
    """What a norm divided by, by position, and the relative variance of the tokens' squared lengths there."""

    q: Array
    same: float


class Step(NamedTuple):
    """One sublayer, as the backward recursion needs it."""

    place: Placement
    logits: Logits | None
    """None at an MLP."""
    before: Norm | None
    inside: State
    read: State
    """What the branch's last matrix reads."""
    added: State
    behind: Norm | None
    after: Norm | None
    kept: float
    """The stream's part of the sum's second moment."""
    followed: float
    """How far deviations of overlaps survived the sublayer."""
    site: State


def run(gains: Gains, place: Positions, table: Stacked, n_layers: int, first: Tokens) -> list[Step]:
    """The recursion over 2N sublayers; shorter where a second moment leaves the range of `LARGEST`."""
    y = np.full(len(place.ratio), first.p)
    y[:len(place.t)] = first.q
    x = State(place, y, first.v, first.w)
    steps: list[Step] = []
    below: Logits | None = None
    kept = 1.0
    for index in range(2 * n_layers):
        inherited = (below, kept) if index % 2 == 0 else None
        step = sublayer(gains, table, x, gains.places[index // 2], inherited)
        if step.logits:
            below, kept = step.logits, 1.0
        kept *= step.followed
        steps.append(step)
        x = step.site
        if not 1 / FINITE < x.mean.q < FINITE:
            break
    return steps[:_covered(steps)]


def _covered(steps: list[Step]) -> int:
    """Number of sublayers up to which second moments and logits are within their ranges."""
    sums = np.array([step.after.q if step.after else step.site.q for step in steps])
    fine = (sums.min(1) > 1 / LARGEST) & (sums.max(1) < LARGEST)
    s = np.array([step.logits.s for step in steps if step.logits])
    fine[::2] &= ~(s.max(1) > LARGEST_LOGIT)
    return len(steps) if fine.all() else int(fine.argmin())


def sublayer(gains: Gains, table: Stacked, x: State, design: Placement, below: tuple[Logits | None, float] | None
             ) -> Step:
    """One branch and its way back into the stream; an attention reads the logits below it and what is kept."""
    inside, before = normalize(x, design.scale**2) if design.on_input else (x, None)
    law, follows, gain = None, 0.0, gains.out
    if below:
        seen = x.place.attend @ inside.y
        law, gain = logits(gains, inside, seen, *below), gains.o
        read = attention(gains, table, inside, seen, law)
    else:
        follows = passed(inside.mean)
        read = mlp(gains, inside, follows)
    added, behind = State(x.place, gain * read.y, read.v, read.w), None
    if design.on_output:
        added, behind = normalize(added)
    skip, scale = gains.skip**2, gains.branch**2
    both, followed = add(_scaled(x.mean, skip), _scaled(added.mean, scale), gains.d_model, follows)
    site, after = State(x.place, skip * x.y + scale * added.y, both.v, both.w), None
    site.mean = both
    if design.on_sum:
        site, after = normalize(site)
    return Step(design, law, before, inside, read, added, behind, after, skip * x.mean.q / both.q, followed, site)


def _scaled(x: Tokens, factor: float) -> Tokens:
    return Tokens(factor * x.q, factor * x.p, x.v, x.w)


def attention(gains: Gains, table: Stacked, x: State, seen: Array, law: Logits) -> State:
    """What W_O reads; `seen` is the tokens' average over keys."""
    place, count, own = x.place, len(x.q), law.apart
    square, spread, crowding, unevenness = table.forward(law.s).T
    smaller, larger, rho = place.smaller[count:], place.larger[count:], law.rho[count:]
    alike = law.alike
    if gains.cap:
        alike = alike * law.s**2 / np.maximum(law.covariance[:count], 1e-300)
    alike = alike / (1 + alike)
    pair = table.overlap(np.sqrt(law.s.take(smaller) * law.s.take(larger)), rho)
    crowd = np.sqrt(alike * spread)
    y = np.empty_like(x.y)
    y[:count] = seen[count:2 * count] + own * (square + alike * crowding)
    y[count:] = seen[count:] + own.take(smaller) * (
        pair * place.ratio[count:] + crowd.take(smaller) * crowd.take(larger) * rho)
    uneven = float(place.mean @ (unevenness * (own * square / y[:count]) ** 2)) / gains.n_heads
    v = x.v + 2 / gains.d_model + float(place.mean @ pair[:count]) / gains.n_heads
    return State(place, gains.v * y, min(v, 1.0), gains.noise[0] + uneven)


def mlp(gains: Gains, x: State, follows: float) -> State:
    """What W_out reads: kernels at the geometric mean of two positions' second moments."""
    _, overlap = gains.kernel.overlaps(gains.hidden * x.square, x.rho)
    v = x.v * follows**2 + 1 / gains.d_model + 1.6 / gains.d_mlp
    return State(x.place, overlap, v, gains.noise[1] + x.w)


def normalize(x: State, scale: float = 1.0) -> tuple[State, Norm]:
    """A norm; the scatter of the lengths lowers overlaps a little (delta method, see `forward.normalize`)."""
    q = x.q + EPSILON
    factor = 1 / x.place.lift(q) if scale == 1 else scale / x.place.lift(q)
    lower = (1 - x.w / 4) + x.w / 4 * (x.rho * x.rho)
    out = State(x.place, x.y * factor * lower, x.v, 0.0)
    out.square, out.rho = x.square * factor, x.rho * lower
    return out, Norm(q, x.w)
