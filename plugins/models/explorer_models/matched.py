"""The rows of the schemes that come nearest to what was read of a model's blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from explorer.config import Config
from explorer.schemes.placement import PLACEMENTS, SITES, Placement
from explorer.schemes.residual import RESIDUALS
from explorer.schemes.scale import SCALE_RULES
from explorer.sites import BRANCHES
from explorer.vocabulary import Array
from explorer_models.facts import Facts

CLOSE = 0.02
"""Largest deviation of a multiplier from a row's, as a share of it."""
PRICE = 0.02
"""Cost of one more free factor on the variances, in units of the root mean square of their
logarithms' misfit."""

LARGE = 0.003
"""Cost of a factor of e, in the same units: of two rules with the same variances, the one with
smaller factors fits better."""


def norms_of(facts: Facts, site: str) -> frozenset[str]:
    """Names in `SITES` of the norms that a branch has."""
    values_normed = site == "attn_out" and facts.get(("attn_scores", "normed"), ("", "", ""))[2]
    return frozenset(
        name
        for name in SITES
        if facts.get((site, f"norm {name}")) or (name == "heads" and values_normed)
    )


def placement_of(layers: Sequence[Facts]) -> tuple[str, list[tuple[int, str, Placement]]]:
    """The placement that fits most branches, and the branches that depart from it: the layer from
    1, the site, and what the placement has there.

    A branch with other norms costs most; multipliers and gains that differ decide between
    placements with the same norms.
    """
    best: tuple[float, str, list[tuple[int, str, Placement]]] = (math.inf, "", [])
    for name, row in PLACEMENTS.items():
        wrong, scales = [], 0.0
        for index, half, facts in read_branches(layers):
            site, made = BRANCHES[half], row.sublayer(2 * index + half, len(layers))
            if norms_of(facts, site) != made.norms:
                wrong.append((index + 1, site, made))
            elif 0 < facts.get((site, "gain"), 0.0) < math.inf:
                scales += abs(math.log(facts[site, "gain"] / made.scale))
            for multiplier, usual in (("skip", made.skip), ("branch", made.branch)):
                if facts[site, multiplier] > 0 and usual != 1:
                    scales += abs(math.log(facts[site, multiplier] / usual))
        cost = 1e3 * len(wrong) + scales
        if cost < best[0] - 0.05 * len(layers) or not best[1]:
            best = cost, name, wrong
    return best[1:]


def read_branches(layers: Sequence[Facts]) -> Iterator[tuple[int, int, Facts]]:
    """Every branch that was read: its layer from 0, its number in `BRANCHES`, the layer's facts."""
    for index, facts in enumerate(layers):
        for half, site in enumerate(BRANCHES):
            if (site, "branch") in facts:
                yield index, half, facts


def fit(
    layers: Sequence[Facts], fields: Mapping[str, Any], folded: Mapping[str, float]
) -> tuple[dict[str, Any], int]:
    """The residual rule and the scale rule that fit multipliers and variances best.

    Args:
        layers: the facts of each.
        fields: of the config so far, at the model's own size.
        folded: factors on the variances of matrices, from the norms before them.
    Returns:
        fields of the rules, and how many variances are free beside them, see `offsets`.
    """
    gained = gains(layers, folded)
    costs = [
        cost
        for change, off in _residuals(layers, fields)
        for cost in _costs(gained, fields, change, off)
    ]
    return min(costs, key=lambda cost: cost[0])[1:]


def _residuals(
    layers: Sequence[Facts], fields: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], float]]:
    """Each residual rule as fields of a config, and the cost of its multipliers: how far they are
    from the model's, and whether as many of them are learned."""
    sites = [site for site in BRANCHES if (site, "branch") in layers[0]]
    halves = [BRANCHES.index(site) for site in sites]

    def designed(**change: Any) -> Array:
        """Multipliers of stream and branch under a rule, `[2, layer, branch]`."""
        design = Config.model_construct(**{**fields, **change}).design
        by_half = [np.reshape(part, (-1, 2)) for part in (design.skips, design.branches)]
        return np.array(by_half)[:, :, halves]

    values = np.array(
        [
            [[facts.get((site, name), 1.0) for site in sites] for facts in layers]
            for name in ("skip", "branch")
        ]
    )
    kind = _learned(layers)
    base = designed(residual="constant", alpha=1.0)
    skip, branch = (
        float(f"{np.median(ratios):.6g}") for ratios in values / np.where(base == 0, 1, base)
    )
    for name, row in RESIDUALS.items():
        skips = row.multipliers(Config.model_construct(**{**fields, "alpha": 2.0}))[0] == 2.0
        alpha = 1.0
        if "alpha" in row.uses:
            alpha = skip if skips else branch
        change: dict[str, Any] = {"residual": name, "alpha": alpha}
        made = designed(**change)
        learned = ""
        if row.learned is not None:
            shape = row.learned(Config.model_construct(**fields))
            learned = ("one", "each", "vector")[min(len(shape), 2)]
        gap = np.abs(values - made) / np.maximum(np.abs(made), np.abs(values).clip(1e-12))
        finite = gap[np.isfinite(gap)]
        far = float(np.median(finite)) if finite.size else 1.0
        cost = 10 * far if far > CLOSE else 0.0
        cost += 5.0 * (learned != kind)
        cost += PRICE / 2 if abs(alpha - 1) > CLOSE else 0.0
        yield change, cost


def _learned(layers: Sequence[Facts]) -> str:
    """The learned multipliers of a layer's branches: "" for none, "one" for one that both branches
    have, "each" for one a branch, "vector" for one a coordinate."""
    facts = layers[len(layers) // 2]  # of the middle layer: the first or last may differ
    sites = [site for site in BRANCHES if (site, "branch") in facts]
    kinds = {facts.get((site, "learned"), "") for site in sites}
    if "vector" in kinds:
        return "vector"
    if "number" not in kinds:
        return ""
    owners = {facts.get((site, "learned_by")) for site in sites}
    return "one" if len(owners) == 1 else "each"


def gains(layers: Sequence[Facts], folded: Mapping[str, float]) -> dict[str, float]:
    """ln(fan_in · mean W²) of each matrix, with the factor of the norm before it: the median
    over the layers, −∞ where all weights are 0."""
    products = {}
    for name in ("W_Q", "W_K", "W_V", "W_G", "W_O", "W_gate", "W_in", "W_out"):
        values = [
            facts[name, "variance"] * facts[name, "shape"][0]
            for facts in layers
            if (name, "variance") in facts
        ]
        logs = [math.log(value) for value in values if value > 0]
        if logs:
            products[name] = float(np.median(logs)) + math.log(folded.get(name, 1.0))
        elif values:
            products[name] = -math.inf
    return products


def _costs(
    gained: Mapping[str, float], fields: Mapping[str, Any], change: Mapping[str, Any], off: float
) -> Iterator[tuple[float, dict[str, Any], int]]:
    """Cost of every scale rule beside one residual rule, the fields of both, and the number of
    free variances.

    Args:
        gained: what `gains` gives.
        fields: of the config so far.
        change: fields of the residual rule.
        off: its own cost.
    """
    for name, row in SCALE_RULES.items():
        if row.shrinks_last and RESIDUALS[change["residual"]].shrinks_last:
            continue
        rules = {**change, "scale_rule": name}
        config = Config.model_construct(**{**fields, **rules})
        for free in range(3):
            misfit, *factors = offsets(config, gained, free)
            size = sum(abs(math.log(factor)) for factor in factors)
            yield off + misfit + PRICE * free + LARGE * size, rules, free


def offsets(
    config: Config, gained: Mapping[str, float], free: int
) -> tuple[float, float, float, float]:
    """How far a model's variances are from a design's, after free factors are fitted.

    Args:
        config: the design.
        gained: logarithm of each matrix's gain in the model, −∞ for a matrix of zeros, see `gains`.
        free: 0 for no factor, 1 for one on all matrices, 2 for one on attention's and one on the
            MLP's.
    Returns:
        the misfit: the root mean square of what is left of the logarithms, and 1 more for each
        matrix that is 0 in either the model or the design alone; and the factors on all matrices,
        on attention's, and on the MLP's, which are 1 where they are not free.
    """
    matrices = config.design.matrices
    gaps: dict[str, float] = {}  # logarithm of the model's gain over the design's, by matrix
    zeros = 0  # matrices that are 0 in one of the two: no factor makes up for that
    for name, log_gain in gained.items():
        designed = matrices[name].gain if name in matrices else math.nan
        is_zero = log_gain == -math.inf
        if is_zero or designed == 0:
            zeros += is_zero != (designed == 0)
        elif math.isfinite(designed):
            # both are medians over layers
            by_layer = np.log(config.design.factors_by_layer(name))
            gaps[name] = log_gain - math.log(designed) - float(np.median(by_layer))
    in_mlp = [name for name in gaps if name in ("W_gate", "W_in", "W_out")]
    in_attention = [name for name in gaps if name not in in_mlp]

    def mean(names: Sequence[str]) -> float:
        return float(np.mean([gaps[name] for name in names])) if names else 0.0

    # logarithms of the free factors: the means of the gaps, which leave the least of them
    every = attention = mlp = 0.0
    if free == 1:
        every = mean([*gaps])
    if free == 2:
        attention, mlp = mean(in_attention), mean(in_mlp)
    left = [gap - every - (mlp if name in in_mlp else attention) for name, gap in gaps.items()]
    misfit = math.sqrt(float(np.mean(np.square(left)))) if left else 0.0
    return misfit + zeros, math.exp(every), math.exp(attention), math.exp(mlp)
