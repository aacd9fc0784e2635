"""Gradients through layers of the same weights, predicted against measured: their branches add up
coherently, so that independent layers' law is off by factors of 2 to 10⁷."""

from __future__ import annotations

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


def ratio(config: ex.Config, statistic: str, site: str) -> np.ndarray:
    """Predicted over the seeds' typical value, `[layer]`."""
    measured = ex.measure(config).values[statistic, site]
    typical = np.exp(np.log(measured).mean(0))
    return np.asarray(ex.predict(config).values[statistic, site][0] / typical)


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


def test_weights_that_are_one_set_have_no_law() -> None:
    profile = ex.predict(ex.Config(**{**SMALL, "n_layers": 6, "layer_weights": "shared"}))
    assert np.isnan(profile.values["parameter_gradient", "W_in"]).all()
    assert "add up" in profile.notes["parameter_gradient"]
    assert np.isfinite(profile.values["activation_gradient", "resid_post"]).all()


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
