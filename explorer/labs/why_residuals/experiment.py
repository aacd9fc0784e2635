"""Size of the branches: x + ε F(x) in N layers with ε = N^−a, and the effect of one step of gradient descent.

The stack is the Transformer's, MLPs only and without norms, so that nothing but ε holds the signal. In expectation a
branch of unit gain multiplies signal and gradient by 1 + ε² each, and the gradients of all weights together are

    Σ‖∂L/∂W‖² = (d + d_mlp) · N ε² (1 + ε²)^(N−1),

or (d + d_mlp) · N without a residual. One step changes the loss by −η times that, while η is small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from explorer.choices import Choices
from explorer.config import Config
from explorer.fields import About
from explorer.labs import Progress, Stop, Verdict, check
from explorer.theory.depth import aligned_growth, random_growth

if TYPE_CHECKING:
    from explorer.probe.update import Update

Array = NDArray[np.float64]

RATES = np.geomspace(1e-6, 1e-1, 6)
"""Learning rates at which the deepest stacks take their step, beside the one that was chosen."""
EXPONENTS = np.linspace(0.25, 1.5, 11)
"""Of N, at which the product of random matrices is taken."""
STARTS = 32
"""Vectors that one product of matrices is applied to."""
MOST_KNOWN = 256
"""Steps that are kept, a few numbers each."""
TOO_MUCH = 10.0
"""A signal that has grown more is said to explode."""
KEPT = 0.5
"""Relative error of one step's change of the loss up to which it counts as equal to first order."""


_known: dict[tuple[Config, tuple[float, ...]], list[Update]] = {}


class WhyResiduals(Choices):
    """Depth and width of the stack, how small its branches are, and the step that is taken."""

    exponent: Annotated[float, Field(ge=0, le=1.5), About("How small", "", "ε = N⁻ᵃ")] = Field(
        0.5, description="A branch is multiplied by ε = N^−a: 1 at 0, 1/√N at ½, 1/N at 1."
    )
    n_layers: Annotated[int, Field(ge=2, le=64), About("Depth", "", "N", "layers", log=True)] = Field(
        32, description="Layers of the deepest stack; shallower ones by halves are measured beside it."
    )
    width: Annotated[int, Field(ge=16, le=256), About("Width", "", "d", "coordinates", log=True)] = Field(
        128, description="Width of the stream, of the MLPs' hidden layer and of the random matrices."
    )
    learning_rate: Annotated[float, Field(ge=1e-6, le=1), About("Learning rate", "", "η", log=True)] = Field(
        1e-4, description="Learning rate of the one step of plain gradient descent."
    )
    n_seeds: Annotated[int, Field(ge=1, le=8), About("Seeds", "", unit="draws", log=True)] = Field(
        4, description="Independent draws of weights and inputs; dots are their median, bars their range."
    )
    seed: Annotated[int, Field(ge=0, le=2**31 - 64), About("First seed", "")] = Field(
        0, description="Seed of the first draw."
    )

    @property
    def rates(self) -> list[float]:
        """`RATES` and the chosen one, in order."""
        return sorted({*RATES.tolist(), self.learning_rate})

    @property
    def depths(self) -> list[int]:
        """1, 2, 4, … and N."""
        return sorted({2**power for power in range(10) if 2**power < self.n_layers} | {self.n_layers})

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

    def growth(self, n: int) -> float:
        """Growth of the second moment over n layers, and of the gradient's on the way back: (1 + ε²)ⁿ."""
        return 1.0 if self.exponent is None else random_growth(self.epsilon(n), n)

    def gradient(self, n: int) -> float:
        """Σ‖∂L/∂W‖² over that of a single layer without a residual, d + d_mlp."""
        epsilon = self.epsilon(n)
        return n * epsilon**2 * (1.0 if self.exponent is None else random_growth(epsilon, n - 1))


ROOT = Rule("ε = 1/√N", 0.5)


class Sweep(NamedTuple):
    """One rule at every depth, all `[depth, seed]`."""

    gradient: Array
    """Σ‖∂L/∂W‖² over d + d_mlp."""
    change: Array
    """Of the loss, by one step."""
    first_order: Array
    """−η ‖∇L‖², of the same draw."""


@dataclass(frozen=True, eq=False)
class WhyResidualsResult:
    """Everything about one choice."""

    settings: WhyResiduals
    sweeps: Mapping[str, Sweep]
    """By rule."""
    forward: Array
    """`[depth, seed]` growth of the second moment, of what was chosen."""
    backward: Array
    """`[depth, seed]` gradient² at the input over that at the output."""
    ratio: Mapping[str, Array]
    """Rule to `[rate, seed]`, ΔL / (−η‖∇L‖²) of the deepest stack over `settings.rates`."""
    by_depth: Array
    """`[depth, start]` growth of a squared length under ∏(I + ε W), of what was chosen."""
    by_exponent: Array
    """`[exponent, start]` the same in N layers, over `EXPONENTS`."""

    @property
    def rule(self) -> Rule:
        """The chosen rule."""
        return self.settings.rules()[self.settings.chosen]


def run(settings: WhyResiduals, stop: Stop = lambda: False, progress: Progress = lambda _: None) -> WhyResidualsResult:
    """Builds every stack, measures it, and takes a step.

    Raises:
        Stopped: `stop()` said true.
    """
    by_depth, by_exponent = _products(settings, stop)
    done, whole = 0, sum(settings.depths) * (len(settings.rules()) + 1)
    sweeps, ratio = {}, {}
    for key, rule in settings.rules().items():
        steps = []
        for n in settings.depths:
            steps.append(_step(settings, rule, n, stop))
            done += n
            progress(done / whole)
        sweeps[key] = Sweep(*np.stack([step[0] for step in steps], axis=1))
        ratio[key] = steps[-1][1]
    ends = []
    for n in settings.depths:
        ends.append(_ends(settings.rules()[settings.chosen].design(settings, n), stop))
        done += n
        progress(done / whole)
    forward, backward = np.stack(ends, axis=1)
    return WhyResidualsResult(settings, sweeps, forward, backward, ratio, by_depth, by_exponent)


def _step(settings: WhyResiduals, rule: Rule, n: int, stop: Stop) -> tuple[Array, Array]:
    """`[3, seed]` gradient, change and first order at the chosen rate; `[rate, seed]` the ratios of the deepest."""
    rates = settings.rates if n == settings.n_layers else [settings.learning_rate]
    steps = _taken(rule.design(settings, n), tuple(rates), stop)
    own = steps[rates.index(settings.learning_rate)]
    numbers = np.stack([own.gradient / (2 * settings.width), own.change, own.first_order])
    return numbers, np.array([step.ratio for step in steps])


def _taken(config: Config, rates: tuple[float, ...], stop: Stop) -> list[Update]:
    """`update_sizes`, which need not be taken again when nothing but the chosen exponent moves."""
    from explorer.probe.update import update_sizes

    found = _known.get((config, rates))
    if found is None:
        found = update_sizes(config, rates, stop)
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        _known[config, rates] = found
    return found


def _ends(config: Config, stop: Stop) -> Array:
    """`[2, seed]` second moment of the output over the input's, gradient² of the input over the output's."""
    from explorer.probe import measure

    profile = measure(config, stop)
    q, gradient = (profile.stream(statistic)[1] for statistic in ("second_moment", "activation_gradient"))
    return np.stack([q[:, -1] / q[:, 0], gradient[:, 0] / gradient[:, -1]])


def _products(settings: WhyResiduals, stop: Stop) -> tuple[Array, Array]:
    """Growth of squared lengths by depth for the chosen exponent, and by exponent at full depth: one set of draws."""
    deepest = [(settings.n_layers, float(a)) for a in EXPONENTS]
    grown = products(settings.width, [*((n, settings.exponent) for n in settings.depths), *deepest], settings.seed,
                     stop)
    return grown[: len(settings.depths)], grown[len(settings.depths) :]


def products(width: int, cases: Sequence[tuple[int, float]], seed: int, stop: Stop = lambda: False) -> Array:
    """`[case, start]`: what (I + ε W_n) … (I + ε W_1), W ~ N(0, 1/d), makes of squared lengths; ε = n^−a for (n, a).

    All cases share their matrices, and so do the starts of one case, whose growths are nearly independent at large d.
    """
    import torch

    from explorer.noise import stack

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


def slope(settings: WhyResiduals, values: Array, least: int = 4) -> float:
    """Exponent of N in medians over seeds of `[depth, seed]`, from stacks of `least` layers on."""
    depths = np.array(settings.depths, float)
    deep = depths >= min(least, depths[-2])
    return float(np.polyfit(np.log(depths[deep]), np.log(np.median(values[deep], axis=1)), 1)[0])


def verdict(result: WhyResidualsResult) -> Verdict:
    """Whether the chosen branches are small enough, and what one step did."""
    settings, rule, sweep = result.settings, result.rule, result.sweeps[result.settings.chosen]
    n, signal = settings.n_layers, float(np.median(result.forward[-1]))
    promised, change = float(np.median(sweep.first_order[-1])), float(np.median(sweep.change[-1]))
    falls = f"lowers the loss by {-change:.3g}" if change <= 0 else f"raises the loss by {change:.3g}"
    evidence = (
        f"N = {n}, ε = {rule.epsilon(n):.3g}: signal × {signal:.3g}, theory {rule.growth(n):.3g}; gradient² of all "
        f"weights × {np.median(sweep.gradient[-1]):.3g}, theory {rule.gradient(n):.3g}. One step at η = "
        f"{settings.learning_rate:.1g} {falls}; to first order it falls by {-promised:.3g}. Growth by more than "
        f"{TOO_MUCH:g} counts as an explosion, a change within {KEPT:.0%} of first order as equal to it."
    )
    if not (np.isfinite(signal) and signal <= TOO_MUCH):
        return "bad", "Branches this large multiply: signal and gradients explode with depth.", evidence
    if not abs(change / promised - 1) < KEPT:
        return "warning", "The step is too long: the change of the loss is not its first order.", evidence
    if settings.exponent < 0.5:
        return "warning", "Signal and gradient still grow with depth; with a ≥ ½ they do not.", evidence
    if settings.exponent > 0.75:
        return "warning", "Smaller than needed: the deeper the stack, the less one step changes the loss.", evidence
    return "good", "Small enough: signal, gradient and a step's effect stay bounded at any depth, on average.", evidence


def invariants() -> dict[str, float]:
    """Slopes of Σ‖∂L/∂W‖² over depth, products of 64 random layers, and how well a small step keeps to first order."""
    from explorer.probe.update import update_size

    settings = WhyResiduals(width=256, n_seeds=8)
    numbers = {}
    for rule in settings.rules().values():
        gradients = np.stack([update_size(rule.design(settings, n), 1e-6).gradient for n in settings.depths])
        numbers[f"slope of Σ‖∂L/∂W‖² in N, {rule.label}"] = slope(settings, gradients)
    root, inverse = products(256, [(64, 0.5), (64, 1.0)], seed=0).mean(1)
    return numbers | {
        "(1 + ε)^64, ε = 1/√64": aligned_growth(64**-0.5, 64),
        "(1 + ε²)^64, ε = 1/√64": random_growth(64**-0.5, 64),
        "∏(I + ε W), ε = 1/√64, squared length": float(root),
        "∏(I + ε W), ε = 1/64, squared length": float(inverse),
        "ΔL / (−η‖∇L‖²), η = 1e-6": float(np.median(update_size(ROOT.design(settings, 8), 1e-6).ratio)),
    }
