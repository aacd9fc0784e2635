"""Inputs of the first layer, positions of their tokens, and the losses that are differentiated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from explorer.fields import Option

if TYPE_CHECKING:
    from explorer.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Input(Option):
    """Tokens of the config's second moment: Gaussian vectors, or characters of real text or of a
    person's sentence."""

    overlap: Callable[[Settings], float] = lambda config: 0.0
    """Expected overlap of two Gaussian tokens."""
    is_text: bool = False
    """Characters, which the model embeds."""
    sentence: Callable[[Settings], str] = lambda config: ""
    """A sentence that is all of the input, a token each character; empty where tokens are drawn."""


INPUTS: dict[str, Input] = {
    "gaussian": Input("independent N(0, q₀) tokens", uses=("n_ctx",)),
    "correlated": Input(
        "N(0, q₀) tokens that overlap by ρ₀ q₀",
        uses=("n_ctx", "input_correlation"),
        overlap=lambda config: config.input_correlation,
    ),
    "text": Input("English prose, embedded", uses=("n_ctx",), is_text=True),
    "sentence": Input(
        "characters of your own sentence, embedded",
        uses=("sentence",),
        is_text=True,
        sentence=lambda config: config.sentence,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Position(Option):
    """How tokens of a sequence are told apart, in attention or in the stream."""

    rotates: bool = False
    """Queries and keys are turned by angles that grow with the position."""
    biases: bool = False
    """Logits fall with the distance of key and query, in each head with a slope of its own."""
    embeds_text: bool = False
    """A vector for each position is added to the embedded characters."""
    embeds_vectors: bool = False
    """A vector for each position is added to Gaussian tokens."""


POSITIONS: dict[str, Position] = {
    "none": Position("q·k; text has a learned vector for each position", embeds_text=True),
    "nope": Position("q·k; no position is added, not even to text", "NoPE: Kazemnejad et al. 2023"),
    "rotary": Position(
        "R_t q·R_s k, by the angles t·base^(−2i/d_head)",
        "RoPE: Su et al. 2021; partial: GPT-NeoX",
        ("rope_base", "rope_fraction"),
        rotates=True,
    ),
    "alibi": Position(
        "q·k − m_h (t − s), m_h = 2^(−8h/H) in head h", "ALiBi: Press et al. 2022", biases=True
    ),
    "learned": Position(
        "(x_t + P_t) / √2",
        "Vaswani et al. 2017, section 3.5; GPT-2, BERT",
        embeds_text=True,
        embeds_vectors=True,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Loss(Option):
    """A scalar of the output: its projection on a random direction, or a cross-entropy."""

    predicts: bool = False
    """It is the cross-entropy of the next character, which needs text and a readout."""


LOSSES: dict[str, Loss] = {
    "linear": Loss("⟨output, random unit direction⟩"),
    "next_token": Loss(
        "cross-entropy of the next character", "", ("readout", "output_cap"), predicts=True
    ),
}


@dataclass(frozen=True, kw_only=True)
class Readout(Option):
    """The matrix W_U that makes logits of the output, and the variance of its entries."""

    variance: Callable[[int, float], float]
    """From the width and the variance of a character's entries in the stream; μP and its kin have a
    factor on it."""
    tied: bool = False
    """It is the embedding: one matrix learns both."""


READOUTS: dict[str, Readout] = {
    "separate": Readout("W_U drawn by itself, N(0, 1/d)", variance=lambda d, embedded: 1 / d),
    "tied": Readout(
        "W_U = E",
        "Press & Wolf 2017; GPT-2, BERT",
        tied=True,
        variance=lambda d, embedded: embedded,
    ),
    "tied_scaled": Readout(
        "W_U = E, and √d E enters the stream",
        "Vaswani et al. 2017, section 3.4; Gemma, and T5 at initialization",
        tied=True,
        variance=lambda d, embedded: embedded / d,
    ),
}
