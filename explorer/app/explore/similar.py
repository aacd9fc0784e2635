"""Sentences on how designs similar to the one on the Explore panel trained."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from explorer.config import Config
from explorer.measuring.outside import measure
from explorer.stopping import Stop
from explorer.tasks.pool import Order
from explorer.trials import as_trained, evidence, likeness, predicted

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


def _similar(small: Config, stop: Stop) -> str:
    """A sentence on how many random designs similar to one at the trials' size trained.

    Theory has the evidence for most designs; for the others a model is measured.
    """
    shown = predicted(small) or evidence(measure(small, stop, order=Order.TRIALS))
    return str(likeness(shown))


SIMILAR = SimilarDesigns(_similar)
"""Sentences by the design at the size of the trials, which designs of many sizes share."""


def trials(config: Config, stop: Stop) -> str:
    """A sentence on how many random designs similar to one trained; empty where no trial has its options."""
    small = as_trained(config)
    if small:
        SIMILAR.find(small, stop)
    return SIMILAR.words(small)
