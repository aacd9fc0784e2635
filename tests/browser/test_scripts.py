"""Functions of the page's scripts, on an empty page that has no kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from explorer.app.widgets.runtime import APP, SHARED

SOURCES = {path.stem: path.read_text(encoding="utf-8") for path in APP.rglob("*.js")}
LINE = {"type": "scatter", "mode": "lines", "x": [0, 1], "y": [1, 2], "line": {"color": "red"}}
LAYOUT = {
    "xaxis": {"range": [0, 1], "nticks": 7},
    "yaxis": {"type": "log", "range": [0, 1]},
    "meta": {"description": "a"},
    "width": 400,
}


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    made = browser.new_page(viewport={"width": 1000, "height": 1000})
    yield made
    made.close()


def call(page: Page, code: str, given: Any = None, script: str = "elements") -> Any:
    """Runs code that sees the shared scripts and one other, with `given`."""
    names = dict.fromkeys([*SHARED, script])
    scripts = "\n".join(SOURCES[name] for name in names).replace("export ", "")
    return page.evaluate(f"(given) => {{ {scripts}\n{code} }}", given)


@pytest.mark.parametrize(
    ("trace", "layout", "moved"),
    [
        ({}, {}, {"traces": [], "scales": {}}),
        ({"y": [1, 3]}, {"meta": {"description": "b"}}, {"traces": [0], "scales": {}}),
        (
            {"y": [1, 3]},
            {"yaxis": {"type": "log", "range": [0, 2]}},
            {"traces": [0], "scales": {"yaxis.range": [0, 2]}},
        ),
        ({}, {"xaxis": {"range": [0, 1]}}, {"traces": [], "scales": {"xaxis.nticks": None}}),
        (
            {},
            {"xaxis": {"range": [0, 1], "nticks": 7, "dtick": 1}},
            {"traces": [], "scales": {"xaxis.dtick": 1, "xaxis.tickmode": None}},
        ),
        ({}, {"yaxis": {"type": "linear", "range": [0, 1]}}, None),
        ({"line": {"color": "blue"}}, {}, None),
        ({"customdata": [1, 2]}, {}, None),
        ({"type": "heatmap", "y": [1, 3]}, {}, None),
        ({}, {"width": 500}, None),
        ({}, {"yaxis2": {"range": [0, 1]}}, None),
    ],
)
def test_what_is_drawn_as_a_move_and_what_as_a_whole(page, trace, layout, moved):
    before = {
        "data": [LINE | ({"type": trace["type"]} if "type" in trace else {})],
        "layout": LAYOUT,
    }
    after = {"data": [LINE | trace], "layout": LAYOUT | layout}
    longer = {**after, "data": [*after["data"], LINE]}
    pairs = [[before, after], [None, after], [before, longer]]
    code = "return given.map(([before, after]) => moves(before, after));"
    assert call(page, code, pairs) == [moved, None, None]


@pytest.mark.parametrize(
    ("top", "bottom", "above"), [(600, 640, False), (760, 800, True), (5, 900, False)]
)
def test_a_popup_opens_below_where_there_is_room_or_at_least_more_than_above(
    page: Page, top: int, bottom: int, above: bool
) -> None:
    code = """
        const popup = document.createElement("div");
        const anchor = { getBoundingClientRect: () => ({ left: 0, width: 100, ...given }) };
        placeBelow(popup, anchor);
        return popup.style.top === "auto";"""
    assert call(page, code, {"top": top, "bottom": bottom}) == above


def test_the_progress_of_a_computation_is_a_bar_from_its_start_to_its_end(page: Page) -> None:
    code = """
        return given.map((fraction) => {
          const [el, traits] = [document.createElement("div"), { fraction, state: "computing" }];
          const [get, on] = [(name) => traits[name] ?? "", () => {}];
          status({ get, on, page: { silence: 0, listeners: new Set() } }, el);
          const bar = el.querySelector("[aria-label=Progress]");
          return bar.hidden ? "none" : bar.position;
        });"""
    assert call(page, code, [-1, 0, 0.5, 1, 2], "status") == ["none", 0, 0.5, 1, -1]


def test_a_number_has_all_its_digits_in_the_shorter_notation(page: Page) -> None:
    values = [64, 100_000, 0.125, 10_000_000, 1_234_567, 1e-7, "a long word"]
    assert call(page, "return given.map(formatNumber);", values, "controls") == [
        *("64", "100000", "0.125", "1e7", "1234567", "1e-7", "a long word")
    ]


QUEUE = """
    const sent = [], answers = [], on = () => {};
    const state = { top: 1, handled: 0, parts: { 1: { children: [2], a: 0 }, 2: { children: [] } } };
    const model = {
      on,
      get: (name) => ({ layout: { on }, state })[name],
      send: ([, part, verb, content], callbacks) => {
        if (callbacks) answers.push(callbacks.iopub.status);
        if (part) sent.push([part, verb, content]);
      },
    };
    const page = new Page(model), [one, two] = [page.parts.get(1), page.parts.get(2)];
    let repaints = 0;
    for (const events of ["change:a change:b", "change:a"]) one.on(events, () => { repaints += 1; });
    one.change({ a: 1 });
    page.merge({ parts: { 1: { a: 0 } }, handled: 0 });
    const kept = one.get("a");
    page.merge({ parts: { 1: { a: 9 } }, handled: 1 });
    const corrected = one.get("a");
    one.change({ a: 2 });
    one.change({ b: 3 });
    two.change({ a: 4 });
    one.act("press");
    one.change({ a: 5 });
    const early = sent.length;
    while (answers.length) answers.shift()({ content: { execution_state: "idle" } });
    return [kept, corrected, early, repaints, sent];"""


def test_a_persons_acts_are_sent_in_turn_and_changes_of_a_part_that_wait_as_one(page: Page) -> None:
    kept, corrected, early, repaints, sent = call(page, QUEUE)
    assert kept == 1, "the kernel did not know of the change yet"
    assert corrected == 9
    assert early == 1, "the others wait for the answer"
    assert repaints == 4 * 2 + 1, "one of b has one listener, and what is older is no change"
    assert sent == [
        [1, "set", {"a": 1}],
        [1, "set", {"a": 2, "b": 3}],
        [2, "set", {"a": 4}],
        [1, "act", "press"],
        [1, "set", {"a": 5}],
    ]


PERI = "Peri-LN, init variance 2"


@pytest.mark.parametrize(
    ("names", "lines"),
    [
        ([f"{PERI}, SwiGLU"], [["Peri-LN, init variance 2,", "SwiGLU"]]),
        (
            [f"{PERI}, SwiGLU", f"{PERI}, GEGLU (now)"],
            [["Peri-LN, …, SwiGLU"], ["Peri-LN, …, GEGLU (now)"]],
        ),
        (["Pre-LN", f"{PERI} (now)"], [["Pre-LN"], ["Peri-LN, init variance 2", "(now)"]]),
        (
            ["Pre-LN, 8 heads, bias, d_ff 1024", "Pre-LN, 4 heads, bias, d_ff 1024"],
            [["Pre-LN, …, 8 heads"], ["Pre-LN, …, 4 heads"]],
        ),
    ],
)
def test_names_in_a_short_legend_differ_and_keep_their_ends(
    page: Page, names: list[str], lines: list[list[str]]
) -> None:
    assert call(page, "return legendNames(given, 29);", names, "picture") == lines
