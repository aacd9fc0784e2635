"""Values and designs as they stand in a link: `n_layers=24`, `design=post_ln`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from explorer.app.view import label
from explorer.choices import Choices
from explorer.config import Config, changes_to
from explorer.display import shown
from explorer.fields import Spec
from explorer.schemes.preset import PRESETS

NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
SWITCH = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
LONGEST_NUMBER = 40
"""Characters of a number that are read as one: a longer text is none, and refused as the text it is."""
Fields = dict[str, object]


def write_value(value: object) -> str:
    """A value of a field: a number to its last digit, a switch as true or false."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_value(spec: Spec, text: str) -> object:
    """The value that a text stands for; the text itself where it is none of the field's kind, to be refused as such."""
    if spec.kind == "switch":
        return SWITCH.get(text.lower(), text)
    if spec.kind == "choice" or len(text) > LONGEST_NUMBER or not NUMBER.fullmatch(text):
        return text
    return int(text) if text.lstrip("+-").isdecimal() else float(text)


def field_named(kind: type[Choices], name: str) -> str:
    """The field that a person means by its name or its label (`depth` is `n_layers`); empty where there is none."""
    return name if name in kind.specs() else _labels(kind).get(name.lower(), "")


@cache
def _labels(kind: type[Choices]) -> dict[str, str]:
    """A field's label as it stands in a link, and the field."""
    return {label(item): field for field, item in kind.specs().items()}


def changed(choices: Choices) -> Fields:
    """The fields that differ from the defaults."""
    return dict(choices.__repr_args__())


def differing(fields: Mapping[str, object], base: Mapping[str, object]) -> Fields:
    """The fields of a Config that differ from those of a named design; both without the defaults."""
    if fields == base:
        return {}
    specs = Config.specs()
    wanted = {name: fields.get(name, specs[name].default) for name in dict.fromkeys((*fields, *base))}
    return {name: value for name, value in wanted.items() if value != base.get(name, specs[name].default)}


@cache
def named_fields(preset: str) -> Mapping[str, object]:
    """Fields in which a named design differs from the default one, with its values."""
    specs = Config.specs()
    return {name: value for name, value in changes_to(preset).items() if value != specs[name].default}


def write_design(fields: Mapping[str, object], *, named: bool = False) -> tuple[str, Fields]:
    """The shortest way to say a design: a named one and what differs from it.

    Args:
        fields: those that differ from the defaults.
        named: whether a design without a name is to be avoided where another is as short.
    Returns:
        The name, empty for the default design, and the other fields.
    """
    ways: list[tuple[str, Fields]] = [(name, differing(fields, named_fields(name))) for name in PRESETS]
    plain: tuple[str, Fields] = ("", dict(fields))
    return min([*ways, plain] if named else [plain, *ways], key=lambda way: len(way[1]))


def read_design(preset: str, where: str) -> tuple[Fields, list[str]]:
    """The fields of a named design, and a sentence where there is none of that name."""
    if preset and preset not in PRESETS:
        return {}, [f"{where} must be a named design, such as {next(iter(PRESETS))}; got {shown(preset)}"]
    return dict(named_fields(preset)) if preset else {}, []


def typed(kind: type[Choices], texts: Mapping[str, str]) -> dict[str, Any]:
    """Values of fields from their texts."""
    specs = kind.specs()
    return {name: read_value(specs[name], text) for name, text in texts.items()}
