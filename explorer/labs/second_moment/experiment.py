"""The second moment through linear layers: y = W x with W of shape [m, n], alone and in a stack n → m → n → m …

Forward E y² = n·Var(W)·E x², whatever the mean of x; backward E (∂L/∂x)² = m·Var(W)·E (∂L/∂y)². One variance cannot
make both factors 1 unless n = m. Linear layers scale with their weights, so one pass with Var(W) = 1/fan_in serves all
rules: each other rule is the same draw times a number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from explorer.choices import Choices
from explorer.fields import setting
from explorer.labs import Verdict, stages
from explorer.profile import Array
from explorer.stopping import Progress, Stop, check

if TYPE_CHECKING:
    from torch import Tensor

BATCH = 32
"""Inputs at a time; half as many for the sweep over means."""
MEANS = np.linspace(-4.0, 4.0, 9)
"""Means of the input at which one layer is measured."""


class Rule(NamedTuple):
    """Variance of the weights of a layer from `fan_in` to `fan_out`."""

    name: str
    variance: Callable[[int, int], float]


RULES = (
    Rule("1/fan_in", lambda fan_in, fan_out: 1 / fan_in),
    Rule("1/fan_out", lambda fan_in, fan_out: 1 / fan_out),
    Rule("2/(in+out)", lambda fan_in, fan_out: 2 / (fan_in + fan_out)),
)
"""LeCun et al. 1998; He et al. 2015 in its backward form, without the ½; Glorot & Bengio 2010."""


class SecondMoment(Choices):
    """Shape of the layers, their input, and number of draws."""

    n: int = setting(256, "Width in", "", "Inputs of the first layer.", 16, 1024, symbol="n", unit="coordinates",
                     log=True)
    m: int = setting(1024, "Width out", "", "Outputs of the first layer; the second leads back to n, and so on.",
                     16, 1024, symbol="m", unit="coordinates", log=True)
    depth: int = setting(8, "Depth", "", "Layers of the stack.", 1, 32, symbol="L", unit="layers")
    mean: float = setting(0.0, "Mean of the input", "",
                          "Added to every coordinate of an input that is otherwise N(0, 1).", -4, 4, symbol="μ",
                          unit="std")
    positive: bool = setting(False, "Non-negative input", "", "Takes the absolute value of the input.", symbol="|x|")
    variance: float = setting(1.0, "Variance", "", "Multiplies the variance that each rule gives.", 0.25, 4,
                              symbol="σ²", unit="× rule", log=True)
    draws: int = setting(4, "Draws of the weights", "",
                         "Independent draws; dots are their mean, bars the standard error.", 1, 64, log=True)
    seed: int = setting(0, "Seed", "", "Seed of the first draw.", 0, 2**31 - 1)

    def fans(self) -> list[tuple[int, int]]:
        """`(fan_in, fan_out)` of every layer."""
        return [(self.n, self.m) if layer % 2 == 0 else (self.m, self.n) for layer in range(self.depth)]


@dataclass(frozen=True)
class SecondMomentResult:
    """Measurements for Var(W) = 1/fan_in; `signal` and `gradient` give it for a rule."""

    settings: SecondMoment
    forward: Array
    """`[draw, layer + 1]` second moment after so many layers, relative to the input's."""
    backward: Array
    """`[draw, layer + 1]` squared gradient there, relative to the output's."""
    single: Array
    """`[draw, 2]` factors of the first layer alone: forward, backward."""
    sweep: Array
    """`[kind, draw, mean]` forward factor of the first layer for input x and |x| of each of `MEANS`."""

    def factors(self, rule: Rule) -> Array:
        """`[draw, 2]` forward and backward factor of one layer n → m."""
        return self.single * self.settings.n * self._variance(rule, self.settings.n, self.settings.m)

    def signal(self, rule: Rule) -> Array:
        """`[draw, layer + 1]` second moment after so many layers, relative to the input's."""
        gains: Array = np.concatenate([[1.0], np.cumprod(self._gains(rule))])
        return self.forward * gains

    def gradient(self, rule: Rule) -> Array:
        """`[draw, layer + 1]` squared gradient after so many layers, relative to the output's."""
        gains: Array = np.concatenate([np.cumprod(self._gains(rule)[::-1])[::-1], [1.0]])
        return self.backward * gains

    def expected(self, rule: Rule) -> tuple[Array, Array]:
        """`[layer + 1]` signal and gradient by the two factors alone."""
        fans, gains = self.settings.fans(), self._gains(rule)
        back = gains * np.array([fan_out / fan_in for fan_in, fan_out in fans])
        return np.concatenate([[1.0], np.cumprod(gains)]), np.concatenate([np.cumprod(back[::-1])[::-1], [1.0]])

    def _gains(self, rule: Rule) -> Array:
        """`[layer]` fan_in · Var(W)."""
        return np.array([fan_in * self._variance(rule, fan_in, fan_out) for fan_in, fan_out in self.settings.fans()])

    def _variance(self, rule: Rule, fan_in: int, fan_out: int) -> float:
        return self.settings.variance * rule.variance(fan_in, fan_out)


def variance_share(mean: Array) -> Array:
    """Var x over E x² of an input of variance 1: the factor if a layer's output depended on Var x alone."""
    return 1 / (1 + mean**2)


def mean_error(draws: Array) -> tuple[Array, Array]:
    """Mean over draws (the first axis) and its standard error; 0 where there is one draw only."""
    count = len(draws)
    spread = draws.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.zeros(draws.shape[1:])
    return draws.mean(axis=0), spread


def run(settings: SecondMoment, stop: Stop = lambda: False, progress: Progress = lambda _: None) -> SecondMomentResult:
    """Sends inputs forward and gradients back through each draw of the stack."""
    shape = (settings.draws, settings.depth + 1)
    forward, backward = np.ones(shape), np.ones(shape)
    single, sweep = np.empty((settings.draws, 2)), np.empty((2, settings.draws, len(MEANS)))
    for draw in stages(range(settings.draws), stop, progress):
        weights = _weights(settings, draw, stop)
        noise = _normal(settings.seed + draw, "input", BATCH, settings.n)
        forward[draw, 1:] = _through(_input(noise, settings.mean, settings.positive), weights, stop)
        out = _normal(settings.seed + draw, f"gradient {settings.depth % 2}", BATCH, settings.fans()[-1][1])
        widening = [fan_out / fan_in for fan_in, fan_out in settings.fans()]
        back = _through(out, [weight.T for weight in reversed(weights)], stop)[::-1]
        backward[draw, :-1] = back * np.cumprod(widening[::-1])[::-1]
        vector = _normal(settings.seed + draw, "gradient of one", BATCH, settings.m)
        single[draw] = forward[draw, 1], _through(vector, [weights[0].T], stop)[0] * settings.m / settings.n
        few = noise[: BATCH // 2]
        for kind in range(2):
            for place, mean in enumerate(MEANS):
                sweep[kind, draw, place] = _through(_input(few, float(mean), bool(kind)), weights[:1], stop)[0]
    return SecondMomentResult(settings, forward, backward, single, sweep)


def _weights(settings: SecondMoment, draw: int, stop: Stop) -> list[Tensor]:
    """`[fan_out, fan_in]` of every layer, of variance 1."""
    from explorer.model.noise import stack

    n, m, depth = settings.n, settings.m, settings.depth
    up = stack(settings.seed + draw, "second moment, up", (depth + 1) // 2, (m, n), check=lambda: check(stop))
    down = stack(settings.seed + draw, "second moment, down", depth // 2, (n, m), check=lambda: check(stop))
    return [(down if layer % 2 else up)[layer // 2] for layer in range(depth)]


def _normal(seed: int, name: str, *shape: int) -> Tensor:
    from explorer.model.noise import stack

    return stack(seed, f"second moment, {name}", 1, shape)[0]


def _input(noise: Tensor, mean: float, positive: bool) -> Tensor:
    return (noise + mean).abs() if positive else noise + mean


def _through(x: Tensor, weights: list[Tensor], stop: Stop) -> list[float]:
    """Second moment after each matrix, divided by its columns' root for unit variance, relative to that of `x`."""
    start, moments = float(x.square().mean()), []
    for weight in weights:
        check(stop)
        x = (x / weight.shape[1] ** 0.5) @ weight.T
        moments.append(float(x.square().mean()) / start)
    return moments


def verdict(result: SecondMomentResult) -> Verdict:
    """Whether a rule keeps both directions."""
    settings, parts = result.settings, []
    for rule in RULES:
        forward, backward = result.factors(rule).mean(axis=0)
        parts.append(f"{rule.name}: × {forward:.3g} and × {backward:.3g}")
    end = result.signal(RULES[2])[:, -1].mean()
    evidence = f"Factors of one layer on signal and gradient, mean of {settings.draws} draws: {'; '.join(parts)}."
    if settings.n == settings.m:
        if settings.variance == 1:
            return "good", "n = m: one variance keeps signal and gradient alike, in expectation.", evidence
        return "warning", (f"n = m: every layer multiplies signal and gradient by {settings.variance:.3g}, in "
                           "expectation."), evidence
    ratio = settings.m / settings.n
    meaning = f"No variance keeps both: forward needs 1/n, backward 1/m, and m/n = {ratio:.3g}."
    layers = f"{settings.depth} layers" if settings.depth > 1 else "one layer would"
    return "warning", meaning, f"{evidence} With the compromise {layers} multiply the signal by {end:.3g}."
