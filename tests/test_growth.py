"""The benchmark of growth tells a square from a line, and noise from neither."""

import numpy as np
import pytest

from benchmarks.growth import FITTED, fit, verdict

X = 2.0 ** np.arange(FITTED)


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_the_exponent_of_a_power(power: float) -> None:
    slope, error = fit(list(X), list(3 * X**power))
    assert slope == pytest.approx(power, abs=1e-12)
    assert error < 1e-12


def test_a_square_is_faster_than_a_line_in_spite_of_noise() -> None:
    y = X**2 * np.exp(0.05 * np.random.default_rng(0).standard_normal(FITTED))
    slope, error = fit(list(X), list(y), [0.05] * FITTED)
    assert verdict(slope, error, 1.0) == "faster than it must"
    assert verdict(slope, error, 2.0) == "as expected"


def test_the_error_covers_the_slopes_of_noisy_lines() -> None:
    rng = np.random.default_rng(1)
    off = [
        (slope - 1) / error
        for slope, error in (
            fit(list(X), list(X * np.exp(0.1 * rng.standard_normal(FITTED))), [0.1] * FITTED)
            for _ in range(500)
        )
    ]
    assert 0.8 < np.std(off) < 1.05  # the larger of two errors: at most about one
