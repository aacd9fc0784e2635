"""One contender in the race: its model, its optimizer, its numbers so far, and why it is out if it is."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from explorer.config import Config
from explorer.model import Transformer, ignore
from explorer.model.batch import Batch
from explorer.training.history import NO_SITE, Entrant
from explorer.training.instruments import Instruments, device_of, loss_of
from explorer.training.optimize import QKClip, alphas, clip, hold, optimizers, schedule, total_norm
from explorer.training.recipe import Recipe
from explorer.training.tasks import Data, Window


class Contender(NamedTuple):
    """A design, its recipe and its name."""

    name: str
    config: Config
    recipe: Recipe = Recipe()


class Runner(Entrant):
    """A contender at work.

    Args:
        contender: the design to train, with its recipe.
        data: the task and its text.
        steps: how long the race is, for the learning rate's decay.
        device: where it runs.
    Raises:
        ConfigError: the recipe has what can do nothing for the design, such as a schedule for an α that it has not.
    """

    def __init__(self, contender: Contender, data: Data, steps: int, device: torch.device) -> None:
        super().__init__(contender.name, contender.config)
        self.recipe = contender.recipe
        self.recipe.check(self.config, self.name)
        self.data = data
        self.model = build(self.config, data).to(device)
        self.scheduled = [] if self.recipe.alpha_rule.value is None else alphas(self.model)
        for parameter in self.scheduled:
            parameter.requires_grad_(False)
        self.learning = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizers = optimizers(self.model, self.config, self.recipe)
        self.schedules = [schedule(optimizer, self.recipe, steps) for optimizer in self.optimizers]
        self.qk_clip = QKClip(self.model, self.recipe.qk_clip) if self.recipe.qk_clip else None
        self.steps = steps

    def advance(self, every: int) -> None:
        """One step of training, with the instruments on if the step is a multiple of `every`.

        A loss or a gradient that is not finite retires the contender, its weights as they were before the step.
        """
        hold(self.scheduled, self.recipe.alphas(self.step, len(self.scheduled)))
        batch = self.tensors(self.data.batch(self.step))
        instruments = Instruments(self.model) if self.step % every == 0 else None
        tap = ignore if instruments is None else instruments.tap
        if self.qk_clip:
            tap = self.qk_clip.watching(tap)
        self.model.zero_grad()  # only now: what is let go here is taken up at once, still mapped and warm
        loss = self.model.loss(self.model(self.model.embed(batch), tap), batch)
        self.history.losses.append(float(loss.detach()))
        self.learn(loss, instruments)
        if instruments is not None:
            self.history.record(self.step, instruments.found)
        self.step += not self.retired

    def learn(self, loss: Tensor, instruments: Instruments | None) -> None:
        """Updates the weights from the loss, or takes the contender out of the race."""
        if instruments is not None:
            instruments.forward_is_done()
            rate = self.recipe.learning_rate * self.recipe.factor(self.step, self.steps)
            instruments.found["learning_rate", NO_SITE] = np.array(rate)
            instruments.found["held_out_loss", NO_SITE] = np.array(self.held_out_loss())
        if not math.isfinite(self.history.losses[-1]):
            self.retired = f"the training loss is {self.history.losses[-1]}"
            return
        loss.backward()  # type: ignore[no-untyped-call]
        if instruments is not None:
            instruments.backward_is_done()
        size = total_norm([parameter.grad for parameter in self.learning if parameter.grad is not None])
        if not math.isfinite(size):
            self.retired = f"the gradient by {self.worst()} is not finite"
            return
        if self.recipe.clip:
            clip(self.learning, self.recipe.clip, size)
        for optimizer, its_schedule in zip(self.optimizers, self.schedules, strict=True):
            optimizer.step()
            its_schedule.step()
        if self.qk_clip:
            self.qk_clip.step_is_done()
        if instruments is not None:
            instruments.step_is_done()

    def held_out_loss(self) -> float:
        """The loss on the held-out sequences, with the weights as they are."""
        return loss_of(self.model, self.tensors(self.data.held_out))

    def tensors(self, window: Window) -> Batch:
        """A window where the model is."""
        return Batch(torch.from_numpy(window.inputs), torch.from_numpy(window.targets)).to(device_of(self.model))

    def worst(self) -> str:
        """The parameter nearest to the output whose gradient is not finite."""
        for path, parameter in reversed(list(self.model.named_parameters())):
            if parameter.grad is not None and not bool(parameter.grad.isfinite().all()):
                *place, name = path.split(".")
                return f"{name} in layer {int(place[1]) + 1}" if place else name
        raise RuntimeError("every gradient is finite")

    def state(self) -> dict[str, Any]:
        """All that the next step depends on, tensors and plain numbers; for `restore`."""
        return {
            "step": self.step,
            "retired": self.retired,
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restores what `state` returned."""
        self.step, self.retired = state["step"], state["retired"]
        self.model.load_state_dict(state["model"])
        states = state["optimizers"] if "optimizers" in state else [state["optimizer"]]  # as it was before Muon
        for optimizer, its_schedule, held in zip(self.optimizers, self.schedules, states, strict=True):
            optimizer.load_state_dict(held)
            its_schedule.last_epoch = self.step  # the rates of the step are among the optimizer's state


def build(config: Config, data: Data) -> Transformer:
    """The model of a config for the text's own characters; for Python's prose the same, weight for weight."""
    return Transformer(config, config.seed, vocabulary=data.vocabulary, masks=data.task.masks)
