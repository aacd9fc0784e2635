"""Layers that are built otherwise than their siblings: what only the structure shows for
certain."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from explorer.diagnosis.structure import SIBLINGS
from explorer.profile import BRANCHES
from explorer.schemes.placement import PLACEMENTS, SITES
from explorer_models.facts import Facts
from explorer_models.kinds import kinds, of_kind
from explorer_models.matched import norms_of, placement_of
from explorer_models.texts import TEXTS, text

Difference = tuple[int, str, str]
"""Layer from 1, site, sentence."""
FEW = 0.25
"""Share of the layers up to which a difference is a fault; with more layers the design
alternates."""
APART = 0.02
"""Numbers of one design are at most that far apart, as a share."""

LOW = 2.0
"""Effective rank of 64 rows and columns below which a matrix is nearly of rank 1; drawn
independently it has 32."""

FACTS = (
    *(
        (site, name)
        for name in ("skip", "branch", "epsilon", "norm", "learned")
        for site in BRANCHES
    ),
    ("mlp_out", "mlp"),
    ("mlp_out", "activation"),
    *(
        ("attn_scores", name)
        for name in (
            "divisor",
            "cap",
            "qk_normed",
            "softmax",
            "mask",
            "position",
            "sink",
            "n_heads",
        )
    ),
    ("layer", "dropout"),
    ("attn_scores", "tied"),
    ("layer", "attends"),
    ("attn_out", "gates"),
)
"""Site and name of what is compared beside norms, branches and matrices."""


def differences(layers: Sequence[Facts]) -> tuple[Difference, ...]:
    """One sentence a layer, site and fact, in the order of the layers; none where a design
    alternates.

    A layer is compared with the layers of its kind, of which there must be `SIBLINGS`. A sentence
    goes on from the layer's name: "has no norm before attention, where its siblings have one"."""
    rows = [*_tied(layers)]
    names = kinds(layers)
    for name in dict.fromkeys(names):
        members = of_kind(names, name)
        # a layer's place in the whole stack says what a placement does there: the layers of other
        # kinds are left blank
        siblings = [facts if index in members else {} for index, facts in enumerate(layers)]
        rows += _ranks(siblings, members)
        if len(members) >= SIBLINGS:
            for find in (_branches, _norms, _others, _shared):
                rows += find(siblings, members)
    return tuple(sorted(rows, key=lambda difference: difference[0]))


def _shared(layers: Sequence[Facts], members: Sequence[int]) -> Iterator[Difference]:
    """Layers that use another one's matrices, where most have their own: sharing by all is a
    design."""
    first: dict[Any, int] = {}
    shared: dict[tuple[int, int], list[str]] = {}
    for index, facts in enumerate(layers):
        for (name, fact), value in facts.items():
            if fact == "identity" and (owner := first.setdefault((name, value), index)) != index:
                shared.setdefault((index, owner), []).append(name)
    if _rare(sorted({index for index, _ in shared}), members):
        for (index, owner), names in shared.items():
            words = text("matrices", "shared", matrices=", ".join(names), owner=owner + 1)
            yield index + 1, _site(names[0]), words


def _ranks(layers: Sequence[Facts], members: Sequence[int]) -> Iterator[Difference]:
    """Matrices that are nearly of rank 1, or of much lower a rank than their siblings; of many, the
    first."""
    for name in sorted({name for facts in layers for name, fact in facts if fact == "rank"}):
        ranks = np.array([facts.get((name, "rank"), np.nan) for facts in layers])
        usual = float(np.nanmedian(ranks)) if np.isfinite(ranks).any() else np.nan
        odd = np.flatnonzero((ranks < LOW) | (ranks < usual / 4)).tolist()
        many = len(odd) > max(1, FEW * len(members))
        for index in odd[:1] if many else odd:
            words = text(
                "matrices",
                "rank",
                matrix=name,
                rank=ranks[index],
                usual=usual,
                more=len(odd) - 1 if many else 0,
            )
            yield index + 1, _site(name), words


def _tied(layers: Sequence[Facts]) -> Iterator[Difference]:
    """Queries and keys of one matrix in every layer."""
    if all(facts.get(("attn_scores", "tied")) for facts in layers):
        yield 1, "attn_scores", text("matrices", "tied")


def _site(matrix: str) -> str:
    """Where the branch of a matrix ends."""
    return "mlp_out" if matrix in ("W_gate", "W_in", "W_out") else "attn_out"


def _branches(layers: Sequence[Facts], members: Sequence[int]) -> Iterator[Difference]:
    """Branches that are missing."""
    held = [facts.get(("layer", "branches")) for facts in layers]
    known = Counter(value for value in held if value is not None)
    if not known:
        return
    usual = known.most_common(1)[0][0]
    odd = [index for index, value in enumerate(held) if value is not None and value != usual]
    if not _rare(odd, members):
        return
    for index in odd:
        for site in sorted(set(usual) - set(held[index] or ())):
            yield _difference(index, site, "branches", False, True)


def _norms(layers: Sequence[Facts], members: Sequence[int]) -> Iterator[Difference]:
    """Norms where the design that most layers follow has none, or none where it has."""
    _, wrong = placement_of(layers)
    odd = [
        (layer, site, name, name in place.norms)
        for layer, site, place in wrong
        for name in SITES
        if name in norms_of(layers[layer - 1], site) ^ place.norms
    ]
    # what a norm has just put out needs none
    odd = [
        (layer, site, name, missing)
        for layer, site, name, missing in odd
        if not (missing and name == "input" and layers[layer - 1].get((site, "normed before")))
    ]
    if _rare(sorted({layer - 1 for layer, *_ in odd}), members):
        for layer, site, name, missing in odd:
            yield layer, site, norm_difference(site, name, missing=missing)


def norm_difference(site: str, name: str, *, missing: bool) -> str:
    """The sentence on a norm of a branch that its siblings have, or that they have not."""
    return text(
        "norms", "missing" if missing else "extra", place=SITES[name][1 + BRANCHES.index(site)]
    )


def _others(layers: Sequence[Facts], members: Sequence[int]) -> Iterator[Difference]:
    """Every other fact."""
    place = PLACEMENTS[placement_of(layers)[0]].sublayer
    for site, name in FACTS:
        values = [facts.get((site, name)) for facts in layers]
        if name in ("skip", "branch"):  # a placement may weigh its first layer otherwise
            made = [
                getattr(place(2 * index + BRANCHES.index(site), len(layers)), name)
                for index in range(len(layers))
            ]
            values = [
                None if value is None else value / by
                for value, by in zip(values, made, strict=True)
            ]
        values = [
            None if isinstance(value, float) and math.isnan(value) else value for value in values
        ]
        known = [_rounded(value) for value in values if value is not None]
        if len(known) < len(members) * (1 - FEW):
            continue
        usual = Counter(known).most_common(1)[0][0]
        odd = [
            index
            for index, value in enumerate(values)
            if value is not None and not _same(value, usual)
        ]
        if _rare(odd, members):
            for index in odd:
                yield _difference(index, site, name, values[index], usual)


def _difference(index: int, site: str, name: str, value: Any, usual: Any) -> Difference:
    """The sentence on a fact of a layer, counted from 0; 0 and none have sentences of their own."""
    keys = (f"{name}_missing" if not value else "", f"{name}_extra" if not usual else "")
    key = next((key for key in keys if key in TEXTS[site]), name)
    return index + 1, site, text(site, key, value=value, usual=usual)


def _rounded(value: Any) -> Any:
    return float(f"{value:.3g}") if isinstance(value, float) else value


def _same(value: Any, usual: Any) -> bool:
    if isinstance(value, float) and isinstance(usual, float):
        return abs(value - usual) <= APART * max(abs(value), abs(usual))
    return bool(value == usual)


def _rare(odd: Sequence[int], members: Sequence[int]) -> bool:
    """Whether the odd layers are few of their kind, and not a design that repeats itself every so
    many layers."""
    if not odd or len(odd) > max(1, FEW * len(members)):
        return False
    places = [members.index(layer) for layer in odd]
    distances = {after - before for before, after in pairwise(places)}  # empty for a single layer
    repeats = len(distances) == 1 and distances != {1}  # layers side by side are no pattern
    return not repeats
