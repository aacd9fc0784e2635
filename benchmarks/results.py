"""Results of benchmarks as lines, each with its verdict."""

from __future__ import annotations

BOUNDED = {
    "ratio": "limit",
    "seconds": "limit_seconds",
    "megabytes": "limit_megabytes",
    "errors": "limit_errors",
}
"""A figure and the one that it should stay below."""
LEAST = {"updates_a_second": "least_updates_a_second"}
"""A figure and the one that it should reach."""


def verdict(figures: dict[str, float]) -> str:
    """Whether what has a limit keeps it."""
    bounds = [
        (figures[name], figures[limit])
        for name, limit in BOUNDED.items()
        if {name, limit} <= figures.keys()
    ]
    least = [
        (figures[name], figures[limit])
        for name, limit in LEAST.items()
        if {name, limit} <= figures.keys()
    ]
    if not bounds and not least:
        return ""
    if any(value < limit for value, limit in least):
        return "TOO LITTLE"
    return "ok" if all(value <= limit for value, limit in bounds) else "TOO MUCH"


def table(results: dict[str, dict[str, float]]) -> str:
    """One line a benchmark: its name, its figures, its verdict."""
    width = max(map(len, results))
    lines = []
    for name, figures in results.items():
        shown = "  ".join(f"{key.replace('_', ' ')} {value:.3g}" for key, value in figures.items())
        lines.append(f"{name:{width}}  {shown}  {verdict(figures)}".rstrip())
    return "\n".join(lines)
