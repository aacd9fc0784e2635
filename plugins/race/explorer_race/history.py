"""The numbers of a race: readings of each contender's instruments by step, its result, and a line
that it wrote.

`Record` has those of a race that a worker runs. Plain values, without torch.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import numpy as np

from explorer import tasks
from explorer.choices import ConfigError, FieldName
from explorer.config import Config
from explorer.profile import tidy
from explorer.sites import BRANCHES, MATRICES, STREAM
from explorer.stopping import Progress, Stop
from explorer.tasks.frames import packed, unpacked
from explorer.tasks.pool import Order
from explorer.tasks.pool import Task as Request
from explorer.text import Text
from explorer.vocabulary import STATISTICS, WEIGHT_STATISTICS, Array, Key, Statistic
from explorer_race.recipe import Recipe
from explorer_race.tasks import Levels, Task

if TYPE_CHECKING:
    import pandas as pd

NO_SITE = ""
"""Site of a statistic of the whole model."""

TRAINING: Mapping[str, Statistic] = MappingProxyType(
    {
        row.name: row
        for row in (
            Statistic(
                "train_loss",
                "Training loss",
                "L",
                "cross-entropy of the step's batch, nats a character",
                (NO_SITE,),
                "nats a character",
            ),
            Statistic(
                "held_out_loss",
                "Held-out loss",
                "L",
                "cross-entropy of the held-out sequences, nats a character",
                (NO_SITE,),
                "nats a character",
            ),
            Statistic(
                "learning_rate",
                "Learning rate",
                "η",
                "of the step, before μP's powers of the width",
                (NO_SITE,),
                "1",
                log=True,
            ),
            Statistic(
                "stream_gradient",
                "Stream gradient",
                "‖∂L/∂x‖",
                "Frobenius norm of the loss gradient by the stream",
                STREAM,
                "loss",
                log=True,
                backward=True,
            ),
            Statistic(
                "update_ratio",
                "Update to weight",
                "‖ΔW‖ / ‖W‖",
                "norm of a step's change of a matrix over its own",
                MATRICES,
                log=True,
            ),
            # Kosson et al. 2023, arXiv 2305.17212; see `own.equilibrium`
            Statistic(
                "equilibrium_update",
                "Update at equilibrium",
                "‖ΔW‖ / ‖W‖",
                "update to weight at which weight decay "
                "balances the steps of SGD or AdamW, where gradients are orthogonal to the matrix",
                MATRICES,
                log=True,
            ),
            # Yang, Simon & Bernstein 2023, arXiv 2310.17813, condition 1: ‖ΔW‖₂ ~ √(fan_out /
            # fan_in) at every width
            Statistic(
                "update_spectral_norm",
                "Spectral norm of updates",
                "‖ΔW‖₂ √(fan_in / fan_out)",
                "largest singular value of a step's change of a matrix over √(fan_out / fan_in): the most that the "
                "step adds to the RMS of an output, over the input's",
                MATRICES,
                log=True,
                marks={1.0: "‖ΔW‖₂ = √(fan_out / fan_in)"},
            ),
            Statistic(
                "update_stable_rank",
                "Stable rank of updates",
                "‖ΔW‖_F² / ‖ΔW‖₂²",
                "sum of the squared singular values of a step's change of a matrix over the largest's",
                MATRICES,
                log=True,
                marks={1.0: "one direction"},
            ),
            Statistic(
                "alpha",
                "Residual α",
                "α",
                "what multiplies a branch, mean over coordinates where it has several",
                BRANCHES,
                "1",
            ),
            WEIGHT_STATISTICS["largest_possible_logit"],
            WEIGHT_STATISTICS["logit_rank"],
            *(row for row in STATISTICS.values() if row.name != "activation_gradient"),
        )
    }
)
"""All statistics of the instruments; a step's number is of the weights that so many steps have
made."""
ON_REQUEST = (
    "update_spectral_norm",
    "update_stable_rank",
    "largest_possible_logit",
    "logit_rank",
    *(name for name, row in STATISTICS.items() if row.by_position),
)
"""Statistics of a race with `spectra=True` alone, and those by position, with `positions=True`."""


class History:
    """A contender's numbers: the training loss of every step, everything else when the instruments
    were on.

    A step is counted by the steps made before it: what stands at step 0 is of the model as it was
    drawn."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.steps: list[int] = []
        """Steps with readings."""
        self.values: defaultdict[Key, list[Array]] = defaultdict(list)

    def record(self, step: int, reading: Mapping[Key, Array]) -> None:
        """Adds one reading: statistic and site to a number, `[layer]` or `[layer, head]`.

        What an earlier reading had and this one has not, or the other way round, is nan there.
        """
        for key in dict.fromkeys([*self.values, *reading]):  # in one order in every process
            held = self.values[key]
            missing = np.full_like(
                reading[key] if key in reading else held[0], np.nan, dtype=np.float64
            )
            held.extend(missing for _ in range(len(self.steps) - len(held)))
            held.append(np.array(reading[key], dtype=np.float64) if key in reading else missing)
        self.steps.append(step)

    def since(self, losses: int, readings: int) -> dict[str, Any]:
        """The part beyond so many losses and readings, plain values and arrays; for `add`."""
        return {
            "since": (losses, readings),
            "losses": np.array(self.losses[losses:]),
            "steps": self.steps[readings:],
            "values": [
                [*key, np.stack(new)]
                for key, held in self.values.items()
                if (new := held[readings:])
            ],
        }

    def add(self, news: Mapping[str, Any]) -> None:
        """Adds what `since` gave; what stands there already is of a worker that is no more, and is
        told again.

        Raises:
            ValueError: something between is missing.
        """
        first_loss, first = news["since"]
        if first_loss > len(self.losses) or first > len(self.steps):
            raise ValueError(
                f"news of a race must go on at loss {len(self.losses)}; got some from {first_loss} on"
            )
        self.losses[first_loss:], self.steps[first:] = news["losses"].tolist(), news["steps"]
        for held in self.values.values():
            del held[first:]
        for statistic, site, new in news["values"]:
            held = self.values[statistic, site]
            held.extend([np.full(new.shape[1:], np.nan)] * (first - len(held)))
            held.extend(new)

    def series(self, statistic: str, site: str = NO_SITE) -> tuple[Array, Array]:
        """Steps `[reading]`, and a statistic at a site: `[reading]`, `[reading, layer]`, or
        `[reading, layer, head]` or `[reading, layer, position]`.

        Raises:
            KeyError: the instruments have no such statistic.
        """
        if statistic == "train_loss":
            return np.arange(len(self.losses), dtype=np.float64), np.array(self.losses)
        if (statistic, site) not in self.values:
            held = ", ".join(f"{name}@{place}" if place else name for name, place in self.values)
            raise KeyError(f"this history has no {statistic} at {site!r}; it has {held}")
        return np.array(self.steps, dtype=np.float64), np.stack(self.values[statistic, site])

    def matrices(self, statistic: str) -> tuple[Array, Array]:
        """Steps `[reading]`, and a statistic of every matrix of a layer, `[matrix, reading,
        layer]`.

        No steps and no matrices where it was never read.
        """
        pairs = [
            self.series(statistic, name) for name in MATRICES if (statistic, name) in self.values
        ]
        return (
            (pairs[0][0], np.stack([values for _, values in pairs]))
            if pairs
            else (np.zeros(0), np.zeros((0, 0, 0)))
        )

    def layer_gradient(self) -> tuple[Array, Array]:
        """Steps `[reading]`, and the norm of the gradient by all matrices of a layer, `[reading,
        layer]`.

        No steps and no layers where it was never read.
        """
        steps, values = self.matrices("parameter_gradient")
        with np.errstate(over="ignore", invalid="ignore"):
            return steps, np.linalg.norm(values, axis=0)

    def gradient_ratio(self) -> tuple[Array, Array]:
        """Steps `[reading]`, and the first layer's gradient over the last layer's; nan where both
        are zero."""
        steps, norms = self.layer_gradient()
        with np.errstate(all="ignore"):  # an identity at initialization has no gradients at all
            return steps, norms[:, 0] / norms[:, -1] if norms.size else np.zeros(0)

    def last_losses(self) -> tuple[float, float]:
        """The latest training loss and the latest held-out loss that was read; nan where there is
        none."""
        held_out = self.values.get(("held_out_loss", NO_SITE), [])
        return (self.losses or [math.nan])[-1], float(held_out[-1]) if held_out else math.nan

    def frame(self) -> pd.DataFrame:
        """Tidy: one number a row; columns step, statistic, site, layer, head, position, value.

        Layers count from 1, and 0 is the input, positions from 0; `layer`, `head` and `position`
        are missing (<NA>) where a statistic has none."""
        import pandas as pd

        parts, losses = [], [("train_loss", NO_SITE)] if self.losses else []
        for key in (*losses, *self.values):
            steps, values = self.series(*key)
            part = tidy(key, values).rename(columns={"row": "step"})
            parts.append(part.assign(step=steps[part.step].astype(np.int64)))
        return pd.concat(parts, ignore_index=True)


class Outcome(NamedTuple):
    """Result of one contender."""

    name: str
    steps: int
    """Steps made."""
    final_loss: float
    """Held-out loss of the weights as they are now, nats a character; nan once retired."""
    below_unigram: int | None
    """The step from which on the held-out loss stayed below the unigram's by more than
    `race.MARGIN`, if any."""
    retired_at: int | None
    """The step that could not be made; None if all could."""
    reason: str
    """The reason why not; empty if nothing went wrong."""
    ratio_first: float
    """Norm of the gradients by the first layer's matrices over those by the last layer's, at step
    0; nan where both are zero, as where α is."""
    ratio_last: float
    """This ratio at the last step at which the instruments were on."""
    worse_from: int | None = None
    """The step from which on the held-out loss stayed above a uniform guess's by more than
    `race.WORSE`; None if it did not, or the contender is retired."""

    @property
    def diverged(self) -> bool:
        """Whether it could not continue, or ended far worse than a uniform guess."""
        return self.retired_at is not None or self.worse_from is not None


class Line(NamedTuple):
    """A line of a contender."""

    given: str
    """The held-out text before it; empty where characters are filled in."""
    written: str
    """Text that the contender wrote; where it fills in, the whole text with its characters in
    brackets."""


class Entrant:
    """A contender in a race, as far as it has come; a `Runner` has its model, too.

    Args:
        name, config: of the contender.
    """

    def __init__(self, name: str, config: Config) -> None:
        self.name, self.config, self.history, self.step = name, config, History(), 0
        self.retired = ""
        """The reason why it is out of the race; empty while it is not."""


class Standing:
    """The numbers of a race, without its models."""

    runners: Sequence[Entrant]
    steps: int
    """Number of steps of each contender."""
    levels: Levels
    """The unigram's and the bigram's loss on the held-out characters."""

    @property
    def step(self) -> int:
        """Steps that every contender still in the race has made."""
        return min(
            (runner.step for runner in self.runners if not runner.retired), default=self.steps
        )

    @property
    def finished(self) -> bool:
        """Whether nothing is left to run."""
        return self.step >= self.steps

    @property
    def histories(self) -> dict[str, History]:
        """Each contender's numbers, by its name."""
        return {runner.name: runner.history for runner in self.runners}

    def frame(self) -> pd.DataFrame:
        """Tidy: one number a row; columns contender, step, statistic, site, layer, head, position,
        value."""
        import pandas as pd

        frames = [
            history.frame().assign(contender=name)
            for name, history in self.histories.items()
            if history.losses
        ]
        columns = ["contender", "step", "statistic", "site", "layer", "head", "position", "value"]
        return (
            pd.concat(frames, ignore_index=True)[columns]
            if frames
            else pd.DataFrame(columns=columns)
        )


# A race outside this process: a task, `race`. Its worker tells how the race stands, and `Record`
# keeps what was told. Only what is new is told: the readings of a long race are too many to be sent
# every second.


def news_of(raw: bytes) -> dict[str, Any]:
    """The news of a worker, from the bytes of `telling.compute`.

    Raises:
        ConfigError: it is a refusal.
    """
    news: dict[str, Any] = unpacked(raw)
    if "refused" in news:
        raise ConfigError(
            *(part if isinstance(part, str) else FieldName(*part) for part in news["refused"])
        )
    return news


class Terms(NamedTuple):
    """Everything that a race starts with: see `Race`."""

    contenders: Sequence[tuple[str, Config, Recipe]]
    task: Task
    steps: int
    every: int
    text: Text | None = None
    spectra: bool = False
    positions: bool = False

    def plain(self) -> dict[str, Any]:
        """All of it as plain values, and the text as an array, for `packed`."""
        contenders = [
            [name, config.to_json(), recipe.to_json()] for name, config, recipe in self.contenders
        ]
        plain = {
            "contenders": contenders,
            "task": self.task.to_json(),
            "steps": self.steps,
            "every": self.every,
            "spectra": self.spectra,
            "positions": self.positions,
        }
        if not self.text:
            return plain
        return {
            **plain,
            "vocabulary": "".join(self.text.vocabulary),
            "text": self.text.codes.astype(np.int16),
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Terms:
        """The terms that are so as plain values."""
        contenders = [
            (name, Config.from_json(config), Recipe.from_json(recipe))
            for name, config, recipe in plain["contenders"]
        ]
        codes = plain.get("text")
        text = (
            None
            if codes is None
            else Text(codes.astype(np.int64), tuple(plain["vocabulary"][: len(codes)]))
        )
        return cls(
            contenders,
            Task.from_json(plain["task"]),
            plain["steps"],
            plain["every"],
            text,
            *(plain.get(name, False) is True for name in ("spectra", "positions")),
        )


class Record(Standing):
    """A race that runs elsewhere, as far as it was told: a `Race` without its models.

    Args:
        terms: everything that the race starts with.
    """

    def __init__(self, terms: Terms) -> None:
        self.terms, self.steps = terms, terms.steps
        self.runners = [Entrant(name, config) for name, config, _ in terms.contenders]
        self.levels = Levels(math.nan, math.nan)
        self.outcomes: list[Outcome] = []
        self.lines: dict[str, Line] = {}
        """The latest line of each contender, by name."""
        self.archive = b""
        """The saved race, of one that stands still and is not too large; see `archive.to_bytes`."""

    def take(self, news: Mapping[str, Any]) -> None:
        """Takes news, from `news_of`."""
        self.levels = Levels(*news["levels"])
        self.outcomes = [Outcome(*values) for values in news["outcomes"]]
        self.archive = news["archive"].tobytes() if "archive" in news else b""
        for runner, state in zip(self.runners, news["runners"], strict=True):
            runner.step, runner.retired = state["step"], state["retired"]
            runner.history.add(state)
            if state["line"]:
                self.lines[runner.name] = Line(*state["line"])

    def follow(self, stop: Stop, early: Stop, progress: Progress) -> Iterator[None]:
        """Has a worker run the race from where it stands; yields whenever news were taken.

        Args:
            early: asked whether the race is to stand still now.
            progress: told the share of the steps that are made.
        Raises:
            Stopped: `stop()` said true.
            ConfigError: the race was refused.
            TaskError: the worker failed, or was killed.
        """
        task = (
            request("go on", self.archive)
            if self.archive
            else request("begin", packed(self.terms.plain()))
        )
        self.archive = b""
        for _, answer in tasks.answers([task], stop, early):
            if news := answer.result or answer.so_far:
                self.take(news_of(news))
                yield
            else:
                progress(answer.progress)


def request(verb: str, data: bytes) -> Request:
    """A task for `telling.compute`. No two are equal: who stops a race does not stop another's."""
    return Request("race", json.dumps({"verb": verb, "number": uuid4().hex}), Order.LONG, data)
