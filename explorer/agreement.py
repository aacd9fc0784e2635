"""Distance of a measurement from its prediction, in numbers and in words."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from explorer.profile import BRANCHES, STATISTICS, Array, Key, Profile
from explorer.schemes.placement import placements

CLOSE = {True: 0.02, False: 0.05}
"""Differences (bounded) and relative errors up to here are what a model of finite width does."""


class Agreement(NamedTuple):
    """A verdict on one statistic: a few words, whether they are good news, and the worst error over depth."""

    words: str
    tone: Literal["good", "warn", ""]
    worst: float


def agreement(measured: Profile, predicted: Profile, statistic: str) -> Agreement:
    """Compares the mean over seeds and heads with the prediction, at every site that both have.

    Good news is a prediction that is close, or lies among the seeds wherever it is not. The worst error is a difference
    for statistics between 0 and 1, a ratio less one for all others; nan where the theory covers nothing. Where it stops
    half-way, the words say which layers were compared. What is fixed by definition does not count as agreement.
    """
    row, bounded = STATISTICS[statistic], STATISTICS[statistic].bounded
    errors, depths, missing, strays, free = [], [], [], [], []
    for key, theory in predicted.values.items():
        # Beside the stream, branches are part of the record but not of the line that is drawn.
        if key[0] != statistic or key not in measured.values or (row.on_stream and key[1] in BRANCHES):
            continue
        seeds, (expected, *_) = (part.mean(axis=tuple(range(2, part.ndim))) for part in (measured.values[key], theory))
        depth = predicted.depth(key[1])
        covered = np.isfinite(expected) & ~np.isin(np.arange(1, len(expected) + 1), measured.absent.get(key, ()))
        error = _error(seeds.mean(axis=0), expected, bounded)
        among = (seeds.min(axis=0) <= expected) & (expected <= seeds.max(axis=0))  # never of a single seed
        strays += error[covered & ~among].tolist()
        errors += error[covered].tolist()
        depths += depth[covered].tolist()
        missing += depth[~covered].tolist()
        free += depth[covered & ~_fixed(predicted, key)].tolist()
    worst, stray = float(np.max(errors, initial=0.0)), float(np.max(strays, initial=0.0))
    if not errors or (not free and stray <= CLOSE[bounded]):
        nothing = "fixed by definition: theory has nothing to predict" if errors and not missing else ""
        note = predicted.notes.get(statistic, "")  # its reason stands in the caption where a part of it is drawn
        return Agreement(nothing or _uncovered(note.partition(":")[0] if errors else note), "", float("nan"))
    inside = stray <= 2 * CLOSE[bounded]  # what lies outside the seeds is near all the same
    words = _words(worst, bounded, inside, depths[int(np.argmax(np.nan_to_num(errors, nan=np.inf)))])
    fine = stray <= CLOSE[bounded] or (inside and worst > 2 * CLOSE[bounded])
    return Agreement(words + _where(free or depths, missing), "good" if fine else "warn", worst)


def _fixed(profile: Profile, key: Key) -> NDArray[np.bool_]:
    """Mask of the values that hold by definition, `[layer]`: the reference, and those right after a norm."""
    statistic, site = key
    depth, reference = profile.depth(site), STATISTICS[statistic].reference
    if reference == "last layer":
        return np.asarray(depth > max(profile.depth("resid_post")) - 1)
    fixed = np.full(len(depth), reference == "input" and site == "embed")
    if statistic == "second_moment" and site in ("resid_mid", "resid_post") and profile.config:
        fixed |= np.array([place.on_sum for place in placements(profile.config)[site == "resid_post"::2]])
    return fixed


def _uncovered(note: str) -> str:
    """The note of a statistic with no prediction at all, as a sentence."""
    return f"theory does not cover this{note.removeprefix('not covered')}" if note.startswith("not covered") else note


def _where(covered: list[float], missing: list[float]) -> str:
    """The layers that were compared, where theory does not cover them all."""
    if not missing:
        return ""
    if max(covered) < max(missing):
        return f" up to layer {max(covered):.0f}"
    return f" from layer {math.ceil(min(covered)):.0f} on" if min(covered) > min(missing) else " where it covers"


def _words(worst: float, bounded: bool, inside: bool, depth: float) -> str:
    if not np.isfinite(worst):
        return "not finite where theory is"
    if worst <= 2 * CLOSE[bounded]:
        return f"within {_size(max(worst, 0.001), bounded)} of theory"
    if inside:
        return f"theory within the seeds' spread ({_size(worst, bounded)})"
    return f"{_size(worst, bounded)} off theory at {f'layer {np.ceil(depth):.0f}' if depth else 'the input'}"


def _size(error: float, bounded: bool) -> str:
    if error >= 99 and not bounded:
        return "a factor of over 100"
    if error >= 1 and not bounded:
        return f"a factor of {_up(1 + error):g}"
    return f"{_up(error):g}" if bounded else f"{_up(100 * error):g} %"


def _up(value: float) -> float:
    """Two significant digits, rounded up: a bound that is stated must hold."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return round(math.ceil(value / step - 1e-6) * step, 12)


def _error(found: Array, expected: Array, bounded: bool) -> Array:
    """Difference, or distance as a ratio either way less one: half and double are equally wrong."""
    with np.errstate(all="ignore"):
        error = np.abs(found - expected) if bounded else np.maximum(found / expected, expected / found) - 1
    return np.where(found == expected, 0.0, error)  # two zeros agree
