"""Numbers that a lesson quotes and does not compute, as they take too long: by the lesson's code,
in more draws.

    python -m benchmarks.quoted 01
        # loss of the course's model in 8 seeds, by the distribution of its weights
    python -m benchmarks.quoted 04
        # gap between LayerNorm and RMSNorm over theory's, in 8 seeds, by steps
    python -m benchmarks.quoted 09
        # second moment at the end of the course's model, before and after its 200 steps
    python -m benchmarks.quoted 11  # loss of the course's model without the sum of logits
    python -m benchmarks.quoted 12
        # what becomes of each rule for α, in 8 seeds; loss of the course's model by depth
    python -m benchmarks.quoted 13
        # excess of W_Q's gradient² over theory, in 48 draws, by width and mask; loss of the
        # course's model with and without gate and rotary positions

The definitions come from the notebook itself: those of its statements on which the wanted names
depend."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import nbformat
import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import silu

from benchmarks.lessons import LESSONS
from explorer import measure, predict
from explorer.lessons.ledger import LAST
from explorer.lessons.running import (
    Lesson9,
    Lesson10,
    Lesson11,
    Lesson12,
    Lesson13,
    Model,
    batch,
    train,
)


def definitions(number: str, *wanted: str) -> dict[str, Any]:
    """The namespace of a lesson in which some of its names are defined.

    Args:
        number: of the lesson, two digits.
        wanted: names of functions and variables.
    """
    path = next(lesson for lesson in LESSONS if lesson.name.startswith(number))
    cells = [
        cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"
    ]
    statements = ast.parse("\n".join(cells)).body
    kept = [statement for statement in statements if not isinstance(statement, ast.Expr | ast.For)]
    names, before = set(wanted), set[str]()
    while names != before:
        before = set(names)
        for statement in kept:
            if bound(statement) & names:
                names |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    space: dict[str, Any] = {}
    source = "\n".join(ast.unparse(statement) for statement in kept if bound(statement) & names)
    exec(source, space)  # noqa: S102 - the lesson's own code
    return space


def bound(statement: ast.stmt) -> set[str]:
    """The names that a statement gives a value."""
    match statement:
        case ast.FunctionDef() | ast.ClassDef():
            return {statement.name}
        case ast.Import() | ast.ImportFrom():
            return {(name.asname or name.name).partition(".")[0] for name in statement.names}
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def shown(values: Any) -> str:
    """Mean and standard error."""
    return f"{np.mean(values):.2f} ± {np.std(values, ddof=1) / len(values) ** 0.5:.2f}"


def distributions() -> None:
    """Lesson 1: loss of lesson 9's model, whose weights have one variance and three
    distributions."""
    torch.set_num_threads(1)
    heavy = torch.distributions.StudentT(torch.tensor(5.0))
    draws = {
        "normal": torch.randn,
        "cut at 2": lambda *shape: torch.nn.init.trunc_normal_(torch.empty(shape)) / 0.7737413**0.5,
        "Student t": lambda *shape: heavy.sample(shape) * (3 / 5) ** 0.5,
    }
    for name, draw in draws.items():

        class Drawn(Lesson9):
            """Lesson 9's model with weights of that distribution."""

            def weight(self, fan_in: int, *shape: int) -> Any:
                return draw(*shape) * fan_in**-0.5  # noqa: B023 - used at once

        losses = [np.mean(train(Drawn(seed))[-LAST:]) for seed in range(8)]
        print(f"{name:9}: loss {np.mean(losses):.3f} ± {np.std(losses, ddof=1) / 8**0.5:.3f}")


def norms() -> None:
    """Lesson 4: LayerNorm's loss minus RMSNorm's, over 1.5/n."""
    space = definitions("04", "train", "F")
    train, layer, rms = space["train"], space["F"].layer_norm, space["F"].rms_norm
    for embedded, steps in ((False, 250), (False, 300), (False, 400), (True, 250)):
        losses = [
            [train(norm, seed, embedded, steps) for seed in range(8)] for norm in (layer, rms)
        ]
        gaps = np.subtract(*losses) * 64 / 1.5
        print(
            f"embedded {embedded}, {steps} steps: {shown(gaps)}, largest size {np.abs(gaps).max():.2f}"
        )


def rules() -> None:
    """Lesson 12: in how many seeds each rule for α learns, and how it compares with the ramp to
    1."""
    space = definitions("12", "train", "RULES", "UNIGRAM")
    end, _ = space["train"](space["RULES"].values(), seeds=range(8))
    loss = dict(zip(space["RULES"], end[..., 0] if end.ndim > 2 else end, strict=True))
    for name, values in loss.items():
        print(
            f"{name:14}: {shown(values)}; learns in {(values < space['UNIGRAM'] - 0.1).sum()} of 8, "
            f"by 0.1 nats better than the ramp to 1 in {(values < loss['ramp to 1'] - 0.1).sum()}"
        )


def queries() -> None:
    """Lesson 13: gradient² by W_Q after the first layer, measured over theory."""
    block = definitions("13", "block")["block"].replace(activation="gelu")
    for width in (96, 192, 384):
        for causal in (True, False):
            config = block.replace(d_model=width, n_heads=width // 32, causal=causal)
            theory = predict(config)["parameter_gradient", "W_Q"][0, 1:]
            draws = [
                measure(config.replace(seed=seed))["parameter_gradient", "W_Q"][0, 1:]
                for seed in range(48)
            ]
            excess = [np.mean((draw / theory) ** 2) for draw in draws]
            print(f"width {width}, causal {causal}: {shown(excess)}")


def losses(name: str, model: Callable[[int], Model], seeds: int = 8) -> None:
    """Prints the course's loss of a model, as its ledger has it."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    ends = [np.mean(train(model(seed))[-LAST:]) for seed in range(seeds)]
    error = np.std(ends, ddof=1) / seeds**0.5
    print(f"{name}: {np.mean(ends):.3f} ± {error:.3f}")


def sums() -> None:
    """Lesson 11: four layers of attention whose logits do not add up, and that do."""
    losses("not added", lambda seed: Lesson10(seed, every=6))
    losses("added up", Lesson11)


def depths() -> None:
    """Lesson 12: both factors on a layer in 240 layers, and in 3 seeds of 1000."""
    for layers, seeds in ((240, 8), (1000, 3)):
        for name, model in (("√24/N", Lesson12), ("1/√N", Lesson11)):
            make = partial(model, layers=layers, every=layers // 4)
            losses(f"{layers} layers, {name}", make, seeds)


class Block(Lesson13):
    """Lesson 13's block, whose gate or rotary positions may be absent.

    Args:
        seed: of the weights, and of the text.
        gated: a third matrix in each MLP.
        rotary: otherwise positions are learned.
    """

    def __init__(self, seed: int, gated: bool, rotary: bool) -> None:
        Lesson12.__init__(self, seed, layers=24, every=2)
        self.gated, self.rotary = gated, rotary
        for matrices in self.layers:
            if len(matrices) == 1:  # type: ignore[arg-type]
                count = 2 if gated else 1
                matrices.extend(Parameter(self.weight(64, 64, 64)) for _ in range(count))  # type: ignore[operator]
        if rotary:
            self.positions.requires_grad_(False).zero_()
            self.letters.data *= 2**0.5

    def dense(self, x: Tensor, *matrices: Tensor) -> Tensor:
        if self.gated:
            return super().dense(x, *matrices)
        W_in, W_out = matrices
        return 0.3558**-0.5 * silu(x @ W_in) @ W_out

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return super().scores(q, k) if self.rotary else Lesson10.scores(self, q, k)


def blocks() -> None:
    """Lesson 13: the block with and without gate and rotary positions."""
    for gated in (False, True):
        for rotary in (False, True):
            losses(f"gated {gated}, rotary {rotary}", partial(Block, gated=gated, rotary=rotary))


def growth() -> None:
    """Lesson 9: the second moment at the end of the stream, before and after training."""
    text, _ = batch()
    ends = []
    for seed in range(8):
        model = Lesson9(seed)
        before = model.stream(text)[-1].square().mean().item()
        train(model)
        ends.append([before, model.stream(text)[-1].square().mean().item()])
    for when, values in zip(("before", "after"), np.transpose(ends), strict=True):
        print(f"{when}: {values.mean():.2f} ± {values.std(ddof=1) / len(values) ** 0.5:.2f}")


QUOTED: Mapping[str, tuple[Callable[[], None], ...]] = MappingProxyType(
    {
        "01": (distributions,),
        "04": (norms,),
        "09": (growth,),
        "11": (sums,),
        "12": (rules, depths),
        "13": (queries, blocks),
    }
)

if __name__ == "__main__":
    for number in sys.argv[1:] or QUOTED:
        for quoted in QUOTED[number]:
            quoted()
