"""The RealFormer lab: growth of the logits in both settings, patterns, gradients beside Post-LN's, and memory."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from explorer.choices import ConfigError
from explorer.labs.realformer.experiment import (
    FORMS,
    LENGTHS,
    RealFormer,
    independent,
    invariants,
    memory,
    overlap,
    run,
    similarity,
    verdict,
)
from explorer.labs.realformer.memory import kept
from explorer.labs.stacks import Line
from explorer.probe.observe import Stopped

QUICK = RealFormer(n_layers=3, width=32, n_heads=2, n_ctx=8, n_seeds=2)


@pytest.fixture(scope="module")
def result():
    return run(RealFormer())


def test_independent_layers_grow_as_one_the_root_and_the_layer() -> None:
    """Draws scatter by some 2 %; the published simulation has 3.438 and 11.94 in layer 12."""
    lines = independent(12, 0, draws=32)
    expected = {"none": np.ones(12), "scores": np.sqrt(np.arange(1, 13)), "qk": np.arange(1.0, 13)}
    for form, line in lines.items():
        np.testing.assert_allclose(line.predicted, expected[form])
        squares = line.measured**2
        error = squares.std(0) / math.sqrt(31)
        assert (np.abs(squares.mean(0) - expected[form] ** 2) < 4 * error).all()
        assert line.measured.mean(0)[-1] == pytest.approx(expected[form][-1], rel=0.02)


def test_the_two_forms_are_not_the_same() -> None:
    lines = independent(12, 0)
    assert lines["qk"].measured[:, -1].min() > 3 * lines["scores"].measured[:, -1].max()


def test_a_stack_s_logits_follow_the_theory_and_stay_below_the_ideal(result) -> None:
    for form in ("scores", "qk"):
        line = result.spread[form]
        np.testing.assert_allclose(line.measured.mean(0), line.predicted, rtol=0.05)
        assert (line.measured.mean(0)[2:] < result.ideal(form)[2:]).all()
    assert result.spread["scores"].measured.mean(0)[-1] < 0.6 * result.ideal("scores")[-1]
    assert result.ideal("qk")[-1] / result.ideal("qk")[0] == pytest.approx(12)
    assert result.spread["none"].measured.mean(0)[-1] < 0.1


def test_attention_sharpens_with_depth_and_post_ln_s_flattens(result) -> None:
    ends = {form: line.measured.mean(0)[[0, -1]] for form, line in result.entropy.items()}
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
    assert result.closer(result.gradients) == 8
    assert result.closer(result.weights) >= 5
    ratio = np.median(result.gradients["scores"].apart / result.gradients["none"].apart)
    assert ratio < 0.6
    predicted = [result.gradients[form].predicted for form in ("scores", "none")]
    assert np.ptp(np.log(predicted[0])) < np.ptp(np.log(predicted[1])) - math.log(1 / 0.6)


@pytest.mark.parametrize(("layers", "stream", "weights"), [(2, 1, 3), (12, 8, 6), (48, 5, 3)])
def test_the_caveat_s_counts(result, layers: int, stream: int, weights: int) -> None:
    """Seeds in which gradients are closer; a near tie may fall either way on another machine."""
    found = result if layers == 12 else run(RealFormer(n_layers=layers))
    assert abs(found.closer(found.gradients) - stream) <= 1
    assert abs(found.closer(found.weights) - weights) <= 1


@pytest.mark.parametrize("choices", [{"n_layers": 2}, {"init_variance": 4.0}])
def test_where_they_are_not_closer_the_verdict_says_so(choices: dict[str, float]) -> None:
    found = run(RealFormer(**choices))
    severity, meaning, _ = verdict(found)
    assert severity == "warning"
    assert ("no closer" if "n_layers" in choices else "those of the weights are not") in meaning
    assert 2 * found.closer(found.weights) <= 8


def test_verdicts(result) -> None:
    severity, meaning, told = verdict(result)
    assert (severity, meaning[:31]) == ("good", "Logits grow more slowly than √l")
    assert "closer in 8 of 8 seeds" in told
    line = result.gradients["none"]
    lost = {**result.gradients, "none": line._replace(measured=line.measured * np.inf)}
    assert verdict(type(result)(**{**vars(result), "gradients": lost}))[0] == "bad"


def test_what_is_said_of_the_logits_follows_the_numbers(result) -> None:
    line = result.spread["scores"]
    steep = {**result.spread, "scores": line._replace(measured=line.measured[:, :1] * line.depth**0.6)}
    assert verdict(replace(result, spread=steep))[1].startswith("Logits grow at least as √l")


@pytest.mark.parametrize(("rest", "closer"), [(1.1, True), (9.0, False)])
def test_closer_means_in_most_seeds_and_by_the_median(result, rest: float, closer: bool) -> None:
    """In five seeds of eight by a hair; how far the other three are apart decides the median."""
    ends = np.array([3.0, 3.0, 3.0, 5.0, 5.0, 1.0, 1.0, 1.0])
    other = np.array([2.9, 2.9, 2.9, 4.9, 4.9, rest, rest, rest])
    lines = {form: Line(np.arange(2.0), np.stack([np.ones(8), part], axis=1), np.ones(2))
             for form, part in (("none", ends), ("scores", other))}
    found = replace(result, gradients=lines)
    assert found.closer_in_most(lines) is closer
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
        kept(QUICK.design("none", attention="none", n_layers=2, n_ctx=n))
        - kept(QUICK.design("none", attention="none", n_layers=1, n_ctx=n)) for n in (32, 64)
    ]
    assert sizes[1] == 2 * sizes[0]


@pytest.mark.parametrize(
    "choices",
    [{"n_layers": 2}, {"n_layers": 48}, {"width": 256}, {"n_ctx": 4}, {"init_variance": 0.25}, {"init_variance": 8.0},
     {"causal": True}, {"n_seeds": 1}],
)
def test_both_ends_give_numbers(choices: dict[str, object]) -> None:
    found = run(QUICK.replace(**choices))
    for lines in (found.independent, found.spread, found.entropy, found.gradients, found.weights):
        assert lines.keys() == FORMS.keys()
        for line in lines.values():
            assert np.isfinite(line.measured).all()
            assert line.predicted.shape == line.depth.shape == line.measured.shape[1:]


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
