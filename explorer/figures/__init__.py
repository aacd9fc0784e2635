"""Pictures of profiles: pure functions from Profiles to plotly figures.

Dots are measured, lines are predicted, bands go from the smallest to the largest of the seeds. A
design keeps its hue, symbol and dash in every figure. Figures carry no theme: a page, or a reader,
gives paper and text their colors. `FIGURES` holds one row a figure; iterate over it to draw them
all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, Protocol

import plotly.graph_objects as go

from explorer.diagnosis.comparing import Comparison, Difference
from explorer.display import must_be
from explorer.figures.data import Plain
from explorer.figures.kit import Axis, Trace, alone, broken_off, depth_axis
from explorer.figures.layers import (
    attention_pattern,
    by_layer,
    by_position,
    gradient_by_matrix,
    weights_by_matrix,
)
from explorer.figures.palette import NEUTRAL, LegendEntry, designs
from explorer.figures.why import Why, why
from explorer.profile import Profile
from explorer.sites import SITE_WORDS
from explorer.translation import Note, with_messages
from explorer.vocabulary import STATISTICS, VOCABULARY, WEIGHT_STATISTICS

__all__ = [
    "BY_CHOICE",
    "FIGURES",
    "Draw",
    "LegendEntry",
    "Row",
    "attention_pattern",
    "by_layer",
    "designs",
    "gradient_by_matrix",
    "plot",
    "plot_comparison",
    "row_of",
]


class Draw(Protocol):
    """A function from profiles to a figure as plain data.

    `looks` has one legend entry a profile, where the caller fixes hues and symbols; empty: designs
    are numbered in the order of the profiles."""

    def __call__(self, profiles: Sequence[Profile], looks: Sequence[LegendEntry] = ()) -> Plain:
        """Draws the profiles in one figure."""


@with_messages("title", "caption", "together")
class Row(NamedTuple):
    """One figure: its title, its caption, and the function that draws it."""

    name: str
    title: str
    caption: str
    plain: Draw
    """Draws it as plain data, which plotly has not checked."""
    statistic: str = ""
    """The statistic that it shows; empty for the attention pattern, which is none."""
    together: str = ""
    """The caption where several designs are drawn, if that is another picture."""
    definition: str = ""
    """The exact definition of its numbers, a sentence; empty where the caption says it."""

    def draw(self, profiles: Sequence[Profile], looks: Sequence[LegendEntry] = ()) -> go.Figure:
        """The figure, which plotly has checked."""
        return go.Figure(self.plain(profiles, looks))

    def why(self, *predicted: Profile) -> Why:
        """The definition of its numbers, and the reason why they are so for the designs that are
        drawn: see `figures.why.why`."""
        reason = why(self.statistic or self.name, *predicted)
        return reason._replace(words=f"{self.definition} {reason.words}".strip())


def _pattern_of_first(
    profiles: Sequence[Profile],
    looks: Sequence[LegendEntry] = (),  # noqa: ARG001 - a heat map has no hue of a design
) -> Plain:
    """The attention pattern of the first profile that kept one.

    A heat map shows one profile only. Where none kept a pattern, the last profile decides which
    sentence stands in its place."""
    for profile in profiles:
        if profile.pattern is not None:
            return attention_pattern.plain(profile)
    nothing = Profile(origin="measured", values={})
    return attention_pattern.plain(profiles[-1] if profiles else nothing)


def _layers(statistic: str, name: str = "", layer: int = 0) -> Row:
    """The chart of one statistic: over token positions, by weight matrix, or by layer, as its row
    of the vocabulary says.

    Args:
        name: the figure's name, if it differs from the statistic's.
        layer: from 1, whose positions are drawn; 0 is the last. Other charts show all layers.
    """
    row = VOCABULARY[statistic]
    definition = f"{row.definition[0].upper()}{row.definition[1:]}."
    caption = row.caption or definition
    if row.by_position:
        drawn = Note("layer {layer}", layer=layer) if layer else Note("the last layer")
        caption = Note(caption, layer=drawn)
        draw = partial(by_position.plain, statistic, layer=layer)
    elif statistic in WEIGHT_STATISTICS and not row.by_head:
        draw = partial(weights_by_matrix.plain, statistic)
    else:
        draw = partial(by_layer.plain, statistic)
    if not row.caption:
        definition = ""
    return Row(name or statistic, row.label, caption, draw, statistic, definition=definition)


FIGURES: Mapping[str, Row] = MappingProxyType(
    {
        row.name: row
        for row in (
            _layers("second_moment"),
            _layers("activation_gradient", "gradient_by_layer"),
            _layers("attention_entropy_normalized", "attention_entropy"),
            _layers("token_correlation"),
            Row(
                "gradient_by_matrix",
                "Gradient by matrix",
                "Size of ∂L/∂W: what the first step moves most.",
                gradient_by_matrix.plain,
                "parameter_gradient",
                together="Size of ∂L/∂W, by layer or by matrix: what the first step moves most.",
            ),
            Row(
                "attention_pattern",
                "Attention pattern",
                "A row is one token's attention: bright is where it looks. 1/n is uniform.",
                _pattern_of_first,
                together="A row is one token's attention, in the current design. 1/n is uniform.",
            ),
        )
    }
)
"""The figures of the page."""
BY_CHOICE: Mapping[str, Row] = MappingProxyType(
    {"second_moment": FIGURES["second_moment"]}
    | {
        name: _layers(name)
        for name, row in STATISTICS.items()
        if row.caption and name not in {figure.statistic for figure in FIGURES.values()}
    }
)
"""The statistics that the list below the first chart offers: those with a caption that have no
chart of their own."""


def row_of(name: str, layer: int = 0) -> Row:
    """The figure of any statistic of the vocabulary, or of the page.

    Args:
        name: of a statistic, or of a row of `FIGURES`.
        layer: from 1, of a statistic by position; 0 is the last one. Of others all layers are
            drawn.
    Raises:
        ValueError: there is no such statistic or figure; names those there are.
    """
    on_page = {row.statistic or row.name: row for row in (*FIGURES.values(), *BY_CHOICE.values())}
    if name in VOCABULARY:
        one_layer = layer and VOCABULARY[name].by_position
        if one_layer or name not in on_page:
            return _layers(name, layer=layer)
    if name in on_page:
        return on_page[name]
    if name in FIGURES:
        return FIGURES[name]
    names = ", ".join(dict.fromkeys((*VOCABULARY, *FIGURES)))
    raise ValueError(f"statistic must be one of {names}; got {name!r}")


def plot(
    profile: Profile, statistic: str = "second_moment", *others: Profile, layer: int = 0
) -> go.Figure:
    """One figure by itself, with a title and a legend: see `Profile.plot`."""
    row = row_of(statistic, must_be(int, "layer", layer))
    by_position = row.statistic in VOCABULARY and VOCABULARY[row.statistic].by_position
    if layer < 0 or (layer and not by_position):
        raise ValueError(
            f"layer must be 0 or more, and 0 for {statistic} unless that is by position; got {layer}"
        )
    for number, other in enumerate(others):
        must_be(Profile, f"others[{number}]", other)
    return alone(row.draw([profile, *others]), row.title, row.caption)


def plot_comparison(comparison: Comparison, statistic: str = "") -> go.Figure:
    """Both profiles in one chart, with a vertical line where they first part.

    Args:
        statistic: of the vocabulary; empty for the one in which they first part.
    Raises:
        ValueError: there is no such statistic.
    """
    row = row_of(statistic or comparison.differences[0].statistic)
    figure = row.draw([comparison.first, comparison.second])
    for difference in comparison.differences:
        if statistic not in ("", difference.statistic):
            continue
        if difference.parts:
            figure.add_trace(_parting(comparison, difference, figure))
        break  # the first difference alone: it is where they part, if they do
    return alone(figure, row.title, str(comparison))


def _parting(comparison: Comparison, difference: Difference, figure: go.Figure) -> Trace:
    """A vertical line at the depth, in layers, of the site at which two profiles part."""
    site = difference.site
    depths = comparison.second.depth(site)  # [layer]; of the embedding [1], its one depth
    index = 0 if site == "embed" else difference.layer - 1
    drawn_height = figure.layout.yaxis
    return broken_off(
        float(depths[index]),
        f"{comparison.place(difference)}: {SITE_WORDS.get(site, site)}",
        depth_axis(depths),
        Axis("", tuple(drawn_height.range), log=drawn_height.type == "log"),
        NEUTRAL,
        share=0.05,  # near the bottom: breakdowns have their words on top
        name="They part",
    )
