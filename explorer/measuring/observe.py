"""One pass, of a seed or of several side by side: builds the model, runs it forward and backward,
keeps numbers."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import numpy as np
import torch
from torch import Tensor

from explorer.config import Config
from explorer.limits import claimed
from explorer.measuring.record import Recorder
from explorer.measuring.sharing import Run, device, shares, torch_threads
from explorer.measuring.statistics import no_number, norms_by_seed
from explorer.model import Layer, Transformer, batch, ignore, noise
from explorer.model.attention import Carried, visible
from explorer.model.taps import Tap
from explorer.profile import by_site
from explorer.sites import STREAM
from explorer.stopping import Progress, Rarely, Stop, check
from explorer.vocabulary import Array, Key

# The backward pass's recorder: each layer's gradients become numbers while they are warm, and are
# let go at once. Nothing waits for the end of the pass, so a deep model's gradients never stand in
# memory together.


class Ended(Exception):  # noqa: N818 - not an error: the rest is known
    """Ends a backward pass at a gradient without a number: none below has one, either."""


class Unknown(Exception):  # noqa: N818 - as above
    """Ends a backward pass whose gradient has numbers where it comes to layers that were left out
    of the forward pass: those have to be computed."""


class Gradients:
    """Hooks on the stream; after the backward pass, `values()` has its statistics.

    Where no entry of the gradient is a number it ends the pass, for nothing below has a number
    either.

    When the gradient by a layer's input is complete, so are those by its weights: autograd stores a
    weight's gradient before it goes on to anything older.

    Args:
        after_layer: called with the number of layers that are still to come; what it raises ends
            the pass.
        unique: number of the first layers that all others share their weights with; 0 where none
            do. What a layer and those that share its weights get is the same, the sum over them.
        ends: whether it may end the pass: it raises `Ended`, or `Unknown`.
        seeds: draws that the layers hold side by side.
    """

    def __init__(
        self,
        after_layer: Callable[[int], None],
        unique: int = 0,
        ends: bool = False,
        seeds: int = 1,
    ) -> None:
        self.after_layer, self.unique, self.ends, self.seeds = after_layer, unique, ends, seeds
        self.n_layers = 0
        self.middles: list[Tensor] = []
        """The stream after attention, in each layer that is watched."""
        self.by_stream: list[Array] = []
        """Gradient norms `[seed]` at the sites of the stream, from the last one down."""
        self.by_weight: list[list[Array]] = []
        """Gradient norms `[seed]` of the matrices `names`, a list for each layer from the last one
        down."""
        self.names: tuple[str, ...] = ()

    def watch(self, layers: Sequence[Layer], streams: Sequence[Tensor]) -> None:
        """Hooks a run of layers, whose weights must have no gradients yet; the last run of a model
        comes first.

        Args:
            layers: one above the other.
            streams: what goes into the first, then the middle and the end of each.
        """
        self.n_layers = max(self.n_layers, layers[-1].layer)
        self.names = (*layers[0].weights, *(["mix"] if layers[0].mix else []))
        self.middles = list(streams[1::2])
        for middle in self.middles:
            middle.retain_grad()
        for index, (layer, entering) in enumerate(zip(layers, streams[::2], strict=False)):
            left_out = index > 0 and layer.layer - layers[index - 1].layer > 1
            entering.register_hook(partial(self.below, layer, index, left_out))  # type: ignore[no-untyped-call]
        if not self.by_stream:  # where runs meet, the one above has seen the gradient
            streams[-1].register_hook(self.last)  # type: ignore[no-untyped-call]

    def last(self, gradient: Tensor) -> None:
        """Takes the gradient by the last layer's output; a hook, as `below`."""
        self.by_stream.extend(norms_by_seed([gradient], self.seeds))

    def below(self, layer: Layer, index: int, left_out: bool, gradient: Tensor) -> None:
        """Turns a layer's gradients into norms and drops them, once that by its input is known.

        As a hook it must hold no tensor: see `release`.

        Args:
            index: of the layer among those that are watched.
            left_out: whether the layers just below it were left out of the forward pass.
            gradient: by the layer's input.
        """
        # the first layers, which come last, have the sums over all
        shared = layer.layer > self.unique > 0
        owners = [self.middles[index]]
        if not shared:
            owners += [*layer.weights.values(), *layer.mix]
        gradients = [owner.grad for owner in owners if owner.grad is not None]
        if len(gradients) != len(owners):
            raise RuntimeError(
                f"layer {layer.layer} has {len(gradients)} of {len(owners)} gradients in place"
            )
        at_input, at_middle, *by_parameter = norms_by_seed([gradient, *gradients], self.seeds)
        self.by_stream += [at_middle, at_input]
        if not shared:
            by_matrix = by_parameter[: len(layer.weights)]
            if layer.mix:  # one norm over all that mixes streams
                mix = by_parameter[len(layer.weights) :]
                by_matrix.append(np.linalg.norm(mix, axis=0))
            self.by_weight.append(by_matrix)
        for owner in (*owners, *layer.biases.values()):
            owner.grad = None
        self.after_layer(layer.layer - 1)
        if self.ends and layer.layer > 1 and np.isnan(at_input).all() and no_number(gradient):
            raise Ended
        if left_out:
            raise Unknown

    def release(self) -> None:
        """Lets go of the stream. Its graph holds these hooks, so holding it would keep both alive
        for ever."""
        self.middles.clear()

    def values(self) -> list[dict[Key, Array]]:
        """For each seed, statistic and site to `[layer]`: mean squares relative to the last
        layer's, and norms; nan where the pass had ended."""
        stream = np.full((2 * self.n_layers + 1, self.seeds), math.nan)  # [site, seed]
        stream[len(stream) - len(self.by_stream) :] = self.by_stream[::-1]
        layers = self.unique or self.n_layers
        weight = np.full((layers, len(self.names), self.seeds), math.nan)  # [layer, matrix, seed]
        weight[layers - len(self.by_weight) :] = np.reshape(
            self.by_weight[::-1], (-1, *weight.shape[1:])
        )
        # layers that share weights have the same: `resize` repeats the first ones
        weight = np.resize(weight, (self.n_layers, *weight.shape[1:]))
        with np.errstate(all="ignore"):  # a vanished or exploded gradient is shown as what it is
            relative = (stream / stream[-1]) ** 2
        by_seed = []
        for seed in range(self.seeds):
            values: dict[Key, Array] = {}
            for site, of_site in by_site(relative[:, seed]).items():
                values["activation_gradient", site] = of_site
            for index, name in enumerate(self.names):
                values["parameter_gradient", name] = weight[:, index, seed]
            by_seed.append(values)
        return by_seed


FORWARD_SHARE = 0.35
"""The forward pass's part of the time, for an even progress."""


class Pass:
    """A measurement of a seed, or of several at once; holds nothing of the model once `run` or
    `observe` has returned.

    Args:
        config: what to build.
        seed: which draw.
        pattern_of: layer (from 1) and head (from 0) whose attention pattern is kept.
        stop: asked before each layer, forward and backward.
        progress: called with the fraction that is done.
        backward: whether there is a backward pass; else the statistics are those of the forward
            pass alone.
        seeds: draws that run side by side, as the weights of one model: the seed and those that
            follow.
    """

    def __init__(
        self,
        config: Config,
        seed: int,
        pattern_of: tuple[int, int] = (1, 0),
        stop: Stop = lambda: False,
        progress: Progress = lambda _: None,
        backward: bool = True,
        seeds: int = 1,
    ) -> None:
        self.config, self.seed, self.seeds, self.pattern_of = config, seed, seeds, pattern_of
        self.progress, self.backward, self.check = progress, backward, partial(check, stop)
        self.pattern: Array | None = None
        self.ends = not (config.design.stream.mixes or (config.sizes.block and backward))
        """Whether it ends early where no entry of the stream, or of its gradient, is a number. Not
        where several streams are mixed, whose mean alone may have no number, nor where layers are
        computed in blocks, which are read as a whole."""

    def run(self, device: torch.device) -> list[dict[Key, Array]]:
        """Builds the seeds' model and batch on a device, and observes them."""
        self.check()
        model = Transformer(self.config, self.seed, self.check, seeds=self.seeds)
        inputs = batch.draw(self.config, self.seed, self.seeds)
        # drawn on the CPU; even if nothing moves, `to` takes a while to walk through a model
        if device.type != "cpu":
            model, inputs = model.to(device), inputs.to(device)
        return self.observe(model, inputs)

    def observe(self, model: Transformer, inputs: batch.Batch) -> list[dict[Key, Array]]:
        """For each seed, statistic and site to `[layer]` or `[layer, head]`, from one pass forward
        and backward.

        Afterwards the model has no gradients, as before."""
        try:
            return self.passed(model, inputs, self.ends)
        except Unknown:
            return self.passed(model, inputs, ends=False)

    def passed(self, model: Transformer, inputs: batch.Batch, ends: bool) -> list[dict[Key, Array]]:
        """`observe`, through all layers; or, if it `ends`, only through those whose values are not
        known to be nan.

        Raises:
            Unknown: gradients come to layers that were left out.
        """
        mask = visible(self.config.n_ctx, inputs.input.device) if self.config.causal else None
        design = self.config.design
        recorder = Recorder(
            self.config,
            mask,
            self.pattern_of,
            self.after_forward,
            ends,
            self.seeds,
            readout=model.readout if design.predicts_text else None,
        )
        gradients = Gradients(self.after_backward, design.unique * design.shared, ends, self.seeds)
        try:
            if not self.backward:
                self.forward(model, inputs, recorder)
            elif self.config.sizes.block:
                self.in_blocks(model, inputs, recorder, gradients)
            else:
                self.at_once(model, inputs, recorder, gradients)
        except Ended:
            model.zero_grad()
        except BaseException:
            # only a pass that came to its end has dropped each gradient itself
            model.zero_grad()
            raise
        finally:
            gradients.release()
        for owner in (model.E, model.W_U):
            if owner is not None:
                owner.grad = None
        self.pattern = None if recorder.pattern is None else recorder.pattern.double().cpu().numpy()
        values = recorder.values()
        if self.backward:
            for of_seed, of_gradients in zip(values, gradients.values(), strict=True):
                of_seed |= of_gradients
        return values

    @torch.no_grad()
    def forward(self, model: Transformer, inputs: batch.Batch, recorder: Recorder) -> None:
        """The forward pass alone; no activation is kept."""
        x = model.embed(inputs)
        recorder("embed", 0, x)
        model.through(recorder.needed(model.layers), x, recorder)  # type: ignore[arg-type]

    def at_once(
        self, model: Transformer, inputs: batch.Batch, recorder: Recorder, gradients: Gradients
    ) -> None:
        """Forward and backward, with every activation kept in between."""
        streams: list[Tensor] = []
        x, tap, layers = source(model.embed(inputs)), both(recorder, streams), []
        tap("embed", 0, x)
        carried: Carried = ()
        for layer in recorder.needed(model.layers):  # type: ignore[arg-type]
            x, carried = layer(x, tap, carried)
            layers.append(layer)
        gradients.watch(layers, streams)
        model.loss(model.finish(x), inputs).backward()  # type: ignore[no-untyped-call]

    def in_blocks(
        self, model: Transformer, inputs: batch.Batch, recorder: Recorder, gradients: Gradients
    ) -> None:
        """`at_once` in less memory: only the input of each block of layers is kept, and its other
        activations are computed again for the backward pass."""
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
        # gradients by the output of a block: the stream, and the tensors that attention passes on,
        # which after the last block nobody reads
        after: list[Tensor | None] = [x.grad, *(torch.zeros_like(tensor) for tensor in carried)]
        for block in reversed(blocks):
            x, carried = kept.pop()
            leaves = [tensor.detach().requires_grad_() for tensor in (x, *carried)]
            streams = [leaves[0].view_as(leaves[0])]  # a view, as of `source`
            tap = both(ignore, streams)
            out, carried = model.through(block, streams[0], tap, tuple(leaves[1:]))
            gradients.watch(list(block), streams)  # type: ignore[arg-type]
            torch.autograd.backward([out, *carried], after[: 1 + len(carried)])
            gradients.release()
            after = [leaf.grad for leaf in leaves]

    def after_forward(self, layer: int) -> None:
        """Reports progress after a layer of the forward pass, from 1, and looks at `stop`."""
        share = FORWARD_SHARE if self.backward else 1
        self.progress(share * layer / self.config.n_layers)
        self.check()

    def after_backward(self, left: int) -> None:
        """Reports progress in the backward pass, with so many layers left, and looks at `stop`."""
        self.progress(FORWARD_SHARE + (1 - FORWARD_SHARE) * (1 - left / self.config.n_layers))
        self.check()


LARGE = 750e6
"""Bytes of a measurement after which memory is given back; to do so costs the next one some
time."""
SELDOM = 5.0
"""Seconds, at least, between two times at which the memory of dropped noise is given back."""


def here(
    config: Config,
    runs: Sequence[range],
    pattern_of: tuple[int, int],
    backward: bool,
    stop: Stop,
    progress: Callable[[int, float], None],
    done: Callable[[Run], None],
) -> None:
    """Computes the runs of a measurement in this process, side by side where there is room; see
    `Compute`.

    When one is stopped or fails, so are the others.

    Raises:
        Stopped: `stop()` said true.
        ConfigError: on a server, other visitors' computations leave too little memory.
    """
    abandoned, target = threading.Event(), device()
    passes = [
        Pass(
            config,
            seed=run[0],
            pattern_of=pattern_of,
            stop=lambda: abandoned.is_set() or stop(),
            progress=partial(progress, number),
            backward=backward,
            seeds=len(run),
        )
        for number, run in enumerate(runs)
    ]
    workers, threads = shares(config, target)
    first_alone = len(runs[0]) == 1 and 1 < len(runs) < config.n_seeds
    if first_alone:
        # The first seed's chart is waited for, and the other seeds share passes. Passes of such
        # narrow models are calls more than arithmetic, and slow each other down: the first pass
        # takes half the time if nothing runs beside it.
        workers = 1
    try:
        with (
            claimed(config.sizes.memory_bytes),
            torch_threads(threads),
            ThreadPoolExecutor(workers, "explorer-seed") as pool,
        ):
            # Futures are taken out of a list: one that this frame held would hold the frame in
            # turn, by its exception's traceback, and with it a stopped measurement's tensors until
            # the garbage collector runs.
            waiting = [pool.submit(one_pass.run, target) for one_pass in passes][::-1]
            try:
                for one_pass in passes:
                    values = waiting.pop().result()
                    done(Run(values, one_pass.pattern))
            except BaseException:
                abandoned.set()
                pool.shutdown(cancel_futures=True)
                raise
    finally:
        _give_back(config)


def _give_back(config: Config) -> None:
    """Returns the memory of a large model, and of noise that was dropped, to the system: on Linux,
    the C library would keep most of what is freed.

    Where the designs of many visitors follow each other, each drops the noise of one before; its
    memory is what the next one needs."""
    dropped = noise.settle()
    if config.sizes.memory_bytes > LARGE:
        trim()
    elif dropped:
        seldom.ask()


def trim() -> None:
    """Has the C library return freed memory to the system."""
    # C libraries other than glibc have no such function, and keep less
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


seldom = Rarely(trim, SELDOM)
"""`trim`, at most once in so many seconds."""


def source(x: Tensor) -> Tensor:
    """The embedded stream as a view of a new leaf of autograd's graph.

    Autograd comes to a view after the first layer's weights, so their gradients are complete then;
    to a leaf it comes in no fixed order."""
    x = x.detach().requires_grad_()
    return x.view_as(x)


def both(tap: Tap, streams: list[Tensor]) -> Tap:
    """A tap that also keeps the tensors of the stream in a list: their gradients are wanted
    later."""

    def tap_and_keep(site: str, layer: int, tensor: Tensor) -> None:
        """Keeps a tensor of the stream, and shows every tensor to the tap."""
        if site in STREAM:
            streams.append(tensor)
        tap(site, layer, tensor)

    return tap_and_keep
