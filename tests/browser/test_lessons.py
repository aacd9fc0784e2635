"""Every lesson in Voilà: text at once, open code, formulas; some with live figures and boxes for
answers. Each is opened once, and all tests of it read on.

The figures of all lessons follow their controls in `tests/test_lessons.py`, without a browser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, WebSocketRoute, expect

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
TRAINS = "03_activations"
"""The one of them with a cell that trains."""
LONGEST = 600_000.0
"""Milliseconds in which all cells of a lesson have run, beside other tests."""
CELLS = "**/voila/execution/**"
"""The way on which a lesson's page gets its cells."""
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

FOLDS = """(cells) => cells.map((cell) => [
  cell.querySelector('.highlight').textContent, cell.querySelector('summary').innerText, cell.open])"""
"""Of each cell its code, the words that fold it, and whether it is open."""
ONE_OF_EACH_HUE = """() => {
  const seen = new Set();
  const visible = [...document.querySelectorAll('.highlight span')].filter((token) => token.checkVisibility());
  for (const token of visible) {
    if (seen.has(token.className)) token.replaceWith(token.textContent);
    seen.add(token.className);
  }
}"""
"""Leaves one of each kind of token in a color of its own: axe takes a millisecond for each of the
thousands that look alike."""


@pytest.fixture(scope="module")
def reader(browser: Browser, voila: str) -> Iterator[Dashboard]:
    """Who reads one lesson after the other; only those of `RUN` are given their cells' results,
    since nbval runs the others."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})

    def ask(socket: WebSocketRoute) -> None:
        if name_of(page) in RUN:
            socket.connect_to_server()

    page.route_web_socket(CELLS, ask)
    yield Dashboard(page, "voila")
    page.close()


def name_of(page: Page) -> str:
    """The lesson on a page."""
    return page.url.rpartition("/")[2].removesuffix(".ipynb")


@pytest.fixture(scope="module", params=LESSONS)
def lesson(request: pytest.FixtureRequest, reader: Dashboard, voila: str) -> Dashboard:
    """A lesson's page, whose text is there before any cell has run."""
    reader.page.goto(f"{voila}/lessons/{request.param}.ipynb")
    reader.page.get_by_role("heading", name="In a whole Transformer").wait_for()
    return reader


@pytest.fixture(scope="module")
def finished(lesson: Dashboard) -> Dashboard:
    """A lesson of `RUN` with all cells run and all figures drawn; any other as it is."""
    page = lesson.page
    if (name := name_of(page)) in RUN:
        exercises = sum(number.startswith(name[:2]) for number in EXERCISES)
        expect(page.get_by_text("Not yet:")).to_have_count(exercises, timeout=LONGEST)
        expect(page.locator(".ex-live")).to_have_count(LESSONS[name])
        expect(page.locator("#ex-running")).to_be_hidden()
        for number in range(LESSONS[name]):
            shown(page, number)
    return lesson


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


@pytest.mark.parametrize("lesson", [TRAINS], indirect=True)
def test_controls_say_which_cell_runs_and_answer_afterwards(lesson: Dashboard) -> None:
    """A control that is moved while later cells run is not told that Python does not answer."""
    page = lesson.page
    slider = page.locator(".ex-live input[type=range]").first
    slider.wait_for(timeout=LONGEST)
    status = page.locator(".ex-live .ex-status-text").first
    with stopped(page.evaluate(KERNEL_ID)):
        slider.press("End")
        expect(status).to_have_text(re.compile(r"^The lesson is still running: cell \d+ of \d+$"))
        page.wait_for_timeout(6_000)  # after five seconds without an answer it used to give up
        expect(status).to_have_text(re.compile(r"^The lesson is still running: cell \d+ of \d+$"))
        expect(page.locator("#ex-running")).to_have_text(re.compile(r"Running cell \d+ of \d+"))
    expect(page.locator("#ex-running")).to_be_hidden(timeout=LONGEST)
    expect(status).not_to_contain_text("still running")
    page.locator(".ex-live .ex-reset:not(.ex-hidden)").click()
    lesson.must_be_clean()


@pytest.mark.parametrize("lesson", RUN, indirect=True)
def test_the_figure_of_every_control_follows_it_and_comes_back(finished: Dashboard) -> None:
    page = finished.page
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
    finished.must_be_clean()


@pytest.mark.parametrize("lesson", RUN, indirect=True)
def test_an_exercise_is_answered_in_its_box_by_keyboard(finished: Dashboard) -> None:
    page = finished.page
    for number in (name for name in EXERCISES if name.startswith(name_of(page)[:2])):
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
    finished.must_be_clean()


def test_text_is_typeset_code_is_there_and_axe_finds_nothing(finished: Dashboard) -> None:
    """Axe looks at lessons that have run: their style is that of all."""
    page = finished.page
    page.wait_for_function("document.querySelectorAll('mjx-container').length > 30")
    page.wait_for_function("!document.querySelector('main').innerText.includes('$')")
    code = page.locator(".jp-CodeCell .ex-code")
    assert code.count() > 8
    for text, folding, is_open in code.evaluate_all(FOLDS):
        folded = "ex.live(" in text or "import explorer as ex" in text
        assert (folding != "Code") == folded
        assert is_open != folded
    code.first.locator("summary").click()
    expect(code.first.locator(".highlight")).to_be_visible()
    if name_of(page) in RUN:
        page.evaluate(ONE_OF_EACH_HUE)
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 1000})
        if name_of(page) in RUN:
            assert look(page, ()) == ""
        page.wait_for_function(
            "document.querySelector('#rendered_cells').scrollWidth <= window.innerWidth"
        )
    page.set_viewport_size({"width": 1440, "height": 1000})
    finished.must_be_clean()


@pytest.mark.parametrize("lesson", [TRAINS], indirect=True)
def test_cells_that_train_wait_for_a_button(finished: Dashboard) -> None:
    """What they print is stored until then, and the same afterwards."""
    lesson = json.loads((notebooks() / "lessons" / f"{TRAINS}.ipynb").read_text(encoding="utf-8"))
    cell, _ = (cell for cell in lesson["cells"] if "train" in cell["metadata"].get("tags", []))
    stored = "".join(text for output in cell["outputs"] for text in output["text"])
    page = finished.page
    line = page.locator(".ex-train").first  # the second one is of the ledger
    output = page.locator(".celltag_train").first.locator(".jp-RenderedText")
    expect(line).to_contain_text("The output below is stored.")
    assert output.text_content() == stored
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
    finished.must_be_clean()


def test_a_chinese_lesson_says_its_language_and_leads_to_the_design_on_the_page(
    browser: Browser, voila: str
) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    visit = Dashboard(page, "voila")
    page.route_web_socket(CELLS, lambda _: None)  # no cell runs
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


def test_a_chinese_lesson_answers_and_draws_in_chinese(browser: Browser, voila: str) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    visit = Dashboard(page, "voila")
    page.goto(f"{voila}/lessons/zh/{RUN[0]}.ipynb")
    expect(page.get_by_text("还不对：")).to_have_count(4, timeout=LONGEST)
    expect(page.get_by_text("Not yet:")).to_have_count(0)
    entry = page.get_by_role("textbox", name="你对 02.1 的答案")
    box = page.locator(".ex-answer").filter(has=entry)
    said = box.get_by_role("status")
    entry.fill("n*v")
    page.keyboard.press("Enter")
    expect(said).to_have_text("还不对：这是前向时信号的因子。反向时对哪个下标求和？")
    box.get_by_role("button", name="提示").click()
    expect(said).to_have_text("提示：x_j 处的梯度是对各个输出求和。共有多少项？")
    entry.fill("m*v")
    box.get_by_role("button", name="检查").click()
    expect(said).to_have_text("正确。")
    figure = page.locator(".ex-live").first
    expect(figure.locator("[data-field=depth]")).to_contain_text("深度")
    expect(figure).to_contain_text("信号和梯度通过网络 n → m → n → …")
    expect(figure).to_contain_text("梯度, 理论")
    visit.must_be_clean()
    page.close()


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
    # stills of live figures, and pictures
    stored = (notebooks() / "lessons" / f"{name}.ipynb").read_text(encoding="utf-8")
    pictures = stored.count('src=\\"data:image/svg')
    assert pictures > LESSONS[name]
    still = page.locator(".jp-RenderedHTMLCommon img[src^='data:image/svg']")
    expect(still).to_have_count(pictures)
    expect(page.locator("mjx-container").first).to_be_visible()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    shown(page, 0)
    expect(page.locator(".ex-still:visible")).to_have_count(0)
    visit.must_be_clean()
    page.close()
