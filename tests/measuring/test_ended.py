"""A pass that ends early, because no entry of the stream or of its gradient is a number, says what
a whole one says."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from explorer import Config, ConfigError
from explorer.measuring.observe import Pass
from explorer.model import Layer
from explorer.vocabulary import Array, Key

HUGE = {
    "d_model": 16,
    "n_heads": 2,
    "n_ctx": 6,
    "batch_size": 2,
    "input_second_moment": 1e8,
    "attention_variance": 1e3,
}
DESIGNS = st.fixed_dictionaries(
    {
        "n_layers": st.integers(2, 14),
        "init_variance": st.sampled_from([1.0, 30.0, 1000.0]),
        "mlp_variance": st.sampled_from([1.0, 1e3]),
        "norm_placement": st.sampled_from(
            ["none", "none", "pre", "post", "branch_output", "mix", "subln"]
        ),
        "residual": st.sampled_from(
            ["constant", "absent", "scaled_skip", "rezero", "skipinit", "inverse_depth", "fixup"]
        ),
        "alpha": st.sampled_from([0.0, 1.0, 4.0]),
        "activation": st.sampled_from(["relu", "gelu", "tanh", "identity", "selu", "relu_squared"]),
        "mlp": st.sampled_from(["plain", "gated"]),
        "attention": st.sampled_from(["softmax", "softmax", "none"]),
        "residual_attention": st.sampled_from(["none", "none", "scores", "qk"]),
        "layer_weights": st.sampled_from(
            ["independent", "independent", "copied", "shared", "looped"]
        ),
        "n_loops": st.sampled_from([2, 3]),
        "stream": st.sampled_from(["one", "one", "parallel", "hyper"]),
        "sink": st.sampled_from(["none", "learned"]),
        "logit_cap": st.sampled_from([0.0, 30.0]),
        "value_residual": st.booleans(),
        "causal": st.booleans(),
        "bias_variance": st.sampled_from([0.0, 1.0]),
    }
)


def both(
    config: Config, pattern_of: tuple[int, int] = (1, 0)
) -> tuple[list[dict[Key, Array]], list[int]]:
    """What a pass that may end early and a whole one found, and how often layers were computed in
    each."""
    calls, found = [0, 0], []
    passes = [Pass(config, 0, pattern_of) for _ in range(2)]
    passes[1].ends = False
    forward = Layer.forward
    for index, one in enumerate(passes):

        def counted(self: Layer, *args: object, index: int = index) -> object:
            calls[index] += 1
            return forward(self, *args)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Layer, "forward", counted)
            found.append(one.run(torch.device("cpu"))[0])
    assert (passes[0].pattern is None) == (passes[1].pattern is None)
    if passes[0].pattern is not None:
        np.testing.assert_array_equal(passes[0].pattern, passes[1].pattern)  # nan is nan
    return found, calls


def same(found: list[dict[Key, Array]]) -> None:
    early, whole = found
    assert list(early) == list(whole)
    for key, values in whole.items():
        np.testing.assert_array_equal(early[key], values, err_msg=str(key))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(DESIGNS, st.integers(1, 14))
def test_every_design_says_what_its_whole_pass_says(choices: dict[str, object], layer: int) -> None:
    try:
        config = Config(**HUGE, **choices)
    except ConfigError:
        assume(False)
    same(both(config, (min(layer, config.n_layers), 1))[0])


def test_an_exploded_stack_is_computed_to_where_it_exploded_and_once_at_its_end() -> None:
    config = Config(**HUGE, n_layers=40, norm_placement="none", init_variance=1e3, mlp_variance=1e3)
    found, calls = both(config)
    same(found)
    # with some entry that is no number
    first = int(np.isnan(found[1]["second_moment", "resid_post"]).argmax()) + 1
    assert first < 10
    assert first + 1 <= calls[0] <= first + 2
    assert calls[1] == 40
    backward: list[float] = []
    Pass(config, 0, progress=backward.append).run(torch.device("cpu"))
    assert len(backward) == calls[0] + 1  # each of these, and of the last alone its gradients


def test_gradients_that_pass_through_what_is_no_number_are_followed() -> None:
    """Relu passes a gradient where its input is no number: of MLPs alone it goes down to the input,
    and is finite."""
    config = Config(
        **HUGE,
        n_layers=14,
        norm_placement="none",
        attention="none",
        init_variance=1e3,
        mlp_variance=1e3,
    )
    found, calls = both(config)
    same(found)
    assert np.isnan(found[1]["second_moment", "resid_post"][-1])
    assert np.isfinite(found[1]["activation_gradient", "resid_post"][-3:]).all()
    assert calls[0] > calls[1] == 14  # it was found out, and the pass made whole
