"""predict(): the same record as a measurement, never an exception, never an invention, and no
torch."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from explorer import Config, ConfigError, measure
from explorer.theory import predict
from explorer.vocabulary import STATISTICS

SMALL: dict[str, Any] = {
    "n_layers": 2,
    "d_model": 32,
    "n_heads": 2,
    "n_ctx": 8,
    "batch_size": 1,
    "n_seeds": 1,
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("residual", ["constant", "rezero"])
def test_same_sites_and_shapes_as_a_measurement(causal: bool, residual: str) -> None:
    config = Config(**SMALL, causal=causal, residual=residual)
    measured, predicted = measure(config), predict(config)
    assert predicted.origin == "predicted"
    assert predicted.config == config
    assert set(predicted.values) == set(measured.values)
    for key, value in predicted.values.items():
        found = measured.values[key]
        last = found.shape[2:] if STATISTICS[key[0]].by_position else (1,) * (found.ndim - 2)
        assert value.shape == (1, found.shape[1], *last)
    assert predicted.first_nonfinite is None


def test_one_config_one_answer() -> None:
    config = Config(**SMALL)
    first, second = predict(config), predict(config)
    assert all(np.array_equal(first[key], second[key], equal_nan=True) for key in first.values)


def test_torch_is_never_imported() -> None:
    code = (
        "import sys; from explorer.config import Config; from explorer.theory import predict, solve; "
        "predict(Config()); predict(Config(causal=True)); print('torch' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "False\n"
    )


def configs() -> st.SearchStrategy[dict[str, Any]]:
    """Any choice of any field, sizes kept small enough to be many."""
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for name, spec in Config.specs().items():
        if spec.kind == "choice":
            fields[name] = st.sampled_from(spec.choices)
        elif spec.kind == "switch":
            fields[name] = st.booleans()
        elif spec.kind == "number":
            fields[name] = st.floats(spec.low, spec.high)
        elif spec.kind == "text":
            fields[name] = st.sampled_from(("to be, or not to be", "aab", "ab"))
        else:
            fields[name] = st.integers(int(spec.low), min(int(spec.high), 40))
    fields |= {
        "n_heads": st.sampled_from((1, 5, 40)),
        "n_ctx": st.sampled_from((2, 7, 40)),
        "d_model": st.just(40),
    }
    return st.fixed_dictionaries(fields)


@settings(
    max_examples=50, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
@given(configs())
def test_any_config_is_answered_and_what_is_missing_is_explained(choices: dict[str, Any]) -> None:
    try:
        config = Config(**choices)
    except ConfigError:
        assume(False)
    profile = predict(config)
    for (statistic, site), value in profile.values.items():
        known = value[np.isfinite(value)]
        assert len(known) == value.size or statistic in profile.notes, (statistic, site)
        if "correlation" not in statistic:
            assert (known >= 0).all(), (statistic, site)
        if statistic in ("attention_entropy_normalized", "attention_max"):
            assert (known <= 1 + 1e-6).all(), (statistic, site)
    for note in profile.notes.values():
        for reason in note.split("; "):
            assert reason == reason.strip()
            assert len(reason) < 160


def test_a_last_function_without_slope_is_named_as_the_cause() -> None:
    config = Config(
        norm="derf", final_norm="yes", input_second_moment=1e8, residual="deepnorm", n_layers=12
    )
    profile = predict(config)
    for row in STATISTICS.values():
        if row.backward:
            assert "last function is flat" in profile.notes[row.name]
    assert np.isnan(profile["activation_gradient", "resid_post"]).all()
    assert np.isfinite(profile["second_moment", "resid_post"]).all()


def test_logits_that_run_away_are_explained_with_their_layer() -> None:
    profile = predict(Config(norm_placement="none"))
    note = profile.notes["activation_gradient"]
    assert "before layer 12" in note
    assert "run away" in note
    gradient = profile["activation_gradient", "resid_post"][0]
    assert np.isnan(gradient[:11]).all()
    assert gradient[11] == 1
    assert np.isfinite(profile["second_moment", "resid_post"]).all()  # forward it holds


def test_a_signal_beyond_float32_is_not_followed() -> None:
    profile = predict(Config(norm_placement="none", init_variance=1000.0, n_layers=30))
    assert (
        profile.notes["second_moment"]
        == "not covered from layer 4 on: the signal leaves float32's range"
    )
    q = profile["second_moment", "resid_post"][0]
    assert np.isfinite(q[:3]).all()
    assert np.isnan(q[3:]).all()


def test_tokens_that_collapse_lose_their_logits() -> None:
    profile = predict(Config(residual="absent"))
    assert (
        profile.notes["logit_std"]
        == "not covered from layer 4 on: its tokens are alike to 1 in 100,000"
    )
    assert np.isnan(profile["logit_std", "attn_scores"][0, 3:]).all()
    assert np.isfinite(profile["logit_std", "attn_scores"][0, :3]).all()
    assert np.isfinite(profile["activation_gradient", "resid_post"]).all()


def test_gradients_beyond_float32_are_withdrawn() -> None:
    profile = predict(
        Config(
            n_layers=20,
            norm_placement="none",
            residual="absent",
            init_variance=0.005,
            attention="none",
            activation="sigmoid",
        )
    )
    gradient = profile["activation_gradient", "resid_post"][0]
    assert np.isnan(gradient[0])
    assert gradient[-1] == 1
    assert profile.notes["activation_gradient"] == "not covered where it leaves float32's range"


def test_exact_ends() -> None:
    """What needs no theory: ReZero's stream, peri's branches, post's pinned moment, uniform
    attention."""
    rezero = predict(Config(residual="rezero"))
    means = rezero.mean_over_draws(("second_moment", "resid_post"))
    assert means == pytest.approx(1, rel=1e-12)
    assert (rezero["activation_gradient", "resid_post"] == 1).all()
    peri = predict(Config(norm_placement="peri"))
    means = peri.mean_over_draws(("second_moment", "resid_post"))
    assert means[0, -1] == pytest.approx(25, rel=1e-3)
    post = predict(Config(norm_placement="post", n_layers=24))
    assert post["second_moment", "resid_post"] == pytest.approx(np.ones((1, 24)), rel=1e-4)
    gradient = post["activation_gradient", "resid_post"][0]
    assert 2 < np.argmin(gradient) < 21  # V-shaped
    assert gradient[0] > 1.5 * gradient.min()
    same = predict(Config(input="correlated", input_correlation=1.0))
    assert same["attention_entropy_normalized", "pattern"][0, 0, 0] == pytest.approx(1, abs=1e-6)


def test_first_layer_of_the_essays() -> None:
    """Unit gains, 64 tokens, heads of 64: entropy .89 of uniform with √d, .14 without; largest .11
    and .79."""
    for scale, entropy, largest in (("sqrt_d", 0.886, 0.107), ("none", 0.140, 0.792)):
        profile = predict(Config(attention_scale=scale))
        assert profile["attention_entropy_normalized", "pattern"][0, 0, 0] == pytest.approx(
            entropy, abs=0.006
        )
        assert profile["attention_max", "pattern"][0, 0, 0] == pytest.approx(largest, abs=0.006)
