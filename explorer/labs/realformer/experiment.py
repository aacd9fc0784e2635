"""RealFormer: attention logits add up over the layers, as the stream does. Adding up queries and keys is not the same.

With independent layers of unit logits A_l = Σ q_k·k_k has spread √l, and (Σ q)·(Σ k) has l. In a real Post-LN stack
tokens become alike, later layers add less, and the sum stays below √l. Beside the logits: what attention makes of them,
how alike the patterns of successive layers are, what becomes of the gradients, and the memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from explorer.choices import Choices
from explorer.config import Config, heads_of
from explorer.fields import About
from explorer.labs import Progress, Stop, Verdict, check, stages
from explorer.labs.realformer.memory import kept
from explorer.labs.stacks import Line, pairs, streams
from explorer.presets import preset
from explorer.profile import Array

if TYPE_CHECKING:
    from torch import Tensor

FORMS: Mapping[str, str] = MappingProxyType({"none": "Post-LN", "scores": "RealFormer", "qk": "ΣQ·ΣK"})
"""By what attention inherits: nothing, the scores (the paper's), queries and keys."""
PRESET_OF = {"none": "post_ln", "scores": "realformer", "qk": "realformer_qk"}
POWERS = (0.0, 0.5, 1.0)
"""Of l, that the spread of independent layers' logits goes with."""
HEAD = 64
"""Coordinates of a head, and tokens, of the independent layers."""
LENGTHS = (16, 32, 64, 128, 256, 512)
"""Tokens for which memory is counted."""
MLP_RATIO = 1


class RealFormer(Choices):
    """Sizes of the stacks, and the weights' variance."""

    n_layers: Annotated[int, Field(ge=2, le=48), About("Depth", "", "N", "layers", log=True)] = Field(
        12, description="Layers, of an attention and an MLP each."
    )
    width: Annotated[int, Field(ge=32, le=256), About("Width", "", "d", "coordinates", log=True)] = Field(
        128, description="Width of the stream and of the MLPs' hidden layer."
    )
    n_heads: Annotated[int, Field(ge=2, le=8), About("Heads", "", "H", "heads", log=True)] = Field(
        4, description="Attention heads; they must divide the width."
    )
    n_ctx: Annotated[int, Field(ge=4, le=128), About("Tokens", "", "n", "tokens", log=True)] = Field(
        32, description="Tokens in the sequence."
    )
    init_variance: Annotated[float, Field(ge=0.25, le=8), About("Init variance", "", "σ²", "× rule", log=True)] = Field(
        1.0, description="Factor on the variance of every matrix; the logits' variance grows with its square."
    )
    causal: Annotated[bool, About("Causal mask", "")] = Field(
        False, description="A token attends to itself and to earlier tokens only."
    )
    n_seeds: Annotated[int, Field(ge=1, le=16), About("Seeds", "", unit="draws", log=True)] = Field(
        8, description="Independent draws of weights and inputs; dots are their mean, bars their range."
    )
    seed: Annotated[int, Field(ge=0, le=2**31 - 64), About("First seed", "")] = Field(
        0, description="Seed of the first draw."
    )

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
    """The same with another head of the layer below, which shares nothing with it but the tokens."""


class Memory(NamedTuple):
    """Bytes that one more layer makes autograd keep, weights not counted: counted on real tensors, and from shapes."""

    counted: Mapping[str, Array]
    """Form to `[length]`, over `LENGTHS`."""
    stream: Array
    """The stream, n · d numbers."""
    scores: Array
    """One score tensor, H · n² numbers."""

    @property
    def fused(self) -> Array:
        """A layer whose scores and pattern are never kept: ten streams. Two numbers a norm and token are left out."""
        return (8 + 2 * MLP_RATIO) * self.stream

    @property
    def written_out(self) -> Array:
        """The same with the pattern, as large as the scores: the way back through the softmax needs it."""
        return self.fused + self.scores


@dataclass(frozen=True, eq=False)
class RealFormerResult:
    """Everything about one choice."""

    settings: RealFormer
    independent: Mapping[str, Line]
    """By form: spread of the logits of independent layers, dots are draws, lines 1, √l and l."""
    spread: Mapping[str, Line]
    """By form: spread of the logits of a stack."""
    entropy: Mapping[str, Line]
    """Over ln n."""
    similarity: Mapping[str, Similarity]
    gradients: Mapping[str, Line]
    """Squared ∂L/∂x relative to the output."""
    weights: Mapping[str, Line]
    """‖∂L/∂W‖ of a layer."""
    memory: Memory

    def ideal(self, form: str) -> Array:
        """`[layer]` what the stack's logits would be, had all layers the first one's and were they independent."""
        first = self.spread[form].measured[:, 0].mean()
        return np.asarray(first * self.spread[form].depth ** POWERS[list(FORMS).index(form)])

    def closer(self, lines: Mapping[str, Line]) -> int:
        """Number of seeds in which RealFormer's layers are closer to each other than Post-LN's."""
        return int((lines["scores"].apart < lines["none"].apart).sum())

    def closer_in_most(self, lines: Mapping[str, Line]) -> bool:
        """Whether they are in more than half of the seeds, and by the median over seeds, too."""
        median = {form: np.median(line.apart) for form, line in lines.items()}
        return bool(2 * self.closer(lines) > self.settings.n_seeds and median["scores"] < median["none"])


def run(settings: RealFormer, stop: Stop = lambda: False, progress: Progress = lambda _: None) -> RealFormerResult:
    """Logits, patterns, gradients and memory.

    Raises:
        Stopped: `stop()` said true.
    """
    from explorer.probe.threads import torch_threads

    found = pairs({form: settings.design(form) for form in FORMS}, stop, lambda part: progress(0.75 * part))
    with torch_threads(1):  # products this small wait for a second thread more than they gain
        alike = {
            form: similarity(settings.design(form), stop)
            for form in stages(tuple(FORMS), stop, lambda part: progress(0.75 + 0.15 * part))
        }
        fresh, counted = independent(settings.n_layers, settings.seed, stop), memory(settings, stop)
    progress(1.0)
    return RealFormerResult(
        settings=settings,
        independent=fresh,
        spread={form: one.attention("logit_std", "attn_scores") for form, one in found.items()},
        entropy={form: one.attention("attention_entropy_normalized", "pattern") for form, one in found.items()},
        similarity=alike,
        gradients=streams(found, "activation_gradient"),
        weights={form: one.weights() for form, one in found.items()},
        memory=counted,
    )


def independent(n_layers: int, seed: int, stop: Stop = lambda: False, draws: int = 8) -> dict[str, Line]:
    """RMS logit after 1 … N layers whose queries and keys are fresh unit Gaussians, by form."""
    import torch

    from explorer.noise import stack

    shape = (draws, HEAD, HEAD)  # [draw, token, coordinate]
    queries, keys = (stack(seed, f"realformer {part}", n_layers, shape, check=lambda: check(stop)) for part in "qk")
    own = queries @ keys.transpose(-1, -2) / math.sqrt(HEAD)  # [layer, draw, query, key]
    logits = {
        "none": own,
        "scores": own.cumsum(0),
        "qk": queries.cumsum(0) @ keys.cumsum(0).transpose(-1, -2) / math.sqrt(HEAD),
    }
    layer = np.arange(1.0, n_layers + 1)
    return {
        form: Line(layer, torch.sqrt(values.square().mean((2, 3))).T.double().numpy(), layer**power)
        for (form, values), power in zip(logits.items(), POWERS, strict=True)
    }


def similarity(config: Config, stop: Stop = lambda: False) -> Similarity:
    """Overlap Σ min(p, p′) of each pattern with the one in the layer below, mean over queries and heads, by seed."""
    import torch

    from explorer import batch
    from explorer.model import Transformer

    same, other = [], []
    for seed in range(config.seed, config.seed + config.n_seeds):
        patterns: list[Tensor] = []

        def tap(site: str, _: int, tensor: Tensor, patterns: list[Tensor] = patterns) -> None:
            check(stop)
            if site == "pattern":
                patterns.append(tensor)

        model = Transformer(config, seed, lambda: check(stop))
        with torch.no_grad():
            model(model.embed(batch.draw(config, seed)), tap)
        stacked = torch.stack(patterns)  # [layer, batch, head, query, key]
        same.append(overlap(stacked[1:], stacked[:-1]))
        other.append(overlap(stacked[1:], stacked[:-1].roll(1, dims=2)))
    return Similarity(np.array(same), np.array(other))


def overlap(one: Tensor, other: Tensor) -> Array:
    """`[layer, batch, head, query, key]` twice to `[layer]`: 1 − total variation, 1 where two rows are the same."""
    import torch

    return np.asarray(torch.minimum(one, other).sum(-1).mean((1, 2, 3)).double().numpy())


def memory(settings: RealFormer, stop: Stop = lambda: False) -> Memory:
    """Bytes that autograd keeps of two layers less those of one, for sequences of `LENGTHS`, unmasked."""
    plain = settings.replace(seed=0, n_seeds=1, init_variance=1.0, causal=False)  # which no size depends on
    counted: dict[str, list[int]] = {"none": [], "scores": []}
    for length in LENGTHS:
        for form, found in counted.items():
            check(stop)
            one, two = (plain.design(form, n_layers=layers, n_ctx=length) for layers in (1, 2))
            found.append(kept(two) - kept(one))
    n = np.array(LENGTHS, float)
    return Memory({form: np.array(found, float) for form, found in counted.items()},
                  4 * n * settings.width, 4 * settings.n_heads * n**2)


def verdict(result: RealFormerResult) -> Verdict:
    """Verdict on the growth of the logits, and on the layers' gradients beside Post-LN's."""
    settings, stream, weight = result.settings, result.gradients, result.weights
    n, seeds = settings.n_layers, settings.n_seeds
    ends = {form: float(line.measured[:, -1].mean()) for form, line in result.spread.items()}
    apart = [float(np.median(lines[form].apart)) for lines in (stream, weight) for form in ("none", "scores")]
    ideal = {form: float(result.ideal(form)[-1]) for form in FORMS}
    closer = [result.closer(lines) for lines in (stream, weight)]
    evidence = (
        f"Logits of layer {n}: {ends['scores']:.3g} in RealFormer, {ends['qk']:.3g} with Q and K added up, "
        f"{ends['none']:.2g} in Post-LN; independent layers would have {ideal['scores']:.3g}, {ideal['qk']:.3g} and "
        f"{ideal['none']:.2g}. Largest over smallest gradient² of the stream, median: Post-LN {apart[0]:.3g}, "
        f"RealFormer {apart[1]:.3g}, closer in {closer[0]} of {seeds} seeds; gradient of a layer's weights "
        f"{apart[2]:.3g} and {apart[3]:.3g}, closer in {closer[1]} of {seeds}."
    )
    if not np.isfinite([*ends.values(), *apart]).all():
        return "bad", "Logits or gradients have left float32's range.", evidence
    if not result.closer_in_most(stream):
        return "warning", "Here RealFormer's gradients are no closer to each other than Post-LN's.", evidence
    if not result.closer_in_most(weight):
        return "warning", "The stream's gradients are closer than Post-LN's; those of the weights are not.", evidence
    grow = "more slowly than" if ends["scores"] < ideal["scores"] else "at least as"
    return "good", f"Logits grow {grow} √l, and the layers' gradients are closer than Post-LN's.", evidence


def invariants() -> dict[str, float]:
    """Logits of 12 independent layers, of a stack, patterns, gradients and bytes, from eight seeds."""
    from explorer.probe.threads import torch_threads

    settings = RealFormer()
    ideal = independent(12, 0, draws=32)
    found = pairs({form: settings.design(form) for form in FORMS})
    spread = {form: one.attention("logit_std", "attn_scores") for form, one in found.items()}
    with torch_threads(1):
        counted, alike = memory(settings), similarity(settings.design("scores"))
    return {
        **{f"independent layers, {words}": float(np.sqrt((ideal[form].measured[:, -1] ** 2).mean()))
           for form, words in FORMS.items()},
        **{f"a stack, {words}": float(spread[form].measured[:, -1].mean()) for form, words in FORMS.items()},
        "overlap with the pattern below": float(alike.measured[:, -1].mean()),
        "overlap with another head's": float(alike.random[:, -1].mean()),
        **{f"{FORMS[form]}, largest over smallest gradient²":
           float(np.median(found[form].stream("activation_gradient").apart)) for form in ("none", "scores")},
        **{f"{FORMS[form]}, bytes kept, over shapes": float(counted.counted[form][-1] / counted.written_out[-1])
           for form in ("none", "scores")},
    }
