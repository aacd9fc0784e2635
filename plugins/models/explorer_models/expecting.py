"""A model beside the design that it is to have: `explorer probe --expect` measures that design at
the model's size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from explorer.choices import ConfigError, opening
from explorer.config import Config, matching, preset
from explorer.diagnosis.comparing import Comparison, compare
from explorer.diagnosis.comparing import Difference as Parting
from explorer.diagnosis.reading import numbered
from explorer.display import shown
from explorer.measuring import measure
from explorer.profile import Profile
from explorer.schemes.preset import PRESETS
from explorer.sites import SITE_WORDS
from explorer.vocabulary import VOCABULARY, Array, Key
from explorer_models.departures import departures, unseen
from explorer_models.differences import Difference
from explorer_models.fields import Majority
from explorer_models.model import Batch, Loss, projected
from explorer_models.probe import probed, twin_in
from explorer_models.stack import Stack
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

SHARED = {
    "softmax": "axis of the softmax",
    "mask": "mask",
    "divisor": "divisor of the logits",
    "qk_norm": "QK-norm",
    "attention_skip": "factor on the stream beside attention",
    "mlp_skip": "factor on the stream beside the MLP",
}
"""Facts of a stored profile that are compared, and their words."""


def expectation(name: str) -> Config | Profile:
    """The design or the profile that a model is compared with, by the name of a preset or of a
    file.

    Raises:
        ConfigError: there is neither, or the file holds something else.
    """
    if name in PRESETS:
        return preset(name)
    near = ", ".join(PRESETS.near(name) or ("llama3", "gpt2"))
    with opening(name, f"expect must be a preset, such as {near}, or a file that can be read"):
        content = Path(name).read_text(encoding="utf-8")
    try:
        return Profile.from_json(content) if '"origin"' in content else Config.from_json(content)
    except ValueError as error:
        raise ConfigError(
            f"expect must hold a config or a profile; {shown(name)} does not: {error}"
        ) from None


class Verdict(NamedTuple):
    """The comparison of a model with its expectation; as text, lines for a log."""

    name: str
    """Of the design, the file or the profile, as the command line has it."""
    profile: Profile
    """Of the model."""
    comparison: Comparison
    differences: tuple[Difference, ...]
    """Layers that are built otherwise than their siblings, and are not so in an expected
    profile."""
    remarks: tuple[str, ...] = ()
    """Of what could not be read, or stands in no config."""
    facts: tuple[str, ...] = ()
    """Sentences on facts of all layers, or of many, in which the model departs from the design."""
    explained: frozenset[Key] = frozenset()
    """Statistics and sites that part, and do not where the design has the model's facts."""
    unseen: tuple[Key, ...] = ()
    """Statistics and sites that the design has and the model does not."""

    @property
    def agrees(self) -> bool:
        """Whether the model starts as expected."""
        return not (self.comparison.partings or self.differences or self.facts or self.unseen)

    def __str__(self) -> str:
        comparison = self.comparison
        fact = self.facts[0] if self.facts else ""
        key = "as_design" if self.agrees else "fact" if fact else "otherwise"
        explained = [row for row in comparison.partings if row[:2] in self.explained]
        others = [row for row in comparison.partings if row[:2] not in self.explained]
        model = self.profile.model or "The model"

        def places(key: str, rows: Sequence[Parting]) -> list[str]:
            return [
                text("expected", key, place=comparison.place(row), words=row.words) for row in rows
            ]

        lines = [
            text("expected", key, model=model, design=self.name, comparison=comparison, fact=fact)
        ]
        lines += [text("expected", "departs", fact=fact) for fact in self.facts]
        lines += places("follows", explained)
        lines += [
            text("expected", "layer", layer=numbered(self.profile, layer), difference=sentence)
            for layer, _, sentence in self.differences
        ]
        lines += places("place", others)
        for name, site in self.unseen:
            label, words = VOCABULARY[name].label.lower(), SITE_WORDS.get(site, site)
            lines.append(text("expected", "unseen", statistic=label, site=words))
        lines += [text("expected", "remark", remark=remark) for remark in self.remarks]
        return "\n  ".join(lines)


def verdict(
    name: str, expected: Config | Profile, model: nn.Module, batch: Batch, loss: Loss | None = None
) -> Verdict:
    """Compares a model with what is expected of it.

    Args:
        name: of what is expected.
        expected: as `expectation` reads it.
        model, batch, loss: as for `probe`; the loss is used beside a profile alone.
    Raises:
        TypeError, ValueError: as `probe`; or the model's blocks were not understood.
        ConfigError: the design cannot have the model's size.
    """
    if isinstance(expected, Profile):
        return _beside_profile(name, expected, probed(model, batch, loss)[0])
    # the loss of a measured design, so that gradients can be compared
    profile, stack = probed(model, batch, lambda output: projected(output, least=2)[0])
    return _beside_config(name, expected, profile, stack, twin_in(stack, model))


def _beside_profile(name: str, expected: Profile, profile: Profile) -> Verdict:
    """The verdict beside a stored profile: all that both have is compared, and the facts that all
    layers share. A statistic that only the expectation has is a departure."""
    odd = tuple(row for row in profile.differences if row not in expected.differences)
    return Verdict(
        name,
        profile,
        compare(expected, profile, TOLERANCE, CHANCE),
        odd,
        facts=_changed(expected, profile),
        unseen=tuple(key for key in expected if key not in profile),
    )


def _beside_config(
    name: str, design: Config, profile: Profile, stack: Stack, nearest: Twin
) -> Verdict:
    """The verdict beside a design.

    The facts of the model are compared with the design's. The design is measured at the model's
    size, with `DRAWS` seeds. Where facts differ, it is measured with the model's facts, too:
    statistics that then agree follow from them.
    """
    width = Majority(stack.facts, ()).usual("layer", "width")
    config = _sized(design, profile, nearest.config, width)
    first, second = _measured(config), _compared(profile)
    comparison = compare(first, second, TOLERANCE, CHANCE)
    departed = departures(stack.facts, nearest, config, profile)
    explained: frozenset[Key] = frozenset()
    if departed.fields and comparison.partings and config.accepts(**departed.fields):
        again = compare(_measured(config.replace(**departed.fields)), second, TOLERANCE, CHANCE)
        rest = {row[:2] for row in again.partings}
        explained = frozenset(row[:2] for row in comparison.partings) - rest
    return Verdict(
        name,
        profile,
        comparison,
        profile.differences,
        (*nearest.unread, *nearest.differs, *departed.remarks),
        departed.facts,
        explained,
        tuple(unseen(first, second, tuple(first), config, nearest.config)),
    )


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


def _changed(expected: Profile, profile: Profile) -> tuple[str, ...]:
    """A sentence for each fact of all layers that differs in two profiles."""
    pairs = [
        (name, value, profile.facts.get(name))
        for name, value in expected.facts.items()
        if name in SHARED
    ]
    return tuple(
        text("departs", "shared", name=SHARED[name], value=own, usual=value)
        for name, value, own in pairs
        if own is not None and own != value
    )


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
