"""Rules on logits and branches whose size no matrix explains: a division or a norm that was left out."""

from __future__ import annotations

import math

import numpy as np

from explorer.diagnosis.cures import DIVIDED, READ_NORM, Cure, fix
from explorer.diagnosis.finding import Finding
from explorer.diagnosis.layers import FEEDS, SIZE, beside
from explorer.diagnosis.reading import NONE, by_layer, called, head_width, layer_name, line, path, stream_before
from explorer.diagnosis.siblings import LIKE, unlike, worst
from explorer.numbers import number
from explorer.profile import BRANCHES, SITE_WORDS, Array, Profile

SPREAD = 2.5
"""Ratio beyond which a site is called unlike its siblings'. A branch of alike tokens has no more than a head's
width of independent numbers: with 16 of them, the narrowest in use, one layer in a thousand has 2.45 × its expected
second moment (χ²), and presets of width 64 and 128 stay below it."""
WIDE = 2.0
"""Spread of the logits above which a missing division is reported where all layers lack it."""


def odd_logits(profile: Profile) -> Finding | None:
    """Attention logits of one layer of another size, where its W_Q and W_K are as everywhere."""
    width = head_width(profile)
    odd_ratios = _wide(profile, width) | _odd(profile, "attn_scores")
    # the first layer may read a stream of another size than all others, if not one that is √d larger
    odd_ratios = {layer: ratio for layer, ratio in odd_ratios.items()
             if layer > 1 or (width and _near(ratio**2, width) and not _near(ratio, _read(profile, "attn_scores", 1)))}
    if not odd_ratios:
        return None
    layer, odd = worst({"attn_scores": odd_ratios})
    ratio = odd["attn_scores"]
    fact = f"The attention logits of {layer_name(profile, layer)} have {number(ratio)} × their siblings' spread"
    norm = _read(profile, "attn_scores", layer)
    # where both would do, the block's MLP says whether it is the norm, else the nearer of the two
    nearer = abs(math.log(ratio / norm)) < abs(math.log(ratio**2 / width)) / 2 if width else True
    mlp = by_layer(profile, "second_moment", "mlp_out")
    bare = len(mlp) > 0 and _near(float(mlp[layer - 1]) / beside(mlp, layer), _read(profile, "mlp_out", layer))
    unread = _near(ratio, norm) and (nearer or bare)
    if width and _near(ratio**2, width) and not unread:
        return Finding("warning", f"{called(profile, layer)} does not divide its logits by √d.",
                       f"{fact}: √{width} is {number(math.sqrt(width))}.", *fix(profile, DIVIDED))
    if _near(ratio, norm):
        return _norm_left_out(profile, layer, fact, norm)
    return Finding("warning", f"{called(profile, layer)} may divide its logits otherwise than its siblings.",
                   f"{fact}; W_Q and W_K show no cause.", *fix(profile, DIVIDED))


def undivided(profile: Profile) -> Finding | None:
    """Logits that are as wide as undivided ones in all layers."""
    spread, gain, width = by_layer(profile, "logit_std", "attn_scores"), _gain(profile), head_width(profile)
    ratio = float(np.median(gain)) if len(gain) else 0.0
    if not width or not np.median(spread) > WIDE or not ratio > 0 or not _near(ratio**2, width):
        return None
    return Finding("warning", "The attention logits are not divided by √d.",
                   f"Their spread is {number(float(np.median(spread)))} where W_Q and W_K would give "
                   f"{number(float(np.median(spread / gain)))}: {number(ratio)} × as much, and √{width} is "
                   f"{number(math.sqrt(width))}.", *fix(profile, DIVIDED))


def odd_branch(profile: Profile) -> Finding | None:
    """A branch's output of another size than its siblings', where the matrices are as everywhere."""
    # the first layer reads tokens that nothing has mixed, and a stream that may be of any size
    odd_sites = {site: {layer: ratio for layer, ratio in _odd(profile, site).items() if layer > 1} for site in BRANCHES}
    odd_sites = {site: layers for site, layers in odd_sites.items() if layers}
    if not odd_sites:
        return None
    layer, odd = worst(odd_sites)
    site, ratio = max(odd.items(), key=lambda item: abs(math.log(item[1])))
    fact = f"The {SITE_WORDS[site]} of {layer_name(profile, layer)} has {number(ratio)} × its siblings' second moment"
    norm = _read(profile, site, layer)
    if _near(ratio, norm):
        return _norm_left_out(profile, layer, fact, norm)
    cure = Cure("Make the branch as in the other layers", f"print({path(profile, layer)})  # beside another block")
    return Finding("warning", f"{called(profile, layer)} has a branch unlike its siblings'.",
                   f"{fact}, and no matrix of its branch shows a cause: a norm, a factor or an activation may differ.",
                   *fix(profile, cure))


def _gain(profile: Profile) -> Array:
    """Spread of the logits over that which W_Q, W_K and the tokens' correlation give a stream of second moment 1 after
    the division by √d, `[layer]`: 1, or √d without it. Empty where a part is not known."""
    spread, rho = _spread(profile), line(profile, "token_correlation")
    sizes = [by_layer(profile, "weight_variance", name) for name in FEEDS["attn_scores"]]
    known = len(rho.depth) > 0 and all(len(size) == len(spread) > 0 for size in sizes)
    return spread / np.sqrt(sizes[0] * sizes[1]) if known else NONE


def _spread(profile: Profile) -> Array:
    """Spread of the logits of unrelated tokens, `[layer]`: alike ones, whose correlation is ρ, have √(1 − ρ) of it."""
    spread, rho = by_layer(profile, "logit_std", "attn_scores"), line(profile, "token_correlation")
    if not len(rho.depth):
        return spread
    return spread / np.sqrt(1 - np.interp(np.arange(len(spread)), rho.depth, rho.values))


def _wide(profile: Profile, width: int) -> dict[int, float]:
    """The one layer whose logits are √d wider than the others', by what its own weights and tokens give."""
    gain = _gain(profile)
    if not width or len(gain) < 3 or not np.all(gain > 0):
        return {}
    ratio = gain / np.median(gain)
    at = [layer + 1 for layer in range(len(gain)) if _near(float(ratio[layer]) ** 2, width)]
    if len(at) != 1 or _near(float(ratio[at[0] - 1]), _read(profile, "attn_scores", at[0])):
        return {}
    return {at[0]: float(ratio[at[0] - 1])}


def _odd(profile: Profile, site: str) -> dict[int, float]:
    """Layers whose output at a site stands out, and no matrix that sets its size does."""
    sizes = {at: by_layer(profile, SIZE[at], at) for at in BRANCHES}
    odd = unlike({**sizes, "attn_scores": _spread(profile)}, SPREAD).get(site, {})
    blamed = unlike({name: by_layer(profile, "weight_variance", name) for name in FEEDS[site]})
    return {layer: ratio for layer, ratio in odd.items() if not any(layer in layers for layers in blamed.values())}


def _norm_left_out(profile: Profile, layer: int, fact: str, norm: float) -> Finding:
    return Finding("warning", f"{called(profile, layer)} may leave out the norm before a branch.",
                   f"{fact}, as it would without one: the stream has second moment {number(norm)} there.",
                   *fix(profile, READ_NORM))


def _near(ratio: float, cause: float) -> bool:
    """Whether a cause explains the ratio, and is one: it must differ from 1."""
    return abs(math.log(cause)) > math.log(LIKE) and abs(math.log(ratio / cause)) < math.log(LIKE)


def _read(profile: Profile, site: str, layer: int) -> float:
    """Second moment of the stream that a branch reads where it has no norm; 1 where it is not known."""
    value = float(stream_before(profile, site, layer)[layer - 1])
    return value if math.isfinite(value) and value > 0 else 1.0
