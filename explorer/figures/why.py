"""Why a picture looks as it does: a line with the recursion or law, the lesson that derives it, and
the paper.

The sentences stand in `why.toml`. Which law holds for a design is read from its rows and checked
against its predicted profile: where that has other numbers, as with layers that are copies of one
another, the line stays empty."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from explorer.config import Config
from explorer.numbers import number
from explorer.profile import Profile
from explorer.schemes.placement import Placement
from explorer.sites import STREAM
from explorer.translation import translated
from explorer.vocabulary import Array

TOLERANCE = 0.01
"""Relative difference between a predicted number and the one by the law that a line states."""


class Why(NamedTuple):
    """Words, lesson and source below a caption."""

    words: str = ""
    """One line."""
    lesson: str = ""
    """Name of the lesson that derives it, a key of `glossary.LESSONS`; empty in that lesson
    itself."""
    source: str = ""
    """Author and year, as `papers.bib` has them."""


class Law(NamedTuple):
    """A sentence of `why.toml` that holds for a design: its key, and the values of its
    placeholders."""

    key: str
    values: Mapping[str, object] = MappingProxyType({})


class Steps(NamedTuple):
    """The sublayers of a design as far as its prediction stays finite; arrays over them,
    `[sublayer]`."""

    places: Sequence[Placement]
    reset: Array
    """Whether a norm stands on the sum."""
    silent: Array
    """Whether the branch adds nothing."""
    after: Array
    """Predicted second moment of the stream after the sublayer."""
    expected: Array
    """Second moment after the sublayer by the law of its sum or norm."""
    gradient: Array
    """Predicted mean squared gradient before the sublayer, over that after it."""
    least: Array
    """The part of it that the stream passes beside the branch."""

    def among(self, chosen: Array) -> Steps:
        """Only the chosen sublayers, by a mask `[sublayer]`."""
        return Steps(list(compress(self.places, chosen)), *(values[chosen] for values in self[1:]))

    def law(self, of: Callable[[Placement, bool], tuple[str, str]]) -> tuple[str, str]:
        """The key and formula that all sublayers have in common; empty texts where they differ.

        Args:
            of: gives key and formula of a placement, and of whether its branch is silent.
        """
        laws = set()
        for place, silent in set(zip(self.places, self.silent.tolist(), strict=True)):
            laws.add(of(place, silent))
        return laws.pop() if len(laws) == 1 else ("", "")


def _steps(predicted: Profile, config: Config) -> Steps:
    """Laws and predictions of each sublayer of a design, side by side."""
    design = config.design
    nothing = np.zeros((1, config.n_layers))
    q = _along(predicted, "second_moment", config)
    gradients = _along(predicted, "activation_gradient", config)
    outputs = [
        predicted.mean_over_draws(key)[0] if key in predicted.values else nothing[0]
        for key in (("second_moment", "attn_out"), ("second_moment", "mlp_out"))
    ]
    output = np.ravel(outputs, order="F")  # of a layer attention, then the MLP
    places = design.sublayers
    if not design.attends:
        q, gradients, output, places = q[::2], gradients[::2], output[1::2], places[1::2]
    skip = np.array([place.skip for place in places]) ** 2
    branch = np.array([place.branch for place in places]) ** 2
    reset = np.array([place.has("sum") for place in places])
    total = skip * q[:-1] + branch * output
    sublayers = Steps(
        places=places,
        reset=reset,
        silent=branch * output == 0,
        after=q[1:],
        expected=np.where(reset, 1.0, total),
        gradient=gradients[:-1] / gradients[1:],
        # a norm divides the sum, and so its gradient
        least=skip / np.where(reset, total, 1.0),
    )
    return sublayers.among(np.isfinite(q[1:]))


def _along(predicted: Profile, statistic: str, config: Config) -> Array:
    """Mean over draws of a statistic along the stream, at the input and after each sublayer, `[1 +
    2 n_layers]`, for laws are of means; nan where theory has no value."""
    if (statistic, "embed") not in predicted.values:
        return np.full(1 + 2 * config.n_layers, np.nan)
    embed, mid, post = (predicted.mean_over_draws((statistic, site))[0] for site in STREAM)
    return np.concatenate([embed, np.ravel([mid, post], order="F")])


def _times(factor: float, symbol: str) -> str:
    """A product as text: "2 χ"; the symbol alone where the factor is 1."""
    return symbol if factor == 1 else f"{number(factor)} {symbol}"


def _alike(predicted: Array, expected: Array) -> bool:
    """Whether all predictions are those by a law, within `TOLERANCE`."""
    return bool(np.allclose(predicted, expected, rtol=TOLERANCE, atol=0))


def _second_moment(predicted: Profile, config: Config) -> Law | None:
    """The law of q on each sum, or the norms that reset it to 1, where the predicted numbers follow
    it."""
    steps = _steps(predicted, config)
    if not steps.places or not _alike(steps.after, steps.expected):
        return None
    if steps.reset.all():
        return Law("norms")
    key, law = steps.among(np.logical_not(steps.reset)).law(_growth)
    reset = int(steps.reset.sum())
    values = {"law": law, "reset": reset, "sums": len(steps.places)}
    return Law(f"{key}_on_others" if reset else key, values) if key else None


def _growth(place: Placement, silent: bool) -> tuple[str, str]:
    """Key and formula of q after a sum without a norm: factors of stream and branch squared."""
    skip, branch = _times(place.skip**2, "q_(l−1)"), _times(place.branch**2, "E F²")
    if silent:
        return "zero_branch", f"q_l = {skip}"
    if not place.skip:
        return "no_residual", f"q_l = {branch}"
    return "adds", f"q_l = {skip} + {branch}"


def _activation_gradient(predicted: Profile, config: Config) -> Law | None:
    """The law of the gradient on the way back, of designs all of whose sublayers have the same."""
    design = config.design
    # in these designs gradients also pass from layer to layer beside the stream
    has_other_ways = (
        design.inherits or config.value_residual or design.stream.parallel or design.stream.mixes
    )
    # and in these a sublayer's factor is not the one that the formula has
    has_other_factors = (
        design.point
        or design.profiled
        or any(place.has("values", "last", "skip") for place in design.kinds)
    )
    if has_other_ways or has_other_factors:
        return None
    steps = _steps(predicted, config)
    steps = steps.among(np.isfinite(steps.gradient))
    if steps.silent.all():
        follows = _alike(steps.gradient, steps.least)
    else:
        # χ of the branch is not known here: it can only add
        follows = bool(np.all(steps.gradient >= steps.least * (1 - TOLERANCE)))
    key, law = steps.law(_way_back)
    return Law(key, {"law": law}) if key and follows else None


def _way_back(place: Placement, silent: bool) -> tuple[str, str]:
    """Key, in `why.toml`, and formula of the mean squared gradient by the stream before a sublayer,
    γ_(l−1), from that after it: γ_(l−1) = γ_l (skip² + branch² χ).

    χ is the factor by which a branch multiplies a squared gradient. A norm divides the signal by
    its root mean square √q, and so the squared gradient by q: that of the branch by q_(l−1) where
    the norm is on the branch's input, all of it by the sum's q where the norm is on the sum.

    Args:
        place: the sublayer's norms, and its factors on stream and branch.
        silent: whether the branch adds nothing, and so passes no gradient.
    """
    terms = [number(place.skip**2)] if place.skip else []
    if not silent:
        gain = "χ / q_(l−1)" if place.has("input") else "χ"
        terms.append(_times(place.branch**2, gain))
    if terms == ["1"]:
        factor = ""  # γ_l itself
    elif terms == ["χ"]:
        factor = " χ"  # one symbol needs no brackets
    else:
        factor = f" ({' + '.join(terms)})"
    norms_branch = place.has("output") and not silent
    if place.has("sum"):
        key = "norm_on_both" if norms_branch else "norm_on_sum"
        return key, f"γ_(l−1) = γ_l{factor} / q"
    return "norm_on_branch" if norms_branch else "passes", f"γ_(l−1) = γ_l{factor}"


def _softmax(_: Profile, config: Config) -> Law | None:
    """The law of entropy and largest weight by the logits' spread.

    None with a sink, which takes a part of each row's weight."""
    if not config.design.attends or config.design.sink.logit is not None:
        return None
    return Law("causal" if config.causal else "all_keys")


def _correlation(predicted: Profile, config: Config) -> Law | None:
    """The averaging of tokens by attention, where the prediction shows it: no attention sublayer
    makes tokens less alike, and one makes them more alike."""
    difference = 1 - _along(
        predicted, "token_correlation", config
    )  # share that tokens do not share
    before, after = difference[:-1:2], difference[1::2]  # of each layer's attention, `[layer]`
    finite = np.isfinite(before) & np.isfinite(after) & (before > TOLERANCE)
    ratio = after[finite] / before[finite]
    averages = ratio.size and ratio.max() < 1 + 0.1 * TOLERANCE and ratio.min() < 1 - TOLERANCE
    return Law("averages") if averages else None


def _spread(_: Profile, config: Config) -> Law | None:
    """The variance of the logits, q·k of what attention reads over the divisor: d_head g_Q g_K
    q (q − p) / divisor², with q and p the second moments of a token and of what all share.

    None where something else decides it."""
    design = config.design
    if not design.attends:
        return None
    replaced = design.normalizes_heads or config.logit_cap or design.point
    added = design.inherits or design.rotates or config.bias_variance
    # the first rows of a causal pattern have few keys: their spread is smaller
    uneven = config.causal or set(design.row_factors) != {1.0}
    if replaced or added or uneven:
        return None
    factor = config.d_head / design.divisor**2
    key = "divided_by_root" if factor == 1 else "divided"
    return Law(key, {"law": _times(factor, "g_Q g_K q (q − p)")})


def _pattern(_: Profile, config: Config) -> Law | None:
    """The effect of the logits' spread on a pattern."""
    return Law("sharpens") if config.design.attends else None


def _weight_variance(_: Profile, config: Config) -> Law | None:
    """The effect of a matrix's variance, unless a factor of the forward pass makes up for it."""
    return None if config.design.scales_forward else Law("multiplies")


LAWS: Mapping[str, Callable[[Profile, Config], Law | None]] = MappingProxyType(
    {
        "second_moment": _second_moment,
        "activation_gradient": _activation_gradient,
        "attention_entropy_normalized": _softmax,
        "token_correlation": _correlation,
        "attention_pattern": _pattern,
        "logit_std": _spread,
        "attention_max": _softmax,
        "weight_variance": _weight_variance,
    }
)
"""By statistic: the law of a design, from its predicted profile; None where none holds."""
TABLE = tomllib.loads(Path(__file__).with_name("why.toml").read_text(encoding="utf-8"))
"""The tables of `why.toml`; laws and aliases are taken out of them below."""
SENTENCES: Mapping[str, Mapping[str, str]] = {
    name: row.pop("laws", {}) for name, row in TABLE.items()
}
"""The sentences of each statistic's laws, with placeholders."""
ALIASES: Mapping[str, str] = {
    alias: name for name, row in TABLE.items() for alias in row.pop("aliases", ())
}
"""Names that a race's maps have for the same statistic."""
WHYS: Mapping[str, Why] = {name: Why(**row) for name, row in TABLE.items()}
"""By statistic, or by the name of a figure that shows none: the words, if any, hold for all designs
and in training."""


def why(name: str, *predicted: Profile) -> Why:
    """The line of a statistic or figure; empty where there is none.

    Args:
        predicted: theory's profiles of the drawn designs; the words are left out where they differ.
    """
    name = ALIASES.get(name, name)
    row = WHYS.get(name, Why())
    row = row._replace(words=translated(row.words))
    if name not in LAWS:
        return row
    words = {
        _sentence(name, LAWS[name](profile, profile.config or Config())) for profile in predicted
    }
    return row._replace(words=words.pop()) if len(words) == 1 else row


def _sentence(name: str, law: Law | None) -> str:
    """The sentence of a statistic's law with its values put in; empty where no law holds."""
    return translated(SENTENCES[name][law.key], **law.values) if law else ""
