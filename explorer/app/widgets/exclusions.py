"""The options that the other choices exclude, and the change that ends a refusal: both asked of the record itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from explorer.app.widgets.wording import in_words, refusal_in_words
from explorer.choices import Choices, ConfigError
from explorer.fields import Spec


class Exclusion(TypedDict):
    """An option, or a position of a switch, that would be refused."""

    value: str | bool
    reason: str
    """The record's refusal, in the page's words."""
    way: str
    """The change to make first, or a sentence that no single change is enough."""


def exclusions(config: Choices) -> dict[str, list[Exclusion]]:
    """By field, the options and switch positions that `config.replace` would refuse; 3 to 5 ms for a `Config`."""
    good = config.model_dump()
    by_field = {
        name: [item for value in options(spec)
               if value != good[name] and (item := _exclusion(config, good, name, value))]
        for name, spec in config.specs().items()
    }
    return {name: excluded for name, excluded in by_field.items() if excluded}


def options(spec: Spec) -> tuple[str | bool, ...]:
    """The values of a list, of segments or of a switch; none where the field is a number."""
    return (False, True) if spec.kind == "switch" else spec.choices


def _exclusion(config: Choices, good: Mapping[str, object], name: str, value: str | bool) -> Exclusion | None:
    values = {**good, name: value}
    try:
        type(config)(**values)
    except ConfigError as error:
        way = remedy_in_words(config, fix(config, values, error))
        way = f"first {way[0].lower()}{way[1:]}" if way else "excluded by other choices"
        return {"value": value, "reason": refusal_in_words(error), "way": way}
    return None


def fix(config: Choices, values: Mapping[str, object], error: ConfigError) -> dict[str, object]:
    """The first change that ends a refusal of `values`, without touching what they changed in `config`; or nothing."""
    good = config.model_dump()
    for name, value in error.mend.items():
        if values.get(name) == good.get(name) and config.accepts(**{**values, name: value}):
            return {name: value}
    return {}


def remedy_in_words(config: Choices, change: Mapping[str, object]) -> str:
    """Words of a button that makes a change, such as "Set Heads to 4"; empty where there is none."""
    specs = config.specs()
    return "".join(f"Set {specs[name].about.label} to {in_words(new)}" for name, new in change.items())
