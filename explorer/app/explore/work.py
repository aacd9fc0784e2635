"""Jobs of the Explore panel's worker: measuring, and looking up how similar designs trained.

torch is imported on the worker's thread: it takes a second, and the page need not wait.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import cache

from explorer import plotlyjs
from explorer.app.widgets.worker import wait
from explorer.config import Config
from explorer.profile import Profile
from explorer.stopping import Progress, Stop
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


SHOWN = threading.Event()
"""Set when a browser has put a page of this kernel together."""
PATIENCE = 4.0
"""Seconds after which a page without a browser is measured all the same."""
DRAWING = 0.15
"""Seconds that a browser is given to draw the charts, before the trials take its processors."""


def measure(config: Config, stop: Stop, progress: Progress, pattern_of: tuple[int, int],
            on_seed: Callable[[Profile], None] | None = None) -> Profile:
    """`explorer.measuring.measure`; torch does not share a small machine with a page whose lines are being drawn."""
    if "torch" not in sys.modules:
        SHOWN.wait(PATIENCE)
    from explorer.measuring import measure as measured

    _spare_imports()
    return measured(config, stop, progress, pattern_of, on_seed)


@cache
def _spare_imports() -> None:
    """Has garbage no longer looked for among what was imported: each time it took .15 s, and a slider stood still.

    Only where `explorer serve` has the process to itself: in a person's own, what lives now may be garbage later.
    """
    if os.environ.get(plotlyjs.SERVED) == plotlyjs.TO_VISITORS:
        gc.freeze()


def _similar(small: Config, stop: Stop) -> str:
    """A sentence on how many random designs similar to one at the trials' size trained.

    Theory has the evidence for most designs. For the others a model is measured, when a browser has drawn the charts.
    """
    shown = predicted(small)
    if shown is None:
        from explorer.measuring import measure as measured

        begun = time.monotonic()
        wait(lambda: time.monotonic() - begun < DRAWING, stop)
        shown = evidence(measured(small, stop))
    return str(likeness(shown))


SIMILAR = SimilarDesigns(_similar)
"""Sentences by the design at the size of the trials, which designs of many sizes share."""


def trials(config: Config, stop: Stop) -> str:
    """A sentence on how many random designs similar to one trained; empty where no trial has its options."""
    small = as_trained(config)
    if small:
        SIMILAR.find(small, stop)
    return SIMILAR.words(small)
