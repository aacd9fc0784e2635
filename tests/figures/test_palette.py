"""A design keeps its marks; colors are told apart by every kind of color vision."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from handmade import measured, predicted

from explorer.config import Config
from explorer.figures.palette import DASHES, HUES, MATRIX_MARKS, SYMBOLS, LegendEntry, designs
from explorer.profile import Profile
from explorer.sites import MATRICES, VECTORS

# Machado, Oliveira & Fernandes 2009, table of matrices at severity 1, applied to linear RGB.
VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
}


def lab(hue: str, vision: np.ndarray) -> np.ndarray:
    """CIELAB of a color as that vision sees it (D65)."""
    rgb = np.array([int(hue[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = (vision @ linear).clip(0, 1)
    xyz = (
        np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
        @ seen
    )
    f = np.cbrt(xyz / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISION)
def test_any_two_of_the_first_four_hues_are_apart(vision):
    # 10 is far above the just noticeable difference of about 2.3.
    for one, other in itertools.combinations(HUES[:4], 2):
        assert np.linalg.norm(lab(one, VISION[vision]) - lab(other, VISION[vision])) > 10, (
            one,
            other,
        )


def test_hue_symbol_and_dash_are_unique_together_for_36_designs():
    rows = [LegendEntry(index, None, "") for index in range(36)]
    assert len({(row.hue, row.symbol) for row in rows}) == 36
    assert len({(row.hue, row.dash) for row in rows}) == 36
    assert len(set(HUES)) == len(set(SYMBOLS)) == len(set(DASHES)) == 6


def test_profiles_of_one_config_share_a_design():
    first, second = Config(n_layers=4), Config(n_layers=4, alpha=0.5)
    profiles = [measured(config=first), measured(config=second), predicted(config=first)]
    assert [design.index for design in designs(profiles)] == [0, 1, 0]


def test_models_that_are_not_ours_are_each_their_own():
    foreign = Profile("measured", {}, seeds=(0,))
    assert [design.label for design in designs([foreign, foreign])] == ["design 1", "design 2"]


def test_labels_say_what_differs():
    base = Config(n_layers=4)
    pair = [measured(config=base), measured(config=base.replace(alpha=0.25, causal=True))]
    labels = [design.label for design in designs(pair)]
    assert labels == ["residual α 1, causal mask off", "residual α 0.25, causal mask on"]
    assert designs(pair[:1])[0].label == ""
    far = [*pair, measured(config=base.replace(activation="tanh"))]
    assert [design.label for design in designs(far)] == ["design 1", "design 2", "design 3"]


def test_who_knows_the_designs_keeps_their_marks_whatever_comes_and_goes():
    pre, post = Config(n_layers=4), Config(n_layers=4, norm_placement="post")
    now, pin = LegendEntry(0, post, "Post-LN (now)"), LegendEntry(3, pre, "Pre-LN")
    profiles = [measured(config=pre), predicted(config=post), measured(config=pre)]
    assert designs(profiles, [pin, now, now]) == [pin, now, now], (
        "a measurement that lags is still the design's"
    )
    with pytest.raises(
        ValueError, match="looks must name one design a profile; got 1 for 3 profiles"
    ):
        designs(profiles, [pin])


def test_a_label_is_shown_to_the_letter():
    assert (
        LegendEntry(0, None, "<b>a & b</b> %{x}").heading
        == "&lt;b&gt;a &amp; b&lt;/b&gt; %\u200b{x}"
    )
    assert LegendEntry(0, None, "1/√(2N), α = 1").heading == "1/√(2N), α = 1"


def test_a_band_is_the_hue_seen_through():
    assert LegendEntry(0, None, "").faint(0.2) == "rgba(0, 114, 178, 0.2)"


def test_every_matrix_has_a_mark_of_its_own():
    assert set(MATRIX_MARKS) == {*MATRICES, *VECTORS}
    assert len({mark.symbol for mark in MATRIX_MARKS.values()}) == len(MATRIX_MARKS)
