"""Sums gathered over one step: several passes where gradients are accumulated, and one reading at its end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from explorer.own import processes
from explorer.own.attention import Heads, reader
from explorer.own.blocks import Block
from explorer.own.readings import Reading, gather
from explorer.own.stack import almost_zero, gradient_note
from explorer.own.sums import Sums, wide_on
from explorer.own.weights import Weights
from explorer.profile import Array, Key

STREAM_PARTS, HEAD_PARTS, WEIGHT_PARTS = 5, 5, 5
WITH_TOKENS = 3
"""Axes up to which the last one of a stream has a token's coordinates; of images it may be another."""


class Window:
    """Sums over the passes of one step that is read; `reading()` turns them into numbers.

    Args:
        model: the root.
        blocks: its layers, in order.
    """

    def __init__(self, model: nn.Module, blocks: list[Block]) -> None:
        self.blocks = blocks
        self.stream: dict[int, Sums] = {}
        self.gradient: dict[int, Sums] = {}
        self.heads: dict[int, Heads] = {}
        self.weights = Weights(model, blocks)
        self.dtype = ""
        self.small: Tensor | int = 0
        """`[2]`: how many tokens of the input are almost 0, and of how many."""

    def see(self, place: int, x: Tensor) -> Tensor:
        """Adds a tensor of the stream; its largest |x|."""
        self.dtype, x = str(x.dtype).removeprefix("torch."), processes.local(x)
        if place == 0 and x.ndim <= WITH_TOKENS:
            small = almost_zero(x)
            self.small = self.small + torch.stack([small, torch.full_like(small, x[..., 0].numel())])
        return _add(self.stream, place, Sums.of(x))

    def returned(self, place: int, gradient: Tensor) -> Tensor:
        """Adds a gradient by the stream; its largest |x|."""
        return _add(self.gradient, place, Sums.of_squares(processes.local(gradient)))

    def around(self, layer: int) -> AbstractContextManager[Any]:
        """Context for a block's run; none for compiled code, which a mode would run uncompiled, rounded otherwise."""
        block = self.blocks[layer].module
        return nullcontext() if is_compiled(block) else reader(block, partial(self.attend, layer))

    def attend(self, layer: int, heads: Heads) -> None:
        """Adds what a block's attention was seen to do."""
        share, of = processes.head_share(self.blocks[layer].module)
        if of > 1:  # the other processes' heads stand beside these
            heads = spread(heads, share, of)
        held = self.heads.get(layer)
        if held is None:
            self.heads[layer] = heads
        elif held.largest.shape == heads.largest.shape:
            self.heads[layer] = held + heads

    def reading(self, step: int, times: Callable[[torch.device], Tensor]) -> tuple[Reading, Tensor]:
        """The numbers over all processes: one sum, one maximum, and the only wait for the device.

        Args:
            step: updates made before it.
            times: gives numbers on a device, of which the maxima over processes are wanted, too.
        Returns:
            the reading, and the maxima of `times`, `[number]`.
        """
        device = processes.reduction_device(next((sums.parts.device for sums in self.stream.values()),
                                                 next(iter(self.weights.matrices)).weight.device))
        sites = range(len(self.blocks) + 1)
        stream, gradient = ([_columns(held.get(place), device) for place in sites]
                            for held in (self.stream, self.gradient))
        heads = {layer: self.heads[layer] for layer in sorted(self.heads)}
        weights = torch.tensor(self.weights.numbers, dtype=wide_on(device), device=device)
        small = (weights.new_zeros(2) + self.small).to(device)
        sums, maxima = processes.reduce(
            torch.cat([*(part for part, _ in stream), *(part for part, _ in gradient), weights.flatten(), small,
                       *(rows.parts.to(device).flatten() for rows in heads.values())]),
            torch.cat([*(most for _, most in stream), *(rows.largest.to(device) for rows in heads.values()),
                       times(device)]))
        added, most = sums.double().cpu().numpy(), maxima.double().cpu()
        cells: defaultdict[Key, dict[int | None, Array]] = defaultdict(dict)
        cut = _Cutter(added)
        streams, gradients = cut(len(sites), STREAM_PARTS), cut(len(sites), STREAM_PARTS)
        with np.errstate(all="ignore"):  # whatever is not finite is shown as what it is
            _stream_cells(cells, streams, most[: len(sites)].numpy(), gradients)
            weighed, of = cut(len(self.weights.matrices), WEIGHT_PARTS), cut(2)
            _weight_cells(cells, self.weights, weighed)
            notes = gradient_note(bool(gradients[-1, 0]) and not gradients[-1, 2], _gates(self.weights, weighed),
                                  (int(of[0]), int(of[1])))
            place = len(sites)
            for layer, rows in heads.items():
                n_heads = len(rows.largest)
                _head_cells(cells, layer, cut(HEAD_PARTS, n_heads), most[place : place + n_heads].numpy())
                place += n_heads
        return Reading(step, *gather(cells, len(self.blocks)), self.dtype, notes), most[place:]


class _Cutter:
    """Takes one piece after the other off a row of numbers."""

    def __init__(self, numbers: Array) -> None:
        self.numbers, self.at = numbers, 0

    def __call__(self, *shape: int) -> Array:
        start, self.at = self.at, self.at + int(np.prod(shape))
        return self.numbers[start : self.at].reshape(shape)


def is_compiled(module: nn.Module) -> bool:
    """Whether part of a module runs as compiled code."""
    return any(part._compiled_call_impl is not None or hasattr(part, "_orig_mod") for part in module.modules())


def spread(heads: Heads, share: int, of: int) -> Heads:
    """A share of the heads at their place among all; what stands at the others' neither adds nor exceeds."""
    n_heads = len(heads.largest)
    place = slice(share * n_heads, (share + 1) * n_heads)
    parts = heads.parts.new_zeros(len(heads.parts), of * n_heads)
    largest = heads.largest.new_full((of * n_heads,), -torch.inf)
    parts[:, place], largest[place] = heads.parts, heads.largest
    return Heads(parts, largest)


def _add(held: dict[int, Sums], place: int, sums: Sums) -> Tensor:
    held[place] = held[place] + sums if place in held else sums
    return sums.largest


def _columns(sums: Sums | None, device: torch.device) -> tuple[Tensor, Tensor]:
    """Count and sums `[5]`, and the maximum `[1]`, of a place; of one that was not seen, what changes nothing."""
    parts = torch.zeros(STREAM_PARTS, dtype=wide_on(device), device=device)
    if sums is None:
        return parts, torch.full_like(parts[:1], -torch.inf)
    count = torch.full_like(parts[:1], sums.count)
    return torch.cat([count, sums.parts.to(device)]), sums.largest.to(device).view(1)


def _stream_cells(cells: dict[Key, dict[int | None, Array]], stream: Array, most: Array, gradient: Array) -> None:
    """Numbers of the stream from its sums `[place, part]`."""
    last = gradient[-1, 2] / gradient[-1, 0]
    for place, ((count, total, square, fourth, infinite), largest) in enumerate(zip(stream, most, strict=True)):
        site, layer = ("embed", 0) if place == 0 else ("resid_post", place - 1)
        values = {} if not count else {
            "mean": total / count, "second_moment": square / count,
            "max_abs": np.nan if np.isnan(square) else largest,  # a maximum over processes may pass over a nan
            "nonfinite": infinite,
            "fourth_moment_ratio": fourth / count / (square / count) ** 2,
        }
        if gradient[place, 0] and gradient[-1, 0] and gradient[-1, 2]:
            values["activation_gradient"] = gradient[place, 2] / gradient[place, 0] / last
        for name, value in values.items():
            cells[name, site][layer] = np.asarray(value)


def _weight_cells(cells: dict[Key, dict[int | None, Array]], weights: Weights, numbers: Array) -> None:
    """Numbers of the matrices from their sums `[matrix, part]`."""
    for matrix, (gradient, has, moved, size, stepped) in zip(weights.matrices, numbers, strict=True):
        if has:
            cells["parameter_gradient", matrix.site][matrix.layer] = np.sqrt(gradient)
        if stepped:
            cells["update_ratio", matrix.site][matrix.layer] = np.sqrt(np.divide(moved, size))
            cells["weight_norm", matrix.site][matrix.layer] = np.sqrt(size)


def _gates(weights: Weights, numbers: Array) -> list[str]:
    """Matrices outside of the layers that were 0 before the step and whose gradient was not."""
    return [matrix.site for matrix, (gradient, _, _, size, stepped) in zip(weights.matrices, numbers, strict=True)
            if matrix.layer is None and stepped and not size and gradient]


def _head_cells(cells: dict[Key, dict[int | None, Array]], layer: int, parts: Array, largest: Array) -> None:
    """Numbers of a layer's heads from their sums `[part, head]`."""
    rows, entropy, several, normalized, weight = parts
    lost = np.isnan(entropy) & np.isfinite(largest)  # a maximum over processes may pass over a nan
    cells["largest_logit", "attn_scores"][layer] = np.where(lost, np.nan, largest)
    cells["attention_entropy", "pattern"][layer] = entropy / rows
    cells["attention_entropy_normalized", "pattern"][layer] = normalized / several
    cells["attention_max", "pattern"][layer] = weight / rows
