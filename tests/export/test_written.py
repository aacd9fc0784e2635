"""A function of tensors that is written down computes the same when it is read again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from explorer.export.written import Written, text_of


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda F, z: F.gelu(z, approximate="tanh"), 'F.gelu(x, approximate="tanh")'),
        (lambda F, z: F.relu(z).square() * 2, "F.relu(x).square() * 2"),
        (lambda F, z: -2.0 * (1 - z) / z**2, "((-2.0) * (1 - x)) / (x ** 2)"),
        (lambda F, z: (-z) ** 2 - (z - 3), "((-x) ** 2) - (x - 3)"),
        (lambda F, z: 0.5 ** (z + 1), "0.5 ** (x + 1)"),
        (lambda F, z: z.where(z > 0, 0.1 * z), "x.where(x > 0, 0.1 * x)"),
        (lambda F, z: z.clamp(min=-1, max=None), "x.clamp(min=-1, max=None)"),
    ],
)
def test_the_text_is_the_function(function: Callable[[Any, Any], Any], text: str) -> None:
    x = torch.linspace(-3.1, 3.1, 9, dtype=torch.float64)
    written = text_of(function(Written("F"), Written("x")))
    assert written == text
    torch.testing.assert_close(eval(written, {"F": F, "x": x}), function(F, x), equal_nan=True)  # noqa: S307


@pytest.mark.parametrize(
    "function",
    [
        lambda z: z if z > 0 else -z,
        lambda z: z * (z == 0),
        lambda z: torch.sin(z),
        lambda z: z.relu(torch.ones(1)),
        lambda z: z + z.shape[0],
        lambda z: z + z.relu,
    ],
)
def test_no_other_function_is_written(function: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError):
        text_of(function(Written("x")))
