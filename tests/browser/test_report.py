"""The page that `explorer probe --html` writes: light and dark as its reader has it, and no wider
than a telephone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from explorer.config import Config
from explorer.figures.pages import page as report
from explorer.measuring import measure
from explorer.profile import Profile

BACKGROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 20, 24)"}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a model with long names, and of another stack."""
    small = measure(Config(n_layers=3, d_model=16, n_heads=2, n_ctx=8, n_seeds=1))
    one = Profile(
        "measured",
        small.values,
        model="Encoder" * 30,
        layers=("model.encoder." * 8 + "0", "x.1", "x.2"),
        seeds=(0,),
        twin=small.config,
        notes={"logit_std": "why " * 60},
        pattern=np.full((8, 8), 1 / 8),
        pattern_of=(1, 0),
    )
    path = tmp_path_factory.mktemp("report") / "page.html"
    path.write_text(report(replace(one, others=(one,))), "utf-8")
    return path


@pytest.mark.parametrize(("width", "scheme"), [(320, "dark"), (1200, "light")])
def test_it_follows_the_reader_and_never_scrolls_sideways(
    browser: Browser, file: Path, width: int, scheme: str
) -> None:
    page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 800})
    page.goto(file.as_uri())
    page.locator(".plotly-graph-div .main-svg").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = page.locator(".plotly-graph-div").evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect().right)"
    )
    assert max(wide) <= width
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == BACKGROUNDS[scheme]
    papers = page.locator(".plotly-graph-div .main-svg").evaluate_all(
        "all => all.map((one) => one.style.background)"
    )
    assert not [paper for paper in papers if "255, 255, 255)" in paper or "white" in paper]
    (text,) = set(
        page.locator(".xtick text").evaluate_all(
            "all => all.map((one) => getComputedStyle(one).fill)"
        )
    )
    assert text == {"light": "rgb(27, 31, 36)", "dark": "rgb(232, 235, 240)"}[scheme]
    page.close()
