"""What the panels give to take home: what a press sends, and that it is what the page shows."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from explored import SMALL, Page, as_the_page, opened, plain
from handed import handed
from raced import Open
from raced import opened as raced

import explorer as ex
from explorer.app.home import csv, guarded
from explorer.app.widgets.chart import Chart
from explorer.app.widgets.files import AT_ONCE, PART, TakeHome, hand_over
from explorer.app.widgets.parts import Part
from explorer.export.module import torch_code
from explorer.profile import Profile
from explorer.vocabulary import STATISTICS


@pytest.fixture(autouse=True)
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(go.Figure, "show", lambda figure: None)


def press(fold: TakeHome, verb: str, label: str) -> list[tuple[dict[str, str], bytes]]:
    """The files that a press sends."""
    return handed(fold, [verb, [row["label"] for row in fold.rows].index(label)])


def script(fold: TakeHome) -> dict[str, Any]:
    press(fold, "show", "Python")
    left: dict[str, Any] = {}
    exec(fold.text, left)  # noqa: S102 - what it is for
    return left


open_panel = pytest.fixture(name="open_panel")(opened)
open_race = pytest.fixture(name="open_race")(raced)


def pinned(page: Page) -> None:
    """The panel with a pin that is called like a formula, and another design in the controls, both
    measured."""
    page.comparison.box.handle(["pin"], [])
    page.comparison.box.handle(["name", 1, "=1+1"], [])
    page.choose(norm_placement="post", alpha=0.3)


def test_the_script_of_the_explore_panel_gives_its_numbers(open_panel: Any) -> None:
    page = open_panel(predict=ex.predict)
    pinned(page)
    left = script(page.home)
    assert list(left["pins"]) == ["=1+1"]
    for chart, profile in (
        ("second_moment", left["measured"]),
        ("token_correlation", left["measured"]),
    ):
        values = STATISTICS[chart].mean(profile.stream(chart)[1]).astype(np.float32)
        dots = [trace for trace in page.charts[chart].figure["data"] if trace["mode"] == "markers"][
            -1
        ]
        # the page waits for the first seed, so its others share a pass: equal to float32's
        # rounding, see `together`
        assert plain(dots["y"]).tolist() == pytest.approx(values.tolist(), rel=1e-5)


def test_the_script_draws_the_layer_whose_tokens_are_shown(open_panel: Any) -> None:
    page = open_panel(predict=ex.predict)
    page.statistic.restore("attention_received")
    page.layer.restore(1)
    press(page.home, "show", "Python")
    assert 'measured.plot("attention_received", predicted, layer=1).show()' in page.home.text


def test_the_numbers_are_those_of_every_profile_on_the_charts(open_panel: Any) -> None:
    page = open_panel(predict=ex.predict)
    pinned(page)
    [(about, raw)] = press(page.home, "save", "Numbers (CSV)")
    assert about == {"file": "explore.csv", "media": "text/csv"}
    assert page.home.note.startswith("Saved explore.csv, ")
    found = pd.read_csv(io.BytesIO(raw))
    post = SMALL.replace(norm_placement="post", alpha=0.3)
    for name, config in (("'=1+1", SMALL), ("Post-LN, residual α 0.3 (now)", post)):
        for profile in (as_the_page(config), ex.predict(config)):
            of_it = found[(found.design == name) & (found.origin == profile.origin)]
            frame = profile.frame()
            assert of_it.value.tolist() == pytest.approx(
                frame.value.tolist(), rel=1e-15, abs=0, nan_ok=True
            ), name
            assert of_it.statistic.tolist() == frame.statistic.tolist()


def test_the_sources_are_those_of_the_design_and_its_pins(open_panel: Any) -> None:
    page = open_panel()
    pinned(page)
    [(about, raw)] = press(page.home, "save", "BibTeX")
    assert about["file"] == "explore.bib"
    for name in ("xiong2020", "vaswani2017", "transformer-signal-explorer"):
        assert f"@misc{{{name},".encode() in raw


def test_the_caption_names_designs_seeds_and_method(open_panel: Any) -> None:
    page = open_panel(predict=ex.predict)
    pinned(page)
    press(page.home, "show", "Caption")
    for words in ("=1+1: 2 layers of width 16", "seeds 0–1", "Lines: mean-field theory", "BibTeX"):
        assert words in page.home.text


def test_the_torch_code_is_that_of_the_design(open_panel: Any) -> None:
    page = open_panel()
    assert [row["label"] for row in page.home.rows] == [
        "Python",
        "Torch module",
        "Numbers (CSV)",
        "BibTeX",
        "Caption",
    ]
    press(page.home, "show", "Torch module")
    assert page.home.text == torch_code(page.controls.config)


def test_a_design_that_cannot_be_a_torch_code_is_refused_in_words(open_panel: Any) -> None:
    page = open_panel()
    page.set(stream="hyper")
    for verb in ("show", "save"):
        assert press(page.home, verb, "Torch module") == []
        assert page.home.refused
        assert page.home.note == (
            "Refused: Stream must be one or parallel to be written as torch, because the "
            "file has one residual stream; got Stream = hyper."
        )


def test_a_text_that_is_read_closes_when_the_page_moves_on(open_panel: Any) -> None:
    page = open_panel()
    fold = page.home
    press(fold, "show", "Python")
    assert fold.reading == 0
    assert "ex.Config(" in fold.text
    page.choose(n_layers=3)
    assert (fold.reading, fold.text) == (-1, "")
    for message in (
        ["show", 9],
        ["save", -1],
        ["show", "0"],
        ["read", 0],
        [],
        None,
        "save",
        {"save": 0},
    ):
        fold.handle(message, [])
    assert fold.reading == -1


def test_numbers_that_are_not_there_are_refused_in_words(open_panel: Any) -> None:
    def never(*_: object) -> Profile:
        raise RuntimeError("no")

    page = open_panel(measure=never, ready=False)
    page.comes(lambda: page.status.state == "failed")
    assert press(page.home, "save", "Numbers (CSV)") == []
    assert page.home.refused
    assert page.home.note == "Refused: numbers must be there to be saved; got none yet."


def test_the_race_s_script_is_of_the_line_up_and_then_of_the_race_on_the_page(
    open_race: Open,
) -> None:
    page = open_race(steps=2, every=1)
    press(page.home, "show", "Python")
    before = page.home.text
    page.run()
    left = script(page.home)
    assert page.home.text == before
    assert page.panel.race is not None
    pd.testing.assert_frame_equal(left["race"].frame(), page.panel.race.frame(), check_exact=True)
    page.set(steps=5)
    press(page.home, "show", "Python")
    assert page.home.text == before, "the controls are for the next race"
    [(_, raw)] = press(page.home, "save", "BibTeX")
    assert b"optimizer = adam" in raw


def test_a_chart_is_sent_as_a_page() -> None:
    chart = Chart(title="Gradient ∂L/∂W", caption="Flat: <b>even</b>.")
    chart.show(
        go.Figure(
            {
                "data": [
                    {"type": "scatter", "mode": "markers", "x": [1, 2], "y": [3, 4], "name": "a"}
                ]
            }
        )
    )
    sent = handed(chart, "html", "csv", "png", None, ["html"], 3)
    [(about, page)] = sent
    assert about == {"file": "gradient-l-w.html", "media": "text/html"}
    assert b"&lt;b&gt;even" in page


def test_of_files_on_their_way_the_oldest_is_given_up_for_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A browser that has gone never asks for the rest of a file, and would keep it here."""
    sent: list[dict[str, Any]] = []
    owner = Part()
    monkeypatch.setattr(owner, "send", lambda content, buffers: sent.append(content))
    for number in range(AT_ONCE + 1):
        hand_over(owner, f"{number}.bin", "application/octet-stream", bytes(PART + 1))
    begun, sent[:] = list(sent), []
    assert [about["left"] for about in begun] == [1] * (AT_ONCE + 1)
    for about in begun:
        owner.handle(["more", about["number"], 1])
    assert [about["file"] for about in sent] == [
        f"{number}.bin" for number in range(1, AT_ONCE + 1)
    ]


def test_no_text_of_a_table_is_a_formula_to_a_spreadsheet() -> None:
    frame = pd.DataFrame({"contender": ["=1+1", "Pre-LN"], "value": [-1.5, float("nan")]})
    assert csv(frame).splitlines() == ["contender,value", "'=1+1,-1.5", "Pre-LN,"]
    for name in ("+1", "-1", "@SUM(A1)", "\t1", "  =1", "＝1"):
        assert guarded(name) == f"'{name}"
    assert guarded("−x") == "−x"
