"""Overlaps of tokens in different sequences, forward and back, for the loss on real text.

Two tokens of different sequences may be the same character, may stand at the same position, and may be followed by the
same character. So neither they nor their gradients are independent, and ∂L/∂W sums over the pairs of the whole batch.
The recursions are those within a sequence, without what two rows share by attending to the same keys.

And what two tokens share goes together with what their gradients share: pairs of one character are followed by one
character more often than others, and windows that repeat themselves have more of both. The excess over the mean is
carried on as a small change; attention mixes that of single pairs away, and passes that of whole windows on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from explorer.config import Config
from explorer.schemes.closed_forms import Kernel
from explorer.theory.gains import Gains
from explorer.theory.grids import Array
from explorer.theory.inputs import BIGRAM, FREQUENT, followings

Overlap = Any
"""Of two tokens of different sequences: a float, or `[position, position]` under a causal mask."""


class Ways(NamedTuple):
    """Operations that differ with and without a mask."""

    square: Callable[[Any], Overlap]
    """A norm's square, for two tokens."""
    pair: Callable[[Any], Overlap]
    """The geometric mean of a quantity at two tokens."""
    kernel: Callable[[Kernel, Overlap, Overlap], Overlap]
    """Overlap after the MLP's activation, of inputs of a second moment and an overlap."""
    attend: Callable[[Overlap], Overlap]
    """Average over the keys of two rows."""
    collect: Callable[[Overlap], Overlap]
    """The adjoint: from two rows to their keys."""
    mean: Callable[[Array], Array]
    """Over the pairs of tokens, of `[layer]` or `[layer, position, position]`."""
    each: Callable[[Array], list[Overlap]]
    """The layers' entries."""


class Forward(NamedTuple):
    """Over the sublayers, `[sublayer, …]`."""

    enter: Array
    """Factor on overlaps into the branch F, and so on: p → stay · p + join · F(enter · p)."""
    stay: Array
    join: Array
    added: Array
    """`join` without the branch's multiplier."""
    slopes: Array
    """`[layer, …]`: through an MLP to its hidden units, of gradients' overlaps and of small changes in the tokens'."""
    mlp: Array
    """`[layer, …]`: past an MLP, of the same, on stream and branch together; one factor up and down."""
    inside: Array
    """Overlap of what the branch reads."""
    read: Array
    """Of what its last matrix reads."""
    last: Overlap


def forward(config: Config, gains: Gains, steps: Sequence[Any], ways: Ways) -> Forward:
    """From the embedding: half of a token is its character's, half its position's."""
    unit = 0 * ways.pair(steps[0].inside.q) + 1
    p, squares, inside, read = (FREQUENT + 1 / config.n_ctx) / 2 * unit, [], [], []
    links = [_link(gains, step, index, unit, ways) for index, step in enumerate(steps)]
    for index, (step, (enter, stay, join, _)) in enumerate(zip(steps, links, strict=True)):
        x = p * enter
        if index % 2 == 0:
            mixed, gain = gains.v * ways.attend(x), gains.o
        else:
            squares.append(gains.hidden * ways.pair(step.inside.q))
            mixed, gain = ways.kernel(gains.kernel, squares[-1], gains.hidden * x), gains.out
        inside.append(x)
        read.append(mixed)
        p = stay * p + join * gain * mixed
    enter, stay, join, added = (np.array(column) for column in zip(*links, strict=True))
    square, x = np.array(squares), np.array(inside)
    slopes = gains.kernel.slopes(square, np.clip(gains.hidden * x[1::2] / square, 0.0, 1.0))[1]
    mlp = stay[1::2] + join[1::2] * gains.out * gains.hidden * slopes * enter[1::2]
    return Forward(enter, stay, join, added, slopes, mlp, x, np.array(read), p)


def _link(gains: Gains, step: Any, index: int, unit: Overlap, ways: Ways) -> tuple[Overlap, ...]:
    """`enter`, `stay`, `join` and `added` of a sublayer."""
    if index % 2 == 0 and not gains.attends:
        return 0 * unit, unit, 0 * unit, 0 * unit
    place = step.place
    enter = place.scale**2 / ways.square(step.before) if place.on_input else 1.0
    after = ways.square(step.after) if place.on_sum else 1.0
    added = 1 / (after * ways.square(step.behind)) if place.on_output else 1 / after
    return enter * unit, gains.skip**2 / after * unit, gains.branch**2 * added * unit, added * unit


def totals(config: Config, gains: Gains, tokens: Forward, query: Array, start: tuple[Overlap, Overlap], ways: Ways
           ) -> dict[str, Array]:
    """Terms added to the totals of `parameters.norms`: by other sequences' tokens, and by correlated factors.

    Args:
        tokens: the forward pass.
        query: by layer, the gradient's overlap before an attention, through the queries that keys which are alike
            share, over that after it.
        start: at the last sublayer's output two gradients' mean overlap, and the excess of those of one next character.
    """
    n, others = config.n_ctx, (config.batch_size - 1) * config.n_ctx**2
    followed, varied = followings(n)
    parts = (
        _sums(gains, tokens, (tokens.inside, tokens.read), start[0], query, ways.collect, others, ways),
        _sums(gains, tokens, _excess(gains, tokens, _mixed_away, ways), start[1], 0 * query, _mixed_away,
              (n - 1) * n * followed + others * (BIGRAM - FREQUENT**2), ways),
        _sums(gains, tokens, _excess(gains, tokens, ways.attend, ways), start[1], 0 * query, ways.collect,
              (n - 1) * n * varied, ways),
    )
    return {name: ways.mean(np.sum([part[name] for part in parts], axis=0)) for name in parts[0]}


def _mixed_away(overlap: Overlap) -> Overlap:
    return 0 * overlap


def _excess(gains: Gains, tokens: Forward, attend: Callable[[Overlap], Overlap], ways: Ways) -> tuple[Array, Array]:
    """Overlaps above the mean, in what a branch reads and in what its last matrix reads: small changes, carried on."""
    own, stream, gain = 0.5 + 0 * tokens.last, [], gains.v * gains.o
    columns = (tokens.enter[::2], tokens.stay[::2], tokens.join[::2], tokens.mlp)
    for enter, stay, join, mlp in zip(*map(ways.each, columns), strict=True):
        stream.append(own)
        own = stay * own + join * gain * attend(enter * own)
        stream.append(own)
        own = own * mlp
    inside = np.array(stream) * tokens.enter
    read = gains.v * attend(inside)
    read[1::2] = gains.hidden * tokens.slopes * inside[1::2]
    return inside, read


def _sums(gains: Gains, tokens: Forward, forward: tuple[Array, Array], gradient: Overlap, query: Array,
          collect: Callable[[Overlap], Overlap], pairs: float, ways: Ways) -> dict[str, Array]:
    """The backward recursion of one kind of pairs, and (x·x′)(δ·δ′) times their number, by matrix `[layer, …]`."""
    (x, read), after, gain = forward, [], gains.v * gains.o
    keep = tokens.stay[::2] + tokens.enter[::2] * tokens.join[::2] * query
    columns = (tokens.enter[::2], tokens.join[::2], keep, tokens.mlp)
    for enter, join, kept, mlp in zip(*(reversed(ways.each(column)) for column in columns), strict=True):
        after.append(gradient)
        gradient = gradient * mlp
        after.append(gradient)
        gradient = kept * gradient + gain * enter * collect(join * gradient)
    total = np.array(after[::-1]) * pairs
    joined = tokens.join * total
    computed = tokens.added * read * total
    computed[::2], computed[1::2] = gains.o * computed[::2], gains.out * computed[1::2]
    return {
        "W_Q": x[::2] * query * joined[::2],
        "W_O": read[::2] * joined[::2],
        "W_in": gains.out * gains.d_model / gains.d_mlp * tokens.slopes * x[1::2] * joined[1::2],
        "W_out": read[1::2] * joined[1::2],
        "alpha": computed,
    }
