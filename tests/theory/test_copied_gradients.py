"""Gradients through layers of the same weights, predicted against measured: their branches add up
coherently, so that independent layers' law is off by factors of 2 to 10⁷."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import explorer as ex

SMALL: dict[str, Any] = {"n_ctx": 32, "batch_size": 1, "n_seeds": 8, "layer_weights": "copied"}
DESIGNS: dict[str, dict[str, Any]] = {
    "pre": {"n_layers": 12},
    "scaled": {"n_layers": 12, "alpha": 12**-0.5},
    "peri": {"n_layers": 12, "norm_placement": "peri"},
    "no norm, no attention": {
        "n_layers": 24,
        "attention": "none",
        "norm_placement": "none",
        "alpha": 0.2,
    },
    "post": {"n_layers": 6, "norm_placement": "post"},
    "looped": {"n_layers": 12, "layer_weights": "looped", "n_loops": 4},
    "gated MLP": {"n_layers": 8, "mlp": "gated", "activation": "silu"},
}


@cache
def profiles(config: ex.Config) -> tuple[ex.Profile, ex.Profile]:
    """Predicted and measured."""
    return ex.predict(config), ex.measure(config)


def ratio(config: ex.Config, statistic: str, site: str) -> np.ndarray:
    """Predicted over the seeds' typical value, `[layer]`."""
    predicted, measured = profiles(config)
    typical = np.exp(np.log(measured.values[statistic, site]).mean(0))
    return np.asarray(predicted.values[statistic, site][0] / typical)


@pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS)
def test_the_stream_gradient_through_copies(design: dict[str, Any]) -> None:
    config = ex.Config(**{**SMALL, **design})
    assert ratio(config, "activation_gradient", "resid_post") == pytest.approx(1, rel=0.15)
    independent = ex.predict(
        ex.Config(**{**SMALL, **design, "layer_weights": "independent", "n_loops": 2})
    )
    first = [
        profile.values["activation_gradient", "resid_post"][0, 0]
        for profile in (ex.predict(config), independent)
    ]
    assert abs(np.log(first[0] / first[1])) > np.log(1.5)


@pytest.mark.parametrize("matrix", ["W_in", "W_out", "W_V", "W_O"])
@pytest.mark.parametrize("design", ["pre", "scaled", "post"])
def test_gradients_of_copies_trained_apart(design: str, matrix: str) -> None:
    config = ex.Config(**{**SMALL, **DESIGNS[design]})
    assert ratio(config, "parameter_gradient", matrix) == pytest.approx(1, rel=0.15)


def test_queries_of_the_first_copy() -> None:
    config = ex.Config(**{**SMALL, **DESIGNS["pre"]})
    assert ratio(config, "parameter_gradient", "W_Q")[0] == pytest.approx(1, rel=0.15)


SHARED: dict[str, dict[str, Any]] = {
    **DESIGNS,
    "biases": {"n_layers": 6, "bias_variance": 0.3, "biases": "all"},
    "queries and keys of length 1": {"n_layers": 6, "qk_norm": True},
    "learned multipliers": {"n_layers": 6, "residual": "layer_scale", "alpha": 0.5},
}


@pytest.mark.parametrize("weights", ["shared", "looped"])
@pytest.mark.parametrize("design", SHARED.values(), ids=SHARED)
def test_gradients_of_weights_that_are_one_set(design: dict[str, Any], weights: str) -> None:
    config = ex.Config(**{**SMALL, "n_loops": 2, **design, "layer_weights": weights})
    trained_apart = ex.predict(config.replace(layer_weights="copied"))
    for site in measured_matrices(config):
        assert ratio(config, "parameter_gradient", site) == pytest.approx(1, rel=0.15)
        if weights == "shared":
            line = profiles(config)[0]["parameter_gradient", site][0]
            squares = trained_apart["parameter_gradient", site][0] ** 2
            assert line[0] > 1.02 * np.sqrt(squares.sum())


def measured_matrices(config: ex.Config) -> list[str]:
    alpha = ["alpha"] if config.residual == "layer_scale" else []
    return [*config.design.shapes, *alpha]


def test_text_and_its_loss_have_no_law_for_weights_that_are_one_set() -> None:
    design = {"n_layers": 6, "layer_weights": "shared", "input": "text", "loss": "next_token"}
    profile = ex.predict(ex.Config(**{**SMALL, **design}))
    assert np.isnan(profile.values["parameter_gradient", "W_in"]).all()
    assert "add up" in profile.notes["parameter_gradient"]
    assert np.isfinite(profile.values["activation_gradient", "resid_post"]).all()


def test_a_sum_over_layers_ends_with_the_worst_of_them() -> None:
    design = {"n_layers": 24, "d_model": 64, "norm_placement": "post", "layer_weights": "looped"}
    profile = ex.predict(ex.Config(**{**SMALL, **design, "n_loops": 4}))
    lines = profile.values["parameter_gradient", "W_in"][0].reshape(4, 6)
    assert (np.isnan(lines) == np.isnan(lines[0])).all()


def test_deep_copies_without_a_typical_draw_have_no_line() -> None:
    config = ex.Config(**{**SMALL, "n_layers": 48, "d_model": 64, "norm_placement": "post"})
    profile = ex.predict(config)
    assert np.isnan(profile.values["activation_gradient", "embed"]).all()
    assert "scatter" in profile.notes["activation_gradient"]


def test_a_signal_that_leaves_its_range_in_the_first_mlp() -> None:
    config = ex.Config(
        n_layers=5,
        d_model=32,
        n_ctx=8,
        init_variance=1000.0,
        norm_placement="none",
        residual="absent",
        causal=True,
        position="alibi",
        input="correlated",
    )
    assert "leaves float32's range" in ex.predict(config).notes["second_moment"]
    copied = ex.predict(config.replace(layer_weights="copied"))
    assert np.isnan(copied.values["activation_gradient", "resid_post"]).all()


@pytest.mark.parametrize("weights", ["independent", "looped"])
def test_a_branch_whose_square_leaves_the_range_of_floats(weights: str) -> None:
    config = ex.Config(
        n_layers=6,
        d_model=32,
        n_ctx=32,
        layer_weights=weights,
        n_loops=2,
        norm_placement="none",
        residual="admin",
        activation="relu2",
        mlp="gated",
        bias_variance=0.1,
        init_variance=3.0,
        input="correlated",
    )
    assert "leaves float32's range" in ex.predict(config).notes["second_moment"]
