"""A model beside the design that it is to have: `explorer probe --expect` measures that design at the model's size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from explorer.choices import ConfigError, opening
from explorer.config import Config, matching, preset
from explorer.diagnosis.comparing import Comparison, compare
from explorer.diagnosis.reading import numbered
from explorer.display import shown
from explorer.measuring import measure
from explorer.own import text
from explorer.own.differences import Difference
from explorer.own.fields import Majority
from explorer.own.model import Batch, Loss, projected
from explorer.own.probe import probed, twin_in
from explorer.own.twin import COMPARED
from explorer.profile import Array, Key, Profile
from explorer.schemes.preset import PRESETS
from explorer.schemes.residual import LAST

TOLERANCE = 0.25
"""Share by which a model may differ from a design of random weights: it reads a batch of its own, and each draw of a
narrow model is a little another."""
DRAWS, CHANCE = 16, 1e-4
"""Seeds of the design, whose scatter is that of the model's single draw; and how often chance alone may tell a model
from its design. Of 140 Llamas of width 64 none departed, with tokens of a vocabulary of 2,000; of 60 one did with a
vocabulary of 64, whose sequences share tokens, and so the output of attention to all of them."""
PLACES: tuple[Key, ...] = (("second_moment", "embed"), *COMPARED, ("attention_entropy_normalized", "pattern"))
"""Statistics and sites in which a model is held to a design, beside its matrices' variance. Left out: extremes, which
depend on the batch, and gradients by matrices, which depend on the loss."""
SIZES = ("n_heads", "head_size", "n_kv_heads", "mlp_ratio", "n_ctx", "batch_size", "input", "input_correlation")
"""Fields that are the model's own and its batch's, beside width and depth."""


def expectation(name: str) -> Config | Profile:
    """The design that a model is to have, or its profile, by the name of a preset or of a file.

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
        raise ConfigError(f"expect must hold a config or a profile; {shown(name)} does not: {error}") from None


class Verdict(NamedTuple):
    """A model beside what it is to be; as text, lines for a log."""

    name: str
    """Of the design, the file or the profile, as the command line has it."""
    profile: Profile
    """Of the model."""
    comparison: Comparison
    differences: tuple[Difference, ...]
    """Layers that are built otherwise than their siblings, and are not so in an expected profile."""
    remarks: tuple[str, ...] = ()
    """Of what could not be read, or stands in no config."""

    @property
    def agrees(self) -> bool:
        """Whether the model starts as expected."""
        return not self.comparison.partings and not self.differences

    def __str__(self) -> str:
        key = "as_design" if self.agrees else "otherwise"
        model, both = self.profile.model or "The model", self.comparison
        return "\n  ".join((
            text("expected", key, model=model, design=self.name, comparison=both),
            *(text("expected", "layer", layer=numbered(self.profile, at), difference=words)
              for at, _, words in self.differences),
            *(text("expected", "place", place=both.place(row), words=row.words) for row in both.partings),
            *(text("expected", "remark", remark=remark) for remark in self.remarks)))


def verdict(name: str, expected: Config | Profile, model: nn.Module, batch: Batch, loss: Loss | None = None) -> Verdict:
    """A model's profile beside what is expected of it.

    Beside a profile, all that both have is compared, with the model's own loss. Beside a config, the design is measured
    at the model's size, with `DRAWS` seeds; and as its loss is a projection of the output on a random direction, that
    is the model's, too.

    Args:
        name: of what is expected.
        expected: as `expectation` reads it.
        model, batch, loss: as for `probe`.
    Raises:
        TypeError, ValueError: as `probe`; or the model's blocks were not understood.
        ConfigError: the design cannot have the model's size.
    """
    if isinstance(expected, Profile):
        profile, _ = probed(model, batch, loss)
        odd = tuple(row for row in profile.differences if row not in expected.differences)
        return Verdict(name, profile, compare(expected, profile, TOLERANCE, CHANCE), odd)
    profile, stack = probed(model, batch, lambda output: projected(output, least=2)[0])
    nearest = twin_in(stack, model)
    config = _sized(expected, profile, nearest.config, Majority(stack.facts, ()).usual("layer", "width"))
    variances = _variances(config)
    first = measure(config)
    first = replace(first, values={**first.values, **variances})
    parts = (replace(part, values={key: part.values[key] for key in part if key in (*PLACES, *variances)})
             for part in (first, profile))
    comparison = compare(next(parts), next(parts), TOLERANCE, CHANCE)
    return Verdict(name, profile, comparison, profile.differences, nearest.unread + nearest.differs)


def _sized(expected: Config, profile: Profile, nearest: Config, width: int) -> Config:
    """A design with a model's size and batch."""
    sizes: dict[str, Any] = {name: getattr(nearest, name) for name in SIZES}
    sizes |= {"n_layers": len(profile.layers), "d_model": width, "n_seeds": DRAWS, "loss": "linear"}
    if (name := matching(expected)) and PRESETS[name].by_width:
        sizes["input_second_moment"] = expected.input_second_moment * width / expected.d_model
    try:
        return expected.replace(**sizes)
    except ConfigError as error:
        raise ConfigError(f"expect must be a design that can have the model's size; {error}") from None


def _variances(config: Config) -> Mapping[Key, Array]:
    """Variances of a design's matrices, `[seed, layer]`: the mean square of so many normal entries, by χ²."""
    numbers, size = np.random.default_rng(0), (DRAWS, config.n_layers)
    counts = {name: matrix.fan_in * matrix.fan_out for name, matrix in config.design.matrices.items()}
    last = {name: np.array(config.design.last[half::2]) for half, name in enumerate(LAST)}
    return {("weight_variance", name): matrix.gain * numbers.chisquare(counts[name], size) / counts[name]
            * last.get(name, 1.0) for name, matrix in config.design.matrices.items() if matrix.forward == 1}
