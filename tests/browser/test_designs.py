"""The list of models and designs, by keyboard, mouse and finger; and the controls that a design
leaves folded."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from .conftest import in_voila
from .dashboard import Dashboard, wait_until_still
from .test_layout import narrow

COVERED = """(node) => {
  const { left, top, right, bottom } = node.getBoundingClientRect();
  const above = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
  return !node.contains(above) || left < 0 || right > window.innerWidth || top < 0 || bottom > window.innerHeight;
}"""


class Designs:
    """The list, and what stands below it."""

    def __init__(self, dashboard: Dashboard) -> None:
        self.dashboard, self.page = dashboard, dashboard.page
        self.control = dashboard.control("preset")
        self.entry = self.control.get_by_role("combobox")
        self.options = self.control.get_by_role("option")
        self.groups = self.control.get_by_role("group")
        self.changes = self.control.locator(".ex-changes > span")

    def search(self, words: str) -> None:
        self.entry.click()
        self.page.keyboard.type(words)

    def active(self) -> Locator:
        return self.page.locator(f"id={self.entry.get_attribute('aria-activedescendant')}")


@pytest.fixture
def designs(dashboard: Dashboard) -> Designs:
    return Designs(dashboard)


@in_voila
def test_real_models_come_first_and_each_design_once(designs: Designs) -> None:
    expect(designs.options).to_have_count(0)
    designs.entry.click()
    expect(designs.groups.first).to_have_accessible_name("Real models")
    expect(designs.groups.first.get_by_role("option").first).to_contain_text("GPT-2")
    assert designs.groups.count() >= 4
    values = designs.options.evaluate_all("(nodes) => nodes.map((node) => node.dataset.value)")
    assert len(values) == len({*values}) >= 22
    assert "custom" not in values
    expect(designs.active()).to_contain_text("Pre-LN")
    designs.page.keyboard.press("Escape")
    expect(designs.entry).to_have_attribute("aria-expanded", "false")
    expect(designs.options).to_have_count(0)


SEARCHES: list[tuple[str, list[str]]] = [
    ("zhang 2019", ["Fixup"]),
    ("2019  ZHANG", ["Fixup"]),
    ("sandwich", ["Peri-LN"]),
    ("gpt2", ["GPT-2"]),
    ("postln", ["Post-LN", "Admin"]),
    ("no such design", []),
    ("prenorm", ["Pre-LN"]),
    ("pre-norm", ["Pre-LN"]),
    ("Pre norm", ["Pre-LN"]),
    ("phi", ["GPT-J", "Llama 3"]),
    ("vit", ["Pre-LN", "LayerScale"]),
    ("MoE", ["Qwen3-Next", "gpt-oss style"]),
    ("llama 3", ["Llama 3"]),
    ("norm xyzzy", []),
    ("no norm", ["ReZero", "SkipInit", "Fixup", "T-Fixup", "Plain stack"]),
    ("without norms", ["ReZero", "SkipInit", "Fixup", "T-Fixup", "Plain stack"]),
]
"""Words that are typed, and titles that must be among those found."""


@in_voila
def test_a_search_finds_by_title_name_words_and_source(designs: Designs) -> None:
    for words, found in SEARCHES:
        designs.search(words)
        count = designs.control.locator(".ex-option-count")
        titles = designs.options.locator(".ex-option-title").all_inner_texts()
        assert {*found} <= {*titles}, words
        assert len(titles) < 8 if found else not titles, words
        if found:
            expect(designs.active()).to_contain_text(found[0])
        expect(count).to_contain_text(f"{len(titles) or 'None'} of ")
        designs.page.keyboard.press("Escape")
        expect(designs.entry).to_have_value("Pre-LN")


@in_voila
def test_by_keyboard_alone(designs: Designs) -> None:
    page = designs.page
    designs.entry.focus()
    page.keyboard.press("ArrowDown")
    expect(designs.active()).to_contain_text("Pre-LN")
    page.keyboard.press("ArrowDown")
    expect(designs.active()).to_contain_text("Peri-LN")
    for _ in range(2):
        page.keyboard.press("ArrowUp")
    expect(designs.active()).to_contain_text("Post-LN")
    expect(designs.control.locator("[aria-selected=true]")).to_have_count(1)
    with designs.dashboard.redrawn():
        page.keyboard.press("Enter")
    expect(designs.entry).to_have_value("Post-LN")
    expect(designs.entry).to_be_focused()
    page.keyboard.type("rezero")  # into what is there: nothing was selected
    page.keyboard.press("Escape")
    expect(designs.entry).to_have_value("Post-LN")
    page.keyboard.press("Enter")
    page.keyboard.type("rezero")
    with designs.dashboard.redrawn():
        page.keyboard.press("Enter")
    expect(designs.entry).to_have_value("ReZero")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Tab")
    expect(designs.options).to_have_count(0)
    expect(designs.entry).to_have_value("ReZero")


@in_voila
def test_a_choice_says_what_it_changed(designs: Designs) -> None:
    with designs.dashboard.redrawn():
        designs.dashboard.choose("preset", "bert")
    assert [words.split(" · ")[0] for words in designs.changes.all_inner_texts()] == [
        "Scale rule LeCun → BERT",
        "Activation ReLU → GELU",
        "Unit-moment activation on → off",
        "Norm placement pre → post",
        "Norm ε 1e-05 → 1e-12",
        "Positions none → learned",
    ]
    expect(designs.control).to_contain_text("every matrix N(0, 0.02²) · Devlin et al. 2018")
    with designs.dashboard.redrawn():
        designs.dashboard.write("n_layers", "6")
    expect(designs.changes).to_have_count(6)
    with designs.dashboard.redrawn():
        designs.dashboard.choose("norm_placement", "pre")
    expect(designs.entry).to_have_value("custom")
    expect(designs.changes).to_have_count(0)


@in_voila
def test_under_a_finger_on_a_telephone(designs: Designs) -> None:
    narrow(designs.dashboard)
    page, session = designs.page, designs.page.context.new_cdp_session(designs.page)
    session.send("Emulation.setTouchEmulationEnabled", {"enabled": True})
    tap(page, designs.entry)
    wait_until_still(page)
    active = designs.active()
    expect(active).to_contain_text("Pre-LN")
    assert not active.evaluate(COVERED)
    assert active.evaluate("(node) => node.offsetHeight") >= 44
    popup = designs.control.locator(".ex-popup")
    assert popup.evaluate("(node) => node.scrollWidth - node.clientWidth") == 0
    with designs.dashboard.redrawn():
        tap(page, designs.control.locator("[data-value=peri_ln]"))
    session.send("Emulation.setTouchEmulationEnabled", {"enabled": False})
    expect(designs.entry).to_have_value("Peri-LN")
    expect(designs.changes).to_have_count(1)
    expect(popup).to_be_hidden()


def tap(page: Page, place: Locator) -> None:
    """A short touch in the middle."""
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    touch = page.context.new_cdp_session(page)
    points = [{"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}]
    touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": points})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


@in_voila
def test_a_group_shows_what_is_used_or_changed_and_the_rest_when_asked(
    dashboard: Dashboard,
) -> None:
    group = dashboard.page.locator(".ex-panel [data-section='Input and loss']").first
    correlation, seed = dashboard.control("input_correlation"), dashboard.control("seed")
    group.locator("summary").click()
    more = group.get_by_role("button", name="Input and loss")
    expect(more).to_have_text("More in Input and loss (6)")
    expect(correlation).to_be_hidden()
    with dashboard.redrawn():
        dashboard.choose("input", "correlated")
    expect(correlation).to_be_visible()
    expect(more).to_have_text("More in Input and loss (5)")
    more.click()
    expect(more).to_have_attribute("aria-expanded", "true")
    for field, value in (("input_second_moment", "2"), ("seed", "7")):
        with dashboard.redrawn():
            dashboard.write(field, value)
    expect(seed).to_be_visible()
    with dashboard.redrawn():
        seed.get_by_role("button", name="Reset").click()
    expect(seed).to_be_visible()
    more.click()
    expect(more).to_have_text("More in Input and loss (4)")
    expect(seed).to_be_hidden()
    group.locator("summary").click()


@in_voila
def test_an_option_that_other_choices_exclude_says_why_and_can_be_fixed(
    dashboard: Dashboard,
) -> None:
    group = dashboard.page.locator(".ex-panel [data-section='Input and loss']").first
    loss, fix = (
        dashboard.control("loss"),
        dashboard.page.get_by_role("button", name="Set Input to text"),
    )
    group.locator("summary").click()
    radio, label = (
        loss.get_by_role("radio", name="next token"),
        loss.locator("label", has_text="next token"),
    )
    reason = "Loss = next token needs Input = text; got Input = gaussian"
    expect(radio).to_have_attribute("aria-disabled", "true")
    expect(radio).to_have_accessible_description(reason)
    expect(label).to_have_attribute("title", reason)
    expect(loss).to_contain_text("next token: first set Input to text")
    label.click(force=True)  # Playwright, too, takes it for disabled
    dashboard.wait_for_state("refused")
    assert reason in dashboard.said
    expect(loss).to_contain_text("refused; still linear")
    with dashboard.redrawn():
        fix.click()
    expect(radio).to_be_checked()
    expect(radio).not_to_have_attribute("aria-disabled", "true")
    expect(
        dashboard.control("input").locator("optgroup[label='First set Loss to linear'] option")
    ).to_have_text(["gaussian", "correlated", "sentence"])
    with dashboard.redrawn():
        dashboard.choose("loss", "linear")
    group.locator("summary").click()


@in_voila
def test_a_list_has_what_other_choices_exclude_under_what_to_change_first(
    dashboard: Dashboard,
) -> None:
    group = dashboard.page.locator(".ex-panel [data-section='Residual']").first
    residual = dashboard.control("residual").locator("select")
    excluded = residual.locator("optgroup[label='First set Norm placement to pre'] option")
    group.locator("summary").click()
    expect(excluded).to_have_count(0)
    with dashboard.redrawn():
        dashboard.choose("preset", "keel")
    expect(residual.locator("> option")).to_have_text("constant")
    expect(excluded.filter(has_text="ReZero")).to_have_attribute(
        "title",
        "Norm placement = Keel needs Residual = "
        "constant, because it weighs stream and branch "
        "itself; got Residual = ReZero",
    )
    dashboard.choose("residual", "rezero")
    dashboard.wait_for_state("refused")
    expect(excluded).to_have_count(17)
    expect(residual).to_have_value("rezero")
    with dashboard.redrawn():
        dashboard.page.get_by_role("button", name="Set Norm placement to pre", exact=True).click()
    expect(residual).to_have_value("rezero")
    expect(dashboard.control("norm_placement").locator("select")).to_have_value("pre")
    group.locator("summary").click()
