"""α of x + αF(x) in training: learned from 0, learned at a rate of its own, ramped up to 1 by even steps, or 1.

At α = 1 from the first step a contender is plain Post-LN, Pre-LN or a stack without norms, as chosen; the
others start as the identity, with the same weights, and see the same batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field

from explorer.choices import Choices
from explorer.config import Config
from explorer.fields import About, Option
from explorer.labs import Progress, Stop, Verdict
from explorer.labs.trained import AS_WELL, LEARNS, SHAPE, Trained, train
from explorer.training.recipe import Recipe

USUAL = 3e-3
"""Adam's learning rate."""
NAMES: Mapping[str, str] = MappingProxyType({
    "learned": "learned", "own_rate": "learned, own rate", "ramp": "ramp to 1", "fixed": "1 throughout",
})
"""Names of the schedules."""
WHOLE: Mapping[str, str] = MappingProxyType({"post": "Post-LN", "pre": "Pre-LN", "none": "a stack without norms"})
"""Names of the design at α = 1."""


class AlphaSchedule(Choices):
    """The contenders, and the schedules of α."""

    norm_placement: Annotated[
        Literal["post", "none", "pre"],
        About("Norm", "", options={
            "post": Option("after each sum: norm(x + αF(x))"),
            "none": Option("none, as published: x + αF(x)", "ReZero: Bachlechner et al. 2020"),
            "pre": Option("before each branch: x + αF(norm(x))"),
        }),
    ] = Field("post", description="Position of the norm; the schedule matters most where α = 1 does not train.")
    ramp: Annotated[int, Field(ge=1, le=2000), About("Ramp", "", unit="steps", log=True)] = Field(
        250, description="Steps in which the ramp's α rises from 0 to 1."
    )
    alpha_rate: Annotated[float, Field(ge=0.01, le=100), About("α's own rate", "", unit="× η", log=True)] = Field(
        10.0, description="α's learning rate where it has one of its own."
    )
    rate: Annotated[float, Field(ge=0.1, le=10), About("Learning rate", "", "η", "× 0.003", log=True)] = Field(
        1.0, description="Adam's learning rate, constant, without warm-up."
    )
    n_layers: Annotated[int, Field(ge=2, le=24), About("Depth", "", "N", "layers", log=True)] = Field(
        8, description="Layers, 32 wide; time grows with them."
    )
    steps: Annotated[int, Field(ge=20, le=1000), About("Training steps", "", unit="steps", log=True)] = Field(
        300, description="Steps of each of the four contenders; time grows with them."
    )
    seed: Annotated[int, Field(ge=0, le=2**31 - 1), About("Seed", "")] = Field(
        0, description="Seed of the weights and of the batches."
    )

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


@dataclass(frozen=True, eq=False)
class AlphaScheduleResult:
    """All four, trained."""

    settings: AlphaSchedule
    trained: Trained

    def final(self, schedule: str) -> float:
        """Held-out loss after the last step, nats a character; nan for a contender that fell out."""
        return self.trained.curves[NAMES[schedule]].final

    def ended(self, schedule: str) -> float:
        """The same, infinite for a contender that fell out."""
        final = self.final(schedule)
        return final if math.isfinite(final) else math.inf

    @property
    def better(self) -> list[str]:
        """Schedules that ended more than `AS_WELL` below the ramp."""
        return [schedule for schedule in NAMES if self.ended(schedule) < self.ended("ramp") - AS_WELL]

    @property
    def fixed(self) -> bool:
        """Whether α = 1 from the start trains."""
        return self.trained.trains(NAMES["fixed"])


def run(
    settings: AlphaSchedule, stop: Stop = lambda: False, progress: Progress = lambda _: None
) -> AlphaScheduleResult:
    """Trains all four side by side.

    Raises:
        Stopped: `stop()` said true.
    """
    contenders = {name: settings.contender(schedule) for schedule, name in NAMES.items()}
    return AlphaScheduleResult(settings, train(contenders, settings.steps, settings.seed, stop, progress))


def verdict(result: AlphaScheduleResult) -> Verdict:
    """Verdict: the order of the final losses, and whether the ramp, the essay's best, is the best here."""
    settings, trained = result.settings, result.trained
    ended = sorted(NAMES, key=result.ended)
    alpha = trained.curves["learned"].alpha[-1]
    evidence = (
        f"Held-out loss after {settings.steps} steps, best first: {'; '.join(_told(result, name) for name in ended)}; "
        f"{AS_WELL:g} apart counts as equal, {LEARNS:g} below a unigram's {trained.levels.unigram:.2f} as trained. A "
        f"bigram has {trained.levels.bigram:.2f}. Learned, the layers' |α| end between {alpha.min():.2g} and "
        f"{alpha.max():.2g}."
    )
    if not trained.trains("learned"):
        return "warning", "Not even a learned α trains here: too few steps, or too high a learning rate.", evidence
    if settings.ramp > settings.steps:
        return "warning", "The ramp does not reach 1 within these steps.", evidence
    if not trained.trains(NAMES["ramp"]):
        return "warning", "A learned α trains; with this ramp, which is too steep, the model does not.", evidence
    whole = f"α = 1 from the start, {WHOLE[settings.norm_placement]}, {'trains' if result.fixed else 'does not train'}"
    if result.better:
        place = ("second", "third", "last")[len(result.better) - 1]
        return "warning", f"{whole}; the ramp to 1, best in the essay's experience, is {place} of four here.", evidence
    return "good", f"{whole}; none does better than the ramp to 1, as in the essay's experience.", evidence


def _told(result: AlphaScheduleResult, schedule: str) -> str:
    curve = result.trained.curves[NAMES[schedule]]
    return f"{NAMES[schedule]}: {f'out at step {curve.made}' if curve.retired else f'{curve.final:.3g}'}"


def orders(seed: int = 0) -> dict[str, bool]:
    """Statements of the notebook about one seed, for norms after the sums."""
    result = run(AlphaSchedule(seed=seed))
    trains = {schedule: result.trained.trains(name) for schedule, name in NAMES.items()}
    unigram = result.trained.levels.unigram
    return {
        "α = 1 throughout stays at the unigram's loss": result.final("fixed") > unigram - LEARNS,
        "a ramp to 1 gets below it": trains["ramp"],
        "a learned α gets below the ramp": result.final("learned") < result.final("ramp"),
        "an α learned at ten times the rate does, too": result.final("own_rate") < result.final("ramp"),
        "a learned α stays below 1/2 in every layer":
            bool(result.trained.curves[NAMES["learned"]].alpha[-1].max() < 0.5),
    }
