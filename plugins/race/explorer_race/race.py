"""The race: contenders take turns, step by step, on the same batches; a `Race` keeps the
results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from explorer.choices import ConfigError
from explorer.config import Config
from explorer.display import draw, must_be, table
from explorer.limits import NOISE, RESIDENT, claimed, memory_limit
from explorer.measuring.sharing import device, shares, torch_threads
from explorer.text import Text
from explorer.vocabulary import Array
from explorer_race.history import History, Outcome, Standing, Terms
from explorer_race.recipe import LONGEST, Recipe
from explorer_race.runner import Contender, Runner
from explorer_race.tasks import Data, Task, of_prose

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["Contender", "Outcome", "Race", "race"]

MOST = 64
"""Contenders, at most."""
MARGIN = 0.05
"""Nats: a model at the unigram's level varies around it by less."""

WORSE = 1.0
"""Nats above a uniform guess's loss: an untrained model whose output is normalized lies half a nat
above it."""


class Race(Standing):
    """A race, running, stopped or finished. Made by `race`, read from a file by `load`.

    Args:
        contenders: the designs to train, with their recipes.
        task: the task to learn.
        steps: number of steps of each contender.
        every: how often the instruments are on.
        text: the text to learn from; None is Python's prose.
        spectra: whether the instruments read singular values of the updates, too.
        positions: whether they read statistics by token position, too.
    Raises:
        TypeError: an argument is of another kind; names which, and what it must be.
        ConfigError: no contenders or too many, two of one name, shapes that differ, a config that
            cannot learn the task, a text that is too short, or more than memory holds.

    Example:
        >>> task = ex.Task()
        >>> config = task.fit(ex.Config(n_layers=2, d_model=16, n_heads=2, n_ctx=16, batch_size=2))
        >>> race = ex.Race([ex.Contender("Pre-LN", config)], task, steps=2)
        >>> race.step, race.run().finished
        (0, True)
    """

    def __init__(
        self,
        contenders: Sequence[Contender],
        task: Task,
        steps: int,
        every: int = 10,
        text: Text | None = None,
        spectra: bool = False,
        positions: bool = False,
    ) -> None:
        check(contenders, task, steps, every)
        must_be(bool, "spectra", spectra)
        must_be(bool, "positions", positions)
        if text is not None:
            must_be(Text, "text", text)
        self.contenders, self.task, self.steps, self.every = tuple(contenders), task, steps, every
        self.spectra, self.positions = spectra, positions
        first = contenders[0].config
        shape = first.n_ctx, first.batch_size
        self.data = of_prose(task, *shape) if text is None else Data(task, text, *shape)
        self.device = device()
        self.threads = max(
            shares(contender.config.replace(n_seeds=1), self.device)[1] for contender in contenders
        )
        self.runners: tuple[Runner, ...] = tuple(
            Runner(entry, self.data, steps, self.device, spectra, positions) for entry in contenders
        )
        self.levels = self.data.levels

    def run(
        self,
        stop: Callable[[], bool] = lambda: False,
        on_step: Callable[[Race], None] = lambda _: None,
    ) -> Race:
        """Runs from the current step to the end; a race that was stopped before ends as if it had
        not been.

        All takes place in the calling thread.

        Args:
            stop: asked before each step of each contender; once it says true, the race stands
                still.
            on_step: called after each round, in which every contender in the race has made one
                step.
        Returns:
            The race itself.
        Raises:
            ConfigError: on a server, other visitors' computations leave too little memory.
        """
        with claimed(memory(self.contenders)), torch_threads(self.threads):
            for step in range(self.step, self.steps):
                for runner in self.runners:
                    if runner.step > step or runner.retired:
                        continue
                    if stop():
                        return self
                    runner.advance(self.every)
                on_step(self)
                if all(runner.retired for runner in self.runners):
                    break
        return self

    @property
    def terms(self) -> Terms:
        """Everything that it started with."""
        return Terms(
            self.contenders,
            self.task,
            self.steps,
            self.every,
            self.data.text,
            self.spectra,
            self.positions,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies are another race at the same step: models are built again, and take
        the numbers."""
        return (
            Race,
            tuple(self.terms),
            [(runner.state(), runner.history) for runner in self.runners],
        )

    def __setstate__(self, states: list[tuple[dict[str, Any], History]]) -> None:
        """Puts the contenders where those of the pickled race stood."""
        for runner, (state, history) in zip(self.runners, states, strict=True):
            runner.restore(state)
            runner.history = history

    def __copy__(self) -> Race:
        """A deep copy: two races that shared an optimizer's moments would disturb each other."""
        return deepcopy(self)

    def plot(self, curve: str = "held_out_loss") -> go.Figure:
        """A chart of the Race panel; measures the held-out loss where the contenders stand.

        Args:
            curve: held_out_loss, training_loss, gradient_ratio or learning_rate.
        Raises:
            ValueError: there is no such chart; names those there are.
        """
        return draw(self, curve)

    def __repr__(self) -> str:
        who = ", ".join(runner.name for runner in self.runners)
        return f"Race({who}; {self.task!r}, step {self.step} of {self.steps})"

    def _repr_html_(self) -> str:
        """A row a contender: its design and training, the steps it made, its last losses, and why
        it is out."""
        header = ("Contender", "Design", "Training", "Steps", "Training loss", "Held-out loss", "")
        return table(
            f"Race: step {self.step} of {self.steps}, losses in nats a character",
            header,
            [
                (
                    entry.name,
                    entry.config,
                    entry.recipe,
                    runner.step,
                    *runner.history.last_losses(),
                    runner.retired,
                )
                for entry, runner in zip(self.contenders, self.runners, strict=True)
            ],
        )

    def verdict(self) -> list[Outcome]:
        """Result of each contender so far; measures their current held-out loss."""
        with torch_threads(self.threads):
            return [outcome(runner, self.levels.unigram) for runner in self.runners]


def race(
    contenders: Sequence[Contender],
    task: Task | None = None,
    steps: int = 200,
    stop: Callable[[], bool] = lambda: False,
    on_step: Callable[[Race], None] = lambda _: None,
    every: int = 10,
    text: Text | None = None,
    spectra: bool = False,
    positions: bool = False,
) -> Race:
    """Trains the contenders side by side: the same batches in the same order, a step each in turn.

    The same arguments give the same numbers, bit for bit on one machine's CPU. `Race.run` goes on
    with a race that was stopped.

    Args:
        contenders: the designs to train; their configs agree in n_ctx and batch_size, and come from
            `Task.fit`.
        task: the task to learn; None is the next character.
        steps: number of steps of each contender.
        stop: asked before each step of each contender; once it says true, what there is is
            returned.
        on_step: called after each round; it may read the race, which waits for it.
        every: the instruments are on at every step that is a multiple of this.
        text: the text to learn from; None is Python's prose.
        spectra: whether the instruments read the largest singular value and the stable rank of each
            matrix's update, and the largest possible logit of each head, too; the training is the
            same, bit for bit.
        positions: whether they read second moment, correlation, entropy and attention received by
            token position, too, in every layer; so is the training.
    Raises:
        TypeError, ConfigError: see `Race`.

    Example:
        Two designs, in half a minute::

            task = ex.Task()
            contenders = [
                ex.Contender(name, task.fit(ex.preset(name, d_model=64)), ex.Recipe(warmup=100))
                for name in ("post_ln", "pre_ln")
            ]
            race = ex.race(contenders, task, steps=200)
            race.plot()  # held-out loss in nats a character, by step
    """
    return Race(
        contenders, Task() if task is None else task, steps, every, text, spectra, positions
    ).run(stop, on_step)


def race_of(terms: Terms) -> Race:
    """The race with these terms, ready to run.

    Raises:
        ConfigError: see `Race`.
    """
    return Race([Contender(*row) for row in terms.contenders], *terms[1:])


def outcome(runner: Runner, unigram: float) -> Outcome:
    """Result of one contender so far."""
    history = runner.history
    steps, losses = history.series("held_out_loss") if history.steps else (np.zeros(0), np.zeros(0))
    final = math.nan if runner.retired else runner.held_out_loss()
    steps, losses = np.append(steps, runner.step), np.append(losses, final)
    uniform = math.log(runner.data.vocabulary)
    _, ratio = history.gradient_ratio()
    return Outcome(
        name=runner.name,
        steps=runner.step,
        final_loss=final,
        below_unigram=_stays(steps, losses < unigram - MARGIN),
        retired_at=runner.step if runner.retired else None,
        reason=runner.retired,
        ratio_first=float(ratio[0]) if len(ratio) else math.nan,
        ratio_last=float(ratio[-1]) if len(ratio) else math.nan,
        worse_from=_stays(steps, losses > uniform + WORSE),
    )


def _stays(steps: Array, holds: NDArray[np.bool_]) -> int | None:
    """The first step from which on something holds to the end."""
    stays = steps[np.logical_and.accumulate(holds[::-1])[::-1]]
    return int(stays[0]) if len(stays) else None


def check(contenders: Sequence[Contender], task: Task, steps: int, every: int) -> None:
    """Raises TypeError or ConfigError if there are no contenders, their shapes differ, or memory is
    short."""
    must_be(Task, "task", task)
    for number, contender in enumerate(
        contenders if isinstance(contenders, Sequence) else [contenders]
    ):
        must_be(Contender, f"contenders[{number}]", contender)
        must_be(Config, f"contenders[{number}].config", contender.config)
        must_be(Recipe, f"contenders[{number}].recipe", contender.recipe)
    counts = (
        ("contenders", len(contenders), MOST),
        ("steps", steps, LONGEST),
        ("every", every, LONGEST),
    )
    for name, value, most in counts:
        if not 1 <= value <= most:
            raise ConfigError(f"{name} must be between 1 and {most:,}; got {value:,}")
    names = [contender.name for contender in contenders]
    if "" in names or len(set(names)) < len(names):
        raise ConfigError(
            f"contenders must have names of their own; got {', '.join(map(repr, names))}"
        )
    for field in ("n_ctx", "batch_size"):
        values = {getattr(contender.config, field): contender.name for contender in contenders}
        if len(values) > 1:
            got = ", ".join(f"{value} ({name})" for value, name in values.items())
            raise ConfigError(
                f"{field} must be the same for all contenders, which read the same batches; got {got}"
            )
    for contender in contenders:
        task.check(contender.config)
    needed, limit = memory(contenders), memory_limit()
    if needed > limit:
        raise ConfigError(
            f"contenders must fit into {limit / 1e9:.3g} GB together; got about {needed / 1e9:.3g} GB "
            "(EXPLORER_MAX_MEMORY_MB raises the limit)"
        )


def memory(contenders: Sequence[Contender]) -> float:
    """About the bytes that a race takes: weights, gradients and two moments of each, one pass at a
    time."""
    sizes = [contender.config.sizes for contender in contenders]
    weights = sum(4 * size.n_parameters for size in sizes)
    return (
        RESIDENT
        + 4 * weights
        + min(weights, NOISE)
        + 1.6 * max(size.activation_bytes for size in sizes)
    )
