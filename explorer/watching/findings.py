"""Findings over time: what only several readings, or the steps between them, can show."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from explorer.diagnosis import Finding
from explorer.numbers import number
from explorer.watching.jumps import jumps
from explorer.watching.readings import Reading
from explorer.watching.sentinel import Breakdown

LARGE_LOGIT = 100.0
"""A largest logit from which on training was seen to become unstable: the bound at which Kimi K2's QK-clip holds every
head (Bai et al. 2025, arXiv 2507.20534)."""
LARGE_UPDATE = 10.0
"""Sum over the matrices of all blocks of ‖ΔW‖/‖W‖. To first order relative changes of factors add up, and an update
should change the output by order 1 at most, however deep the model: the condition of Admin (Liu et al. 2020, arXiv
2004.08249) and T-Fixup (Huang et al. 2020). Which sum is too large was tried: of 40 first steps of Adam and SGD in
GPT-2 of 4 to 24 layers and width 32 to 128, each above 10 changed the last layer's output by 2.3 times itself or
more; below, by 0.03 to 5 times."""


def over_time(readings: Sequence[Reading], first: Breakdown | None, layers: Sequence[str], sick: bool) -> list[Finding]:
    """What the readings of a run show together; a jump is as serious as what the last of them suffers from."""
    found = [not_finite(first), jumps(readings, layers, sick), logits_grow(readings, layers), update_large(readings)]
    return [finding for finding in found if finding is not None]


def not_finite(first: Breakdown | None) -> Finding | None:
    """The first value that was not finite."""
    if first is None:
        return None
    scaled = " A gradient scaler for float16 skips such a step." if first.direction == "backward" else ""
    return Finding("bad", f"A value is not finite from step {first.step} on.",
                   f"The first one is at {first}.{scaled}", "Smaller steps from before that step, or a wider type")


def logits_grow(readings: Sequence[Reading], layers: Sequence[str]) -> Finding | None:
    """A head's logits that are large and have grown since the first reading."""
    key = ("largest_logit", "attn_scores")
    held = [reading for reading in readings if key in reading.values and np.isfinite(reading.values[key]).any()]
    if len(held) < 2:
        return None
    last, before = held[-1].values[key], held[0].values[key]
    layer, head = map(int, np.unravel_index(int(np.nanargmax(last)), last.shape))
    if not (last[layer, head] > LARGE_LOGIT and last[layer, head] > before[layer, head]):
        return None
    return Finding(
        "warning", "The attention logits grow.",
        f"The largest, in layer {layer + 1} ({layers[layer]}), head {head}, went from {number(before[layer, head])} at "
        f"step {held[0].step} to {number(last[layer, head])} at step {held[-1].step}; above {number(LARGE_LOGIT)} "
        "others clip it.", "Norms on queries and keys, or QK-clip")


def update_large(readings: Sequence[Reading]) -> Finding | None:
    """A step that changes the output by more than the output itself."""
    sizes = [update_size(reading) for reading in readings]
    if not sizes or not max(sizes) > LARGE_UPDATE:
        return None
    at = int(np.argmax(sizes))
    return Finding(
        "warning", "A step is too large for the depth.",
        f"At step {readings[at].step} the relative updates ‖ΔW‖/‖W‖ of all layers add up to {number(sizes[at])}; each "
        f"step above {number(LARGE_UPDATE)} that was tried changed the output by more than itself.",
        "A smaller learning rate, or warm-up")


def update_size(reading: Reading) -> float:
    """Sum of ‖ΔW‖/‖W‖ over the matrices of all blocks, without those that were zero and may grow at will."""
    ratios = [values for (name, _), values in reading.values.items() if name == "update_ratio" and values.ndim]
    return float(sum(values[np.isfinite(values)].sum() for values in ratios))
