"""Findings over time: what only several readings, or the steps between them, can show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from explorer.diagnosis import Finding, Severity
from explorer.diagnosis.remedies import listed
from explorer.diagnosis.signal import FORMATS, HEADROOM, large_loss
from explorer.vocabulary import Array, Key
from explorer_models.alarms import alarm
from explorer_models.equilibrium import gradients_grow
from explorer_models.readings import Reading
from explorer_models.sums import Breakdown
from explorer_models.texts import text

# Jumps: a matrix, a layer of the stream or a gradient that is far from where the reading before it
# was.


OUTGROWN, BEYOND = 1.5, 2.0
"""Factor between a matrix's norms in two readings from which on it is told, if their difference is
also `BEYOND` times what the optimizer's steps add up to. A step changes a norm by at most its own
norm (the triangle inequality)."""
STREAM, GRADIENT = 30.0, 100.0
"""Factor by which a layer multiplies the stream's second moment or largest |x| more, or less, than
in the reading before, beside what the other layers do; and the same of a matrix's gradient beside
the other matrices'."""


class Jump(NamedTuple):
    """A number that is far from its value in the reading before."""

    quantity: str
    site: str
    """The matrix; empty for the stream."""
    layer: int
    """From 1; 0 is the input."""
    was: float
    now: float

    @property
    def place(self) -> str:
        """The key of the finding's sentence."""
        return "matrix" if self.site else "stream" if self.layer else "input"

    def sentence(self, layers: Sequence[str], before: int) -> str:
        """'The norm of mlp.c_proj.weight in layer 3 (h.2) goes from 1.2 to 360.'

        Args:
            layers: names of the layers.
            before: step of the reading before.
        """
        ending = "_input" if not self.layer else "" if self.now else "_zero"
        return text(
            "jumped",
            f"{self.quantity}{ending}",
            site=self.site,
            layer=numbered(self.layer, layers),
            was=self.was,
            now=self.now,
            before=before,
        )


def numbered(layer: int, layers: Sequence[str]) -> str:
    """A layer, counted from 1, with the model's name for it: "3 (h.2)"."""
    return f"{layer} ({layers[layer - 1]})"


def jumps(readings: Sequence[Reading], layers: Sequence[str], sick: bool = False) -> Finding | None:
    """The first reading in which a number is far from the reading before: its step, layer and
    matrix.

    Args:
        sick: whether the last reading has a serious finding, which makes this one serious.
    """
    for index, (before, after) in enumerate(pairwise(readings), start=1):
        with np.errstate(all="ignore"):
            silenced = _silenced(before, readings[index:])
            candidates = (_norms(before, after), silenced, _stream(before, after))
            every = [jump for jump in candidates if jump is not None]
            if not every:
                continue
            first = silenced or every[0]
            # alone it is a false alarm in most healthy runs
            beside = _gradients(before, after)
        every += [beside] if beside else []
        when = "_step" if after.step == before.step + 1 else ""
        meaning = text(
            "jump",
            "silenced" if silenced else f"{first.place}{when}",
            before=before.step,
            after=after.step,
            site=first.site,
            layer=numbered(first.layer, layers),
        )
        return Finding(
            "bad" if sick or silenced else "warning",
            meaning,
            " ".join(jump.sentence(layers, before.step) for jump in every),
            text("jump", "silenced_remedy" if silenced else "remedy"),
        )
    return None


def _norms(before: Reading, after: Reading) -> Jump | None:
    """The matrix whose norm changed most, beyond what the optimizer's steps explain."""
    ranked: list[tuple[float, Jump]] = []
    for key, now in _by_layer(after, "weight_norm"):
        was = before.values.get(key)
        if was is None or was.shape != now.shape:
            continue
        moved = np.max(
            [
                np.nan_to_num(side.values["update_ratio", key[1]] * side.values[key], nan=0.0)
                for side in (before, after)
                if ("update_ratio", key[1]) in side.values
            ]
            or [0 * now],
            axis=0,
        )
        factor = np.maximum(now / was, was / now)
        off = (
            (factor > OUTGROWN)
            & (abs(now - was) > BEYOND * (after.step - before.step) * moved)
            & (was > 0)
        )
        ranked += [
            (
                float(factor[layer]),
                Jump("norm", key[1], layer + 1, float(was[layer]), float(now[layer])),
            )
            for layer in np.flatnonzero(off & np.isfinite(now)).tolist()
        ]
    return max(ranked, key=lambda jump: jump[0])[1] if ranked else None


def _silenced(before: Reading, later: Sequence[Reading]) -> Jump | None:
    """The matrices of the first layer that had a gradient and have none in all later readings,
    while others have one."""
    lost: dict[int, list[tuple[str, float]]] = {}
    alive = False
    for key, was in _by_layer(before, "parameter_gradient"):
        zero = [
            (reading.values[key] == 0) | ~reading.present[key]
            for reading in later
            if key in reading.values
        ]
        gone = np.all([np.full(was.shape, True), *zero], axis=0)
        alive = alive or bool((~gone & (was > 0)).any())
        for layer in np.flatnonzero(gone & (was > 0)).tolist():
            lost.setdefault(layer + 1, []).append((key[1], float(was[layer])))
    if not lost or not alive:
        return None
    layer, sites = min(lost.items())
    return Jump("gradient", listed(site for site, _ in sites), layer, sites[0][1], 0.0)


def _stream(before: Reading, after: Reading) -> Jump | None:
    """The layer whose factor on the stream changed most, relative to the other layers."""
    for name in ("second_moment", "max_abs"):
        was, now = (_line(reading, name) for reading in (before, after))
        if not len(was) or was.shape != now.shape or _settling(before, after):
            continue
        ratio = np.concatenate([now[:1] / was[:1], (now[1:] / now[:-1]) / (was[1:] / was[:-1])])
        ratio[1:] /= np.median(ratio[1:]) if len(ratio) > 3 else 1.0
        beside = np.maximum(ratio, 1 / ratio)
        layer = int(np.argmax(np.where(np.isfinite(beside), beside, 0.0)))
        if math.isfinite(beside[layer]) and beside[layer] > STREAM:
            return Jump(name, "", layer, float(was[layer]), float(now[layer]))
    return None


def _gradients(before: Reading, after: Reading) -> Jump | None:
    """The matrix whose gradient changed most, relative to the other matrices."""
    pairs = [
        (key[1], layer + 1, float(was), float(now))
        for key, previous in _by_layer(before, "parameter_gradient")
        if (value := after.values.get(key)) is not None and value.shape == previous.shape
        for layer, (was, now) in enumerate(zip(previous, value, strict=True))
        if was > 0 and now > 0 and math.isfinite(was) and math.isfinite(now)
    ]
    if len(pairs) < 3 or _settling(before, after):
        return None
    ratios = np.array([now / was for *_, was, now in pairs])
    beside = ratios / np.median(ratios)
    most = int(np.argmax(np.maximum(beside, 1 / beside)))
    return (
        Jump("gradient", *pairs[most]) if max(beside[most], 1 / beside[most]) > GRADIENT else None
    )


def _settling(before: Reading, after: Reading) -> bool:
    """Whether these readings are before and after the first steps, in which the branches of any
    model find their scale."""
    return not before.step and after.step > 1


def _by_layer(reading: Reading, statistic: str) -> list[tuple[Key, Array]]:
    """A statistic of the blocks' matrices, by statistic and site: `[layer]` each."""
    return [
        (key, values)
        for key, values in reading.values.items()
        if key[0] == statistic and values.ndim == 1
    ]


def _line(reading: Reading, statistic: str) -> Array:
    """A statistic of the stream, `[1 + layer]`, the input first; empty where it was not read."""
    first, rest = (reading.values.get((statistic, site)) for site in ("embed", "resid_post"))
    return np.empty(0) if first is None or rest is None else np.concatenate([first, rest])


LARGE_LOGIT = 100.0
"""A largest logit from which on training was seen to become unstable: the bound at which Kimi K2's
QK-clip holds every head (Bai et al. 2025, arXiv 2507.20534)."""
LARGE_UPDATE = 10.0
"""Sum over the matrices of all blocks of ‖ΔW‖/‖W‖. To first order relative changes of factors add
up, and an update should change the output by order 1 at most, however deep the model: the condition
of Admin (Liu et al. 2020, arXiv
2004.08249) and T-Fixup (Huang et al. 2020). Which sum is too large was tried: of 40 first steps of
Adam and SGD in GPT-2 of 4 to 24 layers and width 32 to 128, each above 10 changed the last layer's
output by 2.3 times itself or more; below, by 0.03 to 5 times."""


def over_time(
    readings: Sequence[Reading], first: Breakdown | None, layers: Sequence[str], sick: bool
) -> list[Finding]:
    """Findings of all readings of a run.

    Args:
        first: the first value that was not finite.
        layers: names of the layers.
        sick: whether the last reading has a serious finding.
    """
    findings = [
        not_finite(first, readings),
        jumps(readings, layers, sick),
        alarm(readings, first),
        logits_grow(readings, layers),
        update_large(readings),
        gradients_grow(readings),
        stands(readings),
        starts_large(readings, layers),
    ]
    return [finding for finding in findings if finding is not None]


def _finding(severity: Severity, rule: str, evidence: str, **values: object) -> Finding:
    """A finding in the words of a rule's table in `texts.toml`; `evidence` is the key of its
    evidence."""
    return Finding(
        severity,
        text(rule, "meaning", **values),
        text(rule, evidence, **values),
        text(rule, "remedy"),
    )


def not_finite(first: Breakdown | None, readings: Sequence[Reading]) -> Finding | None:
    """The first value that was not finite, with a remedy where the readings before it show the
    cause."""
    if first is None:
        return None
    before = [reading for reading in readings if reading.step < first.step]
    cause = ""
    if before and _close_to_end(before[-1]):
        cause = "narrow"
    elif update_large(before) is not None:
        cause = "fast"
    remedy = text("not_finite_remedy", cause) if cause else ""
    return Finding(
        "bad",
        text("not_finite", "meaning", step=first.step),
        text("not_finite", first.direction, step=first.step, first=first),
        remedy,
    )


def _close_to_end(reading: Reading) -> bool:
    """Whether a stream in float16 was close to the type's largest number."""
    peaks = [
        float(np.nanmax(values))
        for (name, _), values in reading.values.items()
        if name == "max_abs" and np.isfinite(values).any()
    ]
    return (
        reading.dtype == "float16"
        and max(peaks, default=0.0) * HEADROOM > FORMATS["float16"].largest
    )


def logits_grow(readings: Sequence[Reading], layers: Sequence[str]) -> Finding | None:
    """A head whose logits are large, and have grown since the first reading."""
    key = ("largest_logit", "attn_scores")
    finite = [
        reading
        for reading in readings
        if key in reading.values and np.isfinite(reading.values[key]).any()
    ]
    if len(finite) < 2:
        return None
    last, before = finite[-1].values[key], finite[0].values[key]
    layer, head = map(int, np.unravel_index(int(np.nanargmax(last)), last.shape))
    if not (last[layer, head] > LARGE_LOGIT and last[layer, head] > before[layer, head]):
        return None
    return _finding(
        "warning",
        "logits_grow",
        "evidence",
        layer=numbered(layer + 1, layers),
        head=head,
        first=finite[0].step,
        before=before[layer, head],
        last=finite[-1].step,
        now=last[layer, head],
        limit=LARGE_LOGIT,
    )


EVEN = 0.05
"""Share of ln V by which a loss that stands there may be off. How often each of 103 characters
occurs in English prose is worth 0.3 of it: what a model learns first."""
ENOUGH, STEPS = 5, 100
"""Readings, and steps from the first to the last of them, in which a loss has to stand there."""
MOVED, FLAT = 1e-2, 1e-4
"""Relative change that all steps may add up to in matrices that stay where they are; and variance
of logits that are all alike: their probabilities differ by 1 %."""


def stands(readings: Sequence[Reading]) -> Finding | None:
    """A cross-entropy that stays at ln V, that of an even guess, up to the last reading; with its
    cause, where the readings show one."""
    run: list[Reading] = []
    for reading in reversed([reading for reading in readings if reading.logits]):
        even = math.log(reading.logits["classes"])
        if abs(reading.logits["loss"] - even) > EVEN * even:
            break
        run.insert(0, reading)
    if len(run) < ENOUGH or (steps := run[-1].step - run[0].step) < STEPS:
        return None
    moved, last = _largest(run, "update_ratio"), run[-1].logits
    if _largest(run, "parameter_gradient") == 0:
        cause = "unreached"
    elif moved is not None and moved * steps < MOVED:
        cause = "still"
    elif last["variance"] < FLAT:
        cause = "alike"
    else:
        cause = "moving" if moved else ""
    losses = [reading.logits["loss"] for reading in run]
    evidence = text(
        "stands",
        "evidence",
        count=len(run),
        step=run[-1].step,
        least=min(losses),
        most=max(losses),
        classes=int(last["classes"]),
        rms=last["rms"],
        largest=last["largest"],
        variance=last["variance"],
        square=last["square_log_sum"],
    )
    if cause:
        evidence = f"{text('stands', cause, moved=moved)} {evidence}"
    return Finding(
        "bad" if cause in ("unreached", "still") else "warning",
        text("stands", "meaning", even=math.log(last["classes"]), step=run[0].step),
        evidence.strip(),
        text("stands_remedy", cause) if cause else "",
    )


def _largest(readings: Sequence[Reading], statistic: str) -> float | None:
    """The largest value of a statistic over readings, layers and matrices; None where it was not
    read."""
    every = [
        np.nanmax(values)
        for reading in readings
        for key, values in _by_layer(reading, statistic)
        if reading.present[key].any()
    ]
    return float(max(every)) if every else None


def starts_large(readings: Sequence[Reading], layers: Sequence[str]) -> Finding | None:
    """A loss at step 0 that is above ln V, where later steps were read, too."""
    if len(readings) < 2 or readings[0].step:
        return None
    finding = large_loss(readings[0].profile("", tuple(layers)))
    if finding is None:
        return None
    return replace(finding, evidence=text("watched", "evidence", step=0, evidence=finding.evidence))


def update_large(readings: Sequence[Reading]) -> Finding | None:
    """A step that changes the output by more than the output itself."""
    sizes = [update_size(reading) for reading in readings]
    if not sizes or not max(sizes) > LARGE_UPDATE:
        return None
    at = int(np.argmax(sizes))
    return _finding(
        "warning",
        "update_large",
        "evidence",
        step=readings[at].step,
        size=sizes[at],
        limit=LARGE_UPDATE,
    )


def update_size(reading: Reading) -> float:
    """Sum of ‖ΔW‖/‖W‖ over the matrices of all blocks, without matrices that were 0, which may
    grow at will."""
    ratios = [
        values
        for (name, _), values in reading.values.items()
        if name == "update_ratio" and values.ndim
    ]
    return float(sum(values[np.isfinite(values)].sum() for values in ratios))
