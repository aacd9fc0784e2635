"""`coord_check`: growth of a model's activations, and of their changes in the first steps, with
width and depth."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from scipy.stats import linregress
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from explorer import plugins
from explorer.config import Config
from explorer.diagnosis import Finding, Findings
from explorer.display import Copied, draw, must_be, shown, table
from explorer.schemes.parametrization import PARAMETRIZATIONS
from explorer.vocabulary import Array
from explorer_models.attention import logits, visible
from explorer_models.model import (
    Batch,
    Block,
    Loss,
    called,
    find_stacks,
    is_compiled,
    is_made,
    loss_of,
    output_of,
    unwrapped,
)
from explorer_models.nodes import (
    FACTOR,
    FUSED,
    MATRIX,
    NORMS,
    REDUCTION,
    SOFTMAX,
    first_floating,
    named_arguments,
    tensors_in,
)
from explorer_models.probe import run_eagerly
from explorer_models.sums import HALF, wide_on
from explorer_models.texts import text
from explorer_models.window import plain

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Axis = Literal["width", "depth", "head"]
Factory = Callable[[int, int], Any]
Optimize = Callable[[nn.Module], Optimizer | Sequence[Optimizer]]

INPUT, STREAM = "input of the layers", "stream after the last layer"
POOLED: Mapping[str, str] = MappingProxyType(
    {
        INPUT: "embedding",
        "biases": "bias",
        "gains": "bias",
        STREAM: "stream",
        "attention logits": "attention",
        "readout": "readout",
    }
)
"""Quantities that have one name in every model, and their kinds; others are matrices and embeddings
by their names."""
KINDS = ("embedding", "bias", "matrix", "attention", "stream", "readout")
"""In the order of findings: a cause before what follows from it."""
CAUSES: Mapping[str, str] = MappingProxyType({"width": "matrix", "depth": "stream"})
"""By axis, the kind of quantity from whose growth that of others may follow."""
STEPPED: Mapping[tuple[Axis, str], tuple[float | None, ...]] = MappingProxyType(
    {
        **{("depth", kind): (None, None, None, 0) for kind in KINDS},
        **dict.fromkeys(
            [("depth", "bias"), ("width", "bias"), ("width", "embedding")], (0, 0, 0, 0)
        ),
        **dict.fromkeys([("width", "matrix"), ("width", "readout")], (1, 0.5, 0, 0)),
        **dict.fromkeys([("width", "attention"), ("width", "stream")], (None, None, 0, 0)),
        ("head", "attention"): (0, 0, -0.5, -0.5),
    }
)
"""Powers in the changes, and of logits at step 0 over the head's width, under Adam, by
parametrization.

μP: all activations move by Θ(1) at every width (Yang et al. 2022, table 3 and appendix D.1);
CompleteP: at every depth, too (Dey et al. 2025: stable initialization, and maximal update of the
residual stream). q·k is divided by d, so that logits are Θ(1) when q and k align, and d^−½ at
initialization, where they are independent (definition 4.1).

The others follow from one step of a parameter, its input Θ(1): each entry moves by η, along the
input, so a product of fan_in = width moves by η · width, one with a row of a table or a bias by η.
NTK's factor 1/√width comes on top. What also depends on norms or heads is None. """
HIDDEN = ("embedding", "matrix", "stream")
"""Kinds whose size at step 0 is Θ(1) at every width under μP: the coordinates of activations are,
those of the output at most (Yang et al. 2022, desiderata J.1). At step 0 no kind may grow;
attention logits, readout and biases may fall, and so may all over the depth."""
GRID = 0.5
"""Powers of a parametrization are multiples of it: a slope nearer to another multiple than to a
right one, by two standard errors, is a finding.

A step moves a product along some inputs and at random along others: the aligned part is Θ(1), the
other falls as width^−½, or as depth^−½ over a sum of layers. The other prevails where tokens
outnumber coordinates (compare Everett et al. 2024, arXiv 2407.05872), so that down to −½ nothing is
wrong. Embeddings, biases and gains move without a product. """


class Size(NamedTuple):
    """A quantity in one run, at one step."""

    quantity: str
    kind: str
    width: int
    depth: int
    seed: int
    step: int
    """Updates made before."""
    size: float
    """Root mean square of all entries, in all layers."""
    change: float
    """Root mean square of the difference from step 0."""
    start: float
    """The size at step 0."""
    head: int = 0
    """Of attention logits, the width of a head."""
    factor: float = 1.0
    """Of numbers that multiply it right afterwards; nan where a norm follows, which takes its size
    away."""


class Slope(NamedTuple):
    """Power of a width or depth with which a quantity grows: least squares of logarithms, over
    sizes and seeds."""

    quantity: str
    kind: str
    axis: Axis
    step: int
    """Step 0: of the size at initialization; else of the change since."""
    slope: float
    """nan where a value is 0 or not finite."""
    error: float
    """Standard error from the residuals; nan of two points."""
    asked: Mapping[str, float | None]
    """By parametrization, None where it depends on more than that; empty at step 0, but over the
    head's width."""

    @property
    def deviation(self) -> float:
        """Distance of the slope from those that are right; negative within them."""
        highest = -GRID if self.axis == "head" else 0.0
        if self.step:
            lowest = 0.0 if self.kind in ("embedding", "bias") else -GRID
        else:
            # a table is read as the input of the layers, for its factor may follow other operations
            hidden = self.kind == "matrix" or self.quantity in (INPUT, STREAM)
            lowest = 0.0 if self.axis == "width" and hidden else -math.inf
        return max(self.slope - highest, lowest - self.slope)


# What passes the operations of a model, and its difference from what passed them before the first
# step.


GATHERED = {"embedding", "index", "index_select"}
COPIES = {"_to_copy", "clone", "cat", *FACTOR}
"""Operations, such as autocast's, whose result is a parameter still if their operands are
parameters or numbers."""
SIZED = NORMS | REDUCTION | {"pow", "square"}
"""Operations that are a norm, or with which a norm begins."""


class Sizes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that takes root mean squares of what a model computes, by quantity.

    Args:
        model: whose.
        blocks: names of its layers, as for `probe`.
    """

    def __init__(self, model: nn.Module, blocks: str | Sequence[str] | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.model, stacks = model, list[list[Block]]()
        # without layers matrices have their full names
        with suppress(ValueError) if blocks is None else nullcontext():
            stacks = find_stacks(model, blocks)
        inner = {
            weight: name
            for stack in stacks
            for block in stack
            for name, weight in block.module.named_parameters()
        }
        self.names = {weight: name for name, weight in model.named_parameters()} | inner
        self.inner = inner or {
            weight: name for weight, name in self.names.items() if weight.ndim < 2
        }
        self.first, self.kinds, self.starts = (
            dict[tuple[str, int], Tensor](),
            dict(POOLED),
            dict[str, float](),
        )
        self.layers, self.uneven = stacks[0] if stacks else [], set[str]()

    def run(self, step: int, batch: Batch) -> Any:
        """Runs the model at a step, takes its quantities, and returns its output."""
        self.step, self.passed, self.last, self.head, self.coordinates = step, False, "", 0, 0
        self.calls, self.copies = Counter[str](), list[Tensor]()
        self.made = dict[int, list[tuple[str, int, int]]]()
        """Address of a matrix's output at step 0, or of a multiple, to quantity, number of the call
        and of entries."""
        self.sums = defaultdict[str, list[tuple[int, Tensor, Tensor]]](list)
        self.factors = defaultdict[str, dict[int, float]](dict)
        self.owners = {address(weight): [weight] for weight in self.names if weight.ndim > 1}
        for weight, name in self.inner.items():
            if weight.ndim < 2 and weight.requires_grad:
                self.take("biases" if re.search(r"(bias|\bb_)[^.]*$", name) else "gains", weight)
        with ExitStack() as hooks:
            if self.layers:
                hooks.callback(
                    self.layers[0]
                    .module.register_forward_pre_hook(
                        lambda _, *given: self.take(INPUT, first_floating(*given)), with_kwargs=True
                    )
                    .remove
                )
                hooks.callback(
                    self.layers[-1]
                    .module.register_forward_hook(
                        lambda _, __, out: self.take(STREAM, first_floating(out))
                    )
                    .remove
                )
            with self:
                output = called(self.model, batch)
        # no layers were called: the last matrix is the readout, before what multiplies it
        if not self.passed:
            self.sums.pop(self.last, None)
        self.take("readout", output_of(output))
        return output

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operation, and takes what it gives if it is one of attention, or applies a
        matrix."""
        out, op = func(*args, **kwargs or {}), func.overloadpacket.__name__
        if op in FUSED | SOFTMAX:
            named = named_arguments(func, args, kwargs or {})
            for scores in logits(named):
                self.head = named["query"].shape[-1] if "query" in named else self.coordinates
                keys = visible(scores)
                self.take("attention logits", scores.masked_fill(~keys, 0), int(keys.sum()))
        elif op in MATRIX | GATHERED | COPIES and isinstance(out, Tensor):
            operands = [tensor for tensor in tensors_in((args, kwargs or {})) if tensor.numel() > 1]
            owned = [
                self.owners[address(tensor)]
                for tensor in operands
                if address(tensor) in self.owners
            ]
            if op in COPIES and owned and len(owned) == len(operands):
                self.owners[address(out)] = [weight for weights in owned for weight in weights]
                self.copies.append(out)  # or its memory would be another's
            elif op in MATRIX | GATHERED and owned:
                self.apply(owned[-1], op in GATHERED, out)
            elif op in MATRIX and operands and operands[-1].ndim > 1:
                # of queries and keys, where a softmax follows
                self.coordinates = operands[-1].shape[-2]
        if self.made and (op in FACTOR or op in SIZED):
            self.follow(op, named_arguments(func, args, kwargs or {}), out)
        return out

    def follow(self, op: str, named: Mapping[str, Any], out: Any) -> None:
        """Notes the factor that follows a matrix: a number that multiplies its output, or a norm,
        after which the size of the output has no effect.

        Args:
            op: name of the operation.
            named: its arguments.
            out: its result.
        """
        first, other = [*named.values(), None][:2]
        if not isinstance(first, Tensor):
            return
        outputs = self.made.get(address(first), [])
        if op in SIZED or other is first:
            for quantity, call, _ in outputs:
                # a table's rows may be the stream, which goes on beside the norm
                if self.kinds[quantity] == "matrix":
                    self.factors[quantity][call] = math.nan
            return
        constant = isinstance(other, (int, float)) or (
            isinstance(other, Tensor) and other.numel() == 1 and not other.requires_grad
        )
        whole = [row for row in outputs if row[2] == first.numel()]
        if not constant or not isinstance(out, Tensor) or not whole:
            return
        factor = 1 / float(other) if "div" in op else float(other)
        for quantity, call, _ in whole:
            self.factors[quantity][call] = self.factors[quantity].get(call, 1.0) * factor
        self.made[address(out)] = whole
        self.copies.append(out)

    def apply(self, weights: list[nn.Parameter], gathered: bool, out: Tensor) -> None:
        """Takes the output of a matrix, or of several side by side; after the layers it is the
        readout's.

        Args:
            weights: the matrices.
            gathered: whether the operation takes rows of a table.
            out: the output.
        """
        sizes = [len(weight) for weight in weights] if len(weights) > 1 else [out.shape[-1]]
        if sum(sizes) != out.shape[-1] or (self.passed and weights[0] not in self.inner):
            return
        for weight, output in zip(weights, torch.split(out, sizes, dim=-1), strict=True):
            name = plain(self.names[weight]).removesuffix(".weight")
            self.last = f"{name} (matrix)" if name in POOLED else name
            self.kinds[self.last] = (
                "embedding" if weight not in self.inner and (gathered or self.layers) else "matrix"
            )
            self.take(self.last, output)
            if self.step == 0:
                self.made.setdefault(address(out), []).append(
                    (self.last, self.calls[self.last] - 1, out.numel())
                )
        if self.step == 0:
            self.copies.append(out)

    @torch.no_grad()
    def take(self, quantity: str, x: Tensor | None, count: int | None = None) -> None:
        """Adds a call's tensor to a quantity: the sum of its squares, and of those of its
        difference from the same call at step 0. A call that step 0 has not, or in another shape,
        makes the quantity uneven, and is left out.

        Args:
            count: of the entries that a mask leaves; None is all.
        """
        if x is None:
            return
        self.passed |= quantity == STREAM
        x = x.detach().float() if x.dtype in HALF else x.detach()
        call = quantity, self.calls[quantity]
        self.calls[quantity] += 1
        if self.step == 0:
            self.first[call] = x.clone()
        first = self.first.get(call)
        if first is None or first.shape != x.shape:
            self.uneven.add(quantity)
            return
        squares, squared_changes = (
            torch.linalg.vector_norm(numbers, dtype=wide_on(x.device)).square()
            for numbers in (x, x - first)
        )
        entries = x.numel() if count is None else count
        self.sums[quantity].append((max(1, entries), squares, squared_changes))

    def sizes(self, width: int, depth: int, seed: int) -> Iterator[Size]:
        """A row of each quantity at the step that was run. Step 0 must come first: later rows
        have its sizes as their starts."""
        for quantity, sums in self.sums.items():
            count, squares, squared_changes = (
                float(sum(parts)) for parts in zip(*sums, strict=True)
            )
            kind, size = self.kinds[quantity], math.sqrt(squares / count)
            yield Size(
                quantity,
                kind,
                width,
                depth,
                seed,
                self.step,
                size=size,
                change=math.sqrt(squared_changes / count),
                start=self.starts.setdefault(quantity, size),
                head=self.head if kind == "attention" else 0,
                factor=self._factor(quantity, squares),
            )

    def _factor(self, quantity: str, squares: float) -> float:
        """The factor that follows a quantity, as a root mean square over its calls; nan where a
        norm follows one of them. Factors are noted at step 0, and 1 later."""
        if not squares:
            return 1.0
        factors = self.factors[quantity]  # by the number of the call; a quantity is whole or uneven
        scaled = sum(
            float(of_call) * factors.get(call, 1.0) ** 2
            for call, (_, of_call, _) in enumerate(self.sums[quantity])
        )
        return math.sqrt(scaled / squares)


def address(tensor: Tensor) -> int:
    """Where the memory begins in which a tensor, or the tensor of which it is a view, has its
    numbers."""
    return tensor.untyped_storage().data_ptr()


# The runs.


def coord_check(
    factory: Factory | Config,
    *,
    widths: Sequence[int] = (64, 128, 256, 512),
    depths: Sequence[int] = (2,),
    steps: int = 3,
    optimizer: Any = None,
    seeds: int = 2,
    loss: Loss | None = None,
    blocks: str | Sequence[str] | None = None,
) -> CoordCheck:
    """Checks how activations, and their changes in the first steps on one batch, grow with width
    and depth.

    The coordinate check of Yang et al. 2022, appendix D.1, and the same over depth (Bordelon et al.
    2023; Dey et al. 2025). Under μP the changes do not depend on the width, under CompleteP on the
    depth either; a slope that is nearer to another multiple of ½ is a finding, with the change that
    is asked for. Every width runs at the first depth, every depth at the first width.

    Read are: the input of the layers; the output of each matrix and table of embeddings, as the
    operation gives it, and of a layer's matrices also relative to step 0, where a later factor
    cancels: the better slope counts. Attention logits, where a fused kernel or a softmax `[batch,
    head, query, key]` is called; the stream after the last layer; biases and gains themselves; the
    model's first output with a gradient. Parts of one name in all layers are one quantity. Dropout
    draws alike at each step. A change by far fewer tokens than the width shows powers best.

    Args:
        factory: from a width and a depth to (model, batch) or (model, batch, loss), or to a
            `Config`. The batch is what `probe` takes, the same for all models; these are drawn
            after `torch.manual_seed`. A `Config` has its d_model and n_layers replaced, and reads
            text; its n_heads stay, so that heads grow with the width.
        widths: two or more, increasing.
        depths: one or more, increasing; two or more for slopes over depth.
        steps: of the optimizer, at least 1.
        optimizer: from the model to its optimizer, or several; by default torch's Adam at 0.001.
            For a `Config` a `Recipe`, whose optimizer has the parametrization's rates; its schedule
            and clipping are left out.
        seeds: draws of each model.
        loss: as for `probe`; the projection is then divided by the output's size.
        blocks: names of the layers, as for `probe`.
    Raises:
        TypeError, ValueError: an argument, or what the factory returns, will not do; says which,
            and why.

    Example:
        Of a model of your own::

            def factory(width, depth):
                model = MyTransformer(width, depth)
                return model, tokens, lambda output: cross_entropy(output, targets)

            check = ex.coord_check(factory, widths=(64, 128, 256))
            check.findings  # the parts whose size or change grows otherwise than under μP
            check.plot("width")
    """
    _check(factory, optimizer, widths, depths, steps, seeds)
    runs = dict.fromkeys(
        [*((width, depths[0]) for width in widths), *((widths[0], depth) for depth in depths)]
    )
    rows, uneven = list[Size](), set[str]()
    for (width, depth), seed in product(runs, range(seeds)):
        with torch.random.fork_rng(), ExitStack() as stack:
            torch.manual_seed(seed)
            model, batch, its_loss, steppers = _made(factory, width, depth, seed, optimizer, loss)
            run_eagerly(stack, is_compiled(model))
            sizes = Sizes(model, blocks)
            rows += _trained(sizes, (width, depth, seed), batch, its_loss, steppers, steps)
            uneven |= sizes.uneven
    return CoordCheck(
        tuple(row for row in rows if row.quantity not in uneven), tuple(sorted(uneven))
    )


def _check(
    factory: object, optimizer: object, widths: object, depths: object, steps: object, seeds: object
) -> None:
    """Raises TypeError or ValueError where an argument of `coord_check` is none."""
    if not callable(factory):
        must_be(Config, "factory", factory)
    if not (optimizer is None or callable(optimizer) or _is_recipe(optimizer)):
        must_be(_trainer(f"optimizer={shown(optimizer)}").recipe, "optimizer", optimizer)

    def increasing(given: Sequence[object], least: int) -> bool:
        """Whether these are so many increasing whole numbers from 1 on."""
        numbers = [number for number in given if type(number) is int and number > 0]
        return len(given) >= least and numbers == list(given) == sorted(set(numbers))

    for name, sizes, least, count in (("widths", widths, 2, "two"), ("depths", depths, 1, "one")):
        if not isinstance(sizes, (list, tuple, range)) or not increasing(sizes, least):
            raise ValueError(
                f"{name} must be {count} or more increasing whole numbers from 1 on; got "
                f"{shown(sizes)}"
            )
    for name, number in (("steps", steps), ("seeds", seeds)):
        if not increasing([number], 1):
            raise ValueError(f"{name} must be a whole number from 1 on; got {shown(number)}")


def _made(
    factory: Factory | Config,
    width: int,
    depth: int,
    seed: int,
    optimizer: Any,
    loss: Loss | None,
) -> tuple[nn.Module, Batch, Loss | None, list[Optimizer]]:
    """Model, batch, loss and optimizers of one run."""
    made = (
        factory.replace(d_model=width, n_layers=depth)
        if isinstance(factory, Config)
        else factory(width, depth)
    )
    recipe_given = _is_recipe(optimizer)
    if isinstance(made, Config):
        by_default = recipe_given or optimizer is None
        trainee = _trainer("a Config").make(
            made.replace(seed=seed), optimizer if by_default else None
        )
        made = (trainee.model, trainee.run, trainee.loss)
        optimizer = trainee.optimize if by_default else optimizer
    elif recipe_given:
        raise TypeError(
            "optimizer must be a function of the model where the model is no Config's; got a Recipe"
        )
    if not is_made(made):
        raise TypeError(
            "factory must return (model, batch), (model, batch, loss) or a Config; it returned "
            f"{shown(made)} of type {type(made).__name__}"
        )
    model = unwrapped(made[0])
    given = optimizer(model) if optimizer else torch.optim.Adam(model.parameters(), lr=1e-3)
    steppers = [
        must_be(Optimizer, "the result of optimizer", stepper)
        for stepper in (given if isinstance(given, Sequence) else [given])
    ]
    return model, made[1], made[2] if len(made) == 3 else loss, steppers


def _trainer(got: str) -> Any:
    """The way of a plug-in to train a `Config`.

    Raises:
        TypeError: no such plug-in is installed; the message names the argument that needs it.
    """
    for trainer in plugins.rows("trainers").values():
        return trainer
    raise TypeError(
        f"factory must return (model, batch) or (model, batch, loss); got {got}, which needs the plug-in "
        "explorer_race, which is not installed"
    )


def _is_recipe(optimizer: object) -> bool:
    """Whether an optimizer is a recipe of a plug-in."""
    return any(isinstance(optimizer, row.recipe) for row in plugins.rows("trainers").values())


def _trained(
    sizes: Sizes,
    run: tuple[int, int, int],
    batch: Batch,
    loss: Loss | None,
    steppers: list[Optimizer],
    steps: int,
) -> Iterator[Size]:
    """The sizes of one run at each step; values that are not finite are kept."""
    for step in range(steps + 1):
        torch.manual_seed(run[2])
        output = sizes.run(step, batch)
        yield from sizes.sizes(*run)
        if step == steps:
            return
        value, scale = loss_of(output, loss)
        sizes.model.zero_grad()
        (value / scale**2).backward()  # type: ignore[no-untyped-call]  # of a projection, the mean over the output
        for stepper in steppers:
            stepper.step()


# Slopes, and what they say.


@dataclass(frozen=True)
class CoordCheck(Copied):
    """Sizes and changes over widths and depths, their slopes, and the findings; made by
    `coord_check`.

    Example:
        Of a design of ours, in half a minute::

            check = ex.coord_check(ex.Config(n_heads=4), widths=(64, 128, 256))
            check.findings  # values that are not finite, and parts that depend on the width
            check.slopes  # the powers of width, by quantity and step
            check.frame()  # root mean squares of each quantity, by width, depth, seed and step
    """

    sizes: tuple[Size, ...]
    left_out: tuple[str, ...] = ()
    """Quantities that have another shape at each step, such as what a router sends to an expert."""

    def frame(self) -> pd.DataFrame:
        """Tidy: a quantity in one run at one step a row; columns as in `Size`."""
        import pandas as pd

        return pd.DataFrame(self.sizes, columns=Size._fields)

    def points(self, quantity: str, axis: Axis, step: int) -> list[Size]:
        """A quantity's rows over an axis, at the smallest size of the other axis; empty of a
        single size."""
        other = "width" if axis == "depth" else "depth"
        place = quantity, step, min(getattr(row, other) for row in self.sizes)
        rows = [row for row in self.sizes if (row.quantity, row.step, getattr(row, other)) == place]
        return rows if len({getattr(row, axis) for row in rows}) > 1 else []

    @cached_property
    def slopes(self) -> tuple[Slope, ...]:
        """Slopes of every quantity over both axes: at step 0 of its size, then of its change."""
        names = dict.fromkeys((row.quantity, row.kind) for row in self.sizes)
        return tuple(
            _slope(points, axis)
            for name, _ in sorted(names, key=lambda pair: KINDS.index(pair[1]))
            for axis, step in product(
                get_args(Axis), range(1 + max(row.step for row in self.sizes))
            )
            if (axis != "head" or not step) and (points := self.points(name, axis, step))
        )

    @cached_property
    def findings(self) -> Findings:
        """Values that are not finite; then changes that depend on width or depth, and sizes that
        grow, causes first.

        Empty where every slope is one that μP allows over the width, and CompleteP over the
        depth."""
        rows = sorted(self.sizes, key=lambda row: (row.step, row.width, row.depth), reverse=True)
        lost = {row.quantity: row for row in rows if not math.isfinite(row.size + row.change)}
        findings = [
            Finding(
                "bad",
                text(
                    "coordinates",
                    "not_finite",
                    name=name,
                    width=row.width,
                    depth=row.depth,
                    step=row.step,
                ),
                "",
                text("coordinates", "smaller"),
            )
            for name, row in lost.items()
        ]
        off = [
            row
            for row in self.slopes
            if row.step in (0, rows[0].step)
            and row.deviation > GRID / 2
            and not row.deviation - GRID / 2 < 2 * row.error
        ]
        grown = {(row.axis, row.kind) for row in off if row.slope > 0}
        for row in sorted(
            off,
            key=lambda row: (row.axis == "depth", row.kind != CAUSES.get(row.axis), not row.step),
        ):
            cause = CAUSES.get(row.axis, "")
            follows = (row.axis, cause) in grown and KINDS.index(row.kind) > 1 and row.kind != cause
            sizes = [
                getattr(size, row.axis) for size in self.points(row.quantity, row.axis, row.step)
            ]
            findings.append(_finding(row, cause if follows else "", min(sizes), max(sizes)))
        return Findings(findings)

    def plot(self, axis: Axis = "width") -> go.Figure:
        """The changes after the last step over widths or depths, each relative to that at the
        smallest size."""
        return draw(self, axis)

    def __str__(self) -> str:
        return str(self.findings) or text("coordinates", "none")

    def _repr_html_(self) -> str:
        last = max(row.step for row in self.sizes)
        header = ("Change of", "over", "slope", "±", "standard", "NTK", "μP", "CompleteP")
        rows = [
            (
                row.quantity,
                row.axis,
                row.slope,
                row.error,
                *("" if x is None else x for x in row.asked.values()),
            )
            for row in self.slopes
            if row.step == last
        ]
        return (
            table(text("coordinates", "caption", step=last), header, rows)
            + self.findings._repr_html_()
        )


def _slope(rows: Sequence[Size], axis: Axis) -> Slope:
    """The slope of one quantity at one step, over widths or depths.

    Of some quantities two readings are right, and the one that is nearer to what is asked counts.
    At step 0: a size alone, or times the factor after it, for queries may be multiplied by a part
    of the divisor of their logits. Later: a matrix's change, or its change relative to its start.
    """
    first = rows[0]
    at_start = not first.step
    asked: dict[str, float | None] = {}
    if not at_start or axis == "head":
        asked = dict(zip(PARAMETRIZATIONS, STEPPED[axis, first.kind], strict=False))
    if at_start:
        sizes = np.array([row.size for row in rows])
        factors = np.array([row.factor for row in rows])
        readings = [sizes, sizes * factors]
        if np.isnan(factors).any():
            readings = [factors]  # no size is known, and the slope is nan
    else:
        changes = np.array([row.change for row in rows])
        starts = np.array([row.start for row in rows])
        readings = [changes]
        if first.kind == "matrix" and starts.all():
            readings.append(changes / starts)
    across = [getattr(row, axis) for row in rows]
    slopes = [
        Slope(first.quantity, first.kind, axis, first.step, *fitted(across, values), asked)
        for values in readings
    ]
    return min(slopes, key=lambda slope: slope.deviation)


def fitted(x: Sequence[float], y: Array) -> tuple[float, float]:
    """Slope of ln y over ln x by least squares, and its standard error: nan of two points, both
    nan where a logarithm is not finite."""
    with np.errstate(all="ignore"):
        across, up = np.log(x), np.log(y)
    if not np.isfinite(up).all():
        return math.nan, math.nan
    fit = linregress(across, up)
    return float(fit.slope), float(fit.stderr) if len(x) > 2 else math.nan


def _finding(slope: Slope, cause: str, least: int, most: int) -> Finding:
    """A finding on a slope that is not right.

    Args:
        slope: the slope.
        cause: kind of the quantity from whose growth it may follow; empty without one.
        least, most: the sizes that were compared.
    """
    axis, kind, step, name = slope.axis, slope.kind, slope.step, slope.quantity
    grows = slope.slope > 0 or axis == "head"
    hidden = axis == "width" and kind in HIDDEN
    if axis == "head":
        key = "head"
    elif step:
        key = "grows" if grows else "shrinks"
    else:
        key = "start" if grows else "starts_smaller"
    meaning = text("coordinates", key, name=name, axis=axis, slope=slope.slope, error=slope.error)
    evidence = text(
        "coordinates",
        "evidence" if step else "at_start_width" if hidden else "at_start",
        step=step,
        axis="head width" if axis == "head" else axis,
        least=least,
        most=most,
    )
    if cause:
        remedy = text("follows", cause)
    elif axis == "depth":
        remedy = text("depth", "grows" if grows else "shrinks")
    elif hidden and not step:
        remedy = text("drawn", kind, name=name)
    else:
        remedy = text("width_grows" if grows else "width_shrinks", kind, name=name)
    return Finding("bad" if grows else "warning", meaning, evidence, remedy)
