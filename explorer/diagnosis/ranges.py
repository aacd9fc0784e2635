"""Rules on numbers and their type: values out of range, terms too small to add, outlier features, growing logits."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from explorer.diagnosis.finding import Finding, finding, text
from explorer.diagnosis.reading import by_layer, line, numbered
from explorer.diagnosis.remedies import fix
from explorer.diagnosis.signal import ONE_HOT
from explorer.profile import BRANCHES, SITE_WORDS, Profile


class Format(NamedTuple):
    """A floating-point type."""

    largest: float
    bits: int
    """Bits of its significand, with the leading one."""


FORMATS = {"float16": Format(65504.0, 11), "bfloat16": Format(3.3895e38, 8), "float32": Format(3.4028e38, 24),
           "float64": Format(1.7977e308, 53)}
HEADROOM = 2.0
"""A batch of 10⁴ Gaussian numbers shows half of the largest that a training of 10¹⁵ meets: √(15 / 4) = 1.9."""
OUTLIERS = 12.0
"""Kurtosis that initialization does not reach: 3 where all tokens are alike and features Gaussian, and its estimate
from d features scatters by √(24/d), of which 12 is ten at d = 32. Trained models reach hundreds: He et al. 2024, arXiv
2405.19279."""
RISEN = 10.0
"""Growth of the logits' spread over depth beyond that of added logits, √N, in any model of up to 100 layers."""


def headroom(profile: Profile) -> Finding | None:
    """Values near the largest number that the type of the stream can hold."""
    format_ = FORMATS.get(profile.dtype)
    peaks = [(float(values.max()), int(np.argmax(values.max(axis=0))) + (site != "embed"), site)
             for (name, site), values in profile.values.items() if name == "max_abs" and np.isfinite(values).all()]
    if format_ is None or not peaks or max(peaks)[0] * HEADROOM < format_.largest:
        return None
    largest, layer, site = max(peaks)
    beyond = largest > format_.largest
    return finding(
        "bad" if beyond else "warning", "headroom", "beyond" if beyond else "close", "evidence",
        remedy=fix(profile, "wider"), dtype=profile.dtype, largest=largest, site=SITE_WORDS[site],
        layer=numbered(profile, layer), end=format_.largest)


def lost(profile: Profile) -> Finding | None:
    """Branches that are too small beside the stream for a sum in its type to change."""
    format_, stream = FORMATS.get(profile.dtype), by_layer(profile, "second_moment", "resid_post")
    if format_ is None or not len(stream):
        return None
    for site in BRANCHES:
        branch = by_layer(profile, "second_moment", site)
        if len(branch) != len(stream):
            continue
        share = np.sqrt(branch / stream)
        gone = np.flatnonzero((branch > 0) & (share < 2.0 ** -(format_.bits + 1))) + 1
        if len(gone):
            return finding(
                "warning", "lost", "meaning", "evidence_more" if len(gone) > 1 else "evidence",
                remedy=fix(profile, "exact"), dtype=profile.dtype, site=SITE_WORDS[site], share=share[gone[0] - 1],
                layer=numbered(profile, int(gone[0])), more=len(gone) - 1, bits=format_.bits,
                least=2.0 ** -(format_.bits + 1))
    return None


def outliers(profile: Profile) -> Finding | None:
    """A few features that are much larger than the others."""
    kurtosis = line(profile, "kurtosis")
    if not (kurtosis.values > OUTLIERS).any():
        return None
    at = int(np.nanargmax(kurtosis.values))
    first = int(np.argmax(kurtosis.values > OUTLIERS))
    layers = (math.ceil(kurtosis.depth[place]) for place in (at, first))
    where, since = (text("phrase", "layer" if layer else "input", layer=numbered(profile, layer)) for layer in layers)
    return finding("warning", "outliers", "meaning", "evidence", remedy=fix(profile, "wide_features"),
                   kurtosis=kurtosis.values[at], where=where, limit=OUTLIERS, first=since)


def logit_growth(profile: Profile) -> Finding | None:
    """Attention logits that widen from layer to layer, and have become too wide to average."""
    spread = by_layer(profile, "logit_std", "attn_scores")
    entropy = by_layer(profile, "attention_entropy_normalized", "pattern")
    nats = by_layer(profile, "attention_entropy", "pattern")
    if len(spread) < 2 or len(entropy) != len(spread) or len(nats) != len(spread) or not np.all(entropy >= ONE_HOT):
        return None  # one-hot attention has a finding of its own
    freezes = math.sqrt(2 * float(np.median(nats / entropy)))  # √(2 ln n): random energies, Derrida 1981
    if not (spread[-1] > RISEN * spread[0] and spread[-1] > freezes > spread[0]):
        return None
    return finding("warning", "logit_growth", "meaning", "evidence", remedy=fix(profile, "qk_norm"), first=spread[0],
                   last=spread[-1], limit=freezes)
