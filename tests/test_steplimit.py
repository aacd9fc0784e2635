"""How large a step a start allows: derivatives, eigenvalues and limits where they are known, and
the table that docs/training.md shows."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.steplimit import (
    CANDIDATES,
    COLUMNS,
    DEEP,
    KEY,
    KRYLOV,
    LIMITS,
    NEAR,
    RATES,
    SHALLOW,
    STEPS,
    Case,
    Losses,
    Start,
    cases,
    crossing,
    dot,
    largest_eigenvalue,
    limits,
    read,
    report,
    row,
)
from benchmarks.table import RATE, text
from explorer import Config
from explorer_race.race import Contender
from explorer_race.recipe import Recipe
from explorer_race.runner import Runner

PAGE = Path(__file__).parents[1] / "docs" / "training.md"


CONFIG = text(0).task.fit(
    Config(
        n_layers=2,
        d_model=8,
        n_heads=2,
        n_ctx=32,
        batch_size=8,
        parametrization="mup",  # its rates differ by matrix
        activation="gelu",  # a kink, such as ReLU's, is not in the Hessian
    )
)


@pytest.fixture(scope="module")
def start() -> Start:
    return Start(CONFIG, text(0))


def test_the_largest_eigenvalue_of_a_quadratic_is_found() -> None:
    rng = np.random.default_rng(0)
    rotation, _ = np.linalg.qr(rng.normal(size=(KRYLOV, KRYLOV)))
    spectrum = np.linspace(-9, 5, KRYLOV)
    matrix = torch.from_numpy(rotation @ np.diag(spectrum) @ rotation.T).float()
    shapes = [torch.zeros(2, 3), torch.zeros(KRYLOV - 6)]

    def product(vector: list[torch.Tensor]) -> list[torch.Tensor]:
        flat = matrix @ torch.cat([part.flatten() for part in vector])
        return [flat[:6].view(2, 3), flat[6:]]

    assert largest_eigenvalue(product, shapes) == pytest.approx(5, rel=1e-4)


def test_the_loss_along_a_step_is_what_the_derivatives_say(start: Start) -> None:
    step = start.adam_step()
    slope, curvature = dot(start.gradient, step), dot(step, start.hessian_times(step))
    forward, back = start.losses_along(step, (rate := 1e-4, -rate))
    assert forward - back == pytest.approx(2 * rate * slope, rel=2e-2)
    second = (forward + back - 2 * start.first_loss) / rate**2
    assert second == pytest.approx(curvature, rel=5e-2)
    assert start.losses_along(step, (0.0,)) == [pytest.approx(start.first_loss, rel=1e-6)]


def test_the_step_is_the_one_that_the_race_makes() -> None:
    rate = 2.0**-7
    start, recipe = Start(CONFIG, text(0)), Recipe(learning_rate=rate)
    runner = Runner(Contender("", CONFIG, recipe), text(0), STEPS, torch.device("cpu"))
    before = [parameter.detach().clone() for parameter in runner.learning]
    runner.advance(STEPS)
    for old, new, change in zip(before, runner.learning, start.adam_step(), strict=True):
        assert torch.allclose(new - old, rate * change, atol=1e-2 * rate)


def test_a_crossing_is_interpolated_over_the_logarithm() -> None:
    rates = (1.0, 4.0, 16.0)
    assert crossing(rates, (-1, 1, 3)) == pytest.approx(2)
    assert crossing(rates, (-3, -1, 3)) == pytest.approx(4 * 4**0.25)
    assert crossing(rates, (-3, -1, math.inf)) == crossing(rates, (-3, -1, math.nan)) == 8
    assert crossing(rates, (-1, 1, -1)) == pytest.approx(2)  # the first one
    assert crossing(rates, (-3, -2, -1)) == 16
    assert crossing(rates, (1, -2, -1)) == 0.5


def test_limits_are_read_from_the_losses_by_rate() -> None:
    last = [(math.log2(rate) + 6) ** 2 * NEAR / 4 for rate in RATES]  # the best rate is 2^-6
    found = limits([Losses(0.625, loss + 1, loss) for loss in last])
    assert math.log2(found["falls"]) == pytest.approx(-1)
    assert math.log2(found["near_best"]) == pytest.approx(-4)
    assert found["five_steps"] == RATES[0] / 2
    ended = [
        Losses(1, 1, math.inf if rate > 0.1 else loss)
        for rate, loss in zip(RATES, last, strict=True)
    ]
    assert math.log2(limits(ended)["falls"]) == pytest.approx(-3.5)


def test_the_table_is_whole() -> None:
    rows = read()
    assert {tuple(one) for one in rows} == {COLUMNS}
    there = {Case(one["design"], *(int(one[name]) for name in KEY[1:])) for one in rows}
    assert there == set(cases())
    assert len(rows) == len(there)


def test_a_row_made_again_is_that_of_the_table() -> None:
    """The candidates to 2 %; the limits to 10 %, as large rates magnify rounding."""
    case = Case("rezero", SHALLOW, 32, 1, 0)
    again = row(case)
    (known,) = (one for one in read() if tuple(one[name] for name in KEY) == tuple(map(str, case)))
    for name in (*LIMITS, *CANDIDATES):
        rel = 0.1 if name in (*LIMITS, "five_steps") else 0.02
        assert float(again[name]) == pytest.approx(float(known[name]), rel=rel), name


def test_the_page_shows_the_correlations() -> None:
    assert "\n".join(report()) in PAGE.read_text(encoding="utf-8")
    assert set(LIMITS) | set(CANDIDATES) < set(COLUMNS)


def test_the_first_step_of_nearly_every_design_is_small_enough() -> None:
    small = [one for one in read() if float(one["critical"]) < RATE]
    assert [(one["design"], one["n_layers"]) for one in small] == [("plain_stack", str(DEEP))]
