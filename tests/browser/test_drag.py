"""Charts that follow a slider: only what moved is drawn, and the picture is the one that a whole drawing gives."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_figures import FIGURE
from plotly.offline import get_plotlyjs

from explorer import Config, measure, predict
from explorer.figures import FIGURES as ROWS
from explorer.figures.data import changes, packed

from .dashboard import Dashboard

UPDATE = (Path(__file__).parents[2] / "explorer" / "app" / "widgets" / "update.js").read_text(encoding="utf-8")
PATCHED = f"(rows) => {{ {UPDATE}\nreturn rows.map(([figure, found]) => patched(figure, found)); }}"
TRAIL = f"""async ([before, after]) => {{
  {UPDATE}
  const plot = document.body.appendChild(document.createElement("div"));
  const {{ data, layout }} = structuredClone(before);
  await Plotly.newPlot(plot, data, {{ ...layout, width: 500, height: 300 }});
  const {{ traces, scales }} = moves(before, after);
  const where = () => Object.fromEntries([
    ['lines', '.js-line', 'd'], ['bands', '.js-fill', 'd'], ['dots', '.points path', 'transform'],
    ['left', '.textpoint text', 'x'], ['top', '.textpoint text', 'y'],
    ['ticks', '.xtick text, .ytick text', 'transform'], ['grid', '.xgrid, .ygrid', 'transform'],
  ].map(([name, parts, place]) => [name, [...plot.querySelectorAll(parts)].map((node) => node.getAttribute(place))]));
  const all = [...after.data.keys()], slid = await slide(Plotly, plot, after, scales);
  if (!slid) await rescale(Plotly, plot, scales);
  const earlier = where(), could = writePositions(plot, after, slid ? all : traces), ahead = where();
  if (slid) await rescale(Plotly, plot, scales);
  await move(Plotly, plot, after, slid ? all : traces);
  return {{ slid, could, earlier, ahead, drawn: where() }};
}}"""
"""Where lines, bands, dots, words, ticks and their lines are: of the figure before, on its axes or moved ones, as they
went ahead, and as plotly draws them."""
ROOM = f"""async ([before, after]) => {{
  {UPDATE}
  const plot = document.body.appendChild(document.createElement("div"));
  const {{ data, layout }} = structuredClone(before);
  await Plotly.newPlot(plot, data, {{ ...layout, width: 500, height: 300 }});
  const slid = await slide(Plotly, plot, after, moves(before, after).scales);
  const boxes = (parts) => [...plot.querySelectorAll(parts)].map((node) => node.getBoundingClientRect());
  return {{ slid, title: boxes('.ytitle')[0].right, ticks: Math.min(...boxes('.ytick text').map((box) => box.left)) }};
}}"""
"""Where a title ends and the ticks beside it begin, once these have grown."""
MOVES = f"([before, after]) => {{ {UPDATE}\nreturn moves(before, after); }}"
DRAG = """async ([field, steps]) => {
  const slider = document.querySelector(`[data-field=${field}] input[type=range]`);
  for (const step of steps) {
    slider.value = Number(slider.value) + step;
    slider.dispatchEvent(new Event('input', { bubbles: true }));
    await new Promise((go) => setTimeout(go, 60));
  }
  slider.dispatchEvent(new Event('change', { bubbles: true })); // it is let go
}"""
HEARD = """() => {
  const { send } = WebSocket.prototype;
  globalThis.heard = [];
  WebSocket.prototype.send = function heard(data) {
    const words = typeof data === 'string' ? data : new TextDecoder().decode(data);
    const held = words.match(/"held":(true|false)/)?.[1];
    if (held) globalThis.heard.push(held);
    return send.call(this, data);
  };
}"""
PICTURES = """() => [...document.querySelectorAll('.ex-chart-plot')].flatMap((plot) => (
  [...plot.querySelectorAll('.main-svg')].flatMap((svg) => {
    const copy = svg.cloneNode(true);
    copy.querySelectorAll('defs, .hoverlayer, .draglayer').forEach((node) => node.remove());
    for (const { parentNode } of copy.querySelectorAll('.xgrid, .ygrid, .xtick, .ytick')) {
      parentNode.append(...[...parentNode.children].sort((one, other) => (one.outerHTML < other.outerHTML ? -1 : 1)));
    }
    return copy.outerHTML.replaceAll('><', '>\\n<').split('\\n');
  })))"""
"""What the charts show, an element a line; grid lines and ticks, which lie beside each other, in some fixed order."""
OTHER = f"(start) => ({PICTURES})().join() !== start.join()"
STEADY = """() => {
  const drawn = [...document.querySelectorAll('.ex-chart-plot')].map((plot) => plot.dataset.drawn).join();
  const steady = drawn === globalThis.earlier;
  globalThis.earlier = drawn;
  return steady;
}"""
ALL_DRAWN = """(before) => [...document.querySelectorAll('.ex-chart-plot')].every((plot, at) => (
  Number(plot.dataset.drawn) > before[at]))"""


def pictures(dashboard: Dashboard) -> list[str]:
    found: list[str] = dashboard.page.evaluate(PICTURES)
    return found


def settle(dashboard: Dashboard) -> None:
    """Waits until no chart, on the screen or off it, is drawn any more."""
    dashboard.page.wait_for_function(STEADY, polling=700)


def whole(dashboard: Dashboard) -> list[str]:
    """The same figures, drawn whole: that is what a page does that becomes dark, and light again."""
    for scheme in ("dark", "light"):
        before = dashboard.drawn()
        dashboard.page.emulate_media(color_scheme=scheme)
        dashboard.page.wait_for_function(ALL_DRAWN, arg=before)
    settle(dashboard)
    return pictures(dashboard)


@pytest.mark.parametrize(("field", "steps"), [
    ("init_variance", [1, 1, 1, 1, -1, 1, 1]), ("n_layers", [1, 1, -1, 1, -4, -1, -1, 5]),
    ("alpha", [1, 1, 1, 1, -1, 1]),
])
def test_after_a_drag_the_picture_is_that_of_a_whole_drawing(dashboard, field, steps):
    start = whole(dashboard)  # plotly's first drawing of all lacks a shift of some words that any later one has
    with dashboard.redrawn():
        dashboard.page.evaluate(DRAG, [field, steps])
        dashboard.page.wait_for_function(OTHER, arg=start, polling=200)
    settle(dashboard)
    moved = pictures(dashboard)
    assert moved == whole(dashboard)
    assert moved != start


def test_the_kernel_hears_when_a_slider_is_held_and_when_it_is_let_go(dashboard):
    page, slider = dashboard.page, dashboard.slider("init_variance")
    page.wait_for_function("!document.documentElement.hasAttribute('data-unanswered')")
    page.evaluate(HEARD)
    with dashboard.redrawn():
        slider.hover(position={"x": 60, "y": 14})  # once it stands still
        page.mouse.down()
        try:
            page.wait_for_function("heard.at(-1) === 'true'")
        finally:
            page.mouse.up()
        page.wait_for_function("heard.at(-1) === 'false'")


def test_beside_a_pinned_design_as_well(dashboard):
    dashboard.page.get_by_role("button", name="Pin the current design").click()  # which is drawn already
    whole(dashboard)
    with dashboard.redrawn():
        dashboard.page.evaluate(DRAG, ["init_variance", [3, 3, -1]])
    settle(dashboard)
    assert pictures(dashboard) == whole(dashboard)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(st.tuples(FIGURE, FIGURE), min_size=10, max_size=30))
def test_a_browser_makes_of_a_patch_the_figure_that_the_kernel_has(visit, rows):
    found = visit.page.evaluate(PATCHED, [[before, changes(before, after)] for before, after in rows])
    assert found == [after for _, after in rows]


@pytest.fixture(scope="module")
def with_plotly(browser):
    page = browser.new_page()
    page.add_script_tag(content=get_plotlyjs())
    yield page
    page.close()


@pytest.fixture
def blank(with_plotly):
    with_plotly.evaluate("document.body.replaceChildren()")
    return with_plotly


def points(path):
    return np.array([point.split(",") for point in path.strip("MZ").split("L")], dtype=float)


def lies_as_drawn(found):
    """Checks that what went ahead lies where plotly put it afterwards."""
    ahead, drawn = found["ahead"], found["drawn"]
    for kind in ("ticks", "grid"):  # of which some are put on top
        assert sorted(ahead[kind]) == sorted(drawn[kind])
    for kind in ("lines", "bands"):
        for before, after in zip(ahead[kind], drawn[kind], strict=True):
            path = points(before)
            apart = [np.hypot(*(path - point).T).min() for point in points(after)]
            assert max(apart) < 0.01  # plotly leaves out what adds nothing
    for kind in ("dots", "left", "top"):
        places = [np.array(re.findall(r"[-.\d]+", " ".join(side[kind])), dtype=float) for side in (ahead, drawn)]
        np.testing.assert_allclose(*places, atol=0.01)


def alike(profiles):
    """A function of a chart's name to its figure, on axes of the same height for all such profiles."""
    def figure(name):
        figure = ROWS[name].plain(profiles)
        figure["layout"]["yaxis"] |= {"range": (-3, 5), "nticks": 5}
        for trace in figure["data"]:
            if trace["mode"] == "lines+text":
                trace |= {"y": [1, 1, None, 1]}
        return json.loads(json.dumps(packed(figure)))

    return figure


NAMES = ["second_moment", "gradient_by_layer", "attention_entropy", "token_correlation"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n_layers", [40, 64], ids=["axes that stay", "an axis that has moved"])
def test_a_line_goes_ahead_to_where_plotly_draws_it(blank, name, n_layers):
    before, after = (alike([predict(config)])(name) for config in (
        Config(n_layers=40), Config(n_layers=n_layers, init_variance=1.7, alpha=0.8)))
    found = blank.evaluate(TRAIL, [before, after])
    assert found["could"]
    moved = [at for at, path in enumerate(found["earlier"]["lines"]) if path != found["ahead"]["lines"][at]]
    assert len(moved) == 1 if n_layers == 40 else moved
    assert found["slid"] == (n_layers == 64)
    assert found["ahead"]["left"] == found["earlier"]["left"]  # words stand at the axis's end, wherever that is
    lies_as_drawn(found)


def test_a_title_makes_way_for_ticks_that_grow(blank):
    before, after = (json.loads(json.dumps(packed(ROWS["second_moment"].plain([predict(Config(n_layers=n_layers))]))))
                     for n_layers in (12, 48))
    found = blank.evaluate(ROOM, [before, after])
    assert found["slid"]
    assert found["ticks"] - found["title"] >= after["layout"]["yaxis"]["title"]["standoff"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n_layers", [3, 80], ids=["each of them", "more than are drawn"])
def test_dots_and_their_spread_go_ahead_as_well(blank, name, n_layers):
    small = Config(n_layers=n_layers, d_model=32, n_heads=2, n_ctx=16, batch_size=2, n_seeds=3)
    before, after = (alike([predict(config), measure(config)])(name) for config in (
        small, small.replace(init_variance=1.7, alpha=0.8)))
    found = blank.evaluate(TRAIL, [before, after])
    assert found["could"]
    for kind in ("bands", "dots"):
        assert found["ahead"][kind] != found["earlier"][kind] != []
    lies_as_drawn(found)


@pytest.mark.parametrize("change", [
    {"y": [1, None, 3]}, {"y": [None, None, None]}, {"mode": "lines+markers", "y": [1, 2, 3]},
    {"fill": "tozeroy", "y": [1, 2, 3]}, {"x": [0, 1, 2, 3, 4, 5], "fill": "toself", "y": [1, 2, None, 3, 2, 1]},
    {"mode": "markers", "y": [1, None, 3]}, {"mode": "markers", "error_y": {"array": [1, 1, 1]}, "y": [1, 2, 3]},
    {"line": {"shape": "hv"}, "y": [1, 2, 3]}, {"y": [1, -2, 3]},
    {"mode": "lines+text", "text": ["a", "", "c"], "y": [None, 2, 3]},
])
def test_what_is_more_than_a_line_is_left_to_plotly(blank, change):
    line = {"type": "scatter", "mode": "lines", "x": [1, 2, 3], "y": [1, 1, 1]} | change
    before = {"data": [line | {"y": [1] * len(line["y"])}], "layout": {"yaxis": {"type": "log", "range": [-1, 1]}}}
    found = blank.evaluate(TRAIL, [before, {**before, "data": [line]}])
    assert not found["could"]
    assert found["ahead"] == found["earlier"]


MANY = [
    ([2.0] * 200, True), ([2.0, 30.0] * 100, True), ([2.0, None, 2.0, 4.0] * 50, True), ([None, *[2.0] * 199], False),
    ([2.0] * 7 + [None] * 193, False), ([30.0] * 10 + [2.0] * 190, False), ([None] * 200, False),
]
"""Heights of dots, some of them above the chart, and whether they must go ahead there and back."""


@pytest.mark.parametrize(("others", "visible"), [(0, True), (1, True), (4, True), (1, "legendonly")])
def test_of_many_dots_those_go_ahead_that_plotly_draws(blank, others, visible):
    dots = {"type": "scatter", "mode": "markers", "x": [*range(200)], "marker": {"maxdisplayed": 64}}
    below = [dots | {"y": [1] * 200, "visible": visible}] * others
    layout = {"xaxis": {"range": [-1, 200]}, "yaxis": {"range": [0, 5]}}
    for (y, must), turned in itertools.product(MANY, (False, True)):
        before, after = ({"data": [*below, dots | {"y": heights}], "layout": layout}
                         for heights in ((y, [3] * 200) if turned else ([3] * 200, y)))
        found = blank.evaluate(TRAIL, [before, after])
        if found["could"]:
            assert found["ahead"]["dots"] != found["earlier"]["dots"]
            lies_as_drawn(found)
        else:
            assert not must
            assert found["ahead"] == found["earlier"]


@pytest.mark.parametrize("y", [[None, 2, 3, None], [None, None, 3, None]])
def test_a_line_that_begins_later_goes_ahead_too(blank, y):
    figure = {"data": [{"type": "scatter", "mode": "lines", "x": [1, 2, 3, 4], "y": [1, 1, 1, 1]}],
              "layout": {"xaxis": {"range": [0, 5]}, "yaxis": {"range": [0, 5]}}}
    found = blank.evaluate(TRAIL, [figure, {**figure, "data": [figure["data"][0] | {"y": y}]}])
    assert found["could"]
    lies_as_drawn(found)


LINE = {"type": "scatter", "mode": "lines", "x": [0, 1], "y": [1, 2], "line": {"color": "red"}}
LAYOUT = {
    "xaxis": {"range": [0, 1], "nticks": 7}, "yaxis": {"type": "log", "range": [0, 1]}, "meta": {"description": "a"},
}


@pytest.mark.parametrize(("trace", "layout", "moved"), [
    ({}, {}, {"traces": [], "scales": {}}),
    ({"y": [1, 3]}, {"meta": {"description": "b"}}, {"traces": [0], "scales": {}}),
    ({"y": [1, 3]}, {"yaxis": {"type": "log", "range": [0, 2]}}, {"traces": [0], "scales": {"yaxis.range": [0, 2]}}),
    ({}, {"xaxis": {"range": [0, 1]}}, {"traces": [], "scales": {"xaxis.nticks": None}}),
    ({}, {"xaxis": {"range": [0, 1], "nticks": 7, "dtick": 1}},
     {"traces": [], "scales": {"xaxis.dtick": 1, "xaxis.tickmode": None}}),
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
