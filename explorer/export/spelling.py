"""Numbers and functions of the schemes' rows as Python text; formulas only where they give the row's own number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from textwrap import wrap
from typing import Any

from explorer.config import Config
from explorer.fields import Option

Q = '"""'


def sizes(config: Config) -> dict[str, int]:
    """The sizes of a config by the names that they have in the file."""
    return {
        "N_LAYERS": config.n_layers, "D_MODEL": config.d_model, "N_HEADS": config.n_heads,
        "N_KV_HEADS": config.kv_heads, "D_HEAD": config.d_head, "D_MLP": config.d_mlp, "N_STREAMS": config.n_streams,
        "N_CTX": config.n_ctx,
    }


def number(value: float) -> str:
    """A number to twelve digits: 0.1, 1e-05, 4.0."""
    return repr(float(f"{value:.12g}"))


def spell(config: Config, value: float, *formulas: str) -> str:
    """The first of the formulas, over the names of `sizes`, that gives a value; the number where none does."""
    names: Mapping[str, Any] = {"math": math, **sizes(config)}
    for formula in formulas:
        if formula and math.isclose(eval(formula, dict(names)), value, rel_tol=1e-12):  # noqa: S307 - our own rows
            return formula
    return number(value)


def product(*factors: str) -> str:
    """Factors multiplied, those that are 1 left out; empty where all are."""
    return " * ".join(factor for factor in factors if factor not in ("", "1.0"))


def cited(row: Option) -> str:
    """A row's formula, and its source where there is one."""
    return f"{row.formula} ({row.source})" if row.source else row.formula


def bracketed(written: str) -> str:
    """A sum, to be a factor."""
    return f"({written})" if " + " in written else written


def doc(words: str, indent: int = 4) -> str:
    """A docstring, on several lines where it is long."""
    lines = wrap(words, 112 - indent)
    closing = f"\n{' ' * indent}" if len(lines) > 1 else ""
    return f"{Q}{lines[0]}" + "".join(f"\n{' ' * indent}{line}" for line in lines[1:]) + closing + Q


class Symbol:
    """A value of which only the text is known: what is done to it is written down instead.

    Args:
        written: its text.
        loose: whether it needs brackets to be a factor.
    """

    def __init__(self, written: str, loose: bool = False) -> None:
        self.written, self.factor = written, f"({written})" if loose else written

    def __getattr__(self, name: str) -> Symbol:
        return Symbol(f"{self.factor}.{name}")

    def __call__(self, *arguments: object, **named: object) -> Symbol:
        parts = [*map(_text, arguments), *(f"{name}={_text(value)}" for name, value in named.items())]
        return Symbol(f"{self.written}({', '.join(parts)})")

    def __mul__(self, other: object) -> Symbol:
        return Symbol(f"{self.factor} * {other.factor if isinstance(other, Symbol) else _text(other)}", loose=True)

    def __rmul__(self, other: object) -> Symbol:
        return Symbol(f"{_text(other)} * {self.factor}", loose=True)


def _text(value: object) -> str:
    if isinstance(value, Symbol):
        return value.written
    return number(value) if isinstance(value, float) else f'"{value}"' if isinstance(value, str) else repr(value)
