"""The site of lessons and guides: built without a warning, read from a folder, without a request to
anywhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from benchmarks.grids import drawing, grid, live_calls
from benchmarks.lessons import LESSONS, ROOT

from .axe import look


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site in both languages, as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    for language, place in (("en", folder), ("zh_CN", folder / "zh")):
        subprocess.run(
            [
                sys.executable,
                "-m",
                "sphinx",
                "-q",
                "-W",
                "-c",
                "docs",
                "-D",
                f"language={language}",
                "-d",
                folder.with_name(f"doctrees-{language}"),
                ".",
                place,
            ],
            cwd=ROOT,
            check=True,
        )
    return folder


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("language", ["", "zh/"])
def test_a_lesson_has_its_formulas_and_needs_no_server(
    site: Path, browser: Browser, language: str, width: int
) -> None:
    page, asked, said = (
        browser.new_page(viewport={"width": width, "height": 1000}),
        list[str](),
        list[str](),
    )
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.goto(f"{site.as_uri()}/{language}notebooks/lessons/06_root_d.html")
    expect(page.locator("mjx-container").first).to_be_visible()
    assert page.locator("mjx-container").count() > 30
    expect(page.locator(".live-plot .main-svg").first).to_be_visible()
    expect(page.locator("svg.still").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert said == []
    page.close()


def test_a_live_figure_follows_its_controls_without_a_kernel(site: Path, browser: Browser) -> None:
    [(weights, settings)] = live_calls(LESSONS[5])
    values = grid(settings)
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.goto(f"{site.as_uri()}/notebooks/lessons/06_root_d.html")
    width, divided = page.get_by_label("Width"), page.get_by_label("Divided")
    expect(width).to_have_attribute("aria-valuetext", "64")
    assert not look(page, (), ".ex-still")
    width.press("ArrowRight")
    expect(width).to_have_attribute("aria-valuetext", "128")
    assert_drawn(page, drawing(weights, {"width": 128, "keys": 64, "divided": False}))
    divided.check()
    assert_drawn(page, drawing(weights, {"width": 128, "keys": 64, "divided": True}))
    page.get_by_label("Keys").press("End")
    assert_drawn(
        page, drawing(weights, {"width": 128, "keys": values["keys"][-1], "divided": True})
    )
    page.close()


def assert_drawn(page: Page, expected: dict[str, Any]) -> None:
    """Asserts that the first live figure of a page has the sentence, numbers and description of a
    drawing."""
    expect(page.get_by_role("status")).to_have_text(expected["sentence"])
    plot = page.locator(".live-plot")
    y = plot.evaluate("(plot) => [...plot.data[0].y]")
    assert y == pytest.approx(expected["traces"]["0"]["y"], rel=1e-3, abs=1e-9)
    expect(plot).to_have_attribute("aria-label", expected["layout"]["meta"]["description"])


def test_a_chinese_lesson_has_code_outputs_and_figures_in_chinese(
    site: Path, browser: Browser
) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.goto(f"{site.as_uri()}/zh/notebooks/lessons/06_root_d.html")
    chinese = re.compile("[\u4e00-\u9fff]")
    expect(page.get_by_role("status")).to_have_text(chinese)
    before = page.get_by_role("status").inner_text()
    width = page.get_by_label("宽度")
    width.press("ArrowRight")
    expect(width).to_have_attribute("aria-valuetext", "128")
    expect(page.get_by_role("status")).to_have_text(chinese)
    expect(page.get_by_role("status")).not_to_have_text(before)
    titles = page.locator(".live-plot").evaluate("(plot) => plot.layout.xaxis.title.text")
    assert chinese.search(titles)
    for part in (".cell_input .c1", ".cell_output pre"):  # comments, printed lines
        assert any(map(chinese.search, page.locator(part).all_inner_texts())), part
    page.close()


@pytest.mark.parametrize("language", ["", "zh/"])
def test_every_live_figure_of_the_lessons_moves(
    site: Path, browser: Browser, language: str
) -> None:
    page, errors = browser.new_page(viewport={"width": 390, "height": 1000}), list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    for lesson in LESSONS:
        page.goto(f"{site.as_uri()}/{language}notebooks/lessons/{lesson.stem}.html")
        plots = page.locator(".ex-still:has(.main-svg)")
        expect(plots).to_have_count(page.locator(".ex-still").count())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, lesson.stem
        assert "when this cell is run" not in page.content(), lesson.stem
    assert errors == []
    page.close()


def test_the_address_of_the_site_leads_to_lessons_in_both_languages(
    site: Path, browser: Browser
) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.goto(f"{site.as_uri()}/index.html")
    page.get_by_role("link", name="Lesson 6").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Why divide by √d")
    page.get_by_role("link", name="中文").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("第 6 课")
    page.get_by_role("link", name="English").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Why divide by √d")
    page.close()


@pytest.mark.parametrize(
    ("language", "query", "lesson"),
    [
        ("zh/", "残差", "07_residual_variance"),
        ("zh/", "残差流的方差", "07_residual_variance"),
        ("zh/", "RealFormer", "11_realformer"),
        ("", "residual stream", "07_residual_variance"),
    ],
)
def test_the_search_finds_a_lesson(
    site: Path, browser: Browser, language: str, query: str, lesson: str
) -> None:
    page, errors = browser.new_page(viewport={"width": 1440, "height": 1000}), list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{site.as_uri()}/{language}docs/index.html")
    page.locator("input[name=q]").first.fill(query)
    page.keyboard.press("Enter")
    expect(page.locator(f"ul.search a[href*='{lesson}']").first).to_be_visible()
    # Of a page in a folder a browser fetches nothing: results are then shown without an excerpt.
    assert set(errors) <= {"Failed to fetch"}
    page.close()


@pytest.mark.parametrize("language", ["", "zh/"])
def test_a_lesson_leads_to_those_beside_it_the_other_language_and_the_page(
    site: Path, language: str
) -> None:
    text = (site / language / "notebooks" / "lessons" / "07_residual_variance.html").read_text(
        encoding="utf-8"
    )
    article = text[text.index("<article") : text.index("</article>")]
    for target in ("06_root_d.html", "08_why_residuals.html"):
        assert article.count(f'href="{target}"') >= 2, "head and foot"
    other = "../../zh/" if not language else "../../../"
    assert article.count(f'href="{other}notebooks/lessons/07_residual_variance.html"') == 2
    assert 'href="http://localhost:8866/?design=post_ln' in article
    assert "explorer serve" in article


def test_the_reference_has_every_public_name(site: Path) -> None:
    import explorer

    text = (site / "docs" / "python.html").read_text(encoding="utf-8")
    assert [
        name
        for name in explorer.__all__
        if f'id="explorer.{name}"' not in text and name != "PRESETS"
    ] == []
