"""`Foretold`: how many random designs like one trained, in words that are found once for each design."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from explorer.config import Config
from explorer.stopping import Stop

Trials = Callable[[Config, Stop], str]

KEPT = 256
"""Sentences that are kept: more than the worker keeps results."""


class Foretold:
    """Sentences by design.

    Args:
        trials: the sentence of a design, empty where nothing is known of its like; None finds none.
    """

    def __init__(self, trials: Trials | None) -> None:
        self._trials = trials
        self._known: OrderedDict[Config, str] = OrderedDict()

    def find(self, config: Config, stop: Stop) -> None:
        """Finds the sentence of a design, on the worker's thread; raises what `trials` raises once `stop()` is true."""
        if self._trials is None or config in self._known:
            return
        try:
            self._known[config] = self._trials(config, stop)
        except Exception as error:
            if stop():
                raise
            self._known[config] = f"How its like trained is not known: {type(error).__name__}: {error}."
        if len(self._known) > KEPT:
            self._known.popitem(last=False)

    def words(self, config: Config | None) -> str:
        """The sentence of a design; empty where it was not asked for."""
        return self._known.get(config, "") if config else ""
