"""Remedies: the changes that fix what the rules find, and which of them suit a design.

A model of ours gets a change of its config, the `Step`s of `verdicts.toml`; any other gets a
`Cure`, a line of torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from explorer.config import Config
from explorer.diagnosis.finding import VERDICTS, Remedy, text
from explorer.numbers import filled
from explorer.profile import Profile
from explorer.schemes.placement import PLACEMENTS
from explorer.translation import translated

LARGE = 2.0
"""An init variance above which the weights themselves widen the logits too far."""


class Step(NamedTuple):
    """A change of one field of `Config`, with its words on a button; several changes are several
    sentences."""

    field: str
    value: object
    words: str


class Cure(NamedTuple):
    """A change of a torch model; names in the code stand for those of the model."""

    words: str
    code: str
    draws: bool = False
    """Whether it draws weights, which is too late for a model that has been trained."""


STEPS: dict[str, Step] = {name: Step(**row) for name, row in VERDICTS["step"].items()}
CURES: Mapping[str, Cure] = {name: Cure(**row) for name, row in VERDICTS["cure"].items()}
Candidates = Iterable[tuple[str, ...]]
"""Changes in the order of preference, each by the names of its steps."""


def fix(
    profile: Profile,
    cure: str,
    candidates: Callable[[Config], Candidates] = lambda _: (),
    /,
    **values: object,
) -> Remedy:
    """The remedy of a finding: a change of the config where there is one, else the cure.

    Args:
        profile: of the model.
        cure: a key of `CURES`; empty where no cause was read that has one.
        candidates: changes of a config.
        values: of the placeholders in the cure.
    """
    if profile.config is not None:
        return remedy(profile.config, candidates)
    if not cure:
        return Remedy()
    words, code, _ = CURES["later" if profile.step and CURES[cure].draws else cure]
    return Remedy(filled(translated(words), **values), {}, filled(translated(code), **values))


def remedy(config: Config, candidates: Callable[[Config], Candidates]) -> Remedy:
    """The first candidate that changes the config to one that is accepted, in words and as fields;
    else empty."""
    for names in candidates(config):
        steps = [
            step
            for step in map(STEPS.__getitem__, names)
            if getattr(config, step.field) != step.value
        ]
        change = {step.field: step.value for step in steps}
        if change and config.accepts(**change):
            words = [translated(step.words) for step in steps]
            return Remedy(text("phrase", "then").join(words), change)
    return Remedy()


def listed(names: Iterable[str]) -> str:
    """Names as a list in words: "W_Q, W_K and W_V"."""
    *others, last = names
    comma = text("phrase", "comma")
    return text("phrase", "and", first=comma.join(others), last=last) if others else last


def plain(config: Config) -> tuple[str, ...]:
    """Pre-LN with an unscaled stream; a multiplier on the stream would change what it carries."""
    return (
        ("pre_norm",)
        if config.design.adds_to_whole_stream
        else ("constant", "unit_alpha", "pre_norm")
    )


def awake(config: Config) -> Candidates:
    """Branches that are not multiplied by zero, and weights that are large enough."""
    return [("unit_alpha",) if config.alpha == 0 else (*plain(config), "unit_variance")]


def calm(config: Config) -> Candidates:
    """Changes that keep a signal from running away: a norm before each branch, and the size it was
    made for."""
    return [(*plain(config), "unit_variance"), ("small_branches",)]


def distinct(config: Config) -> Candidates:
    """Changes that keep the tokens different."""
    return [(*plain(config), *_sized(config)), ("unit_variance",)]


def soft(config: Config, at_once: bool, grows: bool) -> Candidates:
    """Changes that make the logits smaller: the √d divisor, or norms where the weights are too
    large for it.

    Where the first layer is within it and a later one is not, a stream that grows and reaches the
    logits without a norm is to blame, or logits that add up over the layers."""
    if (
        not at_once
        and grows
        and not any(place.has("input", "sum") for place in config.design.sublayers)
    ):
        return [(*plain(config), "unit_variance", "not_added")]
    if not at_once and config.design.inherits and not config.design.point:
        return [("not_added",)]
    divided = _divided(config)
    if divided and config.init_variance <= LARGE:
        return [divided]
    size = "unit_variance" if config.design.normalizes_heads or config.design.point else "qk_norm"
    return [(size, *divided, "not_added")]


def even(config: Config) -> Candidates:
    """Changes that even the gradient out, without those that this design already has."""
    if config.design.point:  # it bounds a branch's input, and divides nothing
        return [(*_divided(config), *plain(config), "unit_variance")]
    if not PLACEMENTS[config.norm_placement].normalizes or not config.design.adds_to_whole_stream:
        return calm(config)
    return [(*_divided(config), *_sized(config)), plain(config), ("small_branches",)]


def _sized(config: Config) -> tuple[str, ...]:
    """Weights of the rule's size, where they are large."""
    return ("unit_variance",) if config.init_variance > LARGE else ()


def _divided(config: Config) -> tuple[str, ...]:
    """The √d divisor, where logits are divided by less."""
    sharpest = max(config.design.row_factors)
    return ("divided",) if config.design.divisor < sharpest * math.sqrt(config.d_head) else ()
