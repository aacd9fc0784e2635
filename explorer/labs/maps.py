"""Maps of the labs: sweeps in the page's own process, a cell at a time, so that they stop at once and are seen."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from explorer.config import Config
from explorer.labs import Look, unseen
from explorer.profile import Array
from explorer.stopping import Progress, Stop, check

if TYPE_CHECKING:
    import xarray as xr

MOST_KNOWN = 12
"""Maps that are remembered: one setting moves, and most of a lab's maps stay."""
Over = Mapping[str, Sequence[Any]]

_known: OrderedDict[Any, xr.Dataset] = OrderedDict()


def swept(config: Config, over: Over, statistics: Sequence[str], stop: Stop = lambda: False,
          progress: Progress = lambda _: None, look: Look = unseen, **how: Any) -> xr.Dataset:
    """A sweep's dataset; what has just been computed is not computed again.

    Args:
        look: told how the dataset so far is made, after each cell that is not predicted.
        how: `origins`, `recipe`, `steps`, `task`, as `explorer.sweep` has them.
    Raises:
        explorer.Stopped: `stop()` said true.
    """
    from explorer.sweeping.sweeps import CellResult, Sweep
    from explorer.sweeping.workers import Here

    key = (config, tuple((name, tuple(values)) for name, values in over.items()), tuple(statistics),
           tuple(how.items()))
    dataset = _known.pop(key, None)
    if dataset is None:
        sweep = Sweep(config, over, statistics, Here(), **how)

        def after(cell: CellResult) -> None:
            progress(sweep.done / sweep.total)
            if cell.origin != "predicted":
                look(lambda: sweep.dataset().copy(deep=True))

        sweep.run(stop, after)
        check(stop)
        dataset = sweep.dataset()
    _known[key] = dataset
    if len(_known) > MOST_KNOWN:
        _known.popitem(last=False)
    progress(1.0)
    return dataset


def unswept(config: Config, over: Over, statistics: Sequence[str], **how: Any) -> xr.Dataset:
    """The dataset of the same sweep before anything of it is known."""
    from explorer.sweeping.sweeps import Sweep

    return Sweep(config, over, statistics, **how).dataset()


def crossing(x: Sequence[float], values: Array, level: float) -> float:
    """The first place on a log axis where values `[x]` pass a level, from either side, even between neighbors on both
    log axes; nan where they never do."""
    with np.errstate(all="ignore"):
        far = np.log(values / level)
    passed = np.flatnonzero(np.sign(far[1:]) * np.sign(far[:-1]) <= 0)
    if not len(passed):
        return float("nan")
    at = int(passed[0])
    # an infinite neighbor says only that the level lies before it
    share = far[at] / (far[at] - far[at + 1]) if np.isfinite(far[at + 1]) else 0.5
    low, high = np.log(x[at : at + 2])
    return float(np.exp(low + share * (high - low)))


def same_side(dataset: xr.Dataset, statistic: str, level: float = 1.0, room: float = 0.0) -> tuple[int, int]:
    """Cells in which prediction and measurement lie on the same side of a level, and all that were compared.

    Args:
        room: decades around the level within which a prediction is not asked: a border has a width.
    """
    both = [dataset[statistic].sel(origin=origin).values.ravel() for origin in ("predicted", "measured")]
    with np.errstate(all="ignore"):
        predicted, measured = (np.log10(values / level) for values in both)
    asked = (np.abs(predicted) > room) & ~np.isnan(measured)
    return int((np.sign(predicted) == np.sign(measured))[asked].sum()), int(asked.sum())
