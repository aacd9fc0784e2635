"""The attention pattern of one layer and head."""

from __future__ import annotations

from typing import Any

import numpy as np
from plotly.colors import get_colorscale

from explorer.figures.axes import Axis, blank, headline, sheet
from explorer.figures.palette import SEQUENTIAL
from explorer.figures.plain import Picture, Plain
from explorer.figures.traces import colorbar, compact
from explorer.profile import Array, Profile
from explorer.schemes.attention import attends

MOST_CELLS = 256
"""Tokens a side that are sent to a browser; a longer pattern is shown in blocks of tokens."""

COLORS = get_colorscale(SEQUENTIAL)

NO_ATTENTION = "This design has no attention."


@Picture
def attention_pattern(profile: Profile) -> Plain:
    """Attention weights `[query, key]` of the profile's chosen layer and head as a heat map; a row sums to 1.

    What a causal mask hides stays blank. The uniform weight 1/n is marked on the color scale.
    """
    if profile.config and not attends(profile.config):
        return blank.plain(NO_ATTENTION)
    if profile.pattern is None or profile.pattern_of is None:
        return {"data": [], "layout": _layout("No pattern was kept.", "no pattern was kept", 1)}
    tokens, (layer, head) = len(profile.pattern), profile.pattern_of
    causal = profile.config is not None and profile.config.causal
    shown, block = coarse(np.where(np.tri(tokens) > 0, profile.pattern, np.nan) if causal else profile.pattern)
    finite = shown[np.isfinite(shown)]
    heading = f"layer {layer}, head {head + 1}" + (f", blocks of {block} × {block} tokens" if block > 1 else "")
    lost = "" if np.isfinite(profile.pattern).all() else ", not finite where blank"
    top = float(finite.max(initial=0.0)) or 1.0
    words = f"Attention of {heading}: largest weight {top:.3g}, uniform over {tokens} tokens {1 / tokens:.3g}{lost}."
    heat = {
        "type": "heatmap", "name": heading, "z": compact(shown), "x0": (block - 1) / 2, "dx": block,
        "y0": (block - 1) / 2, "dy": block, "zmin": 0.0, "zmax": top, "colorscale": COLORS,
        "hoverongaps": False, "colorbar": _scale(tokens, top),
        "hovertemplate": "Query token %{y:.0f} gives %{z:.3g} of its attention<br>to key token %{x:.0f}<extra></extra>",
    }
    return {"data": [heat], "layout": _layout(words, heading + lost, tokens)}


def coarse(pattern: Array) -> tuple[Array, int]:
    """A pattern of at most `MOST_CELLS` a side, and the side of the blocks whose mean weight a cell is.

    A block that holds something visible shows the mean of what is visible in it.
    """
    tokens = len(pattern)
    block = -(-tokens // MOST_CELLS)
    if block == 1:
        return pattern, 1
    side = -(-tokens // block)
    padded = np.full((side * block, side * block), np.nan)
    padded[:tokens, :tokens] = pattern
    blocks = np.ma.masked_invalid(padded).reshape(side, block, side, block)
    return np.asarray(blocks.mean(axis=(1, 3)).filled(np.nan)), block


def _scale(tokens: int, top: float) -> dict[str, Any]:
    """The color bar: 0, the largest weight, and 1/n, where uniform attention would stand."""
    share = 1 / tokens / top
    ticks = {0.0: "0", top: f"{top:.2g}"}
    if share > 0.9:
        ticks[top] = f"1/{tokens}" if share > 0.999 else f"≈ 1/{tokens}"
    elif share > 0.1:
        ticks[1 / tokens] = f"1/{tokens}"
    return colorbar("weight (share of its row)", tickvals=list(ticks), ticktext=list(ticks.values()))


def _layout(description: str, heading: str, tokens: int) -> dict[str, Any]:
    """Two axes of tokens, the first query on top as one reads."""
    bare = {"showgrid": False, "ticks": ""}
    across = Axis("key position (tokens)", (-0.5, tokens - 0.5), counts=True)
    down = Axis("query position (tokens)", (tokens - 0.5, -0.5), counts=True)
    return sheet(across.layout | bare, down.layout | bare, description, **headline(heading))
