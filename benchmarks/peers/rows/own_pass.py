"""`ex.measure` without the drawing of weights: its pass over the model of a config, all statistics
at all sites."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.peers.model import Subject, Values
from explorer.measuring.observe import Pass
from explorer.model import Transformer, batch


def bare(subject: Subject) -> Callable[[], Values]:
    """The pass of the config's model, unobserved."""
    model, inputs = Transformer(subject.config, 0), batch.draw(subject.config, 0)

    def run() -> Values:
        model.loss(model(model.embed(inputs)), inputs).backward()
        model.zero_grad()
        return {}

    return run


def prepare(subject: Subject) -> Callable[[], Values]:
    """The model is drawn with the seed that the plain one was."""
    model, inputs, one = (
        Transformer(subject.config, 0),
        batch.draw(subject.config, 0),
        Pass(subject.config, 0),
    )

    def run() -> Values:
        (found,) = one.observe(model, inputs)
        return {
            "second_moment": found["second_moment", "resid_post"].tolist(),
            "attention_entropy": found["attention_entropy", "pattern"].mean(axis=-1).tolist(),
            "activation_gradient": found["activation_gradient", "resid_post"].tolist(),
        }

    return run
