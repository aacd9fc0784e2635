"""Readings of a profile for the rules: statistics by layer or along the stream, and the model's names of layers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from explorer.profile import STREAM, Array, Profile

GROWN = 10.0
"""A second moment that has grown by so much widens the logits that no norm protects."""
NONE = np.empty(0)


class Line(NamedTuple):
    """A statistic along the stream, the mean over seeds; empty where the profile has none."""

    depth: Array
    """`[site]`, in layers: 0 is the input, l − ½ after the attention of layer l, l after its MLP."""
    values: Array

    def at(self, depth: float) -> float:
        """The value at a depth, or at the first site after it; nan where there is none."""
        after = self.values[np.searchsorted(self.depth, depth):]
        return float(after[0]) if len(after) else np.nan


def line(profile: Profile, statistic: str) -> Line:
    """A statistic along the stream."""
    if not any((statistic, site) in profile.values for site in STREAM):
        return Line(NONE, NONE)
    depth, values = profile.stream(statistic)
    return Line(depth, values.mean(axis=0))


def by_layer(profile: Profile, statistic: str, site: str) -> Array:
    """A statistic at one site, `[layer]`, the mean over seeds and heads; empty where the profile has none."""
    values = profile.values.get((statistic, site))
    return NONE if values is None else values.mean(axis=(0, *range(2, values.ndim)))


def weight_gradients(profile: Profile) -> dict[str, Array]:
    """Norms of the gradient by each matrix, and by α, `[seed, layer]`."""
    return {site: values for (statistic, site), values in profile.values.items() if statistic == "parameter_gradient"}


def start(profile: Profile) -> float:
    """Depth from which on sizes are compared: the input, unless its size is another than the first layer's.

    Embeddings may be of any size beside the branches that are added to them, or the norms that they go through.
    """
    q = line(profile, "second_moment")
    if not len(q.depth) or q.depth[0] > 0 or 1 / GROWN < q.at(1.0) / q.values[0] < GROWN:
        return 0.0
    return 1.0


def layer_name(profile: Profile, layer: int) -> str:
    """A layer, counted from 1, with the model's name for it: "layer 17 (transformer.h.16)"."""
    known = 0 < layer <= len(profile.layers)
    return f"layer {layer} ({profile.layers[layer - 1]})" if known else f"layer {layer}"


def called(profile: Profile, layer: int) -> str:
    """The layer's name at the start of a sentence."""
    name = layer_name(profile, layer)
    return name[0].upper() + name[1:]


def path(profile: Profile, layer: int) -> str:
    """A layer in a line of torch."""
    return f'model.get_submodule("{profile.layers[layer - 1]}")' if layer <= len(profile.layers) else f"layer {layer}"


def stream_before(profile: Profile, site: str, n_layers: int, statistic: str = "second_moment") -> Array:
    """A statistic of the stream that a branch is added to, `[layer]`; nan where it is not known."""
    middle = by_layer(profile, statistic, "resid_mid")
    if site == "mlp_out" and len(middle):
        return middle[:n_layers]
    first, after = (by_layer(profile, statistic, at) for at in ("embed", "resid_post"))
    before = np.full(n_layers, np.nan)
    before[:1] = first[:1] if len(first) else np.nan
    before[1:] = after[: n_layers - 1] if len(after) else np.nan
    return before


def head_width(profile: Profile) -> int:
    """Width of a head, from the shape of W_Q and the number of heads; 0 where they are not known."""
    scores = profile.values.get(("logit_std", "attn_scores"))
    if scores is None or scores.ndim < 3 or "W_Q" not in profile.shapes:
        return 0
    return profile.shapes["W_Q"][1] // int(scores.shape[2])
