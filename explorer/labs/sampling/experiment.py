"""Sampling: normal, uniform and truncated normal weights of one variance, and the effect of a cut on it.

A normal distribution of standard deviation s, cut at ±c·s, keeps the share γ(c) of its variance. Whoever wants σ must
ask for s = σ/√γ. Bounds may be given in units of s, or as numbers: then they may cut nothing, or nearly everything.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydantic import model_validator
from scipy.optimize import brentq
from scipy.special import erf

from explorer.choices import Choices
from explorer.fields import Option, setting
from explorer.labs import Verdict, stages
from explorer.profile import Array
from explorer.schemes.activation import normal_pdf
from explorer.stopping import Progress, Stop

if TYPE_CHECKING:
    from torch import Generator, Tensor

KINDS = ("normal", "uniform", "truncated")
BLOCK = 2**18
"""Draws at a time: 1 MB, which stays in a processor's cache."""
ERRORS = 4
"""Standard errors that a sample variance may be off."""
REACH, BINS = 6.0, 240
"""Histograms run over ±`REACH` σ; beyond lie 2 of 1e9 normal draws."""


class Sampling(Choices):
    """Number of weights, and cut of the normal distribution."""

    cut: float = setting(2.0, "Cut", "", "Bound of the truncated normal, on both sides of 0.", 0.1, 6, symbol="c")
    bounds: str = setting(
        "relative", "Cut measured in", "", "Whether the bounds follow the standard deviation.",
        options={
            "relative": Option("±c standard deviations"),
            "absolute": Option("±c as a number, whatever σ is", "torch's truncated normal does this", uses=("std",)),
        }
    )
    std: float = setting(0.02, "Std asked for", "", "Standard deviation that the weights should have.", 0.005, 1,
                         symbol="σ", log=True)
    corrected: bool = setting(True, "Correct for the cut", "", "Widens the normal before it is cut, so that σ remains.",
                              symbol="s = σ / √γ")
    draws: int = setting(2**18, "Draws", "", "Weights drawn from each distribution.", 1024, 10**7, symbol="n",
                         unit="weights", log=True)
    seed: int = setting(0, "Seed", "", "Seed of the draw.", 0, 2**31 - 1)

    @model_validator(mode="after")
    def _reachable(self) -> Sampling:
        if self.bounds == "absolute" and self.corrected and not self.std < 0.99 * self.cut / math.sqrt(3):
            raise self.refusal(
                "{std} must be below 0.57 × {cut} when the cut is absolute and corrected: no distribution within "
                f"±cut spreads wider; got {self.std:g} and cut {self.cut:g}", bounds="relative", corrected=False,
            )
        return self


@dataclass(frozen=True)
class SamplingResult:
    """Statistics of the draws. Lengths in units of σ, variances in units of σ²; kinds in the order of `KINDS`."""

    settings: Sampling
    edges: Array
    """`[bin + 1]`"""
    counts: Array
    """`[kind, bin]` draws in each bin."""
    sizes: Array
    """`[step]` numbers of draws at which the variance was noted."""
    running: Array
    """`[kind, step]` mean square of the draws so far."""
    fourth: Array
    """`[kind]` mean fourth power of all draws."""
    expected: Array
    """`[kind]` what the variance should be."""
    scale: float
    """Standard deviation of the normal before it is cut."""
    bound: float
    """Its cut."""

    @property
    def variance(self) -> Array:
        """`[kind]` mean square of all draws."""
        return np.asarray(self.running[:, -1])

    @property
    def heights(self) -> Array:
        """`[kind, bin]` measured density, in units of 1/σ."""
        return np.asarray(self.counts / self.sizes[-1] / (self.edges[1] - self.edges[0]))

    @property
    def errors(self) -> Array:
        """`[kind, step]` standard error of the variance: √((E x⁴ − (E x²)²) / n)."""
        spread = np.maximum(self.fourth - self.variance**2, 0)
        return np.sqrt(spread[:, None] / self.sizes)

    @property
    def relative_cut(self) -> float:
        """Cut of the normal, in its own standard deviations."""
        return self.bound / self.scale

    @property
    def share(self) -> tuple[float, float]:
        """Share of the normal's variance that is left after the cut, and its standard error."""
        return float(self.variance[2] / self.scale**2), float(self.errors[2, -1] / self.scale**2)


def gamma(cut: float | Array) -> Array:
    """Share of a normal's variance that is left between ±`cut` standard deviations: 1 − 2cφ(c)/(2Φ(c) − 1)."""
    c = np.asarray(cut, float)
    small = c * c / 3 * (1 - 2 * c * c / 15)  # the two terms cancel: their difference, expanded
    return np.asarray(np.where(c < 1e-2, small, 1 - 2 * c * normal_pdf(c) / erf(np.maximum(c, 1e-2) / math.sqrt(2))))


def widened(std: float, bound: float) -> float:
    """Standard deviation of the normal that, cut at ±`bound`, is left with `std`; `std` < `bound`/√3."""
    def error(log_scale: float) -> float:
        scale = math.exp(log_scale)
        return scale * math.sqrt(float(gamma(bound / scale))) - std

    return math.exp(float(brentq(error, math.log(std), math.log(std) + 12, xtol=1e-13)))


def truncation(settings: Sampling) -> tuple[float, float]:
    """Standard deviation before the cut and the cut itself, both in units of σ."""
    if settings.bounds == "relative":
        scale = float(gamma(settings.cut)) ** -0.5 if settings.corrected else 1.0
        return scale, settings.cut * scale
    bound = settings.cut / settings.std
    return (widened(1.0, bound) if settings.corrected else 1.0), bound


def density(result: SamplingResult, x: Array) -> Array:
    """`[kind, x]` probability density at `x`, in units of 1/σ."""
    s, b = result.scale, result.bound
    uniform = np.where(np.abs(x) <= math.sqrt(3), 0.5 / math.sqrt(3), 0.0)
    inside = normal_pdf(x / s) / (s * erf(b / s / math.sqrt(2)))
    return np.stack([normal_pdf(x), uniform, np.where(np.abs(x) <= b, inside, 0.0)])


def run(settings: Sampling, stop: Stop = lambda: False, progress: Progress = lambda _: None) -> SamplingResult:
    """Draws from the three distributions, by torch's own functions, block by block."""
    import torch

    scale, bound = truncation(settings)
    draw = _drawers(scale, bound)
    edges = np.linspace(-REACH, REACH, BINS + 1)
    counts, sums = np.zeros((3, BINS)), np.zeros((2, 3))
    noted, running = [], []
    seeds = [int(np.random.SeedSequence([settings.seed, kind]).generate_state(1)[0]) for kind in range(3)]
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    drawn = 0
    for size in stages(_blocks(settings.draws), stop, progress):
        for kind, generator in enumerate(generators):
            x = draw[kind](torch.empty(size), generator)
            counts[kind] += torch.histc(x, BINS, -REACH, REACH).numpy()
            square = x.double().square_()
            sums[:, kind] += float(square.sum()), float(square.square_().sum())
        drawn += size
        noted.append(drawn)
        running.append(sums[0] / drawn)
    expected = np.array([1.0, 1.0, scale**2 * float(gamma(bound / scale))])
    return SamplingResult(settings, edges, counts, np.array(noted, float), np.array(running).T, sums[1] / drawn,
                          expected, scale, bound)


def _blocks(draws: int) -> list[int]:
    """Sizes that first double the total, so that the running variance is seen from the start, then stay `BLOCK`."""
    sizes: list[int] = []
    total = 0
    while total < draws:
        size = min(max(total, 64), BLOCK, draws - total)
        sizes.append(size)
        total += size
    return sizes


def _drawers(scale: float, bound: float) -> list[Callable[[Tensor, Generator], Tensor]]:
    """Fills a tensor from each of the three distributions."""
    from torch.nn.init import trunc_normal_

    root = math.sqrt(3)
    return [
        lambda x, generator: x.normal_(generator=generator),
        lambda x, generator: x.uniform_(-root, root, generator=generator),
        lambda x, generator: trunc_normal_(x, 0.0, scale, -bound, bound, generator=generator),
    ]


def verdict(result: SamplingResult) -> Verdict:
    """Verdict on the variance of the truncated normal."""
    settings, cut, expected = result.settings, result.relative_cut, float(result.expected[2])
    numbers = "In σ², ± standard error: " + ", ".join(
        f"{kind} {value:.4g} ± {error:.1g}"
        for kind, value, error in zip(KINDS, result.variance, result.errors[:, -1], strict=True)
    )
    if settings.bounds == "absolute" and cut > 4:
        meaning = f"At a std of {settings.std:g}, bounds of ±{settings.cut:g} cut almost nothing."
        return "warning", meaning, (
            f"They stand at {cut:.3g} standard deviations: {100 * beyond(result, 2):.2f} % of the weights lie beyond "
            f"±2σ, where a normal cut at 2σ has none. {numbers}."
        )
    if settings.corrected:
        off = np.abs(result.variance - 1) > ERRORS * result.errors[:, -1]
        widened_to = f"{numbers}. The normal was widened to {result.scale:.4g} σ before it was cut."
        if off.any():
            names = " and ".join(kind for kind, wrong in zip(KINDS, off, strict=True) if wrong)
            return "warning", f"More than {ERRORS} standard errors from the variance asked for: {names}.", widened_to
        return "good", f"All three have the variance asked for, within {ERRORS} standard errors.", widened_to
    return "good" if expected > 0.99 else "warning", f"The cut leaves {100 * expected:.3g} % of the variance.", (
        f"γ({cut:.3g}) = {expected:.4g}, measured {result.variance[2]:.4g} ± {result.errors[2, -1]:.1g}: ask for "
        f"{expected ** -0.5:.4g} σ to get σ."
    )


def beyond(result: SamplingResult, t: float) -> float:
    """Share of the truncated normal's draws that lie beyond ±t σ; t on an edge of the histogram."""
    inside = np.abs(result.edges[:-1] + REACH / BINS) < t
    return float(1 - result.counts[2][inside].sum() / result.sizes[-1])
