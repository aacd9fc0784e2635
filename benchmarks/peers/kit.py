"""The rows of the table, and how the values that they read are compared."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from benchmarks.peers.model import Values

STATISTICS = ("second_moment", "attention_entropy", "activation_gradient")
"""By layer: mean x² after each block, entropy of its attention in nats, and mean (∂L/∂x)² over the
last block's."""
OPERATIONS = 26
"""Of a block, 13 forward and as many backward: each rounds once, and roundings add up as a random
walk does."""


class Row(NamedTuple):
    """One way to read the statistics."""

    name: str
    module: str
    """Of `benchmarks.peers.rows`; it has a `prepare`."""
    function: str = "prepare"
    distribution: str = ""
    """What `pip` calls the package."""
    over: str = "bare"
    """Name of the row that this one's time is divided by."""
    note: str = ""


ROWS = (
    Row(
        "bare",
        "bare",
        note="the plain model's pass, forward and backward, with nothing read; over itself, so the "
        "spread is the machine's; what every other row is divided by, unless its note names another",
    ),
    Row("hooks by hand", "hooks", note="as little as it takes, for this model only"),
    Row("ex.measure's model", "own_pass", "bare", note="alone"),
    Row(
        "ex.measure's pass",
        "own_pass",
        over="ex.measure's model",
        note="over ex.measure's model; all ten statistics at all sites",
    ),
    Row(
        "ex.watch",
        "own_watch",
        note="a reading at every step, where one in fifty is the default; eleven statistics, "
        "weights and updates",
    ),
    Row(
        "ex.probe",
        "own_probe",
        note="of a model of any code, by its operations; all ten statistics, its weights and "
        "its design",
    ),
    Row(
        "tensor-tracker",
        "tensor_tracker",
        distribution="tensor-tracker",
        note="`track` of named modules, reduced as they come",
    ),
    Row(
        "torchlens",
        "torchlens",
        distribution="torchlens",
        note="`Recorder`, which is `record` with a backward pass, of chosen operations, reduced as they come",
    ),
    Row(
        "nnsight",
        "nnsight",
        distribution="nnsight",
        note="a trace, and one of the backward pass in it",
    ),
    Row(
        "torchinstruments",
        "torchinstruments",
        distribution="torchinstruments",
        note="an observer of chosen modules at every pass, where one a minute is the default; it writes files, too",
    ),
    Row(
        "TransformerLens' model",
        "transformer_lens",
        "bare",
        "transformer-lens",
        note="alone, with the same weights",
    ),
    Row(
        "TransformerLens",
        "transformer_lens",
        distribution="transformer-lens",
        over="TransformerLens' model",
        note="over TransformerLens' model; hooks for one pass",
    ),
    Row(
        "unit-scaling",
        "unit_scaling",
        distribution="unit-scaling",
        note="`track_scales`: mean, spread and extremes of every tensor and of its gradient, from which second moments "
        "follow; no function of one's own, so no entropy",
    ),
    Row(
        "mup",
        "mup",
        distribution="mup",
        note="its coordinate check reads what modules return, so no gradient by it; it takes an optimizer's step",
    ),
)


def tolerance(layers: int) -> float:
    """Relative error that float32 explains after so many layers."""
    return torch.finfo(torch.float32).eps * math.sqrt(OPERATIONS * layers)


def relative(values: Values) -> Values:
    """The same, gradients relative to the last block's."""
    return {
        name: [value / column[-1] for value in column] if name == "activation_gradient" else column
        for name, column in values.items()
    }


def deviations(found: Values, expected: Values) -> dict[str, float]:
    """Each found statistic's largest relative error over layers; infinite where the layers are not
    as many."""
    found, expected = relative(found), relative(expected)
    return {
        name: max(abs(value / true - 1) for value, true in zip(column, expected[name], strict=True))
        if len(column) == len(expected[name]) and all(map(math.isfinite, column))
        else math.inf
        for name, column in found.items()
    }
