"""A statistic layer by layer, drawn as its row of the vocabulary says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from explorer.figures.axes import blank, depth_axis, depth_range, linear_range, log_range, sheet, value_axis
from explorer.figures.palette import Design
from explorer.figures.pattern import NO_ATTENTION
from explorer.figures.series import by_depth
from explorer.figures.traces import broken, floor, reference, rows
from explorer.figures.words import describe
from explorer.profile import STATISTICS, Profile


def by_layer(statistic: str, profiles: Sequence[Profile], whose: Sequence[Design] = ()) -> go.Figure:
    """A statistic along the residual stream, or of its sites by layer, with its marks, on a log axis if it has one.

    Dots: mean over seeds, or median over heads and seeds. Band: lowest to highest.

    Args:
        statistic: its name in the vocabulary.
        whose: the design of each profile where the caller keeps the marks, as `palette.designs` has it.
    """
    row, designs = STATISTICS[statistic], {profile.config for profile in profiles}
    if row.by_head and designs and all(config and config.attention == "none" for config in designs):
        return blank(NO_ATTENTION if len(designs) == 1 else "None of these designs has attention.")
    sites = ("",) if row.on_stream else row.sites
    series = [one for site in sites for one in by_depth(profiles, statistic, site, whose)]
    ends = [end for end in row.bounds if np.isfinite(end)]
    height = (log_range if row.log else linear_range)(series, *row.marks, *ends)
    where = "After %{x:~g} layers" if row.on_stream else "In layer %{x:~g}"
    whose_value = "the median head's" if row.by_head else "the"
    sentence = f"{where}<br>{whose_value} {row.label.lower()} is %{{y:.3g}} {row.compared}".rstrip()
    across, named = depth_range(series), [("", one) for one in series]
    traces = [reference(mark, words, across, height, row.log) for mark, words in row.marks.items()]
    traces += rows(series, row.log, sentence) + (floor(named, height) if row.log else [])
    traces += broken(series, across, height, row.log)
    said = describe(f"{row.label} of the residual stream" if row.on_stream else row.label, named)
    layout = sheet(depth_axis(across), value_axis(f"{row.symbol} ({row.unit})", height, row.log), said)
    return go.Figure({"data": traces, "layout": layout})
