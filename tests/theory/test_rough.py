"""The table of how far the theory is off: that it is fitted, and what its notes say."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from benchmarks import accuracy, coverage
from benchmarks.coverage import Trial
from explorer import Config, predict
from explorer.theory import rough
from explorer.theory.rough import FEATURES, Rule
from explorer.vocabulary import STATISTICS

NOTHING = {row.name: np.inf if row.below else 0.0 for row in FEATURES.values()}
"""The numbers of a design that has no feature."""


def trials(count: int, *, off: bool, **numbers: float) -> list[Trial]:
    """Designs with some features, whose second moment is off or right."""
    return [Trial(NOTHING | numbers, {("second_moment", ""): 0.5 if off else 0.01})] * count


def test_a_rule_is_found_where_designs_are_off() -> None:
    sound = trials(40, off=False) + trials(40, off=False, gates=1.0)
    (rule,) = coverage.fitted([*sound, *trials(9, off=True, sink=1.0)])
    assert rule == Rule("second_moment", "", {"sink": 0.5}, 0.5, 9, 9)


def test_a_rule_has_two_features_where_neither_alone_is_off() -> None:
    sound = trials(40, off=False, gates=1.0) + trials(40, off=False, sink=1.0)
    (rule,) = coverage.fitted([*sound, *trials(9, off=True, sink=1.0, gates=1.0)])
    assert rule.limits.keys() == {"sink", "gates"}


def test_no_rule_is_made_of_a_few_designs_or_of_a_few_among_many() -> None:
    few = trials(coverage.FEWEST - 1, off=True, sink=1.0)
    assert coverage.fitted([*trials(40, off=False), *few]) == []
    rare = trials(5, off=True, sink=1.0) + trials(40, off=False, sink=1.0)
    assert coverage.fitted(rare) == []


@pytest.fixture(scope="module")
def sample() -> list[Trial]:
    """Every twentieth of the random designs that were measured."""
    return [
        coverage.trial(*case) for index, case in enumerate(coverage.stored()) if index % 20 == 0
    ]


def test_few_random_designs_carry_a_note_and_few_that_are_off_carry_none(
    sample: list[Trial],
) -> None:
    shares = coverage.share(sample, rough.rules())
    assert 0.1 < shares["off"] < shares["noted"] + 0.05 < 0.4
    assert shares["bare"] < 0.03
    assert coverage.share(sample, [])["bare"] > 1.5 * shares["bare"]  # without rules


def test_a_stored_design_that_is_drawn_otherwise_now_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coverage, "drawn", lambda seed, number: None)
    with pytest.raises(ValueError, match="measure anew"):
        next(coverage.stored())


@pytest.fixture(scope="module")
def table() -> list[dict[str, str]]:
    with accuracy.OUTPUT.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def bare(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The rows that are off beyond their stated error, and not by chance, without a note."""
    return [row for row in rows if accuracy.too_far(row) and not row["note"]]


def test_hardly_an_ordinary_design_is_off_without_a_note(table: list[dict[str, str]]) -> None:
    drawn = [row for row in table if "branches" not in row["statistic"]]
    assert sum(map(accuracy.too_far, drawn)) > 20
    assert len(bare(drawn)) < 0.01 * len(drawn)


def test_an_error_without_a_note_is_seen(table: list[dict[str, str]]) -> None:
    row = next(row for row in table if row["statistic"] == "second_moment")
    planted = row | {"error": "-0.2", "standard_error": "0.01", "note": ""}
    assert bare([planted]) == [planted]
    assert not bare([planted | {"note": "rough"}])
    assert not bare([planted | {"standard_error": "0.1"}])


@pytest.mark.parametrize(
    "choices",
    [{}, {"attention_scale": "none", "logit_cap": 3.0}, {"d_model": 16, "n_heads": 2}],
    ids=str,
)
def test_a_note_has_the_number_of_its_rule(choices: Mapping[str, Any]) -> None:
    config = Config(n_layers=2, **choices)
    numbers = coverage.trial(config, {}).numbers
    held = [rule for rule in rough.rules() if rule.holds(numbers)]
    for statistic, note in predict(config).notes.items():
        mean = rough.BY_POSITION.get(statistic, statistic)
        sizes = [rough.size(rule.error, mean) for rule in held if rule.statistic == mean]
        assert any(size in note for size in sizes), note


def test_what_a_design_has_not_or_is_withdrawn_has_no_note() -> None:
    uneven = Config(n_layers=2, attention_scale="none")
    assert "sink" not in predict(uneven).notes.get("parameter_gradient", "")
    with_sink = uneven.replace(sink="learned", n_heads=2)
    assert "sink rough" in predict(with_sink).notes["parameter_gradient"]
    copies = predict(with_sink.replace(layer_weights="copied", causal=True))
    assert not any("rough" in note for note in copies.notes.values())


def test_sizes_are_differences_shares_and_factors() -> None:
    assert rough.size(0.12, "attention_max") == "0.12"
    assert rough.size(0.3, "second_moment") == "30 %"
    assert rough.size(2.0, "second_moment") == "×3"
    assert rough.size(1e9, "second_moment") == "×100"


def test_every_rule_is_of_what_there_is_and_worse_than_what_is_stated() -> None:
    stated = rough.table()["stated"]
    for rule in rough.rules():
        assert rule.limits.keys() <= FEATURES.keys()
        assert all(rule.limits[name] in FEATURES[name].limits for name in rule.limits)
        assert rule.statistic in STATISTICS
        assert rule.error >= stated[rule.statistic]
        assert coverage.FEWEST <= rule.off <= rule.designs
