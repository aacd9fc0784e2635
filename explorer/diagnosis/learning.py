"""Rules on what learns in a model that is not ours: parameters without a gradient or an update, and
zeros by design."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from explorer.diagnosis.finding import LONGEST, NO_REMEDY, VERDICTS, Finding, Remedy, Severity, text
from explorer.diagnosis.reading import capitalized, numbered, runs, weight_gradients
from explorer.diagnosis.remedies import fix, listed
from explorer.diagnosis.structure import unmoved_layers
from explorer.foreign import STUCK, Part, State
from explorer.profile import FIRST_STEP, Profile
from explorer.translation import sentences

NAMES = 8
"""Names that a list has at most; how many more there are is said."""
CURE: Mapping[State, str] = {
    "unheld": "held",
    "no_rate": "",
    "unmoved": "",
    "checkpoint": "not_reentrant",
    "no_grad": "with_gradients",
    "unreached": "reached",
    "zeros": "one_factor",
    "never": "reached",
    "uncalled": "",
    "unused": "",
}
"""The cure by the reason: none where the reason that was read has no change of its own."""
BY_CODE: tuple[State, ...] = ("unused", "uncalled")
"""Parameters that the code does not use: no training is lost with them."""


def nothing(profile: Profile) -> Finding | None:
    """A model of which no parameter learns, though some are meant to."""
    learning = profile.learning
    stuck = learning.of(*STUCK)
    if learning.of("first", "second", "later", "waiting") or not stuck:
        return None
    held = {state: parts for state in STUCK if (parts := learning.of(state))}
    most = max(held, key=lambda state: _count(held[state]))
    proof = [_evidence(profile, state, parts) for state, parts in held.items()]
    return Finding(
        "bad", text("nothing_learns", "nothing"), sentences(proof), *_remedy(profile, most)
    )


def _count(parts: Iterable[Part]) -> int:
    """Parameters of several parts."""
    return sum(part.parameters for part in parts)


def stuck(state: State, severities: Sequence[Severity], profile: Profile) -> Finding | None:
    """Parameters that do not learn for one reason, where that is of one of some severities.

    It is serious where they are matrices of a layer, and a note where the loss need not reach all
    of the model."""
    parts = [part for part in profile.learning.of(state) if not _told(profile, part)]
    severity = _severity(profile, state, parts)
    if not parts or severity not in severities or nothing(profile) is not None:
        return None
    count = _count(parts)
    every = _count(profile.learning.parts)
    meaning = text("stuck", state, names=names(profile, parts))
    if len(meaning.split()) > LONGEST:
        meaning = text("stuck", f"{state}_many", count=count, every=every)
    return Finding(severity, meaning, _evidence(profile, state, parts), *_remedy(profile, state))


def _severity(profile: Profile, state: State, parts: Sequence[Part]) -> Severity:
    """The severity of parameters that do not learn."""
    inside = [part for part in parts if part.layers]
    layers = {layer for part in inside for layer in part.layers}
    if state in ("unreached", "never") and attention_learns(profile, layers):
        return "warning"  # a choice that has no gradient, such as that of the tokens to attend to, may learn otherwise
    if state not in BY_CODE and any(part.matrix for part in inside):
        return "bad"
    return "good" if profile.learning.projected and not inside else "warning"


def attention_learns(profile: Profile, layers: Iterable[int]) -> bool:
    """Whether queries were read in some layers, from 1, and each matrix of attention that was read
    learns there.

    A gradient of W_Q says that the scores matter; one of W_O alone would also be there where all
    tokens weigh the same."""
    gradients = weight_gradients(profile)
    at = [layer - 1 for layer in layers]
    if not at or "W_Q" not in gradients:
        return False
    rows = [gradients[site] for site in ("W_Q", "W_K", "W_V", "W_O") if site in gradients]
    return all(bool((row[:, at] > 0).all()) for row in rows)


def _told(profile: Profile, part: Part) -> bool:
    """Whether `structure.unmoved` names the matrices of the same layers."""
    return bool(part.layers) and {*part.layers} <= unmoved_layers(profile).keys()


def _evidence(profile: Profile, state: State, parts: Sequence[Part]) -> str:
    """Which parameters, and what was seen of them."""
    learning, count = profile.learning, _count(parts)
    trained = learning.steps and f"{state}_steps" in VERDICTS["stuck"]
    reason = f"{state}_steps" if trained else f"{state}_evidence"
    which = "which" if count > 1 else "which_one"
    return sentences(
        [
            text("stuck", which, count=count, names=names(profile, parts)),
            text("stuck", reason, steps=learning.steps),
            *(
                [text("stuck", "projected")]
                if learning.projected and state in ("unreached", "unused", "never")
                else []
            ),
        ]
    )


def _remedy(profile: Profile, state: State) -> Remedy:
    return fix(profile, CURE[state]) if CURE[state] else NO_REMEDY


def stepwise(profile: Profile) -> Finding | None:
    """Parameters whose gradient is 0 at first by design: the first step moves some, the next ones
    the rest.

    None where all parameters that learn move at the first step, where a layer has parameters that
    do not learn, and for a model that has been trained: `step` is above 0."""
    learning = profile.learning
    # by when they got a gradient: first step, second, a later one, none that was read
    states: tuple[State, ...] = ("first", "second", "later", "waiting")
    phases = {state: parts for state in states if (parts := learning.of(state))}
    stuck_in_layers = [part for part in learning.of(*STUCK) if part.layers]
    if profile.step or "first" not in phases or len(phases) == 1 or stuck_in_layers:
        return None
    first, note = phases["first"], profile.notes.get("activation_gradient", "")
    if note.startswith(FIRST_STEP):  # it names the parameters already
        meaning = text("nothing_learns", "later", note=capitalized(note))
    else:
        # the sentence says when the rest moves: at later steps, if some of it does, else at the
        # second; of a rest that only waits it says nothing
        rest = next(state for state in ("later", "second", "waiting") if state in phases)
        meaning = text("stepwise", rest, names=_outline(first))
        if len(meaning.split()) > LONGEST:  # too many names for a headline: say their number
            every = sum(map(_count, phases.values()))
            meaning = text("stepwise", f"{rest}_many", count=_count(first), every=every)
    evidence = [
        text("stepwise", f"{phase}_evidence", names=names(profile, parts))
        for phase, parts in phases.items()
    ]
    return Finding("good", meaning, sentences([*evidence, *learning.facts]))


def _outline(parts: Sequence[Part]) -> str:
    """Names alone."""
    return listed(dict.fromkeys(part.name or text("phrase", "whole") for part in parts))


def trains(profile: Profile) -> Finding | None:
    """Parameters that are frozen on purpose, and those that are not."""
    frozen, idle = profile.learning.of("frozen"), profile.learning.of("idle")
    learns = profile.learning.of("first", "second", "later", "waiting")
    if not frozen and not idle:
        return None
    key = "trains" if learns else "frozen"
    if not frozen:
        key = "idle"
    counts = [_count(parts) for parts in (frozen, profile.learning.parts)]
    evidence = [
        text("trains", f"{kind}_evidence", names=names(profile, parts))
        for kind, parts in (("trains", learns), ("frozen", frozen), ("idle", idle))
        if parts
    ]
    return Finding(
        "good", text("trains", key, frozen=counts[0], every=counts[1]), sentences(evidence)
    )


def partly(profile: Profile) -> Finding | None:
    """The part of the model that was read, where that is not all."""
    proof = [*profile.coverage, *(() if stepwise(profile) else profile.learning.facts)]
    return Finding("good", text("partly", "meaning"), sentences(proof)) if proof else None


def names(profile: Profile, parts: Iterable[Part]) -> str:
    """Parts in words: "embed and head; attn.lora_A and attn.lora_B in layers 1 to 6"."""
    by_layers: dict[tuple[int, ...], list[str]] = {}
    for part in parts:
        by_layers.setdefault(part.layers, []).append(part.name)
    return text("phrase", "semicolon").join(
        _of_layers(profile, layers, inside) for layers, inside in by_layers.items()
    )


def _of_layers(profile: Profile, layers: tuple[int, ...], inside: Sequence[str]) -> str:
    """Names within some layers, or outside of them."""
    unlisted = len(inside) - NAMES
    shown = [*inside[:NAMES], *([text("phrase", "more", count=unlisted)] if unlisted > 0 else [])]
    if not layers:
        return listed(shown)
    where = layer_range(profile, layers)
    return (
        text("phrase", "all_of", layers=where)
        if "" in inside
        else text("phrase", "inside", names=listed(shown), layers=where)
    )


def layer_range(profile: Profile, layers: Sequence[int]) -> str:
    """Layers in words: "layer 3 (h.2)", "layers 1 to 4, 6 and 8 to 9"."""
    if len(layers) == 1:
        return text("phrase", "layer", layer=numbered(profile, layers[0]))
    ranges = [
        text("phrase", "range", first=first, last=last) if last > first else str(first)
        for first, last in runs(layers)
    ]
    return text("phrase", "layers", layers=listed(ranges))


Rule = Callable[[Profile], Finding | None]
HARM: tuple[Severity, ...] = ("bad", "warning")
CAUSES: tuple[Rule, ...] = (
    nothing,
    *(partial(stuck, state, HARM) for state in STUCK if state not in BY_CODE),
)
"""Rules on parameters that do not learn."""
UNUSED: tuple[Rule, ...] = tuple(partial(stuck, state, HARM) for state in BY_CODE)
"""Rules on parameters that the code does not use."""
NOTES: tuple[Rule, ...] = (*(partial(stuck, state, ("good",)) for state in STUCK), trains, partly)
"""Rules on what is so on purpose, and on what was not read: they stand beside any other finding,
also a healthy one."""
