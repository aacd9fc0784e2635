"""Numbers in words: digits, powers of ten, shares."""

import math

import numpy as np
import pytest

from explorer.numbers import filled, number, percent


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (12.0, "12"),
        (1.84e24, "1.84·10²⁴"),
        (1e-5, "10⁻⁵"),
        (0.0123, "0.0123"),
        (999_999.0, "10⁶"),
        (123_456.0, "123,000"),
        (-2.5, "-2.5"),
        (0.0, "0"),
        (1.0, "1"),
        (0.09996, "0.1"),
        (math.inf, "inf"),
        (math.nan, "nan"),
        (1000.0, "1,000"),
    ],
)
def test_three_digits(value: float, words: str) -> None:
    assert number(value) == words


def test_a_sentence_rounds_its_numbers_as_it_says() -> None:
    said = filled("{a} {a:2} {a:%} {n} {n:5} {name} {a:.1f}", a=0.12345, n=65504, name="W_Q")
    assert said == "0.123 0.12 12 % 65504 65504 W_Q 0.1"
    assert (
        filled("{a} × {b:5}", a=np.float64(12_345.0), b=np.float32(65_504.0)) == "12,300 × 65,504"
    )
    with pytest.raises(KeyError):
        filled("{a} and {b}", a=1.0)


def test_no_number_has_an_exponent_and_each_reads_back() -> None:
    for value in 10.0 ** np.random.default_rng(0).uniform(-300, 300, 2000):
        words = number(value)
        assert "e" not in words
        if "·10" in words:
            lead, power = words.split("·10")
            read = float(lead + "e" + power.translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")))
            assert read == pytest.approx(value, rel=5.1e-3)
    assert percent(0.114) == "11 %"
