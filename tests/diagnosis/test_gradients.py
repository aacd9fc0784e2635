"""Gradients that are exactly zero, and tokens that are: what is told of them, in real code with
random weights."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import explorer as ex
from explorer import diagnose
from explorer.diagnosis import Findings

WIDTH, TOKENS, WORDS, LAYERS = 32, 12, 20, 6


class Block(nn.Module):
    """One layer; `cut` names what the gradient does not pass."""

    def __init__(self, post: bool = False, scale: float | None = None) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.scale = None if scale is None else nn.Parameter(torch.full((WIDTH,), scale))
        self.post, self.cut = post, ""

    def stop(self, x: Tensor, name: str) -> Tensor:
        return x.detach() if self.cut == name else x

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = (
            part(x).unflatten(-1, (4, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        scores = self.stop(q @ k.transpose(-2, -1) / 8**0.5, "scores")
        return self.out(self.stop((scores.softmax(-1) @ v).transpose(1, 2).flatten(2), "heads"))  # type: ignore[no-any-return]

    def mlp(self, x: Tensor) -> Tensor:
        return self.narrow(self.stop(F.gelu(self.wide(x)), "hidden"))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        for branch, norm, name in (
            (self.attend, self.norm_1, "attention"),
            (self.mlp, self.norm_2, "mlp"),
        ):
            added = self.stop(branch(x if self.post else norm(x)), name)
            x = x + (added if self.scale is None else self.scale * added)
            x = norm(x) if self.post else x
        return x


class Model(nn.Module):
    def __init__(self, **choices: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block(**choices) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embedding(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x)  # type: ignore[no-any-return]


WORDS_READ = torch.randint(WORDS, (2, TOKENS), generator=torch.Generator().manual_seed(0))


def loss(out: Tensor) -> Tensor:
    return F.cross_entropy(out.flatten(0, 1), WORDS_READ.flatten())


def told(model: nn.Module, measure: Callable[[Any], Tensor] | None = loss) -> Findings:
    return diagnose(ex.probe(model, WORDS_READ, measure))


CUTS = [
    ("mlp", "W_in and W_out of"),
    ("attention", "W_Q, W_K, W_V and W_O of"),
    ("hidden", "W_in of"),
    ("scores", "W_Q and W_K of"),
    ("heads", "W_Q, W_K and W_V of"),
]


ENDS = [(*CUTS[0], 0, True), (*CUTS[0], LAYERS - 1, True)]


@pytest.mark.parametrize(
    ("cut", "names", "layer", "post"),
    [*((*cut, 3, bool(number % 2)) for number, cut in enumerate(CUTS)), *ENDS],
)
def test_matrices_that_no_gradient_reaches_are_named(
    cut: str, names: str, layer: int, post: bool
) -> None:
    model = Model(post=post)
    model.blocks[layer].cut = cut
    first = told(model)[0]
    assert first.severity == "bad"
    assert first.meaning.startswith(f"{names} layer {layer + 1} (blocks.{layer}) do"), first
    assert "exactly 0" in first.evidence
    assert "detach()" in first.code


@pytest.mark.parametrize(("cut", "names"), CUTS)
def test_they_are_named_where_all_layers_lack_them(cut: str, names: str) -> None:
    model = Model()
    for block in model.blocks:
        block.cut = cut
    first = told(model)[0]
    assert first.meaning.startswith(f"{names} layer 1 (blocks.0) do"), first
    assert f"layer {LAYERS} (blocks.{LAYERS - 1})" in first.evidence


def test_units_that_are_all_dead_do_not_learn() -> None:
    model = Model()
    model.blocks[2].wide.bias.data.fill_(-1e4)  # gelu is exactly 0 there, and so is its slope
    assert [
        one.meaning for one in told(model) if "layer 3" in one.meaning
    ] == [  # the cause says all
        "Every hidden unit of the MLP of layer 3 (blocks.2) is 0."
    ]


@pytest.mark.parametrize("choices", [{}, {"post": True}, {"scale": 0.0}, {"scale": 1e-6}], ids=str)
def test_nobody_is_blamed_where_weights_wait_for_a_factor(choices: dict[str, Any]) -> None:
    assert not any(
        "not learn" in one.meaning for one in told(Model(**choices)) if "Nothing" not in one.meaning
    )
    model = Model(**choices)
    for block in model.blocks:
        nn.init.zeros_(block.narrow.weight)
        nn.init.zeros_(block.narrow.bias)
    assert not any("not learn" in one.meaning for one in told(model))


@pytest.mark.parametrize("measured", [loss, None])
@pytest.mark.parametrize("tied_bias", [False, True])
def test_a_readout_of_zeros_moves_first_and_then_all_learn(measured: Any, tied_bias: bool) -> None:
    model = Model()
    nn.init.zeros_(model.head.weight)
    if tied_bias:
        nn.init.zeros_(model.head.bias)
    profile = ex.probe(model, WORDS_READ, measured)
    assert ("activation_gradient", "embed") not in profile
    (only,) = diagnose(profile)
    assert (only.severity, only.meaning, only.remedy) == (
        "good",
        "The first step moves head.weight alone.",
        "",
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    loss(model(WORDS_READ)).backward()  # type: ignore[no-untyped-call]
    before = [parameter.clone() for parameter in model.blocks.parameters()]
    optimizer.step()
    assert all(
        torch.equal(old, new) for old, new in zip(before, model.blocks.parameters(), strict=True)
    )
    (only,) = told(model)
    healthy = r"Healthy: signal grows [\d.]+ ×, gradient grows [\d.]+ ×\."
    assert re.fullmatch(healthy, only.meaning)


def test_a_stack_that_the_loss_does_not_reach_learns_nothing() -> None:
    """A zero readout explains a zero gradient; a bias that moves does not."""
    model = Model()
    nn.init.zeros_(model.head.bias)
    first = told(model, lambda out: (0 * out + model.head.bias).square().sum() + (0 * out).sum())[0]
    assert (first.severity, first.meaning) == ("bad", "Nothing learns.")
    assert "detach()" in first.code, "the branches are not zero"


@pytest.mark.parametrize("name", ["DeiTModel", "BeitModel", "ViTMAEForPreTraining"])
def test_a_class_token_of_zeros_is_told_and_is_no_disease_of_the_stack(name: str) -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra `models`")
    kind = name.removesuffix("Model").removesuffix("ForPreTraining")
    config = getattr(transformers, f"{kind}Config")(
        hidden_size=64,
        num_hidden_layers=6,
        num_attention_heads=4,
        intermediate_size=256,
        image_size=32,
        patch_size=8,
    )
    torch.manual_seed(0)
    model = getattr(transformers, name)(config).eval()
    image = {"pixel_values": torch.randn(2, 3, 32, 32)}
    found = diagnose(ex.probe(model, image))
    assert all(one.severity != "bad" for one in found)
    (zero,) = (one for one in found if "almost 0 at the input" in one.meaning)
    assert zero.severity == "warning"
    for part, parameter in model.named_parameters():
        if part.endswith(("cls_token", "distillation_token", "mask_token")):
            nn.init.trunc_normal_(parameter, std=0.02)
    assert not any("almost 0" in one.meaning for one in diagnose(ex.probe(model, image))), (
        "the remedy fixes it"
    )


def test_an_image_model_with_a_zero_readout_too() -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra `models`")
    config = transformers.ViTConfig(
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=128,
        image_size=32,
        patch_size=8,
        num_labels=5,
    )
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(config).eval()
    nn.init.zeros_(model.classifier.weight)
    batch = {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([0, 3])}
    assert (
        diagnose(ex.probe(model, batch))[0].meaning
        == "The first step moves classifier.weight alone."
    )
