"""The race: what a hand-written loop would give, bit for bit; who falls out; stopping and going
on."""

import math

import numpy as np
import pytest
import torch
from contenders import MASKED, POST, PRE, REZERO, SIZE, TASK, WILD, assert_same, contender, weights

from explorer import Config, ConfigError
from explorer.config import preset
from explorer.measuring import measure
from explorer.model import Transformer
from explorer.model.batch import Batch
from explorer_race.race import WORSE, Contender, Race, outcome, race
from explorer_race.recipe import Recipe
from explorer_race.tasks import Data, Task


@pytest.mark.parametrize("every", [1, 4, 1000])
@pytest.mark.parametrize("task", [TASK, MASKED], ids=lambda task: task.kind)
def test_parity_with_a_hand_written_loop(task: Task, every: int) -> None:
    """Weights and losses bit for bit, whether or not the instruments are on."""
    config = task.fit(preset("post_ln", **SIZE))
    recipe = Recipe(learning_rate=3e-3, warmup=4, clip=0.5, weight_decay=0.01, optimizer="adamw")
    ours = race([Contender("ours", config, recipe)], task, steps=6, every=every)

    torch.manual_seed(0)
    data, model, losses = Data(task, None, 16, 4), Transformer(config, config.seed), []
    if task is MASKED:
        model.E = Race([Contender("ours", config)], task, 1).runners[0].model.E
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 4))
    for step in range(6):
        window = data.batch(step)
        inputs, targets = torch.from_numpy(window.inputs), torch.from_numpy(window.targets)
        logits = model(model.embed(Batch(inputs, targets))) @ model.W_U.T
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    assert ours.histories["ours"].losses == losses
    for (name, mine), yours in zip(
        ours.runners[0].model.named_parameters(), model.parameters(), strict=True
    ):
        assert torch.equal(mine, yours), name


def test_a_race_leaves_the_noise_alone() -> None:
    """Weights are trained, not the store that they were drawn from."""
    before = [parameter.clone() for parameter in Transformer(REZERO.config, 0).parameters()]
    race([REZERO], TASK, steps=3)
    after = Transformer(REZERO.config, 0).parameters()
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_same_arguments_same_race() -> None:
    assert_same(race([POST, PRE], TASK, 5, every=2), race([POST, PRE], TASK, 5, every=2))


def test_contenders_do_not_disturb_each_other() -> None:
    together = race([POST, PRE, REZERO], TASK, 5, every=2)
    for index, one in enumerate((POST, PRE, REZERO)):
        alone = race([one], TASK, 5, every=2)
        assert all(
            torch.equal(mine, yours)
            for mine, yours in zip(
                weights(together)[index].values(), weights(alone)[0].values(), strict=True
            )
        )
        assert alone.histories[one.name].losses == together.histories[one.name].losses


def test_a_measurement_beside_it_changes_nothing() -> None:
    small = Config(n_layers=1, d_model=8, n_heads=1, n_ctx=4)
    disturbed = race([POST], TASK, 5, every=2, on_step=lambda _: measure(small))
    assert_same(disturbed, race([POST], TASK, 5, every=2))


@pytest.mark.parametrize("moment", range(0, 12, 5))
def test_stop_and_go_on(moment: int) -> None:
    """Stopped after any number of single steps, in the middle of a round too, and taken up
    again."""
    asked = iter(range(1000))
    stopped = race([POST, PRE, REZERO], TASK, 5, lambda: next(asked) >= moment, every=2)
    assert sum(runner.step for runner in stopped.runners) == moment
    assert not stopped.finished
    rounds: list[int] = []
    whole = stopped.run(on_step=lambda run: rounds.append(run.step))
    assert whole is stopped
    assert whole.finished
    assert rounds == list(range(moment // 3 + 1, 6))
    assert_same(whole, race([POST, PRE, REZERO], TASK, 5, every=2))


def test_a_huge_learning_rate_retires_and_the_others_go_on() -> None:
    run = race([WILD, POST], TASK, 20, every=5)
    fallen, steady = run.verdict()
    assert run.finished
    assert fallen.retired_at is not None
    assert 0 < fallen.retired_at < 20
    assert fallen.steps == fallen.retired_at
    assert "not finite" in fallen.reason or "loss is" in fallen.reason
    assert math.isnan(fallen.final_loss)
    assert len(run.histories["plain_stack"].losses) == fallen.retired_at + 1
    assert (steady.retired_at, steady.reason, steady.steps) == (None, "", 20)
    assert (
        race([POST], TASK, 20, every=5).histories["post_ln"].losses
        == run.histories["post_ln"].losses
    )


def test_a_loss_far_above_a_uniform_guess_has_diverged() -> None:
    """Finite to the end, and no use: said, with the step from which on it was so. A usual beginning
    is not it."""
    high = contender("pre_ln", Recipe(learning_rate=3.0))
    run = race([high, POST], TASK, 20, every=5)
    lost, steady = run.verdict()
    steps, losses = run.histories["pre_ln"].series("held_out_loss")
    assert lost.retired_at is None
    assert lost.final_loss > math.log(103) + WORSE
    assert lost.worse_from == steps[np.flatnonzero(losses <= math.log(103) + WORSE)[-1] + 1]
    assert (lost.diverged, steady.diverged, steady.worse_from) == (True, False, None)
    assert not Race([POST], TASK, 20).verdict()[0].diverged


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([4.0, 3.0, 2.0], 5),
        ([3.0, 3.0, 2.0], 0),
        ([4.0, 2.0, 4.0, 3.0], 15),
        ([4.0, 3.48, 3.2, 3.48], None),
        ([], None),
    ],
)
def test_below_the_unigram_is_below_for_good(losses: list[float], expected: int | None) -> None:
    """A dip below the level does not count, nor does what a model that wanders about it shows."""
    run = Race([PRE], TASK, 100)
    for index, loss in enumerate(losses):
        run.runners[0].history.record(5 * index, {("held_out_loss", ""): np.array(loss)})
    run.runners[0].step = 5 * len(losses)
    run.runners[0].held_out_loss = lambda: (losses or [4.0])[-1]
    assert outcome(run.runners[0], 3.5).below_unigram == expected


def test_where_a_gradient_is_not_finite() -> None:
    """The readout's weights are so large that the loss is finite and what comes down from it is
    not."""
    run = Race([PRE], TASK, 5)
    with torch.no_grad():
        run.runners[0].model.layers[1].mlp.W_out.mul_(0)
        run.runners[0].model.layers[1].mlp.W_out.register_hook(lambda gradient: gradient * math.inf)
    before = {name: one.clone() for name, one in weights(run)[0].items()}
    (outcome,) = run.run().verdict()
    assert outcome.reason == "the gradient by W_out in layer 2 is not finite"
    assert outcome.retired_at == 0
    assert all(torch.equal(one, before[name]) for name, one in weights(run)[0].items())


def other(**changes: object) -> Contender:
    return contender("pre_ln", **changes)._replace(name="other")


@pytest.mark.parametrize(
    ("contenders", "steps", "sentence"),
    [
        ([], 5, "contenders must be between 1 and 64; got 0"),
        ([PRE], 0, "steps must be between 1 and 1,000,000; got 0"),
        ([PRE, PRE], 5, "contenders must have names of their own; got 'pre_ln', 'pre_ln'"),
        (
            [PRE, other(n_ctx=8)],
            5,
            r"n_ctx must be the same for all contenders, .* got 16 \(pre_ln\), 8 \(other\)",
        ),
        ([PRE, other(batch_size=8)], 5, "batch_size must be the same for all"),
        (
            [contender("pre_ln", Recipe(alpha_schedule="ramp"))],
            5,
            "alpha_schedule must be learned where the residual has",
        ),
        (
            [contender("pre_ln", Recipe(qk_clip=50), qk_norm=True)],
            5,
            r"qk_clip must be 0 where .*; got .* \(pre_ln\)",
        ),
        ([PRE._replace(config=PRE.config.replace(causal=False))], 5, "causal must be true"),
    ],
)
def test_races_that_are_refused(contenders: list[Contender], steps: int, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        race(contenders, TASK, steps)


def test_more_than_memory_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPLORER_MAX_MEMORY_MB", "302")
    with pytest.raises(
        ConfigError, match=r"contenders must fit into 0\.302 GB together; got about 0\.30"
    ):
        Race([PRE, *(PRE._replace(name=str(index)) for index in range(9))], TASK, 5)


@pytest.mark.parametrize(
    "name", ["realformer", "fixup", "deepnorm", "skipinit", "mix_ln", "gemma2", "t5"]
)
def test_every_kind_of_design_runs(name: str) -> None:
    run = race([contender(name)], TASK, 3, every=2)
    assert run.verdict()[0].steps == 3
    assert len(run.frame())


def test_without_attention_and_without_a_mask() -> None:
    config = MASKED.fit(Config(**{**SIZE, "attention": "none"}))
    run = race([Contender("blind", config)], MASKED, 3, every=2)
    assert ("attention_entropy", "pattern") not in run.histories["blind"].values
    assert np.isfinite(run.verdict()[0].final_loss)
