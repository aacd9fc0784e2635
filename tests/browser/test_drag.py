"""Charts that follow a slider: only what moved is drawn, and the picture is the one that a whole
drawing gives."""

from __future__ import annotations

import pytest

from .conftest import in_voila
from .dashboard import Dashboard

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
"""What the charts show, an element a line; grid lines and ticks, which lie beside each other, in
some fixed order."""
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
    """The same figures, drawn whole: that is what a page does that becomes dark, and light
    again."""
    for scheme in ("dark", "light"):
        before = dashboard.drawn()
        dashboard.page.emulate_media(color_scheme=scheme)
        dashboard.page.wait_for_function(ALL_DRAWN, arg=before)
    settle(dashboard)
    return pictures(dashboard)


@in_voila
@pytest.mark.parametrize(
    ("field", "steps"),
    [
        ("init_variance", [1, 1, 1, 1, -1, 1, 1]),
        ("n_layers", [1, 1, -1, 1, -4, -1, -1, 5]),
    ],
)
def test_after_a_drag_the_picture_is_that_of_a_whole_drawing(dashboard, field, steps):
    # plotly's first drawing of all lacks a shift of some words that any later one has
    start = whole(dashboard)
    with dashboard.redrawn():
        dashboard.page.evaluate(DRAG, [field, steps])
        dashboard.page.wait_for_function(OTHER, arg=start, polling=200)
    settle(dashboard)
    moved = pictures(dashboard)
    assert moved == whole(dashboard)
    assert moved != start


@in_voila
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


@in_voila
def test_beside_a_pinned_design_as_well(dashboard):
    # which is drawn already
    dashboard.page.get_by_role("button", name="Pin the current design").click()
    whole(dashboard)
    with dashboard.redrawn():
        dashboard.page.evaluate(DRAG, ["init_variance", [3, 3, -1]])
    settle(dashboard)
    assert pictures(dashboard) == whole(dashboard)
