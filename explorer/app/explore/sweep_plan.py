"""The values of a sweep, and the designs that stand at them. Pure functions."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from explorer.app.design_names import lowered
from explorer.app.widgets.slider_steps import slider_steps
from explorer.app.widgets.wording import refusal_in_words
from explorer.app.widgets.worker import wait
from explorer.config import Config, ConfigError
from explorer.display import shown
from explorer.ends import ENDS, End, Ending, endings
from explorer.fields import Spec
from explorer.figures.across import Point, Swept
from explorer.figures.palette import Design
from explorer.profile import Profile
from explorer.stopping import Progress, Stop, Stopped

# `Finder`: what theory predicts and what is measured at the points of a sweep, on a worker's thread. The panel has
# priority: while it computes, nothing is begun here, and a measurement that runs is abandoned at the next layer, to
# be done again later. What was found is kept by config, and only as the few numbers that a sweep draws.


OnSeed = Callable[[Profile], None] | None
Measure = Callable[[Config, Stop, Progress, tuple[int, int], OnSeed], Profile]
Predict = Callable[[Config], Profile]

LONGEST = 15.0
"""Seconds that a point may take."""
MOST_BYTES = 1.5e9
"""Memory that a point may take beside what the panel itself measures."""
KEPT = 2000
"""Points that are kept."""


class Evaluation(NamedTuple):
    """Every statistic of a point, or the reason why it has none."""

    endings: dict[str, Ending]
    reason: str = ""


class Finder:
    """Finds points, one after the other.

    Args:
        measure, predict: the panel's.
        busy: whether the panel computes.
        hurried: whether it has begun so lately that not even the theory may take a processor from it.
    """

    def __init__(self, measure: Measure, predict: Predict | None, busy: Callable[[], bool],
                 hurried: Callable[[], bool]) -> None:
        self._measure, self._predict, self._busy, self._hurried = measure, predict, busy, hurried
        self._known: OrderedDict[tuple[str, Config], Evaluation] = OrderedDict()
        self._too_long = float("inf")  # work of the smallest point that took too long

    def known(self, origin: str, config: Config) -> Evaluation | None:
        """The stored result for a design, measured or predicted; None where there is none yet."""
        return self._known.get((origin, config))

    def points(self, statistic: str, origin: str, row: Sequence[Spot]) -> list[Point]:
        """A statistic at some spots, as far as it is known."""
        points = []
        for value, config, refusal in row:
            result = self.known(origin, config) if config else None
            points.append(Point(value, result.endings.get(statistic), result.reason) if result
                          else Point(value, None, refusal))
        return points

    def predict(self, config: Config, stop: Stop) -> None:
        """Finds what theory predicts; nothing where there is no theory. Raises: Stopped."""
        if self._predict is None or self.known("predicted", config):
            return
        wait(self._hurried, stop)
        try:
            self._keep("predicted", config, Evaluation(endings(self._predict(config))))
        except Exception as error:  # noqa: BLE001 - one point less, and the note says why
            self._keep("predicted", config, Evaluation({}, f"{type(error).__name__}: {error}"))

    def measure(self, config: Config, stop: Stop) -> None:
        """Finds what is measured, or why it is left out. Raises: Stopped."""
        result = self.known("measured", config) or self._left_out(config)
        while result is None:
            wait(self._busy, stop)
            result = self._try(config, stop)
        self._keep("measured", config, result)

    def _try(self, config: Config, stop: Stop) -> Evaluation | None:
        """A measurement; None if the panel wanted the processors meanwhile."""
        start, why = time.monotonic(), ""

        def ends() -> bool:
            nonlocal why
            if not why:
                late = time.monotonic() - start > LONGEST
                why = "stopped" if stop() else "busy" if self._busy() else "late" if late else ""
            return bool(why)

        try:
            return Evaluation(endings(self._measure(config, ends, lambda _: None, (1, 0), None)))
        except Exception as error:  # noqa: BLE001 - a point that fails is left out, and the note says why
            if why == "stopped":
                raise Stopped from None
            if why == "late":
                self._too_long = min(self._too_long, work(config))
                return Evaluation({}, f"takes over {LONGEST:.0f} s")
            return None if why else Evaluation({}, f"{type(error).__name__}: {error}")

    def _left_out(self, config: Config) -> Evaluation | None:
        """The reason not to begin at all."""
        if (needed := config.sizes.memory_bytes) > MOST_BYTES:
            return Evaluation({}, f"needs {needed / 1e9:.2g} GB of memory")
        return Evaluation({}, f"takes over {LONGEST:.0f} s") if work(config) >= self._too_long else None

    def _keep(self, origin: str, config: Config, result: Evaluation) -> None:
        self._known[origin, config] = result
        self._known.move_to_end((origin, config))
        while len(self._known) > KEPT:
            self._known.popitem(last=False)


def work(config: Config) -> float:
    """A number that grows with the time of a measurement."""
    tokens = config.batch_size * config.n_ctx
    return config.n_seeds * (config.sizes.n_parameters * tokens + config.sizes.activation_bytes)


# A sweep in words, and as a record. Pure functions.


MOST_VALUES = 4
"""Values that are named; further ones are counted."""


def caption(end: End, current: Swept) -> str:
    """How to read the chart, and theory's note on its line."""
    noted = dict.fromkeys(point.ending.note for point in current.line if point.ending and point.ending.note)
    theory = f" Theory: {next(iter(noted))}." if noted else ""
    return f"{end.words} A click on a point sets the slider.{theory}"


def progress(current: Swept) -> str:
    """How many dots are there; empty once all are."""
    done = sum(bool(point.ending or point.reason) for point in current.dots)
    return f"Measured {done} of {len(current.dots)}" if done < len(current.dots) else ""


def notes(spec: Spec, current: Swept) -> list[str]:
    """Sentences on the values that were left out."""
    refused = [point for point in current.line if point.reason]
    values = {point.value for point in refused}
    missing = [point for point in current.dots if point.reason and point.value not in values]
    said = [_said("Left out at", refused)] if refused else []
    said += [_said("Not measured at", [point for point in missing if point.reason == reason])
             for reason in dict.fromkeys(point.reason for point in missing)]
    return [sentence.replace(" at ", f" at {lowered(spec.about.label)} ", 1) for sentence in said]


def understood(record: object) -> tuple[dict[str, Any], list[str]]:
    """The parts of a sweep's record that a list offers, and a sentence for each other part."""
    if not isinstance(record, Mapping):
        return {}, [f"sweep must be an object; got {shown(record)}"]
    offered: dict[str, Sequence[str]] = {"field": [*sweepable()], "statistic": [*ENDS]}
    good = {name: value for name, value in record.items() if value in offered.get(name, ())}
    return good, [
        f"sweep: {name} must be one of {', '.join(offered[name])}; got {shown(value)}" if name in offered
        else f"sweep: {shown(name)} is not understood; got {shown(value)}"
        for name, value in record.items() if name not in good]


def _said(start: str, points: Sequence[Point]) -> str:
    named = ", ".join(f"{point.value:g}" for point in points[:MOST_VALUES])
    more = len(points) - MOST_VALUES
    return f"{start} {named}{f' and {more} more' if more > 0 else ''}: {points[0].reason}."


MOST_LINE, MOST_DOTS = 41, 11
"""Values at which theory is asked, and at most measured: every fourth of them."""
Item = TypeVar("Item")


class Spot(NamedTuple):
    """A value of the field, and the design there, or why the rules refuse it."""

    value: float
    config: Config | None
    refusal: str = ""


class Task(NamedTuple):
    """A sweep: the field, and the designs, the current one first, then the pins."""

    field: str
    designs: tuple[Design, ...]


Plan = Mapping[Design, Sequence[Spot]]
"""Each design at the values of the field, in rising order."""


def sweepable() -> dict[str, Spec]:
    """The fields whose control is a slider."""
    return {name: spec for name, spec in Config.specs().items() if slider_steps(spec)}


def thinned(items: Sequence[Item], most: int) -> list[Item]:
    """At most `most` of the items, evenly chosen, with both ends."""
    count = min(len(items), most)
    return [items[round(place * (len(items) - 1) / max(count - 1, 1))] for place in range(count)]


def nearest(values: Sequence[float], value: float) -> float:
    """The value that is next to a point of a chart, which is drawn on numbers of fewer digits."""
    return min(values, key=lambda candidate: abs(candidate - value))


def planned(task: Task) -> Plan:
    """The plan of a sweep."""
    return {design: spots(design.config, task.field) for design in task.designs if design.config}


def spots(config: Config, field: str) -> list[Spot]:
    """A design at the values of a field's slider, in rising order."""
    return [_spot(config, field, value) for value in thinned(slider_steps(Config.specs()[field]), MOST_LINE)]


def _spot(config: Config, field: str, value: float) -> Spot:
    try:
        return Spot(value, config.replace(**{field: value}))
    except ConfigError as error:
        return Spot(value, None, refusal_in_words(error))


def alike(config: Config, other: Config, field: str) -> bool:
    """Whether two designs differ in no other field."""
    return config.model_dump(exclude={field}) == other.model_dump(exclude={field})
