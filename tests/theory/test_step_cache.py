"""Stacks that begin alike share their steps: every prediction is, bit for bit, what it is when nothing is shared."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from explorer import Config, ConfigError, Profile, predict
from explorer.theory import forward, step_cache

DESIGNS = st.fixed_dictionaries({
    "norm_placement": st.sampled_from(["none", "pre", "post", "scaled_pre", "mix", "keel", "hybrid_star", "subln"]),
    "residual": st.sampled_from(["constant", "absent", "deepnorm", "inverse_depth", "admin_profiled", "rezero"]),
    "scale_rule": st.sampled_from(["lecun", "gpt2"]),
    "layer_weights": st.sampled_from(["independent", "copied"]),
    "stream": st.sampled_from(["one", "parallel", "depth_attention"]),
    "residual_attention": st.sampled_from(["none", "scores", "qk"]),
    "attention": st.sampled_from(["softmax", "softmax", "none"]),
    "value_residual": st.booleans(),
    "init_variance": st.sampled_from([0.1, 1.0, 1e3]),
})


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    forget()


def forget() -> None:
    step_cache._cache.clear()
    step_cache._size = 0


def same(one: Profile, other: Profile) -> None:
    assert dict(one.notes) == dict(other.notes)
    assert list(one) == list(other)
    for key in other:
        np.testing.assert_array_equal(one.values[key], other.values[key], err_msg=str(key))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(DESIGNS, st.lists(st.integers(1, 24), min_size=2, max_size=4))
def test_depths_in_any_order_are_predicted_as_if_each_were_the_first(choices: dict[str, object], depths: list[int]
                                                                      ) -> None:
    try:
        configs = [Config(**choices, n_layers=depth) for depth in depths]
    except ConfigError:
        assume(False)
    forget()
    shared = [predict(config) for config in configs]
    for config, found in zip(configs, shared, strict=True):
        forget()
        same(found, predict(config))


def test_a_stack_goes_on_where_another_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    followed: list[int] = []
    sublayer = forward.sublayer

    def counted(*args: object) -> object:
        followed.append(args[4])  # type: ignore[arg-type]
        return sublayer(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(forward, "sublayer", counted)
    for depth, expected in ((5, range(10)), (8, range(10, 16)), (3, ()), (8, ())):
        followed.clear()
        predict(Config(n_layers=depth, norm_placement="post"))
        assert followed == list(expected), depth
    followed.clear()
    predict(Config(n_layers=8, norm_placement="post", alpha=0.5))
    assert followed == list(range(16))


def test_a_stack_that_leaves_the_range_leaves_it_at_every_depth() -> None:
    config = Config(norm_placement="none", init_variance=1e3)
    for depth in (100, 7, 50, 100):
        found = predict(config.replace(n_layers=depth))
        forget()
        same(found, predict(config.replace(n_layers=depth)))


def test_steps_that_are_kept_are_bounded() -> None:
    for index in range(60):
        predict(Config(n_layers=100, alpha=1 + index / 100))
        assert step_cache._size == sum(len(steps) for _, steps in step_cache._cache.values()) <= step_cache.CAPACITY
    assert len(step_cache._cache) == step_cache.CAPACITY // 200


def test_threads_predict_what_one_does() -> None:
    configs = [Config(n_layers=depth, alpha=alpha) for depth in (3, 30, 12, 24) for alpha in (0.5, 1.0)] * 3
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(predict, configs))
    for config, one in zip(configs, found, strict=True):
        forget()
        same(one, predict(config))
