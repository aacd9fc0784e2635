"""α of x + αF(x) in training: learned from 0, learned at a rate of its own, ramped up to 1 by even steps, or 1.

At α = 1 from the first step a contender is plain Post-LN, Pre-LN or a stack without norms, whichever is chosen; the
others start as the identity, with the same weights, and see the same batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field

from explorer.choices import Choices
from explorer.config import Config
from explorer.fields import About, Option
from explorer.labs import Progress, Stop, Verdict
from explorer.labs.trained import LEARNS, SHAPE, Trained, train
from explorer.training.recipe import Recipe

USUAL = 3e-3
"""Adam's learning rate."""
NAMES: Mapping[str, str] = MappingProxyType({
    "learned": "learned", "own_rate": "learned, own rate", "ramp": "ramp to 1", "fixed": "1 throughout",
})
"""What becomes of α, as it is called."""
WHOLE: Mapping[str, str] = MappingProxyType({"post": "Post-LN", "pre": "Pre-LN", "none": "a stack without norms"})
"""What α = 1 is."""


class AlphaSchedule(Choices):
    """What the contenders are, and how α goes."""

    norm_placement: Annotated[
        Literal["post", "none", "pre"],
        About("Norm", "", options={
            "post": Option("behind each sum: norm(x + αF(x))"),
            "none": Option("none, as published: x + αF(x)", "ReZero: Bachlechner et al. 2020"),
            "pre": Option("before each branch: x + αF(norm(x))"),
        }),
    ] = Field("post", description="Where the norm stands; where α = 1 makes trouble, its schedule matters most.")
    ramp: Annotated[int, Field(ge=1, le=2000), About("Ramp", "", unit="steps", log=True)] = Field(
        250, description="Steps in which the ramp's α comes from 0 to 1."
    )
    alpha_rate: Annotated[float, Field(ge=0.01, le=100), About("α's own rate", "", unit="× η", log=True)] = Field(
        10.0, description="α's learning rate where it has one of its own."
    )
    rate: Annotated[float, Field(ge=0.1, le=10), About("Learning rate", "", "η", "× 0.003", log=True)] = Field(
        1.0, description="Adam's, constant, without warm-up."
    )
    n_layers: Annotated[int, Field(ge=2, le=24), About("Depth", "", "N", "layers", log=True)] = Field(
        8, description="Layers, 32 wide; time grows with them."
    )
    steps: Annotated[int, Field(ge=20, le=1000), About("Training steps", "", unit="steps", log=True)] = Field(
        300, description="Steps of each contender; four of them take their turns. Time grows with the steps."
    )
    seed: Annotated[int, Field(ge=0, le=2**31 - 1), About("Seed", "")] = Field(
        0, description="Of the weights and of the batches."
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
        """Held-out loss behind the last step, nats a character; nan for a contender that fell out."""
        return self.trained.curves[NAMES[schedule]].final


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
    """Who trains, and whether it matters where α begins."""
    settings, trained = result.settings, result.trained
    whole = WHOLE[settings.norm_placement]
    evidence = (
        f"Held-out loss behind {settings.steps} steps: {'; '.join(_told(result, name) for name in NAMES)}. A unigram "
        f"has {trained.levels.unigram:.2f}, a bigram {trained.levels.bigram:.2f}. Learned, the layers' |α| end "
        f"between {trained.curves['learned'].alpha[-1].min():.2g} and {trained.curves['learned'].alpha[-1].max():.2g}."
    )
    if not trained.trains("learned"):
        return "warning", "Not even a learned α trains here: too few steps, or too large ones.", evidence
    if settings.ramp > settings.steps:
        return "warning", "The ramp does not come to 1 within these steps.", evidence
    ramp, fixed = (trained.trains(NAMES[schedule]) for schedule in ("ramp", "fixed"))
    if not ramp:
        return "warning", "A learned α trains; this ramp is too steep, and what it comes to is not trained.", evidence
    if fixed:
        return "good", f"All train: α = 1 from the start, {whole}, is no trouble here.", evidence
    return "good", f"α = 1 from the start, {whole}, does not train; coming from α = 0 the same network does.", evidence


def _told(result: AlphaScheduleResult, schedule: str) -> str:
    curve = result.trained.curves[NAMES[schedule]]
    return f"{NAMES[schedule]}: {f'out at step {curve.made}' if curve.retired else f'{curve.final:.3g}'}"


def orders(seed: int = 0) -> dict[str, bool]:
    """What the notebook states of one seed, of norms behind the sums."""
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
