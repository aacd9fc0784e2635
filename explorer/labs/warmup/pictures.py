"""Pictures of the warm-up lab: losses, gradients before training, after warm-up and at the end, token correlation."""

from __future__ import annotations

import plotly.graph_objects as go

from explorer.labs.trained_pictures import TWO_ROWS, Look, Looks, by_layer, course
from explorer.labs.trained_pictures import losses as _losses
from explorer.labs.warmup.experiment import DESIGNS, FIELD, LENGTHS, WarmupResult, Who

DASH = dict(zip(LENGTHS, ("dot", "dash", "solid"), strict=True))
SIX: Looks = {
    who.name: Look(f"{DESIGNS[who.design].removesuffix('-LN')}, {who.length}", list(DESIGNS).index(who.design),
                   DASH[who.length])
    for who in FIELD
}
TWO: Looks = {
    Who(design, "none").name: Look(words, index) for index, (design, words) in enumerate(DESIGNS.items())
}
"""Before the first step a design does not depend on its warm-up."""
GRADIENT = "‖∂L/∂W‖ of a layer"
SAYS = "‖∂L/∂W‖ = %{y:.3g}"


def losses(result: WarmupResult) -> go.Figure:
    """Held-out loss over the steps."""
    return _losses(result.trained, SIX, **TWO_ROWS)


def before(result: WarmupResult) -> go.Figure:
    """Gradient of each layer's matrices before the first step."""
    return by_layer(result.trained, TWO, lambda curve: curve.weights[0], GRADIENT, SAYS)


def warm(result: WarmupResult) -> go.Figure:
    """The same when the long warm-up ends, of all six; at the end where it does not."""
    step = result.settings.warmup
    return by_layer(result.trained, SIX, lambda curve: curve.weights[curve.reading(step)], GRADIENT, SAYS, **TWO_ROWS)


def ends(result: WarmupResult) -> go.Figure:
    """The same at the last reading."""
    return by_layer(result.trained, SIX, lambda curve: curve.weights[-1], GRADIENT, SAYS, **TWO_ROWS)


def ratio(result: WarmupResult) -> go.Figure:
    """The first layer's gradient over the last layer's, over the steps."""
    return course(result.trained, SIX, lambda curve: curve.first_to_last, "‖∂L/∂W‖, first / last",
                  "first layer's gradient is %{y:.3g} × the last's", log=True, flat=(1.0, "even"), **TWO_ROWS)


def correlation(result: WarmupResult) -> go.Figure:
    """Token correlation after the last layer, over the steps."""
    return course(result.trained, SIX, lambda curve: curve.correlation[:, -1], "ρ, last layer (ratio)",
                  "tokens overlap by %{y:.3g}", flat=(1.0, "all tokens alike"), least=0.5, **TWO_ROWS)
