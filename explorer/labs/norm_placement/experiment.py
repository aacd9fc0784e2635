"""Norm placement and gradients: Xiong et al. 2020 in their own setting, then five designs.

Their setting: one head, W_Q = W_K = 0, every other matrix N(0, 1/d), relu, an MLP as wide as the stream, independent
normal tokens. Attention is then the plain mean of the values; here logits are kept within ±0.01, which does the same
and leaves the stack a `Config` that the Explore page can show. In it, with ρ the overlap of two tokens, one layer of
Pre-LN does to the stream's second moment

    q ← q + ρ + (1 − ρ)/n    (attention: a mean of n tokens),    q ← q + ½    (MLP: relu halves).

So q_L lies between 1 + L/2 and 1 + 3L/2. The last norm divides the gradient by √q_L; after a Post-LN it is √(3/2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from explorer.choices import Choices
from explorer.config import LEAST_CAP, Config, heads_of, preset
from explorer.fields import setting
from explorer.labs import Verdict, plus_minus
from explorer.labs.stacks import FirstSeed, Pair, Seeds, gradient, pairs, powers_of_two, slope
from explorer.profile import Array
from explorer.schemes.activation import ACTIVATIONS
from explorer.schemes.preset import PRESETS
from explorer.stopping import Progress, Stop

PLACEMENTS: Mapping[str, str] = {"post": "Post-LN", "pre": "Pre-LN"}
"""Of the theorem."""
DESIGNS: Mapping[str, str] = {
    name: PRESETS[name].title for name in ("post_ln", "pre_ln", "peri_ln", "deepnorm", "realformer")
}
BENDS: Mapping[str, str] = {"none": "MLPs only", "uniform": "uniform", "softmax": "softmax"}
"""By attention: none, a plain mean, and as it is."""
FLAT = 0.5
"""Share of the output's gradient² from which on a gradient that is nowhere lower counts as flat."""
SLOPE_ERROR = 0.2
"""By which a measured slope may differ from the theory's."""
PUBLISHED = (6, 8, 10, 12, 14)
"""Depths that the paper trains."""


class NormPlacement(Choices):
    """Sizes of the stacks, and other choices of the five designs."""

    n_layers: int = setting(12, "Depth", "",
                            "Layers; for the theorem, stacks of half, a quarter, … of them are measured too.", 2, 48,
                            symbol="N", unit="layers", log=True)
    width: int = setting(128, "Width", "",
                         "Width of the stream and of the MLPs' hidden layer; the designs' heads are about 32 wide.",
                         32, 256, symbol="d", unit="coordinates", log=True)
    n_ctx: int = setting(32, "Tokens", "", "Tokens in the sequence.", 4, 128, symbol="n", unit="tokens", log=True)
    input_correlation: float = setting(0.0, "Input correlation", "",
                                       "Overlap of two input tokens of the designs; the theorem's are independent.",
                                       0, 0.9, symbol="ρ₀")
    activation: str = setting("relu", "Activation", "",
                              "Of the designs, rescaled to unit second moment; the theorem's is the plain relu.",
                              symbol="φ", options=ACTIVATIONS)
    causal: bool = setting(False, "Causal mask", "",
                           "In the designs, a token attends to itself and earlier ones; in the theorem, to all.")
    n_seeds: Seeds = 3
    seed: FirstSeed = 0

    @property
    def depths(self) -> list[int]:
        """1, 2, 4, … and N."""
        return powers_of_two(self.n_layers)

    def theirs(self, norm_placement: str, n_layers: int) -> Config:
        """The setting of Xiong et al., with the norm somewhere."""
        return Config(
            n_layers=n_layers, d_model=self.width, n_heads=1, mlp_ratio=1, n_ctx=self.n_ctx, batch_size=1,
            norm_placement=norm_placement, activation_rescaled=False, logit_cap=LEAST_CAP, n_seeds=self.n_seeds,
            seed=self.seed,
        )

    def design(self, name: str) -> Config:
        """One of `DESIGNS`."""
        drawn = {"input": "correlated", "input_correlation": self.input_correlation} if self.input_correlation else {}
        return preset(
            name, n_layers=self.n_layers, d_model=self.width, n_heads=heads_of(self.width, self.width // 32),
            mlp_ratio=1, n_ctx=self.n_ctx, batch_size=1, activation=self.activation, causal=self.causal,
            n_seeds=self.n_seeds, seed=self.seed, **drawn,
        )

    def bent(self, attention: str) -> Config:
        """Post-LN with one of `BENDS`."""
        changes: dict[str, dict[str, Any]] = {
            "none": {"attention": "none", "causal": False}, "uniform": {"logit_cap": LEAST_CAP},
        }
        return self.design("post_ln").replace(**changes.get(attention, {}))


class Theorem(NamedTuple):
    """The last MLP's ‖∂L/∂W_out‖ against depth, with the norm in one placement."""

    measured: Array
    """`[depth, seed]`."""
    predicted: Array
    """`[depth]`."""

    @property
    def typical(self) -> Array:
        """`[depth]` root of the mean square over seeds, which is what is predicted."""
        return np.asarray(np.sqrt(np.mean(self.measured**2, axis=1)))


@dataclass(frozen=True, eq=False)
class NormPlacementResult:
    """Measurements at one depth."""

    settings: NormPlacement
    theorem: Mapping[str, Theorem]
    """By norm placement."""
    deepest: Pair
    """The deepest Pre-LN stack of the theorem."""
    designs: Mapping[str, Pair]
    bends: Mapping[str, Pair]
    """Post-LN by attention."""

    @property
    def moments(self) -> Array:
        """`[seed, layer]` second moment of the theorem's Pre-LN stream after each layer."""
        return self.deepest.measured["second_moment", "resid_post"]

    def slopes(self, placement: str) -> tuple[float, float]:
        """Exponent of L in the last MLP's gradient, measured and predicted."""
        sizes = self.theorem[placement]
        return slope(self.settings.depths, sizes.typical), slope(self.settings.depths, sizes.predicted)


def lemma(n_layers: int, n_ctx: int) -> Array:
    """Second moment of the Pre-LN stream in their setting, at infinite width, after 0 … N layers."""
    q, p, moments = 1.0, 0.0, [1.0]
    for _ in range(n_layers):
        mean = p / q + (1 - p / q) / n_ctx  # every token receives the same: overlap and second moment are one
        q, p = q + mean, p + mean
        rho = p / q
        q, p = q + 0.5, p + 0.5 * (math.sqrt(1 - rho**2) + rho * (math.pi - math.acos(rho))) / math.pi
        moments.append(q)
    return np.array(moments)


def band(n_layers: int) -> tuple[Array, Array]:
    """Lower and upper bound: attention adds between 0 and 1 a layer, the MLP ½."""
    layer = np.arange(n_layers + 1, dtype=float)
    return 1 + layer / 2, 1 + 1.5 * layer


def run(settings: NormPlacement, stop: Stop = lambda: False, progress: Progress = lambda _: None
        ) -> NormPlacementResult:
    """The theorem's stacks, then the designs'.

    Raises:
        Stopped: `stop()` said true.
    """
    depths = settings.depths
    stacks = pairs({
        **{(placement, depth): settings.theirs(placement, depth) for placement in PLACEMENTS for depth in depths},
        **{("design", name): settings.design(name) for name in DESIGNS},
        **{("bend", name): settings.bent(name) for name in BENDS},
    }, stop, progress)
    return NormPlacementResult(
        settings=settings,
        theorem={placement: theorem([stacks[placement, depth] for depth in depths]) for placement in PLACEMENTS},
        deepest=stacks["pre", settings.n_layers],
        designs={name: stacks["design", name] for name in DESIGNS},
        bends={name: stacks["bend", name] for name in BENDS},
    )


def theorem(stacks: list[Pair]) -> Theorem:
    """The last MLP's gradient of stacks of growing depth."""
    measured, predicted = zip(*[[profile["parameter_gradient", "W_out"][:, -1] for profile in pair] for pair in stacks],
                              strict=True)
    return Theorem(np.array(measured), np.concatenate(predicted))


def inside(result: NormPlacementResult) -> bool:
    """Whether Pre-LN's stream keeps to Lemma 2's band after every layer, in some seed: it holds on average."""
    low, high = band(result.settings.n_layers)
    return bool((result.moments.max(0) >= low[1:]).all() and (result.moments.min(0) <= high[1:]).all())


def is_seen(result: NormPlacementResult) -> bool:
    """Whether both slopes are within `SLOPE_ERROR` of the theory's, and that far from each other."""
    (post, post_line), (pre, pre_line) = (result.slopes(placement) for placement in PLACEMENTS)
    near = max(abs(post - post_line), abs(pre - pre_line)) <= SLOPE_ERROR
    return near and post - pre > SLOPE_ERROR


def verdict(result: NormPlacementResult) -> Verdict:
    """Verdict on the two slopes, the band, and the V of Post-LN's gradient, all at initialization."""
    settings = result.settings
    (post, post_line), (pre, pre_line) = (result.slopes(placement) for placement in PLACEMENTS)
    flat, bent = (float(gradient(result.bends[name].measured).mean(0).min()) for name in ("none", "softmax"))
    low, high = (float(edge[-1]) for edge in band(settings.n_layers))
    evidence = (
        f"Last W_out: slope in L {_signed(post)} for Post-LN, theory {_signed(post_line)}; {_signed(pre)} for Pre-LN, "
        f"theory {_signed(pre_line)}; {SLOPE_ERROR:g} apart counts as agreement. Pre-LN's q = "
        f"{plus_minus(result.moments[:, -1])}, Lemma 2's band {low:g} to {high:g}, recursion "
        f"{lemma(settings.n_layers, settings.n_ctx)[-1]:.3g}. Post-LN's gradient², at its lowest, is {bent:.2g} × the "
        f"output's; without attention {flat:.2g} (flat: {FLAT:g} or more)."
    )
    if not inside(result):
        return "warning", "These draws leave Lemma 2's band, which holds on average: increase seeds or width.", evidence
    if settings.n_layers < 4:
        return "warning", "Too shallow for a slope, which needs at least 4 layers.", evidence
    if not is_seen(result):
        return "warning", "These draws' slopes are not the theory's: increase seeds or width.", evidence
    slopes = "Depth shrinks Pre-LN's last initial gradient and not Post-LN's"
    if not flat >= FLAT:
        return "warning", f"{slopes}; with this activation Post-LN's is not flat even without attention.", evidence
    if bent < 0.6 * flat:
        return "good", f"{slopes}; attention makes Post-LN's gradient uneven.", evidence
    return "good", f"{slopes}; Post-LN's gradient is nearly flat here.", evidence


def _signed(number: float) -> str:
    """Two decimals; a zero has no sign."""
    return f"{round(number, 2) + 0.0:.2f}".replace("-", "−")


def invariants() -> dict[str, float]:
    """Lemma 2's recursion, the gradients that follow, the theorem's slopes, and Post-LN's gradient² at its lowest."""
    settings = NormPlacement(n_layers=32, n_seeds=8)
    curve = lemma(PUBLISHED[-1], 32)
    numbers = {f"q of Pre-LN, L = {depth}": float(curve[depth]) for depth in PUBLISHED}
    numbers |= {f"relative gradient, L = {depth}": float(curve[depth] ** -0.5) for depth in PUBLISHED}
    for placement, words in PLACEMENTS.items():
        sizes = theorem(list(pairs({depth: settings.theirs(placement, depth) for depth in settings.depths}).values()))
        numbers[f"{words}, slope of the last gradient in L"] = slope(settings.depths, sizes.typical) + 0.0
        numbers[f"{words}, the same, predicted"] = slope(settings.depths, sizes.predicted) + 0.0
    shallow = settings.replace(n_layers=12)
    for name, pair in pairs({name: shallow.bent(name) for name in ("none", "softmax")}).items():
        numbers[f"Post-LN, {BENDS[name]}, lowest gradient²"] = float(gradient(pair.measured).mean(0).min())
    return numbers
