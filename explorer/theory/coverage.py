"""Where the theory ends: which predicted values are withdrawn, and the sentence that says why."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from explorer.config import Config
from explorer.profile import STATISTICS, Array, Key
from explorer.residuals import multipliers
from explorer.theory.values import Rows

RUNAWAY = 50.0
"""Standard deviation of the logits beyond which a row's gradient sits in the rare ties between its largest keys, which
an average over draws contains and a single draw of usual size does not."""
ALIKE = 1e-5
"""1 − ρ below which what distinguishes tokens is no longer resolved: by the theory's scatter, and soon by float32."""
NEAR_CAP = 0.3
"""Share of a soft cap from which on the logits' spread is bent too far to be treated as normal."""
NARROW = 32
"""Width below which corrections of higher order in 1/width are no longer small."""
TEXT = 0.25
"""What is left open in ‖∂L/∂W‖ under the next-token loss: above the worst seen at up to 64 tokens, .79 of the measured
in a first layer under a causal mask. Over 256 tokens W_Q and W_K of the first layer were .60 ± .14 of it."""

GRADIENTS = ("activation_gradient", "parameter_gradient")

PATTERN = ("attention_entropy", "attention_entropy_normalized", "attention_max")


def apply(config: Config, values: Mapping[Key, Array], rows: Rows, covered: int
          ) -> tuple[dict[Key, Array], dict[str, str]]:
    """Withdraws what does not hold.

    Args:
        values: predictions as `[1, layer]` or `[1, layer, 1]`.
        rows: softmax statistics of the layers that the forward recursion reached.
        covered: sublayers that it reached.
    Returns:
        the values, nan where not covered, and statistic to reason.
    """
    out = {key: np.array(value) for key, value in values.items()}
    notes: dict[str, str] = {}
    if covered < 2 * config.n_layers:
        layer = covered // 2 + 1
        notes = dict.fromkeys(STATISTICS, f"not covered from layer {layer} on: the signal leaves float32's range")
        notes |= dict.fromkeys(GRADIENTS, f"not covered: the signal leaves float32's range at layer {layer}")
        return out, notes
    if config.d_model < NARROW:
        reason = f"rough: the theory is first order in 1/width, and {config.d_model} coordinates are few"
        notes |= dict.fromkeys(GRADIENTS, reason)
    if config.loss == "next_token":
        notes["parameter_gradient"] = (
            f"rough, by up to {100 * TEXT:.0f} %, W_Q and W_K in the first layers by more: it depends on how often "
            "characters repeat"
        )
    if config.logit_cap and rows.s.max(initial=0.0) > NEAR_CAP * config.logit_cap:
        reason = f"rough: logits reach their cap of {config.logit_cap:g}"
        notes |= dict.fromkeys((*GRADIENTS, *PATTERN), reason)
    _collapse(out, notes, rows)
    _runaway(config, out, notes, rows)
    return out, notes


def _collapse(out: dict[Key, Array], notes: dict[str, str], rows: Rows) -> None:
    """Tokens that have become the same: logits have no spread that could be told from rounding."""
    alike = np.flatnonzero(rows.own < ALIKE)
    if not len(alike):
        return
    first = int(alike[0])
    for key in (("logit_std", "attn_scores"), ("parameter_gradient", "W_Q"), ("parameter_gradient", "W_K")):
        if key in out:
            out[key][:, first:] = math.nan
    reason = f"not covered from layer {first + 1} on: its tokens are alike to 1 in 100,000"
    notes["logit_std"] = reason
    notes["parameter_gradient"] = f"W_Q and W_K {reason}"


def _runaway(config: Config, out: dict[Key, Array], notes: dict[str, str], rows: Rows) -> None:
    """Logits so far apart that attention is one-hot: its rare ties carry the gradients of everything below."""
    wild = np.flatnonzero(rows.s > RUNAWAY)
    if not len(wild) or multipliers(config).branch == 0:
        return
    last = int(wild[-1])
    for (statistic, site), value in out.items():
        if statistic in GRADIENTS:
            # of layer `last` itself, what is behind its softmax holds
            behind = site in ("resid_mid", "resid_post", "W_V", "W_O", "W_in", "W_out", "alpha")
            value[:, : last if behind else last + 1] = math.nan
    reason = (
        f"not covered before layer {last + 1}: attention logits run away (spread {rows.s[last]:.2g}), "
        "and rare ties between keys carry the gradient"
    )
    notes |= dict.fromkeys(GRADIENTS, reason)
