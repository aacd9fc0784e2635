"""Attention: whether there is any, its logits' divisor and inheritance, its sink, and gates on its
output."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from explorer.fields import Option

if TYPE_CHECKING:
    from explorer.settings import Settings


@dataclass(frozen=True, kw_only=True)
class AttentionKind(Option):
    """The attention sublayer of every layer."""

    present: bool = True


ATTENTIONS: dict[str, AttentionKind] = {
    "softmax": AttentionKind(
        "softmax(q·k) v",
        "Vaswani et al. 2017",
        (
            "n_kv_heads",
            "head_size",
            "attention_scale",
            "attention_variance",
            "residual_attention",
            "qk_norm",
            "logit_cap",
            "sink",
            "attention_gate",
            "causal",
            "value_residual",
        ),
    ),
    "none": AttentionKind("MLPs only", present=False),
}


@dataclass(frozen=True, kw_only=True)
class Divisor(Option):
    """Divisor of q·k, from the width of a head."""

    short: str
    """The logits in a drawing."""
    of: Callable[[int], float]
    row: Callable[[Settings, int], float] = lambda config, n: 1.0
    """Factor on the logits of a row that sees n keys."""


DIVISORS: dict[str, Divisor] = {
    "sqrt_d": Divisor("q·k / √d_head", "Vaswani et al. 2017", short="q·k / √d", of=math.sqrt),
    "none": Divisor("q·k", short="q·k", of=lambda d_head: 1.0),
    "d": Divisor("q·k / d_head", "μP: Yang et al. 2022", short="q·k / d", of=float),
    "ssmax": Divisor(
        "s ln n q·k / √d_head, n the keys that a row sees",
        "SSMax: Nakanishi 2025",
        ("ssmax_scale",),
        short="ln n · q·k / √d",
        of=math.sqrt,
        row=lambda config, n: config.ssmax_scale * math.log(n),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Normalized(Option):
    """Vectors of which each is normalized by a QK-norm."""

    joins: bool = False
    """Whether the queries of all heads are normalized at once, and so the keys."""


NORMALIZED: dict[str, Normalized] = {
    "head": Normalized("each head's queries and keys", "Henry et al. 2020; Qwen 3, Gemma 3"),
    "all": Normalized("those of all heads at once", "OLMo 2 2025", joins=True),
}


@dataclass(frozen=True, kw_only=True)
class Inheritance(Option):
    """Inheritance of logits from the layers below."""

    adds: Literal["", "scores", "qk"] = ""
    """Summed over the layers: nothing, the logits, or queries and keys each."""


INHERITANCES: dict[str, Inheritance] = {
    "none": Inheritance("A_l = q_l·k_l"),
    "scores": Inheritance("A_l = q_l·k_l + A_(l−1)", "RealFormer: He et al. 2020", adds="scores"),
    "qk": Inheritance("A_l = (Σ q)·(Σ k), over the layers so far", adds="qk"),
}


@dataclass(frozen=True, kw_only=True)
class Sink(Option):
    """One more logit of every row, of a key without a value: the weight that it takes leaves the
    row."""

    logit: float | None = None
    """Its logit, or the mean of learned ones; None where there is no sink."""
    std: float = 0.0
    """Standard deviation of the learned logits, one for each head; 0 where it is not learned."""


SINKS: dict[str, Sink] = {
    "none": Sink("softmax over the keys"),
    "zero": Sink(
        "eᵃ / (1 + Σ eᵃ): one more logit, 0",
        "softmax1: Miller 2023, Attention Is Off By One",
        logit=0.0,
    ),
    "learned": Sink(
        "one more logit a head, learned from N(0, 0.02²) on",
        "gpt-oss: OpenAI 2025",
        logit=0.0,
        std=0.02,
    ),
}


@dataclass(frozen=True, kw_only=True)
class OutputGate(Option):
    """Sigmoid gates on the output of the heads, computed from what attention reads by one more
    matrix, W_G."""

    per_head: Callable[[int], int] = lambda d_head: 0
    """Gates of a head, from its width: each multiplies an equal part of its coordinates; 0 is
    none."""


ATTENTION_GATES: dict[str, OutputGate] = {
    "none": OutputGate("W_O o"),
    "head": OutputGate(
        "W_O (σ(W_G x) ⊙ o), one gate for each head", "Qiu et al. 2025", per_head=lambda d_head: 1
    ),
    "coordinate": OutputGate(
        "W_O (σ(W_G x) ⊙ o), one gate for each coordinate",
        "Qiu et al. 2025",
        per_head=lambda d_head: d_head,
    ),
}
