"""Schedules against torch's own, one after the other, and against their closed forms; groups of
parameters."""

import math
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as torchs

from explorer import Config, ConfigError
from explorer.model import Transformer
from explorer.schemes.parametrization import BASE_WIDTH
from explorer_race.optimize import alphas, kind_of, optimizers, schedule, total_norm
from explorer_race.recipe import OPTIMIZERS, Recipe, idle
from explorer_race.runner import build
from explorer_race.tasks import Data, Task

STEPS = 30
TASK = Task()
SMALL = TASK.fit(Config(n_layers=2, d_model=16, n_heads=2, n_ctx=8, batch_size=2))


def plain_optimizer() -> torch.optim.SGD:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)


def built(config: Config) -> Transformer:
    return build(config, Data(TASK, None, 8, 2))


def groups(model: Transformer, config: Config, recipe: Recipe) -> list[dict[str, Any]]:
    """Groups of parameters, of all the recipe's optimizers."""
    return [group for one in optimizers(model, config, recipe) for group in one.param_groups]


def rates(
    over: torch.optim.Optimizer, scheduler: torchs.LRScheduler, steps: int = STEPS
) -> list[float]:
    """The learning rate of each step."""
    found = []
    for _ in range(steps):
        found.append(over.param_groups[0]["lr"])
        over.step()
        scheduler.step()
    return found


@pytest.mark.parametrize("warmup", [1, 2, 10])
@pytest.mark.parametrize("decay", ["constant", "cosine", "linear", "inverse_sqrt"])
def test_schedules_are_torchs(decay: str, warmup: int) -> None:
    """LinearLR up, then ConstantLR, CosineAnnealingLR or LinearLR down, glued by SequentialLR where
    there are two; or Noam's lambda."""
    theirs = plain_optimizer()
    rest = STEPS - warmup + 1
    down = {
        "constant": lambda: torchs.ConstantLR(theirs, factor=1.0),
        "cosine": lambda: torchs.CosineAnnealingLR(theirs, T_max=rest),
        "linear": lambda: torchs.LinearLR(theirs, 1.0, 1e-300, total_iters=rest),
        "inverse_sqrt": lambda: torchs.LambdaLR(
            theirs, lambda step: min((step + 1) / warmup, math.sqrt(warmup / (step + 1)))
        ),
    }[decay]()
    if warmup > 1 and decay != "inverse_sqrt":
        up = torchs.LinearLR(theirs, 1 / warmup, 1.0, total_iters=warmup - 1)
        down = torchs.SequentialLR(theirs, [up, down], milestones=[warmup - 1])
    ours = plain_optimizer()
    recipe = Recipe(learning_rate=0.5, warmup=warmup, decay=decay)
    found = rates(ours, schedule(ours, recipe, STEPS))
    assert found == pytest.approx(rates(theirs, down), rel=1e-9)


@pytest.mark.parametrize(
    ("decay", "expected"),
    [
        ("wsd", lambda u: 1 - math.sqrt(u)),
        ("wsd_linear", lambda u: 1 - u),
        ("wsd_cosine", lambda u: (1 + math.cos(math.pi * u)) / 2),
    ],
)
def test_a_decay_of_the_last_share_of_the_steps(decay, expected) -> None:
    """As transformers' get_wsd_schedule: u runs over the decaying steps alone, from 0, and would be
    1 at the next."""
    recipe = Recipe(warmup=5, decay=decay, decay_share=0.3)
    found = [recipe.factor(step, 30) for step in range(30)]
    assert found[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert set(found[4:22]) == {1.0}
    assert found[21:] == pytest.approx([expected(k / 9) for k in range(9)])
    whole = recipe.replace(decay_share=1.0)
    assert [whole.factor(step, 30) for step in (4, 29)] == pytest.approx([1, expected(25 / 26)])
    assert Recipe(decay=decay, decay_share=0.01).factor(2, 3) == 1, (
        "one step at least, which begins it"
    )


def test_a_warmup_longer_than_the_race() -> None:
    recipe = Recipe(warmup=100, decay="cosine")
    assert [recipe.factor(step, 3) for step in range(3)] == pytest.approx([0.01, 0.02, 0.03])
    assert Recipe(warmup=3, decay="linear").factor(2, 3) == 1


def test_schedules_of_alpha() -> None:
    ramp = Recipe(alpha_schedule="ramp", alpha_step=0.25, alpha_end=0.6)
    assert [ramp.alphas(step, 2) for step in range(4)] == [
        [0.25] * 2,
        [0.5] * 2,
        [0.6] * 2,
        [0.6] * 2,
    ]
    assert Recipe(alpha_schedule="fixed").alphas(0, 3) == [1] * 3
    assert Recipe().alphas(5, 3) == Recipe(alpha_schedule="own_rate").alphas(5, 3) == []


def test_progressive_residuals_rise_layer_by_layer() -> None:
    """ProRes: layer l is whole after T l steps, and all begin at zero."""
    recipe = Recipe(alpha_schedule="prores", alpha_steps=4)
    found = [recipe.alphas(step, 3) for step in range(13)]
    assert found[0] == [0, 0, 0]
    assert found[2] == pytest.approx([1 / 2, 1 / 4, 1 / 6])
    assert found[4] == pytest.approx([1, 1 / 2, 1 / 3])
    assert [[line[layer] for line in found].index(1) for layer in range(3)] == [4, 8, 12]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sgd", torch.optim.SGD),
        ("momentum", torch.optim.SGD),
        ("adam", torch.optim.Adam),
        ("adamw", torch.optim.AdamW),
        ("radam", torch.optim.RAdam),
    ],
)
def test_optimizers_are_torchs_with_the_recipes_numbers(name: str, kind: type) -> None:
    recipe = Recipe(optimizer=name, learning_rate=0.01, beta1=0.8, beta2=0.95, weight_decay=0.1)
    (found,) = optimizers(built(SMALL), SMALL, recipe)
    assert type(found) is kind
    (group,) = found.param_groups
    assert (group["lr"], group["weight_decay"]) == (0.01, 0.1)
    if name in ("sgd", "momentum"):
        assert group["momentum"] == (0.8 if name == "momentum" else 0)
    else:
        assert group["betas"] == (0.8, 0.95)


@pytest.mark.parametrize("name", ["sgd", "adam", "muon", "muon_rms"])
def test_mup_multiplies_each_matrix_learning_rate(name: str) -> None:
    config = SMALL.replace(parametrization="mup", d_model=32)
    model, recipe = (
        built(config),
        Recipe(optimizer=name, learning_rate=0.01, muon_rate=7),
    )
    by_parameter = {
        id(one): group["lr"] for group in groups(model, config, recipe) for one in group["params"]
    }
    rest = config.design.factors("sgd" if name == "sgd" else "adam")
    hidden = {"sgd": 1, "adam": 2, "muon": 7, "muon_rms": math.sqrt(2)}[name]
    assert len({*rest.values(), hidden}) > 1
    expected = {"E": rest["input"], "P": rest["input"], "W_U": rest["output"]}
    for path, parameter in model.named_parameters():
        assert by_parameter[id(parameter)] == pytest.approx(
            0.01 * expected.get(path.split(".")[-1], hidden)
        ), path


def test_completep_sets_adams_epsilon_and_the_decay_of_the_layers() -> None:
    config = SMALL.replace(parametrization="completep", d_model=128, n_layers=6)
    model = built(config)
    for name in ("adamw", "muon"):
        by_parameter = {
            id(one): group
            for group in groups(model, config, Recipe(optimizer=name, weight_decay=0.1))
            for one in group["params"]
        }
        for path, parameter in model.named_parameters():
            kind, group = kind_of(path, parameter), by_parameter[id(parameter)]
            if name == "adamw" or kind != "hidden":
                assert group["eps"] == pytest.approx(1e-8 * {"output": 1 / 3}.get(kind, 1 / 6)), (
                    path
                )
                assert group["weight_decay"] == pytest.approx(0.1 * {"input": 1}.get(kind, 2)), path


class Gated(torch.nn.Module):
    """A sublayer with parameters that no design here has: a matrix, a sink a head, and a table that
    is no weight."""

    def __init__(self) -> None:
        super().__init__()
        self.W_gate_attn = torch.nn.Parameter(torch.ones(2, 16))
        self.sink, self.streams = (
            torch.nn.Parameter(torch.zeros(2)),
            torch.nn.Parameter(torch.eye(4)),
        )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_parameters_that_a_design_brings_along_need_no_entry(name: str) -> None:
    """A new matrix is stepped and decays as the other ones, what is not one as LayerScale's λ: by
    Adam, no decay."""
    config = SMALL.replace(parametrization="mup", residual="layer_scale")
    model = built(config)
    for layer in model.layers:
        layer.add_module("gated", Gated())
    recipe = Recipe(optimizer=name, weight_decay=0.1)
    by_name: dict[str, object] = {}
    for one in optimizers(model, config, recipe):
        held = {id(parameter) for group in one.param_groups for parameter in group["params"]}
        by_name |= {
            path.split(".")[-1]: one
            for path, parameter in model.named_parameters()
            if id(parameter) in held
        }
    assert by_name["W_gate_attn"] is by_name["W_Q"]
    assert by_name["sink"] is by_name["streams"] is by_name["alpha"] is by_name["E"]
    vectors = {
        id(parameter)
        for path, parameter in model.named_parameters()
        if path.split(".")[-1] in ("sink", "streams", "alpha")
    }
    assert all(
        (group["weight_decay"] == 0) == (id(one) in vectors)
        for group in groups(model, config, recipe)
        for one in group["params"]
    )


@pytest.mark.parametrize("name", ["sgd", "momentum", "adamw", "muon", "muon_rms"])
@pytest.mark.parametrize("width", [32, 64, 128])
def test_mup_decays_all_matrices_by_one_factor_at_every_width(name: str, width: int) -> None:
    """Without a gradient a step leaves 1 − ηλ of each matrix, whatever the width: microsoft/mup's
    rule."""
    config = SMALL.replace(parametrization="mup", d_model=width)
    model = built(config).double()
    before = {path: parameter.detach().clone() for path, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for one in optimizers(
        model, config, Recipe(optimizer=name, learning_rate=0.01, weight_decay=5, muon_rate=1)
    ):
        one.step()
    for path, parameter in model.named_parameters():
        assert torch.allclose(parameter, before[path] * (1 - 0.01 * 5), rtol=1e-12), path


@pytest.mark.parametrize("width", [32, 128])
def test_mup_under_adam_adds_a_decay_of_the_gradients_own_power_of_the_width(width: int) -> None:
    """Adam's λW joins the gradient: entries of W_U are mup's over m and their gradients mup's times
    m, hence λm²."""
    config = SMALL.replace(parametrization="mup", d_model=width)
    model, ratio = built(config), width / BASE_WIDTH
    names = {id(parameter): path.split(".")[-1] for path, parameter in model.named_parameters()}
    powers = {"E": 0, "P": 0, "W_U": 2}
    for group in groups(model, config, Recipe(optimizer="adam", weight_decay=0.1)):
        for one in group["params"]:
            assert group["weight_decay"] == pytest.approx(
                0.1 * ratio ** powers.get(names[id(one)], 1)
            ), names[id(one)]


def test_alpha_has_a_rate_of_its_own_and_never_decays() -> None:
    config = SMALL.replace(norm_placement="none", residual="rezero")
    model = built(config)
    recipe = Recipe(learning_rate=0.01, weight_decay=0.1, alpha_schedule="own_rate", alpha_rate=7)
    of_alpha = {id(one) for one in alphas(model)}
    assert len(of_alpha) == 2
    for group in groups(model, config, recipe):
        is_alpha = {id(one) in of_alpha for one in group["params"]}
        assert is_alpha in ({True}, {False})
        assert (group["lr"], group["weight_decay"]) == pytest.approx(
            (0.07, 0) if True in is_alpha else (0.01, 0.1)
        )


def test_total_norm_is_infinite_only_if_a_number_is() -> None:
    assert total_norm([torch.tensor([3.0, 0]), torch.tensor([[4.0]])]) == 5
    assert total_norm([torch.tensor([3e30]), torch.tensor([4e30])]) == pytest.approx(5e30)
    assert math.isinf(total_norm([torch.tensor([math.inf]), torch.tensor([1.0])]))
    assert math.isnan(total_norm([torch.tensor([math.nan])]))


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ({"warmup": 0}, "warmup must be a whole number between 1 and 1000000; got 0"),
        ({"optimizer": "lion"}, "optimizer must be one of .*; got 'lion'"),
    ],
)
def test_a_recipe_refuses_in_one_sentence(choice: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Recipe(**choice)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"qk_norm": True}, "qk_norm"),
        ({"attention": "none"}, "attention"),
        ({"logit_cap": 50}, "logit_cap"),
        ({"residual_attention": "scores"}, "residual_attention"),
        ({"residual_attention": "qk"}, "residual_attention"),
        ({}, None),
    ],
)
def test_what_can_do_nothing_for_a_design_is_known_and_refused(
    changes: dict[str, Any], cause: str | None
) -> None:
    config = Config(**{**changes, "residual": "rezero"})
    assert {field: why[1] for field, why in idle(config).items()} == (
        {"qk_clip": cause} if cause else {}
    )
    Recipe().check(config, "mine")
    if cause:
        sentence = rf"qk_clip must be 0 where .*; got qk_clip = 7\.0 with {cause} = .* \(mine\)"
        with pytest.raises(ConfigError, match=sentence):
            Recipe(qk_clip=7).check(config, "mine")
    else:
        Recipe(qk_clip=7, alpha_schedule="prores").check(config, "mine")
        assert set(idle(Config())) == {"alpha_schedule"}
