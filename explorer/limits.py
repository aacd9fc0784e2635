"""How large an experiment may be: what a small machine survives, unless the environment allows more."""

from __future__ import annotations

import os
from collections.abc import Mapping

MAX_PARAMETERS = 120_000_000
"""Weights of all layers together: noise, weights and a copy in passing must fit; EXPLORER_MAX_PARAMETERS overrides."""
MAX_ACTIVATION_MEGABYTES = 2_000
"""What autograd may keep of one forward pass; EXPLORER_MAX_ACTIVATION_MB overrides."""


def check_size(n_parameters: int, activation_bytes: int, choices: Mapping[str, object]) -> None:
    """Raises ValueError if an experiment is too large, with the fields that make it so."""
    limit = _limit("EXPLORER_MAX_PARAMETERS", MAX_PARAMETERS)
    if n_parameters > limit:
        raise ValueError(
            f"n_layers × 2 (2 + mlp_ratio) d_model² weights must be at most {limit:,}; got {n_parameters:,} "
            f"({_told(choices, 'n_layers', 'd_model', 'mlp_ratio')}; EXPLORER_MAX_PARAMETERS raises the limit)"
        )
    limit = _limit("EXPLORER_MAX_ACTIVATION_MB", MAX_ACTIVATION_MEGABYTES)
    if activation_bytes > limit * 1e6:
        raise ValueError(
            f"activations of one pass must be at most {limit:,} MB; got about {activation_bytes / 1e6:,.0f} "
            f"({_told(choices, 'n_layers', 'd_model', 'n_ctx', 'batch_size')}; "
            "EXPLORER_MAX_ACTIVATION_MB raises the limit)"
        )


def _told(choices: Mapping[str, object], *names: str) -> str:
    return ", ".join(f"{name} = {choices[name]}" for name in names)


def _limit(variable: str, default: int) -> int:
    """A limit: the environment's where it is set, so that a private machine can allow more."""
    text = os.environ.get(variable)
    if text is None:
        return default
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        raise ValueError(f"{variable} must be a number; got {text!r}") from None
