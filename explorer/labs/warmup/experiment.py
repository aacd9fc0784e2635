"""Warm-up: Post-LN without it stalls, with it trains, and Pre-LN needs none; gradients by layer before and after.

The setting of Xiong et al. 2020 in small: the learning rate rises in even steps to its largest value in T steps, none
(T = 1), a few, or many. All six contenders have the same weights for a design, and see the same batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from explorer.choices import Choices
from explorer.config import Config
from explorer.fields import Option, setting
from explorer.labs import Look, Verdict, unseen
from explorer.labs.trained import AS_WELL, SHAPE, Depth, Seed, Steps, Trained, train
from explorer.stopping import Progress, Stop
from explorer.training.recipe import Recipe

USUAL: Mapping[str, float] = {"adam": 3e-3, "radam": 3e-3, "sgd": 0.3}
"""A learning rate at which Pre-LN trains well, by optimizer."""
DESIGNS: Mapping[str, str] = {"post": "Post-LN", "pre": "Pre-LN"}
LENGTHS = ("none", "short", "long")
"""Of the warm-up."""


class Warmup(Choices):
    """Training and depth of the contenders."""

    optimizer: str = setting(
        "adam", "Optimizer", "", "Rule that turns gradients into steps, as implemented in torch.",
        options={
            "adam": Option("W − η m / √v", "Kingma & Ba 2014"),
            "radam": Option("Adam, held back while v is uncertain", "Liu et al. 2019"),
            "sgd": Option("W − η g"),
        }
    )
    warmup: int = setting(100, "Long warm-up", "",
                          "Steps until the full learning rate; the short warm-up takes a tenth of them.", 2, 1000,
                          symbol="T", unit="steps", log=True)
    rate: float = setting(1.0, "Learning rate", "", "Factor on the usual one: 0.003 for adam and radam, 0.3 for sgd.",
                          0.1, 10, symbol="η", unit="× usual", log=True)
    n_layers: Depth = 6
    steps: Steps = 240
    seed: Seed = 0

    @property
    def lengths(self) -> dict[str, int]:
        """T of each length of the warm-up: 1 is none."""
        return {"none": 1, "short": max(2, self.warmup // 10), "long": self.warmup}

    def contender(self, design: str, length: str) -> tuple[Config, Recipe]:
        """A design, and how it is trained."""
        config = Config(norm_placement=design, n_layers=self.n_layers, seed=self.seed, **SHAPE)
        rate = self.rate * USUAL[self.optimizer]
        return config, Recipe(optimizer=self.optimizer, learning_rate=rate, warmup=self.lengths[length])


def name_of(design: str, length: str) -> str:
    """Name of a contender: one of `DESIGNS` with one of `LENGTHS`."""
    return f"{DESIGNS[design]}, {'no' if length == 'none' else length} warm-up"


ALL = tuple((design, length) for design in DESIGNS for length in LENGTHS)


def run(settings: Warmup, stop: Stop = lambda: False, progress: Progress = lambda _: None,
        contenders: Iterable[tuple[str, str]] = ALL, look: Look = unseen) -> Trained[Warmup]:
    """Trains all six, or some, side by side.

    Raises:
        Stopped: `stop()` said true.
    """
    field = {name_of(*contender): settings.contender(*contender) for contender in contenders}
    return train(settings, field, settings.steps, settings.seed, stop, progress, look=look)


def verdict(result: Trained[Warmup]) -> Verdict:
    """Verdict: which contenders train, and whether that is due to warm-up."""
    settings, levels = result.settings, result.levels
    post, warmed, pre = name_of("post", "none"), name_of("post", "long"), name_of("pre", "none")
    losses = "; ".join(
        f"{words} " + ", ".join(result.in_words(name_of(design, length)) for length in LENGTHS)
        for design, words in DESIGNS.items()
    )
    evidence = (
        f"Held-out loss after {settings.steps} steps, with no, short and long warm-up: {losses}. A unigram has "
        f"{levels.unigram:.2f}, a bigram {levels.bigram:.2f}."
    )
    if settings.warmup > settings.steps:
        return "warning", "The long warm-up does not end within these steps: its learning rate stays low.", evidence
    if not result.trains(pre):
        return "warning", "Even Pre-LN does not train without warm-up: too few steps, or too high a rate.", evidence
    if not result.trains(warmed):
        return "warning", "Pre-LN trains; Post-LN does not, and this warm-up does not help it in these steps.", evidence
    if result.final(post) < result.final(warmed) + AS_WELL:
        return "warning", "Here Post-LN trains without warm-up nearly as well, or better.", evidence
    if result.trains(post):
        return "good", "Post-LN trains better with warm-up, and Pre-LN without any.", evidence
    return "good", "Post-LN stalls without warm-up and trains with it; Pre-LN needs none.", evidence


def orders(seed: int = 0) -> dict[str, bool]:
    """Statements of the notebook about one seed: which losses stay at the unigram's, and which get below it."""
    post, warmed, pre = ("post", "none"), ("post", "long"), ("pre", "none")
    half = Warmup(seed=seed, steps=200)
    adam = run(half.replace(steps=400, warmup=200), contenders=(post, warmed))
    plain = run(half, contenders=(pre,))
    sgd = run(half.replace(optimizer="sgd"), contenders=(post, pre))
    stalled, trained = (np.median(adam.histories[name_of(*key)].gradient_ratio()[1]) for key in (post, warmed))
    return {
        "Adam: Post-LN without warm-up stays at the unigram's loss": not adam.trains(name_of(*post)),
        "Adam: Post-LN with warm-up gets below it": adam.trains(name_of(*warmed)),
        "Adam: Pre-LN without warm-up gets below it in half the steps": plain.trains(name_of(*pre)),
        "SGD: Post-LN without warm-up stays at the unigram's loss": not sgd.trains(name_of(*post)),
        "SGD: Pre-LN without warm-up gets below it": sgd.trains(name_of(*pre)),
        "Adam: without warm-up less gradient comes to Post-LN's first layer": bool(stalled < trained),
    }
