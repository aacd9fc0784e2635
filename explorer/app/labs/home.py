"""Downloads of a lab: its settings as Python, its numbers, its sources."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Any

from explorer.app.explore.home import PYTHON, TEXT
from explorer.app.widgets.chart import Chart
from explorer.app.widgets.takehome import File
from explorer.choices import Choices
from explorer.export import snippet
from explorer.export.bibtex import bibliography
from explorer.figures.data import table, untagged
from explorer.labs.lab import Lab


def files(lab: Lab, settings: Callable[[], Choices], written: Callable[[], str]) -> Iterator[File]:
    """The files of a lab's panel.

    Args:
        settings: gives those of the controls.
        written: gives the numbers, as JSON.
    """
    yield File("Python", "A script that computes this lab with these settings.", f"lab_{lab.name}.py", PYTHON,
               lambda: snippet.lab(settings()))
    yield File("Numbers (JSON)", "Settings, verdict, and the numbers of every chart.", f"lab_{lab.name}.json",
               "application/json", written, shown=False)
    yield File("BibTeX", "This tool, the source of the claim, and those of the settings.", f"lab_{lab.name}.bib", TEXT,
               lambda: bibliography(settings(), sources=[lab.source], year=date.today().year))


def numbers(lab: Lab, settings: Choices, result: Any, charts: Mapping[str, Chart]) -> str:
    """The charts' numbers as JSON; nan and infinities are strings, since JSON has no such numbers."""
    severity, finding, evidence = lab.verdict(result)
    tables = []
    for chart in charts.values():
        names, rows = table(chart.figure)
        tables.append({"title": untagged(chart.title), "caption": untagged(chart.caption), "columns": names,
                       "rows": [[_value(value) for value in row] for row in rows]})
    return json.dumps({
        "lab": lab.name, "settings": settings.model_dump(),
        "verdict": {"severity": severity, "finding": finding, "evidence": evidence}, "charts": tables,
    }, allow_nan=False, ensure_ascii=False, indent=1)


def _value(value: Any) -> object:
    if value is None or isinstance(value, str):
        return value
    number = float(str(value))  # of the digits that its type has
    return number if math.isfinite(number) else str(number)
