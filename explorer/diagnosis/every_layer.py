"""Rules on mistakes that all layers share: no layer stands out, so the design itself is read, from
`Profile.facts`."""

from __future__ import annotations

import math

import numpy as np

from explorer.diagnosis.faults import held
from explorer.diagnosis.finding import Finding, Severity, finding
from explorer.diagnosis.learning import attention_learns
from explorer.diagnosis.reading import LIKE, by_layer, typical_sizes
from explorer.diagnosis.remedies import fix
from explorer.diagnosis.weights import logit_gain
from explorer.profile import Profile

CAUSAL = ("next", "second")
"""Targets for which every token after a row's own hides: see `own.ahead`."""
ROTARY = ("heads", "one_place", "restart", "queries", "keys", "apart")
"""Mistakes of rotary positions, as `own.heads` reads them."""


def wrong_softmax(profile: Profile) -> Finding | None:
    """Weights that sum to 1 over another axis than that of the keys, over which values are added
    up."""
    axis = profile.facts.get("softmax", "keys")
    if axis == "keys":
        return None
    return finding(
        "bad", "wrong_softmax", "meaning", "evidence", remedy=fix(profile, "over_keys"), axis=axis
    )


def sees_target(profile: Profile) -> Finding | None:
    """A model that predicts the next token and sees it, or that is asked for another token than the
    next.

    Without a loss that asks for the next tokens, a missing mask alone is named: a mask of another
    kind may have a prefix."""
    kind, mask, sees = (profile.facts.get(name) for name in ("target", "mask", "ahead"))
    if kind is None or wrong_softmax(profile) is not None:  # which is the cause of what it sees
        return None
    if not sees:
        if kind != "second":
            return None
        return finding(
            "warning",
            "sees_target",
            "second",
            "second_evidence",
            remedy=fix(profile, "shifted_once"),
        )
    if kind == "own":
        return finding(
            "bad",
            "sees_target",
            "own",
            "own_evidence",
            "share",
            remedy=fix(profile, "shifted"),
            share=sees,
        )
    severity: Severity = "warning"
    if kind in CAUSAL:
        severity, evidence = "bad", "next_evidence"
        key = str(mask) if mask in ("none", "reversed", "ahead") else "elsewhere"
    elif mask != "none":
        return None
    elif kind == "class":
        key, evidence = "none_class", "class_evidence"
    else:
        key, evidence = "none_token", "token_evidence"
    return finding(
        severity,
        "sees_target",
        key,
        evidence,
        "share",
        "elsewhere_evidence" if mask == "causal" else "",
        remedy=fix(profile, "hidden" if key == "elsewhere" else "causal"),
        share=sees,
        model=profile.model,
    )


def lost_stream(profile: Profile) -> Finding | None:
    """A branch that takes the stream's place in all layers, where the other is added; or attention
    added to nothing.

    Where neither branch is added to a stream the design has none. A branch that is added to itself
    is a fault of its own."""
    if held(profile, "doubled"):
        return None
    if profile.facts.get("attention_added") == "no":
        if attention_learns(profile, range(1, len(profile.layers) + 1)):
            return None  # its output reaches the loss in another way, as through a mix of several streams
        return finding(
            "bad", "lost_stream", "unused", "unused_evidence", remedy=fix(profile, "residual")
        )
    skips = [profile.facts.get(f"{name}_skip") for name in ("attention", "mlp")]
    if None in skips or (skips[0] == 0) == (skips[1] == 0):
        return None
    branch = "attention" if skips[0] == 0 else "mlp"
    return finding("bad", "lost_stream", branch, "evidence", remedy=fix(profile, "residual"))


def wrong_rotary(profile: Profile) -> Finding | None:
    """Rotary positions that do not make logits depend on the distance of two tokens, and on that
    alone."""
    kind, mask = profile.facts.get("rotary"), profile.facts.get("mask")
    # packed texts hide each other
    if kind not in ROTARY or (kind == "restart" and mask not in ("none", "causal")):
        return None
    return finding(
        "warning",
        "wrong_rotary",
        str(kind),
        "evidence",
        remedy=fix(profile, "whole_positions" if kind == "restart" else "rotated"),
        token=profile.facts.get("restart", 0),
    )


def undivided(profile: Profile) -> Finding | None:
    """Logits that are divided by less than √d in all layers, where nothing makes up for it.

    Sound without the divisor: normalized queries or keys; matrices drawn smaller, as T5 does; gains
    below 1."""
    facts = profile.facts
    divisor, d_head = facts.get("divisor"), facts.get("d_head")
    if (
        not isinstance(divisor, float)
        or not isinstance(d_head, float)
        or facts.get("qk_norm") != "no"
    ):
        return None
    root = math.sqrt(d_head)
    if not 0 < divisor < root / LIKE or _drawn_smaller(profile, root):
        return None
    spread, gain = by_layer(profile, "logit_std", "attn_scores"), logit_gain(profile)
    if not len(gain) or not np.median(gain) > root / divisor / LIKE:
        return None
    key = "none" if abs(divisor - 1) < LIKE - 1 else "less"
    return finding(
        "warning",
        "undivided",
        key,
        "read_evidence",
        remedy=fix(profile, "divided"),
        divisor=divisor,
        width=d_head,
        root=root,
        ratio=root / divisor,
        spread=np.median(spread),
    )


def _drawn_smaller(profile: Profile, root: float) -> bool:
    """Whether W_Q and W_K were drawn so much smaller than W_V that this makes up for a division by
    √d by half, in logarithms, or more: √(variance of W_Q · variance of W_K) is below 1 / √(√d)
    times the variance of W_V. Also True where a variance is not known or is 0: then no missing
    division is reported.

    Args:
        root: √d, of d coordinates of a head.
    """
    sizes = typical_sizes(profile, ("W_Q", "W_K", "W_V"))  # weight variances
    if len(sizes) < 3 or not min(sizes.values()) > 0:
        return True
    # to this the logits' standard deviation is proportional
    product = math.sqrt(sizes["W_Q"] * sizes["W_K"])
    return bool(product / sizes["W_V"] < 1 / math.sqrt(root))


def one_module(profile: Profile) -> Finding | None:
    """A container whose entries are the same modules again and again, as `[block] * n` makes it."""
    count, entries = (profile.facts.get(name) for name in ("modules", "entries"))
    if not isinstance(count, float) or not isinstance(entries, float):
        return None
    return finding(
        "warning",
        "one_module",
        "one" if count == 1 else "several",
        "evidence",
        remedy=fix(profile, "built_anew"),
        modules=int(count),
        entries=int(entries),
    )
