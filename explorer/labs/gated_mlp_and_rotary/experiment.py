"""From GPT-2's block to Llama's in five changes, one after the other, and what each does to the signal.

Both are pre-norm and start from the same Gaussian tokens; matrices have variance 1/fan_in in all of them, so that only
the block changes. In law:

    gate: the hidden units φ(u)·v have E φ(u)²·q of v; v is drawn without a mean, so that two tokens of overlap 0 stay
    apart: E φφ′·p, which is 0 at p = 0, where a plain φ of positive mean passes on (E φ)² of what it has.
    rotary: keys turned by different angles are alike only as far as c̄ < 1, the mean cosine. A row of logits loses
    1 − ρc̄ rather than 1 − ρ to what its keys share, and the gradient² by W_Q and W_K is (1 − ρc̄)/(1 − ρ) of before.
    RMSNorm, grouped heads: no mean changes; the stream has no mean to subtract, and heads of a group are uncorrelated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from explorer.choices import Choices
from explorer.config import Config, heads_of
from explorer.fields import setting
from explorer.labs import Verdict
from explorer.labs.stacks import FirstSeed, Pair, Seeds, gradient, pairs
from explorer.numbers import number, percent
from explorer.profile import Array, Profile
from explorer.stopping import Progress, Stop

BLOCKS: dict[str, str] = {
    "gpt2": "GPT-2's block", "rms": "RMSNorm", "silu": "SiLU", "gate": "gate", "rotary": "rotary",
    "grouped": "grouped heads",
}
"""Each has all changes before it, too; the last is Llama's."""
CHANGES = tuple(BLOCKS)[1:]
OVERLAPS = (0.0, 0.2, 0.4, 0.6, 0.8)
"""Of the input tokens of single layers, with and without rotary positions."""
SEQUENCES = 4
"""Measured together: correlations and gradients by W_Q scatter from one to the next."""
NEAR = 0.25
"""Share of the theory's factor by which a measured one may be off and agree with it."""


def by_queries(profile: Profile) -> Array:
    """`[seed]` ‖∂L/∂W_Q‖², geometric mean over the layers: the first one's would drown the others in a sum."""
    return np.asarray(np.exp(2 * np.log(profile["parameter_gradient", "W_Q"]).mean(1)))


QUANTITIES: Mapping[str, tuple[str, Callable[[Profile], Array]]] = {
    "moment": ("second moment", lambda profile: profile["second_moment", "resid_post"][:, -1]),
    "correlation": ("token correlation", lambda profile: profile["token_correlation", "resid_post"][:, -1]),
    "gradient": ("gradient² at the input", lambda profile: gradient(profile)[:, 0]),
    "queries": ("gradient² by W_Q", by_queries),
}
"""Words and values `[seed]`: of the stream after the last layer, of its input over the output, of all layers."""


class GatedMlpAndRotary(Choices):
    """Sizes of the stacks, and what all their blocks share."""

    n_layers: int = setting(12, "Depth", "", "Layers of each stack.", 2, 48, symbol="N", unit="layers", log=True)
    width: int = setting(128, "Width", "", "Width of the stream; heads are 32 wide, the MLP four times the stream.", 64,
                         256, symbol="d", unit="coordinates", log=True)
    n_ctx: int = setting(32, "Tokens", "", "Tokens in a sequence.", 4, 128, symbol="n", unit="tokens", log=True)
    kv_heads: int = setting(1, "Key-value heads", "",
                            "Heads of keys and values that the heads of queries share, in the last change.", 1, 8,
                            symbol="H_kv", log=True)
    rope_base: float = setting(1e4, "Rotary base", "", "Of the angles by which queries and keys turn.", 10, 1e7,
                               symbol="θ", log=True)
    rescaled: bool = setting(False, "Unit-moment activation", "",
                             "Divides GELU and SiLU by √E φ(z)²; neither model does.")
    causal: bool = setting(True, "Causal mask", "", "A token attends to itself and to earlier ones, as in both models.")
    n_seeds: Seeds = 6
    seed: FirstSeed = 0

    def block(self, name: str, **changes: Any) -> Config:
        """One of `BLOCKS`."""
        heads = self.width // 32
        steps: Mapping[str, dict[str, Any]] = {
            "gpt2": {"activation": "gelu"}, "rms": {"norm": "rms"}, "silu": {"activation": "silu"},
            "gate": {"mlp": "gated"}, "rotary": {"position": "rotary", "rope_base": self.rope_base},
            "grouped": {"n_kv_heads": heads_of(heads, self.kv_heads)},
        }
        config = Config(
            n_layers=self.n_layers, d_model=self.width, n_heads=heads, n_ctx=self.n_ctx, batch_size=SEQUENCES,
            activation_rescaled=self.rescaled, causal=self.causal, n_seeds=self.n_seeds, seed=self.seed,
        )
        for step in tuple(BLOCKS)[: tuple(BLOCKS).index(name) + 1]:
            config = config.replace(**steps[step])
        return config.replace(**changes)

    def single(self, name: str, overlap: float) -> Config:
        """One layer of a block on tokens of some overlap."""
        drawn = {"input": "correlated", "input_correlation": overlap} if overlap else {}
        return self.block(name, n_layers=1, **drawn)


class Factor(NamedTuple):
    """A quantity after a change over the same before it."""

    measured: Array
    """`[seed]`."""
    predicted: float

    @property
    def mean(self) -> float:
        """Geometric mean over seeds."""
        return float(np.exp(np.log(self.measured).mean()))

    @property
    def agrees(self) -> bool:
        """Whether it is within `NEAR` of the theory's; False of what is not finite."""
        return bool(abs(np.log(self.mean / self.predicted)) <= np.log1p(NEAR))

    @property
    def words(self) -> str:
        """Both, in a sentence."""
        return f"{number(self.mean, 2)} (theory {number(self.predicted, 2)})"


@dataclass(frozen=True, eq=False)
class GatedMlpAndRotaryResult:
    """Measurements of every block, and of single layers."""

    settings: GatedMlpAndRotary
    blocks: Mapping[str, Pair]
    singles: Mapping[tuple[str, float], Pair]
    """By block, without and with rotary positions, and overlap of the input."""

    def factor(self, change: str, quantity: str) -> Factor:
        """Factor by which one of `CHANGES` multiplies one of `QUANTITIES`, measured and predicted."""
        before = tuple(BLOCKS)[tuple(BLOCKS).index(change) - 1]
        return _factor(self.blocks[before], self.blocks[change], QUANTITIES[quantity][1])

    def turned(self, overlap: float) -> Factor:
        """Factor by which rotary positions multiply the gradient² by W_Q of a single layer."""
        return _factor(self.singles["gate", overlap], self.singles["rotary", overlap], by_queries)


def _factor(before: Pair, after: Pair, quantity: Callable[[Profile], Array]) -> Factor:
    measured, predicted = (quantity(new) / quantity(old) for old, new in zip(before, after, strict=True))
    return Factor(measured, float(predicted[0]))


def run(settings: GatedMlpAndRotary, stop: Stop = lambda: False, progress: Progress = lambda _: None
        ) -> GatedMlpAndRotaryResult:
    """Measures the blocks' stacks, then single layers.

    Raises:
        Stopped: `stop()` said true.
    """
    stacks = pairs({
        **{name: settings.block(name) for name in BLOCKS},
        **{(name, overlap): settings.single(name, overlap) for name in ("gate", "rotary") for overlap in OVERLAPS},
    }, stop, progress)
    singles = {key: pair for key, pair in stacks.items() if isinstance(key, tuple)}
    return GatedMlpAndRotaryResult(settings, {name: stacks[name] for name in BLOCKS}, singles)


def verdict(result: GatedMlpAndRotaryResult) -> Verdict:
    """Verdict: is the gate the change that tokens notice, and are all factors the theory's."""
    ends = [QUANTITIES["correlation"][1](pair.measured).mean() for pair in result.blocks.values()]
    factors = {change: result.factor(change, "correlation") for change in CHANGES}
    turned = result.turned(OVERLAPS[-1])
    evidence = (
        f"Token correlation after {result.settings.n_layers} layers: {number(ends[0], 2)} with GPT-2's block, "
        f"{number(ends[-1], 2)} with Llama's; the factor of the gate is {factors['gate'].words}, of rotary positions "
        f"{factors['rotary'].words}. On the gradient² by W_Q of a layer whose tokens have overlap {OVERLAPS[-1]:g}, "
        f"theirs is {turned.words}. Within {percent(NEAR)} counts as agreement."
    )
    largest = max(CHANGES, key=lambda change: abs(np.log(factors[change].mean)))
    wrong = [BLOCKS[change] for change in CHANGES
             if not (factors[change].agrees and result.factor(change, "moment").agrees)]
    if wrong or not turned.agrees:
        whose = ", ".join(wrong) or "rotary"
        return "warning", f"These draws' factors are not the theory's ({whose}): increase seeds or width.", evidence
    if largest != "gate":
        return "warning", f"Here {BLOCKS[largest]} changes the tokens' correlation more than the gate does.", evidence
    return "good", ("Of the five changes the gate is the one that keeps tokens apart; rotary positions leave the "
                    "stream as it is, and raise the gradients by W_Q and W_K of tokens that are alike."), evidence


def invariants() -> dict[str, float]:
    """Correlations at both ends, each change's factor on it, and rotary's on a layer's gradient² by W_Q."""
    result = run(GatedMlpAndRotary(n_seeds=8))
    numbers: dict[str, float] = {}
    for name in ("gpt2", tuple(BLOCKS)[-1]):
        measured, predicted = (QUANTITIES["correlation"][1](profile).mean() for profile in result.blocks[name])
        words = BLOCKS["gpt2"] if name == "gpt2" else "Llama's block"
        numbers |= {f"{words}, token correlation": float(measured), f"{words}, the same, predicted": float(predicted)}
    for change in CHANGES:
        factor = result.factor(change, "correlation")
        numbers |= {f"{BLOCKS[change]}, factor": factor.mean, f"{BLOCKS[change]}, predicted": factor.predicted}
    for overlap in (OVERLAPS[0], OVERLAPS[-1]):
        turned = result.turned(overlap)
        numbers |= {f"rotary on W_Q, overlap {overlap:g}": turned.mean,
                    f"rotary on W_Q, overlap {overlap:g}, predicted": turned.predicted}
    return numbers
