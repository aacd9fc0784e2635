"""Seeds that share a pass.

Of a narrow model a pass is calls more than arithmetic, and several seeds' weights side by side need no more calls than
one's: see `products`. Wide ones gain nothing, for one seed's numbers fill the caches by themselves; nor is there a
model of several seeds for each design. `python -m benchmarks.together` has the table that the limits are read from.
"""

from __future__ import annotations

import math

from explorer.config import Config
from explorer.measuring.threads import SIDE_BY_SIDE_BYTES, bytes_of
from explorer.schemes.residual import profiles
from explorer.schemes.scale import shapes
from explorer.schemes.stream import stream

WEIGHTS, STREAM, LOGITS = 2**17, 2**13, 2**16
"""Numbers in a layer's matrices, in its stream and in its attention logits, up to which seeds share a pass: width 96
with the usual MLP, or 64 with 128 tokens. Beyond, a shared pass gave less than a tenth, or took longer."""

SEEDS = 2
"""Seeds that share a pass. The number must not depend on the machine's processors, or sums are taken in another order
in a sweep's pool than here, and numbers differ in the last bit."""
OTHERS = 3
"""Seeds that share a pass after a first seed that somebody waits for: of the usual four, all others."""


def runs(config: Config, soon: bool = False) -> list[range]:
    """The seeds of a config, by pass.

    Args:
        soon: whether the first seed is waited for: it has a pass of its own, also where the others share theirs.
    """
    seeds = range(config.seed, config.seed + config.n_seeds)
    first, size = (1, OTHERS) if soon else (0, SEEDS)
    if not share(config):
        first, size = 0, 1
    return [seeds[:first]] * first + [seeds[start : start + size] for start in range(first, len(seeds), size)]


def share(config: Config) -> bool:
    """Whether seeds share passes: they can, and it takes less time and not too much memory."""
    return can_share(config) and gains(config) and config.n_seeds * bytes_of(config) <= SIDE_BY_SIDE_BYTES


def can_share(config: Config) -> bool:
    """Whether a model of such a design may hold several seeds, each activation once in memory."""
    return not (stream(config).mixes or profiles(config) or config.sizes.block)


def gains(config: Config) -> bool:
    """Whether a pass over several seeds takes less time than passes over each, by size."""
    tokens = config.batch_size * config.n_ctx
    return (sum(map(math.prod, shapes(config).values())) <= WEIGHTS and tokens * config.d_model <= STREAM
            and tokens * config.n_heads * config.n_ctx <= LOGITS)
