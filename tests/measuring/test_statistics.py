"""Each statistic against its definition written out, and at the ends of what floating point
holds."""

import math

import numpy as np
import pytest
import torch

from explorer.measuring import statistics
from explorer.measuring.statistics import Rows, Signal
from explorer.sites import ROWS
from explorer.vocabulary import STATISTICS


def rng(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).standard_normal(shape)).float()


def reduced(seen: Signal | Rows) -> dict[str, torch.Tensor]:
    """Every statistic of the vocabulary that is read of the signal, or of the rows of attention."""
    return {
        row.name: row.reduce(seen)
        for row in STATISTICS.values()
        if row.reduce and (row.sites[0] in ROWS) == isinstance(seen, Rows)
    }


def test_second_moment_and_overlap_by_hand() -> None:
    x = rng(3, 2, 5, 7)
    q = statistics.second_moment(x)
    torch.testing.assert_close(q, x.double().square().mean(dim=(1, 2, 3)))
    gram = torch.einsum("lbtd,lbsd->lbts", x.double(), x.double()) / 7
    off = gram.sum((-1, -2)) - gram.diagonal(dim1=-2, dim2=-1).sum(-1)
    torch.testing.assert_close(Signal.of(x).overlap, (off / 20).mean(1), atol=1e-6, rtol=1e-5)


def test_identical_tokens_overlap_fully_and_opposite_ones_fully_the_other_way() -> None:
    x = torch.ones(1, 1, 4, 8)
    assert float(Signal.of(x).overlap) == pytest.approx(1)
    x[:, :, 2:] = -1
    assert float(Signal.of(x).overlap) == pytest.approx(-1 / 3)


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_largest_and_kurtosis_by_hand_at_any_size(size: float) -> None:
    x = rng(3, 2, 5, 7)
    s = x.double().square().mean(dim=2).sqrt()  # [layer, batch, coordinate]
    expected = (s**4).mean(-1) / (s**2).mean(-1) ** 2
    found = reduced(Signal.of(x * size))
    torch.testing.assert_close(found["kurtosis"].double(), expected.mean(-1), rtol=1e-5, atol=0)
    torch.testing.assert_close(found["max_abs"], (x * size).abs().reshape(3, -1).max(1).values)
    ratio = s.sort(-1).values[..., 6] / s.sort(-1).values[..., 3]
    torch.testing.assert_close(found["feature_ratio"].double(), ratio.mean(-1), rtol=1e-5, atol=0)


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_values_by_token_by_hand_at_any_size(size: float) -> None:
    x = rng(3, 2, 5, 7)
    x[:, :, 0] *= 4  # a first token that is longer, as under a causal mask
    found, gram = (
        reduced(Signal.of(x * size)),
        torch.einsum("lbtd,lbsd->lts", x.double(), x.double()) / 14,
    )
    q = gram.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(found["second_moment_by_position"], q * size**2, rtol=1e-5, atol=0)
    others = ~torch.eye(5, dtype=torch.bool)
    product = (q[:, :, None] * q[:, None]).sqrt()
    expected = (gram * others).sum(-1) / (product * others).sum(-1)
    torch.testing.assert_close(
        found["token_correlation_by_position"].double(), expected, rtol=1e-5, atol=1e-6
    )


def test_kurtosis_is_1_of_even_features_and_d_of_a_single_one() -> None:
    even, single = torch.ones(1, 2, 5, 8), torch.zeros(1, 2, 5, 8)
    single[..., 3] = -7.0
    assert float(reduced(Signal.of(even))["kurtosis"]) == pytest.approx(1)
    assert float(reduced(Signal.of(single))["kurtosis"]) == pytest.approx(8)
    assert float(reduced(Signal.of(single))["max_abs"]) == 7


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1.0, 1e12, 1e30])
def test_squares_beyond_float32_are_still_numbers(size: float) -> None:
    x = rng(2, 2, 5, 7)
    expected = x.double().square().mean(dim=(1, 2, 3)) * size**2
    torch.testing.assert_close(statistics.second_moment(x * size), expected, rtol=1e-5, atol=0)
    found = torch.tensor(statistics.norms([x * size, x[0] * size]), dtype=torch.float64)
    torch.testing.assert_close(
        found, torch.stack([x.double().norm(), x[0].double().norm()]) * size, rtol=1e-5, atol=0
    )


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_what_is_not_finite_stays_so_in_its_own_layer(bad: float) -> None:
    x = rng(3, 2, 5, 7)
    x[1, 0, 2, 3] = bad
    for name, value in reduced(Signal.of(x)).items():
        assert value.isfinite().reshape(3, -1).all(1).tolist() == [True, False, True], name
    scores = rng(3, 1, 2, 5, 5)
    scores[1, 0, 0, 2, 3] = bad
    found = reduced(Rows.of(scores, scores.softmax(-1), None))
    for name, value in found.items():
        if STATISTICS[name].by_position:
            assert value.isfinite().all(1).tolist() == [True, False, True], name
        else:
            assert value.isfinite().tolist() == [[True, True], [False, True], [True, True]], name


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("spread", [1e-3, 1.0, 30.0])
def test_attention_statistics_by_their_definitions(causal: bool, spread: float) -> None:
    n = 12
    scores = rng(2, 3, 2, n, n) * spread + 50 * spread  # a common offset must not matter
    mask = torch.ones(n, n, dtype=torch.bool).tril() if causal else None
    masked = scores if mask is None else scores.masked_fill(~mask, -math.inf)
    found = reduced(Rows.of(scores.clone(), masked.softmax(-1), mask))

    rows = masked.double()
    exact = rows.softmax(-1)
    seen = torch.arange(1, n + 1).double() if causal else torch.full((n,), float(n)).double()
    entropy = torch.special.entr(exact).sum(-1)
    several = seen > 1
    pairs = zip(rows.unbind(-2), seen, strict=True)
    variance = torch.stack([row[..., : int(k)].var(-1, correction=0) for row, k in pairs])
    expected = {
        "logit_std": variance[several].mean(dim=(0, 2)).sqrt(),
        "attention_entropy": entropy.mean((1, 3)),
        "attention_entropy_normalized": (entropy / seen.log())[..., several].mean((1, 3)),
        "attention_max": exact.amax(-1).mean((1, 3)),
        "attention_entropy_by_position": entropy.mean((1, 2)),
        "attention_received": exact.mean((1, 2, 3)),
    }
    assert found["attention_received"].sum(-1) == pytest.approx(1, abs=1e-5)  # each row gives 1
    for name, value in expected.items():
        close = torch.isclose(found[name].double(), value, rtol=2e-5, atol=2e-5)
        assert close.all(), (name, found[name], value)


@pytest.mark.parametrize("causal", [False, True])
def test_with_a_sink_the_entropy_is_of_the_keys_shares_and_the_largest_weight_what_is_left(
    causal: bool,
) -> None:
    scores = rng(2, 3, 2, 12, 12)
    mask = torch.ones(12, 12, dtype=torch.bool).tril() if causal else None
    masked = scores if mask is None else scores.masked_fill(~mask, -math.inf)
    kept = torch.cat([masked, torch.zeros(2, 3, 2, 12, 1)], -1).softmax(-1)[..., :-1]
    found, without = (
        reduced(Rows.of(scores.clone(), pattern, mask, sinks))
        for pattern, sinks in ((kept, True), (masked.softmax(-1), False))
    )
    for name in ("logit_std", "attention_entropy", "attention_entropy_normalized"):
        torch.testing.assert_close(found[name], without[name])
    torch.testing.assert_close(found["attention_max"], kept.amax(-1).mean((1, 3)))
    lost = reduced(Rows.of(scores.clone() - 1000, torch.zeros_like(kept), mask, True))
    torch.testing.assert_close(lost["attention_entropy"], without["attention_entropy"])


def test_uniform_and_one_hot_rows() -> None:
    uniform = reduced(Rows.of(torch.zeros(1, 1, 1, 4, 4), torch.full((1, 1, 1, 4, 4), 0.25), None))
    assert float(uniform["attention_entropy"]) == pytest.approx(math.log(4))
    assert float(uniform["attention_entropy_normalized"]) == pytest.approx(1)
    scores = 1e4 * torch.eye(4)[None, None, None]
    one_hot = reduced(Rows.of(scores.clone(), scores.softmax(-1), None))
    assert float(one_hot["attention_entropy"]) == 0
    assert float(one_hot["attention_max"]) == 1
    assert float(one_hot["logit_std"]) == pytest.approx(1e4 * math.sqrt(3) / 4)
