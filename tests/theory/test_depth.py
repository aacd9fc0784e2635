"""Products over depth: closed forms, and the published constants."""

import math

import numpy as np
import pytest

from explorer import Config
from explorer.theory import predict
from explorer.theory.depth import aligned_growth, deepnorm, identity_path, random_growth, update_size


def test_small_changes_add_up_in_one_dimension_and_hardly_in_many() -> None:
    n = 64
    assert aligned_growth(1 / math.sqrt(n), n) == pytest.approx(1.88e3, rel=0.005)
    assert random_growth(1 / math.sqrt(n), n) == pytest.approx(2.697, rel=1e-3)
    assert random_growth(1 / n, n) == pytest.approx(1.0157, rel=1e-4)


def test_random_growth_against_random_matrices() -> None:
    rng, n, d = np.random.default_rng(0), 64, 64
    draws = []
    for _ in range(40):
        x = rng.standard_normal(d)
        start = x @ x
        for _ in range(n):
            x = x + rng.standard_normal((d, d)) @ x / math.sqrt(d * n)
        draws.append(x @ x / start)
    assert abs(np.mean(draws) - random_growth(1 / math.sqrt(n), n)) <= 4 * np.std(draws) / math.sqrt(len(draws))


def test_identity_path_of_post_norm_halves_in_square() -> None:
    assert identity_path(7) == pytest.approx(2.0 ** (-np.arange(8) / 2))
    assert identity_path(1, skip=3.0, branch=4.0)[1] == pytest.approx(0.6)


def test_deepnorm_constants() -> None:
    assert deepnorm(12) == pytest.approx((2.2134, 0.3195), abs=1e-4)
    assert deepnorm(1000) == pytest.approx((6.6874, 0.1057), abs=1e-4)
    assert deepnorm(18, 18) == pytest.approx((0.81 * (18**5) ** (1 / 16), 0.87 * (18**5) ** (-1 / 16)))
    assert deepnorm(6, 6, decoder=True) == pytest.approx((18**0.25, 72**-0.25))
    ours = Config(n_layers=24, residual="deepnorm").design
    assert (ours.skips[0], ours.rule.drawn["W_V"]) == pytest.approx(deepnorm(24))


def test_one_update_over_depth() -> None:
    """Σ‖g‖² over depth with MLP and attention branches: ∝ N plain, bounded at 1/√N, falling at 1/N."""

    def slope(residual: str, alpha: float = 1.0) -> float:
        sizes = [
            update_size(predict(Config(n_layers=n, norm_placement="none", residual=residual, alpha=alpha,
                                       attention_scale="d", init_variance=0.5)))
            for n in (16, 64)
        ]
        return math.log(sizes[1] / sizes[0]) / math.log(4)

    assert slope("inverse_sqrt_depth") == pytest.approx(0, abs=0.1)
    assert slope("inverse_depth") == pytest.approx(-1, abs=0.1)
