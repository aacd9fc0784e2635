"""The forward recursion under a causal mask: second moments by position, overlaps by pair of positions.

As `forward`, with the averages over keys running over the prefix that a row sees. Row t attends to t keys of mean
second moment Q_t and mean overlap P_t; the t common keys of rows t < t′ weigh t/t′ of the longer row's softmax. The
corrections of order 1/width (scatter v of the overlaps, w of the lengths) are taken alike for all positions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from explorer.schemes.placement import Placement
from explorer.theory.causal_logits import Logits, logits
from explorer.theory.causal_state import State, average, outer
from explorer.theory.forward import LARGEST, LARGEST_LOGIT, Tokens, add, passed
from explorer.theory.gains import EPSILON, Gains
from explorer.theory.grids import Array
from explorer.theory.positions import Positions, Stacked


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
    branch: State
    added: State
    behind: Norm | None
    after: Norm | None
    kept: float
    """The stream's part of the sum's second moment."""
    followed: float
    """How far deviations of overlaps survived the sublayer."""
    site: State

    @property
    def s(self) -> Array:
        """`[position]`: standard deviation of the logits, as softmax sees them."""
        return np.full_like(self.site.q, math.nan) if self.logits is None else self.logits.s


def run(gains: Gains, place: Positions, table: Stacked, n_layers: int, first: Tokens) -> list[Step]:
    """The recursion over 2N sublayers; shorter where a second moment leaves the range of `LARGEST`."""
    count = len(place.t)
    state = State(np.full(count, first.q), np.full((count, count), first.p), first.v, first.w)
    steps: list[Step] = []
    below: Logits | None = None
    kept = 1.0
    for index in range(2 * n_layers):
        inherited = (below, kept) if index % 2 == 0 else None
        step = sublayer(gains, place, table, state, gains.places[index // 2], inherited)
        if step.logits:
            below, kept = step.logits, 1.0
        kept *= step.followed
        sums = step.after.q if step.after else step.site.q
        if not (sums.min() > 1 / LARGEST and sums.max() < LARGEST) or step.s.max() > LARGEST_LOGIT:
            break
        steps.append(step)
        state = step.site
    return steps


def sublayer(gains: Gains, place: Positions, table: Stacked, x: State, design: Placement,
             below: tuple[Logits | None, float] | None) -> Step:
    """One branch and its way back into the stream; an attention is told of the logits below it and what is kept."""
    inside, before = normalize(x) if design.before else (x, None)
    inside = inside.scaled(design.scale**2)
    law = logits(gains, place, inside, *below) if below else None
    read = attention(gains, place, table, inside, law) if law else mlp(gains, place, inside)
    branch = read.scaled(gains.o if law else gains.out)
    added, behind = normalize(branch) if design.behind else (branch, None)
    skip, scaled = x.scaled(gains.skip**2), added.scaled(gains.branch**2)
    one, two = average(place, skip), average(place, scaled)
    follows = 0.0 if law else passed(average(place, inside))
    both, followed = add(one, two, gains.d_model, follows)
    total = State(skip.q + scaled.q, skip.p + scaled.p, both.v, both.w)
    site, after = normalize(total) if design.after else (total, None)
    return Step(design, law, before, inside, read, branch, added, behind, after, one.q / both.q, followed, site)


def attention(gains: Gains, place: Positions, table: Stacked, x: State, law: Logits) -> State:
    """What W_O reads."""
    shared = place.prefix @ x.p @ place.prefix.T
    common = shared.diagonal()
    own = np.maximum(place.prefix @ x.q - common, 0.0)
    rows = table.rows(law.s)
    pair = table.pairs(outer(law.s**2), law.rho, place.smaller)[..., 0]
    alike = law.alike * law.s**2 / np.maximum(law.variance, 1e-300)
    alike = alike / (1 + alike)
    q = common + own * (rows[:, 2] + alike * rows[:, 6])
    crowd = outer(alike * rows[:, 4]) * law.rho
    p = shared + own[place.smaller] * (pair * place.ratio + crowd)
    uneven = float(place.mean @ (rows[:, 7] * (own * rows[:, 2] / q) ** 2)) / gains.n_heads
    v = x.v + 2 / gains.d_model + float(place.mean @ pair.diagonal()) / gains.n_heads
    return State(q, p, min(v, 1.0), gains.noise[0] + uneven).scaled(gains.v)


def mlp(gains: Gains, place: Positions, x: State) -> State:
    """What W_out reads: kernels at the geometric mean of two positions' second moments."""
    square, _ = gains.kernel.overlaps(gains.hidden * x.q, np.ones_like(x.q))
    _, overlap = gains.kernel.overlaps(gains.hidden * outer(x.q), x.rho())
    v = x.v * passed(average(place, x)) ** 2 + 1 / gains.d_model + 1.6 / gains.d_mlp
    return State(square, overlap, v, gains.noise[1] + x.w)


def normalize(x: State) -> tuple[State, Norm]:
    """A norm; the scatter of the lengths lowers overlaps a little (delta method, see `forward.normalize`)."""
    q, rho = x.q + EPSILON, x.rho()
    p = x.p / outer(q) * (1 - x.w * (1 - rho * rho) / 4)
    return State(x.q / q, p, x.v, 0.0), Norm(q, x.w)
