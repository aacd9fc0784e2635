"""The parametrization lab: one function, Adam's first step in closed form, and the learning rate that transfers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from pictures import every, named

from explorer.choices import ConfigError
from explorer.labs.parametrization import pictures
from explorer.labs.parametrization.experiment import (
    STEP_WIDTHS,
    Parametrization,
    first_step,
    first_steps,
    invariants,
    outputs,
    run,
    train,
    verdict,
)
from explorer.labs.parametrization.network import BASE, SCHEMES, adam, layers
from explorer.labs.parametrization.row import ROW
from explorer.stopping import Stopped

SETTINGS = Parametrization(widest="128")
QUICK = Parametrization(widest="64", steps=2, batch_size=16)


@pytest.fixture(scope="module")
def result():
    return run(SETTINGS)


@pytest.fixture(scope="module")
def quick():
    return run(QUICK)


@pytest.fixture(scope="module")
def diverged():
    return run(Parametrization(widest="64", steps=30, batch_size=4, optimizer="sgd"))


@pytest.mark.parametrize("width", [32, 256])
def test_ntk_is_the_same_function_at_initialization(width: int) -> None:
    """To rounding at any width, and to the last bit where √m is a power of two."""
    standard, ntk = (outputs(scheme, SETTINGS, width) for scheme in ("standard", "ntk"))
    np.testing.assert_allclose(ntk, standard, atol=1e-14)
    assert width != 256 or np.array_equal(ntk, standard)


def test_mup_is_standard_at_the_base_width_and_smaller_beyond() -> None:
    assert np.array_equal(outputs("mup", SETTINGS, BASE), outputs("standard", SETTINGS, BASE))
    np.testing.assert_allclose(outputs("mup", SETTINGS, 128), outputs("standard", SETTINGS, 128) / 2, atol=1e-14)


def test_what_multiplies_what() -> None:
    """Yang et al. 2022, eq. 4, at four times the base width; and NTK's unit weights."""
    hidden, output = layers("mup", 128, "adam")[1:]
    assert hidden == (pytest.approx(128**-0.5), 1, 1 / 4)
    assert output == (pytest.approx((128 * 4) ** -0.5), 1, 1 / 4)
    assert [layer.rate for layer in layers("mup", 128, "sgd")] == [4, 1, 1 / 4]
    assert [layer.stored for layer in layers("ntk", 128, "adam")] == [1, 1, 1]
    assert [layer.rate for layer in layers("standard", 128, "sgd")] == [1, 1, 1]


@pytest.mark.parametrize("width", [256, 1024])
def test_adams_first_step_by_its_formula(width: int) -> None:
    """η √m of the weights' size under standard (16 % at 256, 32 % at 1024), 1.0 % under NTK, η 32/√m under μP."""
    expected = {"standard": 0.01 * math.sqrt(width), "ntk": 0.01, "mup": 0.01 * BASE / math.sqrt(width)}
    for scheme, share in expected.items():
        assert first_step(scheme, SETTINGS, width)[0] == pytest.approx(share, rel=0.01), scheme


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_first_step_grows_by_the_expected_power_of_the_width(scheme: str, optimizer: str) -> None:
    """Slopes over five octaves, over which the nearest other power, ½ away, would make a factor of 5.7."""
    found = first_steps(scheme, SETTINGS.replace(optimizer=optimizer))
    growth, octaves = SCHEMES[scheme].growth[optimizer], np.log(STEP_WIDTHS)
    assert np.polyfit(octaves, np.log(found.weights), 1)[0] == pytest.approx(growth.weights, abs=0.2)
    assert np.polyfit(octaves, np.log(found.output), 1)[0] == pytest.approx(growth.output, abs=0.2)


def test_our_adam_is_torchs() -> None:
    """Three steps of one matrix along the same gradients."""
    weight = torch.nn.Parameter(torch.ones(4, 4))
    theirs = torch.optim.Adam([weight], lr=0.1)
    ours, mean, square = torch.ones(4, 4), torch.zeros(4, 4), torch.zeros(4, 4)
    for count in range(1, 4):
        gradient = torch.randn(4, 4, generator=torch.Generator().manual_seed(count))
        weight.grad = gradient
        theirs.step()
        ours -= 0.1 * adam(gradient, mean, square, count)
    torch.testing.assert_close(ours, weight.detach())


def test_the_learning_rate_transfers_under_mup_and_drifts_under_the_others(result) -> None:
    """From 32 to 128 units: standard's best falls by about as much, NTK's by half of it, μP's stays."""
    octaves = {scheme: math.log2(result.best(scheme)[-1] / result.best(scheme)[0]) for scheme in SCHEMES}
    assert octaves["mup"] == 0
    assert octaves["standard"] <= -2
    assert octaves["ntk"] <= -1
    assert verdict(result)[0] == "good"


@pytest.mark.parametrize(("mup", "standard", "severity"), [
    (0, 3, "good"), (1, 3, "good"), (2, 3, "warning"), (1, 1, "warning"), (0, 0, "warning"), (2, 1, "warning"),
])
def test_the_tone_follows_how_far_the_best_rates_moved(result, mup: int, standard: int, severity: str) -> None:
    """By octaves: one is the sweep's step."""
    losses = {}
    for scheme, moved in (("mup", mup), ("standard", standard), ("ntk", 0)):
        losses[scheme] = np.ones_like(result.losses[scheme])
        losses[scheme][0, 5] = losses[scheme][-1, 5 - moved] = 0.5
    severity_found, meaning, evidence = verdict(replace(result, losses=losses))
    assert severity_found == severity
    assert f"μP {'1' if not mup else f'1/{2**mup}'}" in evidence
    assert ("stays under μP" in meaning) is (mup == 0 and severity == "good")


def test_it_is_deterministic_and_a_seed_is_another_draw() -> None:
    rates = 2.0 ** np.arange(-9, -6)
    first, again, other = (train("mup", QUICK.replace(seed=seed), 64, rates, lambda: None) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_sweep_is_kept_while_only_the_first_step_changes(result) -> None:
    told: list[float] = []
    again = run(SETTINGS.replace(learning_rate=0.1), progress=told.append)
    assert again.losses["ntk"] is not result.losses["ntk"]
    assert np.array_equal(again.losses["ntk"], result.losses["ntk"])
    assert told == [1]  # nothing was trained
    np.testing.assert_allclose(again.step["ntk"].weights, 10 * result.step["ntk"].weights)


def test_it_stops_between_steps_and_says_how_far_it_is() -> None:
    told: list[float] = []
    run(QUICK.replace(seed=6), progress=told.append)
    assert told == sorted(told)
    assert len(told) == 2 * 3 * QUICK.steps + 1  # widths, parametrizations, steps, and the end
    assert told[-1] == 1
    for before in (0, 3):
        with pytest.raises(Stopped):
            run(QUICK.replace(seed=7), stop=iter([False] * before + [True] * 99).__next__)


def test_refusals() -> None:
    with pytest.raises(ConfigError, match=r"^widest must be one of 64, 128, 256, 512; got '96'$"):
        Parametrization(widest="96")
    with pytest.raises(ConfigError, match=r"^steps must be a whole number between 1 and 64; got 0$"):
        Parametrization(steps=0)


def test_invariants() -> None:
    found = invariants()
    assert found["|NTK − standard| at init, m = 256"] == 0
    assert [round(value, 3) for value in found.values()][1:] == [0.159, 0.319, 0.010, 0.010, 0.020, 0.010]


def test_every_picture_is_whole(quick, diverged) -> None:
    every(ROW, quick, diverged)



def test_the_first_step_has_adams_formula_as_its_lines(quick) -> None:
    figure = pictures.first_step(quick)
    widths = named(figure, "NTK").x
    np.testing.assert_allclose(named(figure, "standard, predicted").y, 0.01 * np.sqrt(widths), rtol=1e-5)
    np.testing.assert_allclose(named(figure, "NTK, predicted").y, 0.01, rtol=1e-5)
    np.testing.assert_allclose(named(figure, "μP, predicted").y, 0.01 * BASE / np.sqrt(widths), rtol=1e-5)
    np.testing.assert_allclose(named(figure, "standard").y, quick.step["standard"].weights, rtol=1e-6)


def test_under_sgd_the_lines_go_through_the_middle_of_the_dots(diverged) -> None:
    expected, found = diverged.expected_step("mup"), diverged.step["mup"]
    for line, dots in zip(expected, found, strict=True):
        assert np.mean(np.log(dots / line)) == pytest.approx(0, abs=1e-12)


def test_a_sweep_has_the_ends_of_the_widths_and_rings_on_their_best(quick) -> None:
    figure = pictures.sweeps(quick)
    narrow, wide = named(figure, "μP, narrowest"), named(figure, "μP")
    np.testing.assert_allclose(narrow.y, quick.losses["mup"][0], rtol=1e-6)
    np.testing.assert_allclose(wide.y, quick.losses["mup"][-1], rtol=1e-6)
    ring = named(figure, "μP, best")
    np.testing.assert_allclose(ring.x, quick.best("mup")[[0, -1]])
    np.testing.assert_allclose(ring.y, quick.losses["mup"][[0, -1]].min(1), rtol=1e-6)


def test_what_diverged_is_drawn_at_the_ceiling(diverged) -> None:
    assert not np.isfinite(diverged.losses["standard"]).all()
    figure = pictures.sweeps(diverged)
    top = max(np.max(trace.y) for trace in figure.data if trace.name == "standard")
    assert top == pytest.approx(pictures.BEYOND * diverged.untrained)
    assert 10 ** figure.layout.yaxis.range[1] > top
