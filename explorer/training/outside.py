"""A race outside this process: a task, `race`. Its worker tells how the race stands, and `Record` keeps what was told.

Only what is new is told: the readings of a long race are too many to be sent every second. No torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from explorer import tasks
from explorer.choices import ConfigError, FieldName
from explorer.config import Config
from explorer.profile import Array
from explorer.stopping import Progress, Stop
from explorer.tasks.frames import Arrays, packed, unpacked
from explorer.tasks.pool import Order
from explorer.tasks.pool import Task as Request
from explorer.text import Text
from explorer.training.history import Entrant, History, Line, Outcome, Standing
from explorer.training.recipe import Recipe
from explorer.training.tasks import Levels, Task


def news_of(raw: bytes) -> tuple[dict[str, Any], Arrays]:
    """The values and arrays that a worker told, from the bytes of `telling.compute`.

    Raises:
        ConfigError: they are a refusal.
    """
    about, arrays = unpacked(raw)
    if "refused" in about:
        raise ConfigError(*(part if isinstance(part, str) else FieldName(*part) for part in about["refused"]))
    return about, arrays


class Terms(NamedTuple):
    """Everything that a race starts with: see `Race`."""

    contenders: Sequence[tuple[str, Config, Recipe]]
    task: Task
    steps: int
    every: int
    text: Text | None = None

    def parts(self) -> tuple[dict[str, object], Arrays]:
        """All of it as plain values and arrays, for `packed`."""
        contenders = [[name, config.to_json(), recipe.to_json()] for name, config, recipe in self.contenders]
        about = {"contenders": contenders, "task": self.task.to_json(), "steps": self.steps, "every": self.every,
                 "vocabulary": "".join(self.text.vocabulary) if self.text else ""}
        return about, {"text": self.text.codes.astype(np.int16)} if self.text else {}

    @classmethod
    def of(cls, about: Mapping[str, Any], arrays: Arrays) -> Terms:
        """The terms with these parts."""
        contenders = [(name, Config.from_json(config), Recipe.from_json(recipe))
                      for name, config, recipe in about["contenders"]]
        codes = arrays.get("text")
        text = None if codes is None else Text(codes.astype(np.int64), tuple(about["vocabulary"][: len(codes)]))
        return cls(contenders, Task.from_json(about["task"]), about["steps"], about["every"], text)


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

    def take(self, about: Mapping[str, Any], arrays: Arrays) -> None:
        """Takes news, from `news_of`."""
        self.levels = Levels(*about["levels"])
        self.outcomes = [Outcome(*values) for values in about["outcomes"]]
        self.lines |= {name: Line(*words) for name, words in about["lines"].items()}
        self.archive = arrays["archive"].tobytes() if "archive" in arrays else b""
        for number, (runner, news) in enumerate(zip(self.runners, about["runners"], strict=True)):
            runner.step, runner.retired = news["step"], news["retired"]
            add(runner.history, news, arrays[f"losses {number}"], arrays[f"readings {number}"])

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
        task = request("go on", self.archive) if self.archive else request("begin", packed(*self.terms.parts()))
        self.archive = b""
        for _, answer in tasks.answers([task], stop, early):
            if news := answer.result or answer.so_far:
                self.take(*news_of(news))
                yield
            else:
                progress(answer.progress)


def request(verb: str, data: bytes, name: str = "race", order: Order = Order.LONG) -> Request:
    """A task for `telling.compute`. No two are equal: who stops a race does not stop another's."""
    return Request("race", json.dumps({"verb": verb, "name": name, "number": uuid4().hex}), order, data)


def load(raw: bytes, name: str, stop: Stop) -> Record:
    """A saved race, which a worker reads.

    Args:
        name: of the file, for a refusal.
    Raises:
        Stopped, ConfigError, TaskError: see `Record.follow`.
    """
    [(_, answer)] = tasks.answers([request("read", raw, name, Order.FIRST_SEEDS)], stop)
    about, arrays = news_of(answer.result or b"")
    record = Record(Terms.of(about, arrays))
    record.take(about, arrays)
    record.archive = raw
    return record


# Histories, of which what is new is sent.


def since(history: History, losses: int, readings: int) -> tuple[dict[str, object], Arrays]:
    """The part of a history beyond so many losses and readings: for `add`, with the losses and `[reading, number]`."""
    shapes = [(*key, np.shape(values[0])) for key, values in history.values.items()]
    count = len(history.steps) - readings
    parts = [np.reshape(values[readings:], (count, -1 if count else 0)) for values in history.values.values()]
    return (
        {"since": (losses, readings), "steps": history.steps[readings:], "shapes": shapes},
        {"losses": np.array(history.losses[losses:]), "readings": np.concatenate([np.empty((count, 0)), *parts], 1)},
    )


def add(history: History, news: Mapping[str, Any], losses: Array, readings: Array) -> None:
    """Adds what `since` gave; what stands there already is of a worker that is no more, and is told again.

    Raises:
        ValueError: something between is missing.
    """
    first_loss, first = news["since"]
    if first_loss > len(history.losses) or first > len(history.steps):
        raise ValueError(f"news of a race must go on at loss {len(history.losses)}; got some from {first_loss} on")
    history.losses[first_loss:], history.steps[first:] = losses.tolist(), news["steps"]
    start = 0
    for statistic, site, shape in news["shapes"]:
        part = readings[:, start : start + math.prod(shape)]
        start += math.prod(shape)
        held = history.values[statistic, site]
        held.extend(np.full(shape, np.nan) for _ in range(first - len(held)))
        held[first:] = part.reshape(len(part), *shape)
