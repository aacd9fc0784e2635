"""The pass alone: forward, loss, and the gradient by every weight."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.peers.model import Subject, Values


def prepare(subject: Subject) -> Callable[[], Values]:
    """Nothing is read."""

    def run() -> Values:
        subject.loss(subject.model(subject.inputs)).backward()
        subject.model.zero_grad()
        return {}

    return run
