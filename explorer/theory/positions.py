"""The position axis: statistics of tokens by position and by pair of positions, with a causal mask
or without.

Row t of a causal mask sees t keys. Positions are spaced like the tables' sizes (1, 2, 3, 4, 6, 8,
12, … n), and functions of position are linear in ln t between them, so that sums over tokens become
small matrices. Without a mask all rows see n keys and all tokens have one law: the axis has a
single position, which stands for all of them.

Rotary positions turn a query at t and a key at s by s − t against each other. Two logits then have
c(Δ) of the covariance that they would have without: Δ is the difference of their turns, and c the
mean of cos θΔ over the turned pairs of coordinates (1 for the rest). The part that all keys of a
row share still drops out of softmax as far as c does not differ. Its mean over the pairs of n keys
is Fejér's kernel, Σ_ss' cos θ(s − s') = |Σ_s e^(iθs)|²."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from explorer.config import Config
from explorer.theory.softmax import SIZES
from explorer.vocabulary import Array

Indices = NDArray[np.intp]
LONGEST = 64
"""Keys of a row up to which overlaps are kept for every pair of tokens."""


class Turns(NamedTuple):
    """Means of the cosines c(Δ) of rotary positions, each over pairs of different tokens."""

    keys: Array = np.ones(1)
    """`[position]`: over pairs of a row's keys, of one query."""
    rows: Array = np.ones((1, 1))
    """`[position, position]`: over pairs of rows that meet one key."""
    both: Array = np.ones((1, 1))
    """`[position, position]`: over pairs of rows, and pairs of their common keys."""


STILL = Turns()
"""No position is turned."""


class Positions(NamedTuple):
    """The positions of one sequence length, and the matrices of sums over its tokens.

    Statistics of two tokens are `[pair] = [1 + position, position]`. Row 0 is a token with itself
    (its second moment q); the others are two different tokens (their overlap p), and on their
    diagonal stands the limit of two tokens that are close. So one operation serves q and p.

    Of several designs (`side_by_side`) statistics have a last axis of designs, as `[position,
    design]` and `[pair, design]`, which the shapes below leave out."""

    visible: Array
    """`[position]`: t, the keys that a row sees: from 1 to n with a mask, n without."""
    weights: Array
    """`[position]`: weights of the mean over all tokens; they sum to 1."""
    key_mean: Array
    """`[row position, key position]`: weights of the mean over the keys of a row."""
    key_pair_mean: Array
    """`[row position, key position · key position]`: weights of the mean over pairs of its keys."""
    row_sum: Array
    """`[key position, row position]`: weights of Σ f(t)/t over the rows t that see a key."""
    row_sum_2: Array
    """`[key position, row position]`: weights of Σ f(t)/t² over them."""
    collect_same: Array
    """`[key position, pair]`, the pair raveled: from pairs of rows to one key, see `gather`."""
    first: Indices
    """`[pair]`: index of the first of the two positions."""
    second: Indices
    """`[pair]`: index of the second."""
    shorter: Indices
    """`[pair]`: index of the row with fewer keys."""
    longer: Indices
    """`[position, position]`: index of the row with more keys."""
    ones: Array
    """`[pair]`: 1 everywhere."""
    ratio: Array
    """`[pair]`: keys of the shorter row over keys of the longer one."""
    averages: Array
    """`[2, pair]`, the pair raveled: weights of the mean of q over tokens, and of the mean of p
    over pairs of positions."""
    pair_mean: Array
    """`[pair]`: weights of the mean over ordered pairs of two different tokens."""
    pair_sum: Array
    """`[pair]`: weights of the sum over ordered pairs of tokens, each with itself among them."""
    reading: Array
    """`[token, position]`: weights that read a function of position at each token."""
    logit_factor: Array
    """`[pair]`: factor on the covariance of two rows' logits: `Gains.scale` times both rows' own
    factors."""
    unmasked: bool
    """Whether there is no mask, so that one position stands for all tokens."""
    turns: Turns = STILL
    last: int = -1
    """Axis of positions, from the end: −2 where an axis of designs follows."""

    def average(self, y: Array) -> tuple[Any, Any]:
        """Mean second moment over tokens, and mean overlap over pairs of positions.

        Args:
            y: `[1 + position, position]`, second moments in row 0, overlaps below.
        """
        means = self.flat(y)
        if not self.unmasked:  # a single position is its own mean
            means = self.averages.dot(means)
        q, p = means.tolist() if self.last == -1 else means
        return q, p

    def side_by_side(self, others: Sequence[Positions]) -> Positions:
        """The axis of several designs, this one's and all others': arrays that multiply statistics
        have a last axis of designs."""
        axes, turns = [self, *others], self.turns
        if turns is not STILL:
            by_design = [axis.turns for axis in axes]
            turns = Turns(*(np.stack(part, -1) for part in zip(*by_design, strict=True)))
        return self._replace(
            visible=self.visible[:, None],
            ones=np.ones((*self.ones.shape, len(axes))),
            ratio=self.ratio[..., None],
            logit_factor=np.stack([axis.logit_factor for axis in axes], -1),
            turns=turns,
            last=-2,
        )

    def total(self, weights: Array, x: Array) -> Array:
        """Σ_t w_t x_t of functions of position, `[…, position]` to `[…]`."""
        return np.asarray(x @ weights if self.last == -1 else weights @ x)

    def mean(self, x: Array) -> Any:
        """Mean over tokens of a function of position, `[position]`."""
        if self.last == -1:
            return x.item(0) if self.unmasked else self.weights.dot(x).item()
        return x[0] if self.unmasked else self.weights.dot(x)

    def flat(self, x: Array) -> Array:
        """Pairs of positions on one axis: `[pair]` raveled."""
        return x.ravel() if self.last == -1 else x.reshape(-1, x.shape[-1])

    def diagonal(self, x: Array) -> Array:
        """A function of two positions where they are one: `[…, position, position]` to `[…,
        position]`."""
        if self.last == -1:
            return x.diagonal(0, -2, -1)
        return x.diagonal(0, -3, -2).swapaxes(-1, -2)

    def over_first(self, matrix: Array, x: Array) -> Array:
        """Σ_s M_ts x_sr of a function of two positions, `[position, position]`."""
        if self.last == -1:
            return np.asarray(matrix.dot(x))
        return np.asarray(matrix.dot(x.reshape(len(x), -1)).reshape(x.shape))

    def over_second(self, matrix: Array, x: Array) -> Array:
        """Σ_s M_ts x_rs of a function of two positions, `[…, position, position]`; or Σ_s M_ts x_s
        of one of a single position."""
        return np.asarray(x.dot(matrix.T) if self.last == -1 else matrix @ x)

    def column(self, values: Iterable[Any]) -> Array:
        """Numbers by layer or sublayer, to multiply `[layer, pair]`: `[layer, 1, 1]`."""
        numbers = list(values)
        if self.last == -1:
            return np.array(numbers)[:, None, None]
        return np.array(np.broadcast_arrays(*numbers)).reshape(len(numbers), 1, 1, -1)

    def at_tokens(self, x: Array) -> Array:
        """A function of position read at every token: `[…, position]` to `[…, token]`."""
        return self.over_second(self.reading, x)

    def with_others(self, y: Array) -> Array:
        """Cosine of each token with the n − 1 others of its sequence, Σ_{j ≠ i} p_ij / Σ_{j ≠ i}
        √(q_i q_j) for the token at i.

        `weights` are those of a mean over tokens, and n times a mean is the sum over all n tokens.
        The term j = i is then subtracted. Of p that is its diagonal, which has the overlap of two
        tokens that are close; a token's own q is in row 0.

        Args:
            y: `[site, 1 + position, position]`, second moments q in row 0, overlaps p below.
        Returns:
            `[site, position]`.
        """
        q, p = y[:, 0], y[:, 1:]
        n = len(self.reading)
        sum_of_overlaps = n * self.total(self.weights, p)
        overlaps = sum_of_overlaps - self.diagonal(p)
        length = np.sqrt(q)
        sum_of_lengths = n * self.total(self.weights, length)[:, None]
        return overlaps / (length * (sum_of_lengths - length))

    def received(self, kept: Array) -> Array:
        """Mean weight that the key at each token receives, where a row's keys share equally.

        Under a mask the key at token j receives (1/n) Σ_{i ≥ j} M_i / i, without one M/n.

        Args:
            kept: `[layer, position]`, the weight M that a row gives to its keys (1 without a
                sink).
        Returns:
            `[layer, token]`; sums to the mean of M.
        """
        n = len(self.reading)
        mass = self.at_tokens(kept) / n
        if self.unmasked:
            return mass
        visible = np.arange(1.0, n + 1).reshape(-1, *[1] * (-1 - self.last))
        given = mass / visible  # by row i to each of its i keys
        return np.cumsum(given[:, ::-1], 1)[:, ::-1]

    def lift(self, x: Array) -> Array:
        """Geometric mean √(x_i x_j) of a quantity at two positions, in row 0 of one with itself:
        `[…, position]` to `[…, 1 + position, position]`."""
        return self.product(np.sqrt(x))

    def product(self, x: Array) -> Array:
        """Product x_i x_j of a quantity at two positions, with the axes of `lift`."""
        if x.ndim > -self.last:
            return x.take(self.first, self.last) * x.take(self.second, self.last)
        # of few numbers: quicker than `take` along an axis
        if self.unmasked:
            return (x * x).repeat(2, 0)[:, None]
        return np.asarray(x[self.first] * x[self.second])

    def at_shorter(self, x: Array) -> Array:
        """A function of rows, `[position]`, at the shorter of two rows: `[pair]`."""
        return x.repeat(2, 0)[:, None] if self.unmasked else x[self.shorter]

    def gather(self, given: Array) -> Array:
        """Gradient received by keys, summed over the rows that see them: the adjoint of a mean over
        keys.

            γ_q(s)     = Σ_{t ≥ s} G¹_tt / t² + Σ_{t ≠ t′ ≥ s} G¹_tt′ / (t t′)
            γ_p(s, s′) = Σ_{t ≥ s, s′} G²_tt / t² + Σ_{t ≥ s, t′ ≥ s′, t ≠ t′} G²_tt′ / (t t′)

        Args:
            given: `[2, pair]` of rows t and t′. G¹ is t t′ times the product of the gradients that
                they give to one of their keys, G² of those that they give to two different keys.
        Returns:
            `[pair]` of keys.
        """
        if self.unmasked:  # of one position both sums are the same
            sums = self.collect_same[0].dot(given.reshape(2, 2, -1))
            return np.asarray(sums.reshape(given.shape[1:]))
        to_same, to_pair = given[0], given[1]
        out: Array = np.empty_like(to_same)
        out[0] = self.collect_same.dot(self.flat(to_same))
        # all pairs of rows as if they were different, then what a row with itself has beyond that
        by_two_rows = self.over_second(self.row_sum, self.over_first(self.row_sum, to_pair[1:]))
        beyond = self.row_sum_2.dot(to_pair[0] - self.diagonal(to_pair[1:]))
        np.add(by_two_rows, beyond[self.longer], out=out[1:])
        return out


def _grid(n: int, causal: bool, whole: bool) -> tuple[Array, Array, Array, Indices, Indices]:
    """The positions kept of a sequence of n tokens: without a mask one, with a mask `SIZES` up to
    n, or every token for a `whole` axis.

    Returns:
        `Positions.visible` and `reading`; the keys that each token sees, `[token]`; the indices of
        the last token that a row sees, and of the first token that sees a key, `[position]`.
    """
    t = np.arange(1.0, n + 1)
    if not causal:
        return t[-1:], np.ones((n, 1)), np.full(n, t[-1]), np.array([n - 1]), np.array([0])
    kept = range(1, n + 1) if whole else [1, *(size for size in SIZES if size < n), n]
    visible, token = np.array(kept, dtype=np.float64), np.arange(n)
    # linear interpolation in ln t: the node below each token, and how far it is to the next
    node = np.interp(np.log(t), np.log(visible), np.arange(len(visible)))
    below = np.minimum(node.astype(int), len(visible) - 2)
    beyond = node - below
    reading = np.zeros((n, len(visible)))
    reading[token, below] = 1 - beyond
    reading[token, below + 1] += beyond
    index = visible.astype(int) - 1  # a row's own token is the last that it sees
    return visible, reading, t, index, index


@lru_cache(maxsize=64)
def positions(n: int, causal: bool = True, whole: bool = False) -> Positions:
    """The position axis of a sequence of n tokens, cached; `whole` keeps every position under a
    mask."""
    visible, reading, visible_by_token, last, start = _grid(n, causal, whole)
    count, weights = len(visible), reading.mean(0)
    key_mean = np.cumsum(reading, 0)[last] / visible[:, None]
    row_sum, row_sum_2 = (
        # from the last token down to the first that sees the key
        np.cumsum((reading / visible_by_token[:, None] ** power)[::-1], 0)[::-1][start]
        for power in (1, 2)
    )
    # `[pair] = [1 + position, position]`: row 0 pairs each position with itself, row 1 + i pairs
    # position i with each
    i = np.arange(count)
    first = np.vstack([i, np.repeat(i[:, None], count, 1)])
    second = np.tile(i, (count + 1, 1))
    close = 1 + i, i  # two different tokens at one position: the diagonal below row 0
    ones, averages = np.ones(first.shape), np.zeros((2, *first.shape))
    averages[0, 0], averages[1, 1:] = weights, np.outer(weights, weights)
    # all n² ordered pairs of positions, less the n tokens with themselves
    pair_mean = n / (n - 1) * averages[1]
    pair_mean[close] -= weights / (n - 1)
    # to one key: from a row with itself Σ 1/t², from two rows Σ 1/(t t′) over t ≠ t′
    by_two_rows = row_sum[:, :, None] * row_sum[:, None]
    collect_same = np.concatenate([row_sum_2[:, None], by_two_rows], 1)
    collect_same[:, close[0], close[1]] -= row_sum_2
    t, t_other = visible[first], visible
    return Positions(
        visible=visible,
        weights=weights,
        key_mean=key_mean,
        key_pair_mean=(key_mean[:, :, None] * key_mean[:, None]).reshape(count, -1),
        row_sum=row_sum,
        row_sum_2=row_sum_2,
        collect_same=collect_same.reshape(count, -1),
        first=first,
        second=second,
        shorter=np.minimum(first, second),
        longer=np.maximum(i, i[:, None]),
        ones=ones,
        ratio=np.minimum(t, t_other) / np.maximum(t, t_other),
        averages=averages.reshape(2, -1),
        pair_mean=pair_mean,
        pair_sum=n * averages[0] + n * (n - 1) * pair_mean,
        reading=reading,
        logit_factor=ones,
        unmasked=not causal,
    )


def axis_of(config: Config, scale: float) -> Positions:
    """The position axis of a config, with its rotary turns and its rows' factors on logits.

    Args:
        scale: `Gains.scale`, the factor on the variance of all logits.
    """
    causal = config.causal and config.design.attends
    axis = positions(config.n_ctx, causal, whole=causal and bool(bias_slopes(config)))
    by_row = axis.ones[0]
    if causal:
        by_row = np.square(config.design.row_factors)[axis.visible.astype(int) - 1]
    angles, turned = config.design.angles, config.design.rotated / config.d_head
    turns = _turns(config.n_ctx, causal, angles, turned) if angles else STILL
    return axis._replace(turns=turns, logit_factor=scale * axis.lift(by_row))


def bias_slopes(config: Config) -> tuple[float, ...]:
    """Slopes of ALiBi by head; none where the sequence is too long to keep all of its pairs."""
    return config.design.slopes if config.n_ctx <= LONGEST else ()


@lru_cache(maxsize=64)
def _turns(n: int, causal: bool, angles: tuple[float, ...], turned: float) -> Turns:
    """Mean cosines of rotary turns over a sequence of n tokens, cached.

    Over the pairs of a row's t keys Σ_{s ≠ s'} cos θ(s − s') = |Σ_s e^(iθs)|² − t, divided by t (t
    − 1); over pairs of rows likewise, each token weighted as `Positions.reading` reads it.

    Args:
        angles: θ in radians a token, one for each turned pair of coordinates.
        turned: part of a head's coordinates that turns.
    """
    axis = positions(n, causal)
    reading, t = axis.reading, np.arange(1.0, n + 1)[:, None]
    phase = np.exp(1j * np.outer(np.arange(n), angles))  # e^(iθs), [token, angle]
    # of a row's keys: |Σ_s e^(iθs)|², and with it the mean over its pairs
    energy = np.abs(np.cumsum(phase, 0)) ** 2
    by_token = np.where(t > 1, (energy - t) / np.maximum(t * (t - 1), 1), 1.0)
    keys = by_token[axis.visible.astype(int) - 1]  # [position, angle]

    # of two rows: sums over the tokens that each position stands for
    phase_sum, same, count = reading.T @ phase, reading.T @ reading, reading.sum(0)
    pairs = np.outer(count, count) - same  # without each token with itself
    total = (phase_sum[:, None] * phase_sum.conj()).real - same[..., None]
    mean = total / np.maximum(pairs, 1e-9)[..., None]
    rows = np.where(pairs[..., None] > 1e-9, mean, 1.0)  # [position, position, angle]
    # two rows have the keys of the shorter one in common
    both = rows * keys[axis.shorter[1:]]
    return Turns(*(1 - turned + turned * cosine.mean(-1) for cosine in (keys, rows, both)))
