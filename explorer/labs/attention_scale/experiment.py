"""The division by √d: size of the logits, effect on softmax, three cures, and a whole stack.

Entropy and gradients are kept apart. Without the division the entropy collapses; each row's softmax passes on less and
less *typically* (the median of ‖J‖²), but not on average, and the logits' path is d_head times stronger: the gradients
of the whole stack explode.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from explorer.choices import Choices
from explorer.config import Config
from explorer.fields import setting
from explorer.labs import Verdict, plus_minus, stages
from explorer.labs.stacks import Pair, gradient, pairs
from explorer.numbers import number
from explorer.profile import Array
from explorer.stopping import Progress, Stop

BLOCK = 2**21
"""Numbers drawn at a time."""
DIMENSIONS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
ROWS, FEWEST_ROWS, LOGITS = 2048, 512, 2**18
"""Softmax rows that are averaged: fewer of them where they are long, about so many logits together."""
SIGMAS = np.geomspace(1 / 8, 32, 17)
FINE = np.geomspace(1 / 8, 32, 97)
GROWTHS = np.geomspace(1, 8, 7)
"""Factors on W_Q and on W_K."""
FINE_GROWTHS = np.geomspace(1, 8, 49)
ERRORS = 3
"""Standard errors up to which the theory's gradient² counts as explained by the draws."""
EXPLODES = 3.0
"""A gradient² that is multiplied by more is said to grow."""


class Cure(NamedTuple):
    """A way to treat the logits, and the design that has it."""

    label: str
    choices: Mapping[str, Any]


CURES: Mapping[str, Cure] = {
    "sqrt_d": Cure("÷ √d", {"attention_scale": "sqrt_d"}),
    "t5": Cure("T5 init", {"attention_scale": "none", "scale_rule": "t5"}),
    "qk_norm": Cure("QK-norm", {"attention_scale": "sqrt_d", "qk_norm": True}),
    "none": Cure("undivided", {"attention_scale": "none"}),
}


class AttentionScale(Choices):
    """Sizes of a head, of a row, and of the stack that is measured."""

    d_head: int = setting(64, "Head width", "Size", "Coordinates of a query and of a key.", 2, 256, symbol="d",
                          unit="coordinates", log=True, pinned=True)
    n_keys: int = setting(64, "Keys", "Size", "Keys of each query; the stack's sequence length.", 2, 512, symbol="n",
                          unit="tokens", log=True, pinned=True)
    n_layers: int = setting(12, "Depth", "Size", "Layers of the Pre-LN stack in the last chart.", 1, 24, symbol="N",
                            unit="layers", log=True, pinned=True)
    draws: int = setting(100_000, "Draws", "Input and loss", "Products q·k of this head width.", 1000, 1_000_000,
                         unit="products", log=True, pinned=True)
    seed: int = setting(0, "Seed", "Input and loss", "Seed of all draws.", 0, 2**31 - 1)

    @property
    def freezing(self) -> float:
        """σ_c = √(2 ln n), beyond which a row of n Gaussian logits freezes onto its largest few."""
        return math.sqrt(2 * math.log(self.n_keys))

    @property
    def n_seeds(self) -> int:
        """Draws of each stack: eight, fewer where long rows make them slow."""
        return max(2, min(8, 512 // self.n_keys))

    def design(self, cure: str) -> Config:
        """The stack that is measured with a cure: Pre-LN with RMS norm, one sequence, about 128 wide."""
        heads = max(1, 128 // self.d_head)
        return Config(
            n_layers=self.n_layers, d_model=heads * self.d_head, n_heads=heads, n_ctx=self.n_keys, batch_size=1,
            norm="rms", n_seeds=self.n_seeds, seed=min(self.seed, 2**31 - 64), **CURES[cure].choices,
        )


class Rows(NamedTuple):
    """Averages of softmax rows, by σ or by growth."""

    entropy: Array
    """Over ln n."""
    largest: Array
    jacobian: Array
    """Mean ‖J‖²_F of ∂p/∂logits."""
    typical: Array
    """Its median; nan where it was not sampled."""


@dataclass(frozen=True, eq=False)
class AttentionScaleResult:
    """Measurements at one head width and row length."""

    settings: AttentionScale
    second_moment: float
    """E(q·k)² / d."""
    moments: Array
    """E(q·k)² over `DIMENSIONS`."""
    sampled: Rows
    """Over `SIGMAS`."""
    expected: Rows
    """Over `FINE`."""
    grown: Mapping[str, Array]
    """Cure to entropy over ln n, sampled over `GROWTHS`."""
    grown_expected: Mapping[str, Array]
    """Cure to the predicted entropy over ln n, sampled over `FINE_GROWTHS`."""
    stacks: Mapping[str, Pair]
    """By cure."""

    def start(self, cure: str) -> tuple[Array, float]:
        """Gradient² at the input of a stack, relative to the output: of each draw, and the theory's."""
        draws, expected = (gradient(profile)[:, 0] for profile in self.stacks[cure])
        return draws, float(expected[0])

    @property
    def overshoot(self) -> float:
        """The theory's gradient² at the input of the undivided stack, over the mean of the draws."""
        draws, expected = self.start("none")
        return float(expected / draws.mean())

    @property
    def explained(self) -> bool:
        """Whether the theory's is within `ERRORS` standard errors of the mean of the draws."""
        draws, expected = self.start("none")
        return bool(abs(expected - draws.mean()) <= ERRORS * draws.std(ddof=1) / math.sqrt(len(draws)))


def products(d: int, count: int, rng: np.random.Generator) -> Array:
    """`count` products q·k of unit-second-moment Gaussian vectors of `d` coordinates."""
    q, k = (rng.standard_normal((count, d), dtype=np.float32) for _ in range(2))
    return np.asarray(np.einsum("ij,ij->i", q, k), dtype=np.float64)


def heads(settings: AttentionScale) -> tuple[Array, Array]:
    """Queries `[group, query, d]` and keys `[group, key, d]` of unit second moment; queries of a group share keys."""
    rng = np.random.default_rng([settings.seed, 1])
    groups = min(64, max(8, BLOCK // (settings.n_keys * settings.d_head)))
    rows = min(ROWS, max(FEWEST_ROWS, LOGITS // settings.n_keys))
    queries = rng.standard_normal((groups, rows // groups, settings.d_head))
    return queries, rng.standard_normal((groups, settings.n_keys, settings.d_head))


def logits(cure: str, q: Array, k: Array) -> Array:
    """`[row, key]`: the scores as a cure makes them, from queries and keys of any size."""
    import torch

    root = math.sqrt(q.shape[-1])
    if cure == "t5":  # W_Q is drawn √d smaller; nothing is divided
        q = q / root
    elif cure == "qk_norm":
        q, k = (x / np.sqrt(np.mean(x**2, -1, keepdims=True)) for x in (q, k))
    # torch's product, whose threads wait quietly where numpy's spin
    scores = (torch.from_numpy(q) @ torch.from_numpy(k).transpose(1, 2)).numpy()
    return np.asarray(scores.reshape(-1, k.shape[1]) / (root if cure in ("sqrt_d", "qk_norm") else 1.0))


def softmax_rows(scores: Array) -> tuple[float, float, float, float]:
    """Of logits `[row, key]`: mean entropy over ln n, mean largest weight, mean and median ‖J‖²_F."""
    centered = scores - scores.max(1, keepdims=True)
    p = np.exp(centered)
    z = p.sum(1, keepdims=True)
    p /= z
    entropy = np.log(z[:, 0]) - (p * centered).sum(1)
    square = (p * p).sum(1)
    jacobian = square - 2 * (p**3).sum(1) + square**2
    n = math.log(scores.shape[1])
    return float(entropy.mean()) / n, float(p.max(1).mean()), float(jacobian.mean()), float(np.median(jacobian))


def expected_rows(settings: AttentionScale, sigma: Array, *, fixed_length: bool = False) -> Rows:
    """The theory's averages at each σ; `fixed_length` where queries are normalized."""
    from explorer.theory.tables import softmax

    rows = softmax(settings.n_keys, settings.d_head, fixed_length).rows(sigma)
    unknown = np.full_like(sigma, np.nan)
    return Rows(rows.entropy / math.log(settings.n_keys), rows.largest, rows.jacobian, unknown)


def run(settings: AttentionScale, stop: Stop = lambda: False, progress: Progress = lambda _: None
        ) -> AttentionScaleResult:
    """Draws, rows and stacks.

    Raises:
        Stopped: `stop()` said true.
    """
    second, _ = _moments(settings, stop, lambda part: progress(0.3 * part))
    rng = np.random.default_rng([settings.seed, 2])
    moments = np.array([np.mean(products(d, 8_000, rng) ** 2) for d in stages(DIMENSIONS, stop, lambda _: None)])
    q, k = heads(settings)
    plain = logits("sqrt_d", q, k)
    rows = [softmax_rows(sigma * plain) for sigma in stages(SIGMAS.tolist(), stop, lambda _: None)]
    grown = {}
    for cure in stages(tuple(CURES), stop, lambda part: progress(0.3 + 0.2 * part)):
        grown[cure] = np.array([softmax_rows(logits(cure, g * q, g * k))[0] for g in GROWTHS])
    stacks = pairs({cure: settings.design(cure) for cure in CURES}, stop, lambda part: progress(0.5 + 0.5 * part))
    return AttentionScaleResult(
        settings=settings, second_moment=second, moments=moments, sampled=Rows(*np.array(rows).T),
        expected=expected_rows(settings, FINE), grown=grown, grown_expected=_grown_expected(settings), stacks=stacks,
    )


def _moments(settings: AttentionScale, stop: Stop, progress: Progress) -> tuple[float, float]:
    """Second and fourth moment of q·k / √d, in blocks."""
    rng, d = np.random.default_rng([settings.seed, 0]), settings.d_head
    block = max(1, BLOCK // d)
    sizes = [min(block, settings.draws - start) for start in range(0, settings.draws, block)]
    second, fourth = 0.0, 0.0
    for size in stages(sizes, stop, progress):
        z = products(d, size, rng) / math.sqrt(d)
        second, fourth = second + float((z**2).sum()), fourth + float((z**4).sum())
    return second / settings.draws, fourth / settings.draws


def _grown_expected(settings: AttentionScale) -> dict[str, Array]:
    """Entropy when the weights grow: σ = growth², √d more without a division, and 1 after a QK-norm."""
    root = math.sqrt(settings.d_head)
    sigma = {cure: FINE_GROWTHS**2 * {"none": root}.get(cure, 1.0) for cure in CURES}
    sigma["qk_norm"] = np.ones_like(FINE_GROWTHS)
    return {
        cure: expected_rows(settings, values, fixed_length=cure == "qk_norm").entropy for cure, values in sigma.items()
    }


def verdict(result: AttentionScaleResult) -> Verdict:
    """Entropy without the division, and separately gradients, with the theory's distance from them."""
    settings = result.settings
    entropy = {cure: result.stacks[cure].measured["attention_entropy_normalized"][:, 0].mean() for cure in CURES}
    (divided, divided_theory), (undivided, undivided_theory) = result.start("sqrt_d"), result.start("none")
    grows = undivided.mean() / divided.mean()
    evidence = (
        f"At d = {settings.d_head} and n = {settings.n_keys} σ is {math.sqrt(settings.d_head):.3g}, the freezing "
        f"threshold {settings.freezing:.3g}; first layer's entropy {entropy['sqrt_d']:.2f} → {entropy['none']:.2f} of "
        f"uniform. Input gradient² over output, mean of {settings.n_seeds} draws: {plus_minus(divided)} → "
        f"{plus_minus(undivided)}; theory, for all draws, {number(divided_theory)} → "
        f"{number(undivided_theory)}; undivided, theory is {result.overshoot:.2g} × the "
        f"draws' mean, {'within' if result.explained else 'beyond'} {ERRORS} standard errors."
    )
    if math.sqrt(settings.d_head) <= settings.freezing:
        return "good", "Heads this narrow stay below the freezing threshold even without the division.", evidence
    if grows > EXPLODES:
        return "warning", f"Without the division attention freezes; the gradient² grows × {number(grows)}.", evidence
    return "warning", f"Without the division attention freezes; the gradient² hardly changes, × {grows:.3g}.", evidence


def invariants(settings: AttentionScale = AttentionScale()) -> dict[str, float]:  # noqa: B008 - frozen
    """The logits' second moment and kurtosis; entropy and largest weight with and without √d; T5 against √d."""
    second, fourth = _moments(settings, lambda: False, lambda _: None)
    q, k = heads(settings)
    with_root, without = (softmax_rows(logits(cure, q, k)) for cure in ("sqrt_d", "none"))
    return {
        "E (q·k)² / d": second,
        "kurtosis": fourth / second**2,
        "entropy / ln n with √d": with_root[0],
        "entropy / ln n without": without[0],
        "largest weight with √d": with_root[1],
        "largest weight without": without[1],
        "T5's logits − logits with √d": float(np.abs(logits("t5", q, k) - logits("sqrt_d", q, k)).max()),
    }
