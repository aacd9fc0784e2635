"""α of x + αF(x) in training: learned from 0, learned at a rate of its own, ramped up to 1 by even steps, or 1.

At α = 1 from the first step a contender is plain Post-LN, Pre-LN or a stack without norms, as chosen; the
others start as the identity, with the same weights, and see the same batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from explorer.choices import Choices
from explorer.config import Config
from explorer.fields import Option, setting
from explorer.labs import Look, Verdict, unseen
from explorer.labs.trained import AS_WELL, LEARNS, SHAPE, Depth, Seed, Steps, Trained, alphas, train
from explorer.profile import Array
from explorer.stopping import Progress, Stop
from explorer.training.recipe import Recipe

USUAL = 3e-3
"""Adam's learning rate."""
NAMES: Mapping[str, str] = {
    "learned": "learned", "own_rate": "learned, own rate", "ramp": "ramp to 1", "fixed": "1 throughout",
}
"""Names of the schedules."""
WHOLE: Mapping[str, str] = {"post": "Post-LN", "pre": "Pre-LN", "none": "a stack without norms"}
"""Names of the design at α = 1."""


class AlphaSchedule(Choices):
    """The contenders, and the schedules of α."""

    norm_placement: str = setting(
        "post", "Norm", "", "Position of the norm; the schedule matters most where α = 1 does not train.",
        options={
            "post": Option("after each sum: norm(x + αF(x))"),
            "none": Option("none, as published: x + αF(x)", "ReZero: Bachlechner et al. 2020"),
            "pre": Option("before each branch: x + αF(norm(x))"),
        }
    )
    ramp: int = setting(250, "Ramp", "", "Steps in which the ramp's α rises from 0 to 1.", 1, 2000, unit="steps",
                        log=True)
    alpha_rate: float = setting(10.0, "α's own rate", "", "α's learning rate where it has one of its own.", 0.01, 100,
                                unit="× η", log=True)
    rate: float = setting(1.0, "Learning rate", "", "Adam's learning rate, constant, without warm-up.", 0.1, 10,
                          symbol="η", unit="× 0.003", log=True)
    n_layers: Depth = 8
    steps: Steps = 300
    seed: Seed = 0

    def contender(self, schedule: str) -> tuple[Config, Recipe]:
        """A design whose layers have an α, and how it is trained."""
        config = Config(
            norm_placement=self.norm_placement, residual="rezero", n_layers=self.n_layers, seed=self.seed, **SHAPE
        )
        recipe = Recipe(
            learning_rate=self.rate * USUAL, alpha_schedule=schedule, alpha_rate=self.alpha_rate,
            alpha_step=1 / self.ramp,
        )
        return config, recipe


def run(settings: AlphaSchedule, stop: Stop = lambda: False, progress: Progress = lambda _: None,
        look: Look = unseen) -> Trained[AlphaSchedule]:
    """Trains all four side by side.

    Raises:
        Stopped: `stop()` said true.
    """
    field = {name: settings.contender(schedule) for schedule, name in NAMES.items()}
    return train(settings, field, settings.steps, settings.seed, stop, progress, look=look)


def last_alphas(result: Trained[AlphaSchedule]) -> Array:
    """`[layer]` |α| at the last reading, of the contender that learns it with the other weights."""
    return np.asarray(alphas(result.histories[NAMES["learned"]])[1][-1])


def verdict(result: Trained[AlphaSchedule]) -> Verdict:
    """Verdict: the order of the final losses, and whether the ramp, the essay's best, is the best here."""
    settings, alpha = result.settings, last_alphas(result)
    losses = {name: loss if math.isfinite(loss := result.final(name)) else math.inf for name in NAMES.values()}
    ordered = "; ".join(f"{name}: {result.in_words(name)}" for name in sorted(losses, key=losses.__getitem__))
    evidence = (
        f"Held-out loss after {settings.steps} steps, best first: {ordered}. Losses {AS_WELL:g} apart count as equal; "
        f"to count as trained takes {LEARNS:g} below a unigram's {result.levels.unigram:.2f}. A bigram has "
        f"{result.levels.bigram:.2f}. Learned, the layers' |α| end between {alpha.min():.2g} and {alpha.max():.2g}."
    )
    if not result.trains(NAMES["learned"]):
        return "warning", "Not even a learned α trains here: too few steps, or too high a learning rate.", evidence
    if settings.ramp > settings.steps:
        return "warning", "The ramp does not reach 1 within these steps.", evidence
    if not result.trains(NAMES["ramp"]):
        return "warning", "A learned α trains; with this ramp, which is too steep, the model does not.", evidence
    trains = "trains" if result.trains(NAMES["fixed"]) else "does not train"
    whole = f"α = 1 from the start, {WHOLE[settings.norm_placement]}, {trains}"
    better = sum(loss < losses[NAMES["ramp"]] - AS_WELL for loss in losses.values())
    if better:
        rank = ("second", "third", "last")[better - 1]
        return "warning", f"{whole}; the ramp to 1, best in the essay's experience, is {rank} of four here.", evidence
    return "good", f"{whole}; none does better than the ramp to 1, as in the essay's experience.", evidence


def orders(seed: int = 0) -> dict[str, bool]:
    """Statements of the notebook about one seed, for norms after the sums."""
    result = run(AlphaSchedule(seed=seed))
    learned, own_rate, ramp, fixed = (result.final(name) for name in NAMES.values())
    return {
        "α = 1 throughout stays at the unigram's loss": fixed > result.levels.unigram - LEARNS,
        "a ramp to 1 gets below it": result.trains(NAMES["ramp"]),
        "a learned α gets below the ramp": learned < ramp,
        "an α learned at ten times the rate does, too": own_rate < ramp,
        "a learned α stays below 1/2 in every layer": bool(last_alphas(result).max() < 0.5),
    }
