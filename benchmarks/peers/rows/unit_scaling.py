"""unit-scaling's `track_scales`: mean, spread and extremes of every tensor of the graph and of its
gradient.

From the mean and the spread follows the second moment. It takes no functions, so it has no entropy.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from unit_scaling.transforms import track_scales

from benchmarks.peers.model import Subject, Values


def second_moment(data: Any) -> float:
    """From the mean and the spread, which is that of a sample."""
    return data.abs_mean**2 + data.std**2 * (data.numel - 1) / data.numel


def prepare(subject: Subject) -> Callable[[], Values]:
    """The graph is captured at the first pass, and then used again."""
    model = track_scales(subject.model)

    def run() -> Values:
        subject.loss(model(subject.inputs)).backward()
        model.zero_grad()
        sums = [
            node.meta["metrics"]
            for node in model.scales_graph().nodes
            if node.target is operator.add
        ]
        return {
            "second_moment": [second_moment(metrics.fwd) for metrics in sums[1::2]],
            "activation_gradient": [second_moment(metrics.bwd) for metrics in sums[1::2]],
        }

    return run
