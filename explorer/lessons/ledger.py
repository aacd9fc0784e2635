"""`ledger`: losses of the course's character model after each lesson's repair.

The stored losses are in `ledger.toml`, which `python -m benchmarks.lessons --ledger` writes."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from explorer.choices import ConfigError
from explorer.display import shown, table
from explorer.lessons.picture import Picture
from explorer.translation import translated

FILE = Path(__file__).with_name("ledger.toml")
STEPS = 200
"""Training steps of each row."""
FIRST_DRAWN = 2
"""First lesson of the picture: beside lesson 1's loss of 45 nats all others would look alike."""
LAST = 20
"""Steps at the end whose mean loss is the row's."""


class Row(NamedTuple):
    """One lesson's row."""

    lesson: int
    repair: str
    """The choice that the lesson repairs, as a noun phrase."""
    start: tuple[float, ...]
    """`[seed]` loss of the first step, in nats a letter."""
    losses: tuple[float, ...]
    """`[seed]` mean loss of the last 20 of 200 steps."""

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return float(np.mean(self.losses))

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return float(np.std(self.losses, ddof=1) / len(self.losses) ** 0.5)


@cache
def rows() -> tuple[Row, ...]:
    """The stored rows, by lesson."""
    stored = tomllib.loads(FILE.read_text(encoding="utf-8"))["row"]
    return tuple(
        Row(row["lesson"], row["repair"], tuple(row["start"]), tuple(row["losses"]))
        for row in stored
    )


class Ledger:
    """The ledger as a cell shows it: a picture and a table.

    Args:
        lesson: the last lesson that is shown.
        losses: `[step]` the student's own losses, or the last of them alone; empty for none.
    """

    def __init__(self, lesson: int, losses: list[float]) -> None:
        self.rows = [row for row in rows() if row.lesson <= lesson]
        self.losses = losses

    @property
    def loss(self) -> float | None:
        """The student's own loss, a mean over the last steps."""
        return float(np.mean(self.losses[-LAST:])) if self.losses else None

    def figure(self) -> go.Figure:
        """Mean loss by lesson, with two standard errors on each side; from `FIRST_DRAWN` on."""
        drawn = [row for row in self.rows if row.lesson >= FIRST_DRAWN]
        lessons = [row.lesson for row in drawn]
        means = np.array([row.mean for row in drawn])
        errors = np.array([row.error for row in drawn])
        figure = go.Figure().add_scatter(
            x=lessons, y=means, mode="lines+markers", name=translated("mean")
        )
        upper, lower = translated("mean, + 2 errors"), translated("mean, − 2 errors")
        figure.add_scatter(x=lessons, y=means + 2 * errors, name=upper, line_dash="dot")
        figure.add_scatter(x=lessons, y=means - 2 * errors, name=lower, line_dash="dot")
        if self.loss is not None:
            yours = translated("yours")
            figure.add_scatter(x=lessons[-1:], y=[self.loss], mode="markers", name=yours)
        title = translated("Loss after {steps} steps", steps=STEPS)
        return _named(figure, title, translated("lesson"))

    def curve(self) -> go.Figure:
        """The student's own losses by step, and the row's mean as a level."""
        figure = go.Figure().add_scatter(y=self.losses, name=translated("your losses"))
        level = [self.rows[-1].mean] * len(self.losses)
        stored = translated("stored mean of the last steps")
        figure.add_scatter(y=level, name=stored, line_dash="dot")
        title = translated("Lesson {lesson}: loss by step", lesson=self.rows[-1].lesson)
        return _named(figure, title, translated("step"))

    def _cells(self) -> list[tuple[str, str, str, str]]:
        lines = [
            (
                str(row.lesson),
                translated(row.repair),
                f"{np.mean(row.start):.2f}",
                f"{row.mean:.3f} ± {row.error:.3f}",
            )
            for row in self.rows
        ]
        if self.loss is not None:
            lines.append((translated("yours"), "", "", f"{self.loss:.3f}"))
        return lines

    def __repr__(self) -> str:
        return "\n".join(" | ".join(line) for line in self._cells())

    def _repr_html_(self) -> str:
        seeds = len(self.rows[0].losses)
        header = (
            translated("lesson"),
            translated("repair"),
            translated("first step"),
            translated("after {steps} steps", steps=STEPS),
        )
        caption = translated(
            "Loss in nats a letter: mean over {seeds} seeds ± standard error", seeds=seeds
        )
        figures = []
        if len(self.losses) > 1:
            figures.append(self.curve())
        if self.rows[-1].lesson > FIRST_DRAWN:  # a single dot is no picture
            figures.append(self.figure())
        images = "".join(Picture(figure)._repr_html_() for figure in figures)
        return images + table(caption, header, self._cells())


def _named(figure: go.Figure, title: str, across: str) -> go.Figure:
    """The figure with its title, and with names of its axes: the vertical one is a loss."""
    loss = translated("loss (nats)")
    return figure.update_layout(title_text=title, xaxis_title=across, yaxis_title=loss)


def ledger(lesson: int, loss: float | Sequence[float] | None = None) -> Ledger:
    """Losses of the course's character model after each repair up to a lesson, and your own.

    Args:
        lesson: the last lesson to show.
        loss: your own, in nats a letter: the losses of all steps, which are drawn, and of which
            the last 20 are averaged; or one number.
    Raises:
        ConfigError: the ledger has no such lesson.

    Example:
        >>> ex.ledger(1).rows[0].repair
        'nothing yet: every choice is wrong on purpose'
    """
    if lesson not in [row.lesson for row in rows()]:
        last = rows()[-1].lesson
        raise ConfigError(f"lesson must be a whole number from 1 to {last}; got {shown(lesson)}")
    losses = [] if loss is None else [float(value) for value in np.atleast_1d(loss)]
    return Ledger(lesson, losses)
