"""Numbers in words: no exponent notation, no share above 100 %. Pure functions, for every sentence of the page."""

from __future__ import annotations

import math

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


def compared(ratio: float, whole: str) -> str:
    """A ratio to something: "3.2 % of the output's", and from one on "12 × the output's"."""
    return f"{percent(ratio)} of {whole}" if ratio < 1 else f"{number(ratio)} × {whole}"


def _trimmed(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits
