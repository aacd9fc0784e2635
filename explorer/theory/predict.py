"""`predict`: the profile that the theory expects of a config, with the same sites and statistics as a measurement.

What is predicted is the mean over draws of weights and input at finite width, to first order in 1/width; of gradients
by weights, the root of the mean square. One seed, one head. Where the theory does not hold the values are nan, and
`notes` says why.
"""

from __future__ import annotations

import math
import time

import numpy as np

from explorer.config import Config
from explorer.display import must_be
from explorer.profile import Array, Key, Profile
from explorer.schemes.attention import attends
from explorer.schemes.residual import learned
from explorer.schemes.scale import shapes
from explorer.theory import coverage
from explorer.theory.causal import Causal
from explorer.theory.gains import gains
from explorer.theory.inputs import embedding
from explorer.theory.unmasked import Unmasked
from explorer.theory.values import Recursions, Rows, Stream

ATTENTION = ("attn_scores", "pattern", "attn_out")
"""Sites that only attention has."""


def predict(config: Config) -> Profile:
    """The profile that theory predicts for a config. Accepts every config: values not covered are nan, with a note.

    Returns:
        A profile of origin "predicted", values `[1, layer]` and `[1, layer, 1]`.
    Raises:
        TypeError: the config is none.
    """
    must_be(Config, "config", config)
    start = time.perf_counter()
    with np.errstate(all="ignore"):
        values, notes = _values(config)
    return Profile("predicted", values, config, notes=notes, seconds=time.perf_counter() - start)


def _values(config: Config) -> tuple[dict[Key, Array], dict[str, str]]:
    masked = config.causal and attends(config)
    recursions: Recursions = (Causal if masked else Unmasked)(config, gains(config))
    stream, rows = recursions.stream(), recursions.rows()
    values = {**_stream(config, stream), **_rows(config, rows), **_gradients(config, recursions, len(stream.q))}
    if not attends(config):
        values = {key: value for key, value in values.items() if key[1] not in ATTENTION}
    return coverage.apply(config, values, rows, len(stream.q))


def _stream(config: Config, stream: Stream) -> dict[Key, Array]:
    first = embedding(config)
    q, p, added = (_full(column, 2 * config.n_layers) for column in stream)
    return {
        ("second_moment", "embed"): np.array([[first.q]]),
        ("second_moment", "resid_mid"): q[:, ::2],
        ("second_moment", "resid_post"): q[:, 1::2],
        ("second_moment", "attn_out"): added[:, ::2],
        ("second_moment", "mlp_out"): added[:, 1::2],
        ("token_correlation", "embed"): np.array([[first.p / first.q]]),
        ("token_correlation", "resid_mid"): (p / q)[:, ::2],
        ("token_correlation", "resid_post"): (p / q)[:, 1::2],
    }


def _rows(config: Config, rows: Rows) -> dict[Key, Array]:
    columns = {
        ("logit_std", "attn_scores"): rows.spread,
        ("attention_entropy", "pattern"): rows.entropy,
        ("attention_entropy_normalized", "pattern"): rows.normalized,
        ("attention_max", "pattern"): rows.largest,
    }
    return {key: _full(column, config.n_layers)[..., None] for key, column in columns.items()}


def _gradients(config: Config, recursions: Recursions, covered: int) -> dict[Key, Array]:
    names = [*shapes(config), *(["alpha"] if learned(config) else [])]
    if covered < 2 * config.n_layers:
        site, weights = np.empty(0), {name: np.empty(0) for name in names}
    else:
        site, weights = recursions.gradients()
    site = _full(site, 2 * config.n_layers + 1)
    return {
        ("activation_gradient", "embed"): site[:, :1],
        ("activation_gradient", "resid_mid"): site[:, 1::2],
        ("activation_gradient", "resid_post"): site[:, 2::2],
        **{("parameter_gradient", name): _full(weights[name], config.n_layers) for name in names},
    }


def _full(values: Array, length: int) -> Array:
    """`[1, length]`: the values, followed by nan."""
    return np.concatenate([values, np.full(length - len(values), math.nan)])[None]
