"""`Plan`: size and task of a race, one record for all contenders."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from explorer.config import Config
from explorer.fields import About
from explorer.training.tasks import Task

OWN = ("n_layers", "d_model", "n_heads")
"""Sizes that a pinned design may keep; sequences and batches are the same for all."""


class Plan(Task):
    """Task, size of the models, and number of steps.

    Raises:
        ConfigError: an unknown field, a wrong type, a value out of range, or sizes that exclude each other.
    """

    n_layers: Annotated[int, Field(ge=1, le=128), About("Depth", "Size", "N", "layers", log=True, pinned=True)] = Field(
        12, description="Layers of every contender."
    )
    d_model: Annotated[int, Field(ge=8, le=1024), About("Width", "Size", "d", "features", log=True, pinned=True)] = (
        Field(64, description="Width of every contender's residual stream.")
    )
    steps: Annotated[int, Field(ge=1, le=100_000), About("Steps", "Race", log=True, pinned=True)] = Field(
        500, description="Steps of each contender, and length of a decay."
    )
    n_heads: Annotated[int, Field(ge=1, le=64), About("Heads", "Size", log=True)] = Field(
        4, description="Attention heads; they divide the width."
    )
    n_ctx: Annotated[int, Field(ge=2, le=1024), About("Sequence length", "Size", "n", "characters", log=True)] = Field(
        64, description="Characters in a sequence."
    )
    batch_size: Annotated[int, Field(ge=1, le=256), About("Batch size", "Size", "B", "sequences", log=True)] = Field(
        16, description="Sequences in a batch."
    )
    own_size: Annotated[bool, About("Pinned designs keep their size", "Size")] = Field(
        False, description="Depth, width and heads of a pinned design are its own; off: all have those given here."
    )
    every: Annotated[int, Field(ge=1, le=1000), About("Instruments every", "Task", "k", "steps", log=True)] = Field(
        10, description="Steps between readings of gradients, updates, attention and the held-out loss."
    )

    seed: Annotated[int, Field(ge=0, le=2**31 - 1), About("Seed", "Task")] = Field(
        1, description="Seed of the weights and of the batches; the batches are the same for all."
    )

    @model_validator(mode="after")
    def _sizes_agree(self) -> Plan:
        self.fit(self.sized(Config(), own=False))  # which refuses in the same words
        return self

    @property
    def task(self) -> Task:
        """The task alone."""
        return Task(**{name: getattr(self, name) for name in Task.specs()})

    def sized(self, config: Config, *, own: bool) -> Config:
        """A design in the plan's size.

        Args:
            own: whether the design has a size of its own, which counts where `own_size` says so.
        """
        names = ("n_ctx", "batch_size", "seed", *(() if own and self.own_size else OWN))
        return config.replace(**{name: getattr(self, name) for name in names})
