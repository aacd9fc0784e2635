"""`Finding`: one thing to know about a profile, and a list of them as a notebook shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

from explorer.display import Copied, table

Severity = Literal["good", "warning", "bad"]
ORDER: tuple[Severity, ...] = ("bad", "warning", "good")

TRIAL = "Adam at rate 0.003, 200 steps"
"""The trainings that the severities speak of: `docs/training.csv`, models of width 32 with 6 to 48 layers on English
text. Bad: most did not leave the unigram level by 0.3 nats, with 100 steps of warm-up or without. Warning: only with
it. `docs/trainability.md` has how right this is of random designs."""


LONGEST = 14
"""Words of a finding's sentence."""


class Quantity(NamedTuple):
    """A number that the rules weigh, in words, beside the range in which models trained."""

    name: str
    value: str
    limit: str


@dataclass(frozen=True)
class Finding(Copied):
    """One thing to know about a profile.

    Args:
        severity: good; warning (trains with warm-up only, or a part is unlike its siblings); bad (few like it train).
            See `TRIAL`.
        meaning: one sentence of at most 14 words, with the limit where there is one.
        evidence: where the finding stands and what is known of models like it; empty where `numbers` say all.
        remedy: the change in words, short enough for a button; empty where there is none to offer.
        config_change: the same change as fields of `Config`, for a model of ours.
        code: the same change as a line of torch, for any other; names stand for those of the model.
        numbers: of a verdict's first finding, the signal's numbers beside their limits.
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
        numbers = "; ".join(f"{number.name}: {number.value} (limit: {number.limit})" for number in self.numbers)
        return " ".join(filter(None, (self.evidence, numbers and f"{numbers}.")))

    def __str__(self) -> str:
        line = f"{self.severity}: {self.meaning} {self.details}".strip()
        return line + "".join(f"\n  {part}" for part in (self.remedy, self.code) if part)


class Findings(list[Finding]):
    """Findings, most serious first."""

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    def _repr_html_(self) -> str:
        header = ("", "Finding", "Evidence", "Remedy", "In torch")
        return table("Findings", header, [
            (finding.severity, finding.meaning, finding.details, finding.remedy, finding.code) for finding in self])
