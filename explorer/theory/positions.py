"""The position axis: statistics of tokens by position and by pair of positions, with a causal mask
or without.

Row t of a causal mask sees t keys. Positions are spaced like the tables' sizes (1, 2, 3, 4, 6, 8,
12, … n), and functions of position are linear in ln t between them, so that sums over tokens become
small matrices. Without a mask all rows see n keys and all tokens are alike in law: the axis has one
position, which stands for all of them.

Rotary positions turn a query at t and a key at s by s − t against each other, so that two logits
have c(Δ) of the covariance that they would have, c the mean of cos θΔ over the turned pairs of
coordinates (1 for the rest) and Δ the difference of their turns. Of a row of n keys the part that
all share still drops out of softmax as far as c does not differ: its mean over the pairs of keys is
Fejér's kernel, Σ_ss' cos θ(s − s') = |Σ_s e^(iθs)|²."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from explorer.config import Config
from explorer.profile import Array
from explorer.theory.softmax import SIZES

Indices = NDArray[np.intp]
LONGEST = 64
"""Keys of a row up to which overlaps are kept for every pair of tokens."""


class Turns(NamedTuple):
    """Means of c."""

    keys: Array = np.ones(1)
    """`[position]`: over pairs of a row's keys."""
    rows: Array = np.ones((1, 1))
    """`[position, position]`: over pairs of rows that meet one key, as the next."""
    both: Array = np.ones((1, 1))
    """Over pairs of rows and pairs of keys."""


STILL = Turns()
"""Nothing turns."""


class Positions(NamedTuple):
    """The positions of one sequence length, and what sums over tokens become on them.

    Statistics of two tokens are `[pair] = [1 + position, position]`: first a token with itself (the
    second moments), then two different tokens (on the diagonal the limit of close ones). So one
    operation serves them all."""

    t: Array
    """`[position]`: keys that a row sees; from 1 to n with a mask, n without."""
    mean: Array
    """`[position]`: average over all tokens."""
    prefix: Array
    """`[position, position]`: average over the keys of a row."""
    key_pairs: Array
    """`[position, position · position]`: average over the pairs of keys of a row."""
    suffix: Array
    """`[position, position]`: Σ of f(t)/t over the tokens t that see a key."""
    suffix_2: Array
    """`[position, position]`: Σ of f(t)/t² over them."""
    collect: Array
    """`[position, pair · position]`: see `gather`, to a key with itself."""
    first: Indices
    """`[pair]`: index of the first of the two positions."""
    second: Indices
    smaller: Indices
    """`[pair]`: index of the smaller of the two."""
    later: Indices
    """`[position, position]`: index of the larger."""
    ones: Array
    """`[pair]`"""
    ratio: Array
    """`[pair]`: the smaller position over the larger."""
    averages: Array
    """`[2, pair · position]`: average over tokens of the second moments, over pairs of positions of
    the overlaps."""
    others: Array
    """`[pair]`: average over the ordered pairs of two different tokens."""
    total: Array
    """`[pair]`: Σ over the ordered pairs of tokens, each with itself among them."""
    share: Array
    """`[token, position]`: weights by which a function of position is read at a token."""
    sharp: Array
    """`[pair]`: factor on the covariance of two rows' logits, of the scale and of each row."""
    alike: bool
    """Whether one position stands for all tokens, as without a mask."""
    turns: Turns = STILL

    def average(self, y: Array) -> tuple[float, float]:
        """Of `[pair]` the mean over tokens, and over pairs of positions."""
        q, p = y.ravel().tolist() if self.alike else self.averages.dot(y.ravel()).tolist()
        return q, p

    def at_tokens(self, x: Array) -> Array:
        """`[…, position]` to `[…, token]`."""
        return np.asarray(x @ self.share.T)

    def with_others(self, y: Array) -> Array:
        """Of `[…, pair]` by position the overlap with all other tokens, over the product of their
        lengths."""
        length = np.sqrt(y[..., 0, :])
        n = len(self.share)
        overlap = n * (y[..., 1:, :] @ self.mean) - y[..., 1:, :].diagonal(0, -2, -1)
        return np.asarray(overlap / (length * (n * (length @ self.mean)[..., None] - length)))

    def received(self, kept: Array) -> Array:
        """Mean weight of the key at each position, `[…, token]`, if a row's keys have equal shares
        in the mean.

        Under a mask token j receives (1/n) Σ_{i ≥ j} M_i / i, without one (1/n) Σ M_i / n.

        Args:
            kept: `[…, position]`, the weight M that a row gives to its keys.
        """
        n = len(self.share)
        rows = self.at_tokens(kept) / (n if self.alike else np.arange(1.0, n + 1)) / n
        return np.cumsum(rows[..., ::-1], -1)[..., ::-1] if not self.alike else n * rows

    def lift(self, x: Array) -> Array:
        """`[…, position]` to `[…, pair]`: the geometric mean of a quantity at two positions."""
        root = np.sqrt(x)
        if root.ndim == 1:  # numpy is slower where it must ask which axis
            return np.asarray(root[self.first] * root[self.second])
        return np.asarray(root.take(self.first, -1) * root.take(self.second, -1))

    def gather(self, given: Array) -> Array:
        """From rows to keys: `[2, pair]` to `[pair]`, the adjoint of averages over keys.

        Args:
            given: to one key, and to two different ones: of a row with itself t² times what it
                gives; of two rows t t′ times what their common keys receive.
        """
        key, pair = given[0], given[1]
        out: Array = np.empty_like(key)
        out[0] = self.collect.dot(key.ravel())
        alone = self.suffix_2.dot(pair[0] - pair[1:].diagonal())
        np.add(self.suffix.dot(pair[1:]).dot(self.suffix.T), alone[self.later], out=out[1:])
        return out


@lru_cache(maxsize=64)
def positions(n: int, causal: bool = True, whole: bool = False) -> Positions:
    """The positions of a sequence of n tokens; with a mask a few of them, or the whole."""
    every = np.arange(1.0, n + 1)
    if causal:
        t = np.array(
            range(1, n + 1) if whole else [1, *(size for size in SIZES if size < n), n], dtype=float
        )
        at = np.interp(np.log(every), np.log(t), np.arange(len(t)))
        low = np.minimum(at.astype(int), len(t) - 2)
        share = np.zeros((n, len(t)))
        share[np.arange(n), low] = 1 - (at - low)
        share[np.arange(n), low + 1] += at - low
        visible, last, start = every, t.astype(int) - 1, t.astype(int) - 1
    else:
        t, share, visible = np.array([float(n)]), np.ones((n, 1)), np.full(n, float(n))
        last, start = np.array([n - 1]), np.array([0])
    prefix = np.cumsum(share, 0)[last] / t[:, None]
    suffix, suffix_2 = (
        np.cumsum((share / visible[:, None] ** power)[::-1], 0)[::-1][start] for power in (1, 2)
    )
    i, mean = np.arange(len(t)), share.mean(0)
    first, second = np.vstack([i, i[:, None] + 0 * i]), i + np.zeros((len(t) + 1, 1), dtype=int)
    averages = np.zeros((2, *first.shape))
    averages[0, 0], averages[1, 1:] = mean, np.outer(mean, mean)
    others = n / (n - 1) * averages[1]
    others[1 + i, i] -= mean / (n - 1)
    collect = np.concatenate([suffix_2[:, None], suffix[:, :, None] * suffix[:, None]], 1)
    collect[:, 1 + i, i] -= suffix_2
    return Positions(
        t,
        mean,
        prefix,
        (prefix[:, :, None] * prefix[:, None]).reshape(len(t), -1),
        suffix,
        suffix_2,
        collect.reshape(len(t), -1),
        first,
        second,
        np.minimum(first, second),
        np.maximum(i, i[:, None]),
        np.ones(first.shape),
        np.minimum(t[first], t) / np.maximum(t[first], t),
        averages.reshape(2, -1),
        others,
        total=n * averages[0] + n * (n - 1) * others,
        share=share,
        sharp=np.ones(first.shape),
        alike=not causal,
    )


def place(config: Config, scale: float) -> Positions:
    """The position axis of a config, with its rotary turns and the factors on its rows' logits,
    times `scale`."""
    causal = config.causal and config.design.attends
    axis = positions(config.n_ctx, causal, whole=causal and bool(bias_slopes(config)))
    rows = np.square(config.design.row_factors)[axis.t.astype(int) - 1] if causal else axis.ones[0]
    theta, turned = config.design.angles, config.design.rotated / config.d_head
    turns = _turns(config.n_ctx, causal, theta, turned) if theta else STILL
    return axis._replace(turns=turns, sharp=scale * axis.lift(rows))


def bias_slopes(config: Config) -> tuple[float, ...]:
    """Slopes of ALiBi by head; none where the sequence is too long to keep all of its pairs."""
    return config.design.slopes if config.n_ctx <= LONGEST else ()


@lru_cache(maxsize=64)
def _turns(n: int, causal: bool, theta: tuple[float, ...], turned: float) -> Turns:
    """The mean cosines of turns by these angles of a part of a head's coordinates, cached: row t
    sees t keys; two rows share those of the shorter one."""
    axis = positions(n, causal)
    weight = axis.share
    phase = np.exp(1j * np.outer(np.arange(n), theta))  # [token, angle]
    t = np.arange(1.0, n + 1)[:, None]
    energy = np.abs(np.cumsum(phase, 0)) ** 2
    keys = np.where(t > 1, (energy - t) / np.maximum(t * (t - 1), 1), 1.0)[axis.t.astype(int) - 1]
    mixed, same, count = weight.T @ phase, weight.T @ weight, weight.sum(0)
    pairs = np.outer(count, count) - same
    total = (mixed[:, None] * mixed.conj()).real - same[..., None]
    rows = np.where(pairs[..., None] > 1e-9, total / np.maximum(pairs, 1e-9)[..., None], 1.0)
    both = rows * keys[axis.smaller[1:]]
    return Turns(*(1 - turned + turned * cosine.mean(-1) for cosine in (keys, rows, both)))
