"""Names of designs: the preset, or the nearest preset and the differences from it. Pure functions."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from explorer.app.widgets.wording import in_words
from explorer.config import Config, departures, design_fields, differences
from explorer.schemes.preset import PRESETS

LONGEST_NAME = 40
"""Letters of a design's name: it stands in a legend, and in front of every number on hovering."""
MOST_DIFFERENCES = 3
"""Differences that are spelled out; further ones are counted."""
IDENTITY = ("norm_placement", "residual")
"""Fields that must agree with a preset for a design to be named after it."""


def change_words(before: Config, after: Config) -> list[list[str]]:
    """Label, old and new value of each field that two configs differ in and that matters in the later one."""
    specs = Config.specs()
    return [[specs[name].about.label, in_words(getattr(before, name)), in_words(getattr(after, name))]
            for name in differences(before, after) if after.matters(name)]


def choice_words(config: Config, fields: Collection[str]) -> str:
    """Some choices of a config in words: 'depth 24, norm placement post'; beyond a limit only their number."""
    specs = Config.specs()
    parts = [f"{lowered(specs[name].about.label)} {in_words(getattr(config, name))}" for name in fields]
    more = len(parts) - MOST_DIFFERENCES
    return ", ".join(parts) if more <= 1 else ", ".join([*parts[:MOST_DIFFERENCES], f"{more} more"])


def name_of(config: Config, taken: Collection[tuple[str, Config]] = ()) -> str:
    """A name that none of the others has: the nearest preset's title and the differences from it and from the others.

    A design whose norm or residual no preset has is called by what sets it apart from the default one.

    Args:
        taken: the names in use, and their configs.
    """
    name = _alone(config, tuple(PRESETS))
    holder = next((other for held, other in taken if held == name), None)
    if holder is None:
        return name
    apart = choice_words(config, differences(config, holder))
    fits = len(name) + len(apart) + 2 <= LONGEST_NAME
    return unique(cut(f"{name}, {apart}" if fits else f"{apart}, {name}"), {held for held, _ in taken})


def tidied(text: str) -> str:
    """A person's text as a name: on one line and without invisible characters."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def cut(name: str, end: str = "") -> str:
    """A name and its end in as many letters as a name may have."""
    room = LONGEST_NAME - len(end)
    return (name if len(name) <= room else name[: room - 1].rstrip(" ,") + "…") + end


def unique(name: str, taken: Collection[str]) -> str:
    """The name, with a number where it is taken."""
    numbered = (cut(name, f" ({number})") for number in range(2, len(taken) + 3))
    return name if name not in taken else next(other for other in numbered if other not in taken)


def lowered(label: str) -> str:
    """A label within a sentence: 'Depth' is 'depth', 'QK-norm' stays."""
    return label if label[:2].isupper() else label[0].lower() + label[1:]


@lru_cache(maxsize=256)
def _alone(config: Config, known: tuple[str, ...]) -> str:
    """Name of a design where there is no other, of the presets that are known. A page asks again at every change."""
    departed = departures(config)
    kin = [name for name in known if not {*IDENTITY} & {*departed[name]}]
    if kin:
        nearest = min(kin, key=lambda name: len(departed[name]))
        name = ", ".join(filter(None, (PRESETS[nearest].title, choice_words(config, departed[nearest]))))
        if len(name) <= LONGEST_NAME:
            return name
    return cut(choice_words(config, differences(config, Config(), design_fields())))
