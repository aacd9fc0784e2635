"""How large a step a start allows: what an untrained model shows, beside the rates that its
training stands.

    python -m benchmarks.steplimit          # goes on with the table until it is whole
    python -m benchmarks.steplimit --score  # the tables of docs/training.md

A row is a named design of a depth and a width, trained by Adam for `STEPS` steps at each of
`RATES`, on the text, the other sizes and the batches of `benchmarks.table`, its learning rate
constant or with warm-up. Two limits are read from these trainings, both by interpolation over ln η
between two rates:

- `falls`: the largest rate below which the held-out loss after the last step is lower than before
  the first.
- `near_best`: the largest rate whose loss is within `NEAR` nats of the best rate's.

What could predict them is read from the untrained model, on the race's first batch. With g the
gradient, H the Hessian and d the change of all parameters by Adam's first step at the rate 1 (the
sign of -g, times the parametrization's factors), the candidates are, each as a rate:

- `sharpness`: 2 / λ(H), λ the largest eigenvalue: gradient descent oscillates beyond it (Cohen et
  al. 2021, arXiv 2103.00065).
- `adam_sharpness`: 2 / λ(P^-1/2 H P^-1/2), P the root mean square of g over `BATCHES` batches in
  place of Adam's √v. Adam's own limit is (1 + β₁) / (1 - β₁) times this (Cohen et al. 2022, arXiv
  2207.14484), which changes no rank.
- `first_step`: -2 g·d / d·H d, where the first step stops descending, to second order; infinite
  where the loss is concave along d.
- `critical`: the same without the expansion: the smallest rate at which the first step raises the
  loss of its own batch (Kalra et al. 2026, arXiv 2601.16979; the rate after which a warm-up may
  start in Kalra & Barkeshli 2024, arXiv 2406.09405).
- `five_steps`: the largest rate below which `FEW` steps of the race lower the held-out loss: the
  measured limit, after a tenth of the training."""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

from benchmarks.table import SIZES, text
from explorer import Config
from explorer.config import preset
from explorer.model import Transformer
from explorer.model.batch import Batch
from explorer.schemes.preset import PRESETS
from explorer_race.optimize import optimizers
from explorer_race.race import Contender
from explorer_race.recipe import Recipe
from explorer_race.runner import Runner
from explorer_race.tasks import Data, Window

TABLE = Path(__file__).with_name("steplimit.csv")
STEPS, FEW, WARMUP = 50, 5, 25
RATES = tuple(2.0**power for power in range(-10, 2))
CRITICAL_RATES = tuple(2.0**power for power in range(-16, 4))
"""Rates of a single step, which costs one pass each."""
NEAR = 0.1
"""Nats a character above the loss of the best rate."""
BATCHES = 8
KRYLOV = 16
"""Products with the Hessian in an eigenvalue. The largest one is then right to a few per cent."""
SHALLOW, DEEP, WIDE = 6, 12, 64
"""Layers, and a width."""
SOME = (
    "post_ln",
    "pre_ln",
    "gpt2",
    "bert",
    "albert",
    "admin",
    "mix_ln",
    "deepnorm",
    "rezero",
    "fixup",
    "plain_stack",
    "gemma2",
    "llama3",
    "ngpt",
    "t5",
    "realformer",
)
"""Designs of the groups that have not every one."""
GROUPS = {
    f"{SHALLOW} layers": (SHALLOW, 32, 1, 0),
    "another seed": (SHALLOW, 32, 1, 1),
    f"warm-up of {WARMUP} steps": (SHALLOW, 32, WARMUP, 0),
    f"{DEEP} layers": (DEEP, 32, 1, 0),
    f"width {WIDE}": (SHALLOW, WIDE, 1, 0),
}
"""Layers, width, steps of warm-up and seed of the designs that are ranked together."""
KEY = ("design", "n_layers", "d_model", "warmup", "seed")
LIMITS = ("falls", "near_best")
CANDIDATES = ("sharpness", "adam_sharpness", "first_step", "critical", "five_steps")
COLUMNS = (*KEY, *LIMITS, *CANDIDATES)
Vector = list[Tensor]
"""A number for each number of the model's parameters, in their shapes."""


class Case(NamedTuple):
    """A design of a depth and a width, with or without warm-up."""

    design: str
    n_layers: int
    d_model: int
    warmup: int
    """Steps; 1 is none."""
    seed: int

    @property
    def data(self) -> Data:
        """The text of its seed."""
        return text(self.seed)

    @property
    def config(self) -> Config:
        """The design, ready for the task."""
        sizes = {**SIZES, "n_layers": self.n_layers, "d_model": self.d_model}
        return self.data.task.fit(preset(self.design, seed=self.seed, **sizes))


def cases() -> Iterator[Case]:
    """Every row of the table."""
    for number, group in enumerate(GROUPS.values()):
        designs = PRESETS if number < 2 else SOME
        for design in designs:
            yield Case(design, *group)


class Losses(NamedTuple):
    """Held-out losses of one training, infinite from the step on that could not be made."""

    before: float
    after_few: float
    after_all: float


def train(case: Case, rate: float) -> Losses:
    """Trains a design at one rate."""
    recipe = Recipe(learning_rate=rate, warmup=case.warmup)
    contender = Contender(case.design, case.config, recipe)
    runner = Runner(contender, case.data, STEPS, torch.device("cpu"))
    losses = [runner.held_out_loss()]
    for last in (FEW, STEPS):
        while runner.step < last and not runner.retired:
            runner.advance(STEPS + 1)  # no instruments, but for the first step
        losses.append(math.inf if runner.retired else runner.held_out_loss())
    return Losses(*losses)


def crossing(rates: Sequence[float], excess: Sequence[float]) -> float:
    """The rate at which an excess first goes from negative to positive, by interpolation over ln η.

    Args:
        rates: from small to large.
        excess: of the losses over a bound. One that is not finite counts as positive.
    Returns:
        The last rate where the excess stays negative, half the first one where it never is.
    """
    positive = [not value < 0 for value in excess]
    if positive[0]:
        return rates[0] / 2
    if True not in positive:
        return rates[-1]
    after = positive.index(True)
    lower, upper = rates[after - 1], rates[after]
    share = 0.5
    if math.isfinite(excess[after]):
        share = excess[after - 1] / (excess[after - 1] - excess[after])
    return float(lower * (upper / lower) ** share)


def limits(losses: Sequence[Losses]) -> dict[str, float]:
    """The limits of a design from its trainings at `RATES`, with the candidate that trains."""
    last = [one.after_all for one in losses]
    best = int(np.nanargmin(last))
    return {
        "falls": crossing(RATES, [one.after_all - one.before for one in losses]),
        "near_best": crossing(RATES[best:], [loss - last[best] - NEAR for loss in last[best:]]),
        "five_steps": crossing(RATES, [one.after_few - one.before for one in losses]),
    }


class Start:
    """An untrained model, with the first and second derivatives of its loss on the race's first
    batch.

    Args:
        config: a design that is ready for the task.
        data: the task's text.
    """

    def __init__(self, config: Config, data: Data) -> None:
        self.model = Transformer(config, config.seed, vocabulary=data.vocabulary)
        self.batches = [tensors(data.batch(step)) for step in range(BATCHES)]
        self.parameters = list(self.model.parameters())
        loss = self.loss(self.batches[0])
        self.graph = torch.autograd.grad(loss, self.parameters, create_graph=True)
        self.first_loss = loss.item()
        self.gradient = [part.detach() for part in self.graph]
        settings: dict[nn.Parameter, tuple[float, float]] = {}
        for optimizer in optimizers(self.model, config, Recipe(learning_rate=1.0)):
            for group in optimizer.param_groups:
                settings.update(dict.fromkeys(group["params"], (group["lr"], group["eps"])))
        self.settings = [settings[parameter] for parameter in self.parameters]
        """Adam's rate and ε of each parameter."""

    def loss(self, batch: Batch) -> Tensor:
        """The loss of a batch."""
        return self.model.loss(self.model(self.model.embed(batch)), batch)

    def hessian_times(self, vector: Vector) -> Vector:
        """The product of the Hessian with a vector."""
        parts = torch.autograd.grad(
            self.graph, self.parameters, vector, retain_graph=True, materialize_grads=True
        )
        return [part.detach() for part in parts]

    def adam_step(self) -> Vector:
        """The change of the parameters by Adam's first step, at the rate 1."""
        return [
            -part / (part.abs() + epsilon) * rate
            for part, (rate, epsilon) in zip(self.gradient, self.settings, strict=True)
        ]

    def adam_scale(self) -> Vector:
        """P^-1/2: one over the root of Adam's divisor, here the root mean square of the
        gradients."""
        squares = [torch.zeros_like(part) for part in self.gradient]
        for batch in self.batches:
            for square, part in zip(
                squares, torch.autograd.grad(self.loss(batch), self.parameters), strict=True
            ):
                square += part.square() / BATCHES
        return [
            ((square.sqrt() + epsilon) / rate).rsqrt()
            for square, (rate, epsilon) in zip(squares, self.settings, strict=True)
        ]

    @torch.no_grad()
    def losses_along(self, step: Vector, rates: Iterable[float]) -> list[float]:
        """Losses of the first batch after a step times each rate."""
        before = [parameter.clone() for parameter in self.parameters]
        losses = []
        for rate in rates:
            for parameter, start, change in zip(self.parameters, before, step, strict=True):
                parameter.copy_(start + rate * change)
            losses.append(float(self.loss(self.batches[0])))
        for parameter, start in zip(self.parameters, before, strict=True):
            parameter.copy_(start)
        return losses


def tensors(window: Window) -> Batch:
    """A window as the model reads it."""
    return Batch(torch.from_numpy(window.inputs), torch.from_numpy(window.targets))


def dot(left: Vector, right: Vector) -> float:
    """The inner product of two vectors, in float64."""
    return sum(
        float((one.double() * other.double()).sum()) for one, other in zip(left, right, strict=True)
    )


def largest_eigenvalue(product: Callable[[Vector], Vector], shapes: Vector) -> float:
    """The largest eigenvalue of a symmetric operator, by Lanczos from a random vector, every new
    direction made orthogonal to all before it."""
    generator = torch.Generator().manual_seed(0)
    direction = [torch.randn(shape.shape, generator=generator) for shape in shapes]
    basis: list[Vector] = []
    projected = np.zeros((KRYLOV, KRYLOV))
    for step in range(KRYLOV):
        length = math.sqrt(dot(direction, direction))
        if not math.isfinite(length) or length == 0:
            break
        basis.append([part / length for part in direction])
        direction = product(basis[-1])
        for earlier, vector in enumerate(basis):
            share = dot(direction, vector)
            projected[earlier, step] = projected[step, earlier] = share
            direction = [
                part - share * other for part, other in zip(direction, vector, strict=True)
            ]
    size = len(basis)
    return float(np.linalg.eigvalsh(projected[:size, :size])[-1])


def candidates(case: Case) -> dict[str, float]:
    """The candidates that do not train, as rates."""
    start = Start(case.config, case.data)
    step, scale = start.adam_step(), start.adam_scale()

    def scaled(vector: Vector) -> Vector:
        """P^-1/2 times a vector."""
        return [part * factor for part, factor in zip(vector, scale, strict=True)]

    curvature = dot(step, start.hessian_times(step))
    first_step = -2 * dot(start.gradient, step) / curvature if curvature > 0 else math.inf
    of_adam = largest_eigenvalue(
        lambda vector: scaled(start.hessian_times(scaled(vector))), start.gradient
    )
    of_descent = largest_eigenvalue(start.hessian_times, start.gradient)
    # last: once the parameters have moved, there is no second derivative at the start
    excess = np.array(start.losses_along(step, CRITICAL_RATES)) - start.first_loss
    return {
        "sharpness": 2 / of_descent,
        "adam_sharpness": 2 / of_adam,
        "first_step": first_step,
        "critical": crossing(CRITICAL_RATES, excess.tolist()),
    }


def row(case: Case) -> dict[str, Any]:
    """A design's limits and candidates, as a row of the table."""
    measured = limits([train(case, rate) for rate in RATES])
    numbers = {**measured, **candidates(case)}
    return {**case._asdict(), **{name: f"{numbers[name]:.4g}" for name in (*LIMITS, *CANDIDATES)}}


def read(path: Path = TABLE) -> list[dict[str, str]]:
    """The table so far."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def fill() -> None:
    """Writes the rows that are missing, each when it is finished."""
    there = {tuple(one[name] for name in KEY) for one in read()}
    missing = [case for case in cases() if tuple(map(str, case)) not in there]
    torch.set_num_threads(1)
    with TABLE.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if not there:
            writer.writeheader()
        for index, case in enumerate(missing, start=1):
            writer.writerow(row(case))
            file.flush()
            print(f"\r{index} of {len(missing)} designs", end="", file=sys.stderr, flush=True)


def correlation(rows: Sequence[Mapping[str, str]], candidate: str, limit: str) -> float:
    """Spearman's rank correlation of a candidate with a limit."""
    guessed, measured = ([float(one[name]) for one in rows] for name in (candidate, limit))
    return float(spearmanr(guessed, measured).statistic)


def rows_of(group: tuple[int, ...]) -> list[dict[str, str]]:
    """The rows of a group, in the order of their designs."""
    ends = tuple(map(str, group))
    return sorted(
        (one for one in read() if tuple(one[name] for name in KEY[1:]) == ends),
        key=lambda one: one["design"],
    )


def between_seeds(limit: str) -> float:
    """The rank correlation of a limit with the same limit of another seed: no candidate can be
    expected to have more than its root."""
    first, other = list(GROUPS.values())[:2]
    these, those = ([float(one[limit]) for one in rows_of(group)] for group in (first, other))
    return float(spearmanr(these, those).statistic)


def report() -> Iterator[str]:
    """Lines of docs/training.md: the rank correlations, then the spread of the limits."""
    groups = {
        f"{title}, {len(those)} designs": those
        for title, group in GROUPS.items()
        if (those := rows_of(group))
    }
    for limit in LIMITS:
        yield f"| `{limit}` | {' | '.join(groups)} |"
        yield "|---|" + "---|" * len(groups)
        for name in CANDIDATES:
            numbers = (correlation(those, name, limit) for those in groups.values())
            yield f"| `{name}` | {' | '.join(f'{number:.2f}' for number in numbers)} |"
        spreads = (
            np.quantile([float(one[limit]) for one in those], (0, 0.5, 1))
            for those in groups.values()
        )
        cells = (" · ".join(f"{number:.2g}" for number in spread) for spread in spreads)
        yield f"| smallest · median · largest rate | {' | '.join(cells)} |\n"
    between = " and ".join(f"{between_seeds(limit):.2f} for `{limit}`" for limit in LIMITS)
    yield f"Between two seeds the limits themselves have a rank correlation of {between}."


def main() -> None:
    """Fills the table, and scores it."""
    parser = argparse.ArgumentParser(description="how large a step does a start allow?")
    parser.add_argument("--score", action="store_true", help="only the tables")
    if not parser.parse_args().score:
        fill()
    print("\n".join(report()))


if __name__ == "__main__":
    main()
