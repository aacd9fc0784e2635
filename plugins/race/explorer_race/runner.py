"""One contender in the race: its model, its optimizer, its numbers so far, and why it is out if it
is.

Readings of a step are taken from its own passes, by taps that do not alter it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from explorer.config import Config
from explorer.measuring.observe import both
from explorer.measuring.record import Recorder
from explorer.measuring.rotation import rotation
from explorer.measuring.spectra import FEW_STEPS, of_logits, of_stack
from explorer.measuring.statistics import norms
from explorer.model import Layer, Transformer, ignore
from explorer.model.attention import visible
from explorer.model.batch import Batch
from explorer.profile import by_site
from explorer.sites import BRANCHES, MATRICES
from explorer.vocabulary import Array, Key
from explorer_race.history import NO_SITE, Entrant
from explorer_race.optimize import QKClip, alphas, optimizers, schedule, total_norm
from explorer_race.recipe import Recipe
from explorer_race.tasks import Data, Window


class Contender(NamedTuple):
    """A design, its recipe and its name.

    Example:
        >>> config = ex.Task().fit(ex.preset("post_ln", d_model=64))
        >>> ex.Contender("Post-LN", config, ex.Recipe(warmup=100)).recipe.warmup
        100
    """

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
        spectra: whether singular values of the updates are read, too.
        positions: whether statistics by token position are read, too.
    Raises:
        ConfigError: the recipe has what can do nothing for the design, such as a schedule for an α
            that it has not.
    """

    def __init__(
        self,
        contender: Contender,
        data: Data,
        steps: int,
        device: torch.device,
        spectra: bool = False,
        positions: bool = False,
    ) -> None:
        super().__init__(contender.name, contender.config)
        self.recipe = contender.recipe
        self.recipe.check(self.config, self.name)
        self.data, self.device = data, device
        self.model = build(self.config, data).to(device)
        self.scheduled = [] if self.recipe.alpha_rule.value is None else alphas(self.model)
        for parameter in self.scheduled:
            parameter.requires_grad_(False)
        self.learning = [
            parameter for parameter in self.model.parameters() if parameter.requires_grad
        ]
        self.optimizers = optimizers(self.model, self.config, self.recipe)
        self.schedules = [schedule(optimizer, self.recipe, steps) for optimizer in self.optimizers]
        self.qk_clip = QKClip(self.model, self.recipe.qk_clip) if self.recipe.qk_clip else None
        self.steps, self.spectra, self.positions = steps, spectra, positions

    def advance(self, every: int) -> None:
        """One step of training, with the instruments on if the step is a multiple of `every`.

        A loss or a gradient that is not finite retires the contender, its weights as they were
        before the step."""
        with torch.no_grad():
            for alpha, value in zip(
                self.scheduled, self.recipe.alphas(self.step, len(self.scheduled)), strict=True
            ):
                alpha.fill_(value)
        batch = self.tensors(self.data.batch(self.step))
        instruments = (
            Instruments(self.model, self.device, self.positions) if self.step % every == 0 else None
        )
        tap = ignore if instruments is None else instruments.tap
        if self.qk_clip:
            tap = self.qk_clip.watching(tap)
        self.model.zero_grad()  # only now: what is let go here is taken up at once, still mapped and warm
        loss = self.model.loss(output := self.model(self.model.embed(batch), tap), batch)
        self.history.losses.append(float(loss.detach()))
        if self.recipe.z_loss:
            loss = (
                loss + self.recipe.z_loss * self.model.logits(output).logsumexp(-1).square().mean()
            )
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
        size = total_norm(
            [parameter.grad for parameter in self.learning if parameter.grad is not None]
        )
        if not math.isfinite(size):
            self.retired = f"the gradient by {self.worst()} is not finite"
            return
        if self.recipe.clip:
            nn.utils.clip_grads_with_norm_(self.learning, self.recipe.clip, torch.tensor(size))
        for optimizer in self.optimizers:
            optimizer.step()
        if self.qk_clip:
            self.qk_clip.step_is_done()
        if instruments is not None:
            instruments.step_is_done(self.optimizers, self.spectra)
        for its_schedule in self.schedules:
            its_schedule.step()

    @torch.no_grad()
    def held_out_loss(self) -> float:
        """The loss on the held-out sequences, with the weights as they are."""
        batch = self.tensors(self.data.held_out)
        return float(self.model.loss(self.features(batch), batch))

    @torch.no_grad()
    def features(self, batch: Batch) -> Tensor:
        """Sequences as the readout reads them, `[batch, token, d_model]`."""
        output: Tensor = self.model(self.model.embed(batch))
        return output

    def tensors(self, window: Window) -> Batch:
        """A window where the model is."""
        return Batch(torch.from_numpy(window.inputs), torch.from_numpy(window.targets)).to(
            self.device
        )

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
        # as it was before Muon
        states = state["optimizers"] if "optimizers" in state else [state["optimizer"]]
        for optimizer, its_schedule, held in zip(
            self.optimizers, self.schedules, states, strict=True
        ):
            optimizer.load_state_dict(held)
            # the rates of the step are among the optimizer's state
            its_schedule.last_epoch = self.step


def build(config: Config, data: Data) -> Transformer:
    """The model of a config for the text's own characters; for Python's prose the same, weight for
    weight."""
    return Transformer(config, config.seed, vocabulary=data.vocabulary, masks=data.task.masks)


class Instruments:
    """One step's reading. Use `tap` in the forward pass, then the methods in their order; `found`
    has the numbers.

    Args:
        model: the contender's.
        device: where it is.
        positions: whether statistics by token position are wanted, too.
    """

    def __init__(self, model: Transformer, device: torch.device, positions: bool = False) -> None:
        config = model.config
        self.model = model
        self.layers: list[Layer] = list(model.layers)  # type: ignore[arg-type]
        self.names = tuple(name for name in self.layers[0].weights if name in MATRICES)
        mask = visible(config.n_ctx, device) if config.causal else None
        self.recorder = Recorder(
            config, mask, (1, 0), lambda _: None, positions=positions, readout=model.readout
        )
        self.streams: list[Tensor] = []
        self.tap = both(self.recorder, self.streams)
        self.before: list[Tensor] = []
        self.found: dict[Key, Array] = {
            ("alpha", site): values for site, values in self.alphas().items()
        }

    def forward_is_done(self) -> None:
        """Before the backward pass: what the taps saw, and the weights as they are."""
        self.found |= self.recorder.values()[0]
        for stream in self.streams:
            stream.retain_grad()
        self.before = [weight.detach().clone() for weight in self.matrices()]

    def backward_is_done(self) -> None:
        """Before the optimizer's step: the gradients by the stream and by the weights."""
        sizes = np.array(norms([stream.grad for stream in self.streams if stream.grad is not None]))
        self.found |= {("stream_gradient", site): part for site, part in by_site(sizes).items()}
        self.streams.clear()  # so that their graph is freed
        for name in self.layers[0].weights:
            gradients = [layer.weights[name].grad for layer in self.layers]
            known = [gradient for gradient in gradients if gradient is not None]
            if known:  # an α that is not learned has none
                self.found["parameter_gradient", name] = np.array(norms(known))

    @torch.no_grad()
    def step_is_done(self, optimizers: Sequence[Optimizer], spectra: bool) -> None:
        """After the optimizers' step: the change of each matrix over its size, and where weight
        decay balances it.

        Args:
            optimizers: with the learning rates of the step.
            spectra: whether singular values of the changes are wanted, too.
        """
        changes = list(torch._foreach_sub(self.matrices(), self.before))
        moved = np.array(norms(changes))
        with np.errstate(divide="ignore", invalid="ignore"):  # Fixup's last matrices begin at zero
            ratio = (moved / np.array(norms(self.before))).reshape(
                len(self.layers), len(self.names)
            )
        self.found |= {
            ("update_ratio", name): ratio[:, index] for index, name in enumerate(self.names)
        }
        turns = {
            weight: rotation(optimizer, group)
            for optimizer in optimizers
            for group in optimizer.param_groups
            for weight in group["params"]
        }
        for name in self.names:
            balance = np.array([turns.get(layer.weights[name], 0.0) for layer in self.layers])
            if balance.any():
                self.found["equilibrium_update", name] = balance
        if not spectra:
            return
        self.found |= of_logits(
            self.model.config,
            {
                name: torch.stack(self.before[index :: len(self.names)])
                for index, name in enumerate(self.names)
            },
        )
        for index, name in enumerate(self.names):
            matrix = self.model.config.design.matrices[name]
            largest, ranks = of_stack(torch.stack(changes[index :: len(self.names)]), FEW_STEPS)
            self.found["update_spectral_norm", name] = (
                largest * matrix.forward * (matrix.fan_in / matrix.fan_out) ** 0.5
            )
            self.found["update_stable_rank", name] = ranks

    def matrices(self) -> list[Tensor]:
        """Every matrix of every layer, a layer's side by side."""
        return [layer.weights[name] for layer in self.layers for name in self.names]

    @torch.no_grad()
    def alphas(self) -> dict[str, Array]:
        """α of each branch by layer, `[layer]`: their mean where a branch has one for every
        coordinate."""
        learned = [layer.alpha for layer in self.layers if layer.alpha is not None]
        if not learned:
            return {}
        # [], [branch] or [branch, coordinate] to [branch]
        by_branch = [
            alpha.reshape(min(alpha.numel(), 2), -1).mean(-1).expand(2) for alpha in learned
        ]
        return dict(
            zip(BRANCHES, torch.stack(by_branch, dim=1).double().cpu().numpy(), strict=True)
        )
