"""Numbers, and a row's function of tensors, as Python text: the function is called with a `Written`
in a tensor's place, which notes what is done to it."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any


def number(value: float) -> str:
    """A number to twelve digits: 0.1, 1e-05, 4.0."""
    return repr(float(f"{value:.12g}"))


def text_of(value: Any) -> str:
    """A value as an argument of a call.

    Raises:
        TypeError: it is no number, text, True, False or None, and was not written down.
    """
    if isinstance(value, Written | bool | None):
        return str(value)
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        return number(float(value))
    raise TypeError(f"{type(value).__name__} is not written down")


def operand(value: Any) -> str:
    """A value beside a sign, in parentheses where it has a sign itself."""
    text = text_of(value)
    signed = value.signed if isinstance(value, Written) else text.startswith("-")
    return f"({text})" if signed else text


def binary(sign: str) -> Callable[[Any, Any], Written]:
    """The operation with this sign."""
    return lambda left, right: Written(f"{operand(left)} {sign} {operand(right)}", signed=True)


def reflected(sign: str) -> Callable[[Any, Any], Written]:
    """The operation with this sign, for a tensor on its right."""
    return lambda right, left: binary(sign)(left, right)


class Written:
    """A tensor or a module of a file by its text; methods, functions and signs make longer texts.

    >>> x = Written("x")
    >>> print(x * (1.702 * x).sigmoid())
    x * (1.702 * x).sigmoid()
    """

    def __init__(self, text: str, signed: bool = False) -> None:
        self.text = text
        self.signed = signed
        """Whether its outermost operation is a sign, such as +."""

    def __str__(self) -> str:
        return self.text

    def __getattr__(self, name: str) -> Callable[..., Written]:
        if name.startswith("__"):  # numpy and others ask for protocols
            raise AttributeError(name)

        def method(*given: Any, **named: Any) -> Written:
            arguments = [text_of(value) for value in given]
            arguments += [f"{key}={text_of(value)}" for key, value in named.items()]
            return Written(f"{operand(self)}.{name}({', '.join(arguments)})")

        return method

    def __bool__(self) -> bool:
        raise TypeError("a tensor that is written down has no value")

    def __eq__(self, other: object) -> bool:
        return bool(self)

    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> Written:
        return Written(f"-{operand(self)}", signed=True)

    __add__, __radd__ = binary("+"), reflected("+")
    __sub__, __rsub__ = binary("-"), reflected("-")
    __mul__, __rmul__ = binary("*"), reflected("*")
    __truediv__, __rtruediv__ = binary("/"), reflected("/")
    __pow__, __rpow__ = binary("**"), reflected("**")
    __lt__, __gt__ = binary("<"), binary(">")
