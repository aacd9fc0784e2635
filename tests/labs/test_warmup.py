"""The warm-up lab: who trains and who stalls, the same models for each warm-up, words, and stopping."""

from __future__ import annotations

import math

import numpy as np
import pytest

from explorer.choices import ConfigError
from explorer.labs.trained import LEARNS, SHAPE, Curve, Trained, train
from explorer.labs.warmup.experiment import DESIGNS, FIELD, LENGTHS, USUAL, Warmup, WarmupResult, Who, run, verdict
from explorer.probe.observe import Stopped
from explorer.training.race import Contender, Race
from explorer.training.recipe import Recipe
from explorer.training.tasks import Levels, Task

QUICK = Warmup(n_layers=2, steps=20, warmup=10)


@pytest.fixture(scope="module")
def result() -> WarmupResult:
    return run(QUICK)


def curve(final: float, retired: str = "") -> Curve:
    """One that came to some loss."""
    numbers = np.ones((1, 2))
    return Curve(np.zeros(1), np.array([5.0, final]), numbers, np.ones((1, 3)), numbers, numbers, 300, retired)


def invented(**finals: float) -> WarmupResult:
    """A result with losses of our own: `post_none=3.4`; the others trained well."""
    losses = {who.name: finals.get("_".join(who), 2.7) for who in FIELD}
    return WarmupResult(Warmup(), Trained({name: curve(loss) for name, loss in losses.items()}, Levels(3.38, 2.44)))


def test_six_contenders_with_names_of_their_own(result: WarmupResult) -> None:
    assert list(result.trained.curves) == [who.name for who in FIELD]
    assert len(set(result.trained.curves)) == len(DESIGNS) * len(LENGTHS) == 6
    assert FIELD[0].name == "Post-LN, no warm-up"


def test_a_design_is_the_same_whatever_its_warm_up_will_be(result: WarmupResult) -> None:
    """Same weights, same batches: before the first step everything agrees, bit for bit."""
    for design in DESIGNS:
        none, short, long = (result.trained.curves[Who(design, length).name] for length in LENGTHS)
        for other in (short, long):
            np.testing.assert_array_equal(none.weights[0], other.weights[0])
            assert none.loss[0] == other.loss[0]
        assert none.final != long.final


def test_the_numbers_are_the_races(result: WarmupResult) -> None:
    """Against a race of one, read by hand."""
    task = Task(seed=0)
    config = task.fit(QUICK.contender("pre", "long")[0])
    race = Race([Contender("x", config, Recipe(learning_rate=3e-3, warmup=10))], task, 20, every=1).run()
    found = result.trained.curves[Who("pre", "long").name]
    frame = race.frame()
    one = frame[(frame.statistic == "parameter_gradient") & (frame.step == 7)]
    expected = [math.sqrt((one[one.layer == layer].value ** 2).sum()) for layer in (1, 2)]
    np.testing.assert_allclose(found.weights[7], expected, rtol=1e-12)
    assert found.final == race.verdict()[0].final_loss
    streams = frame[(frame.statistic == "stream_gradient") & (frame.step == 3) & (frame.site != "resid_mid")]
    np.testing.assert_array_equal(found.stream[3], streams.sort_values("layer").value)
    assert result.trained.levels == race.levels
    assert found.first_to_last[7] == pytest.approx(expected[0] / expected[1])


def test_recipes_are_as_the_settings_say() -> None:
    settings = Warmup(optimizer="sgd", rate=2.0, warmup=50, n_layers=3, seed=5)
    config, recipe = settings.contender("post", "short")
    assert recipe == Recipe(optimizer="sgd", learning_rate=2 * USUAL["sgd"], warmup=5)
    assert (config.norm_placement, config.n_layers, config.seed, config.d_model) == ("post", 3, 5, SHAPE["d_model"])
    assert settings.lengths == {"none": 1, "short": 5, "long": 50}
    assert Warmup(warmup=2).lengths["short"] == 2


def test_the_reading_at_a_step_is_the_first_at_or_behind_it(result: WarmupResult) -> None:
    found = result.trained.curves[FIELD[0].name]
    assert [found.reading(step) for step in (0, 10, 19, 20, 500)] == [0, 10, 19, 19, 19]
    sparse = found._replace(steps=np.array([0.0, 8.0, 16.0]))
    assert [sparse.reading(step) for step in (1, 8, 9, 17)] == [1, 1, 2, 2]


def test_post_ln_stalls_without_warm_up_and_sgd_does_not_help() -> None:
    """The claim, on a seed that is not the notebook's. Pre-LN is far below by then."""
    settings = Warmup(seed=11, steps=120)
    for optimizer in ("adam", "sgd"):
        field = [Who("post", "none"), Who("pre", "none")]
        contenders = {who.name: settings.replace(optimizer=optimizer).contender(*who) for who in field}
        found = train(contenders, settings.steps, settings.seed)
        stalled, trained = (found.curves[who.name] for who in field)
        assert not found.trains(field[0].name)
        assert trained.final < found.levels.unigram - 2 * LEARNS
        assert stalled.first_to_last.min() < 0.1 < trained.first_to_last.min()
        assert stalled.correlation[:, -1].max() > 0.99


@pytest.mark.parametrize(
    ("finals", "severity", "words"),
    [
        ({"post_none": 3.39}, "good", "stalls without warm-up and trains with it"),
        ({"post_none": 3.2}, "good", "trains better with warm-up"),
        ({}, "warning", "nearly as well"),
        ({"post_none": 3.39, "post_long": 3.35}, "warning", "this warm-up does not help"),
        ({"pre_none": 3.39}, "warning", "Pre-LN does not train"),
        ({"pre_none": math.nan}, "warning", "Pre-LN does not train"),
        ({"post_none": math.nan}, "good", "stalls without"),
    ],
)
def test_verdicts(finals: dict[str, float], severity: str, words: str) -> None:
    found = verdict(invented(**finals))
    assert found[0] == severity
    assert words in found[1]
    assert "A unigram has 3.38, a bigram 2.44." in found[2]


def test_a_warm_up_that_does_not_end_is_told_and_who_fell_out_too(result: WarmupResult) -> None:
    short = WarmupResult(Warmup(steps=50), invented().trained)
    assert "does not end within these steps" in verdict(short)[1]
    curves = dict(result.trained.curves) | {FIELD[0].name: curve(math.nan, "the training loss is nan")}
    told = verdict(WarmupResult(QUICK, Trained(curves, result.trained.levels)))[2]
    assert "Post-LN out at step 300, " in told


@pytest.mark.parametrize("choices", [
    {"optimizer": "sgd", "rate": 10.0}, {"optimizer": "radam"}, {"rate": 0.1}, {"warmup": 2}, {"warmup": 1000},
])
def test_both_ends_come_to_an_end(choices: dict[str, float]) -> None:
    found = run(QUICK.replace(**choices))
    assert len(found.trained.curves) == 6
    for one in found.trained.curves.values():
        assert one.retired or (one.made == 20 and math.isfinite(one.final))
    assert verdict(found)[0] in ("good", "warning")


def test_what_falls_out_keeps_what_was_read() -> None:
    """A learning rate beyond all reason: the loss is no number before the end, and the others go on."""
    config, recipe = QUICK.contender("post", "none")
    wild = recipe.replace(optimizer="sgd", learning_rate=100.0)
    no_norm = config.replace(norm_placement="none")
    found = train({"wild": (no_norm, wild), "tame": (config, recipe)}, 20, 0)
    assert found.curves["wild"].retired
    assert math.isnan(found.curves["wild"].final)
    assert not found.trains("wild")
    assert found.curves["wild"].weights.shape == (found.curves["wild"].made + 1, 2)
    assert found.curves["tame"].made == 20


def test_it_stops_when_told_and_says_how_far_it_is() -> None:
    told: list[float] = []
    run(QUICK, progress=told.append)
    assert told == pytest.approx(np.arange(1, 21) / 20)
    for before in (0, 1, 40):
        with pytest.raises(Stopped):
            run(QUICK, stop=iter([False] * before + [True] * 9999).__next__)


def test_it_is_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^steps must be a whole number between 20 and 1000; got 5000$"):
        Warmup(steps=5000)
