"""`coord_check`: how a model's activations, and their changes in the first steps of training, grow with width and depth."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from explorer.config import Config
from explorer.diagnosis import Finding, Findings
from explorer.display import Copied, draw, must_be, shown, table
from explorer.model.batch import Batch as Codes
from explorer.own import text
from explorer.own.attention import logits, visible
from explorer.own.hooks import recomputing
from explorer.own.model import Batch, Block, Loss, called, find_stacks, is_compiled, loss_of, output_of, unwrapped
from explorer.own.nodes import FUSED, MATRIX, SOFTMAX, first_floating, named_arguments, tensors_in
from explorer.own.probe import run_eagerly
from explorer.own.sums import HALF, wide_on
from explorer.own.window import plain
from explorer.training.optimize import optimizers
from explorer.training.recipe import Recipe
from explorer.training.runner import build
from explorer.training.tasks import Task, of_prose

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Axis = Literal["width", "depth", "head"]
Statistic = Literal["rms", "mean_abs"]
Factory = Callable[[int, int], Any]
Optimize = Callable[[nn.Module], Optimizer | Sequence[Optimizer]]

ORDERS: Mapping[Statistic, int] = MappingProxyType({"rms": 2, "mean_abs": 1})
"""Power of |x| that a statistic averages; the RMS is the root of the mean square."""
POOLED: Mapping[str, str] = MappingProxyType({
    "input of the layers": "embedding", "attention logits": "attention", "stream after the last layer": "stream",
    "readout": "readout", "biases": "bias", "gains": "bias",
})
"""Quantities that have one name in every model, and their kinds; others are matrices and embeddings by their names."""
KINDS = ("embedding", "bias", "matrix", "attention", "stream", "readout")
"""In the order of findings: a cause before what follows from it."""


class Asked(NamedTuple):
    """Powers of width or depth in the change of a quantity; None where it depends on more than the parametrization."""

    standard: float | None
    ntk: float | None
    mup: float | None
    completep: float | None


STEPPED: Mapping[tuple[Axis, str], Asked] = MappingProxyType({
    ("width", "embedding"): Asked(0, 0, 0, 0),
    ("width", "bias"): Asked(0, 0, 0, 0),
    ("width", "matrix"): Asked(1, 1, 0, 0),
    ("width", "attention"): Asked(None, None, 0, 0),
    ("width", "stream"): Asked(None, None, 0, 0),
    ("width", "readout"): Asked(1, 0.5, 0, 0),
    ("head", "attention"): Asked(0, 0, -0.5, -0.5),
    ("depth", "bias"): Asked(0, 0, 0, 0),
    **{("depth", kind): Asked(None, None, None, 0) for kind in ("embedding", "matrix", "attention", "stream",
                                                                "readout")},
})
"""Powers under Adam. μP: the changes of all activations are Θ(1) in the width (Yang et al. 2022, table 3 and appendix
D.1); CompleteP adds the depth (Dey et al. 2025, stable initialization and maximal update of the residual stream).

The others follow from one step of a parameter, its input Θ(1): each entry moves by η, along the input, so a product of
fan_in = width moves by η · width, one with a row of a table or a bias by η. NTK's factor 1/√width comes after the product:
the readout moves by η √width, a layer's matrix is read before the factor. What else depends on norms and heads is None.
Over the head's width: logits at initialization, where q and k are independent, under the divisor √d and under μP's d.
"""
GRID = 0.5
"""Powers of a parametrization are multiples of it: a slope nearer to another multiple than to the one asked is a finding.

A step moves a product along some inputs and at random along others: the aligned part is Θ(1), the other falls as
width^−½, or as depth^−½ over a sum of layers. The other prevails where tokens outnumber coordinates (compare Everett et
al. 2024, arXiv 2407.05872), so that down to −½ nothing is wrong. Embeddings, biases and gains move without a product.
"""


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
    """Of the quantity itself, over all of its entries, in all layers."""
    change: float
    """Of its difference from step 0, where it is 0."""
    head: int = 0
    """Of attention logits, the width of a head."""


class Slope(NamedTuple):
    """Power of a width or depth with which a quantity grows: a least-squares fit to logarithms, over sizes and seeds."""

    quantity: str
    kind: str
    axis: Axis
    step: int
    """Step 0: of the size at initialization; else of the change since."""
    slope: float
    """nan where a value is 0 or not finite, or there are not two sizes."""
    error: float
    """Standard error from the residuals; nan of two points."""
    asked: Asked | None
    """Under the parametrizations; None at initialization, but for logits over the head's width."""


# What passes the operations of a model, and its difference from what passed them before the first step.


GATHERED = {"embedding", "index", "index_select"}
COPIES = {"_to_copy", "clone"}
"""Operations whose result is still the parameter, such as autocast's."""


class Sizes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sums over what a model computes, by quantity, while it is entered.

    Args:
        model: whose.
        blocks: names of its layers, as for `probe`.
        statistic: the mean that is taken.
    """

    def __init__(self, model: nn.Module, blocks: str | Sequence[str] | None, statistic: Statistic) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.model, self.power = model, ORDERS[statistic]
        try:
            stacks = find_stacks(model, blocks)
        except ValueError:
            if blocks is not None:
                raise
            stacks = []  # without layers every matrix has its own name
        self.layers: list[Block] = stacks[0] if stacks else []
        self.names = {weight: (name, False) for name, weight in model.named_parameters()}
        self.names |= {weight: (name, True) for stack in stacks for block in stack
                       for name, weight in block.module.named_parameters()}
        self.first: dict[tuple[str, int], Tensor] = {}
        self.kinds: dict[str, str] = dict(POOLED)
        self.uneven: set[str] = set()
        """Quantities whose shapes changed from step to step."""

    def read(self, step: int, batch: Batch) -> Any:
        """Runs the model, and takes its quantities; returns its output."""
        self.step, self.passed, self.last, self.head, self.inner = step, False, "", 0, 0
        self.calls: Counter[str] = Counter()
        self.sums: defaultdict[str, list[tuple[int, Tensor, Tensor]]] = defaultdict(list)
        self.owners = {address(weight): weight for weight in self.names if weight.ndim > 1}
        self.copies: list[Tensor] = []
        for weight, (name, inner) in self.names.items():
            if weight.ndim < 2 and weight.requires_grad and (inner or not self.layers):
                last = name.split(".")[-1]
                self.take("biases" if "bias" in last or last.startswith("b_") else "gains", weight)
        with ExitStack() as hooks:
            if self.layers:
                hooks.callback(self.layers[0].module.register_forward_pre_hook(self.enter, with_kwargs=True).remove)
                hooks.callback(self.layers[-1].module.register_forward_hook(self.leave).remove)
            with self:
                output = called(self.model, batch)
        if not self.layers:
            self.sums.pop(self.last, None)  # the readout, before what multiplies it
        if (readout := output_of(output)) is not None:
            self.take("readout", readout)
        return output

    def enter(self, _: nn.Module, args: Any, kwargs: Any) -> None:
        """Before the first layer."""
        if not recomputing() and (x := first_floating(args, kwargs)) is not None:
            self.take("input of the layers", x)

    def leave(self, _: nn.Module, __: Any, out: Any) -> None:
        """After the last layer."""
        if not recomputing() and (x := first_floating(out)) is not None:
            self.take("stream after the last layer", x)
            self.passed = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operation, and takes what it gives if it is one of attention, or applies a matrix."""
        kwargs = kwargs or {}
        out, op = func(*args, **kwargs), func.overloadpacket.__name__
        if op in FUSED | SOFTMAX:
            named = named_arguments(func, args, kwargs)
            for scores, _ in logits(named):
                self.head = named["query"].shape[-1] if "query" in named else self.inner
                keys = visible(scores)
                self.take("attention logits", scores.masked_fill(~keys, 0), int(keys.sum()))
        elif op in MATRIX | GATHERED | COPIES and isinstance(out, Tensor):
            places = [address(tensor) for tensor in tensors_in((args, kwargs))]
            weight = next((self.owners[place] for place in places if place in self.owners), None)
            if weight is not None and op in COPIES:
                self.owners[address(out)] = weight
                self.copies.append(out)  # or its memory would be another's
            elif weight is not None and address(out) not in self.owners:
                self.apply(weight, op in GATHERED, out)
            elif op in MATRIX:
                self.inner = args[0].shape[-1]  # of queries and keys, where a softmax follows
        return out

    def apply(self, weight: Tensor, gathered: bool, out: Tensor) -> None:
        """Takes the output of a matrix; one after the layers is the readout's, before what multiplies it."""
        name, inner = self.names[weight]
        if self.passed and not inner:
            return
        quantity = plain(name).removesuffix(".weight")
        quantity = f"{quantity} (rows)" if gathered and self.kinds.get(quantity) == "matrix" else quantity
        self.kinds[quantity] = "matrix" if inner or not (gathered or self.layers) else "embedding"
        self.last = quantity
        self.take(quantity, out)

    @torch.no_grad()
    def take(self, quantity: str, x: Tensor, count: int | None = None) -> None:
        """Adds a tensor; `count` is how many of its entries are no zeros of a mask."""
        x = x.detach().float() if x.dtype in HALF else x.detach()
        place = quantity, self.calls[quantity]
        self.calls[quantity] += 1
        if self.step == 0:
            self.first[place] = x.clone()
        first = self.first.get(place)
        if first is None or first.shape != x.shape:
            self.uneven.add(quantity)
            return
        parts = (torch.linalg.vector_norm(part, self.power, dtype=wide_on(x.device)) for part in (x, x - first))
        size, change = (norm**self.power for norm in parts)
        self.sums[quantity].append((x.numel() if count is None else count, size, change))

    def sizes(self, width: int, depth: int, seed: int) -> Iterator[Size]:
        """The quantities of the pass."""
        for quantity, sums in self.sums.items():
            total = max(1, sum(count for count, _, _ in sums))
            size, change = (float(sum(parts)) / total for parts in zip(*[sizes[1:] for sizes in sums], strict=True))
            values = (value ** (1 / self.power) for value in (size, change))
            kind = self.kinds[quantity]
            yield Size(quantity, kind, width, depth, seed, self.step, *values, self.head if kind == "attention" else 0)


def address(tensor: Tensor) -> int:
    """Where a tensor's numbers, or those that it is a view of, begin in memory."""
    return tensor.untyped_storage().data_ptr()


# The runs.


def coord_check(factory: Factory | Config, *, widths: Sequence[int] = (64, 128, 256, 512), depths: Sequence[int] = (2,),
                steps: int = 3, optimizer: Optimize | Recipe | None = None, seeds: int = 2, loss: Loss | None = None,
                blocks: str | Sequence[str] | None = None, statistic: Statistic = "rms") -> CoordCheck:
    """Checks how activations, and their changes in the first steps on one batch, grow with width and depth.

    The coordinate check of Yang et al. 2022, appendix D.1, and the same over depth (Bordelon et al. 2023; Dey et al.
    2025). Under μP the changes do not depend on the width, under CompleteP on the depth either; a slope that is nearer to
    another multiple of ½ is a finding, with the change that is asked for. Every width runs at the first depth, every
    depth at the first width.

    Read are: the input of the layers, the output of each matrix and table of embeddings, as the operation gives it, before
    biases and factors; attention logits, where a fused kernel or a softmax `[batch, head, query, key]` is called; the
    stream after the last layer; biases and gains themselves; the model's first output with a gradient. Parts of one name
    in all layers are one quantity. Dropout draws alike at each step.

    Args:
        factory: from a width and a depth to (model, batch) or (model, batch, loss), or to a `Config`. The batch is what
            `probe` takes, and must not depend on the model; the model is drawn after `torch.manual_seed`. A `Config` has
            its d_model and n_layers replaced and its n_heads kept, so that heads grow with the width, and reads text.
        widths: two or more, increasing.
        depths: one or more, increasing; two or more for slopes over depth.
        steps: of the optimizer, at least 1.
        optimizer: from the model to its optimizer, or several; by default torch's Adam at 0.001. For a `Config` a
            `Recipe`, whose optimizer has the parametrization's rates; its schedule and clipping are left out.
        seeds: draws of each model.
        loss: as for `probe`; the projection is then divided by the output's size.
        blocks: names of the layers, as for `probe`.
        statistic: "rms", or "mean_abs" as microsoft/mup's `get_coord_data` has it.
    Raises:
        TypeError, ValueError: an argument, or what the factory returns, will not do; says which, and why.
    """
    _check(factory, optimizer, {"widths": (widths, 2), "depths": (depths, 1)}, {"steps": steps, "seeds": seeds})
    if statistic not in ORDERS:
        raise ValueError(f"statistic must be one of {', '.join(ORDERS)}; got {shown(statistic)}")
    runs = dict.fromkeys([*((width, depths[0]) for width in widths), *((widths[0], depth) for depth in depths)])
    sizes_of_all, uneven = list[Size](), set[str]()
    for width, depth in runs:
        for seed in range(seeds):
            with torch.random.fork_rng(), ExitStack() as stack:
                torch.manual_seed(seed)
                model, batch, its_loss, stepper = _made(factory, width, depth, seed, optimizer)
                run_eagerly(stack, is_compiled(model))
                sizes = Sizes(model, blocks, statistic)
                sizes_of_all += _trained(sizes, (width, depth, seed), batch, its_loss or loss, stepper, steps)
                uneven |= sizes.uneven
    rows = tuple(row for row in sizes_of_all if row.quantity not in uneven)
    slopes = tuple(_slopes(rows, widths[0], depths[0], steps))
    return CoordCheck(rows, slopes, Findings(_findings(rows, slopes, steps)), tuple(sorted(uneven)), statistic)


def _check(factory: object, optimizer: object, sizes: Mapping[str, tuple[object, int]],
           counts: Mapping[str, object]) -> None:
    """Raises TypeError or ValueError if an argument will not do."""
    if not callable(factory) and not isinstance(factory, Config):
        must_be(Config, "factory", factory)
    if optimizer is not None and not callable(optimizer):
        must_be(Recipe, "optimizer", optimizer)
    for name, (values, least) in sizes.items():
        given = list(values) if isinstance(values, Sequence) and not isinstance(values, str) else []
        whole = all(isinstance(value, int) and not isinstance(value, bool) and value > 0 for value in given)
        if len(given) < least or not whole or sorted(set(given)) != given:
            least_words = "at least two" if least == 2 else "one or more"
            raise ValueError(f"{name} must be {least_words} increasing whole numbers from 1 on; got {shown(values)}")
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be a whole number from 1 on; got {shown(value)}")


def _made(factory: Factory | Config, width: int, depth: int, seed: int, optimizer: Optimize | Recipe | None
          ) -> tuple[nn.Module, Batch, Loss | None, list[Optimizer]]:
    """Model, batch, loss and optimizers of a run."""
    made = factory.replace(d_model=width, n_layers=depth) if isinstance(factory, Config) else factory(width, depth)
    config = made if isinstance(made, Config) else None
    if config is not None:
        made = _of_config(config.replace(seed=seed))
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[0], nn.Module):
        raise TypeError("factory must return (model, batch), (model, batch, loss) or a Config; it returned "
                        f"{shown(made)} of type {type(made).__name__}")
    model = unwrapped(made[0])
    if isinstance(optimizer, Recipe) and config is None:
        raise TypeError("optimizer must be a function of the model where the model is no Config's; got a Recipe")
    if config is not None and not callable(optimizer):
        return model, made[1], None, optimizers(model, Task().fit(config), optimizer or Recipe())
    given = optimizer(model) if callable(optimizer) else torch.optim.Adam(model.parameters(), lr=1e-3)
    steppers = [given] if isinstance(given, Optimizer) else list(given)
    return model, made[1], made[2] if len(made) == 3 else None, [
        must_be(Optimizer, "what optimizer returns", stepper) for stepper in steppers]


def _of_config(config: Config) -> tuple[nn.Module, Callable[[nn.Module], Any]]:
    """The model of a config, and what runs it on the first batch of the race's text."""
    task = Task()
    config = task.fit(config)
    data = of_prose(task, config.n_ctx, config.batch_size)
    window, model = data.batch(0), build(config, data)
    batch = Codes(torch.from_numpy(window.inputs), torch.from_numpy(window.targets))

    def run(_: nn.Module) -> SimpleNamespace:
        output = model(model.embed(batch))
        return SimpleNamespace(loss=model.loss(output, batch), logits=model.logits(output))

    return model, run


def _trained(sizes: Sizes, run: tuple[int, int, int], batch: Batch, loss: Loss | None, steppers: list[Optimizer],
             steps: int) -> Iterator[Size]:
    """Sizes of a run at each step; what is not finite goes on as such."""
    for step in range(steps + 1):
        torch.manual_seed(run[2])
        output = sizes.read(step, batch)
        yield from sizes.sizes(*run)
        if step == steps:
            return
        value, scale = loss_of(output, loss)
        for stepper in steppers:
            stepper.zero_grad()
        (value / scale**2).backward()  # type: ignore[no-untyped-call]  # of a projection, the mean over the output
        for stepper in steppers:
            stepper.step()


# Slopes, and what they say.


def _slopes(rows: Sequence[Size], width: int, depth: int, steps: int) -> Iterator[Slope]:
    """Slopes of every quantity over both axes: at step 0 of its size, then of its change."""
    for quantity, kind in sorted(dict.fromkeys((row.quantity, row.kind) for row in rows), key=lambda pair: KINDS.index(pair[1])):
        for axis, step in product(get_args(Axis), range(steps + 1)):
            runs = [row for row in rows if (row.quantity, row.step) == (quantity, step)
                    and (row.width == width if axis == "depth" else row.depth == depth)]
            if len({getattr(row, axis) for row in runs}) > 1 and not (axis == "head" and (step or not runs[0].head)):
                points = [(getattr(row, axis), row.change if step else row.size) for row in runs]
                yield Slope(quantity, kind, axis, step, *fitted(points),
                            STEPPED[axis, kind] if step or axis == "head" else None)


def fitted(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Slope of log y over log x by least squares, and its standard error; see `Slope`."""
    with np.errstate(all="ignore"):
        x, y = np.log(np.array(points, dtype=np.float64)).T
        if not np.isfinite(y).all():
            return math.nan, math.nan
        x, y = x - x.mean(), y - y.mean()
        slope = float(x @ y / (x @ x))
        rest = y - slope * x
        free = len(x) - 2
        return slope, math.sqrt(float(rest @ rest) / free / float(x @ x)) if free else math.nan


def _findings(rows: Sequence[Size], slopes: Sequence[Slope], steps: int) -> Iterator[Finding]:
    """What is not finite; then, cause before consequence, changes that depend on width or depth, and sizes that grow."""
    lost: dict[str, Size] = {}
    for row in sorted(rows, key=lambda row: row.step):
        if not (math.isfinite(row.size) and math.isfinite(row.change)):
            lost.setdefault(row.quantity, row)
    for row in lost.values():
        yield Finding("bad", text("coordinates", "not_finite", name=row.quantity, width=row.width, depth=row.depth,
                                  step=row.step), "", text("coordinates", "smaller"))
    off = [slope for slope in slopes if slope.step == steps and _is_off(slope)]
    if any(slope.kind == "embedding" and slope.quantity not in POOLED for slope in off):
        off = [slope for slope in off if slope.quantity != "input of the layers"]
    explained = {(slope.quantity, slope.axis) for slope in off}
    off += [slope for slope in slopes if slope.step == 0 and _is_off(slope)
            and (slope.quantity, "width" if slope.axis == "head" else slope.axis) not in explained]
    causes = {"width": "matrix", "depth": "stream"}
    grown = {(slope.axis, slope.kind) for slope in off if slope.slope > 0}
    for slope in sorted(off, key=lambda slope: (slope.axis == "depth", slope.kind != causes.get(slope.axis))):
        cause = causes.get(slope.axis, "")
        follows = (slope.axis, cause) in grown and slope.kind in ("matrix", "attention", "stream", "readout")
        yield _finding(slope, cause if follows and slope.kind != cause else "",
                       sorted({getattr(row, slope.axis) for row in rows if row.quantity == slope.quantity}))


def _is_off(slope: Slope) -> bool:
    """Whether a slope is nearer to another multiple of ½ than to those that are right, by two standard errors."""
    highest = -GRID if slope.axis == "head" else 0.0
    lowest = -math.inf if not slope.step else 0.0 if slope.kind in ("embedding", "bias") else -GRID
    deviation = max(slope.slope - highest, lowest - slope.slope)
    return deviation > GRID / 2 and not deviation < 2 * slope.error


def _finding(slope: Slope, cause: str, sizes: Sequence[int]) -> Finding:
    """A slope that is not the one asked for, in words; `cause` is the kind of a quantity that it may follow from."""
    grows = slope.slope > 0 or slope.axis == "head"
    error = f"{slope.error:.2f}" if math.isfinite(slope.error) else text("coordinates", "unknown")
    key = "head" if slope.axis == "head" else "start" if not slope.step else "grows" if grows else "shrinks"
    meaning = text("coordinates", key, name=slope.quantity, axis=slope.axis, slope=slope.slope, error=error)
    evidence = text("coordinates", "evidence" if slope.step else "at_start", step=slope.step, axis=slope.axis,
                    least=sizes[0], most=sizes[-1])
    if cause:
        remedy = text("follows", cause)
    elif slope.axis == "depth":
        remedy = text("depth", "grows" if grows else "shrinks")
    else:
        remedy = text("width_grows" if grows else "width_shrinks", slope.kind, name=slope.quantity)
    return Finding("bad" if grows else "warning", meaning, evidence, remedy)


@dataclass(frozen=True)
class CoordCheck(Copied):
    """Sizes and changes over widths and depths, their slopes, and the findings; made by `coord_check`."""

    sizes: tuple[Size, ...]
    slopes: tuple[Slope, ...]
    findings: Findings
    """Empty where every change is as μP asks over the width, and as CompleteP asks over the depth."""
    left_out: tuple[str, ...] = ()
    """Quantities that have another shape at each step, such as what a router sends to an expert."""
    statistic: Statistic = "rms"

    def frame(self) -> pd.DataFrame:
        """Tidy: a quantity in one run at one step a row; columns as in `Size`."""
        import pandas as pd

        return pd.DataFrame(self.sizes, columns=Size._fields)

    def slope(self, quantity: str, axis: Axis = "width", step: int = -1) -> Slope:
        """The slope of a quantity over an axis at a step, by default the last one.

        Raises:
            KeyError: there is none.
        """
        step = max(row.step for row in self.slopes) if step < 0 else step
        for row in self.slopes:
            if (row.quantity, row.axis, row.step) == (quantity, axis, step):
                return row
        raise KeyError(f"{quantity} over {axis} at step {step}")

    def plot(self, axis: Axis = "width") -> go.Figure:
        """The changes after the last step over widths or depths, and the slope that is asked for."""
        figure: go.Figure = draw(self, axis)
        return figure

    def __str__(self) -> str:
        return str(self.findings) or text("coordinates", "none")

    def _repr_html_(self) -> str:
        last = max((row.step for row in self.slopes), default=0)
        header = ("Change of", "over", "slope", "±", "standard", "NTK", "μP", "CompleteP")
        rows = [(row.quantity, row.axis, row.slope, row.error, *("" if power is None else power for power in row.asked))
                for row in self.slopes if row.step == last and row.asked is not None]
        return table(text("coordinates", "caption", step=last), header, rows) + self.findings._repr_html_()
