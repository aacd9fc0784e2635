"""`Compare`: a table of the pinned designs and the current one: their differences, end values and verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import traitlets

from explorer.app.widgets.controls import describe
from explorer.app.widgets.roster_box import swatch
from explorer.app.widgets.runtime import PageWidget, view
from explorer.app.widgets.wording import idle, in_words
from explorer.config import Config
from explorer.diagnosis import Finding
from explorer.ends import ENDS, Ending, endings
from explorer.figures.palette import Design
from explorer.numbers import number
from explorer.profile import Profile

SHOWN = ("second_moment", "activation_gradient", "attention_entropy_normalized", "token_correlation",
         "parameter_gradient")
"""The end values: those of the page's charts."""
WAITS = "not measured yet"
Cell = dict[str, str]
Diagnose = Callable[[Profile], Sequence[Finding]]


class Column(NamedTuple):
    """A design, and its profiles so far."""

    design: Design
    config: Config
    name: str
    when: str = ""
    """State of the controls' design: "now", or "before" while the next one is measured."""
    predicted: Profile | None = None
    measured: Profile | None = None
    trouble: str = ""
    """The reason why it cannot be measured."""


class Compare(PageWidget):
    """The table, in a fold; not shown while there are no pins.

    Traits:
        columns: `[{name, when, hue, symbol, dash}]`.
        groups: `[{title, rows: [{label, symbol, cells: [{text, more, theory, where, severity}]}]}]`, a cell a column;
            what a cell has not is empty.
    """

    _esm = view("compare")
    columns = traitlets.List(traitlets.Dict()).tag(sync=True)
    groups = traitlets.List(traitlets.Dict()).tag(sync=True)

    def show(self, columns: Sequence[Column], diagnose: Diagnose | None) -> None:
        """Fills the table. Callers must hold the panel's lock."""
        heads = [{"name": column.name, "when": column.when, **swatch(column.design)} for column in columns]
        with self.hold_sync():
            self.columns, self.groups = heads, groups(columns, diagnose) if columns else []


def groups(columns: Sequence[Column], diagnose: Diagnose | None) -> list[dict[str, Any]]:
    """The rows of the table: differences, end values, verdicts. A group without rows is left out."""
    tables = [
        {"title": "Choices that differ", "rows": _choices([column.config for column in columns])},
        {"title": "After the last layer", "rows": _values(columns)},
        {"title": "Verdict", "rows": [{"label": "Verdict", "symbol": "", "cells": [
            _verdict(column, diagnose) for column in columns]}] if diagnose else []},
    ]
    return [group for group in tables if group["rows"]]


def cell(text: str, more: str = "", theory: str = "", where: str = "", severity: str = "") -> Cell:
    """A value in words; standard error, lowest and highest; theory's; its place; a verdict's severity, or `none`."""
    return {"text": text, "more": more, "theory": theory, "where": where, "severity": severity}


def _choices(configs: Sequence[Config]) -> list[dict[str, Any]]:
    """Every field that two of the designs differ in and that matters in one of them."""
    unused = [idle(config) for config in configs]
    apart = {name for name in Config.specs() if len({getattr(config, name) for config in configs}) > 1
             and not all(name in fields for fields in unused)}
    return [
        {"label": spec.about.label, "symbol": describe(spec)["symbol"], "cells": [
            cell("not used", severity="none") if name in fields else cell(in_words(getattr(config, name)))
            for config, fields in zip(configs, unused, strict=True)]}
        for name, spec in Config.specs().items() if name in apart
    ]


def _values(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """The end values; a statistic that no design has is left out."""
    measured, predicted = ([endings(profile) if profile else {} for profile in profiles] for profiles in (
        [column.measured for column in columns], [column.predicted for column in columns]))
    return [
        {"label": ENDS[name].title, "symbol": ENDS[name].symbol, "cells": [
            _value(column, dots.get(name), line.get(name))
            for column, dots, line in zip(columns, measured, predicted, strict=True)]}
        for name in SHOWN if any(name in values for values in (*measured, *predicted))
    ]


def _value(column: Column, measured: Ending | None, predicted: Ending | None) -> Cell:
    theory = "" if predicted is None else "not covered" if predicted.missing else number(predicted.middle)
    if measured is None:
        absent = column.measured is not None or (column.predicted is not None and predicted is None)
        return cell("none" if absent else column.trouble or WAITS, theory=theory, severity="none")
    low, high, finite = number(measured.low), number(measured.high), np.isfinite(measured.middle)
    text = number(measured.middle) if finite else f"not finite ({measured.middle:g})"
    error = f"± {number(measured.error, 2)}, " if np.isfinite(measured.error) else ""
    spread = f"{error}{low} to {high}" if finite and low != high else ""
    return cell(text, spread, theory, measured.where if finite and measured.middle else "", "" if finite else "bad")


def _verdict(column: Column, diagnose: Diagnose | None) -> Cell:
    """The most serious finding."""
    if column.measured is None or diagnose is None:
        return cell(column.trouble or WAITS, severity="none")
    finding = diagnose(column.measured)[0]
    return cell(finding.meaning, severity=finding.severity)
