"""The page in Voilà and in JupyterLab: it shows, obeys its controls, keeps up, and keeps to
itself."""

from __future__ import annotations

import numpy as np
from playwright.sync_api import expect

import explorer as ex
from explorer.vocabulary import STATISTICS, geometric_mean

from .conftest import in_voila
from .dashboard import CHARTS, Dashboard, wait_until_still


def test_page_shows(dashboard: Dashboard) -> None:
    titles = dashboard.page.locator("figure.ex-chart .ex-chart-title").all_inner_texts()
    assert titles == list(CHARTS)
    assert min(dashboard.drawn()) >= 1
    assert dashboard.said == "Measured 12 layers of width 256"
    shown = dashboard.dots("Second moment")
    measured = ex.measure(ex.Config())
    depth, values = measured.stream("second_moment")
    np.testing.assert_allclose(shown["x"], depth)
    np.testing.assert_allclose(shown["y"], geometric_mean(values), rtol=1e-5)


def test_plotly_comes_from_the_server_beside_the_websocket(dashboard: Dashboard) -> None:
    asked = dashboard.page.evaluate(
        "() => performance.getEntriesByType('resource').map((one) => one.name)"
    )
    assert sum("/voila/plotly-" in name for name in asked) == 1


@in_voila
def test_the_first_card_shows_how_far_the_largest_value_lies_from_the_end_of_float16(
    dashboard: Dashboard,
) -> None:
    measured = ex.measure(ex.Config())
    dashboard.page.get_by_role("button", name="Zoom in").first.click()
    for name, title in (("max_abs", "Largest |x|"), ("kurtosis", "Kurtosis of features")):
        with dashboard.redrawn():
            dashboard.choose("statistic", name)
        values = STATISTICS[name].mean(measured.stream(name)[1])
        np.testing.assert_allclose(dashboard.dots(title)["y"], values, rtol=1e-5)
        card = dashboard.page.locator(".ex-chart").first
        assert card.locator(".ex-chart-title").inner_text() == title
        assert "%" in card.locator(".ex-chart-badge").inner_text()
        low, high = card.locator(".ex-chart-plot").evaluate("(plot) => plot.layout.yaxis.range")
        assert 10**low < min(values) < max(values) < 10**high, (
            "the zoom of another statistic is not kept"
        )


@in_voila
def test_the_verdict_is_a_sentence_with_its_limits_and_evidence_on_demand(
    dashboard: Dashboard,
) -> None:
    verdict = dashboard.page.locator(".ex-verdict").first
    evidence = verdict.locator(".ex-evidence").first
    for placement, sentence in (("pre", "Healthy: signal grows"), ("post", "limit 29 %.")):
        if placement != "pre":
            with dashboard.redrawn():
                dashboard.choose("norm_placement", placement)
        expect(verdict.locator("strong").first).to_contain_text(sentence)
        assert len(verdict.locator("strong").first.inner_text().split()) <= 14
        if placement == "pre":
            expect(evidence.locator("table")).to_be_hidden()
            evidence.get_by_text("Evidence").click()
        # it stays unfolded for the next design's verdict
        expect(
            evidence.get_by_role("row", name="Second moment, at the input → at the end 1 →")
        ).to_be_visible()
        expect(evidence.get_by_role("row", name="Mean squared gradient")).to_contain_text(
            "10⁻⁵ to 100,000 ×"
        )
    evidence.get_by_text("Evidence").click()


@in_voila
def test_forty_key_presses_settle_on_the_last_without_a_queue(dashboard: Dashboard) -> None:
    before = dashboard.drawn()
    presses = 40
    with dashboard.redrawn():
        dashboard.press("init_variance", "ArrowRight", times=presses)
    # one by one, each press would be drawn twice: its line at once, its dots when they are measured
    drawn = max(np.subtract(dashboard.drawn(), before))
    assert drawn < presses, f"{presses} presses were answered by {drawn} drawings of one chart"

    variance = float(dashboard.entry("init_variance").input_value())
    expected = ex.measure(ex.Config(init_variance=variance)).stream("second_moment")[1]
    np.testing.assert_allclose(
        dashboard.dots("Second moment")["y"], geometric_mean(expected), rtol=1e-4
    )
    at_rest = dashboard.drawn()
    dashboard.page.wait_for_timeout(1500)
    assert dashboard.drawn() == at_rest, "something was still waiting to be drawn"


@in_voila
def test_a_refusal_is_said_and_the_last_good_charts_stay(dashboard: Dashboard) -> None:
    before = dashboard.dots("Second moment")
    dashboard.write("n_layers", "5000")
    dashboard.wait_for_state("refused")
    assert "Depth must be a whole number between 1 and 1024; got 5000" in dashboard.said
    assert dashboard.page.locator(".ex-chart-is-stale").count() == len(CHARTS)
    assert dashboard.dots("Second moment") == before
    with dashboard.redrawn():
        dashboard.write("n_layers", "6")
    assert dashboard.dots("Second moment")["x"][-1] == 6


@in_voila
def test_charts_offer_nothing_that_leaves_the_machine(dashboard: Dashboard) -> None:
    dashboard.page.locator(".ex-chart-plot").first.hover()
    tools = dashboard.page.locator(".ex-chart-tools button, .ex-save-menu button")
    buttons = tools.evaluate_all("(found) => found.map((button) => button.title)")
    saved = {f"Save as {kind}" for kind in ("PNG", "SVG", "PDF", "HTML")}
    others = {
        "Large or small",
        "Zoom in",
        "Zoom out",
        "Reset zoom",
        "Full screen",
        "Save the chart",
        "Words for a caption, and sources",
    }
    assert set(buttons) == others | saved
    assert dashboard.page.locator(".modebar-btn").count() == 0
    links = dashboard.page.locator(".ex-chart a[href^=http]").evaluate_all(
        "(found) => found.map((link) => [new URL(link.href).host, link.target, link.rel])"
    )
    assert {tuple(link) for link in links} == {("arxiv.org", "_blank", "noopener noreferrer")}, (
        "papers alone"
    )


def test_a_narrow_screen_stacks_and_does_not_scroll_sideways(dashboard: Dashboard) -> None:
    if dashboard.host == "voila":  # JupyterLab's own frame wants more room than a telephone has
        dashboard.page.set_viewport_size({"width": 390, "height": 844})
    else:
        dashboard.page.set_viewport_size({"width": 900, "height": 900})
    root = dashboard.page.locator(".ex-root").first
    root.evaluate("(root) => root.scrollIntoView()")
    wait_until_still(dashboard.page)
    controls = dashboard.page.locator(".ex-controls").first.bounding_box()
    first, second = (
        dashboard.page.locator("figure.ex-chart").nth(index).bounding_box() for index in (0, 1)
    )
    assert controls is not None
    assert first is not None
    assert second is not None
    assert first["y"] + first["height"] <= controls["y"]
    assert second["y"] >= controls["y"] + controls["height"]
    assert root.evaluate("(root) => root.scrollWidth - root.clientWidth") == 0
