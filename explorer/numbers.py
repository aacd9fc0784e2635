"""Numbers in words: no exponent notation, no share above 100 %. Pure functions, for every sentence
of the page."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from string import Formatter
from typing import Any

LEAST, MOST = -4, 6
"""Powers of ten between which a number is written out."""
RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def number(value: float, digits: int = 3) -> str:
    """A number to so many digits: 0.0123, 12,300, 1.84·10²⁴; "inf" and "nan" as such."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    power = int(exponent)
    if LEAST <= power < MOST:
        return _trimmed(f"{float(f'{mantissa}e{power}'):,.{max(0, digits - 1 - power)}f}")
    lead, ten = _trimmed(mantissa), f"10{str(power).translate(RAISED)}"
    return ten if lead == "1" else f"{lead}·{ten}"


def percent(share: float) -> str:
    """A share of one: 11 %; a small one keeps two digits."""
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{number(100 * share, 2)} %"


def listed(items: Iterable[object], last: str = " and ") -> str:
    """Items as a list in words: 6, 7 and 8."""
    *others, final = map(str, items)
    return f"{', '.join(others)}{last}{final}" if others else final


def _trimmed(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


class _Sentence(Formatter):
    def format_field(self, value: Any, format_spec: str) -> Any:
        if isinstance(value, Real) and not isinstance(value, Integral):
            if format_spec == "%":
                return percent(float(value))
            if not format_spec or format_spec.isdigit():
                return number(float(value), int(format_spec or 3))
        return super().format_field(value, format_spec)


def filled(sentence: str, **values: object) -> str:
    """A sentence with its placeholders filled: {x} has three digits, {x:2} has two, and {x:%} is a
    share of one.

    Whole numbers and words stay as they are; other formats are Python's.

    Raises:
        KeyError: a placeholder has no value.
    """
    return _Sentence().vformat(sentence, (), values)
