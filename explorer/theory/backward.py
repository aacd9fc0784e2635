"""The backward recursion: mean square γ_q and token overlap γ_p of ∂L/∂x, sublayer by sublayer, from the output down.

Gradients start from the linear loss's independent directions, (1, 0), and meet weights as independent as the forward
pass does. A norm divides by the second moment, averaged over the scatter of the tokens' lengths, and removes what
points along the token, and along the ones when it centers: 1/d of an isotropic gradient each. In a post-norm design
the stream's gradient is not isotropic, for the norms above have been there already; `Along` keeps that account.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from explorer.theory.attention import Paths, matrix, paths
from explorer.theory.forward import Norm, Step, Tokens, columns
from explorer.theory.gains import EPSILON, Gains
from explorer.theory.grids import Array
from explorer.theory.tables import Softmax

Pair = tuple[float, float]


class Backward(NamedTuple):
    """Gradients (γ_q, γ_p), relative to that at the last layer's output."""

    site: Array
    """`[2N + 1, 2]`: at the embedding and behind every sublayer."""
    branch: Array
    """`[2N, 2]`: at what each branch computes, before any norm behind it."""
    attention: Paths
    hidden: Array
    """`[N, 2, 2]`: from behind the MLP to its hidden units' inputs."""


class Along(NamedTuple):
    """Energy of the stream's gradient along its own token and along the ones, over the isotropic 1/d."""

    token: float
    ones: float


def run(gains: Gains, softmax: Softmax, steps: list[Step], first: Tokens, overlap: float) -> Backward:
    """The recursion from (1, `overlap`) at the output of the last of the steps; `first` is the embedding."""
    q, p = columns(steps, "inside")
    s = np.array([step.s for step in steps[::2]])
    v = np.array([step.inside.v for step in steps[::2]])
    attention = paths(gains, softmax, s, q[::2], p[::2], v)
    rho = np.clip(p[1::2] / q[1::2], 0.0, 1.0)
    same, cross = gains.kernel.slopes(gains.hidden * q[1::2], rho)
    hidden = gains.out * gains.d_model / gains.d_mlp * matrix(same, 0 * same, 0 * same, cross)
    through = np.zeros((len(steps), 2, 2))
    through[::2] = attention.total
    through[1::2] = hidden * (gains.hidden * gains.d_mlp / gains.d_model)
    site, branch = _descend(gains, steps, first, through, overlap, softmax.n - 1)
    return Backward(site, branch, attention, hidden)


def _descend(gains: Gains, steps: list[Step], first: Tokens, through: Array, overlap: float, others: int
             ) -> tuple[Array, Array]:
    """The scalar loop, from the last step to the first."""
    place, scale = gains.placement, gains.branch**2
    gradient = (1.0, overlap)
    along = Along(0.0, 0.0) if place.final else Along(1.0, 1.0)
    sites, branches = [gradient], []
    entries = through.reshape(-1, 4).tolist()
    for index in range(len(steps) - 1, -1, -1):
        step, tokens = steps[index], steps[index - 1].site if index else first
        if place.after:
            gradient = across(gradient, step.after, along, step.site.rho, gains, 1 - step.kept)
        inner = (gradient[0] * scale, gradient[1] * scale)
        if place.behind:
            inner = across(inner, step.behind, ISOTROPIC, step.branch.rho, gains)
        branches.append(inner)
        a, b, c, d = entries[index]
        inner = (a * inner[0] + b * inner[1], c * inner[0] + d * inner[1])
        if place.before:
            inner = across(inner, step.before, ISOTROPIC, tokens.rho, gains)
        gradient, along = _join(gains, step, gradient, inner, mlp=index % 2 == 1)
        # overlaps of n vectors of square q lie between −q/(n − 1) and q; the first order in 1/width may overstep
        square = max(gradient[0], 0.0)
        gradient = square, min(max(gradient[1], -square / others), square)
        sites.append(gradient)
    return np.array(sites[::-1]), np.array(branches[::-1])


ISOTROPIC = Along(1.0, 1.0)


def across(gradient: Pair, norm: Norm, along: Along, rho: float, gains: Gains, mean: float = 1.0) -> Pair:
    """Through a norm, from its output to its input; `mean` is the tokens' square of mean over the isotropic 1/d."""
    ones, mean = (along.ones, mean) if gains.centers else (0.0, 0.0)
    factor = 1 / (norm.q * (1 - mean / gains.d_model) + EPSILON)
    lost, lost_2 = (along.token + ones) / gains.d_model, (along.token * (2 - rho * rho) + ones) / gains.d_model
    even, even_2 = 1 + norm.same, 1 + 0.75 * norm.same + 0.25 * norm.cross
    return gradient[0] * factor * even * (1 - lost), gradient[1] * factor * even_2 * (1 - lost_2)


def _join(gains: Gains, step: Step, gradient: Pair, inner: Pair, mlp: bool) -> tuple[Pair, Along]:
    """Stream and branch added; in a post-norm design also what is left along the token and the ones."""
    skip = gains.skip**2
    q, p = skip * gradient[0] + inner[0], skip * gradient[1] + inner[1]
    if not gains.placement.after or q <= 0:
        return (q, p), ISOTROPIC
    ones = inner[0] / q
    if not mlp:
        return (q, p), Along((skip * gradient[0] * (1 - step.kept) + inner[0]) / q, ones)
    # an MLP is nearly homogeneous: x·J F = F, so what the stream and the branch have along x cancels
    meet = 2 * skip * (1 - step.kept) / gains.d_model
    return (q - meet * gradient[0], p - meet * gradient[1]), Along(0.0, ones)
