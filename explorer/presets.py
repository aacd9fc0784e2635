"""Named designs and how a config differs from them: which preset it is, and in which fields it is another."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache, lru_cache

from explorer.config import Config, preset
from explorer.schemes.preset import PRESETS

SETTING = ("Size", "Input and loss")
"""Groups of fields that are the experiment's, not the design's: a preset leaves them alone."""


def design_fields() -> list[str]:
    """The fields that make a design: every choice but sizes, input, loss and seeds, and of those what a preset sets."""
    preset_fields = {name for row in PRESETS.values() for name in row.changes}
    return [name for name, spec in Config.specs().items()
            if spec.about.group not in SETTING or name in preset_fields]


def changes_to(name: str) -> dict[str, object]:
    """Every field of a design, as the preset of that name has it."""
    target = _target(name)
    return {field: getattr(target, field) for field in design_fields()}


def matching(config: Config) -> str:
    """Name of the preset that a config equals, apart from size and input; empty where there is none."""
    return next((name for name, fields in departures(config).items() if not fields), "")


def differences(config: Config, other: Config, among: Collection[str] = ()) -> list[str]:
    """The fields that two configs differ in, those that matter in neither left out; among all when left out."""
    idle = config.unmet
    return [name for name in among or Config.specs()
            if getattr(config, name) != getattr(other, name) and not (name in idle and name in other.unmet)]


def departures(config: Config) -> dict[str, list[str]]:
    """By preset, the fields of a design in which a config is not that preset."""
    return _departures(config, tuple(PRESETS))


@lru_cache(maxsize=256)
def _departures(config: Config, known: tuple[str, ...]) -> dict[str, list[str]]:
    """`departures` from the presets that are known, kept: a page asks again at every change."""
    fields = design_fields()
    return {name: differences(config, _target(name), fields) for name in known}


@cache
def _target(name: str) -> Config:
    return preset(name)
