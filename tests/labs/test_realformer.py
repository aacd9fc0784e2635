"""The RealFormer lab: growth of the logits in both settings, patterns, gradients beside Post-LN's, and memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from pictures import must_be_whole, named

from explorer.choices import ConfigError
from explorer.labs.realformer import pictures
from explorer.labs.realformer.experiment import (
    FORMS,
    RealFormer,
    independent,
    invariants,
    memory,
    overlap,
    run,
    similarity,
    verdict,
)
from explorer.labs.realformer.memory import LENGTHS, saved_bytes
from explorer.labs.realformer.row import ROW
from explorer.labs.stacks import Pair, gradient, weight_gradient
from explorer.profile import Array
from explorer.stopping import Stopped

QUICK = RealFormer(n_layers=3, width=32, n_heads=2, n_ctx=8, n_seeds=2)


@pytest.fixture(scope="module")
def result():
    return run(RealFormer())


def test_independent_layers_grow_as_one_the_root_and_the_layer() -> None:
    """Draws scatter by some 2 %; the published simulation has 3.438 and 11.94 in layer 12."""
    lines = independent(12, 0, draws=32)
    expected = {"none": np.ones(12), "scores": np.sqrt(np.arange(1, 13)), "qk": np.arange(1.0, 13)}
    for form, drawn in lines.items():
        squares = drawn**2
        error = squares.std(0) / math.sqrt(31)
        assert (np.abs(squares.mean(0) - expected[form] ** 2) < 4 * error).all()
        assert drawn.mean(0)[-1] == pytest.approx(expected[form][-1], rel=0.02)


def test_the_two_forms_are_not_the_same() -> None:
    lines = independent(12, 0)
    assert lines["qk"][:, -1].min() > 3 * lines["scores"][:, -1].max()


def test_a_stack_s_logits_follow_the_theory_and_stay_below_the_ideal(result) -> None:
    for form in ("scores", "qk"):
        mean = result.spread(form).mean(0)
        np.testing.assert_allclose(mean, result.stacks[form].predicted["logit_std"][0, :, 0], rtol=0.05)
        assert (mean[2:] < result.ideal(form)[2:]).all()
    assert result.spread("scores").mean(0)[-1] < 0.6 * result.ideal("scores")[-1]
    assert result.ideal("qk")[-1] / result.ideal("qk")[0] == pytest.approx(12)
    assert result.spread("none").mean(0)[-1] < 0.1


def test_attention_sharpens_with_depth_and_post_ln_s_flattens(result) -> None:
    ends = {form: pair.measured["attention_entropy_normalized"].mean((0, 2))[[0, -1]]
            for form, pair in result.stacks.items()}
    assert ends["none"][1] > 0.99
    assert ends["scores"][1] < ends["scores"][0] - 0.15
    assert ends["qk"][1] < ends["scores"][1] - 0.3
    assert ends["none"][0] == ends["scores"][0] == ends["qk"][0], "the first layer inherits nothing"


def test_successive_patterns_are_alike_and_those_of_other_heads_are_not(result) -> None:
    """Post-LN's are no more alike than any two: uniform rows are all the same."""
    own, other = (part.mean(0) for part in result.similarity["scores"])
    assert (own > other + 0.2).all()
    assert own[-1] > own[0]
    plain = result.similarity["none"]
    error = (plain.measured - plain.random).std(0) / math.sqrt(7)
    assert (np.abs((plain.measured - plain.random).mean(0)) < 4 * error + 1e-3).all()


def test_overlap_of_rows_known_by_heart() -> None:
    one = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])[None, None, None]
    other = torch.tensor([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]])[None, None, None]
    assert overlap(one, other).tolist() == [0.75]
    assert overlap(one, one).tolist() == [1.0]


def test_a_random_pair_is_of_two_heads() -> None:
    """With uniform patterns every pair is the same; a causal mask leaves each row what it may see."""
    config = QUICK.replace(causal=True).design("none", logit_cap=0.01)
    found = similarity(config)
    assert found.measured.shape == found.random.shape == (2, 2)
    np.testing.assert_allclose([*found], 1, atol=0.01)
    assert not np.array_equal(*similarity(QUICK.design("scores")))


def test_the_stream_s_gradients_are_closer_than_post_ln_s(result) -> None:
    """In all of eight seeds; the weights' in most of them."""
    assert result.closer(gradient) == 8
    assert result.closer(weight_gradient) >= 5
    assert np.median(result.apart(gradient, "scores") / result.apart(gradient, "none")) < 0.6
    predicted = [gradient(result.stacks[form].predicted) for form in ("scores", "none")]
    assert np.ptp(np.log(predicted[0])) < np.ptp(np.log(predicted[1])) - math.log(1 / 0.6)


@pytest.mark.parametrize(("layers", "stream", "weights"), [(2, 1, 3), (12, 8, 6), (48, 5, 3)])
def test_the_caveat_s_counts(result, layers: int, stream: int, weights: int) -> None:
    """Seeds in which gradients are closer; a near tie may fall either way on another machine."""
    found = result if layers == 12 else run(RealFormer(n_layers=layers))
    assert abs(found.closer(gradient) - stream) <= 1
    assert abs(found.closer(weight_gradient) - weights) <= 1


@pytest.mark.parametrize("choices", [{"n_layers": 2}, {"init_variance": 4.0}])
def test_where_they_are_not_closer_the_verdict_says_so(choices: dict[str, float]) -> None:
    found = run(RealFormer(**choices))
    severity, meaning, _ = verdict(found)
    assert severity == "warning"
    assert ("no closer" if "n_layers" in choices else "those of the weights are not") in meaning
    assert 2 * found.closer(weight_gradient) <= 8


def test_verdicts(result) -> None:
    severity, meaning, told = verdict(result)
    assert (severity, meaning[:31]) == ("good", "Logits grow more slowly than √l")
    assert "closer in 8 of 8 seeds" in told
    lost = changed(result.stacks["none"], "activation_gradient", lambda values: values * np.inf)
    assert verdict(replace(result, stacks={**result.stacks, "none": lost}))[0] == "bad"


def changed(pair: Pair, statistic: str, change: Callable[[Array], Array]) -> Pair:
    """The same with another measurement."""
    values = {key: change(value) if key[0] == statistic else value for key, value in pair.measured.values.items()}
    return pair._replace(measured=replace(pair.measured, values=values))


def test_what_is_said_of_the_logits_follows_the_numbers(result) -> None:
    steep = changed(result.stacks["scores"], "logit_std",
                    lambda values: values[:, :1] * result.layers[:, None] ** 0.6)
    assert verdict(replace(result, stacks={**result.stacks, "scores": steep}))[1].startswith(
        "Logits grow at least as √l")


@pytest.mark.parametrize(("rest", "closer"), [(1.1, True), (9.0, False)])
def test_closer_means_in_most_seeds_and_by_the_median(result, rest: float, closer: bool) -> None:
    """In five seeds of eight by a hair; how far the other three are apart decides the median."""
    ends = np.array([3.0, 3.0, 3.0, 5.0, 5.0, 1.0, 1.0, 1.0])
    other = np.array([2.9, 2.9, 2.9, 4.9, 4.9, rest, rest, rest])
    stacks = {
        form: changed(pair, "activation_gradient",
                      lambda values, part=part: np.where(np.arange(values.shape[1]) == 0, part[:, None], 1.0))
        for (form, pair), part in zip(result.stacks.items(), (ends, other, other), strict=True)
    }
    found = replace(result, stacks=stacks)
    assert found.closer_in_most(gradient) is closer
    assert (verdict(found)[0] == "good") is closer


@pytest.mark.parametrize("choices", [{}, {"width": 64, "n_heads": 8}])
def test_autograd_keeps_what_the_shapes_say_and_nothing_more_for_the_sum(choices: dict[str, int]) -> None:
    """Ten streams and the pattern; two norms' mean and factor a token, four numbers, come on top."""
    settings = RealFormer(**choices)
    found = memory(settings)
    n = np.array(LENGTHS)
    np.testing.assert_array_equal(found.counted["none"], found.counted["scores"])
    np.testing.assert_array_equal(found.counted["none"], found.written_out + 4 * 4 * n)
    np.testing.assert_array_equal(found.scores / found.stream, n * settings.n_heads / settings.width)


def test_the_pattern_is_what_grows_with_the_square() -> None:
    """Without attention a layer keeps four streams, and twice the tokens take twice the bytes."""
    sizes = [
        saved_bytes(QUICK.design("none", attention="none", n_layers=2, n_ctx=n))
        - saved_bytes(QUICK.design("none", attention="none", n_layers=1, n_ctx=n)) for n in (32, 64)
    ]
    assert sizes[1] == 2 * sizes[0]


@pytest.mark.parametrize(
    "choices",
    [{"n_layers": 2}, {"n_layers": 48}, {"width": 256}, {"n_ctx": 4}, {"init_variance": 0.25}, {"init_variance": 8.0},
     {"causal": True}, {"n_seeds": 1}],
)
def test_both_ends_give_numbers(choices: dict[str, object]) -> None:
    found = run(QUICK.replace(**choices))
    assert found.stacks.keys() == found.independent.keys() == FORMS.keys()
    for measured, predicted in found.stacks.values():
        assert measured.first_nonfinite is None
        assert gradient(predicted).shape[1] == gradient(measured).shape[1]


def test_it_stops_when_told_and_says_how_far_it_is() -> None:
    told: list[float] = []
    asked: list[bool] = []
    run(QUICK.replace(n_seeds=1, seed=50), lambda: bool(asked.append(False)), told.append)
    assert told == sorted(told)
    assert told[-1] == 1
    for before in (0, len(asked) // 3, 2 * len(asked) // 3, len(asked) - 1):
        with pytest.raises(Stopped):
            run(QUICK.replace(n_seeds=1, seed=51 + before), stop=iter([False] * before + [True] * len(asked)).__next__)


def test_heads_that_do_not_divide_the_width_are_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^width must be divisible by n_heads; got 128 and 3$"):
        RealFormer(n_heads=3)


def test_invariants() -> None:
    found = list(invariants().values())
    assert found[:3] == pytest.approx([1, math.sqrt(12), 12], rel=0.02)
    assert found[3] < 0.1 < found[4] < math.sqrt(12) < found[5] < 12
    assert found[6] > 4 * found[7]
    assert found[8] > found[9]
    assert found[10:] == pytest.approx([1, 1], abs=0.002)


# --- pictures -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    return run(RealFormer(n_layers=4, width=64, n_heads=2, n_ctx=16, n_seeds=2))


@pytest.fixture(scope="module")
def deep():
    return run(QUICK.replace(n_layers=48, n_seeds=1))


@pytest.fixture(scope="module")
def shallow():
    return run(QUICK.replace(n_layers=2, n_seeds=1, init_variance=8))


@pytest.mark.parametrize("plot", ROW.plots, ids=lambda plot: plot.name)
def test_every_picture_has_titled_axes_words_and_data_that_travel(plot, small, deep, shallow) -> None:
    for found in (small, deep, shallow):
        figure = plot.draw(found)
        must_be_whole(figure)
        assert any(np.isfinite(np.asarray(trace.y, float)).any() for trace in figure.data if "markers" in trace.mode)


def test_logits_stand_beside_what_they_would_be(small) -> None:
    figure = pictures.independent(small)
    np.testing.assert_allclose(named(figure, "RealFormer, predicted").y, np.sqrt(np.arange(1, 5)), rtol=1e-6)
    np.testing.assert_allclose(named(figure, "ΣQ·ΣK, predicted").y, np.arange(1, 5))
    figure = pictures.spread(small)
    ideal = named(figure, "RealFormer, layers independent, predicted")
    np.testing.assert_allclose(np.asarray(ideal.y) / ideal.y[0], np.sqrt(np.arange(1, 5)), rtol=1e-6)
    assert ideal.line.dash == "dot"
    assert ideal.y[-1] > named(figure, "RealFormer").y[-1]
    assert ideal.line.color == named(figure, "RealFormer").marker.color


def test_post_ln_s_vanishing_logits_do_not_take_the_axis(deep) -> None:
    assert deep.spread("none").min() < 1e-5
    low, high = pictures.spread(deep).layout.yaxis.range
    assert high - low < 5


def test_patterns_are_drawn_with_a_random_pair_s(small) -> None:
    figure = pictures.similarity(small)
    for form, words in FORMS.items():
        np.testing.assert_allclose(named(figure, words).y, small.similarity[form].measured.mean(0), rtol=1e-6)
        hollow = named(figure, f"{words}, another head")
        np.testing.assert_allclose(hollow.y, small.similarity[form].random.mean(0), rtol=1e-6)
        assert hollow.marker.symbol == "circle-open"
        assert hollow.x.tolist() == [2, 3, 4]


def test_memory_is_counted_on_its_lines(small, shallow) -> None:
    figure = pictures.memory(small)
    n = np.array(LENGTHS)
    np.testing.assert_allclose(named(figure, "stream").y, 4 * 64 * n / 1024)
    np.testing.assert_allclose(named(figure, "score tensor").y, 4 * 2 * n**2 / 1024)
    np.testing.assert_array_equal(named(figure, "Post-LN").y, named(figure, "RealFormer").y)
    np.testing.assert_allclose(named(figure, "RealFormer").y, named(figure, "written out").y, rtol=0.01)
    assert named(figure, "n = d/H").x[0] == 32
    assert named(figure, "stream").y[1] == pytest.approx(named(figure, "score tensor").y[1])
    assert "n = d/H" in {trace.name for trace in pictures.memory(shallow).data}
