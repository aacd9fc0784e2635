"""Rules on what is wrong in itself: weights that are zero, constant or not finite, gains, and the
first NaN.

A fault was read where it is, in a parameter or an operation, so that its remedy names it. It comes
before what it does."""

from __future__ import annotations

import math

from explorer.diagnosis.finding import NO_REMEDY, Finding, Remedy, finding, text
from explorer.diagnosis.reading import FEW, by_layer, drawn_variance, layer_names, numbered, path
from explorer.diagnosis.remedies import fix, listed
from explorer.foreign import Fault
from explorer.profile import Profile
from explorer.sites import MATRICES, SITE_WORDS

AFTER = ("the norm after attention", "the norm after the MLP")
"""Norms whose gains may start at 0 by design, in every layer: the stream then starts as it is."""
ORIGINS = (
    "batch",
    "input",
    "empty_row",
    "divided_by_zero",
    "undefined",
    "leaf",
    "overflow",
    "loss",
)
"""Kinds of faults that a value which is not finite begins with, beside weights that are not finite
themselves."""
NOT_FINITE = (*ORIGINS, "weight_not_finite")
"""Kinds of faults after which no number of the profile can be read."""


def held(profile: Profile, *kinds: str) -> list[Fault]:
    """Faults of some kinds, in the order in which they were read."""
    return [fault for fault in profile.faults if fault.kind in kinds]


MOST = 3
"""Names that a sentence lists."""


def some(names: list[str]) -> str:
    """The first of several names, and how many more there are; empty of none."""
    if not names:
        return ""
    more = len(names) - MOST
    return (
        listed(names)
        if more <= 0
        else text("phrase", "and_more", names=text("phrase", "comma").join(names[:MOST]), more=more)
    )


def zero_model(profile: Profile) -> Finding | None:
    """A model, or its layers, without a weight that is not 0: nothing else can be read of it."""
    faults = held(profile, "zero_all")
    if not faults:
        return None
    return finding(
        "bad",
        "zero_model",
        "meaning",
        "evidence",
        remedy=fix(profile, "drawn"),
        extent=faults[0].place,
        count=int(faults[0].value),
    )


def weight_not_finite(profile: Profile) -> Finding | None:
    """Parameters that hold NaN or infinities."""
    faults = held(profile, "weight_not_finite")
    if not faults:
        return None
    first, *others = faults
    return finding(
        "bad",
        "weight_not_finite",
        "one" if first.value == 1 else "meaning",
        _where(first),
        "others" if others else "whole",
        remedy=fix(profile, "anew", name=first.name),
        name=first.name,
        count=int(first.value),
        **_at(profile, first),
        names=some([other.name for other in others]),
    )


def weight_huge(profile: Profile) -> Finding | None:
    """Parameters of a size that nobody draws."""
    faults = held(profile, "weight_huge")
    if not faults:
        return None
    first, *others = faults
    gains = first.place.startswith("the gains")
    return finding(
        "bad",
        "weight_huge",
        "gains" if gains and first.layer else "meaning",
        "name" if gains and first.layer else _where(first),
        "others" if others else "usual",
        remedy=fix(profile, "gains" if gains else "anew", name=first.name),
        name=first.name,
        size=first.value,
        **_at(profile, first),
        names=some([other.name for other in others]),
    )


def zero_gain(profile: Profile) -> Finding | None:
    """Norms all of whose gains are 0, but those after branches where most layers start so."""
    faults = [
        fault
        for fault in held(profile, "zero_gain")
        if not _starts_so(profile, fault) and not layer_is_zero(profile, fault.layer)
    ]
    if not faults:
        return None
    first = faults[0]
    others = [
        fault for fault in faults[1:] if (fault.layer, fault.place) != (first.layer, first.place)
    ]
    names = [
        text("zero_gain", "other", place=fault.place, layer=numbered(profile, fault.layer))
        for fault in others
    ]
    return finding(
        "warning",
        "zero_gain",
        "meaning" if first.layer else "outside",
        "evidence",
        "others" if others else "",
        remedy=fix(profile, "gains", name=first.name),
        **_at(profile, first),
        count=int(first.value),
        others=some(names),
    )


def _starts_so(profile: Profile, fault: Fault) -> bool:
    """Whether the gains are those of a norm after a branch, and as many layers have them as make a
    design."""
    alike = [other for other in held(profile, "zero_gain") if other.place == fault.place]
    return fault.place in AFTER and len(alike) * FEW > len(profile.layers)


def zero_weights(profile: Profile) -> Finding | None:
    """Matrices that are exactly 0 in a few layers.

    Reports the first layer all of whose matrices are 0, else the first with such a matrix, and
    names the others. Left out are matrices that make a branch exactly 0: `dead_branch` reports
    them."""
    zeros: dict[int, list[str]] = {}  # by layer, from 1: the matrices to report
    for layer, names in zero_matrices(profile).items():
        if not layer_is_zero(profile, layer):
            dead_branches = [site for site in LAST if _nothing(profile, site, layer)]
            reported = {name for site in dead_branches for name in LAST[site]}
            names = [name for name in names if name not in reported]
        if names:
            zeros[layer] = names
    if not zeros:
        return None
    all_zero = [layer for layer in zeros if layer_is_zero(profile, layer)]
    layer = min(all_zero or zeros)
    names, others = zeros[layer], [other for other in zeros if other != layer]
    if layer in all_zero:
        key, words = "all", text("zero_weights", "every")
    else:
        key, words = "matrix" if len(names) == 1 else "matrices", listed(names)
    # weight variance, fan_in times that of an entry, which the other layers have in the mean
    sizes = by_layer(profile, "weight_variance", names[0])
    usual = float(sum(sizes[sizes > 0]) / max(1, (sizes > 0).sum()))
    return finding(
        "warning",
        "zero_weights",
        key,
        "evidence",
        "others" if others else "",
        remedy=fix(
            profile,
            "not_zero_weights",
            matrices=words,
            matrix=names[0],
            scale=drawn_variance(profile, names[0], usual),
            number=layer,
            block=path(profile, layer),
        ),
        matrices=listed(names),
        matrix=names[0],
        layer=numbered(profile, layer),
        usual=usual,
        layers=layer_names(profile, others),
    )


LAST = {"attn_out": ("W_V", "W_G", "W_O"), "mlp_out": ("W_gate", "W_in", "W_out")}
"""A branch, and the matrices any of which makes it exactly 0."""


def zero_matrices(profile: Profile) -> dict[int, list[str]]:
    """Layers, from 1, to their matrices that are exactly 0, where few layers have such a one."""
    zero: dict[int, list[str]] = {}
    for name in MATRICES:
        size = by_layer(profile, "weight_variance", name)
        layers = [layer + 1 for layer in range(len(size)) if size[layer] == 0]
        if len(layers) < len(size) and len(layers) <= max(1, len(size) // FEW) and len(size) > 1:
            for layer in layers:
                zero.setdefault(layer, []).append(name)
    return zero


def layer_is_zero(profile: Profile, layer: int) -> bool:
    """Whether all matrices of a layer, counted from 1, are 0: those that it has, and several of
    them."""
    sizes = [by_layer(profile, "weight_variance", name) for name in MATRICES]
    there = [
        size[layer - 1]
        for size in sizes
        if len(size) >= layer > 0 and not math.isnan(size[layer - 1])
    ]
    return len(there) > 1 and not any(there)


def _nothing(profile: Profile, site: str, layer: int) -> bool:
    """Whether a branch is exactly 0."""
    size = by_layer(profile, "second_moment", site)
    return len(size) >= layer and bool(size[layer - 1] == 0)


def constant(profile: Profile) -> Finding | None:
    """Matrices whose entries are all one number: their units compute the same, and get the same
    gradient."""
    faults = held(profile, "constant")
    if not faults:
        return None
    first, *others = faults
    names = [
        text("constant", "other", matrix=other.place, layer=numbered(profile, other.layer))
        for other in others
    ]
    return finding(
        "warning",
        "constant",
        "meaning",
        "evidence",
        "others" if others else "",
        remedy=fix(profile, "unequal", matrix=first.place, block=path(profile, first.layer)),
        **_at(profile, first),
        size=first.value,
        others=some(names),
    )


def dead_units(profile: Profile) -> Finding | None:
    """An MLP whose hidden units are all 0 for every token."""
    faults = held(profile, "dead_units")
    if not faults:
        return None
    first, others = faults[0], [fault.layer for fault in faults[1:]]
    return finding(
        "warning",
        "dead_units",
        "meaning",
        "evidence",
        "others" if others else "",
        remedy=fix(profile, "alive"),
        **_at(profile, first),
        count=int(first.value),
        layers=layer_names(profile, others),
    )


def doubled(profile: Profile) -> Finding | None:
    """Branches that are added to themselves: the stream before them is lost."""
    faults = held(profile, "doubled")
    if not faults:
        return None
    first, others = faults[0], [fault.layer for fault in faults[1:]]
    if len(faults) == len(profile.layers):
        return finding(
            "bad",
            "doubled",
            "all_layers",
            "evidence",
            remedy=fix(profile, "residual"),
            site=SITE_WORDS[first.place],
        )
    return finding(
        "warning",
        "doubled",
        "meaning",
        "evidence",
        "others" if others else "",
        remedy=fix(profile, "residual"),
        layer=numbered(profile, first.layer),
        site=SITE_WORDS[first.place],
        layers=layer_names(profile, others),
    )


def zero_input(profile: Profile) -> Finding | None:
    """A first layer that is given zeros: norms divide 0 by √ε, and tokens have no correlation."""
    if not held(profile, "zero_input"):
        return None
    return finding("bad", "zero_input", "meaning", "evidence")


def _where(fault: Fault) -> str:
    """Key of the sentence on the place of a parameter; none where its name says all."""
    if not fault.place:
        return ""
    return "place" if fault.layer else "outside"


def _at(profile: Profile, fault: Fault) -> dict[str, str]:
    """Place and layer of a fault, as placeholders."""
    return {"place": fault.place, "layer": numbered(profile, fault.layer)}


FAULTS = (
    weight_not_finite,
    weight_huge,
    zero_input,
    constant,
    zero_weights,
    zero_gain,
    dead_units,
    doubled,
)
"""Rules on faults, the most certain cause first."""
SILENCING = ("zero_gain", "dead_units", "constant", "weight_huge")
"""Kinds of faults that may make a branch constant, or cut matrices off from the gradient."""


def explained(profile: Profile) -> set[int]:
    """Layers, from 1, in which a fault explains that a branch is 0 or that matrices get no
    gradient."""
    layers = {fault.layer for fault in held(profile, *SILENCING)}
    return layers | {
        layer for layer in range(1, len(profile.layers) + 1) if layer_is_zero(profile, layer)
    }


def origin(profile: Profile) -> Fault | None:
    """The fault that the first value which is not finite begins with, where it is no
    parameter's."""
    if held(profile, "weight_not_finite"):
        return None
    return next(iter(held(profile, *ORIGINS)), None)


def overflow_remedy(profile: Profile, fault: Fault, cause: str) -> Remedy:
    """The remedy of a number that is too large for its type.

    Args:
        cause: key of the cure of what makes it so large, where that was read.
    """
    if held(profile, "weight_huge", "weight_not_finite"):  # they have remedies of their own
        return NO_REMEDY
    return fix(profile, "wider" if fault.name == "float16" else cause)
