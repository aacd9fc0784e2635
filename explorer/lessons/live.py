"""`live`: any function from settings to a figure becomes a live figure with the page's controls and
charts.

It is computed on a thread of its own, the newest settings first. A still of its first figure stands
beside it in the notebook's file, for readers without a kernel."""

from __future__ import annotations

import inspect
import re
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from explorer.app.still import still
from explorer.app.widgets.chart import Chart
from explorer.app.widgets.controls import Controls
from explorer.app.widgets.live import LONGEST_REFUSAL, Live
from explorer.app.widgets.parts import LOCK, PageWidget, Part
from explorer.app.widgets.schedule import Schedule
from explorer.app.widgets.wording import settings_words
from explorer.choices import Choices
from explorer.display import shown
from explorer.figures import FIGURES
from explorer.figures.kit import LEGEND, axis, ends, sheet
from explorer.figures.pages import SHOWN, image
from explorer.figures.palette import Look
from explorer.lessons.settings import PROGRESS, settings_of
from explorer.profile import Profile
from explorer.stopping import Progress, Stop, Stopped, check
from explorer.theory import predict
from explorer.translation import translated

PATIENCE = 60.0
"""Seconds that a cell waits for its first figure, so that its still can be stored."""


class FunctionError(Exception):
    """An error of the function, in one sentence.

    Args:
        kind: the error's class, and where in the function it was raised.
    """

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind = kind


class Drawing(NamedTuple):
    """Result of a call of the function."""

    title: str
    """Empty where the figure has none."""
    figure: go.Figure
    sentence: str
    seconds: float


def live(function: Callable[..., Any], /, **controls: Any) -> LiveFigure:
    """A live figure: the function's parameters become controls, and the figure follows them.

    It is computed on a thread, the newest settings first. An error is shown as a sentence, and the
    last figure stays.

    Args:
        function: gives a plotly figure, a `Profile` or several, or a tuple of that and a sentence,
            which is shown above the chart. The first line of its docstring is the chart's title. A
            parameter with the type `int` or `float` needs a `slider`, as its default or here;
            `bool` is a switch; `Literal[…]` is a choice; a parameter that has a default and no type
            keeps its default. A parameter named `progress` is handed a function: call it with the
            fraction done, 0 to 1; it raises `Stopped` as soon as the result is no longer wanted.
        controls: of parameters by name, in place of their types and defaults: a `slider`, True or
            False, or a tuple of words.
    Raises:
        TypeError: it is no function.
        ConfigError: a control is no parameter, or a parameter has no control; names the parameter,
            rule and value.

    Example:
        In a notebook, a curve with two sliders::

            def left(rate: float = ex.slider(0, 1, 0.5), steps: int = ex.slider(1, 100, 20)):
                "The share that is left"
                return go.Figure().add_scatter(y=[(1 - rate) ** step for step in range(steps)])

            ex.live(left)
    """
    if not callable(function):
        raise TypeError(
            f"function must be a function; got {shown(function)} of type {type(function).__name__}"
        )
    return LiveFigure(LivePanel(function, settings_of(function, controls)()))


class LiveFigure(PageWidget):
    """A live figure as a cell shows it: display it as the last line of the cell.

    Args:
        panel: its controls, chart and status line.
    """

    def __init__(self, panel: LivePanel) -> None:
        self.panel = panel
        super().__init__(Part([panel], classes=("ex-root", "ex-live")))

    def __repr__(self) -> str:
        return f"live({self.panel.name})"

    def still(self) -> str:
        """The first figure, see `LivePanel.still`."""
        return self.panel.still()


class LivePanel(Live[Choices, Drawing]):
    """The panel of a live figure.

    Args:
        function: see `live`.
        settings: where its controls start.
    """

    def __init__(self, function: Callable[..., Any], settings: Choices) -> None:
        self.name = type(settings).__name__
        self._function, self._takes_progress = (
            function,
            PROGRESS in inspect.signature(function).parameters,
        )
        self._settled = threading.Event()
        words = (inspect.getdoc(function) or self.name.replace("_", " ").capitalize()).partition(
            "\n"
        )
        self._title, self._caption = words[0].rstrip("."), " ".join(words[2].split())
        chart = Chart(title=self._title, caption=self._caption)
        super().__init__(
            Controls(
                settings, self.refresh, label=translated("Settings: {title}", title=self._title)
            ),
            {"figure": chart},
            subject=translated("computed setting"),
            action=translated("Compute"),
            schedule=Schedule(),
        )
        charts = Part([Part([chart]).add_class("ex-cell")]).add_class("ex-charts")
        main = Part([self.verdict, charts]).add_class("ex-main")
        self.add_class("ex-lab").children = [
            Part([self.controls, main]).add_class("ex-explore"),
            self.status,
        ]
        self.refresh()

    def still(self) -> str:
        """The first figure as HTML that needs no script; waits until it is computed."""
        self._settled.wait(PATIENCE)
        with LOCK:
            drawing = self.schedule.result
        if drawing is None:
            return still(self._title, [self.status.text], "")
        title, sentence = drawing.title or self._title, drawing.sentence or self._caption
        drawable = drawing.figure.layout.xaxis.range and drawing.figure.layout.yaxis.range
        picture = image(drawing.figure, title, 640, 320) if drawable else ""
        return still(title, [sentence] if sentence else [], picture)

    def _next(self) -> Choices:
        settings: Choices = self.controls.config
        return settings

    def _promise(self, _: Choices) -> str:
        return translated("Computing: {title}", title=self._title)

    def _work(self, job: Choices, stop: Stop, progress: Progress) -> Drawing:
        def report(fraction: float) -> None:
            check(stop)
            progress(fraction)

        begun = time.perf_counter()
        try:  # a parameter may be called `keys`, which `dict` would take for the method
            result = self._function(
                **dict(iter(job)), **{PROGRESS: report} if self._takes_progress else {}
            )
            title, figure, sentence = drawn(result)
        except Stopped:
            raise
        except Exception as error:
            raise self._failure(error) from error
        return Drawing(title, figure, sentence, time.perf_counter() - begun)

    def _failure(self, error: Exception) -> FunctionError:
        file = getattr(getattr(self._function, "__code__", None), "co_filename", "")
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == file
        ]
        kind = type(error).__name__
        if lines:
            kind = translated("{kind} in line {line} of its cell", kind=kind, line=lines[-1])
        return FunctionError(kind, " ".join(str(error).split())[:LONGEST_REFUSAL])

    def _progress(self, job: Choices, fraction: float) -> str:
        return super()._progress(job, fraction) + self._left(fraction)

    def _receive(self, job: Choices, result: Drawing) -> None:
        super()._receive(job, result)
        self._settled.set()

    def _fail(self, job: Choices | None, message: str) -> None:
        super()._fail(job, message)
        self._settled.set()

    def _show(self, result: Drawing) -> None:
        chart = self.charts["figure"]
        chart.title, chart.caption = result.title or self._title, result.sentence or self._caption
        chart.marks = settings_words(self.controls.config)
        chart.show(result.figure, stale=self.schedule.stale)

    def _summary(self, result: Drawing) -> tuple[str, str]:
        sentence = result.sentence or translated("Computed: {title}", title=self._title)
        return sentence, translated("in {seconds:.2f} s", seconds=result.seconds)


def drawn(result: object) -> tuple[str, go.Figure, str]:
    """Title, figure and sentence of what a function gave; title and sentence may be empty.

    Raises:
        TypeError: it is neither a figure nor profiles, or there is more beside it than a sentence.
    """
    parts = result if isinstance(result, tuple) else (result,)
    figures = [part for part in parts if isinstance(part, go.Figure)]
    profiles = [part for part in parts if isinstance(part, Profile)]
    sentences = [part for part in parts if isinstance(part, str)]
    others = len(parts) - len(figures) - len(profiles) - len(sentences)
    if len(figures) + bool(profiles) != 1 or len(sentences) > 1 or others:
        raise TypeError(
            "the function must return a plotly figure or a Profile, and at most a sentence beside it; got "
            f"{shown(result)}"
        )
    sentence = "".join(sentences)
    if figures:
        return *dressed(figures[0]), sentence
    first = profiles[0]
    if len(profiles) == 1 and first.origin == "measured" and (twin := first.config or first.twin):
        profiles = [predict(twin), first]
    row = next(FIGURES[name] for name in SHOWN if FIGURES[name].statistic in first)
    return row.title, row.draw(profiles), sentence or row.caption


def dressed(figure: go.Figure) -> tuple[str, go.Figure]:
    """A figure's title, and a copy on the page's sheet: its hues, and axes that stay while a slider
    moves.

    Traces that are named alike up to a comma ("signal" and "signal, theory") have one hue. Settings
    of the figure itself are kept. Axes are left to plotly where a trace is no line of numbers."""
    figure = go.Figure(figure)
    own = figure.layout.to_plotly_json()
    own.pop("template", None)
    title = own.pop("title", {}).get("text", "")
    lines = [trace for trace in figure.data if trace.type == "scatter"]
    _color(lines)
    axes = {name: _axis(figure, name[0], own.pop(name, {})) for name in ("xaxis", "yaxis")}
    legend: dict[str, Any] = {}
    if sum(bool(trace.name) for trace in figure.data) > 1:
        margin = {"l": 62, "r": 14, "t": 34, "b": 42}
        legend = {"showlegend": True, "legend": LEGEND, "margin": margin}
    layout = sheet(**axes, description=_described(title, lines))
    return title, go.Figure(figure.data, layout | legend | own)


def _color(lines: Sequence[Any]) -> None:
    """Gives lines their hues, and what plotly would choose otherwise, where they say nothing."""
    looks: dict[str, Look] = {}
    for place, trace in enumerate(lines):
        name = re.split("[,，]", trace.name)[0] if trace.name else f"{place}"
        look = looks.setdefault(name, Look(len(looks)))
        trace.update(
            mode=trace.mode or "lines",
            line_color=trace.line.color or look.hue,
            marker={"color": look.hue} if trace.marker.color is None else {},
            x=np.arange(len(trace.y)) if trace.x is None else trace.x,
        )


def _described(title: str, lines: Sequence[Any]) -> str:
    """The figure in words, for a screen reader: its title, and where each line begins and ends."""
    sentences = [f"{title}."] if title else []
    for place, trace in enumerate(lines, start=1):
        if _is_numeric(trace.x) and _is_numeric(trace.y):
            x, y = np.asarray(trace.x, dtype=float), np.asarray(trace.y, dtype=float)
            sentences.append(ends(trace.name or translated("line {index}", index=place), x, y))
    return " ".join(sentences)


def _axis(figure: go.Figure, letter: str, own: dict[str, Any]) -> dict[str, Any]:
    """The layout of an axis; what the figure itself says of it counts."""
    values = [getattr(trace, letter, None) for trace in figure.data]
    if (
        not values
        or any(trace.type != "scatter" for trace in figure.data)
        or not all(map(_is_numeric, values))
    ):
        return {"zeroline": False} | own
    title = own.pop("title", {}).get("text") or ""
    return (
        axis(
            title, [np.asarray(part, dtype=float) for part in values], log=own.get("type") == "log"
        ).layout
        | own
    )


def _is_numeric(values: Any) -> bool:
    try:
        np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        return False
    return values is not None
