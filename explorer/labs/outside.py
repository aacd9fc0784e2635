"""A lab's computation outside this process: a task, `lab`, of its name and settings.

Results are as different as the labs, so they travel as pickles: of the server's own workers, never of a visitor.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

from explorer import tasks
from explorer.choices import Choices
from explorer.labs import Look, unseen
from explorer.labs.lab import Lab
from explorer.stopping import Progress, Stop, Throttle
from explorer.tasks.pool import Call, Order, Task


def run(lab: Lab, settings: Choices, stop: Stop, progress: Progress, look: Look = unseen) -> Any:
    """`lab.run`, computed by a worker; the same settings give the same result."""
    task = Task("lab", json.dumps({"lab": lab.name, "settings": settings.model_dump(mode="json")}),
                Order.LONG if lab.grows else Order.OTHER_SEEDS)
    for _, answer in tasks.answers([task], stop):
        if (so_far := answer.so_far) is not None:
            look(partial(pickle.loads, so_far))  # a worker's
        elif answer.result is None:
            progress(answer.progress)
        else:
            return pickle.loads(answer.result)  # noqa: S301 - a worker's
    return None


def compute(call: Call) -> bytes:
    """Computes a lab's result, in a worker."""
    from explorer.labs.table import LABS

    asked = json.loads(call.body)
    lab = LABS[asked["lab"]]
    showing = Throttle(1.0, share=0.05)

    def look(make: Callable[[], Any]) -> None:
        if showing.due:
            with showing:
                call.show(pickle.dumps(make()))

    return pickle.dumps(lab.run(lab.settings(**asked["settings"]), call.stop, call.progress,
                                **{"look": look} if lab.grows else {}))
