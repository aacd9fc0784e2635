"""One pass, of a seed or of several side by side: builds the model, runs it forward and backward, keeps numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from explorer import batch
from explorer.attention import Carried, Tap, visible
from explorer.config import Config
from explorer.model import Transformer, ignore
from explorer.probes.gradients import Ended, Gradients, Unknown
from explorer.probes.record import Recorder
from explorer.profile import STREAM, Array, Key
from explorer.schemes.distribution import shares
from explorer.schemes.stream import stream
from explorer.stopping import Progress, Stop, Stopped

FORWARD_SHARE = 0.35
"""The forward pass's part of the time, for an even progress."""


class Pass:
    """A measurement of a seed, or of several at once; holds nothing of the model once `run` or `observe` has returned.

    Args:
        config: what to build.
        seed: which draw.
        pattern_of: layer (from 1) and head (from 0) whose attention pattern is kept.
        stop: asked before each layer, forward and backward.
        progress: called with the fraction that is done.
        backward: whether there is a backward pass; else the statistics are those of the forward pass alone.
        seeds: draws that run side by side, as the weights of one model: the seed and those that follow.
    """

    def __init__(self, config: Config, seed: int, pattern_of: tuple[int, int] = (1, 0), stop: Stop = lambda: False,
                 progress: Progress = lambda _: None, backward: bool = True, seeds: int = 1) -> None:
        self.config, self.seed, self.seeds, self.pattern_of = config, seed, seeds, pattern_of
        self.stop, self.progress, self.backward = stop, progress, backward
        self.pattern: Array | None = None
        self.ends = not (stream(config).mixes or (config.sizes.block and backward))
        """Whether it ends early where no entry of the stream, or of its gradient, is a number. Several streams may be
        none in their mean alone; and what is computed in blocks is read in blocks."""

    def run(self, device: torch.device) -> list[dict[Key, Array]]:
        """Builds the seeds' model and batch on a device, and observes them."""
        self.check()
        model = Transformer(self.config, self.seed, self.check, seeds=self.seeds)
        inputs = batch.draw(self.config, self.seed, self.seeds)
        if device.type != "cpu":  # where they are; to look through all parts of a narrow model takes a while
            model, inputs = model.to(device), inputs.to(device)
        return self.observe(model, inputs)

    def observe(self, model: Transformer, inputs: batch.Batch) -> list[dict[Key, Array]]:
        """Of each seed: statistic and site to `[layer]` or `[layer, head]`, from one pass forward and backward.

        The model's own gradients are left as they were found: none.
        """
        try:
            return self.passed(model, inputs, self.ends)
        except Unknown:
            return self.passed(model, inputs, ends=False)

    def passed(self, model: Transformer, inputs: batch.Batch, ends: bool) -> list[dict[Key, Array]]:
        """`observe`, through all layers or, if it `ends`, through those of which something has to be computed."""
        mask = visible(self.config.n_ctx, inputs.input.device) if self.config.causal else None
        recorder = Recorder(self.config, mask, self.pattern_of, self.after_forward, ends, self.seeds)
        gradients = Gradients(self.after_backward, shares(self.config), ends, self.seeds)
        try:
            if self.backward:
                (self.in_blocks if self.config.sizes.block else self.at_once)(model, inputs, recorder, gradients)
            else:
                self.forward(model, inputs, recorder)
        except Ended:
            model.zero_grad()
        except BaseException:
            model.zero_grad()  # what was stopped half-way; a whole pass has dropped each gradient itself
            raise
        finally:
            gradients.release()
        for owner in (model.E, model.W_U):
            if owner is not None:
                owner.grad = None
        self.pattern = None if recorder.pattern is None else recorder.pattern.double().cpu().numpy()
        found = recorder.values()
        return [one | other for one, other in zip(found, gradients.values(), strict=True)] if self.backward else found

    @torch.no_grad()
    def forward(self, model: Transformer, inputs: batch.Batch, recorder: Recorder) -> None:
        """Forward, and nothing is kept."""
        x = model.embed(inputs)
        recorder("embed", 0, x)
        model.through(recorder.needed(model.layers), x, recorder)  # type: ignore[arg-type]

    def at_once(self, model: Transformer, inputs: batch.Batch, recorder: Recorder, gradients: Gradients) -> None:
        """Forward and backward, with every activation kept in between."""
        streams: list[Tensor] = []
        x, tap, seen = source(model.embed(inputs)), both(recorder, streams), []
        tap("embed", 0, x)
        carried: Carried = ()
        for layer in recorder.needed(model.layers):  # type: ignore[arg-type]
            x, carried = layer(x, tap, carried)
            seen.append(layer)
        gradients.watch(seen, streams)
        model.loss(model.finish(x), inputs).backward()  # type: ignore[no-untyped-call]

    def in_blocks(self, model: Transformer, inputs: batch.Batch, recorder: Recorder, gradients: Gradients) -> None:
        """The same in less memory: only what goes into each block of layers is kept, and the rest computed again."""
        size = self.config.sizes.block
        blocks = [model.layers[start : start + size] for start in range(0, len(model.layers), size)]
        kept: list[tuple[Tensor, Carried]] = []
        with torch.no_grad():
            x = model.embed(inputs)
            carried: Carried = ()
            recorder("embed", 0, x)
            for block in blocks:
                kept.append((x, carried))
                x, carried = model.through(block, x, recorder, carried)
        x.requires_grad_()
        model.loss(model.finish(x), inputs).backward()  # type: ignore[no-untyped-call]
        after: list[Tensor | None] = [x.grad, *(torch.zeros_like(part) for part in carried)]
        for block in reversed(blocks):
            x, carried = kept.pop()
            leaves = [part.detach().requires_grad_() for part in (x, *carried)]
            streams = [leaves[0].view_as(leaves[0])]
            out, carried = model.through(block, streams[0], both(ignore, streams), tuple(leaves[1:]))
            gradients.watch(list(block), streams)  # type: ignore[arg-type]
            torch.autograd.backward([out, *carried], after[: 1 + len(carried)])
            gradients.release()
            after = [leaf.grad for leaf in leaves]

    def check(self) -> None:
        """Raises Stopped if the work is no longer wanted."""
        if self.stop():
            raise Stopped

    def after_forward(self, layer: int) -> None:
        self.progress((FORWARD_SHARE if self.backward else 1) * layer / self.config.n_layers)
        self.check()

    def after_backward(self, left: int) -> None:
        self.progress(FORWARD_SHARE + (1 - FORWARD_SHARE) * (1 - left / self.config.n_layers))
        self.check()


def source(x: Tensor) -> Tensor:
    """The input as a view: autograd visits a view after the first layer's weights, a leaf in no fixed order."""
    x = x.detach().requires_grad_()
    return x.view_as(x)


def both(tap: Tap, streams: list[Tensor]) -> Tap:
    """A tap that also keeps the stream, whose gradients are wanted later."""

    def seen(site: str, layer: int, tensor: Tensor) -> None:
        if site in STREAM:
            streams.append(tensor)
        tap(site, layer, tensor)

    return seen
