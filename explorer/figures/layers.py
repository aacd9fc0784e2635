"""The signal layer by layer: second moment, token correlation, attention entropy, gradient.

`whose` is the design of each profile where the caller keeps the marks, as `palette.designs` has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from explorer.figures.axes import Range, blank, depth_axis, depth_range, linear_range, log_range, sheet, value_axis
from explorer.figures.palette import Design
from explorer.figures.pattern import NO_ATTENTION
from explorer.figures.series import Series, along_stream, at_site
from explorer.figures.traces import broken, floor, reference, rows
from explorer.figures.words import describe
from explorer.profile import Profile


def second_moment(profiles: Sequence[Profile], whose: Sequence[Design] = ()) -> go.Figure:
    """q, the mean of x², of the residual stream after every sublayer, on a log axis; 1 is marked.

    Dots: mean over seeds. Band: lowest to highest seed. Depth in layers, q in units of the input's variance.
    """
    series = along_stream(profiles, "second_moment", whose)
    return over_depth(
        series, "q = mean x² (input² units)", log_range(series, 1.0), {1.0: "q = 1"}, log=True,
        sentence="After %{x:~g} layers<br>the second moment is %{y:.3g}",
        subject="Second moment of the residual stream",
    )


def token_correlation(profiles: Sequence[Profile], whose: Sequence[Design] = ()) -> go.Figure:
    """ρ, how alike the tokens of a sequence are, after every sublayer; 0 and 1 (rank collapse) are marked."""
    series = along_stream(profiles, "token_correlation", whose)
    return over_depth(
        series, "ρ = p / q (ratio)", linear_range(series, 0.0, 1.0),
        {1.0: "all tokens alike", 0.0: "unrelated"}, log=False,
        sentence="After %{x:~g} layers<br>the token correlation is %{y:.3g}", subject="Correlation of tokens",
    )


def attention_entropy(profiles: Sequence[Profile], whose: Sequence[Design] = ()) -> go.Figure:
    """Entropy of attention over ln(visible keys), per layer; 1 (uniform) and 0 (one-hot) are marked.

    Dots: median over heads and seeds. Band: lowest to highest head of any seed.
    """
    designs = {profile.config for profile in profiles}
    if designs and all(config and config.attention == "none" for config in designs):
        return blank(NO_ATTENTION if len(designs) == 1 else "None of these designs has attention.")
    series = at_site(profiles, "attention_entropy_normalized", "pattern", whose)
    return over_depth(
        series, "H / ln n (ratio)", linear_range(series, 0.0, 1.0),
        {1.0: "uniform", 0.0: "one-hot"}, log=False,
        sentence="In layer %{x:~g} the median head's entropy<br>is %{y:.3g} of the uniform one",
        subject="Normalized attention entropy",
    )


def gradient_by_layer(profiles: Sequence[Profile], whose: Sequence[Design] = ()) -> go.Figure:
    """γ, the mean of (∂L/∂x)², along the residual stream, relative to the last layer, on a log axis; 1 is marked."""
    series = along_stream(profiles, "activation_gradient", whose)
    return over_depth(
        series, "γ / γ<sub>N</sub> (ratio)", log_range(series, 1.0), {1.0: "flat"}, log=True,
        sentence="After %{x:~g} layers the squared gradient<br>is %{y:.3g} × that of the last layer",
        subject="Squared gradient relative to the last layer",
    )


def over_depth(
    series: Sequence[Series], title: str, height: Range, marks: Mapping[float, str], *, log: bool, sentence: str,
    subject: str,
) -> go.Figure:
    """The common picture: reference levels, bands, lines, dots, and on top marks for values that are not finite."""
    across, named = depth_range(series), [("", row) for row in series]
    traces: list[dict[str, Any]] = [
        reference(value, words, across, height, log) for value, words in marks.items()
    ]
    traces += rows(series, log, sentence)
    traces += floor(named, height) if log else []
    traces += broken(series, across, height, log)
    layout = sheet(depth_axis(across), value_axis(title, height, log), describe(subject, named))
    return go.Figure({"data": traces, "layout": layout})
