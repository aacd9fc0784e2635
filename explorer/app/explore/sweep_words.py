"""A sweep in words, and as a record. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from explorer.app.design_names import lowered
from explorer.app.explore.sweep_plan import sweepable
from explorer.display import shown
from explorer.ends import ENDS, End
from explorer.fields import Spec
from explorer.figures.across import Point, Swept

MOST_VALUES = 4
"""Values that are named; further ones are counted."""


def caption(end: End, current: Swept) -> str:
    """How to read the chart, and what theory has to say on its line."""
    noted = dict.fromkeys(point.ending.note for point in current.line if point.ending and point.ending.note)
    theory = f" Theory: {next(iter(noted))}." if noted else ""
    return f"{end.words} A click on a point sets the slider.{theory}"


def progress(current: Swept) -> str:
    """How many dots are there; empty once all are."""
    done = sum(bool(point.ending or point.reason) for point in current.dots)
    return f"Measured {done} of {len(current.dots)}" if done < len(current.dots) else ""


def notes(spec: Spec, current: Swept) -> list[str]:
    """Sentences on the values that were left out."""
    refused = [point for point in current.line if point.reason]
    values = {point.value for point in refused}
    missing = [point for point in current.dots if point.reason and point.value not in values]
    said = [_said("Left out at", refused)] if refused else []
    said += [_said("Not measured at", [point for point in missing if point.reason == reason])
             for reason in dict.fromkeys(point.reason for point in missing)]
    return [sentence.replace(" at ", f" at {lowered(spec.about.label)} ", 1) for sentence in said]


def understood(record: object) -> tuple[dict[str, Any], list[str]]:
    """What a record of a sweep says, as far as it is offered, and a sentence for each other part."""
    if not isinstance(record, Mapping):
        return {}, [f"sweep must be an object; got {shown(record)}"]
    offered: dict[str, Sequence[str]] = {"field": [*sweepable()], "statistic": [*ENDS]}
    good = {name: value for name, value in record.items() if value in offered.get(name, ())}
    return good, [
        f"sweep: {name} must be one of {', '.join(offered[name])}; got {shown(value)}" if name in offered
        else f"sweep: {shown(name)} is not understood; got {shown(value)}"
        for name, value in record.items() if name not in good]


def _said(start: str, points: Sequence[Point]) -> str:
    named = ", ".join(f"{point.value:g}" for point in points[:MOST_VALUES])
    more = len(points) - MOST_VALUES
    return f"{start} {named}{f' and {more} more' if more > 0 else ''}: {points[0].reason}."
