"""`ex.watch`: the statistics of a training loop, here read at every step."""

from __future__ import annotations

from collections.abc import Callable

import explorer as ex
from benchmarks.peers.model import Subject, Values


def prepare(subject: Subject) -> Callable[[], Values]:
    """A loop without an optimizer says when a step ends."""
    watch = ex.watch(subject.model, every=1)

    def run() -> Values:
        subject.loss(subject.model(subject.inputs)).backward()
        watch.step()
        subject.model.zero_grad()
        profile = watch.profile()
        return {
            "second_moment": profile["second_moment", "resid_post"][0].tolist(),
            "attention_entropy": profile["attention_entropy", "pattern"][0].mean(axis=-1).tolist(),
            "activation_gradient": profile["activation_gradient", "resid_post"][0].tolist(),
        }

    return run
