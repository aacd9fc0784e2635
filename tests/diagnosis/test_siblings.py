"""Which layers stand out, and which laws over depth are nobody's mistake."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.diagnosis.reading import LIKE, SPREAD, beside, departure, spread, unlike
from explorer.profile import Profile
from explorer.vocabulary import Array

DEPTH = np.arange(1.0, 25.0)
LAWS = {
    "even": np.ones(24),
    "1/l": 1 / DEPTH,
    "1/l²": DEPTH**-2,
    "growth": 1 + DEPTH / 2,
    "geometric": 0.8**DEPTH,
    "1/(2l − 1)": 1 / (2 * DEPTH - 1),
    "1/2l": 1 / (2 * DEPTH),
    "LayerNorm scaling": DEPTH**-0.5,
    "step, Mix-LN": np.where(DEPTH <= 6, 1.0, 3.0),
    "every fourth": np.where(DEPTH % 4 == 0, 3.0, 1.0),
    "in turn": np.where(DEPTH % 2 == 0, 3.0, 1.0),
    "first and last": np.where((DEPTH == 1) | (DEPTH == 24), 3.0, 1.0),
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("scatter", [0.0, 0.005, 0.1])
@pytest.mark.parametrize("n_layers", [4, 6, 12, 24])
def test_a_law_over_depth_is_no_mistake(law: Array, scatter: float, n_layers: int) -> None:
    values = law[:n_layers] * np.exp(
        scatter * np.random.default_rng(n_layers).standard_normal(n_layers)
    )
    if n_layers < 12 and law is LAWS["every fourth"]:
        n_layers, values = 3, values[:3]  # of a single one nothing says that it is every fourth
    if n_layers < 24 and law is LAWS["first and last"]:
        values[-1] *= 3.0
    assert unlike({"W_out": values}) == {}


@pytest.mark.parametrize("law", ["even", "1/l", "growth", "LayerNorm scaling", "geometric"])
@pytest.mark.parametrize("layer", [1, 2, 12, 17, 24])
def test_a_layer_that_leaves_the_law_is_found(law: str, layer: int) -> None:
    noise = np.exp(0.01 * np.random.default_rng(layer).standard_normal(24))
    values = LAWS[law] * noise * np.where(layer == DEPTH, 2.76, 1.0)
    if law == "1/l" and layer == 2:  # 2.76 / 2 is like layer 1
        values[1] *= 2.0
    found = unlike({"W_out": values})
    assert set(found["W_out"]) == {layer}
    assert LIKE < found["W_out"][layer] < 1.1 * 2.76


def test_the_bound_stands_above_what_published_laws_leave() -> None:
    """Steepest at the first layers: 1/(2l − 1), where each sublayer is scaled by its number, leaves
    1.25."""
    for name in ("1/l", "1/(2l − 1)", "1/2l", "LayerNorm scaling", "growth"):
        for n_layers in (4, 12, 24):
            assert np.exp(np.abs(departure(np.log(LAWS[name][:n_layers]))).max()) < 1.26 < LIKE


def test_scatter_is_no_mistake_either() -> None:
    """A trained model's layers differ by a factor or two: what is as far as they are from each
    other is not told.

    At most 1 % of 500 series: 5, and two standard errors of that.
    """
    normal = np.random.default_rng(0).standard_normal((500, 12))
    for scatter in (0.1, 0.3, 0.5):
        assert sum(bool(unlike({"W_out": np.exp(scatter * values)})) for values in normal) <= 9
    odd = np.ones(12)
    odd[5] = 1.4
    assert unlike({"W_out": odd}) == {}
    odd[5] = 1.6
    assert set(unlike({"W_out": odd * np.exp(0.001 * np.arange(12) % 2)})["W_out"]) == {6}


def test_too_few_layers_say_nothing() -> None:
    assert unlike({"W_out": np.array([1.0, 9.0, 1.0])}) == {}
    assert unlike({"W_out": np.array([1.0, 0.0, np.nan, 1.0, 1.0])}) == {}


def test_siblings_are_of_one_kind() -> None:
    """A dense first layer and two of state space are nobody's siblings; a layer among its own is
    found where it is."""
    kinds = ["dense", *["experts", "experts", "state", "experts"] * 2, "experts", "experts"]
    law = {"dense": 2.0, "experts": 1.0, "state": 5.0}
    values = np.array([law[kind] for kind in kinds]) * np.exp(
        0.01 * np.random.default_rng(0).standard_normal(11)
    )
    assert unlike({"W_out": values}, kinds=kinds) == {}
    assert beside(values, 5, kinds) == pytest.approx(np.sqrt(values[2] * values[5]))
    values[5] *= 2.76  # layer 6
    assert set(unlike({"W_out": values}, kinds=kinds)["W_out"]) == {6}
    assert unlike({"W_out": values[:4]}, kinds=kinds[:4]) == {}


def test_narrow_heads_scatter_more() -> None:
    """Of χ² numbers, one in a thousand is beyond: 26.1 / 8, and 39.3 / 16 below the bound for wide
    heads."""

    def of(width: int) -> Profile:
        return Profile(
            "measured",
            {("logit_std", "attn_scores"): np.ones((1, 6, 4))},
            shapes={"W_Q": (64, 4 * width)},
        )

    assert spread(of(8)) == pytest.approx(26.12 / 8, rel=1e-3)
    assert spread(of(16)) == spread(of(64)) == spread(Profile("measured", {})) == SPREAD
