"""Charts that follow a slider: only what moved is drawn, and the picture is the one that a whole drawing gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_figures import FIGURE

from explorer.figures.plain import changes

from .dashboard import Dashboard

UPDATE = (Path(__file__).parents[2] / "explorer" / "app" / "widgets" / "update.js").read_text(encoding="utf-8")
PATCHED = f"(rows) => {{ {UPDATE}\nreturn rows.map(([figure, found]) => patched(figure, found)); }}"
MOVES = f"([before, after]) => {{ {UPDATE}\nreturn moves(before, after); }}"
DRAG = """async ([field, steps]) => {
  const slider = document.querySelector(`[data-field=${field}] input[type=range]`);
  for (const step of steps) {
    slider.value = Number(slider.value) + step;
    slider.dispatchEvent(new Event('input', { bubbles: true }));
    await new Promise((go) => setTimeout(go, 60));
  }
}"""
PICTURES = """() => [...document.querySelectorAll('.ex-chart-plot')].flatMap((plot) => (
  [...plot.querySelectorAll('.main-svg')].flatMap((svg) => {
    const copy = svg.cloneNode(true);
    copy.querySelectorAll('defs, .hoverlayer, .draglayer').forEach((node) => node.remove());
    return copy.outerHTML.replaceAll('><', '>\\n<').split('\\n');
  })))"""
"""What the charts show, an element a line."""
ALL_DRAWN = """(before) => [...document.querySelectorAll('.ex-chart-plot')].every((plot, at) => (
  Number(plot.dataset.drawn) > before[at]))"""


def pictures(dashboard: Dashboard) -> list[str]:
    found: list[str] = dashboard.page.evaluate(PICTURES)
    return found


def whole(dashboard: Dashboard) -> list[str]:
    """The same figures, drawn whole: that is what a page does that becomes dark, and light again."""
    for scheme in ("dark", "light"):
        before = dashboard.drawn()
        dashboard.page.emulate_media(color_scheme=scheme)
        dashboard.page.wait_for_function(ALL_DRAWN, arg=before)
    return pictures(dashboard)


@pytest.mark.parametrize("field", ["init_variance", "n_layers", "alpha"])
def test_after_a_drag_the_picture_is_that_of_a_whole_drawing(dashboard, field):
    start = whole(dashboard)  # plotly's first drawing of all lacks a shift of some words that any later one has
    with dashboard.redrawn():
        dashboard.page.evaluate(DRAG, [field, [1, 1, 1, 1, -1, 1, 1]])
    moved = pictures(dashboard)
    assert moved == whole(dashboard)
    assert moved != start


def test_beside_a_pinned_design_as_well(dashboard):
    dashboard.page.get_by_role("button", name="Pin the current design").click()  # which is drawn already
    whole(dashboard)
    with dashboard.redrawn():
        dashboard.page.evaluate(DRAG, ["init_variance", [3, 3, -1]])
    assert pictures(dashboard) == whole(dashboard)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(st.tuples(FIGURE, FIGURE), min_size=10, max_size=30))
def test_a_browser_makes_of_a_patch_the_figure_that_the_kernel_has(visit, rows):
    found = visit.page.evaluate(PATCHED, [[before, changes(before, after)] for before, after in rows])
    assert found == [after for _, after in rows]


LINE = {"type": "scatter", "mode": "lines", "x": [0, 1], "y": [1, 2], "line": {"color": "red"}}
LAYOUT = {
    "xaxis": {"range": [0, 1], "nticks": 7}, "yaxis": {"type": "log", "range": [0, 1]}, "meta": {"description": "a"},
}


@pytest.mark.parametrize(("trace", "layout", "moved"), [
    ({}, {}, {"traces": [], "scales": {}}),
    ({"y": [1, 3]}, {"meta": {"description": "b"}}, {"traces": [0], "scales": {}}),
    ({"y": [1, 3]}, {"yaxis": {"type": "log", "range": [0, 2]}}, {"traces": [0], "scales": {"yaxis.range": [0, 2]}}),
    ({}, {"xaxis": {"range": [0, 1]}}, {"traces": [], "scales": {"xaxis.nticks": None}}),
    ({}, {"yaxis": {"type": "linear", "range": [0, 1]}}, None),
    ({"line": {"color": "blue"}}, {}, None),
    ({"customdata": [1, 2]}, {}, None),
    ({"type": "heatmap", "y": [1, 3]}, {}, None),
    ({}, {"showlegend": True}, None),
])
def test_what_is_drawn_as_a_move_and_what_as_a_whole(visit, trace, layout, moved):
    before = {"data": [LINE | ({"type": trace["type"]} if "type" in trace else {})], "layout": LAYOUT}
    after = {"data": [LINE | trace], "layout": LAYOUT | layout}
    assert visit.page.evaluate(MOVES, [before, after]) == moved
    assert visit.page.evaluate(MOVES, [None, after]) is None
    assert visit.page.evaluate(MOVES, [before, {**after, "data": [*after["data"], LINE]}]) is None
