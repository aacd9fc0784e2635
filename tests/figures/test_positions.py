"""The charts by token position: what is drawn, of whom, and what is not finite."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from explorer import Config, Profile, measure, predict
from explorer.diagnosis.agreement import agreement
from explorer.ends import ENDS, endings
from explorer.figures import BY_CHOICE, FIGURES, row_of
from explorer.figures.layers import NO_ATTENTION
from explorer.vocabulary import STATISTICS

NAMES = [name for name, row in STATISTICS.items() if row.by_position]
CONFIG = Config(n_layers=3, d_model=64, n_heads=2, n_ctx=8, n_seeds=3, causal=True)


@pytest.fixture(scope="module")
def both() -> tuple[Profile, Profile]:
    return measure(CONFIG), predict(CONFIG)


def test_they_are_in_the_list_and_not_among_the_charts_that_are_open() -> None:
    assert len(NAMES) == 4
    assert set(NAMES) <= set(BY_CHOICE)
    assert not set(NAMES) & {row.statistic for row in FIGURES.values()}


@pytest.mark.parametrize("name", NAMES)
def test_the_last_layer_over_positions_from_1(name: str, both: tuple[Profile, Profile]) -> None:
    figure = row_of(name).draw(both)
    dots = next(trace for trace in figure.data if trace.mode == "markers")
    lines = [trace for trace in figure.data if trace.name == "predicted"]
    np.testing.assert_allclose(dots.x, range(1, 9))
    np.testing.assert_allclose(dots.y, STATISTICS[name].mean(both[0][name][:, -1]), rtol=1e-5)
    drawn = both[1][name][0, -1].copy()
    np.testing.assert_allclose(lines[0].y, drawn, rtol=1e-5)
    assert figure.layout.xaxis.type == "log"
    assert figure.layout.xaxis.title.text == "token position (from 1)"
    low, high = figure.layout.xaxis.range
    assert low <= 0 < np.log10(8) <= high
    assert figure.layout.meta["description"].startswith(f"{STATISTICS[name].label}. ")


@pytest.mark.parametrize("name", NAMES)
def test_another_layer_is_drawn_said_and_compared(name: str, both: tuple[Profile, Profile]) -> None:
    row = row_of(name, 2)
    figure = row.draw(both)
    dots = next(trace for trace in figure.data if trace.mode == "markers")
    np.testing.assert_allclose(dots.y, STATISTICS[name].mean(both[0][name][:, 1]), rtol=1e-5)
    assert not np.allclose(
        STATISTICS[name].mean(both[0][name][:, 1]),
        STATISTICS[name].mean(both[0][name][:, -1]),
        rtol=1e-3,
    )
    last = row_of(name).caption
    assert last.count("the last layer") == 1
    assert row.caption == last.replace("the last layer", "layer 2")
    assert both[0].plot(name, both[1], layer=2).data[: len(figure.data)] == figure.data
    whole, *same = (row_of(name, layer).draw(both).to_json() for layer in (0, 3, 9))
    assert same == [whole, whole], "a design that has no such layer shows its last"
    assert figure.to_json() != whole
    values = np.array(both[0][name])
    values[:, 0] *= 2
    wrong = replace(both[0], values={**both[0].values, (name, STATISTICS[name].sites[0]): values})
    worst = [
        [agreement(measured, both[1], name, layer).worst for measured in (both[0], wrong)]
        for layer in (1, 2, 0)
    ]
    assert [alike[0] == alike[1] for alike in worst] == [False, True, True]


def test_a_statistic_by_layer_has_no_layer_to_choose(both: tuple[Profile, Profile]) -> None:
    for name in (*FIGURES, "kurtosis"):
        assert row_of(name, 2).draw(both) == row_of(name).draw(both), name


@pytest.mark.parametrize(
    ("name", "layer"), [("kurtosis", 2), ("attention_pattern", 1), ("attention_received", -1)]
)
def test_a_chart_of_all_layers_refuses_one(
    name: str, layer: int, both: tuple[Profile, Profile]
) -> None:
    with pytest.raises(
        ValueError, match=f"layer must be 0 or more, and 0 for {name} unless .* got {layer}"
    ):
        both[1].plot(name, layer=layer)


def test_a_token_that_is_not_finite_has_an_upright(both: tuple[Profile, Profile]) -> None:
    values = np.array(both[0]["second_moment_by_position"])
    values[:, -1, 4:] = np.inf
    broken = Profile(
        "measured", {("second_moment_by_position", "resid_post"): values}, CONFIG, seeds=(0, 1, 2)
    )
    figure = row_of("second_moment_by_position").draw([broken])
    uprights = [trace for trace in figure.data if trace.x is not None and set(trace.x) == {5.0}]
    assert [trace.text[1] for trace in uprights] == ["not finite"]
    whole = row_of("second_moment_by_position").draw([both[0]])
    assert not any("not finite" in (trace.text or ()) for trace in whole.data)


def test_a_design_without_attention_has_no_rows() -> None:
    bare = predict(CONFIG.replace(attention="none", causal=False))
    assert row_of("attention_received").draw([bare]).layout.annotations[0].text == NO_ATTENTION
    assert len(row_of("second_moment_by_position").draw([bare]).data) > 0


def test_the_first_tokens_share_is_the_end_of_a_stack(both: tuple[Profile, Profile]) -> None:
    assert set(NAMES) & set(ENDS) == {"attention_received"}
    for profile in both:
        end = endings(profile)["attention_received"]
        assert end.middle == pytest.approx(profile["attention_received"][:, -1, 0].mean())


def test_agreement_is_judged_token_by_token(both: tuple[Profile, Profile]) -> None:
    """A token that is off is named, though the mean over tokens agrees."""
    _, predicted = both
    key = ("second_moment_by_position", "resid_post")
    exact = np.repeat(predicted[key], 3, 0) * (1 + 0.001 * np.arange(-1, 2)[:, None, None])
    fair = Profile("measured", {key: exact}, CONFIG, seeds=(0, 1, 2))
    assert agreement(fair, predicted, key[0]).tone == "good"
    moved = exact.copy()
    moved[:, -1, 2] *= 1.5
    moved[:, -1, 5] -= 0.5 * exact[:, -1, 2]
    verdict = agreement(
        Profile("measured", {key: moved}, CONFIG, seeds=(0, 1, 2)), predicted, key[0]
    )
    assert verdict.tone == "warn"
    assert "at token 3" in verdict.words or "at token 6" in verdict.words
    assert moved[:, -1].mean() == pytest.approx(exact[:, -1].mean())
    post = CONFIG.replace(norm_placement="post")
    assert agreement(measure(post), predict(post), key[0]).tone == ""
