"""Sums gathered over one step: several passes where gradients are accumulated, and one reading at
its end."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from explorer.measuring.rotation import rotation
from explorer.measuring.spectra import FEW_STEPS, of_stack
from explorer.measuring.statistics import norms
from explorer.vocabulary import VOCABULARY, Array, Key
from explorer_models.attention import reader
from explorer_models.model import Block, is_compiled
from explorer_models.readings import Reading, gather
from explorer_models.stack import almost_zero, gradient_note
from explorer_models.sums import (
    HALF,
    Sums,
    copies,
    head_share,
    local,
    n_processes,
    over_processes,
    shards,
)

# The matrices of a model at an optimizer's step: norms of their gradients, and of their change over
# their own.


WRAPPERS = re.compile(r"(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|module)\.(?=.)")
"""Parts of names that wrappers add; weights are named without them."""


class Matrix(NamedTuple):
    """A weight with two axes or more, and the layer that has it."""

    site: str
    """Its name within its block, or within the model where it is in none."""
    layer: int | None
    """Its block, from 0."""
    weight: nn.Parameter
    turned: bool = False
    """Whether its columns are the outputs; elsewhere its rows are."""

    @property
    def has_spectrum(self) -> bool:
        """Whether singular values of its update can be read: this process has all of it, and it
        multiplies vectors, unlike a table of embeddings."""
        return (
            self.layer is not None
            and self.weight.ndim == 2
            and copies(self.weight) == n_processes()
        )


class Weights:
    """Squared norms of every matrix's gradient and update at one step, as shares that processes
    add up.

    Args:
        model: whose.
        blocks: its layers.
        spectra: whether singular values of the changes are read, too.
    """

    def __init__(self, model: nn.Module, blocks: list[Block], spectra: bool = False) -> None:
        self.model, self.blocks, self.spectra = model, blocks, spectra
        self.kept: dict[int, Tensor] = {}

    @cached_property
    def matrices(self) -> list[Matrix]:
        """Every matrix once, the blocks' first; looked up at the step, for sharding replaces
        parameters."""
        turned = {id(module.weight) for module in self.model.modules() if puts_out_columns(module)}
        inner = [
            Matrix(plain(name), layer, weight, id(weight) in turned)
            for layer, block in enumerate(self.blocks)
            for name, weight in block.module.named_parameters()
            if weight.ndim > 1
        ]
        inside = {id(matrix.weight) for matrix in inner}
        return inner + [
            Matrix(plain(name), None, weight)
            for name, weight in self.model.named_parameters()
            if weight.ndim > 1 and id(weight) not in inside
        ]

    @cached_property
    def numbers(self) -> list[list[float]]:
        """`[matrix, 10]`: Σ g², whether it has a gradient, Σ ΔW², Σ W², whether it was stepped,
        √(ΔW² / W²) at equilibrium, Σ g W, Σ ΔW W, ‖ΔW‖₂, stable rank of ΔW."""
        return [[0.0] * 10 for _ in self.matrices]

    def before(self, optimizer: Optimizer, stepped: set[int], scale: float) -> None:
        """Before an optimizer's step: reads its gradients, and copies the weights that it will
        change.

        Args:
            optimizer: which.
            stepped: `id` of each parameter that it steps.
            scale: what the gradients are still multiplied by.
        """
        self.gradients(scale)
        self.kept = {
            index: local(matrix.weight).clone()
            for index, matrix in enumerate(self.matrices)
            if id(matrix.weight) in stepped and matrix.weight.grad is not None
        }
        turns = {
            id(weight): turn
            for group in optimizer.param_groups
            for turn in [rotation(optimizer, group)]
            for weight in group["params"]
        }
        weights = [self.matrices[index].weight for index in self.kept]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        for index, weight, along in zip(
            self.kept, weights, products(gradients, weights), strict=True
        ):
            self.numbers[index][5:7] = [turns[id(weight)], along / scale / copies(weight)]

    def after(self) -> None:
        """After an optimizer's step: reads the change of the weights."""
        if not self.kept:
            return
        old = list(self.kept.values())
        size = squares(old)
        weights = [self.matrices[index].weight for index in self.kept]
        torch._foreach_sub_(old, [local(weight) for weight in weights])  # −ΔW
        numbers = zip(self.kept, weights, squares(old), size, products(old, weights), strict=True)
        for index, weight, moved, squared, along in numbers:
            share = 1 / copies(weight)
            self.numbers[index][2:5] = [moved * share, squared * share, 1.0]
            # of the weights before: the products are of those after
            self.numbers[index][7] = -(along + moved) * share
            if self.spectra and self.matrices[index].has_spectrum:
                (largest,), (rank,) = of_stack(self.kept[index][None], FEW_STEPS)
                self.numbers[index][8:] = [largest * share, rank * share]
        self.kept.clear()

    def gradients(self, scale: float = 1.0) -> bool:
        """Reads the gradients that are there, divided by a scale; returns whether there are any."""
        gradients = {
            index: matrix.weight.grad
            for index, matrix in enumerate(self.matrices)
            if matrix.weight.grad is not None
        }
        numbers = [local(x.coalesce().values() if x.is_sparse else x) for x in gradients.values()]
        for index, square in zip(gradients, squares(numbers), strict=True):
            self.numbers[index][:2] = [square / scale**2 / copies(self.matrices[index].weight), 1.0]
        return bool(gradients)


def puts_out_columns(module: nn.Module) -> bool:
    """Whether a module computes x W, as Conv1D of Hugging Face Transformers: its bias has a
    number for each column.

    For a square matrix it makes no difference. Without a bias W is taken for a Linear's, which
    computes W x."""
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    return (
        isinstance(weight, Tensor)
        and isinstance(bias, Tensor)
        and weight.ndim == 2
        and weight.shape[0] != weight.shape[1] == bias.numel()
    )


def plain(name: str) -> str:
    """A module's or parameter's name without the parts that wrappers add."""
    return WRAPPERS.sub("", name)


def products(tensors: Sequence[Tensor], weights: Sequence[Tensor]) -> list[float]:
    """Σ x W of each tensor, such as a gradient, with its weight. All sums cross to the processor
    at once."""
    sums = [
        (local(x).float() * local(weight)).sum() for x, weight in zip(tensors, weights, strict=True)
    ]
    return torch.stack([x.to(sums[0].device) for x in sums]).tolist() if sums else []


def squares(tensors: list[Tensor]) -> list[float]:
    """Sum of squares of each tensor. Half precision is summed in float32, and no sum overflows, see
    `measuring.statistics.norms`."""
    totals = [0.0] * len(tensors)
    kinds: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for index, tensor in enumerate(tensors):
        if tensor.numel():  # a process may have no part of a small matrix
            kinds.setdefault((tensor.device, tensor.dtype), []).append(index)
    for (_, dtype), indices in kinds.items():
        some = [tensors[index] for index in indices]
        if dtype in HALF:
            sizes = torch.stack(
                [torch.linalg.vector_norm(tensor, dtype=torch.float32) for tensor in some]
            ).tolist()
        else:
            sizes = norms(some)
        for index, size in zip(indices, sizes, strict=True):
            totals[index] = size * size
    return totals


# The step.


WITH_TOKENS = 3
"""Axes up to which the last one of a stream has a token's coordinates; of images it may be
another."""
NOTHING = Sums(torch.zeros(5), torch.tensor(-torch.inf))
"""Sums of a place that no pass reached: to add them changes nothing."""

Cells = defaultdict[Key, dict[int | None, Array]]
"""Statistics by name and site, then by layer from 0; None for a matrix in no layer."""


class Window:
    """Sums over the passes of one step that is read; `reading()` turns them into numbers.

    Args:
        model: the root.
        blocks: its layers, in order.
        spectra: whether singular values of the updates are read, too.
        positions: whether statistics by token position are read, too: of the first pass, in this
            process.
    """

    def __init__(
        self, model: nn.Module, blocks: list[Block], spectra: bool = False, positions: bool = False
    ) -> None:
        self.blocks, self.positions = blocks, positions
        self.tokens: defaultdict[str, dict[int, Tensor]] = defaultdict(dict)
        """By statistic and layer from 0: `[token]`; of the stream `[sequence, token]`, or the other
        way round."""
        self.stream: dict[int, Sums] = {}
        self.gradient: dict[int, Sums] = {}
        self.heads: dict[int, Sums] = {}
        self.weights = Weights(model, blocks, spectra)
        self.dtype = ""
        self.small = torch.zeros(2)
        """How many tokens of the input are almost 0, and of how many."""
        self.logits: list[Mapping[str, float]] = []
        """`LOGITS` of the output, by pass."""

    def forward(self, place: int, x: Tensor) -> Tensor:
        """Adds a tensor of the stream; its largest |x|."""
        if self.positions and place and x.ndim == WITH_TOKENS and not any(shards(x)):
            self.keep(place - 1, {"second_moment_by_position": local(x).float().square().mean(-1)})
        self.dtype, x = str(x.dtype).removeprefix("torch."), local(x)
        if place == 0 and x.ndim <= WITH_TOKENS:
            small = almost_zero(x)
            self.small = self.small.to(small) + torch.stack(
                [small, torch.full_like(small, x[..., 0].numel())]
            )
        return _add(self.stream, place, Sums.of(x))

    def backward(self, place: int, gradient: Tensor) -> Tensor:
        """Adds a gradient by the stream; its largest |x|."""
        return _add(self.gradient, place, Sums.of(local(gradient), squares_alone=True))

    def around(self, layer: int) -> AbstractContextManager[Any]:
        """Context for a block's run; none for compiled code, which a mode would run uncompiled,
        rounded otherwise."""
        block = self.blocks[layer].module
        return (
            nullcontext()
            if is_compiled(block)
            else reader(
                block,
                partial(self.attend, layer),
                partial(self.keep, layer) if self.positions else None,
            )
        )

    def keep(self, layer: int, means: Mapping[str, Tensor]) -> None:
        """Keeps statistics by token position, of the first pass of a layer."""
        for name, mean in means.items():
            self.tokens[name].setdefault(layer, mean)

    def attend(self, layer: int, heads: Sums) -> None:
        """Adds sums over a block's attention, by head."""
        share, n_shares = head_share(self.blocks[layer].module)
        if n_shares > 1:  # the other processes' heads stand beside these
            heads = spread(heads, share, n_shares)
        if layer not in self.heads or self.heads[layer].largest.shape == heads.largest.shape:
            _add(self.heads, layer, heads)

    def reading(self, step: int, times: Tensor) -> tuple[Reading, Array]:
        """The numbers over all processes.

        Args:
            step: updates made before it.
            times: numbers of which the maxima over processes are wanted, too.
        Returns:
            the reading, and the maxima of `times`, `[number]`.
        """
        n = len(self.blocks) + 1
        stream = [self.stream.get(number, NOTHING) for number in range(n)]
        gradient = [self.gradient.get(number, NOTHING) for number in range(n)]
        heads = dict(sorted(self.heads.items()))
        matrices = self.weights.matrices
        device = next(
            (sums.parts.device for sums in self.stream.values()), matrices[0].weight.device
        )
        numbers = torch.tensor(self.weights.numbers, dtype=torch.float64)
        (weights, small, *sums), (first, *largest) = over_processes(
            [
                numbers,
                self.small,
                *(total.parts for total in (*stream, *gradient, *heads.values())),
            ],
            [times, *(total.largest for total in (*stream, *heads.values()))],
            device,
        )
        cells: Cells = defaultdict(dict)
        gradients = np.stack(sums[n : 2 * n])
        with np.errstate(all="ignore"):  # whatever is not finite is shown as what it is
            _stream_cells(cells, np.stack(sums[:n]), np.stack(largest[:n]), gradients)
            _weight_cells(cells, matrices, weights)
            for layer, parts, most in zip(heads, sums[2 * n :], largest[n:], strict=True):
                _head_cells(cells, layer, parts, most)
        _token_cells(cells, self.tokens)
        nothing = bool(gradients[-1, 0]) and not gradients[-1, 2]
        gates = _gates(matrices, weights)
        notes = gradient_note(nothing, gates, (int(small[0]), int(small[1])))
        logits = self.logits[0] if self.logits else {}
        return Reading(step, *gather(cells, len(self.blocks)), self.dtype, notes, logits), first


def spread(heads: Sums, share: int, n_shares: int) -> Sums:
    """A share of the heads at their place among all: zeros, and −∞ for maxima, at the other
    heads change nothing when processes are added.

    Args:
        heads: sums of this process's heads.
        share: its number.
        n_shares: number of processes over which heads are split.
    """
    n_heads = len(heads.largest)
    place = slice(share * n_heads, (share + 1) * n_heads)
    parts = heads.parts.new_zeros(len(heads.parts), n_shares * n_heads)
    largest = heads.largest.new_full((n_shares * n_heads,), -torch.inf)
    parts[:, place], largest[place] = heads.parts, heads.largest
    return Sums(parts, largest)


def _add(totals: dict[int, Sums], place: int, sums: Sums) -> Tensor:
    """Adds sums to those of a place; returns the largest |x|."""
    totals[place] = totals[place] + sums if place in totals else sums
    return sums.largest


def _stream_cells(cells: Cells, stream: Array, most: Array, gradient: Array) -> None:
    """Fills in the statistics of the stream.

    Args:
        stream: sums `[place, 5]`, see `Sums.parts`.
        most: largest |x|, `[place]`.
        gradient: as `stream`, of the gradients.
    """
    last = gradient[-1, 2] / gradient[-1, 0]
    for number, (sums, largest) in enumerate(zip(stream, most, strict=True)):
        site, layer = ("resid_post", number - 1) if number else ("embed", 0)
        count, total, square, fourth, infinite = sums
        values = {}
        if count:
            values["mean"] = total / count
            values["second_moment"] = square / count
            # a maximum over processes may pass over a nan
            values["max_abs"] = np.nan if np.isnan(square) else largest
            values["nonfinite"] = infinite
            values["fourth_moment_ratio"] = fourth / count / (square / count) ** 2
        if gradient[number, 0] and gradient[-1, 0] and gradient[-1, 2]:
            values["activation_gradient"] = gradient[number, 2] / gradient[number, 0] / last
        for name, value in values.items():
            cells[name, site][layer] = np.asarray(value)


def _weight_cells(cells: Cells, matrices: Sequence[Matrix], numbers: Array) -> None:
    """Fills in the statistics of the matrices, from `Weights.numbers`."""
    for matrix, row in zip(matrices, numbers, strict=True):
        gradient, has, moved, size, stepped, turn, along, radial, largest, rank = row
        values = {}
        if has:
            values["parameter_gradient"] = np.sqrt(gradient)
        if stepped:
            values["update_ratio"] = np.sqrt(np.divide(moved, size))
            values["weight_norm"] = np.sqrt(size)
        if stepped and gradient and size:
            values["gradient_cosine"] = along / np.sqrt(gradient * size)
        if moved and size:
            values["update_cosine"] = radial / np.sqrt(moved * size)
        if rank:
            rows, columns = matrix.weight.shape[::-1] if matrix.turned else matrix.weight.shape
            values["update_spectral_norm"] = largest * np.sqrt(columns / rows)
            values["update_stable_rank"] = rank
        if turn:
            values["equilibrium_update"] = turn / stepped
        for name, value in values.items():
            cells[name, matrix.site][matrix.layer] = value


def _gates(matrices: Sequence[Matrix], numbers: Array) -> list[str]:
    """Names of matrices outside the layers that were 0 before the step and whose gradient was
    not."""
    return [
        matrix.site
        for matrix, (gradient, _, _, size, stepped, *_) in zip(matrices, numbers, strict=True)
        if matrix.layer is None and stepped and not size and gradient
    ]


def _token_cells(cells: Cells, tokens: Mapping[str, Mapping[int, Tensor]]) -> None:
    """Fills in statistics by token position. Attention shows which of the stream's two first
    axes has the tokens."""
    counts = {
        len(mean)
        for name, by_layer in tokens.items()
        for mean in by_layer.values()
        if mean.ndim == 1
    }
    for name, by_layer in tokens.items():
        for layer, mean in by_layer.items():
            if mean.ndim > 1:
                axes = [axis for axis in range(2) if {mean.shape[axis]} == counts]
                if len(axes) != 1:
                    continue  # as many sequences as tokens do not say which are which
                mean = mean.mean(1 - axes[0])
            cells[name, VOCABULARY[name].sites[0]][layer] = mean.double().cpu().numpy()


def _head_cells(cells: Cells, layer: int, parts: Array, largest: Array) -> None:
    """Fills in the statistics of a layer's heads.

    Args:
        layer: from 0.
        parts: sums `[5, head]`, see `attention.Reader`.
        largest: logits, `[head]`.
    """
    rows, entropy, several, normalized, weight = parts
    lost = np.isnan(entropy) & np.isfinite(largest)  # a maximum over processes may pass over a nan
    cells["largest_logit", "attn_scores"][layer] = np.where(lost, np.nan, largest)
    cells["attention_entropy", "pattern"][layer] = entropy / rows
    cells["attention_entropy_normalized", "pattern"][layer] = normalized / several
    cells["attention_max", "pattern"][layer] = weight / rows
