"""Values, refusals and sizes in the page's words. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from explorer.choices import Choices, ConfigError, FieldName
from explorer.config import Config
from explorer.fields import Spec
from explorer.numbers import percent
from explorer.translation import translated

GPT2_SMALL = Config(n_layers=12, d_model=768, n_heads=12).sizes.n_parameters

NAMES: Mapping[str, str] = {
    "sqrt_d": "√d",
    "inverse_sqrt_depth": "1/√depth",
    "inverse_depth": "1/depth",
    "qk": "queries and keys",
    "rezero": "ReZero",
    "skipinit": "SkipInit",
    "layer_scale": "LayerScale",
    "fixup": "Fixup",
    "t_fixup": "T-Fixup",
    "magneto": "Magneto",
    "deepnorm": "DeepNorm",
    "deepnorm_encoder": "DeepNorm, encoder",
    "admin": "Admin",
    "deepnorm_decoder": "DeepNorm, decoder",
    "admin_profiled": "Admin, profiled",
    "subln": "Sub-LN",
    "keel": "Keel",
    "normformer": "NormFormer",
    "ngpt": "nGPT",
    "hybrid_star": "hybrid*",
    "rms": "RMS",
    "dyt": "DyT",
    "derf": "Derf",
    "lecun": "LeCun",
    "xavier": "Xavier",
    "he": "He",
    "bert": "BERT",
    "gpt2": "GPT-2",
    "t5": "T5",
    "ntk": "NTK",
    "torch_transformer": "PyTorch Transformer",
    "torch_default": "PyTorch default",
    "mup": "μP",
    "ssmax": "SSMax",
    "completep": "CompleteP",
    "relu": "ReLU",
    "gelu": "GELU",
    "gelu_tanh": "GELU, tanh",
    "quick": "QuickGELU",
    "silu": "SiLU",
    "elu": "ELU",
    "selu": "SELU",
    "relu2": "ReLU²",
    "nope": "NoPE",
    "alibi": "ALiBi",
}
"""Values as the field writes them; any other is its own name."""


def in_words(value: object) -> str:
    """A value in words: `inverse_sqrt_depth` is 1/√depth."""
    if isinstance(value, bool):
        return translated("on" if value else "off")
    if not isinstance(value, str):
        return f"{value:g}" if isinstance(value, float) else str(value)
    return translated(NAMES.get(value, value.replace("_", " ")))


def left_in_words(seconds: float) -> str:
    """'about 40 s left'"""
    if seconds > 90:
        return translated("about {minutes:.0f} min left", minutes=seconds / 60)
    return translated("about {seconds:.0f} s left", seconds=seconds)


def usual_in_words(spec: Spec) -> str:
    """The usual values of a field, options as the page calls them, and who uses them."""
    values, colon, users_of = spec.about.usual.partition(":")
    return f"{', '.join(map(in_words, values.split(', ')))}{colon}{users_of}"


def refusal_in_words(error: ConfigError) -> str:
    """A refusal in the page's words: fields by their labels, values as the controls show them."""

    def words(part: str | FieldName) -> str:
        if isinstance(part, str):
            return part
        if part.value is None:
            return part.label
        return f"{part.label} = {in_words(part.value)}"

    return "".join(words(part) for part in error.phrases)


def unused(spec: Spec, config: Choices) -> str:
    """The reason why a field does not matter with these choices; empty when it does."""
    specs, needed = config.specs(), config.unmet.get(spec.name)
    if not needed:
        return ""
    conditions = []
    for other, values in needed.items():
        condition = "> 0"
        if specs[other].kind != "number":
            condition = f"= {translated(' or ').join(map(in_words, values))}"
        conditions.append(f"{specs[other].about.label.lower()} {condition}")
    return translated(
        "used when {conditions}; it is {values}",
        conditions=translated(", or ").join(conditions),
        values=translated(", ").join(in_words(getattr(config, other)) for other in needed),
    )


def idle(config: Choices) -> Mapping[str, str]:
    """The fields that do not matter with these choices, each with its reason."""
    return {name: unused(config.specs()[name], config) for name in config.unmet}


def size_in_words(config: Config) -> str:
    """Parameters and memory of a config, in a line."""
    sizes = config.sizes
    parameters, share = sizes.n_parameters, sizes.n_parameters / GPT2_SMALL
    message = "{count} parameters · {share} of GPT-2 small's {gpt2} · {activations}B of activations"
    if sizes.block:
        message = (
            "{count} parameters · {share} of GPT-2 small's {gpt2} · {activations}B of activations, "
            "computed twice"
        )
    return translated(
        message,
        count=quantity(parameters),
        share=percent(share),
        gpt2=quantity(GPT2_SMALL),
        activations=quantity(sizes.activation_bytes),
    )


def quantity(count: float) -> str:
    """Two digits and a decimal prefix: 9.4 M."""
    for scale, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= scale:
            return f"{count / scale:.{1 if count < 10 * scale else 0}f} {prefix}"
    return f"{count:.0f}"


class Exclusion(TypedDict):
    """An option, or a position of a switch, that would be refused."""

    value: str | bool
    reason: str
    """The record's refusal, in the page's words."""
    way: str
    """The change to make first, or a sentence that no single change is enough."""


def exclusions(config: Choices) -> dict[str, list[Exclusion]]:
    """By field, the options and switch positions that `config.replace` would refuse; 3 to 5 ms for
    a `Config`."""
    good = config.model_dump()
    by_field = {
        name: [
            item
            for value in options(spec)
            if value != good[name] and (item := _exclusion(config, good, name, value))
        ]
        for name, spec in config.specs().items()
    }
    return {name: excluded for name, excluded in by_field.items() if excluded}


def options(spec: Spec) -> tuple[str | bool, ...]:
    """The values of a list, of segments or of a switch; none where the field is a number."""
    return (False, True) if spec.kind == "switch" else spec.choices


def _exclusion(
    config: Choices, good: Mapping[str, object], name: str, value: str | bool
) -> Exclusion | None:
    """Why a value of a field is refused, and what would allow it; None where it is accepted.

    Args:
        good: the values of `config`, by field.
    """
    values = {**good, name: value}
    try:
        type(config)(**values)
    except ConfigError as error:
        remedy = remedy_in_words(config, fix(config, values, error))
        way = translated("excluded by other choices")
        if remedy:
            way = translated("first {change}", change=remedy[0].lower() + remedy[1:])
        return {"value": value, "reason": refusal_in_words(error), "way": way}
    return None


def fix(config: Choices, values: Mapping[str, object], error: ConfigError) -> dict[str, object]:
    """The first change that ends a refusal of `values`, without touching what they changed in
    `config`; or nothing."""
    good = config.model_dump()
    for name, value in error.fixes.items():
        if values.get(name) == good.get(name) and config.accepts(**{**values, name: value}):
            return {name: value}
    return {}


def remedy_in_words(config: Choices, change: Mapping[str, object]) -> str:
    """Words of a button that makes a change, such as "Set Heads to 4"; empty where there is
    none."""
    specs = config.specs()
    return "".join(
        translated("Set {label} to {value}", label=specs[name].about.label, value=in_words(new))
        for name, new in change.items()
    )


def settings_words(settings: Choices) -> str:
    """Every choice in one line: 'Depth 12 · Norm placement pre'."""
    specs = settings.specs()
    return " · ".join(
        f"{spec.about.label} {in_words(getattr(settings, name))}" for name, spec in specs.items()
    )
