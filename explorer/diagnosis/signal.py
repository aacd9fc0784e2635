"""Rules on the signal as a whole: does it pass through, forward and back, and do the tokens stay
apart.

And on its numbers and their type: values out of range, terms too small to add, outlier features,
growing logits.

What a rule calls bad is what training showed (see `finding.Severity`); `python -m
benchmarks.verdicts` scores them and chooses `LEAST_DIFFERENCE`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from explorer.diagnosis.faults import held, origin, overflow_remedy
from explorer.diagnosis.finding import (
    NO_REMEDY,
    VERDICTS,
    Finding,
    Quantity,
    finding,
    quantity,
    text,
)
from explorer.diagnosis.reading import (
    GROWN,
    NONE,
    Line,
    by_layer,
    capitalized,
    line,
    numbered,
    only_added,
    place,
    start,
    weight_gradients,
)
from explorer.diagnosis.remedies import LARGE, awake, calm, distinct, even, fix, soft
from explorer.diagnosis.structure import unmoved
from explorer.foreign import LOGITS, Fault
from explorer.profile import ALMOST_ZERO, FIRST_STEP, OTHER_TOKENS, Breakdown, Profile
from explorer.sites import BRANCHES, SITE_WORDS
from explorer.theory.inputs import log_sum
from explorer.translation import sentences, translated
from explorer.vocabulary import STATISTICS, VOCABULARY, WEIGHT_STATISTICS, Array, Key


class Bounds(NamedTuple):
    """Least shares of the difference between tokens at any depth: with less, small models need
    warm-up, or fail."""

    without: float
    """Below it few trained without warm-up."""
    warmed: float
    """Below it none of the named designs trained, with 100 steps of warm-up or without."""


LEAST_DIFFERENCE = Bounds(without=0.47, warmed=0.29)
"""Each in the middle of a gap between designs of docs/training.csv; `python -m
benchmarks.verdicts`."""
LEAST_DIFFERENCE_OF_MLPS = Bounds(without=0.17, warmed=0.17)
"""Least difference without attention, where branches blur tokens but do not mix them: Post-LN of
MLPs alone trained at
0.28 and did not at 0.10."""
GROWTH = 1e3
"""A second moment that grows or shrinks by more than this from input to output is multiplied, not
added to."""
ONE_HOT = 0.2
"""Entropy over ln n: Pre-LN without √d trained at 0.35, and with larger weights did not at 0.14."""
STEEP = 1e5
"""Ratio of mean squared gradients between the two ends. Adam evens out less: Pre-LN with α = 4
trained at 2,900, and designs from 10⁶ on did not."""
RESOLVED = 1e-5
"""1 − ρ at the input below which the tokens are already alike."""
UNTOUCHED = 1e-6
"""Relative change of the second moment up to which a stream is as it came in."""

SQUARED = 1e18
"""Largest |x| from which on squares may leave float32, which ends at 3.4e38."""
LEVEL = 1.05
"""Change over depth up to which a signal is called level."""


def not_finite(profile: Profile) -> Finding | None:
    """A value that is not finite: it is too large for the arithmetic."""
    signals = {
        key: _defined(profile, key) for key in profile.values if key[0] not in WEIGHT_STATISTICS
    }
    first = replace(profile, values=signals, pattern=None).first_nonfinite
    cause = _cause(profile, grows=True)
    known: dict[str, object] = {"layer": "", "statistic": "", "site": ""}
    if first is not None:
        known = {
            "statistic": VOCABULARY[first.statistic].label.lower(),
            "site": first.site_label,
            "layer": numbered(profile, first.layer),
        }
    fault = origin(profile)
    if fault is not None:
        evidence = text("not_finite", "evidence", **known) if first is not None else ""
        return _bad_operation(profile, fault, cause, evidence)
    if first is None:
        return None
    meaning, remedy = "meaning", fix(profile, cause, calm)
    if VOCABULARY[first.statistic].backward:
        if profile.config is None:
            meaning, remedy = "backward", NO_REMEDY
    elif _finite(profile, first):
        meaning = "squares"
    return finding("bad", "not_finite", meaning, "evidence", remedy=remedy, **known)


def _bad_operation(profile: Profile, fault: Fault, cause: str, evidence: str) -> Finding:
    """The finding on the operation whose result is the first that is not finite.

    Args:
        cause: key of the cure of what makes the signal grow, where that was read.
        evidence: sentence on the first statistic that is not finite; empty where all are.
    """
    cures = {"empty_row": "visible", "divided_by_zero": "epsilon", "batch": "clean_batch"}
    remedy = fix(profile, cures.get(fault.kind, ""))
    if fault.kind == "overflow":
        remedy = overflow_remedy(profile, fault, cause)
    meaning = fault.kind
    if not fault.layer and f"{meaning}_after" in VERDICTS["not_finite"]:
        meaning = f"{meaning}_after"
    result = finding(
        "bad",
        "not_finite",
        meaning,
        f"{fault.kind}_evidence",
        remedy=remedy,
        layer=numbered(profile, fault.layer),
        place=fault.place,
        name=fault.name,
        end=fault.value,
        count=int(fault.value),
    )
    return replace(result, evidence=sentences([result.evidence, evidence]))


def _finite(profile: Profile, first: Breakdown) -> bool:
    """Whether the signal itself is finite at a place where its second moment is infinite."""
    largest, square = (
        profile.values.get((name, first.site)) for name in ("max_abs", "second_moment")
    )
    if largest is None or square is None or not np.isfinite(largest).all():
        return False
    return bool(np.isinf(square).any() and largest.max() > SQUARED)


def _defined(profile: Profile, key: Key) -> Array:
    """Values of a statistic, with 0 where it is 0 / 0 because the signal is 0: tokens of zeros have
    no correlation."""
    statistic, site = key
    row, values = STATISTICS[statistic], profile.values[key]
    square = "second_moment_by_position" if row.by_position else "second_moment"
    size = profile.values.get((square, site))
    if not row.undefined_at_0 or size is None or size.shape != values.shape:
        return values
    return np.where((size == 0) & np.isnan(values), 0.0, values)


def nothing_learns(profile: Profile) -> Finding | None:
    """Layers in which every gradient is exactly zero: no optimizer can move their weights.

    Of a model that is not ours the rules of `learning` know more, where each parameter's gradient
    was read."""
    if profile.learning.parts:
        return None
    # [site, layer]
    largest = np.array(
        [np.abs(values).max(axis=0) for values in weight_gradients(profile).values()]
    )
    dead = np.flatnonzero(largest.max(axis=0) == 0) + 1 if largest.size else np.empty(0)
    every, n_layers = len(dead) == largest.shape[-1], largest.shape[-1]
    note = profile.notes.get("activation_gradient", "")
    if not len(dead) or (profile.config is None and unmoved(profile)):  # the latter says more
        return None
    if every and note.startswith(FIRST_STEP):
        return finding(
            "good",
            "nothing_learns",
            "later",
            "later_evidence",
            note=capitalized(note),
            layers=n_layers,
        )
    cure, extent = "not_zero" if _untouched(profile) else "reached", "nothing" if every else "some"
    return finding(
        "bad",
        "nothing_learns",
        extent,
        f"{extent}_evidence",
        remedy=fix(profile, cure, awake),
        dead=len(dead),
        layers=n_layers,
        layer=numbered(profile, int(dead[0])),
    )


def runs_away(profile: Profile) -> Finding | None:
    """The second moment is multiplied at each layer, up or down, instead of added to."""
    growth = _growth(profile)
    if not np.isfinite(growth.ratio) or 1 / GROWTH <= growth.ratio <= growth.limit:
        return None
    explodes, most = growth.ratio > 1, _largest_step(profile)
    return finding(
        "bad",
        "runs_away",
        "explodes" if explodes else "dies_out",
        "evidence_most" if most else "evidence",
        remedy=fix(profile, _cause(profile, grows=explodes), calm),
        ratio=growth.ratio,
        first=growth.first,
        where=growth.where,
        last=growth.last,
        limit=growth.limit if explodes else 1 / GROWTH,
        **most,
    )


class _Growth(NamedTuple):
    """The second moment where depth begins and after the last layer; nan where a profile has
    none."""

    first: float
    last: float
    where: str
    """Where depth begins, in words."""
    limit: float
    """The largest healthy ratio."""

    @property
    def ratio(self) -> float:
        """Last over first."""
        return float(np.divide(self.last, self.first))


def _growth(profile: Profile) -> _Growth:
    q, begin = line(profile, "second_moment"), start(profile)
    if not len(q.depth):
        return _Growth(np.nan, np.nan, "", GROWTH)
    where = text("phrase", "at_input")
    if begin or q.depth[0]:
        layer = q.depth[np.searchsorted(q.depth, begin)]
        where = text("phrase", "after_layer", layer=f"{layer:g}")
    # Adding unit branches is growth by 2 a layer, and healthy after a pre-norm however deep the
    # stack.
    limit = max(GROWTH, 4.0 * (2 * q.depth[-1] + 1))
    return _Growth(q.at(begin), float(q.values[-1]), where, limit)


def _largest_step(profile: Profile) -> dict[str, object]:
    """The layer of a model that is not ours by which the second moment changes most, and the
    factor."""
    q = line(profile, "second_moment")
    growth = np.abs(np.log(q.values[1:] / q.values[:-1]))
    if profile.config or not np.isfinite(growth).any():
        return {}
    at = int(np.nanargmax(np.where(np.isfinite(growth), growth, np.nan)))
    return {
        "step": q.values[at + 1] / q.values[at],
        "layer": numbered(profile, np.ceil(q.depth[at + 1])),
    }


def one_hot(profile: Profile) -> Finding | None:
    """Attention picks a single token: the logits are too wide for softmax."""
    entropy = by_layer(profile, "attention_entropy_normalized", "pattern")
    worst = int(np.argmin(np.nan_to_num(entropy, nan=1.0))) if len(entropy) else 0
    if not len(entropy) or not entropy[worst] < ONE_HOT:
        return None
    largest, q = by_layer(profile, "attention_max", "pattern"), line(profile, "second_moment")
    grows = bool(len(q.values)) and not q.values[-1] < GROWN * q.values[0]
    at_once = bool(_known(entropy)[0] < ONE_HOT)
    return finding(
        "bad",
        "one_hot",
        "trained" if profile.step else "starts",
        "evidence_weight" if len(largest) else "evidence",
        _fate(profile),
        entropy=entropy[worst],
        limit=ONE_HOT,
        layer=numbered(profile, worst + 1),
        weight=largest[worst] if len(largest) else None,
        remedy=fix(
            profile, _softer(profile, at_once, grows), lambda config: soft(config, at_once, grows)
        ),
    )


def _known(values: Array) -> Array:
    """Values of the layers that attend; in a hybrid the others have none."""
    return values[np.isfinite(values)]


def gradient_steep(profile: Profile) -> Finding | None:
    """The gradient is multiplied at each layer on its way back."""
    ratio = _steepness(profile)
    if not np.isfinite(ratio) or 1 / STEEP <= ratio <= STEEP:
        return None
    explodes = ratio > 1
    word = "explodes" if explodes else "vanishes"
    return finding(
        "bad",
        "gradient_steep",
        word,
        f"{word}_evidence",
        _fate(profile) if explodes else "",
        remedy=fix(profile, _cause(profile, grows=explodes), even),
        ratio=ratio,
        limit=STEEP if explodes else 1 / STEEP,
    )


def _steepness(profile: Profile) -> float:
    """Mean squared gradient where depth begins, as a multiple of the output's."""
    return line(profile, "activation_gradient").at(1.0 if zero_token(profile) else start(profile))


def zero_token(profile: Profile) -> Finding | None:
    """Tokens that are zero where the stream begins: the first norm divides by √ε there, and not by
    their size."""
    gradient, note = (
        line(profile, "activation_gradient"),
        profile.notes.get("activation_gradient", ""),
    )
    if not note.endswith(ALMOST_ZERO) or not gradient.at(0.0) > GROWTH * gradient.at(1.0):
        return None
    return finding(
        "warning",
        "zero_token",
        "meaning",
        "evidence",
        remedy=fix(profile, "not_zero_token"),
        note=translated(note),
        input=gradient.at(0.0),
        first=gradient.at(1.0),
    )


def alike(profile: Profile) -> Finding | None:
    """Attention averages the tokens, and norms on the sum remove the differences between them."""
    share, least = _difference(profile), _least_difference(profile)
    if not len(share.values) or not share.values.min() < least.without:
        return None
    at = int(np.argmin(share.values))
    bad = bool(share.values[at] < least.warmed)
    return finding(
        "bad" if bad else "warning",
        "alike",
        "alike" if bad or profile.step else "more_alike",
        "evidence",
        _fate(profile, warmed=bad),
        remedy=fix(profile, _blurs(profile), distinct),
        kept=max(0.0, share.values[at]),
        limit=least.warmed if bad else least.without,
        layer=numbered(profile, share.depth[at]),
        correlation=line(profile, "token_correlation").values[-1],
    )


def _outgrown(profile: Profile) -> bool:
    """Whether tokens become more alike because branches are larger than the input, which stays in
    the sum.

    Models of width 32 and 6 layers, built as BitNet, GLM-4, Gemma 2 and T5Gemma 2 with their
    embeddings of standard deviation 0.02, kept 4 to 45 % of the difference beside the first layer,
    and trained without warm-up. Designs of our own are judged by limits that were set with their
    inputs in the count."""
    return profile.config is None and start(profile) > 0 and only_added(profile)


def _least_difference(profile: Profile) -> Bounds:
    return (
        LEAST_DIFFERENCE
        if ("attention_max", "pattern") in profile.values
        else LEAST_DIFFERENCE_OF_MLPS
    )


def silent(profile: Profile) -> Finding | None:
    """Branches that add nothing yet: their last factor is zero, and learns first."""
    sizes = {site: values[:, 0].mean() for site, values in weight_gradients(profile).items()}
    quiet = [site for site, size in sizes.items() if size == 0]
    loud = [site for site, size in sizes.items() if size > 0]
    if profile.step or not quiet or not loud or not _untouched(profile) or profile.learning.parts:
        return None
    first = loud[-1]  # α, or the last matrix of the MLP
    return finding(
        "good",
        "silent",
        "meaning",
        "evidence",
        silent=text("phrase", "comma").join(quiet),
        first="α" if first == "alpha" else first,
        size=sizes[first],
    )


def _untouched(profile: Profile) -> bool:
    """Whether the stream stays as it came in."""
    q = line(profile, "second_moment").values
    return len(q) > 0 and bool(np.allclose(q, q[0], rtol=UNTOUCHED))


def token_difference(profile: Profile) -> Array:
    """Difference between tokens, q (1 − ρ), by depth `[site]` as a share of the input's.

    Empty where tokens are alike to begin with, where a value is not finite, and where the input is
    only outgrown."""
    return _difference(profile).values


def _difference(profile: Profile) -> Line:
    """`token_difference` with its depths: the sites at which both of its factors are known."""
    rho, q = line(profile, "token_correlation"), line(profile, "second_moment")
    depth, in_rho, in_q = np.intersect1d(rho.depth, q.depth, return_indices=True)
    size, unlike = q.values[in_q], 1 - rho.values[in_rho]
    pooled = profile.notes.get("token_correlation", "").startswith(OTHER_TOKENS)
    if pooled or _outgrown(profile) or not len(depth) or not np.isfinite(size * unlike).all():
        return Line(NONE, NONE)
    if not unlike[0] > RESOLVED:
        return Line(NONE, NONE)
    begin = start(profile)
    share = size * unlike / (Line(depth, size).at(begin) * unlike[0])
    return Line(depth, np.where(depth < begin, 1.0, share))


def healthy(profile: Profile) -> Finding:
    """A profile in which no rule found anything: by how much signal and gradient change, and the
    limits."""
    growth, steep = _growth(profile), _steepness(profile)
    changes = [
        _change(ratio)
        for ratio in (growth.ratio, steep)
        if np.isfinite(growth.ratio) and np.isfinite(ratio)
    ]
    # How small models trained is added for a model that is not ours and is untrained.
    foreign = profile.config is None and not profile.step
    return finding(
        "good",
        "healthy",
        "_".join(changes) or "unknown",
        "evidence" if foreign else "",
        limit=growth.limit,
        steep=STEEP,
        signal=max(growth.ratio, 1 / growth.ratio),
        gradient=max(steep, 1 / steep),
    )


def _change(ratio: float) -> str:
    """Key of the word for a ratio over depth."""
    if 1 / LEVEL < ratio < LEVEL:
        return "level"
    return "grows" if ratio > 1 else "shrinks"


def quantities(profile: Profile) -> tuple[Quantity, ...]:
    """The numbers that the rules on the signal weigh, each beside its limit; those that are not
    known are left out."""
    growth, steep, least = _growth(profile), _steepness(profile), _least_difference(profile)
    begins = text("phrase", "after_layer", layer=1) if zero_token(profile) else growth.where
    difference = _difference(profile).values.min(initial=np.inf)
    entropy = np.nanmin(
        by_layer(profile, "attention_entropy_normalized", "pattern"), initial=np.inf
    )
    rows = [
        (
            growth.ratio,
            quantity(
                "second_moment",
                where=growth.where,
                first=growth.first,
                last=growth.last,
                ratio=growth.ratio,
                least=1 / GROWTH,
                most=growth.limit,
            ),
        ),
        (steep, quantity("gradient", where=begins, ratio=steep, least=1 / STEEP, most=STEEP)),
        (
            difference,
            quantity(
                "difference", share=min(difference, 1.0), cold=least.without, warmed=least.warmed
            ),
        ),
        (entropy, quantity("entropy", share=min(entropy, 1.0), least=ONE_HOT)),
    ]
    return tuple(row for value, row in rows if np.isfinite(value))


def _cause(profile: Profile, *, grows: bool) -> str:
    """The cure of what makes a signal or a gradient grow or shrink over depth; empty where no cause
    was read.

    Causes are weights that are too large, or too small without a norm; layers without any norm;
    norms on the sum alone, through which the gradient shrinks; and layers that leave out the
    stream."""
    typical, traits = _typical(profile), profile.traits
    bare = "no norm" in traits
    if grows and typical > LARGE:
        return "unit_variance"
    if not grows and typical < 1 / LARGE**2 and bare:
        return "unit_variance"
    if not grows and "no residual" in traits:
        return "residual"
    needs_norm = bare if grows else "norm on the sum alone" in traits
    return "pre_norm" if needs_norm else ""


def _typical(profile: Profile) -> float:
    """Median weight variance of the layers' matrices; nan where it is not known."""
    sizes = [
        values.ravel() for (name, _), values in profile.values.items() if name == "weight_variance"
    ]
    known = np.concatenate(sizes) if sizes else NONE
    known = known[np.isfinite(known) & (known > 0)]
    return float(np.median(known)) if len(known) else math.nan


def _blurs(profile: Profile) -> str:
    """The cure of what makes tokens alike; empty where no cause was read."""
    if held(profile, "doubled") or "no residual" in profile.traits:
        return "residual"
    if "norm on the sum alone" in profile.traits:
        return "pre_norm"
    return "unit_variance" if _typical(profile) > LARGE else ""


def _softer(profile: Profile, at_once: bool, grows: bool) -> str:
    """The cure of logits that are too wide, from what was read of the model; `remedies.soft`
    chooses by a config.

    Args:
        at_once: whether attention picks single tokens in the first layer already.
        grows: whether the stream grows over depth.
    """
    sizes = []
    for site in ("W_Q", "W_K"):
        variances = by_layer(profile, "weight_variance", site)
        if len(variances):
            sizes.append(variances.mean())
    if not at_once and grows and "no norm" in profile.traits:
        return "pre_norm"
    if at_once and sizes and np.mean(sizes) > LARGE:
        return "unit_variance"
    if "logits not divided" in profile.traits:
        return "divided"
    return _normed(profile)


def _normed(profile: Profile) -> str:
    """Norms on queries and keys, where it was read that there are none."""
    return "qk_norm" if "no norm on queries and keys" in profile.traits else ""


def _fate(profile: Profile, *, warmed: bool = True) -> str:
    """Key of the sentence on how small models beyond a bound trained; none for a model that was
    trained itself."""
    if profile.step:
        return ""
    return "fate.warmed" if warmed else "fate.cold"


class Format(NamedTuple):
    """A floating-point type."""

    largest: float
    bits: int
    """Bits of its significand, with the leading one."""


FORMATS = {
    "float16": Format(65504.0, 11),
    "bfloat16": Format(3.3895e38, 8),
    "float32": Format(3.4028e38, 24),
    "float64": Format(1.7977e308, 53),
}
HEADROOM = 2.0
"""A batch of 10⁴ Gaussian numbers shows half of the largest that a training of 10¹⁵ meets: √(15 /
4) = 1.9."""
OUTLIERS = 12.0
"""Kurtosis that initialization does not reach: 3 where all tokens are alike and features Gaussian,
and its estimate from d features scatters by √(24/d), of which 12 is ten at d = 32. Trained models
reach hundreds: He et al. 2024, arXiv
2405.19279."""
EXCESS = 1.0
"""Nats above ln V from which on a loss is large: logits of variance 2. A readout of variance
1/fan_in has variance 1 after a norm, and adds half as much; torch's own, 1/3."""
RISEN = 10.0
"""Growth of the logits' spread over depth beyond that of added logits, √N, in any model of up to
100 layers."""


def large_loss(profile: Profile) -> Finding | None:
    """A cross-entropy, before any step of training, that is far above that of an even guess."""
    held = profile.logits
    if profile.step or not all(name in held for name in LOGITS) or held["classes"] < 2:
        return None
    uniform, loss = math.log(held["classes"]), held["loss"]
    if not loss - 3 * held["error"] > uniform + EXCESS:
        return None
    expected = log_sum(int(held["classes"]), math.sqrt(held["variance"]))
    return finding(
        "warning",
        "large_loss",
        "meaning",
        "evidence",
        remedy=fix(profile, "small_readout"),
        loss=loss,
        even=uniform,
        expected=expected,
        classes=int(held["classes"]),
        variance=held["variance"],
        rms=held["rms"],
        largest=held["largest"],
        square=held["square_log_sum"],
    )


def headroom(profile: Profile) -> Finding | None:
    """Values near the largest number that the type of the stream can hold."""
    format_ = FORMATS.get(profile.dtype)
    peaks = [
        (float(values.max()), int(np.argmax(values.max(axis=0))) + (site != "embed"), site)
        for (name, site), values in profile.values.items()
        if name == "max_abs" and np.isfinite(values).all()
    ]
    if format_ is None or not peaks or max(peaks)[0] * HEADROOM < format_.largest:
        return None
    largest, layer, site = max(peaks)
    beyond = largest > format_.largest
    return finding(
        "bad" if beyond else "warning",
        "headroom",
        "beyond" if beyond else "close",
        "evidence",
        remedy=fix(profile, "wider" if profile.dtype == "float16" else ""),
        dtype=profile.dtype,
        largest=largest,
        site=SITE_WORDS[site],
        layer=numbered(profile, layer),
        end=format_.largest,
    )


def lost(profile: Profile) -> Finding | None:
    """Branches that are too small beside the stream for a sum in its type to change."""
    format_, stream = FORMATS.get(profile.dtype), by_layer(profile, "second_moment", "resid_post")
    if format_ is None or not len(stream):
        return None
    for site in BRANCHES:
        branch = by_layer(profile, "second_moment", site)
        if len(branch) != len(stream):
            continue
        share = np.sqrt(branch / stream)
        gone = np.flatnonzero((branch > 0) & (share < 2.0 ** -(format_.bits + 1))) + 1
        if len(gone):
            return finding(
                "warning",
                "lost",
                "meaning",
                "evidence_more" if len(gone) > 1 else "evidence",
                remedy=fix(profile, "exact" if profile.dtype in ("float16", "bfloat16") else ""),
                dtype=profile.dtype,
                site=SITE_WORDS[site],
                share=share[gone[0] - 1],
                layer=numbered(profile, int(gone[0])),
                more=len(gone) - 1,
                bits=format_.bits,
                least=2.0 ** -(format_.bits + 1),
            )
    return None


def outliers(profile: Profile) -> Finding | None:
    """A few features that are much larger than the others."""
    kurtosis = line(profile, "kurtosis")
    if not (kurtosis.values > OUTLIERS).any():
        return None
    at = int(np.nanargmax(kurtosis.values))
    first = int(np.argmax(kurtosis.values > OUTLIERS))
    where, since = (place(profile, kurtosis.depth[index]) for index in (at, first))
    return finding(
        "warning",
        "outliers",
        "meaning",
        "evidence",
        remedy=fix(profile, "wide_features"),
        kurtosis=kurtosis.values[at],
        where=where,
        limit=OUTLIERS,
        first=since,
    )


def logit_growth(profile: Profile) -> Finding | None:
    """Attention logits that widen from layer to layer, and have become too wide to average."""
    spread, entropy, nats = (
        _known(by_layer(profile, *key))
        for key in (
            ("logit_std", "attn_scores"),
            ("attention_entropy_normalized", "pattern"),
            ("attention_entropy", "pattern"),
        )
    )
    if (
        len(spread) < 2
        or len(entropy) != len(spread)
        or len(nats) != len(spread)
        or not np.all(entropy >= ONE_HOT)
    ):
        return None  # one-hot attention has a finding of its own
    # √(2 ln n): random energies, Derrida 1981
    freezes = math.sqrt(2 * float(np.median(nats / entropy)))
    if not (spread[-1] > RISEN * spread[0] and spread[-1] > freezes > spread[0]):
        return None
    return finding(
        "warning",
        "logit_growth",
        "meaning",
        "evidence",
        remedy=fix(profile, _normed(profile)),
        first=spread[0],
        last=spread[-1],
        limit=freezes,
    )
