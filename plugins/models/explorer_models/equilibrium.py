"""The equilibrium of steps and weight decay: why the gradient norm grows while the learning rate
decays.

Where the loss L ignores a matrix's scale, as where a norm follows it, L(cW) = L(W). The derivative
by c at c = 1 gives ⟨g, W⟩ = 0, the one by W gives g(cW) = g(W) / c: as a matrix shrinks its
gradient grows, and ‖g‖ ‖W‖ stays the same.

SGD with learning rate η and weight decay λ, W ← (1 − ηλ) W − η g, then gives ‖W‖² ← (1 − ηλ)² ‖W‖²
+ η² ‖g‖². At the fixed point ‖g‖² / ‖W‖² = 2λ/η − λ², hence ‖g‖ / ‖W‖ = √(2λ/η) where ηλ is small
(Defazio 2025, arXiv 2506.02285, after van Laarhoven 2017), and a step turns W by η ‖g‖ / ‖W‖ =
√(2ηλ).

With momentum β a gradient moves W by η β^k g in the k-th step after its own, by η / (1 − β) g in
all. Where gradients of different steps are independent, and 1 / (1 − β) steps are few beside the 1
/ (ηλ) in which ‖W‖ settles, only this sum counts for the fixed point: ‖g‖ / ‖W‖ = √(2λ (1 − β) /
η). One step has the norm η ‖g‖ / √(1 − β²), so it turns W by √(2ηλ / (1 + β)). AdamW has ĝ = g / √v
for g, and a momentum of (1 − β) Σ β^k ĝ, whose sum is η ĝ: ‖ĝ‖ / ‖W‖ = √(2λ/η), and a step turns W
by √(2ηλ (1 − β) / (1 + β)). Both are the rotations of Kosson et al. (2023, arXiv
2305.17212). From ⟨g, W⟩ = 0 follows ⟨ĝ, W⟩ = 0 only where v is the same everywhere; elsewhere it is
assumed.

What follows for ‖g‖ is derived here alone. For AdamW the size of a matrix gives ‖ĝ‖, so ‖W‖ falls
as √η and ‖g‖ grows as 1/√η. For SGD with ‖g‖ ‖W‖ given ‖g‖ grows as η^(−1/4). These are limits: η
has to fall slowly beside 1 / (ηλ) steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from explorer.diagnosis import Finding
from explorer.vocabulary import Array
from explorer_models.readings import Present, Reading
from explorer_models.texts import text

AVERAGED = 3
"""Readings whose mean squares are compared: one batch's gradient scatters."""
GROWN = 1.5
"""Factor from which on a gradient is said to grow, and the rotation at equilibrium to fall."""
AGREES = 1.3
"""Factor within which the measured rotation is that of the equilibrium, and ‖g‖ ‖W‖ what it was."""
RADIAL = 0.1
"""Largest |⟨g, W⟩| / (‖g‖ ‖W‖) of a gradient that is called orthogonal: 1 % of its square is along
W."""
MOST = 0.5
"""Share of the squared gradient from which on some matrices are why its norm grows."""
NEEDED = (
    "parameter_gradient",
    "weight_norm",
    "gradient_cosine",
    "update_ratio",
    "equilibrium_update",
)
GRADIENT, WEIGHT, COSINE, UPDATE, EQUILIBRIUM = range(len(NEEDED))
"""Indices of the statistics in arrays of all."""
AT_PEAK = 0.9
"""Share of the largest learning rate from which on a reading counts as one at it."""


def gradients_grow(readings: Sequence[Reading]) -> Finding | None:
    """A finding that gradients grow because the learning rate falls.

    Compares the last `AVERAGED` readings with the last ones at the largest rate. None where fewer
    have all that is needed, or where the rate has not fallen since."""
    # by site, the shape of its values, a number for each matrix
    shapes = {
        site: value.shape
        for reading in readings
        for (name, site), value in reading.values.items()
        if name == NEEDED[EQUILIBRIUM]
    }
    complete = [reading for reading in readings if shapes and _has_all(reading, shapes)]
    if len(complete) < 2 * AVERAGED:
        return None
    values = np.array([_statistics(reading, shapes) for reading in complete])
    squares = values**2  # [reading, statistic, matrix]
    # At equilibrium a step turns a matrix by an angle in proportion to √(ηλ), so that its square
    # follows the learning rate η. Matrices without weight decay λ have nan.
    rates = np.nanmedian(squares[:, EQUILIBRIUM], axis=1)
    at_peak = np.flatnonzero(rates >= AT_PEAK * rates.max())
    end = int(at_peak[-1]) + 1  # of the readings at the largest rate: the first one after them
    if not AVERAGED <= end <= len(complete) - AVERAGED:
        return None
    with np.errstate(all="ignore"):  # what is not finite agrees with nothing
        then = np.sqrt(squares[end - AVERAGED : end].mean(axis=0))
        now = np.sqrt(squares[-AVERAGED:].mean(axis=0))
        return _compared(then, now, first=complete[end - 1].step, last=complete[-1].step)


def _has_all(reading: Reading, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether a reading has all statistics of `NEEDED` at all sites, in the given shapes."""
    return all(
        (name, site) in reading.values and reading.values[name, site].shape == shape
        for name in NEEDED
        for site, shape in shapes.items()
    )


def _statistics(reading: Reading, sites: Iterable[str]) -> Array:
    """The statistics of `NEEDED` of the matrices of all sites, `[statistic, matrix]`."""
    return np.array(
        [np.concatenate([reading.values[name, site].ravel() for site in sites]) for name in NEEDED]
    )


def _compared(then: Array, now: Array, first: int, last: int) -> Finding | None:
    """The finding of two times of a run, with medians over the matrices.

    A matrix follows the law where its gradient, orthogonal to it, grew only by what the matrix
    shrank, after steps and weight decay were in balance. Now they may be below it, for the norm
    settles slowly once the learning rate is small.

    Args:
        then, now: root mean squares over the readings of each time, `[statistic, matrix]`, with
            the statistics of `NEEDED`.
        first, last: the last step of each.
    """
    change = now / then
    gradient, weight = change[GRADIENT], change[WEIGHT]  # factors since then
    lawful = (
        (gradient > GROWN)
        & (1 / change[EQUILIBRIUM] > GROWN)
        & _agree(gradient * weight)
        & _agree(then[UPDATE] / then[EQUILIBRIUM])
        & (now[UPDATE] / now[EQUILIBRIUM] < AGREES)
        & (np.maximum(now[COSINE], then[COSINE]) < RADIAL)
    )
    # the lawful matrices' share of the whole squared gradient
    share = float((now[GRADIENT, lawful] ** 2).sum() / np.nansum(now[GRADIENT] ** 2))
    if not share > MOST:
        return None
    grown, shrunk, before, balance, turned, expected = (
        float(np.median(by_matrix[lawful]))
        for by_matrix in (
            gradient,
            weight,
            then[UPDATE],
            then[EQUILIBRIUM],
            now[UPDATE],
            now[EQUILIBRIUM],
        )
    )
    evidence = text(
        "gradients_grow",
        "evidence",
        first=first,
        before=before,
        balance=balance,
        last=last,
        turned=turned,
        expected=expected,
        n=int(lawful.sum()),
        every=len(lawful),
        shrunk=shrunk,
        share=share,
        grown=grown,
    )
    return Finding(
        "good", text("gradients_grow", "meaning"), evidence, text("gradients_grow", "remedy")
    )


def _agree(ratio: Array) -> Present:
    """Where a ratio of two numbers is 1, within `AGREES`."""
    return np.asarray(np.maximum(ratio, 1 / ratio) < AGREES)
