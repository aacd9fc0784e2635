"""The table of designs: pins and profiles in, rows out; and as it follows the panel."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from explored import SMALL, Open, opened
from watched import WAIT

from explorer.app.explore.comparison import Column, groups
from explorer.app.explore.pins import Known
from explorer.app.roster import Entry
from explorer.config import Config
from explorer.diagnosis import Finding, diagnose
from explorer.figures.palette import HUES, LegendEntry
from explorer.measuring import measure
from explorer.profile import Profile
from explorer.theory import predict
from explorer.vocabulary import geometric_mean

open_panel = pytest.fixture(name="open_panel")(opened)
REZERO = SMALL.replace(residual="rezero")


def column(config: Config, **known: Any) -> Column:
    return Column(LegendEntry(0, config, ""), config, Known(**known))


def profile(value: float, origin: Any = "measured", notes: dict[str, str] | None = None) -> Profile:
    """Second moments that double from seed to seed, and nothing else."""
    values = np.array([[value], [2 * value]])[: 1 if origin == "predicted" else 2]
    return Profile(
        origin, {("second_moment", "resid_post"): values}, SMALL, seeds=(0, 1), notes=notes or {}
    )


def rows(found: list[dict[str, Any]], title: str) -> dict[str, list[dict[str, str]]]:
    group = next(group for group in found if group["title"] == title)
    return {row["label"]: row["cells"] for row in group["rows"]}


def texts(cells: list[dict[str, str]]) -> list[str]:
    return [cell["text"] for cell in cells]


def test_every_choice_that_differs_and_matters_in_one_design_is_a_row() -> None:
    columns = [
        column(SMALL.replace(alpha=0.5)),
        column(REZERO),
        column(SMALL.replace(rope_base=10.0)),
    ]
    found = rows(groups(columns, None), "Choices that differ")
    assert list(found) == ["Residual α", "Residual"], "rotary base matters in none of them"
    assert texts(found["Residual"]) == ["constant", "ReZero", "constant"]
    assert texts(found["Residual α"]) == ["0.5", "not used", "1"]


def test_end_values_are_measured_with_their_spread_and_theory_beside() -> None:
    columns = [
        column(SMALL, measured=profile(2.0), predicted=profile(3.5, "predicted")),
        column(REZERO),
    ]
    found = rows(groups(columns, None), "After the last layer")
    assert list(found) == ["Second moment"], "no row for what no design has"
    first, second = found["Second moment"]
    assert first == {
        "text": "2.83",
        "more": "± 0.98, 2 to 4",
        "theory": "3.5",
        "where": "",
        "severity": "",
    }
    assert second["text"] == "not measured yet"
    assert second["theory"] == ""


@pytest.mark.parametrize(
    ("value", "words"), [(np.inf, "not finite (inf)"), (np.nan, "not finite (nan)")]
)
def test_what_is_not_finite_is_shown_as_such(value: float, words: str) -> None:
    theory = profile(np.nan, "predicted", {"second_moment": "not covered: text"})
    (cell,) = rows(
        groups([column(SMALL, measured=profile(value), predicted=theory)], None),
        "After the last layer",
    )["Second moment"]
    assert (cell["text"], cell["more"], cell["severity"], cell["theory"]) == (
        words,
        "",
        "bad",
        "not covered",
    )


def test_a_pin_that_cannot_be_measured_says_why() -> None:
    columns = [column(SMALL, measured=profile(1.0)), column(REZERO, trouble="MemoryError: no room")]
    found = groups(columns, lambda _: [Finding("warning", "The stream grows.", "")])
    assert texts(rows(found, "After the last layer")["Second moment"]) == [
        "1.41",
        "MemoryError: no room",
    ]
    verdicts = rows(found, "Verdict")["Verdict"]
    assert [(cell["text"], cell["severity"]) for cell in verdicts] == [
        ("The stream grows.", "warning"),
        ("MemoryError: no room", "none"),
    ]


def test_a_design_without_attention_has_no_entropy() -> None:
    without = SMALL.replace(attention="none")
    columns = [
        column(config, measured=measure(config), predicted=predict(config))
        for config in (SMALL, without)
    ]
    cells = rows(groups(columns, None), "After the last layer")["Attention entropy"]
    assert cells[1]["text"] == "none"
    assert float(cells[0]["text"]) > 0


def test_a_pin_that_is_off_theory_has_the_badge_with_its_name(open_panel: Open) -> None:
    def too_high(config: Config) -> Profile:
        """Theory that is right of the current design alone."""
        found = predict(config)
        if config.norm_placement == "post":
            return found
        return replace(found, values={key: 3 * values for key, values in found.values.items()})

    page = open_panel(
        SMALL.replace(norm_placement="post", n_seeds=8), predict=too_high, diagnose=diagnose
    )
    chart, box = page.charts["second_moment"], page.comparison.box
    own = chart.badge
    assert chart.badge_tone != "warn"
    page.choose(norm_placement="pre")
    box.handle(["pin"], [])
    page.choose(norm_placement="post")
    assert chart.badge_tone == "warn"
    assert chart.badge.startswith("Pre-LN: ")
    box.handle(["hide", 1], [])
    assert chart.badge == own


def test_the_table_follows_the_pins(open_panel: Open) -> None:
    page = open_panel(predict=predict, diagnose=diagnose)
    table, box = page.comparison.table, page.comparison.box
    assert table.columns == table.groups == []
    box.handle(["pin"], [])
    page.choose(norm_placement="post")
    assert [(one["name"], one["when"], one["hue"]) for one in table.columns] == [
        ("Post-LN", "now", HUES[0]),
        ("Pre-LN", "", HUES[1]),
    ]
    assert texts(rows(table.groups, "Choices that differ")["Norm placement"]) == ["post", "pre"]
    second_moment = rows(table.groups, "After the last layer")["Second moment"]
    last = [
        float(geometric_mean(measure(one)["second_moment", "resid_post"][:, -1]))
        for one in (SMALL.replace(norm_placement="post"), SMALL)
    ]
    assert [float(text) for text in texts(second_moment)] == pytest.approx(last, rel=5e-3)
    theory = [
        float(predict(one)["second_moment", "resid_post"][0, -1])
        for one in (SMALL.replace(norm_placement="post"), SMALL)
    ]
    assert [float(cell["theory"]) for cell in second_moment] == pytest.approx(theory, rel=5e-3)
    assert (
        rows(table.groups, "Verdict")["Verdict"][1]["text"] == diagnose(measure(SMALL))[0].meaning
    )
    box.handle(["hide", 1], [])
    assert table.columns == []
    box.handle(["show", 1], [])
    assert len(table.columns) == 2
    box.handle(["remove", 1], [])
    assert table.columns == []


def test_a_pin_waits_and_then_has_its_values_or_the_reason_why_not(open_panel: Open) -> None:
    may_end = threading.Event()

    def slow(config: Config, *rest: Any) -> Profile:
        if config.n_layers == 3:
            assert may_end.wait(WAIT)
            raise MemoryError("no room")
        return measure(config, *rest)

    page = open_panel(measure=slow, predict=predict)
    page.restore(page.part._replace(pins=(Entry(SMALL.replace(n_layers=3), "Three"),)))
    page.until("idle")
    table = page.comparison.table

    def said() -> str:
        return (
            rows(table.groups, "After the last layer")["Second moment"][1]["text"]
            if table.groups
            else ""
        )

    assert page.comes(lambda: said() == "not measured yet")
    may_end.set()
    assert page.comes(lambda: said() == "MemoryError: no room")
