"""What the worker of the Explore panel does. torch is imported there: it takes a second, and the page need not wait."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import cache

from explorer import plotlyjs
from explorer.app.explore.foretold import Foretold
from explorer.app.widgets.worker import wait
from explorer.config import Config
from explorer.profile import Profile
from explorer.stopping import Progress, Stop
from explorer.trials import as_trained, evidence, likeness, predicted

SHOWN = threading.Event()
"""Set when a browser has put a page of this kernel together."""
PATIENCE = 4.0
"""Seconds after which a page without a browser is measured all the same."""
DRAWING = 0.15
"""Seconds that a browser is given to draw the charts, before the trials take its processors."""


def measure(config: Config, stop: Stop, progress: Progress, pattern_of: tuple[int, int],
            on_seed: Callable[[Profile], None] | None = None) -> Profile:
    """`explorer.probes.measure`; torch does not share a small machine with a page whose lines are being drawn."""
    if "torch" not in sys.modules:
        SHOWN.wait(PATIENCE)
    from explorer.probes import measure as measured

    _spare_imports()
    return measured(config, stop, progress, pattern_of, on_seed)


@cache
def _spare_imports() -> None:
    """Has garbage no longer looked for among what was imported: each time it took .15 s, and a slider stood still.

    Only where `explorer serve` has the process to itself: in a person's own, what lives now may be garbage later.
    """
    if os.environ.get(plotlyjs.SERVED) == plotlyjs.TO_VISITORS:
        gc.freeze()


def _like(small: Config, stop: Stop) -> str:
    """How many random designs like one of their size trained.

    Theory has the evidence for most designs. For the others a model is measured, when a browser has drawn the charts.
    """
    shown = predicted(small)
    if shown is None:
        from explorer.probes import measure as measured

        begun = time.monotonic()
        wait(lambda: time.monotonic() - begun < DRAWING, stop)
        shown = evidence(measured(small, stop))
    return str(likeness(shown))


LIKE = Foretold(_like)
"""Of each design at the size of the trials; designs of many sizes have the same one."""


def trials(config: Config, stop: Stop) -> str:
    """How many random designs like one trained, from its model at their size; empty where none is like it."""
    small = as_trained(config)
    if small:
        LIKE.find(small, stop)
    return LIKE.words(small)
