"""Works whose growth is measured, a row each: what prepares it, and how fast it must grow along
each axis.

Expected exponents follow from operation counts. N layers, width d, n tokens, S seeds, H heads, D
designs:
    pass          N (B n d² + B n² d) S products on N (d² + B n d + B H n²) numbers, of one seed
    after the other theory        a step a sublayer, on tables by ln n: N; with shared weights every
    pair of layers:
        N²
    picture       a dot or a number of a line a layer, seed and head of each design; an attention
        pattern of n²
    prose         a line a field whatever its value; code also looks at every layer for what differs
        between them
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from benchmarks import shown
from benchmarks.overhead import bare
from benchmarks.shown import Configs, Ready, fresh, void
from explorer.export.module import torch_code
from explorer.measuring import measure
from explorer.measuring.observe import Pass
from explorer.model import Transformer
from explorer.model.batch import draw
from explorer.theory import predict, solve


class Work(NamedTuple):
    """One work."""

    prepare: Callable[[Configs], Ready]
    axes: Mapping[str, tuple[float, float]]
    """Expected exponents of time, or of what it counts, and of memory."""
    unit: str = "seconds"
    torch: bool = False
    """Memory is that of the process, as torch's is not Python's."""
    fixed: Mapping[str, Any] = MappingProxyType({})


def _bare(configs: Configs) -> Ready:
    def once(_: int) -> None:
        for seed in range(configs[0].n_seeds):
            bare(Transformer(configs[0], seed), draw(configs[0], seed))

    return once


def _overhead(configs: Configs) -> Ready:
    model, inputs, one = Transformer(configs[0], 0), draw(configs[0], 0), Pass(configs[0], 0)

    def once(_: int) -> float:
        start = time.process_time()
        bare(model, inputs)
        middle = time.process_time()
        one.observe(model, inputs)
        return (time.process_time() - middle) / (middle - start)

    return once


def _predict(configs: Configs) -> Ready:
    return lambda number: void(predict(fresh(configs[0], number)))


ONE = {"depth": (1, 1), "width": (0, 0)}
PASS = {"depth": (1, 1), "width": (2, 2), "tokens": (2, 2), "heads": (1, 1), "seeds": (1, 0)}
SHOWN = {"depth": (1, 1), "width": (0, 0), "tokens": (2, 2), "heads": (1, 1), "seeds": (1, 1)}
WORKS: Mapping[str, Work] = {
    "bare pass": Work(_bare, PASS, torch=True),
    "measure": Work(
        lambda configs: lambda number: void(measure(fresh(configs[0], number))), PASS, torch=True
    ),
    "measure over bare": Work(
        _overhead, dict.fromkeys(("depth", "width", "tokens", "heads"), (0, 0)), "ratio"
    ),
    "predict": Work(_predict, ONE | {"tokens": (0, 0)}),
    "predict, causal": Work(_predict, ONE | {"tokens": (1, 1)}, fixed={"causal": True}),
    "predict, shared": Work(
        _predict, {"depth": (2, 1), "tokens": (0, 0)}, fixed={"layer_weights": "shared"}
    ),
    "solve": Work(
        lambda configs: (
            lambda number: void(solve(fresh(configs[0], number), "alpha", "flat_signal"))
        ),
        ONE | {"tokens": (0, 0)},
    ),
    "drawing": Work(shown.drawing, SHOWN | {"designs": (1, 1)}),
    "bytes of figures": Work(
        shown.sent, SHOWN | {"seeds": (0, 0), "heads": (0, 0), "designs": (1, 1)}, "bytes"
    ),
    "diagnose": Work(shown.diagnosing, SHOWN | {"tokens": (0, 0)}),
    "torch_code": Work(
        lambda configs: lambda number: void(torch_code(fresh(configs[0], number))),
        {"depth": (1, 1), "width": (0, 0)},
    ),
    "page after a move": Work(shown.page, {"depth": (1, 1), "pins": (1, 1)}),
    "table of designs": Work(shown.table, {"designs": (1, 1)}),
    "link": Work(shown.link, {"pins": (1, 1)}),
}
