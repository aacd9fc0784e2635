"""The verdict on an untrained model against what training made of it, design by design."""

from __future__ import annotations

import pytest

from benchmarks.table import WARMUP
from benchmarks.verdicts import Seen, balanced, bound, from_table, left_out
from explorer.diagnosis import LEAST_DIFFERENCE


@pytest.fixture(scope="module")
def rows() -> list[Seen]:
    return from_table()


@pytest.mark.parametrize(("warmup", "told", "shipped", "least"), [
    (1, ("bad", "warning"), LEAST_DIFFERENCE.without, 0.86), (WARMUP, ("bad",), LEAST_DIFFERENCE.warmed, 0.9),
])
def test_nine_in_ten_are_predicted(rows: list[Seen], warmup: int, told: tuple[str, ...], shipped: float, least: float
                                  ) -> None:
    """Missed: BERT and GPT-2, 24 layers deep and more, and Gemma 2, which trains while it is shallow."""
    stalls = [row.stalls(warmup) for row in rows]
    assert balanced([row.severity in told for row in rows], stalls) > 0.9
    assert left_out(rows, warmup) > least
    assert bound(rows, warmup) == pytest.approx(shipped, abs=0.01)


def test_even_designs_are_warned_of_at_no_depth(rows: list[Seen]) -> None:
    even = {"pre_ln", "peri_ln", "branch_output", "qk_norm", "t5"}
    assert {row.severity for row in rows if row.design in even} == {"good"}
    assert {row.n_layers for row in rows if row.design in even} == {6, 12, 24, 48}


def test_a_bound_stands_in_the_middle_of_its_gap() -> None:
    rows = [Seen("a", 6, "", False, share, {1: gain}) for share, gain in ((0.04, 0.0), (0.09, 0.0), (0.36, 0.5))]
    assert bound(rows, 1) == pytest.approx(0.18)
    assert balanced([True, False, False], [True, True, False]) == 0.75
