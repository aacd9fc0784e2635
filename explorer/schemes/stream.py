"""The residual stream: one, or several that mix, or none but the outputs of all earlier branches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from explorer.fields import Option
from explorer.schemes import Experiment
from explorer.schemes.attention import ATTENTIONS


@dataclass(frozen=True, kw_only=True)
class StreamRule(Option):
    """How a branch's input is made of what was before it, and where its output goes."""

    parallel: bool = False
    """Both branches of a layer read the same stream, and its one sum adds both."""
    mixes: Literal["", "streams", "outputs"] = ""
    """Learned weights mix several streams, or the outputs of all earlier branches, to what a branch reads."""
    constrained: bool = False
    """Weights between streams are positive, and their matrix is doubly stochastic."""
    reads: Callable[[Experiment, int], float] = lambda config, index: 1.0
    """At initialization, a branch's input over the sum of all outputs so far; from the sublayer, 0 … 2N − 1."""


def outputs_before(config: Experiment, index: int) -> int:
    """Number of outputs before a sublayer, 0 … 2N: the embedding and all branches so far."""
    return 1 + (index if ATTENTIONS[config.attention].present else index // 2)


STREAMS: dict[str, StreamRule] = {
    "one": StreamRule("x + A(x), and to the sum its own M", "He et al. 2015"),
    "parallel": StreamRule(
        "x + A(x) + M(x); x + A(x) is shown after attention", "GPT-J: Wang & Komatsuzaki 2021; PaLM 2022",
        parallel=True,
    ),
    "hyper": StreamRule(
        "n streams, H_res x + H_post F(H_pre x), H from I, 1, one stream each", "Hyper-connections: Zhu et al. 2024",
        ("n_streams",), mixes="streams",
    ),
    "manifold": StreamRule(
        "the same, H_res doubly stochastic; φ, b from 0.02 z and 0, which the paper leaves open",
        "mHC: Xie et al. 2025", ("n_streams",), mixes="streams", constrained=True,
        reads=lambda config, index: config.n_streams / 2,
    ),
    "depth_attention": StreamRule(
        "F(Σ a_i v_i), a softmax over all earlier outputs v, its queries from 0", "AttnRes: Kimi Team 2026",
        mixes="outputs", reads=lambda config, index: 1 / outputs_before(config, index),
    ),
}
"""Rows by name. Values of several streams are shown as of one: the mean of n, or the mix of outputs times their number.

Streams that start alike stay alike, so at initialization the last three are Pre-LN but for `reads`, which only a norm's
ε sees. Left out is what mHC's token adds, 0.01 · 0.02 · √(n d) z: at most 0.5 % of a gradient at width 64 and n = 4.
"""
