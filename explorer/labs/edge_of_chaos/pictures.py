"""Maps of the edge of chaos lab: colors are measured, lines theory."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go

from explorer.figures.map import heat_map, over
from explorer.labs.edge_of_chaos.experiment import D_HEAD, DEPTHS, TOKENS, EdgeResult, freezing


def moments(result: EdgeResult) -> go.Figure:
    """q after the last layer, over init variance and depth; the edge of small signals is at σ² = 1."""
    figure = heat_map(result.depth, "second_moment", x="init_variance", y="n_layers")
    return over(figure, [1.0, 1.0], [DEPTHS[0], DEPTHS[-1]], "σ² = 1")


def gradients(result: EdgeResult) -> go.Figure:
    """Gradient at the first layer over the last layer's, the same stacks."""
    figure = heat_map(result.depth, "activation_gradient", x="init_variance", y="n_layers")
    return over(figure, [1.0, 1.0], [DEPTHS[0], DEPTHS[-1]], "σ² = 1")


def branches(result: EdgeResult) -> go.Figure:
    """q of a stack with residuals, over the variances of attention and MLP."""
    return heat_map(result.shares, "second_moment", x="attention_variance", y="mlp_variance")


def freezes(result: EdgeResult) -> go.Figure:
    """Entropy of undivided attention over init variance and tokens, with σ² √d = √(2 ln n)."""
    figure = heat_map(result.attention, "attention_entropy_normalized", x="init_variance", y="n_ctx")
    n = np.geomspace(TOKENS[0], TOKENS[-1], 40)
    return over(figure, [freezing(each) / math.sqrt(D_HEAD) for each in n], n, "s = √(2 ln n)")
