"""`Recipe`: training of one contender: optimizer, learning rate over the steps, schedule of the residual α."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from explorer.choices import Choices
from explorer.fields import Option, setting


@dataclass(frozen=True, kw_only=True)
class OptimizerRule(Option):
    """One of torch's optimizers, and what it makes of μP's powers of the width."""

    torch: Callable[[Any, Any, Recipe], Any]
    """The optimizer, from torch.optim, groups of parameters and the recipe. (Handed in: settings do without torch.)"""
    adaptive: bool = True
    """A step does not grow with the gradient, so that μP's powers are Adam's; else they are SGD's."""
    divides_decay: bool = False
    """The weight decay joins the gradient before both are divided by the size of their sum."""


BETAS = ("beta1", "beta2")
OPTIMIZERS: dict[str, OptimizerRule] = {
    "sgd": OptimizerRule("W − η g", adaptive=False, torch=lambda optim, groups, recipe: optim.SGD(groups)),
    "momentum": OptimizerRule(
        "W − η m, m ← β₁ m + g", "Polyak 1964", ("beta1",), adaptive=False,
        torch=lambda optim, groups, recipe: optim.SGD(groups, momentum=recipe.beta1),
    ),
    "adam": OptimizerRule(
        "W − η m / √v", "Kingma & Ba 2014", BETAS, divides_decay=True,
        torch=lambda optim, groups, recipe: optim.Adam(groups, betas=recipe.betas),
    ),
    "adamw": OptimizerRule(
        "Adam, weight decay separate", "Loshchilov & Hutter 2017", BETAS,
        torch=lambda optim, groups, recipe: optim.AdamW(groups, betas=recipe.betas),
    ),
    "radam": OptimizerRule(
        "Adam, held back while v is uncertain", "Liu et al. 2019", BETAS, divides_decay=True,
        torch=lambda optim, groups, recipe: optim.RAdam(groups, betas=recipe.betas),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Decay(Option):
    """The learning rate after the warm-up, over the full one."""

    factor: Callable[[float, float], float]
    """Of u, the share of the decay that is done (0 at the first full step, 1 would be one step after the last), and of
    T/t, the warm-up over the steps so far."""


DECAYS: dict[str, Decay] = {
    "constant": Decay("η", factor=lambda u, warmed: 1.0),
    "cosine": Decay("η (1 + cos π u) / 2, u from 0 to 1", "Loshchilov & Hutter 2016",
                    factor=lambda u, warmed: (1 + math.cos(math.pi * u)) / 2),
    "linear": Decay("η (1 − u), u from 0 to 1", factor=lambda u, warmed: 1 - u),
    "inverse_sqrt": Decay("η √(T / t)", "Vaswani et al. 2017", factor=lambda u, warmed: math.sqrt(warmed)),
}


@dataclass(frozen=True, kw_only=True)
class AlphaSchedule(Option):
    """Training of the residual α, where a design learns it."""

    value: Callable[[Recipe, int], float] | None = None
    """α at a step (from 0); None where it is learned."""
    rate: Callable[[Recipe], float] = lambda recipe: 1.0
    """Its learning rate over the others'."""


ALPHA_SCHEDULES: dict[str, AlphaSchedule] = {
    "learned": AlphaSchedule("with the other weights"),
    "own_rate": AlphaSchedule("with the other weights, at its own learning rate", uses=("alpha_rate",),
                              rate=lambda recipe: recipe.alpha_rate),
    "ramp": AlphaSchedule(
        "not learned: rises by a constant step to its end, then fixed", uses=("alpha_step", "alpha_end"),
        value=lambda recipe, step: min(recipe.alpha_end, (step + 1) * recipe.alpha_step),
    ),
    "fixed": AlphaSchedule("not learned: at its end from the first step", uses=("alpha_end",),
                           value=lambda recipe, step: recipe.alpha_end),
}


class Recipe(Choices):
    """One contender's training, beside its `Config`.

    Raises:
        ConfigError: an unknown field, a wrong type, or a value out of range.
    """

    optimizer: str = setting("adam", "Optimizer", "Optimizer",
                             "Rule that turns gradients into steps, as implemented in torch.", pinned=True,
                             options=OPTIMIZERS)
    learning_rate: float = setting(1e-3, "Learning rate", "Optimizer",
                                   "The largest learning rate of the schedule; μP's powers of the width come on top.",
                                   1e-7, 100, symbol="η", log=True, pinned=True)
    beta1: float = setting(0.9, "β₁", "Optimizer", "Share of the mean gradient that is kept from step to step.",
                           0, 0.9999, symbol="β₁")
    beta2: float = setting(0.999, "β₂", "Optimizer",
                           "Share of the mean squared gradient that is kept from step to step.", 0, 0.99999,
                           symbol="β₂")
    weight_decay: float = setting(
        0.0, "Weight decay", "Optimizer",
        "Pulls the weights to zero, as part of the gradient or, with adamw, separately; never α.", 0, 10, symbol="λ"
    )
    clip: float = setting(0.0, "Gradient clipping", "Optimizer",
                          "The norm of all gradients together is cut to this; 0: no clipping.", 0, 1e6, symbol="‖g‖ ≤")

    warmup: int = setting(1, "Warm-up", "Schedule",
                          "Steps until the full learning rate, in even increments; 1 is no warm-up.", 1, 1_000_000,
                          symbol="T", unit="steps", log=True, pinned=True)
    decay: str = setting("constant", "Decay", "Schedule",
                         "The learning rate after the warm-up, until the last step of the race.", options=DECAYS)

    alpha_schedule: str = setting("learned", "α schedule", "Residual α",
                                  "Training of the α of ReZero, SkipInit and LayerScale.", options=ALPHA_SCHEDULES)
    alpha_rate: float = setting(10.0, "α's rate", "Residual α", "α's learning rate, as a multiple of the others'.",
                                1e-4, 1e4, unit="× η", log=True)
    alpha_step: float = setting(1e-2, "α's step", "Residual α", "Increase of α before each step of a ramp.", 1e-7, 4,
                                log=True)
    alpha_end: float = setting(1.0, "α's end", "Residual α", "Last value of a ramp, and value of a fixed α.", 0, 4)

    @property
    def betas(self) -> tuple[float, float]:
        """β₁ and β₂."""
        return self.beta1, self.beta2

    @property
    def alpha_rule(self) -> AlphaSchedule:
        """The row of the schedule of α."""
        return ALPHA_SCHEDULES[self.alpha_schedule]

    def factor(self, step: int, steps: int) -> float:
        """Factor on the learning rate at a step (from 0) of a race of so many steps: at most 1.

        t/T while warming up, t counted from 1, so that the first step already moves; then the decay.
        """
        t = step + 1
        if t < self.warmup:
            return t / self.warmup
        return DECAYS[self.decay].factor((t - self.warmup) / (max(steps, t) - self.warmup + 1), self.warmup / t)

    def alpha(self, step: int) -> float | None:
        """Value of α at a step (from 0); None where it is learned."""
        value = self.alpha_rule.value
        return None if value is None else value(self, step)
