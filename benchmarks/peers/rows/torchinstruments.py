"""torchinstruments: an observer of chosen modules, with reducers and a sink of one's own beside its
files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torchinstruments import AlwaysSampler, histogram, inject_observer

from benchmarks.peers.model import Subject, Values


def number(x: Tensor) -> dict[str, Tensor]:
    """Entropy of a pattern, second moment of a stream."""
    return {"value": x.square().mean() if x.ndim == 3 else torch.special.entr(x).sum(dim=-1).mean()}


class Latest:
    """A sink that keeps the last sample."""

    sample: Any = None

    def initialize(self, run: object, modules: object) -> None:
        """Nothing to prepare."""

    def observe(self, sample: Any) -> None:
        """One sample, after its forward and again after its backward pass."""
        self.sample = sample

    def close(self) -> None:
        """Nothing to close."""


def prepare(subject: Subject) -> Callable[[], Values]:
    """Attached once. It must have one histogram, which is of one module, and its own files, which
    grow."""
    latest, layers = Latest(), range(subject.config.n_layers)

    def chosen(name: str, _: nn.Module) -> bool:
        return name.endswith("softmax") or (name.startswith("blocks.") and name.count(".") == 1)

    inject_observer(
        subject.model,
        sampler=AlwaysSampler(),
        selector=chosen,
        reducers=[number],
        sink=latest,
        histograms=[histogram(every_n_samples=1000)],
        max_histogram_modules=1,
        output_dir=tempfile.mkdtemp(),
        error_policy="raise",
    )

    def run() -> Values:
        subject.loss(subject.model(subject.inputs)).backward()
        subject.model.zero_grad()
        modules = latest.sample.modules
        blocks = [modules[f"blocks.{layer}"][0] for layer in layers]
        rows = [modules[f"blocks.{layer}.attention.softmax"][0] for layer in layers]
        return {
            "second_moment": [block.outputs["output"].stats["value"] for block in blocks],
            "attention_entropy": [row.outputs["output"].stats["value"] for row in rows],
            "activation_gradient": [
                block.output_gradients["grad_output"].stats["value"] for block in blocks
            ],
        }

    return run
