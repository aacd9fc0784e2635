"""Pictures of a race: its course, and curves over its steps, one a contender, in a frame as wide as
the race is long.

A contender keeps its hue, dash and symbol in every figure. Curves of any length travel as a few
hundred points."""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike, NDArray

from explorer.figures.kit import (
    TOP,
    Axis,
    Trace,
    alone,
    axis,
    broken_off,
    hover,
    level,
    line,
    picture,
)
from explorer.figures.palette import LegendEntry
from explorer.figures.why import Why, why
from explorer.figures.words import typeset
from explorer.numbers import number
from explorer.vocabulary import Array
from explorer_race.history import TRAINING, History, Outcome, Standing
from explorer_race.tasks import Levels

if TYPE_CHECKING:
    from explorer_race.race import Race

MOST_POINTS = 400
"""Points of one curve that are sent to a browser."""
WINDOW = 15
"""Steps whose median is one point of a smoothed curve."""
CEILING = 1.6
"""A loss axis ends at so many times the unigram's level: curves that begin higher enter from
there."""
MOST_READINGS, MOST_DOTS = 200, 60
"""Points and dots of a curve that is not of every step."""
DECADE_OF_RATES = 8.0
"""Learning rates that lie further apart stand on a logarithmic axis."""

Readings = Sequence[tuple[Array, Array]]
"""Steps and values, one pair a contender."""
Read = Callable[[History], tuple[Array, Array]]
"""From a contender's history to steps and values."""
NO_LEVELS: Mapping[float, str] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Track:
    """One contender of a race, as far as it has come."""

    design: LegendEntry
    """Its name and its marks."""
    history: History
    """Its numbers; they no longer change, see `snapshot`."""
    step: int
    """Steps that it has made."""
    retired: str = ""
    """The reason why it is out of the race; empty while it is not."""
    final_loss: float = np.nan
    """Held-out loss of the weights as they stand, where it was measured."""

    @property
    def name(self) -> str:
        """The name, escaped for plotly and HTML."""
        return self.design.heading

    @property
    def losses(self) -> Array:
        """The training loss of every step, up to the first that is not finite."""
        values = np.array(self.history.losses, dtype=np.float64)
        return values[
            : int(np.argmin(finite)) if not (finite := np.isfinite(values)).all() else len(values)
        ]

    @property
    def held_out(self) -> tuple[Array, Array]:
        """Steps and held-out losses, `[reading]`; the last one is of the current weights."""
        steps, values = series(self.history, "held_out_loss")
        if not np.isfinite(self.final_loss) or (len(steps) and steps[-1] >= self.step):
            return steps, values
        return np.append(steps, self.step), np.append(values, self.final_loss)


@dataclass(frozen=True)
class Course:
    """Numbers of a race to be drawn."""

    tracks: tuple[Track, ...]
    steps: int
    """Number of steps of each contender."""
    levels: Levels

    @property
    def axis(self) -> Axis:
        """The horizontal axis: all steps of the race, so that a curve shows how many are still to
        come."""
        return Axis("step", (-0.015 * self.steps, 1.015 * self.steps), counts=True)

    def has(self, statistic: str) -> bool:
        """Whether a contender has readings of a statistic."""
        return any(name == statistic for track in self.tracks for name, _ in track.history.values)

    @classmethod
    def of(
        cls, race: Standing, designs: Sequence[LegendEntry], outcomes: Sequence[Outcome]
    ) -> Course:
        """The race as it stands; the outcomes may be of some steps before."""
        return cls(
            tuple(
                Track(
                    design,
                    snapshot(runner.history),
                    runner.step,
                    runner.retired,
                    outcome.final_loss if outcome.steps == runner.step else np.nan,
                )
                for design, runner, outcome in zip(designs, race.runners, outcomes, strict=True)
            ),
            race.steps,
            race.levels,
        )


def snapshot(history: History) -> History:
    """The numbers so far, unaffected by later steps of the race; cheap, because no array is
    copied."""
    copy = History()
    copy.losses, copy.steps = list(history.losses), list(history.steps)
    copy.values = defaultdict(list, {key: list(values) for key, values in history.values.items()})
    return copy


def series(history: History, statistic: str, site: str = "") -> tuple[Array, Array]:
    """Steps and values of a statistic; empty where there is none."""
    if (statistic, site) not in history.values:
        return np.zeros(0), np.zeros(0)
    return history.series(statistic, site)


def stride(count: int, most: int) -> int:
    """Every how many points one is taken: a power of two, so that a growing curve rarely changes
    its points."""
    blocks = max(1, -(-count // most))
    return 1 << (blocks - 1).bit_length()


def thinned(count: int, most: int = MOST_POINTS) -> NDArray[np.intp]:
    """The places of evenly spread points, the first and the last among them."""
    if not count:
        return np.zeros(0, dtype=np.intp)
    places = np.arange(0, count, stride(count, most - 1))
    return places if places[-1] == count - 1 else np.append(places, count - 1)


def extremes(values: Array, most: int = MOST_POINTS) -> NDArray[np.intp]:
    """The places of the least and the greatest value of every stretch: a spike survives."""
    block = stride(len(values), most // 2)
    if block == 1:
        return np.arange(len(values))
    parts = [(start, values[start : start + block]) for start in range(0, len(values), block)]
    return np.unique(
        [start + end for start, part in parts for end in (part.argmin(), part.argmax())]
    )


def medians(values: Array, places: NDArray[np.intp], window: int = WINDOW) -> Array:
    """The median of the `window` values around each place, of fewer at the ends."""
    half = window // 2
    return np.array(
        [np.median(values[max(0, place - half) : place + half + 1]) for place in places]
    )


def training_loss(course: Course) -> go.Figure:
    """Training loss of every step, faint, and its running median; the losses of a unigram and a
    bigram."""
    raw, smooth, last = [], [], []
    for track in course.tracks:
        losses = track.losses
        at, middle = extremes(losses), thinned(len(losses))
        median = medians(losses, middle)
        raw.append(
            _line(
                track,
                at,
                losses[at],
                "",
                name=f"{track.name}, each batch",
                hoverinfo="skip",
                hovertemplate=None,
                line={"color": track.design.faint(0.28), "width": 1, "dash": "solid"},
            )
        )
        smooth.append(_line(track, middle, median, "step %{x}: %{y:.3f} nats"))
        last.append((middle.astype(float), median))
    readings = [(np.arange(0.0, len(track.losses)), track.losses) for track in course.tracks]
    return _losses(course, [*raw, *smooth], readings, last, "Training loss")


def held_out_loss(course: Course) -> go.Figure:
    """Loss on sequences that are not trained on, and the losses of a unigram and a bigram."""
    readings = [track.held_out for track in course.tracks]
    curves = [
        _readings(track, *reading, "step %{x}: %{y:.3f} nats")
        for track, reading in zip(course.tracks, readings, strict=True)
    ]
    return _losses(course, curves, readings, readings, "Held-out loss")


def median_of_matrices(history: History, statistic: str) -> tuple[Array, Array]:
    """Steps, and the median of a statistic over all matrices of all layers, `[reading]`; empty
    where there is none."""
    steps, values = history.matrices(statistic)
    return steps, np.median(values, axis=(0, 2)) if len(steps) else steps


def over_steps(
    course: Course,
    source: Read,
    title: str,
    sentence: str,
    subject: str,
    *,
    apart: float = 0.0,
    dots: bool = True,
    levels: Mapping[float, str] = NO_LEVELS,
    law: Read | None = None,
) -> go.Figure:
    """A number of each contender over the steps.

    Args:
        course: the race.
        source: from a contender's history to steps and values.
        title: of the vertical axis.
        sentence: the hover text after the step, with `%{y}` the value.
        subject: the picture in words, without its numbers.
        apart: values that lie further apart than this factor stand on a logarithmic axis; 0 for
            any.
        levels: values that the axis must hold; those with words have a line.
        law: from a history to what theory says; nothing where there is no theory.
    """
    readings, laws = (
        [part(track.history) for track in course.tracks] if part else [] for part in (source, law)
    )
    shown = [values for _, values in (*readings, *laws)]
    tops = [values.max() for values in shown if len(values)] if apart else []
    log = not apart or (bool(tops) and max(tops) > apart * min(tops))
    height = axis(title, [list(levels), *shown], log=log, least=float(log), top=TOP)
    curves = [
        line(
            steps,
            values,
            track.design,
            f"{track.name}, predicted",
            hover(track.name, f"predicted: {sentence}"),
            log=log,
            dash="dash",
        )
        for track, (steps, values) in zip(course.tracks, laws, strict=False)
        if len(steps)
    ]
    curves += [
        _readings(track, *reading, f"step %{{x}}: {sentence}", log=log, dots=dots)
        for track, reading in zip(course.tracks, readings, strict=True)
    ]
    named = [level(value, words, course.axis, height) for value, words in levels.items() if words]
    return picture([*curves, *named], course.axis, height, _in_words(course, readings, subject))


class Curve(NamedTuple):
    """One picture of a race."""

    name: str
    draw: Callable[[Course], go.Figure]
    title: str
    caption: str
    why: Why = Why()
    needs: str = ""
    """The page shows it only where a contender has this statistic."""


SPECTRAL = TRAINING["update_spectral_norm"]
CURVES = (
    Curve(
        "training_loss",
        training_loss,
        "Training loss",
        "Faint: each batch. Line: running median. Dotted: unigram, bigram.",
        why("training_loss"),
    ),
    Curve(
        "held_out_loss",
        held_out_loss,
        "Held-out loss",
        "On text that is not trained on. Below the bigram: it has learned more.",
    ),
    Curve(
        "gradient_ratio",
        partial(
            over_steps,
            source=History.gradient_ratio,
            title="‖∂L/∂W‖ first / last (ratio)",
            sentence="first / last layer = %{y:.3g}",
            subject="Gradient, first layer over last",
            levels={1.0: "even"},
        ),
        "Gradient, first over last",
        "Size of ∂L/∂W in the first layer over the last. At 1 both ends learn evenly.",
        why("gradient_ratio"),
    ),
    Curve(
        "learning_rate",
        partial(
            over_steps,
            source=partial(series, statistic="learning_rate"),
            title="learning rate η (per step)",
            sentence="η = %{y:.3g}",
            subject="Learning rate",
            apart=DECADE_OF_RATES,
            dots=False,
            levels={0.0: ""},
        ),
        "Learning rate",
        "Of each step: the warm-up, then the decay.",
        why("learning_rate"),
    ),
    Curve(
        "update_ratio",
        partial(
            over_steps,
            source=partial(median_of_matrices, statistic="update_ratio"),
            title="‖ΔW‖ / ‖W‖ (ratio)",
            sentence="‖ΔW‖ / ‖W‖ = %{y:.3g}",
            subject="Update to weight, median over matrices",
            law=partial(median_of_matrices, statistic="equilibrium_update"),
        ),
        "Update to weight",
        "Median over matrices. Dashed: equilibrium with weight decay, where norms follow them.",
        why("equilibrium_update"),
        needs="equilibrium_update",
    ),
    Curve(
        SPECTRAL.name,
        partial(
            over_steps,
            source=partial(median_of_matrices, statistic=SPECTRAL.name),
            title=f"{SPECTRAL.symbol} ({SPECTRAL.unit})",
            sentence=f"{SPECTRAL.symbol} = %{{y:.3g}}",
            subject="Spectral norm of updates, median over matrices",
            levels=SPECTRAL.marks,
        ),
        SPECTRAL.label,
        "The most that a step adds to an output's RMS, over the input's: median over matrices.",
        why(SPECTRAL.name),
        needs=SPECTRAL.name,
    ),
)
"""The pictures, a row each."""


# --- parts ----------------------------------------------------------------------------------------


def _line(
    track: Track, x: ArrayLike, y: Array, sentence: str, *, log: bool = False, **more: object
) -> Trace:
    """A contender's line."""
    words = f"<b>{track.name}</b><br>{sentence}<extra></extra>"
    return line(x, y, track.design, track.name, words, log=log) | more


def _readings(
    track: Track,
    steps: Array,
    values: Array,
    sentence: str,
    *,
    log: bool = False,
    dots: bool = True,
) -> Trace:
    """A contender's line through its readings, with dots; a line through one alone would not
    show."""
    at = thinned(len(steps), MOST_READINGS)
    marker = {
        "color": track.design.hue,
        "symbol": track.design.symbol,
        "size": 6,
        "maxdisplayed": MOST_DOTS,
    }
    marked = {"mode": "lines+markers", "marker": marker} if dots or len(at) == 1 else {}
    return _line(track, steps[at], values[at], sentence, log=log, **marked)


def _losses(
    course: Course, curves: Sequence[Trace], readings: Readings, last: Readings, subject: str
) -> go.Figure:
    """Losses, the two levels, and marks of the contenders that leave the picture.

    The axis ends at the highest loss or level, but not where a diverging one may go.
    """
    across, top = course.axis, CEILING * course.levels.unigram
    height = axis(
        "loss (nats per character)",
        [course.levels, *(np.minimum(values, top) for _, values in readings)],
    )
    # curves end close to it, at the right
    levels = [
        level(course.levels.unigram, "unigram", across, height),
        level(course.levels.bigram, "bigram", across, height, "left"),
    ]
    traces = [*levels, *curves, *ends(course, across, height, readings)]
    return picture(traces, across, height, _in_words(course, last, f"{subject}, nats a character"))


def ends(course: Course, across: Axis, height: Axis, losses: Readings) -> list[Trace]:
    """Contenders that leave the picture before its end, below each other, in their hues.

    An upright and a word where a contender fell out; an arrow and its loss where a curve leaves
    through the top."""
    traces: list[Trace] = []
    for track, (steps, values) in zip(course.tracks, losses, strict=True):
        high = np.logical_and.accumulate((values > height.extent[1])[::-1])[::-1]
        if not track.retired and not high.any():
            continue
        at = track.step if track.retired else int(steps[np.argmax(high)])
        share = 0.94 - 0.1 * len(traces)
        if track.retired:
            words, reason = (
                f"diverged at step {at:,}",
                f":<br>{typeset(html.escape(track.retired, quote=False))}",
            )
            arrow: Trace = {}
        else:
            words, reason = (
                f"{number(values[-1])} nats at step {int(steps[-1]):,}",
                ", above the frame",
            )
            arrow = {
                "mode": "markers+text",
                "x": [at],
                "y": [height.at(share)],
                "text": [words],
                "marker": {"color": track.design.hue, "symbol": "arrow-up", "size": 13},
            }
        hovering = f"<b>{track.name}</b><br>{words}{reason}<extra></extra>"
        traces.append(
            broken_off(
                at,
                words,
                across,
                height,
                track.design.hue,
                share,
                name=f"{track.name}, {words}",
                hovertemplate=hovering,
            )
            | arrow
        )
    return traces


def _in_words(course: Course, readings: Readings, subject: str) -> str:
    """The picture in words: the latest value of each contender."""
    parts = [
        f"{track.design.label} {number(values[-1])}"
        + (f", diverged at step {track.step}" if track.retired else "")
        for track, (_, values) in zip(course.tracks, readings, strict=True)
        if len(values)
    ]
    return (
        f"{subject}, at the latest step. {'; '.join(parts)}."
        if parts
        else f"{subject}: nothing yet."
    )


def plot(race: Race, curve: str = "held_out_loss") -> go.Figure:
    """One picture of a race by itself, with a title and a legend: see `Race.plot`."""
    row = next((row for row in CURVES if row.name == curve), None)
    if row is None:
        raise ValueError(
            f"curve must be one of {', '.join(row.name for row in CURVES)}; got {curve!r}"
        )
    designs = [
        LegendEntry(number, contender.config, contender.name)
        for number, contender in enumerate(race.contenders)
    ]
    figure = alone(row.draw(Course.of(race, designs, race.verdict())), row.title, row.caption)
    names = [design.heading for design in designs]
    return figure.for_each_trace(
        lambda trace: trace.update(showlegend=True), lambda trace: trace.name in names
    )
