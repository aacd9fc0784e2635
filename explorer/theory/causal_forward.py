"""The forward recursion under a causal mask: second moments by position, overlaps by pair of positions.

As `forward`, with the averages over keys running over the prefix that a row sees. Row t attends to t keys of mean
second moment Q_t and mean overlap P_t; the t common keys of rows t < t′ weigh t/t′ of the longer row's softmax. The
corrections of order 1/width (scatter v of the overlaps, w of the lengths) are taken alike for all positions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from explorer.theory.forward import LARGEST, LARGEST_LOGIT, Tokens, add, passed
from explorer.theory.gains import EPSILON, Gains
from explorer.theory.grids import Array
from explorer.theory.positions import Positions, Stacked


class State(NamedTuple):
    """Tokens, or gradients, at one site."""

    q: Array
    """`[position]`"""
    p: Array
    """`[position, position]`: of two different tokens; its diagonal is the limit of close positions."""
    v: float = 0.0
    w: float = 0.0
    """As in `forward.Tokens`."""

    def scaled(self, factor: float) -> State:
        return self._replace(q=self.q * factor, p=self.p * factor)

    def rho(self) -> Array:
        """Correlation of two tokens, in [0, 1]."""
        return np.clip(self.p / outer(self.q), 0.0, 1.0)


class Norm(NamedTuple):
    """What a norm divided by, by position, and the relative variance of the tokens' squared lengths there."""

    q: Array
    same: float


class Step(NamedTuple):
    """One sublayer, as the backward recursion needs it."""

    s: Array
    """`[position]`: standard deviation of the logits; nan at an MLP."""
    before: Norm | None
    inside: State
    branch: State
    added: State
    behind: Norm | None
    after: Norm | None
    kept: float
    """The stream's part of the sum's second moment."""
    site: State


def run(gains: Gains, place: Positions, table: Stacked, n_layers: int, first: Tokens) -> list[Step]:
    """The recursion over 2N sublayers; shorter where a second moment leaves the range of `LARGEST`."""
    count = len(place.t)
    state = State(np.full(count, first.q), np.full((count, count), first.p), first.v, first.w)
    steps: list[Step] = []
    for index in range(2 * n_layers):
        step = sublayer(gains, place, table, state, index % 2 == 0)
        sums = step.after.q if step.after else step.site.q
        if not (sums.min() > 1 / LARGEST and sums.max() < LARGEST) or step.s.max() > LARGEST_LOGIT:
            break
        steps.append(step)
        state = step.site
    return steps


def sublayer(gains: Gains, place: Positions, table: Stacked, x: State, attends: bool) -> Step:
    """One branch and its way back into the stream."""
    design = gains.placement
    inside, before = normalize(x) if design.before else (x, None)
    if attends:
        s, branch = attention(gains, place, table, inside)
    else:
        s, branch = np.full_like(x.q, math.nan), mlp(gains, place, inside)
    added, behind = normalize(branch) if design.behind else (branch, None)
    skip, scaled = x.scaled(gains.skip**2), added.scaled(gains.branch**2)
    law, law_2 = average(place, skip), average(place, scaled)
    both = add(law, law_2, gains.d_model, 0.0 if attends else passed(average(place, inside)))
    total = State(skip.q + scaled.q, skip.p + scaled.p, both.v, both.w)
    site, after = normalize(total) if design.after else (total, None)
    return Step(s, before, inside, branch, added, behind, after, law.q / both.q, site)


def attention(gains: Gains, place: Positions, table: Stacked, x: State) -> tuple[Array, State]:
    """Logits' standard deviation by position, and what the branch computes."""
    seen, shared = place.prefix @ x.q, place.prefix @ x.p @ place.prefix.T
    common = shared.diagonal()
    own = np.maximum(seen - common, 0.0)
    variance = gains.scale * (own / seen if gains.qk_norm else gains.q * gains.k * x.q * own)
    s, rho = np.sqrt(variance), x.rho()
    rows = table.rows(s)
    pair = table.pairs(np.sqrt(outer(variance)), rho, place.smaller)[..., 0]
    alike = variance * scatter(place, x, own)
    alike /= 1 + alike
    gain = gains.v * gains.o
    q = gain * (common + own * (rows[:, 2] + alike * rows[:, 6]))
    crowd = outer(alike * rows[:, 4]) * rho
    p = gain * (shared + own[place.smaller] * (pair * place.ratio + crowd))
    uneven = float(place.mean @ (rows[:, 7] * (gain * own * rows[:, 2] / q) ** 2)) / gains.n_heads
    v = x.v + 2 / gains.d_model + float(place.mean @ pair.diagonal()) / gains.n_heads
    return s, State(q, p, min(v, 1.0), gains.noise[0] + uneven)


def scatter(place: Positions, x: State, own: Array) -> Array:
    """Variance of centered overlaps over own², for the keys of each row: by chance, and because positions differ."""
    ahead, squares = place.prefix, x.p * x.p
    rows = ahead @ x.p
    mean = (rows * ahead).sum(1)
    varied = ((ahead @ squares) * ahead).sum(1) - 2 * (ahead * rows * rows).sum(1) + mean * mean
    total: Array = np.minimum(x.v + np.maximum(varied, 0.0) / np.maximum(own * own, 1e-300), 1.0)
    return total


def mlp(gains: Gains, place: Positions, x: State) -> State:
    """What the MLP computes: kernels at the geometric mean of two positions' second moments."""
    square, _ = gains.kernel.overlaps(gains.hidden * x.q, np.ones_like(x.q))
    _, overlap = gains.kernel.overlaps(gains.hidden * outer(x.q), x.rho())
    v = x.v * passed(average(place, x)) ** 2 + 1 / gains.d_model + 1.6 / gains.d_mlp
    return State(gains.out * square, gains.out * overlap, v, gains.noise[1] + x.w)


def average(place: Positions, x: State) -> Tokens:
    """The tokens' law, averaged over positions."""
    return Tokens(float(place.mean @ x.q), float(place.mean @ x.p @ place.mean), x.v, x.w)


def normalize(x: State) -> tuple[State, Norm]:
    """A norm; the scatter of the lengths lowers overlaps a little (delta method, see `forward.normalize`)."""
    q, rho = x.q + EPSILON, x.rho()
    p = x.p / outer(q) * (1 - x.w * (1 - rho * rho) / 4)
    return State(x.q / q, p, x.v, 0.0), Norm(q, x.w)


def outer(x: Array) -> Array:
    """`[position, position]`: the geometric mean of a quantity at two positions."""
    root = np.sqrt(x)
    product: Array = root[:, None] * root
    return product
