"""`evaluated`: what a visitor writes into an answer's box, a number or an expression, without ever
running code.

The text is read as a syntax tree, and only the nodes, names and functions below are known. All
numbers are floats, so that no expression can take long or much memory: 10**10**10 overflows at
once."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType

from explorer.display import shown
from explorer.translation import TranslatedError

LONGEST, DEEPEST = 300, 20
"""Characters of a text, and levels of its syntax tree."""
SIGNS = MappingProxyType(
    {
        "^": "**",
        "−": "-",
        "–": "-",
        "·": "*",
        "×": "*",
        "÷": "/",
        "²": "**2",
        "³": "**3",
        "√": "sqrt",
        "π": "pi",
        "η": "eta",
        "ρ": "rho",
    }
)
"""Signs that people write, and what they are in Python."""
OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
        ast.Pow: operator.pow,
    }
)
SIGNED: Mapping[type[ast.unaryop], Callable[[float], float]] = MappingProxyType(
    {
        ast.UAdd: operator.pos,
        ast.USub: operator.neg,
    }
)
FUNCTIONS: Mapping[str, Callable[[float], float]] = MappingProxyType(
    {
        "sqrt": math.sqrt,
        "exp": math.exp,
        "log": math.log,
        "ln": math.log,
        "log2": math.log2,
        "log10": math.log10,
        "log1p": math.log1p,
        "erf": math.erf,
        "sin": math.sin,
        "cos": math.cos,
        "tan": math.tan,
        "acos": math.acos,
        "tanh": math.tanh,
        "abs": abs,
        "floor": math.floor,
        "ceil": math.ceil,
    }
)
CONSTANTS: Mapping[str, float] = MappingProxyType({"pi": math.pi, "e": math.e})


class ExpressionError(TranslatedError):
    """A text that is no expression; the message is a sentence that says why."""


def evaluated(text: str, values: Mapping[str, float]) -> tuple[float, ...]:
    """The numbers that a text stands for: one, or several between commas or in brackets.

    Args:
        text: such as "2**-2.5", or "1/(n*sqrt(d))".
        values: the arguments by name.
    Raises:
        ExpressionError: the text is too long, too deep, names something unknown, or its value is no
            real number.
    """
    body = parsed(text)
    parts = body.elts if isinstance(body, ast.Tuple | ast.List) else [body]
    return tuple(_checked(part, values) for part in parts)


def settings(text: str) -> dict[str, str | float]:
    """The settings that a text stands for: "norm_placement = post, alpha = 0.2".

    Raises:
        ExpressionError: as `evaluated`, or a part is no setting.
    """
    call = parsed(f"f({text})")
    if (
        not isinstance(call, ast.Call)
        or not isinstance(call.func, ast.Name)
        or call.args
        or not call.keywords
    ):
        raise ExpressionError("settings are written as name = value, with commas between them")
    chosen: dict[str, str | float] = {}
    for keyword in call.keywords:
        value = keyword.value
        if keyword.arg is None:
            raise ExpressionError("settings are written as name = value, with commas between them")
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            chosen[keyword.arg] = value.value
        elif isinstance(value, ast.Name) and value.id not in CONSTANTS:
            chosen[keyword.arg] = value.id
        else:
            chosen[keyword.arg] = _checked(value, {})
    return chosen


def parsed(text: str) -> ast.expr:
    """The syntax tree of a text; nothing of it is run.

    Raises:
        ExpressionError: the text is empty, too long, or no expression.
    """
    if not text.strip():
        raise ExpressionError("the box is empty")
    if len(text) > LONGEST:
        raise ExpressionError(
            "an answer has at most {most} characters; got {count}", most=LONGEST, count=len(text)
        )
    plain = "".join(SIGNS.get(sign, sign) for sign in text.strip())
    try:
        return ast.parse(plain, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # as ast.parse documents
        raise ExpressionError(
            "this is no expression: {text}. Write every product with *, "
            "such as 2*n or exp(-1/2), and decimals with a point",
            text=shown(text),
        ) from None


def _checked(node: ast.expr, values: Mapping[str, float]) -> float:
    """The value of an expression, as a finite real number."""
    try:
        value = _value(node, values, DEEPEST)
    except ZeroDivisionError:
        raise ExpressionError("the expression divides by zero") from None
    except OverflowError:
        raise ExpressionError("the value is too large for a number") from None
    except ValueError as error:
        if isinstance(error, ExpressionError):
            raise
        raise ExpressionError(
            "a function has no value there: a root or logarithm of a negative number?"
        ) from None
    if isinstance(value, complex):
        raise ExpressionError("the value is no real number: a root of a negative number?")
    if not math.isfinite(value):
        raise ExpressionError("the value is too large for a number")
    return value


def _value(node: ast.expr, values: Mapping[str, float], depth: int) -> float:
    """The value of a node, whose parts may have so many levels."""
    if not depth:
        raise ExpressionError("an expression has at most {most} levels of parts", most=DEEPEST)
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return float(number)
        case ast.Name(id=name) if name in values:
            return float(values[name])
        case ast.Name(id=name) if name in CONSTANTS:
            return CONSTANTS[name]
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in OPERATORS:
            return OPERATORS[type(sign)](
                _value(left, values, depth - 1), _value(right, values, depth - 1)
            )
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in SIGNED:
            return SIGNED[type(sign)](_value(operand, values, depth - 1))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in FUNCTIONS:
            return float(FUNCTIONS[name](_value(argument, values, depth - 1)))
        case ast.Name(id=name):
            names = ", ".join([*values, *CONSTANTS])
            raise ExpressionError(
                "the names that stand for numbers here are {names}; got {name}",
                names=names,
                name=name,
            )
        case ast.Call(func=ast.Name(id=name)):
            raise ExpressionError(
                "the functions, each of one argument, are {names}; got {name}",
                names=", ".join(FUNCTIONS),
                name=name,
            )
    raise ExpressionError(
        "an answer has numbers, names, + - * / **, parentheses and functions such as sqrt alone"
    )
