"""Alarms: readings that leave the course of those before them.

A signal changes by factors, so its logarithm is compared with the median of the last few readings.
The distance is counted in scatters: 1.4826 times the median absolute deviation, which for a normal
distribution is the standard deviation (Iglewicz & Hoaglin 1993), of the differences between
successive readings, over √2. Differences leave out the slow course of a training, and those of
independent values scatter √2 times as much as the values. docs/faults.md has the faults and the
healthy runs by which signals and limits were chosen, and other runs on which they were scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from explorer.diagnosis import Finding
from explorer.vocabulary import Array
from explorer_models.readings import Reading
from explorer_models.sums import Breakdown
from explorer_models.texts import text

WINDOW, LEAST, LATELY = 20, 10, 5
"""Readings of which the scatter is taken, the least of them for an alarm, and readings of which the
median is taken."""
SCATTER = 0.05
"""Least scatter of a logarithm: where a signal hardly varies, a change of some per cent gives no
alarm."""
LIMITS: Mapping[str, float] = {"loss": 7.0, "update_ratio": 5.0}
"""Signals that give alarms, and the distance above which they do. The first one that does names the
finding: a loss that jumps while the weights are where they were says more about a cause than the
step that follows."""


def course(readings: Sequence[Reading], signal: str) -> Array:
    """A signal's values, `[reading, place]`: the loss has one place, other signals have one for
    every matrix; nan where a value was not read."""
    if signal == "loss":
        return np.array([[reading.logits.get("loss", np.nan)] for reading in readings])
    shapes = {
        key: values.shape
        for reading in readings
        for key, values in reading.values.items()
        if key[0] == signal
    }
    absent = {key: np.full(shape, np.nan) for key, shape in shapes.items()}
    rows = [
        [reading.values.get(key, empty) for key, empty in absent.items()] for reading in readings
    ]
    return np.array(
        [
            np.concatenate(
                [
                    np.empty(0),
                    *(
                        np.ravel(values if values.shape == empty.shape else empty)
                        for values, empty in zip(row, absent.values(), strict=True)
                    ),
                ]
            )
            for row in rows
        ]
    )


def distances(course: Array) -> tuple[Array, Array]:
    """Distance of each value from those before it, in scatters, and its factor over their median.

    Args:
        course: `[reading]`; values that are not positive or not finite are passed over.
    Returns:
        both `[reading]`, nan where too few values come before.
    """
    valid = (course > 0) & np.isfinite(course)
    distance, factor = np.full((2, len(course)), np.nan)
    values = np.log(course[valid])
    if len(values) > LEAST:
        before = sliding_window_view(np.append(np.full(WINDOW, np.nan), values), WINDOW)[LEAST:-1]
        steps = np.diff(before)
        off = abs(steps - np.nanmedian(steps, axis=1, keepdims=True))
        scatter = 1.4826 * np.nanmedian(off, axis=1) / 2**0.5
        change = values[LEAST:] - np.median(before[:, -LATELY:], axis=1)
        places = np.flatnonzero(valid)[LEAST:]
        distance[places], factor[places] = change / np.maximum(scatter, SCATTER), np.exp(change)
    return distance, factor


def least(values: Array) -> tuple[Array, Array]:
    """The least distance over all places, and the factor there: a wrong learning rate moves every
    matrix at once.

    Args:
        values: `[reading, place]`.
    Returns:
        both `[reading]`, nan where no place has a distance.
    """
    if not values.shape[1]:
        return np.full(len(values), np.nan), np.full(len(values), np.nan)
    distance, factor = np.array([distances(column) for column in values.T]).transpose(1, 0, 2)
    matrix = np.where(np.isnan(distance), np.inf, distance).argmin(0)
    at = np.arange(len(values))
    return distance[matrix, at], factor[matrix, at]


def alarm(readings: Sequence[Reading], first: Breakdown | None) -> Finding | None:
    """The last reading at which a signal leaves its course, after a window of readings without
    an alarm.

    Args:
        first: the first value that was not finite; readings from there on are its consequence.
    """
    readings = [reading for reading in readings if first is None or reading.step < first.step]
    if len(readings) <= LEAST:
        return None
    compared = {signal: least(course(readings, signal)) for signal in LIMITS}
    places = sorted(
        {
            int(at)
            for signal, (distance, _) in compared.items()
            for at in np.flatnonzero(distance > LIMITS[signal])
        }
    )
    starts = [
        at
        for at, before in zip(places, [-WINDOW - 1, *places], strict=False)
        if at - before > WINDOW
    ]
    if not starts:
        return None
    at = starts[-1]
    signals = [signal for signal in LIMITS if compared[signal][0][at] > LIMITS[signal]]
    evidence = [text("alarms", signal, factor=compared[signal][1][at]) for signal in signals]
    return Finding(
        "warning",
        text("alarm", signals[0], step=readings[at].step),
        " ".join([*evidence, text("alarms", "count", n=len(starts), readings=len(readings))]),
        text("alarm_remedy", signals[0]),
    )
