"""The lab on residual streams: who is Pre-LN untrained, what a few steps leave of it, words, pictures and stopping."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from pictures import every

from explorer import Config
from explorer.choices import ConfigError
from explorer.labs.residual_streams import experiment
from explorer.labs.residual_streams.experiment import (
    DESIGNS,
    MIXES,
    SAME,
    ResidualStreams,
    StreamsResult,
    from_pre,
    losses,
    lowest,
    run,
    verdict,
    with_gradients,
)
from explorer.labs.residual_streams.row import ROW
from explorer.profile import STREAM, Profile
from explorer.stopping import Stopped
from explorer.training.race import Contender, Race
from explorer.training.tasks import Task

QUICK = ResidualStreams(n_layers=4, width=32, steps=10)


@pytest.fixture(scope="module")
def result() -> StreamsResult:
    return run(QUICK)


def with_readings(result: StreamsResult, monkeypatch: pytest.MonkeyPatch, **numbers: tuple[float, float]
                  ) -> StreamsResult:
    """The same with a token correlation and a least gradient of our own after the training, by design."""

    def after(self: StreamsResult, name: str) -> Profile:
        rho, gradient = numbers.get(name, (0.9, 0.5))
        values = {("activation_gradient", site): np.full((1, 4), gradient) for site in STREAM}
        return Profile("measured", {**values, ("token_correlation", "resid_post"): np.full((1, 4), rho)}, seeds=(0,))

    monkeypatch.setattr(StreamsResult, "after", after)
    return result


def test_five_designs_that_differ_in_nothing_else(result: StreamsResult) -> None:
    assert list(result.trained.histories) == list(result.trained.ends) == list(DESIGNS.values())
    for name in DESIGNS:
        stack, (trained, recipe) = QUICK.stack(name), QUICK.contender(name)
        assert {stack.norm, trained.norm} == {"rms"}
        own = {"norm_placement": stack.norm_placement, "stream": stack.stream, "n_streams": 4}
        assert stack == QUICK.stack("pre_ln").replace(**own)
        assert trained == QUICK.contender("pre_ln")[0].replace(**own)
        assert (recipe.warmup, recipe.learning_rate) == (2, 1e-3)
    assert QUICK.replace(n_streams=6).design("mhc").n_streams == 6


def test_mixes_are_pre_ln_until_they_learn(result: StreamsResult) -> None:
    for name in MIXES:
        drawn, trained = from_pre(result, name)
        assert drawn < 1e-3 < lowest(result.after(name))
        assert trained > 0
        assert result.trained.final(DESIGNS[name]) != result.trained.final(DESIGNS["pre_ln"])
    assert from_pre(result, "pre_ln") == (0, 0)
    assert min(from_pre(result, "post_ln")) > 0.01


def test_the_readings_are_the_races(result: StreamsResult) -> None:
    """Against a race of one; the gradient is relative to the last layer's, squared."""
    config, recipe = QUICK.contender("attn_res")
    task = Task(seed=0)
    race = Race([Contender("x", task.fit(config), recipe)], task, QUICK.steps, every=2).run()
    found = result.after("attn_res")
    np.testing.assert_array_equal(found["token_correlation", "resid_post"],
                                  with_gradients(race.histories["x"], QUICK.steps)["token_correlation", "resid_post"])
    norms = race.histories["x"].series("stream_gradient", "resid_mid")[1][-1]
    last = race.histories["x"].series("stream_gradient", "resid_post")[1][-1][-1]
    np.testing.assert_allclose(found["activation_gradient", "resid_mid"][0], (norms / last) ** 2)
    assert found["activation_gradient", "resid_post"][0, -1] == 1


def test_what_is_lost(result: StreamsResult, monkeypatch: pytest.MonkeyPatch) -> None:
    told = with_readings(result, monkeypatch, post_ln=(1.0, 1e-9), pre_ln=(0.9995, 0.5), keel=(0.9, 1e-4),
                         mhc=(math.nan, math.nan))
    assert [losses(told.after(name)) for name in DESIGNS] == [
        ["gradient", "rank"], ["rank"], ["gradient"], ["gradient", "rank"], []]


@pytest.mark.parametrize(("numbers", "severity", "words"), [
    ({"post_ln": (1.0, 1e-9)}, "good", "its gradient and rank, the others keep theirs; mHC and AttnRes start as"),
    ({"post_ln": (1.0, 1e-9)}, "good", "Pre-LN and are still like it"),
    ({"post_ln": (0.9, 1e-9), "mhc": (0.9 - 2 * SAME, 0.5)}, "good", "its gradient, the others keep theirs; mHC"),
    ({"post_ln": (0.9, 1e-9), "mhc": (0.9 - 2 * SAME, 0.5)}, "good", "Pre-LN and are not like it any more"),
    ({}, "warning", "no design loses"),
    ({"post_ln": (1.0, 1e-9), "keel": (0.9999, 0.5)}, "warning", "lost by Post-LN and Keel"),
])
def test_verdicts(result: StreamsResult, monkeypatch: pytest.MonkeyPatch, numbers: dict[str, tuple[float, float]],
                  severity: str, words: str) -> None:
    found = verdict(with_readings(result, monkeypatch, **numbers))
    assert found[0] == severity
    assert words in found[1]


def test_who_fell_out_is_named(result: StreamsResult) -> None:
    ends = {name: end._replace(reason="the training loss is nan" if name == "Keel" else "")
            for name, end in result.trained.ends.items()}
    severity, words, _ = verdict(replace(result, trained=replace(result.trained, ends=ends)))
    assert (severity, words[:9]) == ("warning", "Keel fell")


def test_post_ln_loses_its_gradient_in_a_deep_stack_and_pre_ln_does_not() -> None:
    """The claim in small, on a seed that is not the notebook's: 24 layers, 20 steps."""
    settings = ResidualStreams(n_layers=24, steps=20, seed=3)
    task, found = Task(seed=3), {}
    for name in ("post_ln", "pre_ln", "keel"):
        config, recipe = settings.contender(name)
        race = Race([Contender("x", task.fit(config), recipe)], task, settings.steps, every=4).run()
        found[name] = losses(with_gradients(race.histories["x"], settings.steps))
    assert found == {"post_ln": ["gradient", "rank"], "pre_ln": [], "keel": []}


def test_pictures(result: StreamsResult) -> None:
    every(ROW, result)
    for plot, count in zip(ROW.plots, (5, 5, 5, 5, 5), strict=True):
        assert sum(bool(trace.showlegend) for trace in plot.draw(result).data) == count


def test_the_notebooks_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "ResidualStreams", lambda: QUICK)
    numbers = experiment.invariants()
    assert len(numbers) == 15
    for name in ("mHC", "AttnRes"):
        for what in ("token correlation", "least gradient²"):
            assert numbers[f"{name}, {what}"] == pytest.approx(numbers[f"Pre-LN, {what}"], rel=2e-2)


def test_bad_settings_and_stopping() -> None:
    with pytest.raises(ConfigError, match=r"^n_layers must be a whole number between 2 and 64; got 65$"):
        ResidualStreams(n_layers=65)
    asked = iter([False] * 30 + [True] * 1000)
    with pytest.raises(Stopped):
        run(QUICK.replace(seed=9), stop=lambda: next(asked))
    seen: list[float] = []
    run(QUICK, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1)
    assert isinstance(QUICK.stack("keel"), Config)
