"""`Start`: how a model starts, as plain tables that a person reads in a file: how its layers are
built, the size of the signal in them, and the numbers that its parameters begin with."""

from __future__ import annotations

import copy
import json
import math
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from explorer.choices import ConfigError
from explorer.diagnosis.reading import numbered
from explorer.diagnosis.reading import place as layer_words
from explorer.display import shown
from explorer.profile import Profile
from explorer.sites import BRANCHES, SITE_WORDS
from explorer.translation import speaking
from explorer.vocabulary import VOCABULARY
from explorer_models.differences import same
from explorer_models.fields import Majority, weights
from explorer_models.matched import norms_of
from explorer_models.model import Batch
from explorer_models.probe import probed
from explorer_models.stack import Stack
from explorer_models.texts import text
from explorer_models.twin import FORWARD, WIDTH

OF_BRANCHES = {
    "norms": "norms around the branch",
    "norm": "kind of the norms",
    "epsilon": "ε of the norms",
    "skip": "factor on the stream",
    "branch": "factor on the branch",
    "learned": "learned multiplier",
}
FACTS: Mapping[str, Mapping[str, str]] = {
    "layer": {
        "attends": "attention by a softmax over keys",
        "parallel": "both branches on one stream",
        "final_norm": "norm after the last layer",
        "weights": "weights of the layers",
        "dropout": "dropout",
    },
    "attn_scores": {
        "softmax": "axis of the softmax",
        "mask": "mask",
        "divisor": "divisor of the logits",
        "cap": "cap on the logits",
        "qk_normed": "norms on queries and keys",
        "position": "positions in attention",
        "rope_base": "base of rotary positions",
        "rope_share": "share of a head that rotary positions turn",
        "rope_speed": "factor on rotary positions",
        "rotary": "mistake in rotary positions",
        "sink": "sink",
        "n_heads": "number of heads",
        "d_head": "width of a head",
        "tied": "one matrix for queries and keys",
        "mixes_values": "values of the first layer in later ones",
        "inherits": "attention of the layer before",
    },
    "attn_out": {**OF_BRANCHES, "gates": "gates for each token"},
    "mlp_out": {**OF_BRANCHES, "mlp": "kind of the MLP", "activation": "activation"},
}
"""Facts of a layer by site, in words; the tables of a file that have one value for all layers, or
one for each."""
SIGNAL = {
    "second_moment": ("embed", "attn_out", "mlp_out", "resid_post"),
    "logit_std": ("attn_scores",),
}
"""Statistics by site, one number a layer."""
Tables = Mapping[str, Mapping[str, Any]]
"""Table to key to value."""
ABSENT = "absent"
"""Stands for a fact that a layer does not have."""
MOMENTS = {"std": "standard deviation", "mean": "mean"}
"""Tables of parameters, in words."""
SIGMAS, ROUNDING = 6.0, 0.02
"""Standard errors that two draws of one parameter may differ by, and the share beside them."""
NEXT = 0.05
"""Relative distance from a law of the config up to which a draw is taken to follow it."""
HEADER = """\
# How {model} starts. Review each line once: a model that departs from one of them fails
# `explorer probe module:function --expect` with this file. A list has one value for each layer.
"""
TITLES = {
    "std": "standard deviation of each parameter's entries",
    "mean": "their mean, where it is not 0",
}


class Departure(NamedTuple):
    """One respect in which a model does not start as expected."""

    words: str
    """A clause for a log."""
    layer: int = 0
    """From 1, the first that departs; 0 where all layers do, or none is concerned."""
    site: str = ""
    """A site, a matrix, or the name of a parameter."""
    value: Any = None
    expected: Any = None
    factor: float | None = None
    """Value over expected, of positive numbers."""
    key: tuple[str, str] = ("", "")
    """Table and key of the expectation."""
    line: int = 0
    """Of the file with the expectation; 0 without a file."""


class Start(NamedTuple):
    """How a model starts; as text, the TOML that `explorer probe --write` puts into a file.

    Example:
        With a model of transformers, small or large::

            start = ex.expect(model)  # as its class's own code draws it
            start.tables["std"]["transformer.wte.weight"]
    """

    tables: Tables
    """Table to key to value: facts by site as `FACTS` has them, statistics as `SIGNAL`, "std" and
    "mean" by the names of parameters, in which * stands for numbers; "" has the model's class,
    dtype, number of layers, and tied parameters."""
    lines: Mapping[tuple[str, str], int] = {}
    """Line of each table and key in its file."""
    moments: Mapping[str, Sequence[Moments]] = {}
    """Of a model's parameters, by the name with *; none of a stored start."""

    @speaking("en")  # one file, whoever writes it
    def __str__(self) -> str:
        top = self.tables[""]
        laws = _laws(top)
        rows = [HEADER.format(model=top["model"])]
        rows += [_line("", key, value, laws) for key, value in top.items()]
        for name, table in self.tables.items():
            if name and table:
                title = TITLES.get(name) or SITE_WORDS.get(name, "all layers")
                if name in SIGNAL:
                    title = VOCABULARY[name].label.lower()
                rows.append(f"\n[{name}]  # {title}\n")
                rows += [_line(name, key, value, laws) for key, value in table.items()]
        return "".join(rows)

    @classmethod
    def of(cls, model: nn.Module, profile: Profile, stack: Stack) -> Start:
        """The start of a model that was probed: facts of its layers, the signal in them, and the
        numbers of its parameters."""
        top: dict[str, Any] = {
            "model": type(model).__name__,
            "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
            "n_layers": len(stack.facts),
            "tied": tied(model),
        }
        std = getattr(getattr(model, "config", None), "initializer_range", None)
        if isinstance(std, float) and std > 0:
            top["initializer_range"] = std
        tables: dict[str, dict[str, Any]] = {"": top}

        layers = facts_of(stack)
        for site, keys in FACTS.items():
            by_layer = {key: [row.get((site, key), ABSENT) for row in layers] for key in keys}
            # a fact that no layer has is left out
            tables[site] = {
                key: _one(values) for key, values in by_layer.items() if set(values) != {ABSENT}
            }

        tables |= signal_of(profile)

        groups = moments(model, stack)
        laws = _laws(top).values()  # standard deviations that the config states
        tables["std"] = {name: _pooled(group, laws) for name, group in groups.items()}
        # means that are not 0 but for chance, in four digits
        tables["mean"] = {
            name: _one([float(f"{member.mean:.4g}") for member in group])
            for name, group in groups.items()
            if not all(member.is_centered for member in group)
        }
        return cls(tables, moments=groups)

    @classmethod
    def from_toml(cls, content: str) -> Start:
        """A start from the text of a file.

        Raises:
            ConfigError: it is no TOML, a table is not one of a start, or it has nothing to compare.
        """
        try:
            data = tomllib.loads(content)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"a start must be TOML: {error}") from None
        tables = {name: table for name, table in data.items() if isinstance(table, dict)}
        known = {*FACTS, *SIGNAL, "std", "mean"}
        if unknown := [name for name in tables if name not in known]:
            raise ConfigError(f"a start has the tables {', '.join(known)}; got {unknown[0]!r}")
        compared = {(site, key) for site, words in FACTS.items() for key in words}
        compared |= {(name, site) for name, sites in SIGNAL.items() for site in sites}
        keys = {(name, key) for name, table in tables.items() for key in table}
        if not (tables.get("std") or keys & compared):
            raise ConfigError("a start must state facts or numbers; it has nothing to compare")
        tables[""] = {name: value for name, value in data.items() if name not in tables}
        lines, table = {}, ""
        for number, row in enumerate(content.splitlines(), start=1):
            if heading := re.match(r"\[(.+?)\]", row):
                table = heading[1]
            elif entry := re.match(r'"(.+?)" *=|([\w-]+) *=', row):
                lines[table, entry[1] or entry[2]] = number
        return cls(tables, lines)


def _toml(value: Any) -> str:
    """A value as TOML has it, numbers with four digits."""
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float) and math.isfinite(value):
        rounded = f"{value:.4g}"
        return rounded if re.search(r"[.e]", rounded) else f"{rounded}.0"
    return str(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _laws(top: Mapping[str, Any]) -> dict[str, float]:
    """Standard deviations that the model's config says, by formula; empty without a config."""
    unit, n_layers = top.get("initializer_range"), top["n_layers"]
    if not unit:
        return {}
    return {
        "initializer_range": unit,
        "initializer_range / √(2 · n_layers)": unit / math.sqrt(2 * n_layers),
        "initializer_range / √n_layers": unit / math.sqrt(n_layers),
    }


def _line(table: str, key: str, value: Any, laws: Mapping[str, float]) -> str:
    """A line of a file: a key, its value, and in a remark what it is, or which law it follows."""
    remark = FACTS.get(table, {}).get(key, "")
    if table == "std":
        remark = next((law for law, number in laws.items() if number == value), "")
    name = key if re.fullmatch(r"[\w-]+", key) else json.dumps(key)
    return f"{name} = {_toml(value)}{f'  # {remark}' if remark else ''}\n"


# Reading a model.


class Moments(NamedTuple):
    """Mean and standard deviation of a parameter's entries, and by how much another draw of them
    may differ: the standard deviation by a share, the mean by a share of a standard deviation."""

    name: str
    mean: float
    std: float
    mean_slack: float
    std_slack: float
    layer: int = 0
    """From 1; 0 where it belongs to no layer."""
    site: str = ""
    """Matrices of the vocabulary that it holds."""

    @classmethod
    def of(cls, name: str, parameter: Tensor, layer: int, site: str) -> Moments:
        """The moments of one parameter."""
        x = parameter.detach().float().flatten()
        mean, std = float(x.mean()), float(x.std(correction=0))
        if std <= 1e-6 * abs(mean):  # rounding of equal numbers
            std = 0.0
        kurtosis = 3.0
        if std:
            sample = x[:: max(1, len(x) // 2**16)].double()
            kurtosis = max(kurtosis, float(((sample - mean) / std).pow(4).mean()))
        error = math.sqrt(2 / len(x))
        slack = SIGMAS * math.sqrt((kurtosis - 1) / 4) * error
        return cls(name, mean, std, SIGMAS * error, slack, layer, site)

    @property
    def is_centered(self) -> bool:
        """Whether the mean is 0 but for chance; of few entries it may be no standard deviation."""
        return abs(self.mean) <= min(self.mean_slack, 1.0) * self.std

    def has_mean(self, expected: float, std: float = 0.0) -> bool:
        """Whether another draw, of this standard deviation or its own, may have this mean."""
        slack = self.mean_slack * max(self.std, std)
        return abs(self.mean - expected) <= slack + ROUNDING * abs(expected)

    def has_std(self, expected: float) -> bool:
        """Whether another draw may have this standard deviation."""
        if not self.std or not expected:
            return self.std == expected
        return abs(math.log(self.std / expected)) <= self.std_slack + ROUNDING


def moments(model: nn.Module, stack: Stack) -> dict[str, list[Moments]]:
    """The moments of each floating parameter and buffer, by its name with * for numbers."""
    places: dict[int, tuple[int, list[str]]] = {}
    for layer, anatomy in enumerate(stack.anatomies, start=1):
        for matrix, pieces in anatomy.matrices.items():
            for piece in pieces:
                places.setdefault(id(piece.parameter), (layer, []))[1].append(matrix)
    groups: dict[str, list[Moments]] = {}
    for name, parameter in (*model.named_parameters(), *model.named_buffers()):
        if parameter.is_floating_point() and parameter.numel():
            layer, matrices = places.get(id(parameter), (0, []))
            pattern = re.sub(r"(?<![^.])\d+(?![^.])", "*", name)
            member = Moments.of(name, parameter, layer, ", ".join(dict.fromkeys(matrices)))
            groups.setdefault(pattern, []).append(member)
    return groups


def refuse_not_finite(model: nn.Module) -> None:
    """Refuses a model whose start is not to be stored, for nothing equals a number that is none.

    Raises:
        ConfigError: a parameter is not finite; the first is named.
    """
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            raise ConfigError(f"a start that is stored must be finite; {name} is not")


def tied(model: nn.Module) -> list[str]:
    """The names of each parameter that has several outside the layers, joined by " = "."""
    names = defaultdict(list)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[id(parameter)].append(name)
    rows = [" = ".join(sorted(group)) for group in names.values() if len(group) > 1]
    return sorted(rows)


def signal_of(profile: Profile) -> dict[str, dict[str, Any]]:
    """The tables of `SIGNAL` of a profile: means over seeds and heads, by layer."""
    return {
        name: {
            site: profile[name, site].mean(axis=(0, *range(2, profile[name, site].ndim))).tolist()
            for site in sites
            if (name, site) in profile
        }
        for name, sites in SIGNAL.items()
    }


def _one(values: list[Any]) -> Any:
    """The value that all layers have; a list where they differ."""
    return values[0] if all(same(value, values[0]) for value in values) else values


def _pooled(group: Sequence[Moments], laws: Iterable[float]) -> Any:
    """The standard deviation that all members of a group may be drawn with, a law's where one is
    next to it; else a list."""
    together = math.sqrt(sum(member.std**2 for member in group) / len(group))
    near = [law for law in laws if together and abs(math.log(together / law)) <= NEXT]
    for std in (*near, together):
        if all(member.has_std(std) for member in group):
            return std
    return [member.std for member in group]


def facts_of(stack: Stack) -> list[dict[tuple[str, str], Any]]:
    """The facts of each layer as plain values, by table and key of `FACTS`; what was not read is
    left out."""
    shared_by_all: dict[tuple[str, str], Any] = {}
    if stack.final is not None:
        shared_by_all["layer", "final_norm"] = stack.final
    # whether layers share or copy their weights is known where a matrix was read
    if any(fact == "variance" for facts in stack.facts for _, fact in facts):
        fields = weights(Majority(stack.facts, ()))
        shared_by_all["layer", "weights"] = fields.get("layer_weights", "independent")

    layers = []
    for facts in stack.facts:
        row = {
            (site, key): facts[site, key]
            for site, keys in FACTS.items()
            for key in keys
            if (site, key) in facts
        }
        for site in BRANCHES:
            if (site, "branch") in facts:  # the branch was read
                row[site, "norms"] = ", ".join(sorted(norms_of(facts, site))) or "none"
        if turn := facts.get(("attn_scores", "turn")):  # of rotary positions
            rotary = zip(
                ("base", "share", "speed"), (turn.base, turn.share, turn.speed), strict=True
            )
            row |= {("attn_scores", f"rope_{name}"): value for name, value in rotary}
        layers.append(row | shared_by_all)
    return layers


def expect(model: nn.Module, batch: Batch | None = None) -> Start:
    """States how a model is to start by what its class's own code says: the class is built once
    more from its own config, drawn, and read.

    What was changed in the model alone is not in it: weights that were drawn again or never, a
    patched layer, ties that were cut. A mistake of the class's own code is in it: compare with a
    preset, or with a file that a person has reviewed.

    Args:
        model: of a class that is built from `model.config` alone, as transformers' are.
        batch: as for `probe`; None for random tokens of the config's vocabulary.
    Raises:
        ValueError: the class cannot be built so.

    Example:
        With a model of transformers, small or large::

            print(ex.expect(model))  # a readable file, for review
    """
    config = getattr(model, "config", None)
    if config is None:
        kind = type(model).__name__
        raise ValueError(f"model must have a config that its class is built from; {kind} has none")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            fresh = type(model)(copy.deepcopy(config))
        except Exception as error:
            raise ValueError(
                f"model must be built from its config alone; {shown(type(model))} raised {error}"
            ) from error
        fresh.train(model.training)
        fresh.to(next(model.parameters()).dtype)
        given = tokens_for(model) if batch is None else batch
        return Start.of(fresh, *probed(fresh, given))


def tokens_for(model: nn.Module) -> Tensor:
    """Random tokens `[4, 32]` of the vocabulary of a model's config; fewer where its positions end.

    Raises:
        ValueError: the config has none.
    """
    config = getattr(model, "config", None)
    size = getattr(config, "vocab_size", None)
    if not isinstance(size, int):
        raise ValueError(f"batch must be given; {type(model).__name__} has no vocab_size")
    numbers = torch.Generator().manual_seed(0)
    length = min(32, getattr(config, "max_position_embeddings", None) or 32)
    return torch.randint(0, size, (4, length), generator=numbers)


# Comparing.


@speaking("en")  # its clauses have no translation
def departures(expected: Start, own: Start, profile: Profile) -> list[Departure]:
    """The respects in which a model does not start as expected; what is not expected, or was not
    read, is not compared.

    Args:
        expected: a start that was stored, or that a design or a class has.
        own: that of the model, which was read from it.
        profile: of the model.
    """
    rows = [*_of_top(expected.tables[""], own.tables[""])]
    for site, words in FACTS.items():
        for key in words:
            if key in expected.tables.get(site, {}) and key in own.tables[site]:
                rows += _of_fact(site, key, expected, own, profile)
    if "std" in expected.tables:
        rows += _of_parameters(expected.tables, own, profile)
    rows += _of_signal(expected.tables, own.tables, profile)
    return [row._replace(line=expected.lines.get(row.key, 0)) for row in rows]


def _of_top(expected: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[Departure]:
    """Departures of the whole model: its dtype, its depth, and its ties."""
    for name in ("dtype", "n_layers"):
        value, usual = own[name], expected.get(name, own[name])
        if value != usual:
            words = text("start", "value", name=name, value=value, usual=usual)
            yield Departure(words, value=value, expected=usual, key=("", name))
    pairs, usual = own["tied"], expected.get("tied", own["tied"])
    for key, rows in (("untied", set(usual) - set(pairs)), ("tied", set(pairs) - set(usual))):
        for row in sorted(rows):
            yield Departure(text("start", key, parameters=row), site=row, key=("", "tied"))


def _of_fact(
    site: str, key: str, expected: Start, own: Start, profile: Profile
) -> Iterator[Departure]:
    """Departures of one fact, one for each value that layers have instead of another."""
    count = own.tables[""]["n_layers"]
    pairs = zip(
        _by_layer(own.tables[site][key], count),
        _by_layer(expected.tables[site][key], count),
        strict=False,
    )
    odd: defaultdict[tuple[Any, Any], list[int]] = defaultdict(list)
    for layer, (value, usual) in enumerate(pairs, start=1):
        if ABSENT not in (value, usual) and not same(value, usual):
            odd[value, usual].append(layer)
    for (value, usual), layers in odd.items():
        place = "all layers"
        if len(layers) == 1:
            place = f"layer {numbered(profile, layers[0])}"
        elif len(layers) < count:
            place = f"layers {', '.join(map(str, layers))}"
        if site in BRANCHES:
            place = f"{place}, {SITE_WORDS[site]}"
        words = text(
            "start",
            "fact",
            place=place,
            name=FACTS[site][key],
            value=_word(value),
            usual=_word(usual),
        )
        first = layers[0] if len(layers) < count else 0
        ratio = _ratio(value, usual)
        yield Departure(words, first, site, value, usual, ratio, (site, key))


def _by_layer(value: Any, count: int) -> list[Any]:
    """A value for each layer of one that may stand for all."""
    return value if isinstance(value, list) else [value] * count


def _word(value: Any) -> Any:
    """A value as a sentence has it: yes or no for True or False, none for nothing."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if value != "" else "none"


def _ratio(value: Any, expected: Any) -> float | None:
    """Value over expected, of positive numbers; else None."""
    pair = value, expected
    if any(isinstance(number, bool | str) or not 0 < number < math.inf for number in pair):
        return None
    return float(value / expected)


def _of_signal(expected: Tables, own: Tables, profile: Profile) -> Iterator[Departure]:
    """Departures of statistics by layer, where the median layer, or one by twice as much on a log
    scale, differs by more than draws of a model so narrow do: the first layer that does."""
    width = next((shape[0] for shape in profile.shapes.values()), WIDTH)
    bound = FORWARD * math.sqrt(max(1.0, WIDTH / width))
    for name, sites in SIGNAL.items():
        for site in sites:
            values, usual = (tables.get(name, {}).get(site, []) for tables in (own, expected))
            gaps = [*map(_gap, values, usual)]
            if not gaps or (median(gaps) <= bound and max(gaps) <= 2 * bound):
                continue
            index = next(index for index, gap in enumerate(gaps) if gap > bound)
            layer, pair = index + (site != "embed"), (values[index], usual[index])
            words = text(
                "start",
                "signal",
                place=layer_words(profile, layer),
                name=VOCABULARY[name].label.lower(),
                site=SITE_WORDS[site],
                value=pair[0],
                usual=pair[1],
            )
            yield Departure(words, layer, site, *pair, _ratio(*pair), (name, site))


def _gap(value: float, expected: float) -> float:
    """|ln(value / expected)|: 0 where both are the same or no number, else inf where one is 0 or
    not finite."""
    if value == expected or (math.isnan(value) and math.isnan(expected)):
        return 0.0
    ratio = _ratio(value, expected)
    return math.inf if ratio is None else abs(math.log(ratio))


def _of_parameters(expected: Tables, own: Start, profile: Profile) -> Iterator[Departure]:
    """Departures of the numbers that parameters begin with, one for each name with * and table."""
    usual_stds, groups = expected["std"], own.moments
    for name in [*usual_stds, *(name for name in groups if name not in usual_stds)]:
        if name not in groups or name not in usual_stds:
            key = "missing" if name in usual_stds else "extra"
            yield Departure(text("start", key, parameter=name), site=name, key=("std", name))
            continue
        group = groups[name]
        stds = _by_layer(usual_stds[name], len(group))
        means = _by_layer(expected.get("mean", {}).get(name, 0.0), len(group))
        if len(stds) != len(group) or len(means) != len(group):
            words = text("start", "count", parameter=name, value=len(group), usual=len(stds))
            yield Departure(words, site=name, key=("std", name))
            continue
        rows = [*zip(group, stds, means, strict=True)]
        for key, odd in (
            ("std", [(row, std) for row, std, _ in rows if not row.has_std(std)]),
            ("mean", [(row, mean) for row, std, mean in rows if not row.has_mean(mean, std)]),
        ):
            if odd:
                yield _of_group((key, name), odd, len(group), profile)


def _of_group(
    key: tuple[str, str],
    odd: Sequence[tuple[Moments, float]],
    count: int,
    profile: Profile,
) -> Departure:
    """The departure of some of the parameters with one name with *: the numbers of the first, and
    how many there are.

    Args:
        key: table, and the name with *.
        odd: the parameters that depart, and what is expected of each.
        count: of all with this name.
        profile: of the model.
    """
    table, pattern = key
    member, usual = odd[0]
    value = getattr(member, table)
    place = member.name
    if len(odd) > 1:
        place = f"{pattern}, {len(odd)} of {count}"
    if member.site:
        place = f"{member.site} ({place})"
    if member.layer and len(odd) == 1:
        place = f"{layer_words(profile, member.layer)}: {place}"
    ratio, name = _ratio(value, usual), MOMENTS[table]
    words = text("start", "parameter", place=place, name=name, value=value, usual=usual)
    if ratio is not None:
        words = text(
            "start", "ratio", place=place, name=name, value=value, usual=usual, ratio=ratio
        )
    layer = member.layer if len(odd) < count else 0
    return Departure(words, layer, member.site or member.name, value, usual, ratio, key)
