"""Readings are what they say: each beside the same number worked out from the model's own
tensors."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from small_models import (
    HEADS,
    LAYERS,
    TOKENS,
    WIDTH,
    Encoder,
    adam,
    batch,
    gpt2,
    llama,
    loss_of,
    train,
)
from torch import Tensor, nn

import explorer as ex
from explorer.vocabulary import STATISTICS
from explorer_models.nodes import first_floating
from explorer_models.readings import COLUMNS, UNITS, scalars


def value(watch: ex.Watch, step: int, statistic: str, site: str) -> np.ndarray:
    """A statistic of one reading, by layer (and head)."""
    frame = watch.frame().query("step == @step and statistic == @statistic and site == @site")
    heads = frame["head"].nunique()
    values = frame["value"].to_numpy()
    return values.reshape(-1, heads) if heads else values


def test_the_stream_and_its_gradient_are_what_the_hidden_states_say() -> None:
    model = gpt2()
    watch = ex.watch(model)
    hidden: list[Tensor] = []
    keep = [
        block.register_forward_hook(
            lambda _, args, out: hidden.append(out if isinstance(out, Tensor) else out[0])
        )
        for block in model.h
    ]
    first = model.h[0].register_forward_pre_hook(lambda _, args: hidden.insert(0, args[0]))
    loss = loss_of(model, batch(0))
    gradients = torch.autograd.grad(loss, hidden, retain_graph=True)
    watch._window.gradient.clear()  # type: ignore[union-attr] - that was the test's own backward pass
    optimizer = adam(model)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    for handle in (*keep, first):
        handle.remove()
    stack = torch.stack([x.detach() for x in hidden]).double().flatten(1)
    square = stack.square().mean(1)
    expected = {
        "mean": stack.mean(1),
        "second_moment": square,
        "max_abs": stack.abs().amax(1),
        "nonfinite": 0 * square,
        "fourth_moment_ratio": stack.pow(4).mean(1) / square**2,
    }
    back = torch.stack(gradients).double().flatten(1).square().mean(1)
    expected["activation_gradient"] = back / back[-1]
    for statistic, wanted in expected.items():
        found = np.concatenate(
            [value(watch, 0, statistic, site) for site in ("embed", "resid_post")]
        )
        np.testing.assert_allclose(found, wanted.numpy(), rtol=2e-5, atol=1e-7, err_msg=statistic)


@pytest.mark.parametrize(
    "optimizer", [adam, lambda model: torch.optim.SGD(model.parameters(), lr=0.1)]
)
def test_gradients_and_updates_are_those_of_the_optimizer(
    optimizer: Callable[[nn.Module], torch.optim.Optimizer],
) -> None:
    model = gpt2()
    watch = ex.watch(model)
    steps = optimizer(model)
    loss_of(model, batch(0)).backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    steps.step()
    for site in (
        "attn.c_attn.weight",
        "attn.c_proj.weight",
        "mlp.c_fc.weight",
        "mlp.c_proj.weight",
    ):
        names = [f"h.{layer}.{site}" for layer in range(LAYERS)]
        now = [model.get_parameter(name) for name in names]
        moved = [
            (model.get_parameter(name).detach() - before[name]).norm() / before[name].norm()
            for name in names
        ]
        np.testing.assert_allclose(
            value(watch, 0, "parameter_gradient", site),
            [float(one.grad.norm()) for one in now],
            rtol=1e-6,
        )
        np.testing.assert_allclose(
            value(watch, 0, "update_ratio", site), torch.stack(moved), rtol=1e-5
        )
    frame = watch.frame().query("site == 'wte.weight' and statistic == 'parameter_gradient'")
    assert frame["layer"].isna().all()
    assert float(frame["value"].iloc[0]) == pytest.approx(
        float(model.wte.weight.grad.norm()), rel=1e-6
    )


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("build", [gpt2, llama])
def test_attention_is_what_the_written_out_pattern_says(
    build: Callable[[str], nn.Module], implementation: str
) -> None:
    model = build(implementation)
    watch = ex.watch(model)
    train(model, 1, torch.optim.SGD(model.parameters(), lr=0.0))
    reference = build("eager")
    logits: list[Tensor] = []
    softmax = nn.functional.softmax

    def seen(scores: Tensor, *args: object, **kwargs: object) -> Tensor:
        logits.append(scores.detach())
        return softmax(scores, *args, **kwargs)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.functional, "softmax", seen)
        pattern = (
            torch.stack(reference(input_ids=batch(0), output_attentions=True).attentions)
            .detach()
            .double()
        )
    entropy = torch.special.entr(pattern).sum(-1)
    keys = torch.arange(1, pattern.shape[-1] + 1)
    expected = {
        "attention_entropy": entropy.mean((1, 3)),
        "attention_entropy_normalized": (entropy[..., 1:] / keys[1:].log()).mean((1, 3)),
        "attention_max": pattern.amax(-1).mean((1, 3)),
    }
    for statistic, wanted in expected.items():
        np.testing.assert_allclose(
            value(watch, 0, statistic, "pattern"), wanted.numpy(), rtol=1e-5, err_msg=statistic
        )
    assert (expected["attention_entropy_normalized"] < 0.97).any(), (
        "attention is uniform: the test shows nothing"
    )
    np.testing.assert_allclose(
        value(watch, 0, "largest_logit", "attn_scores"),
        torch.stack(logits).amax((1, 3, 4)).numpy(),
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("build", [gpt2, llama])
def test_positions_are_those_of_the_first_pass(
    build: Callable[[str], nn.Module], implementation: str
) -> None:
    """Second moment, entropy and attention received of each token, in every layer; a second pass is
    not read."""
    model = build(implementation)
    watch = ex.watch(model, positions=True)
    train(model, 1, torch.optim.SGD(model.parameters(), lr=0.0), parts=2)
    watch.remove()
    first, streams = batch(0).chunk(2)[0], list[Tensor]()
    for name in watch.layers:
        model.get_submodule(name).register_forward_hook(
            lambda *given: streams.append(first_floating(given[-1]))
        )
    with torch.no_grad():
        model(input_ids=first)
        pattern = torch.stack(
            build("eager")(input_ids=first, output_attentions=True).attentions
        ).double()
    expected = {
        ("second_moment_by_position", "resid_post"): torch.stack(streams).square().mean((1, 3)),
        ("attention_received", "pattern"): pattern.mean((1, 2, 3)),
        ("attention_entropy_by_position", "pattern"): torch.special.entr(pattern)
        .sum(-1)
        .mean((1, 2)),
    }
    profile, frame = watch.profile(), watch.frame()
    for key, wanted in expected.items():
        assert (wanted.std(-1) > 0.01 * wanted.mean(-1)).all(), (
            "tokens are alike: the test shows nothing"
        )
        np.testing.assert_allclose(profile[key][0], wanted, rtol=1e-5, atol=1e-6, err_msg=str(key))
    assert set(frame[frame.position.notna()].statistic) == {name for name, _ in expected}
    assert profile.plot("attention_received", layer=1).data
    assert not {tag.split("/")[0] for tag in scalars(frame)} & {name for name, _ in expected}


def test_tokens_may_be_the_streams_first_axis() -> None:
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, 0.0), 2, enable_nested_tensor=False
    )
    watch, seen = ex.watch(model, positions=True), list[Tensor]()
    hooks = [
        layer.register_forward_hook(lambda *given: seen.append(given[-1].detach()))
        for layer in model.layers
    ]
    model(
        torch.randn(5, 3, 8, generator=torch.Generator().manual_seed(0))
    ).square().sum().backward()
    adam(model).step()
    [hook.remove() for hook in hooks]
    np.testing.assert_allclose(
        watch.profile()["second_moment_by_position"][0],
        torch.stack(seen).square().mean((2, 3)),
        rtol=1e-5,
    )


def test_as_many_sequences_as_tokens_do_not_say_which_is_which() -> None:
    """And nothing by position is read where it is not asked for."""
    found = []
    for positions in (True, False):
        model = gpt2()
        watch = ex.watch(model, positions=positions)
        loss_of(model, batch(0, TOKENS)).backward()  # type: ignore[no-untyped-call]
        adam(model).step()
        found.append(
            {
                statistic
                for statistic, _ in watch.profile()
                if STATISTICS.get(statistic) and STATISTICS[statistic].by_position
            }
        )
    assert found == [{"attention_received", "attention_entropy_by_position"}, set()]


def test_accumulated_gradients_are_one_reading() -> None:
    """The same batch at once and in four parts: the same sums, merged."""
    frames = []
    for parts in (1, 4):
        model = gpt2()
        with ex.watch(model, every=2) as watch:
            train(model, 3, torch.optim.SGD(model.parameters(), lr=0.01), parts)
        frames.append(watch.frame())
    whole, merged = frames
    assert list(whole["step"].unique()) == list(merged["step"].unique()) == [0, 2]
    keys = [name for name in COLUMNS if name != "value"]
    assert whole[keys].equals(merged[keys])
    np.testing.assert_allclose(merged["value"], whole["value"], rtol=1e-4, atol=1e-6)


class Columns(nn.Module):
    """Multiplies by x W, as Conv1D of Hugging Face Transformers, under a name of its own."""

    def __init__(self, size_in: int, size_out: int) -> None:
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.randn(size_in, size_out)),
            nn.Parameter(torch.zeros(size_out)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


def encoder_of_columns() -> nn.Module:
    """An encoder whose MLPs have the outputs of their matrices in columns."""
    model = Encoder()
    for layer in model.encoder.layers:
        layer.linear1, layer.linear2 = Columns(WIDTH, 4 * WIDTH), Columns(4 * WIDTH, WIDTH)
    return model


@pytest.mark.parametrize(
    ("make", "turned"), [(gpt2, ""), (Encoder, "none"), (encoder_of_columns, "linear")]
)
def test_singular_values_of_updates_are_those_of_the_change(
    make: Callable[[], nn.Module], turned: str
) -> None:
    """By columns and rows as the matrix multiplies: those of Conv1D are its inputs and outputs the
    other way round.

    `turned` is in the name of each such matrix.
    """
    model = make()
    watch = ex.watch(model, spectra=True)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    train(model, 1)
    layers, sites = (
        watch.layers,
        [site for name, site in watch.readings[0].values if name == "update_stable_rank"],
    )
    assert len(sites) == 4
    for site in sites:
        for layer, block in enumerate(layers):
            name = f"{block}.{site}"
            values = torch.linalg.svdvals(
                (model.get_parameter(name).detach() - before[name]).double()
            )
            fan_out, fan_in = before[name].shape[::-1] if turned in name else before[name].shape
            assert value(watch, 0, "update_spectral_norm", site)[layer] == pytest.approx(
                float(values[0]) * math.sqrt(fan_in / fan_out), rel=1e-5
            )
            assert value(watch, 0, "update_stable_rank", site)[layer] == pytest.approx(
                float(values.square().sum() / values[0] ** 2), rel=1e-5
            )


def test_spectra_are_read_on_request_alone_and_alter_nothing() -> None:
    trained = []
    for spectra in (False, True):
        model = gpt2(dropout=0.1)
        watch = ex.watch(model, spectra=spectra)
        torch.manual_seed(3)
        train(model, 3)
        trained.append((model.state_dict(), watch.frame()))
    (weights, plain), (others, wide) = trained
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    added = wide["statistic"].isin(["update_spectral_norm", "update_stable_rank"])
    assert wide[~added].reset_index(drop=True).equals(plain)
    with pytest.raises(TypeError, match="spectra must be a bool"):
        ex.watch(gpt2(), spectra=2)  # type: ignore[arg-type]


def test_the_radial_part_of_an_update_is_its_cosine_with_the_matrix() -> None:
    model = gpt2()
    watch = ex.watch(model)
    site = "attn.c_attn.weight"
    names = [f"h.{layer}.{site}" for layer in range(LAYERS)]
    before = [model.get_parameter(name).detach().double() for name in names]
    train(model, 1, torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=3.0))
    changes = [
        model.get_parameter(name).detach() - old for name, old in zip(names, before, strict=True)
    ]
    expected = [
        float((change * old).sum() / change.norm() / old.norm())
        for change, old in zip(changes, before, strict=True)
    ]
    assert max(expected) < -0.25, "so much decay shrinks them"
    np.testing.assert_allclose(value(watch, 0, "update_cosine", site), expected, rtol=1e-4)


def test_the_table_is_tidy_and_its_words_are_defined() -> None:
    model = llama()
    watch = ex.watch(model, every=2, start=10, spectra=True, positions=True)
    train(model, 4, torch.optim.AdamW(model.parameters(), lr=1e-3))
    frame = watch.frame()
    assert list(frame.columns) == COLUMNS
    assert not frame.duplicated([name for name in COLUMNS if name != "value"]).any()
    assert set(frame["statistic"]) == UNITS.keys()
    assert list(frame["step"].unique()) == [10, 12]
    assert frame["value"].notna().all()


def test_a_profile_of_a_reading() -> None:
    model = gpt2()
    watch = ex.watch(model, every=2)
    train(model, 3)
    profile = watch.profile()
    assert profile.origin == "measured"
    assert profile.config is None
    assert (profile.model, profile.layers, profile.dtype) == (
        "GPT2Model",
        ("h.0", "h.1", "h.2"),
        "float32",
    )
    assert profile["second_moment", "resid_post"].shape == (1, LAYERS)
    assert profile["attention_entropy", "pattern"].shape == (1, LAYERS, HEADS)
    np.testing.assert_array_equal(
        profile["second_moment", "resid_post"][0], value(watch, 2, "second_moment", "resid_post")
    )
    np.testing.assert_array_equal(
        watch.profile(0)["second_moment", "embed"][0], value(watch, 0, "second_moment", "embed")
    )
    with pytest.raises(ValueError, match="step must be one that was read: 0, 2; got 1"):
        watch.profile(1)
