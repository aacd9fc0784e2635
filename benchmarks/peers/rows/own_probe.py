"""`ex.probe`: every statistic that can be seen in a model of any code, by operations instead of
modules."""

from __future__ import annotations

from collections.abc import Callable

import explorer as ex
from benchmarks.peers.model import Subject, Values


def prepare(subject: Subject) -> Callable[[], Values]:
    """It makes the pass itself."""

    def run() -> Values:
        profile = ex.probe(subject.model, subject.inputs, subject.loss)
        return {
            "second_moment": profile["second_moment", "resid_post"][0].tolist(),
            "attention_entropy": profile["attention_entropy", "pattern"][0].mean(axis=-1).tolist(),
            "activation_gradient": profile["activation_gradient", "resid_post"][0].tolist(),
        }

    return run
