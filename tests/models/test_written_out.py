"""Norms and activations that a model writes out itself, in the ways in which people write them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer import Profile, diagnose, predict, probe, twin
from explorer.diagnosis.agreement import agreement
from explorer_models.probe import probed
from explorer_models.stack import Stack

D = 64
EPSILON = 1e-3
Function = Callable[[Tensor], Tensor]


def mean(x: Tensor) -> Tensor:
    return x.mean(-1, keepdim=True)


def size(x: Tensor) -> int:
    return x.shape[-1]


RMS: dict[str, Function] = {
    "x * x": lambda x: x * torch.rsqrt(mean(x * x) + EPSILON),
    "torch.mul": lambda x: x * torch.rsqrt(mean(torch.mul(x, x)) + EPSILON),
    "square": lambda x: x * torch.rsqrt(mean(x.square()) + EPSILON),
    "**": lambda x: x * (mean(x**2) + EPSILON) ** -0.5,
    "pow": lambda x: x / (mean(x.pow(2)) + EPSILON).sqrt(),
    "abs": lambda x: x / (mean(x.abs().pow(2)) + EPSILON).sqrt(),
    "sum": lambda x: x.div(torch.sqrt(((x * x).sum(-1, keepdim=True) / size(x)).add(EPSILON))),
    "double": lambda x: (x.double() * torch.rsqrt(mean(x.double() * x.double()) + EPSILON)).to(
        x.dtype
    ),
    "logarithm": lambda x: x * torch.exp(-0.5 * torch.log(mean(x * x) + EPSILON)),
    "einsum": lambda x: (
        x * torch.rsqrt(torch.einsum("...d,...d->...", x, x)[..., None] / size(x) + EPSILON)
    ),
    "vecdot": lambda x: x * torch.rsqrt(torch.linalg.vecdot(x, x)[..., None] / size(x) + EPSILON),
    "matmul": lambda x: (
        x * torch.rsqrt((x[..., None, :] @ x[..., None])[..., 0] / size(x) + EPSILON)
    ),
    "ones": lambda x: x * torch.rsqrt((x * x) @ torch.full((size(x), 1), 1 / size(x)) + EPSILON),
    "vector_norm": lambda x: (
        x / (torch.linalg.vector_norm(x, dim=-1, keepdim=True) * size(x) ** -0.5 + EPSILON)
    ),
    "norm": lambda x: x / (x.norm(dim=-1, keepdim=True) / size(x) ** 0.5 + EPSILON),
}
LAYER: dict[str, Function] = {
    "twice": lambda x: (x - mean(x)) * torch.rsqrt(mean((x - mean(x)) * (x - mean(x))) + EPSILON),
    "difference": lambda x: (x - mean(x)) * torch.rsqrt(mean(x * x) - mean(x) * mean(x) + EPSILON),
    "deviation": lambda x: (x - mean(x)) / (x.std(-1, keepdim=True) + EPSILON),
    "centered": lambda x: RMS["einsum"](x - mean(x)),
}


class Norm(nn.Module):
    def __init__(self, function: Function, width: int = D) -> None:
        super().__init__()
        self.gain, self.function = nn.Parameter(torch.ones(width)), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x) * self.gain


class Block(nn.Module):
    """Norms before the branches, on the sums, or after the branches and on queries and keys."""

    def __init__(
        self, place: str = "pre", norm: Function = RMS["pow"], bend: Function = F.gelu
    ) -> None:
        super().__init__()
        self.one, self.two, self.q, self.k = Norm(norm), Norm(norm), Norm(norm, 16), Norm(norm, 16)
        self.qkv, self.out = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False)
        self.up, self.gate, self.down = nn.Linear(D, 128), nn.Linear(D, 128), nn.Linear(128, D)
        self.place, self.bend = place, bend

    def form(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention from queries, keys and values `[batch, head, token, d_head]`."""
        return (q @ k.mT / 4).softmax(-1) @ v

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(2, 16, 3, 4, 16).permute(2, 0, 3, 1, 4)
        if self.place == "branch_output":
            q, k = self.q(q), self.k(k)
        return self.out(self.form(q, k, v).transpose(1, 2).reshape(2, 16, D))

    def mlp(self, x: Tensor) -> Tensor:
        return self.down(self.bend(self.up(x)))

    def forward(self, x: Tensor) -> Tensor:
        if self.place == "pre":
            x = x + self.attend(self.one(x))
            return x + self.mlp(self.two(x))
        if self.place == "post":
            x = self.one(x + self.attend(x))
            return self.two(x + self.mlp(x))
        x = x + self.one(self.attend(x))
        return x + self.two(self.mlp(x))


def stack(make: Callable[[], nn.Module], layers: int = 4) -> tuple[nn.Sequential, Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(*(make() for _ in range(layers))), torch.randn(2, 16, D)


def forms(made: Iterable[nn.Module]) -> tuple[Profile, Stack]:
    """Of a stack in which each layer is written in another way; drawn here."""
    torch.manual_seed(0)
    return probed(nn.Sequential(*made), torch.randn(2, 16, D))


@cache
def plain(layers: int = 4) -> Profile:
    """Of blocks that are written in the usual way; kept, for many tests compare with it."""
    profile = probe(*stack(Block, layers))
    for values in profile.values.values():
        values.flags.writeable = False
    return profile


SOME = ("x * x", "logarithm", "einsum", "vector_norm")
"""One form of each kind, where norms are read in the same way as after branches and on queries and
keys."""


@pytest.mark.parametrize("place", ["branch_output", "pre", "post"])
@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_a_norm_is_one_however_it_is_written(kind: str, place: str) -> None:
    """Each layer writes it in another way; the one without it is named."""
    written = list(LAYER.values() if kind == "layer" else RMS.values())
    if kind == "rms" and place != "branch_output":
        written = [RMS[name] for name in SOME]
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(place, function) for function in [*written[:2], *written[1:]]))
    model[2].one = nn.Identity()
    profile, found = probed(model, torch.randn(2, 16, D))
    assert profile.twin is not None
    assert (profile.twin.norm_placement, profile.twin.norm, profile.twin.qk_norm) == (
        place,
        kind,
        place == "branch_output",
    )
    assert (profile.twin.residual, profile.twin.alpha) == ("constant", 1.0)
    for layer, facts in enumerate(found.facts):
        assert (facts["mlp_out", "norm"], facts["mlp_out", "epsilon"]) == (
            kind,
            pytest.approx(EPSILON),
        ), layer
    ((layer, site, words),) = profile.differences
    assert (layer, site) == (3, "attn_out")
    assert "no norm on" in words


def test_a_length_is_a_norm_and_a_factor() -> None:
    """What `normalize` gives is multiplied by √width afterwards, so that its twin has no line, but
    is there."""
    found = twin(
        *stack(lambda: Block("branch_output", lambda x: F.normalize(x, dim=-1) * size(x) ** 0.5), 2)
    ).config
    assert (found.norm_placement, found.norm, found.qk_norm) == ("branch_output", "rms", True)
    assert (found.norm_epsilon, found.residual, found.alpha) == (
        pytest.approx(1e-12),
        "constant",
        1.0,
    )


ROOT, SLOPE = 2**0.5, (2 / torch.pi) ** 0.5
BENDS: dict[str, dict[str, Function]] = {
    "gelu": {
        "BERT's": lambda x: x * 0.5 * (1 + torch.erf(x / ROOT)),
        "half first": lambda x: 0.5 * x * (1 + torch.erf(x / ROOT)),
        "half last": lambda x: (1 + torch.erf(x * ROOT / 2)) * x / 2,
        "half inside": lambda x: x * (0.5 + 0.5 * torch.erf(x / ROOT)),
        "two terms": lambda x: 0.5 * x + 0.5 * x * torch.erf(x / ROOT),
        "distribution": lambda x: x * torch.special.ndtr(x),
        "complement": lambda x: x * 0.5 * torch.erfc(-x / ROOT),
    },
    "gelu_tanh": {
        "GPT-2's": lambda x: 0.5 * x * (1 + torch.tanh(SLOPE * (x + 0.044715 * torch.pow(x, 3)))),
        "Megatron's": lambda x: x * 0.5 * (1 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x))),
        "half last": lambda x: (1 + torch.tanh(SLOPE * (x + 0.044715 * x * x * x))) * x * 0.5,
    },
    "silu": {
        "x σ(x)": lambda x: x * torch.sigmoid(x),
        "σ(x) x": lambda x: torch.sigmoid(x) * x,
        "quotient": lambda x: x / (1 + torch.exp(-x)),
        "tanh": lambda x: x * 0.5 * (1 + torch.tanh(x / 2)),
    },
    "quick": {"x σ(1.7 x)": lambda x: x * torch.sigmoid(1.702 * x)},
    "relu": {
        "where": lambda x: torch.where(x > 0, x, 0.0),
        "mask": lambda x: x * (x > 0),
        "filled": lambda x: x.masked_fill(x < 0, 0),
        "clamp": lambda x: x.clamp(min=0),
        "maximum": lambda x: torch.maximum(x, torch.zeros_like(x)),
        "abs": lambda x: (x + x.abs()) / 2,
    },
    "relu2": {"r * r": lambda x: F.relu(x) * F.relu(x), "x relu": lambda x: x * F.relu(x)},
    "elu": {"where": lambda x: torch.where(x > 0, x, torch.exp(x) - 1)},
    "tanh": {
        "sigmoid": lambda x: 2 * torch.sigmoid(2 * x) - 1,
        "exp": lambda x: (torch.exp(2 * x) - 1) / (torch.exp(2 * x) + 1),
    },
}
GATED: dict[str, dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "silu": {
        "in turn": lambda u, v: u * torch.sigmoid(u) * v,
        "value first": lambda u, v: v * u * torch.sigmoid(u),
        "value between": lambda u, v: torch.sigmoid(u) * v * u,
        "quotient": lambda u, v: v * u / (1 + torch.exp(-u)),
    },
    "gelu": {
        "value first": lambda u, v: v * u * 0.5 * (1 + torch.erf(u / ROOT)),
        "value last": lambda u, v: u * 0.5 * (1 + torch.erf(u / ROOT)) * v,
    },
    "relu": {"where": lambda u, v: torch.where(u > 0, u, 0.0) * v},
    "sigmoid": {
        "σ(u) v": lambda u, v: torch.sigmoid(u) * v,
        "quotient": lambda u, v: v / (1 + torch.exp(-u)),
    },
    "identity": {"u v": lambda u, v: u * v},
}


def test_an_activation_is_one_however_it_is_written() -> None:
    rows = [(name, bend) for name, row in BENDS.items() for bend in row.values()]
    _, found = forms(Block(bend=bend) for _, bend in rows)
    for layer, (facts, (name, _)) in enumerate(zip(found.facts, rows, strict=True)):
        assert (facts["mlp_out", "mlp"], facts["mlp_out", "activation"]) == ("plain", name), layer
        assert not facts["layer", "unread"]
    assert found.twin is not None
    assert not found.twin.unread


class Gated(Block):
    """A gate, whose matrix is twice as large as the other one, or packed with it."""

    def __init__(self, combine: Callable[[Tensor, Tensor], Tensor], packed: bool) -> None:
        super().__init__()
        self.both, self.packed, self.combine = nn.Linear(D, 256), packed, combine
        self.both.weight.data[:128] *= 2
        self.gate.weight.data *= 2

    def mlp(self, x: Tensor) -> Tensor:
        u, v = self.both(x).chunk(2, dim=-1) if self.packed else (self.gate(x), self.up(x))
        return self.down(self.combine(u, v))


def test_so_is_a_gate() -> None:
    """And W_gate is the matrix before the function."""
    rows = [
        ("gated", name, form, bool(number % 2))
        for name, row in GATED.items()
        for number, form in enumerate(row.values())
    ]
    rows += [
        ("gated", "identity", GATED["identity"]["u v"], True),
        ("gated_plus_one", "silu", lambda u, v: u * (v + 1) * torch.sigmoid(u), False),
    ]
    profile, found = forms(Gated(form, packed) for *_, form, packed in rows)
    ratio = profile["weight_variance", "W_gate"][0] / profile["weight_variance", "W_in"][0]
    for layer, (facts, (kind, name, *_)) in enumerate(zip(found.facts, rows, strict=True)):
        assert (facts["mlp_out", "mlp"], facts["mlp_out", "activation"]) == (kind, name), layer
        if name != "identity":
            assert ratio[layer] == pytest.approx(4, rel=0.1), layer


HEADS, HEAD = 4, 16


def softmax(logits: Tensor, axis: int) -> Tensor:
    shares = torch.exp(logits - logits.amax(axis, keepdim=True))
    return shares / shares.sum(axis, keepdim=True)


def times(q: Tensor, k: Tensor) -> Tensor:
    return (q.unsqueeze(-2) * k.unsqueeze(-3)).sum(-1)


def of_values(pattern: Tensor, v: Tensor) -> Tensor:
    return (v.unsqueeze(-3) * pattern[..., None]).sum(dim=-2)


SUMS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "softmax": lambda q, k, v: softmax(q @ k.mT / 4, -1) @ v,
    "logarithm": lambda q, k, v: F.log_softmax(q @ k.mT / 4, -1).exp() @ v,
    "logits": lambda q, k, v: (times(q, k) / 4).softmax(-1) @ v,
    "values": lambda q, k, v: of_values((q @ k.mT / 4).softmax(-1), v),
    "both": lambda q, k, v: of_values(times(q / 4, k).softmax(-1), v),
    "keys first": lambda q, k, v: (
        (torch.mul(k[:, :, None], q[:, :, :, None]).sum(-1) / 4).softmax(-1) @ v
    ),
    "expanded": lambda q, k, v: (
        ((q[:, :, :, None].expand(2, 4, 16, 16, 16) * k[:, :, None]).sum(-1) / 4).softmax(-1) @ v
    ),
    "heads last": lambda q, k, v: (
        (
            (q.transpose(1, 2)[:, :, None] * k.transpose(1, 2)[:, None]).sum(-1).permute(0, 3, 1, 2)
            / 4
        ).softmax(-1)
        @ v
    ),
    "heads in the batch": lambda q, k, v: of_values(
        (times(q.flatten(0, 1), k.flatten(0, 1)) / 4).softmax(-1), v.flatten(0, 1)
    ).view(2, 4, 16, 16),
}


class Headed(Block):
    """Attention by another function."""

    def __init__(self, form: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.form = form  # type: ignore[method-assign]


def test_a_product_is_one_however_it_is_written() -> None:
    usual, (written, _) = plain(len(SUMS)), forms(map(Headed, SUMS.values()))
    assert written.twin == usual.twin
    assert set(written) == set(usual)
    for key in usual:
        assert written[key] == pytest.approx(usual[key], rel=1e-4, abs=1e-5), key


@pytest.mark.parametrize("mixed", ["logits", "pattern"])
def test_heads_that_are_mixed_are_said_to_be_unread(mixed: str) -> None:
    mix = nn.Linear(4, 4, bias=False)

    def talk(heads: Tensor) -> Tensor:
        return mix(heads.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    def form(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        logits = q @ k.mT / 4
        return (talk(logits).softmax(-1) if mixed == "logits" else talk(logits.softmax(-1))) @ v

    profile = probe(*stack(lambda: Headed(form), 2))
    assert profile.twin is None
    assert any("two branches is no attention" in remark for remark in profile.remarks)


class Turned(Block):
    """A softmax over keys that are not the last axis."""

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(2, 16, 3, 4, 16).permute(2, 0, 1, 3, 4)
        pattern = (torch.einsum("bqhe,bkhe->bqkh", q, k) / 4).softmax(2)
        return self.out(torch.einsum("bqkh,bkhe->bqhe", pattern, v).flatten(2))


def test_what_could_not_be_read_is_said_and_no_line_is_drawn() -> None:
    """The numbers are there all the same: entropy and gradients are what they are with the usual
    axes."""
    profile, read = probed(*stack(Turned))
    for key in (usual := plain()):
        assert profile[key] == pytest.approx(usual[key], rel=1e-3, abs=1e-5), key
    found = read.twin
    assert found is not None
    assert found.unread[0].startswith("the attention of 0 and 3 more: ValueError")
    assert found.parts == ("4 of 4 layers could not be read",)
    assert profile.twin is None
    assert profile.remarks == found.unread + found.parts
    assert Profile.from_json(profile.to_json()).remarks == profile.remarks
    assert any(found.parts[0] in finding.evidence for finding in diagnose(profile))


class Louder(Block):
    """What no block shows of its design: a function of the branch whose gradient is another's."""

    def mlp(self, x: Tensor) -> Tensor:
        y = super().mlp(x)
        return y + (2 * y).detach()


class Median(Block):
    """A norm by the median, which no placement has."""

    def forward(self, x: Tensor) -> Tensor:
        for branch in (self.attend, self.mlp):
            x = x + branch(x / x.abs().sort(-1).values[..., D // 2, None])
        return x


def linear(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention without a softmax."""
    q, k = F.elu(q) + 1, F.elu(k) + 1
    return q @ (k.mT @ v) / (q @ k.sum(-2)[..., None])


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (Louder, "second moment at MLP output of layer 1 (0)"),
        (Median, "gradient by layer at stream after attention"),
        (lambda: Headed(linear), "two branches is no attention"),
    ],
)
def test_a_twin_that_behaves_otherwise_draws_no_line(
    make: Callable[[], nn.Module], where: str
) -> None:
    profile, read = probed(*stack(make, 3))
    found = read.twin
    assert found is not None
    assert any(where in one for one in found.parts)
    assert profile.twin is None
    assert set(found.parts) <= set(profile.remarks)
    assert any("there are no lines" in finding.meaning for finding in diagnose(profile))
    if make in (Louder, Median):
        assert found.distance > 0.5
        assert any(one.endswith(" ×") for one in found.parts)


def test_tokens_that_become_alike_otherwise_than_expected_draw_no_line() -> None:
    """No second moment shows it: norms follow an MLP that gives all tokens what it gives the
    first."""

    class First(Block):
        def mlp(self, x: Tensor) -> Tensor:
            return super().mlp(x)[:, :1].expand_as(x)

    profile, read = probed(*stack(lambda: First("branch_output"), 6))
    found = read.twin
    assert found is not None
    assert found.parts
    for part in found.parts:
        assert part.startswith("the token correlation at stream after ")
        assert "×" not in part
    assert profile.twin is None
    assert set(found.parts) <= set(profile.remarks)
    assert probe(*stack(lambda: Block("branch_output"), 6)).twin is not None


def test_a_twin_that_behaves_alike_has_a_line() -> None:
    """Also where one layer is at fault: that is for the diagnosis to name."""
    model, inputs = stack(Block)
    model[2].down.weight.data *= 6  # type: ignore[operator, union-attr]
    for profile in (plain(), probe(model, inputs)):
        assert profile.twin is not None
        assert profile.remarks == ()


def columns(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A softmax over queries: a mistake."""
    return (q @ k.mT / 4).softmax(-2) @ v


def sums(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same mistake, in products that are written out."""
    return of_values((times(q, k) / 4).softmax(-2), v)


@pytest.mark.parametrize(
    ("odd", "at", "container"),
    [
        (linear, 0, nn.Sequential),
        (linear, 2, nn.ModuleList),
        (columns, 2, nn.Sequential),
        (sums, 0, nn.ModuleList),
    ],
)
def test_one_unusual_layer_hides_no_other(
    odd: Callable[..., Tensor], at: int, container: type
) -> None:
    """It is named; the others' numbers are there, a line, too."""

    def run(model: nn.Module) -> Tensor:
        x = inputs
        for layer in model.children():
            x = layer(x)
        return x

    model, inputs = stack(Block)
    model[at] = Headed(odd)
    if container is nn.Sequential and at == 0:
        model = nn.Sequential(Block(), *model)
        at = 1
    whole = container(list(model)) if container is nn.ModuleList else model
    profile = probe(whole, run)
    assert set(profile) == set(plain())
    assert len(profile.layers) == len(whole)
    for key in [
        ("attention_entropy", "pattern"),
        ("logit_std", "attn_scores"),
        ("parameter_gradient", "W_Q"),
        ("weight_variance", "W_V"),
    ]:
        missing = np.isnan(profile[key].mean(axis=(0, *range(2, profile[key].ndim))))
        assert np.flatnonzero(missing).tolist() in ([], [at])  # what can be read of it is there
        assert profile.absent.get(key, ()) == tuple(np.flatnonzero(missing) + 1)
        if missing.any():
            assert f"not read in layer {at + 1}" in profile.notes[key[0]]
    assert profile.first_nonfinite is None
    assert profile.twin is not None
    assert not Profile.from_json(profile.to_json()).first_nonfinite
    assert agreement(profile, predict(profile.twin), "attention_entropy").tone == "good"
    finding = diagnose(profile)[0]
    assert finding.severity == "warning"
    assert finding.meaning.startswith(f"Layer {at + 1} ({at}) ")
    assert ("over queries" in finding.meaning) == (odd is not linear)
