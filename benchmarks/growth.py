"""How time and memory grow: one axis at a time, each point in a process of its own, beside what
must be expected.

    python -m benchmarks.growth  # every work of `benchmarks.works`: writes docs/growth.csv
    python -m benchmarks.growth measure "link"  # these alone: replaces their rows in it
    python -m benchmarks.growth --table  # what is written there, as a table

An exponent is the slope of ln y over ln x at the largest four points, by least squares. Its error
is the larger of what the points' scatter around the line and what the spread of repeated runs make
of it. "Faster than it must" is an exponent above the expected one by more than that error's 97.5 %
quantile (Student, two degrees of freedom)."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from benchmarks.apart import apart, points
from benchmarks.works import WORKS

OUTPUT = Path(__file__).parent.parent / "docs" / "growth.csv"
COLUMNS = (
    "work",
    "axis",
    "from",
    "to",
    "quantity",
    "smallest",
    "largest",
    "exponent",
    "error",
    "expected",
    "verdict",
)
FITTED = 4


def fit(
    x: Sequence[float], y: Sequence[float], spread: Sequence[float] = ()
) -> tuple[float, float]:
    """Slope of ln y over ln x, and its error; `spread` is the relative error of each y."""
    across, up = np.log(x), np.log(np.maximum(y, 1e-12))
    off = across - across.mean()
    slope = float(off @ up / (off @ off))
    left = up - up.mean() - slope * off
    scatter = math.sqrt(float(left @ left) / max(len(up) - 2, 1) / float(off @ off))
    noise = (
        math.sqrt(float(np.square(off) @ np.square(spread))) / float(off @ off)
        if len(spread)
        else 0.0
    )
    return slope, max(scatter, noise)


def verdict(slope: float, error: float, expected: float) -> str:
    """Whether an exponent is larger than the expected one beyond its error."""
    fast = slope - expected > student.ppf(0.975, FITTED - 2) * error
    return "faster than it must" if fast else "as expected"


def grown(work: str, axis: str) -> list[dict[str, object]]:
    """Rows of the table: time, or what is counted, and memory."""
    given = points(work, axis)
    x = [value for value, _ in given]
    found = [apart(work, given[0][1], configs) for _, configs in given]
    spread = [(one.middle - one.least) / one.least for one in found]
    rows = []
    quantities = {
        WORKS[work].unit: [one.least for one in found],
        "memory bytes": [one.bytes for one in found],
    }
    for (quantity, y), expected in zip(quantities.items(), WORKS[work].axes[axis], strict=True):
        noise = spread[-FITTED:] if quantity != "memory bytes" else ()
        slope, error = fit(x[-FITTED:], y[-FITTED:], noise)
        rows.append(
            dict(
                zip(
                    COLUMNS,
                    (
                        work,
                        axis,
                        x[0],
                        x[-1],
                        quantity,
                        f"{y[0]:.3g}",
                        f"{y[-1]:.3g}",
                        f"{slope:.2f}",
                        f"{error:.2f}",
                        expected,
                        verdict(slope, error, expected),
                    ),
                    strict=True,
                )
            )
        )
    return rows if WORKS[work].unit == "seconds" else rows[:1]


def read() -> list[dict[str, object]]:
    """The rows that were written."""
    with OUTPUT.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def show(rows: Sequence[dict[str, object]]) -> None:
    """Rows as a table."""
    for row in rows:
        print(
            "{work:20} {axis:8} {from:>4} to {to:>4} {quantity:13} {smallest:>9} to {largest:>9}   "
            "{exponent:>5} ± {error:>4} for {expected:<3}  {verdict}".format(**row),
            flush=True,
        )


def keep(new: Sequence[dict[str, object]]) -> None:
    """Writes rows in the places of those that they replace."""
    rows = {
        (row["work"], row["axis"], row["quantity"]): row
        for row in [*(read() if OUTPUT.exists() else []), *new]
    }
    with OUTPUT.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(sorted(rows.values(), key=lambda row: [*WORKS].index(str(row["work"]))))


def main() -> None:
    """Measures what is named, or all."""
    if sys.argv[1:] == ["--table"]:
        show(read())
        return
    for work in sys.argv[1:] or WORKS:
        for axis in WORKS[work].axes:
            new = grown(work, axis)
            show(new)
            keep(new)


if __name__ == "__main__":
    main()
