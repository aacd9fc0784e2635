"""Rules on the parts of a layer: built otherwise than its siblings, or without a residual, a norm
or a branch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from explorer.diagnosis.faults import explained, layer_is_zero
from explorer.diagnosis.finding import LONGEST, Finding, finding, text
from explorer.diagnosis.reading import (
    FEW,
    by_layer,
    layer_names,
    line,
    numbered,
    of_kinds,
    path,
    runs,
    stream_before,
    unlike,
    worst,
)
from explorer.diagnosis.remedies import fix, listed
from explorer.foreign import STUCK
from explorer.profile import Profile
from explorer.sites import BRANCHES, MATRICES, SITE_WORDS, TAPS

FEEDS = {site.name: site.matrices for site in TAPS.values() if site.matrices}
"""A site, and the matrices that set its size."""
SAME = 1e-5
"""Relative difference up to which two second moments are of the same tensor: float32 over a few
million numbers."""
PARTS = {"attn_out": (*FEEDS["attn_scores"], *FEEDS["attn_out"]), "mlp_out": FEEDS["mlp_out"]}
"""A branch, and all matrices of it."""
SIBLINGS = 3
"""Layers of a kind from which on the code of one is compared with that of the others."""
LEVEL = 1e-3
"""Relative spread up to which a second moment is held by a norm, whose ε and type move it a
little."""
SEEN = 0.05
"""Second moment of the stream over a branch's from which on their sum cannot have the branch's by
chance: of 2,048 numbers, twice the mean of the product scatters by 0.02 of the branch's."""
APART = 0.02
"""Relative difference from which on the second moment of one layer is not held by the norm of the
others, whose ε moves that of small sums by some tenths of a per cent."""


def odd_design(profile: Profile) -> Finding | None:
    """The first layer whose design is unlike that of its siblings, by its code; the evidence names
    the others."""
    if not profile.differences:
        return None
    layer, site, difference = profile.differences[0]
    values = {
        "layer": numbered(profile, layer),
        "site": SITE_WORDS.get(site, site),
        "block": path(profile, layer),
    }
    siblings = ""
    if len(text("odd_design", "meaning", difference=difference, **values).split()) > LONGEST:
        difference, _, siblings = difference.partition(text("odd_design", "before_siblings"))
    others = text("phrase", "semicolon").join(
        text(
            "odd_design",
            "other",
            layer=numbered(profile, other),
            difference=words,
            site=SITE_WORDS.get(place, place),
        )
        for other, place, words in profile.differences[1:]
    )
    return finding(
        "warning",
        "odd_design",
        "meaning",
        siblings and "siblings",
        "evidence",
        others and "others",
        remedy=fix(profile, "like_siblings", **values),
        difference=difference,
        others=others,
        siblings=siblings[:1].upper() + siblings[1:],
        **values,
    )


def several_kinds(profile: Profile) -> Finding | None:
    """Kinds of layers that a design mixes on purpose; none of a profile whose layers are of one."""
    members = {
        name: depth.tolist()
        for name, depth in of_kinds(profile.kinds, len(profile.kinds)).items()
        if name
    }
    if len(members) < 2:
        return None
    words = text("phrase", "semicolon").join(
        text("several_kinds", "kind", name=name, layers=_listed(layers))
        for name, layers in members.items()
    )
    alone = any(len(layers) < SIBLINGS for layers in members.values())
    return finding(
        "good",
        "several_kinds",
        "meaning",
        "evidence",
        "alone" if alone else "",
        count=len(members),
        kinds=words,
        least=SIBLINGS,
    )


def _listed(layers: Sequence[int]) -> str:
    """Layers by their numbers, runs of them by their ends: "layers 1–3, 5"."""
    parts = [f"{first}–{last}" if last > first else f"{first}" for first, last in runs(layers)]
    return text(
        "phrase",
        "layers" if len(layers) > 1 else "layer",
        layers=text("phrase", "comma").join(parts),
        layer=parts[0],
    )


def dead_branch(profile: Profile) -> Finding | None:
    """A branch that adds exactly nothing in a few layers; where most do, they start so on
    purpose."""
    for site in BRANCHES:
        size = by_layer(profile, "second_moment", site)
        every = (np.flatnonzero(size == 0) + 1).tolist()
        dead = [
            layer
            for layer in every
            if layer not in explained(profile) and not layer_is_zero(profile, layer)
        ]
        if not dead or 2 * len(every) >= len(size):
            continue
        weights = {name: by_layer(profile, "weight_variance", name) for name in FEEDS[site]}
        at = np.array(dead) - 1
        zero = [
            name
            for name, values in weights.items()
            if len(values) == len(size) and not values[at].any()
        ]
        return finding(
            "warning",
            "dead_branch",
            "meaning",
            "evidence_matrices" if zero else "evidence",
            remedy=fix(profile, "not_zero" if zero else ""),
            layer=numbered(profile, dead[0]),
            layers=layer_names(profile, dead),
            site=SITE_WORDS[site],
            matrices=text("phrase", "comma").join(zero),
            size=np.median(size[size > 0]),
        )
    return None


def unmoved(profile: Profile) -> Finding | None:
    """Matrices whose gradient is exactly zero, though their branch adds to the stream: no optimizer
    moves them."""
    unmoved_by_layer = unmoved_layers(profile)
    if not unmoved_by_layer:
        return None
    layer, lost = min(unmoved_by_layer.items(), key=lambda item: (-len(item[1]), item[0]))
    others = layer_names(profile, [other for other in unmoved_by_layer if other != layer])
    word = "matrices" if len(lost) > 1 else "matrix"
    return finding(
        "bad",
        "unmoved",
        word,
        f"{word}_evidence",
        others and "others",
        remedy=fix(profile, "reached"),
        matrices=listed(lost),
        layer=numbered(profile, layer),
        layers=others,
    )


def unmoved_layers(profile: Profile) -> dict[int, list[str]]:
    """Layers, from 1, to the matrices that `unmoved` speaks of.

    None where all gradients are zero, where a factor of the branch is, which learns first, where
    the matrix itself has a gradient after the first step, and where nothing of the layer learns, of
    which `learning` knows the reason. None either where parts of the layer learn from the second
    step on and all others from the first."""
    stuck = profile.learning.of(*STUCK)
    left_out = {layer for part in stuck if not part.name for layer in part.layers}
    waiting = {layer for part in profile.learning.of("second", "later") for layer in part.layers}
    left_out |= waiting - {layer for part in stuck for layer in part.layers}
    every = {name: by_layer(profile, "parameter_gradient", name) for name in MATRICES}
    unmoved_by_layer: dict[int, list[str]] = {}
    for site, names in PARTS.items():
        held = [name for name in names if len(every[name])]
        factors = [size for name in held if len(size := by_layer(profile, "weight_variance", name))]
        for name in held:
            zero = (every[name] == 0) & _adds(profile, site, every[name] > 0)
            for size in factors:
                zero &= size != 0
            zero[[layer - 1 for layer in profile.waits.get(name, ())]] = False
            for layer in {*(np.flatnonzero(zero) + 1).tolist()} - left_out:
                unmoved_by_layer.setdefault(layer, []).append(name)
    return unmoved_by_layer if any((values > 0).any() for values in every.values()) else {}


def _adds(profile: Profile, site: str, moved: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Layers whose branch changes the stream; where that is not known, all, if some layers'
    gradients are not zero.

    A norm on the sum holds the second moment; the largest coordinate changes all the same.
    """
    size, changed = by_layer(profile, "second_moment", site), []
    for statistic in ("second_moment", "max_abs"):
        after = by_layer(profile, statistic, "resid_mid" if site == "attn_out" else "resid_post")
        if len(after) == len(moved):
            before = stream_before(profile, site, len(moved), statistic)
            changed.append(~(np.abs(after - before) <= SAME * after))
    adds = np.any(changed, axis=0) if changed else np.full(len(moved), moved.any())
    return np.asarray(adds & (size > 0) if len(size) == len(moved) else adds)


def no_residual(profile: Profile) -> Finding | None:
    """A layer after which the stream is the branch's output and nothing else, while other layers
    add."""
    for site, sum_ in zip(BRANCHES, ("resid_mid", "resid_post"), strict=True):
        branch, after = (
            by_layer(profile, "second_moment", site),
            by_layer(profile, "second_moment", sum_),
        )
        if not len(branch) or len(branch) != len(after):
            continue
        before = stream_before(profile, site, len(branch))
        bare = (np.abs(after - branch) <= SAME * after) & (before > SEEN * branch)
        if not bare.any() or bare.mean() > 1 / FEW:
            continue
        layer = int(np.argmax(bare)) + 1
        return finding(
            "warning",
            "no_residual",
            "certain",
            "certain_evidence",
            remedy=fix(profile, "residual"),
            layer=numbered(profile, layer),
            sum=SITE_WORDS[sum_],
            branch=SITE_WORDS[site],
            after=after[layer - 1],
            before=before[layer - 1],
        )
    return _blurred(profile)


def _blurred(profile: Profile) -> Finding | None:
    """A layer that removes more of the tokens' difference than its siblings: a norm may hide a
    missing residual."""
    rho = line(profile, "token_correlation")
    if not len(rho.depth) or rho.depth[0] != 0:
        return None
    kept = (1 - rho.values[1:]) / (1 - rho.values[:-1])
    series = {"resid_post": kept}
    if ("token_correlation", "resid_mid") in profile.values:
        series = {"resid_mid": kept[::2], "resid_post": kept[1::2]}
    odd_sites: dict[str, dict[int, float]] = {}
    for site, values in series.items():
        # the first layer reads tokens that nothing has mixed
        ratios = unlike({site: values[1:]}, kinds=profile.kinds[1:]).get(site, {})
        less = {layer + 1: ratio for layer, ratio in ratios.items() if ratio < 1 / FEW}
        if less:
            odd_sites[site] = less
    if not odd_sites:
        return None
    layer, odd = worst(odd_sites)
    site = min(odd, key=lambda name: odd[name])
    return finding(
        "warning",
        "no_residual",
        "likely",
        "likely_evidence",
        remedy=fix(profile, "residual"),
        layer=numbered(profile, layer),
        site=SITE_WORDS[site],
        kept=series[site][layer - 1],
        ratio=1 / odd[site],
    )


def no_norm_on_sum(profile: Profile) -> Finding | None:
    """A layer whose sum is not normalized while all others' are; the first may be so on purpose
    (Keel)."""
    for site in ("resid_mid", "resid_post"):
        q = by_layer(profile, "second_moment", site)
        if len(q) < FEW:
            continue
        usual = float(np.median(q))
        held = np.abs(q - usual) <= LEVEL * usual  # false of nan
        others = np.flatnonzero(~held)
        if len(others) != 1 or others[0] == 0:
            continue
        index = int(others[0])
        is_near = abs(q[index] - usual) <= APART * usual
        if not is_near:
            return finding(
                "warning",
                "no_norm_on_sum",
                "meaning",
                "evidence",
                remedy=fix(profile, "post_norm"),
                layer=numbered(profile, index + 1),
                site=SITE_WORDS[site],
                size=q[index],
                usual=usual,
            )
    return None
