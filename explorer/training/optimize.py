"""Recipes in torch: torch's own optimizers and scheduler, μP's rates, and the schedules of α."""

from __future__ import annotations

import math
from collections import defaultdict

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.optimizer import Optimizer

from explorer.config import Config
from explorer.schemes.scale import learning_rates
from explorer.training.recipe import OPTIMIZERS, Recipe


def optimizer(model: nn.Module, config: Config, recipe: Recipe) -> Optimizer:
    """The recipe's optimizer over everything that learns, parameters of one rate in one group.

    Under μP each kind of matrix has its own multiple of the learning rate, and of the weight decay the inverse, so that
    a step's ηλ is the same at every width, as in microsoft/mup. α has its own rate where the recipe says so, and never
    decays: a decaying branch would be another design.
    """
    rule = OPTIMIZERS[recipe.optimizer]
    rates = learning_rates(config, "adam" if rule.adaptive else "sgd")
    groups: defaultdict[tuple[float, float], list[nn.Parameter]] = defaultdict(list)
    for path, parameter in model.named_parameters():
        name = path.split(".")[-1]
        if not parameter.requires_grad:
            continue
        if name == "alpha":
            groups[recipe.alpha_rule.rate(recipe), 0.0].append(parameter)
            continue
        rate = rates.get(name, 1.0)
        # Adam divides gradient and λW by the size of their sum; mup's W_U, before its multiplier, is 1/rate of ours
        power = 2 if name == "W_U" and rule.divides_decay else 1
        groups[rate, recipe.weight_decay / rate**power].append(parameter)
    made: Optimizer = rule.torch(torch.optim, [
        {"params": parameters, "lr": recipe.learning_rate * rate, "weight_decay": decay}
        for (rate, decay), parameters in groups.items()
    ], recipe)
    return made


def schedule(over: Optimizer, recipe: Recipe, steps: int) -> LambdaLR:
    """The learning rates of a race of so many steps: `step()` once after each of the optimizer's.

    One closed form for warm-up and decay, so that its state is a count of steps and nothing drifts; it equals torch's
    own LinearLR, CosineAnnealingLR and their like, one after the other.
    """
    return LambdaLR(over, lambda step: recipe.factor(step, steps))


def alphas(model: nn.Module) -> list[nn.Parameter]:
    """The residual αs of a model, by layer; empty for a design that has none."""
    return [parameter for path, parameter in model.named_parameters() if path.split(".")[-1] == "alpha"]


@torch.no_grad()
def hold(parameters: list[nn.Parameter], value: float) -> None:
    """Sets what is not learned."""
    for parameter in parameters:
        parameter.fill_(value)


def total_norm(gradients: list[Tensor]) -> float:
    """Euclidean norm of all gradients together: inf or nan if one of their numbers is, and only then."""
    size = float(torch.stack(torch._foreach_norm(gradients)).norm())
    if math.isfinite(size):
        return size
    return float(torch.stack([torch.linalg.vector_norm(one, dtype=torch.float64) for one in gradients]).norm())


def clip(parameters: list[nn.Parameter], most: float, size: float) -> None:
    """Cuts the norm of all gradients together, which is `size`, to `most`."""
    torch.nn.utils.clip_grads_with_norm_(parameters, most, torch.tensor(size))
