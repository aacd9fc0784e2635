"""What the recursions, masked or not, hand to `predict`: arrays over the sublayers or layers that are covered."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from explorer.theory.grids import Array


class Stream(NamedTuple):
    """Over sublayers."""

    q: Array
    p: Array
    added: Array
    """Second moment of what the branch hands to the sum."""


class Rows(NamedTuple):
    """Over layers."""

    s: Array
    """Largest standard deviation of the logits of a row, as softmax sees them."""
    uncapped: Array
    """The same before a soft cap."""
    total: Array
    """The same with the variance that a row's logits share."""
    own: Array
    """1 − ρ of the tokens that the attention reads: what distinguishes them."""
    spread: Array
    """As measured: root mean square over the keys."""
    entropy: Array
    normalized: Array
    largest: Array


class Gradients(NamedTuple):
    """Over sites, and by matrix over layers."""

    site: Array
    """`[2N + 1]`, relative to the last."""
    weights: dict[str, Array]


class Recursions(Protocol):
    """One config's recursions, run."""

    def stream(self) -> Stream: ...

    def rows(self) -> Rows: ...

    def gradients(self) -> Gradients:
        """Only of a stack that is covered to its last layer."""
        ...
