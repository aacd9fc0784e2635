"""The normalization lab: each norm against its definition, and what it does to the cases that people trip over."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pictures import every, named
from torch import nn

from explorer.choices import ConfigError
from explorer.labs.normalization import pictures
from explorer.labs.normalization.experiment import (
    NORMS,
    OFFSETS,
    SCALES,
    Normalization,
    expected,
    invariants,
    normalize,
    run,
    spread,
    tensor,
    verdict,
)
from explorer.labs.normalization.row import ROW
from explorer.stopping import Stopped

SMALL = Normalization(batch_size=4, n_tokens=8, n_features=32)


@pytest.fixture(scope="module")
def result():
    return run(SMALL)


@pytest.mark.parametrize("name", NORMS)
def test_it_is_the_definition(name: str) -> None:
    """(x − mean) / √(v + ε) over the norm's own axes, to rounding."""
    x, row = tensor(SMALL), NORMS[name]
    center = x.mean(row.axes, keepdims=True) if row.centers else 0.0
    v = ((x - center) ** 2).mean(row.axes, keepdims=True)
    found = normalize(name, torch.from_numpy(x), SMALL.epsilon).numpy()
    np.testing.assert_allclose(found, (x - center) / np.sqrt(v + SMALL.epsilon), atol=1e-12)


def test_batch_and_instance_norm_are_torchs_own_layers() -> None:
    x = torch.from_numpy(tensor(SMALL))
    channels = x.transpose(1, 2)
    for name, layer in (("batch", nn.BatchNorm1d(32, affine=False)), ("instance", nn.InstanceNorm1d(32))):
        torch.testing.assert_close(normalize(name, x, 1e-5), layer.double()(channels).transpose(1, 2))


@pytest.mark.parametrize("name", NORMS)
def test_the_second_moment_is_one_up_to_epsilon(name: str, result) -> None:
    kept = expected(spread(name, tensor(SMALL)), SMALL.epsilon)
    assert result.after[name].second_moment == pytest.approx(kept, rel=1e-12)
    assert result.after[name].second_moment == pytest.approx(1, abs=1e-3)


def test_who_evens_out_what(result) -> None:
    """Token norms make every token 1 and leave features unequal; BatchNorm makes every feature 1 and leaves tokens."""
    for name in ("layer", "rms"):
        np.testing.assert_allclose(result.after[name].by_token, 1, atol=1e-3)
    np.testing.assert_allclose(result.after["batch"].by_feature, 1, atol=1e-3)
    assert np.ptp(result.after["layer"].by_feature) > 1
    assert np.ptp(result.after["batch"].by_token) > 1


def test_only_rms_keeps_an_offset(result) -> None:
    shares = {name: output.constant_share for name, output in result.after.items()}
    assert max(shares["layer"], shares["batch"], shares["instance"]) < 1e-20
    assert shares["rms"] > 0.8
    here = np.interp(3.0, OFFSETS, result.share_by_offset["rms"])
    assert shares["rms"] == pytest.approx(here, abs=0.01)  # 3 lies on the grid; ε and interpolation remain
    assert verdict(result)[:2] == ("warning", "RMSNorm keeps the constant offset; the norms that center remove it.")


def test_the_share_of_a_plain_offset_by_hand() -> None:
    """Noise of one size everywhere: RMSNorm's constant share is c² / (c² + 1) to first order in 1/width."""
    plain = run(Normalization(token_spread=1, feature_spread=1, n_features=1024, offset=2))
    assert plain.after["rms"].constant_share == pytest.approx(4 / 5, abs=0.01)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e2])
def test_epsilon_takes_over_where_the_input_is_small(scale: float) -> None:
    small = run(SMALL.replace(scale=scale))
    for name in NORMS:
        curve = np.interp(np.log(scale), np.log(SCALES), small.moment_by_scale[name])
        assert small.after[name].second_moment == pytest.approx(curve, rel=1e-6)
    assert (small.after["rms"].second_moment < 0.2) == (scale == 1e-4)
    assert ("ε is no longer small" in verdict(small)[1]) == (scale == 1e-4)


def test_a_zero_vector_stays_zero_after_the_token_norms() -> None:
    settings = SMALL.replace(zero_vector=True, offset=0.0)
    found, x = run(settings), torch.from_numpy(tensor(settings))
    assert {name: not normalize(name, x, settings.epsilon)[0, 0].any() for name in NORMS} == {
        "layer": True, "rms": True, "batch": False, "instance": False,
    }
    assert "the zero vector, which stays zero" in verdict(found)[1]


def test_a_zero_vector_among_few_tokens_is_not_laid_on_epsilon() -> None:
    """Half of what LayerNorm returns is then zero, however small ε is."""
    found = run(SMALL.replace(zero_vector=True, offset=0.0, batch_size=1, n_tokens=2, epsilon=1e-12))
    assert found.after["layer"].second_moment == pytest.approx(0.5)
    assert verdict(found)[0] == "good"
    large = run(found.settings.replace(epsilon=1.0))
    assert "ε is no longer small beside the signal for LayerNorm" in verdict(large)[1]


@pytest.mark.parametrize(
    ("choices", "lost"),
    [
        ({"batch_size": 1, "n_tokens": 1}, "BatchNorm and InstanceNorm return"),
        ({"n_tokens": 1}, "InstanceNorm returns"),
    ],
)
def test_a_single_value_leaves_nothing(choices: dict[str, int], lost: str) -> None:
    found = run(SMALL.replace(**choices))
    assert found.after["instance"].second_moment < 1e-20
    assert verdict(found)[:2] == ("bad", f"{lost} nothing but zeros.")
    assert found.after["layer"].second_moment == pytest.approx(1, abs=1e-3)


def test_it_stops_when_told_and_says_how_far_it_is() -> None:
    told: list[float] = []
    run(SMALL, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1
    with pytest.raises(Stopped):
        run(SMALL, stop=lambda: True)
    with pytest.raises(Stopped):
        run(SMALL, stop=iter([False] * 2 + [True] * 9).__next__)


def test_a_tensor_that_is_too_large_is_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^batch_size × .* must be at most 1,048,576; got 16,777,216$"):
        Normalization(batch_size=64, n_tokens=256, n_features=1024)


def test_invariants() -> None:
    found = {name: round(value, 2) for name, value in invariants().items()}
    assert list(found.values()) == [1, 1, 1, 1, 0, 0.91, 0, 0]


def test_every_picture_is_whole(result) -> None:
    every(ROW, result, run(Normalization(batch_size=1, n_tokens=1, scale=1e-4, zero_vector=True)))


def test_groups_of_values_that_are_averaged_together(result) -> None:
    """Of 48 entries a token norm shares 6, BatchNorm all 8 tokens of a feature, InstanceNorm the 4 of one sequence."""
    maps = pictures.groups(result).data
    assert [int((one.z > 0).sum()) for one in maps] == [6, 6, 8, 4]
    assert all((one.z == 2).sum() == 1 for one in maps)
    assert {one.z.shape for one in maps} == {(8, 6)}


def test_tokens_and_features_one_by_one(result) -> None:
    figure = pictures.one_by_one(result)
    names = list(figure.layout.xaxis.ticktext)
    tokens, features = named(figure, "tokens"), named(figure, "features")
    assert len(tokens.x) == len(features.x) == 5 * 32
    for kind, name in ((tokens, "Layer"), (features, "Batch")):
        np.testing.assert_allclose(kind.y[np.round(kind.x) == names.index(name)], 1, atol=1e-3)
    assert np.ptp(features.y[np.round(features.x) == names.index("Layer")]) > 1
    assert figure.layout.yaxis.type == "log"



def test_the_dot_of_the_offset_lies_on_its_line(result) -> None:
    figure = pictures.offset(result)
    line, dot = named(figure, "RMS, predicted"), named(figure, "RMS")
    assert dot.x.tolist() == [3]
    assert dot.y[0] == pytest.approx(np.interp(3, line.x, line.y), abs=0.01)
    assert not np.any(named(figure, "Layer, predicted").y)
