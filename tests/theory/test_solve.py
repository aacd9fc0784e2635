"""solve(): roots that are roots, honest answers where there is none, refusals that name the
choices."""

import math
import random
from typing import Any

import numpy as np
import pytest

from explorer import Config, ConfigError, Profile, measure, preset
from explorer.schemes.preset import PRESETS
from explorer.sites import BRANCHES
from explorer.theory import predict, solve
from explorer.theory.laws import input_share, update_size
from explorer.theory.solve import TARGETS, VARY


def test_logit_std_is_reached() -> None:
    found = solve(Config(), vary="init_variance", target="logit_std", value=2.0)
    assert found.exact
    assert np.mean(predict(found.config)["logit_std", "attn_scores"]) == pytest.approx(
        2.0, rel=1e-3
    )
    assert found.achieved == pytest.approx(2.0, rel=1e-3)
    assert "init variance" in found.message


def test_flat_signal_of_a_plain_stack_is_measured_flat() -> None:
    config = Config(
        residual="absent", norm_placement="none", attention_scale="d", n_layers=4, n_seeds=12
    )
    found = solve(config, vary="init_variance", target="flat_signal")
    assert found.exact
    measured = measure(found.config)["second_moment", "resid_post"][:, -1]
    error = measured.std(ddof=1) / math.sqrt(len(measured))
    assert abs(measured.mean() - 1) <= 4 * error + 0.02
    start = measure(config.replace(n_seeds=2))["second_moment", "resid_post"][:, -1]
    assert abs(start.mean() - 1) > 0.15  # and it was not before


def test_flat_gradient_of_post_norm_by_alpha() -> None:
    found = solve(Config(norm_placement="post"), vary="alpha", target="flat_gradient")
    assert found.exact
    assert found.config.residual == "constant"
    assert predict(found.config)["activation_gradient", "embed"][0, 0] == pytest.approx(1, rel=2e-3)


def test_bounded_update_means_a_single_layers_update() -> None:
    deep = Config(n_layers=48)
    found = solve(deep, vary="alpha", target="bounded_update")
    assert found.exact
    assert update_size(predict(found.config)) == pytest.approx(
        update_size(predict(Config(n_layers=1))), rel=2e-3
    )
    assert update_size(predict(deep)) > 1.5 * update_size(predict(found.config))


def test_alpha_makes_the_residual_constant_and_says_so() -> None:
    found = solve(
        Config(residual="deepnorm", norm_placement="post"), vary="alpha", target="flat_gradient"
    )
    assert found.config.residual == "constant"
    assert found.message.endswith("(residual set to constant)")


def test_a_setting_that_is_flat_already_stays() -> None:
    config = Config(norm_placement="post")
    found = solve(config, vary="init_variance", target="flat_signal")
    assert found.exact
    assert found.config == config


def test_no_value_in_range_gives_the_closest_and_says_so() -> None:
    found = solve(Config(norm_placement="peri"), vary="init_variance", target="flat_gradient")
    assert not found.exact
    assert found.message.startswith("no init variance in range makes")
    tried = [
        predict(Config(norm_placement="peri", init_variance=v))["activation_gradient", "embed"][
            0, 0
        ]
        for v in np.geomspace(1e-3, 1e3, 13)
    ]
    assert abs(math.log(found.achieved)) <= min(abs(np.log(tried))) + 1e-3
    assert f"{found.achieved:.4g}" in found.message


def test_approached_and_never_crossed_is_close_enough_not_extreme() -> None:
    """x + αF(x) grows for every α > 0: the answer is the largest that is flat to 1 in 1000, not the
    smallest."""
    found = solve(Config(), vary="alpha", target="flat_signal")
    assert found.exact
    assert 1.0005 < found.achieved < 1.001
    assert found.config.alpha > 0.005


def test_where_theory_covers_nothing_nothing_is_claimed() -> None:
    config = Config(norm_placement="none", input="correlated", input_correlation=1.0)
    found = solve(config, vary="alpha", target="logit_std", value=1.0)
    assert not found.exact
    assert math.isnan(found.achieved)
    assert found.config == config
    assert found.message == "theory does not cover logit_std at any residual α for this design"


def some_config(draw: random.Random) -> Config:
    """Any choice of any field, at sizes that are fast; what `Config` refuses is drawn anew."""
    while True:
        choices: dict[str, Any] = {"n_seeds": 1}
        for name, spec in Config.specs().items():
            if draw.random() < 0.5 or name in ("n_seeds", "seed"):
                continue
            if spec.choices:
                choices[name] = draw.choice(spec.choices)
            elif spec.kind == "number":
                choices[name] = draw.choice(
                    [spec.low, spec.high, draw.uniform(spec.low, spec.high)]
                )
            elif spec.kind == "switch":
                choices[name] = draw.random() < 0.5
        sizes = {
            "n_layers": (1, 2, 3, 5),
            "d_model": (8, 32, 64),
            "n_heads": (1, 8),
            "n_ctx": (2, 16, 33),
        }
        try:
            return Config(**choices | {name: draw.choice(some) for name, some in sizes.items()})
        except ConfigError:
            continue


@pytest.mark.parametrize("part", range(4))
def test_every_design_is_answered(part: int) -> None:
    """60 questions: a number that is finite and stands in the message, or nan and the reason; never
    an exception."""
    draw = random.Random(part)  # noqa: S311 - a seed, no secret
    for _ in range(15):
        config = (
            preset(draw.choice(sorted(PRESETS)), n_layers=2)
            if draw.random() < 0.2
            else some_config(draw)
        )
        target = draw.choice(sorted(TARGETS))
        found = solve(config, draw.choice(VARY), target, draw.choice([0.01, 1.0, 50.0]))
        assert found.message, (config, target)
        if math.isnan(found.achieved):
            assert (found.exact, found.config) == (False, config)
        else:
            assert f"{found.achieved:.4g}" in found.message
            assert found.exact == (abs(math.log(found.achieved / found.target)) <= 1.0001e-3)


@pytest.mark.parametrize(
    ("config", "question", "reason"),
    [
        (
            preset("rezero"),
            {"target": "bounded_update"},
            "the branches are multiplied by 0, so no matrix has a gradient",
        ),
        (
            Config(alpha=0),
            {"target": "bounded_update"},
            "the branches are multiplied by 0, so no matrix has a gradient",
        ),
        (
            Config(attention="none"),
            {"target": "logit_std", "value": 1.0},
            "a design without attention has no attention lo",
        ),
    ],
)
def test_what_a_design_does_not_have_is_said(
    config: Config, question: dict[str, Any], reason: str
) -> None:
    found = solve(config, vary="init_variance", **question)
    assert math.isnan(found.achieved)
    assert (found.exact, found.trivial, found.better, found.config) == (False, False, None, config)
    assert found.message.startswith(reason)


def test_an_alpha_of_zero_can_still_be_asked_for_another() -> None:
    found = solve(Config(n_layers=24, alpha=0), vary="alpha", target="bounded_update")
    assert found.exact
    assert found.config.alpha > 0


@pytest.mark.parametrize("vary", ["alpha", "init_variance"])
@pytest.mark.parametrize(
    "choices", [{}, {"norm_placement": "peri"}, {"n_layers": 48, "norm": "rms"}]
)
def test_branches_all_but_switched_off_are_a_trivial_answer_with_a_better_one(
    vary: str, choices: dict[str, Any]
) -> None:
    config = Config(**choices)
    found = solve(config, vary=vary, target="flat_signal")
    # its branches have the size that the norm gives
    if vary == "init_variance" and config.norm_placement == "peri":
        assert not found.trivial
        return
    assert found.exact
    assert found.trivial
    assert branch_share(predict(found.config)) < 0.01
    assert found.better == config.replace(residual="inverse_sqrt_depth")
    growth = (
        predict(found.better)["second_moment", "resid_post"][0, -1],
        predict(config)["second_moment", "resid_post"][0, -1],
    )
    assert growth[0] < 2.1 < growth[1]
    assert "trivial" in found.message
    assert f"{growth[0]:.3g}" in found.message


def test_an_answer_with_branches_that_count_is_not_trivial() -> None:
    for config, vary, target in (
        (Config(norm_placement="post"), "alpha", "flat_gradient"),
        (Config(n_layers=48), "alpha", "bounded_update"),
        (
            Config(norm_placement="none", residual="absent", n_layers=4, attention_scale="d"),
            "init_variance",
            "flat_signal",
        ),
    ):
        found = solve(config, vary, target)
        assert found.exact
        assert (found.trivial, found.better) == (False, None)
        assert branch_share(predict(found.config)) > 0.01


def branch_share(profile: Profile) -> float:
    return 1 - input_share(profile.config, profile.values)


def test_branch_share_in_closed_form() -> None:
    """Peri's 24 branches add 1 each to a stream of 1; without a skip nothing else is there;
    ReZero's add nothing."""
    assert branch_share(predict(Config(norm_placement="peri"))) == pytest.approx(24 / 25, rel=1e-3)
    assert branch_share(predict(Config(norm_placement="peri", alpha=0.1))) == pytest.approx(
        0.24 / 1.24, rel=1e-3
    )
    assert branch_share(predict(Config(residual="absent", n_layers=2))) == 1
    assert branch_share(predict(preset("rezero"))) == 0
    alone = predict(
        Config(norm_placement="post", attention="none", activation="identity", scale_rule="lecun")
    )
    assert 1 - branch_share(alone) == pytest.approx(2**-12, rel=1e-2)
    # ω_i² / (ω_i² + F_i) = (1 + Σ_(j<i) F_j) / (1 + Σ_(j≤i) F_j)
    for choices in (
        {},
        {"attention": "none"},
    ):
        profiled = predict(Config(norm_placement="post", residual="admin_profiled", **choices))
        added = sum(
            float(value.sum())
            for (name, site), value in profiled.values.items()
            if name == "second_moment" and site in BRANCHES
        )
        assert 1 - branch_share(profiled) == pytest.approx(1 / (1 + added), rel=1e-4)
    measured = measure(Config(n_layers=3, d_model=128, n_ctx=16, n_seeds=4))
    assert branch_share(measured) == pytest.approx(
        branch_share(predict(Config(n_layers=3, d_model=128, n_ctx=16))), rel=0.05
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"vary": "n_layers", "target": "flat_signal"},
            "vary must be one of init_variance, alpha; got 'n_layers'",
        ),
        (
            {"vary": "alpha", "target": "flat"},
            "target must be one of flat_signal, flat_gradient, logit_std, bounded_",
        ),
        ({"vary": "alpha", "target": "logit_std"}, "logit_std needs a positive value; got None"),
        (
            {"vary": "alpha", "target": "flat_signal", "value": -1.0},
            "flat_signal needs a positive value; got -1.0",
        ),
    ],
)
def test_refusals(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        solve(Config(), **arguments)


def test_one_update_over_depth() -> None:
    """Σ‖g‖² over depth with MLP and attention branches: ∝ N plain, bounded at 1/√N, falling at
    1/N."""

    def slope(residual: str, alpha: float = 1.0) -> float:
        sizes = [
            update_size(
                predict(
                    Config(
                        n_layers=n,
                        norm_placement="none",
                        residual=residual,
                        alpha=alpha,
                        attention_scale="d",
                        init_variance=0.5,
                    )
                )
            )
            for n in (16, 64)
        ]
        return math.log(sizes[1] / sizes[0]) / math.log(4)

    assert slope("inverse_sqrt_depth") == pytest.approx(0, abs=0.1)
    assert slope("inverse_depth") == pytest.approx(-1, abs=0.1)
