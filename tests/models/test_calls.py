"""Attention is found whatever call of torch's it is written with."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from small_models import adam
from torch import Tensor, nn

import explorer as ex

CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "method": lambda z: z.softmax(-1),
    "function": lambda z: torch.softmax(z, -1),
    "module": nn.Softmax(-1),
    "functional": lambda z: nn.functional.softmax(z, dim=-1),
    "in float64": lambda z: z.softmax(-1, torch.float64),
    "special": lambda z: torch.special.softmax(z, -1),
    "mapped": torch.vmap(lambda z: z.softmax(-1)),
    "operator": lambda z: torch.ops.aten._softmax.default(z, -1, False),
}


class Block(nn.Module):
    """Two heads of two coordinates, whose logits are all 0, so that each query sees every key
    alike."""

    def __init__(self, softmax: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.value, self.softmax = nn.Linear(4, 4), softmax

    def forward(self, x: Tensor) -> Tensor:
        heads = self.value(x).unflatten(-1, (2, 2)).transpose(1, 2)
        weight = self.softmax(0 * heads @ heads.mT).to(x.dtype)
        return x + (weight @ heads).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("softmax", CALLS.values(), ids=CALLS)
def test_attention_is_read_from_any_call(softmax: Callable[[Tensor], Tensor]) -> None:
    model = nn.Sequential(*(Block(softmax) for _ in range(2)))
    watch = ex.watch(model, blocks=["0", "1"])
    optimizer = adam(model)
    model(torch.ones(3, 5, 4)).sum().backward()
    optimizer.step()
    frame = watch.frame().query("statistic == 'attention_entropy'")
    assert len(frame) == 4
    np.testing.assert_allclose(frame["value"], math.log(5), rtol=1e-6)
