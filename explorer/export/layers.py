"""The layers of an exported file: their forward pass, line by line, and a class for those in a row that share it."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from explorer.config import Config
from explorer.export.formulas import branch_factor, number, product, skip_factor


class LayerClass(NamedTuple):
    """A class of layers that follow each other."""

    name: str
    numbers: str
    """Numbers of its layers, from 1, in words; empty where it has all."""
    made: str
    """Its layers as the arguments of a list: Layer() for _ in range(N_LAYERS)."""
    steps: list[str]
    """Lines of the forward pass, without what it returns."""


def carried(config: Config) -> tuple[str, ...]:
    """Names of the values that attention passes from layer to layer beside the stream."""
    design = config.design
    if not design.attends:
        return ()
    inherited = {"scores": ("scores",), "qk": ("q_sum", "k_sum")}.get(design.inherits, ())
    return (*(("v1",) if config.value_residual else ()), *inherited)


@lru_cache(maxsize=8)
def scales_by_number(config: Config) -> bool:
    """Whether the norms in layer l are divided by √l."""
    scales = [place.scale for place in config.design.sublayers]
    return min(scales) < 1 and all(
        math.isclose(scale, (sublayer // 2 + 1) ** -0.5) for sublayer, scale in enumerate(scales))


@lru_cache(maxsize=8)
def named_factors(config: Config) -> dict[str, str]:
    """The factors that depend on the depth, which get a name, SKIP or BRANCH."""
    names: dict[str, str] = {}
    for name, factor in (("SKIP", skip_factor), ("BRANCH", branch_factor)):
        by_depth = {text for index in range(2 * config.n_layers) if "N_LAYERS" in (text := factor(config, index))}
        names |= dict.fromkeys(by_depth, name) if len(by_depth) == 1 else {}
    return names


def layer_classes(config: Config) -> list[LayerClass]:
    """The classes of all layers, in order."""
    passes = [steps(config, layer) for layer in range(1, config.n_layers + 1)]
    spans, before = [], 0
    for lines, layers in groupby(passes):
        spans.append((before, before := before + len(list(layers)), lines))
    names = [f"Layer{1 + index}" for index in range(len(spans))]
    if len(spans) == 2:
        names = ["FirstLayer", "Layer"] if spans[0][1] == 1 else ["EarlyLayer", "LateLayer"]
    if len(spans) == 1:
        names = ["Layer"]
    return [LayerClass(name, _numbers(config, *ends), _made(config, name, *ends), lines)
            for name, (*ends, lines) in zip(names, spans, strict=True)]


def _numbers(config: Config, before: int, last: int) -> str:
    """The layers of a class in words: those after `before` layers, up to the `last` one."""
    if last - before == config.n_layers:
        return ""
    return f"Layer {before + 1}" + (" and on" if last == config.n_layers else f" to {last}") * (last > before + 1)


def _made(config: Config, name: str, before: int, last: int) -> str:
    """The layers of a class; its last class goes on to the last layer, however many the file is changed to have."""
    to_the_end = last == config.n_layers
    if scales_by_number(config):
        every = f"{name}(number) for number in range({before + 1}, {'N_LAYERS + 1' if to_the_end else last + 1})"
    elif to_the_end:
        every = f"{name}() for _ in range(N_LAYERS{f' - {before}' * (before > 0)})"
    else:
        every = f"{name}() for _ in range({last - before})"
    if last - before == config.n_layers:
        return every
    return f"{name}()" if last == 1 else f"*({every})"


def steps(config: Config, layer: int) -> list[str]:
    """Lines of the forward pass of a layer, counted from 1, without what it returns."""
    design = config.design
    sublayers = range(2 * layer - 2 + (not design.attends), 2 * layer)
    inputs = [_input(config, sublayer) for sublayer in sublayers]
    if not design.stream.parallel:
        return [line for sublayer, x in zip(sublayers, inputs, strict=True)
                for line in _added(config, sublayer, *_branch(config, sublayer, x))]
    shared = len(set(inputs)) == 1 < len(inputs) and inputs[0] != "x"
    branches = [_branch(config, sublayer, "h" if shared else x) for sublayer, x in zip(sublayers, inputs, strict=True)]
    lines = [f"h = {inputs[0]}"] * shared + [line for before, _ in branches for line in before]
    return [*lines, f"x = {' + '.join(('x', *(term for _, term in branches)))}"]


def _input(config: Config, sublayer: int) -> str:
    """The input of a branch."""
    place = config.design.sublayers[sublayer]
    scale = "self.scale" if scales_by_number(config) else number(place.scale)
    return product(scale, "norm(x)") if place.on_input else "x"


def _branch(config: Config, sublayer: int, x: str) -> tuple[list[str], str]:
    """A branch's term of the sum; and before it the line that calls it, where attention gives more than its output."""
    design = config.design
    passed, shape = ", ".join(carried(config)), design.alpha_shape
    lines, out = [], f"self.{'mlp' if sublayer % 2 else 'attention'}({x})"
    if passed and sublayer % 2 == 0:
        lines, out = [f"out, {passed} = self.attention({x}, {passed})"], "out"
    out = f"norm({out})" if design.sublayers[sublayer].on_output else out
    if shape is not None:
        return lines, f"self.alpha{f'[{sublayer % 2}]' if shape else ''} * {out}"
    factor = branch_factor(config, sublayer)
    return lines, product(named_factors(config).get(factor, factor), out)


def _added(config: Config, sublayer: int, lines: list[str], term: str) -> list[str]:
    """The lines that add a branch to the stream."""
    design = config.design
    skip = skip_factor(config, sublayer)
    total = f"{product(named_factors(config).get(skip, skip), 'x')} + {term}" if skip != "0.0" else term
    if design.profiled:
        total = f"self.join(x, {term}, {sublayer % 2}, moments)"
    return [*lines, f"x = norm({total})" if design.sublayers[sublayer].on_sum else f"x = {total}"]
