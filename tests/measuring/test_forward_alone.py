"""Without its backward pass a profile says what the whole one says of the forward pass, bit for
bit."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from explorer import Config, ConfigError, Profile, Stopped, measure, predict
from explorer.vocabulary import STATISTICS

SMALL = Config(n_layers=5, d_model=32, n_heads=4, n_ctx=8, batch_size=2, n_seeds=2)


def forward_of(alone: Profile, whole: Profile) -> None:
    assert list(alone) == [key for key in whole if not STATISTICS[key[0]].backward]
    for key in alone:
        np.testing.assert_array_equal(alone.values[key], whole.values[key], err_msg=str(key))
    assert dict(alone.notes) == {
        name: note for name, note in whole.notes.items() if not STATISTICS[name].backward
    }


@pytest.mark.parametrize("kept", ["0", "1000"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"causal": True, "norm_placement": "post"},
        {"stream": "hyper"},
        {"input": "text", "loss": "next_token"},
        {"norm_placement": "post", "residual": "admin_profiled"},
        {"residual_attention": "scores", "value_residual": True},
        {
            "norm_placement": "none",
            "init_variance": 1e3,
            "n_layers": 30,
            "input_second_moment": 1e8,
        },
    ],
)
def test_measured(changes: dict[str, object], kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPLORER_MAX_ACTIVATION_MB", kept)
    config = SMALL.replace(**changes)
    alone, whole = (
        measure(config, pattern_of=(4, 1), backward=False),
        measure(config, pattern_of=(4, 1)),
    )
    forward_of(alone, whole)
    np.testing.assert_array_equal(alone.pattern, whole.pattern)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.fixed_dictionaries(
        {
            name: st.sampled_from(Config.specs()[name].choices)
            for name in (
                "norm_placement",
                "norm",
                "residual",
                "stream",
                "attention",
                "sink",
                "input",
                "loss",
                "position",
                "layer_weights",
            )
        }
    ),
    st.booleans(),
    st.sampled_from([0.01, 1.0, 1e3]),
)
def test_predicted(choices: dict[str, str], causal: bool, scale: float) -> None:
    try:
        config = SMALL.replace(**choices, causal=causal, init_variance=scale)
    except ConfigError:
        assume(False)
    forward_of(predict(config, backward=False), predict(config))


def test_it_differentiates_nothing_and_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a backward pass")

    monkeypatch.setattr(torch.Tensor, "backward", never)
    reached: list[float] = []
    measure(SMALL.replace(n_seeds=1), progress=reached.append, backward=False)
    assert reached == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])


def test_it_stops_when_told() -> None:
    with pytest.raises(Stopped):
        measure(SMALL, stop=lambda: True, backward=False)
