"""Positions: how tokens of a sequence are told apart, in the logits or in the stream."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from explorer.fields import Option
from explorer.schemes.data import reads_text

if TYPE_CHECKING:
    from explorer.config import Config


@dataclass(frozen=True, kw_only=True)
class Position(Option):
    """Encoding of a token's position, in attention or in the stream."""

    rotates: bool = False
    """Queries and keys are turned by angles that grow with the position."""
    biases: bool = False
    """Logits fall with the distance of key and query, in each head with a slope of its own."""
    embeds_text: bool = False
    """A vector for each position is added to the embedded characters; the next, to Gaussian tokens."""
    embeds_vectors: bool = False


POSITIONS: dict[str, Position] = {
    "none": Position("q·k; text has a learned vector for each position", embeds_text=True),
    "nope": Position("q·k; no position is added, not even to text", "NoPE: Kazemnejad et al. 2023"),
    "rotary": Position(
        "R_t q·R_s k, by the angles t·base^(−2i/d_head)", "RoPE: Su et al. 2021; partial: GPT-NeoX",
        ("rope_base", "rope_fraction"), rotates=True,
    ),
    "alibi": Position("q·k − m_h (t − s), m_h = 2^(−8h/H) in head h", "ALiBi: Press et al. 2022", biases=True),
    "learned": Position(
        "(x_t + P_t) / √2", "Vaswani et al. 2017, section 3.5; GPT-2, BERT", embeds_text=True, embeds_vectors=True
    ),
}


def embeds(config: Config) -> bool:
    """Whether a vector for each position is added to the input."""
    row = POSITIONS[config.position]
    return row.embeds_text if reads_text(config) else row.embeds_vectors


def rotates(config: Config) -> bool:
    """Whether queries and keys are turned by their positions."""
    return POSITIONS[config.position].rotates


def slopes(config: Config) -> tuple[float, ...]:
    """How fast each head's logits fall with distance; none where they do not.

    Of a number of heads that is no power of two, those of the next lower one, and then every other of twice as many.
    """
    if not POSITIONS[config.position].biases:
        return ()
    lower = 1 << (config.n_heads.bit_length() - 1)
    steps = [*range(2, 2 * lower + 1, 2), *range(1, 2 * lower, 2)]
    return tuple(2.0 ** (-4 * step / lower) for step in steps[: config.n_heads])


def rotated(config: Config) -> int:
    """Coordinates of a head that are turned, its first ones, if any are."""
    return math.floor(config.rope_fraction * config.d_head + 1e-9)


def angles(config: Config) -> tuple[float, ...]:
    """Angle by which each pair of a head's coordinates is turned from one position to the next."""
    count = rotated(config) if rotates(config) else 0
    return tuple(config.rope_base ** (-pair / count) for pair in range(0, count, 2))


def own_part(config: Config) -> float:
    """Part of an input token's second moment that is not its position's."""
    return 0.5 if embeds(config) else 1.0
