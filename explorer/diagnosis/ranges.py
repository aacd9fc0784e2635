"""Rules on numbers and their type: values out of range, terms too small to add, outlier features, growing logits."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from explorer.diagnosis.cures import EXACT, QK_NORM, WIDER, Cure, fix
from explorer.diagnosis.finding import Finding
from explorer.diagnosis.reading import by_layer, layer_name, line
from explorer.diagnosis.signal import ONE_HOT
from explorer.numbers import number, percent
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
    return Finding(
        "bad" if beyond else "warning",
        f"The signal leaves the range of {profile.dtype}." if beyond else
        f"The signal is close to the end of {profile.dtype}.",
        f"The largest |x| is {number(largest)}, at the {SITE_WORDS[site]} of {layer_name(profile, layer)}; "
        f"{profile.dtype} ends at {number(format_.largest, 5)}, and other batches hold values twice as large.",
        *fix(profile, WIDER),
    )


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
            where = layer_name(profile, int(gone[0]))
            return Finding(
                "warning", f"Branches are lost to the rounding of {profile.dtype}.",
                f"The RMS of the {SITE_WORDS[site]} is {percent(float(share[gone[0] - 1]))} of the stream's in {where}"
                f"{f' and in {len(gone) - 1} more' if len(gone) > 1 else ''}; {profile.dtype} has {format_.bits} bits, "
                f"and a sum drops what is below {percent(2.0 ** -(format_.bits + 1))}.", *fix(profile, EXACT))
    return None


def outliers(profile: Profile) -> Finding | None:
    """A few features that are much larger than the others."""
    kurtosis = line(profile, "kurtosis")
    if not (kurtosis.values > OUTLIERS).any():
        return None
    at = int(np.nanargmax(kurtosis.values))
    layer, first = math.ceil(kurtosis.depth[at]), math.ceil(kurtosis.depth[np.argmax(kurtosis.values > OUTLIERS)])
    where = layer_name(profile, layer) if layer else "the input"
    since = f", above {number(OUTLIERS)} from {layer_name(profile, first) if first else 'the input'} on"
    cure = Cure("Keep these features in a wider type",
                "torch.topk(x.square().mean(dim=(0, 1)), 8).indices  # these features; no int8 for them")
    return Finding(
        "warning", "A few features outgrow the others.",
        f"The kurtosis of features reaches {number(float(kurtosis.values[at]))} in {where}{since}; 1 is all alike, and "
        "initialization stays near 3. Few bits, such as int8, are spent on them.", *fix(profile, cure))


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
    return Finding(
        "warning", "The attention logits grow over depth.",
        f"Their spread goes from {number(spread[0])} in layer 1 to {number(spread[-1])} in the last; above "
        f"{number(freezes)}, √(2 ln n), single keys dominate.", *fix(profile, QK_NORM))
