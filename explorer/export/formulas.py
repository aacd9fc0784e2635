"""Formulas of the schemes' rows, and the layers' forward pass, as Python text over the constants of
an exported file.

A row that has no formula here stands as its number. Activations and distributions are functions and
need their text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from explorer.config import Config
from explorer.schemes.distribution import CUT, CUT_VARIANCE
from explorer.schemes.parametrization import BASE_WIDTH, PARAMETRIZATIONS, Power
from explorer.schemes.residual import LAST
from explorer.schemes.scale import PACKED, SCALE_RULES

DEVIATIONS: Mapping[str, str] = {
    "lecun": "fan_in ** -0.5",
    "xavier": "math.sqrt(2 / (fan_in + fan_out))",
    "he": "math.sqrt(2 / fan_in)",
    "fan_out": "fan_out ** -0.5",
    "bert": "0.02",
    "gpt2": "0.02",
    "mitchell": "fan_in ** -0.5",
    "torchtitan": "0.02",
    "t5": "fan_in ** -0.5",
    "torch_transformer": "math.sqrt(2 / (fan_in + fan_out))",
    "torch_default": "math.sqrt(1 / (3 * fan_in))",
}
"""By scale rule: the standard deviation of most matrices."""
BY_MATRIX: Mapping[str, Mapping[str, str]] = {
    "gpt2": dict.fromkeys(LAST, "(2 * N_LAYERS) ** -0.5"),
    "t5": {"W_Q": "D_HEAD ** -0.5"},
    "torch_transformer": dict.fromkeys(
        PACKED, "((D_MODEL + {rows}) / (D_MODEL + 3 * {rows})) ** 0.5"
    ),
    "torch_default": dict.fromkeys(PACKED, "(6 * D_MODEL / (D_MODEL + {packed})) ** 0.5"),
}
"""By scale rule and matrix: the factor on that; `rows` are the matrix's own, `packed` those of Q, K
and V together."""
LAST_BY_LAYER: Mapping[str, str] = dict.fromkeys(("mitchell", "torchtitan"), "(2 * number) ** -0.5")
"""By scale rule: one more factor on W_O and W_out in layer `number`, from 1."""
DRAWN: Mapping[str, str] = {
    "scaled_init": "(2 * N_LAYERS) ** -0.5",
    "fixup": "(2 * N_LAYERS) ** -{share}",
    "t_fixup": "0.67 * N_LAYERS ** -0.25",
    "magneto": "math.sqrt(math.log(2 * N_LAYERS))",
    "deepnorm": "(8 * N_LAYERS) ** -0.25",
    "deepnorm_encoder": "0.87 * N_LAYERS ** (-5 / 16)",
    "deepnorm_decoder": "(12 * N_LAYERS) ** -0.25",
}
"""By residual rule: one more factor on some matrices; `share` is ½ over the number of matrices that
read alike."""
SKIPS: Mapping[str, str] = {
    "deepnorm": "(2 * N_LAYERS) ** 0.25",
    "deepnorm_encoder": "0.81 * N_LAYERS ** (5 / 16)",
    "deepnorm_decoder": "(3 * N_LAYERS) ** 0.25",
    "admin": "math.sqrt((2 * N_LAYERS + 1) / math.log(2 * N_LAYERS + 1) - 1)",
    "keel": "2 * N_LAYERS",
}
"""By residual rule or norm placement: the factor on the stream, where it is not 1."""
BRANCHES: Mapping[str, str] = {
    "inverse_sqrt_depth": "(2 * N_LAYERS) ** -0.5",
    "inverse_depth": "1 / (2 * N_LAYERS)",
    "looped": "{alpha}(N_LAYERS * {loops}) ** -0.5",
}
"""By residual rule: the factor on a branch; `loops` is how often a layer is passed."""
READOUTS: Mapping[tuple[str, float], str] = {
    ("separate", 0.0): "D_MODEL ** -0.5",
    ("separate", -1.0): "8 / D_MODEL",
    ("tied", 0.0): "{character}",
    ("tied_scaled", 0.0): "{character} * D_MODEL ** -0.5",
}
"""By readout and the power of the width in its variance: the standard deviation; `character` is
that in the stream."""
EMBEDDINGS: Mapping[str, str] = {"tied_scaled": "math.sqrt(D_MODEL)"}
"""By readout that is the embedding: the factor on the embedded characters, where it follows from
the row."""
DIVISORS: Mapping[str, str] = {
    "sqrt_d": "math.sqrt(D_HEAD)",
    "none": "",
    "d": "D_HEAD",
    "ssmax": "math.sqrt(D_HEAD)",
}
"""By attention scale: the divisor of the logits."""
WIDENED = CUT_VARIANCE**-0.5
NOISE: Mapping[str, str] = {
    "normal": "torch.randn(fan_out, fan_in)",
    "uniform": "torch.empty(fan_out, fan_in).uniform_(-math.sqrt(3), math.sqrt(3))",
    "truncated_normal": "nn.init.trunc_normal_(torch.empty(fan_out, fan_in), 0.0, "
    f"{WIDENED:.12g}, {-CUT * WIDENED:.12g}, {CUT * WIDENED:.12g})",
}
"""By distribution: a matrix of unit variance."""
ACTIVATIONS: Mapping[str, str] = {
    "relu": "F.relu({x})",
    "gelu": "F.gelu({x})",
    "gelu_tanh": 'F.gelu({x}, approximate="tanh")',
    "quick": "{x} * (1.702 * {x}).sigmoid()",
    "silu": "F.silu({x})",
    "elu": "F.elu({x})",
    "selu": "F.selu({x})",
    "relu2": "F.relu({x}).square()",
    "tanh": "{x}.tanh()",
    "erf": "{x}.erf()",
    "sigmoid": "{x}.sigmoid()",
    "identity": "{x}",
}
"""By activation: its value at x."""


def number(value: float) -> str:
    """A number to twelve digits: 0.1, 1e-05, 4.0."""
    return repr(float(f"{value:.12g}"))


def root(square: float) -> str:
    """The square root of a number: as a number where that is short, else as a call."""
    short = number(math.sqrt(square))
    return short if len(short) <= 6 else f"math.sqrt({number(square)})"


def product(*factors: str) -> str:
    """Factors multiplied, those that are 1 or empty left out; empty where all are."""
    return " * ".join(factor for factor in factors if factor not in ("", "1.0"))


def text_of(config: Config, field: str, formulas: Mapping[str, str]) -> str:
    """The formula of the row that a field names.

    Raises:
        ConfigError: it has none.
    """
    row = getattr(config, field)
    if row not in formulas:
        raise config.refusal(
            f"{{{field}}} must be one of {', '.join(formulas)}, to be written as torch; "
            f"got {{{field}=}}"
        )
    return formulas[row]


def written_shapes(config: Config) -> dict[str, tuple[str, str]]:
    """fan_out and fan_in of each matrix of a layer, in the order of the forward pass."""
    design = config.design
    kv = "N_KV_HEADS" if config.kv_heads != config.n_heads else "N_HEADS"
    per_head = design.gates // config.n_heads
    gate = {1: "N_HEADS", config.d_head: "N_HEADS * D_HEAD"}.get(per_head, f"N_HEADS * {per_head}")
    written = {
        "W_Q": ("N_HEADS * D_HEAD", "D_MODEL"),
        "W_K": (f"{kv} * D_HEAD", "D_MODEL"),
        "W_V": (f"{kv} * D_HEAD", "D_MODEL"),
        "W_G": (gate, "D_MODEL"),
        "W_O": ("D_MODEL", "N_HEADS * D_HEAD"),
        "W_gate": ("D_MLP", "D_MODEL"),
        "W_in": ("D_MLP", "D_MODEL"),
        "W_out": ("D_MODEL", "D_MLP"),
    }
    return {matrix: written[matrix] for matrix in design.shapes}


def matrix_factor(config: Config, matrix: str) -> str:
    """The factor of a matrix on the scale rule's usual standard deviation; empty where it is 1."""
    design = config.design
    packed = "3 * N_HEADS" if config.kv_heads == config.n_heads else "(N_HEADS + 2 * N_KV_HEADS)"
    rule = (
        BY_MATRIX.get(config.scale_rule, {})
        .get(matrix, "")
        .format(rows=written_shapes(config)[matrix][0], packed=f"{packed} * D_HEAD")
    )
    if config.scale_rule not in DEVIATIONS:
        rule = number(
            math.sqrt(
                SCALE_RULES[config.scale_rule].variance(config, matrix, *design.shapes[matrix])
            )
        )
    in_mlp, residual = matrix in (*design.readers, "W_out"), design.rule.drawn.get(matrix, 1.0)
    share = 0.5 / (len(design.readers) if in_mlp else 1)
    formula = DRAWN.get(config.residual, number(residual)).format(share=share)
    variance = config.init_variance * (config.mlp_variance if in_mlp else config.attention_variance)
    return product(rule, root(variance), number(residual) if residual in (0, 1) else formula)


def skip_factor(config: Config, sublayer: int) -> str:
    """The factor on the stream where a branch is added, 0 … 2N − 1."""
    value = config.design.skips[sublayer]
    formula = SKIPS.get(config.residual) or SKIPS.get(config.norm_placement)
    return formula if formula and value != 1 else number(value)


def branch_factor(config: Config, sublayer: int) -> str:
    """The factor on a branch, 0 … 2N − 1."""
    design = config.design
    beside = design.branches[sublayer] / design.branch_factor
    by_depth = power_of_size(config, PARAMETRIZATIONS[config.parametrization].branch)
    loops = "N_LAYERS" if design.copied and design.unique == 1 else config.n_layers // design.unique
    alpha = "" if config.alpha == 1 else f"{number(config.alpha)} * "
    return product(
        BRANCHES.get(config.residual, number(beside)).format(alpha=alpha, loops=loops), by_depth
    )


def power_of_size(config: Config, power: Power) -> str:
    """Width over base width and depth over base depth, each to its power; empty where both are
    0."""
    width = {0.0: "", -1.0: f"{BASE_WIDTH} / D_MODEL"}.get(
        power.width, f"(D_MODEL / {BASE_WIDTH}) ** {power.width}"
    )
    depth = {0.0: "", -1.0: f"{config.base_depth} / N_LAYERS"}.get(
        power.depth, f"(N_LAYERS / {config.base_depth}) ** {power.depth}"
    )
    return product(width, depth)


def readout_deviation(config: Config) -> str:
    """The standard deviation of the readout's entries, which are the embedding's where that is the
    readout."""
    design = config.design
    power = PARAMETRIZATIONS[config.parametrization].powers["output"].variance.width
    written = READOUTS.get((config.readout, power), number(math.sqrt(design.readout_variance)))
    return written.format(character=root(config.input_second_moment * design.token_part))


def embedding_factor(config: Config) -> str:
    """The factor on the embedded characters: what the embedding's own variance leaves of the
    input's."""
    design = config.design
    size = config.input_second_moment * design.token_part
    if not design.tied:
        return root(size)
    return EMBEDDINGS.get(config.readout) or root(size / design.readout_variance)


# The layers: their forward pass, line by line, and a class for those in a row that share it.


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
        math.isclose(scale, (sublayer // 2 + 1) ** -0.5) for sublayer, scale in enumerate(scales)
    )


@lru_cache(maxsize=8)
def named_factors(config: Config) -> dict[str, str]:
    """The factors that depend on the depth, which get a name, SKIP or BRANCH."""
    names: dict[str, str] = {}
    for name, factor in (("SKIP", skip_factor), ("BRANCH", branch_factor)):
        by_depth = {
            text
            for index in range(2 * config.n_layers)
            if "N_LAYERS" in (text := factor(config, index))
        }
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
    return [
        LayerClass(name, _numbers(config, *ends), _made(config, name, *ends), lines)
        for name, (*ends, lines) in zip(names, spans, strict=True)
    ]


def _numbers(config: Config, before: int, last: int) -> str:
    """The layers of a class in words: those after `before` layers, up to the `last` one."""
    if last - before == config.n_layers:
        return ""
    return f"Layer {before + 1}" + (" and on" if last == config.n_layers else f" to {last}") * (
        last > before + 1
    )


def _made(config: Config, name: str, before: int, last: int) -> str:
    """The layers of a class; its last class goes on to the last layer, however many the file is
    changed to have."""
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
        return [
            line
            for sublayer, x in zip(sublayers, inputs, strict=True)
            for line in _added(config, sublayer, *_branch(config, sublayer, x))
        ]
    shared = len(set(inputs)) == 1 < len(inputs) and inputs[0] != "x"
    branches = [
        _branch(config, sublayer, "h" if shared else x)
        for sublayer, x in zip(sublayers, inputs, strict=True)
    ]
    lines = [f"h = {inputs[0]}"] * shared + [line for before, _ in branches for line in before]
    return [*lines, f"x = {' + '.join(('x', *(term for _, term in branches)))}"]


def _input(config: Config, sublayer: int) -> str:
    """The input of a branch."""
    place = config.design.sublayers[sublayer]
    scale = "self.scale" if scales_by_number(config) else number(place.scale)
    return product(scale, "norm(x)") if "input" in place.norms else "x"


def _branch(config: Config, sublayer: int, x: str) -> tuple[list[str], str]:
    """A branch's term of the sum; and before it the line that calls it, where attention gives more
    than its output."""
    design = config.design
    passed, shape = ", ".join(carried(config)), design.alpha_shape
    lines, out = [], f"self.{'mlp' if sublayer % 2 else 'attention'}({x})"
    if passed and sublayer % 2 == 0:
        lines, out = [f"out, {passed} = self.attention({x}, {passed})"], "out"
    out = f"norm({out})" if "output" in design.sublayers[sublayer].norms else out
    if shape is not None:
        return lines, f"self.alpha{f'[{sublayer % 2}]' if shape else ''} * {out}"
    factor = branch_factor(config, sublayer)
    return lines, product(named_factors(config).get(factor, factor), out)


def _added(config: Config, sublayer: int, lines: list[str], term: str) -> list[str]:
    """The lines that add a branch to the stream."""
    design = config.design
    skip = skip_factor(config, sublayer)
    total = (
        f"{product(named_factors(config).get(skip, skip), 'x')} + {term}" if skip != "0.0" else term
    )
    if design.profiled:
        total = f"self.join(x, {term}, {sublayer % 2}, moments)"
    return [
        *lines,
        f"x = norm({total})" if "sum" in design.sublayers[sublayer].norms else f"x = {total}",
    ]
