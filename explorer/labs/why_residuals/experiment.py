"""Size of the branches: x + ε F(x) in N layers with ε = N^−a, and the effect of one step of gradient descent.

The stack is the Transformer's, MLPs only and without norms, so that nothing but ε holds the signal. In expectation a
branch of unit gain multiplies signal and gradient by 1 + ε² each, and the gradients of all weights together are

    Σ‖∂L/∂W‖² = (d + d_mlp) · N ε² (1 + ε²)^(N−1),

or (d + d_mlp) · N without a residual. One step changes the loss by −η times that, while η is small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from explorer.choices import Choices
from explorer.config import Config
from explorer.fields import setting
from explorer.labs import Verdict, stages
from explorer.labs.stacks import FirstSeed, Pair, Seeds, gradient, pairs, powers_of_two, slope, weight_gradient
from explorer.profile import Array
from explorer.stopping import Progress, Stop, check
from explorer.theory.depth import aligned_growth, random_growth

if TYPE_CHECKING:
    from explorer.measuring.results import Update

RATES = np.geomspace(1e-6, 1e-1, 6)
"""Learning rates at which the deepest stacks take their step, beside the one that was chosen."""
EXPONENTS = np.linspace(0.25, 1.5, 11)
"""Of N, at which the product of random matrices is taken."""
STARTS = 32
"""Vectors that one product of matrices is applied to."""
TOO_MUCH = 10.0
"""A signal that has grown more is said to explode."""
EQUAL = 0.5
"""Relative error of one step's change of the loss up to which it counts as equal to first order."""


class WhyResiduals(Choices):
    """Depth and width of the stack, how small its branches are, and the step that is taken."""

    exponent: float = setting(0.5, "Exponent", "", "A branch is multiplied by ε = N^−a: 1 at 0, 1/√N at ½, 1/N at 1.",
                              0, 1.5, symbol="ε = N⁻ᵃ")
    n_layers: int = setting(32, "Depth", "",
                            "Layers of the deepest stack; shallower ones by halves are measured beside it.", 2, 64,
                            symbol="N", unit="layers", log=True)
    width: int = setting(128, "Width", "", "Width of the stream, of the MLPs' hidden layer and of the random matrices.",
                         16, 256, symbol="d", unit="coordinates", log=True)
    learning_rate: float = setting(1e-4, "Learning rate", "",
                                   "Learning rate of the one step of plain gradient descent.", 1e-6, 1, symbol="η",
                                   log=True)
    n_seeds: Seeds = 4
    seed: FirstSeed = 0

    @property
    def rates(self) -> list[float]:
        """`RATES` and the chosen one, in order."""
        return sorted({*RATES.tolist(), self.learning_rate})

    @property
    def depths(self) -> list[int]:
        """1, 2, 4, … and N."""
        return powers_of_two(self.n_layers)

    def rules(self) -> dict[str, Rule]:
        """The residuals that are compared; the chosen one has the key `chosen`."""
        own = {} if self.exponent in (0.5, 1) else {"own": Rule(f"ε = N⁻{_raised(self.exponent)}", self.exponent)}
        return {"none": Rule("no residual", None), "root": ROOT, "inverse": Rule("ε = 1/N", 1.0), **own}

    @property
    def chosen(self) -> str:
        """The key of the rule that the slider asks for."""
        return {0.5: "root", 1: "inverse"}.get(self.exponent, "own")


def _raised(number: float) -> str:
    """A number as an exponent, in plain text."""
    return f"{number:g}".translate(str.maketrans("0123456789.-", "⁰¹²³⁴⁵⁶⁷⁸⁹·⁻"))


class Rule(NamedTuple):
    """Rule by which a layer adds its branch."""

    label: str
    exponent: float | None
    """a of ε = N^−a; None where there is no residual and x becomes F(x)."""

    def epsilon(self, n: int) -> float:
        """Factor on the branch, in a stack of n layers."""
        return 1.0 if self.exponent is None else float(n**-self.exponent)

    def design(self, settings: WhyResiduals, n: int) -> Config:
        """The stack of n layers: MLPs with unit gains, no norm."""
        residual = {"residual": "absent"} if self.exponent is None else {"alpha": self.epsilon(n)}
        return Config(
            n_layers=n, d_model=settings.width, n_heads=1, mlp_ratio=1, n_ctx=4, batch_size=1, attention="none",
            norm_placement="none", n_seeds=settings.n_seeds, seed=settings.seed, **residual,
        )

    def aligned(self, n: int) -> float:
        """Growth of the length if every branch pointed along the stream: (1 + ε)ⁿ."""
        return aligned_growth(self.epsilon(n), n)

    def growth(self, n: int) -> float:
        """Growth of the second moment over n layers, and of the gradient's on the way back: (1 + ε²)ⁿ."""
        return 1.0 if self.exponent is None else random_growth(self.epsilon(n), n)

    def gradient(self, n: int) -> float:
        """Σ‖∂L/∂W‖² over that of a single layer without a residual, d + d_mlp."""
        epsilon = self.epsilon(n)
        return n * epsilon**2 * (1.0 if self.exponent is None else random_growth(epsilon, n - 1))


ROOT = Rule("ε = 1/√N", 0.5)


@dataclass(frozen=True, eq=False)
class WhyResidualsResult:
    """Measurements of one choice of settings."""

    settings: WhyResiduals
    stacks: Mapping[str, list[Pair]]
    """By rule: one for each of the depths."""
    steps: Mapping[str, list[Update]]
    """By rule: a step of the deepest stack at each of `settings.rates`."""
    products: Array
    """`[exponent, start]` growth of a squared length under ∏(I + ε W) in N layers, over `EXPONENTS`."""

    @property
    def rule(self) -> Rule:
        """The chosen rule."""
        return self.settings.rules()[self.settings.chosen]

    @property
    def step(self) -> Update:
        """The step of the deepest stack with the chosen rule and rate."""
        return self.steps[self.settings.chosen][self.settings.rates.index(self.settings.learning_rate)]

    def ratios(self, key: str) -> Array:
        """`[rate]` of a rule: the loss's change over its first order, median over seeds."""
        return np.array([np.median(step.ratio) for step in self.steps[key]])

    def weights(self, key: str) -> Array:
        """`[depth, seed]` of a rule: Σ‖∂L/∂W‖² over that of one plain layer."""
        sums = [(weight_gradient(pair.measured) ** 2).sum(1) for pair in self.stacks[key]]
        return np.stack(sums) / (2 * self.settings.width)

    @property
    def forward(self) -> Array:
        """`[depth, seed]` growth of the second moment with the chosen rule."""
        moments = [pair.measured.stream("second_moment")[1] for pair in self.stacks[self.settings.chosen]]
        return np.stack([q[:, -1] / q[:, 0] for q in moments])

    @property
    def backward(self) -> Array:
        """`[depth, seed]` gradient² at the input over that at the output, with the chosen rule."""
        return np.stack([gradient(pair.measured)[:, 0] for pair in self.stacks[self.settings.chosen]])


def run(settings: WhyResiduals, stop: Stop = lambda: False, progress: Progress = lambda _: None) -> WhyResidualsResult:
    """Measures every stack, and takes steps in the deepest ones.

    Raises:
        Stopped: `stop()` said true.
    """
    from explorer.measuring.update import update_sizes

    rules, depths = settings.rules(), settings.depths
    grown = products(settings.width, [(settings.n_layers, float(a)) for a in EXPONENTS], settings.seed, stop)
    stacks = pairs({(key, n): rule.design(settings, n) for key, rule in rules.items() for n in depths},
                   stop, lambda part: progress(0.6 * part))
    steps = {
        key: update_sizes(rules[key].design(settings, settings.n_layers), settings.rates, stop)
        for key in stages(list(rules), stop, lambda part: progress(0.6 + 0.4 * part))
    }
    return WhyResidualsResult(settings, {key: [stacks[key, n] for n in depths] for key in rules}, steps, grown)


def products(width: int, cases: Sequence[tuple[int, float]], seed: int, stop: Stop = lambda: False) -> Array:
    """`[case, start]`: what (I + ε W_n) … (I + ε W_1), W ~ N(0, 1/d), makes of squared lengths; ε = n^−a for (n, a).

    All cases share their matrices, and so do the starts of one case, whose growths are nearly independent at large d.
    """
    import torch

    from explorer.model.noise import stack

    deepest = max(n for n, _ in cases)
    matrices = stack(seed, "why residuals, W", deepest, (width, width), check=lambda: check(stop))
    start = stack(seed, "why residuals, x", 1, (width, STARTS))[0]
    x = torch.stack([start] * len(cases))  # [case, width, start]
    for layer in range(1, deepest + 1):
        check(stop)
        epsilon = torch.tensor([n**-a if layer <= n else 0.0 for n, a in cases])[:, None, None]
        x = x + epsilon * (matrices[layer - 1] / width**0.5 @ x)
    grown = x.double().square().sum(1) / start.double().square().sum(0)
    return np.asarray(grown.numpy(), dtype=np.float64)


def verdict(result: WhyResidualsResult) -> Verdict:
    """Whether the chosen branches are small enough, and what one step did."""
    settings, rule = result.settings, result.rule
    n, signal, weights = settings.n_layers, *(
        float(np.median(values[-1])) for values in (result.forward, result.weights(settings.chosen))
    )
    promised, change = float(np.median(result.step.first_order)), float(np.median(result.step.change))
    falls = f"lowers the loss by {-change:.3g}" if change <= 0 else f"raises the loss by {change:.3g}"
    evidence = (
        f"N = {n}, ε = {rule.epsilon(n):.3g}: signal × {signal:.3g}, theory {rule.growth(n):.3g}; gradient² of all "
        f"weights × {weights:.3g}, theory {rule.gradient(n):.3g}. One step at η = "
        f"{settings.learning_rate:.1g} {falls}; to first order it falls by {-promised:.3g}. Growth by more than "
        f"{TOO_MUCH:g} counts as an explosion, a change within {EQUAL:.0%} of first order as equal to it."
    )
    if not (np.isfinite(signal) and signal <= TOO_MUCH):
        return "bad", "Branches this large multiply: signal and gradients explode with depth.", evidence
    if not abs(change / promised - 1) < EQUAL:
        return "warning", "The step is too long: the change of the loss is not its first order.", evidence
    if settings.exponent < 0.5:
        return "warning", "Signal and gradient still grow with depth; with a ≥ ½ they do not.", evidence
    if settings.exponent > 0.75:
        return "warning", "Smaller than needed: the deeper the stack, the less one step changes the loss.", evidence
    return "good", "Small enough: signal, gradient and a step's effect stay bounded at any depth, on average.", evidence


def invariants() -> dict[str, float]:
    """Slopes of Σ‖∂L/∂W‖² over depth, products of 64 random layers, and how well a small step keeps to first order."""
    from explorer.measuring.update import update_size

    settings = WhyResiduals(width=256, n_seeds=8)
    numbers = {}
    for rule in settings.rules().values():
        gradients = [np.median(update_size(rule.design(settings, n), 1e-6).gradient) for n in settings.depths]
        numbers[f"slope of Σ‖∂L/∂W‖² in N, {rule.label}"] = slope(settings.depths, np.array(gradients))
    root, inverse = products(256, [(64, 0.5), (64, 1.0)], seed=0).mean(1)
    return numbers | {
        "(1 + ε)^64, ε = 1/√64": aligned_growth(64**-0.5, 64),
        "(1 + ε²)^64, ε = 1/√64": random_growth(64**-0.5, 64),
        "∏(I + ε W), ε = 1/√64, squared length": float(root),
        "∏(I + ε W), ε = 1/64, squared length": float(inverse),
        "ΔL / (−η‖∇L‖²), η = 1e-6": float(np.median(update_size(ROOT.design(settings, 8), 1e-6).ratio)),
    }
