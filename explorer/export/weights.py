"""Text that draws the weights of a layer, and that multiplies by them."""

from __future__ import annotations

import math
from functools import lru_cache

from explorer.config import Config
from explorer.export.formulas import DEVIATIONS, DRAWN, EXCEPTIONS, NOISE
from explorer.export.spelling import Symbol, cited, doc, number, product, spell
from explorer.export.template import fill
from explorer.schemes.attention import ATTENTION_GATES
from explorer.schemes.distribution import DISTRIBUTIONS
from explorer.schemes.mlp import readers
from explorer.schemes.parametrization import scales_forward
from explorer.schemes.residual import drawn
from explorer.schemes.scale import SCALE_RULES, biases, shapes

WEIGHT = '''
def weight(fan_out, fan_in, factor=1.0):  #? factors
def weight(fan_out, fan_in):  #? !factors
    ${words}
    noise = ${noise}
    return nn.Parameter(factor * ${deviation}noise)  #? factors
    return nn.Parameter(${deviation}noise)  #? !factors
'''
PRODUCT = '''
def product(x, W, factor=1.0):  #? factors
def product(x, W):  #? !factors
    ${words}
    fan_out, fan_in = W.shape
    return F.linear(x, W) * (factor * ${deviation})  #? factors
    return F.linear(x, W) * ${deviation}  #? !factors
'''
BIAS = '''
def bias(size, fan_in):
    """Normal biases of variance ${variance} / fan_in."""
    return nn.Parameter(torch.randn(size) * math.sqrt(${variance} / fan_in))
'''

LONGEST = 30
"""Letters of a factor that has no name of its own."""


def columns(config: Config) -> dict[str, str]:
    """Rows of each matrix, fan_out, and of W_O and W_out the columns, as text."""
    kv = "N_KV_HEADS" if config.kv_heads != config.n_heads else "N_HEADS"
    gate = ATTENTION_GATES[config.attention_gate].per_head(config.d_head)
    gates = {1: "N_HEADS", config.d_head: "N_HEADS * D_HEAD"}.get(gate, f"N_HEADS * {gate}")
    return {"W_Q": "N_HEADS * D_HEAD", "W_K": f"{kv} * D_HEAD", "W_V": f"{kv} * D_HEAD", "W_G": gates,
            "W_gate": "D_MLP", "W_in": "D_MLP"}


def shape(config: Config, matrix: str) -> tuple[str, str]:
    """fan_out and fan_in of a matrix, as text."""
    rows = columns(config).get(matrix)
    return (rows, "D_MODEL") if rows else ("D_MODEL", "N_HEADS * D_HEAD" if matrix == "W_O" else "D_MLP")


def factor(config: Config, matrix: str) -> str:
    """Text of the factor of a matrix on the scale rule's standard deviation, or its name; empty where it is 1."""
    written = _factor(config, matrix)
    return next((name for name, text in constants(config).items() if text == written), written)


@lru_cache(maxsize=32)
def constants(config: Config) -> dict[str, str]:
    """Names of long factors, each for all matrices that have it, and their text."""
    by_text: dict[str, list[str]] = {}
    for matrix in shapes(config):
        by_text.setdefault(_factor(config, matrix), []).append(matrix.removeprefix("W_").upper())
    return {f"FACTOR_{'_'.join(names)}": text for text, names in by_text.items() if len(text) > LONGEST}


@lru_cache(maxsize=256)
def _factor(config: Config, matrix: str) -> str:
    fan_in, fan_out = shapes(config)[matrix]
    usual = _usual(config, fan_in, fan_out)
    rule = math.sqrt(SCALE_RULES[config.scale_rule].variance(config, matrix, fan_in, fan_out)) / usual
    variance = config.init_variance * (
        config.mlp_variance if matrix in (*readers(config), "W_out") else config.attention_variance)
    residual = drawn(config).get(matrix, 1.0)
    root = "1.0" if variance == 1 else f"math.sqrt({number(variance)})"
    return product(
        "1.0" if math.isclose(rule, 1) else spell(config, rule, *EXCEPTIONS.get(config.scale_rule, ())), root,
        "1.0" if residual == 1 else spell(config, residual, *DRAWN.get(config.residual, ())))


def _usual(config: Config, fan_in: int, fan_out: int) -> float:
    """The standard deviation that stands in the function `weight`."""
    formula = DEVIATIONS.get(config.scale_rule, "1.0")
    return float(eval(formula, {"math": math, "fan_in": fan_in, "fan_out": fan_out}))  # noqa: S307 - our own rows


def draws(config: Config, names: tuple[str, ...]) -> str:
    """Lines that make some matrices and their biases the parameters of a module."""
    lines = []
    for name in names:
        arguments = [*shape(config, name), *([] if scales_forward(config) else filter(None, [factor(config, name)]))]
        lines.append(f"        self.{name} = weight({', '.join(arguments)})")
    lines += [f"        self.{name.replace('W', 'b')} = bias({', '.join(shape(config, name))})"
              for name in names if name in biases(config)]
    return "\n".join(lines)


def times(config: Config, x: str, matrix: str) -> str:
    """Text of the product of a value and a matrix, with its bias."""
    bias = f"self.{matrix.replace('W', 'b')}" if matrix in biases(config) else ""
    if not scales_forward(config):
        return f"F.linear({', '.join(filter(None, [x, f'self.{matrix}', bias]))})"
    arguments = ", ".join(filter(None, [x, f"self.{matrix}", factor(config, matrix)]))
    return f"product({arguments}){f' + {bias}' if bias else ''}"


def noise(config: Config) -> str:
    """Text of a matrix of unit variance."""
    made = Symbol("torch.randn(fan_out, fan_in)")
    return NOISE.get(config.distribution) or str(DISTRIBUTIONS[config.distribution].transform(made).written)


def helpers(config: Config) -> dict[str, str]:
    """The functions `weight`, `product` and `bias`."""
    deviation, stored = DEVIATIONS.get(config.scale_rule, "1.0"), not scales_forward(config)
    flags = {"factors"} if any(factor(config, name) for name in shapes(config)) else set()
    rule, shape = cited(SCALE_RULES[config.scale_rule]), DISTRIBUTIONS[config.distribution].formula
    drawn_so = f"Matrix [fan_out, fan_in], σ² = {rule if stored else '1, for σ stands in `product`'}; {shape}."
    scaled_so = f"σ x Wᵀ: σ stands here instead of in the stored weight; σ² = {rule}."
    return {
        "weight": fill(WEIGHT, flags if stored else (), {
            "noise": noise(config), "deviation": f"{deviation} * " if stored else "", "words": doc(drawn_so)}),
        "product": fill(PRODUCT, flags, {"deviation": deviation, "words": doc(scaled_so)}),
        "bias": fill(BIAS, (), {"variance": number(config.bias_variance)}),
    }
