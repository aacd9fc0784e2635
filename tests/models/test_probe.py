"""probe(): what it leaves as it was, what it takes, what it refuses and how."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from explorer import Profile, probe

WIDTH, LAYERS = 8, 3


class Block(nn.Module):
    """Attention and an MLP, pre-norm; options change how it is computed, not what."""

    def __init__(self, in_place: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.norm_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
        self.dropout, self.in_place = nn.Dropout(dropout), in_place

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.in_place:
            y = self.dropout(self.attend(x))
            y += x
            z = self.dropout(self.down(F.gelu(self.up(self.norm_mlp(y)))))
            z += y
            return z
        x = x + self.dropout(self.attend(x))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm_mlp(x)))))


class Model(nn.Module):
    """Embedding, blocks, readout, and a buffer that counts."""

    def __init__(self, reentrant: bool | None = None, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(11, WIDTH), nn.Linear(WIDTH, 11)
        self.blocks = nn.ModuleList(Block(**options) for _ in range(LAYERS))
        self.register_buffer("calls", torch.zeros(()))
        self.reentrant = reentrant

    def forward(self, ids: Tensor, shift: Tensor | None = None) -> Tensor:
        self.calls += 1
        x = self.embed(ids) if shift is None else self.embed(ids) + shift
        for block in self.blocks:
            x = (
                block(x)
                if self.reentrant is None
                else checkpoint(block, x, use_reentrant=self.reentrant)
            )
        return self.head(x)


IDS = torch.randint(0, 11, (2, 5), generator=torch.Generator().manual_seed(0))


def same(first: Profile, second: Profile, rtol: float = 1e-6) -> None:
    assert list(first) == list(second)
    for key in first:
        np.testing.assert_allclose(second[key], first[key], rtol=rtol, atol=1e-7, err_msg=str(key))


def state(model: nn.Module) -> dict[str, Any]:
    """Everything that a probe might change."""
    return {
        **{name: one.clone() for name, one in model.state_dict().items()},
        "grad": [None if one.grad is None else one.grad.clone() for one in model.parameters()],
        "wish": [one.requires_grad for one in model.parameters()],
        "mode": [one.training for one in model.modules()],
        "hooks": [
            (len(one._forward_hooks), len(one._forward_pre_hooks), len(one._backward_hooks))
            for one in model.modules()
        ],
        "tensor hooks": [len(one._backward_hooks or ()) for one in model.parameters()],
        "random": (
            torch.random.get_rng_state(),
            random.getstate(),
            np.random.get_state()[1].tolist(),  # noqa: NPY002
        ),
        "torch": (
            torch.is_grad_enabled(),
            torch.backends.mha.get_fastpath_enabled(),
            torch.is_autocast_cache_enabled(),
            torch.utils.checkpoint.CheckpointFunction.apply,
            torch.utils.checkpoint._checkpoint_without_reentrant_generator,
        ),
    }


def equal(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor):
        return torch.equal(first, second)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(equal, first, second))
    return bool(first == second)


@pytest.mark.parametrize("fails", [False, True])
def test_a_probe_leaves_no_trace(fails: bool) -> None:
    """Dropout, a buffer that changes, a frozen parameter, gradients of an earlier step, a hook of
    the model's own."""
    model = Model(dropout=0.3).train()
    model(IDS).sum().backward()
    model.blocks[1].qkv.weight.requires_grad_(False)
    seen: list[int] = []
    model.blocks[0].register_forward_hook(lambda *_: seen.append(1))
    before, buffer = state(model), model.calls

    def loss(out: Tensor) -> Tensor:
        if fails:
            raise RuntimeError("this loss fails")
        return out.square().mean()

    if fails:
        with pytest.raises(RuntimeError, match="this loss fails"):
            probe(model, IDS, loss)
    else:
        assert ("parameter_gradient", "W_Q") in probe(model, IDS, loss)
    assert model.calls is buffer
    assert seen == [1]
    after = state(model)
    for name, value in before.items():
        assert equal(value, after[name]), name


def test_the_pass_is_the_models_own() -> None:
    """The loss of the probe's pass is that of a plain pass, bit by bit."""
    model, losses = Model(), []

    def loss(out: Tensor) -> Tensor:
        losses.append(float(out.detach().square().mean()))
        return out.square().mean()

    probe(model, IDS, loss)
    assert losses == [float(model(IDS).detach().square().mean())]


@pytest.mark.parametrize(
    "options", [{"in_place": True}, {"reentrant": True}, {"reentrant": False}], ids=str
)
def test_how_it_is_computed_does_not_matter(options: dict[str, Any]) -> None:
    """Sums in place, and checkpoints of both kinds: the same numbers at every site, nothing counted
    twice."""
    same(probe(Model(), IDS), probe(Model(**options), IDS))


def test_wrapped_models_are_unwrapped() -> None:
    model = Model()
    same(probe(model, IDS), probe(torch.nn.DataParallel(model), IDS))


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("within", [False, True])
def test_compiled_models_run_as_written(within: bool) -> None:
    plain, model = probe(Model(), IDS), Model()
    if within:
        model.blocks = nn.ModuleList(torch.compile(block) for block in model.blocks)  # type: ignore[misc]
    same(plain, probe(model if within else torch.compile(model), IDS))  # type: ignore[arg-type]


def test_frozen_parameters_take_part() -> None:
    same(probe(Model(), IDS), probe(Model().requires_grad_(False), IDS))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types(dtype: torch.dtype) -> None:
    """Within their rounding, of which gradients gather some."""
    exact, rounded = probe(Model(), IDS), probe(Model().to(dtype), IDS)
    assert rounded.dtype == str(dtype).removeprefix("torch.")
    same(
        exact, rounded, rtol={torch.float16: 0.02, torch.bfloat16: 0.15, torch.float64: 1e-4}[dtype]
    )


def test_autocast_finds_matrices_that_layers_share() -> None:
    """Casts of shared weights are made anew in each layer."""
    model = Model()
    model.blocks = nn.ModuleList([model.blocks[0]] * 3)

    def run(whole: nn.Module) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return whole(IDS)

    exact, rounded = probe(model, IDS), probe(model, run)
    assert len(exact.layers) == len(rounded.layers) == 3
    same(exact, rounded, rtol=0.15)


def test_batches_of_every_kind() -> None:
    plain = probe(Model(), IDS)
    shift = torch.zeros(2, 5, WIDTH)
    for batch in (
        (IDS,),
        [IDS, shift],
        {"ids": IDS},
        {"ids": IDS, "shift": shift},
        lambda model: model(IDS),
    ):
        same(plain, probe(Model(), batch))


def test_the_default_loss_is_a_direction_of_unit_norm() -> None:
    model = Model()
    direction = torch.randn(2, 5, 11, generator=torch.Generator().manual_seed(0)) / np.sqrt(110)
    same(probe(model, IDS), probe(model, IDS, lambda out: (out * direction).sum()), rtol=1e-4)


def test_gradients_are_autograds() -> None:
    model = Model()
    profile = probe(model, IDS, lambda out: out.square().mean())
    model(IDS).square().mean().backward()
    for layer, block in enumerate(model.blocks):
        for name, exact in {
            "W_Q": block.qkv.weight.grad[:WIDTH],
            "W_V": block.qkv.weight.grad[2 * WIDTH :],
            "W_O": block.proj.weight.grad,
            "W_in": block.up.weight.grad,
            "W_out": block.down.weight.grad,
        }.items():
            assert profile["parameter_gradient", name][0, layer] == pytest.approx(
                float(exact.norm()), rel=1e-5
            )


def test_sites_that_a_person_names() -> None:
    found = probe(Model(), IDS)
    named = probe(
        Model(),
        IDS,
        blocks={
            "embed": "embed",
            "attn_out": "blocks.*.proj",
            "mlp_out": "blocks.*.down",
            "resid_post": "blocks.*",
        },
    )
    assert named.layers == found.layers
    for key in named:
        np.testing.assert_allclose(named[key], found[key], rtol=1e-6, err_msg=str(key))
    assert {
        ("second_moment", "attn_out"),
        ("max_abs", "mlp_out"),
        ("activation_gradient", "embed"),
    } <= set(named)


def test_blocks_by_name() -> None:
    profile = probe(Model(), IDS, blocks="blocks.*")
    assert profile.layers == ("blocks.0", "blocks.1", "blocks.2")
    assert probe(Model(), IDS, blocks=["blocks.0", "blocks.2"]).layers == ("blocks.0", "blocks.2")
    assert probe(Model(), IDS, blocks="blocks.1").layers == ("blocks.1",)


class Integers(Model):
    def forward(self, ids: Tensor, shift: Tensor | None = None) -> Tensor:
        return super().forward(ids, shift).argmax(-1)


class NoGrad(Model):
    def forward(self, ids: Tensor, shift: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            return super().forward(ids, shift)


class Unused(Model):
    def forward(self, ids: Tensor, shift: Tensor | None = None) -> Tensor:
        return self.head(self.embed(ids) if shift is None else shift)


REFUSED: list[tuple[Any, Any, dict[str, Any], str]] = [
    (
        lambda: nn.Linear(4, 4),
        torch.ones(2, 4),
        {},
        "blocks must be named, for Linear has no repeated modules",
    ),
    (
        lambda: nn.LSTM(4, 4, num_layers=2),
        torch.ones(2, 3, 4),
        {},
        "blocks must be named, for LSTM has no repeated",
    ),
    (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)),
        torch.ones(2, 4),
        {},
        "blocks must be named, for Sequential has no repeated",
    ),
    (Model, IDS[:, :0], {}, r"batch must hold at least one token; got \[\(2, 0\)\]"),
    (Model, {}, {}, "batch must hold at least one token; got no tensor"),
    (Model, lambda model: model(IDS[:0]), {}, r"blocks.0 got one of shape \(0, 5, 8\)"),
    (Model, "text", {}, "batch must be a tensor, a tuple or a mapping .* got 'text' of type str"),
    (Integers, IDS, {}, r"loss must be given, .* it has int64 \(2, 5\)"),
    (
        Model,
        IDS,
        {"loss": lambda out: out},
        r"loss must give one number; got a tensor of shape \(2, 5, 11\)",
    ),
    (Model, IDS, {"loss": lambda out: 1.0}, r"loss must give one number; got 1.0"),
    (
        Model,
        IDS,
        {"loss": lambda out: out.sum().detach()},
        "loss must depend on the model's parameters",
    ),
    (
        Model,
        IDS,
        {"loss": "sum"},
        "loss must be a function of the model's output; got 'sum' of type str",
    ),
    (
        Model,
        IDS,
        {"blocks": "layers.*"},
        r"blocks must name modules of the model, such as embed, .* got 'layers.\*'",
    ),
    (
        Model,
        IDS,
        {"blocks": 3},
        "blocks must be a name, several, or a mapping .* got 3 of type int",
    ),
    (
        Model,
        IDS,
        {"blocks": {"resid": "blocks.*"}},
        "blocks must name sites of embed, .* got 'resid'",
    ),
    (
        Model,
        IDS,
        {"blocks": {"mlp_out": "blocks.*"}},
        "blocks must name the modules of resid_post; got mlp_out",
    ),
    (
        Model,
        IDS,
        {"blocks": {"resid_post": "blocks.*", "mlp_out": "blocks.0"}},
        "one module a layer; got 1 of mlp_out",
    ),
    (
        NoGrad,
        IDS,
        {},
        r"model must run with gradients; its block blocks.0 runs under torch.no_grad",
    ),
    (Unused, IDS, {}, "blocks must be run by the model; none of those found was"),
    (
        Unused,
        IDS,
        {"blocks": {"resid_post": "blocks.*"}},
        "blocks must be run by the model; blocks.0 was not",
    ),
    (
        lambda: Model().to("meta"),
        IDS,
        {},
        r"model must have numbers; its parameter embed.weight is on the meta device",
    ),
    (
        lambda: nn.Sequential(nn.LazyLinear(4), nn.LazyLinear(4)),
        torch.ones(2, 4),
        {},
        "model must have numbers; its parameter 0.weight has no shape yet: run it once",
    ),
    (
        lambda: torch.jit.script(nn.Sequential(nn.Linear(4, 4))),
        torch.ones(2, 4),
        {},
        "model must be Python code; it is TorchScript",
    ),
    (lambda: print, IDS, {}, "model must be a Module"),
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
@pytest.mark.parametrize(
    ("make", "batch", "options", "words"), REFUSED, ids=[row[-1][:40] for row in REFUSED]
)
def test_bad_input_gets_a_sentence(
    make: Any, batch: Any, options: dict[str, Any], words: str
) -> None:
    model = make()
    before = state(model) if type(model) in (NoGrad, Unused) else {}
    with pytest.raises((TypeError, ValueError), match=words) as caught:
        probe(model, batch, **options)
    assert "\n" not in str(caught.value)
    assert all(equal(value, state(model)[name]) for name, value in before.items())


class Experts(nn.Module):
    """A block whose MLP is a sum of experts, made in a given order and called in the order of their
    names."""

    def __init__(self, order: list[int]) -> None:
        super().__init__()
        parts = {}
        for number in order:
            torch.manual_seed(number)
            parts[number] = nn.Sequential(nn.Linear(WIDTH, 16), nn.GELU(), nn.Linear(16, WIDTH))
        self.norm, self.experts = (
            nn.LayerNorm(WIDTH),
            nn.ModuleList(parts[number] for number in sorted(parts)),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + torch.stack([expert(y) for expert in self.experts]).sum(0)


def test_where_experts_lie_in_memory_changes_no_number() -> None:
    x = torch.randn(2, 6, WIDTH, generator=torch.Generator().manual_seed(0))
    orders = [[*range(8)], [5, 2, 7, 0, 3, 6, 1, 4]]
    first, second = (probe(nn.Sequential(Experts(order), Experts(order)), x) for order in orders)
    assert first.values.keys() == second.values.keys()
    for key, values in first.values.items():
        np.testing.assert_array_equal(second.values[key], values, err_msg=str(key))
