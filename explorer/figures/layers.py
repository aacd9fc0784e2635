"""The signal layer by layer: second moment, token correlation, attention entropy, gradient.

`whose` is the design of each profile where the caller keeps the marks, as `palette.designs` has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from explorer.figures.axes import LEAST, TOP, Axis, axis, blank, depth_axis, picture
from explorer.figures.gaps import broken, floor
from explorer.figures.palette import Design
from explorer.figures.pattern import NO_ATTENTION
from explorer.figures.series import Series, along_stream, at_site, describe, rows
from explorer.figures.traces import level
from explorer.profile import Profile
from explorer.schemes.attention import attends


def second_moment(profiles: Sequence[Profile], whose: Sequence[Design] = ()) -> go.Figure:
    """q, the mean of x², of the residual stream after every sublayer, on a log axis; 1 is marked.

    Dots: mean over seeds. Band: lowest to highest seed. Depth in layers, q in units of the input's variance.
    """
    series = along_stream(profiles, "second_moment", whose)
    return over_depth(
        series, "q = mean x² (input² units)", {1.0: "q = 1"}, log=True,
        sentence="After %{x:~g} layers<br>the second moment is %{y:.3g}",
        subject="Second moment of the residual stream",
    )


def token_correlation(profiles: Sequence[Profile], whose: Sequence[Design] = ()) -> go.Figure:
    """ρ, how alike the tokens of a sequence are, after every sublayer; 0 and 1 (rank collapse) are marked."""
    series = along_stream(profiles, "token_correlation", whose)
    return over_depth(
        series, "ρ = p / q (ratio)",
        {1.0: "all tokens alike", 0.0: "unrelated"}, log=False,
        sentence="After %{x:~g} layers<br>the token correlation is %{y:.3g}", subject="Correlation of tokens",
    )


def attention_entropy(profiles: Sequence[Profile], whose: Sequence[Design] = ()) -> go.Figure:
    """Entropy of attention over ln(visible keys), per layer; 1 (uniform) and 0 (one-hot) are marked.

    Dots: median over heads and seeds. Band: lowest to highest head of any seed.
    """
    designs = {profile.config for profile in profiles}
    if designs and all(config and not attends(config) for config in designs):
        return blank(NO_ATTENTION if len(designs) == 1 else "None of these designs has attention.")
    series = at_site(profiles, "attention_entropy_normalized", "pattern", whose)
    return over_depth(
        series, "H / ln n (ratio)",
        {1.0: "uniform", 0.0: "one-hot"}, log=False,
        sentence="In layer %{x:~g} the median head's entropy<br>is %{y:.3g} of the uniform one",
        subject="Normalized attention entropy",
    )


def gradient_by_layer(profiles: Sequence[Profile], whose: Sequence[Design] = ()) -> go.Figure:
    """γ, the mean of (∂L/∂x)², along the residual stream, relative to the last layer, on a log axis; 1 is marked."""
    series = along_stream(profiles, "activation_gradient", whose)
    return over_depth(
        series, "γ / γ<sub>N</sub> (ratio)", {1.0: "flat"}, log=True,
        sentence="After %{x:~g} layers the squared gradient<br>is %{y:.3g} × that of the last layer",
        subject="Squared gradient relative to the last layer",
    )


def over_depth(
    series: Sequence[Series], title: str, levels: Mapping[float, str], *, log: bool, sentence: str, subject: str,
    height: Axis | None = None,
) -> go.Figure:
    """The common picture: reference levels, bands, lines, dots, and on top marks for values that are not finite.

    `height` is the vertical axis where it shall not just hold what is drawn.
    """
    parts = [part for row in series for part in row.parts]
    height = height or axis(title, [list(levels), *parts], log=log, least=LEAST if log else 0.0, top=TOP)
    across, named = depth_axis(*(row.depth for row in series)), [("", row) for row in series]
    traces = [level(value, words, across, height) for value, words in levels.items()]
    traces += rows(series, log, sentence)
    traces += floor(named, height) if log else []
    traces += broken(series, across, height)
    return picture(traces, across, height, describe(subject, named), legend=False)
