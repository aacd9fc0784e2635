"""`Recipe`: training of one contender: optimizer, learning rate over the steps, schedule of the residual α."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from explorer.choices import Choices
from explorer.fields import About, Option

BETAS = ("beta1", "beta2")


class Recipe(Choices):
    """One contender's training, beside its `Config`.

    Raises:
        ConfigError: an unknown field, a wrong type, or a value out of range.
    """

    optimizer: Annotated[
        Literal["sgd", "momentum", "adam", "adamw", "radam"],
        About(
            "Optimizer",
            "Optimizer",
            pinned=True,
            options={
                "sgd": Option("W − η g"),
                "momentum": Option("W − η m, m ← β₁ m + g", "Polyak 1964", uses=("beta1",)),
                "adam": Option("W − η m / √v", "Kingma & Ba 2014", BETAS),
                "adamw": Option("Adam, weight decay separate", "Loshchilov & Hutter 2017", BETAS),
                "radam": Option("Adam, held back while v is uncertain", "Liu et al. 2019", BETAS),
            },
        ),
    ] = Field("adam", description="Rule that turns gradients into steps, as implemented in torch.")
    learning_rate: Annotated[
        float, Field(ge=1e-7, le=100), About("Learning rate", "Optimizer", "η", log=True, pinned=True)
    ] = Field(1e-3, description="The largest learning rate of the schedule; μP's powers of the width come on top.")
    beta1: Annotated[
        float, Field(ge=0, le=0.9999), About("β₁", "Optimizer", "β₁")
    ] = Field(0.9, description="Share of the mean gradient that is kept from step to step.")
    beta2: Annotated[
        float, Field(ge=0, le=0.99999), About("β₂", "Optimizer", "β₂")
    ] = Field(0.999, description="Share of the mean squared gradient that is kept from step to step.")
    weight_decay: Annotated[float, Field(ge=0, le=10), About("Weight decay", "Optimizer", "λ")] = Field(
        0.0, description="Pulls the weights to zero, as part of the gradient or, with adamw, separately; never α."
    )
    clip: Annotated[float, Field(ge=0, le=1e6), About("Gradient clipping", "Optimizer", "‖g‖ ≤")] = Field(
        0.0, description="The norm of all gradients together is cut to this; 0: no clipping."
    )

    warmup: Annotated[
        int, Field(ge=1, le=1_000_000), About("Warm-up", "Schedule", "T", "steps", log=True, pinned=True)
    ] = Field(1, description="Steps until the full learning rate, in even increments; 1 is no warm-up.")
    decay: Annotated[
        Literal["constant", "cosine", "linear", "inverse_sqrt"],
        About(
            "Decay",
            "Schedule",
            options={
                "constant": Option("η"),
                "cosine": Option("η (1 + cos π u) / 2, u from 0 to 1", "Loshchilov & Hutter 2016"),
                "linear": Option("η (1 − u), u from 0 to 1"),
                "inverse_sqrt": Option("η √(T / t)", "Vaswani et al. 2017"),
            },
        ),
    ] = Field("constant", description="The learning rate after the warm-up, until the last step of the race.")

    alpha_schedule: Annotated[
        Literal["learned", "own_rate", "ramp", "fixed"],
        About(
            "α schedule",
            "Residual α",
            options={
                "learned": Option("with the other weights"),
                "own_rate": Option("with the other weights, at its own learning rate", uses=("alpha_rate",)),
                "ramp": Option(
                    "not learned: rises by a constant step to its end, then fixed", uses=("alpha_step", "alpha_end")
                ),
                "fixed": Option("not learned: at its end from the first step", uses=("alpha_end",)),
            },
        ),
    ] = Field("learned", description="Training of the α of ReZero, SkipInit and LayerScale.")
    alpha_rate: Annotated[
        float,
        Field(ge=1e-4, le=1e4),
        About("α's rate", "Residual α", unit="× η", log=True),
    ] = Field(10.0, description="α's learning rate, as a multiple of the others'.")
    alpha_step: Annotated[
        float, Field(ge=1e-7, le=4), About("α's step", "Residual α", log=True)
    ] = Field(1e-2, description="Increase of α before each step of a ramp.")
    alpha_end: Annotated[
        float, Field(ge=0, le=4), About("α's end", "Residual α")
    ] = Field(1.0, description="Last value of a ramp, and value of a fixed α.")

    def factor(self, step: int, steps: int) -> float:
        """Factor on the learning rate at a step (from 0) of a race of so many steps: at most 1.

        t/T while warming up, t counted from 1, so that the first step already moves; then the decay.
        """
        if step + 1 < self.warmup:
            return (step + 1) / self.warmup
        return DECAYS[self.decay](Place(step + 1, self.warmup, max(steps, step + 1)))

    def alpha(self, step: int) -> float | None:
        """Value of α at a step (from 0); None where it is learned."""
        if self.alpha_schedule == "ramp":
            return min(self.alpha_end, (step + 1) * self.alpha_step)
        return self.alpha_end if self.alpha_schedule == "fixed" else None


class Place(NamedTuple):
    """Position of a race in its schedule: step t, from 1, of `steps`, `warmup` ≤ t of them warming up."""

    t: int
    warmup: int
    steps: int

    @property
    def part(self) -> float:
        """Share of the decay that is done: 0 at the first full step, 1 would be one step after the last."""
        return (self.t - self.warmup) / (self.steps - self.warmup + 1)


DECAYS: Mapping[str, Callable[[Place], float]] = MappingProxyType({
    "constant": lambda place: 1.0,
    "cosine": lambda place: (1 + math.cos(math.pi * place.part)) / 2,
    "linear": lambda place: 1 - place.part,
    "inverse_sqrt": lambda place: math.sqrt(place.warmup / place.t),
})
