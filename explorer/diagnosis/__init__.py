"""Findings in words: each rule reads a profile and, if it applies, names the evidence and the
remedy.

A rule is a function of a profile, and of no config: it judges the theory's profiles, ours, and
those of a torch model alike. Its sentences stand in `verdicts.toml`, its change is one of
`remedies`: a change of the config for a model of ours, a line of torch for any other. The tests
apply each of the former and measure again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from explorer.diagnosis import agreement, every_layer, faults, learning, signal, structure, weights
from explorer.diagnosis.finding import ORDER, Finding, Findings, Quantity, Severity
from explorer.diagnosis.reading import numbered
from explorer.diagnosis.signal import LEAST_DIFFERENCE, alike, token_difference
from explorer.display import must_be
from explorer.foreign import STUCK
from explorer.profile import Profile
from explorer.translation import speaking

__all__ = [
    "LEAST_DIFFERENCE",
    "RULES",
    "Finding",
    "Findings",
    "Quantity",
    "Severity",
    "alike",
    "diagnose",
    "token_difference",
]

Rule = Callable[[Profile], Finding | None]

SHARED: tuple[Rule, ...] = (
    every_layer.wrong_softmax,
    every_layer.sees_target,
    every_layer.lost_stream,
    every_layer.wrong_rotary,
    every_layer.undivided,
    every_layer.one_module,
)
"""Mistakes that all layers of a model share, read from its code: they come before those of one
layer."""
CAUSES: tuple[Rule, ...] = (
    *faults.FAULTS,
    *SHARED,
    structure.odd_design,
    weights.odd_weights,
    weights.wrong_fan_in,
    weights.copies,
    weights.odd_logits,
    weights.undivided,
    structure.no_residual,
    structure.no_norm_on_sum,
    structure.dead_branch,
    structure.unmoved,
    weights.odd_branch,
    *learning.CAUSES,
)
"""Mistakes in a model that is not ours. Where its signal suffers as well, they are as serious, and
come first."""
INFERRED: tuple[Rule, ...] = (
    weights.odd_logits,
    weights.undivided,
    structure.no_residual,
    structure.no_norm_on_sum,
    weights.odd_branch,
)
"""Rules that infer the code from its signal, and are silent on a layer where `odd_design` has read
the code itself."""
CONSEQUENCES: tuple[Rule, ...] = (
    *INFERRED,
    structure.unmoved,
    weights.odd_weights,
    weights.copies,
    signal.lost,
    agreement.departs_from_twin,
)
"""Rules that are silent on a layer with a fault, and on all layers where a value is not finite."""
RULES: tuple[Rule, ...] = (
    signal.runs_away,
    signal.not_finite,
    signal.nothing_learns,
    signal.one_hot,
    signal.gradient_steep,
    signal.zero_token,
    alike,
    signal.silent,
)
"""Rules on the signal of any model. A signal that died out ends in 0 / 0: the cause comes before
the symptom."""
NOTES: tuple[Rule, ...] = (
    signal.large_loss,
    signal.headroom,
    signal.lost,
    signal.outliers,
    signal.logit_growth,
    agreement.departs_from_twin,
    *learning.UNUSED,
    learning.stepwise,
)
"""Rules on a model that is not ours: effects of its type, its training or its code."""
LAST: tuple[Rule, ...] = (agreement.unlike_twin, *learning.NOTES, structure.several_kinds)
"""Rules whose sentences are no judgement of a model that is not ours, and stand after it: a design
without lines may be sound."""
EXPLAINED: Mapping[Rule, tuple[Rule, ...]] = MappingProxyType(
    {
        every_layer.wrong_softmax: (alike, signal.one_hot, agreement.unlike_twin),
        **dict.fromkeys(
            (every_layer.lost_stream, faults.doubled),
            (alike, signal.runs_away, signal.gradient_steep, agreement.unlike_twin),
        ),
        **dict.fromkeys(
            (every_layer.sees_target, every_layer.wrong_rotary, every_layer.one_module),
            (agreement.unlike_twin,),
        ),
        every_layer.undivided: (signal.one_hot, agreement.unlike_twin),
    }
)
"""A mistake that all layers share, and what follows from it: said after it, and without a remedy of
its own. That no design is like the model is not said then."""


def diagnose(profile: Profile) -> Findings:
    """Findings about a profile, most serious first; never empty. TypeError for anything but a
    profile.

    Example:
        >>> ex.diagnose(ex.predict(ex.Config()))[0].meaning
        'Healthy: signal grows 19 ×, gradient grows 12 ×.'
    """
    must_be(Profile, "profile", profile)
    with np.errstate(all="ignore"):  # ratios of what exploded or vanished are part of the evidence
        numbers = signal.quantities(profile)
        nothing = faults.zero_model(profile)
        if nothing is not None:
            return Findings([replace(nothing, numbers=numbers)])
        causes: dict[Rule, Finding] = {}
        notes: dict[Rule, Finding] = {}
        others = _apply(profile, RULES)
        # a config makes all its layers by one rule, so that what one of them has of its own is
        # chance or design
        if profile.config is None:
            causes = _apply(profile, CAUSES)
            others |= _apply(profile, NOTES)
            notes = _apply(profile, LAST)
        as_serious = any(finding.severity == "bad" for finding in others.values())
        for cause, finding in causes.items():
            if as_serious:
                causes[cause] = replace(finding, severity="bad")
            for rule in EXPLAINED.get(cause, ()):
                if rule in others:
                    others[rule] = replace(others[rule], remedy="", code="")
                notes.pop(rule, None)
        once: dict[str, Finding] = {}
        for finding in (*causes.values(), *others.values()):
            once.setdefault(finding.meaning, finding)  # two rules may see one cause
        ordered = sorted(once.values(), key=lambda finding: ORDER.index(finding.severity))
        first, *rest = ordered or [signal.healthy(profile)]
        return Findings([replace(first, numbers=numbers), *rest, *notes.values()])


def _apply(profile: Profile, rules: Sequence[Rule]) -> dict[Rule, Finding]:
    """The finding of each rule that applies, without those that follow from a fault that was
    read."""
    findings: dict[Rule, Finding] = {}
    for rule in rules:
        finding = rule(profile)
        if finding is not None and not _follows(profile, rule):
            findings[rule] = finding
    return findings


def _follows(profile: Profile, rule: Rule) -> bool:
    """Whether a rule's finding is about a layer whose code is known to differ, or follows from a
    fault that was read."""
    not_finite = faults.held(profile, *faults.NOT_FINITE)
    if rule in (*learning.CAUSES, learning.stepwise):
        return bool(not_finite) or _explains_learning(profile)
    if rule in CONSEQUENCES and not_finite:
        return True
    if rule is weights.copies and faults.held(profile, "constant"):
        return True
    unreadable = not_finite or faults.held(profile, "zero_input")
    if rule in (signal.nothing_learns, agreement.unlike_twin) and unreadable:
        return True
    layers: set[int] = set()
    if rule in INFERRED:
        layers |= {layer for layer, _, _ in profile.differences}
    if rule in CONSEQUENCES or rule is signal.nothing_learns:
        layers |= faults.explained(profile)
    if not layers:
        return False
    with speaking("en"):  # the layers are found in its words
        finding = rule(profile)
    return finding is not None and any(
        f"{word} {numbered(profile, layer)}" in finding.meaning + finding.evidence
        for word in ("layer", "Layer", "them")
        for layer in layers
    )


def _explains_learning(profile: Profile) -> bool:
    """Whether faults that were read explain all that learns late or not at all."""
    if not any(fault(profile) for fault in faults.FAULTS):
        return False
    late = {
        layer for part in profile.learning.of("second", "later", *STUCK) for layer in part.layers
    }
    return bool(late) and late <= faults.explained(profile) | faults.zero_matrices(profile).keys()
