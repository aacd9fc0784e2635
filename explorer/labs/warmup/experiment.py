"""Warm-up: Post-LN without it stalls, with it trains, and Pre-LN needs none; gradients by layer before and after.

The setting of Xiong et al. 2020 in small: the learning rate rises in even steps to its largest value in T steps, none
(T = 1), a few, or many. All six contenders have the same weights for a design, and see the same batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from explorer.choices import Choices
from explorer.config import Config
from explorer.fields import About, Option
from explorer.labs import Progress, Stop, Verdict
from explorer.labs.trained import AS_WELL, SHAPE, Trained, train
from explorer.training.recipe import Recipe

USUAL: Mapping[str, float] = MappingProxyType({"adam": 3e-3, "radam": 3e-3, "sgd": 0.3})
"""A learning rate at which Pre-LN trains well, by optimizer."""
DESIGNS: Mapping[str, str] = MappingProxyType({"post": "Post-LN", "pre": "Pre-LN"})
LENGTHS = ("none", "short", "long")
"""Of the warm-up."""


class Warmup(Choices):
    """Training and depth of the contenders."""

    optimizer: Annotated[
        Literal["adam", "radam", "sgd"],
        About("Optimizer", "", options={
            "adam": Option("W − η m / √v", "Kingma & Ba 2014"),
            "radam": Option("Adam, held back while v is uncertain", "Liu et al. 2019"),
            "sgd": Option("W − η g"),
        }),
    ] = Field("adam", description="Rule that turns gradients into steps, as implemented in torch.")
    warmup: Annotated[int, Field(ge=2, le=1000), About("Long warm-up", "", "T", "steps", log=True)] = Field(
        100, description="Steps until the full learning rate; the short warm-up takes a tenth of them."
    )
    rate: Annotated[float, Field(ge=0.1, le=10), About("Learning rate", "", "η", "× usual", log=True)] = Field(
        1.0, description="Factor on the usual one: 0.003 for adam and radam, 0.3 for sgd."
    )
    n_layers: Annotated[int, Field(ge=2, le=24), About("Depth", "", "N", "layers", log=True)] = Field(
        6, description="Layers, 32 wide; time grows with them."
    )
    steps: Annotated[int, Field(ge=20, le=1000), About("Training steps", "", unit="steps", log=True)] = Field(
        240, description="Steps of each of the six contenders; time grows with them."
    )
    seed: Annotated[int, Field(ge=0, le=2**31 - 1), About("Seed", "")] = Field(
        0, description="Seed of the weights and of the batches."
    )

    @property
    def lengths(self) -> dict[str, int]:
        """T of each length of the warm-up: 1 is none."""
        return {"none": 1, "short": max(2, self.warmup // 10), "long": self.warmup}

    def contender(self, design: str, length: str) -> tuple[Config, Recipe]:
        """A design, and how it is trained."""
        config = Config(norm_placement=design, n_layers=self.n_layers, seed=self.seed, **SHAPE)
        rate = self.rate * USUAL[self.optimizer]
        return config, Recipe(optimizer=self.optimizer, learning_rate=rate, warmup=self.lengths[length])


class Who(NamedTuple):
    """A contender: one of `DESIGNS`, and one of `LENGTHS`."""

    design: str
    length: str

    @property
    def name(self) -> str:
        """Its name."""
        return f"{DESIGNS[self.design]}, {'no' if self.length == 'none' else self.length} warm-up"


FIELD = tuple(Who(design, length) for design in DESIGNS for length in LENGTHS)


@dataclass(frozen=True, eq=False)
class WarmupResult:
    """All six, trained."""

    settings: Warmup
    trained: Trained

    def final(self, design: str, length: str) -> float:
        """Held-out loss after the last step, nats a character; nan for a contender that fell out."""
        return self.trained.curves[Who(design, length).name].final

    def trains(self, design: str, length: str) -> bool:
        """Whether its loss is below the unigram's."""
        return self.trained.trains(Who(design, length).name)


def run(settings: Warmup, stop: Stop = lambda: False, progress: Progress = lambda _: None) -> WarmupResult:
    """Trains all six side by side.

    Raises:
        Stopped: `stop()` said true.
    """
    return WarmupResult(settings, _train(settings, FIELD, stop, progress))


def _train(settings: Warmup, field: Iterable[Who], stop: Stop = lambda: False,
           progress: Progress = lambda _: None) -> Trained:
    contenders = {who.name: settings.contender(*who) for who in field}
    return train(contenders, settings.steps, settings.seed, stop, progress)


def verdict(result: WarmupResult) -> Verdict:
    """Verdict: which contenders train, and whether that is due to warm-up."""
    settings, levels = result.settings, result.trained.levels
    losses = "; ".join(
        f"{words} " + ", ".join(_told(result, design, length) for length in LENGTHS)
        for design, words in DESIGNS.items()
    )
    evidence = (
        f"Held-out loss after {settings.steps} steps, with no, short and long warm-up: {losses}. A unigram has "
        f"{levels.unigram:.2f}, a bigram {levels.bigram:.2f}."
    )
    if settings.warmup > settings.steps:
        return "warning", "The long warm-up does not end within these steps: its learning rate stays low.", evidence
    if not result.trains("pre", "none"):
        return "warning", "Even Pre-LN does not train without warm-up: too few steps, or too high a rate.", evidence
    if not result.trains("post", "long"):
        return "warning", "Pre-LN trains; Post-LN does not, and this warm-up does not help it in these steps.", evidence
    if result.final("post", "none") < result.final("post", "long") + AS_WELL:
        return "warning", "Here Post-LN trains without warm-up nearly as well, or better.", evidence
    if result.trains("post", "none"):
        return "good", "Post-LN trains better with warm-up, and Pre-LN without any.", evidence
    return "good", "Post-LN stalls without warm-up and trains with it; Pre-LN needs none.", evidence


def _told(result: WarmupResult, design: str, length: str) -> str:
    curve = result.trained.curves[Who(design, length).name]
    return f"{curve.final:.2f}" if not curve.retired else f"out at step {curve.made}"


def orders(seed: int = 0) -> dict[str, bool]:
    """Statements of the notebook about one seed: which losses stay at the unigram's, and which get below it."""
    long, half = Warmup(seed=seed, steps=400, warmup=200), Warmup(seed=seed, steps=200)
    slow = half.replace(optimizer="sgd")
    adam = WarmupResult(long, _train(long, (Who("post", "none"), Who("post", "long"))))
    pre = WarmupResult(half, _train(half, (Who("pre", "none"),)))
    sgd = WarmupResult(slow, _train(slow, (Who("post", "none"), Who("pre", "none"))))
    stalled, warmed = (
        np.median(adam.trained.curves[Who("post", length).name].first_to_last) for length in ("none", "long")
    )
    return {
        "Adam: Post-LN without warm-up stays at the unigram's loss": not adam.trains("post", "none"),
        "Adam: Post-LN with warm-up gets below it": adam.trains("post", "long"),
        "Adam: Pre-LN without warm-up gets below it in half the steps": pre.trains("pre", "none"),
        "SGD: Post-LN without warm-up stays at the unigram's loss": not sgd.trains("post", "none"),
        "SGD: Pre-LN without warm-up gets below it": sgd.trains("pre", "none"),
        "Adam: without warm-up less gradient comes to Post-LN's first layer": bool(stalled < warmed),
    }
