"""Names of designs: the preset that a config is, or the nearest one and what sets it apart."""

from __future__ import annotations

import pytest

from explorer.app.sentences import LONGEST_NAME, choice_words, design_words, name_of
from explorer.config import Config, changes_to, differences, matching, preset
from explorer.schemes.preset import PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_recognized_whatever_its_size_and_input(name: str) -> None:
    other = preset(name, n_layers=3, d_model=32, n_heads=2, input="correlated", n_seeds=2, seed=9)
    assert matching(other) == name
    assert name_of(other) == PRESETS[name].title


@pytest.mark.parametrize("name", PRESETS)
def test_the_changes_make_the_preset_of_any_design_and_leave_the_rest_alone(name: str) -> None:
    start = Config(
        n_layers=3,
        input="text",
        seed=4,
        alpha=0.5,
        init_variance=7,
        qk_norm=True,
        norm_placement="peri",
        parametrization="mup",
        distribution="uniform",
        final_norm="no",
    )
    changed = start.replace(**changes_to(name))
    assert matching(changed) == name
    assert (changed.n_layers, changed.input, changed.seed) == (3, "text", 4)
    assert changed == preset(name, n_layers=3, input="text", seed=4)


@pytest.mark.parametrize(
    "change",
    [
        {"alpha": 0.5},
        {"init_variance": 2.0},
        {"distribution": "uniform"},
        {"final_norm": "no"},
        {"logit_cap": 3.0},
    ],
)
def test_a_design_with_one_choice_of_its_own_is_no_preset(change: dict[str, object]) -> None:
    assert matching(Config(**change)) == ""


def test_a_choice_that_matters_to_nobody_does_not_count() -> None:
    rezero = preset("rezero")
    assert matching(rezero.replace(alpha=0.3, norm="rms")) == "rezero"
    assert differences(rezero, rezero.replace(alpha=0.3)) == []
    assert differences(Config(), Config(alpha=0.3)) == ["alpha"]


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (Config(init_variance=4), "Pre-LN, init variance 4"),
        (Config(norm_placement="post", alpha=0.5), "Post-LN, residual α 0.5"),
        (preset("deepnorm", qk_norm=True), "DeepNorm, QK-norm on"),
        (Config(norm_placement="none", init_variance=30), "init variance 30, norm placement none"),
        (Config(residual="deepnorm"), "residual DeepNorm"),
        (
            Config(activation="tanh", activation_rescaled=False, alpha=2),
            "activation tanh, unit-moment activation…",
        ),
    ],
)
def test_another_design_is_named_after_the_nearest_and_what_sets_it_apart(
    config: Config, name: str
) -> None:
    assert name_of(config) == name
    assert len(name) <= LONGEST_NAME


def test_a_sentence_of_ones_own_is_none_of_our_names() -> None:
    assert design_words(Config(input="sentence", sentence="rms_norm")).endswith(
        "sentence “rms_norm”"
    )


def test_names_differ_even_where_designs_are_the_same() -> None:
    first, deep = Config(), Config(n_layers=24)
    assert name_of(deep, [("Pre-LN", first)]) == "Pre-LN, depth 24"
    assert (
        name_of(deep, [("Pre-LN", first), ("Pre-LN, depth 24", Config(seed=1))])
        == "Pre-LN, depth 24 (2)"
    )
    bare = Config(norm_placement="none", init_variance=30)
    taken = [(name_of(bare), bare)]
    assert name_of(bare.replace(n_layers=24), taken) == "depth 24, init variance 30, norm placem…"
    long = "x" * LONGEST_NAME
    config = Config(activation="tanh", activation_rescaled=False, alpha=2)
    again = name_of(config.replace(seed=8), [(name_of(config), config), (long, first)])
    assert again != name_of(config)
    assert len(again) <= LONGEST_NAME


def test_many_differences_are_counted() -> None:
    config = Config(n_layers=3, d_model=64, n_heads=2, n_ctx=16, alpha=0.5)
    size = ["n_layers", "d_model", "n_heads"]
    assert choice_words(config, ["n_layers"]) == "depth 3"
    assert choice_words(config, [*size, "alpha"]) == "depth 3, width 64, heads 2, residual α 0.5"
    assert choice_words(config, [*size, "n_ctx", "alpha"]) == "depth 3, width 64, heads 2, 2 more"
    assert choice_words(config, []) == ""
