"""Softmax over Gaussian logits: exact integrals against sampling and limits, tables against the
integrals."""

import math

import numpy as np
import pytest

from explorer.theory.logits import cap
from explorer.theory.positions import positions
from explorer.theory.sink import sinks
from explorer.theory.softmax import SIZES, Pair, pairs_of_rows, row
from explorer.theory.tables import S_MAX, as_normal, softmax, tables

WIDE = 10**9
"""A head so wide that nothing of it fluctuates."""


def rows_of(
    rng: np.random.Generator, s: float, n: int, count: int
) -> tuple[np.ndarray, np.ndarray]:
    z = rng.standard_normal((count, n))
    p = np.exp(s * (z - z.max(1, keepdims=True)))
    return z, p / p.sum(1, keepdims=True)


def pair(s: float, rho: float, n: int) -> Pair:
    return pairs_of_rows(s, rho, (n,))[0]


def in_loop(n: int, d_head: int, fixed_length: bool, s: float, rho: float = 1.0) -> np.ndarray:
    """Y2 and Y11 as the forward recursion reads them."""
    overlap, *_ = tables(n, False, d_head, fixed_length).lookup(
        np.array([s]), np.array([[1.0], [rho]])
    )
    return overlap[:, 0]


def close(sample: np.ndarray, expected: float, sigmas: float = 4.5) -> bool:
    return bool(
        abs(sample.mean() - expected) <= sigmas * sample.std() / math.sqrt(len(sample)) + 1e-12
    )


@pytest.mark.parametrize(
    ("n", "s"), [(2, 1.0), (16, 0.125), (64, 1.0), (64, 8.0), (256, 2.8), (40, 20.0)]
)
def test_rows_against_sampling(n: int, s: float) -> None:
    z, p = rows_of(np.random.default_rng(n), s, n, 20_000)
    exact, square = row(s, n), (p**2).sum(1)
    entropy = -(p * np.log(np.maximum(p, 1e-300))).sum(1)
    samples = {
        "entropy": entropy,
        "largest": p.max(1),
        "square": square,
        "jacobian": square - 2 * (p**3).sum(1) + square**2,
        "spread": (1 - square) ** 2,
        "crowding": 1 - 5 * square + 4 * (p**3).sum(1) + 6 * square**2 - 6 * (p**4).sum(1),
    }
    for name, sample in samples.items():
        assert close(sample, getattr(exact, name)), name
    tilted = (p**2 * (z - (p * z).sum(1, keepdims=True)) ** 2).sum(1)
    assert abs(exact.tilted / tilted.mean() - 1) < 0.05  # itself sampled: 1 %
    assert not close(p.max(1), 1.03 * exact.largest)


@pytest.mark.parametrize("rho", [0.2, 0.9, 0.99])
@pytest.mark.parametrize(("n", "s"), [(16, 1.0), (64, 2.8), (64, 8.0)])
def test_pairs_against_sampling(n: int, s: float, rho: float) -> None:
    rng = np.random.default_rng(int(100 * rho))
    z = rng.standard_normal((20_000, n))
    y = rho * z + math.sqrt(1 - rho**2) * rng.standard_normal(z.shape)
    a, b = (np.exp(s * (x - x.max(1, keepdims=True))) for x in (z, y))
    a, b = a / a.sum(1, keepdims=True), b / b.sum(1, keepdims=True)
    overlap = (a * b).sum(1)
    exact = pair(s, rho, n)
    assert close(overlap, exact.overlap)
    assert close(overlap - (a * b * (a + b)).sum(1) + overlap**2, exact.jacobian)


@pytest.mark.parametrize("n", [2, 64, 1024])
def test_limits(n: int) -> None:
    for s in (0.3, 3.0):
        one = row(s, n)
        # rows that know nothing of each other
        assert pair(s, 0.0, n).overlap == pytest.approx(1 / n, rel=1e-6)
        assert pair(s, 1.0, n) == pytest.approx((one.square, one.jacobian))
        assert pair(s, 1 - 1e-7, n).overlap == pytest.approx(one.square, rel=1e-3)
    assert row(0.0, n)[:3] == pytest.approx((math.log(n), 1 / n, 1 / n))
    small = row(0.05, n)  # H ≈ ln n − s²/2 (1 − 1/n)
    assert math.log(n) - small.entropy == pytest.approx(0.05**2 / 2 * (1 - 1 / n), rel=0.01)
    assert row(40.0, n).square > 0.9


def test_published_cells() -> None:
    """H / ln n, mean of the largest, Σp² for 64 and 1024 keys, without and with √d (d = 64)."""
    cells = {
        (64, 1.0): (0.886, 0.108, 0.039),
        (64, 8.0): (0.138, 0.794, 0.713),
        (1024, 8.0): (0.129, 0.710, 0.603),
    }
    for (n, s), expected in cells.items():
        one = row(s, n)
        assert (one.entropy / math.log(n), one.largest, one.square) == pytest.approx(
            expected, abs=0.005
        )


@pytest.mark.parametrize("n", [2, 5, 64, 700])
def test_tables_read_the_integrals(n: int) -> None:
    """To 0.4 % for single rows. Two sharp rows near ρ = 0 are worst, where Y11 is near 1/n and
    hardly counts."""
    table = softmax(n, WIDE)
    for s in (0.02, 0.7, 9.0, 40.0):
        exact, read = row(s, n), table.rows(np.array([s]))
        for name in ("entropy", "largest", "square", "jacobian", "spread"):
            assert getattr(read, name)[0] == pytest.approx(
                getattr(exact, name), rel=4e-3, abs=2e-5
            ), (name, s)
        for rho in (0.05, 0.6, 0.995) if s < 10 else ():
            two = pair(s, rho, n)
            y11, j11 = table.pairs(np.array([s]), np.array([rho]))
            assert y11[0] == pytest.approx(two.overlap, rel=1.5e-2)
            assert j11[0] == pytest.approx(two.jacobian, rel=3e-2, abs=2e-5)
            assert in_loop(n, WIDE, False, s, rho) == pytest.approx(
                (exact.square, two.overlap), rel=2.5e-2
            )


def test_beyond_the_table_what_is_missing_from_one_hot_falls_as_the_inverse() -> None:
    table = softmax(16, WIDE)
    far = row(2 * S_MAX, 16)
    assert 1 - table.rows(np.array([2 * S_MAX])).square[0] == pytest.approx(
        1 - far.square, rel=0.03
    )
    assert 1 - in_loop(16, WIDE, False, 2 * S_MAX) == pytest.approx(1 - far.square, rel=0.03)


def test_finite_heads_fluctuate() -> None:
    """Queries of d_head Gaussian coordinates: their lengths and sample correlations are averaged
    over."""
    rng, n, d_head, s, rho = np.random.default_rng(5), 32, 16, 10.0, 0.4
    q = rng.standard_normal((20_000, 2, d_head))
    q[:, 1] = rho * q[:, 0] + math.sqrt(1 - rho**2) * q[:, 1]
    k = rng.standard_normal((20_000, n, d_head))
    logits = s * np.einsum("rid,rkd->rik", q, k) / math.sqrt(d_head)
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    table = softmax(n, d_head)
    assert close((p[:, 0] ** 2).sum(-1), float(table.rows(np.array([s])).square[0]), sigmas=6)
    assert close(
        (p[:, 0] * p[:, 1]).sum(-1),
        float(table.pairs(np.array([s]), np.array([rho]))[0][0]),
        sigmas=6,
    )
    # without the average it would be seen
    assert not close((p[:, 0] ** 2).sum(-1), row(s, n).square)


# spread, that of the rows' means, cap: hardly bent, bent, and far beyond a small, a middle and a
# large cap
@pytest.mark.parametrize(
    ("s", "mean", "height"),
    [
        (1.0, 0.0, 5.0),
        (1.0, 1.0, 1.0),
        (10.0, 0.0, 0.1),
        (300.0, 300.0, 0.1),
        (10.0, 30.0, 1.0),
        (5.0, 0.0, 2.0),
    ],
)
@pytest.mark.parametrize("n", [8, 64])
def test_capped_logits_against_sampling(s: float, mean: float, height: float, n: int) -> None:
    """The spread to 5 %, Σp² to 15 %, and the energy that passes back through the cap to a
    third."""
    rng = np.random.default_rng(n)
    z = s * rng.standard_normal((40_000, n)) + mean * rng.standard_normal((40_000, 1))
    bent = np.tanh(z / height)
    p = np.exp(height * (bent - bent.max(1, keepdims=True)))
    p /= p.sum(1, keepdims=True)
    square = (p**2).sum(1)
    energy = ((1 - bent**2) ** 2 * p**2 * (1 - 2 * p + square[:, None])).sum(1)
    spread = height * math.sqrt(bent.var(1).mean() * n / (n - 1))
    found = cap(s, mean, height, n)
    rows = softmax(n, WIDE).rows(np.array([found.s]))
    assert found.std == pytest.approx(spread, rel=0.05)
    assert rows.square[0] == pytest.approx(square.mean(), rel=0.15)
    assert rows.jacobian[0] * found.slope == pytest.approx(energy.mean(), rel=0.35)


def test_a_cap_that_no_logit_reaches_changes_nothing() -> None:
    for n in (2, 64):
        assert cap(1.5, 0.0, 1e5, n) == pytest.approx((1.5, 1.5, 1.0), rel=1e-6)
    assert cap(1e12, 1e12, 0.01, 64).std < 0.01


@pytest.mark.parametrize("dimensions", [7, 15, 31, 63])
def test_keys_of_fixed_length_against_sampling(dimensions: int) -> None:
    """QK-norm: s √d cos θ has a shorter tail than s z; Σp² to 10 %, where normal logits are off by
    up to 80 %."""
    k = np.random.default_rng(dimensions).standard_normal((4000, 64, dimensions))
    cosine = k[..., 0] / np.linalg.norm(k, axis=-1)
    for s in (0.5, 1.0, 2.0, math.sqrt(dimensions + 1)):
        p = np.exp(s * math.sqrt(dimensions) * (cosine - cosine.max(1, keepdims=True)))
        square = ((p / p.sum(1, keepdims=True)) ** 2).sum(1).mean()
        table, normal = softmax(64, dimensions + 1, True), as_normal(s, 64, dimensions)
        assert table.rows(np.array([normal])).square[0] == pytest.approx(square, rel=0.1)
        assert in_loop(64, dimensions + 1, True, normal)[0] == pytest.approx(square, rel=0.1)


def test_positions_sum_over_tokens() -> None:
    axis = positions(50)
    every = np.arange(1, 51)
    assert list(axis.visible[:4]) == [1, 2, 3, 4]
    assert axis.visible[-1] == 50
    assert axis.weights.sum() == pytest.approx(1)
    # linear in ln t: exact
    assert axis.weights @ np.log(axis.visible) == pytest.approx(np.log(every).mean(), rel=1e-9)
    assert axis.key_mean[-1] @ axis.visible == pytest.approx(every.mean(), rel=0.02)
    assert axis.row_sum[0].sum() == pytest.approx((1 / every).sum())
    assert axis.row_sum_2[3].sum() == pytest.approx((1.0 / every[3:] ** 2).sum())


def test_without_a_mask_one_position_stands_for_all_tokens() -> None:
    """Sums over pairs of tokens: n times a token with itself, n(n − 1) times two; a key gets from
    all n rows."""
    axis = positions(50, causal=False)
    assert axis.unmasked
    assert axis.pair_sum.ravel().tolist() == [50, 50 * 49]
    own, pair = 0.7, 0.2
    found = axis.gather(np.array([[[own], [pair]], [[0.0], [0.0]]]))
    assert found[0, 0] == pytest.approx((own + 49 * pair) / 50)
    assert axis.lift(np.array([3.0])).ravel() == pytest.approx([3, 3])


@pytest.mark.parametrize("causal", [True, False])
def test_tables_of_positions_are_the_single_ones(causal: bool) -> None:
    axis, table = positions(64, causal), tables(64, causal, 32, False)
    s, rho = np.linspace(0.3, 3.0, len(axis.visible)), np.full(axis.ones.shape, 0.4)
    rho[0] = 1.0
    (overlap, _, crowding, _), rows, jacobian = (
        table.lookup(s, rho),
        table.rows(s),
        table.jacobian(s, rho),
    )
    if causal:
        # the first token sees itself alone
        assert np.array(rows)[:3, 0] == pytest.approx((0, 1, 1))
    for i in {min(3, len(s) - 1), len(s) - 1}:
        one = softmax(int(axis.visible[i]), 32).rows(s[i : i + 1])
        assert (rows.square[i], rows.entropy[i]) == pytest.approx(
            (one.square[0], one.entropy[0]), rel=3e-3
        )
        assert (overlap[0, i], crowding[i]) == pytest.approx(
            (one.square[0], one.crowding[0]), rel=3e-3
        )
        y11, j11 = softmax(int(axis.visible[i]), 32).pairs(s[i : i + 1], np.full(1, 0.4))
        assert (overlap[1 + i, i], jacobian[1 + i, i]) == pytest.approx((y11[0], j11[0]), rel=3e-3)


def test_what_rows_give_to_keys_is_the_adjoint_of_the_average_over_keys() -> None:
    """Σ g·(mean over keys of y) is Σ (g gathered)·y, over all tokens, where g and y are the same at
    all positions."""
    n = 50
    axis = positions(n)
    own, pair = 0.7, 0.2
    found = axis.gather(np.stack([axis.ratio * 0 + own, axis.ratio * 0 + pair]))
    every = np.arange(1, n + 1)
    by_hand = [(1 / every[i:] ** 2).sum() for i in range(n)]
    twice = [(1 / every[i:]).sum() ** 2 for i in range(n)]
    index = axis.visible.astype(int) - 1
    assert found[0] == pytest.approx(own * np.array(twice)[index], rel=1e-9)
    assert found[1:].diagonal() == pytest.approx(pair * np.array(twice)[index], rel=1e-9)
    rows = np.zeros((2, *axis.ratio.shape))
    rows[:, 0] = 1.0
    alone = axis.gather(rows)
    assert alone[0] == pytest.approx(np.array(by_hand)[index], rel=1e-9)
    assert alone[1:] == pytest.approx(np.array(by_hand)[np.maximum.outer(index, index)], rel=1e-9)


def test_the_stored_sizes_span_what_a_config_can_ask() -> None:
    assert (SIZES[0], SIZES[-1]) == (2, 1024)


@pytest.mark.parametrize(("s", "common"), [(0.3, 0.1), (1.0, 0.5), (2.0, 4.0), (0.8, 0.01)])
@pytest.mark.parametrize("logit", [0.0, 2.0])
def test_rows_with_a_sink_against_sampling(s: float, common: float, logit: float) -> None:
    sizes, rng = (1, 2, 4, 16, 64), np.random.default_rng(0)
    exact = sinks(sizes, logit).lookup(np.full(5, s), np.full(5, common))
    for index, n in enumerate(sizes):
        logits = math.sqrt(common) * rng.standard_normal((40_000, 1)) + s * rng.standard_normal(
            (40_000, n)
        )
        z = np.exp(np.column_stack([logits, np.full(len(logits), logit)]))
        p = z[:, :-1] / z.sum(1, keepdims=True)
        mass, square, usual = p.sum(1), (p**2).sum(1), p / p.sum(1, keepdims=True)
        samples = {
            "mass": mass,
            "square": mass**2,
            "own": (1 - mass) ** 2 * square,
            "shared": (mass * (1 - mass)) ** 2,
        }
        for name, sample in samples.items():
            value = getattr(exact, name)[index]
            assert close(sample, value) or value == pytest.approx(sample.mean(), rel=0.01), (
                name,
                n,
            )
        once = (usual**2).sum(1)
        jacobian = (square - 2 * (p**3).sum(1) + square**2, once - 2 * (usual**3).sum(1) + once**2)
        beyond = jacobian[0] - exact.square[index] * jacobian[1] - exact.jacobian[index]
        assert abs(beyond.mean()) <= 5 * beyond.std() / 200 + 0.002
        assert exact.focus[index] == pytest.approx(
            square.mean() / exact.square[index] / once.mean(), rel=0.01
        )


def test_two_rows_with_a_sink() -> None:
    """Linear between rows that have nothing to do with each other and equal rows, where it is
    exact."""
    rng, rho, s, common = np.random.default_rng(1), 0.5, 1.0, 0.5
    shared, own = rng.standard_normal((2, 20_000, 1, 9)), rng.standard_normal((2, 20_000, 2, 9))
    z = math.sqrt(rho) * shared[0] + math.sqrt(1 - rho) * own[0]
    m = math.sqrt(common) * (math.sqrt(rho) * shared[1] + math.sqrt(1 - rho) * own[1])[..., :1]
    mass = 1 - 1 / (1 + np.exp(m + s * z[..., :8]).sum(-1))
    exact = sinks((8,), 0.0).lookup(np.array([s]), np.array([common]))
    for found, expected in ((mass, exact.together), (mass * (1 - mass), exact.away)):
        assert expected(np.array(rho), lambda number: number)[0] == pytest.approx(
            found.prod(1).mean(), rel=0.02
        )
