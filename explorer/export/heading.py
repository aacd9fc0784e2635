"""Words of an exported file: which design it is, its choices with their sources, and its classes."""

from __future__ import annotations

from textwrap import wrap

from explorer.config import Config
from explorer.export.layers import LayerClass
from explorer.fields import Option, users
from explorer.schemes.attention import DIVISORS
from explorer.schemes.placement import PLACEMENTS
from explorer.schemes.position import rotates, slopes
from explorer.schemes.preset import PRESETS, Preset
from explorer.schemes.residual import RESIDUALS
from explorer.schemes.stream import stream

ALWAYS = ("norm_placement", "norm", "residual", "attention", "mlp", "activation", "scale_rule")
"""Choices that the docstring always names; others where they differ from their default."""
ELSEWHERE = ("Size", "Input and loss")
"""Groups of fields that are no part of a design."""


def matching(config: Config) -> Preset | None:
    """The named design that a config is, whatever its sizes; none where it is none of them."""
    specs = Config.specs()
    free = {name for name, spec in specs.items() if spec.about.group in ELSEWHERE}
    for row in PRESETS.values():
        choices = {field: getattr(config, field) for field in free} | dict(row.changes)
        if any(getattr(config, field) != value for field, value in choices.items()) or not Config().accepts(**choices):
            continue
        named = Config(**choices)
        if all(getattr(named, field) == getattr(config, field) or not matters(config, field) for field in specs):
            return row
    return None


def matters(config: Config, field: str) -> bool:
    """Whether a field makes a difference with these choices."""
    needed = users(config.specs(), field)

    def uses(value: object, values: tuple[str | bool, ...]) -> bool:
        return value > 0 if isinstance(value, float) else value in values

    return not needed or any(
        uses(getattr(config, other), values) and matters(config, other) for other, values in needed.items())


def title(config: Config) -> list[str]:
    """Paragraphs that name the design and its source."""
    row = matching(config)
    if not row:
        return ["A Transformer of this design:"]
    return [f"{row.title}: {row.words}", f"Source: {row.source}." + (f" {row.differs}" if row.differs else "")]


def described(row: Option) -> str:
    """A row's formula, and its source where there is one."""
    return f"{row.formula} ({row.source})" if row.source else row.formula


def choices(config: Config) -> list[str]:
    """Lines with the label, the formula and the source of each choice of the design."""
    lines = []
    for name, spec in Config.specs().items():
        value = getattr(config, name)
        shown = matters(config, name) and (name in ALWAYS or value != spec.default)
        if shown and spec.about.options and spec.about.group not in ELSEWHERE:
            words = f"{spec.about.label}: {described(spec.about.options[value])}"
            lines += wrap(words, 112, initial_indent="    ", subsequent_indent="        ")
    return lines


def attention_words(config: Config) -> str:
    """The formulas that differ from plain attention, and their sources."""
    fields = ["residual_attention", "sink", "attention_gate"] + ["position"] * bool(slopes(config) or rotates(config))
    specs = Config.specs()
    chosen = [specs[name].about.options[getattr(config, name)] for name in fields
              if getattr(config, name) != specs[name].default]
    rows = [DIVISORS[config.attention_scale], *chosen]
    return f"Self-attention{', causal' if config.causal else ''}: {'; '.join(map(described, rows))}."


def layer_words(config: Config, layer: LayerClass) -> str:
    """The numbers of a class's layers, if not all, and the formulas of norm placement, stream and residual."""
    rows = [PLACEMENTS[config.norm_placement], *([stream(config)] if stream(config).parallel else [])]
    if not RESIDUALS[config.residual].plain:
        rows.append(RESIDUALS[config.residual])
    return (f"{layer.numbers}: " if layer.numbers else "") + "; ".join(map(described, rows)) + "."
