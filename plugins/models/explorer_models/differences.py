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
from explorer.schemes.placement import PLACEMENTS, SITES
from explorer.sites import BRANCHES
from explorer_models.facts import Facts
from explorer_models.kinds import kinds, of_kind
from explorer_models.matched import norms_of, placement_of
from explorer_models.texts import TEXTS, text

Difference = tuple[int, str, str]
"""Layer from 1, site, sentence."""
FEW = 0.25
"""Share of the layers up to which a difference is a fault; where more layers differ, the design
alternates."""
APART = 0.02
"""Relative difference up to which two numbers are of one design."""

LOW = 2.0
"""Effective rank of 64 rows and columns below which a matrix is nearly of rank 1; of independent
entries it is 32."""

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
"""Site and name of the facts that are compared, beside norms, branches and matrices."""


def differences(layers: Sequence[Facts]) -> tuple[Difference, ...]:
    """The layers that are built otherwise than the layers of their kind, one sentence a layer,
    site and fact, in the order of the layers; none where a design alternates.

    A kind must have `SIBLINGS` layers. A sentence goes on from the layer's name: "has no norm
    before attention, where its siblings have one"."""
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
    """Layers that use another layer's matrices, where most layers of the kind have their own."""
    first: dict[Any, int] = {}
    shared: dict[tuple[int, int], list[str]] = {}
    for index, facts in enumerate(layers):
        for (name, fact), value in facts.items():
            if fact == "identity" and (owner := first.setdefault((name, value), index)) != index:
                shared.setdefault((index, owner), []).append(name)
    if _rare(sorted({index for index, _ in shared}), members):
        for (index, owner), names in shared.items():
            sentence = text("matrices", "shared", matrices=", ".join(names), owner=owner + 1)
            yield index + 1, _site(names[0]), sentence


def _ranks(layers: Sequence[Facts], members: Sequence[int]) -> Iterator[Difference]:
    """Matrices of rank 1, nearly, or of a rank far below their siblings'. Where there are many, the
    first one alone is named."""
    for name in sorted({name for facts in layers for name, fact in facts if fact == "rank"}):
        ranks = np.array([facts.get((name, "rank"), np.nan) for facts in layers])
        usual = float(np.nanmedian(ranks)) if np.isfinite(ranks).any() else np.nan
        odd = np.flatnonzero((ranks < LOW) | (ranks < usual / 4)).tolist()
        many = len(odd) > max(1, FEW * len(members))
        more = len(odd) - 1 if many else 0
        for index in odd[:1] if many else odd:
            sentence = text(
                "matrices", "rank", matrix=name, rank=ranks[index], usual=usual, more=more
            )
            yield index + 1, _site(name), sentence


def _tied(layers: Sequence[Facts]) -> Iterator[Difference]:
    """A sentence where queries and keys have one matrix in every layer."""
    if all(facts.get(("attn_scores", "tied")) for facts in layers):
        yield 1, "attn_scores", text("matrices", "tied")


def _site(matrix: str) -> str:
    """The site at which the branch of a matrix ends."""
    return "mlp_out" if matrix in ("W_gate", "W_in", "W_out") else "attn_out"


def _branches(layers: Sequence[Facts], members: Sequence[int]) -> Iterator[Difference]:
    """Layers that lack a branch."""
    branches = [facts.get(("layer", "branches")) for facts in layers]
    usual = _usual(branches)
    odd = [index for index, sites in enumerate(branches) if sites is not None and sites != usual]
    if not _rare(odd, members):
        return
    for index in odd:
        for site in sorted(set(usual) - set(branches[index] or ())):
            yield _difference(index, site, "branches", False, True)


def _usual(values: Sequence[Any]) -> Any:
    """The most common value but None; None without values."""
    counts = Counter(value for value in values if value is not None)
    return counts.most_common(1)[0][0] if counts else None


def _norms(layers: Sequence[Facts], members: Sequence[int]) -> Iterator[Difference]:
    """Layers that have other norms than the placement that most layers follow."""
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
    """The sentence on a norm that a branch lacks, or has beyond its siblings'.

    Args:
        site: of the branch.
        name: of the norm, in `SITES`.
        missing: whether the branch lacks it.
    """
    return text(
        "norms", "missing" if missing else "extra", place=SITES[name][1 + BRANCHES.index(site)]
    )


def _others(layers: Sequence[Facts], members: Sequence[int]) -> Iterator[Difference]:
    """Layers that differ in a fact of `FACTS`."""
    sublayer = PLACEMENTS[placement_of(layers)[0]].sublayer
    for site, name in FACTS:
        values = [facts.get((site, name)) for facts in layers]
        for index, value in enumerate(values):
            if value is None:
                continue
            if name in ("skip", "branch"):  # a placement may weigh its first layer otherwise
                designed = sublayer(2 * index + BRANCHES.index(site), len(layers))
                value /= getattr(designed, name)
            is_nan = isinstance(value, float) and math.isnan(value)
            values[index] = None if is_nan else value
        if sum(value is not None for value in values) < len(members) * (1 - FEW):
            continue
        usual = _usual([_rounded(value) for value in values])
        odd = [
            index
            for index, value in enumerate(values)
            if value is not None and not same(value, usual)
        ]
        if _rare(odd, members):
            for index in odd:
                yield _difference(index, site, name, values[index], usual)


def _difference(index: int, site: str, name: str, value: Any, usual: Any) -> Difference:
    """A difference: the layer from 1, the site, and the sentence. A fact that is 0 or absent has
    its own sentence.

    Args:
        index: of the layer, from 0.
        value: of the fact in the layer.
        usual: the value in its siblings.
    """
    keys = (f"{name}_missing" if not value else "", f"{name}_extra" if not usual else "")
    key = next((key for key in keys if key in TEXTS[site]), name)
    return index + 1, site, text(site, key, value=value, usual=usual)


def _rounded(value: Any) -> Any:
    """A number to three digits; any other fact as it is."""
    return float(f"{value:.3g}") if isinstance(value, float) else value


def same(value: Any, usual: Any) -> bool:
    """Whether two facts are equal; numbers may differ by `APART`."""
    if isinstance(value, float) and isinstance(usual, float):
        return abs(value - usual) <= APART * max(abs(value), abs(usual))
    return bool(value == usual)


def _rare(odd: Sequence[int], members: Sequence[int]) -> bool:
    """Whether layers that differ are few, and do not repeat at one distance, as a design would.

    Args:
        odd: layers that differ, from 0.
        members: all layers of the kind.
    """
    if not odd or len(odd) > max(1, FEW * len(members)):
        return False
    places = [members.index(layer) for layer in odd]
    distances = {after - before for before, after in pairwise(places)}  # empty for a single layer
    repeats = len(distances) == 1 and distances != {1}  # layers side by side are no pattern
    return not repeats
