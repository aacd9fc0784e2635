"""Activations: their moments under N(0, 1), the matching init variance, and a deep MLP.

x_{l+1} = W φ(x_l) with fan_in·Var(W) = g. The second moment obeys q_{l+1} = V(q_l) = g·E φ(√q_l z)²; the gradient is
multiplied by χ(q) = g·E φ′(√q z)² on its way back (Poole et al. 2016; Schoenholz et al. 2017). q* = V(q*) is a fixed
point: the signal settles there if V is flatter than the diagonal, and leaves it if V is steeper. Quadrature is the
theory's; samples and the MLP run torch's own functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import brentq

from explorer.choices import Choices
from explorer.fields import Option, setting
from explorer.labs import Verdict, stages
from explorer.profile import Array
from explorer.schemes.activation import ACTIVATIONS
from explorer.stopping import Progress, Stop, check
from explorer.theory.gaussian import Moments, moments

if TYPE_CHECKING:
    from torch import Tensor

BATCH = 32
BLOCK = 2**18
"""Samples at a time."""
NAMES = tuple(ACTIVATIONS)
MAP = np.logspace(-3, 3, 61)
"""Second moments at which V is tabulated."""
CLOSE = 2.0
"""Factor up to which signal and gradient, over the whole depth, count as keeping their size."""


class Activations(Choices):
    """Activation, its version, the MLP, and SELU's fixed point."""

    activation: str = setting("relu", "Activation", "", "Nonlinearity of the MLP.", symbol="φ", options=ACTIVATIONS)
    version: str = setting(
        "plain", "Version", "", "The activation as it is, or rescaled so that it keeps a unit second moment.",
        options={"plain": Option("φ"), "unit": Option("φ / √E φ²"), "centered": Option("(φ − E φ) / √Var φ")},
    )
    rule: str = setting(
        "matched", "Init variance", "", "Variance of the MLP's weights.", symbol="Var W",
        options={
            "matched": Option("1 / (n E φ²)"),
            "lecun": Option("1 / n", "LeCun et al. 1998"),
            "he": Option("2 / n", "He et al. 2015"),
        }
    )
    gain: float = setting(1.0, "Variance", "", "Multiplies the rule's variance.", 0.25, 4, symbol="σ²", unit="× rule",
                          log=True)
    depth: int = setting(32, "Depth", "", "Layers of the MLP.", 1, 100, symbol="L", unit="layers", log=True)
    width: int = setting(256, "Width", "", "Units of each layer.", 16, 1024, symbol="n", unit="coordinates", log=True)
    samples: int = setting(2**16, "Samples", "", "Draws from N(0, 1) for each sampled moment.", 1024, 10**7, log=True)
    fixed_point: float = setting(1.0, "SELU's variance", "",
                                 "λ and α are solved so that mean 0 and this variance are kept; SELU's own are for 1.",
                                 0.25, 4, symbol="ν", log=True)
    seed: int = setting(0, "Seed", "", "Seed of the draw.", 0, 2**31 - 1)


class Fixed(NamedTuple):
    """End of the recursion that starts at q = 1."""

    q: float
    """0 or infinite when it never settles."""
    chi: float
    """Factor on the gradient there, per layer."""
    slope: float = 1.0
    """d ln V / d ln q there: below 1 a deviation dies out, above 1 it grows."""


class Selu(NamedTuple):
    """λ·elu_α that keeps mean 0 and variance ν."""

    scale: float
    alpha: float


@dataclass(frozen=True)
class ActivationsResult:
    """Moments of all activations, and one MLP. Moments are `[activation, 3]`: E φ, E φ², E φ′², plain versions."""

    settings: Activations
    quadrature: Array
    sampled: Array
    errors: Array
    """Standard errors of `sampled`."""
    signal: Array
    """`[draw, layer + 1]` second moment of what enters each layer."""
    gradient: Array
    """`[draw, layer + 1]` squared gradient there, relative to the last."""
    expected_signal: Array
    expected_gradient: Array
    """`[layer + 1]` by the recursion."""
    length_map: Array
    """`[q]` V(q) at each q of `MAP`."""
    fixed: Fixed

    @property
    def keeps_all(self) -> bool:
        """Whether V(q) = q at every q, as for relu and the identity."""
        return bool(np.allclose(self.length_map, MAP, rtol=0.01))

    @property
    def off(self) -> float:
        """Largest factor between a draw and the recursion, of the signal at the output or the gradient at the input."""
        with np.errstate(all="ignore"):
            ratios = np.concatenate([
                self.signal[:, -1] / self.expected_signal[-1], self.gradient[:, 0] / self.expected_gradient[0]
            ])
            return float(np.nan_to_num(np.exp(np.abs(np.log(ratios))), nan=np.inf, posinf=np.inf).max())


def version(settings: Activations) -> tuple[float, float]:
    """Shift and divisor of the activation in its version."""
    plain = moments(settings.activation)
    if settings.version == "plain":
        return 0.0, 1.0
    shift = plain.mean if settings.version == "centered" else 0.0
    return shift, math.sqrt(plain.square - shift * (2 * plain.mean - shift))


def moments_at(settings: Activations, q: float) -> Moments:
    """E φ, E φ², E φ′² of the chosen version under N(0, q)."""
    shift, divisor = version(settings)
    plain = moments(settings.activation, q)
    square = plain.square - 2 * shift * plain.mean + shift * shift
    return Moments((plain.mean - shift) / divisor, square / divisor**2, plain.slope_square / divisor**2)


def gain(settings: Activations) -> float:
    """g = n·Var(W) of the chosen rule."""
    factor = {"matched": 1 / moments_at(settings, 1.0).square, "lecun": 1.0, "he": 2.0}[settings.rule]
    return settings.gain * factor


def recursion(settings: Activations) -> tuple[Array, Array]:
    """Second moment and relative gradient by layer, `[layer + 1]` each."""
    g, q, chi = gain(settings), [1.0], []
    for _ in range(settings.depth):
        held = min(q[-1], 1e30)  # beyond, φ is linear
        here = moments_at(settings, held)
        q.append(g * here.square * (q[-1] / held))
        chi.append(g * here.slope_square)
    return np.array(q), np.concatenate([np.cumprod(chi[::-1])[::-1], [1.0]])


def settle(settings: Activations, table: Array) -> Fixed:
    """Follows V from q = 1, upward or downward as V(1) has it, to where it first meets the diagonal."""
    g = gain(settings)

    def excess(log_q: float) -> float:
        q = math.exp(log_q)
        return math.log(max(g * moments_at(settings, q).square, 1e-300)) - log_q

    def at(q: float) -> Fixed:
        slope = (excess(math.log(q) + 1e-4) - excess(math.log(q) - 1e-4)) / 2e-4 + 1
        return Fixed(q, g * moments_at(settings, q).slope_square, slope)

    start = excess(0.0)
    if abs(start) < 1e-9:
        return at(1.0)
    step = 1 if start > 0 else -1
    path = np.log(MAP)[len(MAP) // 2 :: step]  # from q = 1 on
    met = np.flatnonzero(step * (np.log(table)[len(MAP) // 2 :: step] - path) <= 0)
    if len(met):
        return at(math.exp(float(brentq(excess, path[met[0]], path[met[0] - 1]))))
    return Fixed(math.inf if start > 0 else 0.0, at(math.exp(path[-1])).chi)


def solve_selu(variance: float) -> Selu:
    """λ and α for which λ·elu_α keeps mean 0 and the given variance (Klambauer et al. 2017 for 1): two equations.

    E f = 0 gives α, whatever λ is; E f² = variance then gives λ.
    """
    above = math.sqrt(variance / (2 * math.pi))
    alpha = above / (above - moments("elu", variance).mean)
    return Selu(float(selu_scale(np.array(alpha), variance)), alpha)


def selu_scale(alpha: Array, variance: float) -> Array:
    """λ at which λ·elu_α keeps the second moment, whatever its mean becomes."""
    below = moments("elu", variance).square - variance / 2  # E f² of elu's negative side
    return np.sqrt(variance / (variance / 2 + alpha**2 * below))


def run(settings: Activations, stop: Stop = lambda: False, progress: Progress = lambda _: None) -> ActivationsResult:
    """Samples every activation, runs the MLP forward and backward, and computes what theory says of both."""
    blocks = [min(BLOCK, settings.samples - done) for done in range(0, settings.samples, BLOCK)]
    sampled, errors = _sample(settings, blocks, stop, lambda part: progress(0.7 * part))
    signal, gradient = np.ones((2, 2, settings.depth + 1))
    for draw in stages(range(2), stop, lambda part: progress(0.7 + 0.3 * part)):
        signal[draw], gradient[draw] = _mlp(settings, settings.seed + draw, stop)
    table = np.array([gain(settings) * moments_at(settings, float(q)).square for q in MAP])
    quadrature = np.array([moments(name) for name in NAMES])
    return ActivationsResult(settings, quadrature, sampled, errors, signal, gradient, *recursion(settings), table,
                             settle(settings, table))


def _sample(settings: Activations, blocks: list[int], stop: Stop, progress: Progress) -> tuple[Array, Array]:
    """Means over the samples of φ, φ², φ′² of every activation, and their standard errors."""
    import torch

    from explorer.model.functions import nonlinearity

    generator = torch.Generator().manual_seed(settings.seed)
    sums = np.zeros((2, len(NAMES), 3))
    for size in stages(blocks, stop, progress):
        z = torch.randn(size, generator=generator)
        for row, name in enumerate(NAMES):
            check(stop)
            value, slope = _with_slope(nonlinearity(name), z)
            for column, part in enumerate((value, value.square(), slope.square())):
                double = part.double()
                sums[:, row, column] += float(double.sum()), float(double.square().sum())
    mean, square = sums / settings.samples
    return mean, np.sqrt(np.maximum(square - mean**2, 0) / settings.samples)


def _with_slope(function: Callable[[Tensor], Tensor], z: Tensor) -> tuple[Tensor, Tensor]:
    """φ(z) and φ′(z), the latter by autograd."""
    import torch

    x = z.clone().requires_grad_()
    value = function(x)
    (slope,) = torch.autograd.grad(value.sum(), x)
    return value.detach(), slope


def _mlp(settings: Activations, seed: int, stop: Stop) -> tuple[list[float], list[float]]:
    """Second moment of what enters each layer, and the squared gradient there relative to the last."""
    import torch

    from explorer.model.functions import nonlinearity
    from explorer.model.noise import stack

    n, (shift, divisor) = settings.width, version(settings)
    weights = stack(seed, "activations", settings.depth, (n, n), check=lambda: check(stop))
    std, function = math.sqrt(gain(settings) / n), nonlinearity(settings.activation)
    x = stack(seed, "activations, input", 1, (BATCH, n))[0].clone().requires_grad_()
    along = [x]
    for weight in weights:
        check(stop)
        along.append(((function(along[-1]) - shift) / divisor * std) @ weight.T)
    out = stack(seed, "activations, gradient", 1, (BATCH, n))[0]
    back = torch.autograd.grad((along[-1] * out).sum(), along)
    last = float(back[-1].square().mean())
    return [float(x.detach().square().mean()) for x in along], [float(g.square().mean()) / last for g in back]


def verdict(result: ActivationsResult) -> Verdict:
    """Whether signal and gradient keep their size, in expectation by the recursion, and in these draws, to `CLOSE`."""
    (q, chi, slope), settings = result.fixed, result.settings
    change = float(result.expected_gradient[0])
    evidence = _evidence(result)
    if q in (0, math.inf):
        return "bad", f"With depth the signal {'vanishes' if q == 0 else 'grows without bound'}.", evidence
    if slope > 1.005 or (slope > 0.995 and not result.keeps_all):
        return "warning", (f"q* = {q:.3g} is an unstable fixed point: a deviation from it can grow from layer to "
                           "layer."), evidence
    where = f"The recursion settles at q* = {q:.3g}"
    if result.keeps_all:
        where = "In expectation every second moment is kept"
    if not 1 / CLOSE <= change <= CLOSE:
        return "warning", (f"{where}, but the gradient² is multiplied by {chi:.3g} a layer: × {change:.3g} over "
                           f"{settings.depth}."), evidence
    where = f"{where}, and the gradient keeps its size"
    if result.off > CLOSE:
        return "warning", (f"{where}, but on average only: a draw of this width and depth is off by a factor of "
                           f"{result.off:.3g}."), evidence
    return "good", f"{where}; these draws are within a factor of {CLOSE:g} of that.", evidence


def _evidence(result: ActivationsResult) -> str:
    settings, ends, first = result.settings, result.signal[:, -1], result.gradient[:, 0].mean()
    measured = f"is {ends.min():.3g} and {ends.max():.3g}" if np.isfinite(ends).all() else "is not finite"
    share = f"{first:.3g} × the output's" if np.isfinite(first) else "not finite"
    return (
        f"After {settings.depth} layer{'s' * (settings.depth > 1)} of width {settings.width} q {measured} in two draws "
        f"(recursion, for infinite width: {result.expected_signal[-1]:.3g}); the gradient² at the input is {share} "
        f"(recursion {result.expected_gradient[0]:.3g}); χ = {result.fixed.chi:.4g} a layer, slope of ln V over ln q "
        f"{result.fixed.slope:.3g}. The matching variance is {1 / moments_at(settings, 1.0).square:.4g}"
        "\N{NO-BREAK SPACE}/\N{NO-BREAK SPACE}n."
    )
