"""What is stopped lets go of its tensors at once: a move of a slider stops the measurement of the
one before."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest
import torch

from explorer import Config, Stopped, measure
from explorer.stopping import Stop

SMALL = Config(n_layers=8, d_model=32, n_heads=4, n_ctx=8, batch_size=2, n_seeds=3)
WORK: dict[str, Callable[[Stop], object]] = {
    "measured": lambda stop: measure(SMALL, stop=stop),
    "seed by seed": lambda stop: measure(SMALL, stop=stop, on_seed=lambda profile: None),
    "wide": lambda stop: measure(SMALL.replace(d_model=128), stop=stop),
}


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def tensors() -> set[int]:
    return {id(one) for one in gc.get_objects() if issubclass(type(one), torch.Tensor)}


@pytest.mark.parametrize("name", WORK)
@pytest.mark.usefixtures("no_collector")
def test_what_is_stopped_leaves_no_tensor_to_the_garbage_collector(name: str) -> None:
    WORK[name](lambda: False)  # what is kept between two of them is there
    before = tensors()
    for at in (1, 20):
        asked = iter(range(1000))
        with pytest.raises(Stopped):
            WORK[name](lambda at=at, asked=asked: next(asked) >= at)
        assert not tensors() - before, at
