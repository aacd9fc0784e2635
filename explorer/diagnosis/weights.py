"""Rules on weights, and on logits and branches whose size no weights explain.

One layer's matrices unlike its siblings', copies of one layer, a fan that was taken for the other;
a division or a norm that was left out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from explorer.diagnosis.finding import Finding, finding, text
from explorer.diagnosis.reading import (
    LIKE,
    NONE,
    beside,
    by_layer,
    drawn_variance,
    head_width,
    layer_names,
    line,
    numbered,
    path,
    spread,
    stream_before,
    typical_sizes,
    unlike,
    worst,
)
from explorer.diagnosis.remedies import fix
from explorer.diagnosis.signal import alike, gradient_steep, not_finite, one_hot, runs_away
from explorer.diagnosis.structure import FEEDS
from explorer.profile import Profile
from explorer.sites import BRANCHES, MATRICES, SITE_WORDS
from explorer.translation import sentences
from explorer.vocabulary import Array

SIZE = {"attn_scores": "logit_std", "attn_out": "second_moment", "mlp_out": "second_moment"}
"""The statistic that is a site's size."""
WIDE = 2.0
"""Spread of the logits above which a missing division is reported where all layers lack it."""
COPY = 0.99
"""Cosine from which on matrices are copies. Independent ones of 4096 entries have 0.016 RMS, never
more than 0.1; a copy rounded to bfloat16 keeps 0.99999."""
BY_FAN_IN = (1.0, 2.0, 1 / 3)
"""Variances times fan_in of the rules that divide by it: LeCun's, He's, torch's default."""
EXACT = 0.05
"""Relative difference up to which two weight variances have a given ratio: five times the sampling
error, √(2/n) each, of a 64 × 64 and a 64 × 256 matrix, as the median over 12 layers."""


def odd_weights(profile: Profile) -> Finding | None:
    """Matrices of another size than the same ones of the other layers."""
    odd_by_matrix = unlike(
        {name: by_layer(profile, "weight_variance", name) for name in MATRICES}, kinds=profile.kinds
    )
    if not odd_by_matrix:
        return None
    layer, odd = worst(odd_by_matrix)
    name = max(odd, key=lambda matrix: abs(math.log(odd[matrix])))
    theirs = beside(by_layer(profile, "weight_variance", name), layer, profile.kinds)
    scale = drawn_variance(profile, name, theirs)
    proof = [_matrix(profile, matrix, layer, ratio) for matrix, ratio in odd.items()]
    proof += list(_effects(profile, layer, odd)) or [text("odd_weights", "unknown")]
    others = sorted({other for layers in odd_by_matrix.values() for other in layers} - {layer})
    if others:
        proof.append(text("odd_weights", "others", layers=layer_names(profile, others)))
    block = path(profile, layer)
    remedy = fix(profile, "drawn_alike", matrix=name, number=layer, scale=scale, block=block)
    meaning = text("odd_weights", "meaning", layer=numbered(profile, layer))
    return Finding("warning", meaning, sentences(proof), *remedy)


def _matrix(profile: Profile, name: str, layer: int, ratio: float) -> str:
    """How a matrix differs: "W_out is 1.66 × wider than its siblings (weight variance 2.76, theirs
    1)."."""
    size, factor = by_layer(profile, "weight_variance", name), math.sqrt(ratio)
    fan_in, fan_out = profile.shapes.get(name, (1, 1))
    sides = fan_in / fan_out
    swapped = (
        abs(math.log(sides)) > math.log(LIKE) and abs(math.log(ratio / sides)) < math.log(LIKE) / 2
    )
    usual = beside(size, layer, profile.kinds)
    return text(
        "odd_weights",
        f"{'wider' if factor > 1 else 'narrower'}{'_swapped' if swapped else ''}",
        matrix=name,
        factor=max(factor, 1 / factor),
        own=size[layer - 1],
        usual=usual,
        fan_in=fan_in,
        fan_out=fan_out,
    )


def _effects(profile: Profile, layer: int, odd: Mapping[str, float]) -> Iterator[str]:
    """Sentences on how far odd matrices move the sites that they feed."""
    for site, names in FEEDS.items():
        size = by_layer(profile, SIZE[site], site)
        if len(size) and any(name in odd for name in names):
            ratio = float(size[layer - 1]) / beside(size, layer, profile.kinds)
            verb = "leaves" if abs(math.log(ratio)) > math.log(LIKE) else "stays"
            yield text("odd_weights", f"{SIZE[site]}_{verb}", site=SITE_WORDS[site], ratio=ratio)


def copies(profile: Profile) -> Finding | None:
    """Layers that start as copies of one another; layers that share their weights are one block,
    and a design."""
    likeness = [
        values for name in MATRICES if len(values := by_layer(profile, "weight_likeness", name))
    ]
    if not likeness:
        return None
    # a matrix of zeros is like nothing and unlike nothing
    known = np.where(np.isfinite(likeness), likeness, np.inf)
    least = known.min(axis=0)
    shared = Counter(profile.layers)
    alike = [
        layer
        for layer in range(1, len(least) + 1)
        if COPY <= least[layer - 1] < np.inf
        and not (len(profile.layers) == len(least) and shared[profile.layers[layer - 1]] > 1)
    ]
    if len(alike) < 2:
        return None
    rho = by_layer(profile, "token_correlation", "resid_post")
    which = "all" if len(alike) == len(least) else "some"
    return finding(
        "warning",
        "copies",
        which,
        f"{which}_evidence",
        "effect",
        "correlation" if len(rho) else "",
        remedy=fix(profile, "apart"),
        copies=len(alike),
        layers=len(least),
        cosine=least[alike[0] - 1],
        names=layer_names(profile, alike),
        correlation=rho[-1] if len(rho) else None,
    )


def wrong_fan_in(profile: Profile) -> Finding | None:
    """An MLP matrix drawn by the other one's fan_in.

    W_in is at fault where it alone is off by the ratio of the widths: no rule draws so. W_out of
    the same size as W_in is what a constant std gives, too: it is named only where the signal
    suffers, and the other matrices follow a rule."""
    shape = profile.shapes.get("W_in")
    size = typical_sizes(profile, ("W_V", "W_O", "W_in", "W_out"))
    if shape is None or len(size) < 4 or min(size.values()) <= 0 or shape[1] / shape[0] < LIKE:
        return None
    wide = shape[1] / shape[0]
    first, last = size["W_in"] / size["W_V"], size["W_out"] / size["W_O"]
    if _is(last, 1.0) and _is(first, 1 / wide):
        name, other, ratio, (fan_in, fan_out) = "W_in", "W_V", first, shape
    elif (
        _is(first, 1.0)
        and _is(last, wide)
        and _suffers(profile)
        and any(_is(size["W_O"], gain) for gain in BY_FAN_IN)
    ):
        name, other, ratio, (fan_out, fan_in) = "W_out", "W_O", last, shape
    else:
        return None
    branch = by_layer(profile, "second_moment", "mlp_out")
    return finding(
        "warning",
        "wrong_fan_in",
        "meaning",
        "evidence",
        "output" if len(branch) else "",
        remedy=fix(profile, "fan_in"),
        matrix=name,
        other=other,
        ratio=ratio,
        fan_in=fan_in,
        fan_out=fan_out,
        size=np.median(branch) if len(branch) else None,
    )


def _is(ratio: float, expected: float) -> bool:
    return abs(math.log(ratio / expected)) < EXACT


def _suffers(profile: Profile) -> bool:
    """Whether the signal does not pass through."""
    return any(
        rule(profile) is not None
        for rule in (runs_away, not_finite, gradient_steep, one_hot, alike)
    )


def odd_logits(profile: Profile) -> Finding | None:
    """Attention logits of one layer that are wider or narrower than the other layers', where its
    W_Q and W_K are as everywhere."""
    width = head_width(profile)
    # by layer, from 1: its logits' standard deviation over that of the others
    odd = _wide(profile, width) | _odd(profile, "attn_scores")
    # The first layer reads the embedding, which may have another size than the later stream: only
    # a ratio of √d, which the embedding's size does not explain, counts there.
    if 1 in odd:
        is_root = width and _near(odd[1] ** 2, width)
        if not is_root or _near(odd[1], _read(profile, "attn_scores", 1)):
            del odd[1]
    if not odd:
        return None
    layer, _ = worst({"attn_scores": odd})
    ratio, norm = odd[layer], _read(profile, "attn_scores", layer)
    cause, cure = _logit_cause(profile, layer, ratio, width)
    return finding(
        "warning",
        "odd_logits",
        cause,
        f"{cause}_evidence",
        ratio=ratio,
        remedy=fix(profile, cure, block=path(profile, layer)),
        layer=numbered(profile, layer),
        width=width,
        root=math.sqrt(width),
        norm=norm,
    )


def _logit_cause(profile: Profile, layer: int, ratio: float, width: int) -> tuple[str, str]:
    """Keys, in `verdicts.toml`, of the cause of a layer's odd logits and of its cure: the division
    by √d or the norm was left out, or neither explains them.

    Where both would, the norm is the cause if it is nearer, or if the block's MLP lacks it too.

    Args:
        layer: from 1.
        ratio: standard deviation of its logits over that of the other layers.
        width: d, coordinates of a head; 0 where it is not known.
    """
    # without a norm, logits grow by the second moment of what both queries and keys are made of
    norm = _read(profile, "attn_scores", layer)
    is_norm = _near(ratio, norm)
    if width and _near(ratio**2, width):
        mlp = by_layer(profile, "second_moment", "mlp_out")
        off_norm = abs(math.log(ratio / norm))
        off_root = abs(math.log(ratio / math.sqrt(width)))
        mlp_lacks_norm = len(mlp) > 0 and _near(
            float(mlp[layer - 1]) / beside(mlp, layer, profile.kinds),
            _read(profile, "mlp_out", layer),
        )
        if not (is_norm and (off_norm < off_root or mlp_lacks_norm)):
            return "undivided", "divided"
    return ("no_norm", "read_norm") if is_norm else ("otherwise", "compared")


def undivided(profile: Profile) -> Finding | None:
    """Logits that are as wide as undivided ones in all layers, where the divisor itself was not
    read."""
    if "divisor" in profile.facts:
        return None
    spread, gain, width = (
        by_layer(profile, "logit_std", "attn_scores"),
        logit_gain(profile),
        head_width(profile),
    )
    ratio = float(np.median(gain)) if len(gain) else 0.0
    if not width or not np.median(spread) > WIDE or not ratio > 0 or not _near(ratio**2, width):
        return None
    return finding(
        "warning",
        "undivided",
        "meaning",
        "evidence",
        remedy=fix(profile, "divided"),
        ratio=ratio,
        spread=np.median(spread),
        expected=np.median(spread / gain),
        width=width,
        root=math.sqrt(width),
    )


def odd_branch(profile: Profile) -> Finding | None:
    """A branch's output of another size than its siblings', where the matrices are as
    everywhere."""
    # the first layer reads tokens that nothing has mixed, and a stream that may be of any size
    odd_sites = {
        site: {layer: ratio for layer, ratio in _odd(profile, site).items() if layer > 1}
        for site in BRANCHES
    }
    odd_sites = {site: layers for site, layers in odd_sites.items() if layers}
    if not odd_sites:
        return None
    layer, odd = worst(odd_sites)
    site, ratio = max(odd.items(), key=lambda item: abs(math.log(item[1])))
    norm = _read(profile, site, layer)
    cause, cure = ("no_norm", "read_norm") if _near(ratio, norm) else ("otherwise", "like_branches")
    return finding(
        "warning",
        "odd_branch",
        cause,
        f"{cause}_evidence",
        ratio=ratio,
        norm=norm,
        site=SITE_WORDS[site],
        layer=numbered(profile, layer),
        remedy=fix(profile, cure, block=path(profile, layer)),
    )


def logit_gain(profile: Profile) -> Array:
    """Spread of the logits over that which W_Q, W_K and the tokens' correlation give a stream of
    second moment 1 after the division by √d, `[layer]`: 1, or √d without it. Empty where a part is
    not known."""
    spread, rho = _spread(profile), line(profile, "token_correlation")
    sizes = [by_layer(profile, "weight_variance", name) for name in FEEDS["attn_scores"]]
    known = len(rho.depth) > 0 and all(len(size) == len(spread) > 0 for size in sizes)
    return spread / np.sqrt(sizes[0] * sizes[1]) if known else NONE


def _spread(profile: Profile) -> Array:
    """Standard deviation that each layer's logits would have if its tokens were unrelated,
    `[layer]`; as measured where the tokens' correlation is not known.

    Tokens of correlation ρ share a part of every logit, which leaves √(1 − ρ) of the deviation: the
    measured one is divided by it, so that layers with tokens of any likeness compare."""
    measured = by_layer(profile, "logit_std", "attn_scores")
    rho = line(profile, "token_correlation")
    if not len(rho.depth):
        return measured
    depths = np.arange(len(measured))  # layer l, counted from 1, reads the stream at depth l − 1
    correlations = np.interp(depths, rho.depth, rho.values)
    return measured / np.sqrt(1 - correlations)


def _wide(profile: Profile, width: int) -> dict[int, float]:
    """The one layer whose logits are √d wider than the others', by what its own weights and tokens
    give, and the ratio; none where a missing norm explains it."""
    gain = logit_gain(profile)
    if not width or len(gain) < 3 or not np.all(gain > 0):
        return {}
    ratios, least = (gain / np.median(gain)).tolist(), spread(profile)
    wide = {
        layer: ratio
        for layer, ratio in enumerate(ratios, start=1)
        if ratio > least and _near(ratio**2, width)
    }
    if len(wide) != 1:
        return {}
    [(layer, ratio)] = wide.items()
    return {} if _near(ratio, _read(profile, "attn_scores", layer)) else wide


def _odd(profile: Profile, site: str) -> dict[int, float]:
    """Layers whose output at a site stands out, and no matrix that sets its size does."""
    sizes = {at: by_layer(profile, SIZE[at], at) for at in BRANCHES}
    odd = unlike({**sizes, "attn_scores": _spread(profile)}, spread(profile), profile.kinds).get(
        site, {}
    )
    blamed = unlike(
        {name: by_layer(profile, "weight_variance", name) for name in FEEDS[site]},
        kinds=profile.kinds,
    )
    return {
        layer: ratio
        for layer, ratio in odd.items()
        if not any(layer in layers for layers in blamed.values())
    }


def _near(ratio: float, cause: float) -> bool:
    """Whether a cause explains the ratio, and is one: it must differ from 1."""
    return abs(math.log(cause)) > math.log(LIKE) and abs(math.log(ratio / cause)) < math.log(LIKE)


def _read(profile: Profile, site: str, layer: int) -> float:
    """Second moment of the stream that a branch reads where it has no norm; 1 where it is not
    known."""
    value = float(stream_before(profile, site, layer)[layer - 1])
    return value if math.isfinite(value) and value > 0 else 1.0
