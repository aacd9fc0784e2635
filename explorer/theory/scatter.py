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
from explorer.profile import STREAM, Array, Key
from explorer.schemes.placement import Part
from explorer.theory.laws import stream_shares

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
    """How far mean and typical draw part over a whole stack.

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
    """Each sum of stream and branch, `[2N]`; a sublayer that is not there adds nothing."""

    def __init__(self, config: Config, values: Mapping[Key, Array]) -> None:
        design, n = config.design, config.n_ctx
        mlp = np.arange(2 * config.n_layers) % 2 == 1
        present = mlp | design.attends

        def has(*parts: Part) -> Array:
            """Whether a norm stands on one of these signals; a function in its place does not
            divide."""
            return np.array(
                [placement.has(*parts) and not design.point for placement in design.sublayers]
            )

        self.normed = has("sum") & present
        kept, total = stream_shares(config, values)
        self.share = np.where(present, 1 - kept, 0.0)
        """Share of the sum that is the branch's."""
        rho, gradient = (
            _along(values, name) for name in ("token_correlation", "activation_gradient")
        )
        tokens = rho[1:] ** 2 + (1 - rho[1:] ** 2) / n
        self.scatter = SCATTER * self.share * tokens / config.d_model

        # the square of the factor on the stream
        skip = kept * total / _along(values, "second_moment")[:-1]
        through = skip * np.where(self.normed, gradient[1:] / total, gradient[1:])
        back = np.where(present, np.clip(1 - through / gradient[:-1], 0.0, 1.0), 0.0)
        """Share of the gradient's square before the sublayer that came through the branch."""
        # gradients of two tokens start at right angles, and each layer turns them to each other
        if not design.attends:
            passed = np.cumsum(back[::-1])[::-1] / config.d_model
            tokens = 1 - np.exp(-passed) * (1 - 1 / n)
        self.scatter_back = SCATTER * back * tokens / config.d_model

        degree = np.where(mlp, design.degree, 1.0)
        same_size = has("input", "values", "output")
        self.follows = np.where(same_size, 1 - self.share, 1 + (degree - 1) * self.share)
        """Power of the stream's length with which the sum's grows."""
        # values pass a gradient on whatever their length; logits without a norm do so with the
        # square of their length
        logits = 0.0 if design.normalizes_heads else 2 * np.maximum(back - self.share, 0.0)
        self.lengthens = np.where(
            has("input", "values"), -back, np.where(mlp, 2 * (degree - 1) * back, logits)
        )
        """Power of the stream's length with which the gradient before the sublayer grows."""


def _along(values: Mapping[Key, Array], statistic: str) -> Array:
    """A statistic along the stream, `[2N + 1]`; nan where it was not asked for."""
    n_layers = values["second_moment", STREAM[-1]].shape[1]
    if (statistic, STREAM[0]) not in values:
        return np.full(2 * n_layers + 1, math.nan)
    first, middle, last = (values[statistic, site][0] for site in STREAM)
    return np.concatenate([first, np.stack([middle, last], axis=1).ravel()])
