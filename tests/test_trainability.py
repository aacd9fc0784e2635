"""The trials: the table is what its command makes, and its scores are what the page on them
says."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from benchmarks.designs import DEPTHS, VARIANCES, choices, random_design
from benchmarks.trainability import (
    COLUMNS,
    COUNT,
    FAR,
    FORECASTS,
    Trial,
    by_loss,
    by_rule,
    cell,
    read,
    row,
    scored,
    shown,
    trials,
    warmup_of,
)
from explorer.sweeping.cell import find

DOCS = Path(__file__).parents[1] / "docs"
PAGE, TRAINING = (
    (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("trainability", "training")
)
CHEAP = (7, 1)
"""Two trainings of a second or two: one that trains, one that is not finite."""
UNTRAINED = (*CHEAP, 11)
"""Designs that do not magnify rounding: the gradient of design 9 differs by .4 % from processor to
processor."""


def test_the_table_is_whole_and_its_designs_are_those_that_are_drawn() -> None:
    rows = read()
    assert [int(one["number"]) for one in rows] == list(range(COUNT))
    assert {tuple(one) for one in rows} == {COLUMNS}
    for number, one in list(enumerate(rows))[::16]:
        assert json.loads(one["design"]) == choices(random_design(number))
        assert int(one["warmup"]) == warmup_of(number)


def test_designs_are_drawn_over_the_whole_range() -> None:
    designs = [json.loads(one["design"]) for one in read()]
    depths = [design.get("n_layers", 12) for design in designs]
    variances = [design.get("init_variance", 1.0) for design in designs]
    assert (min(depths), max(depths)) == DEPTHS
    assert VARIANCES[0] * 0.99 < min(variances) < 0.04
    assert 25 < max(variances) < VARIANCES[1] * 1.01
    assert 0.3 < sum(one.trained for one in trials()) / COUNT < 0.7


@pytest.mark.parametrize("number", CHEAP)
def test_a_training_made_again_gives_its_row(number: int) -> None:
    """To a hundredth of a nat, whatever the processor; on one processor to every digit."""
    (found,) = find([cell(number)], threads=1)
    again, known = row(number, found), read()[number]
    assert again["trained"] == int(known["trained"])
    assert float(again["final_loss"]) == pytest.approx(
        float(known["final_loss"]), abs=0.01, nan_ok=True
    )
    assert again["failure"] == known["failure"]


@pytest.mark.parametrize("number", UNTRAINED)
def test_what_the_untrained_model_shows_is_what_the_table_says(number: int) -> None:
    now, known = shown(random_design(number)), read()[number]
    assert (now["verdict"], now["rules"]) == (known["verdict"], known["rules"])
    assert float(now["first_loss"]) == pytest.approx(
        float(known["first_loss"]), rel=1e-3, nan_ok=True
    )


def test_the_scores_are_those_that_are_told() -> None:
    for name, forecast in FORECASTS.items():
        numbers = " | ".join(f"{number:.2f}" for number in scored(trials(), forecast)[:3])
        assert f"\n| {name} | {numbers} |\n" in PAGE
    assert (
        f"| 320 random designs | {scored(trials()).balanced:.2f} | |".replace(" 0.", " .")
        in TRAINING
    )


def test_the_rules_are_as_right_as_is_told() -> None:
    told = re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \|", PAGE, re.MULTILINE)
    assert {name: (int(fired), int(trained)) for name, fired, trained in told} == by_rule(trials())


def test_a_score_is_the_mean_of_two_shares() -> None:
    rows = [
        Trial(number, 1, trained, "bad" if told else "good")
        for number, (trained, told) in enumerate(
            [(False, True), (False, False), (True, False), (True, False), (True, True)]
        )
    ]
    balanced, precision, recall, wrong = scored(rows)
    assert (balanced, precision, recall) == pytest.approx(((1 / 2 + 2 / 3) / 2, 1 / 2, 1 / 2))
    assert [one.number for one in wrong] == [1, 4]
    rows[1] = rows[1]._replace(first_loss=math.nan)
    rows[2] = rows[2]._replace(first_loss=FAR * math.log(200))
    assert scored(rows, by_loss).balanced == pytest.approx((1 + 1 / 3) / 2)
