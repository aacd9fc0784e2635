"""Trainings with losses of our own, for what is said of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from explorer.labs.trained import Trained
from explorer.training.history import History
from explorer.training.race import Outcome
from explorer.training.tasks import Levels


def invented(settings: Any, losses: Mapping[str, float], alpha: float = 0.1) -> Trained[Any]:
    """Contenders by name that ended at some loss; those whose loss is nan fell out before step 300."""
    histories = {}
    for name in losses:
        histories[name] = history = History()
        history.record(0, {("alpha", site): np.full(2, alpha) for site in ("attn_out", "mlp_out")})
    ends = {
        name: Outcome(name, 300, loss, None, 300 if math.isnan(loss) else None,
                      "the training loss is nan" if math.isnan(loss) else "", 1.0, 1.0)
        for name, loss in losses.items()
    }
    return Trained(settings, histories, ends, Levels(3.38, 2.44))
