"""What the instruments say, against the same step done by hand; the table; the verdict."""

import math

import numpy as np
import pytest
import torch
from contenders import POST, PRE, REZERO, TASK, contender

from explorer import Config
from explorer.model import Transformer
from explorer.model.batch import Batch
from explorer.training.race import MARGIN, Race, outcome, race
from explorer.training.recipe import Recipe
from explorer.training.tasks import Data


def test_alphas_follow_their_schedules() -> None:
    """A ramp and a fixed α move as told, whatever the gradient; a learned one moves by itself."""
    recipes = {"ramp": Recipe(alpha_schedule="ramp", alpha_step=0.1, alpha_end=0.25),
               "fixed": Recipe(alpha_schedule="fixed", alpha_end=0.5), "learned": Recipe(),
               "own_rate": Recipe(alpha_schedule="own_rate", alpha_rate=20)}
    for design in ("rezero", "skipinit", "layer_scale"):
        runs = [contender(design, recipe, n_ctx=8)._replace(name=name) for name, recipe in recipes.items()]
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
    assert read["held_out_loss", ""] == pytest.approx(float(model.loss(model(model.embed(held)), held).detach()))
    assert read["learning_rate", ""] == pytest.approx(3e-3 / 4)
    for index in range(2):
        layer, stream = model.layers[index], streams[f"resid_post {index + 1}"]
        assert read["second_moment", "resid_post"][index] == pytest.approx(float(stream.square().mean().detach()))
        assert read["stream_gradient", "resid_post"][index] == pytest.approx(float(stream.grad.norm()))
        for name, weight in layer.weights.items():
            assert read["parameter_gradient", name][index] == pytest.approx(float(weight.grad.norm()), rel=1e-5)
    assert read["attention_entropy", "pattern"].shape == (2, 2)
    assert ("alpha", "mlp_out") not in history.values


def test_adams_first_step_moves_every_weight_by_the_learning_rate() -> None:
    ratio = race([POST], TASK, 1).histories["post_ln"].series("update_ratio", "W_in")[1][0]
    for index, layer in enumerate(Transformer(POST.config, 0).layers):
        weight = layer.weights["W_in"].detach()
        expected = 3e-3 / 4 * math.sqrt(weight.numel()) / float(weight.norm())
        assert ratio[index] == pytest.approx(expected, rel=1e-3)


def test_frame_is_tidy() -> None:
    run = race([REZERO, POST], TASK, 3, every=2)
    frame = run.frame()
    assert list(frame.columns) == ["contender", "step", "statistic", "site", "layer", "head", "value"]
    keys = ["contender", "step", "statistic", "site", "layer", "head"]
    assert not frame.duplicated(keys).any()
    losses = frame[(frame.contender == "post_ln") & (frame.statistic == "train_loss")]
    assert losses.value.tolist() == run.histories["post_ln"].losses
    assert losses.layer.isna().all()
    entropy = frame[(frame.contender == "rezero") & (frame.statistic == "attention_entropy") & (frame.step == 2)]
    assert entropy[["layer", "head"]].values.tolist() == [[1, 0], [1, 1], [2, 0], [2, 1]]
    assert frame[frame.site == "embed"].layer.unique().tolist() == [0]


@pytest.mark.parametrize(("losses", "expected"), [
    ([4.0, 3.0, 2.0], 5), ([3.0, 3.0, 2.0], 0), ([4.0, 2.0, 4.0, 3.0], 15), ([4.0, 3.48, 3.2, 3.48], None), ([], None),
])
def test_below_the_unigram_is_below_for_good(losses: list[float], expected: int | None) -> None:
    """A dip below the level does not count, nor does what a model that wanders about it shows."""
    run = Race([PRE], TASK, 100)
    for index, loss in enumerate(losses):
        run.runners[0].history.record(5 * index, {("held_out_loss", ""): np.array(loss)})
    run.runners[0].step = 5 * len(losses)
    run.runners[0].held_out_loss = lambda: (losses or [4.0])[-1]
    assert outcome(run.runners[0], 3.5).below_unigram == expected


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
    by_matrix = [run.histories["pre_ln"].series("parameter_gradient", name)[1] for name in Config().design.shapes]
    norms = [[math.hypot(*(one[reading, layer] for one in by_matrix)) for layer in (0, 1)] for reading in (0, -1)]
    assert learned.ratio_first == pytest.approx(norms[0][0] / norms[0][1])
    assert learned.ratio_last == pytest.approx(norms[1][0] / norms[1][1])
    assert run.histories["idle"].gradient_ratio()[1][0] == learned.ratio_first


