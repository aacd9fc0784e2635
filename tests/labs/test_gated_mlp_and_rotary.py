"""The lab on Llama's block: five changes, closed forms of the gate and of rotary positions, verdict and pictures."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from pictures import every, named

from explorer.labs.gated_mlp_and_rotary import pictures
from explorer.labs.gated_mlp_and_rotary.experiment import (
    BLOCKS,
    CHANGES,
    NEAR,
    OVERLAPS,
    QUANTITIES,
    Factor,
    GatedMlpAndRotary,
    invariants,
    run,
    verdict,
)
from explorer.labs.gated_mlp_and_rotary.row import ROW
from explorer.labs.stacks import Pair, pairs
from explorer.stopping import Stopped

QUICK = GatedMlpAndRotary(n_layers=2, width=64, n_ctx=8, n_seeds=2)


@pytest.fixture(scope="module")
def result():
    return run(GatedMlpAndRotary())


def test_each_block_has_one_change_more() -> None:
    settings = GatedMlpAndRotary()
    blocks = [settings.block(name) for name in BLOCKS]
    changed = [[name for name, value in after if value != getattr(before, name)]
               for before, after in pairwise(blocks)]
    assert changed == [["norm"], ["activation"], ["mlp"], ["position"], ["n_kv_heads"]]
    assert (blocks[0].activation, blocks[-1].activation, blocks[-1].kv_heads) == ("gelu", "silu", 1)


def silu(z):
    return z / (1 + np.exp(-z))


def gaussian(values, rho=0.0):
    """E of φ(x)φ(y) at a correlation, by Gauss and Hermite."""
    z, weight = np.polynomial.hermite_e.hermegauss(80)
    weight = weight / weight.sum()
    second = rho * z[:, None] + math.sqrt(1 - rho**2) * z
    return float(weight @ (values(z)[:, None] * values(second)) @ weight)


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_a_gated_mlp_adds_its_second_moment_and_less_of_what_is_shared(rho: float) -> None:
    """One MLP without attention: q = 1 + E φ², p = ρ + ρ E φφ′; a plain one adds E φφ′, which is (E φ)² at ρ = 0."""
    settings = GatedMlpAndRotary(width=256, n_seeds=8, causal=False)
    found = pairs({
        name: settings.single(name, rho).replace(attention="none", position="none", batch_size=32)
        for name in ("silu", "gate")
    })
    square = gaussian(silu, 1.0)
    laws = {"silu": gaussian(silu, rho), "gate": rho * gaussian(silu, rho)}
    for name, passed in laws.items():
        measured, predicted = (added(profile) for profile in found[name])
        law = np.array([square, passed])
        np.testing.assert_allclose(predicted[:, 0], law, atol=0.003)
        error = measured.std(1, ddof=1) / math.sqrt(8)
        assert (np.abs(measured.mean(1) - law) < 4 * error + 0.002).all()
        assert abs(measured[0].mean() - 1.05 * square) > 4 * error[0], "a twentieth more would be noticed"
        assert all(abs(measured[1].mean() - other) > 6 * error[1] for other in laws.values() if other != passed)
    assert gaussian(silu, 0.0) > 0.04


def added(profile):
    """`[2, seed]`: what a layer adds to the second moment and to the overlap of two tokens."""
    ends = [(q := profile["second_moment", site].ravel(), q * profile["token_correlation", site].ravel())
            for site in ("embed", "resid_post")]
    return np.subtract(ends[1], ends[0])


def test_rotary_positions_raise_a_gradient_by_the_mean_cosine(result) -> None:
    """(1 − ρc̄)/(1 − ρ), c̄ by a plain double sum; in a layer whose logits are as large as 1 within a few per cent."""
    settings = GatedMlpAndRotary(causal=False, n_ctx=64, n_seeds=8)
    apart = np.subtract.outer(np.arange(settings.n_ctx), np.arange(settings.n_ctx))
    angles = settings.rope_base ** (-np.arange(16) / 16)
    cosine = np.cos(apart[..., None] * angles).mean(-1)
    mean = cosine[apart != 0].mean()
    found = run(settings.replace(n_layers=2))
    for overlap in OVERLAPS[1:]:
        turned, law = found.turned(overlap), (1 - overlap * mean) / (1 - overlap)
        error = np.log(turned.measured).std(ddof=1) / math.sqrt(8)
        assert turned.predicted == pytest.approx(law, rel=0.08)
        assert abs(math.log(turned.mean / turned.predicted)) < 4 * error + 0.03
    assert law > 2.3


def test_grouped_heads_and_rotary_positions_leave_the_stream(result) -> None:
    for change in ("rms", "rotary", "grouped"):
        for quantity in ("moment", "correlation"):
            found = result.factor(change, quantity)
            assert found.predicted == pytest.approx(1, abs=0.02)
            error = np.log(found.measured).std(ddof=1) / math.sqrt(len(found.measured))
            assert abs(math.log(found.mean / found.predicted)) < 4 * error + 0.01
            assert error < 0.1


def test_the_gate_keeps_tokens_apart(result) -> None:
    found = result.factor("gate", "correlation")
    assert found.mean < 0.75
    assert found.agrees
    assert result.factor("gate", "gradient").mean > 1.7


def test_the_verdict_follows_the_numbers(result) -> None:
    severity, meaning, evidence = verdict(result)
    assert severity == "good"
    assert "gate" in meaning
    assert f"{result.factor('gate', 'correlation').mean:.2g} (theory" in evidence
    swapped = {**result.blocks, "gate": result.blocks["silu"]}
    severity, meaning, _ = verdict(replace(result, blocks=swapped))
    assert severity == "warning"
    measured, _ = result.blocks["grouped"]
    wrong = {**result.blocks, "grouped": Pair(measured, result.blocks["gpt2"].predicted)}
    severity, meaning, _ = verdict(replace(result, blocks=wrong))
    assert (severity, BLOCKS["grouped"] in meaning) == ("warning", True)


@pytest.mark.parametrize(("measured", "agrees"), [
    ([1.0, 1.0], True), ([0.5, 2.0], True), ([1.24, 1.24], True), ([1.3, 1.3], False), ([0.7, 0.7], False),
    ([float("nan"), 1.0], False),
])
def test_a_factor_agrees_within_its_share(measured: list[float], agrees: bool) -> None:
    assert NEAR == 0.25
    assert Factor(np.array(measured), 1.0).agrees == agrees


@pytest.mark.parametrize("choices", [
    {}, {"n_layers": 16, "n_seeds": 1}, {"width": 128, "kv_heads": 3}, {"rope_base": 10.0}, {"rescaled": True},
    {"causal": False}, {"n_ctx": 4},
])
def test_every_picture_at_both_ends(choices: dict[str, object]) -> None:
    found = run(QUICK.replace(**choices))
    every(ROW, found)
    assert verdict(found)[0] in ("good", "warning")


def test_pictures_show_the_factors(result) -> None:
    figure = pictures.factors(result)
    dots = named(figure, QUANTITIES["correlation"][0])
    np.testing.assert_allclose(dots.y, [result.factor(change, "correlation").mean for change in CHANGES], rtol=1e-6)
    line = named(figure, f"{QUANTITIES['correlation'][0]}, predicted")
    np.testing.assert_allclose(np.asarray(line.y)[::3], [result.factor(change, "correlation").predicted
                                                         for change in CHANGES], rtol=1e-6)
    names = [words.replace("<br>", "") for words in figure.layout.xaxis.ticktext]
    assert names == [BLOCKS[name].replace(" ", "") for name in CHANGES]
    turned = named(pictures.turned(result), "rotary")
    np.testing.assert_allclose(turned.y, [result.turned(overlap).mean for overlap in OVERLAPS], rtol=1e-6)


def test_it_stops_when_told_and_says_how_far_it_is() -> None:
    told: list[float] = []
    asked: list[bool] = []
    run(QUICK.replace(seed=50), lambda: bool(asked.append(False)), told.append)
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1)
    for before in (0, len(asked) // 2, len(asked) - 1):
        with pytest.raises(Stopped):
            run(QUICK.replace(seed=51 + before), stop=iter([False] * before + [True] * len(asked)).__next__)


def test_invariants() -> None:
    found = invariants()
    assert found["gate, factor"] == pytest.approx(found["gate, predicted"], rel=0.1)
    assert found["rotary on W_Q, overlap 0.8"] == pytest.approx(found["rotary on W_Q, overlap 0.8, predicted"], rel=0.1)
