"""What the instruments say, against the same step done by hand; the table; the verdict."""

import math
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from contenders import POST, PRE, REZERO, TASK, assert_same, contender, weights
from numpy.testing import assert_allclose

from explorer import Config, measure
from explorer.model import Transformer
from explorer.model.batch import Batch
from explorer.vocabulary import STATISTICS
from explorer_race.archive import load, save
from explorer_race.history import ON_REQUEST, Terms
from explorer_race.race import MARGIN, Race, race
from explorer_race.recipe import Recipe
from explorer_race.tasks import Data

POSITIONS = [name for name, row in STATISTICS.items() if row.by_position]


def test_alphas_follow_their_schedules() -> None:
    """A ramp and a fixed α move as told, whatever the gradient; a learned one moves by itself."""
    recipes = {
        "ramp": Recipe(alpha_schedule="ramp", alpha_step=0.1, alpha_end=0.25),
        "fixed": Recipe(alpha_schedule="fixed", alpha_end=0.5),
        "learned": Recipe(),
        "own_rate": Recipe(alpha_schedule="own_rate", alpha_rate=20),
    }
    for design in ("rezero", "skipinit", "layer_scale"):
        runs = [
            contender(design, recipe, n_ctx=8)._replace(name=name)
            for name, recipe in recipes.items()
        ]
        run = race(runs, TASK, 5, every=1)
        found = {name: run.histories[name].series("alpha", "mlp_out")[1] for name in recipes}
        assert found["ramp"].shape == (5, 2)
        assert found["ramp"][:, 0] == pytest.approx([0.1, 0.2, 0.25, 0.25, 0.25])
        assert (found["fixed"] == 0.5).all()
        start = 0.1 if design == "layer_scale" else 0.0
        assert found["learned"][0] == pytest.approx([start, start])
        moved = {name: np.abs(found[name][-1] - start).max() for name in ("learned", "own_rate")}
        assert 0 < moved["learned"] < moved["own_rate"] / 5


def test_instruments_by_their_definitions() -> None:
    """The readings of a step, against the same step done by hand."""
    history = race([REZERO, POST], TASK, 3, every=2).histories["post_ln"]
    assert history.steps == [0, 2]
    data, model = Data(TASK, None, 16, 4), Transformer(POST.config, 0)
    window = data.batch(0)
    batch = Batch(torch.from_numpy(window.inputs), torch.from_numpy(window.targets))
    streams: dict[str, torch.Tensor] = {}

    def tap(site: str, layer: int, tensor: torch.Tensor) -> None:
        if site == "resid_post":
            tensor.retain_grad()
            streams[f"{site} {layer}"] = tensor

    model.loss(model(model.embed(batch), tap), batch).backward()
    held = Batch(torch.from_numpy(data.held_out.inputs), torch.from_numpy(data.held_out.targets))
    read = {key: history.series(*key)[1][0] for key in history.values}
    assert read["held_out_loss", ""] == pytest.approx(
        float(model.loss(model(model.embed(held)), held).detach())
    )
    assert read["learning_rate", ""] == pytest.approx(3e-3 / 4)
    for index in range(2):
        layer, stream = model.layers[index], streams[f"resid_post {index + 1}"]
        assert read["second_moment", "resid_post"][index] == pytest.approx(
            float(stream.square().mean().detach())
        )
        assert read["stream_gradient", "resid_post"][index] == pytest.approx(
            float(stream.grad.norm())
        )
        for name, weight in layer.weights.items():
            assert read["parameter_gradient", name][index] == pytest.approx(
                float(weight.grad.norm()), rel=1e-5
            )
    assert read["attention_entropy", "pattern"].shape == (2, 2)
    assert ("alpha", "mlp_out") not in history.values


def test_adams_first_step_moves_every_weight_by_the_learning_rate() -> None:
    ratio = race([POST], TASK, 1).histories["post_ln"].series("update_ratio", "W_in")[1][0]
    for index, layer in enumerate(Transformer(POST.config, 0).layers):
        weight = layer.weights["W_in"].detach()
        expected = 3e-3 / 4 * math.sqrt(weight.numel()) / float(weight.norm())
        assert ratio[index] == pytest.approx(expected, rel=1e-3)


def test_singular_values_of_updates_by_their_definitions() -> None:
    """Against all singular values of the same step, as the matrices multiply: NTK's have a
    factor."""
    design = contender(
        "pre_ln", Recipe(optimizer="sgd", learning_rate=0.1), parametrization="ntk", mlp_ratio=8
    )
    run = race([design], TASK, 1, spectra=True)
    before, after = (
        model.layers for model in (Transformer(design.config, 0), run.runners[0].model)
    )
    for name, matrix in design.config.design.matrices.items():
        sizes, ranks = (
            run.histories["pre_ln"].series(row, name)[1][0]
            for row in ("update_spectral_norm", "update_stable_rank")
        )
        for index in range(2):
            values = torch.linalg.svdvals(
                (after[index].weights[name] - before[index].weights[name]).detach().double()
            )
            assert matrix.forward != 1
            assert sizes[index] == pytest.approx(
                float(values[0]) * matrix.forward * math.sqrt(matrix.fan_in / matrix.fan_out),
                rel=1e-4,
            )
            assert ranks[index] == pytest.approx(
                float(values.square().sum() / values[0] ** 2), rel=1e-4
            )


def first_spectra(run: Race) -> None:
    """Against the measurement of the model as it was drawn."""
    first = run.histories["post_ln"].series("largest_possible_logit", "attn_scores")[1][0]
    untrained = measure(POST.config.replace(n_seeds=1), backward=False, spectra=True)
    expected = untrained["largest_possible_logit", "attn_scores"][0]
    assert_allclose(first, expected, rtol=1e-6)


def first_positions(run: Race) -> None:
    """Of the model as it was drawn, those of the race's first batch, in every layer."""
    frame = run.frame()
    added = frame.statistic.isin(ON_REQUEST)
    assert frame[added].position.nunique() == POST.config.n_ctx
    assert frame[~added].position.isna().all()
    model, taps = Transformer(POST.config, POST.config.seed), dict[tuple[str, int], torch.Tensor]()
    words = torch.from_numpy(run.data.batch(0).inputs)
    with torch.no_grad():
        model(
            model.embed(Batch(words, words)), lambda site, layer, x: taps.update({(site, layer): x})
        )
    for layer in range(1, POST.config.n_layers + 1):
        pattern, stream = taps["pattern", layer], taps["resid_post", layer]
        for key, expected in (
            (("attention_received", "pattern"), pattern.mean((0, 1, 2))),
            (("second_moment_by_position", "resid_post"), stream.square().mean((0, 2))),
        ):
            first = run.histories["post_ln"].series(*key)[1][0, layer - 1]
            assert_allclose(first, expected, rtol=1e-5)
    assert Terms.of(run.terms.plain()).positions


@pytest.mark.parametrize(
    ("option", "statistics", "check_first"),
    [
        ("spectra", {*ON_REQUEST} - {*POSITIONS}, first_spectra),
        ("positions", {*POSITIONS}, first_positions),
    ],
    ids=["spectra", "positions"],
)
def test_more_instruments_do_not_alter_a_race_and_are_read_on_request_alone(
    option: str, statistics: set[str], check_first: Callable[[Race], None], tmp_path: Path
) -> None:
    """Bit for bit; and a race that was stopped reads them on as if it had not been."""
    plain, wide = (race([POST, PRE], TASK, 4, every=2, **{option: on}) for on in (False, True))
    frame = wide.frame()
    added = frame.statistic.isin(ON_REQUEST)
    assert set(frame[added].statistic) == statistics
    pd.testing.assert_frame_equal(
        frame[~added].reset_index(drop=True), plain.frame(), check_exact=True
    )
    for mine, yours in zip(weights(plain), weights(wide), strict=True):
        assert all(torch.equal(mine[name], yours[name]) for name in mine)
    check_first(wide)
    asked = iter(range(100))
    stopped = race([POST, PRE], TASK, 4, lambda: next(asked) >= 5, every=2, **{option: True})
    save(stopped, tmp_path / "a.race")
    assert_same(load(tmp_path / "a.race").run(), wide)
    assert_same(pickle.loads(pickle.dumps(stopped)).run(), wide)  # noqa: S301
    with pytest.raises(TypeError, match=f"{option} must be a bool"):
        race([PRE], TASK, 1, **{option: 1})


def test_muon_moves_every_matrix_as_the_spectral_condition_asks_up_to_its_own_scale() -> None:
    """‖ΔW‖₂ √(fan_in / fan_out) is r η √max(1, fan_out / fan_in) √(fan_in / fan_out), times 0.7 to
    1.2, which its Newton-Schulz steps leave: 2 r η of W_out, r η of others, with many directions
    where Adam and SGD have few."""
    runs = [
        contender("pre_ln", Recipe(optimizer=name, learning_rate=rate))._replace(name=name)
        for name, rate in (("muon", 1e-3), ("adam", 1e-3), ("sgd", 0.1))
    ]
    run = race(runs, TASK, 11, spectra=True)
    for name, matrix in runs[0].config.design.matrices.items():
        sizes = run.histories["muon"].series("update_spectral_norm", name)[1]
        law = 20e-3 * math.sqrt(max(1, matrix.fan_in / matrix.fan_out))
        assert ((sizes > 0.9 * law) & (sizes < 1.25 * law)).all(), name
    muon, adam, sgd = (
        np.median(run.histories[name].matrices("update_stable_rank")[1])
        for name in ("muon", "adam", "sgd")
    )
    assert muon > 12
    assert max(adam, sgd) < 6


def test_under_mup_a_step_of_adam_is_the_same_at_every_width() -> None:
    """The spectral condition; in the standard parametrization it grows, here to 2 to 4 times at 4
    times the width."""
    grown = {}
    for parametrization in ("standard", "mup"):
        sizes = []
        for width in (32, 128):
            design = contender("pre_ln", d_model=width, parametrization=parametrization)
            history = race([design], TASK, 31, spectra=True).histories["pre_ln"]
            sizes.append(np.median(history.matrices("update_spectral_norm")[1][:, 1:]))
        grown[parametrization] = sizes[1] / sizes[0]
    assert 2 < grown["standard"] < 4
    assert grown["mup"] == pytest.approx(1, abs=0.2)


def test_updates_come_to_the_equilibrium_where_a_norm_follows_the_matrix() -> None:
    """Queries and keys that are normalized ignore the scale of W_Q and W_K; W_V is what the law
    does not cover."""
    recipe = Recipe(optimizer="adamw", learning_rate=0.01, weight_decay=1.0, warmup=10)
    history = race([contender("pre_ln", recipe, qk_norm=True, batch_size=8)], TASK, 500).histories[
        "pre_ln"
    ]
    rest = math.sqrt(2 * 0.01 * 0.1 / 1.9)
    for name, least, most in (("W_Q", 0.88, 1.12), ("W_K", 0.88, 1.12), ("W_V", 1.3, 3)):
        law = history.series("equilibrium_update", name)[1]
        assert law[0] == pytest.approx(rest * math.sqrt(1 / 10)), "warm-up"
        assert law[1:] == pytest.approx(rest)
        late = history.series("update_ratio", name)[1][25:]
        assert least < math.sqrt((late**2).mean()) / rest < most, name


@pytest.mark.parametrize(
    ("recipe", "factor"),
    [
        (Recipe(optimizer="sgd", learning_rate=0.1, weight_decay=0.01), 1.0),
        (Recipe(optimizer="momentum", learning_rate=0.1, weight_decay=0.01), math.sqrt(1 / 1.9)),
        (
            Recipe(optimizer="adamc", learning_rate=0.1, weight_decay=0.01, decay="linear"),
            math.sqrt(0.1 / 1.9),
        ),
        (Recipe(optimizer="adamw", learning_rate=0.1), 0.0),
        (Recipe(optimizer="adam", learning_rate=0.1, weight_decay=0.01), 0.0),
        (Recipe(optimizer="muon", learning_rate=0.1, weight_decay=0.01), 0.0),
    ],
    ids=lambda value: getattr(value, "optimizer", None),
)
def test_the_equilibrium_is_that_of_the_rate_and_the_decay_of_the_step(
    recipe: Recipe, factor: float
) -> None:
    """AdamC's weight decay follows the rate, so the equilibrium falls with it, not with its
    root."""
    history = race([contender("pre_ln", recipe)], TASK, 4, every=2).histories["pre_ln"]
    if not factor:
        assert not any(name == "equilibrium_update" for name, _ in history.values)
        return
    falls = [1.0, 0.5] if recipe.decay == "linear" else [1.0, 1.0]
    for name in ("W_Q", "W_out"):
        law = history.series("equilibrium_update", name)[1]
        assert_allclose(
            law, math.sqrt(2 * 0.1 * 0.01) * factor * np.array(falls)[:, None] * np.ones(2)
        )


def test_frame_is_tidy() -> None:
    run = race([REZERO, POST], TASK, 3, every=2)
    frame = run.frame()
    assert list(frame.columns) == [
        "contender",
        "step",
        "statistic",
        "site",
        "layer",
        "head",
        "position",
        "value",
    ]
    keys = ["contender", "step", "statistic", "site", "layer", "head"]
    assert not frame.duplicated(keys).any()
    losses = frame[(frame.contender == "post_ln") & (frame.statistic == "train_loss")]
    assert losses.value.tolist() == run.histories["post_ln"].losses
    assert losses.layer.isna().all()
    entropy = frame[
        (frame.contender == "rezero") & (frame.statistic == "attention_entropy") & (frame.step == 2)
    ]
    assert entropy[["layer", "head"]].values.tolist() == [[1, 0], [1, 1], [2, 0], [2, 1]]
    assert frame[frame.site == "embed"].layer.unique().tolist() == [0]


def test_verdict() -> None:
    """One that learns, and one whose learning rate is nearly nothing."""
    idle = PRE._replace(name="idle", recipe=Recipe(learning_rate=1e-7))
    eager = PRE._replace(recipe=Recipe(learning_rate=1e-2))
    run = race([eager, idle], TASK, 60, every=5)
    learned, not_learned = run.verdict()
    assert learned.final_loss < run.levels.unigram - MARGIN
    assert not_learned.final_loss > run.levels.unigram
    assert not_learned.below_unigram is None
    steps, losses = run.histories["pre_ln"].series("held_out_loss")
    above = steps[losses >= run.levels.unigram - MARGIN]
    assert learned.below_unigram == above[-1] + 5
    by_matrix = [
        run.histories["pre_ln"].series("parameter_gradient", name)[1]
        for name in Config().design.shapes
    ]
    norms = [
        [math.hypot(*(one[reading, layer] for one in by_matrix)) for layer in (0, 1)]
        for reading in (0, -1)
    ]
    assert learned.ratio_first == pytest.approx(norms[0][0] / norms[0][1])
    assert learned.ratio_last == pytest.approx(norms[1][0] / norms[1][1])
    assert run.histories["idle"].gradient_ratio()[1][0] == learned.ratio_first
