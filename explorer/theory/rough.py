"""`roughness`: by how much a prediction may be off, by what the design has.

`rough.json` has the numbers: rules that `python -m benchmarks.coverage` finds on random designs
that were measured. A rule is a statistic, one or two features of a design with the value from which
on it holds, and the error that one in ten such designs exceeded. What designs without a rule keep
is in the same file, by statistic: its stated error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
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
        """What the config resolves to."""
        return self.config.design


class Feature(NamedTuple):
    """Something of a design on which the size of theory's error hangs."""

    name: str
    words: str
    """As a reason, where {value} is its number."""
    value: Callable[[Case], float]
    """A number; of what a design has or has not, 1 or 0."""
    limits: tuple[float, ...] = (0.5,)
    """Values from which on a rule may hold."""
    below: bool = False
    """Whether it is below a limit that errors are larger."""
    of_attention: bool = False
    """Whether a design without attention does not have it."""


def _any_has(part: Part) -> Callable[[Case], float]:
    """Whether a norm stands at this place of any sublayer."""
    return lambda case: any(placement.has(part) for placement in case.design.kinds)


def _highest(column: Array) -> float:
    """The largest number; 0 of none."""
    return float(np.nanmax(column, initial=0.0))


def _beyond_cap(case: Case) -> float:
    """The logits' standard deviation in a row before their cap, over the cap; 0 without one."""
    cap = case.config.logit_cap
    return _highest(case.rows.uncapped) / cap if cap else 0.0


def _whole_rows(case: Case) -> float:
    """The logits' size, with what a row's logits share, over their cap; 0 without one."""
    cap = case.config.logit_cap
    return _highest(case.rows.total) / cap if cap else 0.0


def _below_cap(case: Case) -> float:
    """About how many logits of a sequence are below the cap; infinite without one."""
    config, largest = case.config, _highest(case.rows.total)
    if not config.logit_cap or not largest:
        return np.inf
    return config.n_heads * config.n_ctx**2 * config.logit_cap / largest


def _outgrown(case: Case) -> float:
    """Second moment of the stream after the first sum, over that of the input."""
    before, after = (
        float(case.values["second_moment", site][0, 0]) for site in ("embed", STREAM[1])
    )
    return after / before


def _closest(case: Case) -> float:
    """Smallest 1 − ρ of the keys of any layer."""
    return float(np.nanmin(case.rows.own, initial=1.0))


def _equal_characters(case: Case) -> float:
    """Whether some of a sentence's characters are equal, and others not."""
    return bool(case.design.sentence) and 0 < repeated(case.design.sentence) < 1


FEATURES = {
    row.name: row
    for row in (
        Feature(
            "width",
            "as few as {value:.0f} coordinates",
            lambda case: case.config.d_model,
            (24, 48, 96),
            below=True,
        ),
        Feature(
            "head size",
            "heads of {value:.0f} coordinates",
            lambda case: case.config.d_head,
            (6, 12, 24),
            below=True,
            of_attention=True,
        ),
        Feature("depth", "{value:.0f} layers", lambda case: case.config.n_layers, (12.5, 20, 40)),
        Feature(
            "tokens",
            "as few as {value:.0f} tokens in a batch",
            lambda case: case.config.batch_size * case.config.n_ctx,
            (10, 24, 60),
            below=True,
        ),
        Feature(
            "logit spread",
            "logits far apart (spread {value:.2g})",
            lambda case: _highest(case.rows.s),
            (1, 2, 3, 6, 20),
            of_attention=True,
        ),
        Feature(
            "1 − ρ",
            "tokens alike (1 − ρ down to {value:.1g})",
            _closest,
            (0.003, 0.01, 0.03, 0.1),
            below=True,
            of_attention=True,
        ),
        Feature(
            "logits / cap",
            "logits {value:.2g} × their cap",
            _beyond_cap,
            (0.3, 1, 3, 30),
            of_attention=True,
        ),
        Feature(
            "rows / cap",
            "rows of logits {value:.2g} × their cap",
            _whole_rows,
            (0.3, 1, 3, 30),
            of_attention=True,
        ),
        Feature(
            "logits under the cap",
            "about {value:.2g} logits of a sequence below their cap",
            _below_cap,
            (3, 10, 100),
            below=True,
            of_attention=True,
        ),
        Feature(
            "growth in the first attention",
            "attention's first output {value:.2g} × the input",
            _outgrown,
            (3, 30, 1e3),
        ),
        Feature(
            "slow turns",
            "tokens told apart by slow turns",
            lambda case: _highest(case.rows.spread * case.rows.turned**2),
            (0.35,),
            of_attention=True,
        ),
        Feature("causal mask", "a causal mask", lambda case: case.config.causal, of_attention=True),
        Feature("gates", "gates", lambda case: case.design.gates > 0, of_attention=True),
        Feature(
            "sink", "a sink", lambda case: case.design.sink.logit is not None, of_attention=True
        ),
        Feature(
            "value residual",
            "values of the first layer in others",
            lambda case: case.config.value_residual,
            of_attention=True,
        ),
        Feature(
            "residual attention",
            "logits of the layers below",
            lambda case: bool(case.design.inherits),
            of_attention=True,
        ),
        Feature("parallel branches", "parallel branches", lambda case: case.design.stream.parallel),
        Feature("mixed streams", "several streams", lambda case: bool(case.design.mix_shapes)),
        Feature(
            "rotary positions",
            "rotary positions",
            lambda case: case.design.rotates,
            of_attention=True,
        ),
        Feature(
            "slopes",
            "logits that fall with distance",
            lambda case: bool(case.design.slopes),
            of_attention=True,
        ),
        Feature(
            "normed heads",
            "queries and keys of one length",
            lambda case: case.design.normalizes_heads,
            of_attention=True,
        ),
        Feature(
            "few heads of keys",
            "few heads of keys",
            lambda case: case.config.kv_heads < case.config.n_heads,
            of_attention=True,
        ),
        Feature("text", "characters that repeat", lambda case: case.design.reads_text),
        Feature("next-token loss", "the next-token loss", lambda case: case.design.predicts_text),
        Feature("tied readout", "a tied readout", lambda case: bool(case.design.tied)),
        Feature(
            "sentence", "one sentence in every sequence", lambda case: bool(case.design.sentence)
        ),
        Feature("equal characters", "equal characters in the sentence", _equal_characters),
        Feature(
            "no positions",
            "equal characters as equal tokens",
            lambda case: case.design.reads_text and not case.design.embeds_positions,
            of_attention=True,
        ),
        Feature(
            "biases",
            "biases that all sequences share",
            lambda case: bool(case.design.biases),
        ),
        Feature(
            "attention biases",
            "biases of attention",
            lambda case: "W_O" in case.design.biases,
            of_attention=True,
        ),
        Feature(
            "MLP of degree above 1", "an MLP of degree above 1", lambda case: case.design.degree > 1
        ),
        Feature(
            "no norms",
            "no norms",
            lambda case: not case.design.point and not any(one.norms for one in case.design.kinds),
        ),
        Feature("norms on sums", "norms on sums", _any_has("sum")),
        Feature("norms on outputs", "norms on branches' outputs", _any_has("output")),
        Feature(
            "functions as norms",
            "a function in the norms' place",
            lambda case: bool(case.design.point),
        ),
        Feature(
            "norms within attention",
            "norms within attention",
            lambda case: any(one.within for one in case.design.sublayers[::2]),
        ),
        Feature(
            "no residual stream", "no residual stream", lambda case: max(case.design.skips) == 0
        ),
        Feature("copied layers", "layers of the same weights", lambda case: case.design.copied),
    )
}


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
        for name, limit in self.limits.items():
            beyond = numbers[name] < limit if FEATURES[name].below else numbers[name] > limit
            if not beyond:
                return False
        return True

    def note(self, numbers: Mapping[str, float]) -> str:
        """The error and its features, in words."""
        features = [FEATURES[name].words.format(value=numbers[name]) for name in self.limits]
        measured_on = f"{self.designs} designs with {' and '.join(features)}"
        where = f"{self.of} " if self.of else ""
        error = size(self.error, self.statistic)
        return f"{where}rough: one in ten of {measured_on} was off by more than {error}"


def size(error: float, statistic: str) -> str:
    """An error in words: a difference, per cent, or a factor."""
    if STATISTICS[statistic].bounded:
        return f"{error:.2g}"
    if error < 1:
        return f"{100 * error:.0f} %"
    return f"×{number(min(1 + error, LARGEST_FACTOR), 2)}"


@cache
def table() -> dict[str, Any]:
    """What `TABLE` holds: "stated", the error of designs without a rule by statistic, and "rules",
    a dict of each."""
    loaded: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return loaded


@cache
def rules() -> tuple[Rule, ...]:
    """The rules, those of the largest error first."""
    each = [Rule(**row) for row in table()["rules"]]
    return tuple(sorted(each, key=lambda rule: -rule.error))


def measured(case: Case) -> dict[str, float]:
    """The numbers of all features."""
    attends = case.design.attends
    numbers = {}
    for row in FEATURES.values():
        if row.of_attention and not attends:
            numbers[row.name] = np.inf if row.below else 0.0
        else:
            numbers[row.name] = float(row.value(case))
    return numbers


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
        joined[statistic] = f"{joined[statistic]}; {note}" if statistic in joined else note
    same = {name: joined[mean] for name, mean in BY_POSITION.items() if mean in joined}
    return joined | same


def group_of(statistic: str, site: str) -> str:
    """The group of sites that has rules of its own, or nothing."""
    return GROUPS.get(site, "") if statistic == "parameter_gradient" else ""
