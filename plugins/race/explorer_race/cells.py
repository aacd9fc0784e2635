"""Trained cells of sweeps and maps: an origin of `explorer.sweeping.cell`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from explorer.choices import Choices, ConfigError
from explorer.display import must_be
from explorer.stopping import Stop, Stopped
from explorer.sweeping.cell import Cell, Found, Origin
from explorer_race.recipe import LONGEST, Recipe
from explorer_race.tasks import Task

if TYPE_CHECKING:
    from explorer_race.runner import Contender


@dataclass(frozen=True)
class Training:
    """The training of the cells of a sweep or a map.

    Args:
        recipe: optimizer and schedule.
        task: what is learned; the next character unless said otherwise.
        steps: how long.
    Raises:
        TypeError: an argument is of another kind.
        ConfigError: `steps` is out of range.

    Example:
        ex.sweep(
            ex.Config(n_layers=2),
            over={"learning_rate": [1e-3, 1e-2]},
            origins=["trained"],
            settings=ex.Training(steps=50),
        )
    """

    recipe: Recipe = field(default_factory=Recipe)
    task: Task = field(default_factory=Task)
    steps: int = 200

    varied: ClassVar[type[Choices]] = Recipe

    def __post_init__(self) -> None:
        must_be(Recipe, "recipe", self.recipe)
        must_be(Task, "task", self.task)
        if not 1 <= must_be(int, "steps", self.steps) <= LONGEST:
            raise ConfigError(f"steps must be between 1 and {LONGEST:,}; got {self.steps:,}")

    def vary(self, values: Mapping[str, Any]) -> Training:
        """The training with other values of some fields of its recipe."""
        return replace(self, recipe=self.recipe.replace(**values))

    def plain(self) -> tuple[str, str, int]:
        """Plain values, for `of`."""
        return self.recipe.to_json(), self.task.to_json(), self.steps

    @classmethod
    def of(cls, recipe: str, task: str, steps: int) -> Training:
        """The training that is so as plain values."""
        return cls(Recipe.from_json(recipe), Task.from_json(task), steps)

    def record(self) -> dict[str, Any]:
        """All that decides the numbers, by name."""
        return {
            "recipe": self.recipe.model_dump(),
            "task": self.task.model_dump(),
            "steps": self.steps,
        }


def training_of(cell: Cell) -> Training:
    """The training of a cell; as it is by default where the cell has none."""
    return cell.settings if isinstance(cell.settings, Training) else Training()


def contender_of(cell: Cell) -> Contender:
    """The only contender of the race that trains a cell."""
    from explorer_race.runner import Contender

    training = training_of(cell)
    return Contender("cell", training.task.fit(cell.config), training.recipe)


def find(cell: Cell, stop: Stop) -> Found:
    """Trains a cell's design.

    Raises:
        Stopped: `stop()` said true.
    """
    from explorer_race.race import Race

    training = training_of(cell)
    race = Race([contender_of(cell)], training.task, training.steps, every=training.steps)
    (runner,) = race.runners
    held_out = runner.tensors(runner.data.held_out)
    before = runner.features(held_out)
    if not race.run(stop).finished:
        raise Stopped
    loss, change = race.verdict()[0], runner.features(held_out) - before
    return Found(
        {
            "held_out_loss": loss.final_loss,
            "loss_drop": race.levels.unigram - loss.final_loss,
            "feature_change": float(change.square().mean().sqrt()),
            "steps": float(loss.steps),
        },
        f"training ended at step {loss.retired_at}: {loss.reason}" if loss.reason else "",
    )


def seconds(cell: Cell) -> float:
    """Seconds of one processor that a cell takes, about."""
    config, sizes = cell.config, cell.config.sizes
    work = config.n_seeds * (
        sizes.n_parameters * config.batch_size * config.n_ctx + sizes.activation_bytes
    )
    return training_of(cell).steps * (0.01 + 0.005 * config.n_layers + 1e-10 * work)


def memory(cell: Cell) -> float:
    """Bytes that a cell takes, about."""
    from explorer_race import race

    return race.memory([contender_of(cell)])


NUMBERS = {
    "held_out_loss": ("Held-out loss", "nats"),
    "loss_drop": ("Unigram level − held-out loss", "nats"),
    "feature_change": ("RMS change of what the readout reads of held-out text", "1"),
    "steps": ("Steps that were trained", "steps"),
}
TRAINED = Origin(
    find=find,
    names=lambda _: list(NUMBERS),
    seconds=seconds,
    memory=memory,
    numbers=NUMBERS,
    settings=Training,
    doing="Training",
    words="each cell is trained on text for some steps",
    first="loss_drop",
    usual={
        "learning_rate": (1e-4, 0.1),
        "warmup": (1, 1000),
        "clip": (0, 10),
        "qk_clip": (0, 100),
        "alpha_steps": (1, 1000),
    },
)
