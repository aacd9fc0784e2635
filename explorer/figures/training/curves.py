"""Curves over the steps of a race: one a contender, growing into a frame as wide as the race is long."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from explorer.figures.axes import TOP, Axis, Plot, axis, picture
from explorer.figures.traces import Trace, compact, kept, level, masked
from explorer.figures.training.course import Course, Track, extremes, medians, series, thinned
from explorer.figures.why import why
from explorer.figures.words import typeset
from explorer.numbers import number
from explorer.profile import Array

CEILING = 1.6
"""A loss axis ends at so many times the unigram's level: curves that begin higher enter from there."""
MOST_READINGS, MOST_DOTS = 200, 60
"""Points and dots of a curve that is not of every step."""
DECADE_OF_RATES = 8.0
"""Learning rates that lie further apart stand on a logarithmic axis."""

Readings = Sequence[tuple[Array, Array]]
"""Steps and values, one pair a contender."""


def training_loss(course: Course) -> go.Figure:
    """Training loss of every step, faint, and its running median; the losses of a unigram and a bigram."""
    raw, smooth, last = [], [], []
    for track in course.tracks:
        losses = track.losses
        at, middle = extremes(losses), thinned(len(losses))
        median = medians(losses, middle)
        raw.append(_line(track, at, losses[at], "", width=1, color=track.design.faint(0.28), hoverinfo="skip",
                         hovertemplate=None, name=f"{track.name}, each batch"))
        smooth.append(_line(track, middle, median, "step %{x}: %{y:.3f} nats"))
        last.append((middle.astype(float), median))
    readings = [(np.arange(0.0, len(track.losses)), track.losses) for track in course.tracks]
    return _losses(course, [*raw, *smooth], readings, last, "Training loss")


def held_out_loss(course: Course) -> go.Figure:
    """Loss on sequences that are not trained on, and the losses of a unigram and a bigram."""
    readings = [track.held_out for track in course.tracks]
    curves = [_readings(track, *reading, "step %{x}: %{y:.3f} nats")
              for track, reading in zip(course.tracks, readings, strict=True)]
    return _losses(course, curves, readings, readings, "Held-out loss")


def learning_rate(course: Course) -> go.Figure:
    """The learning rate over the steps so far."""
    readings = [series(track.history, "learning_rate") for track in course.tracks]
    tops = [values.max() for _, values in readings if len(values)]
    log = bool(tops) and max(tops) > DECADE_OF_RATES * min(tops)
    return over_steps(course, readings, "learning rate η (per step)", "η = %{y:.3g}", "Learning rate", log=log,
                      dots=False, levels=None if log else {0.0: ""})


def gradient_ratio(course: Course) -> go.Figure:
    """The gradient by the first layer's weights over that by the last layer's: 1 is even."""
    readings = [track.history.gradient_ratio() for track in course.tracks]
    return over_steps(course, readings, "‖∂L/∂W‖ first / last (ratio)", "first / last layer = %{y:.3g}",
                      "Gradient, first layer over last", log=True, levels={1.0: "even"})


def over_steps(course: Course, readings: Readings, title: str, sentence: str, subject: str, *, log: bool = False,
               dots: bool = True, levels: Mapping[float, str] | None = None) -> go.Figure:
    """A number of each contender over the steps.

    Args:
        course: the race.
        readings: of each contender.
        title: of the vertical axis.
        sentence: the hover text after the step, with `%{y}` the value.
        subject: the picture in words, without its numbers.
        levels: values that the axis must hold; those with words have a line.
    """
    levels = levels or {}
    height = axis(title, [list(levels), *(values for _, values in readings)], log=log, least=float(log), top=TOP)
    curves = [_readings(track, *reading, f"step %{{x}}: {sentence}", log=log, dots=dots)
              for track, reading in zip(course.tracks, readings, strict=True)]
    named = [level(value, words, course.axis, height) for value, words in levels.items() if words]
    return picture([*curves, *named], course.axis, height, _in_words(course, readings, subject), legend=False)


CURVES = (
    Plot(training_loss, "Training loss",
         "Faint: each batch. Line: running median. Dotted: losses of a unigram and a bigram.", why("training_loss")),
    Plot(held_out_loss, "Held-out loss", "On text that is not trained on. Below the bigram: it has learned more."),
    Plot(gradient_ratio, "Gradient, first over last",
         "Size of ∂L/∂W in the first layer over the last. At 1 both ends learn evenly.", why("gradient_ratio")),
    Plot(learning_rate, "Learning rate", "Of each step: the warm-up, then the decay.", why("learning_rate")),
)
"""The pictures, a row each."""


# --- parts ----------------------------------------------------------------------------------------------------


def _line(track: Track, x: NDArray[Any], y: Array, sentence: str, *, width: float = 2, color: str = "", **more: object,
          ) -> Trace:
    """A contender's line."""
    return {
        "type": "scatter", "mode": "lines", "name": track.name, "showlegend": False, "meta": {"kind": "measured"},
        "x": compact(np.asarray(x, dtype=float)), "y": compact(np.asarray(y, dtype=float)),
        "line": {"color": color or track.design.hue, "width": width, "dash": "solid" if color else track.design.dash},
        "hovertemplate": f"<b>{track.name}</b><br>{sentence}<extra></extra>",
    } | more


def _readings(track: Track, steps: Array, values: Array, sentence: str, *, log: bool = False, dots: bool = True,
              ) -> Trace:
    """A contender's line through its readings, with dots; a line through one alone would not show."""
    at = thinned(len(steps), MOST_READINGS)
    line = _line(track, steps[at], masked(values[at], log), sentence)
    if own := kept(values[at], log):
        line |= own | {"meta": line["meta"] | own["meta"]}
    marker = {"color": track.design.hue, "symbol": track.design.symbol, "size": 6, "maxdisplayed": MOST_DOTS}
    return line | ({"mode": "lines+markers", "marker": marker} if dots or len(at) == 1 else {})


def _losses(course: Course, curves: Sequence[Trace], readings: Readings, last: Readings, subject: str) -> go.Figure:
    """Losses, the two levels, and marks of the contenders that leave the picture.

    The axis ends at the highest loss or level, but not where a diverging one may go.
    """
    across, top = course.axis, CEILING * course.levels.unigram
    height = axis("loss (nats per character)", [course.levels, *(np.minimum(values, top) for _, values in readings)])
    levels = [level(course.levels.unigram, "unigram", across, height),
              level(course.levels.bigram, "bigram", across, height, "left")]  # curves end close to it, at the right
    traces = [*levels, *curves, *ends(course, across, height, readings)]
    return picture(traces, across, height, _in_words(course, last, f"{subject}, nats a character"), legend=False)


def ends(course: Course, across: Axis, height: Axis, losses: Readings) -> list[Trace]:
    """Contenders that leave the picture before its end, below each other, in their hues.

    An upright and a word where a contender fell out; an arrow and its loss where a curve leaves through the top.
    """
    traces: list[Trace] = []
    for track, (steps, values) in zip(course.tracks, losses, strict=True):
        high = np.logical_and.accumulate((values > height.extent[1])[::-1])[::-1]
        if not track.retired and not high.any():
            continue
        at = track.step if track.retired else int(steps[np.argmax(high)])
        side = "right" if at < sum(across.extent) / 2 else "left"
        bottom, beside, top = (height.at(share) for share in (0.0, 0.94 - 0.1 * len(traces), 1.0))
        if track.retired:
            words, reason = f"diverged at step {at:,}", f":<br>{typeset(html.escape(track.retired, quote=False))}"
        else:
            words, reason = f"{number(values[-1])} nats at step {int(steps[-1]):,}", ", above the frame"
        traces.append({
            "type": "scatter", "mode": "lines+text", "name": f"{track.name}, {words}", "showlegend": False,
            "x": [at] * 3, "y": [bottom, beside, top], "text": ["", words, ""],
            "textposition": f"middle {side}", "textfont": {"size": 12}, "cliponaxis": False,
            "line": {"color": track.design.hue, "width": 2, "dash": "longdash"},
            "hovertemplate": f"<b>{track.name}</b><br>{words}{reason}<extra></extra>",
        } | ({} if track.retired else {
            "mode": "markers+text", "x": [at], "y": [beside], "text": [words],
            "marker": {"color": track.design.hue, "symbol": "arrow-up", "size": 13},
        }))
    return traces


def _in_words(course: Course, readings: Readings, subject: str) -> str:
    """The picture in words: the latest value of each contender."""
    parts = [
        f"{track.design.label} {number(values[-1])}" + (f", diverged at step {track.step}" if track.retired else "")
        for track, (_, values) in zip(course.tracks, readings, strict=True) if len(values)
    ]
    return f"{subject}, at the latest step. {'; '.join(parts)}." if parts else f"{subject}: nothing yet."
