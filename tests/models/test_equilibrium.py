"""The equilibrium of steps and weight decay, in layers that a norm follows, and the finding about
it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

import explorer as ex
from explorer_models.equilibrium import gradients_grow

WIDTH = 32
MEANING = "gradient norm grows because the learning rate decays"


class Block(nn.Module):
    """A matrix that a norm follows: the loss ignores its scale."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + nn.functional.rms_norm(self.matrix(x), (WIDTH,))


@cache
def trained(
    make: Callable[[nn.Module], Optimizer],
    rate: Callable[[float], float],
    steps: int = 1500,
    decay: Callable[[float], float] = lambda done: 1.0,
    loud: Callable[[float], float] = lambda done: 1.0,
) -> ex.Watch:
    """Two blocks on targets that are drawn anew at each step; schedules by the share of the steps
    that is done.

    Kept: several tests read one training.
    """
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(2)))
    optimizer = make(model)
    held = [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups]
    with ex.watch(model, every=10, blocks=["0", "1"]) as watch:
        for step in range(steps):
            for group, (lr, weight_decay) in zip(optimizer.param_groups, held, strict=True):
                group["lr"], group["weight_decay"] = (
                    lr * rate(step / steps),
                    weight_decay * decay(step / steps),
                )
            x, y = torch.randn(2, 16, WIDTH)
            optimizer.zero_grad()
            (loud(step / steps) * (model(x) * y).mean(1).sum()).backward()
            optimizer.step()
    return watch


def sgd(
    lr: float = 1.0, weight_decay: float = 0.01, momentum: float = 0.0
) -> Callable[[nn.Module], Optimizer]:
    return lambda model: torch.optim.SGD(
        model.parameters(), lr=lr, weight_decay=weight_decay, momentum=momentum
    )


def adamw(lr: float = 0.01, weight_decay: float = 1.0) -> Callable[[nn.Module], Optimizer]:
    return lambda model: torch.optim.AdamW(
        model.parameters(), lr=lr, weight_decay=weight_decay, betas=(0.9, 0.99)
    )


SGD, MOMENTUM, ADAMW = sgd(), sgd(0.1, momentum=0.9), adamw()


def constant(done: float) -> float:
    return 1.0


def falling(done: float) -> float:
    """Constant, then by powers of 10 to 1/30."""
    return float(30 ** -max(0.0, (done - 0.3) / 0.7))


def cosine(done: float) -> float:
    return (1 + math.cos(math.pi * done)) / 2


def series(watch: ex.Watch, statistic: str) -> np.ndarray:
    """`[reading, layer]`."""
    return np.array([reading.values[statistic, "matrix.weight"] for reading in watch.readings])


def mean_square(values: np.ndarray) -> float:
    return float(np.sqrt((values**2).mean()))


def late(watch: ex.Watch, statistic: str) -> float:
    """Root mean square over the layers and the second half of the readings."""
    return mean_square(series(watch, statistic)[len(watch.readings) // 2 :])


@pytest.mark.parametrize(
    ("make", "rest"),
    [
        (SGD, math.sqrt(2 * 0.01)),
        (MOMENTUM, math.sqrt(2 * 0.1 * 0.01 / 1.9)),
        (ADAMW, math.sqrt(2 * 0.01 * 0.1 / 1.9)),
    ],
    ids=["sgd", "momentum", "adamw"],
)
def test_a_step_turns_a_normalized_matrix_as_the_law_says(
    make: Callable[[nn.Module], Optimizer], rest: float
) -> None:
    """Within 4 %: 1 to 2 % of scatter over 150 numbers, and as much as ‖W‖ varies about its fixed
    point."""
    watch = trained(make, constant, 1000)
    assert late(watch, "equilibrium_update") == pytest.approx(rest, rel=1e-6)
    assert late(watch, "update_ratio") == pytest.approx(rest, rel=0.04)
    assert abs(series(watch, "gradient_cosine")).max() < 1e-5
    radial = series(watch, "update_cosine")[len(watch.readings) // 2 :].mean()
    assert radial == pytest.approx(-rest / 2, rel=0.1), "‖W‖ stands still: 2 ⟨ΔW, W⟩ + ‖ΔW‖² = 0"
    assert gradients_grow(watch.readings) is None


@pytest.mark.parametrize(("make", "lr", "momentum"), [(SGD, 1.0, 0.0), (MOMENTUM, 0.1, 0.9)])
def test_the_gradient_of_sgd_is_to_the_matrix_as_the_law_says(
    make: Callable[[nn.Module], Optimizer], lr: float, momentum: float
) -> None:
    watch = trained(make, constant, 1000)
    half = len(watch.readings) // 2
    ratio = mean_square(
        series(watch, "parameter_gradient")[half:] / series(watch, "weight_norm")[half:]
    )
    assert ratio == pytest.approx(math.sqrt(2 * 0.01 * (1 - momentum) / lr), rel=0.05)


@pytest.mark.parametrize(("make", "rate"), [(SGD, falling), (ADAMW, cosine)], ids=["sgd", "adamw"])
def test_a_gradient_that_grows_as_the_rate_decays_is_explained(
    make: Callable[[nn.Module], Optimizer], rate: Callable[[float], float]
) -> None:
    watch = trained(make, rate)
    (told,) = (one for one in watch.diagnose() if MEANING in one.meaning)
    assert told.severity == "good"
    assert "2 of 2 matrices" in told.evidence
    gradient = series(watch, "parameter_gradient")
    assert mean_square(gradient[-3:]) > 1.5 * mean_square(gradient[40:50])


def test_with_the_decay_multiplied_by_the_rate_too_it_stays_level() -> None:
    """The correction of AdamC, λ η/η_max, on a cosine."""
    plain, corrected = trained(ADAMW, cosine), trained(ADAMW, cosine, decay=cosine)
    ends = []
    for watch in (plain, corrected):
        ratio = series(watch, "parameter_gradient") / series(watch, "weight_norm")
        ends.append(mean_square(ratio[-10:]) / mean_square(ratio[30:40]))
    assert ends[0] > 2
    assert ends[1] == pytest.approx(1, abs=0.1)
    assert gradients_grow(plain.readings) is not None
    assert gradients_grow(corrected.readings) is None


def test_a_gradient_that_grows_for_another_reason_is_not() -> None:
    watch = trained(ADAMW, constant, 1000, loud=lambda done: 5.0 if done > 0.8 else 1.0)
    gradient = series(watch, "parameter_gradient")
    assert mean_square(gradient[-3:]) > 1.5 * mean_square(gradient[20:30])
    assert gradients_grow(watch.readings) is None


@pytest.mark.parametrize(
    "make",
    [
        sgd(weight_decay=0.0),
        adamw(weight_decay=0.0),
        lambda model: torch.optim.Adam(model.parameters(), 0.01, weight_decay=0.1),
    ],
)
def test_without_decay_apart_from_the_gradient_nothing_is_expected(
    make: Callable[[nn.Module], Optimizer],
) -> None:
    watch = trained(make, falling, 300)
    assert not any(
        key[0] == "equilibrium_update" for reading in watch.readings for key in reading.values
    )
    assert gradients_grow(watch.readings) is None
