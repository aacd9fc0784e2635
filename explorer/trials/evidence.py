"""`Evidence`: a few numbers of an untrained model from which to predict whether it trains."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from explorer.config import Config
from explorer.diagnosis import token_difference
from explorer.diagnosis.reading import by_layer, weight_gradients
from explorer.profile import MATRICES, Array, Profile
from explorer.schemes.placement import PLACEMENTS
from explorer.theory import predict

GRADIENT, DIFFERENCE = (1e-6, 1e9), 1e-6
"""Bounds of the gradient's norm, beyond which it has died out or is not finite; least difference of tokens."""


class Evidence(NamedTuple):
    """Numbers of a profile, of a design at the size of the trials."""

    gradient: float
    """Norm of the training loss's gradient by all matrices of the layers, root mean square over seeds; at most
    1e9, which stands for what is not finite as well, and at least 1e-6."""
    difference: float
    """The least share of the tokens' difference at the input that is left at any depth; at least 1e-6."""
    entropy: float
    """The least entropy of attention in any layer, as a share of the uniform one; 1 without attention, 0 where it is
    not finite."""
    pointwise: float
    """1 where a function of each coordinate stands in the norms' place, else 0."""


def evidence(profile: Profile) -> Evidence:
    """The evidence in a profile, mean over seeds and heads; finite, whatever the profile is."""
    with np.errstate(all="ignore"):
        squares = [np.square(values).sum(axis=1) for site, values in weight_gradients(profile).items()
                   if site in MATRICES]  # [site][seed]
        gradient = float(np.sqrt(np.sum(squares, axis=0).mean())) if squares else 0.0
        entropy = by_layer(profile, "attention_entropy_normalized", "pattern")
    return Evidence(
        gradient=float(np.clip(gradient, *GRADIENT)) if np.isfinite(gradient) else GRADIENT[1],
        difference=_least(token_difference(profile), DIFFERENCE),
        entropy=_least(entropy, 0.0),
        pointwise=float(_pointwise(profile)),
    )


def predicted(config: Config) -> Evidence | None:
    """The evidence in a predicted profile; None where theory lacks a gradient, and a model must be measured."""
    profile = predict(config)
    gradients = weight_gradients(profile).values()
    return evidence(profile) if gradients and all(np.isfinite(values).all() for values in gradients) else None


def _pointwise(profile: Profile) -> bool:
    config = profile.config
    return config is not None and bool(config.design.point) and PLACEMENTS[config.norm_placement].normalizes


def _least(values: Array, floor: float) -> float:
    """The least value between a floor and 1; 1 where there are none, and the floor where one is not finite."""
    least = float(values.min(initial=1.0))
    return max(floor, least) if np.isfinite(least) else floor
