"""Rules on numbers and their type, each on both sides of its bound, and the first departure from
theory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from explorer import Config, Profile, compare, diagnose, measure, preset
from explorer.diagnosis.agreement import departs
from explorer.diagnosis.finding import Finding, Findings
from explorer.diagnosis.reading import drawn_variance, stated
from explorer.diagnosis.signal import OUTLIERS, headroom, logit_growth, lost, outliers
from explorer.diagnosis.weights import odd_logits
from explorer.theory import predict
from explorer.vocabulary import Key

SMALL = Config(d_model=64, n_heads=4, n_ctx=32, batch_size=2, n_seeds=1)
LAYERS = tuple(f"h.{layer}" for layer in range(12))


@pytest.fixture(scope="module")
def healthy() -> Profile:
    return replace(measure(SMALL), config=None, layers=LAYERS)


def with_(profile: Profile, dtype: str = "", **changes: tuple[Key, int, float]) -> Profile:
    """The profile with some values of one layer multiplied."""
    values = {key: value.copy() for key, value in profile.values.items()}
    for key, layer, factor in changes.values():
        values[key][:, layer - 1] *= factor
    return replace(profile, values=values, dtype=dtype)


def test_headroom_of_the_type(healthy: Profile) -> None:
    top = healthy["max_abs", "mlp_out"][0, 2]
    for largest, severity in ((20_000.0, None), (40_000.0, "warning"), (80_000.0, "bad")):
        profile = with_(healthy, "float16", one=(("max_abs", "mlp_out"), 3, largest / top))
        found = headroom(profile)
        assert (found.severity if found else None) == severity
        assert headroom(replace(profile, dtype="bfloat16")) is None
        assert headroom(replace(profile, dtype="")) is None
        if found:
            assert "MLP output of layer 3 (h.2)" in found.evidence
            assert "65,504" in found.evidence


@pytest.mark.parametrize(("dtype", "bits"), [("bfloat16", 8), ("float16", 11), ("float32", 24)])
def test_branches_that_a_sum_drops(healthy: Profile, dtype: str, bits: int) -> None:
    share = (
        healthy["second_moment", "attn_out"][0, 4] / healthy["second_moment", "resid_post"][0, 4]
    )
    for times, told in ((1.1, False), (0.9, True)):
        factor = (times * 2.0 ** -(bits + 1)) ** 2 / share
        found = lost(with_(healthy, dtype, one=(("second_moment", "attn_out"), 5, factor)))
        assert bool(found) == told
        assert not found or f"layer 5 (h.4); {dtype} has {bits} bits" in found.evidence
    assert lost(with_(healthy, dtype, one=(("second_moment", "attn_out"), 5, 0.0))) is None


def test_a_sum_drops_what_is_half_a_step_below() -> None:
    """The rule's bound in arithmetic: 1 + x rounds to 1 in float16 up to 2⁻¹¹, and 2⁻¹² of an RMS
    is below it."""
    one = np.float16(1.0)
    assert one + np.float16(2.0**-12) == one
    assert one + np.float16(1.1 * 2.0**-11) > one


def test_outlier_features(healthy: Profile) -> None:
    at = healthy["kurtosis", "resid_post"][0, 7]
    for kurtosis, told in ((0.9 * OUTLIERS, False), (1.1 * OUTLIERS, True)):
        found = outliers(with_(healthy, one=(("kurtosis", "resid_post"), 8, kurtosis / at)))
        assert bool(found) == told
        assert not found or "layer 8 (h.7)" in found.evidence


def test_logits_that_grow(healthy: Profile) -> None:
    grown = {key: value.copy() for key, value in healthy.values.items()}
    spread = np.geomspace(0.3, 4.0, 12)
    for factor, told in ((1.0, True), (0.5, False)):  # √(2 ln 32) is 2.6
        grown["logit_std", "attn_scores"] = np.repeat((factor * spread)[None, :, None], 4, axis=2)
        found = logit_growth(replace(healthy, values=grown))
        assert bool(found) == told
        assert not found or "from 0.3 in layer 1 to 4 in the last" in found.evidence


def test_entries_have_the_weight_variance_over_fan_in(healthy: Profile) -> None:
    shaped = replace(healthy, shapes={"W_out": (256, 64)})
    assert drawn_variance(shaped, "W_out", 2.0) == "0.00781"
    assert drawn_variance(shaped, "W_in", 2.0) == "2 / fan_in"


@pytest.mark.parametrize(
    ("layer", "factor", "cause"),
    [
        (5, 2.7, "Layer 5 (h.4) may divide its logits otherwise than its siblings."),
        (5, 4.0, "Layer 5 (h.4) does not divide its logits by √d."),
        (1, 2.7, ""),  # the first layer may read a stream of another size
    ],
)
def test_logits_of_one_layer(healthy: Profile, layer: int, factor: float, cause: str) -> None:
    shaped = replace(healthy, shapes={"W_Q": (64, 64)})  # 4 heads of width 16
    told = odd_logits(with_(shaped, one=(("logit_std", "attn_scores"), layer, factor)))
    assert (told.meaning if told else "") == cause


@pytest.mark.parametrize(
    "name", ["pre_ln", "post_ln", "deepnorm", "peri_ln", "gpt2", "llama3", "bert", "t5"]
)
def test_a_model_that_is_its_twin_does_not_depart(name: str) -> None:
    config = preset(name, n_layers=12, d_model=64, n_heads=4, n_ctx=32, batch_size=2, n_seeds=1)
    profile = replace(measure(config), config=None, twin=config)
    assert departs(profile, predict(config)) is None
    assert not any("theory" in finding.meaning for finding in diagnose(profile))


@pytest.mark.parametrize(
    ("site", "statistic", "words"),
    [
        ("attn_scores", "logit_std", "logit spread at the attention logits"),
        ("mlp_out", "second_moment", "second moment at the MLP output"),
        ("resid_mid", "second_moment", "second moment at the stream after attention"),
    ],
)
def test_the_first_departure_is_named(
    healthy: Profile, site: str, statistic: str, words: str
) -> None:
    profile = replace(
        with_(healthy, one=((statistic, site), 5, 4.0), two=(("second_moment", "mlp_out"), 9, 4.0)),
        twin=SMALL,
    )
    found = departs(profile, predict(SMALL))
    assert found is not None
    assert found.meaning == "The signal leaves theory's line in layer 5 (h.4)."
    assert words in found.evidence
    assert found in diagnose(profile)


def test_no_ratio_is_said_to_what_is_practically_nothing(healthy: Profile) -> None:
    """Where theory expects 8.19·10⁻⁴⁸, 1.89·10⁵⁰ × says nothing; where the model has it, as
    little."""
    key = "second_moment", "attn_out"
    for factor, words in ((1e-40, "practically 0 where 0."), (1e40, " where 0.")):
        found = departs(replace(with_(healthy, one=(key, 5, factor)), twin=SMALL), predict(SMALL))
        assert found is not None
        assert words in found.evidence
        assert ("× what the other layers predict" in found.evidence) == (factor > 1), (
            "an explosion has a ratio"
        )
    tiny = predict(SMALL)
    tiny = replace(
        tiny, values={**tiny.values, key: np.where(np.arange(12) == 4, 1e-48, tiny[key])}
    )
    found = departs(replace(healthy, twin=SMALL), tiny)
    assert found is not None
    assert found.evidence.endswith("where practically 0 is expected.")
    (row,) = [
        row
        for row in compare(tiny, with_(healthy), tolerance=1.0).partings
        if (row.statistic, row.site) == key
    ]
    assert row.words.endswith("beside practically 0")
    assert "×" not in row.words


@pytest.mark.parametrize(
    ("value", "other", "words"),
    [
        (1548.0, 8.19e-48, 1548.0),
        (8.19e-48, 1548.0, "practically 0"),
        (0.0, 1e-3, "practically 0"),
        (1.0, 1e20, 1.0),
        (2e-20, 1e-20, 2e-20),
        (1e-9, 1.0, 1e-9),
        (np.nan, 1.0, np.nan),
        (0.0, 0.0, 0.0),
    ],
)
def test_what_is_practically_nothing(value: float, other: float, words: float | str) -> None:
    assert repr(stated(value, other)) == repr(words)


def test_a_twin_that_differs_everywhere_is_only_near(healthy: Profile) -> None:
    """Weights that are twice as large in every layer are not one layer's departure."""
    profile = replace(measure(SMALL.replace(init_variance=2.0)), config=None, twin=SMALL)
    assert departs(profile, predict(SMALL)) is None


def test_findings_as_a_notebook_and_a_terminal_show_them() -> None:
    findings = Findings(
        [Finding("bad", "It <explodes>.", "From 1 to 2.", "Divide", code="x = x / 2")]
    )
    assert "It &lt;explodes&gt;." in findings._repr_html_()
    assert "x = x / 2" in findings._repr_html_()
    assert str(findings) == "bad: It <explodes>. From 1 to 2.\n  Divide\n  x = x / 2"
    assert isinstance(diagnose(measure(SMALL)), Findings)


def test_the_shapes_of_matrices_travel_with_a_profile(healthy: Profile) -> None:
    shaped = replace(healthy, shapes={"W_in": (64, 256)})
    assert dict(Profile.from_json(shaped.to_json()).shapes) == {"W_in": (64, 256)}
