"""The layers of a file: the lines of their forward pass, and the factors that these name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from explorer.design import Design

Factors = Mapping[str, Sequence[float]]


def carried(design: Design) -> list[str]:
    """Names of the values that attention passes from layer to layer beside the stream."""
    if not design.attends:
        return []
    first = ["v1"] if design.settings.value_residual else []
    inherited = {"scores": ["scores"], "qk": ["q_sum", "k_sum"]}.get(design.inherits, [])
    return first + inherited


def named_factors(design: Design) -> Factors:
    """The factors that are not 1 in all sublayers, by sublayer, under their names in the file."""
    scales = [place.scale if "input" in place.norms else 1.0 for place in design.sublayers]
    factors = {"SCALE": scales, "SKIP": design.skips, "BRANCH": design.branches}
    if design.profiled or not any(design.skips):  # found by a first pass, or no stream at all
        del factors["SKIP"]
    if design.alpha_shape is not None:  # learned
        del factors["BRANCH"]
    first = 0 if design.attends else 1
    return {name: values for name, values in factors.items() if set(values[first:]) != {1.0}}


def differs(values: Sequence[float]) -> bool:
    """Whether a factor has a number for each sublayer, instead of one for all."""
    return len(set(values)) > 1


def classes(design: Design, factors: Factors) -> tuple[dict[str, Sequence[str]], str]:
    """The lines of each class of layers, and the list of all: [Layer1] * 3 + [Layer2] * 9."""
    passes = [tuple(steps(design, factors, layer)) for layer in range(design.settings.n_layers)]
    distinct = list(dict.fromkeys(passes))
    names = {lines: f"Layer{index}" for index, lines in enumerate(distinct, 1)}
    if len(distinct) == 1:
        names = {distinct[0]: "Layer"}
    runs = [f"[{names[lines]}] * {len(list(run))}" for lines, run in groupby(passes)]
    return {name: lines for lines, name in names.items()}, " + ".join(runs)


def steps(design: Design, factors: Factors, layer: int) -> list[str]:
    """Lines of the forward pass of a layer, counted from 0, without what it returns."""
    parallel = design.stream.parallel
    source = "h" if parallel else "x"
    lines = ["h = x  # both branches read it"] if parallel else []
    for branch in (0, 1) if design.attends else (1,):  # 0 is attention, 1 the MLP
        place = design.sublayers[2 * layer + branch]
        given = source
        if "input" in place.norms:
            given = times(factors, "SCALE", branch) + f"norm({source})"
        if branch == 0:
            results = ", ".join(["out", *carried(design)])
            arguments = ", ".join([given, *carried(design)])
            lines.append(f"{results} = self.attention({arguments})")
        else:
            lines.append(f"out = self.mlp({given})")
        out = "norm(out)" if "output" in place.norms else "out"
        if design.alpha_shape is None:
            term = times(factors, "BRANCH", branch) + out
        elif design.alpha_shape == ():  # one number for both branches
            term = f"self.alpha * {out}"
        else:
            term = f"self.alpha[{branch}] * {out}"
        if design.profiled:
            total = f"self.join(x, {term}, {branch}, moments)"
        elif place.skip == 0:
            total = term
        else:
            total = f"{times(factors, 'SKIP', branch)}x + {term}"
        lines.append(f"x = norm({total})" if "sum" in place.norms else f"x = {total}")
    return lines


def times(factors: Factors, name: str, branch: int) -> str:
    """A factor before what it multiplies; empty where it is 1."""
    if name not in factors:
        return ""
    if not differs(factors[name]):
        return f"{name} * "
    return f"{name}[2 * self.number{' + 1' if branch else ''}] * "
