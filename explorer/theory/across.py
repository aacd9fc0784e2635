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
from explorer.schemes.data import predicts_text
from explorer.theory.gains import Gains
from explorer.theory.grids import Array
from explorer.theory.inputs import BIGRAM, FREQUENT, followings, loss_gradient
from explorer.theory.tokens import Tokens

KINDS = 3
"""Of pairs of tokens: all, their mean overlap; then the excess of single pairs, and of whole windows."""
MIXED = np.array([1.0, 0.0, 1.0])[:, None, None]
"""Which of these attention passes on."""


class Grid(NamedTuple):
    """What differs with a mask and without one, where one position stands for all."""

    mean: Array
    """`[position]`: average over all tokens."""
    prefix: Array
    """`[position, position]`: average over the keys of a row."""
    suffix: Array
    """Its adjoint, from rows to keys."""
    square: Callable[[Any], Array]
    """What a norm divides by, `[position]`."""

    def attend(self, x: Array) -> Array:
        """Average over the keys of two rows, of `[..., position, position]`, as all pairs are here."""
        return x if len(self.mean) == 1 else self.prefix @ x @ self.prefix.T

    def collect(self, x: Array) -> Array:
        """The adjoint: from two rows to their keys."""
        return x if len(self.mean) == 1 else self.suffix @ x @ self.suffix.T


class Forward(NamedTuple):
    """Over the sublayers, `[sublayer, pair]`."""

    enter: Array
    """Factor on overlaps into the branch F, and so on: p → stay · p + join · F(enter · p)."""
    stay: Array
    join: Array
    added: Array
    """`join` without the branch's multiplier."""
    slopes: Array
    """`[layer, pair]`: through an MLP to its hidden units, of gradients' overlaps and small changes in the tokens'."""
    parts: dict[str, Array]
    """The same by the matrix that a hidden unit's factor comes from."""
    mlp: Array
    """`[layer, pair]`: past an MLP, of the same, on stream and branch together; one factor up and down."""
    inside: Array
    """Overlap of what the branch reads."""
    read: Array
    """Of what its last matrix reads."""
    last: float
    """After the last sublayer, mean over all pairs."""


def forward(config: Config, gains: Gains, steps: Sequence[Any], grid: Grid) -> Forward:
    """From the embedding: half of a token is its character's, half its position's."""
    enter, stay, join, added = _links(gains, steps, grid)
    square = gains.hidden * _pair([np.atleast_1d(step.inside.q) for step in steps[1::2]])
    p, inside, read = (FREQUENT + 1 / config.n_ctx) / 2 * np.ones_like(square[0]), [], []
    for index in range(len(steps)):
        x = p * enter[index]
        if index % 2 == 0:
            mixed, gain = gains.v * grid.attend(x), gains.o
        else:
            mixed, gain = gains.kernel.overlaps(square[index // 2], _rho(gains, x, square[index // 2]))[1], gains.out
        inside.append(x)
        read.append(mixed)
        p = stay[index] * p + join[index] * gain * mixed
    x = np.array(inside)
    rho = _rho(gains, x[1::2], square)
    slopes = gains.kernel.slopes(square, rho)[1]
    parts = {name: part(square, rho)[1] for name, part in zip(gains.readers, gains.kernel.parts, strict=True)}
    mlp = stay[1::2] + join[1::2] * gains.out * gains.hidden * slopes * enter[1::2]
    return Forward(enter, stay, join, added, slopes, parts, mlp, x, np.array(read), float(grid.mean @ p @ grid.mean))


def _pair(x: Sequence[Array] | Array) -> Array:
    """`[..., position]` to `[..., pair]`: the geometric mean at two positions."""
    root = np.sqrt(x)
    product: Array = root[..., :, None] * root[..., None, :]
    return product


def _rho(gains: Gains, x: Array, square: Array) -> Array:
    """Correlation of the inputs of two hidden units."""
    return np.clip(gains.hidden * x / square, 0.0, 1.0)


def _links(gains: Gains, steps: Sequence[Any], grid: Grid) -> tuple[Array, Array, Array, Array]:
    """`enter`, `stay`, `join` and `added`."""
    one = np.ones_like(grid.mean)
    on_input, on_output, on_sum = (
        _pair([grid.square(getattr(step, name)) if getattr(step.place, name) else one for step in steps])
        for name in ("on_input", "on_output", "on_sum")
    )
    scale = np.array([step.place.scale for step in steps])[:, None, None]
    enter, stay, added = scale**2 / on_input, gains.skip**2 / on_sum, 1 / (on_sum * on_output)
    if not gains.attends:
        enter[::2], stay[::2], added[::2] = 0.0, 1.0, 0.0
    return enter, stay, gains.branch**2 * added, added


def by_weights(config: Config, gains: Gains, steps: Sequence[Any], grid: Grid, last: Tokens, alike: Array, length: Array
               ) -> dict[str, Array]:
    """Terms of other sequences in the weights' gradients, see `totals`; none under the linear loss.

    Args:
        last: the tokens at the output.
        alike: as in `backward.Backward`.
        length: `[position]`, factor on a gradient's square through the final norm.
    """
    if not predicts_text(config):
        return {}
    tokens = forward(config, gains, steps, grid)
    _, every, own = loss_gradient(config, last._replace(p=tokens.last), FREQUENT)
    shape = _pair([length])[0]
    query = _pair(alike.reshape(-1, len(grid.mean)))
    return totals(config, gains, tokens, query, (every * shape, own * shape), grid)


def totals(config: Config, gains: Gains, tokens: Forward, query: Array, start: tuple[Array, Array], grid: Grid
           ) -> dict[str, Array]:
    """Terms added to the totals of `parameters.norms`, `[layer]`: of other sequences' tokens, of correlated factors.

    Args:
        tokens: the forward pass.
        query: by layer, the gradient's overlap before an attention, through the queries that keys which are alike
            share, over that after it.
        start: at the last sublayer's output two gradients' mean overlap, and the excess of those of one next character.
    """
    n, others = config.n_ctx, (config.batch_size - 1) * config.n_ctx**2
    followed, varied = followings(n)
    pairs = np.array([others, (n - 1) * n * followed + others * (BIGRAM - FREQUENT**2), (n - 1) * n * varied])
    gradient = np.array([start[0], start[1], start[1]])
    query = np.array([1.0, 0.0, 0.0])[:, None, None] * query[:, None]
    inside, read = _excess(gains, tokens, grid)
    after = _descend(gains, tokens, gradient, query, grid)
    weights = np.einsum("k,i,j->kij", pairs, grid.mean, grid.mean)

    def total(*factors: Array) -> Array:
        found: Array = np.einsum("lkij,kij->l", np.prod(np.broadcast_arrays(*factors), 0), weights)
        return found

    joined, added = tokens.join[:, None] * after, tokens.added[:, None] * after
    last, units = np.array([gains.o, gains.out] * config.n_layers), gains.out * gains.d_model / gains.d_mlp
    return {
        "W_Q": total(inside[::2], query, joined[::2]),
        "W_O": total(read[::2], joined[::2]),
        **{name: units * total(part[:, None], inside[1::2], joined[1::2]) for name, part in tokens.parts.items()},
        "W_out": total(read[1::2], joined[1::2]),
        "alpha": last * total(read, added),
    }


def _excess(gains: Gains, tokens: Forward, grid: Grid) -> tuple[Array, Array]:
    """By kind, `[sublayer, kind, pair]`, overlaps in what a branch reads and in what its last matrix reads.

    The excesses are small changes, carried on; of half a token, which is its character's.
    """
    own, stream, gain = np.full((KINDS - 1, *tokens.enter[0].shape), 0.5), [], gains.v * gains.o
    columns = (tokens.enter[::2], tokens.stay[::2], tokens.join[::2], tokens.mlp)
    for enter, stay, join, mlp in zip(*columns, strict=True):
        stream.append(own)
        own = stay * own + MIXED[1:] * (join * gain * grid.attend(enter * own))
        stream.append(own)
        own = own * mlp
    inside = np.array(stream) * tokens.enter[:, None]
    read = MIXED[1:] * (gains.v * grid.attend(inside))
    read[1::2] = gains.hidden * tokens.slopes[:, None] * inside[1::2]
    mean = tokens.inside[:, None], tokens.read[:, None]
    return np.concatenate([mean[0], inside], 1), np.concatenate([mean[1], read], 1)


def _descend(gains: Gains, tokens: Forward, gradient: Array, query: Array, grid: Grid) -> Array:
    """The backward recursion, `[sublayer, kind, pair]`: gradients after each sublayer."""
    after: list[Array] = []
    enter, join = tokens.enter[::2], tokens.join[::2]
    keep = tokens.stay[::2, None] + (enter * join)[:, None] * query
    collected = gains.v * gains.o * enter[:, None] * MIXED
    for layer in range(len(tokens.mlp) - 1, -1, -1):
        after.append(gradient)
        gradient = gradient * tokens.mlp[layer]
        after.append(gradient)
        gradient = keep[layer] * gradient + collected[layer] * grid.collect(join[layer] * gradient)
    return np.array(after[::-1])
