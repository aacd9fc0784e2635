"""Linear layers: both factors under each rule, the input's mean, stacks, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from pictures import every, named

from explorer.choices import ConfigError
from explorer.figures.words import typeset
from explorer.labs.second_moment import pictures
from explorer.labs.second_moment.experiment import (
    MEANS,
    RULES,
    Rule,
    SecondMoment,
    SecondMomentResult,
    mean_error,
    run,
    verdict,
)
from explorer.labs.second_moment.row import ROW
from explorer.measuring import Stopped

FACTORS = {"1/fan_in": (1.0, 4.0), "1/fan_out": (0.25, 1.0), "2/(in+out)": (0.4, 1.6)}
BY_NAME = {rule.name: rule for rule in RULES}


@pytest.fixture(scope="module")
def wide() -> SecondMomentResult:
    """256 → 1024, as in the essay."""
    return run(SecondMoment(depth=8, draws=16))


@pytest.fixture(scope="module")
def drawn() -> SecondMomentResult:
    return run(SecondMoment(n=64, m=256, depth=3, draws=2))


def one_layer(result: SecondMomentResult, rule: Rule) -> tuple[float, float]:
    """The expected factors of the first layer: of the signal through it, and of the gradient back."""
    signal, gradient = result.expected(rule)
    return signal[1] / signal[0], gradient[0] / gradient[1]


@pytest.mark.parametrize("name", FACTORS)
def test_forward_and_backward_factor_of_each_rule(wide: SecondMomentResult, name: str) -> None:
    assert one_layer(wide, BY_NAME[name]) == pytest.approx(FACTORS[name])
    np.testing.assert_allclose(wide.factors(BY_NAME[name]).mean(axis=0), FACTORS[name], rtol=0.02)


def test_no_variance_gives_both(wide: SecondMomentResult) -> None:
    for variance in (0.25, 1.0, 4.0):
        result = run(SecondMoment(depth=1, variance=variance))
        for rule in RULES:
            forward, backward = one_layer(result, rule)
            assert backward / forward == pytest.approx(4)
    severity, meaning, evidence = verdict(wide)
    assert severity == "warning"
    assert "m/n = 4" in meaning
    assert "1/fan_out: × 0.2" in evidence


@pytest.mark.parametrize("kind", [0, 1], ids=["x", "absolute x"])
def test_the_inputs_mean_changes_nothing(wide: SecondMomentResult, kind: int) -> None:
    middle, error = mean_error(wide.sweep[kind])
    np.testing.assert_allclose(middle, 1, rtol=0.03)
    assert (np.abs(middle - 1) < 4 * error + 1e-3).all()


def test_what_holds_of_second_moments_does_not_hold_of_variances(wide: SecondMomentResult) -> None:
    """The rejected formula: n·Var(W)·Var(x) would be far off for an input of mean 2."""
    assert MEANS[6] == 2
    assert wide.sweep[0, :, 6].mean() > 4 * (1 / (1 + MEANS[6] ** 2))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_stacks_follow_the_two_factors(rule) -> None:  # type: ignore[no-untyped-def]
    result = run(SecondMoment(n=128, m=512, depth=5, draws=16))
    signal, gradient = result.expected(rule)
    for expected, measured in ((signal, result.signal(rule)), (gradient, result.gradient(rule))):
        middle, error = mean_error(measured)
        assert (np.abs(middle - expected) < 5 * error + 1e-9).all(), (middle, expected, error)
        np.testing.assert_allclose(middle, expected, rtol=0.1)


def test_stack_by_hand() -> None:
    """4 → 16 narrowed to numbers: with 1/fan_in the signal stays and the gradient alternates between 1 and m/n."""
    result = run(SecondMoment(n=16, m=64, depth=3, draws=1))
    signal, gradient = result.expected(BY_NAME["1/fan_in"])
    np.testing.assert_allclose(signal, 1)
    np.testing.assert_allclose(gradient, [4, 1, 4, 1])
    signal, gradient = result.expected(BY_NAME["2/(in+out)"])
    np.testing.assert_allclose(signal, [1, 0.4, 0.64, 0.256])
    np.testing.assert_allclose(gradient, [1.024, 0.64, 1.6, 1])


def test_one_layer_is_the_first_of_the_stack(wide: SecondMomentResult) -> None:
    np.testing.assert_allclose(wide.forward[:, 1], wide.single[:, 0])


def test_square_layers_keep_both_and_the_variance_scales_both() -> None:
    square = SecondMoment(n=256, m=256, depth=4)
    assert verdict(run(square))[:2] == ("good", "n = m: one variance keeps signal and gradient alike, in expectation.")
    severity, meaning, _ = verdict(run(square.replace(variance=2.0)))
    assert (severity, meaning) == ("warning", "n = m: every layer multiplies signal and gradient by 2, in expectation.")


def test_deeper_stacks_begin_with_the_shallower_ones() -> None:
    short, long = (run(SecondMoment(n=32, m=64, depth=depth, draws=2)) for depth in (3, 9))
    np.testing.assert_allclose(long.forward[:, :4], short.forward, rtol=1e-6)


def test_one_draw_has_no_error() -> None:
    middle, error = mean_error(np.array([[1.0, 2.0]]))
    np.testing.assert_array_equal(middle, [1, 2])
    np.testing.assert_array_equal(error, [0, 0])


@pytest.mark.parametrize(("choices", "sentence"), [
    ({"n": 0}, "n must be a whole number between 16 and 1024; got 0"),
    ({"mean": float("nan")}, "mean must be a finite number between -4 and 4; got nan"),
    ({"depth": 2.5}, "depth must be a whole number between 1 and 32; got 2.5"),
])
def test_refusals_in_one_sentence(choices: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        SecondMoment(**choices)
    assert str(refused.value) == sentence


def test_stop_is_honored() -> None:
    answers = iter([False] * 5)
    with pytest.raises(Stopped):
        run(SecondMoment(draws=64, seed=77), lambda: next(answers, True))


def test_the_mean_of_an_input_that_is_nowhere_negative_does_not_matter() -> None:
    result = run(SecondMoment(depth=1, draws=16))
    np.testing.assert_allclose(result.sweep[1].mean(axis=0), 1, atol=0.03)


def test_every_picture_is_whole(drawn: SecondMomentResult) -> None:
    every(ROW, drawn, run(SecondMoment(n=16, m=16, depth=1, draws=1)))



def test_every_rule_lies_on_the_line_and_none_at_the_goal(drawn: SecondMomentResult) -> None:
    figure = pictures.both_ways(drawn)
    for rule, (forward, backward) in zip(RULES, [(1, 4), (0.25, 1), (0.4, 1.6)], strict=True):
        dot = named(figure, typeset(rule.name))
        assert dot.x[0] == pytest.approx(forward, rel=0.15)
        assert dot.y[0] == pytest.approx(backward, rel=0.15)
    line = named(figure, "any variance")
    np.testing.assert_allclose(np.divide(line.y, line.x), 4)
    assert figure.layout.xaxis.range[0] < 0 < figure.layout.xaxis.range[1]  # 1 is in sight on both axes
    assert figure.layout.yaxis.range[0] < 0 < figure.layout.yaxis.range[1]



def test_the_wrong_formula_is_drawn_beside_the_flat_dots(drawn: SecondMomentResult) -> None:
    figure = pictures.input_mean(drawn)
    wrong = named(figure, "if only Var x counted")
    assert max(wrong.y) == pytest.approx(1)
    assert wrong.y[0] == pytest.approx(1 / (1 + 4.4**2))
    for kind, name in enumerate(("input x", "input |x|")):
        np.testing.assert_allclose(named(figure, name).y, drawn.sweep[kind].mean(axis=0), rtol=1e-6)



def test_stacks_show_dots_on_the_lines_of_the_factors(drawn: SecondMomentResult) -> None:
    for draw, way in ((pictures.signal, 0), (pictures.gradient, 1)):
        figure = draw(drawn)
        for rule in RULES:
            expected = drawn.expected(rule)[way]
            np.testing.assert_allclose(named(figure, f"{typeset(rule.name)}, predicted").y, expected, rtol=1e-6)
            assert len(named(figure, typeset(rule.name)).y) == 4
