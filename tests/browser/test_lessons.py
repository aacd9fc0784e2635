"""Every lesson in Voilà: text at once, open code, formulas; some with live figures and boxes for
answers.

The figures of all lessons follow their controls in `tests/test_lessons.py`, without a browser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from explorer.lessons.exercises import EXERCISES, TEXTS
from explorer_serve.start import notebooks

from .axe import RAW, SHARED, look
from .conftest import Laboratory
from .dashboard import Dashboard
from .test_silence import stopped

LESSONS = {
    path.stem: path.read_text(encoding="utf-8").count("ex.live(")
    for path in sorted((notebooks() / "lessons").glob("*.ipynb"))
}
"""Of each lesson the number of its live figures."""
RUN = ("02_second_moment", "03_activations")
"""Lessons whose cells must all have run: together they have controls of every kind, and are over
soon."""
TRAINS = "06_root_d"
"""A lesson with one cell that trains, and few others that take long."""
LONGEST = 600_000.0
"""Milliseconds in which all cells of a lesson have run, beside other tests."""
KERNEL_ID = "() => JSON.parse(document.getElementById('jupyter-config-data').textContent).kernelId"
AT_REST = """(number) => {
  const root = document.querySelectorAll('.ex-live')[number];
  const plot = root.querySelector('.ex-chart-plot');
  const shown = JSON.stringify((plot._fullData ?? []).map(({ x, y }) => [[...x], [...y]]));
  const calm = Number(plot.dataset.drawn) > 0 && !document.querySelector('[data-unanswered]')
    && !root.querySelector('.ex-chart-is-stale') && root.querySelector('.ex-status').dataset.state === 'idle';
  if (!calm || shown !== window.restAt?.shown) window.restAt = { shown: calm ? shown : '', since: performance.now() };
  return calm && performance.now() - window.restAt.since > 200 && shown;
}"""
"""The numbers of a live figure once it is at rest. A move is marked as unanswered at once, and its
answer comes after the mark that the figure is stale: no longer wait is needed where a control is at
that end already, or matters beside a certain choice only."""


@pytest.fixture(scope="module")
def reader(browser: Browser) -> Iterator[Dashboard]:
    """Who reads one lesson after the other."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    yield Dashboard(page, "voila")
    page.close()


@pytest.fixture(scope="module", params=LESSONS)
def lesson(request: pytest.FixtureRequest, reader: Dashboard, voila: str) -> Iterator[Dashboard]:
    """A lesson's page; those of `RUN` with all cells run and all figures drawn, of others nbval
    runs the cells."""
    visit, page = reader, reader.page
    page.goto(f"{voila}/lessons/{request.param}.ipynb")
    # the text is there before any cell has run
    page.get_by_role("heading", name="In a whole Transformer").wait_for()
    if request.param not in RUN:
        with stopped(page.evaluate(KERNEL_ID)):
            yield visit
        return
    exercises = sum(number.startswith(request.param[:2]) for number in EXERCISES)
    expect(page.get_by_text("Not yet:")).to_have_count(exercises, timeout=LONGEST)
    expect(page.locator(".ex-live")).to_have_count(LESSONS[request.param])
    for number in range(LESSONS[request.param]):
        shown(page, number)
    yield visit


def shown(page: Page, number: int) -> str:
    """The numbers that a live figure draws at rest."""
    page.locator(".ex-live").nth(number).scroll_into_view_if_needed()
    page.evaluate("() => { window.restAt = null; }")
    numbers: str = page.wait_for_function(AT_REST, arg=number).json_value()
    return numbers


def moves(control: Locator) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """What a person does to bring a control to both ends, and back to where it was."""
    if (slider := control.locator("input[type=range]")).count():
        yield from ((slider.press, (key,)) for key in ("Home", "End"))
    elif (choice := control.locator("select")).count():
        start = choice.input_value()
        values = choice.locator("option").evaluate_all(
            "(options) => options.map((option) => option.value)"
        )
        yield from (
            (choice.select_option, (value,))
            for value in [*(v for v in values if v != start), start]
        )
    elif (radios := control.locator("input[type=radio]")).count():
        start = control.locator("input:checked").get_attribute("id")
        names = [radio.get_attribute("id") for radio in radios.all()]
        yield from (
            (control.locator(f"label[for='{name}']").click, ())
            for name in [*(name for name in names if name != start), start]
        )
    else:
        yield from ((control.locator("label").click, ()) for _ in range(2))


@pytest.mark.parametrize("lesson", RUN, indirect=True)
def test_the_figure_of_every_control_follows_it_and_comes_back(lesson: Dashboard) -> None:
    page = lesson.page
    for number in range(page.locator(".ex-live").count()):
        controls, still = (
            page.locator(".ex-live").nth(number).locator("[data-field]"),
            list[str | None](),
        )
        assert controls.count() >= 3
        for control in controls.all():
            before = shown(page, number)
            for act, arguments in moves(control):
                act(*arguments)
                if shown(page, number) != before:
                    break
            else:
                still.append(control.get_attribute("data-field"))
            if (reset := control.locator(".ex-reset:not(.ex-hidden)")).count():
                reset.click()
                assert shown(page, number) == before
        assert len(still) <= 1, still
    expect(page.locator(".ex-still:visible")).to_have_count(0)
    assert page.evaluate(RAW) == []
    assert page.evaluate(SHARED) == []
    lesson.must_be_clean()


def test_formulas_are_typeset_and_code_is_there(lesson: Dashboard) -> None:
    page = lesson.page
    page.wait_for_function("document.querySelectorAll('mjx-container').length > 30")
    page.wait_for_function("!document.querySelector('main').innerText.includes('$')")
    code = page.locator(".jp-CodeCell .ex-code")
    assert code.count() > 8
    for cell in code.all():
        text = cell.locator(".highlight").text_content() or ""
        folded = "ex.live(" in text or "import explorer as ex" in text
        assert (cell.locator("summary").inner_text() != "Code") == folded
        assert (cell.get_attribute("open") is None) == folded
    code.first.locator("summary").click()
    expect(code.first.locator(".highlight")).to_be_visible()
    lesson.must_be_clean()


@pytest.mark.parametrize("lesson", RUN, indirect=True)
def test_an_exercise_is_answered_in_its_box_by_keyboard(lesson: Dashboard) -> None:
    page = lesson.page
    for number in (name for name in EXERCISES if name.startswith(page.url.rpartition("/")[2][:2])):
        entry = page.get_by_role("textbox", name=f"Your answer to {number}")
        box = page.locator(".ex-answer").filter(has=entry)
        said = box.get_by_role("status")
        expect(said).to_have_attribute("aria-live", "polite")
        expect(said).to_contain_text("Not yet: ")
        entry.focus()
        page.keyboard.type("10**10**10")
        page.keyboard.press("Enter")
        expect(said).to_have_text(re.compile("^Not yet: (the value is too large|settings are)"))
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        expect(box.get_by_role("button", name="Hint")).to_be_focused()
        page.keyboard.press("Enter")
        expect(said).to_have_text(f"Hint: {TEXTS[number].hint}")
        entry.fill(TEXTS[number].answer)
        page.keyboard.press("Enter")
        expect(said).to_have_text("Right.")
    lesson.must_be_clean()


def test_controls_say_which_cell_runs_and_answer_afterwards(browser: Browser, voila: str) -> None:
    """A control that is moved while later cells run is not told that Python does not answer."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    visit = Dashboard(page, "voila")
    page.goto(f"{voila}/lessons/03_activations.ipynb")
    slider = page.locator(".ex-live input[type=range]").first
    slider.wait_for(timeout=LONGEST)
    status = page.locator(".ex-live .ex-status-text").first
    with stopped(page.evaluate(KERNEL_ID)):
        slider.focus()
        page.keyboard.press("End")
        expect(status).to_have_text(re.compile(r"^The lesson is still running: cell \d+ of \d+$"))
        page.wait_for_timeout(7_000)  # after five seconds without an answer it used to give up
        expect(status).to_have_text(re.compile(r"^The lesson is still running: cell \d+ of \d+$"))
        expect(page.locator("#ex-running")).to_have_text(re.compile(r"Running cell \d+ of \d+"))
    expect(page.locator("#ex-running")).to_be_hidden(timeout=LONGEST)
    expect(status).not_to_contain_text("still running")
    visit.must_be_clean()
    page.close()


def test_cells_that_train_wait_for_a_button_while_figures_answer(
    browser: Browser, voila: str
) -> None:
    """What they print is stored until then, and the same afterwards."""
    lesson = json.loads((notebooks() / "lessons" / f"{TRAINS}.ipynb").read_text(encoding="utf-8"))
    (cell,) = (cell for cell in lesson["cells"] if "train" in cell["metadata"].get("tags", []))
    stored = "".join(text for output in cell["outputs"] for text in output["text"])
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    visit = Dashboard(page, "voila")
    page.goto(f"{voila}/lessons/{TRAINS}.ipynb")
    line = page.locator(".ex-train")
    output = page.locator(".celltag_train .jp-RenderedText")
    exercises = sum(number.startswith(TRAINS[:2]) for number in EXERCISES)
    expect(page.get_by_text("Not yet:")).to_have_count(exercises, timeout=LONGEST)
    expect(page.locator("#ex-running")).to_be_hidden()
    expect(line).to_contain_text("The output below is stored.")
    assert output.text_content() == stored
    before = shown(page, 0)
    page.locator(".ex-live input[type=range]").first.press("End")
    assert shown(page, 0) != before
    button = line.get_by_role("button", name=re.compile(r"^Train, about \d+ s$"))
    button.press("Enter")
    expect(line).to_have_text("Training…")
    expect(line).to_be_focused()
    expect(output).to_have_count(0)
    expect(page.locator("#ex-running")).to_have_text(re.compile(r"Running cell \d+ of \d+"))
    expect(line).to_have_text("The output below was computed just now.", timeout=LONGEST)
    expect(page.locator("#ex-running")).to_be_hidden()
    assert output.text_content() == stored
    expect(button).to_have_count(0)
    visit.must_be_clean()
    page.close()


def test_a_chinese_lesson_says_its_language_and_leads_to_the_design_on_the_page(
    browser: Browser, voila: str
) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    visit = Dashboard(page, "voila")
    page.goto(f"{voila}/lessons/zh/07_residual_variance.ipynb")
    page.get_by_role("heading", level=1).wait_for()
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    page.get_by_role("link", name="English").first.click()
    page.get_by_role("heading", name="In a whole Transformer").wait_for()
    assert page.evaluate("document.documentElement.lang") == "en"
    page.get_by_role("link", name="pen it on the page").click()
    visit.wait_until_drawn()
    assert "n_layers=24" in page.url
    assert visit.entry("n_layers").input_value() == "24"
    visit.must_be_clean()
    page.close()


@pytest.mark.parametrize("width", [1440, 390])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_window(
    lesson: Dashboard,
    width: int,
    request: pytest.FixtureRequest,
) -> None:
    """On a telephone axe looks at lessons with their live figures: their style is that of all."""
    lesson.page.set_viewport_size({"width": width, "height": 1000})
    try:
        if width == 1440 or request.node.callspec.params["lesson"] in RUN:
            assert look(lesson.page, ()) == ""
        lesson.page.wait_for_function(
            "document.querySelector('#rendered_cells').scrollWidth <= window.innerWidth"
        )
    finally:
        lesson.page.set_viewport_size({"width": 1440, "height": 1000})
    lesson.must_be_clean()


def test_stored_lessons_show_stills_in_jupyterlab_and_live_figures_once_they_have_run(
    browser: Browser,
    laboratory: Laboratory,
) -> None:
    """A notebook that nobody has run here is not trusted: its stills are pictures without style and
    script.

    The shortest lesson; that each has its stills as such pictures is seen in the file.
    """
    name = "02_second_moment"
    # it draws what is in its window
    page = browser.new_page(viewport={"width": 1440, "height": 15_000})
    visit = Dashboard(page, "lab")
    page.goto(f"{laboratory.address}/lab/tree/lessons/{name}.ipynb?reset")
    page.wait_for_selector("text='Python 3 (ipykernel) | Idle'")
    expect(page.locator(".jp-RenderedHTMLCommon img[src^='data:image/svg']")).to_have_count(
        LESSONS[name]
    )
    expect(page.locator("mjx-container").first).to_be_visible()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    shown(page, 0)
    expect(page.locator(".ex-still:visible")).to_have_count(0)
    visit.must_be_clean()
    page.close()
