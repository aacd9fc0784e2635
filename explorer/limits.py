"""Limits on the size of an experiment: the machine's memory, or a limit set in the environment."""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from explorer.schemes.attention import attends, gates, inherits
from explorer.schemes.distribution import shares
from explorer.schemes.mlp import readers
from explorer.schemes.scale import shapes
from explorer.schemes.stream import stream, stream_shapes

if TYPE_CHECKING:
    from explorer.config import Config

MAX_MEMORY_MEGABYTES = 8_000
"""Bytes that one experiment may take, on a machine that has them; EXPLORER_MAX_MEMORY_MB overrides."""
SHARE = 0.9
"""Of the machine's memory, the most that is taken."""
MAX_KEPT_MEGABYTES = 400
"""Activations kept for the backward pass; beyond, they are computed twice. EXPLORER_MAX_ACTIVATION_MB overrides."""
RESIDENT = 450e6
"""Bytes that Python, torch and the page take before anything is measured."""
NOISE = 512e6
"""Bytes of noise that are kept beside the weights made of it."""
CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""The file with a container's memory limit; absent outside a container."""


class Sizes(NamedTuple):
    """Memory that an experiment needs, from its choices alone."""

    n_parameters: int
    """Weights in the matrices of the layers; where layers share them, of one."""
    activation_bytes: int
    """About what autograd keeps of one forward pass: right to a factor 1.6 whatever the design."""
    block: int
    """Layers whose activations are computed again together in the backward pass; 0 when all are kept."""
    memory_bytes: int
    """About what the process takes at its peak."""


def sizes(config: Config) -> Sizes:
    """Counts what a config asks for.

    Raises:
        ValueError: an environment variable holds no number.
    """
    layers, d = config.n_layers, config.d_model
    logits = config.n_heads * config.n_ctx
    matrices = sum(map(math.prod, (*shapes(config).values(), *stream_shapes(config).values())))
    n_parameters = matrices if shares(config) else layers * matrices
    token = 4 * config.batch_size * config.n_ctx
    mixed, passed = _mixing(config)
    heads = (5 + bool(gates(config))) * config.n_heads * config.d_head  # expanded keys and values among them
    layer = token * (
        (7 * d + heads + logits if attends(config) else 4 * d) + 2 * len(readers(config)) * config.d_mlp + mixed)
    kept = activation_bytes = layers * layer
    block = 0
    if activation_bytes > environment("EXPLORER_MAX_ACTIVATION_MB", MAX_KEPT_MEGABYTES) * 1e6:
        block = math.isqrt(layers)
        carried = logits if inherits(config) == "scores" else 2 * d
        carried += d * config.value_residual
        kept = block * layer + token * (2 * layers * d + -(-layers // block) * (carried + passed))
    weights = 4 * n_parameters
    memory = RESIDENT + weights + min(weights, NOISE) + 1.6 * kept
    return Sizes(n_parameters, activation_bytes, block, int(memory))


def _mixing(config: Config) -> tuple[int, int]:
    """Numbers a token that mixing keeps in a layer, and that it passes on: about, as counted in autograd's graphs."""
    rule, n, d = stream(config), config.n_streams, config.d_model
    if rule.mixes == "outputs":
        return 4 * d, 2 * config.n_layers * d
    # Sinkhorn's iterations keep each matrix; at one stream nothing is mixed
    return (9 * n * d // 2 + 100 * n**2 * rule.constrained, n * d) if rule.mixes else (0, 0)


def excess(config: Config) -> str:
    """The refusal of a too large experiment, for `Choices.refusal`, with the fields that cause it; else empty."""
    memory, limit = sizes(config).memory_bytes, memory_limit()
    if memory <= limit:
        return ""
    return (
        f"weights and activations must fit into {limit / 1e9:.3g} GB; got about {memory / 1e9:.3g} GB ({{n_layers=}}, "
        "{d_model=}, {mlp_ratio=}, {n_ctx=}, {batch_size=}; EXPLORER_MAX_MEMORY_MB raises the limit)"
    )


def memory_limit() -> float:
    """Bytes that one experiment may take."""
    usual = min(MAX_MEMORY_MEGABYTES * 1e6, SHARE * machine_memory())
    return environment("EXPLORER_MAX_MEMORY_MB", usual / 1e6) * 1e6


@cache
def machine_memory() -> float:
    """Bytes of memory that this machine, or the container it is, has."""
    found = [float("inf")]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in CGROUPS:
        try:
            found.append(int(Path(path).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no such file, or the word "max"
            continue
    return min(found)


def environment(variable: str, default: float) -> float:
    """A limit: the environment's where it is set, so that a private machine can allow more, a public one less."""
    text = os.environ.get(variable, str(default))
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{variable} must be a number; got {text!r}") from None
