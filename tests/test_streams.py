"""Mixed streams and attention over depth: Pre-LN at initialization, and what their formulas say of
any weights."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from explorer import Config, ConfigError, measure, predict
from explorer.measuring.observe import Pass
from explorer.model import MixingLayer, Transformer, batch
from explorer.model.streams import Stacked, sinkhorn
from explorer.schemes.residual import STREAMS
from explorer_race.race import Contender, race
from explorer_race.tasks import Task

SMALL = Config(n_layers=3, d_model=32, n_heads=4, n_ctx=8, batch_size=2, n_seeds=1)
MIXING = [name for name, row in STREAMS.items() if row.mixes]


def trained(config: Config, size: float = 0.5) -> Transformer:
    """A model whose mixes are anything but those at initialization."""
    model, generator = Transformer(config, 0), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for layer in layers(model):
            for parameter in layer.mix:
                parameter += size * torch.randn(parameter.shape, generator=generator)
    return model


def layers(model: Transformer) -> list[MixingLayer]:
    found = [layer for layer in model.layers if isinstance(layer, MixingLayer)]
    assert len(found) == model.config.n_layers
    return found


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"causal": True, "norm_placement": "peri"},
        {"attention": "none", "norm": "rms"},
        {"norm_placement": "scaled_pre", "alpha": 0.5},
        {"residual_attention": "scores", "parametrization": "completep"},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", MIXING)
def test_at_initialization_it_is_pre_ln(name: str, choices: dict[str, Any]) -> None:
    """Forward and backward; but for what mHC's token adds, of order .01 · .02 · √(n d)."""
    plain = SMALL.replace(norm_epsilon=1e-12, **choices)
    for profile, allowance in (
        (measure, 0.02 if STREAMS[name].constrained else 1e-5),
        (predict, 1e-6),
    ):
        one, mixed = profile(plain), profile(plain.replace(stream=name))
        assert set(mixed.values) - set(one.values) == {("parameter_gradient", "mix")}
        for key, value in one.values.items():
            assert_allclose(mixed[key], value, rtol=allowance, atol=1e-7, err_msg=str(key))


@pytest.mark.parametrize("name", MIXING)
def test_what_it_adds_to_the_branches_input_is_seen_by_an_epsilon_as_large(name: str) -> None:
    """At ε = ½ the branches' inputs, n/2 or 1/l of the sum, give other branches; theory knows by
    how much."""
    config = SMALL.replace(d_model=256, n_seeds=12, norm_epsilon=0.5, norm="rms")
    plain, mixed = predict(config), config.replace(stream=name)
    found, expected = (
        measure(mixed)["second_moment", "attn_out"],
        predict(mixed)["second_moment", "attn_out"][0],
    )
    assert (
        abs(found.mean(0) - expected) < 4 * found.std(0, ddof=1) / np.sqrt(12) + 0.02 * expected
    ).all()
    change = expected[1] / plain["second_moment", "attn_out"][0, 1]
    assert (change < 0.7, change > 1.05, change == 1) == (
        name == "depth_attention",
        name == "manifold",
        name == "hyper",
    )


def branch(layer: MixingLayer, index: int, x: Tensor) -> Tensor:
    """F(N(x))."""
    x = layer.normed[index]("input", x)
    if index:
        return layer.mlp(x)
    assert layer.attention is not None
    return layer.attention(x, lambda *_: None, ())[0]


def test_attention_over_depth_by_its_paper() -> None:
    """h_l = Σ a_i v_i, a = softmax of w_l · RMSNorm(v_i) over embedding and all outputs; a query
    for the readout."""
    model = trained(SMALL.replace(stream="depth_attention"))
    x = batch.draw(model.config, 0).input
    values, h = [x], x
    for layer in layers(model):
        for index in (0, 1):
            values.append(branch(layer, index, h))
            keys = [F.rms_norm(value, (32,), eps=model.config.norm_epsilon) for value in values]
            scores = torch.stack([key @ layer.mix[0][index] for key in keys])
            h = sum(a[..., None] * v for a, v in zip(scores.softmax(0), values, strict=True))
    assert_close(model(x), model.norm(h), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["hyper", "manifold"])
def test_hyper_connections_by_their_papers(name: str) -> None:
    """H = B F(A_m H) + A_rᵀ H for any weights; the readout is of the streams' mean."""
    model = trained(SMALL.replace(stream=name, n_streams=3))
    x = batch.draw(model.config, 0).input
    streams = x.expand(3, *x.shape)
    for layer in layers(model):
        for index in (0, 1):
            weights = layer.mixing.weights(streams, index)
            read = sum(weights[i, ..., 0, None] * streams[i] for i in range(3))
            out = branch(layer, index, read)
            streams = torch.stack(
                [
                    weights[j, ..., 1, None] * out
                    + sum(weights[i, ..., 2 + j, None] * streams[i] for i in range(3))
                    for j in range(3)
                ]
            )
    assert_close(model(x), model.norm(streams.mean(0)), rtol=1e-4, atol=1e-5)


def test_mhcs_matrices_are_doubly_stochastic_and_its_gates_bounded() -> None:
    matrix = sinkhorn(torch.randn(4, 2, 5, 4))
    assert_close(matrix.sum(0), torch.ones(2, 5, 4))
    assert_close(matrix.sum(-1), torch.ones(4, 2, 5), rtol=0, atol=1e-2)
    layer = layers(trained(SMALL.replace(stream="manifold"), size=2.0))[0]
    weights = layer.mixing.weights(torch.randn(4, 2, 8, 32), 0)
    assert weights.min() >= 0
    assert weights[..., 0].max() <= 1 < weights[..., 1].max() <= 2


@pytest.mark.parametrize("name", MIXING)
def test_gradients_of_any_mix_are_those_of_one_whole_graph(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks, with streams and outputs passed from one to the next, and by the shown stream:
    moved, so is the loss.

    A shift of all streams, or of the last output, is a shift of what is shown.
    """
    config = SMALL.replace(stream=name, n_layers=4)
    model, inputs = trained(config, size=0.2), batch.draw(config, 0)
    whole = Pass(config, 0).observe(model, inputs)[0]
    monkeypatch.setenv("EXPLORER_MAX_ACTIVATION_MB", "0.01")
    assert config.sizes.block
    blocks = Pass(config, 0).observe(model, inputs)[0]
    for key, value in whole.items():
        assert_allclose(blocks[key], value, rtol=1e-5, err_msg=str(key))
    model.loss(model(model.embed(inputs)), inputs).backward()
    squares = [
        sum(float(one.grad.square().sum()) for one in layer.mix if one.grad is not None)
        for layer in layers(model)
    ]
    assert_allclose(whole["parameter_gradient", "mix"] ** 2, squares, rtol=1e-4)


@pytest.mark.parametrize("name", MIXING)
def test_all_that_mixes_learns(name: str) -> None:
    task = Task()
    config = task.fit(SMALL.replace(stream=name, n_layers=2))
    runner = race([Contender(name, config)], task, steps=3).runners[0]
    fresh, moved = Transformer(config, 0, vocabulary=runner.data.vocabulary), runner.model
    for before, after in zip(layers(fresh), layers(moved), strict=True):
        assert all(
            not torch.equal(one, two) for one, two in zip(before.mix, after.mix, strict=True)
        )


def test_a_parallel_layer_is_one_sum() -> None:
    """x + A(N(x)) + M(N(x)), and its middle is x + A: nothing but the sum reads it."""
    config = SMALL.replace(stream="parallel")
    model, inputs, seen = Transformer(config, 0), batch.draw(config, 0), {}
    x = inputs.input
    first = model.layers[0]
    x_1, _ = first(x, lambda site, layer, tensor: seen.update({site: tensor}))
    read = first.normed[0]("input", x)
    attended = first.attention(read, lambda *_: None, ())[0]
    assert_close(seen["resid_mid"], x + attended)
    assert_close(x_1, x + attended + first.mlp(read))
    profile = measure(config)
    assert_allclose(
        profile["activation_gradient", "resid_mid"],
        profile["activation_gradient", "resid_post"],
        rtol=1e-5,
    )


@pytest.mark.parametrize(
    ("choices", "named"),
    [
        ({"norm_placement": "post"}, "norm_placement"),
        ({"norm_placement": "keel"}, "norm_placement"),
        ({"residual": "scaled_skip", "alpha": 2.0}, "residual"),
    ],
)
def test_no_stream_but_the_one_has_a_norm_on_its_sum_or_a_weight_of_its_own(
    choices: dict[str, Any], named: str
) -> None:
    for name in STREAMS:
        assert Config(stream=name).accepts(**choices) == (name == "one")
    with pytest.raises(ConfigError, match=named) as refused:
        Config(stream="parallel", **choices)
    for field, value in refused.value.fixes.items():
        assert Config(**{"stream": "parallel", **choices, field: value})


def test_only_sums_of_one_stream_take_any_residual_rule_and_branches_without_a_norm() -> None:
    for name, row in STREAMS.items():
        assert Config(stream=name).accepts(residual="inverse_sqrt_depth") == (not row.mixes)
        assert Config(stream=name).accepts(norm_placement="branch_output") == (not row.mixes)


@pytest.mark.parametrize("name", MIXING)
def test_what_mixes_counts_as_parameters(name: str) -> None:
    config = SMALL.replace(stream=name, n_streams=5)
    assert config.sizes.n_parameters == sum(
        one.numel() for one in Transformer(config, 0).parameters()
    )


@pytest.mark.parametrize("count", [1, 2, 15, 16, 33])
def test_outputs_side_by_side_are_torchs_stack(count: int) -> None:
    outputs = [torch.randn(2, 3, 4, requires_grad=True) for _ in range(count)]
    direction = torch.randn(2, 3, count, 4)
    found, expected = Stacked.apply(*outputs), torch.stack(outputs, dim=-2)
    assert found.is_contiguous()
    assert torch.equal(found, expected)
    gradients = (torch.autograd.grad((x * direction).sum(), outputs) for x in (found, expected))
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))
