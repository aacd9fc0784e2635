"""A statistic layer by layer, drawn as its row of the vocabulary says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from explorer.figures.axes import LEAST, TOP, Axis, axis, blank, depth_axis, picture
from explorer.figures.gaps import broken, floor
from explorer.figures.palette import Design
from explorer.figures.pattern import NO_ATTENTION
from explorer.figures.plain import Picture, Plain
from explorer.figures.series import by_depth, describe, rows
from explorer.figures.traces import level
from explorer.profile import VOCABULARY, Profile
from explorer.schemes.attention import attends


@Picture
def by_layer(statistic: str, profiles: Sequence[Profile], whose: Sequence[Design] = (), height: Axis | None = None
             ) -> Plain:
    """A statistic along the residual stream, or of its sites by layer, with its marks, on a log axis if it has one.

    Dots: mean over seeds, or median over heads and seeds. Band: lowest to highest.

    Args:
        statistic: its name in the vocabulary.
        whose: the design of each profile where the caller keeps the marks, as `palette.designs` has it.
        height: the vertical axis, where it shall not be the one that holds what is drawn.
    """
    row, designs = VOCABULARY[statistic], {profile.config for profile in profiles}
    if row.by_head and designs and all(config and not attends(config) for config in designs):
        return blank.plain(NO_ATTENTION if len(designs) == 1 else "None of these designs has attention.")
    sites = ("",) if row.on_stream else row.sites
    series = [curve for site in sites for curve in by_depth(profiles, statistic, site, whose)]
    ends = [end for end in row.bounds if np.isfinite(end)]
    held = [part for curve in series for part in curve.drawn_values]
    height = height or axis(f"{row.symbol} ({row.unit})", [list(row.marks), ends, *held], log=row.log,
                            least=LEAST if row.log else 0.0, top=TOP)
    where = "After %{x:~g} layers" if row.on_stream else "In layer %{x:~g}"
    whose_value = "the median head's" if row.by_head else "the"
    sentence = f"{where}<br>{whose_value} {row.label.lower()} is %{{y:.3g}} {row.compared}".rstrip()
    across, named = depth_axis(*(curve.depth for curve in series)), [("", curve) for curve in series]
    traces = [level(value, words, across, height) for value, words in row.marks.items()]
    traces += rows(series, height.log, sentence) + (floor(named, height) if height.log else [])
    traces += broken(series, across, height)
    said = describe(f"{row.label}, residual stream" if row.on_stream else row.label, named)
    return picture.plain(traces, across, height, said, legend=False)
