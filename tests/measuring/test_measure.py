"""measure(): what it finds is what the model does, it alters nothing, it lets go, and it stops when
told."""

import gc
import math
import threading
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from explorer import Config, ConfigError, Profile, Stopped, measure, predict
from explorer.measuring.observe import Pass
from explorer.model import Transformer, batch
from explorer.sites import BRANCHES, STREAM, VECTORS
from explorer.vocabulary import STATISTICS

SMALL = Config(n_layers=3, d_model=32, n_heads=4, n_ctx=8, batch_size=2, n_seeds=2)


def mean(profile: Profile, statistic: str, site: str) -> np.ndarray:
    """By layer, over seeds and heads."""
    values = profile[statistic, site]
    return values.mean(axis=(0, *range(2, values.ndim)))


def close(found: float, expected: float, share: float) -> bool:
    return bool(abs(found / expected - 1) < share)


def test_every_statistic_of_the_vocabulary_at_every_site() -> None:
    text = {"input": "text", "loss": "next_token"}
    profile = measure(SMALL.replace(mlp="gated", stream="hyper", attention_gate="head", **text))
    wanted = {
        (s.name, site)
        for s in STATISTICS.values()
        for site in s.sites
        if site not in {*VECTORS} - {"mix"}
    }
    assert set(profile.values) == wanted
    lacking = wanted - set(measure(SMALL).values)
    assert {site for _, site in lacking} == {"W_G", "W_gate", "mix", "logits"}, (
        "linear loss: no readout"
    )
    assert lacking == {
        (name, site) for name, site in wanted if site in {site for _, site in lacking}
    }
    for (statistic, site), value in profile.values.items():
        heads = (
            (8,)
            if STATISTICS[statistic].by_position
            else (4,)
            if site in ("attn_scores", "pattern")
            else ()
        )
        assert value.shape == (2, 1 if site == "embed" else 3, *heads), (statistic, site)
    assert profile.seeds == (0, 1)
    assert profile.seconds > 0


def test_numbers_are_those_of_the_tensors_and_their_gradients() -> None:
    """Everything once more, by autograd and the definitions, from the model itself."""
    config = SMALL.replace(n_seeds=1, norm_placement="post", residual="rezero", causal=True)
    profile = measure(config)
    model, inputs = Transformer(config, 0), batch.draw(config, 0)
    seen: dict[tuple[str, int], torch.Tensor] = {}

    def tap(site: str, layer: int, tensor: torch.Tensor) -> None:
        seen[site, layer] = tensor
        if tensor.requires_grad:
            tensor.retain_grad()

    x = model.embed(inputs).clone().requires_grad_()
    model.loss(model(x, tap), inputs).backward()
    last = seen["resid_post", 3].grad.square().mean()  # type: ignore[union-attr]
    for site in (*STREAM, *BRANCHES):
        for index, layer in enumerate([0] if site == "embed" else [1, 2, 3]):
            tensor = seen[site, layer]
            expected = float(tensor.detach().square().mean())
            assert profile["second_moment", site][0, index] == pytest.approx(expected, rel=1e-5)
            assert profile["max_abs", site][0, index] == float(tensor.detach().abs().max())
            if site in STREAM:
                feature = tensor.detach().square().mean(dim=1)
                kurtosis = (feature.square().mean(-1) / feature.mean(-1).square()).mean()
                assert profile["kurtosis", site][0, index] == pytest.approx(
                    float(kurtosis), rel=1e-5
                )
                gradient = tensor.grad.square().mean() / last  # type: ignore[union-attr]
                assert profile["activation_gradient", site][0, index] == pytest.approx(
                    float(gradient), rel=1e-5
                )
    for layer, block in enumerate(model.layers):
        owners = {
            name: block.attention if hasattr(block.attention, name) else block.mlp
            for name in config.design.shapes
        }
        owners["alpha"] = block
        for name, owner in owners.items():
            expected = float(getattr(owner, name).grad.norm())
            assert profile["parameter_gradient", name][0, layer] == pytest.approx(
                expected, rel=1e-5, abs=1e-12
            ), name


def test_outputs_and_gradients_are_bit_identical_with_and_without_the_probe() -> None:
    outputs, gradients = [], []
    for probed in (False, True):
        model, inputs = Transformer(SMALL, 0), batch.draw(SMALL, 0)
        if probed:
            Pass(SMALL, 0, (1, 0)).observe(model, inputs)
        output = model(model.embed(inputs))
        outputs.append(output)
        gradients.append(torch.autograd.grad(model.loss(output, inputs), list(model.parameters())))
    assert torch.equal(*outputs)
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))

    seen: dict[bool, torch.Tensor] = {}
    model, inputs = Transformer(SMALL, 0), batch.draw(SMALL, 0)
    seen[False] = model(model.embed(inputs))
    recorded: list[torch.Tensor] = []
    seen[True] = model(model.embed(inputs), lambda _site, _layer, tensor: recorded.append(tensor))
    assert torch.equal(seen[False], seen[True])
    assert recorded


def test_the_same_config_gives_the_same_numbers() -> None:
    one, two = measure(SMALL), measure(SMALL)
    for key, value in one.values.items():
        assert np.array_equal(value, two[key]), key


@pytest.mark.parametrize(
    ("wider", "rounding"), [({"d_model": 128}, 0.0), ({}, 1e-5)], ids=["wide", "narrow"]
)
def test_seeds_are_independent_and_follow_the_first(wider: dict[str, Any], rounding: float) -> None:
    """Bit for bit, but where narrow models share a pass: there sums are taken in another order."""
    config = SMALL.replace(**wider)
    both = measure(config)
    second = measure(config.replace(seed=1, n_seeds=1))
    for key, value in second.values.items():
        np.testing.assert_allclose(value[0], both[key][1], rtol=rounding, err_msg=str(key))
    q = both["second_moment", "resid_post"]
    assert not np.array_equal(q[0], q[1])


@pytest.mark.parametrize("kept", ["0", "1000"])
@pytest.mark.parametrize("at", [0, 3, 7, 12, 80])
def test_stopping_abandons_within_one_layer_and_leaves_nothing_behind(
    at: int, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPLORER_MAX_ACTIVATION_MB", kept)
    asked, reached = [], []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > at

    config = SMALL.replace(n_layers=50, n_seeds=1)
    with pytest.raises(Stopped):
        measure(config, stop=stop, progress=reached.append)
    assert len(asked) == at + 1  # asked no further once the answer was yes
    assert len(reached) <= at + 1


def test_seeds_side_by_side_are_all_stopped_and_torch_gets_its_threads_back() -> None:
    threads, asked = torch.get_num_threads(), []

    def stop() -> bool:
        asked.append(threading.current_thread().name)
        return len(asked) > 40

    with pytest.raises(Stopped):
        measure(SMALL.replace(n_layers=200, n_seeds=6), stop=stop)
    assert len(asked) < 40 + 1 + 6  # no pass goes on for longer than the layer it is in
    assert torch.get_num_threads() == threads
    assert not [
        thread for thread in threading.enumerate() if thread.name.startswith("explorer-seed")
    ]
    measure(SMALL)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("kept", ["0", "1000"])
def test_no_hook_and_no_tensor_survives(kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop in the middle of the backward pass leaves the model as it was, and the garbage
    collector gets it all."""
    monkeypatch.setenv("EXPLORER_MAX_ACTIVATION_MB", kept)
    config = SMALL.replace(n_layers=6)
    model, inputs = Transformer(config, 0), batch.draw(config, 0)
    reached: list[float] = []
    one = Pass(config, 0, (1, 0), lambda: bool(reached) and reached[-1] > 0.6, reached.append)
    with pytest.raises(Stopped):
        one.observe(model, inputs)
    assert all(
        not module._forward_hooks and not module._backward_hooks for module in model.modules()
    )
    assert all(
        not parameter._backward_hooks and parameter.grad is None for parameter in model.parameters()
    )
    watch = weakref.ref(model.layers[3].mlp.W_in)
    del model
    gc.collect()
    assert watch() is None

    measure(config)  # fills the store of noise, which is meant to stay
    before = sum(issubclass(type(item), torch.Tensor) for item in gc.get_objects())
    profile = measure(config)
    gc.collect()
    after = sum(issubclass(type(item), torch.Tensor) for item in gc.get_objects())
    assert after <= before
    assert profile.first_nonfinite is None


def test_progress_goes_from_nothing_to_all() -> None:
    reached: list[float] = []
    # too wide for seeds to share a pass
    measure(SMALL.replace(d_model=128), progress=reached.append)
    assert reached == sorted(reached)
    assert 0 < reached[0] < 0.1
    assert reached[-1] == 1


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"norm_placement": "post", "residual_attention": "scores"},
        {"residual_attention": "qk", "causal": True},
        {"attention": "none"},
        {"residual": "skipinit"},
        {"norm_placement": "mix", "residual": "fixup"},
        {"input": "text", "loss": "next_token", "n_layers": 5},
    ],
)
def test_activations_computed_twice_give_the_same_numbers(
    choices: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks of √N layers, of which the last is shorter, to rounding what one pass gives."""
    config = SMALL.replace(**{"n_layers": 11, **choices})
    kept = measure(config)
    monkeypatch.setenv("EXPLORER_MAX_ACTIVATION_MB", "0")
    assert config.sizes.block == int(config.n_layers**0.5)
    twice = measure(config)
    assert set(twice.values) == set(kept.values)
    for key, value in kept.values.items():
        np.testing.assert_allclose(twice[key], value, rtol=1e-6, err_msg=str(key))


def test_blocks_of_layers_change_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SMALL.replace(n_layers=20, n_seeds=1, causal=True)
    together = measure(config)
    monkeypatch.setattr("explorer.measuring.record.BLOCK_ELEMENTS", 1)
    apart = measure(config)
    for key, value in together.values.items():
        np.testing.assert_allclose(value, apart[key], rtol=1e-5, atol=1e-7, err_msg=str(key))


@pytest.mark.parametrize("chosen", [(0, 0), (4, 0), (1, 4), (1, -1)])
def test_a_pattern_that_is_not_there_is_refused(chosen: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"layer from 1 to 3 and a head from 0 to 3; got"):
        measure(SMALL, pattern_of=chosen)


def test_the_pattern_is_that_of_its_layer_and_head() -> None:
    profile = measure(SMALL.replace(n_seeds=1, batch_size=1), pattern_of=(2, 3))
    assert profile.pattern is not None
    np.testing.assert_allclose(profile.pattern.sum(-1), 1, rtol=1e-5)
    assert profile.pattern.max(-1).mean() == pytest.approx(
        profile["attention_max", "pattern"][0, 1, 3], rel=1e-5
    )


def test_an_unknown_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPLORER_DEVICE", "abacus")
    with pytest.raises(
        ValueError, match="EXPLORER_DEVICE must be one of auto, cpu, cuda; got 'abacus'"
    ):
        measure(SMALL)
    monkeypatch.setenv("EXPLORER_DEVICE", "cpu")
    assert measure(SMALL).first_nonfinite is None


# --- what a person must see -----------------------------------------------------------------------


def test_without_the_divisor_attention_is_nearly_one_hot() -> None:
    """64 logits of standard deviation 1 and 8: entropy .886 and .140 of uniform, largest weight
    .107 and .792."""
    divided, raw = (
        measure(Config(n_layers=1, attention_scale=scale)) for scale in ("sqrt_d", "none")
    )
    assert mean(divided, "attention_entropy_normalized", "pattern")[0] == pytest.approx(
        0.886, abs=0.01
    )
    assert mean(raw, "attention_entropy_normalized", "pattern")[0] == pytest.approx(0.140, abs=0.01)
    assert mean(divided, "attention_max", "pattern")[0] == pytest.approx(0.107, abs=0.01)
    assert mean(raw, "attention_max", "pattern")[0] == pytest.approx(0.792, abs=0.015)


def test_peri_adds_one_unit_a_branch() -> None:
    q = mean(measure(Config(norm_placement="peri", n_seeds=16)), "second_moment", "resid_post")
    assert close(q[-1], 25, 0.03)
    assert np.all(np.abs(q / (1 + 2 * np.arange(1, 13)) - 1) < 0.04)


def test_rezero_is_flat_to_the_last_bit_and_moves_by_alpha_alone() -> None:
    profile = measure(SMALL.replace(residual="rezero", norm_placement="none", n_layers=12))
    q, gradient = profile.stream("second_moment")[1], profile.stream("activation_gradient")[1]
    assert np.array_equal(q, np.repeat(q[:, :1], q.shape[1], axis=1))
    assert np.array_equal(gradient, np.ones_like(gradient))
    for name in SMALL.design.shapes:
        assert np.all(profile["parameter_gradient", name] == 0)
    assert np.all(profile["parameter_gradient", "alpha"] > 0)


@pytest.mark.parametrize("n_layers", [2, 8])
def test_the_gradient_by_all_weights_is_where_theory_has_it(n_layers: int) -> None:
    """Σ‖∂L/∂W‖² of an MLP stack, mean of 16 seeds within four standard errors, which are below 10
    %."""
    config = Config(
        n_layers=n_layers,
        d_model=128,
        n_heads=1,
        n_ctx=4,
        batch_size=1,
        attention="none",
        mlp_ratio=1,
        norm_placement="none",
        residual="constant",
        alpha=n_layers**-0.5,
        n_seeds=16,
    )
    found, expected = (
        sum((profile["parameter_gradient", name] ** 2).sum(axis=1) for name in ("W_in", "W_out"))
        for profile in (measure(config), predict(config))
    )
    error = found.std() / math.sqrt(len(found))
    assert error < 0.1 * found.mean()
    assert abs(found.mean() - expected[0]) < 4 * error


def test_post_norm_pins_the_signal_and_bends_the_gradient_into_a_v() -> None:
    profile = measure(Config(norm_placement="post", n_layers=24, d_model=128))
    assert np.allclose(profile.stream("second_moment")[1][:, 1:], 1, atol=1e-3)
    gradient = profile.stream("activation_gradient")[1].mean(0)
    bottom = int(gradient.argmin())
    assert 10 < bottom < 40
    assert gradient[bottom] < 0.1 * gradient[-1]
    assert gradient[bottom] < 0.5 * gradient[0]


def test_without_a_norm_the_signal_explodes_and_the_site_is_named() -> None:
    profile = measure(Config(norm_placement="none", init_variance=4.0, d_model=64))
    assert profile.first_nonfinite is None
    assert profile["second_moment", "resid_post"].mean(0)[-1] > 1e20
    beyond = measure(
        Config(norm_placement="none", init_variance=30.0, d_model=64, n_layers=40, n_seeds=1)
    )
    place = beyond.first_nonfinite
    assert place is not None
    # a product of two: it leaves the numbers before its factors do
    assert place.site == "attn_scores"
    q = beyond.stream("second_moment")[1][0]
    assert np.isfinite(q[: 2 * place.layer - 1]).all()
    assert not np.isfinite(q[-1])


def test_a_thousand_layers_with_small_branches_stay_flat() -> None:
    config = Config(
        n_layers=1000, d_model=64, n_heads=2, n_ctx=32, n_seeds=1, norm_placement="none"
    )
    profile = measure(config.replace(residual="constant", alpha=1000**-0.5))
    assert profile.first_nonfinite is None
    # 2000 branches of relative size 1/1000 each: no more than (1 + 1/1000)^2000 = e² is added
    assert 1 < profile["second_moment", "resid_post"][0, -1] < np.e**2 * 1.1
    assert 0.1 < profile["activation_gradient", "embed"][0, 0] < 30


# --- any config at all ----------------------------------------------------------------------------


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """Every choice of every field, at sizes that measure in milliseconds; some narrow or
    contradictory ones are bad."""
    sizes = {
        "n_layers": (1, 4),
        "n_heads": (1, 4),
        "n_ctx": (2, 9),
        "batch_size": (1, 3),
        "mlp_ratio": (1, 3),
        "n_seeds": (1, 2),
        "seed": (0, 5),
    }
    choices: dict[str, Any] = {name: draw(st.integers(*bounds)) for name, bounds in sizes.items()}
    choices["d_model"] = choices["n_heads"] * draw(st.integers(2, 12))
    for name, spec in Config.specs().items():
        if spec.kind == "choice":
            choices[name] = draw(st.sampled_from(spec.choices))
        elif spec.kind == "switch":
            choices[name] = draw(st.booleans())
        elif spec.kind == "number":
            choices[name] = draw(st.floats(spec.low, spec.high))
        elif spec.kind == "text":
            letters = st.characters(codec="utf-8", exclude_categories=("C", "Z"))
            choices[name] = draw(st.text(letters, min_size=2, max_size=9))
    return choices


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(configs())
def test_any_config_is_refused_in_words_or_measured_whole(choices: dict[str, Any]) -> None:
    try:
        config = Config(**choices)
    except ConfigError as refusal:
        assert "; got" in str(refusal)
        return
    profile = measure(config)
    for (statistic, site), value in profile.values.items():
        assert value.shape[:2] == (config.n_seeds, 1 if site == "embed" else config.n_layers), (
            statistic,
            site,
        )
    finite = all(np.isfinite(value).all() for value in profile.values.values())
    assert (profile.first_nonfinite is None) == finite
    if config.attention == "none":
        assert not any(site in ("attn_scores", "pattern", "attn_out") for _, site in profile.values)
        return
    entropy = profile["attention_entropy_normalized", "pattern"]
    assert np.all((entropy > -1e-4) & (entropy < 1 + 1e-4) | ~np.isfinite(entropy))
    assert Profile.from_json(profile.to_json()).first_nonfinite == profile.first_nonfinite
