"""Sampling: the truncation factor and its correction, drawn variances, blocks, refusals, pictures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from pictures import every, named
from scipy import stats

from explorer.choices import ConfigError
from explorer.labs.sampling import pictures
from explorer.labs.sampling.experiment import (
    BLOCK,
    KINDS,
    REACH,
    Sampling,
    SamplingResult,
    beyond,
    density,
    gamma,
    run,
    truncation,
    verdict,
)
from explorer.labs.sampling.row import ROW
from explorer.measuring import Stopped

MILLION = Sampling(draws=10**6)
EDGES = [0.1, 0.5, 1.0, 2.0, 3.0, 6.0]


@pytest.fixture(scope="module")
def million() -> SamplingResult:
    return run(MILLION)


@pytest.fixture(scope="module")
def drawn() -> SamplingResult:
    return run(Sampling(draws=10**5))


def test_a_cut_at_two_leaves_77_percent_and_wants_13_7_percent_more() -> None:
    assert float(gamma(2.0)) == pytest.approx(0.7737413035, abs=1e-9)
    assert float(gamma(2.0)) ** -0.5 == pytest.approx(1.1368472343, abs=1e-9)


@pytest.mark.parametrize("cut", [*EDGES, 0.011, 20.0])
def test_gamma_is_the_variance_of_a_truncated_normal(cut: float) -> None:
    assert float(gamma(cut)) == pytest.approx(stats.truncnorm(-cut, cut).var(), rel=1e-6)


def test_gamma_of_a_narrow_cut_is_that_of_a_uniform_distribution_and_smooth() -> None:
    assert float(gamma(1e-4)) == pytest.approx(1e-8 / 3, rel=1e-6)
    below, above = (float(gamma(1e-2 * (1 + side * 1e-6))) for side in (-1, 1))
    assert below == pytest.approx(above, rel=1e-5)


def test_variance_of_a_million_draws_is_that_asked_for(million: SamplingResult) -> None:
    np.testing.assert_allclose(million.variance, 1, rtol=5e-3)
    assert (np.abs(million.variance - 1) < 4 * million.errors[:, -1]).all()


def test_standard_errors_follow_from_the_kurtosis(million: SamplingResult) -> None:
    cut = stats.truncnorm(-2, 2, scale=million.scale)
    kurtosis = np.array([3, 1.8, float(cut.stats(moments="k")) + 3])
    np.testing.assert_allclose(million.errors[:, -1], np.sqrt((kurtosis - 1) / 1e6), rtol=0.02)


@pytest.mark.parametrize("cut", EDGES)
def test_uncorrected_the_cut_takes_its_share(cut: float) -> None:
    result = run(MILLION.replace(cut=cut, corrected=False))
    assert result.variance[2] == pytest.approx(float(gamma(cut)), rel=5e-3)
    assert result.expected[2] == pytest.approx(float(gamma(cut)), rel=1e-12)


@pytest.mark.parametrize("settings", [
    Sampling(draws=10**6, cut=0.5), Sampling(draws=10**6, bounds="absolute", std=0.99, cut=1.8),
    Sampling(draws=10**6, bounds="absolute", std=0.8, cut=2.5),
])
def test_corrected_it_is_given_back(settings: Sampling) -> None:
    result = run(settings)
    assert result.expected[2] == pytest.approx(1, abs=1e-9)
    assert result.variance[2] == pytest.approx(1, rel=5e-3)
    assert result.bound == pytest.approx(settings.cut * result.scale if settings.bounds == "relative"
                                         else settings.cut / settings.std)


def test_torchs_absolute_bounds_cut_nothing_off_a_small_std() -> None:
    result = run(MILLION.replace(bounds="absolute", corrected=False))
    assert result.relative_cut == pytest.approx(100)
    assert beyond(result, 2) == pytest.approx(2 * stats.norm.sf(2), abs=1e-3)  # as if there were no cut
    severity, meaning, evidence = verdict(result)
    assert severity == "warning"
    assert "±2 cut" in meaning
    assert "100 standard deviations" in evidence
    assert beyond(run(MILLION.replace(corrected=False)), 2) == 0


def test_no_weight_lies_beyond_the_cut(million: SamplingResult) -> None:
    width = million.edges[1] - million.edges[0]
    outside = np.minimum(np.abs(million.edges[:-1]), np.abs(million.edges[1:])) > million.bound
    assert million.counts[2][outside].sum() == 0
    assert million.counts[2].sum() == 10**6
    assert million.counts[1][np.abs(million.edges[:-1] + width / 2) > math.sqrt(3) + width].sum() == 0


def test_densities_agree_with_scipy(million: SamplingResult) -> None:
    x = np.linspace(-4, 4, 81)
    root, s = math.sqrt(3), million.scale
    known = [stats.norm, stats.uniform(-root, 2 * root), stats.truncnorm(-2, 2, scale=s)]
    np.testing.assert_allclose(density(million, x), [one.pdf(x) for one in known], atol=1e-12)


def test_histograms_follow_the_densities(million: SamplingResult) -> None:
    middle, width = million.edges[:-1] + REACH / 240, million.edges[1] - million.edges[0]
    expected = density(million, middle)[0] * width * 1e6
    assert (np.abs(million.counts[0] - expected) < 6 * np.sqrt(expected) + 6).all()


def test_the_same_seed_gives_the_same_numbers_and_another_gives_others() -> None:
    first, again, other = (run(Sampling(draws=5000, seed=seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.counts, again.counts)
    assert not np.array_equal(first.counts, other.counts)


@pytest.mark.parametrize("draws", [1024, BLOCK - 1, 3 * BLOCK + 5])
def test_blocks_add_up_to_the_draws(draws: int) -> None:
    result = run(Sampling(draws=draws))
    assert result.sizes[-1] == draws
    assert (np.diff(result.sizes) <= BLOCK).all()


@pytest.mark.parametrize(("choices", "sentence"), [
    ({"cut": 0}, "cut must be a finite number between 0.1 and 6; got 0"),
    ({"cut": -1.0}, "cut must be a finite number between 0.1 and 6; got -1.0"),
    ({"draws": 10**9}, "draws must be a whole number between 1024 and 10000000; got 1000000000"),
    ({"bounds": "both"}, "bounds must be one of relative, absolute; got 'both'"),
    ({"bounds": "absolute", "std": 0.8, "cut": 1.0},
     ("std must be below 0.57 × cut when the cut is absolute and corrected: no distribution within ±cut spreads "
      "wider; got 0.8 and cut 1")),
])
def test_refusals_in_one_sentence(choices: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Sampling(**choices)
    assert str(refused.value) == sentence


def stops_after(calls: int) -> Callable[[], bool]:
    left = iter([False] * calls)
    return lambda: next(left, True)


def test_stop_is_honored_between_blocks() -> None:
    told: list[float] = []
    with pytest.raises(Stopped):
        run(Sampling(draws=10**7), stops_after(3), told.append)
    assert len(told) == 3
    assert max(told) < 1


def test_progress_ends_at_one() -> None:
    told: list[float] = []
    run(Sampling(draws=1024), progress=told.append)
    assert told[-1] == 1
    assert told == sorted(told)


def test_truncation_and_verdicts_in_words() -> None:
    assert truncation(Sampling()) == pytest.approx((1.1368472343, 2.2736944686))
    assert verdict(run(Sampling()))[:2] == ("good", "All three have the variance asked for, within 4 standard errors.")
    severity, meaning, evidence = verdict(run(Sampling(corrected=False)))
    assert (severity, meaning) == ("warning", "The cut leaves 77.4 % of the variance.")
    assert "ask for 1.137 σ to get σ" in evidence
    assert verdict(run(Sampling(corrected=False, cut=6)))[0] == "good"


def test_a_sample_variance_that_is_off_is_not_called_good() -> None:
    result = run(Sampling())
    for off, severity in ((3.9, "good"), (4.1, "warning")):
        running = result.running.copy()
        running[1] += off * result.errors[1, -1] + 1 - result.variance[1]
        found = replace(result, running=running, fourth=result.fourth + running[:, -1] ** 2 - result.variance**2)
        assert verdict(found)[0] == severity
    assert verdict(found)[1] == "More than 4 standard errors from the variance asked for: uniform."


def test_a_cut_at_two_sigma_and_a_million_draws() -> None:
    assert gamma(2.0) == pytest.approx(0.7737413035, abs=1e-9)
    assert run(Sampling(draws=10**6)).variance.round(2).tolist() == [1, 1, 1]


def test_every_picture_is_whole(drawn: SamplingResult) -> None:
    every(ROW, drawn, run(Sampling(draws=1024, bounds="absolute", corrected=False)))



def test_histograms_are_densities(drawn: SamplingResult) -> None:
    figure = pictures.densities(drawn)
    for name in KINDS:
        bars = named(figure, name)
        assert np.sum(bars.y) * (bars.x[1] - bars.x[0]) == pytest.approx(1, abs=1e-4)
        assert bars.fill == "tozeroy"
    curve = named(figure, "uniform, predicted")
    assert max(curve.y) == pytest.approx(0.5 / math.sqrt(3))



def test_running_variances_carry_their_standard_errors(drawn: SamplingResult) -> None:
    figure = pictures.variances(drawn)
    dots = named(figure, "normal")
    assert dots.y[-1] == pytest.approx(drawn.variance[0])
    assert dots.error_y.array[-1] == pytest.approx(math.sqrt(2 / 1e5), rel=0.05)
    assert "truncated, predicted" not in {trace.name for trace in figure.data}
    cut = pictures.variances(run(Sampling(draws=4096, corrected=False)))
    np.testing.assert_allclose(named(cut, "truncated, predicted").y, 0.7737413035)
    assert cut.layout.yaxis.range[0] < 0.7



def test_the_cut_that_is_set_lies_on_gamma(drawn: SamplingResult) -> None:
    figure = pictures.truncation(drawn)
    dot = named(figure, "this cut")
    assert dot.x[0] == pytest.approx(2)
    assert dot.y[0] == pytest.approx(0.7737, rel=0.02)
    trap = pictures.truncation(run(Sampling(draws=2**14, bounds="absolute")))
    assert named(trap, "this cut").x[0] == pytest.approx(100)
    assert named(trap, "this cut").y[0] == pytest.approx(1, rel=0.05)
    far = run(Sampling(draws=2048, bounds="absolute", std=0.005, cut=6))
    assert named(pictures.truncation(far), "this cut").x[0] == pytest.approx(10**2.7)  # at the axis' end
