"""solve(): roots that are roots, honest answers where there is none, refusals that name the choices."""

import math
from typing import Any

import numpy as np
import pytest

from explorer import Config, measure
from explorer.theory import predict, solve
from explorer.theory.depth import update_size


def test_logit_std_is_reached() -> None:
    found = solve(Config(), vary="init_variance", target="logit_std", value=2.0)
    assert found.exact
    assert np.mean(predict(found.config)["logit_std", "attn_scores"]) == pytest.approx(2.0, rel=1e-3)
    assert found.achieved == pytest.approx(2.0, rel=1e-3)
    assert "init variance" in found.message


def test_flat_signal_of_a_plain_stack_is_measured_flat() -> None:
    config = Config(residual="absent", norm_placement="none", attention_scale="d", n_layers=4, n_seeds=12)
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
    assert update_size(predict(found.config)) == pytest.approx(update_size(predict(Config(n_layers=1))), rel=2e-3)
    assert update_size(predict(deep)) > 1.5 * update_size(predict(found.config))


def test_alpha_makes_the_residual_constant_and_says_so() -> None:
    found = solve(Config(residual="deepnorm", norm_placement="post"), vary="alpha", target="flat_gradient")
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
        predict(Config(norm_placement="peri", init_variance=v))["activation_gradient", "embed"][0, 0]
        for v in np.geomspace(1e-3, 1e3, 13)
    ]
    assert abs(math.log(found.achieved)) <= min(abs(np.log(tried))) + 1e-3
    assert f"{found.achieved:.4g}" in found.message


def test_approached_and_never_crossed_is_close_enough_not_extreme() -> None:
    """x + αF(x) grows for every α > 0: the answer is the largest that is flat to 1 in 1000, not the smallest."""
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"vary": "n_layers", "target": "flat_signal"}, "vary must be one of init_variance, alpha; got 'n_layers'"),
        ({"vary": "alpha", "target": "flat"}, "target must be one of flat_signal, flat_gradient, logit_std, bounded_"),
        ({"vary": "alpha", "target": "logit_std"}, "logit_std needs a positive value; got None"),
        ({"vary": "alpha", "target": "flat_signal", "value": -1.0}, "flat_signal needs a positive value; got -1.0"),
    ],
)
def test_refusals(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        solve(Config(), **arguments)
