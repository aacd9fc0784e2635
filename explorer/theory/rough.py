"""`roughness`: by how much a prediction may be off, by what the design has.

`rough.json` has the numbers: rules that `python -m benchmarks.coverage` finds on random designs
that were measured. A rule is a statistic, one or two features of a design with the value from which
on it holds, and the error that one in ten such designs exceeded. What designs without a rule keep
is in the same file, by statistic: its stated error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache, reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from explorer.config import Config
from explorer.design import Design
from explorer.numbers import number
from explorer.schemes.placement import Part
from explorer.sites import STREAM
from explorer.theory.inputs import repeated
from explorer.theory.laws import Rows
from explorer.translation import Note
from explorer.vocabulary import STATISTICS, Array, Key

TABLE = Path(__file__).with_name("rough.json")
LARGEST_FACTOR = 100.0
"""Factor beyond which a note gives no other number."""


class Case(NamedTuple):
    """A design and what theory has of it, from which its features are read."""

    config: Config
    values: Mapping[Key, Array]
    """Predictions, `[1, layer]` and more axes."""
    rows: Rows

    @property
    def design(self) -> Design:
        """The resolved config."""
        return self.config.design


YES = (0.5,)
"""The limit of a feature that is 1 or 0."""


class Feature(NamedTuple):
    """Something of a design on which the size of theory's error hangs."""

    name: str
    value: Callable[[Case], float]
    """A number; of what a design has or has not, 1 or 0."""
    limits: tuple[float, ...] = YES
    """Values from which on a rule may hold."""
    below: bool = False
    """Whether it is below a limit that errors are larger."""
    words: str = ""
    """In a note, where {value} is its number; else its name."""

    def beyond(self, limit: float, value: float) -> bool:
        """Whether a design's number is on the side of a limit where errors are larger."""
        return value < limit if self.below else value > limit


def _has_norms(part: Part) -> Callable[[Case], float]:
    """Whether a norm stands at this place of any sublayer."""
    return lambda case: any(placement.has(part) for placement in case.design.kinds)


def _no_norms(case: Case) -> float:
    """Whether neither norms nor functions in their place stand before or after any branch."""
    design = case.design
    return not design.point and not any(placement.norms for placement in design.kinds)


def _norms_within(case: Case) -> float:
    """Whether attention has a norm on its values, or on what W_O reads."""
    return any(placement.within for placement in case.design.sublayers[::2])


def _growth(case: Case) -> float:
    """Second moment of the stream after the first sum, over that of the input."""
    before, after = (case.values["second_moment", site][0, 0] for site in STREAM[:2])
    return float(after / before)


def _equal_characters(case: Case) -> float:
    """Whether some of a sentence's characters are equal, and others not."""
    return bool(case.design.sentence) and 0 < repeated(case.design.sentence) < 1


def _without_positions(case: Case) -> float:
    """Whether no vector for its position is added to a character."""
    return case.design.reads_text and not case.design.embeds_positions


def _biased_attention(case: Case) -> float:
    """Whether attention has biases, too."""
    biases = case.design.biases
    return "W_O" in biases


def _highest(column: Array) -> float:
    """The largest number; 0 of none."""
    return float(np.nanmax(column, initial=0.0))


def _closest(case: Case) -> float:
    """Smallest 1 − ρ of the keys of any layer."""
    return float(np.nanmin(case.rows.own, initial=1.0))


def _over_cap(column: Array, case: Case) -> float:
    """The largest of some logits' sizes, over their cap; 0 without one."""
    return _highest(column) / case.config.logit_cap if case.config.logit_cap else 0.0


def _under_cap(case: Case) -> float:
    """About how many logits of a sequence are below the cap; infinite without one."""
    beyond = _over_cap(case.rows.total, case)
    return case.config.n_heads * case.config.n_ctx**2 / beyond if beyond else np.inf


OF_STACK = (
    Feature("width", lambda case: case.config.d_model, (24, 48, 96), True, "width {value:.0f}"),
    Feature("depth", lambda case: case.config.n_layers, (12.5, 20, 40), words="{value:.0f} layers"),
    Feature(
        "tokens",
        lambda case: case.config.batch_size * case.config.n_ctx,
        (10, 24, 60),
        True,
        "{value:.0f} tokens in a batch",
    ),
    Feature(
        "growth in the first attention",
        _growth,
        (3, 30, 1e3),
        words="{value:.2g} × the second moment after the first attention",
    ),
    Feature("text", lambda case: case.design.reads_text),
    Feature("next-token loss", lambda case: case.design.predicts_text),
    Feature("tied readout", lambda case: bool(case.design.tied)),
    Feature("one sentence in every sequence", lambda case: bool(case.design.sentence)),
    Feature("equal characters in a sentence", _equal_characters),
    Feature("biases", lambda case: bool(case.design.biases)),
    Feature("MLP of degree above 1", lambda case: case.design.degree > 1),
    Feature("parallel branches", lambda case: case.design.stream.parallel),
    Feature("mixed streams", lambda case: bool(case.design.mix_shapes)),
    Feature("no norms", _no_norms),
    Feature("norms on sums", _has_norms("sum")),
    Feature("norms on branches", _has_norms("output")),
    Feature("norms within attention", _norms_within),
    Feature("functions as norms", lambda case: bool(case.design.point)),
    Feature("no residual stream", lambda case: max(case.design.skips) == 0),
    Feature("copied layers", lambda case: case.design.copied),
)
OF_ATTENTION = (
    Feature(
        "head size", lambda case: case.config.d_head, (6, 12, 24), True, "heads of {value:.0f}"
    ),
    Feature(
        "logit spread",
        lambda case: _highest(case.rows.s),
        (1, 2, 3, 6, 20),
        words="a spread of {value:.2g} of logits",
    ),
    Feature("1 − ρ", _closest, (0.003, 0.01, 0.03, 0.1), True, "1 − ρ down to {value:.1g}"),
    Feature(
        "logits / cap",
        lambda case: _over_cap(case.rows.uncapped, case),
        (0.3, 1, 3, 30),
        words="logits {value:.2g} × their cap",
    ),
    Feature(
        "rows / cap",
        lambda case: _over_cap(case.rows.total, case),
        (0.3, 1, 3, 30),
        words="rows of logits {value:.2g} × their cap",
    ),
    Feature(
        "logits under the cap",
        _under_cap,
        (3, 10, 100),
        True,
        "{value:.2g} uncapped logits in a sequence",
    ),
    Feature("slow turns", lambda case: _highest(case.rows.spread * case.rows.turned**2), (0.35,)),
    Feature("causal mask", lambda case: case.config.causal),
    Feature("gates", lambda case: case.design.gates > 0),
    Feature("sink", lambda case: case.design.sink.logit is not None),
    Feature("value residual", lambda case: case.config.value_residual),
    Feature("residual attention", lambda case: bool(case.design.inherits)),
    Feature("rotary positions", lambda case: case.design.rotates),
    Feature("equal characters as equal tokens", _without_positions),
    Feature("slopes", lambda case: bool(case.design.slopes)),
    Feature("normalized queries and keys", lambda case: case.design.normalizes_heads),
    Feature("few heads of keys", lambda case: case.config.kv_heads < case.config.n_heads),
    Feature("biases of attention", _biased_attention),
)
"""Features that a design without attention does not have."""
FEATURES = {row.name: row for row in (*OF_STACK, *OF_ATTENTION)}
GROUPS = {"W_Q": "W_Q and W_K", "W_K": "W_Q and W_K", "sink": "sink"}
"""Sites whose errors have rules of their own, beside those of the statistic's other sites."""
BY_POSITION = {
    "second_moment_by_position": "second_moment",
    "token_correlation_by_position": "token_correlation",
    "attention_entropy_by_position": "attention_entropy_normalized",
    "attention_entropy": "attention_entropy_normalized",
}
"""Statistics that have the rules of others: of their means, or of what is the same but for a
factor."""


class Rule(NamedTuple):
    """An error that was seen where a design has some features."""

    statistic: str
    of: str
    """The matrices that it is about, one of `GROUPS`; empty of all others."""
    limits: Mapping[str, float]
    """Feature to the value above which the rule holds, or below which, see `Feature.below`."""
    error: float
    """Exceeded by one in ten designs that have the features: a difference of what lies between 0
    and 1, a ratio less one of all else."""
    designs: int
    """How many of those measured have the features."""
    off: int
    """How many of these were off by more than the stated error."""

    def holds(self, numbers: Mapping[str, float]) -> bool:
        """Whether a design has the features."""
        return all(
            FEATURES[name].beyond(limit, numbers[name]) for name, limit in self.limits.items()
        )

    def note(self, numbers: Mapping[str, float]) -> str:
        """The error and its features, in words."""
        words = [FEATURES[name].words or name for name in self.limits]
        features = [
            Note(text, value=numbers[name]) for name, text in zip(self.limits, words, strict=True)
        ]
        every = reduce(
            lambda first, last: Note("{first} and {last}", first=first, last=last), features
        )
        message = (
            "rough: one in ten of {count} designs with {features} was off by more than {error}"
        )
        if self.of:
            message = (
                "{sites} rough: one in ten of {count} designs with {features} was off by more "
                "than {error}"
            )
        return Note(
            message,
            sites=Note(self.of),
            count=self.designs,
            features=every,
            error=size(self.error, self.statistic),
        )


def size(error: float, statistic: str) -> str:
    """An error in words: a difference, per cent, or a factor."""
    if STATISTICS[statistic].bounded:
        return f"{error:.2g}"
    if error < 1:
        return f"{100 * error:.0f} %"
    return f"×{number(min(1 + error, LARGEST_FACTOR), 2)}"


@cache
def table() -> dict[str, Any]:
    """The content of `TABLE`: "stated", the error of designs without a rule by statistic, and
    "rules", a dict of each."""
    loaded: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return loaded


@cache
def rules() -> tuple[Rule, ...]:
    """The rules, those of the largest error first."""
    each = [Rule(**row) for row in table()["rules"]]
    return tuple(sorted(each, key=lambda rule: -rule.error))


def measured(case: Case) -> dict[str, float]:
    """The numbers of all features."""
    numbers = {row.name: np.inf if row.below else 0.0 for row in OF_ATTENTION}
    there = FEATURES.values() if case.design.attends else OF_STACK
    return numbers | {row.name: float(row.value(case)) for row in there}


def roughness(case: Case) -> dict[str, str]:
    """Notes by statistic: of each, and of each group of its matrices, the rule of the largest
    error. What is withdrawn has no error."""
    numbers = measured(case)
    predicted = {
        (statistic, group_of(statistic, site))
        for (statistic, site), value in case.values.items()
        if np.isfinite(value).any()
    }
    notes: dict[tuple[str, str], str] = {}
    for rule in rules():
        of = rule.statistic, rule.of
        if of in predicted and of not in notes and rule.holds(numbers):
            notes[of] = rule.note(numbers)
    joined: dict[str, str] = {}
    for (statistic, _), note in notes.items():
        joined[statistic] = Note.joined(filter(None, [joined.get(statistic), note]))
    same = {name: joined[mean] for name, mean in BY_POSITION.items() if mean in joined}
    return joined | same


def group_of(statistic: str, site: str) -> str:
    """The group of sites that has rules of its own, or nothing."""
    return GROUPS.get(site, "") if statistic == "parameter_gradient" else ""
