"""Guesses: the depths asked for, what is a guess at all, and its distance from a curve, in closed
form."""

from __future__ import annotations

import math

import numpy as np
import pytest

from explorer.app.explore.question import apart, between, checked, depths, in_words


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (1, 12, [1, 3, 5, 8, 10, 12]),
        (0, 12, [0, 2, 5, 7, 10, 12]),
        (1, 3, [1, 2, 3]),
        (1, 1, [1]),
    ],
)
def test_depths_run_from_the_first_to_the_last(first: int, last: int, expected: list[int]) -> None:
    assert depths(first, last) == expected


@pytest.mark.parametrize(
    "guess",
    [
        None,
        "0.5",
        [0.5],
        [0.5] * 4,
        [0.5, math.nan, 0.5],
        [0.5, math.inf, 0.5],
        [0.5, 1.01, 0.5],
        [-0.01, 0.5, 0.5],
        [0.5, True, 0.5],
        [0.5, "0.5", 0.5],
        [0.5, None, 0.5],
        [0.5, [0.5], 0.5],
        {0: 0.5},
        [0.5, 10**400, 0.5],
    ],
)
def test_what_is_no_guess_is_refused_in_a_sentence(guess: object) -> None:
    with pytest.raises(ValueError, match=r"guess must be .*; got "):
        checked(guess, 3, 0.0, 1.0)


def test_a_guess_is_its_numbers() -> None:
    assert checked([0, 0.25, 1], 3, 0.0, 1.0) == [0.0, 0.25, 1.0]


def test_a_line_runs_through_its_points_and_is_level_beyond_them() -> None:
    assert between([1, 3], [0.0, 1.0], [0, 1, 1.5, 3, 9]).tolist() == [0.0, 0.0, 0.25, 1.0, 1.0]


def test_distance_on_a_linear_axis_is_the_mean_difference() -> None:
    assert apart([1.0, 0.0, 0.5], [0.0, 0.0, 1.0], log=False) == pytest.approx(0.5)


def test_distance_on_a_log_axis_is_the_geometric_mean_of_factors_either_way() -> None:
    """Factors of 4, ¼ and 1 have the geometric mean 16^⅓, whichever of the two is the larger."""
    one, other = np.array([4.0, 1.0, 7.0]), np.array([1.0, 4.0, 7.0])
    assert (
        apart(one, other, log=True) == apart(other, one, log=True) == pytest.approx(16 ** (1 / 3))
    )
    assert apart(one, one, log=True) == 1.0


def test_what_has_no_place_on_the_axis_does_not_count() -> None:
    assert apart([2.0, 0.0, math.nan, 3.0], [1.0, 5.0, 5.0, math.inf], log=True) == pytest.approx(
        2.0
    )
    assert math.isnan(apart([math.nan], [1.0], log=False))
    for nowhere in (0.0, -3.0):
        assert apart([2.0, nowhere], [1.0, 5.0], log=True) == pytest.approx(2.0)
        assert apart([2.0, 5.0], [1.0, nowhere], log=True) == pytest.approx(2.0)
        assert apart([2.0, nowhere], [1.0, 5.0], log=False) == pytest.approx(
            (1.0 + 5.0 - nowhere) / 2
        )


@pytest.mark.parametrize(
    ("distance", "log", "words"),
    [
        (1.8972, True, "by a factor of 1.9"),
        (0.3142, False, "by 0.31"),
        (math.nan, True, "where nothing can be compared"),
    ],
)
def test_distances_in_words(distance: float, log: bool, words: str) -> None:
    assert in_words(distance, log=log) == words
