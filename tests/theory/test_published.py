"""Numbers that others published: single components to their accuracy, and torch's own encoder
layer."""

import math
from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from trial import SIGMAS

from explorer import Config
from explorer.schemes.placement import Placement
from explorer.theory import predict
from explorer.theory.backward import ISOTROPIC, Descent, isotropic
from explorer.theory.forward import mlp, run
from explorer.theory.gains import Gains
from explorer.theory.positions import positions
from explorer.theory.tables import softmax, tables
from explorer.theory.tokens import Norm, State

PUBLISHED = {  # per cent of error at the 50th, 90th and 99th percentile: Kedia et al. 2024 (DeepScaleLM)
    "FFN variance": (0.4, 1.4, 2.8),
    "ReLU": (0.5, 1.9, 3.4),
    "GeLU": (0.2, 0.6, 1.3),
    "LN gradient": (0.4, 1.5, 3.2),
    "softmax": (0.2, 0.9, 4.0),
    "attention variance": (1.4, 4.1, 7.8),
    "attention gradient": (2.2, 13.3, 44.5),
}
GRID = [
    (d, n, rho, scale)
    for d, n in ((128, 64), (256, 32))
    for rho in (0.0, 0.3, 0.6)
    for scale in (0.5, 1.0, 2.0)
]
"""Width, tokens, their correlation, and a factor on the second moment or the weights' variance."""

Case = tuple[int, int, float, float]


def tokens(case: Case, rng: np.random.Generator, batch: int, n: int) -> torch.Tensor:
    """`[batch, token, d]`, each sequence with what its tokens share."""
    d, _, rho, _ = case
    shared, own = (rng.standard_normal((batch, count, d), dtype=np.float32) for count in (1, n))
    return torch.from_numpy(math.sqrt(rho) * shared + math.sqrt(1 - rho) * own)


def weights(rng: np.random.Generator, scale: float, *shape: int) -> torch.Tensor:
    """Of gain `scale`."""
    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)) * math.sqrt(
        scale / shape[0]
    )


def law(n: int, q: float, rho: float, d: int) -> State:
    """Tokens of a second moment and correlation, and of Gaussian coordinates."""
    return State(positions(n, causal=False), np.array([[q], [rho * q]]), 1 / d, 0.0)


def ffn_variance(case: Case, rng: np.random.Generator) -> tuple[float, float]:
    d, _, rho, scale = case
    known = Gains(
        Config(
            d_model=d,
            n_heads=1,
            activation_rescaled=False,
            init_variance=scale,
            norm_placement="none",
        )
    )
    hidden = torch.relu(tokens(case, rng, 64, 4) @ weights(rng, scale, d, 4 * d))
    out = hidden @ weights(rng, scale, 4 * d, d)
    return float(out.square().mean()), known.out * float(
        mlp(known, law(4, 1.0, rho, d), centered=False)[0].q[0]
    )


def activation(name: str) -> Callable[[Case, np.random.Generator], tuple[float, float]]:
    def component(case: Case, rng: np.random.Generator) -> tuple[float, float]:
        d, _, rho, scale = case
        known = Gains(
            Config(
                d_model=d,
                n_heads=1,
                activation=name,
                activation_rescaled=False,
                norm_placement="none",
            )
        )
        value = getattr(torch.nn.functional, name)(tokens(case, rng, 256, 8) * math.sqrt(scale))
        return float(value.square().mean()), float(
            known.kernel.overlaps(np.array(scale), np.array(rho))[0]
        )

    return component


def ln_gradient(case: Case, rng: np.random.Generator) -> tuple[float, float]:
    d, _, rho, scale = case
    x = (tokens(case, rng, 64, 8) * math.sqrt(scale)).requires_grad_(True)
    direction = torch.from_numpy(rng.standard_normal(x.shape, dtype=np.float32))
    (gradient,) = torch.autograd.grad(
        (torch.nn.functional.layer_norm(x, (d,)) * direction).sum(), x
    )
    known = Gains(Config(d_model=d, n_heads=1))
    norm = Norm(np.array([scale]), d, 2 / d, 0.0, np.array([[1.0], [rho]]))
    return float(gradient.square().mean()), float(
        isotropic(known, positions(8, causal=False), [SimpleNamespace(norms={"sum": norm})], "sum")[
            0, 0, 0
        ]
    )  # type: ignore[list-item]


def softmax_square(case: Case, rng: np.random.Generator) -> tuple[float, float]:
    d, n, _, scale = case
    p = (scale * torch.from_numpy(rng.standard_normal((16 * d, n), dtype=np.float32))).softmax(-1)
    return float(p.square().sum(1).mean()), float(
        softmax(n, 10**9).rows(np.array([scale])).square[0]
    )


def through_attention(case: Case, rng: np.random.Generator) -> tuple[float, float, float, float]:
    """Second moment and gradient of one attention: found and expected."""
    d, n, rho, scale = case
    config = Config(
        d_model=d, n_heads=d // 64, n_ctx=n, init_variance=scale, final_norm="no"
    )  # no norm divides the gradient
    known = Gains(config)
    known.placements, known.skip, known.branch = (Placement(), Placement()), [0.0, 1.0], (1.0, 0.0)
    axis, table = positions(n, causal=False), tables(n, False, 64, False)
    x = tokens(case, rng, 4, n)
    x = (x / x.square().mean(-1, keepdim=True).sqrt()).requires_grad_(True)
    q, k, v = (
        (x @ weights(rng, scale, d, d)).unflatten(-1, (-1, 64)).transpose(1, 2) for _ in range(3)
    )
    mixed = (q @ k.transpose(-1, -2) / 8).softmax(-1) @ v  # [batch, head, token, d_head]
    out = mixed.transpose(1, 2).flatten(2) @ weights(rng, scale, d, d)
    direction = torch.from_numpy(rng.standard_normal(out.shape, dtype=np.float32))
    (gradient,) = torch.autograd.grad((out * direction).sum(), x)
    steps = run(known, axis, table, 1, law(n, 1.0, rho, d))
    total, _ = Descent(known, axis, table, steps).sublayer(0, np.array([[1.0], [0.0]]), ISOTROPIC)
    return (
        float(out.detach().square().mean()),
        float(steps[0].added.q),
        float(gradient.square().mean()),
        total[0, 0],
    )


Component = Callable[[Case, np.random.Generator], tuple[float, ...]]
COMPONENTS: dict[str, tuple[int, Component, int]] = {
    "FFN variance": (48, ffn_variance, 0),
    "ReLU": (8, activation("relu"), 0),
    "GeLU": (8, activation("gelu"), 0),
    "LN gradient": (16, ln_gradient, 0),
    "softmax": (16, softmax_square, 0),
    "attention variance": (16, through_attention, 0),
    "attention gradient": (16, through_attention, 2),
}
"""Draws that are averaged, so that chance is small against what was published; one draw; and where
in it found and expected stand."""


@cache
def draws(count: int, component: Component) -> list[list[tuple[float, ...]]]:
    """`count` draws for each case of the grid; kept, since those of attention are read twice."""
    dice = [np.random.default_rng(index) for index in range(len(GRID))]
    return [
        [component(case, rng) for _ in range(count)] for case, rng in zip(GRID, dice, strict=True)
    ]


def percentages(count: int, component: Component, at: int) -> Iterator[float]:
    """Error in per cent for each case of the grid, of the mean over `count` draws."""
    for drawn in draws(count, component):
        yield 100 * abs(np.mean([draw[at] for draw in drawn]) / drawn[0][at + 1] - 1)


@pytest.mark.parametrize("name", PUBLISHED)
def test_single_components_are_as_accurate_as_published(name: str) -> None:
    found = np.percentile(list(percentages(*COMPONENTS[name])), [50, 90, 99])
    assert (found <= PUBLISHED[name]).all(), found


def encoder(norm_first: bool, seed: int) -> tuple[float, float]:
    """Second moment and token correlation after twelve of torch's own layers, each with its own
    default init."""
    torch.manual_seed(seed)
    layers = [
        torch.nn.TransformerEncoderLayer(
            256, 4, 1024, dropout=0.0, batch_first=True, norm_first=norm_first
        )
        for _ in range(12)
    ]
    with torch.no_grad():
        x = torch.randn(4, 64, 256)
        for layer in layers:
            x = layer(x)
        q = x.square().mean()
        p = (x.sum(1).square().sum(-1).mean() / 256 - 64 * q) / (64 * 63)
    return float(q), float(p / q)


def stack_of_torch(norm_first: bool, whole: bool, seed: int) -> tuple[float, float]:
    """The same of `nn.TransformerEncoder`, twelve copies of a layer; or of the one in
    `nn.Transformer`, drawn again."""
    torch.manual_seed(seed)
    made = torch.nn.TransformerEncoderLayer(
        256, 4, 1024, dropout=0.0, batch_first=True, norm_first=norm_first
    )
    stack = torch.nn.TransformerEncoder(made, 12, enable_nested_tensor=False)
    if whole:
        stack = torch.nn.Transformer(
            256, 4, custom_encoder=stack, num_decoder_layers=1, batch_first=True
        ).encoder
    with torch.no_grad():
        x = stack(torch.randn(4, 64, 256))
    q = x.square().mean()
    p = (x.sum(1).square().sum(-1).mean() / 256 - 64 * q) / (64 * 63)
    return float(q), float(p / q)


@pytest.mark.parametrize("whole", [False, True])
def test_torchs_encoder_is_one_layer_twelve_times_and_its_transformer_is_not(whole: bool) -> None:
    """Biases of the MLP are torch's: of variance 1/(3 fan_in); its Transformer keeps them the same
    in all layers."""
    rows = (
        {"scale_rule": "torch_transformer"}
        if whole
        else {"scale_rule": "torch_default", "layer_weights": "copied"}
    )
    design = Config(**rows, bias_variance=1 / 3, activation_rescaled=False)
    profile = predict(design)
    told = (
        profile["second_moment", "resid_post"][0, -1],
        profile["token_correlation", "resid_post"][0, -1],
    )
    found = np.array([stack_of_torch(True, whole, seed) for seed in range(12)])
    error = found.std(0, ddof=1) / math.sqrt(len(found))
    # of equal biases in layers that are drawn anew; chance of width
    left_out = (0.02, 0.02) if whole else (0.0, 0.005)
    allowed = SIGMAS * error + np.array(left_out) * told
    assert (np.abs(found.mean(0) - told) <= allowed).all(), (found.mean(0), told, error)
    other = predict(design.replace(layer_weights="copied" if whole else "independent"))
    wrong = other["token_correlation", "resid_post"][0, -1]
    assert abs(found.mean(0)[1] - wrong) > 0.1


@pytest.mark.parametrize(
    ("placement", "expected"), [("pre", (1.943, 0.273)), ("post", (1.0, 0.399))]
)
def test_torch_encoder_at_its_own_default_init(
    placement: str, expected: tuple[float, float]
) -> None:
    profile = predict(
        Config(norm_placement=placement, scale_rule="torch_default", activation_rescaled=False)
    )
    told = (
        profile["second_moment", "resid_post"][0, -1],
        profile["token_correlation", "resid_post"][0, -1],
    )
    assert told == pytest.approx(expected, abs=0.006)  # the numbers are of the wide limit
    found = np.array([encoder(placement == "pre", seed) for seed in range(12)])
    error = found.std(0, ddof=1) / math.sqrt(len(found))
    # torch draws the MLP's biases too, of variance 1/(3 fan_in), shared by all tokens: two per cent
    # in twelve layers
    assert (np.abs(found.mean(0) - told) <= SIGMAS * error + 0.02 * np.array(told)).all(), (
        found.mean(0),
        told,
        error,
    )
