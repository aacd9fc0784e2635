"""Common random numbers: the same seed gives the same unit-variance noise, whatever else is chosen.

A curve must move because a setting moved, not because the dice were thrown again. Noise is
therefore drawn once a (seed, name, shape), kept while memory allows, and only rescaled or reshaped
to another distribution by a monotone map. A stack is drawn layer after layer, so that a deeper
model begins with the layers of the shallower one."""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from explorer.memory import environment
from explorer.schemes.distribution import DISTRIBUTIONS

Check = Callable[[], None]
"""Called now and then; what it raises ends the work."""
Key = tuple[int, str, tuple[int, ...], str]
"""Seed, name, shape of a layer, and distribution."""

KEEP_MEGABYTES = 512
"""Megabytes that the store may hold; EXPLORER_NOISE_MB changes it."""
SPARE = 192e6
"""Bytes up to which it keeps noise that the last measurement did not use: a slider may come
back."""

_store: OrderedDict[Key, Tensor] = OrderedDict()
"""Noise `[layer, ...]`, the one that was used last at the end."""
_used: dict[Key, int] = {}
"""Layers of each noise that were requested since the store was last cleaned."""
_keeping = 0
"""Blocks of `keeping` that are running."""
_lock = threading.Lock()


def stack(
    seed: int,
    name: str,
    size: int,
    shape: tuple[int, ...],
    distribution: str = "normal",
    check: Check = lambda: None,
) -> Tensor:
    """Unit-variance noise `[size, *shape]`, float32, on the CPU; not to be written to.

    Args:
        seed: of the draw.
        name: of the draws; draws of different names are independent.
        size: number of layers (or sequences); a longer stack begins with the shorter one.
        shape: of one layer.
        distribution: normal, uniform or truncated_normal.
        check: called before each layer is drawn; what it raises ends the drawing.
    """
    return _stack(seed, name, size, shape, distribution, check)[0]


def several(seed: int, seeds: int, name: str, size: int, shape: tuple[int, ...]) -> Tensor:
    """The stack of a seed; of several that follow each other, `[seed, size, *shape]`."""
    if seeds == 1:
        return stack(seed, name, size, shape)
    return torch.stack([stack(number, name, size, shape) for number in range(seed, seed + seeds)])


def scaled(
    factor: float,
    seed: int,
    name: str,
    size: int,
    shape: tuple[int, ...],
    distribution: str = "normal",
    check: Check = lambda: None,
) -> Tensor:
    """A copy of the noise times a factor; noise too large for the store is scaled in place. See
    `stack`."""
    noise, stored = _stack(seed, name, size, shape, distribution, check)
    return noise * factor if stored else noise.mul_(factor)


def _stack(
    seed: int, name: str, size: int, shape: tuple[int, ...], distribution: str, check: Check
) -> tuple[Tensor, bool]:
    """The noise `[size, *shape]`, and whether the store holds it, so that it must not be written
    to."""
    key = (seed, name, shape, distribution)
    with _lock:
        _used[key] = max(size, _used.get(key, 0))
        stored = _store.get(key)
        if stored is not None and len(stored) >= size:
            _store.move_to_end(key)
            return stored[:size], True
    state = np.random.SeedSequence([seed, zlib.crc32(name.encode())]).generate_state(1)
    generator = torch.Generator().manual_seed(int(state[0]))
    noise = torch.empty(size, *shape)
    for layer in noise:
        check()
        DISTRIBUTIONS[distribution].transform(layer.normal_(generator=generator))
    return noise, _keep(key, noise)


def _keep(key: Key, noise: Tensor) -> bool:
    """Adds noise to the store and forgets the least recently used beyond the limit; false if it is
    too large for the store by itself."""
    limit = environment("EXPLORER_NOISE_MB", KEEP_MEGABYTES) * 1e6
    if noise.nbytes > limit:
        return False
    with _lock:
        _store[key] = noise
        _store.move_to_end(key)
        while _store and held() > limit:
            _store.popitem(last=False)
    return True


def held() -> int:
    """Bytes of the noise that is stored."""
    return sum(stored.nbytes for stored in _store.values())


@contextmanager
def keeping() -> Iterator[None]:
    """A block within which `settle` drops nothing: a map comes back to the sizes of its earlier
    cells. The limit of the store holds."""
    global _keeping
    with _lock:
        _keeping += 1
    try:
        yield
    finally:
        with _lock:
            _keeping -= 1


def settle() -> bool:
    """Drops noise not requested since the last call, oldest first, while the store holds more than
    `SPARE` bytes.

    Returns:
        Whether anything was dropped.
    """
    with _lock:
        if _keeping:
            return False
        before = held()
        for key, stored in list(_store.items()):
            if held() <= SPARE:
                break
            if key not in _used:
                del _store[key]
            elif _used[key] < len(stored):
                # deeper layers than were used; a slice alone would keep all of the memory
                _store[key] = stored[: _used[key]].clone()
        _used.clear()
        return held() < before
