"""`EXERCISES`: every exercise of the lessons with its oracle, by number: lesson, point, place in
it.

`TEXTS` has what is said of each: `exercises.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from itertools import count
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.stats import truncnorm

from explorer.config import Config, ConfigError
from explorer.schemes.activation import ACTIVATIONS, SELU_SCALE
from explorer.theory import predict
from explorer.theory.gaussian import moments
from explorer.translation import translated
from explorer.vocabulary import Array

DRAWS = 100_000
"""Weights that an answer which draws them is asked for."""
TOLERANCE = 5e-3
"""Largest relative difference of a right answer: three digits are enough."""


class Exercise(NamedTuple):
    """One exercise as a row of data."""

    asks: str
    """The kind of answer: "a number", "a function of n and m"."""
    oracle: Callable[..., Any]
    """From a place to the right value, a number or an array."""
    places: tuple[Mapping[str, float], ...] = ({},)
    """Arguments at which a function is compared, by their names; an answer that is no function has
    one empty place."""
    tolerance: float = TOLERANCE
    """Largest relative difference; four standard errors where an answer is drawn or measured, if
    that is more."""
    reduce: Callable[[Any], Any] = lambda answer: answer
    """From the answer, or a function's value, to the numbers that are compared."""
    parts: tuple[str, ...] = ()
    """Words for each of these numbers; their index serves where it is empty."""
    whole: frozenset[int] = frozenset()
    """Places of the numbers that count something: these must be equal."""
    reach: float = 0.0
    """A whole number nearer than this to the right one is right, too."""
    base: Config | None = None
    """The design that the answer changes, where it is a `Config`."""
    fields: tuple[str, ...] = ()
    """The settings of it that may differ."""
    box: str = ""
    """Words for what the box of a served lesson takes, where that is another thing."""
    build: Callable[[float], Any] | None = None
    """From the number in that box to the answer."""


class Mistake(NamedTuple):
    """An answer that is often given."""

    answer: str
    """As it is written into a box."""
    words: str
    """Its name, as a clause."""
    question: str


class Text(NamedTuple):
    """A table of `exercises.toml`, which explains its keys."""

    hint: str
    answer: str
    solution: str
    mistakes: tuple[Mistake, ...]


def _texts() -> Mapping[str, Text]:
    table = tomllib.loads(Path(__file__).with_name("exercises.toml").read_text(encoding="utf-8"))
    return MappingProxyType(
        {
            number: Text(
                **row | {"mistakes": tuple(Mistake(**mistake) for mistake in row["mistakes"])}
            )
            for number, row in table.items()
        }
    )


def _left(c: float) -> float:
    """Share of a normal's variance that a cut at ±c standard deviations leaves."""
    return float(truncnorm(-c, c).var())


def _widened(share: float) -> float:
    """The c at which a cut leaves that share."""
    return float(brentq(lambda c: _left(c) - share, 0.1, 8, xtol=1e-12))


def _cut(std: float) -> Callable[[float], Array]:
    """The function that draws n weights of a normal of standard deviation `std`, cut at ±2 of
    it."""
    return lambda n: std * np.asarray(truncnorm(-2, 2).rvs(int(n), random_state=0))


def _std_and_reach(weights: Any) -> Array:
    """Standard deviation and largest size of weights."""
    array = np.asarray(weights, dtype=float).ravel()
    return np.array([array.std(), np.abs(array).max()])


def _stack(width: int, other: int, depth: int) -> Array:
    """`[layer + 1]` second moment in layers width → other → width → …, of variance 2/(fan_in +
    fan_out)."""
    gains = [2 * fan_in / (width + other) for fan_in in (width, other)] * depth
    return np.cumprod(np.array([1.0, *gains[:depth]]))


def only(config: Config, base: Config, fields: tuple[str, ...]) -> Config:
    """The design, which may differ from another in some settings alone.

    Raises:
        ConfigError: it differs in another setting.
    """
    if config.replace(**{field: getattr(base, field) for field in fields}) != base:
        raise ConfigError(
            translated(
                "only {names} may differ from the design of the exercise; got {config}",
                names=", ".join(fields),
                config=config,
            )
        )
    return config


def _flow(activation: str) -> float:
    """Factor of an MLP after Post-LN on gradient²."""
    _, square, slope_square = moments(activation)
    return (1 + slope_square) / (1 + square)


def _rectified(t: int) -> float:
    """RAdam's factor on the step, at β₂ = 0.999."""
    limit, power = 1999, 0.999**t
    rho = limit - 2 * t * power / (1 - power)
    return float(((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho)) ** 0.5)


def _unevenness(config: Config) -> float:
    """Largest over smallest gradient² along the stream, predicted."""
    gradient = predict(config).stream("activation_gradient")[1]
    return float(gradient.max() / gradient.min())


LEAST_WRITTEN = 0.01
"""Share of the stream that the branches of a design must write, so that its layers compute
something."""


def _flat_and_working(config: Config) -> Array:
    """Unevenness of the gradient, and the share that the branches write over the least one; at most
    1."""
    profile, design = predict(config), config.design
    stream = profile.stream("second_moment")[1][0]
    outputs = np.stack(
        [profile["second_moment", site][0] for site in ("attn_out", "mlp_out")], axis=1
    ).ravel()
    written = np.array(design.branches) ** 2 * outputs
    kept = np.array(design.skips) ** 2 * stream[:-1]
    share = float((written / (written + kept)).sum())
    return np.array([_unevenness(config), min(1.0, share / LEAST_WRITTEN)])


@cache
def _half_alike() -> float:
    """The α of 48 Post-LN layers at whose end two tokens have the correlation ½."""

    def beyond(alpha: float) -> float:
        profile = predict(POST.replace(alpha=alpha), backward=False)
        return float(profile["token_correlation", "resid_post"][0, -1]) - 0.5

    return float(brentq(beyond, 0.05, 1))


@cache
def _gated_like_plain() -> float:
    """The α at which gated layers have the plain ones' gradient² at the input."""
    wanted = _unevenness(LLAMA)
    return float(brentq(lambda alpha: _unevenness(GATED.replace(alpha=alpha)) - wanted, 0.5, 1))


PLAIN = Config(
    attention="none",
    residual="absent",
    norm_placement="none",
    activation_rescaled=False,
    n_layers=12,
)
"""Twelve MLPs one after the other: no attention, no residual, no norm, and a relu as it is."""
PERI = Config(norm_placement="peri", n_layers=12)
POST = Config(norm_placement="post", n_layers=48)
LLAMA = Config(
    n_layers=12,
    norm="rms",
    activation="silu",
    activation_rescaled=False,
    position="rotary",
    causal=True,
)
"""Lesson 13's layers, still without a gate."""
GATED = LLAMA.replace(mlp="gated")
WIDTHS = ({"n": 512, "d": 64}, {"n": 768, "d": 128})
"""Widths of a model and of its heads."""


def _setting(base: Config, field: str, oracle: Callable[[], float]) -> Exercise:
    """The row of an exercise that asks for one setting of a design."""
    return Exercise(
        "a Config",
        oracle,
        base=base,
        fields=(field,),
        parts=(field,),
        reduce=lambda config: getattr(config, field),
    )


FIRST = frozenset({0})

EXERCISES: Mapping[str, Exercise] = MappingProxyType(
    {
        "01.1": Exercise("a number", lambda: _left(3) ** -0.5),
        "01.2": Exercise(
            "a function of n that gives n weights",
            lambda n: [0.02, 2 * 0.02 * _left(2) ** -0.5],
            ({"n": DRAWS},),
            4 / (2 * DRAWS) ** 0.5,
            _std_and_reach,
            ("the standard deviation", "the largest |w|"),
            box="the standard deviation of the normal before it is cut",
            build=_cut,
        ),
        "01.3": Exercise("a number", lambda: 2 / _widened(0.99)),
        "02.1": Exercise(
            "a function of n, m and v",
            lambda n, m, v: m * v,
            ({"n": 256, "m": 1024, "v": 1 / 256}, {"n": 1024, "m": 64, "v": 0.02}),
        ),
        "02.2": Exercise(
            "a function of n and m",
            lambda n, m: (n * m) ** -0.5,
            ({"n": 256, "m": 256}, {"n": 256, "m": 1024}, {"n": 1024, "m": 64}),
        ),
        "02.3": Exercise("an array of 13 numbers", lambda: _stack(256, 1024, 12)),
        "02.4": _setting(PLAIN, "init_variance", lambda: 2**0.5),
        "03.1": Exercise(
            "a function of n", lambda n: 1 / (n * moments("silu").square), ({"n": 64}, {"n": 512})
        ),
        "03.2": Exercise(
            "a function of z",
            lambda z: (
                (ACTIVATIONS["sigmoid"].value(z) - 0.5) / (moments("sigmoid").square - 0.25) ** 0.5
            ),
            ({"z": -1}, {"z": 2}),
        ),
        "03.3": Exercise(
            "a number",
            lambda: 0.9 * moments("tanh", 0.9).slope_square / moments("tanh", 0.9).square,
        ),
        "03.4": Exercise("a number", lambda: 2 / SELU_SCALE**2),
        "04.1": Exercise(
            "a function of a and b",
            lambda a, b: np.array([a, b]) * 2**0.5 / np.hypot(a, b),
            ({"a": 3, "b": 4}, {"a": 1, "b": -2}),
        ),
        "04.2": Exercise("a function of v", lambda v: v / 9, ({"v": 1}, {"v": 8e-4})),
        "04.3": Exercise(
            "a number of steps", lambda: ceil(np.log(0.01) / np.log(0.9)), whole=FIRST
        ),
        "04.4": Exercise(
            "a function of n and v",
            lambda n, v: (1 - 2 / n) / v,
            ({"n": 4, "v": 1}, {"n": 64, "v": 25}),
        ),
        "05.1": Exercise("a number", lambda: 0.001 * 4096**0.5),
        "05.2": Exercise(
            "a function of eta and c",
            lambda eta, c: [eta / c**2, eta / c],
            ({"eta": 0.01, "c": 1 / 16}, {"eta": 0.5, "c": 2}),
            parts=("SGD's rate", "Adam's rate"),
        ),
        "05.3": Exercise("a number", lambda: 1 / moments("sigmoid").square),
        "05.4": Exercise(
            "a function of eta and m",
            lambda eta, m: eta * 32 / m,
            ({"eta": 0.1, "m": 2048}, {"eta": 0.02, "m": 64}),
        ),
        "06.1": Exercise("a function of n and d", lambda n, d: 1 / (n * d), WIDTHS),
        "06.2": Exercise("a number", lambda: np.exp(64 / 2)),
        "06.3": Exercise("a function of d", lambda d: 3 + 6 / d, ({"d": 2}, {"d": 64})),
        "06.4": Exercise("a function of n and d", lambda n, d: 1 / (n * d**0.5), WIDTHS),
        "07.1": Exercise("a number", lambda: 2**-2.5),
        "07.2": Exercise(
            "a function of N and l",
            lambda N, layer: 1 / (layer + 1),
            ({"N": 12, "l": 3}, {"N": 36, "l": 0}),
        ),
        "07.3": Exercise(
            "a function of l", lambda layer: (4 ** (1 / layer) - 1) ** 0.5, ({"l": 1}, {"l": 24})
        ),
        "07.4": _setting(PERI, "alpha", lambda: 24**-0.5),
        "08.1": Exercise("a number", lambda: np.exp(-0.5)),
        "08.2": Exercise(
            "a function of N", lambda n: (8 * n) ** -0.5 / (2 * n) ** 0.25, ({"N": 12}, {"N": 1000})
        ),
        "08.3": Exercise("a number", lambda: (2**1e-3 - 1) ** 0.5),
        "08.4": Exercise(
            "a function of N", lambda n: (1 + 1 / n) ** (1 - n), ({"N": 2}, {"N": 64})
        ),
        "09.1": Exercise("a function of L", lambda depth: 1 + depth / 2, ({"L": 6}, {"L": 24})),
        "09.2": Exercise("a number", lambda: _flow("sigmoid") ** 12),
        "09.3": Exercise("a number of layers", lambda: ceil((1.5 * 10**2 - 1) / 1.5), whole=FIRST),
        "09.4": Exercise(
            "a Config",
            lambda: [1.0, 1.0],
            tolerance=0.5,
            reduce=_flat_and_working,
            base=Config(n_layers=12),
            fields=("norm_placement", "residual", "alpha"),
            parts=("the largest gradient² over the smallest", "the share that the branches write"),
        ),
        "12.1": Exercise("a function of N", lambda n: n**-0.5 / 2, ({"N": 12}, {"N": 1000})),
        "12.2": Exercise(
            "a function of eta and N",
            lambda eta, n: (2 * n) ** -0.5 / eta,
            ({"eta": 3e-3, "N": 8}, {"eta": 1e-3, "N": 1000}),
            reach=1,
        ),
        "12.3": _setting(POST, "alpha", _half_alike),
        "12.4": Exercise(
            "a layer and a factor",
            lambda: [4, 4],
            tolerance=0.1,
            parts=("the layer", "the factor"),
            whole=FIRST,
        ),
        "10.1": Exercise(
            "a function of k and T",
            lambda k, T: (k + 1) / (2 * T),
            ({"k": 1, "T": 64}, {"k": 64, "T": 64}),
        ),
        "10.2": Exercise(
            "a function of beta1",
            lambda beta: ((1 - beta) / (1 + beta)) ** 0.5,
            ({"beta1": 0.9}, {"beta1": 0.5}),
        ),
        "10.3": Exercise(
            "a function of s", lambda s: np.log(1000) / np.log1p(s * s), ({"s": 1}, {"s": 3})
        ),
        "10.4": Exercise(
            "a number of steps",
            lambda: next(t for t in count(6) if _rectified(t) >= 0.5),
            whole=FIRST,
        ),
        # measured in one draw of one layer
        "11.1": Exercise("a number", lambda: 0.5**2 * _left(2), tolerance=4 * 0.0185),
        "11.2": Exercise("a function of l", lambda layer: 1 - 1 / layer, ({"l": 2}, {"l": 12})),
        "11.3": Exercise(
            "a function of c", lambda c: (1 - c * c) ** -0.5, ({"c": 0.5}, {"c": 0.95})
        ),
        "11.4": Exercise(
            "a function of l that gives two numbers",
            lambda layer: [layer**0.5, layer],
            ({"l": 4}, {"l": 12}),
            parts=("RealFormer's spread", "the spread of the sums' product"),
        ),
        "13.1": Exercise(
            "a function of l", lambda layer: 2.0 ** (1 - 2**layer), ({"l": 1}, {"l": 4})
        ),
        "13.2": Exercise(
            "a function of rho and c",
            lambda rho, c: (1 - rho * (1 + c) / 2) / (1 - rho),
            ({"rho": 0.4, "c": 0.7}, {"rho": 0.8, "c": 0.5}),
        ),
        "13.3": Exercise(
            "a function of d and b",
            lambda d, base: 2 * np.pi * base ** (1 - 2 / d),
            ({"d": 128, "b": 5e5}, {"d": 8, "b": 1e4}),
        ),
        "13.4": _setting(GATED, "alpha", _gated_like_plain),
    }
)

TEXTS = _texts()
"""The table of each exercise, by its number."""
