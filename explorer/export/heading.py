"""Text above the classes: the docstring and the constants."""

from __future__ import annotations

import math
from textwrap import wrap

from explorer import text
from explorer.config import Config
from explorer.export.factors import constants as factor_constants
from explorer.export.spelling import cited, number, product, sizes, spell
from explorer.export.weights import constants as weight_constants
from explorer.fields import users
from explorer.schemes.data import predicts_text, reads_text
from explorer.schemes.preset import PRESETS, Preset

ALWAYS = ("norm_placement", "norm", "residual", "attention", "mlp", "activation", "scale_rule")
"""Choices that the docstring always names; others where they differ from their default."""
ELSEWHERE = ("Size", "Input and loss")
"""Groups of fields that are no part of a design."""
KEPT = """Weights are drawn as on the page of Transformer Signal Explorer. Gains of norms are left out, and biases where
there are none below: they are 1 and 0 at initialization. Parameters are named as in explorer.model.Transformer, so
that either model loads the other's state_dict(). A number without a formula holds for these sizes only."""

REMARKS = {
    "VOCABULARY": "  # distinct characters of the page's text", "N_CTX": "  # tokens at most",
    "SKIP": "  # factor on the stream", "BRANCH": "  # factor on each branch",
}
"""Beside constants whose name does not say it all."""


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


def docstring(config: Config) -> str:
    """The file's docstring: the design, its sources, its use, and the call that makes it again."""
    row = matching(config)
    title = f"{row.title}: {row.words}" if row else "A Transformer of this design:"
    paragraphs = [title]
    if row:
        paragraphs.append(f"Source: {row.source}." + (f" {row.differs}" if row.differs else ""))
    opening = "\n\n".join("\n".join(wrap(paragraph, 116)) for paragraph in paragraphs)
    quotes = '"""'
    return f"{quotes}{opening}\n\n{_choices(config)}\n\n{_use(config)}\n\n{KEPT}\n\n{_made_of(config)}\n{quotes}"


def _choices(config: Config) -> str:
    """A line for each choice of the design: its label, its formula and its source."""
    specs = Config.specs()
    lines = []
    for name, spec in specs.items():
        value = getattr(config, name)
        shown = matters(config, name) and (name in ALWAYS or value != spec.default)
        if shown and spec.about.options and spec.about.group not in ELSEWHERE:
            words = f"{spec.about.label}: {cited(spec.about.options[value])}"
            lines += wrap(words, 112, initial_indent="    ", subsequent_indent="        ")
    return "\n".join(lines)


def _use(config: Config) -> str:
    """A few lines that run the model."""
    size = product(number(math.sqrt(config.input_second_moment)), f"torch.randn(2, {config.n_ctx}, {config.d_model})")
    given = f"torch.randint(VOCABULARY, (2, {config.n_ctx}))" if reads_text(config) else size
    made = "[batch, token, vocabulary]" if predicts_text(config) else "[batch, token, d_model]"
    return f"    model = Transformer()\n    model({given})  # {made}"


def _made_of(config: Config) -> str:
    return "\n".join(wrap(f"Made from {config!r}.", 116, break_long_words=False, break_on_hyphens=False))


def constants(config: Config) -> dict[str, str]:
    """Lines that give sizes and factors their names, of which the file keeps those that it uses."""
    ratio = number(config.mlp_ratio)
    formulas = {
        "D_HEAD": () if config.head_size else ("D_MODEL // N_HEADS",),
        "D_MLP": (product(ratio.removesuffix(".0"), "D_MODEL") if ratio.endswith(".0") else f"round({ratio} * D_MODEL)",
                  ),
    }
    values = {name: spell(config, value, *formulas.get(name, ())) for name, value in sizes(config).items()}
    whole = {name: value.removesuffix(".0") for name, value in values.items()}
    if reads_text(config):
        whole["VOCABULARY"] = str(len(text.prose().vocabulary))
    every = {**whole, **factor_constants(config), **weight_constants(config)}
    return {name: _named(name, value) for name, value in every.items()}


def _named(name: str, value: str) -> str:
    """The line that gives a value its name, or several."""
    if len(value) < 90:
        return f"{name} = {value}{REMARKS.get(name, '')}"
    return "\n".join((f"{name} = (", *(f"    {line}" for line in wrap(value, 110)), ")"))
