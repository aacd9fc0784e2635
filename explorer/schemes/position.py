"""Positions: how tokens of a sequence are told apart, in the logits or in the stream."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.fields import Option


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
