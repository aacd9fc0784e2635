"""The warm-up lab: who trains and who stalls, the same models for each warm-up, words, and stopping."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from pictures import must_be_whole, named
from trainings import invented

from explorer.choices import ConfigError
from explorer.labs.trained import LEARNS, SHAPE, Trained, profile_at, train
from explorer.labs.warmup import pictures
from explorer.labs.warmup.experiment import ALL, DESIGNS, LENGTHS, USUAL, Warmup, name_of, run, verdict
from explorer.labs.warmup.row import ROW
from explorer.stopping import Stopped
from explorer.training.race import Contender, Race
from explorer.training.recipe import Recipe
from explorer.training.tasks import Task

QUICK = Warmup(n_layers=2, steps=20, warmup=10)
FIRST = name_of("post", "none")


@pytest.fixture(scope="module")
def result() -> Trained[Warmup]:
    return run(QUICK)


def ended(settings: Warmup = Warmup(), **finals: float) -> Trained[Warmup]:  # noqa: B008 - frozen
    """A result with losses of our own: `post_none=3.4`; the others trained well."""
    return invented(settings, {name_of(*one): finals.get("_".join(one), 2.7) for one in ALL})


def test_six_contenders_with_names_of_their_own(result: Trained[Warmup]) -> None:
    assert list(result.histories) == list(result.ends) == [name_of(*one) for one in ALL]
    assert len(set(result.histories)) == len(DESIGNS) * len(LENGTHS) == 6
    assert FIRST == "Post-LN, no warm-up"


def test_a_design_is_the_same_whatever_its_warm_up_will_be(result: Trained[Warmup]) -> None:
    """Same weights, same batches: before the first step everything agrees, bit for bit."""
    for design in DESIGNS:
        none, short, long = (name_of(design, length) for length in LENGTHS)
        for other in (short, long):
            for number in ("held_out_loss", "train_loss"):
                assert result.histories[none].series(number)[1][0] == result.histories[other].series(number)[1][0]
            np.testing.assert_array_equal(result.histories[none].layer_gradient()[1][0],
                                          result.histories[other].layer_gradient()[1][0])
        assert result.final(none) != result.final(long)


def test_the_numbers_are_the_races(result: Trained[Warmup]) -> None:
    """Against a race of one."""
    task = Task(seed=0)
    config = task.fit(QUICK.contender("pre", "long")[0])
    race = Race([Contender("x", config, Recipe(learning_rate=3e-3, warmup=10))], task, 20, every=1).run()
    found, name = result.histories[name_of("pre", "long")], name_of("pre", "long")
    assert found.losses == race.histories["x"].losses
    assert result.final(name) == race.verdict()[0].final_loss
    assert result.levels == race.levels


def test_recipes_are_as_the_settings_say() -> None:
    settings = Warmup(optimizer="sgd", rate=2.0, warmup=50, n_layers=3, seed=5)
    config, recipe = settings.contender("post", "short")
    assert recipe == Recipe(optimizer="sgd", learning_rate=2 * USUAL["sgd"], warmup=5)
    assert (config.norm_placement, config.n_layers, config.seed, config.d_model) == ("post", 3, 5, SHAPE["d_model"])
    assert settings.lengths == {"none": 1, "short": 5, "long": 50}
    assert Warmup(warmup=2).lengths["short"] == 2


def test_the_reading_at_a_step_is_the_first_at_or_after_it(result: Trained[Warmup]) -> None:
    history = result.histories[FIRST]
    norms = history.series("parameter_gradient", "W_in")[1]
    for step, reading in ((0, 0), (10, 10), (19, 19), (20, 19), (500, 19)):
        np.testing.assert_array_equal(profile_at(history, step)["parameter_gradient", "W_in"], norms[reading][None])
    assert profile_at(history, 3)["token_correlation", "resid_post"].shape == (1, 2)


def test_post_ln_stalls_without_warm_up_and_sgd_does_not_help() -> None:
    """The claim, on a seed that is not the notebook's. Pre-LN is far below by then."""
    settings = Warmup(seed=11, steps=120)
    for optimizer in ("adam", "sgd"):
        found = run(settings.replace(optimizer=optimizer), contenders=[("post", "none"), ("pre", "none")])
        post, pre = found.histories
        assert not found.trains(post)
        assert found.final(pre) < found.levels.unigram - 2 * LEARNS
        ratios = {name: found.histories[name].gradient_ratio()[1].min() for name in (post, pre)}
        assert ratios[post] < 0.1 < ratios[pre]
        assert found.histories[post].series("token_correlation", "resid_post")[1][:, -1].max() > 0.99


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
    found = verdict(ended(**finals))
    assert found[0] == severity
    assert words in found[1]
    assert "A unigram has 3.38, a bigram 2.44." in found[2]


def test_a_warm_up_that_does_not_end_is_named_and_who_fell_out_too() -> None:
    assert "does not end within these steps" in verdict(ended(Warmup(steps=50)))[1]
    assert "Post-LN out at step 300, " in verdict(ended(post_none=math.nan))[2]


@pytest.mark.parametrize("choices", [
    {"optimizer": "sgd", "rate": 10.0}, {"optimizer": "radam"}, {"rate": 0.1}, {"warmup": 2}, {"warmup": 1000},
])
def test_both_ends_come_to_an_end(choices: dict[str, float]) -> None:
    found = run(QUICK.replace(**choices))
    assert len(found.ends) == 6
    for end in found.ends.values():
        assert end.reason or (end.steps == 20 and math.isfinite(end.final_loss))
    assert verdict(found)[0] in ("good", "warning")
    for plot in ROW.plots:
        must_be_whole(plot.draw(found))


def test_what_falls_out_keeps_what_was_read() -> None:
    """A learning rate beyond all reason: the loss is no number before the end, and the others go on."""
    config, recipe = QUICK.contender("post", "none")
    wild = recipe.replace(optimizer="sgd", learning_rate=100.0)
    no_norm = config.replace(norm_placement="none")
    found = train(QUICK, {"wild": (no_norm, wild), "tame": (config, recipe)}, QUICK.steps, QUICK.seed)
    assert found.ends["wild"].reason
    assert math.isnan(found.final("wild"))
    assert not found.trains("wild")
    assert found.histories["wild"].layer_gradient()[1].shape == (found.ends["wild"].steps + 1, 2)
    assert found.ends["tame"].steps == 20


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


# --- pictures -------------------------------------------------------------------------------------------------


def test_losses_end_after_the_last_step(result: Trained[Warmup]) -> None:
    figure = pictures.losses(result)
    trace = named(figure, "Post, none")
    np.testing.assert_allclose(trace.y[:-1], result.histories[FIRST].series("held_out_loss")[1], rtol=1e-6)
    assert trace.y[-1] == pytest.approx(result.final(FIRST))
    assert trace.x.tolist() == list(range(21))
    assert named(figure, "unigram").y[0] == result.levels.unigram
    assert named(figure, "bigram").y[0] == result.levels.bigram


def test_who_falls_out_is_marked_with_the_step(result: Trained[Warmup]) -> None:
    out = result.ends[FIRST]._replace(steps=5, reason="the training loss is nan", final_loss=math.nan)
    figure = pictures.losses(replace(result, ends={**result.ends, FIRST: out}))
    mark = named(figure, "Post, none, diverged at step 5")
    assert (mark.x[0], mark.text[1]) == (5, "diverged at step 5")
    assert "the training loss is nan" in mark.hovertemplate
    assert not [trace for trace in pictures.losses(result).data if "diverged" in trace.name]


def test_a_design_keeps_its_hue_and_a_warm_up_its_dash_and_symbol(result: Trained[Warmup]) -> None:
    for draw in (pictures.losses, pictures.gradients, pictures.correlation):
        lines = [trace for trace in draw(result).data if trace.showlegend]
        assert len(lines) == len({trace.name for trace in lines}) == 6
        assert len({trace.line.color for trace in lines[:3]}) == len({trace.line.color for trace in lines[3:]}) == 1
        assert lines[0].line.color != lines[3].line.color
        for part in (lambda trace: trace.line.dash, lambda trace: trace.marker.symbol):
            assert len({part(trace) for trace in lines}) == 3
            assert [part(trace) for trace in lines[:3]] == [part(trace) for trace in lines[3:]]


def test_gradients_are_of_their_steps(result: Trained[Warmup]) -> None:
    """As drawn, at the step where the warm-up ends, and at the same step without."""
    figure = pictures.gradients(result)
    for words, length, reading in (("as drawn", "long", 0), ("with", "long", 10), ("without", "none", 10)):
        trace, history = named(figure, f"Pre, {words}"), result.histories[name_of("pre", length)]
        np.testing.assert_allclose(trace.y, history.layer_gradient()[1][reading], rtol=1e-6)
        assert trace.x.tolist() == [1, 2]


def test_token_correlation_is_of_the_last_layer(result: Trained[Warmup]) -> None:
    shown = named(pictures.correlation(result), "Post, none")
    expected = result.histories[FIRST].series("token_correlation", "resid_post")[1][:, -1]
    np.testing.assert_allclose(shown.y, expected, rtol=1e-6)
