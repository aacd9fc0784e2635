"""Standard, NTK and μP: one function at initialization, three reactions to the same learning rate.

A small network learns a fixed teacher from fresh Gaussian batches. All learning rates of a width are trained at once,
as a stack of models that differ in nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from explorer.choices import Choices
from explorer.fields import Option, setting
from explorer.labs import Verdict
from explorer.labs.parametrization.network import BASE, SCHEMES, Examples, adam, forward, layers, weights
from explorer.profile import Array
from explorer.stopping import Progress, Stop, check

if TYPE_CHECKING:
    from torch import Tensor

STEP_WIDTHS = (32, 64, 128, 256, 512, 1024)
"""Widths of the first step, which is quick."""
STEP_DRAWS = 3
"""Seeds that the first step is averaged over."""
OCTAVES = 11
"""Learning rates of a sweep, each twice the one before."""
HELD_OUT = 512
"""Examples that the loss is read on."""


_sweeps: dict[tuple[str, Parametrization, int], Array] = {}
MOST_SWEEPS = 200
"""Sweeps that are remembered; each is eleven numbers."""


class Parametrization(Choices):
    """Networks and training."""

    optimizer: str = setting(
        "adam", "Optimizer", "Initialization", "Rule that turns gradients into steps.", pinned=True,
        options={"adam": Option("Adam, β = 0.9, 0.999", "Kingma & Ba 2015"), "sgd": Option("plain SGD")}
    )
    learning_rate: float = setting(0.01, "Learning rate", "Initialization",
                                   "Learning rate of the first step; the sweep has its own.", 1e-4, 1, symbol="η",
                                   log=True, pinned=True)
    widest: str = setting(
        "256", "Widest network", "Size", "Widths double from 32 up to this in the sweep.", symbol="m", unit="units",
        pinned=True,
        options={"64": Option("32, 64"), "128": Option("32 to 128"), "256": Option("32 to 256"),
                 "512": Option("32 to 512, takes a while")}
    )
    steps: int = setting(32, "Steps", "Size", "Steps of training before the loss is read.", 1, 64, symbol="k",
                         unit="steps", log=True, pinned=True)
    batch_size: int = setting(64, "Batch size", "Size", "Fresh examples in each step.", 1, 128, symbol="B",
                              unit="examples", log=True)
    seed: int = setting(0, "Seed", "Initialization", "Seed of weights, teacher and examples.", 0, 2**31 - 1)

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of the sweep."""
        return tuple(width for width in STEP_WIDTHS if width <= int(self.widest))

    def direction(self, gradient: Tensor, mean: Tensor, square: Tensor, count: int) -> Tensor:
        """The optimizer's, before the learning rate, at step `count`; `adam` updates the two moments in place."""
        return adam(gradient, mean, square, count) if self.optimizer == "adam" else gradient


class FirstStep(NamedTuple):
    """The hidden matrix's first step, over `STEP_WIDTHS`."""

    weights: Array
    """RMS of the change over RMS of the weights."""
    output: Array
    """Norm of what the change does to the matrix's output, over the norm of the output."""


@dataclass(frozen=True, eq=False)
class ParametrizationResult:
    """All parametrizations; mappings are by scheme."""

    settings: Parametrization
    step: Mapping[str, FirstStep]
    rates: Mapping[str, Array]
    losses: Mapping[str, Array]
    """`[width, rate]` after the steps; not finite where training diverged."""
    untrained: float
    """The loss before the first step, mean over widths."""

    def best(self, scheme: str) -> Array:
        """The learning rate with the least loss at each width."""
        return np.asarray(self.rates[scheme][np.argmin(self.finite(scheme), axis=1)])

    def finite(self, scheme: str) -> Array:
        """The losses, infinite where training diverged."""
        return np.where(np.isfinite(self.losses[scheme]), self.losses[scheme], np.inf)

    def expected_step(self, scheme: str) -> FirstStep:
        """The first step by its powers of the width, through the middle of what was found; Adam's weights exactly."""
        ratio, settings, changes = np.array(STEP_WIDTHS) / BASE, self.settings, self.step[scheme]
        growth = SCHEMES[scheme].growth[settings.optimizer]
        starts = [np.exp(np.mean(np.log(values) - power * np.log(ratio)))
                  for values, power in zip(changes, growth, strict=False)]
        if settings.optimizer == "adam":
            starts[0] = settings.learning_rate * (1.0 if scheme == "ntk" else math.sqrt(BASE))
        return FirstStep(starts[0] * ratio**growth.weights, starts[1] * ratio**growth.output)


def first_step(scheme: str, settings: Parametrization, width: int) -> tuple[float, float]:
    """Effect of one step on the hidden matrix: on its weights, and on its output on the step's own batch.

    The residuals are random, of unit variance: how well a width happens to fit before training does not matter.
    """
    import torch

    plan = layers(scheme, width, settings.optimizer)
    stored = [weight.requires_grad_() for weight in weights(plan, width, settings.seed)]
    x, _ = Examples(settings.seed).draw(settings.batch_size)
    residual = np.random.default_rng([settings.seed, 4]).standard_normal((settings.batch_size, 1))
    activations = forward(plan, stored, x)
    gradient = torch.autograd.grad((2 * torch.from_numpy(residual) * activations[-1]).mean(), stored)[1]
    moments = torch.zeros_like(gradient), torch.zeros_like(gradient)
    change = settings.learning_rate * plan[1].rate * settings.direction(gradient, *moments, 1)
    inputs, weight = activations[1].detach(), stored[1].detach()
    ratio = (change.norm() / weight.norm(), (inputs @ change.T).norm() / (inputs @ weight.T).norm())
    return float(ratio[0]), float(ratio[1])


def first_steps(scheme: str, settings: Parametrization) -> FirstStep:
    """The first step at every width, root mean square over a few seeds."""
    seeds = [settings.replace(seed=(settings.seed + draw) % 2**31) for draw in range(STEP_DRAWS)]
    changes = np.array([[first_step(scheme, seed, width) for width in STEP_WIDTHS] for seed in seeds])
    return FirstStep(*np.moveaxis(np.sqrt(np.mean(changes**2, 0)), -1, 0))


def train(scheme: str, settings: Parametrization, width: int, rates: Array, step: Callable[[], None]) -> Array:
    """Held-out loss `[rate]` of networks that differ in the learning rate alone; `step` is called before each step."""
    import torch

    plan, examples = layers(scheme, width, settings.optimizer), Examples(settings.seed)
    x_held, y_held = (part.float() for part in examples.draw(HELD_OUT))
    stored = [
        weight.float().expand(len(rates), -1, -1).clone().requires_grad_()
        for weight in weights(plan, width, settings.seed)
    ]
    eta = torch.from_numpy(rates).float()[:, None, None]
    moments = [(torch.zeros_like(weight), torch.zeros_like(weight)) for weight in stored]
    for count in range(1, settings.steps + 1):
        step()
        x, y = (part.float() for part in examples.draw(settings.batch_size))
        loss = (forward(plan, stored, x)[-1] - y).square().mean((1, 2)).sum()
        with torch.no_grad():
            for layer, weight, gradient, moment in zip(
                plan, stored, torch.autograd.grad(loss, stored), moments, strict=True
            ):
                weight -= settings.direction(gradient, *moment, count).mul_(eta * layer.rate)
    with torch.no_grad():
        return np.asarray((forward(plan, stored, x_held)[-1] - y_held).square().mean((1, 2)).double().numpy())


def run(settings: Parametrization, stop: Stop = lambda: False, progress: Progress = lambda _: None
        ) -> ParametrizationResult:
    """The functions at initialization, the first step, and the sweep.

    Raises:
        Stopped: `stop()` said true; asked before each step.
    """
    check(stop)
    step = {scheme: first_steps(scheme, settings) for scheme in SCHEMES}
    rates: dict[str, Array] = {
        name: np.exp2(row.growth[settings.optimizer].first + np.arange(OCTAVES)) for name, row in SCHEMES.items()
    }
    jobs = [(scheme, width) for width in settings.widths for scheme in SCHEMES]
    whole, done = settings.steps * sum(width**2 + 256 * width for _, width in jobs), 0
    losses: dict[str, list[Array]] = {scheme: [] for scheme in SCHEMES}
    for scheme, width in jobs:

        def tick(width: int = width) -> None:
            nonlocal done
            check(stop)
            progress(done / whole)
            done += width**2 + 256 * width

        losses[scheme].append(_trained(scheme, settings, width, rates[scheme], tick))
    progress(1.0)
    arrays = {scheme: np.array(rows) for scheme, rows in losses.items()}
    return ParametrizationResult(settings, step, rates, arrays, untrained(settings))


def _trained(scheme: str, settings: Parametrization, width: int, rates: Array, step: Callable[[], None]) -> Array:
    """Result of `train`, cached: the first step's learning rate and the widest width do not matter to it."""
    key = scheme, settings.replace(learning_rate=0.01, widest="512"), width
    if key not in _sweeps:
        _sweeps[key] = train(scheme, settings, width, rates, step)
        while len(_sweeps) > MOST_SWEEPS:
            _sweeps.pop(next(iter(_sweeps)), None)
    return _sweeps[key]


def outputs(scheme: str, settings: Parametrization, width: int) -> Array:
    """A network's outputs at initialization on 64 inputs, float64."""
    plan = layers(scheme, width, settings.optimizer)
    x, _ = Examples(settings.seed).draw(64)
    return np.asarray(forward(plan, weights(plan, width, settings.seed), x)[-1][:, 0].numpy())


def untrained(settings: Parametrization) -> float:
    """The standard networks' loss on 64 examples before any step, mean over the widths of the sweep."""
    _, y = Examples(settings.seed).draw(64)
    errors = [np.mean((outputs("standard", settings, width) - y[:, 0].numpy()) ** 2) for width in settings.widths]
    return float(np.mean(errors))


def verdict(result: ParametrizationResult) -> Verdict:
    """Change of the best learning rate between the narrowest and the widest network."""
    moved = {scheme: math.log2(result.best(scheme)[-1] / result.best(scheme)[0]) for scheme in SCHEMES}
    widths = result.settings.widths
    ratios = ", ".join(f"{row.label} {Fraction(2) ** round(moved[scheme])}" for scheme, row in SCHEMES.items())
    where = f"Best learning rate at m = {widths[-1]} over that at m = {widths[0]}: {ratios}."
    if abs(moved["standard"]) > abs(moved["mup"]) <= 1:
        stays = "stays" if moved["mup"] == 0 else "moves by one step of the sweep"
        return "good", f"A narrow network's best learning rate {stays} under μP; under standard it drifts.", where
    if abs(moved["standard"]) < 1:
        return "warning", "No drift is visible here; more steps or wider networks show it.", where
    return "warning", "Here μP's best learning rate moves too; with one seed and few steps it is uncertain.", where


def invariants(settings: Parametrization = Parametrization()) -> dict[str, float]:  # noqa: B008 - frozen
    """NTK's function at init against standard's, and the relative first step of Adam at η = 0.01."""
    widths = (256, 1024)
    out = {"|NTK − standard| at init, m = 256": float(
        np.abs(outputs("ntk", settings, 256) - outputs("standard", settings, 256)).max()
    )}
    base = settings.replace(optimizer="adam", learning_rate=0.01)
    for scheme, row in SCHEMES.items():
        for width in widths:
            out[f"first Adam step, {row.label}, m = {width}"] = first_step(scheme, base, width)[0]
    return out
