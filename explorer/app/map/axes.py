"""The fields that a map may have on its axes, their usual ranges, and the values between two ends. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

import numpy as np

from explorer.app.explore.sweep_plan import thinned
from explorer.app.widgets.slider_steps import slider_steps
from explorer.config import Config
from explorer.fields import Option, Spec
from explorer.training.recipe import Recipe

MOST_VALUES = 60
"""Values of an axis, at most."""
DIVIDE = ("d_model", "n_heads", "n_kv_heads", "head_size")
"""Sizes that must divide each other, as the steps of their sliders do."""
USUAL: Mapping[str, tuple[float, float]] = MappingProxyType({
    "n_layers": (1, 64), "d_model": (16, 256), "n_heads": (1, 16), "n_ctx": (2, 256), "batch_size": (1, 16),
    "init_variance": (0.25, 4), "alpha": (0, 1.5), "input_second_moment": (1e-4, 1e4), "bias_variance": (0, 2),
    "learning_rate": (1e-4, 0.1), "warmup": (1, 1000), "clip": (0, 10), "qk_clip": (0, 100), "alpha_steps": (1, 1000),
})
"""First and last value where it is not the whole range: what is of interest, and does not take hours."""


@cache
def axis_fields() -> Mapping[str, Spec]:
    """The fields with a slider: the design's, then those of a recipe."""
    return {name: spec for name, spec in {**Config.specs(), **Recipe.specs()}.items() if slider_steps(spec)}


def field_options() -> dict[str, Option]:
    """Those fields as the options of a list."""
    return {name: Option(f"{spec.low:g} to {spec.high:g} {spec.about.unit}".rstrip(), label=_label(name, spec))
            for name, spec in axis_fields().items()}


def _label(name: str, spec: Spec) -> str:
    return f"{spec.about.label} (training)" if is_training(name) else spec.about.label


def is_training(name: str) -> bool:
    """Whether a field says how a design is trained."""
    return name not in Config.specs()


def usual(name: str) -> tuple[float, float]:
    """First and last value of a field on an axis, until somebody says otherwise."""
    spec = axis_fields()[name]
    return USUAL.get(name, (spec.low, spec.high))


def axis_values(name: str, first: float, last: float, count: int) -> tuple[float, ...]:
    """About so many values between two, both among them: even on the field's axis, and rounded to three digits.

    Of whole numbers there may be fewer.
    """
    spec = axis_fields()[name]
    if name in DIVIDE:
        between = [step for step in slider_steps(spec) if first < step < last]
        return tuple(thinned([int(first), *map(int, between), int(last)], count))
    if spec.kind == "integer" and last - first < count:
        return tuple(range(int(first), int(last) + 1))
    even = np.geomspace(first, last, count) if spec.about.log and first > 0 else np.linspace(first, last, count)
    if spec.kind == "integer":
        return tuple(sorted({int(first), *map(round, even[1:-1].tolist()), int(last)}))
    return tuple(sorted({first, *(float(f"{value:.3g}") for value in even[1:-1].tolist()), last}))
