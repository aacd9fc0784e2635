"""`Trainer`: what another plug-in needs to train a `Config` by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from explorer.config import Config
from explorer.model.batch import Batch
from explorer_race.optimize import optimizers
from explorer_race.recipe import Recipe
from explorer_race.runner import build
from explorer_race.tasks import Task, of_prose


class Trainee(NamedTuple):
    """A design that is to be trained."""

    model: nn.Module
    run: Callable[[nn.Module], Tensor]
    """Runs the model on the first batch of the race's text; gives its logits."""
    loss: Callable[[Tensor], Tensor]
    """Cross-entropy of logits, in nats a character."""
    optimize: Callable[[nn.Module], Sequence[Optimizer]]
    """Makes the recipe's optimizers, at the parametrization's rates."""


class Trainer(NamedTuple):
    """A way to train a `Config`."""

    recipe: type[Any]
    """The class of its recipes."""
    make: Callable[[Config, Any], Trainee]
    """A trainee, from a design and a recipe; None for the recipe that is usual."""


def trainee(config: Config, recipe: Recipe | None) -> Trainee:
    """The trainee of a design and a recipe."""
    task, recipe = Task(), recipe or Recipe()
    fitting = task.fit(config)
    data = of_prose(task, fitting.n_ctx, fitting.batch_size)
    model, codes = build(fitting, data), Batch(*map(torch.from_numpy, data.batch(0)[:2]))
    return Trainee(
        model,
        lambda _: model.logits(model(model.embed(codes))),
        lambda logits: F.cross_entropy(logits.flatten(0, 1), codes.target.flatten()),
        lambda built: optimizers(built, config=fitting, recipe=recipe),
    )


TRAINER = Trainer(Recipe, trainee)
