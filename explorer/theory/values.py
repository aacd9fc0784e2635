"""Results of the recursions, masked or not, for `predict`: arrays over the sublayers or layers that are covered."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from explorer.theory.grids import Array


class Moments(NamedTuple):
    """Tokens of a site, in law; arrays over sublayers."""

    q: Array
    p: Array
    """Mean overlap of two different tokens."""
    alike: Array
    """Mean squared correlation over all pairs of a sequence's tokens, each with itself among them."""
    uneven: Array
    """Relative variance of a token's squared length."""
    first: Array
    """Second moment of the first token."""


class Stream(NamedTuple):
    """Over sublayers."""

    site: Moments
    added: Moments
    """Moments of the branch's term of the sum."""


class Rows(NamedTuple):
    """Over layers."""

    s: Array
    """Largest standard deviation of the logits of a row, as softmax sees them."""
    uncapped: Array
    """Largest standard deviation of the logits of a row, before a soft cap."""
    total: Array
    """Largest standard deviation of the logits of a row, with the variance that they share."""
    own: Array
    """1 − ρ of the tokens that the attention reads: the part that distinguishes them, with their turns."""
    turned: Array
    """Share of the logits' variance by which turns distinguish tokens that are the same."""
    spread: Array
    """Spread as measured: root mean square over the keys."""
    entropy: Array
    normalized: Array
    largest: Array


class Gradients(NamedTuple):
    """Over sites, and by matrix over layers."""

    site: Array
    """`[2N + 1]`, relative to the last."""
    weights: dict[str, Array]


class Recursions(Protocol):
    """Results of one config's recursions."""

    def stream(self) -> Stream: ...

    def rows(self) -> Rows: ...

    def gradients(self) -> Gradients:
        """Only of a stack that is covered to its last layer."""
        ...
