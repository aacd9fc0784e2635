"""The picture of the stack, the diagram of a layer, and the small pictures, under a pointer and by
keyboard."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from .dashboard import Dashboard, first_visit, wait_until_still

WHOLE = """(names) => names.filter((name) => {
  const { top, bottom, width } = document.querySelector(name).getBoundingClientRect();
  return !width || top < 0 || bottom > document.querySelector('.ex-status').getBoundingClientRect().top;
})"""
"""Those of the parts that do not lie whole in the window."""
FOCUS = "() => document.activeElement.closest('.ex-control')?.dataset.field"
HELD = """async (steps) => {
  const slider = document.querySelector('[data-field=init_variance] input[type=range]');
  const drawn = () => [...document.querySelectorAll('.ex-chart-plot')].map((plot) => Number(plot.dataset.drawn));
  const before = drawn();
  for (let step = 0; step < steps; step += 1) {
    slider.value = Number(slider.value) + 1;
    slider.dispatchEvent(new Event('input', { bubbles: true }));
    await new Promise((go) => setTimeout(go, 150));
  }
  const during = drawn().map((count, at) => count - before[at]);
  slider.dispatchEvent(new Event('change', { bubbles: true }));
  return during;
}"""
"""How often each chart is drawn while a slider is dragged and held."""
NUMBERS = "(texts) => texts.map((text) => text.textContent)"


@pytest.fixture
def wide(visit: Dashboard) -> Dashboard:
    visit.page.set_viewport_size({"width": 1440, "height": 900})
    visit.page.get_by_role("tab", name="Explore", exact=True).click()
    wait_until_still(visit.page)
    return visit


def test_a_part_opens_its_control_wherever_it_is_folded_away(wide: Dashboard) -> None:
    for label, field in (
        ("LN", "norm_placement"),
        ("q·k / √d", "attention_scale"),
        ("softmax", "causal"),
    ):
        wide.page.locator(".ex-part").filter(has_text=label).first.click()
        wide.page.wait_for_function(f"(field) => ({FOCUS})() === field", arg=field)
        expect(wide.control(field)).to_be_in_viewport()
    wide.must_be_clean()


def test_parts_are_one_stop_of_the_keyboard(wide: Dashboard) -> None:
    parts = wide.page.locator(".ex-part")
    parts.first.focus()
    wide.page.keyboard.press("Tab")
    expect(wide.page.locator(".ex-part:focus")).to_have_count(0)
    wide.page.keyboard.press("Shift+Tab")
    expect(parts.first).to_be_focused()
    wide.page.keyboard.press("ArrowRight")
    expect(parts.nth(1)).to_be_focused()
    with wide.redrawn():
        wide.choose("norm_placement", "peri")
    expect(parts.locator("visible=true").filter(has_text="LN")).to_have_count(5)
    parts.nth(1).focus()
    wide.page.keyboard.press("Enter")
    wide.page.wait_for_function(f"() => ({FOCUS})() === 'attention_scale'")
    wide.reset()


def test_a_pointer_on_a_chart_chooses_the_layer(wide: Dashboard) -> None:
    entry, numbers = (
        wide.page.get_by_label("Layer of the diagram"),
        wide.page.locator(".ex-block-number"),
    )
    last = numbers.evaluate_all(NUMBERS)
    dots = wide.page.locator(".ex-chart-plot").first.locator(".points path")
    assert dots.count() == 25  # the embedding, and two for each of twelve layers
    at = dots.nth(12)  # after layer 6
    at.hover(force=True)
    expect(entry).to_have_value("6")
    assert numbers.evaluate_all(NUMBERS) != last
    marks = wide.page.locator(".ex-chart-layer")
    # not the pattern
    assert marks.evaluate_all("(marks) => marks.map((mark) => mark.hidden)") == [False] * 5 + [True]
    mark, dot = marks.first.bounding_box(), at.bounding_box()
    assert mark is not None
    assert dot is not None
    assert mark["x"] == pytest.approx(dot["x"] + dot["width"] / 2, abs=1.5)
    wide.page.mouse.move(5, 5)
    expect(wide.page.locator(".ex-chart-layer:visible")).to_have_count(0)
    entry.press("End")
    entry.blur()
    expect(entry).to_have_value("12")
    expect(numbers).to_have_text(last)
    wide.must_be_clean()


THICKNESS = """() => [...document.querySelectorAll('.ex-stack-picture[aria-hidden] .ex-stack-band')].map((band) => (
  [band.firstChild, band.lastChild].map((piece) => Math.round(piece.getBBox().height))))"""
"""Pixels of the signal and of the gradient, each where it begins and where it ends."""
VIEW = ".ex-stack-picture[aria-hidden] .ex-stack-view:visible"


def test_the_stack_is_as_thick_as_the_signal_and_the_gradient(wide: Dashboard) -> None:
    (begin, end), (at_input, at_end) = wide.page.evaluate(THICKNESS)
    assert begin == 12
    assert end > 20  # 19 times the signal at the input
    assert at_input > at_end == 9
    with wide.redrawn():
        wide.choose("norm_placement", "post")
    (begin, flat), (_, shrunk) = wide.page.evaluate(THICKNESS)
    assert begin == flat == 12
    assert shrunk == 9
    wide.reset()


def test_a_label_has_room_in_the_fold_on_a_phone(wide: Dashboard) -> None:
    wide.page.set_viewport_size({"width": 390, "height": 900})
    with wide.redrawn():
        wide.write("n_layers", "17")
    label, view = wide.page.locator(f"{VIEW} > span"), wide.page.locator(VIEW)
    expect(label).to_have_text("5 layers")
    label.evaluate("(label) => { label.textContent = '988 layers' }")
    label_box, view_box = label.bounding_box(), view.bounding_box()
    assert label_box is not None
    assert view_box is not None
    knots = (view.get_attribute("data-knots") or "").split()
    _, begin, end, _ = (float(knot.partition(":")[2]) for knot in knots)
    assert label_box["width"] < (end - begin) * view_box["width"] - 8
    wide.page.set_viewport_size({"width": 1440, "height": 900})
    wide.reset()


def test_the_stack_moves_with_a_slider_and_settles_when_it_is_measured(wide: Dashboard) -> None:
    view, end = wide.page.locator(VIEW), wide.page.evaluate(THICKNESS)[0][1]
    expect(view).to_have_attribute("data-origin", "measured")
    with wide.redrawn():
        wide.page.evaluate(HELD, 8)
        expect(view).to_have_attribute("data-origin", "predicted")
        assert wide.page.evaluate(THICKNESS)[0][1] > end
    expect(view).to_have_attribute("data-origin", "measured")
    wide.reset()


def test_a_layer_is_chosen_in_the_stack_by_pointer_touch_and_keys(wide: Dashboard) -> None:
    entry, view = wide.page.get_by_label("Layer of the diagram"), wide.page.locator(VIEW)
    marks = wide.page.locator(".ex-chart-layer:visible")
    box = view.bounding_box()
    assert box is not None
    wide.page.mouse.move(box["x"] + box["width"] / 2 + 5, box["y"] + 30)
    expect(entry).to_have_value("7")  # the first one after the middle
    expect(wide.page.locator(".ex-diagram-head")).to_contain_text("Layer 7 of 12")
    expect(marks).to_have_count(5)
    wide.page.mouse.move(5, 5)
    expect(marks).to_have_count(0)
    view.dispatch_event("pointerdown", {"clientX": box["x"] + 3, "pointerType": "touch"})
    expect(entry).to_have_value("1")
    entry.focus()
    wide.page.keyboard.press("ArrowRight")
    expect(wide.page.locator(".ex-diagram-head")).to_contain_text("Layer 2 of 12")
    expect(entry).to_have_attribute("aria-valuetext", re.compile("Layer 2 of 12. Attention adds"))
    chosen = wide.page.locator(f"{VIEW} .ex-stack-chosen").bounding_box()
    assert chosen is not None
    assert box["x"] < chosen["x"] < box["x"] + box["width"] / 4
    wide.page.keyboard.press("End")
    expect(entry).to_have_value("12")
    entry.blur()
    wide.must_be_clean()


def test_a_deep_stack_is_folded_and_fits_on_a_phone(wide: Dashboard) -> None:
    with wide.redrawn():
        wide.write("d_model", "32")
    with wide.redrawn():
        wide.write("n_layers", "200")
    fold = wide.page.locator(f"{VIEW} > span")
    expect(fold).to_have_text("176 layers")
    before = wide.page.viewport_size
    assert before is not None
    wide.page.set_viewport_size({"width": 390, "height": 844})
    expect(fold).to_have_text("188 layers")
    view = wide.page.locator(VIEW).bounding_box()
    assert view is not None
    assert view["x"] >= 0
    assert view["x"] + view["width"] <= 390
    wide.page.set_viewport_size(before)
    wait_until_still(wide.page)
    entry = wide.page.get_by_label("Layer of the diagram")
    middle = wide.page.locator(VIEW).bounding_box()
    assert middle is not None
    wide.page.mouse.move(middle["x"] + middle["width"] / 2 - 1, middle["y"] + 30)
    expect(entry).to_have_value(re.compile("^(99|100)$"))  # a layer within the fold
    wide.page.mouse.move(5, 5)
    entry.press("End")
    wide.reset()


def test_a_signal_that_is_not_finite_is_hatched_and_said(wide: Dashboard) -> None:
    with wide.redrawn():
        wide.choose("norm_placement", "none")
    with wide.redrawn():
        wide.write("n_layers", "60")
    with wide.redrawn():
        wide.write("init_variance", "4")
    expect(wide.page.locator(".ex-stack-picture[aria-hidden]")).to_contain_text("not finite from")
    expect(wide.page.locator(".ex-stack > p")).to_contain_text("not finite from layer")
    hatching = wide.page.locator(f"{VIEW} .ex-stack-hatching").first
    assert hatching.get_attribute("d")
    wide.reset()


def test_a_picture_is_enlarged_by_a_click_and_by_its_button(wide: Dashboard) -> None:
    plots = wide.page.locator(".ex-chart-plot")
    small = plots.nth(3).bounding_box()
    plots.nth(3).click()
    wait_until_still(wide.page)
    large = plots.nth(3).bounding_box()
    assert small is not None
    assert large is not None
    assert large["width"] > 1.8 * small["width"]
    assert large["height"] > 1.5 * small["height"]
    expect(plots.nth(3).locator(".xtitle")).to_have_text("depth (layers)")
    card = wide.page.locator(".ex-chart").nth(3)
    card.get_by_role("button", name="Shrink").press("Enter")
    wait_until_still(wide.page)
    assert plots.nth(3).bounding_box() == small
    expect(plots.nth(3).locator(".xtitle")).to_have_count(0)


COLLIDING = """() => [...document.querySelectorAll('.ex-chart')].filter((card) => {
  const boxes = [...card.querySelectorAll('.xtick text')].map((label) => label.getBoundingClientRect());
  return boxes.some(({ left }, at) => at && left < boxes[at - 1].right + 2);
}).map((card) => card.querySelector('.ex-chart-title').textContent)"""
"""Charts whose labels across touch each other."""


def test_narrow_pictures_have_labels_apart(wide: Dashboard) -> None:
    before = wide.page.viewport_size
    assert before is not None
    wide.page.set_viewport_size({"width": 1024, "height": 900})
    expect(wide.page.locator(".ex-enlarge:visible")).to_have_count(4)
    with wide.redrawn():
        wide.write("d_model", "32")  # 120 layers are soon measured
    for layers in (9, 12, 120):  # with a label at each layer, at every second, and of three digits
        with wide.redrawn():
            wide.write("n_layers", str(layers))
        wait_until_still(wide.page)
        assert wide.page.evaluate(COLLIDING) == [], layers
    wide.reset()
    wide.page.set_viewport_size(before)
    wait_until_still(wide.page)
    wide.must_be_clean()


def test_a_first_visit_sees_the_picture_the_sentence_and_the_charts(
    browser: Browser, voila: str
) -> None:
    with first_visit(browser, voila, height=900) as visit:
        page = visit.page
        wait_until_still(page)
        charts = [f".ex-charts > .ex-cell:nth-child({number})" for number in (1, 2)]
        top = [".ex-stack", ".ex-verdict", ".ex-diagram", *charts]
        assert page.evaluate(WHOLE, [".ex-dare-box", *top]) == []
        page.get_by_role("button", name="Close", exact=True).click()
        page.wait_for_function("() => !document.querySelector('.ex-dare-box').checkVisibility()")
        wait_until_still(page)
        pictures = [f".ex-charts > .ex-cell:nth-child({number})" for number in (3, 4, 5, 6)]
        assert page.evaluate(WHOLE, [*top, *pictures]) == []


def test_while_a_slider_is_dragged_charts_follow_and_pictures_rest(wide: Dashboard) -> None:
    with wide.redrawn():
        wide.write("init_variance", "2")  # the plots have their sizes
    before = wide.drawn()
    with wide.redrawn():
        during = wide.page.evaluate(HELD, 12)
        assert during[0] > 2
        assert during[2] <= 1, "at most what was still to be drawn"
    assert wide.drawn()[2] > before[2]
    wide.reset()
