"""Rules on what one layer leaves out: a residual connection, a norm on the sum, a branch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from explorer.diagnosis.cures import NOT_ZERO, POST_NORM, REACHED, RESIDUAL, fix
from explorer.diagnosis.finding import Finding
from explorer.diagnosis.layers import FEEDS
from explorer.diagnosis.reading import by_layer, called, layer_name, line, stream_before
from explorer.diagnosis.siblings import FEW, unlike, worst
from explorer.numbers import number, percent
from explorer.profile import BRANCHES, MATRICES, SITE_WORDS, Profile

SAME = 1e-5
"""Relative difference up to which two second moments are of the same tensor: float32 over a few million numbers."""
PARTS = {"attn_out": (*FEEDS["attn_scores"], *FEEDS["attn_out"]), "mlp_out": FEEDS["mlp_out"]}
"""A branch, and all matrices of it."""
LEVEL = 1e-3
"""Relative spread up to which a second moment is held by a norm, whose ε and type move it a little."""


def dead_branch(profile: Profile) -> Finding | None:
    """A branch that adds exactly nothing in a few layers; where most do, they start so on purpose."""
    for site in BRANCHES:
        size = by_layer(profile, "second_moment", site)
        dead = (np.flatnonzero(size == 0) + 1).tolist()
        if not dead or 2 * len(dead) >= len(size):
            continue
        weights = {name: by_layer(profile, "weight_variance", name) for name in FEEDS[site]}
        zero = [name for name, values in weights.items()
                if len(values) == len(size) and not values[size == 0].any()]
        return Finding("warning", f"A branch of {layer_name(profile, dead[0])} is dead.",
                       f"The {SITE_WORDS[site]} is exactly 0 in {', '.join(layer_name(profile, at) for at in dead)}"
                       f"{', as ' + ', '.join(zero) + ' is' if zero else ''}; the other layers' second moment is "
                       f"{number(float(np.median(size[size > 0])))}.", *fix(profile, NOT_ZERO))
    return None


def unmoved(profile: Profile) -> Finding | None:
    """Matrices whose gradient is exactly zero, though their branch adds to the stream: no optimizer moves them.

    Silent where all gradients are zero, and where a factor of the branch is, which learns first.
    """
    every = {name: by_layer(profile, "parameter_gradient", name) for name in MATRICES}
    unmoved_by_layer: dict[int, list[str]] = {}
    for site, names in PARTS.items():
        held = [name for name in names if len(every[name])]
        factors = [size for name in held if len(size := by_layer(profile, "weight_variance", name))]
        for name in held:
            zero = (every[name] == 0) & _adds(profile, site, every[name] > 0)
            for size in factors:
                zero &= size != 0
            for layer in np.flatnonzero(zero).tolist():
                unmoved_by_layer.setdefault(layer + 1, []).append(name)
    if not unmoved_by_layer or not any((values > 0).any() for values in every.values()):
        return None
    layer, lost = min(unmoved_by_layer.items(), key=lambda item: (-len(item[1]), item[0]))
    others = [layer_name(profile, other) for other in unmoved_by_layer if other != layer]
    names_in_words, several = " and ".join(filter(None, (", ".join(lost[:-1]), lost[-1]))), len(lost) > 1
    too = f" So are some in {', '.join(others)}." if others else ""
    return Finding(
        "bad", f"{names_in_words} of {layer_name(profile, layer)} {'do' if several else 'does'} not learn.",
        f"{'Their' if several else 'Its'} gradient is exactly 0, though the branch adds to the stream: no optimizer "
        f"moves {'them' if several else 'it'}.{too}", *fix(profile, REACHED))


def _adds(profile: Profile, site: str, moved: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Layers whose branch changes the stream; where that is not known, all, if some layers' gradients are not zero.

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
    """A layer after which the stream is the branch's output and nothing else, while other layers add."""
    for site, sum_ in zip(BRANCHES, ("resid_mid", "resid_post"), strict=True):
        branch, after = by_layer(profile, "second_moment", site), by_layer(profile, "second_moment", sum_)
        if not len(branch) or len(branch) != len(after):
            continue
        before = stream_before(profile, site, len(branch))
        bare = (np.abs(after - branch) <= SAME * after) & (before > LEVEL * branch)
        if not bare.any() or bare.mean() > 1 / FEW:
            continue
        layer = int(np.argmax(bare)) + 1
        return Finding(
            "warning", f"{called(profile, layer)} leaves out a residual connection.",
            f"The {SITE_WORDS[sum_]} has the second moment of the {SITE_WORDS[site]} alone, "
            f"{number(float(after[layer - 1]))}: the stream before it, {number(float(before[layer - 1]))}, is lost.",
            *fix(profile, RESIDUAL),
        )
    return _blurred(profile)


def _blurred(profile: Profile) -> Finding | None:
    """A layer that removes more of the tokens' difference than its siblings: a norm may hide a missing residual."""
    rho = line(profile, "token_correlation")
    with_middle = ("token_correlation", "resid_mid") in profile.values
    apart = 1 - rho.values
    kept = apart[1:] / apart[:-1]
    series = {"resid_mid": kept[::2], "resid_post": kept[1::2]} if with_middle else {"resid_post": kept}
    if not len(rho.depth) or rho.depth[0] != 0:
        return None
    # the first layer reads tokens that nothing has mixed
    odd_sites = {site: less for site, values in series.items()
             if (less := {layer + 1: ratio for layer, ratio in unlike({site: values[1:]}).get(site, {}).items()
                          if ratio < 1 / FEW})}
    if not odd_sites:
        return None
    layer, odd = worst(odd_sites)
    site = min(odd, key=lambda name: odd[name])
    return Finding(
        "warning", f"{called(profile, layer)} may leave out a residual connection.",
        f"The {SITE_WORDS[site]} keeps {percent(float(series[site][layer - 1]))} of 1 − ρ, by which tokens of one size "
        f"differ, and {number(1 / odd[site])} × as much in the layers beside it.", *fix(profile, RESIDUAL))


def no_norm_on_sum(profile: Profile) -> Finding | None:
    """A layer whose sum is not normalized while all others' are; the first may be so on purpose (Keel)."""
    for site in ("resid_mid", "resid_post"):
        q = by_layer(profile, "second_moment", site)
        if len(q) < FEW:
            continue
        level = float(np.median(q))
        off = np.flatnonzero(~(np.abs(q - level) <= LEVEL * level)) + 1
        if len(off) == 1 and off[0] > 1:
            layer = int(off[0])
            return Finding("warning", f"{called(profile, layer)} leaves out the norm after the sum.",
                           f"The {SITE_WORDS[site]} has second moment {number(float(q[layer - 1]))} there, and "
                           f"{number(level)} in all other layers.", *fix(profile, POST_NORM))
    return None
