"""The chance that a design trains, from what its untrained model shows: a logistic regression on four numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from explorer.trials.evidence import Evidence

LARGEST, LEAST = 1e4, 0.01
"""Bounds of a gradient, and of the remaining difference of tokens, beyond which worse no longer counts."""
WEIGHTS: Mapping[str, float] = MappingProxyType({
    "one": 2.65, "gradient": -1.54, "difference": -1.59, "entropy": -2.72, "pointwise": -2.03,
})
"""Fitted on the trials with an even number: `python -m benchmarks.trainability --score`."""


def terms(evidence: Evidence) -> dict[str, float]:
    """The numbers that are weighed, each 0 where it says nothing against the design."""
    return {
        "one": 1.0,
        "gradient": math.log10(min(max(evidence.gradient, 1.0), LARGEST)),
        "difference": -math.log10(max(evidence.difference, LEAST)),
        "entropy": 1 - evidence.entropy,
        "pointwise": evidence.pointwise,
    }


def odds(evidence: Evidence) -> float:
    """Logarithm of the odds that a design trains."""
    return sum(WEIGHTS[name] * value for name, value in terms(evidence).items())


def chance(evidence: Evidence) -> float:
    """The chance that a design trains, 0 to 1, with warm-up or without."""
    return 1 / (1 + math.exp(-odds(evidence)))
