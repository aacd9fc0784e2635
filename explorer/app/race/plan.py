"""`Plan`: size and task of a race, one record for all contenders."""

from __future__ import annotations

from pydantic import model_validator

from explorer.config import Config
from explorer.fields import setting
from explorer.training.tasks import Task

OWN = ("n_layers", "d_model", "n_heads")
"""Sizes that a pinned design may keep; sequences and batches are the same for all."""


class Plan(Task):
    """Task, size of the models, and number of steps.

    Raises:
        ConfigError: an unknown field, a wrong type, a value out of range, or sizes that exclude each other.
    """

    n_layers: int = setting(12, "Depth", "Size", "Layers of every contender.", 1, 128, symbol="N", unit="layers",
                            log=True, pinned=True)
    d_model: int = setting(64, "Width", "Size", "Width of every contender's residual stream.", 8, 1024, symbol="d",
                           unit="features", log=True, pinned=True)
    steps: int = setting(500, "Steps", "Race", "Steps of each contender, and length of a decay.", 1, 100_000, log=True,
                         pinned=True)
    n_heads: int = setting(4, "Heads", "Size", "Attention heads; they divide the width.", 1, 64, log=True)
    n_ctx: int = setting(64, "Sequence length", "Size", "Characters in a sequence.", 2, 1024, symbol="n",
                         unit="characters", log=True)
    batch_size: int = setting(16, "Batch size", "Size", "Sequences in a batch.", 1, 256, symbol="B", unit="sequences",
                              log=True)
    own_size: bool = setting(False, "Pinned designs keep their size", "Size",
                             "Depth, width and heads of a pinned design are its own; off: all have those given here.")
    every: int = setting(10, "Instruments every", "Task",
                         "Steps between readings of gradients, updates, attention and the held-out loss.", 1, 1000,
                         symbol="k", unit="steps", log=True)

    seed: int = setting(1, "Seed", "Task", "Seed of the weights and of the batches; the batches are the same for all.",
                        0, 2**31 - 1)

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
