"""`Watch`: takes readings of a model while it trains, and shows them as tables, profiles and
findings."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from explorer.diagnosis import Finding, Findings, diagnose
from explorer.display import must_be, shown
from explorer.foreign import Learning
from explorer.profile import Profile
from explorer_models.findings import over_time
from explorer_models.hooks import Hook, Passes, Steps, inner_hooks, recomputing
from explorer_models.learning import Course, grouped
from explorer_models.logits import follow
from explorer_models.model import Block, find_stacks, is_compiled, kind_of
from explorer_models.readings import Reading, Sink, frames, sinks
from explorer_models.stack import stacks_sentence, streams_sentence
from explorer_models.sums import Breakdown, Sentinel, is_first_process, largest, local, n_processes
from explorer_models.texts import text
from explorer_models.window import Window, plain

if TYPE_CHECKING:
    import pandas as pd

# `watch`: the one line beside a training loop.


def watch(
    model: nn.Module,
    every: int = 50,
    sink: object = "memory",
    *,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    blocks: str | Sequence[str] | None = None,
    evaluation: bool = False,
    start: int = 0,
    spectra: bool = False,
    positions: bool = False,
) -> Watch:
    """Watches a model while it trains: a reading each `every` steps, and where a value first was
    not finite.

    A step ends when a torch optimizer has stepped, so gradients that are accumulated are one
    reading; a loop without one calls `Watch.step`. A step's number is that of the updates before
    it: step 0 is of the model as it was drawn. Training is bit for bit what it would have been.

    Where several processes train, each must watch; a reading is of all of them, and the first one
    writes it to sinks. A model that is to be compiled is watched first, then compiled: its stream,
    gradients by matrix and updates are read, its attention and gradients by the stream are not.

    Args:
        model: what is trained. DistributedDataParallel, `fully_shard` or tensor parallelism may
            come before or after.
        every: steps from one reading to the next.
        sink: where readings go besides memory: "tensorboard", "wandb", a file that ends in .csv or
            .jsonl, a folder for Parquet files, a SummaryWriter, a W&B run, or a list of such. No
            other suffix is taken.
        optimizer: whose steps are counted; by default every torch optimizer of the model's
            parameters.
        blocks: names of the layers, in which * stands for anything; by default they are looked for.
        evaluation: whether passes in evaluation mode or without gradients are read as well.
        start: number of the first step, for a run that goes on.
        spectra: whether the largest singular value and the stable rank of each update are read,
            too, of the blocks' matrices that a process holds whole: some 20 more reads of each.
        positions: whether second moment, entropy and attention received by token position are read,
            too: of a step's first pass, in the first process; the second moment only where there
            are not as many sequences as tokens.
    Raises:
        TypeError: the model or an optimizer is none.
        ValueError: the model is compiled already, or has no repeated blocks; `every` or `start` is
            no such number; a sink is none, needs what is not installed, or cannot be written.

    Example:
        Around a loop of your own::

            with ex.watch(model, every=50, sink="readings.csv") as watch:
                for batch in loader:
                    optimizer.zero_grad()
                    loss(model(batch)).backward()
                    optimizer.step()  # ends a step: each 50th is read
            watch.frame()  # by step, layer and site
            watch.diagnose()  # what is wrong, and since which step
    """
    must_be(nn.Module, "model", model)
    for name, value, least in (("every", every, 1), ("start", start, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} must be a whole number from {least} on; got {shown(value)}")
    given = [optimizer] if isinstance(optimizer, Optimizer) else list(optimizer or ())
    for stepper in given:
        must_be(Optimizer, "optimizer", stepper)
    must_be(bool, "spectra", spectra)
    must_be(bool, "positions", positions)
    if is_compiled(model):
        raise ValueError(
            "model must be watched before it is compiled: compiled code does not run hooks that come "
            f"later; got a compiled {type(model).__name__}"
        )
    stacks = find_stacks(model, blocks)
    return Watch(
        model,
        stacks,
        every,
        sinks(sink) if is_first_process() else [],
        given,
        evaluation,
        start,
        spectra,
        positions,
    )


PASSED_ON = (nn.Dropout, nn.Identity)
"""Modules that give what they take: what is not finite came from another."""
WIDEST = 8
"""An inner module's output is looked at up to so many times the stream's size: logits over all
words are not."""


def uncached(value: Any) -> Any:
    """An argument of a block; None of a cache of keys and values, to which a second run would
    add."""
    return None if hasattr(value, "get_seq_length") else value


class Watch:
    """The handle that `watch` returns: the readings so far, as a table, as profiles, as findings;
    also a context.

    Args: see `watch`.

    Example:
        >>> from torch import nn, optim, randn
        >>> layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        >>> model = nn.TransformerEncoder(layer, 3)
        >>> optimizer = optim.Adam(model.parameters(), lr=1e-3)
        >>> with ex.watch(model, every=2) as watch:
        ...     for _ in range(3):
        ...         optimizer.zero_grad()
        ...         model(randn(4, 16, 32)).square().mean().backward()
        ...         optimizer.step()
        >>> sorted(set(watch.frame()["step"]))
        [0, 2]
    """

    def __init__(
        self,
        model: nn.Module,
        stacks: list[list[Block]],
        every: int,
        into: list[Sink],
        optimizers: list[Optimizer],
        evaluation: bool,
        start: int,
        spectra: bool,
        positions: bool,
    ) -> None:
        self.model, self.every, self.sinks = model, every, into
        self.blocks, *self.others = stacks
        self.spectra, self.positions = spectra, positions
        self.readings: list[Reading] = []
        self.layers = tuple(plain(block.path) for block in self.blocks)
        inner = {
            path: module
            for path, module in model.named_modules()
            if path and not list(module.children()) and not isinstance(module, PASSED_ON)
        }
        self._inner = list(enumerate(inner.values(), start=len(self.blocks) + 1))
        """Innermost modules, each with its place in the sentinel."""
        self._sentinel = Sentinel(
            [text("breakdown", "before", block=self.layers[0]), *self.layers, *map(plain, inner)]
        )
        self._first: Breakdown | None = None
        """The first value that was not finite, over all processes, up to the last reading."""
        self._blamed = False
        """Whether a block was run again to find the module of such a value."""
        self._next = start
        """Number of the step that runs."""
        self._width = 0
        """Numbers in the stream."""
        self._ended = False
        """Whether an optimizer has ended the step, and no pass has begun since."""
        self._said: set[str] = set()
        """Warnings that were given."""
        self._window: Window | None = None
        """Gathers the step that runs, where it is to be read."""
        self._called: set[int] = set()
        """`id` of each innermost module that was called in a step that was read."""
        self._inner_hooks = ExitStack()
        self._passes = Passes(
            model,
            [block.module for block in self.blocks],
            evaluation,
            self._begin,
            self._forward,
            self._backward,
            self._around,
        )
        self._course = Course(model, self.blocks)
        self._steps = Steps(model, optimizers, self._before, self._after, self._by_optimizer)
        self._open()

    def step(self) -> None:
        """Ends a step by hand, after the update and before gradients are set to zero.

        Only for a loop without a torch optimizer. Where an optimizer has ended the step already,
        this does nothing."""
        self._steps.settle()  # ends an optimizer's step that is still open, which sets `_ended`
        if self._ended:
            self._ended = False  # the next call is about another step
            return
        if self._window is not None and not self._window.weights.gradients():
            self._warn(self._next, "no gradients are left: call step() before they are set to zero")
        if self._looks:
            self._course.gradients()
            self._course.end(changes=True)
        self._end()

    @property
    def first_nonfinite(self) -> Breakdown | None:
        """Where a value first was not finite; None if all were. Over several processes, up to the
        last reading."""
        if n_processes() > 1:
            return self._first
        return self._sentinel.first(self._sentinel.times())

    def frame(self) -> pd.DataFrame:
        """Tidy: one number a row; columns step, layer, site, head, position, statistic, value (see
        `readings.UNITS`).

        Layers count from 1, and 0 is the input of the first; heads and positions count from 0.
        `layer` is missing (<NA>) for a matrix in no block, `head` and `position` where a statistic
        has none."""
        self._steps.settle()
        return frames(self.readings)

    def profile(self, step: int | None = None) -> Profile:
        """A reading as a profile: what of it other models have, too.

        Args:
            step: one that was read; the last one if it is not said.
        Raises:
            ValueError: it was not read.
        """
        self._steps.settle()
        for reading in reversed(self.readings):
            if step in (None, reading.step):
                profile = reading.profile(type(self.model).__name__, self.layers)
                return replace(profile, coverage=self.coverage())
        steps = ", ".join(str(reading.step) for reading in self.readings) or "none yet"
        raise ValueError(f"step must be one that was read: {steps}; got {step}")

    def diagnose(self) -> Findings:
        """Findings over time, and about the last reading that is finite; most serious first.

        Raises:
            ValueError: nothing has been read yet.
        """
        profiles = [self.profile(reading.step) for reading in self.readings] or [self.profile()]
        sound = [
            profile for profile in profiles if profile.values and profile.first_nonfinite is None
        ]
        last: list[Finding] = []
        if sound:
            step = sound[-1].step
            last = list(diagnose(replace(sound[-1], learning=self.learning())))
            if step:
                last = [_at_step(finding, step) for finding in last]
        sick = any(finding.severity == "bad" for finding in last)
        changes = over_time(self.readings, self.first_nonfinite, self.layers, sick)
        # a model in which something changed for the worse is not called healthy
        healthy = all(change.severity == "good" for change in changes)
        last = [finding for finding in last if finding.severity != "good" or healthy]
        order = ("bad", "warning", "good")
        return Findings(
            sorted([*changes, *last], key=lambda finding: order.index(finding.severity))
        )

    def learning(self) -> Learning:
        """Which parameters have learned in the steps that were looked at: the first ones, and those
        that were read.

        Over several processes it is known up to the last reading.
        """
        self._steps.settle()
        course = self._course
        course.calm = self._passes.without - self._passes.again
        course.called = self._called or None
        return Learning(grouped(self.model, self.blocks, course.states()), course.steps)

    def coverage(self) -> tuple[str, ...]:
        """Sentences on what is read of the model, and what is not."""
        sentences = [*streams_sentence(list(self._passes.several.values()), len(self.layers))]
        if self.others:
            others = [[plain(block.path) for block in stack] for stack in self.others]
            sentence = text(
                "coverage",
                "not_read",
                blocks=len(self.blocks),
                path=kind_of(self.layers),
                others=stacks_sentence(others),
            )
            sentences.insert(0, sentence)
        return tuple(sentences)

    @property
    def _looks(self) -> bool:
        """Whether gradients and changes of all parameters are looked at in this step."""
        return self._window is not None or not self._course.judged

    def remove(self) -> None:
        """Ends it: no hook is left, sinks are closed, and what was read stays."""
        self._steps.settle()
        self._steps.remove()
        self._passes.remove()
        self._close()
        for sink in self.sinks:
            sink.close()
        self.sinks = []

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        return (
            f"Watch({type(self.model).__name__}, {len(self.layers)} blocks, every {self.every} steps, "
            f"{len(self.readings)} readings)"
        )

    def _open(self) -> None:
        """Begins a step: where it is to be read, a window gathers it, and hooks on inner modules
        stand."""
        if self._next % self.every == 0:
            self._window = Window(self.model, self.blocks, self.spectra, self.positions)
            self._inner_hooks = inner_hooks(self._inner, self._inside)
            self._inner_hooks.callback(self.model.register_forward_hook(Hook(self._output)).remove)

    def _close(self) -> None:
        """Lets the window go, and takes the hooks on inner modules off."""
        self._window = None
        self._inner_hooks.close()

    def _begin(self) -> None:
        """Before a pass that counts."""
        self._steps.settle()
        self._ended = False

    def _around(self, layer: int) -> AbstractContextManager[Any]:
        """The context in which a block runs."""
        return nullcontext() if self._window is None else self._window.around(layer)

    def _forward(self, place: int, x: Tensor) -> None:
        """Takes a tensor of the stream: the whole of it in a step that is read, else its largest
        |x|.

        The first one that is not finite is traced to a module, by running its block again. Not on
        a GPU, where looking at `peak` would wait for it at each block, nor where several processes
        would have to run the block together.

        Args:
            place: in the stream: 0 is the input, l the output of layer l.
            x: the tensor.
        """
        self._width = x.numel()
        peak = largest(local(x)) if self._window is None else self._window.forward(place, x)
        call = self._passes.call
        can_run_again = x.device.type == "cpu" and n_processes() == 1
        if (
            self._window is None
            and call is not None
            and not self._blamed
            and can_run_again
            and not math.isfinite(float(peak))
        ):
            self._blame(*call)
        self._sentinel.look(place, False, peak)

    def _blame(self, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Runs the first block again whose output is not finite, to see which of its modules
        gave the first such value.

        Only on a processor and in one process: elsewhere it would be waited for, or others would
        wait for it."""
        if is_compiled(block):
            return
        self._blamed, self._passes.quiet = True, True
        modules = set(block.modules())
        buffers = [(buffer, buffer.clone()) for buffer in block.buffers()]
        inner = [(number, module) for number, module in self._inner if module in modules]
        try:
            with (
                inner_hooks(inner, lambda number, _, x: self._look(number, x)),
                torch.no_grad(),
                torch.random.fork_rng(devices=[]),
            ):
                block(
                    *map(uncached, args),
                    **{name: uncached(value) for name, value in kwargs.items()},
                )
                for buffer, numbers in buffers:
                    buffer.copy_(numbers)
        except Exception as error:  # noqa: BLE001 - what cannot run twice must not end the training
            self._warn(
                self._next, f"a block whose output is not finite could not be run again: {error}"
            )
        finally:
            self._passes.quiet = False

    def _backward(self, place: int, gradient: Tensor) -> None:
        """Takes a gradient by the stream, in the same way."""
        window = self._window
        peak = largest(local(gradient)) if window is None else window.backward(place, gradient)
        self._sentinel.look(place, True, peak)

    def _inside(self, place: int, module: nn.Module, x: Tensor) -> None:
        """Looks at an inner module's output, in a step that is read."""
        self._called.add(id(module))
        if (
            self._passes.counting(module)
            and not recomputing()
            and x.numel() <= self._width * WIDEST
        ):
            self._look(place, x)

    def _output(self, _: nn.Module, __: object, output: Any) -> None:
        """Takes the model's output, in a step that is read: its logits, once their gradient is
        known."""
        if self._window is not None and self._passes.counted and not recomputing():
            follow(output, self._window.logits.append)

    def _look(self, place: int, x: Tensor) -> None:
        """Takes the largest |x| of an inner module's output."""
        self._sentinel.look(place, False, largest(local(x)))

    def _before(self, optimizer: Optimizer, stepped: set[int], scale: float) -> None:
        """Before an optimizer's step."""
        if self._window is not None:
            self._window.weights.before(optimizer, stepped, scale)
        if self._looks:
            self._course.before(optimizer, stepped)

    def _after(self) -> None:
        """After an optimizer's step."""
        if self._window is not None:
            self._window.weights.after()
        self._course.after()

    def _by_optimizer(self) -> None:
        """Ends a step whose optimizers have all stepped."""
        self._course.end()
        self._end()
        self._ended = True

    def _end(self) -> None:
        """Ends a step: what was gathered becomes a reading."""
        self._sentinel.fold(self._next)
        window, step = self._window, self._next
        self._close()
        self._next += 1
        self._open()
        if window is None:
            return
        names = [name for name, _ in self.model.named_parameters()]
        times, flags = self._sentinel.times().double().cpu(), self._course.flags(names)
        reading, maxima = window.reading(step, torch.cat([times, flags]))
        self._first = self._sentinel.first(maxima[: len(times)])
        self._course.merge(names, maxima[len(times) :])
        self.readings.append(reading)
        if not window.stream:
            self._warn(step, "no pass was seen in training mode; evaluation=True reads every pass")
        for sink in list(self.sinks):
            try:
                sink.write(step, reading.frame())
            except Exception as error:  # noqa: BLE001 - a full disk must not end the training
                self.sinks.remove(sink)
                self._warn(step, f"{sink.name} gets no more readings: {error}")

    def _warn(self, step: int, why: str) -> None:
        """Warns once of what is missing, with the step."""
        if why not in self._said:
            self._said.add(why)
            warnings.warn(f"watch, step {step}: {why}", stacklevel=4)


def _at_step(finding: Finding, step: int) -> Finding:
    """A finding whose evidence says at which step it was."""
    key = "evidence" if finding.evidence else "alone"
    return replace(finding, evidence=text("watched", key, step=step, evidence=finding.evidence))
