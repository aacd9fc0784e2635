"""Where the mean over draws is far above a typical draw: the estimate beside draws, and what
follows from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from explorer import Config, diagnose, measure, predict
from explorer.ends import endings
from explorer.profile import FEW_CARRY
from explorer.sweeping.cell import Cell, origins
from explorer.theory.scatter import APART, parting

SIZES: dict[str, Any] = {"n_heads": 2, "n_ctx": 16, "batch_size": 2, "n_seeds": 16}
DEEP_POST = Config(n_layers=400, d_model=64, n_heads=2, n_ctx=16, norm_placement="post")

DESIGNS: dict[str, dict[str, Any]] = {
    "Post-LN": {"norm_placement": "post", "n_layers": 24, "d_model": 64},
    "Post-LN, narrow": {"norm_placement": "post", "n_layers": 12, "d_model": 32},
    "Post-LN, shallow": {"norm_placement": "post", "n_layers": 4, "d_model": 64},
    "Post-LN, MLPs alone": {
        "norm_placement": "post",
        "attention": "none",
        "n_layers": 6,
        "d_model": 64,
    },
    "RealFormer": {
        "norm_placement": "post",
        "residual_attention": "scores",
        "n_layers": 24,
        "d_model": 64,
    },
    "HybridNorm": {"norm_placement": "hybrid", "n_layers": 24, "d_model": 32},
    "Mix-LN": {"norm_placement": "mix", "n_layers": 32, "d_model": 32},
    "DeepNorm": {"norm_placement": "post", "residual": "deepnorm", "n_layers": 24, "d_model": 32},
    "Keel": {"norm_placement": "keel", "n_layers": 16, "d_model": 32},
    "Pre-LN": {"n_layers": 24, "d_model": 32},
    "Pre-LN, half the stream": {
        "residual": "scaled_skip",
        "alpha": 0.5,
        "n_layers": 24,
        "d_model": 32,
    },
    "Pre-LN, no residual": {"residual": "absent", "n_layers": 12, "d_model": 64},
    "no norms, small branches": {
        "norm_placement": "none",
        "residual": "inverse_sqrt_depth",
        "n_layers": 24,
        "d_model": 32,
    },
    "no norms": {"norm_placement": "none", "alpha": 0.3, "n_layers": 24, "d_model": 32},
    "no norms, MLPs alone": {
        "norm_placement": "none",
        "attention": "none",
        "n_layers": 64,
        "d_model": 32,
    },
}


@pytest.mark.parametrize("choices", DESIGNS.values(), ids=DESIGNS)
def test_mean_and_typical_draw_part_where_the_estimate_says_so(choices: dict[str, Any]) -> None:
    """Of a number whose logarithm is normal, of variance V, the mean is e^(V/2) times the typical
    one."""
    config = Config(**SIZES, **choices)
    measured, expected = measure(config), predict(config)
    estimate = parting(config, expected.values)
    for name, site, layer, logarithm in (
        ("activation_gradient", "embed", 0, estimate.gradient),
        ("second_moment", "resid_post", -1, estimate.second_moment),
    ):
        seen = np.log(measured[name, site][:, layer]).var(ddof=1) / 2
        assert (seen > APART) == (logarithm > APART) == expected.carried_by_few(name), (
            name,
            seen,
            logarithm,
        )
        if seen > APART:
            assert seen / 2 < logarithm < 2.5 * seen, (name, seen, logarithm)


def test_the_law_of_deep_post_ln() -> None:
    """Predicted over the geometric mean of 16 draws was e^(4.6 N / d), from 48 layers of width 64
    to 300 of width 32; part of it is the error of the mean itself."""
    for n_layers, d_model in ((100, 64), (200, 64), (300, 32)):
        config = DEEP_POST.replace(n_layers=n_layers, d_model=d_model)
        law = parting(config, predict(config).values).gradient * d_model / n_layers
        assert 3.5 < law < 4.6, (n_layers, d_model, law)


def test_twice_the_width_halves_the_estimate() -> None:
    narrow, wide = (
        parting(config, predict(config).values).gradient
        for config in (DEEP_POST.replace(n_layers=48), DEEP_POST.replace(n_layers=48, d_model=128))
    )
    assert wide == pytest.approx(narrow / 2, rel=0.1)


def test_a_plain_stack_scatters_as_its_matrices_do() -> None:
    """No residual, no norm: two matrices a layer, 2/d each. Two tokens at right angles average half
    of it away."""
    config = Config(
        n_layers=10,
        d_model=64,
        n_ctx=2,
        attention="none",
        norm_placement="none",
        residual="absent",
        activation="identity",
    )
    assert parting(config, predict(config).values).second_moment == pytest.approx(
        10 * 4 / 64 / 2 / 2, rel=0.01
    )


def test_no_verdict_comes_from_a_mean_that_few_draws_carry() -> None:
    """400 layers of Post-LN: the line reaches 1.5e6 at the input, and draws 1e-9."""
    predicted = predict(DEEP_POST)
    assert predicted["activation_gradient", "embed"][0, 0] > 1e6
    assert predicted.notes["activation_gradient"].startswith(FEW_CARRY)
    first, *others = diagnose(predicted)
    assert first.meaning.startswith("The tokens become alike"), (
        "what does not follow from the line stays"
    )
    assert [finding.meaning for finding in others] == [
        "A typical draw is not predicted here: the measured model decides."
    ]
    assert not any("gradient" in number.name for number in first.numbers)


@pytest.mark.parametrize(
    "choices",
    [
        {"norm_placement": "post", "attention": "none", "n_layers": 20, "d_model": 32},
        {
            "norm_placement": "none",
            "attention": "none",
            "n_layers": 100,
            "alpha": 0.3,
            "d_model": 16,
        },
        {"n_layers": 100, "alpha": 3.0, "d_model": 16},
    ],
)
def test_a_design_that_nothing_else_is_said_of_is_not_healthy_by_its_line(
    choices: dict[str, Any],
) -> None:
    (found,) = diagnose(predict(Config(n_heads=2, n_ctx=16, **choices)))
    assert (found.severity, found.meaning) == (
        "warning",
        "A typical draw is not predicted here: the measured model decides.",
    )
    assert "× smaller at the" in found.evidence


def test_a_number_that_stands_alone_is_no_such_mean() -> None:
    """Maps and sweeps of predicted cells, and tables, have no note beside a number."""
    end = endings(predict(DEEP_POST))["activation_gradient"]
    assert end.missing
    cell = Cell("predicted", DEEP_POST, ("activation_gradient",))
    found = origins()["predicted"].find(cell, lambda: False)
    assert np.isnan(found.numbers["activation_gradient"])
    wide = Cell("predicted", Config(norm_placement="post"), ("activation_gradient",))
    assert np.isfinite(
        origins()["predicted"].find(wide, lambda: False).numbers["activation_gradient"]
    )
