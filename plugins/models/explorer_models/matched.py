"""The rows of the schemes that come nearest to what was read of a model's blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from explorer.config import Config
from explorer.profile import BRANCHES
from explorer.schemes.placement import PLACEMENTS, SITES, Placement
from explorer.schemes.residual import RESIDUALS
from explorer.schemes.scale import SCALE_RULES
from explorer_models.facts import Facts

CLOSE = 0.02
"""Largest deviation of a multiplier from a row's, as a share of it."""
PRICE = 0.02
"""Cost of one more free factor on the variances, in units of the root mean square of their
logarithms' misfit."""

LARGE = 0.003
"""Cost of a factor of e, in the same units: of two rules with the same variances the smaller factor
wins."""


def norms_of(facts: Facts, site: str) -> frozenset[str]:
    """The norms of a branch, by their names in `SITES`."""
    values_normed = site == "attn_out" and facts.get(("attn_scores", "normed"), ("", "", ""))[2]
    return frozenset(
        name
        for name in SITES
        if facts.get((site, f"norm {name}")) or (name == "heads" and values_normed)
    )


def placement_of(layers: Sequence[Facts]) -> tuple[str, list[tuple[int, str, Placement]]]:
    """The placement that most branches have, and the branches that depart from it, by layer from
    1."""
    best: tuple[float, str, list[tuple[int, str, Placement]]] = (math.inf, "", [])
    for name, row in PLACEMENTS.items():
        wrong, scales = [], 0.0
        for index, facts in enumerate(layers):
            for number, site in enumerate(BRANCHES):
                if (site, "branch") not in facts:
                    continue
                place = row.sublayer(2 * index + number, len(layers))
                if norms_of(facts, site) != place.norms:
                    wrong.append((index + 1, site, place))
                elif 0 < facts.get((site, "gain"), 0.0) < math.inf:
                    scales += abs(math.log(facts[site, "gain"] / place.scale))
                gaps = [(facts[site, part], getattr(place, part)) for part in ("skip", "branch")]
                scales += sum(abs(math.log(is_ / by_)) for is_, by_ in gaps if is_ > 0 and by_ != 1)
        cost = 1e3 * len(wrong) + scales
        if cost < best[0] - 0.05 * len(layers) or not best[1]:
            best = cost, name, wrong
    return best[1:]


def fit(
    layers: Sequence[Facts], fields: Mapping[str, Any], folded: Mapping[str, float]
) -> tuple[dict[str, Any], int]:
    """The residual rule by multipliers and variances, and the scale rule by variances.

    Args:
        fields: of the config so far, at the model's own size.
        folded: factors on the variances of matrices, of norms before them.
    Returns:
        fields of the rules, and how many factors on the variances are free beside them.
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
    """Residual rules, and how far their multipliers are from those that were read."""
    sites = [site for site in BRANCHES if (site, "branch") in layers[0]]
    values = np.array(
        [
            [[facts.get((site, part), 1.0) for site in sites] for facts in layers]
            for part in ("skip", "branch")
        ]
    )
    kind = _learned(layers)
    plain = Config.model_construct(**{**fields, "residual": "constant", "alpha": 1.0}).design
    which = [BRANCHES.index(site) for site in sites]
    base = np.array([np.reshape(part, (-1, 2))[:, which] for part in (plain.skips, plain.branches)])
    skip, branch = (
        float(f"{np.median(part):.6g}") for part in values / np.where(base == 0, 1, base)
    )
    for name, row in RESIDUALS.items():
        skips = row.multipliers(Config.model_construct(**{**fields, "alpha": 2.0}))[0] == 2.0
        alpha = 1.0 if "alpha" not in row.uses else skip if skips else branch
        change: dict[str, Any] = {"residual": name, "alpha": alpha}
        asked = Config.model_construct(**{**fields, **change}).design
        made = np.array(
            [np.reshape(part, (-1, 2))[:, which] for part in (asked.skips, asked.branches)]
        )
        shape = None if row.learned is None else row.learned(Config.model_construct(**fields))
        wanted = (
            ""
            if shape is None
            else "one"
            if shape == ()
            else "each"
            if len(shape) == 1
            else "vector"
        )
        gap = np.abs(values - made) / np.maximum(np.abs(made), np.abs(values).clip(1e-12))
        far = float(np.median(gap[np.isfinite(gap)])) if np.isfinite(gap).any() else 1.0
        free = PRICE / 2 if abs(alpha - 1) > CLOSE else 0.0
        yield change, (0.0 if far <= CLOSE else 10 * far) + 5.0 * (wanted != kind) + free


def _learned(layers: Sequence[Facts]) -> str:
    """Whether the multipliers are learned: not, one for a layer, one for each branch, or one for
    each coordinate."""
    facts = layers[len(layers) // 2]
    kinds = {facts.get((site, "learned"), "") for site in BRANCHES if (site, "branch") in facts}
    if "vector" in kinds:
        return "vector"
    owners = {facts.get((site, "learned_by")) for site in BRANCHES if (site, "branch") in facts}
    return "" if "number" not in kinds else "one" if len(owners) == 1 else "each"


def gains(layers: Sequence[Facts], folded: Mapping[str, float]) -> dict[str, float]:
    """ln(fan_in · mean W²) of each matrix, the mean over the layers; minus infinity where all are
    zero."""
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
    """Cost of every scale rule under one residual rule, the fields of both, and the number of free
    factors."""
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
    """Misfit and init, attention and MLP variance, with none, one or two of them free."""
    matrices = config.design.matrices
    rest, zeros = {}, 0
    for name, value in gained.items():
        made = matrices[name].gain if name in matrices else math.nan
        if value == -math.inf or made == 0:
            zeros += (value == -math.inf) != (made == 0)
        elif math.isfinite(made):
            rest[name] = value - math.log(made)
    mlp = {name: value for name, value in rest.items() if name in ("W_gate", "W_in", "W_out")}
    own = [name for name in rest if name not in mlp]
    init = float(np.mean(list(rest.values()))) if free == 1 and rest else 0.0
    parts = [
        float(np.mean([rest[name] for name in names])) if free == 2 and names else 0.0
        for names in (own, list(mlp))
    ]
    left = [value - init - parts[name in mlp] for name, value in rest.items()]
    misfit = math.sqrt(float(np.mean(np.square(left)))) if left else 0.0
    return misfit + zeros, math.exp(init), math.exp(parts[0]), math.exp(parts[1])
