"""Numbers in words: digits, powers of ten, shares."""

import math

import numpy as np
import pytest

from explorer.numbers import compared, number, percent


@pytest.mark.parametrize(("value", "words"), [
    (12.0, "12"), (1.84e24, "1.84·10²⁴"), (1e-5, "10⁻⁵"), (0.0123, "0.0123"), (999_999.0, "10⁶"),
    (123_456.0, "123,000"),
    (-2.5, "-2.5"), (0.0, "0"), (1.0, "1"), (0.09996, "0.1"), (math.inf, "inf"), (math.nan, "nan"), (1000.0, "1,000"),
])
def test_three_digits(value: float, words: str) -> None:
    assert number(value) == words


@pytest.mark.parametrize(("ratio", "words"), [
    (12.0, "12 × the output's"), (1.0, "1 × the output's"), (0.032, "3.2 % of the output's"),
    (0.999, "100 % of the output's"), (1e-9, "10⁻⁷ % of the output's"), (0.0, "0 % of the output's"),
    (140.0, "140 × the output's"), (math.nan, "nan × the output's"),
])
def test_a_ratio(ratio: float, words: str) -> None:
    assert compared(ratio, "the output's") == words


def test_no_number_has_an_exponent_and_each_reads_back() -> None:
    for value in 10.0 ** np.random.default_rng(0).uniform(-300, 300, 2000):
        words = number(value)
        assert "e" not in words
        if "·10" in words:
            lead, power = words.split("·10")
            read = float(lead + "e" + power.translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")))
            assert read == pytest.approx(value, rel=5.1e-3)
    assert percent(0.114) == "11 %"
