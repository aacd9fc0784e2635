"""Scale rules, residual rules, activations and noise: each against its closed form."""

import math
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from explorer import Config, ConfigError
from explorer.model import draw_weights, noise
from explorer.model.functions import activation
from explorer.schemes.activation import second_moment
from explorer.schemes.distribution import CUT_VARIANCE
from explorer.schemes.parametrization import COMPLETEP
from explorer.schemes.residual import RESIDUALS, profiled_factor
from explorer.schemes.scale import SCALE_RULES


def variances(config: Config) -> dict[str, float]:
    """Variance of the entries of each matrix of a layer."""
    return {name: matrix.variance for name, matrix in config.design.matrices.items()}


@pytest.mark.parametrize(
    ("choices", "name", "variance"),
    [
        ({}, "W_in", 1 / 64),
        ({}, "W_out", 1 / 256),
        ({"scale_rule": "xavier"}, "W_in", 2 / (64 + 256)),
        ({"scale_rule": "he"}, "W_out", 2 / 256),
        ({"scale_rule": "fan_out"}, "W_out", 1 / 64),
        ({"init_variance": 3}, "W_Q", 3 / 64),
    ],
    ids=str,
)
def test_variances_by_hand(choices: dict[str, Any], name: str, variance: float) -> None:
    assert variances(Config(d_model=64, **choices))[name] == variance


def test_attention_and_mlp_have_a_factor_of_their_own_each() -> None:
    plain, changed = (
        variances(Config(mlp="gated", init_variance=2, **factors))
        for factors in ({}, {"attention_variance": 3, "mlp_variance": 0.5})
    )
    assert {name: changed[name] / plain[name] for name in plain} == {
        **dict.fromkeys(("W_Q", "W_K", "W_V", "W_O"), 3),
        **dict.fromkeys(("W_gate", "W_in", "W_out"), 0.5),
    }


def test_an_mlp_has_a_whole_number_of_units() -> None:
    pairs = ((256, 4), (256, 8 / 3), (1024, 43 / 16), (8, 0.25))
    assert [Config(d_model=d, mlp_ratio=ratio).d_mlp for d, ratio in pairs] == [1024, 683, 2752, 2]
    config = Config(d_model=64, mlp_ratio=8 / 3, n_layers=1)
    assert draw_weights(config, 0)["W_in"].shape == (1, 171, 64)
    assert config.sizes.n_parameters == 4 * 64**2 + 2 * 64 * 171


def test_bert_draws_everything_alike() -> None:
    for config in (
        Config(scale_rule="bert"),
        Config(scale_rule="bert", d_model=64, mlp_ratio=2, n_layers=3),
    ):
        assert set(variances(config).values()) == {0.02**2}


def test_gpt2_shrinks_the_last_matrix_of_each_branch() -> None:
    """Of twelve layers to 0.004082, the number that GPT-2's authors arrived at."""
    found = {
        name: math.sqrt(variance)
        for name, variance in variances(Config(scale_rule="gpt2", n_layers=12)).items()
    }
    assert found["W_O"] == found["W_out"] == pytest.approx(0.004082, abs=5e-7)
    assert {found[name] for name in ("W_Q", "W_K", "W_V", "W_in")} == {0.02}


@pytest.mark.parametrize(("rule", "usual"), [("mitchell", 1 / 64), ("torchtitan", 0.02**2)])
def test_the_last_matrices_are_smaller_the_higher_their_layer(rule: str, usual: float) -> None:
    """OLMo: 1/√(2 fan_in l); torchtitan: 0.02/√(2 l). The draws are those of the rule without it,
    times (2 l)^(−½)."""
    config = Config(scale_rule=rule, n_layers=3, d_model=64)
    assert config.design.matrices["W_O"].variance == config.design.matrices["W_Q"].variance == usual
    assert config.design.last == (1 / 2, 1 / 2, 1 / 4, 1 / 4, 1 / 6, 1 / 6)
    plain = draw_weights(config.replace(scale_rule="lecun" if rule == "mitchell" else "bert"), 0)
    for name, weight in draw_weights(config, 0).items():
        factor = (
            torch.tensor([1 / 2, 1 / 4, 1 / 6]).sqrt()[:, None, None]
            if name in ("W_O", "W_out")
            else 1.0
        )
        torch.testing.assert_close(weight, plain[name] * factor)


def test_t5_puts_the_divisor_into_the_queries() -> None:
    """std: q (d d_head)^-½, k and v and wi d^-½, o (H d_head)^-½, wo d_mlp^-½."""
    config = Config(scale_rule="t5", d_model=512, n_heads=8)
    found = variances(config)
    assert found["W_Q"] == pytest.approx(1 / (512 * 64))
    assert found["W_K"] == found["W_V"] == found["W_O"] == found["W_in"] == 1 / 512
    assert found["W_out"] == 1 / 2048


@pytest.mark.parametrize("parametrization", ["standard", "ntk"])
def test_only_mup_treats_widths_differently(parametrization: str) -> None:
    config = Config(d_model=512, parametrization=parametrization)
    assert config.design.readout_variance == 1 / 512
    for quantity in ("sgd", "adam", "muon", "muon_rms", "epsilon"):
        assert set(config.design.factors(quantity).values()) == {1.0}


def test_mup_by_the_table_of_its_paper() -> None:
    """Yang et al. 2022, eq. 4 and table 3 at eight times the base width; at the base width it is
    the standard."""
    config = Config(d_model=512, parametrization="mup")
    assert variances(config) == variances(config.replace(parametrization="standard"))
    assert config.design.readout_variance == 1 / 512 / 8
    adam, sgd = config.design.factors("adam"), config.design.factors("sgd")
    assert adam == {"input": 1, "hidden": 1 / 8, "vector": 1, "output": 1 / 8}
    assert sgd == {"input": 8, "hidden": 1, "vector": 8, "output": 1 / 8}
    assert config.design.factors("muon")["hidden"] == 1
    assert config.design.factors("muon_rms")["hidden"] == pytest.approx(8**-0.5)
    assert set(config.design.factors("epsilon").values()) == {1.0}
    base = config.replace(d_model=64)
    assert base.design.readout_variance == 1 / 64
    assert set(base.design.factors("adam").values()) == {1.0}


def test_completep_by_its_authors_code() -> None:
    """Eight times the base width, six times the base depth, α = 1: rates of μP, every ε over 8 · 6.

    Their readout has the multiplier 1/8 where ours is in the matrix, whose gradient is therefore 8
    times theirs."""
    config = Config(d_model=512, n_layers=12, parametrization="completep")
    assert config.design.factors("adam") == {
        "input": 1,
        "hidden": 1 / 8,
        "vector": 1,
        "output": 1 / 8,
    }
    assert config.design.factors("epsilon") == pytest.approx(
        {"input": 1 / 48, "hidden": 1 / 48, "vector": 1 / 48, "output": 1 / 6}
    )
    assert config.design.factors("sgd")["hidden"] == 6
    assert config.design.factors("muon") == dict.fromkeys(COMPLETEP, 1.0)
    assert set(config.design.branches) == {2 / 12}
    assert set(config.replace(base_depth=3, alpha=0.5).design.branches) == {0.5 * 3 / 12}
    assert config.replace(base_depth=12).design.factors("epsilon")["hidden"] == 1 / 8


def test_completep_is_the_only_multiplier_for_the_depth() -> None:
    config = Config(parametrization="completep")
    assert {name for name in RESIDUALS if config.accepts(residual=name)} == {"constant"}
    with pytest.raises(
        ConfigError, match=r"parametrization = completep needs .* got residual = deepnorm"
    ) as refused:
        config.replace(residual="deepnorm")
    assert refused.value.fixes == {"residual": "constant", "parametrization": "mup"}


@pytest.mark.parametrize(
    ("rule", "make"),
    [
        ("torch_default", lambda: nn.TransformerEncoderLayer(256, 4, 1024, bias=False)),
        (
            "torch_transformer",
            lambda: nn.Transformer(256, 4, 1, 1, 1024, batch_first=True).encoder.layers[0],
        ),
    ],
    ids=["a layer alone", "a layer of a stack"],
)
def test_torch_draws_what_its_rows_say(rule: str, make: Callable[[], nn.Module]) -> None:
    """The variances of a freshly made encoder layer, within four standard errors of a variance of
    uniform draws."""
    torch.manual_seed(0)
    layer, expected = make(), variances(Config(scale_rule=rule, d_model=256))
    found = {
        "W_Q": layer.self_attn.in_proj_weight,
        "W_in": layer.linear1.weight,
        "W_out": layer.linear2.weight,
        "W_O": layer.self_attn.out_proj.weight,
    }
    assert expected["W_V"] == expected["W_K"] == expected["W_Q"]
    for name, weight in found.items():
        error = expected[name] * math.sqrt(0.8 / weight.numel())  # Var of u² over (E u²)² is 4/5
        assert float(weight.detach().var()) == pytest.approx(expected[name], abs=4 * error), name


def same(config: Config) -> tuple[float, float, Mapping[str, float]]:
    """Factors on stream and branch, which are those of every sublayer, and on the matrices."""
    skip, branch, drawn = config.design.skips, config.design.branches, config.design.rule.drawn
    assert len(skip) == len(branch) == 2 * config.n_layers
    (one,), (other,) = set(skip), set(branch)
    return one, other, drawn


T_FIXUP = dict.fromkeys(("W_V", "W_O", "W_in", "W_out"), pytest.approx(0.67 / 2))
LOOPED = {"residual": "looped", "n_layers": 36, "alpha": 0.3}


@pytest.mark.parametrize(
    ("choices", "skip", "branch", "drawn"),
    [
        ({"residual": "constant", "alpha": 0.3}, 1, 0.3, {}),
        ({"residual": "scaled_skip", "alpha": 0.3}, 0.3, 1, {}),
        ({"residual": "absent"}, 0, 1, {}),
        ({"residual": "inverse_sqrt_depth", "n_layers": 32}, 1, 1 / 8, {}),
        ({"residual": "inverse_depth", "n_layers": 32}, 1, 1 / 64, {}),
        ({"residual": "layer_scale", "n_layers": 12}, 1, 0.1, {}),
        ({"residual": "layer_scale", "n_layers": 18}, 1, 0.1, {}),
        ({"residual": "layer_scale", "n_layers": 24}, 1, 1e-5, {}),
        ({"residual": "layer_scale", "n_layers": 36}, 1, 1e-6, {}),
        # λ / (N √L) for N loops of L layers
        (LOOPED, 1, pytest.approx(0.3 / 6), {}),
        (LOOPED | {"layer_weights": "looped", "n_loops": 1}, 1, pytest.approx(0.3 / 6), {}),
        (LOOPED | {"layer_weights": "looped", "n_loops": 4}, 1, pytest.approx(0.3 / (4 * 3)), {}),
        (LOOPED | {"layer_weights": "shared"}, 1, pytest.approx(0.3 / 36), {}),
        (LOOPED | {"layer_weights": "copied"}, 1, pytest.approx(0.3 / 36), {}),
        # ω² is the variance of the branches so far over their number's logarithm
        ({"residual": "admin", "n_layers": 12}, pytest.approx(2.6013, abs=5e-5), 1, {}),
        ({"residual": "t_fixup", "n_layers": 16}, 1, 1, T_FIXUP),
    ],
    ids=str,
)
def test_a_residual_rule_has_the_constants_of_its_paper(
    choices: dict[str, Any], skip: float, branch: float, drawn: dict[str, float]
) -> None:
    assert same(Config(**choices)) == (skip, branch, drawn)


@pytest.mark.parametrize(("depth", "alpha", "beta"), [(12, 2.2134, 0.3195), (1000, 6.6874, 0.1057)])
def test_deepnorm_has_the_constants_of_its_paper(depth: int, alpha: float, beta: float) -> None:
    config = Config(residual="deepnorm", n_layers=depth, d_model=64)
    skip, branch, drawn = same(config)
    shrink = drawn["W_V"]
    assert (skip, branch, shrink) == (
        pytest.approx(alpha, abs=5e-5),
        1,
        pytest.approx(beta, abs=5e-5),
    )
    plain, shrunk = variances(config.replace(residual="constant")), variances(config)
    assert shrunk["W_Q"] == plain["W_Q"]
    assert shrunk["W_O"] == pytest.approx(shrink**2 * plain["W_O"])


@pytest.mark.parametrize("depth", [1, 6, 100])
def test_deepnorm_of_two_stacks_of_one_depth(depth: int) -> None:
    """Figure 2 of Wang et al. 2022, N = M."""
    root = depth ** (5 / 16)
    for residual, constants in (
        ("deepnorm_encoder", (0.81 * root, 0.87 / root)),
        ("deepnorm_decoder", ((3 * depth) ** 0.25, (12 * depth) ** -0.25)),
    ):
        skip, branch, drawn = same(Config(residual=residual, n_layers=depth))
        assert (skip, drawn["W_O"]) == pytest.approx(constants)
        assert (branch, set(drawn)) == (1, {"W_V", "W_O", "W_in", "W_out"})


def test_admins_profiled_factors_are_the_root_of_what_is_below_and_need_a_norm_on_each_sum() -> (
    None
):
    assert [profiled_factor(below, total) for below, total in ((0, 9.0), (1, 4.0), (2, 6.25))] == [
        1.0,
        2.0,
        2.5,
    ]
    config = Config(norm_placement="post", residual="admin_profiled")
    assert same(config)[:2] == (1, 1)  # until they are found
    assert not config.accepts(norm_placement="hybrid")
    with pytest.raises(
        ConfigError, match=r"residual = admin_profiled needs .* got norm_placement = pre"
    ) as refused:
        config.replace(norm_placement="pre")
    assert refused.value.fixes == {"norm_placement": "post", "residual": "admin"}


def test_scaled_init_is_gpt2s_shrinking_on_any_scale_rule() -> None:
    bert = variances(Config(scale_rule="bert", residual="scaled_init", n_layers=12))
    assert bert == pytest.approx(variances(Config(scale_rule="gpt2", n_layers=12)))


def test_fixup_has_the_constants_of_its_paper() -> None:
    """2N = 8 branches of m = 2 matrices: the first by 8^(−1/(2m − 2)), the last zero."""
    fixup, plain = (variances(Config(residual=rule, n_layers=4)) for rule in ("fixup", "constant"))
    ratio = {name: fixup[name] / plain[name] for name in plain}
    assert ratio == pytest.approx(
        {"W_Q": 1, "W_K": 1, "W_V": 1 / 8, "W_O": 0, "W_in": 1 / 8, "W_out": 0}
    )


def test_a_gate_has_the_variance_of_the_matrix_beside_it_unless_a_rule_names_that_one() -> None:
    """Fixup's branch of m = 3 matrices: 8^(−1/4). DeepNorm's authors do not scale the gate."""
    for rule in SCALE_RULES:
        found = variances(Config(mlp="gated", scale_rule=rule))
        assert found["W_gate"] == found["W_in"], rule
        assert "W_gate" not in variances(Config(scale_rule=rule))
    gated, plain = Config(mlp="gated"), Config()
    assert gated.sizes.n_parameters - plain.sizes.n_parameters == 12 * 256 * 1024
    fixup, deepnorm, usual = (
        variances(Config(mlp="gated", residual=rule, n_layers=4))
        for rule in ("fixup", "deepnorm", "constant")
    )
    assert [
        fixup[name] / usual[name] for name in ("W_V", "W_gate", "W_in", "W_out")
    ] == pytest.approx([1 / 8, 8**-0.5, 8**-0.5, 0])
    assert [deepnorm[name] / usual[name] for name in ("W_gate", "W_in")] == pytest.approx(
        [1, 32**-0.5]
    )


@pytest.mark.parametrize(
    ("name", "moment"),
    [
        ("gelu_tanh", 0.4251937110),
        ("quick", 0.4219528069),
        ("silu", 0.3557755198),
        ("relu", 0.5),
        ("relu2", 1.5),
        ("gelu", 1 / 3 + 1 / (2 * math.pi * math.sqrt(3))),
        ("elu", 0.6449454175),
        ("tanh", 0.3942944904),
        ("sigmoid", 0.2933790359),
        ("selu", 1.0),
        ("identity", 1.0),
    ],
)
def test_activation_moments(name: str, moment: float) -> None:
    # torch rounds SELU's two constants to float32
    assert second_moment(name) == pytest.approx(moment, abs=1e-7 if name == "selu" else 1e-9)
    z = torch.from_numpy(np.random.default_rng(0).standard_normal(400_000))
    squares = activation(Config(activation=name).design)(z).square()
    assert float(squares.mean()) == pytest.approx(
        1, abs=4 * float(squares.std()) / math.sqrt(len(z))
    )


@pytest.mark.parametrize("distribution", ["normal", "uniform", "truncated_normal"])
def test_noise_has_unit_variance_in_every_distribution(distribution: str) -> None:
    z = noise.stack(0, "variance", 4, (500, 500), distribution).double()
    fourth = float((z**4).mean())
    error = math.sqrt((fourth - 1) / z.numel())
    assert float(z.square().mean()) == pytest.approx(1, abs=4 * error)
    assert float(z.mean()) == pytest.approx(0, abs=4e-3)
    bound = {
        "normal": math.inf,
        "uniform": math.sqrt(3),
        "truncated_normal": 2 / math.sqrt(CUT_VARIANCE),
    }
    assert float(z.abs().max()) <= bound[distribution] + 1e-5


def test_truncation_is_corrected_by_the_published_factor() -> None:
    assert pytest.approx(0.7737413035, abs=1e-9) == CUT_VARIANCE


def test_noise_is_common_and_a_deeper_stack_begins_with_the_shallower_one() -> None:
    shallow = noise.stack(3, "W_Q", 2, (24, 40)).clone()
    deep = noise.stack(3, "W_Q", 5, (24, 40))
    assert torch.equal(shallow, deep[:2])
    assert noise.stack(3, "W_Q", 4, (24, 40)).data_ptr() == deep.data_ptr()  # nothing drawn again
    assert not torch.equal(noise.stack(4, "W_Q", 2, (24, 40)), shallow)
    assert not torch.equal(noise.stack(3, "W_K", 2, (24, 40)), shallow)


def test_the_store_forgets_what_memory_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPLORER_NOISE_MB", "1")
    for index in range(8):
        noise.stack(index, "forget", 1, (100, 1000))
    assert noise.held() <= 1e6


def test_drawing_ends_when_told() -> None:
    calls = []

    def check() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        noise.stack(99, "endless", 1000, (8, 8), check=check)
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("distribution", "parametrization"), list(product(["normal", "uniform"], ["standard", "ntk"]))
)
def test_weights_have_the_variance_that_the_config_asks_for(
    distribution: str, parametrization: str
) -> None:
    config = Config(
        n_layers=8,
        d_model=128,
        init_variance=2,
        scale_rule="xavier",
        distribution=distribution,
        parametrization=parametrization,
    )
    for name, weight in draw_weights(config, 0).items():
        fan_in, fan_out = config.design.shapes[name]
        expected = 1.0 if parametrization == "ntk" else config.design.matrices[name].variance
        assert weight.shape == (8, fan_out, fan_in)
        error = expected * math.sqrt(2 / weight.numel())
        assert float(weight.double().square().mean()) == pytest.approx(expected, abs=4 * error)


def test_a_changed_scale_only_rescales() -> None:
    one, four = (
        draw_weights(Config(n_layers=2, d_model=32, init_variance=v), 0)["W_O"] for v in (1, 4)
    )
    assert torch.equal(2 * one, four)
