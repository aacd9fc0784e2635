"""A cache of forward steps: stacks that differ in depth alone, as along an axis of a map, share their first layers.

A step follows from those before it and from the config of its sublayer. So a stack takes from the cache the steps of
its first layers, computed for another stack with the same first sublayers, and only the deeper ones are computed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from explorer.theory.gains import Gains
from explorer.theory.tables import Softmax
from explorer.theory.tokens import Tokens

if TYPE_CHECKING:
    from explorer.theory.forward import Step

CAPACITY = 8192
"""Number of steps that the cache holds, about 3 kB each: forty stacks of a hundred layers."""
BY_SUBLAYER = ("skip", "branch", "placements")
"""Fields of `Gains` with a value by sublayer: stacks may agree in the first sublayers and differ in later ones."""
_WHOLE = tuple(index for index, name in enumerate(Gains._fields) if name not in BY_SUBLAYER)

_cache: OrderedDict[tuple[Any, ...], tuple[Gains, list[Step]]] = OrderedDict()
_size = 0
_lock = threading.Lock()


def cached_steps(gains: Gains, softmax: Softmax, tokens: Tokens, n_layers: int) -> list[Step]:
    """The first steps of a stack, as many whole layers as the cache has; none if each depends on the whole stack."""
    if _depends_on_depth(gains):
        return []
    with _lock:
        cached, steps = _cache.get(_key(gains, softmax, tokens), (gains, []))
    count = 2 * min(len(steps) // 2, n_layers)
    return steps[:count] if _same_sublayers(cached, gains, count) else []


def store_steps(gains: Gains, softmax: Softmax, tokens: Tokens, steps: list[Step]) -> None:
    """Caches a stack's steps, unless those of a deeper one that begins with them are there; evicts the least recent."""
    global _size
    if _depends_on_depth(gains):
        return
    key = _key(gains, softmax, tokens)
    with _lock:
        cached, held = _cache.get(key, (gains, []))
        if len(steps) > len(held) or not _same_sublayers(cached, gains, len(steps)):
            _cache[key] = gains, list(steps)
            _size += len(steps) - len(held)
        _cache.move_to_end(key)
        while _size > CAPACITY:
            _size -= len(_cache.popitem(last=False)[1][1])


def _same_sublayers(gains: Gains, other: Gains, count: int) -> bool:
    """Whether two stacks agree in the first `count` sublayers."""
    return all(getattr(gains, name)[:count] == getattr(other, name)[:count] for name in BY_SUBLAYER)


def _depends_on_depth(gains: Gains) -> bool:
    """Whether steps depend on the whole stack: on a first pass through it, or on copies of their weights."""
    return gains.profiled or gains.copies


def _key(gains: Gains, softmax: Softmax, tokens: Tokens) -> tuple[Any, ...]:
    first = (tuple(getattr(gains, name)[:2]) for name in BY_SUBLAYER)
    return *(gains[index] for index in _WHOLE), *first, softmax, tokens
