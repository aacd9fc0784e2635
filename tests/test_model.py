"""The model under study: against torch's own encoder layer, and against what each design
promises."""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from benchmarks.overhead import fuse, handwritten
from explorer import Config, ConfigError, text
from explorer.measuring import measure
from explorer.measuring.observe import Pass
from explorer.model import Transformer, batch, ignore, noise
from explorer.theory import predict

SMALL = Config(n_layers=3, d_model=32, n_heads=4, n_ctx=8, batch_size=2)
TEXT = SMALL.replace(input="text", loss="next_token")


def run(config: Config, seed: int = 0) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Input, output, and the tapped tensors by `site` and layer."""
    seen: dict[str, Tensor] = {}
    model, inputs = Transformer(config, seed), batch.draw(config, seed)
    with torch.no_grad():
        x = model.embed(inputs)
        return (
            x,
            model(x, lambda site, layer, tensor: seen.update({f"{site} {layer}": tensor})),
            seen,
        )


def scores(**choices: Any) -> Tensor:
    """The first layer's logits."""
    return run(SMALL.replace(**choices))[2]["attn_scores 1"]


def is_unit(x: Tensor) -> bool:
    """Whether each token's second moment is 1."""
    return torch.allclose(x.square().mean(-1), torch.ones(2, 8), atol=1e-3)


TORCHS = {"self_attn.in_proj_": "QKV", "self_attn.out_proj.": "O", "linear1.": ["in"]}
TORCHS |= {"linear2.": ["out"]}
"""The matrices that each parameter of torch's layer holds, one below the other."""


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_parity_with_torch(norm_first: bool, activation: str, causal: bool, biased: bool) -> None:
    """Same weights and biases, same forward to 1e-5, same gradients to 1e-4, layer norm before or
    after."""
    config = SMALL.replace(
        n_layers=1,
        norm_placement="pre" if norm_first else "post",
        causal=causal,
        activation=activation,
        activation_rescaled=False,
        bias_variance=5.0 * biased,
        biases="all",
    )
    ours = Transformer(config, 0).layers[0]
    theirs = nn.TransformerEncoderLayer(
        32, 4, 128, 0, activation, batch_first=True, norm_first=norm_first, bias=biased
    )
    named = dict(ours.named_parameters(remove_duplicate=False))
    named = {name.split(".")[-1]: parameter for name, parameter in named.items()}
    pairs = [
        ([named[f"{letter}_{name}"] for name in names], theirs.get_parameter(f"{path}{kind}"))
        for kind, letter in [("weight", "W"), ("bias", "b")][: 1 + biased]
        for path, names in TORCHS.items()
    ]
    with torch.no_grad():
        for parts, whole in pairs:
            whole.copy_(torch.cat(parts))
    x, direction = torch.randn(2, 8, 32), torch.randn(2, 8, 32)
    mask = nn.Transformer.generate_square_subsequent_mask(8) if causal else None
    mine, yours = ours(x)[0], theirs(x, src_mask=mask)
    assert_close(mine, yours, atol=1e-5, rtol=1e-5)
    (mine * direction).sum().backward()
    (yours * direction).sum().backward()
    for parts, whole in pairs:
        gradient = torch.cat([part.grad for part in parts])
        assert_close(gradient, whole.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "choices",
    [
        {"n_kv_heads": 2},
        {"n_kv_heads": 1, "head_size": 12, "causal": True},
        {"attention_gate": "head", "n_kv_heads": 2},
        {"attention_gate": "coordinate", "head_size": 6},
        {"sink": "zero", "causal": True},
        {"sink": "learned", "attention_gate": "coordinate", "parametrization": "ntk"},
    ],
    ids=str,
)
def test_grouped_heads_gates_and_sinks_by_torchs_attention(choices: dict[str, Any]) -> None:
    """A sink is a key of logits of its own, and a value of zeros; in torch a bias of the logits and
    a zero key."""
    config = SMALL.replace(n_layers=1, norm_placement="none", **choices)
    block = Transformer(config, 0).layers[0].attention
    x, sigma = (
        torch.randn(2, 8, 32),
        {name: each.forward for name, each in config.design.matrices.items()},
    )
    heads = {
        name: nn.functional.linear(x, getattr(block, name) * sigma[name]).unflatten(
            -1, (-1, config.d_head)
        )
        for name in ("W_Q", "W_K", "W_V")
    }
    q, k, v = (heads[name].transpose(1, 2) for name in heads)
    bias = torch.zeros(4, 8, 8) if not config.causal else torch.full((4, 8, 8), -math.inf).triu(1)
    if block.sink is not None:
        bias = torch.cat([bias, block.sink.detach()[:, None, None].expand(4, 8, 1)], -1)
        k, v = (nn.functional.pad(part, (0, 0, 0, 1)) for part in (k, v))
    # by head
    out = nn.functional.scaled_dot_product_attention(q, k, v, bias, enable_gqa=True).transpose(1, 2)
    if block.W_G is not None:
        out = out * nn.functional.linear(x, block.W_G * sigma["W_G"]).sigmoid().unflatten(
            -1, (4, -1)
        )
    expected = nn.functional.linear(out.flatten(2), block.W_O * sigma["W_O"])
    assert_close(block(x, ignore, ())[0], expected, atol=1e-5, rtol=1e-5)
    for name, parameter in block.named_parameters():
        assert name == "sink" or parameter.T.shape == config.design.shapes[name]


def test_the_benchmarks_hand_written_pass_computes_the_same() -> None:
    model, inputs = Transformer(SMALL, 0), batch.draw(SMALL, 0)
    assert_close(
        handwritten(fuse(model), inputs, SMALL.n_heads),
        model.loss(model(model.embed(inputs)), inputs).detach(),
    )


def test_learned_sinks_start_near_zero() -> None:
    sinks = torch.cat(
        [
            layer.attention.sink
            for layer in Transformer(
                SMALL.replace(n_layers=64, n_heads=16, sink="learned"), 0
            ).layers
        ]
    ).detach()
    assert float(sinks.std()) == pytest.approx(0.02, rel=0.1)
    assert not any(
        "sink" in name for name, _ in Transformer(SMALL.replace(sink="zero"), 0).named_parameters()
    )


@pytest.mark.parametrize(
    ("activation", "theirs"),
    [
        ("silu", nn.functional.silu),
        ("gelu", nn.functional.gelu),
        ("relu", nn.functional.relu),
        ("identity", lambda z: z),
    ],
)
@pytest.mark.parametrize("rule", ["he", "xavier", "torch_default", "bert"])
def test_a_gated_mlp_is_the_one_of_its_paper(
    activation: str, theirs: Callable[[Tensor], Tensor], rule: str
) -> None:
    """Shazeer 2020, eq. 6: forward and gradients, of matrices of one shape drawn alike; a plain MLP
    has no gate."""
    config = SMALL.replace(
        mlp="gated", activation=activation, activation_rescaled=False, scale_rule=rule
    )
    mlp = Transformer(config, 0).layers[0].mlp
    x, ours = torch.randn(2, 8, 32), (mlp.W_gate, mlp.W_in, mlp.W_out)
    gate, up, down = copies = [weight.detach().clone().requires_grad_() for weight in ours]
    found, expected = mlp(x), (theirs(x @ gate.T) * (x @ up.T)) @ down.T
    assert_close(found, expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    for weight, copy in zip(ours, copies, strict=True):
        assert_close(weight.grad, copy.grad)
    assert float(gate.detach().std()) == pytest.approx(float(up.detach().std()), rel=0.05)
    plain = Transformer(config.replace(mlp="plain"), 0).layers[0]
    assert "W_gate" not in plain.weights
    assert torch.equal(plain.mlp.W_in, mlp.W_in), "common noise"


def test_a_rescaled_gated_mlp_keeps_the_second_moment_of_its_units() -> None:
    config = Config(n_layers=1, mlp="gated", activation="silu", n_seeds=8)
    profile = measure(config)
    assert profile["second_moment", "mlp_out"].mean() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("choices", "summed", "branch", "final"),
    [
        ({"norm_placement": "none"}, False, False, False),
        ({"norm_placement": "pre"}, False, False, True),
        ({"norm_placement": "post"}, True, False, True),
        ({"norm_placement": "peri"}, False, True, True),
        ({"norm_placement": "branch_output"}, False, True, True),
        ({"norm_placement": "scaled_pre"}, False, False, True),
        ({"norm_placement": "pre", "final_norm": "no"}, False, False, False),
        ({"norm_placement": "pre", "final_norm": "yes"}, False, False, True),
        ({"norm_placement": "post", "final_norm": "no"}, True, False, True),
    ],
    ids=str,
)
def test_where_the_norms_stand(
    choices: dict[str, str], summed: bool, branch: bool, final: bool
) -> None:
    _, output, seen = run(SMALL.replace(**choices))
    assert is_unit(seen["resid_post 3"]) == summed
    assert is_unit(seen["attn_out 2"]) == branch
    assert is_unit(output) == final


@pytest.mark.parametrize(
    ("residual", "skip", "branch"),
    [
        ("constant", 1, 0.3),
        ("absent", 0, 1),
        ("inverse_depth", 1, 1 / 6),
        ("deepnorm", 6**0.25, 1),
        ("rezero", 1, 0),
    ],
)
def test_how_the_branch_joins_the_stream(residual: str, skip: float, branch: float) -> None:
    x, _, seen = run(SMALL.replace(norm_placement="none", residual=residual, alpha=0.3))
    assert_close(seen["resid_mid 1"], skip * x + branch * seen["attn_out 1"])
    assert_close(seen["resid_post 1"], skip * seen["resid_mid 1"] + branch * seen["mlp_out 1"])


@pytest.mark.parametrize("residual", ["rezero", "skipinit", "fixup"])
def test_the_identity_at_initialization_is_exact(residual: str) -> None:
    x, output, _ = run(SMALL.replace(norm_placement="none", residual=residual))
    assert torch.equal(output, x)


@pytest.mark.parametrize(
    ("residual", "zero"),
    [
        ("rezero", {*SMALL.design.shapes}),
        ("skipinit", {*SMALL.design.shapes}),
        ("fixup", {"W_Q", "W_K", "W_V", "W_in"}),
    ],
)
def test_which_gradients_are_exactly_zero(residual: str, zero: set[str]) -> None:
    """An α of zero silences its branch's weights, and is itself heard; a last matrix of zero
    silences the others."""
    profile = measure(SMALL.replace(norm_placement="none", residual=residual, n_seeds=1))
    found = {
        site
        for statistic, site in profile.values
        if statistic == "parameter_gradient" and not profile[statistic, site].any()
    }
    assert found == zero
    gradient = profile.stream("activation_gradient")[1]
    assert (gradient == 1).all()  # the stream's gradient is the same at all depths, bit for bit


@pytest.mark.parametrize(
    ("residual", "shape"), [("rezero", ()), ("skipinit", (2,)), ("layer_scale", (2, 32))]
)
def test_what_is_learned_of_the_branches_multiplier(residual: str, shape: tuple[int, ...]) -> None:
    layer = Transformer(SMALL.replace(residual=residual), 0).layers[0]
    assert layer.weights["alpha"].shape == shape
    with torch.no_grad():
        layer.alpha.copy_(torch.rand(shape))
    x, seen = torch.randn(2, 8, 32), {}
    layer(x, lambda site, _, tensor: seen.update({site: tensor}))
    attention, mlp = (layer.alpha, layer.alpha) if shape == () else layer.alpha
    assert_close(seen["resid_mid"], x + attention * seen["attn_out"])
    assert_close(seen["resid_post"], seen["resid_mid"] + mlp * seen["mlp_out"])


def test_realformers_scores_add_up() -> None:
    seen = run(SMALL.replace(norm_placement="post", residual_attention="scores"))[2]
    model = Transformer(SMALL.replace(norm_placement="post"), 0)
    own: dict[str, Tensor] = {}
    model.layers[1](seen["resid_post 1"], lambda site, _, tensor: own.update({site: tensor}))
    assert_close(seen["attn_scores 2"], seen["attn_scores 1"] + own["attn_scores"])


def test_added_queries_and_keys_multiply_each_other() -> None:
    seen = run(SMALL.replace(norm_placement="post", residual_attention="qk"))[2]
    model = Transformer(SMALL.replace(norm_placement="post"), 0)
    x = [run(SMALL.replace(norm_placement="post"))[0], seen["resid_post 1"]]
    q, k = (
        sum(model.layers[i].attention.split(x[i] @ model.layers[i].weights[name].T) for i in (0, 1))
        for name in ("W_Q", "W_K")
    )
    assert_close(seen["attn_scores 2"], (q @ k.transpose(-2, -1) / math.sqrt(8)).detach())


def test_a_soft_cap_bounds_the_logits() -> None:
    capped, plain = (scores(init_variance=30, logit_cap=cap) for cap in (5.0, 0.0))
    assert_close(capped, 5 * torch.tanh(plain / 5))
    assert float(capped.abs().max()) <= 5 < float(plain.abs().max())


def test_mix_ln_is_post_below_and_pre_above() -> None:
    _, output, seen = run(SMALL.replace(n_layers=8, norm_placement="mix"))
    assert [layer for layer in range(1, 9) if is_unit(seen[f"resid_post {layer}"])] == [1, 2]
    assert is_unit(output)


def test_keel_weighs_its_stream_by_twice_its_depth_from_the_second_layer_on() -> None:
    places = Config(n_layers=5, norm_placement="keel").design.sublayers
    assert [place.skip for place in places] == [1, 1, *[10] * 8]
    assert ["sum" in place.norms for place in places] == [False, *[True] * 9]
    assert all("input" in place.norms for place in places)


def unit(x: Tensor) -> Tensor:
    """Each token, or each head of it, at a second moment of 1."""
    return x / x.square().mean(-1, keepdim=True).sqrt()


def same(x: Tensor) -> Tensor:
    return x


def branches(
    layer: nn.Module, heads: Callable[[Tensor], Tensor], read: Callable[[Tensor], Tensor]
) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """A layer's attention and MLP written once more, with norms on four heads' q, k, v and before
    the last matrix."""
    W = layer.weights

    def attention(x: Tensor) -> Tensor:
        q, k, v = (
            heads((x @ W[name].T).unflatten(-1, (4, -1)).transpose(1, 2))
            for name in ("W_Q", "W_K", "W_V")
        )
        mixed = ((q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v).transpose(1, 2).flatten(2)
        return read(mixed) @ W["W_O"].T

    return attention, lambda x: read((x @ W["W_in"].T).relu() * math.sqrt(2)) @ W["W_out"].T


def hybrid(x: Tensor, layer: nn.Module) -> Tensor:
    attention, mlp = branches(layer, unit, same)
    y = unit(x + attention(x))
    return y + mlp(y)


def subln(x: Tensor, layer: nn.Module) -> Tensor:
    attention, mlp = branches(layer, same, unit)
    y = x + attention(unit(x))
    return y + mlp(unit(y))


def normformer(x: Tensor, layer: nn.Module) -> Tensor:
    y = x + unit(branches(layer, same, same)[0](unit(x)))
    return y + branches(layer, same, unit)[1](unit(y))


def ngpt(x: Tensor, layer: nn.Module) -> Tensor:
    for branch in branches(layer, same, same):
        x = unit(x + 0.05 * (unit(branch(x)) - x))
    return x


def keel(x: Tensor, layer: nn.Module) -> Tensor:
    for branch in branches(layer, same, same):
        x = unit(4 * x + branch(unit(x)))
    return x


BLOCKS = {block.__name__: block for block in (hybrid, subln, normformer, ngpt, keel)}


@pytest.mark.parametrize("placement", BLOCKS)
def test_a_block_is_the_one_of_its_paper(placement: str) -> None:
    config = SMALL.replace(n_layers=2, norm="rms", norm_epsilon=1e-12, norm_placement=placement)
    seen = run(config)[2]
    expected = BLOCKS[placement](seen["resid_post 1"], Transformer(config, 0).layers[1])
    assert_close(seen["resid_post 2"], expected.detach(), rtol=1e-4, atol=1e-4)


def test_the_second_hybrid_normalizes_the_first_layers_inputs_instead_of_its_sum() -> None:
    places = Config(n_layers=2, norm_placement="hybrid_star").design.sublayers
    assert [set(place.norms) for place in places] == [
        {"input", "heads"},
        {"input"},
        {"heads", "sum"},
        set(),
    ]


@pytest.mark.parametrize(("norm", "function"), [("dyt", torch.tanh), ("derf", torch.erf)])
def test_a_function_stands_where_a_norm_would(
    norm: str, function: Callable[[Tensor], Tensor]
) -> None:
    config = SMALL.replace(n_layers=2, norm=norm, norm_alpha=0.7)
    _, output, seen = run(config)
    attention, mlp = branches(Transformer(config, 0).layers[1], same, same)
    x = seen["resid_post 1"]
    y = x + attention(function(0.7 * x))
    y = y + mlp(function(0.7 * y))
    assert_close(seen["resid_post 2"], y.detach(), rtol=1e-4, atol=1e-4)
    assert_close(output, function(0.7 * seen["resid_post 2"]))


def test_layernorm_scaling_divides_by_the_root_of_the_layer() -> None:
    """Layer l of the scaled design reads what the plain one reads, over √l."""
    plain, scaled = (
        Transformer(SMALL.replace(norm_placement=p), 0).layers[2] for p in ("pre", "scaled_pre")
    )
    x = torch.randn(2, 8, 32)
    assert_close(scaled.branch_input(x, 0) * math.sqrt(3), plain.branch_input(x, 0))


def test_without_attention_a_layer_is_its_mlp() -> None:
    x, output, seen = run(SMALL.replace(attention="none", norm_placement="none", n_layers=1))
    assert torch.equal(seen["resid_mid 1"], x)
    assert set(seen) == {"embed 0", "resid_mid 1", "mlp_out 1", "resid_post 1"}
    assert_close(output, x + seen["mlp_out 1"])


@pytest.mark.parametrize(("scale", "divisor"), [("sqrt_d", math.sqrt(8)), ("d", 8.0)])
def test_the_divisor_of_the_logits(scale: str, divisor: float) -> None:
    assert_close(scores(attention_scale=scale) * divisor, scores(attention_scale="none"))


def test_qk_norm_bounds_the_logits() -> None:
    logits = scores(qk_norm=True, init_variance=1000, norm="rms")
    assert float(logits.abs().max()) <= math.sqrt(8) + 1e-4  # d_head / √d_head


@pytest.mark.parametrize(("fraction", "turned"), [(1.0, 8), (0.5, 4), (0.3, 2)])
def test_rotary_positions_turn_pairs_of_coordinates_as_complex_numbers(
    fraction: float, turned: int
) -> None:
    """Su et al. 2021, eq. 34, pairs i and i + half of the turned coordinates as in GPT-NeoX; the
    rest stays."""
    config = SMALL.replace(position="rotary", rope_base=100.0, rope_fraction=fraction)
    attention = Transformer(config, 0).layers[0].attention
    x, _, seen = run(config)
    x = torch.nn.functional.layer_norm(x, (32,), eps=1e-5)

    def heads(weight: Tensor) -> Tensor:
        split = (x @ weight.detach().T).reshape(2, 8, 4, 8).transpose(1, 2)
        plane = torch.complex(split[..., : turned // 2], split[..., turned // 2 : turned])
        angle = torch.arange(8.0)[:, None] * 100.0 ** (-torch.arange(0, turned, 2.0) / turned)
        plane = plane * torch.polar(torch.ones_like(angle), angle)
        return torch.cat([plane.real, plane.imag, split[..., turned:]], -1)

    expected = heads(attention.W_Q) @ heads(attention.W_K).transpose(-2, -1) / math.sqrt(8)
    assert_close(seen["attn_scores 1"], expected, atol=1e-5, rtol=1e-4)
    start = run(config.replace(position="none"))[2]["attn_scores 1"]
    assert_close(seen["attn_scores 1"].diagonal(dim1=-2, dim2=-1), start.diagonal(dim1=-2, dim2=-1))
    assert not torch.allclose(seen["attn_scores 1"], start, atol=0.1)


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (1, [2**-8]),
        (4, [2**-2, 2**-4, 2**-6, 2**-8]),
        (8, [2**-step for step in range(1, 9)]),
        (6, [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]),
        (3, [2**-4, 2**-8, 2**-2]),
    ],
)
def test_alibi_takes_each_heads_slope_times_the_distance(heads: int, slopes: list[float]) -> None:
    """Press et al. 2022, section 3; of 6 heads those of 4 and then every other of 8, as in their
    code."""
    config = SMALL.replace(d_model=48, n_heads=heads, causal=True)
    plain, alibi = (run(config.replace(position=name))[2] for name in ("none", "alibi"))
    distance = (torch.arange(8.0)[:, None] - torch.arange(8.0)).tril()
    taken = (plain["attn_scores 1"] - alibi["attn_scores 1"]).tril()
    assert_close(
        taken,
        (torch.tensor(slopes)[:, None, None] * distance).expand(2, -1, -1, -1),
        atol=1e-5,
        rtol=1e-5,
    )
    assert_close(alibi["pattern 1"].sum(-1), torch.ones(2, heads, 8))


def test_learned_positions_are_half_of_what_is_read_and_no_other_design_has_them_beside_its_own() -> (
    None
):
    plain, learned = (run(SMALL.replace(position=name))[0] for name in ("none", "learned"))
    added = math.sqrt(2) * learned - plain
    assert_close(added[0], added[1])  # the same in every sequence
    assert float(added.var()) == pytest.approx(1, rel=0.3)
    text_config = SMALL.replace(input="text")
    models = {
        name: Transformer(text_config.replace(position=name), 0)
        for name in ("none", "learned", "rotary")
    }
    assert [name for name, model in models.items() if model.P is None] == ["rotary"]
    inputs = batch.draw(text_config, 0)
    assert torch.equal(models["none"].embed(inputs), models["learned"].embed(inputs))
    assert torch.equal(models["rotary"].embed(inputs), models["rotary"].E[inputs.input])


def test_a_sentence_is_every_sequence_and_equal_characters_are_equal_rows() -> None:
    config = SMALL.replace(input="sentence", sentence="abcab", batch_size=3, position="rotary")
    inputs = batch.draw(config, 0, seeds=2)
    assert inputs.input.tolist() == [[0, 1, 2, 0, 1]] * 6
    assert inputs.target.shape == (6, 5, config.d_model)
    alone = batch.draw(config, 0)
    x = Transformer(config, 0).embed(alone)
    assert torch.equal(x[:, 0], x[:, 3])
    assert not torch.equal(x[:, 0], x[:, 2])
    assert torch.equal(x[0], x[2])


def test_a_model_without_any_positions() -> None:
    """Of text, too: what the tokens are in another order, the outputs are, and theory knows."""
    config = SMALL.replace(input="text", position="nope")
    model, inputs = Transformer(config, 0), batch.draw(config, 0)
    assert model.P is None
    x = model.embed(inputs)
    assert torch.equal(x, model.E[inputs.input])  # type: ignore[index]
    order = torch.randperm(config.n_ctx, generator=torch.Generator().manual_seed(0))
    assert_close(model(x[:, order]), model(x)[:, order], atol=1e-5, rtol=1e-4)
    read, expected = (
        of(config.replace(n_seeds=16))["token_correlation", "embed"] for of in (measure, predict)
    )
    assert abs(read.mean() - expected[0, 0]) < 3 * read.std() / 4
    added = predict(config.replace(position="none"))["token_correlation", "embed"]
    assert expected[0, 0] == pytest.approx(2 * added[0, 0])  # of which half is the positions'
    vectors = Config(n_layers=2, d_model=16, n_heads=2, n_ctx=4)
    assert torch.equal(
        *(
            Transformer(vectors.replace(position=name), 0).embed(batch.draw(vectors, 0))
            for name in ("none", "nope")
        )
    )


def test_half_of_each_layers_values_are_the_first_layers() -> None:
    """ResFormer: V_l becomes ½ (V_1 + V_l), V_1 as it was projected; the first layer is as it
    was."""
    config = SMALL.replace(value_residual=True)
    _, _, seen = run(config)
    layers, norm = (
        Transformer(config, 0).layers,
        partial(torch.nn.functional.layer_norm, normalized_shape=(32,)),
    )
    values = [
        norm(seen[f"resid_post {index}" if index else "embed 0"]) @ layer.attention.W_V.detach().T
        for index, layer in enumerate(layers)
    ]
    for index, layer in enumerate(layers):
        mixed = (values[0] + values[index]) / 2
        heads = seen[f"pattern {index + 1}"] @ mixed.reshape(2, 8, 4, 8).transpose(1, 2)
        expected = heads.transpose(1, 2).flatten(2) @ layer.attention.W_O.detach().T
        assert_close(seen[f"attn_out {index + 1}"], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("causal", [False, True])
def test_ssmax_is_a_factor_of_each_row(causal: bool) -> None:
    """s ln n, n the keys that a row sees."""
    plain, scaled = (
        scores(attention_scale=scale, ssmax_scale=0.7, causal=causal)
        for scale in ("sqrt_d", "ssmax")
    )
    n = torch.arange(1.0, 9) if causal else torch.full((8,), 8.0)
    assert_close(scaled, 0.7 * n.log()[:, None] * plain)


def test_qk_norm_over_all_heads_fixes_the_length_of_all_together_and_its_gain_is_a_factor() -> None:
    config = SMALL.replace(qk_norm=True, norm="rms", n_layers=1)
    attention = Transformer(config, 0).layers[0].attention
    x, _, seen = run(config.replace(qk_norm_over="all", qk_gain=3.0))
    x = torch.nn.functional.rms_norm(x, (32,))
    q, k = (
        torch.nn.functional.rms_norm(x @ weight.detach().T, (32,), eps=1e-5)
        .reshape(2, 8, 4, 8)
        .transpose(1, 2)
        for weight in (attention.W_Q, attention.W_K)
    )
    expected = 3 * q @ k.transpose(-2, -1) / math.sqrt(8)
    assert_close(seen["attn_scores 1"], expected, atol=1e-4, rtol=1e-4)
    by_head = run(config)[2]["attn_scores 1"]
    assert_close(run(config.replace(qk_gain=3.0))[2]["attn_scores 1"], 3 * by_head)
    assert not torch.allclose(seen["attn_scores 1"], 3 * by_head, atol=0.1)
    one = config.replace(n_heads=1)
    assert_close(run(one)[1], run(one.replace(qk_norm_over="all"))[1])


def test_ntk_is_the_same_function() -> None:
    standard, ntk = (
        run(SMALL.replace(parametrization=p, init_variance=1.7))[1] for p in ("standard", "ntk")
    )
    assert_close(standard, ntk, atol=1e-5, rtol=1e-5)


def test_mup_is_the_same_function_up_to_the_readout() -> None:
    config = Config(n_layers=1, d_model=256, n_heads=4, n_ctx=8, input="text", loss="next_token")
    standard, mup = (Transformer(config.replace(parametrization=p), 0) for p in ("standard", "mup"))
    inputs = batch.draw(config, 0)
    assert torch.equal(standard(standard.embed(inputs)), mup(mup.embed(inputs)))
    assert standard.W_U is not None
    assert mup.W_U is not None
    assert_close(mup.W_U, standard.W_U / 2)  # √(64 / 256)


@pytest.mark.parametrize("kind", ["gaussian", "correlated", "text"])
def test_every_input_has_unit_second_moment_and_its_own_overlap(kind: str) -> None:
    config = Config(
        n_layers=1, d_model=256, n_ctx=64, batch_size=32, input=kind, input_correlation=0.4
    )
    x = Transformer(config, 0).embed(batch.draw(config, 0)).detach()
    # text reuses about 60 embeddings of 256 coordinates; the others draw half a million numbers
    assert float(x.square().mean()) == pytest.approx(1, abs=0.03)
    overlap = (x.sum(1).square().sum(-1) - x.square().sum((1, 2))) / (64 * 63 * 256)
    codes = torch.tensor(text.prose().codes)
    share = torch.bincount(codes) / len(codes)
    expected = {"gaussian": 0.0, "correlated": 0.4, "text": float(share.square().sum()) / 2}
    assert float(overlap.mean()) == pytest.approx(expected[kind], abs=0.03)


def test_the_text_is_prose_and_the_next_character_is_the_target() -> None:
    prose = text.prose()
    assert len(prose.codes) > 400_000
    assert 90 < len(prose.vocabulary) < 200
    inputs = batch.draw(TEXT, 0)
    assert torch.equal(inputs.input[:, 1:], inputs.target[:, :-1])


def test_the_linear_loss_has_a_gradient_of_unit_norm() -> None:
    target = batch.draw(Config(batch_size=8), 0).target
    assert float(target.norm()) == pytest.approx(1, abs=4 / math.sqrt(2 * target.numel()))


def test_a_deeper_model_begins_with_the_shallower_one() -> None:
    runs = [run(SMALL.replace(n_layers=n))[2] for n in (2, 3, 5)]
    for shallow, deep in pairwise(runs):
        assert torch.equal(shallow["resid_post 2"], deep["resid_post 2"])


def test_layers_of_one_weight_get_the_sum_of_what_copies_get() -> None:
    """The same function; copies are parameters of their own, and a shared layer is one set of
    them."""
    config = SMALL.replace(bias_variance=1.0)
    inputs = batch.draw(config, 0)
    copied, shared = models = [
        Transformer(config.replace(layer_weights=kind), 0) for kind in ("copied", "shared")
    ]
    for model, count in zip(models, (3, 1), strict=True):
        model.loss(model(inputs.input), inputs).backward()
        assert len({layer.weights["W_in"].data_ptr() for layer in model.layers}) == count
    assert torch.equal(copied(inputs.input), shared(inputs.input))
    sizes = [sum(one.numel() for one in model.parameters()) for model in models]
    assert sizes[0] == 3 * sizes[1]
    for name, parameter in shared.layers[0].named_parameters():
        parts = [layer.get_parameter(name).grad for layer in copied.layers]
        assert_close(parameter.grad, sum(parts), rtol=1e-4, atol=1e-7)


def test_loops_pass_through_the_first_layers_again() -> None:
    """Layers of a shallower stack, in their order, and one set of parameters of each."""
    config = SMALL.replace(bias_variance=1.0)
    once = Transformer(config, 0)
    thrice = Transformer(config.replace(n_layers=9, layer_weights="looped", n_loops=3), 0)
    x = start = batch.draw(config, 0).input
    for _ in range(3):
        x, _ = once.through(once.layers, x)
    assert torch.equal(thrice.finish(thrice.through(thrice.layers, start)[0]), once.finish(x))
    sizes = [sum(one.numel() for one in model.parameters()) for model in (once, thrice)]
    assert sizes[0] == sizes[1]
    assert thrice.config.sizes.n_parameters == config.sizes.n_parameters


@pytest.mark.parametrize("megabytes", ["400", "0.01"])
@pytest.mark.parametrize(("weights", "unique"), [("shared", 1), ("looped", 2), ("looped", 3)])
def test_a_shared_layers_gradient_is_one_number(
    weights: str, unique: int, megabytes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether activations are kept or computed twice, and without leaving a gradient of weights,
    biases or a tied readout."""
    monkeypatch.setenv("EXPLORER_MAX_ACTIVATION_MB", megabytes)
    config = TEXT.replace(
        n_layers=6,
        n_seeds=1,
        layer_weights=weights,
        n_loops=6 // unique,
        bias_variance=1.0,
        readout="tied",
    )
    assert bool(config.sizes.block) == (megabytes == "0.01")
    model, inputs = Transformer(config, 0), batch.draw(config, 0)
    found = Pass(config, 0).observe(model, inputs)[0]
    assert all(one.grad is None for one in model.parameters())
    model.loss(model(model.embed(inputs)), inputs).backward()
    for name in model.layers[0].weights:
        expected = [float(layer.weights[name].grad.norm()) for layer in model.layers]
        assert found["parameter_gradient", name] == pytest.approx(expected, rel=1e-4)
        assert len({*expected}) == unique


def test_biases_are_drawn_by_their_matrixs_fan_in() -> None:
    """As torch's U(±1/√fan_in) in variance, 1/(3 fan_in)."""
    config = Config(n_layers=8, d_model=128, mlp="gated", bias_variance=1 / 3)
    layers = Transformer(config, 0).layers
    assert [len(layer.biases) for layer in layers] == [3] * 8
    for name, fan_in in (("b_in", 128), ("b_gate", 128), ("b_out", 512)):
        drawn = torch.stack([getattr(layer.mlp, name).detach() for layer in layers])
        error = math.sqrt(2 / drawn.numel())
        assert float(drawn.square().mean()) * 3 * fan_in == pytest.approx(1, abs=4 * error), name
    assert not Transformer(config.replace(bias_variance=0), 0).layers[0].biases


def test_a_gate_has_a_bias_where_all_matrices_have() -> None:
    config = SMALL.replace(
        attention_gate="coordinate", bias_variance=1.0, biases="all", mlp="gated"
    )
    layer = Transformer(config, 0).layers[0]
    assert list(layer.biases) == ["b_Q", "b_K", "b_V", "b_O", "b_G", "b_gate", "b_in", "b_out"]
    without = Transformer(config.replace(attention_gate="none", biases="mlp"), 0).layers[0]
    assert list(without.biases) == ["b_gate", "b_in", "b_out"]
    x, seen = torch.randn(2, 8, 32), []
    with torch.no_grad():
        layer.attention.b_O.zero_()
        seen.append(layer.attention(x, ignore, ())[0])
        layer.attention.b_G.fill_(-1e4)
    assert seen[0].abs().max() > 0
    assert not layer.attention(x, ignore, ())[0].any()  # the gates are shut


@pytest.mark.parametrize("position", ["none", "rotary"])
@pytest.mark.parametrize(("readout", "ratio"), [("tied", 1.0), ("tied_scaled", 32**-0.5)])
@pytest.mark.parametrize("masks", [False, True])
def test_a_tied_readout_is_the_embedding(
    readout: str, position: str, ratio: float, masks: bool
) -> None:
    """Over a character's part of the stream it is 1, or 1/√d; one parameter, whose gradient is the
    sum of two."""
    config = TEXT.replace(position=position, input_second_moment=0.3)
    inputs = batch.draw(config, 0)
    separate, tied = (
        Transformer(config.replace(readout=name), 0, masks=masks) for name in ("separate", readout)
    )
    assert "W_U" not in dict(tied.named_parameters())
    assert torch.allclose(separate.embed(inputs), tied.embed(inputs), rtol=1e-5)
    tied.P = None if tied.P is None else nn.Parameter(0 * tied.P)
    assert_close(tied.embed(inputs) * ratio, tied.E[inputs.input])
    tied.P = separate.P
    with torch.no_grad():
        separate.W_U.copy_(tied.E[: len(separate.W_U)])
    losses = [model.loss(model(model.embed(inputs)), inputs) for model in (separate, tied)]
    assert_close(*losses)
    for loss in losses:
        loss.backward()
    both = separate.E.grad * (separate.E.detach() / tied.E.detach())
    both[: len(separate.W_U)] += separate.W_U.grad
    assert_close(tied.E.grad, both, rtol=1e-3, atol=1e-6)


def test_a_tied_readout_has_one_rate() -> None:
    config = TEXT.replace(readout="tied")
    with pytest.raises(
        ConfigError,
        match=r"readout = tied needs parametrization = standard or ntk, .*; got .* = mup",
    ):
        config.replace(parametrization="mup")
    assert config.replace(loss="linear").accepts(parametrization="mup")


@pytest.mark.parametrize(
    "choices", [{}, {"attention": "none"}, {"input_second_moment": 4.0}], ids=str
)
def test_admins_factors_are_found_in_the_first_pass(choices: dict[str, Any]) -> None:
    """1, then by each branch so far √(E x_0² + Σ E F²), with those below in place; a second pass
    leaves them."""
    config = SMALL.replace(norm_placement="post", residual="admin_profiled", **choices)
    model, inputs = Transformer(config, 0), batch.draw(config, 0)
    x, seen = model.embed(inputs), {}
    found = torch.stack([layer.skip for layer in model.layers]).flatten()
    with torch.no_grad():
        model(x, lambda site, layer, tensor: seen.update({(layer, site): tensor}))
    total, expected = float(x.square().mean()), []
    for layer in (1, 2, 3):
        for site in ("attn_out", "mlp_out"):
            expected.append(math.sqrt(total) if expected else 1.0)
            total += float(seen[layer, site].square().mean()) if (layer, site) in seen else 0.0
    there = slice(None) if "attention" not in choices else slice(1, None, 2)
    # of the first branch that there is
    expected[1] = 1.0 if "attention" in choices else expected[1]
    assert_close(found[there], torch.tensor(expected)[there])
    model.embed(batch.draw(config, 1))
    assert torch.equal(found, torch.stack([layer.skip for layer in model.layers]).flatten())
    again = Transformer(config, 1)
    again.load_state_dict(model.state_dict())
    again.embed(batch.draw(config, 1))
    assert torch.equal(found, torch.stack([layer.skip for layer in again.layers]).flatten())


def saved_bytes(config: Config) -> int:
    """What autograd really keeps of a forward pass, weights not counted."""
    model, inputs = Transformer(config, 0), batch.draw(config, 0)
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.loss(model(model.embed(inputs).detach().requires_grad_()), inputs)
    return sum(
        tensor.untyped_storage().nbytes()
        for pointer, tensor in kept.items()
        if pointer not in weights
    )


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"norm_placement": "none"},
        {
            "norm_placement": "peri",
            "norm": "rms",
            "qk_norm": True,
            "activation": "gelu",
            "causal": True,
            "parametrization": "ntk",
            "residual": "rezero",
        },
        {"n_ctx": 512, "n_heads": 8},
        {"residual_attention": "scores", "norm_placement": "post"},
        {"residual_attention": "qk", "logit_cap": 50},
        {"attention": "none"},
        {"residual": "layer_scale"},
        {"n_layers": 50, "d_model": 64, "n_ctx": 32},
        {"activation_rescaled": False},
        {"mlp_ratio": 1},
        {"stream": "parallel"},
        {"stream": "hyper", "n_streams": 2},
        {"stream": "manifold"},
        {"stream": "manifold", "n_streams": 8, "d_model": 64},
        {"stream": "depth_attention"},
        {"attention_gate": "coordinate"},
        {"sink": "learned"},
        {"head_size": 256, "n_heads": 8, "n_kv_heads": 1},
        {"head_size": 8, "n_heads": 8},
        {"position": "rotary", "value_residual": True, "attention_scale": "ssmax"},
    ],
)
def test_the_memory_estimate_holds(choices: dict[str, object]) -> None:
    config = Config(n_layers=4).replace(**choices)
    assert 1 / 1.6 < config.sizes.activation_bytes / saved_bytes(config) < 1.6


def test_noise_that_nobody_asks_for_any_more_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "SPARE", 0)
    deep = noise.stack(0, "of a deep model", 8, (4, 4))
    noise.settle()
    assert noise.stack(0, "of a deep model", 2, (4, 4)).data_ptr() == deep.data_ptr(), (
        "what was just used is kept"
    )
    assert noise.settle(), "but not the layers that were not used since"
    shallow = noise.stack(0, "of a deep model", 2, (4, 4))
    assert shallow.untyped_storage().nbytes() == shallow.nbytes
    assert torch.equal(shallow, deep[:2])
    noise.settle()
    assert noise.settle(), "nor what was not used at all"
    assert not noise.settle()
    assert torch.equal(noise.stack(0, "of a deep model", 8, (4, 4)), deep)


def test_a_map_keeps_the_noise_of_its_deeper_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "SPARE", 0)
    deep = noise.stack(0, "of a map's deep cell", 8, (4, 4))
    noise.settle()
    for _ in range(3):
        with noise.keeping():
            noise.stack(0, "of a map's deep cell", 2, (4, 4))
            assert not noise.settle()
        assert noise.stack(0, "of a map's deep cell", 8, (4, 4)).data_ptr() == deep.data_ptr()
    noise.settle()
    assert noise.settle(), "after the map it goes, as any other"
