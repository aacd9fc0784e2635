"""Limits on the size of an experiment: the machine's memory, or a limit set in the environment."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import numpy as np

from explorer.choices import ConfigError
from explorer.design import Design
from explorer.memory import LEDGER, WORKER, Ledger, environment, machine_memory
from explorer.schemes.placement import SITES
from explorer.translation import translated

MAX_MEMORY_MEGABYTES = 8_000
"""Bytes that one experiment may take, on a machine that has them; EXPLORER_MAX_MEMORY_MB
overrides."""
SHARE = 0.9
"""Largest share of the machine's memory that is taken."""
MAX_KEPT_MEGABYTES = 400
"""Activations kept for the backward pass; beyond, they are computed twice.
EXPLORER_MAX_ACTIVATION_MB overrides."""
RESIDENT = 300e6
"""Bytes that Python and torch take when a first, small design has been measured."""
NOISE = 512e6
"""Bytes of noise that are kept beside the weights made of it."""
HEAP = 2**25
"""Bytes from which the C library gives an array memory of its own. Smaller arrays lie in its heap,
and short-lived ones leave holes there: in the mean `HOLES` of what is kept, where all activations
are kept and where blocks of them are."""
HOLES = (0.45, 1.3)
PER_LAYER, PER_WEIGHT, PER_PRODUCT, PER_BYTE, PER_LOGIT = 2.6e-3, 2.2e-8, 6.2e-11, 2.6e-9, 2e-8
"""Seconds of a processor to measure: a layer, drawing a weight, a weight and token, a byte of
activations, and an attention logit (twice as long under a mask). Fitted on the designs of
`benchmarks.estimates`, on a machine whose `work` took `REFERENCE`."""
REFERENCE = 2.3e-3
"""Seconds of a processor."""
AGAIN = 4 / 3
"""Work where activations are computed twice, over the work where they are kept."""
SEEDS = 2
"""Seeds that share a pass. The number must not depend on the machine's processors, or sums are
taken in another order in a sweep's pool than here, and numbers differ in the last bit."""
OTHERS = 3
"""Seeds that share a pass after a first seed that somebody waits for: of the usual four, all
others."""
WEIGHTS, STREAM, LOGITS = 2**17, 2**13, 2**16
"""Numbers in a layer's matrices, in its stream and in its attention logits, up to which seeds share
a pass: width 96 with the usual MLP, or 64 with 128 tokens. Beyond, a shared pass gave less than a
tenth, or took longer."""
SIDE_BY_SIDE_BYTES = 1e9
"""Bytes that passes running together may take; a single pass may take more."""
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
    """Layers whose activations are computed again together in the backward pass; 0 when all are
    kept."""
    together: int
    """Seeds in the largest pass: above 1 where they share passes, which then take less time and not
    too much memory."""
    memory_bytes: int
    """About what a process takes at its peak that measures one pass: right to 30 % of it."""
    seconds: float
    """About what one seed takes of one processor, forwards and backwards: right to a factor of
    two."""

    @property
    def pass_bytes(self) -> int:
        """Bytes that one seed's pass takes, about, as counted where it is decided how many run at a
        time."""
        return 2 * self.activation_bytes + 8 * self.n_parameters


def sizes(design: Design) -> Sizes:
    """Counts what a design asks for.

    Raises:
        ValueError: an environment variable holds no number.
    """
    config = design.settings
    layers, seeds, token = config.n_layers, config.n_seeds, 4 * config.batch_size * config.n_ctx
    matrices = sum(map(math.prod, (*design.shapes.values(), *design.mix_shapes.values())))
    n_parameters = matrices * (design.unique if design.shared else layers)
    arrays = [(number, token * width) for number, width in _kept(design)]
    layer = sum(number * size for number, size in arrays)
    passed = token * (_mixing(design)[1] + config.kv_heads * config.d_head * config.value_residual)
    kept = activation_bytes = layers * layer
    block, held = 0, layers
    if activation_bytes > environment("EXPLORER_MAX_ACTIVATION_MB", MAX_KEPT_MEGABYTES) * 1e6:
        block = held = math.isqrt(layers)
        heads = 2 * token * config.n_heads * config.d_head
        inherited = {"scores": token * config.n_heads * config.n_ctx, "qk": heads}.get(
            design.inherits, 0
        )
        kept = block * layer + -(-layers // block) * (token * config.d_model + inherited + passed)
    counted = Sizes(n_parameters, activation_bytes, block, 1, 0, 0.0)
    if (
        can_share(design)
        and not block
        and gains(design)
        and seeds * counted.pass_bytes <= SIDE_BY_SIDE_BYTES
    ):
        counted = counted._replace(together=max(min(SEEDS, seeds), min(OTHERS, seeds - 1)))
    loose = kept - held * sum(number * size for number, size in arrays if size >= HEAP)
    weights, noise = 4 * n_parameters, 4 * matrices * design.unique
    # A layer's gradients, and what the recorder makes of its vectors and logits; or the backward
    # pass does, which needs most where blocks are computed again.
    logits = (3 if block > 1 else 5) * config.n_heads * config.n_ctx * design.attends
    passing = 4 * matrices + token * (10 * config.d_model + logits)
    taken = weights + kept + HOLES[block > 0] * loose + passing
    return counted._replace(
        seconds=_seconds(design, counted, layers * matrices * token // 4),
        memory_bytes=int(
            RESIDENT + counted.together * taken + min(counted.together * noise, NOISE)
        ),
    )


def _seconds(design: Design, counted: Sizes, products: int) -> float:
    """Seconds of one processor for one seed; seeds that share a pass share what each layer takes
    beside its numbers."""
    config = design.settings
    logits = design.attends * config.n_layers * config.batch_size * config.n_heads * config.n_ctx**2
    return (
        work()
        / REFERENCE
        * (
            PER_LAYER * config.n_layers / counted.together
            + PER_WEIGHT * counted.n_parameters
            + PER_LOGIT * logits * (1 + config.causal)
            + (PER_PRODUCT * products + PER_BYTE * counted.activation_bytes)
            * (AGAIN if counted.block else 1.0)
        )
    )


@cache
def work() -> float:
    """Seconds of this machine's processor for a fixed piece of work, on one thread: numbers drawn,
    and Python."""
    best = math.inf
    for _ in range(5):
        start = time.process_time()
        np.exp(np.random.default_rng(0).standard_normal(2**16)).sum()
        sum(number * number for number in range(2**14))
        best = min(best, time.process_time() - start)
    return best


def can_share(design: Design) -> bool:
    """Whether a model of such a design may hold several seeds, each activation once in memory."""
    return not (design.stream.mixes or design.profiled)


def gains(design: Design) -> bool:
    """Whether a pass over several seeds takes less time than passes over each, by size."""
    config, tokens = design.settings, design.settings.batch_size * design.settings.n_ctx
    return (
        sum(map(math.prod, design.shapes.values())) <= WEIGHTS
        and tokens * config.d_model <= STREAM
        and tokens * config.n_heads * config.n_ctx <= LOGITS
    )


def _kept(design: Design) -> list[tuple[int, int]]:
    """Arrays that autograd keeps of a layer for the backward pass: pairs of how many there are of
    one width, and that width, in numbers for each token.

    A norm, a learned multiplier and a product with a matrix each keep what they read; so does the
    product of queries and keys, and that of the pattern and the values, in copies by head. A
    softmax and a tanh keep what they give."""
    config, attends = design.settings, design.attends
    # of the stream's width, for each sublayer: the input of its first matrices, the inputs of its
    # norms, and F(x) where its multiplier is learned
    n_sublayers = 1 + attends
    stream = 1 + _norms(design, ATTENTION, "d_model") + (design.alpha_shape is not None)
    # of all heads' width: queries, keys, values, and the input of W_O; its product with a gate; and
    # queries before their norm
    heads = 4 + bool(design.gates) + _norms(design, ATTENTION, "heads") + design.normalizes_heads
    # of the keys' width, which is smaller where heads share keys: values and keys before norms
    keys = _norms(design, ATTENTION, "keys") + design.normalizes_heads
    # of n_ctx numbers for each head: the pattern; capped logits; and the pattern without its sink
    logits = 1 + bool(config.logit_cap) + (design.sink.logit is not None)
    # of the MLP's width: what each matrix that reads the input gives, and as much after the
    # activation and the product with a gate, if there is one
    hidden = 2 * len(design.readers) + _norms(design, MLP, "d_mlp")
    mixing, _ = _mixing(design)
    return [
        (n_sublayers * stream, config.d_model),
        (attends * heads, design.widths["heads"]),
        (attends * keys, design.widths["keys"]),
        (attends * logits, config.n_heads * config.n_ctx),
        (hidden, config.d_mlp),
        (1, design.gates + mixing),
    ]


ATTENTION, MLP = 0, 1
"""Indices of the sublayers in `Site.numbers`."""


def _norms(design: Design, sublayer: int, width: str) -> int:
    """Norms of a sublayer on signals of a width, a key of `Design.widths`; of layers that differ
    the most."""
    counts = []
    for place in design.kinds:
        signals = [SITES[name].numbers[sublayer] for name in place.norms]
        counts.append(signals.count(width))
    return max(counts)


def _mixing(design: Design) -> tuple[int, int]:
    """Numbers for each token that the learned mixing of streams or outputs keeps in a layer, and
    numbers that the layer passes on to the next; 0 and 0 without mixing.

    The coefficients are about what was counted in autograd's graphs."""
    config, rule = design.settings, design.stream
    n, d = config.n_streams, config.d_model
    if rule.mixes == "outputs":
        return 4 * d, 2 * config.n_layers * d
    # Sinkhorn's iterations keep each matrix; at one stream nothing is mixed
    return (9 * n * d // 2 + 100 * n**2 * rule.constrained, n * d) if rule.mixes else (0, 0)


def excess(design: Design) -> tuple[str, dict[str, object]] | None:
    """The refusal of a too large experiment, for `Choices.refusal`: its message, which names the
    fields that cause it, and the values of that; else None."""
    needed, memory, most = (
        sizes(design),
        memory_limit(),
        environment("EXPLORER_MAX_SECONDS", math.inf),
    )
    if needed.memory_bytes > memory:
        message = (
            "weights and activations must fit into {most} GB; got about {needed} GB "
            "({n_layers=}, {d_model=}, {mlp_ratio=}, {n_ctx=}, {batch_size=}; "
            "EXPLORER_MAX_MEMORY_MB raises the limit)"
        )
        gigabytes = needed.memory_bytes / 1e9
        return message, {"most": f"{memory / 1e9:.3g}", "needed": f"{gigabytes:.3g}"}
    if (seconds := design.settings.n_seeds * needed.seconds) > most:
        message = (
            "a measurement must take at most {most} s of a processor; got about {seconds} s "
            "({n_seeds=}, {n_layers=}, {d_model=}, {n_ctx=}, {n_heads=}; EXPLORER_MAX_SECONDS raises the limit)"
        )
        return message, {"most": f"{most:.3g}", "seconds": f"{seconds:.3g}"}
    return None


def memory_limit() -> float:
    """Bytes that one experiment may take."""
    usual = min(MAX_MEMORY_MEGABYTES * 1e6, SHARE * machine_memory())
    return environment("EXPLORER_MAX_MEMORY_MB", usual / 1e6) * 1e6


@contextmanager
def claimed(need: float) -> Iterator[None]:
    """Claims memory from the server's ledger for a computation; does nothing where no server shares
    its memory.

    Args:
        need: bytes of this process with the computation; up to `memory.WORKER` of them are its own
            already.
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
            raise ConfigError(
                translated(
                    "memory must suffice for all visitors of this server; this computation needs about "
                    "{need} GB, and others leave {left} GB: try again in a while",
                    need=f"{need / 1e9:.3g}",
                    left=f"{left / 1e9:.3g}",
                )
            )
        _claims.append(extra)
    try:
        yield
    finally:
        with _claiming:
            _claims.remove(extra)
            ledger.claim(sum(_claims))


def free_memory() -> float:
    """Bytes that this process may take: the machine's, or what its server's other visitors
    leave."""
    return Ledger(os.environ[LEDGER]).free() if LEDGER in os.environ else machine_memory()


def processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def process_count(need: float = WORKER) -> int:
    """Processes that compute: one for each processor (or EXPLORER_PROCESSES), or as many as memory
    holds; at least one.

    Args:
        need: bytes of the largest computation.
    """
    return max(
        1,
        int(
            min(environment("EXPLORER_PROCESSES", processors()), free_memory() // max(need, WORKER))
        ),
    )


def settle(size: float) -> None:
    """Claims memory for as long as this process lives: for one that is no page, and has nothing of
    its own."""
    if LEDGER in os.environ:
        with _claiming:
            _claims.append(size)
            Ledger(os.environ[LEDGER]).claim(sum(_claims))
