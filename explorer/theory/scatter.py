"""Mean and typical draw: how far they part where a signal is a product of many factors that
scatter.

In each sublayer a second moment, or a gradient's square, is multiplied by a factor that depends on
the draw. The logarithm of the product is about normal over draws, of a variance V, and the mean
over draws is then e^(V/2) times a typical draw. Hanin & Nica 2018 (arXiv 1812.05994) have V for
plain stacks of ReLUs. For sums of a stream and a branch the following is our estimate, from
predicted means alone:

- A sum scatters by 4 f / d, where f is the branch's share of it: (4 f (1 − f) + 4 f²) / d. The
  first term is the product of stream and branch, whose mean is 0. The second is the branch's own
  length: two Gaussian matrices, 2/d each.
- Tokens have the weights in common. The scatter of a mean over n tokens of correlation ρ is ρ² + (1
  − ρ²)/n of this.
- A norm divides by the length that a draw has: forward the scatter ends there, backward it enters
  once more.

Over 16 draws of 35 designs of width 32 and 64, V/2 was half to 1.5 times the estimate wherever the
estimate is above `APART`, and below `APART` in all other designs. What forward and backward pass
have in common is left out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from explorer.config import Config
from explorer.schemes.placement import Part
from explorer.sites import STREAM
from explorer.theory.laws import stream_shares
from explorer.vocabulary import Array, Key

APART = math.log(1.3)
"""Logarithm of mean over typical draw above which a predicted mean says little of a draw."""
SCATTER = 4.0
"""Variance of a sum's logarithm, over the branch's share of the sum, times the width."""


class Parting(NamedTuple):
    """Logarithm of mean over typical draw, V/2; nan where predictions are missing."""

    second_moment: float
    """After the last layer."""
    gradient: float
    """Of the mean squared gradient at the input, relative to the last layer's."""


def parting(config: Config, values: Mapping[Key, Array]) -> Parting:
    """Logarithm of the mean over the typical draw, over a whole stack.

    Args:
        values: predictions of the stream, its branches and its gradients, `[1, layer]`.
    """
    with np.errstate(all="ignore"):  # a sublayer that is not there has a sum of 0
        sums = Sums(config, values)
    forward = backward = 0.0
    to_end = 1.0
    """Power of the length of the sum at hand, with which the stream after the last layer grows."""
    to_input = 0.0
    """Power of the length of the sum at hand, with which the gradient at the input grows."""
    for index in reversed(range(len(sums.share))):  # from the last sum to the first
        if sums.normed[index]:
            to_end = 0.0  # forward, a norm takes the length away
            to_input = -1.0  # backward, it divides the gradient by the length
        forward += to_end**2 * sums.scatter[index]
        backward += to_input**2 * sums.scatter[index] + sums.scatter_back[index]
        # from the length of this sum to that of the stream before the sublayer
        to_end *= sums.follows[index]
        to_input = to_input * sums.follows[index] + sums.lengthens[index]
    return Parting(float(forward / 2), float(backward / 2))


class Sums:
    """Each sum of stream and branch, `[2N]` all; a sublayer that is not there adds nothing.

    Args:
        values: as in `parting`.
    """

    def __init__(self, config: Config, values: Mapping[Key, Array]) -> None:
        design, n = config.design, config.n_ctx
        mlp = np.arange(2 * config.n_layers) % 2 == 1
        present = mlp | design.attends
        self.normed = _normed(config, "sum") & present
        """Whether a norm stands on the sum."""
        kept, total = stream_shares(config, values)
        self.share = np.where(present, 1 - kept, 0.0)
        """Share of the sum that is the branch's."""
        rho = _along(values, "token_correlation")
        gradient = _along(values, "activation_gradient")
        of_tokens = rho[1:] ** 2 + (1 - rho[1:] ** 2) / n
        self.scatter = SCATTER * self.share * of_tokens / config.d_model
        """Variance of the logarithm of the sum's second moment."""

        # the gradient's square through the stream is skip² that after the sublayer
        skip_square = kept * total / _along(values, "second_moment")[:-1]
        at_sum = np.where(self.normed, gradient[1:] / total, gradient[1:])
        through_stream = skip_square * at_sum / gradient[:-1]
        through_branch = np.where(present, np.clip(1 - through_stream, 0.0, 1.0), 0.0)
        # gradients of two tokens start at right angles, and each layer turns them to each other
        if not design.attends:
            passed = np.cumsum(through_branch[::-1])[::-1] / config.d_model
            of_tokens = 1 - np.exp(-passed) * (1 - 1 / n)
        self.scatter_back = SCATTER * through_branch * of_tokens / config.d_model
        """Variance of the logarithm of the gradient's square before the sublayer."""

        degree = np.where(mlp, design.degree, 1.0)
        same_size = _normed(config, "input", "values", "output")
        self.follows = np.where(same_size, 1 - self.share, 1 + (degree - 1) * self.share)
        """Power of the stream's length with which the sum's grows."""
        # values pass a gradient on whatever their length; logits without a norm do so with the
        # square of their length
        by_logits = 2 * np.maximum(through_branch - self.share, 0.0)
        if design.normalizes_heads:
            by_logits = 0 * by_logits
        by_length = np.where(mlp, 2 * (degree - 1) * through_branch, by_logits)
        norm_before = _normed(config, "input", "values")
        self.lengthens = np.where(norm_before, -through_branch, by_length)
        """Power of the stream's length with which the gradient before the sublayer grows."""


def _normed(config: Config, *parts: Part) -> Array:
    """Whether a norm stands on one of these signals of a sublayer, `[2N]`; a function in a norm's
    place does not divide."""
    design = config.design
    return np.array([placement.has(*parts) and not design.point for placement in design.sublayers])


def _along(values: Mapping[Key, Array], statistic: str) -> Array:
    """A statistic along the stream, from the embedding to the last layer, `[2N + 1]`; nan where it
    was not asked for."""
    n_layers = values["second_moment", STREAM[-1]].shape[1]
    if (statistic, STREAM[0]) not in values:
        return np.full(2 * n_layers + 1, math.nan)
    first, middle, last = (values[statistic, site][0] for site in STREAM)
    return np.concatenate([first, np.stack([middle, last], axis=1).ravel()])
