"""Maps of the trainability lab: colors are trained or measured, lines theory; and four designs by depth."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from explorer.figures.axes import axis, picture
from explorer.figures.map import heat_map, over
from explorer.figures.traces import described, dots, joined, level
from explorer.labs.trainability.experiment import ALPHAS, AS_PUBLISHED, DESIGNS, LAWS, TrainabilityResult
from explorer.labs.trained import LEARNS

DASHES = ("dash", "dot")
MARK = "learns"


def trained(result: TrainabilityResult) -> go.Figure:
    """Loss below the unigram's over α and depth; contours of the predicted token correlation, and laws of α."""
    figure = heat_map(result.maps["alpha"], "loss_drop", x="alpha", y="n_layers", lines="token_correlation")
    depth = np.geomspace(result.settings.depths[0], result.settings.depths[-1], 40)
    for words, dash in zip(DESIGNS[result.settings.design].laws, DASHES, strict=False):
        alpha = LAWS[words](depth)
        inside = alpha >= ALPHAS[0]
        figure = over(figure, alpha[inside], depth[inside], words, dash)
    return figure


def alike(result: TrainabilityResult) -> go.Figure:
    """Token correlation after the last layer before the first step, of the same designs."""
    return heat_map(result.maps["alpha"], "token_correlation", x="alpha", y="n_layers")


def published(result: TrainabilityResult) -> go.Figure:
    """Loss below the unigram's of four designs at α = 1, shallow and deep."""
    depths = result.maps["Post-LN"]["n_layers"].values
    drops = {name: result.maps[name]["loss_drop"].sel(origin="trained").values for name in AS_PUBLISHED}
    across = axis("depth N (layers)", [depths], log=True)
    height = axis("drop (nats/character)", [[0.0, LEARNS], *drops.values()], top=0.12)
    sentence = "With %{x:~g} layers<br>the loss is %{y:.3g} below the unigram's"
    traces = [level(0.0, "unigram", across, height, "left"), level(LEARNS, MARK, across, height)]
    traces += [dots(depths, drop, name, index, sentence, **joined(index))
               for index, (name, drop) in enumerate(drops.items())]
    return picture(traces, across, height, described("Loss below the unigram's by depth, at α = 1", traces))


def standard(result: TrainabilityResult) -> go.Figure:
    """Loss over learning rate and width, standard parametrization."""
    return heat_map(result.maps["standard"], "loss_drop", x="learning_rate", y="d_model")


def mup(result: TrainabilityResult) -> go.Figure:
    """Map of the loss drop under μP, over learning rate and width."""
    return heat_map(result.maps["mup"], "loss_drop", x="learning_rate", y="d_model")
