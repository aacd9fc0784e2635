"""Where two profiles part: on profiles by hand, whose answer is known, and on our own model with
one thing changed."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import explorer as ex
from explorer.diagnosis import comparing

RNG = np.random.default_rng(0)
SIZES: dict[str, Any] = {"n_layers": 5, "d_model": 64, "n_ctx": 16}
SCATTER = 0.02
KEYS: list[tuple[str, str]] = [
    *(
        ("second_moment", site)
        for site in ("embed", "attn_out", "resid_mid", "mlp_out", "resid_post")
    ),
    ("token_correlation", "resid_post"),
    ("logit_std", "attn_scores"),
    ("activation_gradient", "resid_mid"),
    ("activation_gradient", "resid_post"),
]


def profile(
    changes: dict[tuple[str, str], NDArray[np.float64]] | None = None,
    seeds: int = 4,
    layers: int = 5,
    **fields: Any,
) -> ex.Profile:
    """A profile of ones, of halves between bounds, that scatter by `SCATTER`; `changes` are factors
    by layer."""
    values = {}
    for key in KEYS:
        level = 0.5 if key[0] == "token_correlation" else 1.0
        size = (
            seeds,
            1 if key[1] == "embed" else layers,
            *((3,) if key[1] == "attn_scores" else ()),
        )
        values[key] = level * (1 + SCATTER * RNG.standard_normal(size))
        if changes and key in changes:
            values[key] = values[key] * np.expand_dims(changes[key], (0, 2)[: values[key].ndim - 1])
    return ex.Profile("measured", values, **{"seeds": tuple(range(seeds)), **fields})


def test_profiles_of_one_design_part_nowhere() -> None:
    found = ex.compare(profile(), profile())
    assert not found.partings
    assert len(found.differences) == 9
    assert str(found).startswith(
        "They part nowhere by more than 10 % and the scatter of the draws, in 9 statistics"
    )
    same = profile()
    assert str(ex.compare(same, same)) == "They are the same in 9 statistics and sites."


def test_the_first_layer_along_the_signal() -> None:
    """Forward before backward, shallow before deep, attention before the MLP; of gradients the last
    layer first."""
    off = np.array([1, 1, 2.1, 2.1, 1])
    found = ex.compare(
        profile(),
        profile(
            {
                ("second_moment", "mlp_out"): off,
                ("second_moment", "resid_post"): off,
                ("activation_gradient", "resid_mid"): off,
                ("activation_gradient", "resid_post"): off,
                ("second_moment", "attn_out"): np.array([1, 1, 1, 5, 1]),
            }
        ),
    )
    assert [row[:3] for row in found.partings] == [
        ("second_moment", "mlp_out", 3),
        ("second_moment", "resid_post", 3),
        ("second_moment", "attn_out", 4),
        ("activation_gradient", "resid_post", 4),
        ("activation_gradient", "resid_mid", 4),
    ]
    assert found.partings[0].factor == pytest.approx(2.1, rel=0.05)
    assert found.partings[0].distance == pytest.approx(np.log(2.1), abs=0.05)
    assert str(found) == repr(found)
    assert str(found).startswith(
        "They first part at layer 3: the second moment at the MLP output is 2."
    )
    assert str(found).endswith("In all, 5 of 9 statistics and sites part.")


def test_a_difference_counts_beyond_tolerance_and_scatter() -> None:
    key = ("second_moment", "attn_out")
    off = np.array([1, 1.2, 1, 1, 1])
    for seeds, scatter, tolerance, parts in (
        (4, 1, 0.1, True),
        (4, 1, 0.3, False),
        (4, 10, 0.1, False),
        (400, 10, 0.1, True),
    ):
        first, second = (profile(seeds=seeds) for _ in range(2))
        wide = [
            ex.Profile("measured", {key: 1 + scatter * (part.values[key] - 1)}, seeds=part.seeds)
            for part in (first, second)
        ]
        second = ex.Profile("measured", {key: wide[1].values[key] * off}, seeds=second.seeds)
        found = ex.compare(wide[0], second, tolerance).differences[0]
        assert (found.parts, found.layer == 2 or not parts) == (parts, True), (
            seeds,
            scatter,
            tolerance,
        )


def test_between_two_bounds_the_difference_counts() -> None:
    found = ex.compare(
        profile(), profile({("token_correlation", "resid_post"): np.array([1, 1.05, 1.6, 1, 1])})
    )
    (row,) = found.partings
    assert row.layer == 3
    assert row.distance == pytest.approx(0.3, abs=0.03)
    assert np.isnan(row.factor)
    assert row.words == (
        f"the token correlation at the stream after MLP is {row.second:.3g} beside {row.first:.3g}"
    )


@pytest.mark.parametrize(
    ("value", "words"), [(np.nan, "nan beside"), (np.inf, "inf beside"), (0.0, "0 beside")]
)
def test_what_is_no_number_is_a_difference(value: float, words: str) -> None:
    key = ("second_moment", "mlp_out")
    odd = profile()
    odd = ex.Profile(
        "measured", {**odd.values, key: np.where(np.arange(5) == 3, value, odd.values[key])}
    )
    (row,) = ex.compare(profile(), odd).partings
    assert row[:3] == (*key, 4)
    assert words in row.words
    assert row.distance == np.inf
    assert not ex.compare(odd, odd).partings
    assert ex.compare(odd, profile()).partings[0].layer == 4
    absent = ex.Profile("measured", odd.values, absent={key: (4,)})
    assert not ex.compare(profile(), absent).partings


def test_where_theory_covers_nothing_nothing_is_compared() -> None:
    key = ("second_moment", "mlp_out")
    values = {key: np.array([[1, 1, 1, np.nan, np.nan]])}
    theory = ex.Profile("predicted", values, notes={"second_moment": "not covered: deep layers"})
    assert not ex.compare(theory, profile()).partings
    assert ex.compare(ex.Profile("predicted", values), profile()).partings[0].layer == 4


def test_one_draw_has_the_others_scatter_and_two_have_none() -> None:
    """With a scatter of 10 %, a factor of 1.2 is nothing for a single draw, unless nobody says how
    it scatters."""
    key = ("second_moment", "resid_post")
    wide = np.random.default_rng(1).normal(1, 0.1, (8, 5))
    many, one = (
        ex.Profile("measured", {key: wide}),
        ex.Profile("measured", {key: np.array([[1, 1, 1.25, 1, 1]])}),
    )
    flat, theory = ({key: np.ones((1, 5))} for _ in range(2))
    assert not ex.compare(many, one).partings
    assert not ex.compare(one, many).partings
    for other in (ex.Profile("measured", flat), ex.Profile("predicted", theory)):
        assert ex.compare(other, one).partings[0].layer == 3


@pytest.mark.parametrize("name", ["pre_ln", "post_ln", "llama3"])
def test_our_model_with_one_other_choice(name: str) -> None:
    base = ex.preset(name, **SIZES)
    first = ex.measure(base)
    assert not ex.compare(first, ex.measure(base.replace(seed=100)), chance=1e-3).partings
    found = ex.compare(first, ex.measure(base.replace(seed=100, mlp_variance=2)))
    assert found.partings[0][:3] == ("second_moment", "mlp_out", 1)
    assert found.partings[0].factor == pytest.approx({"llama3": 8.0}.get(name, 4.0), rel=0.15)


def test_theory_against_measurement_of_another_design() -> None:
    config = ex.Config(**SIZES)
    found = ex.compare(ex.predict(config), ex.measure(config.replace(attention_variance=1.5)))
    assert found.partings[0][:3] == ("logit_std", "attn_scores", 1)
    assert found.partings[0].factor == pytest.approx(1.5, rel=0.05)
    assert ex.compare(
        ex.predict(config), ex.predict(config.replace(attention_variance=1.5))
    ).partings[0].site == ("attn_scores")


def test_one_layer_of_a_measurement_changed() -> None:
    """Its branch comes before the stream, and later layers after it."""
    first, other = ex.measure(ex.Config(**SIZES)), ex.measure(ex.Config(seed=7, **SIZES))
    values = {key: np.array(value) for key, value in other.values.items()}
    values["second_moment", "attn_out"][:, 2] *= 4
    values["second_moment", "resid_mid"][:, 2:] *= 2
    values["second_moment", "resid_post"][:, 2:] *= 2
    found = ex.compare(
        first, ex.Profile("measured", values, seeds=other.seeds, layers=tuple("abcde"))
    )
    assert [row[:3] for row in found.partings[:3]] == [
        ("second_moment", site, 3) for site in ("attn_out", "resid_mid", "resid_post")
    ]
    assert str(found).startswith(
        "They first part at layer 3 (c): the second moment at the attention output is "
    )


def test_chance_is_as_stated() -> None:
    """Of 300 pairs of one law at most 5 % part, within 3 standard errors; without a tolerance to
    help."""
    parted = sum(
        bool(ex.compare(profile(), profile(), tolerance=1e-9).partings) for _ in range(300)
    )
    assert parted <= 300 * 0.05 + 3 * np.sqrt(300 * 0.05 * 0.95)
    assert parted > 0


def test_frame_copy_and_table() -> None:
    found = ex.compare(
        profile(), profile({("second_moment", "mlp_out"): np.array([1, 1, 3, 1, 1])})
    )
    frame = found.frame()
    assert list(frame.columns) == [
        "statistic",
        "site",
        "layer",
        "parts",
        "first",
        "second",
        "distance",
        "factor",
    ]
    assert list(frame["parts"]) == [True] + [False] * 8
    assert list(frame.loc[0, ["statistic", "site", "layer"]]) == ["second_moment", "mlp_out", 3]
    assert str(copy.deepcopy(found)) == str(found)
    assert found._repr_html_().count("<tr>") == 10


def test_the_chart_has_both_and_a_mark_where_they_part() -> None:
    first, second = profile(), profile({("second_moment", "mlp_out"): np.array([1, 1, 3, 1, 1])})
    figure = ex.compare(first, second).plot()
    mark = figure.data[-1]
    assert set(mark.x) == {3.0}
    assert mark.text[1] == "layer 3: MLP output"
    assert {"design 1, measured", "design 2, measured"} <= {trace.name for trace in figure.data}
    assert "They first part at layer 3" in figure.layout.title.subtitle.text
    assert figure.data[-1].name not in {
        trace.name for trace in ex.compare(first, first).plot().data
    }
    assert ex.compare(first, second).plot("token_correlation").data[-1].name != mark.name
    with pytest.raises(ValueError, match=r"statistic must be one of .*; got 'loss'"):
        ex.compare(first, second).plot("loss")
    bundle = ex.compare(first, second)._repr_mimebundle_()
    assert bundle["application/vnd.plotly.v1+json"]["data"][-1]["name"] == mark.name


@pytest.mark.parametrize(
    ("second", "options", "kind", "complaint"),
    [
        (3, {}, TypeError, "second must be a Profile; got 3 of type int"),
        (
            profile(layers=4),
            {},
            ValueError,
            "second must have as many layers as first; got 4 and 5 of second_moment at resid_mid",
        ),
        (
            ex.Profile("measured", {("kurtosis", "embed"): np.ones((1, 1))}),
            {},
            ValueError,
            "second must share a statistic with first; got Profile",
        ),
        (
            profile(),
            {"tolerance": -1},
            ValueError,
            "tolerance must be a number above 0, of at most 1e.06; got -1",
        ),
        (
            profile(),
            {"tolerance": "a"},
            ValueError,
            "tolerance must be a number above 0, of at most 1e.06; got 'a'",
        ),
        (
            profile(),
            {"chance": 2},
            ValueError,
            "chance must be a number above 0, of at most 1; got 2",
        ),
    ],
)
def test_bad_input(
    second: Any, options: dict[str, Any], kind: type[Exception], complaint: str
) -> None:
    with pytest.raises(kind, match=complaint):
        ex.compare(profile(), second, **options)


def test_the_way_has_every_site_of_the_forward_pass() -> None:
    assert (
        comparing.PATH.index("W_Q")
        < comparing.PATH.index("attn_scores")
        < comparing.PATH.index("W_O")
    )
    assert (
        comparing.PATH.index("W_O")
        < comparing.PATH.index("attn_out")
        < comparing.PATH.index("mlp_out")
    )
