"""`solve`: the value of a field at which theory predicts a target. Root finding, in
milliseconds."""

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
from explorer.theory.laws import input_share, update_size
from explorer.theory.predict import predict
from explorer.vocabulary import Array

VARY = ("init_variance", "alpha")
CLOSE = 1e-3
"""Relative distance from the target that counts as reaching it."""
SCAN = 33
"""Values tried over a field's range before a root is narrowed down."""
TRIVIAL = 0.01
"""Share of the last stream's second moment below which its branches are almost switched off."""


@dataclass(frozen=True)
class Solution:
    """Result of `solve`.

    Args:
        config: the config with the field set.
        achieved: the target's quantity there, as predicted; nan where there is no prediction.
        target: what was asked of it.
        exact: whether it is reached, to 1 in 1000.
        message: the same in words.
        trivial: whether all branches together add less than `TRIVIAL` of the last stream's second
            moment there.
        better: in place of a trivial answer the design with branches of 1/√(2N), if that comes
            nearer the target.

    Example:
        >>> solution = ex.solve(ex.Config(), vary="alpha", target="flat_signal")
        >>> solution.exact, solution.config.residual
        (True, 'constant')
    """

    config: Config
    achieved: float
    target: float
    exact: bool
    message: str
    trivial: bool = False
    better: Config | None = None


class Target(NamedTuple):
    """A quantity of a config with a wanted value: both positive, compared by their ratio."""

    phrase: str
    quantity: Callable[[Config], float]
    default: float | None
    without: Callable[[Config], str] = lambda config: ""
    """The reason why a design has no such quantity; empty where it has one."""


def _flat_signal(config: Config) -> float:
    """Second moment after the last layer over that of the embedding."""
    profile = predict(config)
    return float(
        profile["second_moment", "resid_post"][0, -1] / profile["second_moment", "embed"][0, 0]
    )


def _logit_std(config: Config) -> float:
    """Standard deviation of the attention logits, mean over layers; nan without attention."""
    spread = predict(config).values.get(("logit_std", "attn_scores"))
    return math.nan if spread is None else float(np.mean(spread))


def _bounded_update(config: Config) -> float:
    """Σ‖∂L/∂W‖² over that of a single layer of the same config, with branches times 1; nan where
    that has no gradient."""
    shallow = config.replace(n_layers=1, n_loops=1)
    if _scales_branch(config):
        shallow = shallow.replace(alpha=1.0)
    single = update_size(predict(shallow))
    return update_size(predict(config)) / single if single > 0 else math.nan


def _scales_branch(config: Config) -> bool:
    """Whether α multiplies the branches under the config's residual rule."""
    # a parallel block refuses a stream that α multiplies
    plain = config.replace(stream="one", alpha=1.0)
    return plain.design.branches != plain.replace(alpha=2.0).design.branches


TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        "flat_signal": Target("the last second moment over the first", _flat_signal, 1.0),
        "flat_gradient": Target(
            "the first activation gradient (squared) over the last",
            lambda config: float(predict(config)["activation_gradient", "embed"][0, 0]),
            1.0,
        ),
        "logit_std": Target(
            "the logits' standard deviation, mean over layers,",
            _logit_std,
            None,
            lambda config: (
                "a design without attention has no attention logits"
                if not config.design.attends
                else ""
            ),
        ),
        "bounded_update": Target(
            "Σ‖∂L/∂W‖² over that of a single layer",
            _bounded_update,
            1.0,
            lambda config: (
                "the branches are multiplied by 0, so no matrix has a gradient"
                if not any(config.design.branches)
                else ""
            ),
        ),
    }
)
"""`bounded_update`: one SGD step changes the loss by −η Σ‖∂L/∂W‖². It stays O(1) in depth when the
sum over N layers is that of a one-layer model of the same config (with α = 1 when the residual is
constant)."""


def solve(config: Config, vary: str, target: str, value: float | None = None) -> Solution:
    """The value of one field at which theory predicts the wanted quantity, nearest to the present
    one.

    Args:
        config: everything else. With `vary="alpha"` its residual becomes "constant", unless α
            multiplies its branches already, and the message says so.
        vary: "init_variance" or "alpha", within the field's bounds.
        target: a key of `TARGETS`.
        value: what the target's quantity is to be; `logit_std` needs one, for the others it is 1.
    Returns:
        the solution, or where none exists in range the closest, which says so.
    Raises:
        TypeError: the config is none.
        ValueError: unknown field or target, or no value for a target that needs one, or one that is
            not positive. Nothing else: where there is no answer, the message says why, and what was
            achieved is nan.

    Example:
        >>> post = ex.Config(norm_placement="post")
        >>> solution = ex.solve(post, vary="init_variance", target="flat_gradient")
        >>> round(solution.config.init_variance, 2), solution.exact
        (2.46, True)
    """
    must_be(Config, "config", config)
    wanted, asked = _wanted(vary, target, value), TARGETS[target]
    changed = vary == "alpha" and not _scales_branch(config)
    base = config.replace(residual="constant") if changed else config

    def error(x: float) -> float:
        """ln(quantity / wanted) where the field is x."""
        return _distance(asked.quantity(base.replace(**{vary: x})), wanted)

    result = _search(error, vary, getattr(base, vary))
    if result is None:
        why = asked.without(base.replace(**{vary: 1.0}))
        nothing = f"theory does not cover {target} at any {_label(vary)} for this design"
        return Solution(config, math.nan, wanted, False, why or nothing)
    solved = base.replace(**{vary: result})
    achieved, exact = asked.quantity(solved), abs(error(result)) <= CLOSE
    message = _message(vary, result, asked.phrase, achieved, wanted, exact)
    if changed:
        message += " (residual set to constant)"
    share = _branch_share(solved)
    if not share < TRIVIAL:
        return Solution(solved, achieved, wanted, exact, message)
    better = _better(config, asked, wanted)
    message = f"a trivial answer, with all branches together {100 * share:.2g} % of the last stream: {message}"
    if better:
        message += f". Branches of 1/√(2N) make it {asked.quantity(better):.3g}"
    return Solution(solved, achieved, wanted, exact, message, trivial=True, better=better)


def _better(config: Config, target: Target, wanted: float) -> Config | None:
    """The design with branches of 1/√(2N), if it is nearer the target and its branches count, or
    None.

    It is nearer, too, where theory has no number for the present design (nan). Its branches count
    where they make at least the part `TRIVIAL` of the last stream's second moment."""
    if not config.accepts(residual="inverse_sqrt_depth"):
        return None
    other = config.replace(residual="inverse_sqrt_depth")
    now = abs(_distance(target.quantity(config), wanted))
    then = abs(_distance(target.quantity(other), wanted))
    nearer = then < now or math.isnan(now)
    return other if nearer and _branch_share(other) >= TRIVIAL else None


def _branch_share(config: Config) -> float:
    """Part of the last stream's second moment that its branches put there."""
    return 1 - input_share(config, predict(config, backward=False).values)


def _distance(quantity: float, wanted: float) -> float:
    """ln(quantity / wanted); nan where there is no such number, or the theory covers nothing."""
    return math.log(quantity / wanted) if quantity > 0 and math.isfinite(quantity) else math.nan


def _wanted(vary: str, target: str, value: float | None) -> float:
    """Wanted value of the target's quantity, if the question makes sense."""
    if vary not in VARY:
        raise ValueError(f"vary must be one of {', '.join(VARY)}; got {vary!r}")
    if target not in TARGETS:
        raise ValueError(f"target must be one of {', '.join(TARGETS)}; got {target!r}")
    wanted = TARGETS[target].default if value is None else value
    if wanted is None or not (wanted > 0 and math.isfinite(wanted)):
        raise ValueError(f"{target} needs a positive value; got {value!r}")
    return wanted


def _search(error: Callable[[float], float], vary: str, now: float) -> float | None:
    """The field's value at which the error is 0, nearest to the present one; else where the error
    is smallest; None where it is nan everywhere.

    Args:
        error: of a value, signed; nan where the theory does not cover it.
        vary: the field.
        now: its present value.
    """
    if abs(error(now)) <= CLOSE:
        return now
    spec = Config.specs()[vary]
    low = max(spec.low, 1e-3)

    def far(x: float) -> float:
        """Distance from the present value, in ln."""
        return abs(math.log(x / max(now, low)))

    tried = np.unique(np.append(np.geomspace(low, spec.high, SCAN), np.clip(now, low, spec.high)))
    errors = np.array([error(float(x)) for x in tried])
    crossings = np.flatnonzero(errors[:-1] * errors[1:] < 0)
    crossed = [_root(error, tried[i], tried[i + 1]) for i in crossings]
    roots = [root for root in crossed if root is not None]
    if roots:
        return min(roots, key=far)
    if not np.isfinite(errors).any():
        return None
    flat = np.flatnonzero(np.abs(errors) <= CLOSE)
    if len(flat):  # approached, not crossed: the nearest that is close enough
        nearest = min(flat, key=lambda i: far(float(tried[i])))
        return _edge(error, tried, int(nearest), now)
    best = int(np.nanargmin(np.abs(errors)))
    around = (float(tried[max(best - 1, 0)]), float(tried[min(best + 1, len(tried) - 1)]))
    closer = minimize_scalar(
        lambda x: np.nan_to_num(abs(error(x)), nan=1e300), bounds=around, method="bounded"
    )
    improved = closer.fun < abs(errors[best]) * (1 - CLOSE)
    return float(closer.x) if improved else float(tried[best])


def _root(error: Callable[[float], float], low: float, high: float) -> float | None:
    """Root of the error between two values; None if the sign changes at a gap in the theory's
    coverage."""
    try:
        return float(brentq(error, low, high, rtol=1e-6))
    except ValueError:  # scipy's, of a nan on the way
        return None


def _edge(error: Callable[[float], float], tried: Array, inside: int, now: float) -> float:
    """The last value, from `tried[inside]` towards the present one, whose error is still close to
    0, by 9/10 of `CLOSE`."""

    def margin(x: float) -> float:
        """Error beyond what is close; negative inside."""
        return abs(error(x)) - 0.9 * CLOSE

    outside = inside + (1 if tried[inside] < now else -1)
    start, end = float(tried[inside]), float(tried[outside])
    if not (margin(start) < 0 < margin(end)):
        return start
    root = _root(margin, min(start, end), max(start, end))
    return start if root is None else root


def _message(
    vary: str, value: float, phrase: str, achieved: float, wanted: float, exact: bool
) -> str:
    """The sentence on a solution: where the target is reached, or how near the closest value
    comes."""
    where = f"at {_label(vary)} {value:.4g}"
    if exact:
        return f"{where} theory expects {phrase} to be {achieved:.4g}"
    return f"no {_label(vary)} in range makes {phrase} {wanted:.4g}; it is closest {where}, where it is {achieved:.4g}"


def _label(vary: str) -> str:
    """A field's name on the page, in lower case."""
    return Config.specs()[vary].about.label.lower()
