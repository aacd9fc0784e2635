"""Limits on the size of an experiment: the machine's memory, or a limit set in the environment."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from explorer.choices import ConfigError
from explorer.design import Design
from explorer.memory import LEDGER, WORKER, Ledger, environment, machine_memory

MAX_MEMORY_MEGABYTES = 8_000
"""Bytes that one experiment may take, on a machine that has them; EXPLORER_MAX_MEMORY_MB overrides."""
SHARE = 0.9
"""Largest share of the machine's memory that is taken."""
MAX_KEPT_MEGABYTES = 400
"""Activations kept for the backward pass; beyond, they are computed twice. EXPLORER_MAX_ACTIVATION_MB overrides."""
RESIDENT = 450e6
"""Bytes that Python, torch and the page take before anything is measured."""
NOISE = 512e6
"""Bytes of noise that are kept beside the weights made of it."""
_claims: list[float] = []
"""Bytes that computations of this process have claimed at the moment."""
_claiming = threading.Lock()


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


def sizes(design: Design) -> Sizes:
    """Counts what a design asks for.

    Raises:
        ValueError: an environment variable holds no number.
    """
    config = design.settings
    layers, d = config.n_layers, config.d_model
    logits = config.n_heads * config.n_ctx
    matrices = sum(map(math.prod, (*design.shapes.values(), *design.mix_shapes.values())))
    n_parameters = matrices if design.shared else layers * matrices
    token = 4 * config.batch_size * config.n_ctx
    mixed, passed = _mixing(design)
    heads = (5 + bool(design.gates)) * config.n_heads * config.d_head  # expanded keys and values among them
    layer = token * (
        (7 * d + heads + logits if design.attends else 4 * d) + 2 * len(design.readers) * config.d_mlp + mixed)
    kept = activation_bytes = layers * layer
    block = 0
    if activation_bytes > environment("EXPLORER_MAX_ACTIVATION_MB", MAX_KEPT_MEGABYTES) * 1e6:
        block = math.isqrt(layers)
        carried = logits if design.inherits == "scores" else 2 * d
        carried += d * config.value_residual
        kept = block * layer + token * (2 * layers * d + -(-layers // block) * (carried + passed))
    weights = 4 * n_parameters
    memory = RESIDENT + weights + min(weights, NOISE) + 1.6 * kept
    return Sizes(n_parameters, activation_bytes, block, int(memory))


def _mixing(design: Design) -> tuple[int, int]:
    """Numbers a token that mixing keeps in a layer, and that it passes on: about, as counted in autograd's graphs."""
    config, rule = design.settings, design.stream
    n, d = config.n_streams, config.d_model
    if rule.mixes == "outputs":
        return 4 * d, 2 * config.n_layers * d
    # Sinkhorn's iterations keep each matrix; at one stream nothing is mixed
    return (9 * n * d // 2 + 100 * n**2 * rule.constrained, n * d) if rule.mixes else (0, 0)


def excess(design: Design) -> str:
    """The refusal of a too large experiment, for `Choices.refusal`, with the fields that cause it; else empty."""
    memory, limit = sizes(design).memory_bytes, memory_limit()
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


@contextmanager
def claimed(need: float) -> Iterator[None]:
    """Claims memory from the server's ledger for a computation; does nothing where no server shares its memory.

    Args:
        need: bytes of this process with the computation; up to `memory.WORKER` of them are its own already.
    Raises:
        ConfigError: other visitors have claimed so much that this does not fit beside it.
    """
    extra = max(0.0, need - WORKER)
    if LEDGER not in os.environ or not extra:
        yield
        return
    ledger = Ledger(os.environ[LEDGER])
    with _claiming:
        if not ledger.claim(sum(_claims) + extra):
            left = max(0.0, ledger.free() - sum(_claims)) + WORKER
            raise ConfigError(f"memory must suffice for all visitors of this server; this computation needs about "
                              f"{need / 1e9:.3g} GB, and others leave {left / 1e9:.3g} GB: try again in a while")
        _claims.append(extra)
    try:
        yield
    finally:
        with _claiming:
            _claims.remove(extra)
            ledger.claim(sum(_claims))


def free_memory() -> float:
    """Bytes that this process may take: the machine's, or what its server's other visitors leave."""
    return Ledger(os.environ[LEDGER]).free() if LEDGER in os.environ else machine_memory()


def processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def process_count(need: float = WORKER) -> int:
    """Processes that compute: one for each processor (or EXPLORER_PROCESSES), or as many as memory holds; at least one.

    Args:
        need: bytes of the largest computation.
    """
    return max(1, int(min(environment("EXPLORER_PROCESSES", processors()), free_memory() // max(need, WORKER))))


def settle(size: float) -> None:
    """Claims memory for as long as this process lives: for one that is no page, and has nothing of its own."""
    if LEDGER in os.environ:
        with _claiming:
            _claims.append(size)
            Ledger(os.environ[LEDGER]).claim(sum(_claims))
