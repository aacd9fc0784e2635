"""How far the theory is off, by what a design has: the table that its notes are made from.

    python -m benchmarks.coverage  # an hour on two cores: measures, writes docs/coverage.csv
    python -m benchmarks.coverage --fit  # seconds: explorer/theory/rough.json from that file
    python -m benchmarks.coverage --check  # designs that the rules have not seen

Random designs over all fields (those of `fuzz`, a fifth of them narrow and a fifth of them deep)
are measured, `SEEDS` draws each. Of each statistic the largest error is kept that is beyond four
standard errors, as the page compares: along the stream without its branches, of a statistic by
position in the last layer. A statistic is off where that is more than its stated error.

A rule is one or two features of a design. They are chosen in turn: always the rule that notes most
of the designs that are off and have no note yet, for each design that it notes though it is right.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import accuracy, fuzz
from explorer.config import Config, ConfigError
from explorer.diagnosis.agreement import distance, standard_errors
from explorer.measuring import measure
from explorer.numbers import number
from explorer.profile import Profile
from explorer.sites import BRANCHES
from explorer.theory import predict, rough
from explorer.theory.predict import Recursion
from explorer.theory.rough import BY_POSITION, FEATURES, GROUPS, TABLE, YES, Case, Rule
from explorer.vocabulary import STATISTICS, Array, Key

DOCS = Path(__file__).parent.parent / "docs"
OUTPUT, PAGE = DOCS / "coverage.csv", DOCS / "accuracy.md"
DRAWS = {11: 776, 13: 200}
"""Designs by seed of their draw."""
CHECK_DRAW, CHECK_DESIGNS = 12, 400
FIXED = {13: {"input": "text", "loss": "next_token"}}
"""Fields that all designs of a seed have: few random ones predict text."""
SEEDS = 24
NARROW, DEEP = (16, 32), (16, 24, 48)
LONGEST = 15.0
"""Seconds that a design may take, by the config's own estimate."""
BEYOND = 4.0
"""Standard errors beyond which a difference is not chance."""
SMALLEST = 1e-30
"""Means below which float32 has lost digits."""
STATED = {
    "second_moment": 0.05,
    "activation_gradient": 0.15,
    "parameter_gradient": 0.15,
    "max_abs": 0.2,
    "kurtosis": 0.15,
    "feature_ratio": 0.25,
    "token_correlation": 0.05,
}
"""Errors that need no note; of a statistic that is not named see `stated`."""
FEWEST, SUREST = 5, 0.35
"""Designs that are off, and their share of all that a rule notes, for it to be one."""
PRICE = 10.0
"""Designs that each feature of a rule counts for, so that few features are preferred."""

Of = tuple[str, str]
"""What an error is of: a statistic, and a group of its matrices, see `rough.GROUPS`; empty of all
others."""


OF: tuple[Of, ...] = (
    *((name, "") for name in STATISTICS if name not in BY_POSITION),
    *dict.fromkeys(("parameter_gradient", group) for group in GROUPS.values()),
)
"""All that has rules of its own."""


class Measured(NamedTuple):
    """A design, and the mean and its standard error of what was measured, `[layer]` or `[layer,
    position]`."""

    seed: int
    number: int
    """Of the draw."""
    config: Config
    values: Mapping[Key, tuple[Array, Array]]


def stated(statistic: str) -> float:
    """The error of a statistic that needs no note: relative, or of bounded ones a difference."""
    return STATED.get(statistic, 0.03 if STATISTICS[statistic].bounded else 0.1)


def drawn(seed: int, index: int) -> Config | None:
    """A random design; None where its choices exclude each other."""
    config = fuzz.accepted(seed, index)
    if config is None:
        return None
    rng = np.random.default_rng([seed, index])
    sizes: dict[str, Any] = dict(FIXED.get(seed, {}))
    if rng.random() < 0.2:
        sizes["d_model"] = int(rng.choice(NARROW))
    if rng.random() < 0.2:
        sizes["n_layers"] = int(rng.choice(DEEP))
    try:
        return config.replace(**sizes, n_seeds=SEEDS)
    except ConfigError:  # fewer coordinates than heads need
        return None if seed in FIXED else config.replace(n_seeds=SEEDS)


def measurements(seed: int, count: int) -> Iterator[Measured]:
    """Random designs, measured."""
    designs = ((index, drawn(seed, index)) for index in itertools.count())
    short = (
        (index, config)
        for index, config in designs
        if config and config.sizes.seconds * SEEDS <= LONGEST
    )
    for index, config in itertools.islice(short, count):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # what overflows is not finite in the profile
            yield Measured(seed, index, config, averages(measure(config)))


def averages(profile: Profile) -> dict[Key, tuple[Array, Array]]:
    """Mean over draws and heads, and its standard error, by statistic and site."""
    values = {}
    for (statistic, site), draws in profile.values.items():
        row = STATISTICS[statistic]
        if draws.ndim > 2 and not row.by_position:
            draws = row.mean(draws, 2)
        values[statistic, site] = row.mean(draws), row.standard_error(draws)
    return values


def errors(one: Measured, predicted: Profile) -> dict[Of, float]:
    """The largest error beyond chance, 0 of none; left out where nothing is covered."""
    worst: dict[Of, float] = {}
    for (statistic, site), theory in predicted.values.items():
        row = STATISTICS[statistic]
        beside = row.on_stream and site in BRANCHES  # drawn on no chart
        if (statistic, site) not in one.values or beside or statistic in BY_POSITION:
            continue
        mean, standard = one.values[statistic, site]
        expected = theory[0]
        if row.by_position:
            mean, standard, expected = mean[-1], standard[-1], expected[-1]
        expected = expected.reshape(mean.shape)
        scatter = predicted.scatter.get((statistic, site))
        known = np.isfinite(expected) & np.isfinite(mean)
        known &= row.bounded | (mean > SMALLEST)
        away = standard_errors(
            row, mean, standard, expected, None if scatter is None else scatter[0], SEEDS
        )
        with np.errstate(all="ignore"):
            error = np.where(away > BEYOND, distance(mean, expected, row.bounded), 0.0)
        if known.any():
            of = statistic, rough.group_of(statistic, site)
            worst[of] = max(worst.get(of, 0.0), float(error[known].max()))
    return worst


class Trial(NamedTuple):
    """A design's features, and its errors."""

    numbers: Mapping[str, float]
    errors: Mapping[Of, float]


def trial(config: Config, found: Mapping[Of, float]) -> Trial:
    """A design with the features that theory sees."""
    recursion = Recursion(config)
    values = predict(config, backward=False).values
    return Trial(rough.measured(Case(config, values, recursion.rows_of(0))), found)


def fitted(trials: Sequence[Trial]) -> list[Rule]:
    """The rules of all statistics."""
    held = {
        (name, limit): np.array([row.beyond(limit, one.numbers[name]) for one in trials])
        for name, row in FEATURES.items()
        for limit in row.limits
    }
    return [rule for of in OF for rule in _rules(of, trials, held)]


def _rules(
    of: Of, trials: Sequence[Trial], held: Mapping[tuple[str, float], Array]
) -> Iterator[Rule]:
    """The rules of one statistic, in the order in which they are chosen."""
    error = np.array([one.errors.get(of, math.nan) for one in trials])
    off, right = error > stated(of[0]), error <= stated(of[0])
    features: list[tuple[tuple[str, float], ...]] = [(one,) for one in held]
    features += [pair for pair in itertools.combinations(held, 2) if pair[0][0] != pair[1][0]]
    holds = np.array([np.logical_and.reduce([held[one] for one in each]) for each in features])
    of_off, of_right = (holds & off).sum(1), (holds & right).sum(1)
    price = PRICE * np.array([len(each) for each in features])
    left, unnoted = off.copy(), right.copy()
    while left.any():
        gained, lost = (holds & left).sum(1), (holds & unnoted).sum(1)
        sound = (gained >= FEWEST) & (of_off >= SUREST * (of_off + of_right))
        worth = np.where(sound, gained / (gained + lost + price), 0.0)
        best = int(np.argmax(worth))
        if not worth[best]:
            return
        compared = holds[best] & (off | right)
        one_in_ten = float(f"{np.quantile(error[compared], 0.9):.2g}")
        yield Rule(*of, dict(features[best]), one_in_ten, int(compared.sum()), int(of_off[best]))
        left &= ~holds[best]
        unnoted &= ~holds[best]


def share(trials: Sequence[Trial], rules: Sequence[Rule]) -> dict[str, float]:
    """The use of rules: share of designs with a note, of designs that are off, and of pairs of
    design and statistic that are off without a note."""
    noted = off = bare = compared = 0
    for one in trials:
        held = {(rule.statistic, rule.of) for rule in rules if rule.holds(one.numbers)}
        far = {of for of, error in one.errors.items() if error > stated(of[0])}
        noted += bool(held & one.errors.keys())
        off += bool(far)
        bare += len(far - held)
        compared += len(one.errors)
    count = len(trials)
    return {"noted": noted / count, "off": off / count, "bare": bare / compared}


def written(cases: Sequence[Measured]) -> None:
    """Writes `OUTPUT`: for each design its largest errors beyond chance, 0 of none; a cell is empty
    where theory has nothing."""
    heads = [f"{statistic} of {group}" if group else statistic for statistic, group in OF]
    with OUTPUT.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["seed", "number", *heads])
        for one in cases:
            error = errors(one, predict(one.config))
            writer.writerow(
                [one.seed, one.number, *(f"{error[of]:.3g}" if of in error else "" for of in OF)]
            )


def ordinary() -> Iterator[tuple[Config, dict[Of, float]]]:
    """The designs of the table of accuracy, with their errors: random ones are not what people
    train."""
    with accuracy.OUTPUT.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for config, group in itertools.groupby(rows, accuracy.config_of):
        error: dict[Of, float] = {}
        for row in group:
            statistic, _, of = row["statistic"].partition(" of ")
            beyond = abs(float(row["error"])) > BEYOND * float(row["standard_error"])
            if of != "branches" and float(row["covered"]):
                error[statistic, of] = abs(float(row["error"])) * beyond
        yield config, error


def stored() -> Iterator[tuple[Config, dict[Of, float]]]:
    """The designs of `OUTPUT`, with their errors."""
    with OUTPUT.open(newline="", encoding="utf-8") as file:
        _, *rows = csv.reader(file)
    for seed, index, *cells in rows:
        config = drawn(int(seed), int(index))
        if config is None:
            raise ValueError(f"design {index} of seed {seed} is another now: measure anew")
        yield config, {of: float(cell) for of, cell in zip(OF, cells, strict=True) if cell}


def save(rules: Sequence[Rule], shares: Mapping[str, Mapping[str, float]]) -> None:
    """Writes `TABLE`, and the tables of `PAGE`.

    Args:
        shares: what the rules do, by the words of a group of designs.
    """
    errors_stated = {of[0]: stated(of[0]) for of in OF}
    lines = ",\n".join(json.dumps(rule._asdict()) for rule in rules)
    TABLE.write_text(
        f'{{"stated": {json.dumps(errors_stated)},\n"rules": [\n{lines}\n]}}\n', encoding="utf-8"
    )
    page = PAGE.read_text(encoding="utf-8")
    page = _replaced(page, "stated", _stated_errors())
    page = _replaced(page, "rules", [*_in_words(shares), "", *_rows(rules)])
    PAGE.write_text(page, encoding="utf-8")


def _replaced(page: str, name: str, lines: Sequence[str]) -> str:
    """A page with other lines between `<!-- name -->` and `<!-- end -->`."""
    before, _, rest = page.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition("<!-- end -->\n")
    table = "".join(f"{line}\n" for line in lines)
    return f"{before}<!-- {name} -->\n{table}{end}{after}"


def _stated_errors() -> list[str]:
    """The table of stated errors."""
    names = dict.fromkeys(of[0] for of in OF)
    rows = [f"| {_label(name)} | {rough.size(stated(name), name)} |" for name in names]
    return ["| statistic | stated error |", "|---|---|", *rows]


def _in_words(shares: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A line for each group of designs."""
    return [
        f"- {group}: {100 * each['off']:.0f} % are off in some statistic, {100 * each['noted']:.0f} "
        f"% carry a note; {100 * each['bare']:.1f} % of all comparisons are off without one."
        for group, each in shares.items()
    ]


def _rows(rules: Sequence[Rule]) -> list[str]:
    """The table of the rules."""
    head = ["| statistic | where | one in ten was off by more than | off | of |", "|" + "---|" * 5]
    rows = []
    for rule in rules:
        label = _label(rule.statistic) + (f", {rule.of}" if rule.of else "")
        where = ", ".join(_condition(*limit) for limit in rule.limits.items())
        error = rough.size(rule.error, rule.statistic)
        rows.append(f"| {label} | {where} | {error} | {rule.off} | {rule.designs} |")
    return head + rows


def _label(statistic: str) -> str:
    """As a cell of a table, which a bar would end."""
    return STATISTICS[statistic].label.replace("|", "\\|")


def _condition(name: str, limit: float) -> str:
    """A feature such as "gates", or one that is a number, such as "depth above 20"."""
    row = FEATURES[name]
    if row.limits == YES:
        return name
    return f"{name} {'below' if row.below else 'above'} {number(limit, 2)}"


def main() -> None:
    """Measures, or fits, or checks."""
    parser = argparse.ArgumentParser(description="how far the theory is off, by feature")
    parser.add_argument("--fit", action="store_true", help="from docs/coverage.csv")
    parser.add_argument("--check", action="store_true", help="on designs that were not fitted")
    options = parser.parse_args()
    if options.check:
        fresh = [
            trial(one.config, errors(one, predict(one.config)))
            for one in measurements(CHECK_DRAW, CHECK_DESIGNS)
        ]
        print(share(fresh, rough.rules()))
        return
    if not options.fit:
        written([one for seed, count in DRAWS.items() for one in measurements(seed, count)])
    random, common = ([trial(*case) for case in cases] for cases in (stored(), ordinary()))
    rules = fitted(random + common)
    groups = {
        f"Of {len(random)} random designs": share(random, rules),
        f"Of {len(common)} designs of the table above": share(common, rules),
    }
    save(rules, groups)


if __name__ == "__main__":
    main()
