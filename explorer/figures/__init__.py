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

from explorer.diagnosis.comparing import Comparison
from explorer.display import must_be
from explorer.figures.data import Plain
from explorer.figures.kit import Axis, alone, broken_off, depth_axis
from explorer.figures.layers import (
    attention_pattern,
    by_layer,
    by_position,
    gradient_by_matrix,
    weights_by_matrix,
)
from explorer.figures.palette import NEUTRAL, LegendEntry, designs
from explorer.figures.why import Why, why
from explorer.profile import SITE_WORDS, STATISTICS, VOCABULARY, WEIGHT_STATISTICS, Profile

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
    """From profiles to a figure as plain data; `looks` is the design of each, where the caller
    keeps their marks."""

    def __call__(self, profiles: Sequence[Profile], looks: Sequence[LegendEntry] = ()) -> Plain: ...


class Row(NamedTuple):
    """One figure: its title, its caption, and the function that draws it."""

    name: str
    title: str
    caption: str
    plain: Draw
    statistic: str = ""
    """The statistic that it shows."""
    together: str = ""
    """The caption where several designs are drawn, if that is another picture."""

    def draw(self, profiles: Sequence[Profile], looks: Sequence[LegendEntry] = ()) -> go.Figure:
        """The figure, which plotly has checked."""
        return go.Figure(self.plain(profiles, looks))

    def why(self, *predicted: Profile) -> Why:
        """The line below the caption, for the designs that are drawn: see `figures.why.why`."""
        return why(self.statistic or self.name, *predicted)


def _pattern_of_first(
    profiles: Sequence[Profile],
    looks: Sequence[LegendEntry] = (),  # noqa: ARG001 - a heat map has no hue of a design
) -> Plain:
    """A pattern belongs to one profile: the first that kept one, and the last where none did."""
    having = [profile for profile in profiles if profile.pattern is not None]
    return attention_pattern.plain(
        (having or profiles[-1:] or [Profile(origin="measured", values={})])[0]
    )


def _layers(statistic: str, name: str = "", layer: int = 0) -> Row:
    """A statistic by layer, or by position in one layer, as its row of the vocabulary has it."""
    row = VOCABULARY[statistic]
    caption = row.caption or f"{row.definition[0].upper()}{row.definition[1:]}."
    if row.by_position:
        words = f"layer {layer}" if layer else "the last layer"
        return Row(
            name or statistic,
            row.label,
            caption.format(layer=words),
            partial(by_position.plain, statistic, layer=layer),
            statistic,
        )
    draw = weights_by_matrix if statistic in WEIGHT_STATISTICS and not row.by_head else by_layer
    return Row(name or statistic, row.label, caption, partial(draw.plain, statistic), statistic)


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
        layer: from 1, of a statistic by position; 0 is the last one. Of others all layers are
            drawn.
    Raises:
        ValueError: there is no such statistic or figure; names those there are.
    """
    drawn = {row.statistic or row.name: row for row in (*FIGURES.values(), *BY_CHOICE.values())}
    if name in VOCABULARY and (name not in drawn or (layer and VOCABULARY[name].by_position)):
        return _layers(name, layer=layer)
    if name not in drawn and name not in FIGURES:
        names = ", ".join(dict.fromkeys((*VOCABULARY, *FIGURES)))
        raise ValueError(f"statistic must be one of {names}; got {name!r}")
    return drawn.get(name) or FIGURES[name]


def plot(
    profile: Profile, statistic: str = "second_moment", *others: Profile, layer: int = 0
) -> go.Figure:
    """One figure by itself, with a title and a legend: see `Profile.plot`."""
    row = row_of(statistic, must_be(int, "layer", layer))
    if layer < 0 or (
        layer and (row.statistic not in VOCABULARY or not VOCABULARY[row.statistic].by_position)
    ):
        raise ValueError(
            f"layer must be 0 or more, and 0 for {statistic} unless that is by position; got {layer}"
        )
    for number, other in enumerate(others):
        must_be(Profile, f"others[{number}]", other)
    return alone(row.draw([profile, *others]), row.title, row.caption)


def plot_comparison(comparison: Comparison, statistic: str = "") -> go.Figure:
    """Both profiles in one chart, with an upright where they first part: see `Comparison.plot`."""
    part = next((row for row in comparison.differences if statistic in ("", row.statistic)), None)
    row = row_of(statistic or comparison.differences[0].statistic)
    figure = row.draw([comparison.first, comparison.second])
    if part is not None and part.parts:
        depths, limits = comparison.second.depth(part.site), figure.layout.yaxis
        height = Axis("", tuple(limits.range), log=limits.type == "log")
        words = f"{comparison.place(part)}: {SITE_WORDS.get(part.site, part.site)}"
        figure.add_trace(
            broken_off(
                float(depths[part.layer - (part.site != "embed")]),
                words,
                depth_axis(depths),
                height,
                NEUTRAL,
                0.05,
                name="They part",
            )
        )
    return alone(figure, row.title, str(comparison))
