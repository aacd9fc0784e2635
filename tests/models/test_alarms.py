"""Planted faults are reported within a few steps, and healthy runs are not: torch's own encoder in
a plain loop."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import explorer as ex
from explorer.diagnosis import Finding
from explorer_models.alarms import LEAST, LIMITS, SCATTER, distances
from explorer_models.findings import over_time

WORDS, TOKENS, WIDTH, BATCH, FAULT = 16, 8, 16, 8, 24


class Language(nn.Module):
    """An embedding, torch's encoder with a causal mask, and a readout."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 2, 2 * WIDTH, 0.0, batch_first=True, norm_first=seed % 2 == 0
        )
        self.embed, self.read = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.mask = nn.Transformer.generate_square_subsequent_mask(TOKENS)

    def forward(self, codes: Tensor) -> Tensor:
        logits: Tensor = self.read(self.encoder(self.embed(codes), mask=self.mask, is_causal=True))
        return logits


def sentences(generator: torch.Generator) -> Tensor:
    """`[batch, token]`: each next token is 5 t + 3, but one in four is random."""
    codes = [torch.randint(WORDS, (BATCH,), generator=generator)]
    for _ in range(TOKENS):
        noise = torch.randint(WORDS, (BATCH,), generator=generator)
        codes.append(
            torch.where(
                torch.rand(BATCH, generator=generator) < 0.25, noise, (5 * codes[-1] + 3) % WORDS
            )
        )
    return torch.stack(codes, 1)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=3e-3)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def warmed(step: int, steps: int) -> float:
    """A warm-up of 15 steps, then a cosine to 0."""
    return min(1.0, (step + 1) / 15) * (1 + math.cos(math.pi * step / steps)) / 2


def trained(
    seed: int,
    steps: int,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    fault: str = "",
    schedule: Callable[[int, int], float] = lambda step, steps: 1.0,
) -> ex.Watch:
    """A watched training; the fault is at step `FAULT`, that of the rate from there on."""
    model = Language(seed).train()
    stepper, generator = optimizer(model), torch.Generator().manual_seed(seed)
    rate = stepper.param_groups[0]["lr"]
    with ex.watch(model, every=1) as watch:
        for step in range(steps):
            codes, now = sentences(generator), fault if step >= FAULT else ""
            if now == "batch" and step == FAULT:
                codes = torch.randint(WORDS, codes.shape, generator=generator)
            if now == "layer" and step == FAULT:
                for weight in model.encoder.layers[1].parameters():
                    weight.data.mul_(2.0 if weight.ndim > 1 else 1.0)
            stepper.param_groups[0]["lr"] = (
                rate * schedule(step, steps) * (10 if now == "rate" else 1)
            )
            stepper.zero_grad()
            logits = model(codes[:, :-1])
            F.cross_entropy(logits.flatten(0, 1), codes[:, 1:].flatten()).backward()  # type: ignore[no-untyped-call]
            # a gradient that float16 cannot hold, as a wrong loss scale gives it
            if now == "overflow":
                for weight in model.parameters():
                    weight.grad = (
                        None
                        if weight.grad is None
                        else (weight.grad * 2.0**40).half().float() / 2.0**40
                    )
            stepper.step()
    return watch


def warnings_of(watch: ex.Watch) -> list[Finding]:
    """What the readings together say, without what is said of the last one."""
    found = over_time(watch.readings, watch.first_nonfinite, watch.layers, sick=False)
    return [finding for finding in found if finding.severity != "good"]


@pytest.mark.parametrize(
    ("optimizer", "seed", "fault", "meaning", "evidence"),
    [
        (
            adam,
            0,
            "rate",
            f"all matrices leave their course at step {FAULT}.",
            "‖ΔW‖/‖W‖ of each matrix",
        ),
        (
            sgd,
            1,
            "rate",
            f"all matrices leave their course at step {FAULT}.",
            "‖ΔW‖/‖W‖ of each matrix",
        ),
        (adam, 0, "batch", f"The loss leaves its course at step {FAULT}.", "The loss is "),
        (sgd, 1, "layer", f"A jump at step {FAULT}: ", "layer 2 (encoder.layers.1) goes from "),
        (
            adam,
            0,
            "overflow",
            f"A value is not finite from step {FAULT + 1} on.",
            f"step {FAULT + 1}, forward",
        ),
    ],
)
def test_a_fault_is_reported_within_two_steps(
    fault: str,
    meaning: str,
    evidence: str,
    seed: int,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer],
) -> None:
    """Of a rate, by its factor: between two readings weights hardly change, and Adam's update is 10
    times as large within 30 %."""
    watch = trained(seed, FAULT + 2, optimizer, fault)
    first = watch.diagnose()[0]
    assert meaning in first.meaning, warnings_of(watch)
    assert evidence in first.evidence
    if fault == "rate" and optimizer is adam:
        assert 7 < float(first.evidence.split("one to ")[1].split(" times")[0]) < 13, first.evidence


@pytest.mark.parametrize(
    ("seed", "schedule", "optimizer"),
    [
        (0, lambda step, steps: 1.0, adam),
        (2, warmed, sgd),
    ],
)
def test_a_healthy_run_gives_no_warning(
    seed: int,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    schedule: Callable[[int, int], float],
) -> None:
    assert not warnings_of(trained(10 + seed, 60, optimizer, schedule=schedule))


def test_the_limits_are_those_of_the_table() -> None:
    """Each signal that gives alarms gave none in the table's healthy runs; with the others, all
    faults were found."""
    with (Path(__file__).parents[2] / "docs" / "faults.csv").open(
        newline="", encoding="utf-8"
    ) as file:
        *runs, limits = csv.DictReader(file)
    assert LIMITS["loss"] >= float(limits["loss"])
    assert LIMITS["update_ratio"] == float(limits["update of every matrix"])
    faulty = [run for run in runs if run["fault"]]
    for run in runs:
        alarms = [
            run[name]
            for name in ("loss", "update of every matrix", "matrix norm beyond its step")
            if run[name]
        ]
        assert bool(alarms) == bool(run["fault"]), run
        assert run["fault"] == "" or min(map(int, alarms)) == int(run["verdict of watch"]) == 0, run
    assert (len(runs), len(faulty)) == (148, 48)


def test_a_distance_is_counted_in_scatters_of_the_differences() -> None:
    """In closed form: logarithms 0, -b, -b, again and again, differ by -b, 0, b, of which the
    median size is b."""
    b, jump = 0.2, 3.0
    distance, factor = distances(np.exp([*([0.0, -b, -b] * 10), jump]))
    assert factor[-1] == pytest.approx(math.exp(jump + b))
    assert distance[-1] == pytest.approx((jump + b) / (1.4826 * b / math.sqrt(2)))
    assert np.isnan(distance[:LEAST]).all()
    assert np.nanmax(distance[:-1]) <= math.sqrt(2) / 1.4826 + 1e-9


def test_a_steady_course_has_no_scatter_of_its_own() -> None:
    """However fast it grows, the scatter is the least one; the median lies three steps back."""
    distance, factor = distances(np.exp(0.01 * np.arange(40)))
    assert distance[-1] == pytest.approx(0.03 / SCATTER)
    assert factor[-1] == pytest.approx(math.exp(0.03))
    assert distance[-1] < min(LIMITS.values())


def test_values_that_are_missing_or_not_finite_are_left_aside() -> None:
    course = np.array([1.0, math.nan, 1.1, 1.0, math.inf] * 6 + [1.0])
    distance, _ = distances(course)
    assert np.isfinite(distance[-1])
    assert np.isnan(distance[-2])
    assert np.isnan(distances(np.full(30, math.nan))[0]).all()
