"""A statistic of one layer by token position, of every profile that has it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from explorer.figures import kit
from explorer.figures.data import Picture, Plain
from explorer.figures.layers import NO_ATTENTION, statistic_axis
from explorer.figures.palette import LegendEntry, designs
from explorer.figures.series import rows, spread
from explorer.profile import ROWS, VOCABULARY, Profile, index_of


@Picture
def by_position(statistic: str, profiles: Sequence[Profile], looks: Sequence[LegendEntry] = (), layer: int = 0
                ) -> Plain:
    """A statistic of one layer over the position of a token, from 1, both axes as the statistic's row has them.

    Dots: mean over seeds. Band: lowest to highest seed. Where values are not finite an upright stands.

    Args:
        statistic: a row of the vocabulary that has values by position.
        looks: the design of each profile where the caller keeps the marks, as `palette.designs` has it.
        layer: from 1; 0 is the last, and so is one that a design does not have.
    """
    row, configs = VOCABULARY[statistic], {profile.config for profile in profiles}
    if row.sites[0] in ROWS and configs and all(config and not config.design.attends for config in configs):
        return kit.blank.plain(NO_ATTENTION if len(configs) == 1 else "None of these designs has attention.")
    series = []
    for design, profile in zip(designs(profiles, looks), profiles, strict=True):
        values = profile.values.get((statistic, row.sites[0]))
        if values is not None:
            at = np.arange(1.0, values.shape[2] + 1)
            shown = values[:, index_of(layer, values.shape[1])]
            series.append(spread(row, design, profile, at, shown, profile.notes.get(statistic, "")))
    height = statistic_axis(row, [part for curve in series for part in curve.drawn_values])
    across = kit.axis("token position (from 1)", [1.0, *(curve.depth for curve in series)], log=True)
    sentence = f"At token %{{x:~g}} the {row.label.lower().removesuffix(' by position')}<br>is %{{y:.3g}}"
    curves = rows(series, height.log, sentence)
    levels = [kit.level(value, words, across, height) for value, words in row.marks.items()]
    lost = [kit.broken_off(float(curve.depth[bad[0]]), "not finite", across, height, curve.design.hue, 0.84)
            for curve in series if not curve.note and len(bad := np.flatnonzero(~np.isfinite(curve.middle)))]
    return kit.picture.plain([*levels, *curves, *lost], across, height, kit.described(row.label, curves))
