"""Words of an exported file: which design it is, its choices with their sources, and its classes."""

from __future__ import annotations

from textwrap import wrap

from explorer.config import Config, matching
from explorer.export.layers import LayerClass
from explorer.fields import Option
from explorer.schemes.attention import DIVISORS
from explorer.schemes.placement import PLACEMENTS
from explorer.schemes.preset import PRESETS
from explorer.schemes.residual import RESIDUALS

ALWAYS = ("norm_placement", "norm", "residual", "attention", "mlp", "activation", "scale_rule")
"""Choices that the docstring always names; others where they differ from their default."""
ELSEWHERE = ("Size", "Input and loss")
"""Groups of fields that are no part of a design."""


def title(config: Config) -> list[str]:
    """Paragraphs that name the design and its source."""
    name = matching(config)
    if not name:
        return ["A Transformer of this design:"]
    row = PRESETS[name]
    return [f"{row.title}: {row.words}", f"Source: {row.source}." + (f" {row.differs}" if row.differs else "")]


def described(row: Option) -> str:
    """A row's formula, and its source where there is one."""
    return f"{row.formula} ({row.source})" if row.source else row.formula


def choices(config: Config) -> list[str]:
    """Lines with the label, the formula and the source of each choice of the design."""
    lines = []
    for name, spec in Config.specs().items():
        value = getattr(config, name)
        shown = config.matters(name) and (name in ALWAYS or value != spec.default)
        if shown and spec.about.options and spec.about.group not in ELSEWHERE:
            words = f"{spec.about.label}: {described(spec.about.options[value])}"
            lines += wrap(words, 112, initial_indent="    ", subsequent_indent="        ")
    return lines


def attention_words(config: Config) -> str:
    """The formulas that differ from plain attention, and their sources."""
    design = config.design
    fields = ["residual_attention", "sink", "attention_gate"] + ["position"] * bool(design.slopes or design.rotates)
    specs = Config.specs()
    chosen = [specs[name].about.options[getattr(config, name)] for name in fields
              if getattr(config, name) != specs[name].default]
    rows = [DIVISORS[config.attention_scale], *chosen]
    return f"Self-attention{', causal' if config.causal else ''}: {'; '.join(map(described, rows))}."


def layer_words(config: Config, layer: LayerClass) -> str:
    """The numbers of a class's layers, if not all, and the formulas of norm placement, stream and residual."""
    design = config.design
    rows = [PLACEMENTS[config.norm_placement], *([design.stream] if design.stream.parallel else [])]
    if not RESIDUALS[config.residual].plain:
        rows.append(RESIDUALS[config.residual])
    return (f"{layer.numbers}: " if layer.numbers else "") + "; ".join(map(described, rows)) + "."
