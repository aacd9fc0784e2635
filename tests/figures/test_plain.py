"""Plain figures: plotly accepts each and has the same."""

from __future__ import annotations

import json
from functools import cache, partial

import numpy as np
import plotly.graph_objects as go
import pytest

from explorer import Config, Profile, measure, predict
from explorer.figures import BY_CHOICE, FIGURES, gradient_by_matrix
from explorer.figures.data import Picture, packed

ROWS = {**FIGURES, **BY_CHOICE}
DESIGNS = (
    Config(n_layers=3, d_model=32, n_heads=2),
    Config(n_layers=5, d_model=32, n_heads=2, norm_placement="post"),
    Config(
        n_layers=40, d_model=32, n_heads=2, norm_placement="none", init_variance=1000, n_seeds=1
    ),
)
"""The last explodes: gaps, and the mark of where."""


@cache
def profiles(count: int) -> list[Profile]:
    return [
        profile for config in DESIGNS[-count:] for profile in (predict(config), measure(config))
    ]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", ROWS)
def test_what_is_packed_is_what_plotly_accepts_and_gives(name, count):
    drawn = ROWS[name].plain(profiles(count))
    assert json.loads(json.dumps(packed(drawn))) == json.loads(
        json.dumps(go.Figure(drawn).to_dict())
    )


def test_one_matrix_of_several_designs_is_accepted_too():
    drawn = partial(gradient_by_matrix.plain, matrix="W_V")(profiles(3))
    assert json.loads(json.dumps(packed(drawn))) == json.loads(
        json.dumps(go.Figure(drawn).to_dict())
    )


def test_a_picture_is_checked_and_its_plain_form_is_not():
    picture = Picture(lambda mode: {"data": [{"type": "scatter", "mode": mode}], "layout": {}})
    assert picture.plain("wrong")["data"][0]["mode"] == "wrong"
    with pytest.raises(ValueError, match="mode"):
        picture("wrong")


def test_an_array_keeps_its_type_and_its_shape():
    assert packed(np.zeros((2, 3), np.float32))["shape"] == "2, 3"
    assert packed(np.zeros((2, 3), np.float32)[:, 1]) == {"dtype": "f4", "bdata": "AAAAAAAAAAA="}
    assert packed({"a": (1, np.float64(2.5))}) == {"a": [1, 2.5]}
