"""Grids: the lessons' live figures at some settings each, for the site, where they move without a
kernel.

    python -m benchmarks.grids [06_root_d …]  # all lessons where none is named

`docs/live` has a file of each lesson: a list of figures with their `cell` and `controls`, and in
`changes` a record for each setting, the last control varying fastest, of what is another than
before. `docs/live/zh` has the same of what the Chinese lesson has otherwise than the English one:
`words`, and the labels of its controls. After a change of a lesson's live figures its files are
written anew."""

from __future__ import annotations

import io
import itertools
import json
import math
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import nbformat

import explorer
from benchmarks.goldens import plain
from benchmarks.lessons import FOLDER as CHINESE
from benchmarks.lessons import LESSONS, ROOT
from explorer.app.widgets.slider_steps import slider_steps, thinned
from explorer.choices import Choices
from explorer.fields import Spec
from explorer.lessons.live import drawn
from explorer.lessons.settings import settings_of
from explorer.numbers import number
from explorer_serve.server import TRAIN

FOLDER = ROOT / "docs" / "live"
MOST = 256
"""Settings of a figure, unless three values of each slider are more."""
MOST_VALUES = 8
"""Values of a slider."""
DIGITS = 4
"""Significant digits of stored numbers: more than a chart on a screen shows."""
LIVE = "ex.live("
"""Call of a cell that shows a live figure."""
LiveCall = tuple[Callable[..., Any], type[Choices]]
"""The function of a live figure, and the record of its settings."""


def live_cells(lesson: Path) -> list[str]:
    """Code of a lesson's cells up to its last live figure, but for cells that train."""
    cells = [
        cell.source
        for cell in nbformat.read(lesson, as_version=4).cells
        if cell.cell_type == "code" and TRAIN not in cell.metadata.get("tags", [])
    ]
    while cells and LIVE not in cells[-1]:
        cells.pop()
    return cells


def live_calls(lesson: Path) -> list[LiveCall]:
    """Live figures of a lesson, in order; executes its cells."""
    calls: list[LiveCall] = []

    def live(function: Callable[..., Any], /, **controls: Any) -> None:
        calls.append((function, settings_of(function, controls)))

    namespace: dict[str, Any] = {"__name__": "__main__"}
    with (
        patch.object(explorer, "live", live),
        redirect_stdout(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy's, of tensors in a figure
        for cell in live_cells(lesson):
            exec(cell, namespace)  # noqa: S102 - a lesson's cell
    return calls


def values_of(spec: Spec, most: int) -> list[Any]:
    """Values of a setting, in order: all of a choice, and some of a slider's steps, with both ends
    and the default among them."""
    if spec.kind == "switch":
        return [False, True]
    if spec.choices:
        return list(spec.choices)
    steps = slider_steps(spec)
    values = thinned(steps, most)
    if spec.default not in values:
        distances = {
            value: abs(steps.index(value) - steps.index(spec.default)) for value in values[1:-1]
        }
        nearest = min(distances, key=distances.__getitem__)
        values[values.index(nearest)] = spec.default
    return values


def grid(settings: type[Choices]) -> dict[str, list[Any]]:
    """Values of each setting: as many of each slider as `MOST` settings allow, at least three."""
    values: dict[str, list[Any]] = {}
    for most in range(MOST_VALUES, 2, -1):
        values = {name: values_of(spec, most) for name, spec in settings.specs().items()}
        if math.prod(map(len, values.values())) <= MOST:
            break
    return values


def rounded(value: Any) -> Any:
    """Plain data with `DIGITS` digits, and None for numbers that are not finite."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def drawing(function: Callable[..., Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The figure at some settings: plotly's traces by number, its layout, and the sentence."""
    _, figure, sentence = drawn(function(**settings))
    parts = rounded(plain(json.loads(figure.to_json())))
    traces = {str(place): trace for place, trace in enumerate(parts["data"])}
    return {"traces": traces, "layout": parts["layout"], "sentence": sentence}


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Fields of a record that are new or have another value; None for those that are gone."""
    changes: dict[str, Any] = {}
    for key in before | after:
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict) and old != new:
            changes[key] = difference(old, new)
        elif old != new:
            changes[key] = new
    return changes


def control(spec: Spec, values: list[Any]) -> dict[str, Any]:
    """A control of the site: its kind, its label, the text of each value, and the index of the
    first."""
    texts = [str(value) for value in values]
    if spec.kind in ("integer", "number"):
        texts = [f"{number(value)} {spec.about.unit}".strip() for value in values]
    kind = "choice" if spec.choices else spec.kind
    start = values.index(spec.default)
    return {"kind": kind, "label": spec.about.label, "texts": texts, "start": start}


def drawings(call: LiveCall) -> list[dict[str, Any]]:
    """A live figure at all settings of its grid."""
    function, settings = call
    values = grid(settings)
    return [
        drawing(function, dict(zip(values, setting, strict=True)))
        for setting in itertools.product(*values.values())
    ]


def changes(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each record what is another than in the one before; all of the first."""
    return [difference(*pair) for pair in itertools.pairwise([{}, *records])]


def controls(settings: type[Choices]) -> list[dict[str, Any]]:
    """The controls of a live figure."""
    values = grid(settings)
    return [control(spec, values[name]) for name, spec in settings.specs().items()]


def stored_figures(lesson: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What is stored of a lesson's live figures, and of its translation's.

    The translation comes second, since it sets the language of the process."""
    cells = [cell for cell in live_cells(lesson) if LIVE in cell]
    calls = live_calls(lesson)
    states = [drawings(call) for call in calls]
    figures = [
        {"cell": cell, "controls": controls(settings), "changes": changes(of_figure)}
        for cell, (_, settings), of_figure in zip(cells, calls, states, strict=True)
    ]
    words = []
    for call, of_figure in zip(live_calls(translation(lesson)), states, strict=True):
        translated = [difference(*pair) for pair in zip(of_figure, drawings(call), strict=True)]
        labels = [spec.about.label for spec in call[1].specs().values()]
        words.append({"labels": labels, "words": changes(translated)})
    return figures, words


def translation(lesson: Path) -> Path:
    """The lesson in Chinese."""
    return lesson.parent / CHINESE / lesson.name


def store(lesson: Path) -> None:
    """Writes the files of a lesson."""
    paths = FOLDER / f"{lesson.stem}.json", FOLDER / CHINESE / f"{lesson.stem}.json"
    for file, figures in zip(paths, stored_figures(lesson), strict=True):
        lines = [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in figures]
        file.parent.mkdir(exist_ok=True)
        file.write_text("[" + ",\n".join(lines) + "]\n", encoding="utf-8")
        size = file.stat().st_size / 1000
        print(f"{file.relative_to(FOLDER)}: {size:.0f} kB", flush=True)


if __name__ == "__main__":
    lessons = [path for path in LESSONS if path.stem in sys.argv[1:] or len(sys.argv) == 1]
    # a process of its own for each, as a lesson has a kernel: some set torch's defaults
    with ProcessPoolExecutor(max_tasks_per_child=1) as pool:
        list(pool.map(store, lessons))
