"""`SimilarDesigns`: a sentence on how many random designs similar to a given one trained, made once per design."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from explorer.config import Config
from explorer.stopping import Stop

Trials = Callable[[Config, Stop], str]

KEPT = 256
"""Sentences kept: more than the worker keeps results."""


class SimilarDesigns:
    """Sentences on the training of similar designs, by design; the latest are kept.

    Args:
        trials: makes the sentence of a design, empty where no similar one was trained; None makes none.
    """

    def __init__(self, trials: Trials | None) -> None:
        self._trials = trials
        self._known: OrderedDict[Config, str] = OrderedDict()

    def find(self, config: Config, stop: Stop) -> None:
        """Makes the sentence of a design, on the worker's thread; raises what `trials` raises once `stop()` is true."""
        if self._trials is None or config in self._known:
            return
        try:
            self._known[config] = self._trials(config, stop)
        except Exception as error:
            if stop():
                raise
            self._known[config] = f"No training results for similar designs: {type(error).__name__}: {error}."
        if len(self._known) > KEPT:
            self._known.popitem(last=False)

    def words(self, config: Config | None) -> str:
        """The sentence of a design; empty where it was not asked for."""
        return self._known.get(config, "") if config else ""
