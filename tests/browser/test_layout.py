"""The page at every size, under a finger, in a picture that is saved and on paper."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Page, expect

from explorer.figures.palette import HUES

from .conftest import in_voila
from .dashboard import CHARTS, Dashboard, wait_until_still

SCROLLED = """() => {
  let sum = window.scrollY;
  for (let node = document.querySelector('.ex-root'); node; node = node.parentElement) sum += node.scrollTop;
  return sum;
}"""
RANGES = "() => [...document.querySelectorAll('.ex-chart-plot')].map((plot) => String(plot.layout.xaxis.range))"
IN_SIGHT = """(field) => {
  const slider = document.querySelector(`[data-field=${field}] input[type=range]`);
  const top = (node) => {
    const { left, top, width, height } = node.getBoundingClientRect();
    return document.elementFromPoint(left + width / 2, top + height / 2);
  };
  const [finding, plot] = ['.ex-finding', '.ex-chart-plot'].map((name) => document.querySelector(name));
  const verdict = top(finding)?.closest('.ex-finding') === finding;
  const chart = top(plot)?.closest('.ex-chart-plot') === plot && plot.getBoundingClientRect().top >= 0;
  return { verdict, chart, slider: top(slider) === slider };
}"""
"""What lies on top in the middle of each: a thing that is covered, or out of the window, is not in
sight."""
OVERLAPS = """() => [...document.querySelectorAll('.ex-chart')].filter((card) => {
  const box = (node) => node.getBoundingClientRect(), tools = box(card.querySelector('.ex-chart-tools'));
  const covered = (node) => {
    const { top, right, bottom, left, height } = box(node);
    const inked = node.matches('.xtick') ? bottom - height / 5 : bottom; // digits end at their baseline
    return tools.bottom > top && tools.top < inked && tools.right > left && tools.left < right;
  };
  const drawn = [...card.querySelectorAll(':is(.nsewdrag, .xtick, .ytick, .xtitle, .ytitle)')];
  return tools.width === 0 || !drawn.length || drawn.some(covered);
}).length + document.querySelectorAll('.modebar-btn').length"""
"""Charts whose buttons are missing or cover an axis or what it spans, and buttons of plotly's own.
(Where a pointer can hover, they lie in the drawing's corner, beside the axis' title; under a
finger, above the drawing.)"""
PLOTS = """() => [...document.querySelectorAll('.ex-chart-plot')].map((plot) => {
  const { bottom, width, height } = plot.getBoundingClientRect();
  return { bottom, shape: width / height };
})"""
CUT = """() => [...document.querySelectorAll('.ex-cell')].filter((cell) => {
  const outer = cell.getBoundingClientRect();
  return [...cell.querySelectorAll('.main-svg')].some((drawing) => {
    const inner = drawing.getBoundingClientRect();
    return inner.width < 100 || inner.right > outer.right + 1 || inner.bottom > outer.bottom + 1;
  });
}).length"""
FIRST_PLOT = """() => {
  const plot = document.querySelector('.ex-chart-plot'), labels = [...plot.querySelectorAll('.ytick text')];
  const { left, height } = plot.getBoundingClientRect();
  const lefts = labels.map((label) => label.getBoundingClientRect().left);
  return {
    labels: labels.map((label) => label.textContent), left: Math.min(...lefts) - left, height,
    drawn: plot.querySelector('.main-svg').getBoundingClientRect().height,
  };
}"""
BEFORE_DOTS = """() => [...document.querySelectorAll('.ex-chart-why p')].flatMap((words) => [...words.childNodes])
  .filter((node) => node.nodeType === Node.TEXT_NODE && node.data === ' · ')
  .map((dot) => dot.previousSibling.checkVisibility())"""
"""Whether a dot between a chart's lesson and its paper has the lesson before it."""
TITLED_BELOW = """() => [...document.querySelectorAll('.ex-chart-plot')].every((plot) => {
  const [title, area] = ['.xtitle', '.nsewdrag'].map((part) => plot.querySelector(part)?.getBoundingClientRect());
  return title?.width > 0 && title.top >= area.bottom; // a small picture has none, until it is drawn for paper
})"""
"""Whether each chart's axis is named below it: plotly places words by their size, which it must be
able to measure."""


def narrow(dashboard: Dashboard) -> None:
    """A telephone's width, or what makes a notebook's output as narrow."""
    width = 390 if dashboard.host == "voila" else 900
    dashboard.page.set_viewport_size({"width": width, "height": 844})
    wait_until_still(dashboard.page)


def swipe(page: Page, x: float, y: float, by: float) -> None:
    """A finger that goes up or down."""
    touch = page.context.new_cdp_session(page)
    touch.send("Emulation.setTouchEmulationEnabled", {"enabled": True})
    touch.send(
        "Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]}
    )
    for step in range(1, 11):
        points = [{"x": x, "y": y + by * step / 10}]
        touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": points})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    wait_until_still(page)
    touch.send("Emulation.setTouchEmulationEnabled", {"enabled": False})


def test_a_finger_on_a_chart_scrolls_the_page(dashboard: Dashboard) -> None:
    narrow(dashboard)
    before, ranges = dashboard.page.evaluate(SCROLLED), dashboard.page.evaluate(RANGES)
    box = dashboard.page.locator(".ex-chart-plot").first.bounding_box()
    assert box is not None
    swipe(dashboard.page, box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, -120)
    assert dashboard.page.evaluate(SCROLLED) > before + 60
    assert dashboard.page.evaluate(RANGES) == ranges


def test_verdict_and_a_chart_stay_in_sight_while_a_slider_is_moved(dashboard: Dashboard) -> None:
    narrow(dashboard)
    for field in ("n_layers", "init_variance", "alpha"):
        dashboard.slider(field).focus()
        wait_until_still(dashboard.page)
        assert dashboard.page.evaluate(IN_SIGHT, field) == {
            "verdict": True,
            "chart": True,
            "slider": True,
        }, field
    dashboard.page.locator(".ex-chart").last.scroll_into_view_if_needed()
    seen = dashboard.page.locator(".ex-chart").last.evaluate(
        "(card) => document.elementFromPoint(...(({ x, y, width }) => [x + width / 2, y + 20])"
        "(card.getBoundingClientRect())).closest('.ex-chart') === card"
    )
    assert seen, "what stays in sight gives way to the other charts"


@in_voila
def test_the_buttons_of_a_chart_lie_beside_the_drawing(dashboard: Dashboard) -> None:
    dashboard.page.locator(".ex-chart-plot").first.hover()
    assert dashboard.page.evaluate(OVERLAPS) == 0
    card = dashboard.page.locator(".ex-chart").first
    before = dashboard.page.evaluate(RANGES)[0]
    card.get_by_role("button", name="Zoom in").click()
    dashboard.page.wait_for_function(f"(before) => ({RANGES})()[0] !== before", arg=before)
    assert dashboard.page.locator(".plotly-notifier .notifier-note").count() == 0
    card.get_by_role("button", name="Reset zoom").click()
    dashboard.page.wait_for_function(f"(before) => ({RANGES})()[0] === before", arg=before)


@in_voila
def test_a_saved_picture_says_what_it_shows(dashboard: Dashboard, tmp_path: Path) -> None:
    dashboard.page.get_by_role("button", name="Pin the current design").click()
    dashboard.page.get_by_role("button", name="Remove Pre-LN").wait_for()
    with dashboard.redrawn():
        dashboard.choose("norm_placement", "post")
    legends = dashboard.page.locator(".ex-chart-legend:visible")
    expect(legends).to_have_text(["Pre-LNPost-LN (now)"] * 2)  # a small picture has none
    for title in (CHARTS[0], CHARTS[4]):
        card = dashboard.page.locator(".ex-chart").filter(
            has=dashboard.page.get_by_role("heading", name=title)
        )
        if is_small := (enlarge := card.get_by_role("button", name="Enlarge")).is_visible():
            enlarge.click()
        with dashboard.page.expect_download() as told:
            card.get_by_role("button", name="Save the chart").click()
            card.get_by_role("button", name="Save as SVG").click()
        told.value.save_as(tmp_path / "saved.svg")
        drawing = (tmp_path / "saved.svg").read_text(encoding="utf-8")
        words = " ".join("".join(ElementTree.fromstring(drawing).itertext()).split())  # noqa: S314 - our own
        for part in (
            title,
            "measured",
            "predicted",
            "Pre-LN",
            "Post-LN (now)",
            "12 layers of width 256",
        ):
            assert part in words, part
        legend = drawing[drawing.index('class="legend2"') :]
        [box] = [
            node
            for node in ElementTree.fromstring(drawing).iter()  # noqa: S314
            if node.get("class") == "legend2"
        ]
        named = ["".join(node.itertext()) for node in box.iter() if node.tag.endswith("}text")]
        assert named == ["Pre-LN", "Post-LN (now)"], "a line a design, without its settings"
        for hue in HUES[:2]:
            rgb = f"rgb({', '.join(str(int(hue[at : at + 2], 16)) for at in (1, 3, 5))})"
            assert rgb in legend, hue
        if is_small:
            card.get_by_role("button", name="Shrink").click()


@in_voila
@pytest.mark.parametrize("size", ["As on the page", "One column", "Two columns", "Slide"])
def test_a_picture_for_a_paper_is_printed_alone_on_a_page_of_its_size(
    dashboard: Dashboard, browser: Browser, size: str
) -> None:
    """A browser without a window has no dialog: its own PDF of the printed frame stands for what
    the dialog saves."""
    page = dashboard.page
    card = page.locator(".ex-chart").filter(has=page.get_by_role("heading", name=CHARTS[0]))
    for _ in range(2):  # the frame of the first is gone, or replaced
        card.get_by_role("button", name="Save the chart").click()
        card.get_by_label("Size of the picture").select_option(size)
        card.get_by_role("button", name="Save as PDF").click()
        expect(page.frame_locator(".ex-print").locator("svg.main-svg")).to_have_count(1)
    printed = page.frames[-1]
    assert printed.title() == CHARTS[0].lower().replace(" ", "-")
    words = " ".join((printed.locator("svg.main-svg").text_content() or "").split())
    assert (CHARTS[0] in words) == (size in {"As on the page", "Slide"})
    assert "measured" in words
    assert size == "As on the page" or "measuredtheory" in words, "a short legend"
    width, height = (
        float(printed.locator("svg.main-svg").get_attribute(side) or 0)
        for side in ("width", "height")
    )
    paper = browser.new_page()
    paper.set_content(printed.content())
    file = paper.pdf(prefer_css_page_size=True)
    paper.close()
    [box] = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", file)
    assert [float(side) for side in box] == pytest.approx([0.75 * width, 0.75 * height], abs=1), (
        "points"
    )
    inches = {"One column": 3.25, "Two columns": 6.75, "Slide": 13 + 1 / 3}
    assert float(box[0]) == pytest.approx(72 * inches.get(size, width / 96), abs=1)
    assert not re.search(rb"/Subtype\s*/Image", file), "it is drawn, not photographed"
    assert b"/FontFile" in file, "its letters are embedded"
    assert b"/ToUnicode" in file, "and can be searched"


@in_voila  # JupyterLab's own frame decides how high an output is
def test_a_large_window_is_filled(dashboard: Dashboard) -> None:
    width, height = 2560, 1440
    dashboard.page.set_viewport_size({"width": width, "height": height})
    wait_until_still(dashboard.page)
    plots = dashboard.page.evaluate(PLOTS)
    assert 0.75 * height < max(plot["bottom"] for plot in plots) < height
    assert all(1 < plot["shape"] < 2.5 for plot in plots)


@in_voila
def test_plots_of_a_row_line_up_whatever_stands_above_and_below_them(dashboard: Dashboard) -> None:
    with dashboard.redrawn():
        dashboard.choose("statistic", "kurtosis")
    bottoms = [round(plot["bottom"]) for plot in dashboard.page.evaluate(PLOTS)]
    assert bottoms[::2] == bottoms[1::2]


@in_voila
def test_a_phone_shows_powers_of_ten_whole_above_a_slider_of_one_line(dashboard: Dashboard) -> None:
    narrow(dashboard)
    with dashboard.redrawn():
        dashboard.choose("preset", "plain_stack")
    with dashboard.redrawn():
        dashboard.write("init_variance", "0.1")
    for statistic in ("second_moment", "second_moment_by_position"):
        if statistic != "second_moment":
            with dashboard.redrawn():
                dashboard.choose("statistic", statistic)
        wait_until_still(dashboard.page)
        plot = dashboard.page.evaluate(FIRST_PLOT)
        assert any("−" in label for label in plot["labels"]), plot
        assert plot["left"] >= 0, plot
        assert plot["drawn"] == round(plot["height"]) >= 130, plot


@in_voila  # JupyterLab's own frame leaves the diagram no place beside the verdict
def test_evidence_that_is_read_has_the_whole_width(dashboard: Dashboard) -> None:
    page = dashboard.page
    page.set_viewport_size({"width": 1440, "height": 1000})
    evidence, diagram = page.locator(".ex-evidence").first, page.locator(".ex-diagram").first
    beside = diagram.bounding_box()
    evidence.get_by_text("Evidence").click()
    wait_until_still(page)
    region, words = page.locator(".ex-top").first.bounding_box(), evidence.bounding_box()
    table, below = evidence.locator("table").bounding_box(), diagram.bounding_box()
    evidence.get_by_text("Evidence").click()
    wait_until_still(page)
    assert beside == diagram.bounding_box()
    assert region
    assert words
    assert table
    assert below
    assert words["width"] > 0.95 * region["width"]
    assert below["y"] > table["y"] + table["height"]


@in_voila
def test_a_small_picture_has_no_words_over_its_data(dashboard: Dashboard) -> None:
    page = dashboard.page
    page.set_viewport_size({"width": 1440, "height": 1000})
    with dashboard.redrawn():
        page.evaluate(
            """(link) => {
          history.replaceState(null, '', location.pathname + link);
          window.dispatchEvent(new PopStateEvent('popstate'));
        }""",
            "?n_layers=40&norm_placement=none&init_variance=30&d_model=32&n_heads=2&n_ctx=16&n_seeds=2",
        )
    words = page.locator(
        ".ex-chart-plot"
    ).evaluate_all("""(plots) => plots.map((plot) => [
      plot.offsetHeight < 190,
      [...plot.querySelectorAll('.textpoint')].some((word) => word.textContent.startsWith('not finite'))])""")
    assert words[0] == [False, True], words
    assert [is_said for is_small, is_said in words if is_small] == [False] * 4, words


@in_voila
def test_paper_has_every_chart_whole_and_light(dashboard: Dashboard) -> None:
    dashboard.page.emulate_media(media="print", color_scheme="dark")
    dashboard.page.set_viewport_size({"width": 718, "height": 1000})
    assert dashboard.page.evaluate(CUT) == 0
    dashboard.page.wait_for_function(TITLED_BELOW)
    for part in (".ex-root", ".ex-label", ".ex-finding p"):
        ink = dashboard.page.locator(part).first.evaluate("(node) => getComputedStyle(node).color")
        assert ink == "rgb(27, 31, 36)", part
    assert dashboard.entry("n_layers").is_visible()
    assert (
        not dashboard.page.locator(".ex-tools, .ex-skip, .ex-find, .ex-as-title")
        .filter(visible=True)
        .count()
    )
    assert dashboard.page.locator(".ex-verdict").is_visible()
    assert set(dashboard.page.evaluate(BEFORE_DOTS)) == {True}
    pages = len(re.findall(rb"/Type /Page\b", dashboard.page.pdf(format="A4")))
    dashboard.page.emulate_media(media="null", color_scheme="null")
    assert 2 <= pages <= 3
