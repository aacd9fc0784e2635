"""Theory against measurement, over seeds: tolerances from standard errors plus a stated allowance
for finite width.

Every comparison that passes is also made with the prediction off by three per cent, and must fail
then. The designs have files of their own."""

from typing import Any

import numpy as np
import pytest
from trial import SIZES, Array, agrees, both, by_layer

from explorer import Config
from explorer.theory import predict
from explorer.vocabulary import STATISTICS

SHARP = {
    # second order in 1/256 and in 1/64 over 8 branches: half a per cent, one for gradients by the
    # weights
    ("second_moment", "resid_post"): 0.005,
    ("activation_gradient", "resid_mid"): 0.005,
    ("logit_std", "attn_scores"): 0.005,
    ("attention_entropy", "pattern"): 0.005,
    ("parameter_gradient", "W_O"): 0.01,
    ("parameter_gradient", "W_in"): 0.01,
}


@pytest.fixture(scope="module")
def quiet() -> Any:
    """Branches scaled by 1/√(2N): little chance in it, so that a small error would show."""
    return both(Config(**{**SIZES, "n_layers": 4}, residual="inverse_sqrt_depth", n_seeds=40))


@pytest.mark.parametrize(("statistic", "site"), SHARP)
def test_sharp_agreement_that_refuses_three_per_cent(quiet: Any, statistic: str, site: str) -> None:
    found, expected = by_layer(*quiet, statistic, site)
    allowance = SHARP[statistic, site]
    assert agrees(found, expected, allowance)
    wrong = 1.03**2 if statistic == "parameter_gradient" else 1.03
    assert not agrees(found, wrong * expected, allowance)
    assert not agrees(found, expected / wrong, allowance)


SHARPER: dict[str, tuple[dict[str, Any], str, str, float]] = {
    "gates by coordinate": ({"attention_gate": "coordinate"}, "second_moment", "attn_out", 1.03),
    "gates by head": ({"attention_gate": "head", "n_seeds": 64}, "second_moment", "attn_out", 1.03),
    "a sink, causal": ({"sink": "zero", "causal": True}, "second_moment", "attn_out", 1.03),
    "gates' gradient": ({"attention_gate": "coordinate"}, "parameter_gradient", "W_G", 1.05),
    "biases' values": (
        {"biases": "all", "bias_variance": 9.0, "n_ctx": 32},
        "second_moment",
        "attn_out",
        1.03,
    ),
    "biases' logits, rotary": (
        {"biases": "all", "bias_variance": 128.0, "position": "rotary"},
        "logit_std",
        "attn_scores",
        1.03,
    ),
    "W_Q beside biases": (
        {"biases": "all", "bias_variance": 128.0, "n_seeds": 32},
        "parameter_gradient",
        "W_Q",
        1.05,
    ),
    "W_K beside biases": (
        {"biases": "all", "bias_variance": 128.0, "n_seeds": 32},
        "parameter_gradient",
        "W_K",
        1.05,
    ),
    "W_K beside biases, rotary, causal": (
        {"biases": "all", "bias_variance": 64.0, "position": "rotary", "causal": True},
        "parameter_gradient",
        "W_K",
        1.1,
    ),
    "W_V beside biases, causal": (
        {"biases": "all", "bias_variance": 128.0, "causal": True},
        "parameter_gradient",
        "W_V",
        1.05,
    ),
    "a sink's gradient": (
        {"sink": "learned", "causal": True, "n_heads": 16, "n_seeds": 32},
        "parameter_gradient",
        "sink",
        1.2,
    ),
    "one key-value head": ({"n_kv_heads": 1, "head_size": 128}, "parameter_gradient", "W_V", 1.05),
    "one head of keys": ({"n_kv_heads": 1, "head_size": 128}, "parameter_gradient", "W_K", 1.05),
}


@pytest.mark.parametrize("name", SHARPER)
def test_attention_alone_and_what_it_would_refuse(name: str) -> None:
    """Many short sequences of tokens that are half alike: little chance."""
    choices, statistic, site, wrong = SHARPER[name]
    config = Config(
        **{
            "n_layers": 1,
            "n_heads": 4,
            "n_ctx": 16,
            "batch_size": 16,
            "input": "correlated",
            "n_seeds": 16,
            **choices,
        }
    )
    found, expected = by_layer(*both(config), statistic, site)
    assert agrees(found, expected, 0.01), (found.mean(0), expected)
    assert not agrees(found, wrong**2 * expected, 0.01)
    assert not agrees(found, expected / wrong**2, 0.01)


def test_token_correlation_sharply() -> None:
    """With sigmoid's large mean tokens become alike at once, by the same in every draw."""
    config = Config(**{**SIZES, "n_layers": 2}, activation="sigmoid", n_seeds=32)
    found, expected = by_layer(*both(config), "token_correlation", "resid_post")
    assert agrees(found, expected, 0.001, absolute=True)
    assert not agrees(found, 1.03 * expected, 0.001, absolute=True)
    assert not agrees(found, expected / 1.03, 0.001, absolute=True)


@pytest.mark.parametrize("norm", ["dyt", "derf"])
@pytest.mark.parametrize("causal", [False, True])
def test_a_function_in_a_norms_place_sharply(norm: str, causal: bool) -> None:
    """What a wrong α, or the slope's square at 0 in place of its mean, would give is refused."""
    config = Config(
        **{**SIZES, "n_layers": 3}, norm=norm, norm_alpha=1.0, causal=causal, n_seeds=12
    )
    measured, predicted = both(config)
    for statistic, site in (("second_moment", "mlp_out"), ("activation_gradient", "embed")):
        found, expected = by_layer(measured, predicted, statistic, site)
        wrong = predict(config.replace(norm_alpha=1.1))[statistic, site][0]
        assert agrees(found, expected, 0.01), (statistic, found.mean(0), expected)
        assert not agrees(found, wrong, 0.01), (statistic, found.mean(0), wrong)


def test_a_function_of_every_sum_is_measured_only() -> None:
    predicted = predict(Config(**SIZES, norm="dyt", norm_placement="post"))
    assert all(np.isnan(value).all() for value in predicted.values.values())
    assert {predicted.notes[name] for name in STATISTICS} == {predicted.notes["second_moment"]}


def test_a_stream_as_small_as_the_epsilon_of_its_norms() -> None:
    measured, predicted = both(
        Config(
            **{**SIZES, "n_layers": 1},
            residual="absent",
            init_variance=0.003,
            activation="tanh",
            final_norm="yes",
            n_seeds=32,
        )
    )
    assert predicted["second_moment", "attn_out"] < 1e-5
    for statistic, site in (("second_moment", "mlp_out"), ("activation_gradient", "resid_mid")):
        found, expected = by_layer(measured, predicted, statistic, site)
        assert agrees(found, expected, 0.1), (found.mean(0), expected)


@pytest.mark.parametrize("rule", ["rezero", "skipinit"])
def test_branches_of_zero_and_their_alpha(rule: str) -> None:
    """The stream never moves; all that has a gradient is α, whose size is the overlap of branch and
    loss direction."""
    measured, predicted = both(Config(**{**SIZES, "n_layers": 2}, residual=rule, n_seeds=32))
    for matrix in Config().design.shapes:
        assert not predicted["parameter_gradient", matrix].any()
        assert not measured["parameter_gradient", matrix].any()
    assert np.ptp(predicted["activation_gradient", "resid_post"]) == 0
    found, typical = by_layer(measured, predicted, "parameter_gradient", "alpha")
    # ln of the mean square of one Gaussian number is −1.27 in the mean, of two −.58
    logarithm = {"rezero": -1.2704, "skipinit": -0.5772}[rule]
    expected = typical * np.exp(-logarithm)
    assert agrees(found, expected, 0.02)
    # the square of one Gaussian number: 32 of them know it to a quarter
    assert not agrees(found, 2 * expected, 0.02)


def test_no_norm_and_no_divisor_runs_away_and_theory_says_so() -> None:
    measured, predicted = both(Config(**{**SIZES, "n_seeds": 4}, norm_placement="none"))
    assert predicted.notes["activation_gradient"].startswith(
        "not covered before layer 6: attention logits run away"
    )
    assert np.isnan(predicted["activation_gradient", "resid_post"][0, :5]).all()
    found, expected = by_layer(measured, predicted, "second_moment", "resid_post")
    assert agrees(found, expected, 0.1)  # forward it holds, roughly, to the end


def width_errors(
    widths: tuple[int, ...], seeds: tuple[int, ...], **choices: Any
) -> list[dict[str, Array]]:
    """For each width, statistic to measured over predicted less one, `[seed, layer]`."""
    out = []
    for width, count in zip(widths, seeds, strict=True):
        profiles = both(
            Config(
                **{
                    **SIZES,
                    "d_model": width,
                    "n_heads": 2,
                    "n_ctx": 16,
                    "n_seeds": count,
                    **choices,
                }
            )
        )
        parts = {}
        for statistic in ("second_moment", "activation_gradient"):
            found, expected = by_layer(*profiles, statistic, "resid_mid")
            parts[statistic] = found / expected - 1
        out.append(parts)
    return out


def test_single_draws_approach_the_theory_as_width_grows() -> None:
    """What a single draw deviates by falls as 1/√width from 64 to 512: less at each doubling, a
    third at the end."""
    errors = width_errors((64, 128, 256, 512), (16, 16, 12, 10))
    for statistic in errors[0]:
        size = [float(np.sqrt((one[statistic] ** 2).mean())) for one in errors]
        assert size[0] > size[1] > size[2] > size[3], (statistic, size)
        assert size[3] < size[0] / 2, (statistic, size)


def test_what_the_theory_leaves_out_falls_faster_than_chance() -> None:
    """The mean error of the gradient, beyond its standard error, from widths where it is large:
    second order."""
    narrow, middle, wide = (
        abs(one["activation_gradient"].mean(0)[0])
        for one in width_errors((8, 16, 64), (64, 64, 64))
    )
    assert narrow > 2 * middle > 4 * wide


def test_two_rows_under_a_mask_share_a_spread_that_is_the_mean_of_theirs_not_its_square() -> None:
    """Only where the logits' spread is far from 1 do the two differ."""
    measured, predicted = both(
        Config(
            n_layers=3,
            batch_size=4,
            causal=True,
            input="correlated",
            input_correlation=0.5,
            init_variance=3.0,
            n_seeds=48,
        )
    )
    for site in ("resid_mid", "resid_post"):
        assert agrees(
            *by_layer(measured, predicted, "token_correlation", site), 0, absolute=True
        ), site
