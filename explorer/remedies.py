"""Remedies: the changes that fix what `diagnosis` finds, each with its words, and which of them suit a design."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from explorer.config import Config
from explorer.schemes.attention import divisor, inherits, row_factors
from explorer.schemes.placement import PLACEMENTS, normalizes_heads, placements, point
from explorer.schemes.residual import adds_to_whole_stream

LARGE = 2.0
"""An init variance above which the weights themselves widen the logits too far."""


class Step(NamedTuple):
    """A change of one field, with the words that a button's text is put together from."""

    field: str
    value: object
    words: str


CONSTANT = Step("residual", "constant", "make the residual x + α F(x)")
SMALL_BRANCHES = Step("residual", "inverse_sqrt_depth", "shrink each branch by 1/√(2N)")
UNIT_ALPHA = Step("alpha", 1.0, "set the residual α to 1")
PRE_NORM = Step("norm_placement", "pre", "put a norm before each branch")
UNIT_VARIANCE = Step("init_variance", 1.0, "set the init variance to 1")
DIVIDED = Step("attention_scale", "sqrt_d", "divide the logits by √d")
QK_NORM = Step("qk_norm", True, "normalize queries and keys")
NOT_ADDED = Step("residual_attention", "none", "stop adding logits over the layers")
STEPS = (CONSTANT, SMALL_BRANCHES, UNIT_ALPHA, PRE_NORM, UNIT_VARIANCE, DIVIDED, QK_NORM, NOT_ADDED)

Candidates = Iterable[tuple[Step, ...]]


def remedy(config: Config | None, candidates: Callable[[Config], Candidates]) -> tuple[str, Mapping[str, object]]:
    """The first candidate that changes the config to one that is accepted, in words and as fields; else empty."""
    if config is None:  # a model that is not ours
        return "", {}
    for steps in candidates(config):
        needed = [step for step in steps if getattr(config, step.field) != step.value]
        change = {step.field: step.value for step in needed}
        if change and config.accepts(**change):
            *others, last = (step.words for step in needed)
            words = f"{', '.join(others)} and {last}" if others else last
            return f"{words[0].upper()}{words[1:]}", change
    return "", {}


def plain(config: Config) -> tuple[Step, ...]:
    """Pre-LN with an unscaled stream; a multiplier on the stream would change what it carries."""
    return (PRE_NORM,) if adds_to_whole_stream(config) else (CONSTANT, UNIT_ALPHA, PRE_NORM)


def awake(config: Config) -> Candidates:
    """Branches that are not multiplied by zero, and weights that are large enough."""
    return [(UNIT_ALPHA,) if config.alpha == 0 else (*plain(config), UNIT_VARIANCE)]


def calm(config: Config) -> Candidates:
    """Changes that keep a signal from running away: a norm before each branch, and the size it was made for."""
    return [(*plain(config), UNIT_VARIANCE), (SMALL_BRANCHES,)]


def distinct(config: Config) -> Candidates:
    """Changes that keep the tokens different."""
    return [plain(config), (UNIT_VARIANCE,)]


def soft(config: Config, at_once: bool, grows: bool) -> Candidates:
    """Changes that make the logits smaller: the √d divisor, or norms where the weights are too large for it.

    Where the first layer is within it and a later one is not, a stream that grows and reaches the logits without a norm
    is to blame, or logits that add up over the layers.
    """
    if not at_once and grows and not any(place.reads_norm for place in placements(config)):
        return [(*plain(config), UNIT_VARIANCE, NOT_ADDED)]
    if not at_once and inherits(config) and not point(config):
        return [(NOT_ADDED,)]
    divided = _divided(config)
    if divided and config.init_variance <= LARGE:
        return [divided]
    size = UNIT_VARIANCE if normalizes_heads(config) or point(config) else QK_NORM
    return [(size, *divided, NOT_ADDED)]


def even(config: Config) -> Candidates:
    """Changes that even the gradient out, without those that this design already has."""
    if point(config):  # it bounds a branch's input, and divides nothing
        return [(*_divided(config), *plain(config), UNIT_VARIANCE)]
    if not PLACEMENTS[config.norm_placement].normalizes or not adds_to_whole_stream(config):
        return calm(config)
    sized = (UNIT_VARIANCE,) if config.init_variance > LARGE else ()
    return [(*_divided(config), *sized), plain(config), (SMALL_BRANCHES,)]


def _divided(config: Config) -> tuple[Step, ...]:
    """The √d divisor, where logits are divided by less."""
    sharpest = max(row_factors(config, config.n_ctx))
    return (DIVIDED,) if divisor(config) < sharpest * math.sqrt(config.d_head) else ()
