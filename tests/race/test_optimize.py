"""Muon by hand, and what its step does at every width; QK-clip on logits by hand and in a run;
ProRes in a run."""

import copy
import math

import numpy as np
import pytest
import torch
from contenders import SIZE, TASK, contender

from explorer import Config
from explorer.config import preset
from explorer.model import Transformer, ignore
from explorer.model.batch import Batch
from explorer_race.optimize import QKClip, kind_of, optimizers
from explorer_race.race import Contender, Race, race
from explorer_race.recipe import Recipe
from explorer_race.runner import Runner
from explorer_race.tasks import Data

LONGEST = 1_000_000
BFLOAT16 = 2.0**-8
WIDTHS = (32, 64, 128, 256)


def hidden(model: Transformer) -> dict[str, torch.nn.Parameter]:
    """The matrices of the layers."""
    return {path: one for path, one in model.named_parameters() if kind_of(path, one) == "hidden"}


def batch(data: Data, step: int) -> Batch:
    window = data.batch(step)
    return Batch(torch.from_numpy(window.inputs), torch.from_numpy(window.targets))


@pytest.mark.parametrize(("name", "scale"), [("muon", "original"), ("muon_rms", "match_rms_adamw")])
def test_parity_with_a_hand_written_loop(name: str, scale: str) -> None:
    """torch's Muon for the layers' matrices and AdamW for the rest, bit for bit, warm-up and decay
    in both."""
    config = TASK.fit(preset("pre_ln", **SIZE, mlp="gated", activation="silu"))
    recipe = Recipe(
        optimizer=name,
        learning_rate=1e-3,
        muon_rate=20,
        muon_momentum=0.9,
        weight_decay=0.1,
        warmup=3,
        decay="wsd",
        decay_share=0.5,
        beta2=0.95,
    )
    ours = race([Contender("ours", config, recipe)], TASK, steps=6, every=2)

    data, model = Data(TASK, None, 16, 4), Transformer(config, config.seed)
    matrices = [one for path, one in model.named_parameters() if path.startswith("layers.")]
    assert len(matrices) == 2 * 7
    rate = 2e-2 if name == "muon" else 1e-3
    muon = torch.optim.Muon(matrices, lr=rate, weight_decay=0.1, momentum=0.9, adjust_lr_fn=scale)
    adam = torch.optim.AdamW(
        [model.E, model.P, model.W_U], lr=1e-3, weight_decay=0.1, betas=(0.9, 0.95)
    )
    losses = []
    for step, factor in enumerate((1 / 3, 2 / 3, 1, 1, 1 - math.sqrt(1 / 3), 1 - math.sqrt(2 / 3))):
        for one, full in ((muon, rate), (adam, 1e-3)):
            one.zero_grad()
            one.param_groups[0]["lr"] = full * factor
        loss = model.loss(model(model.embed(batch(data, step))), batch(data, step))
        loss.backward()
        muon.step()
        adam.step()
        losses.append(loss.item())
    assert ours.histories["ours"].losses == losses
    for (path, mine), yours in zip(
        ours.runners[0].model.named_parameters(), model.parameters(), strict=True
    ):
        assert torch.equal(mine, yours), path


@pytest.mark.parametrize("name", ["muon", "muon_rms"])
def test_a_step_of_muon_in_numpy(name: str) -> None:
    """The second step, by singular values in float64; torch iterates in bfloat16."""
    config = TASK.fit(Config(n_layers=1, d_model=32, n_heads=2, n_ctx=8, batch_size=2))
    model, rng, eta, mu = Transformer(config, 0), np.random.default_rng(0), 0.01, 0.8
    made = optimizers(
        model, config, Recipe(optimizer=name, learning_rate=eta, muon_rate=3, muon_momentum=mu)
    )
    gradients = {path: rng.standard_normal((2, *one.shape)) for path, one in hidden(model).items()}
    before: dict[str, np.ndarray] = {}
    for step in range(2):
        for path, one in hidden(model).items():
            before[path] = one.detach().double().numpy().copy()
            one.grad = torch.from_numpy(gradients[path][step]).float()
        for optimizer in made:
            optimizer.step()
    for path, one in hidden(model).items():
        first, second = gradients[path]
        mean = mu * (1 - mu) * first + (1 - mu) * second
        u, s, vt = np.linalg.svd((1 - mu) * second + mu * mean, full_matrices=False)
        s = s / np.linalg.norm(s)
        for _ in range(5):
            s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
        fan_out, fan_in = one.shape
        scale = (
            3 * math.sqrt(max(1, fan_out / fan_in))
            if name == "muon"
            else 0.2 * math.sqrt(max(fan_out, fan_in))
        )
        step = (before[path] - one.detach().double().numpy()) / eta
        error = np.linalg.norm(step - scale * (u * s) @ vt) / np.linalg.norm(step)
        assert error < 8 * BFLOAT16, path  # 5 rounds of three products


@pytest.mark.parametrize(
    ("name", "parametrization", "power"),
    [
        ("muon", "standard", 0),
        ("muon", "mup", 0),
        ("muon_rms", "standard", 0.5),
        ("muon_rms", "mup", 0),
        ("adam", "standard", 0.5),
    ],
)
def test_what_a_step_does_to_an_output_at_every_width(
    name: str, parametrization: str, power: float
) -> None:
    """RMS of ΔW x for x of unit RMS, over η, is ‖ΔW‖ / √fan_out: Muon's stays put, entries of one
    size give √d.

    The iteration leaves singular values of .7 to 1.2 (.68 to 1.13 by its polynomial), where a
    matrix without the √max(1, fan_out / fan_in) would be half."""
    found = []
    for width in WIDTHS:
        config = TASK.fit(
            Config(n_layers=1, d_model=width, n_ctx=8, parametrization=parametrization)
        )
        model, generator = Transformer(config, 0), torch.Generator().manual_seed(width)
        before = {path: one.detach().clone() for path, one in hidden(model).items()}
        for one in hidden(model).values():
            one.grad = torch.randn(one.shape, generator=generator)
        for optimizer in optimizers(
            model, config, Recipe(optimizer=name, learning_rate=0.1, muon_rate=1)
        ):
            optimizer.step()
        moved = [
            float((one.detach() - before[path]).norm()) / math.sqrt(len(one)) / 0.1
            for path, one in hidden(model).items()
        ]
        if name == "muon":
            assert 0.7 < min(moved) <= max(moved) < 1.2
        found.append(np.sqrt(np.mean(np.square(moved))))
    slope = np.polyfit(np.log(WIDTHS), np.log(found), 1)[0]
    assert slope == pytest.approx(power, abs=0.1)


@pytest.mark.parametrize("name", ["sgd", "adam", "muon", "muon_rms"])
def test_under_mup_a_step_of_all_layers_does_as_much_at_every_width(name: str) -> None:
    """The layers' first step on a real batch: what it makes of the output; an exponent that is
    wrong is so by ½."""
    found = []
    for width in WIDTHS:
        shape = {"n_layers": 4, "d_model": width, "n_heads": 4, "n_ctx": 32, "batch_size": 8}
        config = TASK.fit(Config(**shape, parametrization="mup", attention_scale="d"))
        model, inputs = Transformer(config, 0), batch(Data(TASK, None, 32, 8), 0)
        before = model(model.embed(inputs))
        model.loss(before, inputs).backward()
        for one in model.parameters():
            if all(one is not other for other in hidden(model).values()):
                one.grad = None
        for optimizer in optimizers(
            model, config, Recipe(optimizer=name, learning_rate=1e-4, muon_rate=1)
        ):
            optimizer.step()
        moved = (model(model.embed(inputs)) - before).detach()
        found.append(float(moved.norm()) / math.sqrt(width))
    slope = np.polyfit(np.log(WIDTHS), np.log(found), 1)[0]
    assert slope == pytest.approx(0, abs=0.15), found


# --- QK-clip --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shared", "powers"), [(False, (0.5, 0.5)), (True, (1, 0))])
def test_qk_clip_by_hand(shared: bool, powers: tuple[float, float]) -> None:
    """Heads 1 and 2 of layer 2 exceed 4, by factors 2 and 1.25; what the mask hides, and what is
    negative, is none."""
    model = Transformer(TASK.fit(preset("pre_ln", **{**SIZE, "n_heads": 4, "n_ctx": 3})), 0)
    if shared:  # two heads to a key
        for layer in model.layers:
            layer.weights["W_K"] = torch.nn.Parameter(torch.ones(16, 32))
    clip = QKClip(model, 4.0)
    seen: list[str] = []
    tap = clip.watching(lambda site, layer, tensor: seen.append(site))
    logits = torch.zeros(5, 4, 3, 3)
    tap("attn_scores", 1, logits)
    logits = logits.clone()
    logits[3, 1, 2, 0], logits[0, 2, 1, 1], logits[0, 0, 0, 1], logits[0, 3, 2, 2] = (
        8.0,
        5.0,
        100.0,
        -100.0,
    )
    tap("attn_scores", 2, logits)
    before = [
        {name: weight.detach().clone() for name, weight in layer.weights.items()}
        for layer in model.layers
    ]
    clip.step_is_done()
    assert seen == ["attn_scores"] * 2
    for layer, held, factors in zip(
        model.layers, before, ((1, 1, 1, 1), (1, 4 / 8, 4 / 5, 1)), strict=True
    ):
        for name, weight in layer.weights.items():
            power = {"W_Q": powers[0], "W_K": powers[1]}.get(name, 0)
            for head, factor in enumerate(factors if power else ()):
                rows = slice(8 * head, 8 * head + 8)
                assert torch.allclose(weight[rows], held[name][rows] * factor**power, rtol=1e-6), (
                    name,
                    head,
                )
                assert factor != 1 or torch.equal(weight[rows], held[name][rows])
            assert power or torch.equal(weight, held[name]), name


def largest(runner: Runner, step: int) -> torch.Tensor:
    """The largest visible logit of each head in the batch of a step, `[layer, head]`, with the
    weights as they are."""
    found: list[torch.Tensor] = []

    def tap(site: str, layer: int, tensor: torch.Tensor) -> None:
        if site == "attn_scores":
            visible = torch.ones(tensor.shape[-2:], dtype=torch.bool).tril()
            found.append(tensor.detach()[..., visible].amax((0, 2)))

    with torch.no_grad():
        runner.model(runner.model.embed(batch(runner.data, step)), tap)
    return torch.stack(found)


def test_qk_clip_holds_logits_that_grow_without_it() -> None:
    """After a step the largest logit of its batch is at most the bound times what that step made of
    it."""
    after: dict[float, list[torch.Tensor]] = {0.0: [], 3.0: []}
    growth = 1.0
    for bound, found in after.items():
        one = contender("pre_ln", Recipe(optimizer="muon", learning_rate=2e-3, qk_clip=bound))
        runner = Race([one], TASK, 60).runners[0]
        for step in range(60):
            before = largest(runner, step)
            runner.advance(LONGEST)
            found.append(largest(runner, step))
            if not bound:
                growth = max(growth, float((found[-1] / before).max()))
    assert max(float(one.max()) for one in after[0.0]) > 12
    assert max(float(one.max()) for one in after[3.0]) < 3 * growth < 4.5


def test_qk_clip_brings_the_logits_of_the_step_to_the_bound() -> None:
    """With a learning rate of next to nothing: those that exceeded it, exactly; the others' weights
    stay."""
    free, clipped = (
        Race(
            [contender("pre_ln", Recipe(learning_rate=1e-7, qk_clip=bound), init_variance=2)],
            TASK,
            3,
        ).runners[0]
        for bound in (0.0, 4.5)
    )
    before = largest(free, 0)
    assert 1 <= int((before > 4.5).sum()) < before.numel()
    for runner in (free, clipped):
        runner.advance(LONGEST)
    first = largest(clipped, 0)[0]
    assert first.numpy() == pytest.approx(before[0].clamp(max=4.5).numpy(), rel=1e-4)
    for layer, other, logits in zip(clipped.model.layers, free.model.layers, before, strict=True):
        for head, size in enumerate(logits):
            rows = slice(16 * head, 16 * head + 16)
            assert torch.equal(layer.weights["W_K"][rows], other.weights["W_K"][rows]) == bool(
                size <= 4.5
            )


def test_qk_clip_counts_weights_that_layers_share_once() -> None:
    """The largest logit of all layers that have them decides."""
    model = Transformer(TASK.fit(preset("pre_ln", **SIZE)), 0)
    model.layers[1] = model.layers[0]
    clip = QKClip(model, 1.0)
    for layer, size in ((1, 2.0), (2, 3.0)):
        clip.watching(ignore)("attn_scores", layer, torch.full((1, 2, 16, 16), size))
    before = model.layers[0].weights["W_K"].detach().clone()
    clip.step_is_done()
    assert torch.allclose(model.layers[0].weights["W_K"], before * 3**-0.5)


# --- α by layer -----------------------------------------------------------------------------------


@pytest.mark.parametrize("design", ["rezero", "skipinit", "layer_scale"])
@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_progressive_residuals_in_a_run(design: str, optimizer: str) -> None:
    """Read from the weights by the instruments, layer and step; it begins as the identity."""
    recipe = Recipe(alpha_schedule="prores", alpha_steps=2, optimizer=optimizer)
    run = race([contender(design, recipe, n_layers=3, n_ctx=8)], TASK, 8, every=1)
    for site in ("attn_out", "mlp_out"):
        steps, found = run.histories[design].series("alpha", site)
        expected = np.minimum(1, steps[:, None] / (2 * np.arange(1, 4)))
        assert found == pytest.approx(expected)
    moments = run.histories[design].series("second_moment", "resid_post")[1]
    assert np.ptp(moments[0]) < 1e-6
    assert np.ptp(moments[-1]) > 0.1


def test_adamc_multiplies_the_decay_of_the_layers_by_the_rate_over_its_largest() -> None:
    """At every step, also of a race that goes on from what it had; without a schedule it is
    AdamW."""

    def runner(steps: int, **choices: object) -> Runner:
        design = contender("post_ln", Recipe(weight_decay=0.5, **choices))
        return Runner(design, Data(TASK, None, 16, 4), steps, torch.device("cpu"))

    schedule = {"optimizer": "adamc", "learning_rate": 0.01, "warmup": 3, "decay": "cosine"}
    one, other = (runner(12, **schedule) for _ in "ab")
    recipe = Recipe(**schedule)
    for step in range(12):
        one.advance(100)
        layers = {id(matrix) for matrix in hidden(one.model).values()}
        for group in (group for each in one.optimizers for group in each.param_groups):
            members = {id(parameter) for parameter in group["params"]}
            decays = members & layers or id(one.model.E) in members
            factor = recipe.factor(step, 12) if members & layers else 1.0
            assert group["weight_decay"] == pytest.approx(0.5 * factor if decays else 0)
        if step == 6:
            other.restore(copy.deepcopy(one.state()))
        if step > 6:
            other.advance(100)
    assert all(map(torch.equal, one.model.parameters(), other.model.parameters()))
    once = [runner(1, optimizer=name) for name in ("adamw", "adamc")]
    for each in once:
        each.advance(100)
    assert all(map(torch.equal, *(each.model.parameters() for each in once)))


def test_z_loss_by_hand() -> None:
    """One step of SGD on the cross-entropy plus z times the mean square of ln Σ e^logit; shown is
    the cross-entropy."""
    config, rate, z = TASK.fit(preset("pre_ln", **SIZE, output_cap=5.0)), 0.5, 0.3
    ours = race(
        [Contender("ours", config, Recipe(optimizer="sgd", learning_rate=rate, z_loss=z))],
        TASK,
        steps=1,
    )
    model, given = Transformer(config, config.seed), batch(Data(TASK, None, 16, 4), 0)
    logits = model.logits(model(model.embed(given)))
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), given.target.flatten())
    before = [parameter.detach().clone() for parameter in model.parameters()]
    (loss + z * (logits.exp().sum(-1).log() ** 2).mean()).backward()
    assert ours.histories["ours"].losses == [pytest.approx(float(loss.detach()), rel=1e-6)]
    for start, mine, yours in zip(
        before, ours.runners[0].model.parameters(), model.parameters(), strict=True
    ):
        torch.testing.assert_close(mine - start, -rate * yours.grad, rtol=1e-3, atol=1e-6)
