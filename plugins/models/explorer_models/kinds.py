"""Kinds of layers: a layer is compared with those that are to be built as it is, and with no other.

Published stacks mix layers on purpose: a dense first layer before layers of experts, attention in
every eighth layer of a state space model, a window in all layers but every sixth, no positions in
every fourth. What a layer learns says most: layers whose matrices differ in number or in shape are
of different kinds. Of layers with the same matrices a window makes a kind, and so does what
positions add, where the layers without them come at one distance."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from explorer_models.facts import Facts
from explorer_models.texts import text

LONGEST = 8
"""Layers of the longest period in use, Jamba's. A longer one is not inferred from a single
layer."""


def kinds(layers: Sequence[Facts]) -> tuple[str, ...]:
    """Name of each layer's kind, in words: what it learns, whether a mask hides more keys there,
    and whether it has no positions by design. "" for a layer whose design was not read."""
    windows = _windows(layers)
    bare = _without_positions(layers, windows)
    keys = [
        (facts.get(("layer", "matrices")), window, without)
        for facts, window, without in zip(layers, windows, bare, strict=True)
    ]
    names: dict[Any, str] = {}
    for key, facts in zip(keys, layers, strict=True):
        if key in names or ("layer", "matrices") not in facts:
            continue
        words = _words(facts, *key[1:])
        same = sum(name == words or name.startswith(f"{words} (") for name in names.values())
        names[key] = text("kind", "number", words=words, number=same + 1) if same else words
    return tuple(names.get(key, "") for key in keys)


def of_kind(kinds: Sequence[str], name: str) -> list[int]:
    """Layers, from 0, of a kind."""
    return [index for index, kind in enumerate(kinds) if kind == name]


def _words(facts: Facts, window: bool, bare: bool) -> str:
    """A kind in words: attention or another mixer, then what only this kind has.

    Args:
        window: whether a mask hides more keys than in other layers.
        bare: whether there are no positions by design.
    """
    keys = ["attends" if facts.get(("layer", "attends")) else "other"]
    experts = facts.get(("layer", "experts"))
    for key, present in (("window", window), ("bare", bare), ("experts", experts)):
        if present:
            keys.append(key)
    return ", ".join(text("kind", key) for key in keys)


def _windows(layers: Sequence[Facts]) -> list[bool]:
    """Whether a layer hides keys that other layers with the same direction show, `[layer]`.

    A window among causal layers hides keys of the past. Among layers that hide nothing any other
    mask is one. No design mixes layers that see later tokens with layers that do not."""
    masks = [facts.get(("attn_scores", "mask")) for facts in layers]
    causal = masks.count("causal")
    if masks.count("none") > causal + masks.count("window"):
        return [mask == "another" for mask in masks]
    return [mask == "window" and causal > 0 for mask in masks]


def _without_positions(layers: Sequence[Facts], windows: Sequence[bool]) -> list[bool]:
    """Whether a layer has no positions by design, `[layer]`: among layers with the same matrices
    and window, those without positions, or those with them, come at one distance."""
    groups: defaultdict[Any, list[int]] = defaultdict(list)
    for index, (facts, window) in enumerate(zip(layers, windows, strict=True)):
        if ("attn_scores", "position") in facts:
            groups[facts.get(("layer", "matrices")), window].append(index)
    without = [False] * len(layers)
    for members in groups.values():
        bare = [index for index in members if layers[index]["attn_scores", "position"] == "none"]
        few = min(bare, [index for index in members if index not in bare], key=len)
        if few and periodic(few, len(layers)):
            for index in bare:
                without[index] = True
    return without


def periodic(at: Sequence[int], count: int) -> bool:
    """Whether some layers come at one distance, from one end of a stack to the other.

    One alone does so where it may be the last of a group and no second group ends; two must be the
    first or the last of their groups.

    Args:
        at: the layers, from 0.
        count: of all layers.
    """
    if len(at) == 1:
        period = at[0] + 1
        return 1 < period <= LONGEST and 2 * period > count
    gaps = Counter(after - before for before, after in pairwise(at))
    if len(gaps) != 1:
        return False
    period = next(iter(gaps))
    whole = at[0] < period and at[-1] + period >= count
    return period > 1 and whole and (len(at) > 2 or at[0] in (0, period - 1))
