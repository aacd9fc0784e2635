"""`Finding`: one thing to know about a profile, a list of them as a notebook shows it, and the
sentences of both.

The sentences stand in `verdicts.toml`, a table for each rule. A rule names them and gives their
placeholders' values."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from explorer.display import Copied, table
from explorer.numbers import filled
from explorer.translation import sentences, translated

Severity = Literal["good", "warning", "bad"]
"""Severities speak of the trainings in `docs/training.csv`: models of width 32 with 6 to 48 layers
on English text, Adam at rate 0.003, 200 steps. Bad: most did not leave the unigram level by 0.3
nats, with 100 steps of warm-up or without. Warning: only with it. `docs/trainability.md` says how
right this is of random designs."""
ORDER: tuple[Severity, ...] = ("bad", "warning", "good")
LONGEST = 14
"""Words of a finding's sentence."""
VERDICTS: Mapping[str, Any] = tomllib.loads(
    Path(__file__).with_name("verdicts.toml").read_text(encoding="utf-8")
)
"""The tables of `verdicts.toml`."""


class Quantity(NamedTuple):
    """A number that the rules weigh, in words, beside the range in which models trained."""

    name: str
    value: str
    limit: str


class Remedy(NamedTuple):
    """The change that a finding offers; empty where there is none."""

    words: str = ""
    """The change in words, short enough for a button."""
    change: Mapping[str, object] = MappingProxyType({})
    """Fields of `Config`, for a model of ours."""
    code: str = ""
    """A line of torch, for any other."""


NO_REMEDY = Remedy()


@dataclass(frozen=True)
class Finding(Copied):
    """One thing to know about a profile.

    Args:
        severity: good; warning (trains with warm-up only, or a part is unlike its siblings); bad
            (few such models train). See `Severity`.
        meaning: one sentence of at most 14 words, with the limit where there is one.
        evidence: where the finding stands and what is known of models like it; empty where
            `numbers` say all.
        remedy: the change in words, short enough for a button; empty where there is none to offer.
        config_change: the same change as fields of `Config`, for a model of ours.
        code: the same change as a line of torch, for any other; names stand for those of the model.
        numbers: of a verdict's first finding, the signal's numbers beside their limits.

    Example:
        >>> finding = ex.diagnose(ex.predict(ex.Config(n_layers=24, norm_placement="post")))[0]
        >>> finding.severity, finding.remedy, dict(finding.config_change)
        ('bad', 'Put a norm before each branch', {'norm_placement': 'pre'})
    """

    severity: Severity
    meaning: str
    evidence: str
    remedy: str = ""
    config_change: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    code: str = ""
    numbers: tuple[Quantity, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "config_change", MappingProxyType(dict(self.config_change)))

    @property
    def details(self) -> str:
        """Evidence and numbers in one line."""
        numbers = text("phrase", "semicolon").join(
            text("phrase", "quantity", **number._asdict()) for number in self.numbers
        )
        every = text("phrase", "quantities", numbers=numbers) if numbers else ""
        return sentences([self.evidence, every])

    def __str__(self) -> str:
        line = f"{translated(self.severity)}: {sentences([self.meaning, self.details])}"
        return line + "".join(f"\n  {part}" for part in (self.remedy, self.code) if part)


class Findings(list[Finding]):
    """Findings, most serious first."""

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    def _repr_html_(self) -> str:
        header = map(translated, ("", "Finding", "Evidence", "Remedy", "In torch"))
        rows = [
            (
                translated(finding.severity),
                finding.meaning,
                finding.details,
                finding.remedy,
                finding.code,
            )
            for finding in self
        ]
        return table(translated("Findings"), [*header], rows)


def text(rule: str, key: str, /, **values: object) -> str:
    """A sentence of `verdicts.toml` in the language that is spoken, with its placeholders filled;
    see `numbers.filled`."""
    sentence = filled(translated(VERDICTS[rule][key]), **values)
    # in Chinese the name stands behind the whole numeral: 第 3 层（transformer.h.2）
    return re.sub(r" \(([^()]+)\) 层", r" 层（\1）", sentence)


def finding(
    severity: Severity,
    rule: str,
    meaning: str,
    /,
    *evidence: str,
    remedy: Remedy = NO_REMEDY,
    **values: object,
) -> Finding:
    """A finding in the words of a rule's table.

    Args:
        severity: of the finding.
        rule: the name of the table.
        meaning: the key of the finding's sentence.
        evidence: the keys of the evidence's sentences; empty ones are skipped, "other.key" is of
            another table.
        remedy: the change that is offered.
        values: of the placeholders.
    """
    places = [key.split(".") if "." in key else (rule, key) for key in evidence if key]
    proof = sentences(text(*place, **values) for place in places)
    return Finding(severity, text(rule, meaning, **values), proof, *remedy)


def quantity(name: str, /, **values: object) -> Quantity:
    """A number beside its limits, in the words of the table `quantity`."""
    row = VERDICTS["quantity"][name]
    return Quantity(**{key: filled(translated(row[key]), **values) for key in row})
