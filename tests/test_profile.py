"""Profile: the record's shape, its views, and how it speaks of numbers that are none."""

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from explorer import Config, Profile, measure, predict
from explorer.diagnosis.agreement import agreement
from explorer.profile import Breakdown
from explorer.sites import STREAM
from explorer.theory.laws import LAWS, ROW_LAWS
from explorer.vocabulary import STATISTICS, Statistic


def profile(**changes: np.ndarray) -> Profile:
    """Two seeds, three layers, four heads; arrays by `statistic__site` replace the ones here."""
    values = {
        ("second_moment", "embed"): np.ones((2, 1)),
        ("second_moment", "resid_mid"): np.array([[1.5, 2.5, 3.5]] * 2),
        ("second_moment", "resid_post"): np.array([[2.0, 3.0, 4.0]] * 2),
        ("attention_entropy", "pattern"): np.arange(24.0).reshape(2, 3, 4),
        ("activation_gradient", "resid_post"): np.ones((2, 3)),
    }
    values.update({tuple(key.split("__")): value for key, value in changes.items()})  # type: ignore[misc]
    return Profile("measured", values, Config(n_layers=3), seeds=(5, 6), seconds=0.25)


def test_a_note_on_some_matrices_is_not_one_on_others() -> None:
    notes = {
        "parameter_gradient": "W_Q and W_K rough: one in ten of 9 designs; sink not covered: a "
        "norm; not covered: streams",
        "second_moment": "rough: one in ten",
    }
    noted = Profile("predicted", dict(profile().values), notes=notes)
    for site, said in {
        "W_K": "W_Q and W_K rough: one in ten of 9 designs; not covered: streams",
        "sink": "sink not covered: a norm; not covered: streams",
        "W_V": "not covered: streams",
        "": notes["parameter_gradient"],
    }.items():
        assert noted.note("parameter_gradient", site) == said
    assert noted.note("second_moment", "resid_post") == notes["second_moment"]
    assert noted.note("kurtosis", "embed") == ""


def test_the_stream_is_in_the_order_of_the_forward_pass() -> None:
    depth, values = profile().stream("second_moment")
    assert depth.tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3]
    assert values[1].tolist() == [1, 1.5, 2, 2.5, 3, 3.5, 4]


def test_the_frame_has_one_number_a_row() -> None:
    frame = profile().frame()
    assert list(frame.columns) == [
        "origin",
        "seed",
        "site",
        "layer",
        "head",
        "position",
        "statistic",
        "value",
    ]
    assert frame.position.isna().all()
    assert len(frame) == sum(value.size for value in profile().values.values())
    row = frame[
        (frame.seed == 6) & (frame.site == "pattern") & (frame.layer == 2) & (frame["head"] == 3)
    ]
    assert row.value.tolist() == [19.0]  # seed 1, layer index 1, head 3 of arange
    assert frame[frame.site == "embed"].layer.tolist() == [0, 0]
    assert frame[frame.site == "embed"]["head"].isna().all()


def test_positions_have_a_column_of_their_own() -> None:
    values = np.arange(12.0).reshape(1, 3, 4)
    frame = Profile("measured", {("attention_received", "pattern"): values}, seeds=(0,)).frame()
    assert frame["head"].isna().all()
    assert frame[(frame.layer == 2) & (frame.position == 3)].value.tolist() == [7.0]


def test_a_missing_statistic_says_what_there_is() -> None:
    with pytest.raises(KeyError, match=r"no logit_std at attn_scores; it has second_moment@embed"):
        profile()["logit_std", "attn_scores"]
    with pytest.raises(KeyError, match="no token_correlation on the residual stream"):
        profile().stream("token_correlation")


def test_a_statistic_of_one_site_needs_no_site() -> None:
    assert_array_equal(profile()["attention_entropy"], profile()["attention_entropy", "pattern"])
    with pytest.raises(
        KeyError, match=r"second_moment has several sites: embed, resid_mid, resid_post; say"
    ):
        profile()["second_moment"]


@pytest.mark.parametrize(
    "key", ["mood", 3, None, ("second_moment",), ("second_moment", "moon"), ("a", "b", 3)]
)
def test_what_cannot_be_a_key_is_refused_with_what_can(key: object) -> None:
    assert key not in profile()
    with pytest.raises(
        KeyError,
        match=r"this profile has no .*; it has second_moment@embed, .*activation_gradient@",
    ):
        profile()[key]  # type: ignore[index]


def test_a_profile_holds_what_it_iterates_over() -> None:
    whole = profile()
    assert list(whole) == whole.keys() == list(whole.values)
    assert all(key in whole and key[0] in whole for key in whole)
    assert_array_equal(dict(whole)["second_moment", "embed"], whole["second_moment", "embed"])


def test_what_is_no_statistic_or_no_array_of_layers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"statistic must be one of second_moment, .*; got 'mood'"):
        Profile("measured", {("mood", "embed"): np.ones((1, 1))})
    with pytest.raises(
        ValueError, match=r"second_moment at embed must be \[seed, layer\(, head\)\]; got \(3,\)"
    ):
        Profile("measured", {("second_moment", "embed"): np.ones(3)})


def test_arrays_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        profile()["second_moment", "embed"][0, 0] = 2


BAD, LATE = np.full((2, 3), np.inf), np.array([[1, 1, np.nan]] * 2)


@pytest.mark.parametrize(
    ("broken", "first"),
    [
        (
            {"activation_gradient__resid_post": np.array([[np.nan, 1, 1]] * 2)},
            Breakdown("activation_gradient", "resid_post", 1, 5),
        ),
        (
            {
                "activation_gradient__resid_post": np.full((2, 3), np.nan),
                "second_moment__resid_mid": np.array([[1, 1, 1], [1, 1, np.inf]]),
                "second_moment__resid_post": LATE,
            },
            Breakdown("second_moment", "resid_mid", 3, 6),
        ),
        (
            {
                "second_moment__embed": np.array([[1.0], [np.nan]]),
                "second_moment__resid_post": BAD,
            },
            Breakdown("second_moment", "embed", 0, 6),
        ),
        (
            {"activation_gradient__embed": np.full((2, 1), np.inf)},
            Breakdown("activation_gradient", "embed", 0, 5),
        ),
        (
            {
                "second_moment__resid_mid": BAD,
                "second_moment__attn_out": BAD,
                "logit_std__attn_scores": BAD[..., None],
            },
            Breakdown("logit_std", "attn_scores", 1, 5),
        ),
        (
            {"second_moment__resid_mid": BAD, "second_moment__attn_out": BAD},
            Breakdown("second_moment", "attn_out", 1, 5),
        ),
    ],
    ids=[
        "a gradient",
        "forward before backward",
        "the input is layer 0",
        "a gradient by the input",
        "logits before what they feed",
        "attention before its sum",
    ],
)
def test_the_first_trouble_is_found(broken: dict[str, np.ndarray], first: Breakdown) -> None:
    assert profile().first_nonfinite is None
    assert profile(**broken).first_nonfinite == first


def test_what_a_prediction_leaves_out_with_a_reason_is_no_trouble() -> None:
    values = {("second_moment", "resid_post"): np.array([[1.0, np.nan]])}
    assert (
        Profile("predicted", values, notes={"second_moment": "not covered"}).first_nonfinite is None
    )
    assert Profile("predicted", values).first_nonfinite == Breakdown(
        "second_moment", "resid_post", 2, 0
    )


def test_json_holds_every_number_also_those_that_json_lacks() -> None:
    original = profile(second_moment__resid_post=np.array([[1, np.inf, np.nan], [1, -np.inf, 2]]))
    text = original.to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"bare {name} is not JSON"))
    back = Profile.from_json(text)
    pd.testing.assert_frame_equal(back.frame(), original.frame())
    assert back.config == original.config
    assert (
        back.first_nonfinite
        == original.first_nonfinite
        == Breakdown("second_moment", "resid_post", 2, 5)
    )
    assert json.loads(text)["first_nonfinite"]["layer"] == 2
    assert math.isnan(Profile.from_json(Profile("measured", profile().values).to_json()).seconds)


def test_an_empty_design_in_a_file_is_none() -> None:
    data = json.loads(profile().to_json()) | {"config": {}, "twin": {}}
    back = Profile.from_json(json.dumps(data))
    assert (back.config, back.twin) == (None, None)


def test_json_of_a_version_without_the_newer_statistics_is_read() -> None:
    whole = measure(Config(n_layers=2, d_model=16, n_heads=2, n_ctx=4, n_seeds=1))
    data = json.loads(whole.to_json())
    data["values"] = [
        row for row in data["values"] if row["statistic"] not in ("max_abs", "kurtosis")
    ]
    back = Profile.from_json(json.dumps(data))
    assert "max_abs" not in back
    assert_array_equal(back["second_moment", "resid_post"], whole["second_moment", "resid_post"])
    assert agreement(back, predict(back.config), "kurtosis").tone == ""
    assert {trace.name for trace in back.plot("max_abs").data} == {"float16 ends"}


@pytest.fixture(params=[(*STREAM, "mlp_out"), ("mlp_out", "attn_out"), ("pattern",)])
def made_up(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Statistic:
    """A row more in the vocabulary, until the test is over: the share of numbers above 0.1."""
    row = Statistic(
        "above",
        "Share above",
        "n / N",
        "share of numbers above 0.1",
        request.param,
        reduce=lambda seen: (
            seen.pattern.gt(0.1).float().mean(dim=(1, 3, 4))
            if hasattr(seen, "pattern")
            else seen.x.gt(0.1).float().flatten(1).mean(1)
        ),
    )
    monkeypatch.setitem(STATISTICS, "above", row)
    return row


def test_a_statistic_is_one_row(made_up: Statistic) -> None:
    """Measured at its sites, empty with a note where it is not predicted, compared, in tables and
    drawn."""
    config = Config(n_layers=3, d_model=32, n_heads=2, n_ctx=8, n_seeds=2)
    measured, predicted = measure(config), predict(config)
    assert {site for name, site in measured if name == "above"} == set(made_up.sites)
    for site in made_up.sites:
        found = measured["above", site]
        assert found.shape == (2, 1 if site == "embed" else 3, *([2] if site == "pattern" else []))
        assert ((found > 0) & (found < 1)).all()
        assert np.isnan(predicted["above", site]).all()
        assert predicted["above", site].shape[1] == found.shape[1]
    assert predicted.notes["above"] == made_up.unpredicted
    assert (
        agreement(measured, predicted, "above").words
        == "theory does not cover this: it is measured only"
    )
    frame = measured.frame()
    assert set(frame[frame.statistic == "above"].site) == set(made_up.sites)
    pd.testing.assert_frame_equal(Profile.from_json(measured.to_json()).frame(), frame)
    figure = measured.plot("above", predicted)
    assert figure.layout.yaxis.title.text == "n / N (ratio)"
    dots = [trace for trace in figure.data if trace.mode == "markers"]
    depths = measured.stream("above")[0] if made_up.on_stream else measured.depth(made_up.sites[0])
    assert_allclose(dots[0].x, depths)


def test_a_law_is_one_row(made_up: Statistic, monkeypatch: pytest.MonkeyPatch) -> None:
    if made_up.by_head:
        monkeypatch.setitem(ROW_LAWS, "above", lambda rows: 0 * rows.s + 0.5)
    else:
        monkeypatch.setitem(LAWS, "above", lambda config, moments: 0 * moments.q + 0.5)
    config = Config(n_layers=3, d_model=32, n_heads=2, n_ctx=8)
    predicted = predict(config)
    assert "above" not in predicted.notes
    assert agreement(measure(config), predicted, "above").worst > 0
    assert all((predicted["above", site] == 0.5).all() for site in made_up.sites)


@pytest.mark.parametrize("name", STATISTICS)
def test_every_statistic_draws_itself(name: str) -> None:
    config = Config(n_layers=3, d_model=32, n_heads=2, n_ctx=8, n_seeds=2)
    if name.startswith("output_logit"):
        config = config.replace(input="text", loss="next_token")
    measured = measure(config)
    row, figure = STATISTICS[name], measured.plot(name, predict(config))
    dots = next(trace for trace in figure.data if trace.mode == "markers")
    held = measured[name, row.sites[0]]
    if row.by_position:
        values = row.mean(held)[-1]
    elif row.on_stream:
        values = row.mean(measured.stream(name)[1])
    else:
        values = np.median(held, axis=(0, *range(2, held.ndim))) if row.by_head else row.mean(held)
    assert_allclose(dots.y, values, rtol=1e-5)
    assert any(trace.name.endswith("predicted") or trace.mode == "lines" for trace in figure.data)
    assert (figure.layout.yaxis.type == "log") == row.log
    assert figure.layout.yaxis.title.text.endswith(f"({row.unit})")
    assert all(words in {trace.name for trace in figure.data} for words in row.marks.values())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {("second_moment", "embed"): [[1.0, 1.0]]},
            "one number of layers at embed; got 2 beside 1, of second_moment",
        ),
        (
            {("second_moment", "embed"): [[[1.0]]]},
            r"all sites of second_moment; got \(1,\) at resid_post beside \(1, 1\)",
        ),
        (
            {("second_moment", "resid_post"): [[1.0], [1.0]]},
            r"as many seeds, .* got \(2,\) at resid_post beside \(1,\)",
        ),
        (
            {("mean", "resid_post"): [[1.0]]},
            "one number of layers at resid_post; got 1 beside 2, of mean",
        ),
        ({("activation_gradient", "embed"): [[]]}, "one number of layers at embed; got 0 beside 1"),
    ],
)
def test_a_file_whose_arrays_are_of_no_one_model_is_refused(
    change: dict[tuple[str, str], Any], said: str
) -> None:
    """The charts draw them as one line, and broke."""

    def stored(arrays: dict[tuple[str, str], Any]) -> str:
        rows = [{"statistic": key[0], "site": key[1], "values": arrays[key]} for key in arrays]
        about = {"origin": "measured", "config": None, "seeds": [0], "notes": {}, "seconds": 1.0}
        return json.dumps(about | {"values": rows})

    stream = {("second_moment", "embed"): [[1.0]], ("second_moment", "resid_post"): [[1.0, 1.0]]}
    Profile.from_json(stored(stream))
    with pytest.raises(
        ValueError, match=f"a profile must be what Profile.to_json wrote; values must have .*{said}"
    ):
        Profile.from_json(stored(stream | change))


@pytest.mark.parametrize("shape", [[0, 4], [4, 0], [-1, 4]])
def test_a_file_with_a_matrix_without_a_size_is_refused(shape: list[int]) -> None:
    """A verdict divides by it."""
    stored = json.loads(profile().to_json()) | {"shapes": {"W_out": shape}}
    with pytest.raises(
        ValueError, match=r"shapes.W_out\[[01]\] must be greater than or equal to 1; got (0|-1)"
    ):
        Profile.from_json(json.dumps(stored))
