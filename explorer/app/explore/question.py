"""Questions about a design, asked before it is measured: the charts they withhold, and their answer
to a guess."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike

from explorer.config import Config
from explorer.display import shown
from explorer.figures import FIGURES
from explorer.figures.data import Plain
from explorer.figures.layers import asked, with_guess, withheld
from explorer.figures.series import Series, by_depth
from explorer.numbers import number
from explorer.profile import Profile
from explorer.vocabulary import STATISTICS, Array, Statistic

if TYPE_CHECKING:
    from explorer.app.widgets.chart import Chart

# Guesses of a curve, made before it is measured: the depths asked for, and how far a guess is from
# what came out.


def depths(first: int, last: int, most: int = 6) -> list[int]:
    """Whole depths from the first to the last layer, evenly spread, both ends among them; at most
    so many."""
    return list(dict.fromkeys(round(depth) for depth in np.linspace(first, last, most)))


def checked(guess: object, count: int, low: float, high: float) -> list[float]:
    """A guess that came from a browser, as numbers.

    Args:
        count: heights that it must have.
        low, high: ends of the axis; exponents where it is logarithmic.
    Raises:
        ValueError: it is not a list of so many finite numbers on the axis.
    """
    if not isinstance(guess, list) or len(guess) != count:
        raise ValueError(f"a guess must be a list of {count} heights; got {shown(guess)}")
    for height in guess:
        if (
            isinstance(height, bool)
            or not isinstance(height, int | float)
            or not low <= height <= high
        ):
            raise ValueError(
                f"each height of a guess must be between {low:g} and {high:g}; got {shown(height)}"
            )
    return [float(height) for height in guess]


def between(at: ArrayLike, heights: Sequence[float], where: ArrayLike) -> Array:
    """Heights of the line through a guess, at other depths; beyond its ends it is level."""
    return np.asarray(
        np.interp(np.asarray(where, dtype=float), np.asarray(at, dtype=float), heights)
    )


def apart(curve: ArrayLike, other: ArrayLike, *, log: bool) -> float:
    """Distance of two curves: the mean factor between them, at least 1, or the mean absolute
    difference.

    Depths at which either has no place on the axis do not count; nan where none is left.

    Args:
        log: whether the axis is logarithmic, and the distance a factor: the geometric mean of those
            at each depth.
    """
    first, second = np.asarray(curve, dtype=float), np.asarray(other, dtype=float)
    keep = np.isfinite(first) & np.isfinite(second) & (((first > 0) & (second > 0)) | (not log))
    if not keep.any():
        return math.nan
    first, second = first[keep], second[keep]
    return (
        float(np.exp(np.mean(np.abs(np.log(first / second)))))
        if log
        else float(np.mean(np.abs(first - second)))
    )


def in_words(distance: float, *, log: bool) -> str:
    """A mean distance: "by a factor of 1.9", "by 0.31"."""
    if math.isnan(distance):
        return "where nothing can be compared"
    return f"by a factor of {number(distance)}" if log else f"by {number(distance, 2)}"


@dataclass(frozen=True)
class Question:
    """Fields and checks that both kinds of question share."""

    text: str
    chart: str
    """The chart that it is about: a row of `FIGURES` that shows a statistic by layer."""
    extent: tuple[float, float]
    """Ends of that chart's axis while the question stands; exponents where it is logarithmic."""
    reveal: str
    """The answer, in a sentence or two on the measurement."""

    @property
    def statistic(self) -> Statistic:
        """The one that is asked about."""
        return STATISTICS[FIGURES[self.chart].statistic]

    def check(self, guess: object, layers: int) -> Any:
        """A guess that came from a browser.

        Raises:
            ValueError: it is none.
        """
        raise NotImplementedError

    def judge(self, guess: Any, measured: Profile, predicted: Profile | None) -> str:
        """A sentence that says how near a guess was."""
        raise NotImplementedError


@dataclass(frozen=True)
class Choose(Question):
    """A question with some answers, one of which is right."""

    options: tuple[str, ...] = ()
    right: Callable[[Profile], int] = lambda _: 0
    """The option that a measured profile makes right."""

    def check(self, guess: object, layers: int) -> int:  # noqa: ARG002 - options do not depend on the depth
        """The index of an option."""
        if (
            isinstance(guess, bool)
            or not isinstance(guess, int)
            or not 0 <= guess < len(self.options)
        ):
            raise ValueError(f"an answer must be one of {len(self.options)}; got {shown(guess)}")
        return guess

    def judge(self, guess: Any, measured: Profile, predicted: Profile | None) -> str:  # noqa: ARG002 - measured decides
        """Whether the option is the right one."""
        right = self.options[self.right(measured)]
        return (
            "You were right."
            if self.options[guess] == right
            else f"Not so. The right answer: {right.lower()}."
        )


@dataclass(frozen=True)
class Draw(Question):
    """A question that is answered by a line on the chart."""

    def depths(self, layers: int) -> list[int]:
        """Depths at which a guess has its points."""
        return depths(0 if self.statistic.on_stream else 1, layers)

    def check(self, guess: object, layers: int) -> list[float]:
        """The heights at those depths."""
        return checked(guess, len(self.depths(layers)), *self.extent)

    def values(self, guess: list[float], layers: int, where: Any) -> Any:
        """The line of a guess at some depths, in the statistic's unit."""
        heights = between(self.depths(layers), guess, where)
        return 10.0**heights if self.statistic.log else heights

    def judge(self, guess: Any, measured: Profile, predicted: Profile | None) -> str:
        """The mean distances of the line that was drawn, and of theory's, from the dots."""
        log, row = self.statistic.log, self._series(measured)
        layers = measured.config.n_layers if measured.config else 1
        mine = apart(self.values(guess, layers, row.depth), row.middle, log=log)
        said = f"On average your line is off {in_words(mine, log=log)}"
        theirs = apart(self._series(predicted).middle, row.middle, log=log) if predicted else None
        return said + ("." if theirs is None else f", theory's {in_words(theirs, log=log)}.")

    def _series(self, profile: Profile) -> Series:
        """The profile's series on the question's chart."""
        row = self.statistic
        return by_depth([profile], row.name, "" if row.on_stream else row.sites[0])[0]


class Asking:
    """A question, from the moment when it is asked until another one is, or none.

    Args:
        charts: of the panel, by name.
    """

    def __init__(self, charts: Mapping[str, Chart]) -> None:
        self._charts = charts
        self.question: Question | None = None
        self.config = Config()
        self.revealed = False
        self.guess: Any = None
        self.answer = ""
        self._say: Callable[[str], None] = lambda _: None

    @property
    def stands(self) -> bool:
        """Whether a question waits for its answer."""
        return self.question is not None and not self.revealed

    def ask(
        self,
        question: Question | None,
        config: Config,
        say: Callable[[str], None],
        act: Callable[[object], None],
    ) -> None:
        """Asks a question, or takes back the one that stands.

        Args:
            config: the design that it is about.
            say: called with the outcome, once the answer is revealed and measured.
            act: called with what the chart's buttons send.
        """
        self._offer({})
        self.question, self.config, self._say = question, config, say
        self.revealed, self.guess, self.answer = False, None, ""
        if isinstance(question, Draw):
            self._charts[question.chart].on_ask = act
            low, high = question.extent
            self._offer(
                {
                    "depths": question.depths(config.n_layers),
                    "low": low,
                    "high": high,
                    "log": question.statistic.log,
                }
            )

    def check(self, guess: object) -> Any:
        """A guess that came from a browser.

        Raises:
            ValueError: it is none, or none is asked for.
        """
        if self.question is None:
            raise ValueError("no question stands")
        return self.question.check(guess, self.config.n_layers)

    def reveal(self, guess: Any) -> None:
        """Ends the withholding; `guess` is one that was checked, or None."""
        self.revealed, self.guess = True, guess
        self._offer({"said": "Measuring …"})

    def measured(self, measured: Profile | None, predicted: Profile | None) -> None:
        """Says how near the guess was, once the design that was asked about is measured."""
        if (
            self.question is None
            or not self.revealed
            or self.answer
            or not measured
            or measured.config != self.config
        ):
            return
        said = self.question.reveal
        if self.guess is not None:
            theory = predicted if predicted and predicted.config == self.config else None
            said = f"{self.question.judge(self.guess, measured, theory)} {said}"
        self.answer = said
        self._offer({"said": said})
        self._say(said)

    def _offer(self, ask: dict[str, Any]) -> None:
        if isinstance(self.question, Draw):
            self._charts[self.question.chart].ask = ask

    def figure(self, name: str) -> go.Figure | None:
        """The figure that stands in for a chart while a question is open; None where the chart may
        be shown."""
        question = self.question
        if question is None or self.revealed:
            return None
        if name != question.chart:
            return withheld()
        return asked(question.statistic, self.config.n_layers, question.extent)

    def guessed(self, name: str, figure: Plain, config: Config | None) -> go.Figure | Plain:
        """A figure of `FIGURES`, with the line that was guessed of its design."""
        question = self.question
        if (
            self.guess is None
            or config != self.config
            or not isinstance(question, Draw)
            or name != question.chart
        ):
            return figure
        depths = question.depths(self.config.n_layers)
        return with_guess(
            go.Figure(figure), depths, question.values(self.guess, self.config.n_layers, depths)
        )
