"""Gaussian integrals of activations: closed forms to 1e-8, the literature's table, Monte Carlo,
limits, refusals."""

import math

import numpy as np
import pytest
from scipy.special import owens_t
from scipy.stats import multivariate_normal

from explorer.schemes.activation import ACTIVATIONS
from explorer.schemes.closed_forms import gated
from explorer.theory import gaussian
from explorer.theory.gaussian import flatness, kernel, moments, overlaps

TABLE = {  # E f, E f², E f′² under N(0, 1)
    "relu": (0.3989422804, 0.5, 0.5),
    "relu2": (0.5, 1.5, 2.0),
    "gelu": (0.2820947918, 1 / 3 + 1 / (2 * math.pi * math.sqrt(3)), 0.4558508656),
    # by an adaptive quadrature of the formula
    "gelu_tanh": (
        0.2820385881,
        0.4251937110,
        0.4558178460,
    ),
    "quick": (0.2823305528, 0.4219528069, 0.4495492005),
    "silu": (0.2066209641, 0.3557755198, 0.3794823516),
    "elu": (0.1605205723, 0.6449454175, 0.6681020012),
    "tanh": (0.0, 0.3942944904, 0.4644029024),
    "sigmoid": (0.5, 0.2933790359, 0.0448362414),
    "selu": (0.0, 1.0, 1.0715749925),
    "identity": (0.0, 1.0, 1.0),
}


@pytest.mark.parametrize("name", TABLE)
def test_moments_under_a_standard_normal(name: str) -> None:
    assert moments(name) == pytest.approx(TABLE[name], abs=1e-8)


@pytest.mark.parametrize("q", [0.01, 1.0, 30.0])
def test_elu_against_its_closed_form(q: float) -> None:
    s = math.sqrt(q)

    def half(k: float) -> float:  # E exp(k x) over x < 0
        return math.exp(k * k * q / 2) * 0.5 * math.erfc(k * s / math.sqrt(2))

    square = q / 2 + half(2) - 2 * half(1) + 0.5
    assert moments("elu", q).mean == pytest.approx(
        s / math.sqrt(2 * math.pi) + half(1) - 0.5, abs=1e-8
    )
    assert moments("elu", q).square == pytest.approx(square, abs=1e-8 * max(1, q))
    assert moments("elu", q).slope_square == pytest.approx(0.5 + half(2), abs=1e-8)


@pytest.mark.parametrize("rho", [-0.7, 0.0, 0.2, 0.9, 0.9999])
@pytest.mark.parametrize("q", [0.01, 1.0, 50.0])
@pytest.mark.parametrize("name", ["relu", "gelu", "identity"])
def test_quadrature_of_two_inputs_against_closed_forms(name: str, q: float, rho: float) -> None:
    exact = overlaps(name, q, rho)
    assert gaussian._by_common_part(ACTIVATIONS[name], math.sqrt(q), rho) == pytest.approx(
        exact, rel=1e-8, abs=1e-8
    )


@pytest.mark.parametrize("rho", [-0.3, 0.0, 0.5, 0.99])
def test_elu_slopes_against_bivariate_normal_probabilities(rho: float) -> None:
    def quarter(
        a: float, b: float
    ) -> float:  # E exp(a x + b y) over x, y < 0: a shifted Gaussian's probability
        shift = (a + rho * b, b + rho * a)
        cdf = multivariate_normal([0, 0], [[1, rho], [rho, 1]]).cdf([-shift[0], -shift[1]])
        return math.exp((a * a + b * b + 2 * rho * a * b) / 2) * float(cdf)

    def mixed() -> float:  # E exp(x) over x < 0 < y
        return math.exp(0.5) * (0.5 * math.erfc(1 / math.sqrt(2))) - quarter(1, 0)

    both_above = 0.25 + math.asin(rho) / (2 * math.pi)
    expected = both_above + 2 * mixed() + quarter(1, 1)
    # scipy's bivariate cdf is the limit
    assert overlaps("elu", 1.0, rho).slope == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_two_inputs_against_monte_carlo(name: str) -> None:
    rng, rho, q = np.random.default_rng(3), 0.6, 2.0
    x = math.sqrt(q) * rng.standard_normal(400_000)
    y = rho * x + math.sqrt(q * (1 - rho**2)) * rng.standard_normal(400_000)
    form, exact = ACTIVATIONS[name], overlaps(name, q, rho)
    samples = (form.value(x) * form.value(y), form.slope(x) * form.slope(y))
    for sample, expected in zip(samples, exact, strict=True):
        assert abs(sample.mean() - expected) <= 4 * sample.std() / math.sqrt(len(x)) + 1e-12
        if sample.std() > 0:  # three per cent would be seen
            assert abs(sample.mean() - 1.03 * expected) > 4 * sample.std() / math.sqrt(len(x))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_ends_of_correlation(name: str) -> None:
    one = moments(name, 1.7)
    assert overlaps(name, 1.7, 1.0) == pytest.approx((one.square, one.slope_square), rel=1e-9)
    assert overlaps(name, 1.7, 0.0).value == pytest.approx(one.mean**2, abs=1e-9)


def test_flatness_of_relu_and_identity() -> None:
    assert flatness("relu") == pytest.approx(5, rel=1e-9)  # E relu⁴ = 3/2, (E relu²)² = 1/4
    assert flatness("identity") == pytest.approx(2, rel=1e-9)


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_kernels_read_the_same_numbers(name: str, fixed: bool) -> None:
    for q in (0.003, 1.0, 4.0, 900.0):
        fast = kernel(name, False, q if fixed else None)
        for rho in (0.0, 0.13, 0.7, 0.97, 0.9999):
            exact, one, at = (
                overlaps(name, q, rho),
                moments(name, q),
                (np.array([q]), np.array([rho])),
            )
            same, cross = fast.overlaps(*at)
            assert (same[0], cross[0]) == pytest.approx(
                (one.square, exact.value), rel=1e-3, abs=2e-4 * one.square
            )
            same, cross = fast.slopes(*at)
            assert (same[0], cross[0]) == pytest.approx((one.slope_square, exact.slope), rel=2e-3)


@pytest.mark.parametrize("shift", [0.0, 1.0])
@pytest.mark.parametrize("name", ["silu", "gelu", "relu", "sigmoid", "identity", "relu2"])
def test_a_gated_unit_against_monte_carlo(name: str, shift: float) -> None:
    """φ(u) (v + c) of two inputs of correlation .6, v of twice u's second moment; and the gradients
    by u and by v."""
    rng, rho, q = np.random.default_rng(4), 0.6, 1.5
    u, v = (scale * rng.standard_normal((2, 400_000)) for scale in (math.sqrt(q), math.sqrt(2 * q)))
    u[1], v[1] = (rho * one[0] + math.sqrt(1 - rho**2) * one[1] for one in (u, v))
    v = v + shift
    form, law = ACTIVATIONS[name], gated(kernel(name, False, None), 2.0, shift**2)
    assert len(law.parts) == 2
    expected = [law.overlaps, *law.parts]
    for sample, part in zip(
        (form.value(u) * v, form.slope(u) * v, form.value(u)), expected, strict=True
    ):
        for product, exact in zip(
            (sample[0] ** 2, sample[0] * sample[1]),
            part(np.array([q]), np.array([rho])),
            strict=True,
        ):
            assert (
                abs(product.mean() - exact[0])
                <= 4 * product.std() / math.sqrt(len(product)) + 1e-3 * exact[0]
            )


@pytest.mark.parametrize("shift", [0.0, 1.0])
@pytest.mark.parametrize("name", ["silu", "gelu", "relu", "identity"])
def test_slopes_of_a_gated_unit_are_the_overlaps_derivative(name: str, shift: float) -> None:
    """dE hh′ / dp of the common input's overlap p, in units of u's."""
    law, q, rho = (
        gated(kernel(name, False, None), 0.7, shift**2),
        np.full(3, 1.3),
        np.array([0.29, 0.3, 0.31]),
    )
    overlap = law.overlaps(q, rho)[1]
    assert law.slopes(q, rho)[1][1] == pytest.approx(
        (overlap[2] - overlap[0]) / (0.02 * 1.3), rel=2e-3
    )


def test_rescaled_kernel_keeps_the_second_moment() -> None:
    for name in ACTIVATIONS:
        assert kernel(name, True, 1.0).overlaps(np.array(1.0), np.array(0.5))[0] == pytest.approx(
            1, rel=1e-4
        )


def test_owens_t_gives_the_gelu_gate() -> None:
    """E Φ(x)Φ(y), the core of gelu's closed form, against an independent special function."""
    rho, q = 0.6, 1.0
    r = rho * q / (1 + q)
    # P(both below 0) of correlation r
    expected = 0.5 - 2 * owens_t(0, math.sqrt((1 - r) / (1 + r)))
    assert 0.25 + math.asin(r) / (2 * math.pi) == pytest.approx(expected, abs=1e-12)


def test_refusals_name_the_choices() -> None:
    with pytest.raises(ValueError, match="activation must be one of relu, gelu"):
        moments("swish")
    with pytest.raises(ValueError, match="q must be finite and not negative; got -1"):
        moments("relu", -1)
    with pytest.raises(ValueError, match="rho must be between -1 and 1"):
        overlaps("relu", 1.0, 1.5)
