"""Distance of a measurement from its prediction, in numbers and in words, and the first layer off
theory's line."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from explorer.diagnosis.finding import Finding, finding, text
from explorer.diagnosis.reading import (
    by_layer,
    capitalized,
    comparable,
    numbered,
    path,
    spread,
    start,
    stated,
    unlike,
    worst,
)
from explorer.diagnosis.remedies import fix
from explorer.profile import Profile, index_of
from explorer.sites import BRANCHES, SITE_WORDS
from explorer.theory import predict
from explorer.theory.scatter import LINE
from explorer.translation import translated
from explorer.vocabulary import STATISTICS, Array, Key, Statistic

CLOSE = {True: 0.02, False: 0.05}
"""Differences (bounded) and relative errors up to here are what a model of finite width does."""
ERRORS, CHANCE = 3.0, 0.05
"""Standard errors up to which more than that still agrees; and the share of sets of seeds in which
chance alone may call one of all the values that are compared off theory."""
PLACES = (
    ("logit_std", "attn_scores"),
    ("second_moment", "attn_out"),
    ("second_moment", "resid_mid"),
    ("second_moment", "mlp_out"),
    ("second_moment", "resid_post"),
)
"""Statistics that are compared, with their sites, in the order of the forward pass."""
SUMS = ("resid_mid", "resid_post")


class Agreement(NamedTuple):
    """A verdict on one statistic: a few words, whether they are good news, and the worst error over
    depth."""

    words: str
    tone: Literal["good", "warn", ""]
    worst: float
    rule: str = ""
    """The rule of the tone, in one sentence; empty where nothing was compared."""


def agreement(measured: Profile, predicted: Profile, statistic: str, layer: int = 0) -> Agreement:
    """Compares the mean over seeds and heads with the prediction, at every site that both have, in
    standard errors.

    A root mean square is compared where that is predicted. The worst error is a difference for
    statistics between 0 and 1, a ratio less one for all others; nan where the theory covers
    nothing. Where it stops half-way, the words say which layers were compared. What is fixed by
    definition does not count as agreement. Of a statistic by position one layer is compared, from
    1; 0 is the last."""
    row, note = STATISTICS[statistic], predicted.notes.get(statistic, "")
    # Beside the stream, branches are part of the record but not of the line that is drawn.
    keys = [
        key
        for key in predicted.values
        if key[0] == statistic
        and key in measured.values
        and not (row.on_stream and key[1] in BRANCHES)
    ]
    sites = [_compared(measured, predicted, key, layer) for key in keys]
    if not any(site.covered.any() for site in sites):
        return Agreement(_uncovered(note), "", math.nan)
    covered = np.concatenate([site.covered for site in sites])
    missing = np.concatenate([site.depth for site in sites])[~covered].tolist()
    known = _Compared(*(np.concatenate(part)[covered] for part in zip(*sites, strict=True)))
    if not known.free.any() and (known.error <= CLOSE[row.bounded]).all():
        # its reason stands in the caption where a part of it is drawn
        words = _uncovered(note.partition(":")[0]) if missing else text("agreement", "fixed")
        return Agreement(words, "", math.nan)
    seeds, count = len(measured.values[keys[0]]), int(known.scatters.sum()) or len(known.error)
    limit = most_errors(seeds, count)
    words, tone = _judged(known, limit, row)
    depth = known.depth[known.free] if known.free.any() else known.depth
    words = _where(words, depth.tolist(), missing)
    return Agreement(words, tone, float(known.error.max()), _rule(row.bounded, seeds, count, limit))


class _Compared(NamedTuple):
    """A statistic at one site beside its prediction, each `[layer]`, or `[position]` of a
    layer."""

    error: Array
    """Difference, or ratio less one: see `distance`."""
    standard: Array
    """The error in standard errors: see `standard_errors`."""
    least: Array
    """`standard`, if draws scattered as those of the expected size do: see `_at_least`."""
    depth: Array
    """In layers, or the position, from 1."""
    free: NDArray[np.bool_]
    """Whether it could differ: see `_fixed`."""
    scatters: NDArray[np.bool_]
    """Whether draws differ: see `_exact`."""
    covered: NDArray[np.bool_]
    """Whether theory has a value, and the measured model a layer there."""


def _compared(measured: Profile, predicted: Profile, key: Key, layer: int) -> _Compared:
    """A statistic at one site beside its prediction; `layer` is that of a statistic by position."""
    row, values = STATISTICS[key[0]], []
    for profile in (measured, predicted):
        part = profile.values[key]
        if row.by_position:
            part = part[:, index_of(layer, part.shape[1])]
        elif part.ndim > 2:
            part = row.mean(part, tuple(range(2, part.ndim)))
        values.append(part)
    draws, expected = values[0], values[1][0]
    absent = np.isin(np.arange(1, len(expected) + 1), measured.absent.get(key, ()))
    scatters = ~_exact(predicted, key, layer)
    scatter = predicted.scatter.get(key)
    with np.errstate(all="ignore"):
        mean, error = row.mean(draws), row.standard_error(draws)
    standard = standard_errors(
        row, mean, error, expected, None if scatter is None else scatter[0], len(draws)
    )
    standard = np.where(np.isnan(standard) & ~scatters, math.inf, standard)  # of one seed, too
    return _Compared(
        distance(mean, expected, row.bounded),
        standard,
        _at_least(row, draws, expected, standard),
        np.arange(1.0, len(expected) + 1) if row.by_position else predicted.depth(key[1]),
        ~_fixed(predicted, key, layer),
        scatters,
        np.isfinite(expected) & ~absent,
    )


def most_errors(seeds: int, count: int, chance: float = CHANCE) -> float:
    """Standard errors beyond which the worst of so many values is off theory.

    Student's t, as the standard error is estimated from the seeds, at a chance shared by all values
    (Bonferroni)."""
    return max(ERRORS, float(stdtrit(seeds - 1, 1 - chance / 2 / count))) if seeds > 1 else ERRORS


def _judged(
    known: _Compared, limit: float, row: Statistic
) -> tuple[str, Literal["good", "warn", ""]]:
    """Words and tone: of the worst value that is off, else of the worst that may be off, else of
    the worst that is far but within errors, else of the worst.

    Args:
        limit: standard errors from which on a value is off.
    """
    error, standard, least, depth, *_ = known
    far = ~(error <= CLOSE[row.bounded])  # of what is not a number, too
    off, unclear = far & ((least > limit) | np.isnan(error)), far & ~(standard <= ERRORS)
    among = next(mask for mask in (off, unclear, far, ~far) if mask.any())
    worst = int(np.argmax(np.where(among, np.nan_to_num(error, nan=math.inf), -1.0)))
    if not math.isfinite(error[worst]):
        return text("agreement", "not_finite"), "warn"
    tone: Literal["good", "warn", ""]
    if off.any():
        key, tone = "off_errors" if math.isfinite(standard[worst]) else "off", "warn"
    elif unclear.any():
        key, tone = "unclear_seed" if math.isnan(standard[worst]) else "unclear", ""
    else:
        key, tone = "within_errors" if far.any() else "within", "good"
    phrase = "at_layer" if depth[worst] else "at_input"
    if row.by_position:
        phrase = "at_token"
    place = text("phrase", phrase, layer=int(np.ceil(depth[worst])))  # ½ is within layer 1
    errors = text(
        "agreement",
        "errors" if standard[worst] < 100 else "many_errors",
        count=float(standard[worst]),
    )
    return text(
        "agreement",
        key,
        size=_size(max(error[worst], 0.001), row.bounded),
        place=place,
        errors=errors,
    ), tone


def _rule(bounded: bool, seeds: int, count: int, limit: float) -> str:
    """When a statistic is called near theory, and when off, in one sentence.

    Args:
        bounded: whether its values are compared by differences, else by ratios.
        count: values that are compared.
        limit: standard errors from which on one of them is off.
    """
    close = f"{CLOSE[True]:g}" if bounded else f"{100 * CLOSE[False]:g} %"
    return text(
        "agreement",
        "rule_seed" if seeds == 1 else "rule",
        close=close,
        errors=ERRORS,
        limit=limit,
        count=count,
        chance=100 * CHANCE,
        seeds=seeds,
    )


def standard_errors(
    row: Statistic, mean: Array, error: Array, expected: Array, scatter: Array | None, count: int
) -> Array:
    """Distance of a mean over draws from the prediction in standard errors: nan of a single draw.

    Where draws scatter by factors it is the distance of the logarithms. A few draws may happen to
    lie close together: their error is at least that of as many draws which scatter as predicted.
    The line has an error of its own, `LINE`.

    Args:
        mean: `row.mean` of the draws, `[layer]`.
        error: its standard error.
        scatter: standard deviation of a draw's logarithm, as predicted, `[layer]`; or None.
        count: number of draws.
    """
    with np.errstate(all="ignore"):
        if row.by_factors:
            away = np.abs(np.log(mean / expected))
            error = error / mean
            if scatter is not None and count > 1:
                error = np.fmax(error, scatter / math.sqrt(count))
                error = np.hypot(error, LINE * scatter**2)
        else:
            away = np.abs(mean - expected) * ((mean + expected) / (2 * mean) if row.root else 1.0)
        away = np.where(mean == expected, 0.0, away)  # of two zeros, too
        return np.where(away == 0, 0 * error, away / error)


def _at_least(row: Statistic, draws: Array, expected: Array, standard: Array) -> Array:
    """`standard`, see `standard_errors`, but with the scatter that draws of the expected size
    would have.

    Numbers above 0 scatter in proportion to their size. A few draws that all happen to be small,
    far below a mean that larger ones carry, seem to scatter too little."""
    if row.bounded or row.by_factors:
        return standard
    with np.errstate(all="ignore"):
        enlarged = np.fmax(expected / row.mean(draws), 1.0)
        if row.root:
            enlarged = enlarged**2  # the squares are what is averaged
        least: Array = standard / enlarged
        return least


def _fixed(profile: Profile, key: Key, layer: int = 0) -> NDArray[np.bool_]:
    """Mask of the values that agree by definition, `[layer]`: those of `_exact`, the input, which
    is set, and what stands half a layer before the reference, and can hardly be elsewhere."""
    statistic, site = key
    reference, fixed = STATISTICS[statistic].reference, _exact(profile, key, layer)
    if reference == "last layer":
        fixed |= profile.depth(site) > max(profile.depth("resid_post")) - 1
    return fixed | (reference == "input" and site == "embed")


def _exact(profile: Profile, key: Key, layer: int = 0) -> NDArray[np.bool_]:
    """Mask of the values that are the same in every draw, `[layer]`: the reference, and those right
    after a norm.

    Others that agree by definition scatter all the same: the input's tokens are drawn. Of one layer
    `[position]` where the statistic has positions."""
    statistic, site = key
    places = profile.config.design.sublayers if profile.config else ()
    if STATISTICS[statistic].by_position:
        normed = bool(places) and places[1::2][index_of(layer, len(places) // 2)].has("sum")
        return np.full(
            profile.values[key].shape[2], normed and statistic == "second_moment_by_position"
        )
    depth = profile.depth(site)
    if STATISTICS[statistic].reference == "last layer":
        return np.asarray(depth == max(profile.depth("resid_post")))
    if statistic == "second_moment" and site in SUMS and places:
        return np.array([place.has("sum") for place in places[site == SUMS[1] :: 2]])
    return np.zeros(len(depth), dtype=bool)


def _uncovered(note: str) -> str:
    """The note of a statistic with no prediction at all, as a sentence."""
    note = translated(note)
    uncovered, prefix, reason = note.partition(translated("not covered"))
    return note if uncovered or not prefix else text("agreement", "uncovered", reason=reason)


def _where(words: str, covered: list[float], missing: list[float]) -> str:
    """The words with the layers that were compared, where theory does not cover them all."""
    if not missing:
        return words
    if max(covered) < max(missing):
        return text("agreement", "up_to", words=words, layer=f"{max(covered):.0f}")
    if min(covered) > min(missing):
        return text("agreement", "from", words=words, layer=math.ceil(min(covered)))
    return text("agreement", "partly", words=words)


def _size(error: float, bounded: bool) -> str:
    """An error in words, rounded up: a difference, per cent, or a factor."""
    if bounded:
        return f"{_up(error):g}"
    if error >= 1:
        return text("agreement", "factor" if error < 99 else "large_factor", factor=_up(1 + error))
    return text("agreement", "percent", percent=_up(100 * error))


def _up(value: float) -> float:
    """Two significant digits, rounded up: a bound that is stated must hold."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return round(math.ceil(value / step - 1e-6) * step, 12)


def distance(measured: Array, expected: Array, bounded: bool) -> Array:
    """Difference, or distance as a ratio either way less one: half and double are equally wrong."""
    with np.errstate(all="ignore"):
        error = (
            np.abs(measured - expected)
            if bounded
            else np.maximum(measured / expected, expected / measured) - 1
        )
    return np.where(measured == expected, 0.0, error)  # two zeros agree


def departs_from_twin(profile: Profile) -> Finding | None:
    """`departs` from the twin's prediction, where a profile has a twin and no config."""
    if profile.twin is None or profile.config is not None:
        return None
    return departs(profile, predict(profile.twin))


def unlike_twin(profile: Profile) -> Finding | None:
    """A model that was not read to its end, or behaves otherwise than the nearest design: why there
    are no lines."""
    if profile.twin is not None or profile.config is not None or not profile.remarks:
        return None
    # where they part comes last
    reasons = text("phrase", "semicolon").join(map(translated, profile.remarks[-3:]))
    return finding(
        "good",
        "unlike_twin",
        "meaning",
        "evidence",
        "more" if len(profile.remarks) > 3 else "",
        reasons=capitalized(reasons),
        more=len(profile.remarks) - 3,
    )


def departs(profile: Profile, expected: Profile) -> Finding | None:
    """The layer whose ratio to the prediction is most unlike the other layers', and its first such
    site.

    A twin is near, not the same, and a model of finite width scatters: what all layers have in
    common, and what drifts over depth, is not held against any of them. Of the stream its growth is
    compared, layer by layer."""
    ratios = {
        f"{statistic} {site}": ratio
        for statistic, site in PLACES
        if len(ratio := _ratio(profile, expected, statistic, site))
    }
    outliers = unlike(ratios, spread(profile), profile.kinds)
    if start(profile):  # the first layer reads a stream of another size than all others
        outliers = {
            name: rest
            for name, layers in outliers.items()
            if (rest := {layer: ratio for layer, ratio in layers.items() if layer > 1})
        }
    if not outliers:
        return None
    # beside a layer that is far off, its neighbor may look odd as well: the farthest layer, and
    # there the first site
    layer, _ = worst(outliers)
    name = next(name for name in ratios if layer in outliers.get(name, ()))
    statistic, site = name.split()
    measured, theory = (by_layer(each, statistic, site)[layer - 1] for each in (profile, expected))
    evidence = "stream" if site in SUMS else "branch"
    if not comparable(measured, theory):
        evidence = "no_ratio"
    return finding(
        "warning",
        "departs",
        "meaning",
        evidence,
        remedy=fix(profile, "compared", block=path(profile, layer)),
        layer=numbered(profile, layer),
        statistic=STATISTICS[statistic].label.lower(),
        site=SITE_WORDS[site],
        measured=stated(measured, theory),
        expected=stated(theory, measured),
        ratio=outliers[name][layer],
    )


def _ratio(profile: Profile, expected: Profile, statistic: str, site: str) -> Array:
    """Measured over expected, `[layer]`; of the stream, growth over growth."""
    parts = [by_layer(each, statistic, site) for each in (profile, expected)]
    if not len(parts[0]) or len(parts[0]) != len(parts[1]):
        return np.empty(0)
    ratio: Array = parts[0] / parts[1]
    if site in SUMS:
        ratio = ratio / np.concatenate([[1.0], ratio[:-1]])
    return ratio
