"""Layers that are copies of one: overlaps between layers, without which their branches would not add up coherently.

Two branches of the same weights, in layers k and l, read tokens that overlap, and so do their outputs. Let r be the
correlation of one token's inputs to both, d that of two tokens' inputs, and ρ_k the correlation of two tokens within a
layer. Outputs of MLPs overlap by E φφ′ at r for one token, and at d for two. Outputs of attention overlap by
d + (r − d) Y11, where the logits of the two layers correlate by r f for one token and by d f for two, with
f = (r − d) / √((1 − ρ_k)(1 − ρ_l)).

A stream is a sum of branches, so its overlap with the next branch is a sum of overlaps of branches; branches of
different weights have none. As x_(k+1) = a_k x_k + b_k F_k, a branch F overlaps with the streams below it by
X_(k+1) = a_k X_k + b_k F·F_k: N layers take N² steps, and only the overlaps of the present stream with the streams
below it are kept. There is no such law with a causal mask.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dtbsv

from explorer.theory.gains import Gains, biased
from explorer.theory.grids import Array
from explorer.theory.tables import Softmax
from explorer.theory.tokens import Tokens, passed


class Overlaps:
    """Overlaps of all sites so far; on the axis `which`, 0 is a token with itself and 1 two different tokens."""

    def __init__(self, gains: Gains, softmax: Softmax, n_layers: int, first: Tokens) -> None:
        self.gains, self.softmax = gains, softmax
        size = 2 * n_layers
        self.stream = np.array([[first.q], [first.p]])
        """`[which, site]`: overlaps of the stream at all sites so far with the present stream."""
        self.passed = np.zeros((2, size))
        """`[factor, sublayer]`: factors on the stream and on the branch's term, with those of a norm on the sum."""
        self.branch_input = np.zeros((4, size))
        """`[value, sublayer]` of branches' inputs: factor on the stream, second moment, 1 − ρ, deviation of logits."""
        self.out = np.zeros(size)
        """`[sublayer]`: factor on a branch's output, of the norm on it."""
        self.bend = 0.0
        """Half the curvature of the MLP's kernel, times the scatter of the overlaps that it reads: `tokens.passed`."""
        self.cross = np.zeros((2, 1))
        """`[which, site]`: overlaps of the stream at all sites with the present branch's term."""

    def meet(self, index: int, tokens: Tokens, inside: Tokens, std: float, branch: Tokens, added: Tokens) -> Array:
        """Overlaps of a sublayer's input with its term of the sum, `[which]`.

        Args:
            tokens: the stream; `inside` what the branch reads of it, with logits of deviation `std`.
            branch: the branch's output; `added` after a norm on it.
        """
        self.branch_input[:, index] = math.sqrt(inside.q / tokens.q), inside.q, 1 - inside.rho, std
        self.out[index] = math.sqrt(added.q / branch.q) if branch.q > 0 else 0.0
        if index % 2:
            self.bend = passed(self.gains, inside)[1] * inside.v
        earlier, terms = np.arange(index % 2, index, 2), np.zeros((2, index))
        if len(earlier):
            terms[:, earlier] = self.out[index] * self.out[earlier] * self.alike(index, earlier)
        kept, joined = self.passed[:, :index]
        self.cross = np.array([summed(kept, joined, row) for row in terms])
        return np.asarray(self.cross[:, index])

    def alike(self, index: int, earlier: NDArray[np.intp]) -> Array:
        """Overlaps of a branch's output with those of earlier branches of the same weights, `[which, branch]`."""
        factor, square, own, std = self.branch_input
        q = np.sqrt(square[index] * square[earlier])
        both = self.stream[:, earlier] * factor[index] * factor[earlier] / q
        same, cross = np.clip(both, -1.0, 1.0)
        if index % 2:
            rho = np.maximum([same, cross], 0.0)
            overlap = self.gains.kernel.overlaps(*self.gains.units(q + 0 * rho, rho))[1]
            overlap[1] += self.bend * (same - cross) ** 2
            return np.asarray(self.gains.out * overlap + self.gains.biases.out)
        rows = biased(self.gains.q * q, np.array([same, cross]), self.gains.biases.q)[1]
        share = (same - cross) / np.sqrt(np.maximum(own[index] * own[earlier], 1e-12))
        s = np.sqrt(std[index] * std[earlier])
        overlap = self.softmax.overlap(np.broadcast_to(s, rows.shape), np.clip(share * rows, -1.0, 1.0))
        mixed = self.gains.v * q * (cross + (same - cross) * overlap) + self.gains.biases.v
        return np.asarray(self.gains.o * mixed + self.gains.biases.o)

    def close(self, index: int, total: float, site: Tokens) -> None:
        """Notes the stream after a sublayer, of second moment `total` before a norm on the sum."""
        present = self.gains.attends or index % 2
        skip, branch = (self.gains.skip[index], self.gains.branch[index]) if present else (1.0, 0.0)
        if not present:
            self.cross = np.zeros((2, index + 1))
        shrink = math.sqrt(site.q / total)
        self.passed[:, index] = shrink * skip, shrink * branch
        past = shrink * (skip * self.stream + branch * self.cross)
        self.stream = np.append(past, [[site.q], [site.p]], axis=1)


def summed(kept: Array, joined: Array, terms: Array) -> Array:
    """X_0 = 0 and X_(k+1) = kept_k X_k + joined_k terms_k: all X, one more than there are terms."""
    band = np.array([np.ones(len(terms) + 1), np.append(-kept, 0.0)])
    solution: Array = dtbsv(1, band, np.append(0.0, joined * terms), lower=1, diag=1)
    return solution


