"""How far draws scatter around a typical one.

In each sublayer a second moment, or a gradient's square, is multiplied by a factor that depends on
the draw. The logarithm of the product is about normal over draws. Let V be its variance: the mean
over draws is e^(V/2) times the typical draw, and two of three draws are within e^(±√V) of that.
Hanin & Nica 2018 (arXiv 1812.05994) have V for plain stacks of ReLUs. For sums of a stream and a
branch it follows here from predicted means.

Three modes share the energy of a signal, its square: what all tokens of a batch have in common,
what those of one sequence have in common beyond that, and the rest. They meet the same weights in
different directions, which is as if each had weights of its own; and the more directions a mode
has, the less it scatters. In one mode, let E be the energy of the stream, F that of the branch, and
s² and b² the factors on them in the sum. With f = b² F / (s² E + b² F) and δ the deviation of a
logarithm from its mean in one draw,

    δ of the sum = (1 − f) δ_E + f δ_F + ε,    Var ε = [4 f (1 − f) / d + c f²] / directions.

The first term of ε is the product of stream and branch, whose mean is 0. The second is the length
of the branch: c is `Gains.noise`, for instance 2/d for each Gaussian matrix. δ_F follows from the
branch's input:

- Attention averages the values: what its output has in common comes of what the tokens have in
  common, and the rest of the rest.
- Hidden units have something in common even where the tokens have nothing. As much of the kernel E
  φφ′ as does not depend on the correlation follows the energy of all modes together.
- A norm divides by the length that this draw has, so the length's deviation is subtracted: forward
  the scatter ends there, backward it enters once more.

The same holds of ∂L/∂x on the way back, where two sequences have nothing in common, and logits are
a path of their own (`by_rows`).

Of several designs side by side (see `several`) the axis of designs stands before the modes here:
`[signal]` is `[signal, design]`, and `[signal, mode]` is `[signal, design, mode]`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from explorer.config import Config
from explorer.schemes.placement import Part
from explorer.theory.attention import stack
from explorer.theory.backward import Backward
from explorer.theory.forward import Steps
from explorer.theory.gains import Gains
from explorer.theory.positions import Positions
from explorer.theory.several import at_least
from explorer.theory.tokens import State, ratio
from explorer.vocabulary import Array

IDENTITY = np.eye(3)
"""Deviations that each mode keeps to itself."""
NODES = np.linspace(0.0, 1.0, 17)
"""Correlations at which a kernel is tabulated."""
TURNS = 3
"""Steps of the iteration for a causal mask's common mode."""
BY_LOGITS = 8.0
"""Variance of the length of a gradient that passed four Gaussian matrices, times their width."""
TIED = 2.0
"""Factor on `by_rows`: a layer's gradient gathers in rows whose two largest weights are nearly
tied, which are fewer than all rows. Fitted to 64 draws of Pre-LN and Peri-LN, width 32 and 64, 4 to
24 layers."""
LINE = 0.3
"""Error of the logarithm of a typical draw, over V: over 48 draws of 110 designs of width 32 to 128
and 1 to 48 layers, ln(predicted / seen) was between −.5 V and .2 V in four of five whose V was
above .2."""
TINY = 1e-12
"""Part of the energy that a mode has at least."""


class Scatter(NamedTuple):
    """Variances over draws of the natural logarithm, of N layers in 2N sublayers."""

    stream: Array
    """`[2N + 1]`: of the second moment at the embedding and after each sublayer."""
    branch: Array
    """`[2N]`: of the second moment of each branch's term of the sum."""
    gradient: Array
    """`[2N + 1]`: of the mean square of ∂L/∂x over that at the last layer. This and the next are
    empty without a `Backward`."""
    weights: Array
    """`[2N]`: of the square of ‖∂L/∂W‖, of each sublayer's matrices but W_Q and W_K."""
    queries: Array
    """`[N]`: as `weights`, of W_Q and W_K."""


class Spread(NamedTuple):
    """Second moments of some signals, and how evenly tokens have them: `[signal]` each."""

    square: Array
    """Mean over the tokens."""
    common: Array
    """Part of `square` along the direction that a sequence's tokens have in common."""
    tokens: Array
    """Number of tokens of equal size that would scatter as these do."""


def spread(axis: Positions, y: Array, n: int) -> Spread:
    """The part of each signal that the tokens of a sequence have in common.

    It is the largest eigenvalue of their overlaps, over n. Without a mask that is p + (q − p)/n;
    with one the eigenvector is found by iteration, from tokens that are all alike.

    Args:
        y: `[signal, 1 + position, position]`, second moments in row 0, overlaps below.
        n: tokens of a sequence.
    """
    if axis.last == -2:  # designs before the positions
        y = np.ascontiguousarray(np.moveaxis(y, -1, 1))
    q, p = y[..., 0, :], y[..., 1:, :]
    if axis.unmasked:
        q, p = q[..., 0], p[..., 0, 0]
        return Spread(q, np.clip(p + (q - p) / n, 0.0, q), np.full(q.shape, float(n)))
    square = q @ axis.weights
    root = np.sqrt(axis.weights)
    matrix = root[:, None] * p * root
    # a token with itself has q where two tokens of its position have p
    matrix += np.eye(len(root)) * ((q - p.diagonal(0, -2, -1)) / n)[..., None]
    vector = np.sqrt(q) * root
    for _ in range(TURNS):
        vector = np.einsum("...ij,...j->...i", matrix, vector)
        length = np.linalg.norm(vector, axis=-1, keepdims=True)
        vector = ratio(vector, np.broadcast_to(length, vector.shape))
    common = np.einsum("...i,...ij,...j->...", vector, matrix, vector)
    evenness = np.where(square > 0, ratio(square**2, q**2 @ axis.weights), 1.0)
    return Spread(square, np.clip(common, 0.0, square), n * evenness)


def modes(tokens: Spread, between: Array, batch: Any) -> Array:
    """Energies of the three modes, `[signal, mode]`: of the batch, of a sequence, the rest.

    Args:
        between: `[signal]`, overlap of two sequences' tokens over the second moment.
    """
    shared = (tokens.common + (batch - 1) * between * tokens.square) / batch
    shared = np.minimum(shared, tokens.common)
    rest = tokens.square - tokens.common
    energy = np.stack([shared, tokens.common - shared, rest], axis=-1)
    return np.asarray(np.maximum(energy, TINY * tokens.square[..., None]))


def directions(tokens: Array, batch: Any, alike: Array | float) -> Array:
    """Number of directions of each mode, `[signal, mode]`.

    Args:
        tokens: `[signal]`, of a sequence.
        alike: `[signal]`, mean square of the correlation of two tokens beyond what all have in
            common and what chance makes: of text, where characters return.
    """
    sequences = np.broadcast_to(at_least(batch - 1.0, 1.0), tokens.shape)
    rest = 1 / (1 / (batch * np.maximum(tokens - 1, 1.0)) + alike)
    return np.stack([np.ones_like(tokens), sequences, rest], axis=-1)


def shares(energy: Array) -> Array:
    """Parts of the modes in all energy, `[..., mode]`; 0 where there is none."""
    return ratio(energy, np.broadcast_to(energy.sum(-1, keepdims=True), energy.shape))


def by_sublayer(axis: Positions, values: Iterable[Any]) -> Array:
    """Numbers by sublayer, `[sublayer]`."""
    return axis.column(values)[:, 0, 0]


def by_design(number: Any) -> Array:
    """A number that multiplies modes, `[…, 1]`."""
    return np.asarray(number)[..., None]


def at_nodes(x: Any, values: Array) -> Any:
    """A function of `NODES`, linear between them, at x: `[…]` of values `[…, node]`."""
    if values.ndim == 1:
        return float(np.interp(x, NODES, values))
    place = np.fmin(np.fmax(x, 0.0), 1.0) * (len(NODES) - 1)
    low = np.minimum(place.astype(int), len(NODES) - 2)
    node = np.arange(low.size).reshape(low.shape) * len(NODES) + low
    below, above = values.take(node), values.take(node + 1)
    return below + (place - low) * (above - below)


class Sums:
    """Each sum of stream and branch, as deviations of the modes pass it on the way forward.

    Args:
        first: the embedding.
    """

    def __init__(
        self, config: Config, gains: Gains, axis: Positions, steps: Steps, first: State
    ) -> None:
        self.gains, self.axis, self.steps = gains, axis, steps
        count, batch, n = len(steps), gains.batch_size, config.n_ctx
        width = by_design(gains.d_model)
        self.mlp = by_sublayer(axis, np.arange(count) % 2 == 1)
        present = by_sublayer(axis, [step.present for step in steps])
        skip, scale = (by_sublayer(axis, by[:count]) for by in (gains.skip, gains.branch))
        self.skip = np.where(present, skip**2, 1.0)[..., None]
        """Factor s² on the stream."""
        factor = np.where(present, scale**2, 0.0)[..., None]
        stream = spread(axis, np.concatenate([first.y[None], steps.site]), n)
        branch = spread(axis, steps.added, n)
        kernel = self._kernel()
        start = first.mean.rho if config.design.reads_text else 0.0
        overlap, of_branch = self._between(stream, branch, factor[..., 0], kernel, start)
        self.energy = modes(stream, overlap, batch)
        """`[2N + 1, mode]`: of the stream."""
        added = modes(branch, of_branch, batch)
        total = self.skip * self.energy[:-1] + factor * added
        self.total = shares(total)
        """`[2N, mode]`: parts of the modes in the sum, before a norm on it."""
        self.input = shares(self.energy[:-1])
        """`[2N, mode]`: parts of the modes in the stream before the sublayer."""
        self.output = shares(added)
        """`[2N, mode]`: parts of the modes in the branch."""
        self.on_sum, self.on_output = self._normed("sum"), self._normed("output")
        self.at_input = self._normed("input", "values")
        self.degree = np.where(self.mlp, gains.degree, 1.0)
        """`[2N]`: power with which the branch grows with its input."""
        self.own = np.where(self.mlp, gains.noise[1], gains.noise[0])[..., None]
        """Variance c of a branch's length."""
        f = ratio(factor * added, total)
        alike = by_sublayer(axis, [first.mean.v, *(step.site.v for step in steps)])
        alike = np.maximum(alike - 1 / gains.d_model, 0.0)
        self.directions = directions(branch.tokens, batch, alike[1:])
        self.follows, self.divided = self._follows(
            kernel, overlap[:-1], ratio(stream.common, stream.square), added
        )
        """`[2N, mode, mode]`: deviations of the branch, by those of the stream before it; and
        `[2N, mode]`: of the length that a norm on the branch divides by, 0 without one."""
        own = np.where(self.on_output[..., None], 0.0, self.own)
        self.of_branch = own / self.directions
        """`[2N, mode]`: variance of the branch's length."""
        crossed = 4 * f * (1 - f) / width / self.directions
        self.fresh = crossed + self.of_branch * f**2
        """`[2N, mode]`: Var ε."""
        self.passes = IDENTITY * (1 - f)[..., None, :] + f[..., None] * self.follows
        """`[2N, mode, mode]`: deviations of the sum, by those of the stream before it."""
        at_start = 2 / width / directions(stream.tokens[:1], batch, alike[:1])[0]
        self.start = IDENTITY * at_start[..., None]
        """`[mode, mode]`: covariance of the embedding's deviations."""

    def _normed(self, *parts: Part) -> Array:
        """Whether a norm stands on one of these signals of a sublayer, `[2N]`; a function in a
        norm's place does not divide."""
        divides = not self.gains.point
        has = [divides and step.placement.has(*parts) for step in self.steps]
        return by_sublayer(self.axis, has)

    def _kernel(self) -> Array:
        """Correlation of the hidden units of two tokens, of the correlations `NODES`: `[layer,
        node]`."""
        # designs last, as the kernel has them
        square = self.axis.total(self.axis.weights, self.steps.inside[1::2, 0])[:, None]
        rho = np.zeros_like(square) + NODES.reshape(-1, *[1] * (square.ndim - 2))
        own, overlap = self.gains.kernel.overlaps(*self.gains.units(square + 0 * rho, rho))
        correlation = ratio(overlap, own)
        return np.asarray(correlation if rho.ndim == 2 else np.swapaxes(correlation, 1, 2))

    def _between(
        self, stream: Spread, branch: Spread, factor: Array, kernel: Array, start: Any
    ) -> tuple[Array, Array]:
        """Overlap of the tokens of two sequences over their second moment: `[2N + 1]` of the
        stream, `[2N]` of the branches.

        Hidden units, whose mean is not 0, bring it; attention keeps of it what it keeps of a
        sequence's common part.

        Args:
            start: that of the inputs, whose characters return.
        """
        mixed = ratio(branch.common * stream.square[:-1], branch.square * stream.common[:-1])
        part = factor * branch.square
        part = ratio(part, self.skip[..., 0] * stream.square[:-1] + part)
        overlap: Any = np.zeros_like(part[0]) + start
        if part.ndim == 1:  # Python's numbers are quicker
            overlap, part, mixed = float(overlap), part.tolist(), mixed.tolist()
        overlaps, of_branches = [overlap], []
        for index in range(len(part)):
            if index % 2:
                of_branch = at_nodes(overlap, kernel[index // 2])
            else:
                of_branch = overlap * mixed[index]
            overlap = overlap + part[index] * (of_branch - overlap)
            of_branches.append(of_branch)
            overlaps.append(overlap)
        return np.array(overlaps), np.array(of_branches)

    def _follows(
        self, kernel: Array, between: Array, common: Array, added: Array
    ) -> tuple[Array, Array]:
        """See `follows` and `divided`.

        Args:
            between: `[2N]`, overlap of two sequences' tokens before each sublayer.
            common: `[2N + 1]`, part of the second moment that is common to a sequence.
            added: `[2N, mode]`, energies of the branches.
        """
        out = np.zeros((*added.shape, 3)) + IDENTITY
        if len(kernel):
            # what does not depend on the correlation ρ: k − ρ k′
            constant = kernel - NODES * np.gradient(kernel, NODES, axis=-1)
            at = at_nodes(between[1::2], constant), at_nodes(common[1:-1:2], constant)
            out[1::2] = self._of_hidden_units(*at)
        length = np.where(self.at_input[..., None], self.input, 0.0)
        grows = np.where(self.at_input, 0.0, self.degree - 1)[..., None] * self.input
        out += (grows - length)[..., None, :]
        length = np.einsum("...k,...km->...m", self.output, out)
        divided = np.where(self.on_output[..., None], length, 0.0)
        return out - divided[..., None, :], divided

    def _of_hidden_units(self, of_batch: Array, of_sequence: Array) -> Array:
        """Deviations of hidden units' modes by those of the tokens before them, `[layer, mode,
        mode]`.

        Args:
            of_batch: `[layer]`, part of their energy that the overlap of two sequences would have
                without any; `of_sequence` likewise for two tokens of a sequence.
        """
        output, energy = self.output[1::2], self.input[1::2]
        nested = []  # energy of the batch's mode, and of it with the sequences' mode
        for part, count in ((of_batch, 1), (of_sequence, 2)):
            size = output[..., :count].sum(-1)
            part = np.minimum(part, size)[..., None]
            own = np.where(np.arange(3) < count, energy, 0.0)
            nested.append(part * energy + (size[..., None] - part) * shares(own))
        rows = np.stack([nested[0], nested[1] - nested[0], energy - nested[1]], axis=-2)
        scale = np.maximum(output, 1e-6)[..., None]
        return np.asarray(np.where(output[..., None] > 1e-6, rows / scale, IDENTITY))


def without_length(parts: Array) -> Array:
    """Deviations after a norm by those before it, `[..., mode, mode]`: it divides by the length of
    a signal whose modes have these `parts`, `[..., mode]`."""
    return IDENTITY - parts[..., None, :]


def through(matrices: Array, covariances: Array) -> Array:
    """Covariances `[..., mode, mode]` of deviations that these matrices pass on."""
    return np.asarray(matrices @ covariances @ np.swapaxes(matrices, -1, -2))


def variance(covariances: Array, parts: Array) -> Array:
    """Variance of the logarithm of a sum of modes that have these `parts` of it, `[...]`."""
    sums = np.einsum("...i,...ij,...j->...", parts, covariances, parts)
    return np.asarray(np.maximum(sums, 0.0))  # rounding may leave less


def product(matrix: Array) -> Callable[[Array, Array], Array]:
    """The matrix product for matrices like this one: numpy is quicker where it is a single one."""
    return np.ndarray.dot if matrix.ndim == 2 else np.matmul


def accumulated(start: Array, matrices: Array, fresh: Array) -> Array:
    """Covariances after each of some steps, the first being `start`: `[step + 1, mode, mode]`."""
    out = np.empty((len(fresh) + 1, *start.shape))
    out[0] = covariance = start
    transposed, times = np.swapaxes(matrices, -1, -2), product(start)
    for index, (matrix, after, new) in enumerate(zip(matrices, transposed, fresh, strict=True)):
        covariance = times(times(matrix, covariance), after) + new
        out[index + 1] = covariance
    return out


def by_rows(gains: Gains, steps: Steps, axis: Positions) -> Array:
    """Relative variance of the square of the gradient through one row of attention, `[N]`.

    The square is Σ A_j² (u_j − Σ A u)² over the row's keys, of random u. Its relative variance is
    about 2.5 Y2 where weights A are even, Y2 = ΣA², and grows with the standard deviation s of the
    logits: 2.5 Y2 + .7 s²/(1 + s) is within 30 % for 8 to 64 keys and s up to 8. The keys' own
    lengths have 2/d_head more."""
    layers = [step.attention for step in steps if step.attention]
    if not layers:
        return np.zeros_like(steps.total[::2, 0])
    even = 2.5 * axis.total(axis.weights, stack([layer.overlap[0] for layer in layers]))
    s = stack([layer.logits.s for layer in layers]).reshape(len(layers), -1, *even.shape[1:]).max(1)
    return np.asarray(TIED * (even + 0.7 * s * s / (1 + s) + 2 / gains.d_head))


class Gradients:
    """Gradients by each sum, as deviations of the modes pass them on the way back.

    Args:
        back: gradients relative to the last layer's.
        overlap: of two tokens' gradients by the output of the stack, over their square: what they
            have in common over sequences, too.
    """

    def __init__(self, config: Config, sums: Sums, back: Backward, overlap: Any) -> None:
        axis, gains = sums.axis, sums.gains
        batch, n, d = gains.batch_size, config.n_ctx, by_design(gains.d_model)
        stream, at_sum = spread(axis, back.site, n), spread(axis, back.total, n)
        # over sequences gradients have as much of the common part in common as at the output
        shared = overlap * stream.square[-1] / stream.common[-1]
        energy = modes(stream, shared * ratio(stream.common, stream.square), batch)
        total = modes(at_sum, shared * ratio(at_sum.common, at_sum.square), batch)
        self.stream, self.total = shares(energy), shares(total)
        """`[2N + 1, mode]` and `[2N, mode]`: parts of the modes in the gradient by the stream, and
        by the sums before a norm on them."""
        skipped = sums.skip * total
        through = np.maximum(energy[:-1] - skipped, 0.0)
        b = ratio(through, through + skipped)
        """`[2N, mode]`: part of a gradient before a sublayer that came through the branch."""
        # tokens of one target have one gradient, and each matrix turns all of them to each other
        turned = np.zeros_like(stream.square)
        turned[:-1] = np.cumsum(b[::-1, ..., 2], 0)[::-1] / gains.d_model
        overlap = at_least(overlap, 0.0)
        alike = overlap * (1 - overlap) + turned
        self.directions = directions(stream.tokens, batch, np.minimum(alike, 1.0))
        """`[2N + 1, mode]`: of the gradient in the stream."""
        logits = np.zeros((*at_sum.square.shape, 1))
        logits[::2, ..., 0] = back.by_logits
        by_logits = _of_rest_first(logits * through.sum(-1, keepdims=True), through)
        gathered = b * by_logits
        """`[2N, mode]`: part that came through logits, which follows all modes of the gradient."""
        self.passes = IDENTITY * (1 - gathered)[..., None]
        self.passes += gathered[..., None] * self.total[..., None, :]
        """`[2N, mode, mode]`: deviations before a sublayer, by those at its sum."""
        rows = np.zeros_like(logits)
        rows[::2, ..., 0] = by_rows(gains, sums.steps, axis) / gains.n_heads
        self.of_logits = (BY_LOGITS / d + rows) / self.directions[:-1]
        """`[2N, mode]`: variance of the gradient through logits."""
        self.of_branch = sums.own / self.directions[:-1]
        """`[2N, mode]`: variance of the gradient through the branch's other matrices."""
        crossed = 4 * b * (1 - b) / d / self.directions[:-1]
        own = self.of_branch * (1 - by_logits) + self.of_logits * by_logits
        fresh = crossed + own * b**2
        # a norm on the branch divides by its length, whose scatter all modes have in common
        lengths = sums.output**2 * sums.own / sums.directions
        lengths = np.where(sums.on_output, lengths.sum(-1), 0.0)
        self.fresh = IDENTITY * fresh[..., None]
        self.fresh += lengths[..., None, None] * b[..., None] * b[..., None, :]
        """`[2N, mode, mode]`: covariance of ε."""
        self.lengthens = self._lengthens(sums, b, gathered)
        """`[2N, mode, mode]`: deviations before a sublayer, by those of the stream there."""

    def by_lengths(self, sums: Sums, norm: Array) -> tuple[Array, Array]:
        """Deviations of gradients by those of the stream at the same site, `[2N + 1, mode, mode]`,
        and by those of each sum before a norm on it, `[2N, mode, mode]`: for norms above divide by
        lengths.

        Args:
            norm: `[2N, mode, mode]`, deviations after the norm on a sum by those before it.
        """
        on_sums = np.empty_like(self.passes)
        on_sites = np.zeros((len(on_sums) + 1, *on_sums.shape[1:]))
        length = np.where(sums.on_sum[..., None, None], sums.total[..., None, :], 0.0)
        times = product(norm[0])
        for index in reversed(range(len(on_sums))):
            on_sum = times(on_sites[index + 1], norm[index]) - length[index]
            on_sums[index] = on_sum
            on_stream = times(times(self.passes[index], on_sum), sums.passes[index])
            on_sites[index] = on_stream + self.lengthens[index]
        return on_sites, on_sums

    def _lengthens(self, sums: Sums, b: Array, by_logits: Array) -> Array:
        """See `lengthens`. A norm before the branch divides its gradient by the length; without
        one, slopes of hidden units and of logits grow with it. A norm after the branch divides by
        the branch's length.

        Args:
            b: `[2N, mode]`, part of the gradient that came through the branch.
            by_logits: `[2N, mode]`, part that came through the logits.
        """
        squared = np.zeros_like(b) if sums.gains.qk_norm else 2 * by_logits
        power = np.where(sums.mlp[..., None], 2 * (sums.degree[..., None] - 1) * b, squared)
        power = np.where(sums.at_input[..., None], -b, power)
        by_input = power[..., None] * sums.input[..., None, :]
        return np.asarray(by_input - b[..., None] * sums.divided[..., None, :])


def _of_rest_first(part: Array, energy: Array) -> Array:
    """Shares of the modes' energies that make this part of all energy, `[..., mode]`, from the mode
    of the rest first: of logits the parts that tokens have in common drop out.

    Args:
        part: `[..., 1]`.
    """
    rest = energy[..., 2:]
    of_rest = np.minimum(part, rest)
    of_common = ratio(part - of_rest, energy[..., :2].sum(-1, keepdims=True))
    return np.concatenate([of_common, of_common, ratio(of_rest, rest)], axis=-1)


def scatter(
    config: Config,
    gains: Gains,
    axis: Positions,
    steps: Steps,
    first: State,
    back: Backward | None,
    overlap: Any = 0.0,
) -> Scatter:
    """Variances of the logarithm over draws.

    Args:
        first: the embedding.
        back: gradients relative to the last layer's; None where they are not wanted.
        overlap: see `Gradients`.
    """
    sums = Sums(config, gains, axis, steps, first)
    fresh = IDENTITY * sums.fresh[..., None]
    norm = np.where(sums.on_sum[..., None, None], without_length(sums.total), IDENTITY)
    forward = norm @ sums.passes
    at_sites = accumulated(sums.start, forward, through(norm, fresh))
    stream = variance(at_sites, shares(sums.energy))
    of_output = np.einsum("...k,...km->...m", sums.output, sums.follows)
    branch = variance(at_sites[:-1], of_output) + (sums.output**2 * sums.of_branch).sum(-1)
    if back is None:
        return Scatter(stream, branch, *[np.empty(0)] * 3)

    gradients = Gradients(config, sums, back, overlap)
    on_sites, on_sums = gradients.by_lengths(sums, norm)
    fresh_back = gradients.fresh + through(gradients.passes, through(on_sums, fresh))
    last = without_length(gradients.stream[-1])  # the gradient there is the unit
    at_last = 2 / by_design(gains.d_model) / gradients.directions[-1]
    start = through(last, IDENTITY * at_last[..., None])
    from_last = accumulated(start, gradients.passes[::-1], fresh_back[::-1])[::-1]
    gradient = variance(from_last, gradients.stream)
    gradient += variance(at_sites, np.einsum("...i,...ij->...j", gradients.stream, on_sites))

    # a matrix's gradient is Σ h xᵀ over the tokens, mode by mode over its directions: of h at the
    # sum, and x in the branch's input
    reads = shares(gradients.total * sums.input / gradients.directions[:-1])
    at_sums = through(sums.passes, at_sites[:-1]) + fresh
    of_input = reads - np.where(sums.at_input[..., None], sums.input, 0.0)
    at_sum = variance(from_last[1:], reads) + variance(at_sites[:-1], of_input)
    at_sum += variance(at_sums, np.einsum("...i,...ij->...j", reads, on_sums))
    if gains.final and not gains.point:  # it divides by the last stream's length
        at_sum += stream[-1]
    # few terms, whose sum is far from normal: of relative variance R its logarithm has ln(1 + R)
    weights = at_sum + np.log1p((reads**2 * gradients.of_branch).sum(-1))
    queries = at_sum + np.log1p((reads**2 * gradients.of_logits).sum(-1))
    return Scatter(stream, branch, gradient, weights, queries[::2])
