"""Charts of profiles: a statistic by layer, by position or by matrix, as its row says; the
attention pattern.

Also a chart about which a question is asked: empty while it stands, then with the guess.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike
from plotly.colors import get_colorscale

from explorer.config import Config
from explorer.figures import kit
from explorer.figures.data import Picture, Plain
from explorer.figures.palette import MATRIX_MARKS, NEUTRAL, SEQUENTIAL, LegendEntry, designs
from explorer.figures.series import (
    Series,
    band,
    breakdowns,
    broken,
    by_depth,
    describe,
    floor,
    measured,
    predicted,
    room_for_breaks,
    rows,
    spread,
)
from explorer.figures.words import typeset
from explorer.profile import (
    ROWS,
    VOCABULARY,
    WEIGHT_STATISTICS,
    Array,
    Profile,
    Statistic,
    index_of,
)

STATISTIC = "parameter_gradient"
WRITTEN = {matrix: typeset(matrix) for matrix in MATRIX_MARKS} | {"alpha": "α", "mix": "mix"}
SENTENCE = "In layer %{{x}} the gradient<br>of {} has norm %{{y:.3g}}"
LEGEND: dict[str, Any] = {
    "showlegend": True,
    "legend": {"x": 1.0, "y": 1.0, "itemwidth": 30, "tracegroupgap": 0, "font": {"size": 12}},
    "margin": kit.MARGIN | {"r": 78},
}
MOST_CELLS = 256
"""Tokens a side that are sent to a browser; a longer pattern is shown in blocks of tokens."""

MOST_LETTERS, LONGEST_PART = 12, 6
"""Characters of a sentence that have a label each where they have room on a phone, and those of a
part of a word."""
SPACE = "␣"
"""Stands for a space where characters have a label each."""

COLORS = get_colorscale(SEQUENTIAL)

NO_ATTENTION = "This design has no attention."
NO_POSITIONS = "This layer has no such statistic."
NO_READOUT = "Only the loss of the next character has a readout."
WITHHELD = "Withheld until you answer."
GUESS = "your guess"


@Picture
def by_layer(
    statistic: str, profiles: Sequence[Profile], looks: Sequence[LegendEntry] = ()
) -> Plain:
    """A statistic along the residual stream, or of its sites by layer, with its marks, on a log
    axis if it has one.

    Dots: mean over seeds, or median over heads and seeds. Band: lowest to highest.

    Args:
        statistic: its name in the vocabulary.
        looks: the design of each profile where the caller keeps the marks, as `palette.designs` has
            it.
    """
    row = VOCABULARY[statistic]
    if words := never(row, [profile.config for profile in profiles]):
        return kit.blank.plain(words)
    sites = ("",) if row.on_stream else row.sites
    named = [("", curve) for site in sites for curve in by_depth(profiles, statistic, site, looks)]
    height = statistic_axis(row, [part for _, curve in named for part in curve.drawn_values])
    where = "After %{x:~g} layers" if row.on_stream else "In layer %{x:~g}"
    whose_value = "the median head's" if row.by_head else "the"
    sentence = f"{where}<br>{whose_value} {row.label.lower()} is %{{y:.3g}} {row.compared}".rstrip()
    return _over_depth(
        named,
        height,
        rows([curve for _, curve in named], height.log, sentence),
        row.marks,
        "right",
        f"{row.label}, residual stream" if row.on_stream else row.label,
    )


@Picture
def by_position(
    statistic: str, profiles: Sequence[Profile], looks: Sequence[LegendEntry] = (), layer: int = 0
) -> Plain:
    """A statistic of one layer over the position of a token, from 1, both axes as the statistic's
    row has them.

    Dots: mean over seeds. Band: lowest to highest seed. Where values are not finite an upright
    stands.

    Args:
        statistic: a row of the vocabulary that has values by position.
        looks: the design of each profile where the caller keeps the marks, as `palette.designs` has
            it.
        layer: from 1; 0 is the last, and so is one that a design does not have.
    """
    row = VOCABULARY[statistic]
    if words := never(row, [profile.config for profile in profiles]):
        return kit.blank.plain(words)
    series, key = [], (statistic, row.sites[0])
    for design, profile in zip(designs(profiles, looks), profiles, strict=True):
        values = profile.values.get(key)  # [seed, layer, position]
        if values is None:
            continue
        _, layers, positions = values.shape
        index = index_of(layer, layers)
        if index + 1 in profile.absent.get(key, ()):
            continue
        at, note = np.arange(1.0, positions + 1), profile.notes.get(statistic, "")
        series.append(spread(row, design, profile, at, values[:, index], note))
    if not series:
        return kit.blank.plain(NO_POSITIONS)
    height = statistic_axis(row, [part for curve in series for part in curve.drawn_values])
    across = kit.axis(
        "token position (from 1)", [1.0, *(curve.depth for curve in series)], log=True
    )
    sentence = (
        f"At token %{{x:~g}} the {row.label.lower().removesuffix(' by position')}<br>is %{{y:.3g}}"
    )
    curves = rows(series, height.log, sentence)
    ends = []  # where a curve stops being finite, and its hue
    for curve in series:
        bad = np.flatnonzero(~np.isfinite(curve.middle))
        if len(bad) and not curve.note:
            ends.append((float(curve.depth[bad[0]]), curve.design.hue))
    height = height.with_room(kit.room_for_words(len(ends)))
    levels = [kit.level(value, words, across, height) for value, words in row.marks.items()]
    lost = [
        kit.capped(end, "not finite", across, height, hue, number)
        for number, (end, hue) in enumerate(ends, start=1)
    ]
    return kit.picture.plain(
        [*levels, *curves, *lost], across, height, kit.described(row.label, curves)
    )


def never(row: Statistic, asked: Sequence[Config | None]) -> str:
    """The sentence in place of a statistic that none of some designs can have; empty where one may
    have it, as a model may whose design is not known (None)."""
    configs = [config for config in dict.fromkeys(asked) if config]
    if not configs or None in asked:
        return ""
    if row.sites[0] in ROWS and not any(config.design.attends for config in configs):
        return NO_ATTENTION if len(configs) == 1 else "None of these designs has attention."
    readout = "logits" not in row.sites or any(config.design.predicts_text for config in configs)
    return "" if readout else NO_READOUT


def statistic_axis(row: Statistic, held: Sequence[ArrayLike], symbol: str = "") -> kit.Axis:
    """The axis of a statistic: it holds the given values, the statistic's bounds and marks."""
    bounds = (
        [] if row.name in WEIGHT_STATISTICS else [end for end in row.bounds if np.isfinite(end)]
    )
    return kit.axis(
        f"{symbol or row.symbol} ({row.unit})",
        [list(row.marks), bounds, *held],
        log=row.log,
        least=kit.LEAST if row.log else 0.0,
        top=kit.TOP,
    )


def _over_depth(
    named: Sequence[tuple[str, Series]],
    height: kit.Axis,
    curves: Sequence[kit.Trace],
    marks: Mapping[float, str],
    side: str,
    subject: str,
) -> Plain:
    """A chart over depth: levels, curves, and the marks of zeros and of values that are not
    finite."""
    series = [row for _, row in named]
    across = kit.depth_axis(*(row.depth for row in series))
    lost = breakdowns(series)
    height = height.with_room(room_for_breaks(lost))
    levels = [kit.level(value, words, across, height, side) for value, words in marks.items()]
    traces = [
        *levels,
        *curves,
        *(floor(named, height) if height.log else []),
        *broken(lost, across, height),
    ]
    return kit.picture.plain(traces, across, height, describe(subject, named))


@Picture
def gradient_by_matrix(
    profiles: Sequence[Profile], looks: Sequence[LegendEntry] = (), matrix: str = ""
) -> Plain:
    """Frobenius norm of the loss gradient by each weight matrix of each layer, on a log axis.

    One design: marks and a hue a matrix, with a legend. Several: each in its own marks, of one
    `matrix`, or, where none is chosen, of a layer's whole gradient. The dotted level is the
    geometric mean: flat would lie on it."""
    looks = designs(profiles, looks)
    alone = len({design.index for design in looks}) < 2
    if alone:
        named = [
            (name, row)
            for name in MATRIX_MARKS
            for row in by_depth(profiles, STATISTIC, name, looks)
        ]
    else:
        named = [
            ("", row)
            for row in (
                by_depth(profiles, STATISTIC, matrix, looks) if matrix else _totals(profiles, looks)
            )
        ]
    series = [row for _, row in named]
    title = f"norm of ∂L/∂{'W' if alone else WRITTEN.get(matrix, 'layer')} (loss/weight)"
    held = [part for row in series for part in row.drawn_values]
    height = kit.axis(title, held, log=True, least=kit.LEAST, top=kit.TOP)
    subject = matrix or "all matrices together"
    curves = (
        _by_matrix(named)
        if alone
        else rows(series, True, SENTENCE.format(WRITTEN.get(matrix, subject)))
    )
    figure = _over_depth(
        named,
        height,
        curves,
        dict.fromkeys(_level(series), "flat"),
        "left",
        f"Gradient norm of {'each matrix' if alone else subject}",
    )
    return _with_legend(figure) if alone else figure


@Picture
def weights_by_matrix(
    statistic: str, profiles: Sequence[Profile], looks: Sequence[LegendEntry] = ()
) -> Plain:
    """A statistic of the weights themselves, each matrix of each layer with its symbol, and the
    vocabulary's marks."""
    row, looks = VOCABULARY[statistic], designs(profiles, looks)
    named = [
        (name, line) for name in MATRIX_MARKS for line in by_depth(profiles, statistic, name, looks)
    ]
    height = statistic_axis(row, [part for _, line in named for part in line.drawn_values])
    sentence = f"In layer %{{{{x}}}} the {row.label.lower()}<br>of {{}} is %{{{{y:.3g}}}}"
    curves = _by_matrix(named, row.log, sentence)
    return _with_legend(_over_depth(named, height, curves, row.marks, "left", row.label))


def _with_legend(figure: Plain) -> Plain:
    """The figure with the names of the matrices beside it."""
    return {**figure, "layout": figure["layout"] | LEGEND}


def _totals(profiles: Sequence[Profile], looks: Sequence[LegendEntry]) -> list[Series]:
    """The norm over all matrices of a layer together: √Σ‖∂L/∂W‖², one series a profile that has
    any."""
    totals = []
    for design, profile in zip(looks, profiles, strict=True):
        held = [matrix for matrix in MATRIX_MARKS if (STATISTIC, matrix) in profile.values]
        if held:
            whole = np.linalg.norm([profile[STATISTIC, matrix] for matrix in held], axis=0)
            totals.append(
                spread(VOCABULARY[STATISTIC], design, profile, profile.depth(held[0]), whole)
            )
    return totals


def _level(series: Sequence[Series]) -> list[float]:
    """The geometric mean of all that is drawn, as a list of one; empty when nothing is."""
    held = [part for row in series for part in row.drawn_values]
    values = np.concatenate([np.empty(0), *(part[kit.drawable(part, True)] for part in held)])
    return [float(10.0 ** np.log10(values).mean())] if len(values) else []


def _by_matrix(
    named: Sequence[tuple[str, Series]], log: bool = True, words: str = SENTENCE
) -> list[kit.Trace]:
    """Dots and lines, each matrix with its symbol and dash and one entry of the legend; of one
    design, its hue."""
    if len({row.design.index for _, row in named}) < 2:
        named = [
            (name, replace(row, design=replace(row.design, index=MATRIX_MARKS[name].hue)))
            for name, row in named
        ]
    traces = [trace for _, row in named for trace in band(row, log)]
    for matrix, row in named:
        mark, twin = MATRIX_MARKS[matrix], {"legendgroup": matrix, "name": WRITTEN[matrix]}
        sentence = words.format(WRITTEN[matrix])
        if row.measured:
            traces.append(measured(row, log, sentence, symbol=mark.symbol, **twin))
        else:
            traces.append(predicted(row, log, sentence, dash=mark.dash, **twin, showlegend=False))
    return traces


@Picture
def attention_pattern(profile: Profile) -> Plain:
    """Attention weights `[query, key]` of the profile's chosen layer and head as a heat map; a row
    sums to 1.

    What a causal mask hides stays blank. The uniform weight 1/n is marked on the color scale.
    """
    if profile.config and not profile.config.design.attends:
        return kit.blank.plain(NO_ATTENTION)
    if profile.pattern is None or profile.pattern_of is None:
        return {"data": [], "layout": _layout("No pattern was kept.", "no pattern was kept", 1)}
    tokens = len(profile.pattern)
    layer, head = profile.pattern_of  # the layer from 1, the head from 0
    pattern = profile.pattern
    if profile.config is not None and profile.config.causal:
        pattern = np.where(np.tri(tokens) > 0, pattern, np.nan)
    shown, block = coarse(pattern)
    finite = shown[np.isfinite(shown)]
    heading = f"layer {layer}, head {head + 1}"
    if block > 1:
        heading += f", blocks of {block} × {block} tokens"
    lost = "" if np.isfinite(profile.pattern).all() else ", not finite where blank"
    top = float(finite.max(initial=0.0)) or 1.0
    words = f"Attention of {heading}: largest weight {top:.3g}, uniform over {tokens} tokens {1 / tokens:.3g}{lost}."
    heat = {
        "type": "heatmap",
        "name": heading,
        "z": kit.compact(shown),
        "x0": (block - 1) / 2,
        "dx": block,
        "y0": (block - 1) / 2,
        "dy": block,
        "zmin": 0.0,
        "zmax": top,
        "colorscale": COLORS,
        "hoverongaps": False,
        "colorbar": _scale(tokens, top),
        "hovertemplate": "Query token %{y:.0f}<br>gives %{z:.3g} of its attention"
        "<br>to key token %{x:.0f}<extra></extra>",
    }
    figure = {"data": [heat], "layout": _layout(words, heading + lost, tokens)}
    sentence = profile.config.design.sentence if profile.config else ""
    return _lettered(figure, sentence) if len(sentence) == tokens else figure


def _lettered(figure: Plain, sentence: str) -> Plain:
    """A pattern with the tokens of a sentence: on hovering the two characters, on the axes each, or
    the words of many.

    A word stands at its middle; a long one in parts, each at its own. They may come from anybody,
    and are escaped."""
    letters = [html.escape(letter, quote=False) for letter in sentence]
    parts = [
        *re.finditer(rf"\S{{1,{LONGEST_PART}}}" if len(sentence) > MOST_LETTERS else ".", sentence)
    ]
    axis = {
        "tickvals": [(part.start() + part.end() - 1) / 2 for part in parts],
        "ticktext": [html.escape(part[0].replace(" ", SPACE), quote=False) for part in parts],
    }
    heat, layout = figure["data"][0], figure["layout"]
    words = [[f"{query} → {key}" for key in letters] for query in letters]
    heat |= {
        "text": words,
        "hovertemplate": heat["hovertemplate"].replace("<extra>", "<br>%{text}<extra>"),
    }
    layout |= {
        "xaxis": layout["xaxis"] | axis,
        "yaxis": layout["yaxis"] | axis | {"automargin": True},
    }
    return figure


def coarse(pattern: Array) -> tuple[Array, int]:
    """A pattern of at most `MOST_CELLS` a side, and the side of the blocks whose mean weight a cell
    is.

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
    return kit.colorbar(
        "weight (share of its row)", tickvals=list(ticks), ticktext=list(ticks.values())
    )


def _layout(description: str, heading: str, tokens: int) -> dict[str, Any]:
    """Two axes of tokens, the first query on top as one reads."""
    bare = {"showgrid": False, "ticks": ""}
    across = kit.Axis("key position (tokens)", (-0.5, tokens - 0.5), counts=True)
    down = kit.Axis("query position (tokens)", (tokens - 0.5, -0.5), counts=True)
    return kit.sheet(across.layout | bare, down.layout | bare, description, **kit.headline(heading))


# A chart while a question about it stands: its axes alone; and afterwards, with the guess beside
# the measurement.


def withheld() -> go.Figure:
    """A sentence in place of a chart that would give the answer away."""
    return kit.blank(WITHHELD)


def asked(row: Statistic, layers: int, extent: tuple[float, float]) -> go.Figure:
    """The axes of a statistic over depth and their marks, with nothing of a design.

    Args:
        extent: ends of the vertical axis; exponents where it is logarithmic.
    """
    low, high = extent
    length = high - low
    height = kit.Axis(
        f"{row.symbol} ({row.unit})", (low - kit.AIR * length, high + kit.TOP * length), row.log
    )
    across = kit.depth_axis(float(layers))
    marks = [kit.level(value, words, across, height) for value, words in row.marks.items()]
    return kit.picture(marks, across, height, f"{row.label} over {layers} layers. {WITHHELD}")


def with_guess(figure: go.Figure, depth: ArrayLike, values: ArrayLike) -> go.Figure:
    """A figure by layer with the line of a guess; its axis is made longer where that needs it.

    Args:
        depth, values: points of the line, values in the unit of the axis.
    """
    x, y = np.asarray(depth, dtype=float), np.asarray(values, dtype=float)
    heights = np.log10(y) if figure.layout.yaxis.type == "log" else y
    low, high = figure.layout.yaxis.range
    air = kit.AIR * (high - low)
    figure.layout.yaxis.range = (min(low, heights.min() - air), max(high, heights.max() + air))
    figure.add_trace(_guess(x, y))
    figure.layout.meta = {
        "description": f"{figure.layout.meta['description']} {kit.ends(GUESS, x, y, 'depth ')}"
    }
    return figure


def _guess(x: Array, y: Array) -> dict[str, Any]:
    words = [""] * len(x)
    words[len(words) // 2] = GUESS
    return {
        "type": "scatter",
        "mode": "lines+markers+text",
        "name": GUESS,
        "x": kit.compact(x),
        "y": kit.compact(y),
        "text": words,
        "textposition": "top center",
        "textfont": {"size": 11},
        "cliponaxis": False,
        "line": {"color": NEUTRAL, "width": 2, "dash": "dash"},
        "marker": {"color": NEUTRAL, "symbol": "x-thin-open", "size": 8, "line": {"width": 2}},
        "hovertemplate": f"<b>{GUESS}</b><br>%{{y:.3g}} at depth %{{x:~g}}<extra></extra>",
    }
