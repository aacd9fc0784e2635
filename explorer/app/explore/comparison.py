"""Pinned designs beside the current one: the buttons of their chips, their marks, and the table
that compares them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import traitlets

from explorer.app.explore.pins import NOW, Known, Pins
from explorer.app.roster import Entry, RosterBox, RosterError, legend_entry, quoted, swatch
from explorer.app.sentences import choice_words, marks, value_words
from explorer.app.widgets.controls import describe
from explorer.app.widgets.parts import Part, together
from explorer.app.widgets.verdict import Diagnose
from explorer.config import Config, differences
from explorer.ends import ENDS, Ending, endings
from explorer.figures.palette import LegendEntry
from explorer.numbers import number
from explorer.profile import Profile

SHOWN = (
    "second_moment",
    "activation_gradient",
    "attention_entropy_normalized",
    "token_correlation",
    "parameter_gradient",
)
"""The end values: those of the page's charts."""
WAITS = "not measured yet"
Cell = dict[str, str]


class Column(NamedTuple):
    """A column of the table: a design, and what is known of it."""

    design: LegendEntry
    config: Config
    known: Known


class Compare(Part):
    """The table, in a fold; not shown while there are no pins.

    Traits:
        columns: `[{name, when, hue, symbol, dash}]`.
        groups: `[{title, rows: [{label, symbol, cells: [{text, more, theory, where,
            severity}]}]}]`, a cell a column; what a cell has not is empty.
    """

    view = "compare"
    columns = traitlets.List(traitlets.Dict()).tag(sync=True)
    groups = traitlets.List(traitlets.Dict()).tag(sync=True)

    def show(self, columns: Sequence[Column], when: str, diagnose: Diagnose | None) -> None:
        """Fills the table.

        Args:
            columns: the design of the controls, and the pins.
            when: state of the first: "now", or "before" while the next one is measured.
            diagnose: findings of a measured profile, or None.
        """
        heads = [
            {"name": column.design.label, "when": "" if number else when, **swatch(column.design)}
            for number, column in enumerate(columns)
        ]
        with together():
            self.columns, self.groups = heads, groups(columns, diagnose) if columns else []


def groups(columns: Sequence[Column], diagnose: Diagnose | None) -> list[dict[str, Any]]:
    """The rows of the table: differences, end values, verdicts. A group without rows is left
    out."""
    tables = [
        {"title": "Choices that differ", "rows": _choices([column.config for column in columns])},
        {"title": "After the last layer", "rows": _values(columns)},
        {
            "title": "Verdict",
            "rows": [
                {
                    "label": "Verdict",
                    "symbol": "",
                    "cells": [_verdict(column.known, diagnose) for column in columns],
                }
            ]
            if diagnose
            else [],
        },
    ]
    return [group for group in tables if group["rows"]]


def cell(text: str, more: str = "", theory: str = "", where: str = "", severity: str = "") -> Cell:
    """A value in words; standard error, lowest and highest; theory's; its place; a verdict's
    severity, or `none`."""
    return {"text": text, "more": more, "theory": theory, "where": where, "severity": severity}


def _choices(configs: Sequence[Config]) -> list[dict[str, Any]]:
    """Every field that two of the designs differ in and that matters in one of them."""
    unused = [config.unmet for config in configs]
    apart = {
        name
        for name in Config.specs()
        if len({getattr(config, name) for config in configs}) > 1
        and not all(name in fields for fields in unused)
    }
    return [
        {
            "label": spec.about.label,
            "symbol": describe(spec)["symbol"],
            "cells": [
                cell("not used", severity="none")
                if name in fields
                else cell(value_words(config, name))
                for config, fields in zip(configs, unused, strict=True)
            ],
        }
        for name, spec in Config.specs().items()
        if name in apart
    ]


def _values(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """The end values; a statistic that no design has is left out."""
    measured, predicted = (
        [endings(profile) if profile else {} for profile in profiles]
        for profiles in (
            [column.known.measured for column in columns],
            [column.known.predicted for column in columns],
        )
    )
    return [
        {
            "label": ENDS[name].title,
            "symbol": ENDS[name].symbol,
            "cells": [
                _value(column.known, dots.get(name), line.get(name))
                for column, dots, line in zip(columns, measured, predicted, strict=True)
            ],
        }
        for name in SHOWN
        if any(name in values for values in (*measured, *predicted))
    ]


def _value(known: Known, measured: Ending | None, predicted: Ending | None) -> Cell:
    theory = (
        ""
        if predicted is None
        else "not covered"
        if predicted.missing
        else number(predicted.middle)
    )
    if measured is None:
        absent = known.measured is not None or (known.predicted is not None and predicted is None)
        return cell("none" if absent else known.trouble or WAITS, theory=theory, severity="none")
    low, high, finite = number(measured.low), number(measured.high), np.isfinite(measured.middle)
    text = number(measured.middle) if finite else f"not finite ({measured.middle:g})"
    error = f"± {number(measured.error, 2)}, " if np.isfinite(measured.error) else ""
    spread = f"{error}{low} to {high}" if finite and low != high else ""
    return cell(
        text,
        spread,
        theory,
        measured.where if finite and measured.middle else "",
        "" if finite else "bad",
    )


def _verdict(known: Known, diagnose: Diagnose | None) -> Cell:
    """The most serious finding."""
    if known.measured is None or diagnose is None:
        return cell(known.trouble or WAITS, severity="none")
    finding = diagnose(known.measured)[0]
    return cell(finding.meaning, severity=finding.severity)


class Comparison:
    """The pins of a panel.

    Args:
        current: gives the design of the controls.
        known: gives what is known of a design.
        load: sets the controls, given every field.
        redraw: draws every chart anew; called when pins have changed.
        diagnose: findings of a measured profile, or None.
    """

    def __init__(
        self,
        current: Callable[[], Config],
        known: Callable[[Config], Known],
        load: Callable[[Mapping[str, object]], None],
        redraw: Callable[[], None],
        diagnose: Diagnose | None = None,
    ) -> None:
        self.pins = Pins()
        self.box = RosterBox(
            self.obey,
            noun="pinned design",
            heading="Designs on the charts",
            verbs=["hide", "load", "remove"],
        )
        self.table = Compare()
        self._current, self._known, self._load, self._redraw, self._diagnose = (
            current,
            known,
            load,
            redraw,
            diagnose,
        )

    def obey(self, message: object) -> None:
        """Handles a click in a browser; messages that make no sense are ignored."""
        try:
            match message:
                case ["load", int() as number] if number in self.pins:
                    self._load(self.pins[number].config.model_dump())
                    said = f"The controls show {quoted(self.pins[number].name)}."
                case ["pin"]:
                    pin = self.pins.add(Entry(self._current()))
                    said = f"Pinned as {quoted(pin.name)}: it stays on the charts while the controls move on."
                    self._changed()
                case _:
                    said = self.pins.obey(message)
                    self._changed()
        except RosterError as error:
            said = str(error)
        self.box.answer(said)

    def _changed(self) -> None:
        self.follow()
        self._redraw()

    def move(self) -> None:
        """Removes the message about the last click, after the controls have moved."""
        self.follow()
        self.box.said = ""

    def follow(self) -> None:
        """Updates the legend, after pins have changed or one was measured."""
        config = self._current()
        with together():
            self.box.now = {
                "name": self.pins.name_for(config),
                **swatch(LegendEntry(NOW, config, "")),
            }
            self.box.show(self.pins, lambda pin: about_pin(pin, config, self._known(pin.config)))

    def drawn(
        self, now: Sequence[Profile], secret: str = ""
    ) -> tuple[list[Profile], list[LegendEntry]]:
        """Everything to be drawn, and the design of each profile; the current design comes last and
        so lies on top.

        A visible pin of the current config is not drawn a second time.

        Args:
            now: the profiles of the current design.
            secret: the reason why the table shows nothing of it, if there is one.
        """
        config, designs = now[0].config if now else None, self.pins.designs()
        pinned = [
            (designs[pin.number], profile)
            for pin in self.pins
            if pin.visible and pin.config != config
            for profile in self._known(pin.config).profiles
        ]
        when = "now" if config == self._current() else "before"
        name = f"{self.pins.name_for(config)} ({when})" if pinned and config else ""
        rows = [*pinned, *((LegendEntry(NOW, config, name), profile) for profile in now)]
        profiles = [profile for _, profile in rows]
        self.box.marks = marks(profiles)
        self.table.show(self._columns(now, secret), when, self._diagnose)
        return profiles, [design for design, _ in rows]

    def _columns(self, now: Sequence[Profile], secret: str) -> list[Column]:
        """The columns of the table: the design that is drawn as the current one, then the pins;
        none without pins."""
        config = (now[0].config if now else None) or self._current()
        known = {
            profile.origin: profile
            for profile in now
            if profile.config == config and not profile.partial
        }
        first = Column(
            LegendEntry(NOW, config, self.pins.name_for(config)),
            config,
            Known(known.get("predicted"), known.get("measured"), secret),
        )
        designs, pins = self.pins.designs(), [pin for pin in self.pins if pin.visible]
        return (
            [
                first,
                *(
                    Column(designs[pin.number], pin.config, self._known(pin.config))
                    for pin in pins
                    if pin.config != config
                ),
            ]
            if pins
            else []
        )

    def legend(self, whose: Sequence[LegendEntry]) -> list[dict[str, str]]:
        """The designs that are drawn, each once, for a picture that is saved."""
        return [
            legend_entry(design, design.label or self.pins.name_for(design.config), design.config)
            for design in dict.fromkeys(whose)
            if design.config
        ]


def about_pin(pin: Entry, config: Config, known: Known) -> str:
    """The line of a chip: differences from the current design, and whether it still waits."""
    waits = known.trouble or ("" if known.measured else WAITS)
    apart = choice_words(pin.config, differences(pin.config, config))
    return " · ".join(filter(None, (apart or "same as now", waits)))
