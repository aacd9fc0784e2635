"""RealFormer: attention logits add up over the layers, as the stream does. Adding up queries and keys is not the same.

With independent layers of unit logits A_l = Σ q_k·k_k has spread √l, and (Σ q)·(Σ k) has l. In a real Post-LN stack
tokens become alike, later layers add less, and the sum stays below √l. Beside the logits: what attention makes of them,
how alike the patterns of successive layers are, what becomes of the gradients, and the memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pydantic import model_validator

from explorer.choices import Choices
from explorer.config import Config, heads_of, preset
from explorer.fields import setting
from explorer.labs import Verdict, stages
from explorer.labs.realformer.memory import LENGTHS, MLP_RATIO, Memory, saved_bytes
from explorer.labs.stacks import FirstSeed, Pair, apart, gradient, pairs, tensors, weight_gradient
from explorer.profile import Array, Profile
from explorer.stopping import Progress, Stop, check

if TYPE_CHECKING:
    from torch import Tensor

FORMS: Mapping[str, str] = {"none": "Post-LN", "scores": "RealFormer", "qk": "ΣQ·ΣK"}
"""By what attention inherits: nothing, the scores (the paper's), queries and keys."""
PRESET_OF = {"none": "post_ln", "scores": "realformer", "qk": "realformer_qk"}
POWERS: Mapping[str, float] = {"none": 0.0, "scores": 0.5, "qk": 1.0}
"""Of l, that the spread of independent layers' logits goes with."""
HEAD = 64
"""Coordinates of a head, and tokens, of the independent layers."""

Measure = Callable[[Profile], Array]
"""From a profile to the size of a gradient, `[seed, layer]`."""


class RealFormer(Choices):
    """Sizes of the stacks, and the weights' variance."""

    n_layers: int = setting(12, "Depth", "", "Layers, of an attention and an MLP each.", 2, 48, symbol="N",
                            unit="layers", log=True)
    width: int = setting(128, "Width", "", "Width of the stream and of the MLPs' hidden layer.", 32, 256, symbol="d",
                         unit="coordinates", log=True)
    n_heads: int = setting(4, "Heads", "", "Attention heads; they must divide the width.", 2, 8, symbol="H",
                           unit="heads", log=True)
    n_ctx: int = setting(32, "Tokens", "", "Tokens in the sequence.", 4, 128, symbol="n", unit="tokens", log=True)
    init_variance: float = setting(
        1.0, "Init variance", "", "Factor on the variance of every matrix; the logits' variance grows with its square.",
        0.25, 8, symbol="σ²", unit="× rule", log=True
    )
    causal: bool = setting(False, "Causal mask", "", "A token attends to itself and to earlier tokens only.")
    n_seeds: int = setting(8, "Seeds", "",
                           "Independent draws of weights and inputs; dots are their mean, bands their range.", 1, 16,
                           unit="draws", log=True)
    seed: FirstSeed = 0

    @model_validator(mode="after")
    def _heads_divide(self) -> RealFormer:
        if self.width % self.n_heads:
            raise self.refusal(f"{{width}} must be divisible by {{n_heads}}; got {self.width} and {self.n_heads}",
                               n_heads=heads_of(self.width, self.n_heads), width=self.width - self.width % self.n_heads)
        return self

    def design(self, form: str, **changes: Any) -> Config:
        """Post-LN with one of `FORMS`."""
        sizes: dict[str, Any] = {
            "n_layers": self.n_layers, "d_model": self.width, "n_heads": self.n_heads, "mlp_ratio": MLP_RATIO,
            "n_ctx": self.n_ctx, "batch_size": 1, "init_variance": self.init_variance, "causal": self.causal,
            "n_seeds": self.n_seeds, "seed": self.seed,
        }
        return preset(PRESET_OF[form], **sizes | changes)


class Similarity(NamedTuple):
    """Of patterns of successive layers: the weight that a query gives to the same keys in both, 0 … 1."""

    measured: Array
    """`[seed, layer − 1]`: each layer from the second on with the one below, same head."""
    random: Array
    """`[seed, layer − 1]`: each layer with another head of the layer below, which shares only the tokens with it."""


@dataclass(frozen=True, eq=False)
class RealFormerResult:
    """Measurements of one choice of settings."""

    settings: RealFormer
    independent: Mapping[str, Array]
    """Form to `[draw, layer]`, spread of the logits of independent layers."""
    stacks: Mapping[str, Pair]
    """By form."""
    similarity: Mapping[str, Similarity]
    memory: Memory

    @property
    def layers(self) -> Array:
        """`[layer]` from 1 to N."""
        return np.arange(1.0, self.settings.n_layers + 1)

    def spread(self, form: str) -> Array:
        """`[seed, layer]` spread of the logits of a stack, mean over heads."""
        return np.asarray(self.stacks[form].measured["logit_std"].mean(2))

    def expected(self, form: str) -> Array:
        """`[layer]` spread of the logits of independent layers: 1, √l or l."""
        return np.asarray(self.layers ** POWERS[form])

    def ideal(self, form: str) -> Array:
        """`[layer]` what the stack's logits would be, had all layers the first one's and were they independent."""
        return np.asarray(self.spread(form)[:, 0].mean() * self.expected(form))

    def apart(self, measure: Measure, form: str) -> Array:
        """`[seed]` the largest of the layers' gradients over the smallest."""
        return apart(measure(self.stacks[form].measured))

    def closer(self, measure: Measure) -> int:
        """Number of seeds in which RealFormer's layers are closer to each other than Post-LN's."""
        return int((self.apart(measure, "scores") < self.apart(measure, "none")).sum())

    def closer_in_most(self, measure: Measure) -> bool:
        """Whether they are in more than half of the seeds, and by the median over seeds, too."""
        own, other = (np.median(self.apart(measure, form)) for form in ("scores", "none"))
        return bool(2 * self.closer(measure) > self.settings.n_seeds and own < other)


def memory(settings: RealFormer, stop: Stop = lambda: False) -> Memory:
    """Bytes that autograd keeps of two layers less those of one, for sequences of `LENGTHS`, unmasked."""
    plain = settings.replace(seed=0, n_seeds=1, init_variance=1.0, causal=False)  # which no size depends on
    counted: dict[str, list[int]] = {"none": [], "scores": []}
    for length in LENGTHS:
        for form, sizes in counted.items():
            check(stop)
            single, double = (plain.design(form, n_layers=layers, n_ctx=length) for layers in (1, 2))
            sizes.append(saved_bytes(double) - saved_bytes(single))
    n = np.array(LENGTHS, float)
    return Memory({form: np.array(sizes, float) for form, sizes in counted.items()},
                  4 * n * settings.width, 4 * settings.n_heads * n**2)


def run(settings: RealFormer, stop: Stop = lambda: False, progress: Progress = lambda _: None) -> RealFormerResult:
    """Logits, patterns, gradients and memory.

    Raises:
        Stopped: `stop()` said true.
    """
    from explorer.measuring.sharing import torch_threads

    stacks = pairs({form: settings.design(form) for form in FORMS}, stop, lambda part: progress(0.75 * part))
    with torch_threads(1):  # products this small wait for a second thread more than they gain
        alike = {
            form: similarity(settings.design(form), stop)
            for form in stages(tuple(FORMS), stop, lambda part: progress(0.75 + 0.15 * part))
        }
        fresh, counted = independent(settings.n_layers, settings.seed, stop), memory(settings, stop)
    progress(1.0)
    return RealFormerResult(settings, fresh, stacks, alike, counted)


def independent(n_layers: int, seed: int, stop: Stop = lambda: False, draws: int = 8) -> dict[str, Array]:
    """RMS logit after 1 … N layers whose queries and keys are fresh unit Gaussians, by form."""
    import torch

    from explorer.model.noise import stack

    shape = (draws, HEAD, HEAD)  # [draw, token, coordinate]
    queries, keys = (stack(seed, f"realformer {part}", n_layers, shape, check=lambda: check(stop)) for part in "qk")
    own = queries @ keys.transpose(-1, -2) / math.sqrt(HEAD)  # [layer, draw, query, key]
    logits = {
        "none": own,
        "scores": own.cumsum(0),
        "qk": queries.cumsum(0) @ keys.cumsum(0).transpose(-1, -2) / math.sqrt(HEAD),
    }
    return {form: torch.sqrt(values.square().mean((2, 3))).T.double().numpy() for form, values in logits.items()}


def similarity(config: Config, stop: Stop = lambda: False) -> Similarity:
    """Overlap Σ min(p, p′) of each pattern with the one in the layer below, mean over queries and heads, by seed."""
    import torch

    same, other = [], []
    for seed in range(config.seed, config.seed + config.n_seeds):
        stacked = torch.stack(tensors(config, seed, ("pattern",), stop))  # [layer, batch, head, query, key]
        same.append(overlap(stacked[1:], stacked[:-1]))
        other.append(overlap(stacked[1:], stacked[:-1].roll(1, dims=2)))
    return Similarity(np.array(same), np.array(other))


def overlap(pattern: Tensor, other: Tensor) -> Array:
    """`[layer, batch, head, query, key]` twice to `[layer]`: 1 − total variation, 1 where two rows are the same."""
    import torch

    return np.asarray(torch.minimum(pattern, other).sum(-1).mean((1, 2, 3)).double().numpy())


def verdict(result: RealFormerResult) -> Verdict:
    """Verdict on the growth of the logits, and on the layers' gradients beside Post-LN's."""
    settings, seeds = result.settings, result.settings.n_seeds
    n = settings.n_layers
    ends = {form: float(result.spread(form)[:, -1].mean()) for form in FORMS}
    ideal = {form: float(result.ideal(form)[-1]) for form in FORMS}
    both = (gradient, weight_gradient)
    spans = [float(np.median(result.apart(of, form))) for of in both for form in ("none", "scores")]
    closer = [result.closer(of) for of in both]
    evidence = (
        f"Logits of layer {n}: {ends['scores']:.3g} in RealFormer, {ends['qk']:.3g} with Q and K added up, "
        f"{ends['none']:.2g} in Post-LN; independent layers would have {ideal['scores']:.3g}, {ideal['qk']:.3g} and "
        f"{ideal['none']:.2g}. Largest over smallest gradient² of the stream, median: Post-LN {spans[0]:.3g}, "
        f"RealFormer {spans[1]:.3g}, closer in {closer[0]} of {seeds} seeds; gradient of a layer's weights "
        f"{spans[2]:.3g} and {spans[3]:.3g}, closer in {closer[1]} of {seeds}."
    )
    if not np.isfinite([*ends.values(), *spans]).all():
        return "bad", "Logits or gradients have left float32's range.", evidence
    if not result.closer_in_most(gradient):
        return "warning", "Here RealFormer's gradients are no closer to each other than Post-LN's.", evidence
    if not result.closer_in_most(weight_gradient):
        return "warning", "The stream's gradients are closer than Post-LN's; those of the weights are not.", evidence
    grow = "more slowly than" if ends["scores"] < ideal["scores"] else "at least as"
    return "good", f"Logits grow {grow} √l, and the layers' gradients are closer than Post-LN's.", evidence


def invariants() -> dict[str, float]:
    """Logits of 12 independent layers, of a stack, patterns, gradients and bytes, from eight seeds."""
    from explorer.measuring.sharing import torch_threads

    settings = RealFormer()
    ideal = independent(12, 0, draws=32)
    stacks = pairs({form: settings.design(form) for form in FORMS})
    with torch_threads(1):
        counted, alike = memory(settings), similarity(settings.design("scores"))
    return {
        **{f"independent layers, {words}": float(np.sqrt((ideal[form][:, -1] ** 2).mean()))
           for form, words in FORMS.items()},
        **{f"a stack, {words}": float(stacks[form].measured["logit_std"][:, -1].mean())
           for form, words in FORMS.items()},
        "overlap with the pattern below": float(alike.measured[:, -1].mean()),
        "overlap with another head's": float(alike.random[:, -1].mean()),
        **{f"{FORMS[form]}, largest over smallest gradient²":
           float(np.median(apart(gradient(stacks[form].measured)))) for form in ("none", "scores")},
        **{f"{FORMS[form]}, bytes kept, over shapes": float(counted.counted[form][-1] / counted.written_out[-1])
           for form in ("none", "scores")},
    }
