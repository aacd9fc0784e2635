"""Comparing designs as a person does: pin, move on, look, hide, name, load, remove; and the list of
named designs."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from explorer.figures.palette import HUES

from .conftest import in_voila
from .dashboard import CHARTS, Dashboard, wait_until_still

pytestmark = in_voila

LAYERED = CHARTS[:5]
COLORS = """(title) => {
  const heading = [...document.querySelectorAll('.ex-chart-title')].find((node) => node.textContent === title);
  const traces = heading.closest('figure').querySelector('.ex-chart-plot')._fullData;
  const dots = traces.filter((trace) => trace.mode === 'markers').map((trace) => trace.marker.color);
  const lines = traces.filter((trace) => trace.mode === 'lines' && trace.fill === 'none');
  return { dots, lines: lines.map((trace) => trace.line.color) };
}"""


class Compared:
    """The legend and its pins."""

    def __init__(self, dashboard: Dashboard) -> None:
        self.dashboard, self.page = dashboard, dashboard.page
        self.pins = self.page.locator(".ex-pin")

    def pin(self) -> None:
        self.page.get_by_role("button", name="Pin the current design").click()

    def pinned(self, name: str) -> Locator:
        return self.pins.filter(
            has=self.page.get_by_label(f"Name of the pinned design {name}", exact=True)
        )

    def press(self, words: str, name: str) -> None:
        self.pinned(name).get_by_role("button", name=words).click()

    def preset(self, name: str) -> None:
        with self.dashboard.redrawn():
            self.dashboard.choose("preset", name)

    def wait_for_hues(self, *hues: str) -> None:
        """Until every chart over layers has the dots and the lines of these designs and of no
        others."""
        for title in LAYERED:
            # a design alone: its matrices
            here = HUES if title == "Gradient by matrix" and len(hues) == 1 else hues
            wanted = f"(title) => {{ const {{ dots, lines }} = ({COLORS})(title); return [dots, lines].every((found) =>"
            wanted += f" [...new Set(found)].sort().join() === {','.join(sorted(here))!r}); }}"
            self.page.wait_for_function(wanted, arg=title)


@pytest.fixture
def compared(dashboard: Dashboard) -> Compared:
    return Compared(dashboard)


@pytest.fixture
def shallow(compared: Compared) -> Compared:
    """At a depth that is soon measured, for tests of many designs."""
    with compared.dashboard.redrawn():
        compared.dashboard.write("n_layers", "3")
    return compared


def test_a_pinned_design_stays_on_every_chart_until_it_is_hidden_or_removed(
    compared: Compared,
) -> None:
    compared.pin()
    expect(compared.pinned("Pre-LN")).to_contain_text("same as now")
    with compared.dashboard.redrawn():
        compared.dashboard.press("n_layers", "ArrowRight", times=2)
    compared.wait_for_hues(HUES[0], HUES[1])
    expect(compared.pinned("Pre-LN")).to_contain_text("depth 12")
    compared.press("Hide", "Pre-LN")
    compared.wait_for_hues(HUES[0])
    compared.press("Show", "Pre-LN")
    compared.wait_for_hues(HUES[0], HUES[1])
    compared.press("Remove", "Pre-LN")
    compared.wait_for_hues(HUES[0])
    expect(compared.pins).to_have_count(0)
    expect(compared.page.get_by_role("button", name="Pin the current design")).to_be_focused()


def test_six_designs_keep_their_hues_and_a_seventh_is_refused_in_words(shallow: Compared) -> None:
    for name in ("post_ln", "peri_ln", "inverse_sqrt_depth", "qk_norm", "pre_ln"):
        shallow.preset(name)
        shallow.pin()
    with shallow.dashboard.redrawn():
        shallow.dashboard.write("alpha", "0.5")
    shallow.wait_for_hues(*HUES)
    shallow.pin()
    expect(shallow.page.locator(".ex-pin-said")).to_have_text(
        "At most 6 designs are compared, this one and 5 pins: remove one first."
    )
    shallow.press("Remove", "Peri-LN")
    shallow.wait_for_hues(*HUES[:2], *HUES[3:])
    shallow.pin()
    with shallow.dashboard.redrawn():
        shallow.dashboard.write("alpha", "0.25")
    shallow.wait_for_hues(*HUES)
    shallow.page.set_viewport_size({"width": 390, "height": 844})
    wait_until_still(shallow.page)
    for box in (shallow.page.locator(".ex-root").first, *shallow.pins.all()):
        assert box.evaluate("(node) => node.scrollWidth - node.clientWidth") == 0, (
            "six designs fit a telephone"
        )


def test_a_pin_is_named_by_keyboard_and_loaded_back(compared: Compared) -> None:
    page = compared.page
    page.get_by_role("button", name="Pin the current design").focus()
    page.keyboard.press("Enter")
    expect(compared.pins).to_have_count(1)
    page.keyboard.press("Tab")
    entry = page.get_by_label("Name of the pinned design Pre-LN")
    expect(entry).to_be_focused()
    page.keyboard.press("Control+A")
    page.keyboard.type("Where I began")
    page.keyboard.press("Enter")
    entry = page.get_by_label("Name of the pinned design Where I began")
    expect(entry).to_have_value("Where I began")
    entry.fill("   ")
    page.keyboard.press("Enter")
    expect(page.locator(".ex-pin-said")).to_have_text(
        "A design needs a name; this one keeps “Where I began”."
    )
    expect(entry).to_have_value("Where I began")
    with compared.dashboard.redrawn():
        compared.dashboard.write("n_layers", "6")
    load = page.get_by_role("button", name="Load Where I began into the controls")
    load.focus()
    with compared.dashboard.redrawn():
        page.keyboard.press("Space")
    assert compared.dashboard.entry("n_layers").input_value() == "12"


def test_a_named_design_sets_the_controls_and_follows_them(compared: Compared) -> None:
    shown = compared.dashboard.control("preset").get_by_role("combobox")
    expect(shown).to_have_value("Pre-LN")
    compared.preset("post_ln")
    expect(compared.dashboard.control("norm_placement").locator("select")).to_have_value("post")
    expect(compared.dashboard.control("preset")).to_contain_text(
        "A norm on each sum · Vaswani et al. 2017"
    )
    with compared.dashboard.redrawn():
        compared.dashboard.write("init_variance", "2")
    expect(shown).to_have_value("custom")
    compared.preset("pre_ln")
    expect(shown).to_have_value("Pre-LN")
    assert compared.dashboard.entry("init_variance").input_value() == "1"


def test_designs_are_compared_in_a_table(shallow: Compared) -> None:
    """Two pins make a table that scrolls in its card on a telephone."""
    page = shallow.page
    table = page.locator(".ex-compare")
    expect(table).to_be_hidden()
    shallow.pin()
    shallow.preset("post_ln")
    shallow.pin()
    shallow.preset("rezero")
    expect(table.locator("thead th[scope=col]")).to_have_text(
        [re.compile("^ *ReZero now"), " Pre-LN", " Post-LN"]
    )
    table.locator("summary").click()
    row = table.get_by_role("row", name="Norm placement")
    expect(row.locator("td")).to_have_text(["none", "pre", "post"])
    expect(table.get_by_role("row", name="Verdict").get_by_role("img")).to_have_count(3)
    page.set_viewport_size({"width": 390, "height": 844})
    wait_until_still(page)
    frame = table.get_by_role("region")
    assert frame.evaluate("(node) => node.scrollWidth > node.clientWidth")
    left = "(node) => node.querySelector('tbody th[scope=row]').getBoundingClientRect().left"
    before = frame.evaluate(left)
    frame.evaluate("(node) => { node.scrollLeft = 100; }")
    assert frame.evaluate(left) == before, "the first column stays"
    assert page.evaluate("document.querySelector('.ex-root').scrollWidth <= innerWidth")
    page.set_viewport_size({"width": 1440, "height": 1000})
