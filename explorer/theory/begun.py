"""Forward recursions that began alike: stacks that differ in depth alone, as along an axis of a map, share their steps.

A step follows from those before it and from what a config says of its sublayer. So a stack begins with the steps of any
other that is alike up to there, and only what is deeper has to be followed.
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

KEPT = 8192
"""Steps that are kept, about 3 kB each: those of forty stacks of a hundred layers."""
BY_SUBLAYER = ("skip", "branch", "placements")
"""What `Gains` has by sublayer: stacks that begin alike may end otherwise."""
_WHOLE = tuple(index for index, name in enumerate(Gains._fields) if name not in BY_SUBLAYER)

_held: OrderedDict[tuple[Any, ...], tuple[Gains, list[Step]]] = OrderedDict()
_count = 0
_lock = threading.Lock()


def begun(gains: Gains, softmax: Softmax, tokens: Tokens, n_layers: int) -> list[Step]:
    """The first steps of a stack, as many whole layers as are known; none where steps depend on what comes after."""
    if _alone(gains):
        return []
    with _lock:
        known, steps = _held.get(_key(gains, softmax, tokens), (gains, []))
    count = 2 * min(len(steps) // 2, n_layers)
    return steps[:count] if _alike(known, gains, count) else []


def keep(gains: Gains, softmax: Softmax, tokens: Tokens, steps: list[Step]) -> None:
    """Remembers a stack's steps, if no deeper one that begins alike is known; those used least recently are let go."""
    global _count
    if _alone(gains):
        return
    key = _key(gains, softmax, tokens)
    with _lock:
        known, held = _held.get(key, (gains, []))
        if len(steps) > len(held) or not _alike(known, gains, len(steps)):
            _held[key] = gains, list(steps)
            _count += len(steps) - len(held)
        _held.move_to_end(key)
        while _count > KEPT:
            _count -= len(_held.popitem(last=False)[1][1])


def _alike(one: Gains, other: Gains, count: int) -> bool:
    """Whether the first sublayers are."""
    return all(getattr(one, name)[:count] == getattr(other, name)[:count] for name in BY_SUBLAYER)


def _alone(gains: Gains) -> bool:
    """Whether steps depend on the whole stack: on a first pass through it, or on copies of their weights."""
    return gains.profiled or gains.copies


def _key(gains: Gains, softmax: Softmax, tokens: Tokens) -> tuple[Any, ...]:
    first = (tuple(getattr(gains, name)[:2]) for name in BY_SUBLAYER)
    return *(gains[index] for index in _WHOLE), *first, softmax, tokens
