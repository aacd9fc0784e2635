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
from explorer.profile import Profile, index_of
from explorer.sites import ROWS
from explorer.vocabulary import VOCABULARY, WEIGHT_STATISTICS, Array, Statistic

STATISTIC = "parameter_gradient"
"""The statistic of `gradient_by_matrix`."""
WRITTEN = {matrix: typeset(matrix) for matrix in MATRIX_MARKS} | {"alpha": "α", "mix": "mix"}
"""Name of each weight matrix as plotly shows it."""
SENTENCE = "In layer %{{x}} the gradient<br>of {} has norm %{{y:.3g}}"
"""Hover text of `gradient_by_matrix`; the matrix is put in."""
LEGEND: dict[str, Any] = {
    "showlegend": True,
    "legend": {"x": 1.0, "y": 1.0, "itemwidth": 30, "tracegroupgap": 0, "font": {"size": 12}},
    "margin": kit.MARGIN | {"r": 78},
}
MOST_CELLS = 256
"""Cells a side of a pattern that are sent to a browser; a cell of a longer one is a block of
tokens."""

MOST_LETTERS, LONGEST_PART = 12, 6
"""A sentence of at most so many characters has a label for each, which has room on a phone; of a
longer one each word has a label, in pieces of at most so many characters."""
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
    if reason := never(row, [profile.config for profile in profiles]):
        return kit.blank.plain(reason)
    sites = ("",) if row.on_stream else row.sites
    series = [curve for site in sites for curve in by_depth(profiles, statistic, site, looks)]
    height = statistic_axis(row, _drawn_values(series))
    where = "After %{x:~g} layers" if row.on_stream else "In layer %{x:~g}"
    whose_value = "the median head's" if row.by_head else "the"
    sentence = f"{where}<br>{whose_value} {row.label.lower()} is %{{y:.3g}} {row.compared}".rstrip()
    return _over_depth(
        [("", curve) for curve in series],
        height,
        rows(series, height.log, sentence),
        row.marks,
        "right",
        f"{row.label}, residual stream" if row.on_stream else row.label,
    )


def _drawn_values(series: Sequence[Series]) -> list[Array]:
    """Middle, lowest and highest values of all series: everything that an axis must hold."""
    return [values for row in series for values in row.drawn_values]


@Picture
def by_position(
    statistic: str, profiles: Sequence[Profile], looks: Sequence[LegendEntry] = (), layer: int = 0
) -> Plain:
    """A statistic of one layer over the position of a token, from 1, both axes as the statistic's
    row has them.

    Dots: mean over seeds. Band: lowest to highest seed. A vertical line stands where values stop
    being finite.

    Args:
        statistic: a row of the vocabulary that has values by position.
        looks: the design of each profile where the caller keeps the marks, as `palette.designs` has
            it.
        layer: from 1; 0 is the last, and so is one that a design does not have.
    """
    row = VOCABULARY[statistic]
    if reason := never(row, [profile.config for profile in profiles]):
        return kit.blank.plain(reason)
    series, key = [], (statistic, row.sites[0])
    for design, profile in zip(designs(profiles, looks), profiles, strict=True):
        values = profile.values.get(key)  # [seed, layer, position]
        if values is None:
            continue
        _, layers, tokens = values.shape
        index = index_of(layer, layers)
        if index + 1 in profile.absent.get(key, ()):
            continue
        positions, note = np.arange(1.0, tokens + 1), profile.notes.get(statistic, "")
        series.append(spread(row, design, profile, positions, values[:, index], note))
    if not series:
        return kit.blank.plain(NO_POSITIONS)
    height = statistic_axis(row, _drawn_values(series))
    across = kit.axis(
        "token position (from 1)", [1.0, *(curve.depth for curve in series)], log=True
    )
    subject = row.label.lower().removesuffix(" by position")
    sentence = f"At token %{{x:~g}} the {subject}<br>is %{{y:.3g}}"
    curves = rows(series, height.log, sentence)
    breaks = []  # position at which a curve stops being finite, and its hue
    for curve in series:
        bad = np.flatnonzero(~np.isfinite(curve.middle))
        if len(bad) and not curve.note:
            breaks.append((float(curve.depth[bad[0]]), curve.design.hue))
    height = height.with_room(kit.room_for_words(len(breaks)))
    levels = [kit.level(value, words, across, height) for value, words in row.marks.items()]
    uprights = [
        kit.capped(position, "not finite", across, height, hue, number)
        for number, (position, hue) in enumerate(breaks, start=1)
    ]
    return kit.picture.plain(
        [*levels, *curves, *uprights], across, height, kit.described(row.label, curves)
    )


def never(row: Statistic, configs: Sequence[Config | None]) -> str:
    """The sentence in place of a chart of a statistic that none of the designs can have; empty
    where one may have it.

    Args:
        row: the statistic.
        configs: the designs; None is a model whose design is not known, which may have everything.
    """
    distinct = [config for config in dict.fromkeys(configs) if config]
    if not distinct or None in configs:
        return ""
    if row.sites[0] in ROWS and not any(config.design.attends for config in distinct):
        return NO_ATTENTION if len(distinct) == 1 else "None of these designs has attention."
    if "logits" in row.sites and not any(config.design.predicts_text for config in distinct):
        return NO_READOUT
    return ""


def statistic_axis(row: Statistic, drawn: Sequence[ArrayLike], symbol: str = "") -> kit.Axis:
    """The axis of a statistic: it holds the drawn values, the statistic's bounds and its marks.

    Args:
        drawn: the drawn values, arrays of any shape.
        symbol: in the title, if it differs from the statistic's.
    """
    bounds = [end for end in row.bounds if np.isfinite(end)]
    if row.name in WEIGHT_STATISTICS:
        bounds = []  # a likeness of weights may be −1, which hardly any model has
    return kit.axis(
        f"{symbol or row.symbol} ({row.unit})",
        [list(row.marks), bounds, *drawn],
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
    """A chart over depth: gray levels, curves, arrows for zeros on a log axis, and vertical lines
    where values stop being finite.

    Args:
        named: pairs of the matrix's name, empty where a series is of no matrix, and the series.
        height: the statistic's axis.
        curves: the traces of the series.
        marks: label of each gray level, by its value.
        side: end of the levels at which their labels stand, "left" or "right".
        subject: the statistic, for the description.
    """
    series = [row for _, row in named]
    across = kit.depth_axis(*(row.depth for row in series))
    breaks = breakdowns(series)
    height = height.with_room(room_for_breaks(breaks))
    levels = [kit.level(value, words, across, height, side) for value, words in marks.items()]
    zeros = floor(named, height) if height.log else []
    traces = [*levels, *curves, *zeros, *broken(breaks, across, height)]
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
        named = _each_matrix(STATISTIC, profiles, looks)
    elif matrix:
        named = [("", row) for row in by_depth(profiles, STATISTIC, matrix, looks)]
    else:
        named = [("", row) for row in _totals(profiles, looks)]
    series = [row for _, row in named]
    weight = "W" if alone else WRITTEN.get(matrix, "layer")
    height = kit.axis(
        f"norm of ∂L/∂{weight} (loss/weight)",
        _drawn_values(series),
        log=True,
        least=kit.LEAST,
        top=kit.TOP,
    )
    level = dict.fromkeys(_geometric_mean(series), "flat")
    if alone:
        curves, subject = _by_matrix(named), "each matrix"
    else:
        subject = matrix or "all matrices together"
        curves = rows(series, True, SENTENCE.format(WRITTEN.get(matrix, subject)))
    figure = _over_depth(named, height, curves, level, "left", f"Gradient norm of {subject}")
    return _with_legend(figure) if alone else figure


def _each_matrix(
    statistic: str, profiles: Sequence[Profile], looks: Sequence[LegendEntry]
) -> list[tuple[str, Series]]:
    """A statistic of the weights over layers: pairs of a matrix's name and its series."""
    return [
        (matrix, row)
        for matrix in MATRIX_MARKS
        for row in by_depth(profiles, statistic, matrix, looks)
    ]


@Picture
def weights_by_matrix(
    statistic: str, profiles: Sequence[Profile], looks: Sequence[LegendEntry] = ()
) -> Plain:
    """A statistic of the weights themselves, each matrix of each layer with its symbol, and the
    vocabulary's marks."""
    row, looks = VOCABULARY[statistic], designs(profiles, looks)
    named = _each_matrix(statistic, profiles, looks)
    height = statistic_axis(row, _drawn_values([line for _, line in named]))
    sentence = f"In layer %{{{{x}}}} the {row.label.lower()}<br>of {{}} is %{{{{y:.3g}}}}"
    curves = _by_matrix(named, row.log, sentence)
    return _with_legend(_over_depth(named, height, curves, row.marks, "left", row.label))


def _with_legend(figure: Plain) -> Plain:
    """The figure with a legend beside it that names the matrices."""
    return {**figure, "layout": figure["layout"] | LEGEND}


def _totals(profiles: Sequence[Profile], looks: Sequence[LegendEntry]) -> list[Series]:
    """The gradient norm over all matrices of a layer together, √Σ‖∂L/∂W‖², one series a profile
    that has gradients."""
    totals = []
    for design, profile in zip(looks, profiles, strict=True):
        matrices = [matrix for matrix in MATRIX_MARKS if (STATISTIC, matrix) in profile.values]
        if matrices:
            norms = [profile[STATISTIC, matrix] for matrix in matrices]  # [seed, layer] each
            whole = np.linalg.norm(norms, axis=0)
            depth = profile.depth(matrices[0])
            totals.append(spread(VOCABULARY[STATISTIC], design, profile, depth, whole))
    return totals


def _geometric_mean(series: Sequence[Series]) -> list[float]:
    """The geometric mean of everything drawn on a log axis, as a list of one; empty where nothing
    is drawn."""
    values = np.concatenate([np.empty(0), *_drawn_values(series)])
    values = values[kit.drawable(values, True)]
    return [float(10.0 ** np.log10(values).mean())] if len(values) else []


def _by_matrix(
    named: Sequence[tuple[str, Series]], log: bool = True, sentence: str = SENTENCE
) -> list[kit.Trace]:
    """Bands, dots and lines of each matrix, with the matrix's symbol and dash, and one entry a
    matrix in the legend.

    The hue is the design's; where only one design is drawn, the matrix's.

    Args:
        named: pairs of a matrix's name and its series.
        log: whether the vertical axis is logarithmic.
        sentence: the hover text, with {} for the matrix.
    """
    if len({row.design.index for _, row in named}) < 2:
        # a look's index decides its hue
        named = [
            (matrix, replace(row, design=replace(row.design, index=MATRIX_MARKS[matrix].hue)))
            for matrix, row in named
        ]
    traces = [trace for _, row in named for trace in band(row, log)]
    for matrix, row in named:
        mark, name = MATRIX_MARKS[matrix], WRITTEN[matrix]
        # a click on the legend's entry hides the matrix's dots and line together
        entry = {"legendgroup": matrix, "name": name}
        words = sentence.format(name)
        if row.measured:
            traces.append(measured(row, log, words, symbol=mark.symbol, **entry))
        else:
            line = predicted(row, log, words, dash=mark.dash, **entry, showlegend=False)
            traces.append(line)
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
    weights, block = coarse(pattern)
    finite = weights[np.isfinite(weights)]
    heading = f"layer {layer}, head {head + 1}"
    if block > 1:
        heading += f", blocks of {block} × {block} tokens"
    lost = "" if np.isfinite(profile.pattern).all() else ", not finite where blank"
    top = float(finite.max(initial=0.0)) or 1.0  # a scale from 0 to 0 would have no colors
    words = f"Attention of {heading}: largest weight {top:.3g}, uniform over {tokens} tokens {1 / tokens:.3g}{lost}."
    middle = (block - 1) / 2  # of the first block, in tokens from 0
    heat = {
        "type": "heatmap",
        "name": heading,
        "z": kit.compact(weights),
        "x0": middle,
        "dx": block,
        "y0": middle,
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
    """A pattern with the sentence whose characters are its tokens: hovering names the two
    characters, the axes are labeled with characters or, where they are many, with words.

    A label stands at the middle of its characters. Labels are escaped: the sentence may come from
    anybody."""
    letters = [html.escape(letter, quote=False) for letter in sentence]
    piece = rf"\S{{1,{LONGEST_PART}}}" if len(sentence) > MOST_LETTERS else "."
    labels = list(re.finditer(piece, sentence))
    axis = {
        "tickvals": [(label.start() + label.end() - 1) / 2 for label in labels],
        "ticktext": [html.escape(label[0].replace(" ", SPACE), quote=False) for label in labels],
    }
    heat, layout = figure["data"][0], figure["layout"]
    heat["text"] = [[f"{query} → {key}" for key in letters] for query in letters]
    heat["hovertemplate"] = heat["hovertemplate"].replace("<extra>", "<br>%{text}<extra>")
    layout["xaxis"] |= axis
    layout["yaxis"] |= axis | {"automargin": True}
    return figure


def coarse(pattern: Array) -> tuple[Array, int]:
    """A pattern `[query, key]` reduced to at most `MOST_CELLS` a side, and the side of the blocks
    of tokens whose mean weight a cell is.

    The mean is over the finite weights of a block, so that a block at the edge of a causal mask is
    not blank; nan where there are none.
    """
    tokens = len(pattern)
    block = -(-tokens // MOST_CELLS)  # rounded up
    if block == 1:
        return pattern, 1
    side = -(-tokens // block)
    padded = np.full((side * block, side * block), np.nan)
    padded[:tokens, :tokens] = pattern
    blocks = np.ma.masked_invalid(padded).reshape(side, block, side, block)
    return np.asarray(blocks.mean(axis=(1, 3)).filled(np.nan)), block


def _scale(tokens: int, top: float) -> dict[str, Any]:
    """The color bar: 0, the largest weight, and 1/n, where uniform attention would stand.

    Labels that would overlap become one: 1/n stands at the largest weight where it is near, and is
    left out near 0."""
    share = 1 / tokens / top
    ticks = {0.0: "0", top: f"{top:.2g}"}
    if share > 0.999:
        ticks[top] = f"1/{tokens}"
    elif share > 0.9:
        ticks[top] = f"≈ 1/{tokens}"
    elif share > 0.1:
        ticks[1 / tokens] = f"1/{tokens}"
    return kit.colorbar(
        "weight (share of its row)", tickvals=list(ticks), ticktext=list(ticks.values())
    )


def _layout(description: str, heading: str, tokens: int) -> dict[str, Any]:
    """The layout of a pattern: two axes of token positions from 0, the first query on top as one
    reads.

    Args:
        description: of the picture, for those who cannot see it.
        heading: above the picture.
        tokens: a side.
    """
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
    """An empty chart of a statistic over depth, for a guess: its axes and levels, with nothing of a
    design.

    Args:
        extent: ends of the vertical axis; exponents where it is logarithmic.
    """
    low, high = extent
    length = high - low
    with_air = (low - kit.AIR * length, high + kit.TOP * length)
    height = kit.Axis(f"{row.symbol} ({row.unit})", with_air, row.log)
    across = kit.depth_axis(float(layers))
    marks = [kit.level(value, words, across, height) for value, words in row.marks.items()]
    return kit.picture(marks, across, height, f"{row.label} over {layers} layers. {WITHHELD}")


def with_guess(figure: go.Figure, depth: ArrayLike, values: ArrayLike) -> go.Figure:
    """A figure by layer with the line of a guess; its axis is made longer where that needs it.

    Args:
        depth: of the points of the line, in layers.
        values: of the points, in the unit of the axis.
    """
    x, y = np.asarray(depth, dtype=float), np.asarray(values, dtype=float)
    heights = np.log10(y) if figure.layout.yaxis.type == "log" else y
    low, high = figure.layout.yaxis.range
    air = kit.AIR * (high - low)
    figure.layout.yaxis.range = (min(low, heights.min() - air), max(high, heights.max() + air))
    figure.add_trace(_guess(x, y))
    description = f"{figure.layout.meta['description']} {kit.ends(GUESS, x, y, 'depth ')}"
    figure.layout.meta = {"description": description}
    return figure


def _guess(x: Array, y: Array) -> dict[str, Any]:
    """The line of a guess, gray as it is nobody's design, with its name at its middle.

    Args:
        x, y: depth in layers, and values in the unit of the axis, `[point]`.
    """
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
