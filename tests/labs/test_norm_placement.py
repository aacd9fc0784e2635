"""The lab on norm placement: Theorem 1's slopes, Lemma 2's band and recursion, and where Post-LN's V comes from."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from pictures import must_be_whole, named

from explorer.choices import ConfigError
from explorer.figures.palette import HUES
from explorer.labs import stacks
from explorer.labs.norm_placement import pictures
from explorer.labs.norm_placement.experiment import (
    BENDS,
    DESIGNS,
    PLACEMENTS,
    NormPlacement,
    Theorem,
    band,
    inside,
    invariants,
    is_seen,
    lemma,
    run,
    slope,
    verdict,
)
from explorer.labs.norm_placement.row import ROW
from explorer.labs.stacks import Pair, apart, gradient, pairs, powers_of_two, weight_gradient
from explorer.measuring.observe import Pass
from explorer.model import Transformer, batch
from explorer.stopping import Stopped

QUICK = NormPlacement(n_layers=4, width=32, n_ctx=8, n_seeds=2)


@pytest.fixture(scope="module")
def result():
    return run(NormPlacement(n_layers=16, n_seeds=8))


def test_the_recursion_has_the_published_numbers() -> None:
    curve = lemma(14, 32)
    assert curve[[6, 8, 10, 12, 14]].round(2).tolist() == [5.89, 8.13, 10.51, 12.98, 15.52]
    assert (curve[[6, 8, 10, 12, 14]] ** -0.5).round(3).tolist() == [0.412, 0.351, 0.308, 0.278, 0.254]


@pytest.mark.parametrize("n_ctx", [1, 4, 32, 10**6])
def test_the_recursion_stays_in_the_band_and_fills_it(n_ctx: int) -> None:
    """One token is always like itself: attention adds 1 a layer, the upper edge. Many start at the lower."""
    (low, high), curve = band(48), lemma(48, n_ctx)
    assert (curve >= low - 1e-12).all()
    assert (curve <= high + 1e-12).all()
    if n_ctx == 1:
        np.testing.assert_allclose(curve, high)
    if n_ctx == 10**6:
        assert curve[1] == pytest.approx(low[1], abs=1e-5)


def test_the_theory_of_the_page_agrees_with_the_recursion() -> None:
    """To the first order in 1/width, which the recursion leaves out."""
    error = []
    for width in (64, 256):
        settings = NormPlacement(width=width, n_seeds=1)
        (one,) = pairs({0: settings.theirs("pre", 12)}).values()
        error.append(np.abs(one.predicted["second_moment", "resid_post"][0] / lemma(12, 32)[1:] - 1).max())
    assert error[1] < 0.005
    assert error[1] / error[0] == pytest.approx(1 / 4, rel=0.1)


def test_logits_kept_small_are_their_setting() -> None:
    """W_Q = W_K = 0 in the same stack gives the same numbers: attention is the plain mean in both."""
    config = QUICK.replace(n_ctx=32, width=128).theirs("pre", 4)
    model = Transformer(config, 0)
    with torch.no_grad():
        for layer in model.layers:
            layer.weights["W_Q"].zero_()
            layer.weights["W_K"].zero_()
    patterns = []
    model(model.embed(batch.draw(config, 0)), lambda site, _, x: patterns.append(x) if site == "pattern" else None)
    assert all(torch.equal(pattern, torch.full_like(pattern, 1 / 32)) for pattern in patterns)
    zero = Pass(config, 0).observe(model, batch.draw(config, 0))[0]
    small = Pass(config, 0).run(torch.device("cpu"))[0]
    for key in (("second_moment", "resid_post"), ("parameter_gradient", "W_out")):
        np.testing.assert_allclose(small[key], zero[key], rtol=3e-3)


def test_the_theorem_s_slopes(result) -> None:
    """Flat with Post-LN, about −½ with Pre-LN; each within four standard errors of the theory's."""
    depths = result.settings.depths
    for place, expected in (("post", 0.0), ("pre", -0.5)):
        found = result.theorem[place]
        slopes = [slope(depths, seed) for seed in found.measured.T]
        error = np.std(slopes) / math.sqrt(7)
        assert abs(np.mean(slopes) - slope(depths, found.predicted)) < 4 * error
        assert slope(depths, found.predicted) == pytest.approx(expected, abs=0.08)
    apart = result.slopes("post")[0] - result.slopes("pre")[0]
    assert apart > 0.3


def test_the_last_gradient_is_what_the_last_norm_leaves() -> None:
    """√(d / (2q)): relu's hidden units have moment ½, the loss's direction length 1, the norm divides by √q."""
    settings = NormPlacement(width=256, n_ctx=128)
    for place, q in (("post", 1.5), ("pre", lemma(12, 128)[-1])):
        (one,) = pairs({0: settings.theirs(place, 12)}).values()
        assert one.predicted["parameter_gradient", "W_out"][0, -1] == pytest.approx(math.sqrt(256 / (2 * q)), rel=0.03)


def test_a_slope_is_fitted_to_the_deep_end() -> None:
    depths = [1, 2, 4, 8, 16]
    values = np.array(depths) ** -0.5
    values[0] = 100
    assert slope(depths, values) == pytest.approx(-0.5)
    assert slope([1, 2], np.array([1.0, 0.5])) == pytest.approx(-1)
    assert slope([1, 2, 3], np.array([9.0, 1.0, 1.0])) == pytest.approx(0)


def test_pre_ln_s_stream_lies_in_the_band_on_the_recursion(result) -> None:
    low, high = band(16)
    mean, error = result.moments.mean(0), result.moments.std(0) / math.sqrt(7)
    assert inside(result)
    assert (np.abs(mean - lemma(16, 32)[1:]) < 4 * error + 0.01 * lemma(16, 32)[1:]).all()
    assert low[-1] < mean[-1] < high[-1]


def test_attention_makes_the_v_and_mlps_alone_do_not(result) -> None:
    flat, uniform, bent = (gradient(result.bends[name].measured).mean(0) for name in BENDS)
    assert flat.min() > 0.7
    assert flat.max() < 1.5
    for found in (uniform, bent):
        assert found.min() < 0.1
        assert found[0] > 1.5 * found.min()
        assert 0 < found.argmin() < len(found) - 8
    assert flat[0] > 1e3 * 2.0 ** -16, "the weight of the identity path is no measure of it"


def test_five_designs_are_measured_and_predicted(result) -> None:
    """Gradients² along the stream: means of eight seeds within four standard errors of the theory, at every depth."""
    for pair in result.designs.values():
        measured, predicted = (gradient(profile) for profile in pair)
        error = measured.std(0) / math.sqrt(7)
        assert measured.shape == (8, 33)
        assert (np.abs(measured.mean(0) - predicted[0]) <= 4 * error + 1e-6).all()
    ends = {name: pair.measured["second_moment", "resid_post"][:, -1].mean() for name, pair in result.designs.items()}
    assert [ends[name] for name in ("post_ln", "deepnorm", "realformer")] == pytest.approx([1, 1, 1], abs=1e-3)
    assert 1 < ends["pre_ln"] < ends["peri_ln"]
    even = gradient(result.designs["deepnorm"].measured)
    assert 0.8 < even.min() < even.max() < 1.3


def test_weights_are_all_of_a_layer_s() -> None:
    (one,) = pairs({0: QUICK.design("pre_ln")}).values()
    names = ("W_Q", "W_K", "W_V", "W_O", "W_in", "W_out")
    square = sum(one.measured["parameter_gradient", name] ** 2 for name in names)
    np.testing.assert_allclose(weight_gradient(one.measured), np.sqrt(square))
    assert apart(np.array([[1.0, 4.0], [9.0, 3.0]])).tolist() == [4, 3]


@pytest.mark.parametrize(("deepest", "depths"), [(2, [1, 2]), (8, [1, 2, 4, 8]), (12, [1, 2, 4, 8, 12])])
def test_depths_are_powers_of_two_and_the_deepest(deepest: int, depths: list[int]) -> None:
    assert powers_of_two(deepest) == depths


def test_a_design_s_settings_reach_it() -> None:
    settings = QUICK.replace(causal=True, activation="gelu", input_correlation=0.25)
    for name in DESIGNS:
        config = settings.design(name)
        assert (config.causal, config.activation, config.input_correlation) == (True, "gelu", 0.25)
    assert settings.bent("none").attention == "none"
    assert not settings.theirs("pre", 4).causal
    assert NormPlacement(width=37).design("pre_ln").n_heads == 1


@pytest.mark.parametrize(
    ("choices", "severity", "words"),
    [({"n_layers": 8, "n_seeds": 8}, "good", "attention makes"), ({"n_layers": 2}, "warning", "shallow")],
)
def test_verdicts(choices: dict[str, int], severity: str, words: str) -> None:
    found = verdict(run(NormPlacement(n_seeds=2).replace(**choices)))
    assert found[0] == severity
    assert words in found[1]
    assert "theory 0.00" in found[2]


@pytest.mark.parametrize("off", [-0.3, -0.1, 0.1, 0.3])
def test_slopes_are_seen_within_two_tenths_of_the_theorys(result, off: float) -> None:
    depths = np.array(result.settings.depths, float)
    found = {place: Theorem((one.predicted * depths**off)[:, None], one.predicted)
             for place, one in result.theorem.items()}
    assert is_seen(replace(result, theorem=found)) is (abs(off) < 0.2)


def scaled(pair: Pair, statistic: str, factor: float) -> Pair:
    """The same with another measurement."""
    values = {key: value * (factor if key[0] == statistic else 1) for key, value in pair.measured.values.items()}
    return pair._replace(measured=replace(pair.measured, values=values))


def test_a_moment_outside_the_band_is_not_said_to_lie_in_it(result) -> None:
    far = replace(result, deepest=scaled(result.deepest, "second_moment", 9))
    assert "band 9 to 25" in verdict(far)[2]
    assert ", in [" not in verdict(far)[2]


def test_what_leaves_the_band_or_the_slopes_is_noticed(result) -> None:
    broken = replace(result, deepest=scaled(result.deepest, "second_moment", 2))
    assert "leave Lemma 2's band" in verdict(broken)[1]
    tilted = dict.fromkeys(PLACEMENTS, result.theorem["pre"])
    severity, meaning, _ = verdict(replace(result, theorem=tilted))
    assert severity == "warning"
    assert "increase seeds" in meaning
    unbent = {**result.bends, "softmax": result.bends["none"]}
    assert "nearly flat" in verdict(replace(result, bends=unbent))[1]
    faded = {**result.bends, "none": scaled(result.bends["none"], "activation_gradient", 0.4)}
    severity, meaning, evidence = verdict(replace(result, bends=faded))
    assert severity == "warning"
    assert "not flat even without attention" in meaning
    assert "0.5 or more" in evidence
    assert Theorem(np.array([[3.0, 4.0]]), np.ones(1)).typical == pytest.approx([math.sqrt(12.5)])


@pytest.mark.parametrize(
    "choices",
    [{"n_layers": 2}, {"n_layers": 48}, {"n_ctx": 4}, {"input_correlation": 0.9}, {"activation": "sigmoid"},
     {"causal": True}, {"n_seeds": 1}],
)
def test_both_ends_give_numbers(choices: dict[str, object]) -> None:
    found = run(QUICK.replace(**choices))
    for measured, predicted in (found.deepest, *found.designs.values(), *found.bends.values()):
        assert measured.first_nonfinite is None
        assert gradient(predicted).shape[1] == gradient(measured).shape[1]


def test_it_stops_when_told_and_says_how_far_it_is() -> None:
    told: list[float] = []
    asked: list[bool] = []
    run(QUICK.replace(n_seeds=1, seed=50), lambda: bool(asked.append(False)), told.append)
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1)
    for before in (0, len(asked) // 3, 2 * len(asked) // 3, len(asked) - 1):
        with pytest.raises(Stopped):
            run(QUICK.replace(n_seeds=1, seed=51 + before), stop=iter([False] * before + [True] * len(asked)).__next__)


def test_a_depth_of_one_is_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^n_layers must be a whole number between 2 and 48; got 1$"):
        NormPlacement(n_layers=1)


def test_invariants() -> None:
    found = list(invariants().values())
    assert found[:5] == pytest.approx([5.89, 8.13, 10.51, 12.98, 15.52], abs=0.005)
    assert found[10:14] == pytest.approx([0, 0, -0.55, -0.56], abs=0.05)
    assert found[14] > 10 * found[15]


def test_what_was_measured_is_not_measured_again() -> None:
    """A design's setting moves: the theorem's stacks stay, until so many others were measured after."""
    first, again = run(QUICK), run(QUICK.replace(causal=True))
    assert again.deepest is first.deepest
    assert again.designs["pre_ln"] is not first.designs["pre_ln"]
    assert again.bends["none"] is first.bends["none"], "MLPs alone have no mask"
    pairs({seed: QUICK.theirs("post", 1).replace(seed=seed) for seed in range(stacks.MOST_KNOWN)})
    assert run(QUICK).deepest is not first.deepest


# --- pictures -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    return run(NormPlacement(n_layers=4, width=64, n_ctx=16, n_seeds=2))


@pytest.mark.parametrize("choices", [{}, {"n_layers": 48, "n_seeds": 1}, {"activation": "sigmoid"}])
def test_every_picture_has_titled_axes_words_and_data_that_travel(choices: dict[str, object]) -> None:
    found = run(QUICK.replace(**choices))
    for plot in ROW.plots:
        must_be_whole(plot.draw(found))


def test_the_theorem_is_drawn_with_its_slope(small) -> None:
    figure = pictures.theorem(small)
    root = named(figure, "1/√L")
    np.testing.assert_allclose(np.asarray(root.y) * np.sqrt(root.x), root.y[0], rtol=1e-6)
    assert root.y[-1] == pytest.approx(small.theorem["pre"].predicted[-1])
    np.testing.assert_allclose(named(figure, "Pre-LN").y, small.theorem["pre"].typical, rtol=1e-6)
    assert named(figure, "Post-LN").x.tolist() == [1, 2, 4]
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log")


def test_the_stream_stands_in_its_band(small) -> None:
    figure = pictures.stream(small)
    edge = named(figure, "Lemma 2")
    assert edge.fill == "toself"
    assert np.asarray(edge.y).tolist() == [1, 1.5, 2, 2.5, 3, 7, 5.5, 4, 2.5, 1]
    np.testing.assert_allclose(named(figure, "Pre-LN").y[2::2], small.moments.mean(0), rtol=1e-6)
    assert figure.layout.yaxis.range[1] > 7


def test_a_design_keeps_its_hue_and_has_dots_and_a_line(small) -> None:
    figure = pictures.gradients(small)
    for index, (key, words) in enumerate(DESIGNS.items()):
        dots, line = named(figure, words), named(figure, f"{words}, predicted")
        assert (dots.marker.color, line.line.color) == (HUES[index], HUES[index])
        measured, predicted = (gradient(profile) for profile in small.designs[key])
        np.testing.assert_allclose(dots.y, measured.mean(0), rtol=1e-5)
        np.testing.assert_allclose(line.y, predicted[0], rtol=1e-5)
        np.testing.assert_allclose(np.asarray(dots.customdata)[:, 1], measured.max(0), rtol=1e-5)


def test_post_ln_by_attention_is_told_apart(small) -> None:
    figure = pictures.bends(small)
    np.testing.assert_allclose(named(figure, "softmax").y, named(pictures.gradients(small), "Post-LN").y)
    assert named(figure, "softmax").marker.color == HUES[0]
    assert len({named(figure, words).marker.color for words in BENDS.values()}) == 3
    assert named(figure, "flat").y[0] == 1
