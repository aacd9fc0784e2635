"""probe() of odd models: numbers that hooks written by hand confirm, or one clear sentence."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import odd_models as odd
import pytest
import torch
from odd_models import D
from torch import Tensor, nn

from explorer import Profile, probe, twin
from explorer_models.model import Block, loss_of
from explorer_models.stack import Stack

X = torch.randn(2, 5, D, generator=torch.Generator().manual_seed(3))
SEQUENCES = torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(4))
IMAGES = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(5))


class Case(NamedTuple):
    make: Callable[[], nn.Module]
    batch: Any
    layers: tuple[str, ...]
    """Names of the blocks that run, in turn."""
    sites: str
    """What is read of them, besides embed and resid_post."""


def numbered(name: str, count: int) -> tuple[str, ...]:
    return tuple(f"{name}{index}" for index in range(count))


BOTH, ONE = "attn_out resid_mid mlp_out", "mlp_out"
CASES: dict[str, Case] = {
    "experts": Case(
        lambda: nn.Sequential(*(odd.PreNorm(second=odd.Experts()) for _ in range(2))),
        X,
        numbered("", 2),
        BOTH,
    ),
    "one block four times": Case(odd.Shared, SEQUENCES, ("block",) * 4, BOTH),
    "one block in a list": Case(lambda: nn.Sequential(*[odd.PreNorm()] * 3), X, ("0",) * 3, BOTH),
    "convolutional stem": Case(odd.Vision, IMAGES, numbered("blocks.", 2), BOTH),
    "tied embeddings": Case(
        odd.Tied, torch.tensor([[1, 2, 3], [4, 5, 6]]), numbered("blocks.", 2), BOTH
    ),
    "sequential of sequentials": Case(
        lambda: nn.Sequential(
            nn.Linear(5, D),
            nn.Sequential(nn.Sequential(odd.PreNorm()), nn.Sequential(odd.PreNorm())),
            nn.Linear(D, 3),
        ),
        SEQUENCES,
        ("1.0", "1.1"),
        BOTH,
    ),
    "recurrent": Case(odd.Recurrent, X, numbered("layers.", 3), ONE),
    "state space": Case(lambda: nn.Sequential(odd.Scan(), odd.Scan()), X, numbered("", 2), ONE),
    "long skips": Case(odd.Skips, X, numbered("down.", 3), BOTH),
    "parallel": Case(
        lambda: nn.Sequential(odd.Parallel(), odd.Parallel()), X, numbered("", 2), BOTH
    ),
    "sandwich, in place": Case(
        lambda: nn.Sequential(odd.Sandwich(), odd.Sandwich()), X, numbered("", 2), BOTH
    ),
    "residual network": Case(
        lambda: nn.Sequential(nn.Conv2d(3, D, 3), odd.Residual(), odd.Residual()),
        IMAGES,
        ("1", "2"),
        ONE,
    ),
    "hybrid": Case(odd.Hybrid, X, numbered("layers.", 3), BOTH),
    "pyramid": Case(odd.Pyramid, X, numbered("layers.", 3), ONE),
    "torch's encoder": Case(
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(D, 3, 24, batch_first=True), 3, enable_nested_tensor=False
        ),
        X,
        numbered("layers.", 3),
        BOTH,
    ),
    "stochastic depth": Case(odd.Dropped, X, (), ONE),
}


def by_hand(
    model: nn.Module, batch: Any, blocks: Sequence[str]
) -> tuple[list[str], list[Tensor], list[Tensor]]:
    """Names of the blocks in the order of their calls; the first's input and each output; gradients
    by the outputs."""
    called: list[str] = []
    stream: list[Tensor] = []

    def hook(name: str) -> Any:
        def read(_: object, given: tuple[Tensor, ...], out: Any) -> None:
            stream.extend([] if stream else [given[0]])
            called.append(name)
            stream.append(out[0] if isinstance(out, tuple) else out)

        return read

    hooks = [
        model.get_submodule(name).register_forward_hook(hook(name))
        for name in dict.fromkeys(blocks)
    ]
    gradients = torch.autograd.grad(loss_of(model(batch), None)[0], stream[1:])
    for one in hooks:
        one.remove()
    return called, [one.detach() for one in stream], list(gradients)


def seeded() -> None:
    torch.manual_seed(7)
    random.seed(7)


@pytest.mark.parametrize("name", CASES)
def test_the_stream_is_what_plain_hooks_see(name: str) -> None:
    case = CASES[name]
    seeded()
    model = case.make()
    seeded()
    profile = probe(model, case.batch)
    seeded()
    called, stream, gradients = by_hand(model, case.batch, case.layers or numbered("layers.", 6))
    assert list(profile.layers) == called == list(case.layers or called)
    second = [float(one.square().mean()) for one in stream]
    assert profile["second_moment", "embed"][0, 0] == pytest.approx(second[0], rel=1e-5)
    np.testing.assert_allclose(profile["second_moment", "resid_post"][0], second[1:], rtol=1e-5)
    np.testing.assert_allclose(
        profile["max_abs", "resid_post"][0],
        [float(one.abs().max()) for one in stream[1:]],
        rtol=1e-6,
    )
    sizes = np.array([float(one.square().mean()) for one in gradients])
    np.testing.assert_allclose(
        profile["activation_gradient", "resid_post"][0], sizes / sizes[-1], rtol=1e-4
    )
    sites = {site for statistic, site in profile if statistic == "second_moment"}
    assert sites == {"embed", "resid_post", *case.sites.split()}
    assert profile.first_nonfinite is None


def read(name: str) -> tuple[nn.Module, Profile]:
    seeded()
    model = CASES[name].make()
    return model, probe(model, CASES[name].batch)


def branch(model: nn.Module, path: str, batch: Any) -> float:
    """Mean square of what a module puts out."""
    found: list[Tensor] = []
    hook = model.get_submodule(path).register_forward_hook(
        lambda _, __, out: found.append(out.detach())
    )
    model(batch)
    hook.remove()
    return float(found[0].square().mean())


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("parallel", {"attn_out": "0.attention", "mlp_out": "0.mlp"}),
        ("sandwich, in place", {"attn_out": "0.norms.1", "mlp_out": "0.norms.3"}),
        ("sequential of sequentials", {"attn_out": "1.0.0.first", "mlp_out": "1.0.0.second"}),
        ("experts", {"attn_out": "0.first", "mlp_out": "0.second"}),
    ],
)
def test_branches_are_their_modules_outputs(name: str, paths: dict[str, str]) -> None:
    model, profile = read(name)
    for site, path in paths.items():
        expected = branch(model, path, CASES[name].batch)
        assert profile["second_moment", site][0, 0] == pytest.approx(expected, rel=1e-5), site


def test_experts_that_nothing_reaches_are_left_out() -> None:
    model, profile = read("experts")
    model(X)
    used = [
        expert
        for expert in model[0].second.experts  # type: ignore[union-attr,index]
        if branch_ran(model, expert)
    ]
    exact = np.mean([float(expert[0].weight.detach().square().mean()) * D for expert in used])
    assert 1 <= len(used) <= 3
    assert profile["weight_variance", "W_in"][0, 0] == pytest.approx(exact, rel=1e-5)


def branch_ran(model: nn.Module, module: nn.Module) -> bool:
    ran: list[int] = []
    hook = module.register_forward_hook(lambda *_: ran.append(1))
    model(X)
    hook.remove()
    return bool(ran)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_encoder_and_decoder_of_torch() -> None:
    """Tokens come first there; the decoder's own attention is read, and the encoder's profile lies
    beside."""
    seeded()
    model = nn.Transformer(D, 3, 2, 2, 24, dropout=0.0)
    source, target = torch.randn(6, 2, D), torch.randn(4, 2, D)
    profile = probe(model, (source, target))
    assert profile.layers == ("decoder.layers.0", "decoder.layers.1")
    assert profile.others[0].layers == ("encoder.layers.0", "encoder.layers.1")
    for found, length, layer, x in (
        (profile, 4, model.decoder.layers[0], target),
        (profile.others[0], 6, model.encoder.layers[0], source),
    ):
        assert found["attention_entropy"].shape == (1, 2, 3)
        assert found.pattern is not None
        assert found.pattern.shape == (length, length)
        weights = layer.self_attn(x, x, x, average_attn_weights=False)[1].detach()
        np.testing.assert_allclose(
            found["attention_entropy"][0, 0],
            torch.special.entr(weights).sum(-1).mean(dim=(0, 2)),
            rtol=1e-5,
        )


def test_own_attention_comes_before_cross_attention() -> None:
    seeded()
    blocks = nn.ModuleList(odd.Reader() for _ in range(2))
    source = torch.randn(2, 9, D)

    def run(model: Any) -> Tensor:
        x = X
        for block in model:
            x = block(x, source)
        return x

    profile = probe(blocks, run)
    assert profile.pattern is not None
    assert profile.pattern.shape == (5, 5)
    y = blocks[0].norms[0](X)  # type: ignore[index,operator,union-attr]
    own = float(blocks[0].own(y).detach().square().mean())  # type: ignore[operator,union-attr]
    assert profile["second_moment", "attn_out"][0, 0] == pytest.approx(own, rel=1e-5)


def test_a_second_stack_of_other_length_lies_beside() -> None:
    profile = read("long skips")[1]
    assert [other.layers for other in profile.others] == [("up.0", "up.1")]
    assert ("second_moment", "resid_post") in profile.others[0]


def test_what_only_some_layers_have_is_left_out_and_said() -> None:
    profile = read("hybrid")[1]
    entropy = profile["attention_entropy", "pattern"].mean(axis=(0, 2))
    assert np.isfinite(entropy).sum() == 1
    assert len(profile.absent["attention_entropy", "pattern"]) == 2


def test_features_lie_second_in_a_convolution() -> None:
    """The kurtosis is over channels, not over columns."""
    model, profile = read("residual network")
    x = model[0](IMAGES).detach()
    size = x.square().mean(dim=(2, 3))
    expected = float(((size / size.mean(1, keepdim=True)) ** 2).mean())
    assert profile["kurtosis", "embed"][0, 0] == pytest.approx(expected, rel=1e-5)


def test_a_convolutions_fan_in_is_all_of_its_kernel() -> None:
    model, profile = read("residual network")
    for name, index in (("W_in", 0), ("W_out", 3)):
        exact = float(model[1].body[index].weight.detach().square().mean()) * 9 * D  # type: ignore[union-attr,index]
        assert profile["weight_variance", name][0, 0] == pytest.approx(exact, rel=1e-5)


def test_stages_give_way_to_the_layers_within() -> None:
    """Of one shape they are one stack; a wider stage's are another."""

    def stages(*counts: int) -> nn.Sequential:
        return nn.Sequential(
            *(nn.Sequential(*(odd.PreNorm() for _ in range(count))) for count in counts)
        )

    assert probe(stages(2, 2), X).layers == ("0.0", "0.1", "1.0", "1.1")
    pyramid = nn.Sequential(
        nn.Sequential(odd.Residual(), odd.Residual()),
        nn.Conv2d(D, D, 2, 2),
        nn.Sequential(odd.Residual(), odd.Residual()),
    )
    assert probe(pyramid, torch.randn(2, D, 8, 8)).layers == ("0.0", "0.1", "2.0", "2.1")


@pytest.mark.parametrize("post", [False, True])
def test_layers_that_are_lists_of_parts(post: bool) -> None:
    """Also the last one, whose end no module marks."""
    seeded()
    model = odd.Lists(post)
    profile = probe(model, X)
    stream = [one.detach() for one in model.stream(X)]
    assert profile.layers == numbered("layers.", 3)
    np.testing.assert_allclose(
        profile["second_moment", "resid_post"][0],
        [float(one.square().mean()) for one in stream[1:]],
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        profile["kurtosis", "embed"],
        probe(nn.Sequential(odd.PreNorm(), odd.PreNorm()), X)["kurtosis", "embed"],
        rtol=1e-6,
    )
    first = model.layers[0]
    out = first[1](X if post else first[0](X)).detach()  # type: ignore[index,operator]
    assert profile["second_moment", "attn_out"][0, 0] == pytest.approx(
        float(out.square().mean()), rel=1e-5
    )
    assert {
        ("second_moment", "resid_mid"),
        ("second_moment", "mlp_out"),
        ("activation_gradient", "resid_post"),
        ("attention_entropy", "pattern"),
        ("parameter_gradient", "W_in"),
    } <= set(profile)


def test_weights_with_axes_of_their_own() -> None:
    seeded()
    model = nn.Sequential(odd.Tensors(), odd.Tensors())
    profile = probe(model, X, lambda out: out.square().mean())
    model(X).square().mean().backward()
    block = model[0]
    parts: dict[str, tuple[Any, Any, int]] = {
        "W_Q": (block.qkv, 0, D),
        "W_V": (block.qkv, 2, D),
        "W_O": (block.out, ..., 12),
        "W_in": (block.up, ..., D),
        "W_out": (block.down, ..., 24),
    }
    for name, (weight, part, fan_in) in parts.items():
        exact = float(weight.detach()[part].square().mean()) * fan_in
        assert profile["weight_variance", name][0, 0] == pytest.approx(exact, rel=1e-5), name
        size = float(weight.grad[part].norm())
        assert profile["parameter_gradient", name][0, 0] == pytest.approx(size, rel=1e-4), name


def test_keys_that_are_written_part_by_part() -> None:
    """Into an empty tensor, as latent attention does: what is written to a view is written to the
    whole."""

    class Written(odd.Attention):
        def forward(self, x: Tensor, source: Tensor | None = None) -> Tensor:
            k, v = self.kv(x if source is None else source).chunk(2, dim=-1)
            whole = torch.empty_like(k)
            whole[..., :5], whole[..., 5:] = k[..., :5], k[..., 5:]
            q, k, v = (
                one.unflatten(-1, (self.heads, -1)).transpose(-2, -3)
                for one in (self.q(x), whole, v)
            )
            return self.o(((q @ k.mT / 2).softmax(-1) @ v).transpose(-2, -3).flatten(-2))

    seeded()
    plain = probe(nn.Sequential(odd.PreNorm(), odd.PreNorm()), X)
    seeded()
    written = probe(nn.Sequential(odd.PreNorm(Written()), odd.PreNorm(Written())), X)
    assert set(plain) == set(written)
    np.testing.assert_allclose(written["attention_entropy"], plain["attention_entropy"], rtol=1e-5)


def test_a_block_with_one_query() -> None:
    seeded()
    model = odd.Classified()
    profile = probe(model, X)
    assert profile.layers == numbered("blocks.", 3)
    (last,) = profile.others
    assert last.layers == numbered("last.", 2)
    x = X
    for block in model.blocks:
        x = block(x)
    token = model.last[0](x, model.token.expand(2, -1, -1)).detach()
    assert last["second_moment", "resid_post"][0, 0] == pytest.approx(
        float(token.square().mean()), rel=1e-5
    )
    assert probe(model, X, blocks="last.*").layers == numbered("last.", 2)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (lambda: odd.TwoStacks(odd.Labels()), "first.0 puts out Tensor"),
        (lambda: odd.TwoStacks(odd.PreNorm(), grad=False), "first.0 runs under torch.no_grad()"),
    ],
)
def test_a_stack_that_cannot_be_read_leaves_the_others(
    model: Callable[[], nn.Module], why: str
) -> None:
    seeded()
    whole = model()
    profile = probe(whole, X)
    assert profile.layers == numbered("blocks.", 3)
    assert not profile.others
    assert any(why in one for one in profile.remarks)
    with pytest.raises(ValueError, match=re.escape(why)):
        probe(whole, X, blocks="first.*")


def test_an_error_of_one_stack_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Stack, block: Block, found: object) -> None:
        if block.path.startswith("last"):
            raise IndexError("no such place")
        taken(self, block, found)

    taken: Any = Stack.take
    monkeypatch.setattr(Stack, "take", fails)
    profile = probe(odd.Classified(), X)
    assert profile.layers == numbered("blocks.", 3)
    assert "last.0 could not be read: IndexError: no such place" in profile.remarks
    with pytest.raises(ValueError, match=r"last\.0 could not be read: IndexError: no such place"):
        probe(odd.Classified(), X, blocks="last.*")


def test_lists_within_a_layer_are_no_layers() -> None:
    seeded()
    model = nn.Sequential(*(odd.Bottleneck() for _ in range(3)))
    assert probe(model, X).layers == ("0", "1", "2")


def test_a_call_of_forward_is_refused_with_the_reason() -> None:
    model = odd.Forwarded()
    with pytest.raises(
        ValueError, match=r"blocks must be called as modules.*blocks\.0 is called by \.forward\(\)"
    ):
        probe(model, X)
    assert "forward" not in vars(model.blocks[0])
    model(X)


def test_a_forward_of_ones_own_is_kept() -> None:
    model = nn.Sequential(odd.PreNorm(), odd.PreNorm())
    own = model[0].forward
    model[0].forward = own
    probe(model, X)
    assert vars(model[0])["forward"] is own


def test_layers_of_one_branch_each() -> None:
    """The first one's input, too, which requires no gradient, is what its branch is added to; and
    is left as it was."""
    seeded()
    model = odd.Alternating()
    profile, found = probe(model, X), twin(model, X)
    assert not X.requires_grad
    config = found.config
    assert (
        config.attention,
        config.n_kv_heads,
        config.residual,
        config.causal,
        config.norm_placement,
    ) == ("softmax", 1, "constant", True, "pre")
    assert found.parts == (
        "its attention and its MLPs are layers of their own; each of the twin's has both",
    )
    assert profile.twin is None
    x, stream = X.clone().requires_grad_(), []
    for norm, branch, add in model.layers:  # type: ignore[misc]
        stream.append(add(branch(norm(stream[-1] if stream else x)), stream[-1] if stream else x))
    gradients = torch.autograd.grad(loss_of(stream[-1], None)[0], [x, *stream])
    sizes = np.array([float(one.square().mean()) for one in gradients])
    assert profile["activation_gradient", "embed"][0, 0] == pytest.approx(
        sizes[0] / sizes[-1], rel=1e-4
    )
    np.testing.assert_allclose(
        profile["activation_gradient", "resid_post"][0], sizes[1:] / sizes[-1], rtol=1e-4
    )
