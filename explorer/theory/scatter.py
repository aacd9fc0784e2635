"""How far draws scatter around a typical one.

**One number.** Each sublayer multiplies the second moment, or the gradient's square, by a factor
that differs from draw to draw of the weights. The logarithm of the product is a sum, and about
normal over draws. Let V be its variance: the mean over draws is e^(V/2) times the typical draw, and
two of three draws are within e^(±√V) of that. Hanin & Nica 2018 (arXiv 1812.05994) have V for plain
stacks of ReLUs. For sums of a stream and a branch it follows here from predicted means.

Let E be the energy of the stream, its square, and F that of the branch; s² and b² are the factors
on them in the sum, and f = b² F / (s² E + b² F) is the branch's part. With δ the deviation of a
logarithm from its mean in one draw,

    δ of the sum = (1 − f) δ_E + f δ_F + ε,    Var ε = [4 f (1 − f) / d + c f²] / directions.

The first term of Var ε is of the product of stream and branch, whose mean is 0. The second is of
the length of the branch: c is `Gains.noise`, for instance 2/d for each Gaussian matrix.

**Three modes.** Tokens that are all alike have a single direction, and scatter as one token does;
of tokens in many directions ε is averaged. A signal has something of both, so its energy is split:

    mode 0, the batch's       what all tokens of a batch share             1 direction
    mode 1, the sequences'    what those of a sequence share beyond that   1 a sequence
    mode 2, the rest          what each token has alone                    1 a token

The modes meet the same weights in different directions, which is as if each had weights of its
own. So the formula above holds in each mode, with an ε of its own.

**Matrices.** δ is a vector of three numbers, by mode, and what passes it on is a matrix M `[mode
after, mode before]`. The covariance C of δ, `[mode, mode]`, becomes M C Mᵀ, plus that of ε. If the
modes have the parts p of the whole energy, the whole energy deviates by p·δ, with the variance
pᵀ C p. The matrices are

- of a sum diag(1 − f) + diag(f) B, where B makes δ_F of δ_E;
- of attention B = 1: it averages the values, so what its output has in common comes of what the
  tokens have in common, and the rest of the rest;
- of an MLP the B of `Sums.of_hidden_units`: hidden units have something in common even where tokens
  have nothing;
- of a norm 1 − (p, p, p)ᵀ: it divides by the length that this draw has, so that p·δ is subtracted
  in each mode. Forward, the length's scatter ends there.

**Back.** The same holds of ∂L/∂x from the last layer down, whose modes are those of the gradients.
Logits are a path of their own (`by_rows`). And a norm divides the gradient by the length that its
signal has in this draw: so gradients deviate with the stream, too, by matrices G (`by_lengths`).

Arrays are `[signal, design, …]` here, with one design where several are not predicted side by side
(see `several`); a last axis of length 1 stands for all modes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from explorer.config import Config
from explorer.schemes.placement import Part
from explorer.theory.attention import stack
from explorer.theory.backward import Backward
from explorer.theory.forward import Steps, chain
from explorer.theory.gains import Gains
from explorer.theory.positions import Positions
from explorer.theory.tokens import State, Tokens
from explorer.vocabulary import Array

IDENTITY = np.eye(3)
"""Deviations that each mode keeps to itself."""
FIRST = np.tri(2, 3)
"""`[2, mode]`: the first mode, and the first two."""
NODES = np.linspace(0.0, 1.0, 17)
"""Correlations at which a kernel is tabulated."""
CONSTANT = np.eye(len(NODES)) - NODES * np.gradient(np.eye(len(NODES)), NODES, axis=1)
"""`[node, node]`: from k(ρ) at the nodes to k − ρ k′."""
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
NOTHING = np.empty(0)


class Scatter(NamedTuple):
    """Variances over draws of the natural logarithm, of N layers in 2N sublayers. All have a last
    axis of designs."""

    stream: Array
    """`[2N + 1]`: of the second moment at the embedding and after each sublayer."""
    branch: Array
    """`[2N]`: of the second moment of each branch's term of the sum."""
    gradient: Array = NOTHING
    """`[2N + 1]`: of the mean square of ∂L/∂x over that at the last layer. This and the next are
    empty without a `Backward`."""
    weights: Array = NOTHING
    """`[2N]`: of the square of ‖∂L/∂W‖, of each sublayer's matrices but W_Q and W_K."""
    queries: Array = NOTHING
    """`[N]`: as `weights`, of W_Q and W_K."""


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
    signals = [np.concatenate([first.y[None], steps.site]), steps.added]
    if back:
        signals += [back.site, back.total]
    spread = spreads(axis, signals)
    start = first.mean.rho if config.design.reads_text else 0.0  # where characters return
    sums = Sums(gains, axis, steps, first.mean, start, *spread[:2])
    columns = [*sums.variances()]
    if back:
        columns += Gradients(sums, back, overlap, *spread[2:]).variances(columns[0])
    return Scatter(*columns)


class Spread(NamedTuple):
    """Second moments of some signals, and how evenly tokens have them: `[signal, design, 1]`
    each."""

    square: Array
    """Mean over the tokens."""
    common: Array
    """Part of `square` along the direction that a sequence's tokens have in common."""
    tokens: Array
    """Number of tokens of equal size that would scatter as these do."""

    @property
    def part(self) -> Array:
        """Part of `square` that is common."""
        return over(self.common, self.square)

    def modes(self, between: Array, batch: Any) -> Array:
        """Energies of the three modes, `[signal, design, mode]`.

        Args:
            between: overlap of two sequences' tokens over the second moment, `[signal, design, 1]`.
            batch: number of sequences.
        """
        square, common, _ = self
        of_batch = np.minimum((common + (batch - 1) * between * square) / batch, common)
        energy = np.concatenate([of_batch, common - of_batch, square - common], -1)
        return np.asarray(np.maximum(energy, TINY * square))


def spreads(axis: Positions, signals: Sequence[Array]) -> list[Spread]:
    """How far the tokens of a sequence have each signal in common.

    The common part is the largest eigenvalue of their overlaps, over n. The eigenvector is found by
    iteration, from tokens that are all alike, as they are without a mask.

    Args:
        signals: `[signal, pair]` each, second moments in row 0, overlaps below.
    """
    y = np.concatenate(signals)
    # [signal, design, 1 + position, position]
    y = y[:, None] if axis.last == -1 else np.ascontiguousarray(np.moveaxis(y, -1, 1))
    q, p = y[..., 0, :], y[..., 1:, :]
    n, root = len(axis.reading), np.sqrt(axis.weights)
    # a position stands for n · weight tokens
    matrix = root[:, None] * p * root
    # a token with itself has q where two tokens of its position have p
    matrix += np.eye(len(root)) * ((q - p.diagonal(0, -2, -1)) / n)[..., None]
    vector = (np.sqrt(q) * root)[..., None]
    for _ in range(0 if axis.unmasked else TURNS):
        vector = matrix @ vector
        vector = over(vector, np.sqrt((vector**2).sum(-2, keepdims=True)))
    common = over((vector * (matrix @ vector)).sum(-2), (vector**2).sum(-2))
    square = (q @ axis.weights)[..., None]
    # (E q)² / E q² of the tokens' sizes: uneven ones scatter as fewer do
    evenness = over(square**2, (q**2 @ axis.weights)[..., None])
    tokens = n * np.where(square > 0, evenness, 1.0)
    columns = square, np.clip(common, 0.0, square), tokens
    ends = itertools.accumulate(map(len, signals), initial=0)
    return [
        Spread(*(column[start:end] for column in columns))
        for start, end in itertools.pairwise(ends)
    ]


def directions(tokens: Array, batch: Any, alike: Array) -> Array:
    """Number of directions of each mode, `[signal, design, mode]`.

    Args:
        tokens: `Spread.tokens`.
        batch: number of sequences.
        alike: mean square of the correlation of two tokens beyond what all have in common and what
            chance makes, `[signal, design, 1]`: of text, where characters return.
    """
    out = np.ones((*tokens.shape[:2], 3))
    out[..., 1:2] = np.maximum(batch - 1, 1)
    out[..., 2:] = 1 / (1 / (batch * np.maximum(tokens - 1, 1.0)) + alike)
    return out


def over(x: Array, y: Array) -> Array:
    """x / y, and 0 where both are 0."""
    return x / np.maximum(y, 1e-300)


def shares(energy: Array) -> Array:
    """Parts of the modes in all energy, `[…, mode]`; 0 where there is none."""
    return over(energy, energy.sum(-1, keepdims=True))


def diagonal(numbers: Array) -> Array:
    """Matrices with these numbers on the diagonal: `[…, mode]` to `[…, mode, mode]`."""
    return IDENTITY * numbers[..., None]


def dot(parts: Array, matrices: Array) -> Array:
    """pᵀ M, `[…, mode]`. After M the whole energy deviates by p·(M δ), with p the parts of the
    modes; in terms of the deviations δ before M that is (pᵀ M)·δ."""
    return (parts[..., None, :] @ matrices)[..., 0, :]


def variance(covariances: Array, parts: Array) -> Array:
    """pᵀ C p, `[…]`: variance of the logarithm of a whole whose modes have the parts p."""
    square = dot(parts, covariances) * parts
    return np.asarray(square.sum(-1).clip(0.0))  # rounding may leave less


def carried(matrices: Array, covariances: Array) -> Array:
    """M C Mᵀ, `[…, mode, mode]`: covariances of deviations after M."""
    return matrices @ covariances @ np.swapaxes(matrices, -1, -2)


def accumulated(start: Array, matrices: Array, terms: Array) -> Array:
    """Covariances of deviations that matrices M pass on, C_(k+1) = M_k C_k M_kᵀ + terms_k, the
    first being `start`."""
    return two_sided(start, matrices, np.swapaxes(matrices, -1, -2), terms)


def two_sided(start: Array, left: Array, right: Array, terms: Array) -> Array:
    """All X of X_0 = `start` and X_(k+1) = L_k X_k R_k + terms_k: `[step + 1, design, mode,
    mode]`."""
    every = np.concatenate([start[None], terms])
    if len(start) > 1:
        for step in range(len(terms)):
            every[step + 1] += left[step] @ every[step] @ right[step]
        return every
    # of one design the nine numbers of X are a vector, which one matrix multiplies
    product = left[..., :, None, :, None] * np.swapaxes(right, -1, -2)[..., None, :, None, :]
    return chain(product.reshape(-1, 9, 9), every.reshape(-1, 9)).reshape(every.shape)


def at_nodes(x: Any, values: Array) -> Any:
    """Functions of `NODES`, linear between them, at x: `[…]` of values `[…, node]`."""
    if values.ndim == 1:
        return float(np.interp(x, NODES, values))
    # each node counts by 1 less its distance in steps, and those farther than a step not at all
    distance = np.abs(np.clip(x, 0.0, 1.0)[..., None] - NODES) * (len(NODES) - 1)
    return (np.maximum(1 - distance, 0.0) * values).sum(-1)


class Sums:
    """Each sum of stream and branch, as deviations of the modes pass it on the way forward.

    Args:
        first: the embedding's tokens; `start` the overlap of two sequences' in it.
        stream: at the embedding and after each sublayer; `branch` by sublayer. Other arguments as
            of `scatter`.
    """

    def __init__(
        self,
        gains: Gains,
        axis: Positions,
        steps: Steps,
        first: Tokens,
        start: Any,
        stream: Spread,
        branch: Spread,
    ) -> None:
        self.gains, self.axis, self.steps = gains, axis, steps
        # `[design, 1]`: number of sequences, and d
        self.batch, self.width = (np.reshape(x, (-1, 1)) for x in (gains.batch_size, gains.d_model))
        # `[2N, design, 1]`: factors s² on the stream and b² on the branch
        self.skip = self.column(step.skip for step in steps) ** 2
        self.scale = self.column(step.branch for step in steps) ** 2
        # `[2N, 1, 1]`: whether a norm stands at the start of the branch, at its end, on the sum
        self.at_input = self.normed("input", "values")
        self.on_output, self.on_sum = self.normed("output"), self.normed("sum")
        halves = [index % 2 for index in range(len(steps))]  # 0 of attention, 1 of an MLP
        self.degree = self.column((1.0, gains.degree)[half] for half in halves)
        """`[2N, design, 1]`: power with which the branch grows with its input."""
        self.noise = self.column(gains.noise[half] for half in halves)
        """`[2N, design, 1]`: variance c of a branch's length."""

        self._follow(stream, branch, start)
        # squared correlation of a sequence's tokens beyond that of independent ones, which is 1/d
        squares = self.column([first.v, *(step.site.v for step in steps)])
        alike = np.maximum(squares - 1 / self.width, 0.0)
        tokens = np.concatenate([stream.tokens[:1], branch.tokens])
        self._noise(directions(tokens, self.batch, alike))

    def _follow(self, stream: Spread, branch: Spread, start: Any) -> None:
        """Sets energies and maps; arguments as of the class."""
        kernel = self.kernel()
        in_stream, in_branch = self.between(stream, branch, kernel, start)
        self._energies(stream.modes(in_stream, self.batch), branch.modes(in_branch, self.batch))
        mlp_inputs = slice(1, -1, 2)  # every second sublayer reads the stream after attention
        self._maps(kernel, in_stream[mlp_inputs], stream.part[mlp_inputs])

    def _energies(self, stream: Array, branch: Array) -> None:
        """Sets the parts of the modes in each signal, `[2N, design, mode]`, of their energies in
        the stream, `[2N + 1, design, mode]`, and in each branch."""
        self.stream = shares(stream)
        """`[2N + 1, design, mode]`: in the stream."""
        self.input = self.stream[:-1]
        """In the stream before the sublayer."""
        self.output = shares(branch)
        """In the branch."""
        term = self.scale * branch
        total = self.skip * stream[:-1] + term
        self.total = shares(total)
        """In the sum, before a norm on it."""
        self.f = over(term, total)
        """The branch's part f of each mode in the sum."""

    def _maps(self, kernel: Array, between: Array, common: Array) -> None:
        """Sets the matrices that pass deviations on, `[2N, design, mode, mode]`; arguments as in
        `of_hidden_units`."""
        f = self.f
        follows = np.zeros((*f.shape, 3)) + IDENTITY
        if len(kernel):
            follows[1::2] = self.of_hidden_units(kernel, between, common)
        # the input's length: a norm divides by it, hidden units grow with it
        power = np.where(self.at_input, -1.0, self.degree - 1)
        follows += (power * self.input)[..., None, :]
        self.divided = np.where(self.on_output, dot(self.output, follows), 0.0)
        """`[2N, design, mode]`: deviation of the length that a norm on the branch divides by, by
        those of the stream before it; 0 without one."""
        self.follows = follows - self.divided[..., None, :]
        """B: deviations of the branch by those of the stream before it."""
        self.passes = diagonal(1 - f) + f[..., None] * self.follows
        """Deviations of the sum by those of the stream before it."""
        self.length = np.where(self.on_sum, self.total, 0.0)[..., None, :]
        """`[2N, design, 1, mode]`: deviation of the length that a norm on the sum divides by, by
        those of the sum; 0 without one."""
        self.norm = IDENTITY - self.length
        """Deviations after that norm by those before it."""

    def _noise(self, directions: Array) -> None:
        """Sets the variances of what each sublayer adds, and the covariances that follow.

        Args:
            directions: of the embedding, then of the branches, `[1 + 2N, design, mode]`.
        """
        f, of_branches = self.f, directions[1:]
        self.of_length = self.noise / of_branches
        """`[2N, design, mode]`: the same by mode, before a norm on the branch."""
        self.of_branch = np.where(self.on_output, 0.0, self.of_length)
        """`[2N, design, mode]`: the same in the sum."""
        crossed = 4 * f * (1 - f) / (self.width * of_branches)
        self.fresh = diagonal(crossed + self.of_branch * f**2)
        """`[2N, design, mode, mode]`: covariance of ε."""
        start = diagonal(2 / (self.width * directions[0]))
        self.forward = self.norm @ self.passes
        """`[2N, design, mode, mode]`: from the stream before a sublayer to that after it."""
        self.at_sites = accumulated(start, self.forward, carried(self.norm, self.fresh))
        """`[2N + 1, design, mode, mode]`: covariance of the stream's deviations."""

    def variances(self) -> tuple[Array, Array]:
        """Variances of the logarithms of energies over draws: of the stream, `[2N + 1, design]`,
        and of each branch, `[2N, design]`: of what it takes over from the stream, and its own."""
        stream = variance(self.at_sites, self.stream)
        branch = variance(self.at_sites[:-1], dot(self.output, self.follows))
        return stream, branch + (self.output**2 * self.of_branch).sum(-1)

    def column(self, values: Iterable[Any]) -> Array:
        """Numbers by signal, `[signal, design, 1]`."""
        column = self.axis.column(values)
        return column.reshape(len(column), -1, 1)

    def of_attention(self, values: Array) -> Array:
        """Numbers by attention, 0 at the MLPs: `[N]` or `[N, design]` to `[2N, design, 1]`."""
        by_layer = values.reshape(len(values), -1, 1)
        return np.stack([by_layer, 0 * by_layer], 1).reshape(-1, *by_layer.shape[1:])

    def normed(self, *parts: Part) -> Array:
        """Whether a norm stands on one of these signals of a sublayer, `[2N, 1, 1]`; a function in
        a norm's place does not divide."""
        divides = not self.gains.point
        return self.column(
            divides and not step.norms.keys().isdisjoint(parts) for step in self.steps
        )

    def kernel(self) -> Array:
        """Correlation k(ρ) of the hidden units of two tokens, at the tokens' correlations `NODES`:
        `[layer, design, node]`."""
        # for the kernel several designs are on the last axis: [layer, node, design]
        square = self.axis.total(self.axis.weights, self.steps.inside[1::2, 0])[:, None]
        rho = np.zeros_like(square) + NODES.reshape(-1, *[1] * (square.ndim - 2))
        same, overlap = self.gains.kernel.overlaps(*self.gains.units(square + 0 * rho, rho))
        correlation = over(overlap, same).reshape(*rho.shape[:2], -1)
        return np.moveaxis(correlation, 1, -1)

    def between(
        self, stream: Spread, branch: Spread, kernel: Array, start: Any
    ) -> tuple[Array, Array]:
        """Overlap of the tokens of two sequences over their second moment: `[2N + 1, design, 1]` of
        the stream, `[2N, design, 1]` of the branches.

        Hidden units, whose mean is not 0, bring it; attention keeps of it what it keeps of a
        sequence's common part.

        Args:
            start: overlap of the inputs, whose characters return.
        """
        kept, added = over(branch.part, stream.part[:-1]), self.scale * branch.square
        part = over(added, self.skip * stream.square[:-1] + added)
        overlap: Any = np.zeros(part.shape[1]) + start
        numbers: Any = part[..., 0], kept[..., 0]
        if len(overlap) == 1:  # Python's numbers are quicker
            overlap, kernel = float(overlap[0]), kernel[:, 0]
            numbers = [column.ravel().tolist() for column in numbers]
        in_stream, in_branch = [overlap], []
        for index, (of_sum, of_input) in enumerate(zip(*numbers, strict=True)):
            mlp = index % 2
            of_branch = at_nodes(overlap, kernel[index // 2]) if mlp else overlap * of_input
            overlap = overlap + of_sum * (of_branch - overlap)
            in_stream.append(overlap)
            in_branch.append(of_branch)
        shape = -1, part.shape[1], 1
        return np.reshape(in_stream, shape), np.reshape(in_branch, shape)

    def of_hidden_units(self, kernel: Array, between: Array, common: Array) -> Array:
        """Deviations of hidden units' modes by those of the tokens before them, `[layer, design,
        mode, mode]`.

        The correlation k(ρ) of two tokens' units has a part k − ρ k′ that does not depend on ρ. As
        much of the energy in the first modes follows the energy of all modes together; what is more
        follows the tokens' first modes.

        Args:
            kernel: see `kernel`.
            between: `[layer, design, 1]`, correlation ρ of two sequences' tokens, and `common` that
                of two tokens of a sequence.
        """
        output, energy = self.output[1::2], self.input[1::2]
        constant = kernel @ CONSTANT
        free = np.stack([at_nodes(rho[..., 0], constant) for rho in (between, common)], -1)
        # of the first mode, and of the first two: [layer, design, 2, …]
        size = np.cumsum(output[..., :2], -1)[..., None]
        free = np.minimum(free[..., None], size)
        every = energy[..., None, :]
        of_first = free * every + (size - free) * shares(FIRST * every)
        rows = np.concatenate([of_first, every], -2)
        rows[..., 1:, :] -= rows[..., :-1, :]  # of each mode alone
        scale = np.maximum(output, 1e-6)[..., None]
        return np.where(output[..., None] > 1e-6, rows / scale, IDENTITY)


class Gradients:
    """Gradients by each sum, as deviations of the modes pass them on the way back.

    Args:
        back: gradients relative to the last layer's.
        overlap: of two tokens' gradients by the output of the stack, over their square: what they
            have in common over sequences, too.
    """

    def __init__(
        self, sums: Sums, back: Backward, overlap: Any, stream: Spread, at_sum: Spread
    ) -> None:
        self.sums = sums
        overlap = np.reshape(overlap, (-1, 1))
        # over sequences gradients have as much of the common part in common as at the output
        shared = over(overlap, stream.part[-1])
        energy = stream.modes(shared * stream.part, sums.batch)
        total = at_sum.modes(shared * at_sum.part, sums.batch)
        self.stream, self.total = shares(energy), shares(total)
        """`[2N + 1, design, mode]` and `[2N, design, mode]`: parts of the modes in the gradient by
        the stream, and by the sums before a norm on them."""
        skipped = sums.skip * total
        passed = np.maximum(energy[:-1] - skipped, 0.0)  # through the branch
        # parts of a gradient before a sublayer: through the branch, and of that through logits
        b = over(passed, passed + skipped)
        through_logits = sums.of_attention(back.by_logits) * passed.sum(-1, keepdims=True)
        logits = of_rest_first(through_logits, passed)
        # tokens of one target have one gradient, and each matrix turns all of them to each other
        turned = np.zeros_like(stream.tokens)
        turned[:-1] = np.cumsum(b[::-1, :, 2:], 0)[::-1] / sums.width
        overlap = overlap.clip(0.0)
        alike = np.minimum(overlap * (1 - overlap) + turned, 1.0)
        self.directions = directions(stream.tokens, sums.batch, alike)
        """`[2N + 1, design, mode]`: of the gradient in the stream."""
        gathered = b * logits  # a logit's gradient gathers all modes of that at the sum
        self.passes = diagonal(1 - gathered) + gathered[..., None] * self.total[..., None, :]
        """`[2N, design, mode, mode]`: Q, deviations before a sublayer by those at its sum."""
        self.lengthens = self.by_own_length(b, gathered)
        """`[2N, design, mode, mode]`: deviations before a sublayer by those of the stream there,
        but for norms above."""
        self._noise(b, logits)

    def _noise(self, b: Array, logits: Array) -> None:
        """Sets the variances of what each sublayer adds to the gradient.

        Args:
            b: part of the gradient before a sublayer that came through the branch, `[2N, design,
                mode]`, and `logits` the part of that which came through logits.
        """
        sums, before = self.sums, self.directions[:-1]
        rows = sums.of_attention(by_rows(sums) / sums.gains.n_heads)
        self.of_logits = (BY_LOGITS / sums.width + rows) / before
        """`[2N, design, mode]`: variance of the gradient through logits."""
        self.of_branch = sums.noise / before
        """`[2N, design, mode]`: variance of the gradient through the branch's other matrices."""
        crossed = 4 * b * (1 - b) / sums.width / before
        own = self.of_branch * (1 - logits) + self.of_logits * logits
        self.fresh = diagonal(crossed + own * b**2)
        """`[2N, design, mode, mode]`: covariance of ε."""
        # a norm on the branch divides by its length, whose scatter all modes have in common
        lengths = (sums.output**2 * sums.of_length).sum(-1, keepdims=True)
        lengths = np.where(sums.on_output, lengths, 0.0)
        self.fresh += (lengths * b)[..., None] * b[..., None, :]

    def variances(self, stream: Array) -> tuple[Array, Array, Array]:
        """The fields `gradient`, `weights` and `queries` of `Scatter`, `[…, design]`.

        Args:
            stream: the field of this name.
        """
        sums = self.sums
        on_sites, on_sums = self.by_lengths()
        noise = self.fresh + carried(self.passes, carried(on_sums, sums.fresh))
        relative = IDENTITY - self.stream[-1, ..., None, :]  # the last gradient is the unit
        at_last = carried(relative, diagonal(2 / (sums.width * self.directions[-1])))
        from_last = accumulated(at_last, self.passes[::-1], noise[::-1])[::-1]
        gradient = variance(from_last, self.stream)
        gradient += variance(sums.at_sites, dot(self.stream, on_sites))

        # a matrix's gradient is Σ h xᵀ over the tokens, mode by mode over its directions: of h at
        # the sum, and x in the branch's input
        reads = shares(self.total * sums.input / self.directions[:-1])
        of_input = reads - np.where(sums.at_input, sums.input, 0.0)
        at_sums = carried(sums.passes, sums.at_sites[:-1]) + sums.fresh
        product = variance(from_last[1:], reads) + variance(sums.at_sites[:-1], of_input)
        product += variance(at_sums, dot(reads, on_sums))
        if sums.gains.final and not sums.gains.point:  # it divides by the last stream's length
            product += stream[-1]
        # few terms, whose sum is far from normal: of relative variance R its logarithm has
        # ln(1 + R)
        weights, queries = (
            product + np.log1p((reads**2 * own).sum(-1)) for own in (self.of_branch, self.of_logits)
        )
        return gradient, weights, queries[::2]

    def by_lengths(self) -> tuple[Array, Array]:
        """Matrices G of the gradients' deviations by those of the stream at the same site, `[2N +
        1, design, mode, mode]`, and by those of each sum before a norm on it, `[2N, design, mode,
        mode]`.

        With G after a sublayer, N the norm on its sum, P the stream's matrix to the sum and Q the
        gradient's from it, G becomes G N at the sum, less the length that a norm divides by, and
        then Q (G N) P."""
        sums = self.sums
        # a length is the same in all modes, and so is what becomes of it
        gathered = self.passes.sum(-1, keepdims=True)
        terms = self.lengthens - gathered * (sums.length @ sums.passes)
        start = np.zeros(terms.shape[1:])
        on_sites = two_sided(start, self.passes[::-1], sums.forward[::-1], terms[::-1])[::-1]
        return on_sites, on_sites[1:] @ sums.norm - sums.length

    def by_own_length(self, b: Array, by_logits: Array) -> Array:
        """See `lengthens`. A norm before the branch divides its gradient by the length; without
        one, slopes of hidden units and of logits grow with it. A norm after the branch divides by
        the branch's length.

        Args:
            b: `[2N, design, mode]`, part of the gradient that came through the branch.
            by_logits: `[2N, design, mode]`, part that came through the logits.
        """
        sums = self.sums
        of_units = 2 * (sums.degree - 1) * b
        of_logits = 0.0 if sums.gains.qk_norm else 2 * by_logits
        power = np.where(sums.at_input, -b, of_units + of_logits)
        by_input = power[..., None] * sums.input[..., None, :]
        return by_input - b[..., None] * sums.divided[..., None, :]


def by_rows(sums: Sums) -> Array:
    """Relative variance of the square of the gradient through one row of attention, `[N]` or `[N,
    design]`.

    The square is Σ A_j² (u_j − Σ A u)² over the row's keys, of random u. Its relative variance is
    about 2.5 Y2 where weights A are even, Y2 = ΣA², and grows with the standard deviation s of the
    logits: 2.5 Y2 + .7 s²/(1 + s) is within 30 % for 8 to 64 keys and s up to 8. The keys' own
    lengths have 2/d_head more."""
    axis, steps = sums.axis, sums.steps
    layers = [step.attention for step in steps if step.attention]
    if not layers:
        return np.zeros_like(steps.total[::2, 0])
    even = 2.5 * axis.total(axis.weights, stack([layer.overlap[0] for layer in layers]))
    s = stack([layer.logits.s for layer in layers]).reshape(len(layers), -1, *even.shape[1:]).max(1)
    return np.asarray(TIED * (even + 0.7 * s * s / (1 + s) + 2 / sums.gains.d_head))


def of_rest_first(part: Array, energy: Array) -> Array:
    """Shares of the modes' energies that make this part of all energy, `[…, mode]`, from the mode
    of the rest first: of logits the parts that tokens have in common drop out.

    Args:
        part: `[…, 1]`.
    """
    rest = energy[..., 2:]
    of_rest = np.minimum(part, rest)
    of_common = over(part - of_rest, energy[..., :2].sum(-1, keepdims=True))
    return np.concatenate([of_common, of_common, over(of_rest, rest)], -1)
