"""The kit of the lessons without a browser: controls from a function, what is drawn, errors and
stills."""

from __future__ import annotations

import base64
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal
from xml.etree import ElementTree

import nbformat
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from nbclient import NotebookClient

import explorer as ex
from benchmarks.goldens import plain
from explorer.app.widgets.parts import LOCK
from explorer.choices import ConfigError
from explorer.lessons.live import LiveFigure, drawn
from explorer.lessons.settings import settings_of
from explorer_serve.start import ServeError, _page, notebooks

WAIT = 60.0


def left(
    rate: float = ex.slider(0.0, 1.0, 0.5),
    steps: int = ex.slider(1, 100, 4, label="Steps taken", unit="days"),
    slow: bool = False,
    start: Literal["one", "two"] = "one",
    offset=0.0,
) -> Any:
    """The share that is left.

    It shrinks by the same
    factor each day.
    """
    y = (1 + (start == "two")) * (1 - rate / (1 + slow)) ** np.arange(steps) + offset
    figure = (
        go.Figure()
        .add_scatter(y=y, name="share, theory")
        .add_scatter(y=y, name="share", mode="markers")
    )
    return figure.update_layout(xaxis_title="day", yaxis_title="share"), f"At the end {y[-1]:.3f}."


@pytest.fixture
def live() -> Iterator[Callable[..., LiveFigure]]:
    """`ex.live`, whose figures are closed in the end, with the first one drawn."""
    figures: list[LiveFigure] = []

    def make(function: Callable[..., Any], **controls: Any) -> LiveFigure:
        figures.append(ex.live(function, **controls))
        until(figures[-1], "idle", "failed")
        return figures[-1]

    yield make
    for figure in figures:
        figure.close()
        assert not figure.panel.worker.alive


def until(figure: LiveFigure, *states: str) -> None:
    end = time.monotonic() + WAIT
    while figure.panel.status.state not in states and time.monotonic() < end:
        time.sleep(0.01)
    with LOCK:
        assert figure.panel.status.state in states, figure.panel.status.text


def move(figure: LiveFigure, **values: object) -> None:
    """What a browser does."""
    controls = figure.panel.controls
    controls.set_state({"values": {**controls.values, **values}})


def ys(figure: LiveFigure) -> list[list[float]]:
    return [plain(trace["y"]) for trace in figure.panel.charts["figure"].figure["data"]]


# --- controls -------------------------------------------------------------------------------------


def test_type_hints_with_defaults_become_controls(live) -> None:
    fields = {
        item["name"]: item for part in live(left).panel.controls.sections for item in part["fields"]
    }
    looks = {name: item["look"] for name, item in fields.items()}
    assert looks == {"rate": "slider", "steps": "slider", "slow": "switch", "start": "segments"}
    assert (fields["steps"]["label"], fields["steps"]["unit"]) == ("Steps taken", "days")
    assert fields["rate"]["label"] == "Rate"
    assert (fields["rate"]["steps"][0], fields["rate"]["steps"][-1], fields["rate"]["initial"]) == (
        0,
        1,
        0.5,
    )
    assert [option["value"] for option in fields["start"]["options"]] == ["one", "two"]


def test_keywords_stand_in_place_of_types_and_defaults(live) -> None:
    def area(side, corner="round", n: int = 3, **more):
        return go.Figure().add_scatter(y=[side] * n), f"{corner} {sorted(more)}"

    shown = live(
        area,
        side=ex.slider(1, 1000, 10, log=True),
        corner=("sharp", "round"),
        n=ex.slider(2, 9),
        filled=True,
    )
    assert shown.panel.controls.config.model_dump() == {
        "side": 10,
        "corner": "round",
        "n": 3,
        "filled": True,
    }
    assert shown.panel.status.text == "round ['filled']"
    assert shown.panel.controls.sections[0]["fields"][0]["steps"][:6] == [1, 2, 3, 4, 6, 8]
    assert (
        type(settings_of(area, {"side": ex.slider(0, 1.5, 1), "n": ex.slider(2, 9)})().side)
        is float
    )


def untyped(n: int = 3, word: str = "a", copy: bool = False) -> None: ...


@pytest.mark.parametrize(
    ("attempt", "sentence"),
    [
        (
            lambda: ex.live(left, side=3),
            "side must be a parameter of left, which has rate, .*got 3",
        ),
        (lambda: ex.live(untyped), "n must have a control: .*; got 3"),
        (lambda: ex.live(untyped, n=ex.slider(1, 5)), "word must have a control: .*; got 'a'"),
        (
            lambda: ex.live(untyped, n=ex.slider(1, 5), word=("a", "b")),
            "parameter of untyped must have a name .*; got 'copy'",
        ),
        (lambda: ex.live(lambda side: side), "side must have a control: .*; got nothing"),
        (
            lambda: ex.live(lambda side: side, side=ex.slider(1, 5)),
            "start of side must be given, .*; got none",
        ),
        (
            lambda: ex.live(untyped, n=ex.slider(1.5, 5)),
            r"slider of n must have whole numbers, .*; got \(1.5, 5, 3\)",
        ),
        (lambda: ex.slider(5, 2, 3), "high of a slider must be above low; got 2 and 5"),
        (lambda: ex.slider(1, 2, 3), "start of a slider must be between 1 and 2; got 3"),
        (lambda: ex.slider(0, 2, 1, log=True), "low of a logarithmic slider .* above 0; got 0"),
        (lambda: ex.slider(0, float("inf"), 1), "high of a slider .* finite number; got inf"),
        (lambda: ex.slider("0", 1, 1), "low of a slider must be a finite number; got '0'"),
    ],
)
def test_a_control_that_cannot_be_is_refused_in_one_sentence(
    attempt: Callable[[], Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence) as refused:
        attempt()
    assert "\n" not in str(refused.value)


# --- what is drawn --------------------------------------------------------------------------------


def test_the_figure_follows_its_controls(live) -> None:
    figure = live(left)
    chart = figure.panel.charts["figure"]
    assert (chart.title, chart.caption) == ("The share that is left", "At the end 0.125.")
    assert ys(figure) == [[1, 0.5, 0.25, 0.125]] * 2
    move(figure, rate=0.0, start="two", steps=2)
    until(figure, "idle")
    assert ys(figure) == [[2, 2]] * 2
    assert chart.marks == "Rate 0 · Steps taken 2 · Slow off · Start two"
    assert "share, theory: 2 at 0, 2 at 1" in chart.description
    move(figure, rate=7)
    until(figure, "refused")
    assert (
        figure.panel.status.text == "Refused: Rate must be a finite number between 0 and 1; got 7."
    )
    assert chart.stale
    assert ys(figure) == [[2, 2]] * 2
    figure.panel.status.handle("action", [])  # it takes the choice back
    until(figure, "idle")
    assert not chart.stale


def test_traces_of_one_name_share_a_hue_and_own_settings_are_kept() -> None:
    _, figure, sentence = drawn(left(0.5, 4, offset=0.5))
    lines, dots = figure.data
    assert lines.line.color == dots.marker.color
    assert (lines.mode, dots.mode) == ("lines", "markers")
    assert figure.layout.xaxis.title.text == "day"
    assert figure.layout.paper_bgcolor == "rgba(0, 0, 0, 0)"
    assert sentence == "At the end 0.625."
    own = go.Figure(layout={"title": "Mine", "xaxis": {"range": [0, 9]}}).add_scatter(
        y=[1, 10], line_color="red"
    )
    title, figure, sentence = drawn(own.update_layout(yaxis_type="log"))
    assert (title, sentence, figure.layout.title.text) == ("Mine", "", None)
    assert figure.data[0].line.color == "red"
    assert tuple(figure.layout.xaxis.range) == (0, 9)
    low, high = figure.layout.yaxis.range  # exponents
    assert -0.5 < low < 0 < 1 < high < 1.5
    assert own.layout.yaxis.range is None, "the caller's figure is left as it was"


@pytest.mark.parametrize(
    "other",
    [
        go.Figure().add_heatmap(z=[[1, 2], [3, 4]]),
        go.Figure().add_bar(x=["a", "b"], y=[1, 2]),
        go.Figure().add_scatter(x=["a", "b"], y=[1, 2]),
        go.Figure(),
        go.Figure().add_scatter(x=[pd.NaT], y=["z"]),
    ],
)
def test_any_figure_can_be_shown(live, other: go.Figure) -> None:
    shown = live(lambda: other)
    assert shown.panel.status.state == "idle", shown.panel.status.text
    assert "ex-still" in shown.panel.still()


def test_a_profile_is_drawn_as_the_page_draws_it(live) -> None:
    small = ex.Config(n_layers=2, d_model=16, n_heads=2, n_ctx=8, batch_size=1)
    figure = live(lambda n: ex.predict(small.replace(n_layers=n)), n=ex.slider(1, 4, 2))
    assert figure.panel.charts["figure"].title == "Second moment"
    assert [number for line in ys(figure) for number in line if number is not None][
        -1
    ] == pytest.approx(ex.predict(small)["second_moment", "resid_post"][0, -1])
    _, both, _ = drawn((ex.measure(small), "measured beside predicted"))
    assert {"lines", "markers"} <= {trace.mode for trace in both.data}


@pytest.mark.parametrize(
    "wrong", [None, 3, "words", (go.Figure(), "a", "b"), (go.Figure(),) * 2, (go.Figure(), 3)]
)
def test_anything_else_is_refused_with_its_value(wrong: object) -> None:
    with pytest.raises(
        TypeError, match="must return a plotly figure or a Profile, and at most a sentence beside"
    ):
        drawn(wrong)


def test_an_error_is_a_sentence_and_the_line_stays(live) -> None:
    def fails(n: int = ex.slider(1, 5, 2)) -> go.Figure:
        if n == 3:
            raise ValueError("no\n   threes")
        return go.Figure().add_scatter(y=[n, n])

    figure = live(fails)
    move(figure, n=3)
    until(figure, "failed")
    line = fails.__code__.co_firstlineno + 2
    assert figure.panel.status.text == f"ValueError in line {line} of its cell: no threes"
    assert figure.panel.status.detail == "The charts show the last computed setting."
    assert ys(figure) == [[2, 2]]
    move(figure, n=4)
    until(figure, "idle")
    assert ys(figure) == [[4, 4]]


def test_work_runs_on_a_thread_reports_and_ends_for_newer_settings(live) -> None:
    begun, ended, threads = threading.Event(), [], set()

    def slow(n: int = ex.slider(1, 5, 1), progress=None) -> go.Figure:
        threads.add(threading.current_thread().name)
        try:
            for step in range(10_000 if n == 2 else 1):
                progress(step / 10_000)
                begun.set() if n == 2 else None
                time.sleep(0.001)
        except ex.Stopped:
            ended.append(n)
            raise
        return go.Figure().add_scatter(y=[n])

    figure = live(slow)
    assert [item["name"] for part in figure.panel.controls.sections for item in part["fields"]] == [
        "n"
    ]
    move(figure, n=2)
    assert begun.wait(WAIT)
    move(figure, n=3)
    until(figure, "idle")
    assert ys(figure) == [[3]]
    assert ended == [2]
    assert threads == {"explorer-worker"}
    begun.clear()
    move(figure, n=2)
    assert begun.wait(WAIT)
    figure.panel.status.handle("action", [])
    until(figure, "stale")
    assert figure.panel.status.text == "Stopped."
    assert ys(figure) == [[3]]


# --- stills ---------------------------------------------------------------------------------------

PATH = "{http://www.w3.org/2000/svg}path"
SOURCE = """import explorer as ex, plotly.graph_objects as go
def straight(n: int = ex.slider(2, 9, 3)):
    "A straight <line>"
    figure = go.Figure().add_scatter(y=[*range(n)], name="drawn", mode="markers").add_scatter(y=[0, n], name="theory")
    return figure, f"{n} & no more."
ex.live(straight)"""


def test_a_cell_keeps_a_still_with_dots_lines_and_words() -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(SOURCE)])
    NotebookClient(notebook, timeout=120).execute()
    live, still = notebook.cells[0].outputs
    assert live.data["text/plain"] == "live(straight)"
    assert "application/vnd.jupyter.widget-view+json" in live.data
    assert "application/vnd.jupyter.widget-view+json" not in still.data
    page = still.data["text/html"]
    assert "<h3>A straight &lt;line&gt;</h3><p>3 &amp; no more.</p>" in page
    drawing = base64.b64decode(
        re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', page)[1]
    ).decode()
    paths = [node.get("d") for node in ElementTree.fromstring(drawing).iter(PATH)]  # noqa: S314 - our own
    assert sum(path.count("h0") for path in paths) == 3, "a dot a value"
    assert any(path.count("L") == 1 for path in paths), "the line"
    assert ">drawn<" in drawing
    assert ">theory<" in drawing


def test_every_lesson_can_be_served_by_its_name() -> None:
    for lesson in (notebooks() / "lessons").glob("*.ipynb"):
        assert _page(f"lessons/{lesson.stem}") == lesson
    with pytest.raises(
        ServeError,
        match=r"must be one of .*lessons/01_drawing_weights.*; got 'lessons/\.\./explorer'",
    ):
        _page("lessons/../explorer")
