"""`solve`: which setting makes it flat? Root finding on the theory, in milliseconds, with an honest answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from explorer.config import Config
from explorer.display import must_be
from explorer.profile import Array
from explorer.theory.depth import update_size
from explorer.theory.predict import predict

VARY = ("init_variance", "alpha")
CLOSE = 1e-3
"""Relative distance from the target that counts as reaching it."""
SCAN = 33
"""Values tried over a field's range before a root is narrowed down."""


@dataclass(frozen=True)
class Solution:
    """What was found.

    Args:
        config: the config with the field set.
        achieved: the target's quantity there, as predicted.
        target: what was asked of it.
        exact: whether it is reached, to 1 in 1000.
        message: the same in words.
    """

    config: Config
    achieved: float
    target: float
    exact: bool
    message: str


class Target(NamedTuple):
    """A quantity of a config that is to have a value: both positive, compared by their ratio."""

    words: str
    quantity: Callable[[Config], float]
    default: float | None


def _flat_signal(config: Config) -> float:
    profile = predict(config)
    return float(profile["second_moment", "resid_post"][0, -1] / profile["second_moment", "embed"][0, 0])


def _flat_gradient(config: Config) -> float:
    return float(predict(config)["activation_gradient", "embed"][0, 0])


def _logit_std(config: Config) -> float:
    return float(np.mean(predict(config)["logit_std", "attn_scores"]))


def _bounded_update(config: Config) -> float:
    one = config.replace(n_layers=1, **({"alpha": 1.0} if config.residual == "constant" else {}))
    return update_size(predict(config)) / update_size(predict(one))


TARGETS: Mapping[str, Target] = MappingProxyType({
    "flat_signal": Target("the last second moment over the first", _flat_signal, 1.0),
    "flat_gradient": Target("the first activation gradient (squared) over the last", _flat_gradient, 1.0),
    "logit_std": Target("the logits' standard deviation, mean over layers,", _logit_std, None),
    "bounded_update": Target("Σ‖∂L/∂W‖² over that of a single layer", _bounded_update, 1.0),
})
"""`bounded_update`: one SGD step changes the loss by −η Σ‖∂L/∂W‖². It stays O(1) in depth when the sum over N layers is
that of a one-layer model of the same config (with α = 1 when the residual is constant)."""


def solve(config: Config, vary: str, target: str, value: float | None = None) -> Solution:
    """The value of one field at which theory predicts what is wanted, nearest to the present one.

    Args:
        config: everything else. With `vary="alpha"` its residual becomes "constant", and the message says so.
        vary: "init_variance" or "alpha", within the field's bounds.
        target: a key of `TARGETS`.
        value: what the target's quantity is to be; `logit_std` needs one, for the others it is 1.
    Returns:
        the solution, or where none exists in range the closest, which says so.
    Raises:
        TypeError: the config is none.
        ValueError: unknown field or target, or no value for a target that needs one, or one that is not positive.
    """
    must_be(Config, "config", config)
    wanted = _wanted(vary, target, value)
    changed = vary == "alpha" and config.residual != "constant"
    base = config.replace(residual="constant") if changed else config
    error = _error(base, vary, TARGETS[target], wanted)
    found = _search(error, vary, getattr(base, vary))
    if found is None:
        nothing = f"theory does not cover {target} at any {_label(vary)} for this design"
        return Solution(config, math.nan, wanted, False, nothing)
    solved = base.replace(**{vary: found})
    achieved = wanted * math.exp(error(found))
    exact = abs(math.log(achieved / wanted)) <= CLOSE
    message = _message(vary, found, TARGETS[target].words, achieved, wanted, exact)
    return Solution(solved, achieved, wanted, exact, message + (" (residual set to constant)" if changed else ""))


def _wanted(vary: str, target: str, value: float | None) -> float:
    """What the target's quantity is to be, if the question makes sense."""
    if vary not in VARY:
        raise ValueError(f"vary must be one of {', '.join(VARY)}; got {vary!r}")
    if target not in TARGETS:
        raise ValueError(f"target must be one of {', '.join(TARGETS)}; got {target!r}")
    wanted = TARGETS[target].default if value is None else value
    if wanted is None or not (wanted > 0 and math.isfinite(wanted)):
        raise ValueError(f"{target} needs a positive value; got {value!r}")
    return wanted


def _error(config: Config, vary: str, target: Target, wanted: float) -> Callable[[float], float]:
    """ln(quantity / wanted) as a function of the field; nan where the theory covers nothing."""

    def error(x: float) -> float:
        quantity = target.quantity(config.replace(**{vary: x}))
        return math.log(quantity / wanted) if quantity > 0 and math.isfinite(quantity) else math.nan

    return error


def _search(error: Callable[[float], float], vary: str, now: float) -> float | None:
    """The root nearest to the present value, else where the error is smallest, else None."""
    if abs(error(now)) <= CLOSE:
        return now
    spec = Config.specs()[vary]
    low = max(spec.low, 1e-3)
    tried = np.unique(np.append(np.geomspace(low, spec.high, SCAN), np.clip(now, low, spec.high)))
    errors = np.array([error(float(x)) for x in tried])
    roots = [
        float(brentq(error, tried[i], tried[i + 1], rtol=1e-6))
        for i in range(len(tried) - 1) if errors[i] * errors[i + 1] < 0
    ]
    if roots:
        return min(roots, key=lambda x: abs(math.log(x / max(now, low))))
    if not np.isfinite(errors).any():
        return None
    flat = np.flatnonzero(np.abs(errors) <= CLOSE)
    if len(flat):  # approached, not crossed: the nearest that is close enough
        return _edge(error, tried, int(min(flat, key=lambda i: abs(math.log(tried[i] / max(now, low))))), now)
    best = int(np.nanargmin(np.abs(errors)))
    around = (float(tried[max(best - 1, 0)]), float(tried[min(best + 1, len(tried) - 1)]))
    closer = minimize_scalar(lambda x: np.nan_to_num(abs(error(x)), nan=1e300), bounds=around, method="bounded")
    return float(closer.x) if closer.fun < abs(errors[best]) * (1 - CLOSE) else float(tried[best])


def _edge(error: Callable[[float], float], tried: Array, inside: int, now: float) -> float:
    """The last value, from `tried[inside]` towards the present one, whose error is still close to nothing."""
    outside = inside + (1 if tried[inside] < now else -1)
    margin = [abs(error(float(tried[i]))) - 0.9 * CLOSE for i in (inside, outside)]
    if not (margin[0] < 0 < margin[1]):
        return float(tried[inside])
    low, high = sorted((float(tried[inside]), float(tried[outside])))
    return float(brentq(lambda x: abs(error(x)) - 0.9 * CLOSE, low, high, rtol=1e-6))


def _message(vary: str, found: float, words: str, achieved: float, wanted: float, exact: bool) -> str:
    where = f"at {_label(vary)} {found:.4g}"
    if exact:
        return f"{where} theory expects {words} to be {achieved:.4g}"
    return f"no {_label(vary)} in range makes {words} {wanted:.4g}; it is closest {where}, where it is {achieved:.4g}"


def _label(vary: str) -> str:
    return Config.specs()[vary].about.label.lower()
