"""A model beside what is expected of it, by `explorer probe --expect`: a design, which is measured
at the model's size, or a stored start."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from explorer.choices import ConfigError, opening
from explorer.config import Config, matching, preset
from explorer.diagnosis.comparing import Comparison, compare
from explorer.diagnosis.comparing import Difference as Parting
from explorer.diagnosis.reading import numbered
from explorer.display import shown
from explorer.measuring import measure
from explorer.profile import Profile
from explorer.schemes.activation import second_moment
from explorer.schemes.attention import DIVISORS
from explorer.schemes.placement import FINAL_NORMS, PLACEMENTS
from explorer.schemes.preset import PRESETS
from explorer.sites import BRANCHES, SITE_WORDS
from explorer.translation import speaking
from explorer.vocabulary import VOCABULARY, Array, Key
from explorer_models.fields import Majority
from explorer_models.model import Batch, Loss, projected
from explorer_models.outside import failures
from explorer_models.probe import probed, twin_in
from explorer_models.stack import Stack
from explorer_models.starts import Departure, Start, departures, expect, signal_of
from explorer_models.texts import text
from explorer_models.twin import COMPARED, Twin

TOLERANCE = 0.25
"""Share by which a model may differ from a design of random weights: it reads a batch of its own,
and each draw of a narrow model is a little another."""
DRAWS, CHANCE = 16, 1e-4
"""Seeds of the design, whose scatter is that of the model's single draw; and how often chance alone
may tell a model from its design. Of 140 Llamas of width 64 none departed, with tokens of a
vocabulary of 2,000; of 60 one did with a vocabulary of 64, whose sequences share tokens, and so the
output of attention to all of them."""
PLACES: tuple[Key, ...] = (
    ("second_moment", "embed"),
    *COMPARED,
    ("attention_entropy_normalized", "pattern"),
)
"""Statistics and sites in which a model is held to a design, beside its matrices' variance. Left
out: extremes, which depend on the batch, and gradients by matrices, which depend on the loss."""
SIZES = (
    "n_heads",
    "head_size",
    "n_kv_heads",
    "mlp_ratio",
    "n_ctx",
    "batch_size",
    "input",
    "input_correlation",
)
"""Fields that are the model's own and its batch's, beside width and depth."""

OWN_CLASS, OWN_CLASS_WORDS = "class", "its class"
"""The argument that stands for the model's own class, drawn once more from its config; in words."""
TURNED = ("rotary", "alibi")
"""Positions that attention itself has. Learned positions are added to the embeddings, where they
cannot be recognized for certain."""
NEAR = 0.05
"""Relative difference of two activations' second moments up to which one is another way to compute
the other."""

Expected = Config | Start | None
"""A design, a stored start, or None for what the model's own class says."""


def expectation(name: str) -> Expected:
    """The expectation of a model, by the name of a preset or of a file, or the word "class".

    Raises:
        ConfigError: there is neither, or the file holds something else.
    """
    if name == OWN_CLASS:
        return None
    if name in PRESETS:
        return preset(name)
    near = ", ".join(PRESETS.near(name) or ("llama3", "gpt2"))
    with opening(name, f"expect must be a preset, such as {near}, or a file that can be read"):
        content = Path(name).read_text(encoding="utf-8")
    try:
        return Start.from_toml(content) if name.endswith(".toml") else Config.from_json(content)
    except ValueError as error:
        raise ConfigError(
            f"expect must hold a start or a config; {shown(name)} does not: {error}"
        ) from None


class Verdict(NamedTuple):
    """The comparison of a model with its expectation; as text, lines for a log."""

    name: str
    """Of the design or the file, as the command line has it."""
    profile: Profile
    """Of the model."""
    start: Start
    """Of the model."""
    expected: Start
    stated: tuple[Departure, ...]
    """Departures from facts, and from numbers, that the expectation states."""
    comparison: Comparison | None = None
    """Statistics beside those of the design; None beside a start."""
    remarks: tuple[str, ...] = ()
    """Of what could not be read, or stands in no config."""
    explained: frozenset[Key] = frozenset()
    """Statistics and sites that part, and do not where the design has the model's facts."""
    unseen: tuple[Key, ...] = ()
    """Statistics and sites that the design has and the model does not."""

    @property
    def agrees(self) -> bool:
        """Whether the model starts as expected."""
        return not self.departures

    @property
    @speaking("en")  # clauses without a translation
    def departures(self) -> tuple[Departure, ...]:
        """Each respect in which the model does not start as expected; first what is stated, then
        what follows from it, then layers unlike their siblings, and all else."""
        partings = () if self.comparison is None else self.comparison.partings
        follow = [row for row in partings if (row.statistic, row.site) in self.explained]
        others = [row for row in partings if (row.statistic, row.site) not in self.explained]
        said = {(row.layer, row.site) for row in self.stated}
        unlike = [
            self._unlike(layer, site, words)
            for layer, site, words in self.profile.differences
            if (layer, site) not in said
        ]
        return (
            *self.stated,
            *map(self._parting, follow),
            *unlike,
            *map(self._parting, others),
            *(_not_seen(name, site) for name, site in self.unseen),
        )

    def _unlike(self, layer: int, site: str, words: str) -> Departure:
        """A layer that differs from its siblings, as a departure."""
        sentence = text("expected", "layer", layer=numbered(self.profile, layer), difference=words)
        return Departure(sentence, layer, site)

    def _parting(self, row: Parting) -> Departure:
        """A statistic that parts, as a departure."""
        assert self.comparison is not None  # noqa: S101 - whose row it is
        key = "follows" if row[:2] in self.explained else "place"
        words = text("expected", key, place=self.comparison.place(row), words=row.words)
        factor = row.factor if math.isfinite(row.factor) else None
        return Departure(words, row.layer, row.site, row.second, row.first, factor, row[:2])

    @speaking("en")
    def __str__(self) -> str:
        """A headline, with the first thing that is stated otherwise, and an indented line for each
        departure and remark."""
        key = "otherwise"
        if self.agrees:
            key = "as_design"
        elif self.stated:
            key = "fact"
        lines = [
            text(
                "expected",
                key,
                model=self.profile.model or "The model",
                design=self.name,
                comparison=self.comparison or "",
                fact=self.stated[0].words if self.stated else "",
            ).rstrip()
        ]
        # a departure from a file with its line there, as editors open it
        lines += [
            f"{self.name}:{row.line}: {row.words}" if row.line else row.words
            for row in self.departures
        ]
        lines += [text("expected", "remark", remark=remark) for remark in self.remarks]
        return "\n  ".join(lines)


def _not_seen(name: str, site: str) -> Departure:
    """A statistic that the design has and the model has not, as a departure."""
    statistic, place = VOCABULARY[name].label.lower(), SITE_WORDS.get(site, site)
    words = text("expected", "unseen", statistic=statistic, site=place)
    return Departure(words, site=site, key=(name, site))


def verdict(
    name: str,
    expected: Expected,
    model: nn.Module,
    batch: Batch,
    loss: Loss | None = None,
    *,
    outside: bool = False,
    optimizer: torch.optim.Optimizer | None = None,
) -> Verdict:
    """Compares a model with what is expected of it.

    Args:
        name: of what is expected.
        expected: as `expectation` gives it.
        model, batch, loss: as for `probe`; the loss is used beside a start alone.
        outside: whether the model is to pass the tests of `outside.failures`, too.
        optimizer: which is to hold all parameters that train, in these tests.
    Raises:
        TypeError, ValueError: as `probe`; or the model's blocks were not understood.
        ConfigError: the design cannot have the model's size.
    """
    if isinstance(expected, Config):
        # the loss of a measured design, so that gradients can be compared
        profile, stack = probed(model, batch, lambda output: projected(output, least=2)[0])
        judged = _beside_config(name, expected, model, profile, stack)
    else:
        profile, stack = probed(model, batch, loss)
        start = Start.of(model, profile, stack)
        wanted = expect(model, batch) if expected is None else expected
        # a layer unlike its siblings is so in the start, too, which says it layer by layer
        profile = replace(profile, differences=())
        stated = tuple(departures(wanted, start, profile))
        name = OWN_CLASS_WORDS if expected is None else name
        kind = wanted.tables[""].get("model", start.tables[""]["model"])
        remarks: tuple[str, ...] = ()
        if stated and kind != start.tables[""]["model"]:
            remarks = (text("expected", "model", kind=kind),)
        judged = Verdict(name, profile, start, wanted, stated, remarks=remarks)
    if not outside:
        return judged
    failed = failures(model, batch, judged.start, profile, optimizer)
    return judged._replace(stated=(*judged.stated, *failed))


@speaking("en")
def _beside_config(
    name: str, design: Config, model: nn.Module, profile: Profile, stack: Stack
) -> Verdict:
    """The verdict beside a design.

    The facts of the model are compared with the design's. The design is measured at the model's
    size, with `DRAWS` seeds. Where facts differ, it is measured with the model's facts, too:
    statistics that then agree follow from them.
    """
    nearest = twin_in(stack, model)
    width = Majority(stack.facts, ()).usual("layer", "width")
    config = _sized(design, profile, nearest.config, width)
    first, second = _measured(config), _compared(profile)
    comparison = compare(first, second, TOLERANCE, CHANCE)
    start = Start.of(model, profile, stack)
    wanted = start_of_design(config)
    rows = departures(wanted, start, profile)
    alike = [row.words for row in rows if row.key[1] == "activation" and _alike(row)]
    stated = tuple(row for row in rows if row.words not in alike)
    explained: frozenset[Key] = frozenset()
    fields = _changed(config, nearest)
    if stated and comparison.partings and config.accepts(**fields):
        again = compare(_measured(config.replace(**fields)), second, TOLERANCE, CHANCE)
        rest = {row[:2] for row in again.partings}
        explained = frozenset(row[:2] for row in comparison.partings) - rest
    return Verdict(
        name,
        profile,
        start,
        Start({**wanted.tables, **signal_of(first)}),
        stated,
        comparison,
        (*nearest.unread, *nearest.differs, *alike),
        explained,
        tuple(_unseen(first, second, config, nearest.config)),
    )


def start_of_design(config: Config) -> Start:
    """The facts of a design's layers as a start; what no model shows for certain is left out."""
    design, n_layers = config.design, config.n_layers
    place = PLACEMENTS[config.norm_placement]
    later = n_layers - 1  # layers that may carry on what the first one has
    tables: dict[str, dict[str, Any]] = {
        "": {},
        "layer": {
            "attends": design.attends,
            "parallel": design.stream.parallel,
            "final_norm": FINAL_NORMS[config.final_norm].present(place),
            "weights": config.layer_weights,
        },
        "attn_out": {},
        "mlp_out": {"mlp": config.mlp, "activation": config.activation},
    }
    for half, site in enumerate(BRANCHES):
        rows = [place.sublayer(2 * layer + half, n_layers) for layer in range(n_layers)]
        tables[site]["norms"] = [", ".join(sorted(row.norms)) or "none" for row in rows]
        if place.normalizes:
            tables[site]["norm"] = config.norm
        if not design.profiled:
            tables[site]["skip"] = list(design.skips[half::2])
    if design.attends:
        d_head = config.d_head
        gates = {"none": 0, "head": config.n_heads, "coordinate": config.n_heads * d_head}
        tables["attn_out"]["gates"] = gates[config.attention_gate]
        scores = tables["attn_scores"] = {
            "softmax": "keys",
            "mask": "causal" if config.causal else "none",
            "cap": config.logit_cap,
            "qk_normed": config.qk_norm,
            "position": config.position if config.position in TURNED else "none",
            "sink": config.sink,
            "mixes_values": [False, *[config.value_residual] * later],
            "inherits": ["none", *[config.residual_attention] * later],
        }
        row = DIVISORS[config.attention_scale]
        if not (row.uses or config.qk_norm):  # norms on queries and keys undo it
            scores["divisor"] = row.of(d_head)
        if design.rotates:
            scores |= {"rope_base": config.rope_base, "rope_share": config.rope_fraction}
            scores |= {"rope_speed": 1.0, "rotary": ""}
    return Start(tables)


def _changed(config: Config, nearest: Twin) -> dict[str, Any]:
    """Fields of a design as the model has them, where they differ and are not of its size."""
    own = nearest.config
    names = set(nearest.read_fields) - {*SIZES, "n_layers", "d_model", "input_second_moment"}
    if not {own.position, config.position} & {*TURNED}:
        names -= {"position"}
    values = {name: getattr(own, name) for name in sorted(names)}
    return {name: value for name, value in values.items() if value != getattr(config, name)}


def _alike(row: Departure) -> bool:
    """Whether one activation is another way to compute the other."""
    try:
        sizes = second_moment(row.value), second_moment(row.expected)
    except KeyError:  # one that is in no table
        return False
    return abs(math.log(sizes[0] / sizes[1])) <= NEAR


def _unseen(design: Profile, model: Profile, config: Config, twin: Config) -> Iterator[Key]:
    """Statistics and sites that a design's profile has and a model's has not.

    Left out are sites that the model need not have. Two parallel branches read one stream, so that
    their layer has no stream between them. A gate that the model has as the design does, but no
    matrix of its own for it, lies within another matrix.

    Args:
        design, model: the profiles.
        config: of the design.
        twin: the model as a config, as far as one describes it.
    """
    not_needed = {
        "resid_mid": config.design.stream.parallel and twin.design.stream.parallel,
        "W_G": config.attention_gate == twin.attention_gate,
        "W_gate": config.mlp == twin.mlp,
    }
    for key in design:
        if key not in model.values and not not_needed.get(key[1], False):
            yield key


def _measured(config: Config) -> Profile:
    """A design's profile, of many seeds, with the statistics and sites of `PLACES`."""
    profile = measure(config)
    return _compared(replace(profile, values={**profile.values, **_variances(config)}))


def _compared(profile: Profile) -> Profile:
    """A profile with the statistics and sites of `PLACES` and the matrices' variances, and no
    others."""
    kept = {
        key: profile.values[key] for key in profile if key in PLACES or key[0] == "weight_variance"
    }
    return replace(profile, values=kept)


def _sized(expected: Config, profile: Profile, nearest: Config, width: int) -> Config:
    """A design with a model's size and batch.

    Args:
        expected: the design.
        profile: of the model.
        nearest: the model's twin, which has its sizes.
        width: of the model, which may exceed the twin's limits.
    """
    sizes: dict[str, Any] = {name: getattr(nearest, name) for name in SIZES}
    sizes |= {"n_layers": len(profile.layers), "d_model": width, "n_seeds": DRAWS, "loss": "linear"}
    if (name := matching(expected)) and PRESETS[name].by_width:
        sizes["input_second_moment"] = expected.input_second_moment * width / expected.d_model
    try:
        return expected.replace(**sizes)
    except ConfigError as error:
        raise ConfigError(
            f"expect must be a design that can have the model's size; {error}"
        ) from None


def _variances(config: Config) -> Mapping[Key, Array]:
    """Draws of the variances of a design's matrices, `[seed, layer]`: each is the mean square of
    fan_in · fan_out normal entries, which has a χ² distribution."""
    numbers, size = np.random.default_rng(0), (DRAWS, config.n_layers)
    variances: dict[Key, Array] = {}
    for name, matrix in config.design.matrices.items():
        if matrix.forward == 1:
            count = matrix.fan_in * matrix.fan_out
            draws = matrix.gain * numbers.chisquare(count, size) / count
            by_layer = np.array(config.design.factors_by_layer(name))
            variances["weight_variance", name] = draws * by_layer
    return variances
