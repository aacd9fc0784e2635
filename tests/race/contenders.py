"""Small contenders that the tests of the race share, and what it means that two races are the
same."""

import numpy as np
import torch

from explorer.config import preset
from explorer_race.history import History, Standing
from explorer_race.race import Contender, Race
from explorer_race.recipe import Recipe
from explorer_race.tasks import Task

TASK, MASKED = Task(), Task(kind="masked_character")
SIZE = {"n_layers": 2, "d_model": 32, "n_heads": 2, "n_ctx": 16, "batch_size": 4}


def contender(
    name: str, recipe: Recipe | None = None, task: Task = TASK, **changes: object
) -> Contender:
    """A preset, small, ready for the task."""
    return Contender(name, task.fit(preset(name, **{**SIZE, **changes})), recipe or Recipe())


POST = contender("post_ln", Recipe(learning_rate=3e-3, warmup=4, decay="cosine"))
PRE = contender("pre_ln", Recipe(optimizer="momentum", learning_rate=0.05))
REZERO = contender("rezero", Recipe(alpha_schedule="ramp", alpha_step=0.1))
WILD = contender("plain_stack", Recipe(optimizer="sgd", learning_rate=100.0), init_variance=10)
"""One that diverges within a few steps."""


def weights(run: Race) -> list[dict[str, torch.Tensor]]:
    """Each contender's."""
    return [runner.model.state_dict() for runner in run.runners]


def assert_equal(one: History, other: History) -> None:
    """Bit for bit: every number of which a frame is made."""
    np.testing.assert_array_equal(one.losses, other.losses)
    assert (one.steps, list(one.values)) == (other.steps, list(other.values))
    for key in other.values:
        np.testing.assert_array_equal(np.stack(one.values[key]), np.stack(other.values[key]))


def assert_same_numbers(one: Standing, other: Standing) -> None:
    """Those of all contenders, who are the same."""
    assert list(one.histories) == list(other.histories)
    for name, history in one.histories.items():
        assert_equal(history, other.histories[name])


def assert_same(one: Race, other: Race) -> None:
    """Bit for bit: every number and every weight."""
    assert_same_numbers(one, other)
    for mine, yours in zip(weights(one), weights(other), strict=True):
        assert mine.keys() == yours.keys()
        assert all(torch.equal(mine[name], yours[name]) for name in mine)
