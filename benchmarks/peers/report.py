"""The table, as text for a terminal and for `docs/peers.md`."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from benchmarks.peers.kit import STATISTICS
from benchmarks.peers.rounds import Found, spread


def cell(found: Found | None) -> str:
    """Ratio and its quartiles at a size; or that there is none."""
    if found is None or "failed" in found:
        return "—"
    low, middle, high = spread(found["ratios"])
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


def gives(record: Found) -> str:
    """How many of the three statistics, or that one of them is wrong."""
    read = [found for found in record["sizes"].values() if "failed" not in found]
    if not read or record["function"] == "bare" or record["module"] == "bare":
        return ""
    wrong = {
        name: error
        for found in read
        for name, error in found["deviations"].items()
        if error > found["tolerance"]
    }
    if wrong:
        return "DISAGREES: " + ", ".join(f"{name} by {error:.1e}" for name, error in wrong.items())
    return f"{len(read[0]['deviations'])} of {len(STATISTICS)}"


def reason(record: Found) -> str:
    """Why a row, or one of its sizes, has no figures."""
    at = [
        f"{size}: {found['failed']}" for size, found in record["sizes"].items() if "failed" in found
    ]
    return record.get("failed", "; ".join(at))


def row(record: Found, sizes: Sequence[str]) -> list[str]:
    """One line of the table, as cells."""
    memory = [found.get("memory_mb") for found in record["sizes"].values()]
    name = " ".join(filter(None, (record["name"], record.get("version", ""))))
    figures = [cell(record["sizes"].get(size)) for size in sizes]
    return [
        name,
        *figures,
        f"{memory[-1]:.0f}" if memory and memory[-1] is not None else "—",
        gives(record),
    ]


def table(records: Sequence[Found], sizes: Sequence[str]) -> str:
    """All rows in Markdown, aligned; notes and reasons under it."""
    head = ["", *sizes, "MB", "statistics"]
    cells = [head, *(row(record, sizes) for record in records)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    padded = [
        [text.ljust(width) for text, width in zip(line, widths, strict=True)] for line in cells
    ]
    drawn = ["| " + " | ".join(line) + " |" for line in padded]
    drawn.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    notes = [f"- {record['name']}: {record['note']}" for record in records]
    failed = [
        f"- **{record['name']} was not measured**: {reason(record)}"
        for record in records
        if reason(record)
    ]
    return "\n".join([*drawn, "", *notes, *failed])


def machine() -> dict[str, str | int | None]:
    """What the figures were measured on."""
    return {
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "torch": version("torch"),
    }


def page(result: dict[str, Any]) -> str:
    """The whole of `docs/peers.md`."""
    machine = ", ".join(f"{key} {value}" for key, value in result["machine"].items())
    return "\n".join(
        (
            "# Reading three statistics of one Transformer",
            "",
            "The second moment of the residual stream, the entropy of attention, and the mean squared gradient by the",
            "stream, after every block: of one model of plain torch modules, Pre-LN, with the same weights and the",
            "same input, by this project and by others. Figures are times of a forward and backward pass over the",
            f"same pass with nothing read: median and quartiles of {result['rounds']} rounds in which all rows took",
            "turns, on one thread; what is slow took fewer. Sizes are layers × width. *MB* is what a pass at the last",
            "size adds at its peak to a process that has made one before. Every value was compared with a",
            "computation in float64, to the roundings of float32. Where attention is a fused kernel no hook sees its",
            "pattern; ex.probe and ex.watch read its entropy from queries and keys.",
            "",
            table(result["rows"], result["sizes"]),
            "",
            "`make peers` makes this table and [`peers.json`](peers.json), which has every round.",
            f"{result['date']}: {machine}.",
            "",
        )
    )
