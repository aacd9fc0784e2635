"""Values of a figure as a table has them: unpacked, without tags, and safe for a spreadsheet."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

DTYPES = {"i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8"}
"""Types of plotly's packed arrays."""
FORMULA = tuple("=+-@＝＋－＠")
"""Characters that start a formula in a spreadsheet, the wide forms too."""


def unpacked(values: Any) -> list[Any]:
    """A list of numbers or texts, nested where there are rows, from a list or from one of plotly's typed arrays.

    Raises:
        ValueError: it is packed in a way that plotly has not.
    """
    if not isinstance(values, Mapping):
        return [list(row) if isinstance(row, list | tuple) else row for row in values]
    if values["dtype"] not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(sorted(DTYPES))}; got {values['dtype']!r}")
    array = np.frombuffer(base64.b64decode(values["bdata"]), dtype=f"<{values['dtype']}")
    shape = [int(size) for size in str(values.get("shape", len(array))).split(",")]
    rows = array.reshape(shape)
    return [list(row) if rows.ndim > 1 else row for row in rows]


def cell(value: object) -> object:
    """A number with every digit that its type has, a text that no spreadsheet takes for a formula, "" for None."""
    return guarded(value) if isinstance(value, str) else "" if value is None else str(value)


def guarded(text: str) -> str:
    """A text with an apostrophe before it where a spreadsheet would compute it."""
    return f"'{text}" if text[:1] in ("\t", "\r", "\n") or text.lstrip().startswith(FORMULA) else text


def plain(markup: str) -> str:
    """A name or title of a figure without its tags: W_Q, 2^(−l/2)."""
    markup = re.sub("<br ?/?>", " ", markup.replace("<sub>", "_").replace("<sup>", "^"))
    return html.unescape(re.sub(r"</?(sub|sup|b|i|em)>", "", markup))
