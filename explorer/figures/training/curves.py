"""Curves over the steps of a race: one a contender, growing into a frame as wide as the race is long."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from explorer.figures.axes import Range, label, position, sheet, value_axis, whole
from explorer.figures.parts import Axis, axis, level
from explorer.figures.series import compact, masked
from explorer.figures.traces import Trace
from explorer.figures.training.course import (
    Course,
    Track,
    extremes,
    medians,
    series,
    thinned,
)
from explorer.figures.words import typeset
from explorer.numbers import number
from explorer.profile import Array

CEILING = 1.6
"""A loss axis ends at so many times the unigram's level: curves that begin higher enter from there."""
MOST_READINGS, MOST_DOTS = 200, 60
"""Points and dots of a curve that is not of every step."""
DECADE_OF_RATES = 8.0
"""Learning rates that lie further apart stand on a logarithmic axis."""


class Curve(NamedTuple):
    """One picture: its title, its caption, and the function that draws it."""

    name: str
    title: str
    caption: str
    draw: Callable[[Course], go.Figure]


def training_loss(course: Course) -> go.Figure:
    """Training loss of every step, faint, and its running median; the losses of a unigram and a bigram."""
    across, height = _across(course), _loss_axis(course, [track.losses for track in course.tracks])
    raw, smooth = [], []
    for track in course.tracks:
        losses = track.losses
        at, middle = extremes(losses), thinned(len(losses))
        raw.append(_line(track, at, losses[at], "", width=1, color=track.design.faint(0.28), hoverinfo="skip",
                         hovertemplate=None, name=f"{track.name}, each batch"))
        smooth.append(_line(track, middle, medians(losses, middle), "step %{x}: %{y:.3f} nats"))
    last = [(track, median(track.losses)) for track in course.tracks if len(track.losses)]
    text = _told("Training loss", last, "nats a character")
    found = [(np.arange(0.0, len(track.losses)), track.losses) for track in course.tracks]
    return _figure(course, [*raw, *smooth], across, height, text, found)


def held_out_loss(course: Course) -> go.Figure:
    """Loss on sequences that are not trained on, and the losses of a unigram and a bigram."""
    found = [track.held_out for track in course.tracks]
    across, height = _across(course), _loss_axis(course, [values for _, values in found])
    curves = [_dotted(track, steps, values, "step %{x}: %{y:.3f} nats", log=False)
              for track, (steps, values) in zip(course.tracks, found, strict=True)]
    last = [(track, values[-1]) for track, (_, values) in zip(course.tracks, found, strict=True) if len(values)]
    return _figure(course, curves, across, height, _told("Held-out loss", last, "nats a character"), found)


def learning_rate(course: Course) -> go.Figure:
    """The learning rate over the steps so far."""
    found = [series(track.history, "learning_rate") for track in course.tracks]
    tops = [values.max() for _, values in found if len(values)]
    log = bool(tops) and max(tops) > DECADE_OF_RATES * min(tops)
    height = axis("learning rate (1)", [values for _, values in found] + ([] if log else [[0.0]]), log=log)
    curves = [_readings(track, steps, values, "step %{x}: η = %{y:.3g}", log=log)
              for track, (steps, values) in zip(course.tracks, found, strict=True)]
    last = [(track, values[-1]) for track, (_, values) in zip(course.tracks, found, strict=True) if len(values)]
    return _figure(course, curves, _across(course), height, _told("Learning rate", last, ""))


def gradient_ratio(course: Course) -> go.Figure:
    """The gradient by the first layer's weights over that by the last layer's: 1 is even."""
    found = [track.history.gradient_ratio() for track in course.tracks]
    height = axis("‖∂L/∂W‖ first / last (1)", [[1.0], *(values for _, values in found)], log=True, least=1.0)
    across = _across(course)
    curves = [_dotted(track, steps, values, "step %{x}: first / last layer = %{y:.3g}", log=True)
              for track, (steps, values) in zip(course.tracks, found, strict=True)]
    last = [(track, values[-1]) for track, (_, values) in zip(course.tracks, found, strict=True) if len(values)]
    curves.append(level(1.0, "even", across))
    return _figure(course, curves, across, height, _told("Gradient, first layer over last", last, ""))


def median(losses: Array) -> float:
    """Median of the last steps: the end of a smoothed curve."""
    return float(medians(losses, np.array([len(losses) - 1]))[0])


CURVES = (
    Curve("training_loss", "Training loss",
          "Faint: each batch. Line: running median. Dotted: losses of a unigram and a bigram.",
          training_loss),
    Curve("held_out_loss", "Held-out loss", "On text that is not trained on. Below the bigram: it has learned more.",
          held_out_loss),
    Curve("gradient_ratio", "Gradient, first over last",
          "Size of ∂L/∂W in the first layer over the last. At 1 both ends learn evenly.", gradient_ratio),
    Curve("learning_rate", "Learning rate", "Of each step: the warm-up, then the decay.", learning_rate),
)
"""The pictures, a row each."""


# --- parts ----------------------------------------------------------------------------------------------------


def _across(course: Course) -> Axis:
    """Axis of all steps of the race, so that a curve shows how many are still to come."""
    return Axis("step", (-0.015 * course.steps, 1.015 * course.steps))


def _loss_axis(course: Course, values: Sequence[Array]) -> Axis:
    """From the lowest loss or level to the highest, but not to where a diverging one may go."""
    top = CEILING * course.levels.unigram
    return axis("loss (nats per character)", [course.levels, *(np.minimum(part, top) for part in values)])


def _line(track: Track, x: NDArray[Any], y: Array, sentence: str, *, width: float = 2, color: str = "", **more: object,
          ) -> Trace:
    """A contender's line."""
    return {
        "type": "scatter", "mode": "lines", "name": track.name, "showlegend": False,
        "x": compact(np.asarray(x, dtype=float)), "y": compact(np.asarray(y, dtype=float)),
        "line": {"color": color or track.design.hue, "width": width, "dash": "solid" if color else track.design.dash},
        "hovertemplate": f"<b>{track.name}</b><br>{sentence}<extra></extra>",
    } | more


def _readings(track: Track, steps: Array, values: Array, sentence: str, *, log: bool) -> Trace:
    """A contender's line through its readings; a line through one alone would not show."""
    at = thinned(len(steps), MOST_READINGS)
    return _line(track, steps[at], masked(values[at], log), sentence) | (_dots(track) if len(at) == 1 else {})


def _dotted(track: Track, steps: Array, values: Array, sentence: str, *, log: bool) -> Trace:
    """The same with dots, as far as they have room."""
    return _readings(track, steps, values, sentence, log=log) | _dots(track)


def _dots(track: Track) -> Trace:
    marker = {"color": track.design.hue, "symbol": track.design.symbol, "size": 6, "maxdisplayed": MOST_DOTS}
    return {"mode": "lines+markers", "marker": marker}


def ends(course: Course, across: Axis, height: Axis, losses: Sequence[tuple[Array, Array]]) -> list[Trace]:
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
        shares = (0.0, 0.94 - 0.1 * len(traces), 1.0)
        bottom, beside, top = (position(height.extent, share, height.log) for share in shares)
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


def _figure(course: Course, curves: Sequence[Trace], across: Axis, height: Axis, text: str,
            losses: Sequence[tuple[Array, Array]] = ()) -> go.Figure:
    """The curves, and on a chart of losses, given with their steps, the two levels and contenders that leave it."""
    levels = [
        level(value, words, across)
        for value, words in ((course.levels.unigram, "unigram"), (course.levels.bigram, "bigram")) if losses
    ]
    return go.Figure({
        "data": [*levels, *curves, *(ends(course, across, height, losses) if losses else ())],
        "layout": sheet(step_axis(across.extent), value_axis(height.title, height.extent, height.log), text),
    })


def step_axis(extent: Range) -> dict[str, object]:
    """The horizontal axis of everything that runs over steps."""
    return {"title": label("step"), "range": extent, "zeroline": False, "tickangle": 0,
            "tickformat": "~s" if extent[1] > 9999 else "~g", **whole(extent[1])}


def _told(subject: str, last: Sequence[tuple[Track, float]], unit: str) -> str:
    """The picture in words: the latest value of each contender."""
    if not last:
        return f"{subject}: nothing yet."
    parts = [
        f"{track.design.label} {number(value)}" + (f", diverged at step {track.step}" if track.retired else "")
        for track, value in last
    ]
    return f"{subject}{f', {unit}' if unit else ''}, at the latest step. {'; '.join(parts)}."
