"""Standings of a race: a table, with the lines that contenders write, and a verdict in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import traitlets

from explorer.app.roster import swatch
from explorer.app.widgets.parts import Part, together
from explorer.figures.palette import LegendEntry
from explorer.numbers import number
from explorer_race.history import Line, Outcome
from explorer_race.tasks import Levels

COLUMNS: tuple[dict[str, object], ...] = (
    {"text": "Contender"},
    {"text": "Held-out loss", "number": True},
    {"text": "Below unigram from", "number": True},
    {"text": "Diverged", "out": True},
    {"text": "Gradient first / last layer"},
)
"""Headings, whether a column is one of numbers, and whether it says why a contender is out."""
NO_LINES: Mapping[str, Line] = MappingProxyType({})
A_TENTH = 0.1
"""Share of the distance from the unigram's level to the bigram's; nearer to the unigram's, little
is learned."""


class Standings(Part):
    """A table.

    Traits:
        title, words: the text above it.
        columns: see `COLUMNS`.
        rows: `[{name, hue, symbol, dash, cells, out, given, written}]`: the texts of the other
            columns, whether it diverged, and what it wrote, after which words.
        stale: it is of an earlier race.
    """

    view = "standings"
    title = traitlets.Unicode().tag(sync=True)
    words = traitlets.Unicode().tag(sync=True)
    columns = traitlets.List(traitlets.Dict(), list(COLUMNS)).tag(sync=True)
    rows = traitlets.List(traitlets.Dict()).tag(sync=True)
    stale = traitlets.Bool(False).tag(sync=True)

    def show(
        self,
        outcomes: Sequence[Outcome],
        designs: Sequence[LegendEntry],
        levels: Levels,
        *,
        final: bool,
        lines: Mapping[str, Line] = NO_LINES,
    ) -> None:
        """Fills the table; the best first once the race is over."""
        scale = f"Nats a character; unigram {levels.unigram:.2f}, bigram {levels.bigram:.2f}."
        marks = {design.label: design for design in designs}
        rows = [
            row(outcome, marks[outcome.name], final=final) | wrote(lines.get(outcome.name))
            for outcome in (ranked(outcomes) if final else outcomes)
        ]
        with together():
            self.title, self.words = (
                ("Verdict", f"Best first. {scale}")
                if final
                else (f"At step {most_steps(outcomes):,}", scale)
            )
            self.rows = rows


def wrote(line: Line | None) -> dict[str, str]:
    """A contender's text and the text it continues, for the browser; both empty before it has
    written."""
    return {"given": line.given, "written": line.written} if line else {"given": "", "written": ""}


def most_steps(outcomes: Sequence[Outcome]) -> int:
    """Steps of the contender with the most."""
    return max(outcome.steps for outcome in outcomes)


def ranked(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Outcomes, the best first; those that are out last, by their steps."""

    def key(outcome: Outcome) -> tuple[bool, float]:
        out = not math.isfinite(outcome.final_loss)
        return out, -outcome.steps if out else outcome.final_loss

    return sorted(outcomes, key=key)


def row(outcome: Outcome, design: LegendEntry, *, final: bool) -> dict[str, Any]:
    """One contender, as the browser draws it."""
    never = "never" if final or outcome.diverged else "not yet"
    return {
        "name": outcome.name,
        "out": outcome.diverged,
        **swatch(design),
        "cells": [
            loss(outcome.final_loss),
            never if outcome.below_unigram is None else f"step {outcome.below_unigram:,}",
            divergence(outcome) or "no",
            f"{ratio(outcome.ratio_first)} → {ratio(outcome.ratio_last)}",
        ],
    }


def loss(nats: float) -> str:
    """A loss to three decimals, or a short form where it is large; "none" for a contender that is
    out."""
    return "none" if math.isnan(nats) else f"{nats:.3f}" if nats < 100 else number(nats)


def divergence(outcome: Outcome) -> str:
    """Step and reason of a contender's divergence; empty if it did not diverge."""
    if outcome.retired_at is not None:
        return f"at step {outcome.retired_at:,}: {outcome.reason}"
    return (
        ""
        if outcome.worse_from is None
        else f"from step {outcome.worse_from:,}: worse than a uniform guess"
    )


def ratio(value: float) -> str:
    """A ratio to two digits; none where no layer had a gradient."""
    return "none" if math.isnan(value) else number(value, 2)


def judged(outcomes: Sequence[Outcome], levels: Levels) -> dict[str, str]:
    """The verdict on a race in words: the best, those that are out, and those that learned little
    or nothing."""
    best = ranked(outcomes)[0]
    out = [outcome.name for outcome in outcomes if outcome.diverged]
    near = A_TENTH * (levels.unigram - levels.bigram)
    above = {
        outcome.name: outcome.final_loss - levels.unigram
        for outcome in outcomes
        if not outcome.diverged
    }
    stuck = [name for name, nats in above.items() if -near <= nats < near]
    lost = [name for name, nats in above.items() if not nats < near]
    notes = [
        *([f"Diverged: {listed(out)}."] if out else []),
        *([f"Still above the unigram loss, nothing learned yet: {listed(lost)}."] if lost else []),
        *([f"Near the unigram loss, little learned: {listed(stuck)}."] if stuck else []),
    ]
    if len(out) == len(outcomes):
        meaning, notes = (
            "Every contender diverged.",
            ["Lower the learning rate, warm up, or cut the gradient."],
        )
    else:
        verb = "is best" if len(outcomes) > 1 else "stands"
        meaning = f"“{best.name}” {verb} at {best.final_loss:.2f} nats a character after {best.steps:,} steps."
    severity = "bad" if len(out) == len(outcomes) else "warning" if notes else "good"
    evidence = " ".join(notes) or f"All are well below the unigram level of {levels.unigram:.2f}."
    return {"severity": severity, "meaning": meaning, "evidence": evidence, "remedy": ""}


def listed(names: Sequence[str]) -> str:
    """Names within a sentence."""
    return " · ".join(f"“{name}”" for name in names)
