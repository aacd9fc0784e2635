"""The way back through layers of the same weights: overlaps between the gradients of copies,
without which the gradients of their branches would not add up coherently.

Let G_k be the gradient at the sum of sublayer k, and U_k the part of it that comes back through the
branch. Copies k and l read tokens that overlap, r of one token and c of two, as `forward.Copies`
has it, so that U_k and U_l overlap where G_k and G_l do:

    MLP        g₂ g₁ E φ′φ′(r) G_k·G_l of one token, E φ′φ′(c) of two
    values     those of a row with itself, with Y11 at r and at c in place of Y2 and Y11
    logits     the geometric mean of both layers' energies, times f for the values and f for the
               keys, times J11 at r f over J, f the part of what a layer's tokens do not share

A stream's gradient is a sum of branches' gradients, so its overlap with the branch below is a sum
over copies; branches of different weights have none. The gradient by weights that are one set of
parameters is a sum over the copies, too: of what W reads in both, times the gradients after W, over
pairs of tokens. As g_k = a_k G_k + U_k, with g_k the gradient
before the sublayer, U overlaps with the gradients above by U·g_k = a_k U·G_k + U·U_k: N layers take
N² steps. (Our derivation. It takes a gradient to be independent of the tokens, as under the linear
loss.)"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from explorer.theory.attention import value_factors
from explorer.theory.forward import Copies, RowsOfCopies, recurrence
from explorer.theory.several import at_least, quotient
from explorer.theory.tables import Tables
from explorer.vocabulary import Array

if TYPE_CHECKING:
    from explorer.theory.backward import Descent


class Branch(NamedTuple):
    """A branch and its later copies; arrays are `[two, copy]`."""

    sublayer: int
    later: NDArray[np.intp]
    """Sublayers of the copies."""
    correlations: Array
    """r and c of what both read."""
    inputs: Array
    """Overlaps of what both read."""
    after: Array
    """Overlaps of gradients at the inputs of both last matrices, but for their gain."""


class Returning:
    """Keeps the overlaps of the present gradient with those at all sums above.

    Arrays over sublayers are `[two, sublayer]`, and over later copies of one `[two, copy]`. On the
    axis `two`, 0 is a token with itself and 1 two different tokens. Factors on the product of two
    layers' gradients are products of each layer's roots.

    Args:
        copies: the overlaps of the tokens, on the way forward.
        table: softmax statistics.
        descent: the factors of the sublayers; it goes down by one sublayer at a time.
    """

    def __init__(self, copies: Copies, table: Tables, descent: Descent) -> None:
        self.copies, self.table, self.descent = copies, table, descent
        self.size, self.shared = len(descent.steps), descent.gains.shared
        self.before = self._roots(descent.before)
        """Roots of factors from a branch's input, after the norm, to before that norm."""
        self.skip = self._roots(descent.skip)
        """From a sum to the stream below it."""
        self.branch = self._roots(descent.branch)
        """From a sum to the branch's output."""
        self.final_input = self._roots(descent.final_input)
        """From a sum to what the branch's last matrix reads, but for the matrix's gain."""
        self.sums = np.ones((2, self.size))
        """Roots of factors of the norms on sums, 1 without one."""
        self.above = np.zeros((2, self.size))
        """Overlaps of the present gradient with those at the sums above."""
        self.logits = [step.attention.logits.rho for step in descent.steps if step.attention]
        """By layer, the correlation of two rows' logits; empty without attention."""
        self.added_up: defaultdict[str, Array] = defaultdict(lambda: np.zeros(self.size))
        """See `Backward.added_up`."""

    def _roots(self, factors: Array) -> Array:
        """Roots of factors on squares, `[two, sublayer]`; of rounding below 0 the root is 0.

        Args:
            factors: `[sublayer, pair]`, or `[pair]` of all sublayers. A pair has one position,
                since copies have no causal mask.
        """
        of_each = np.broadcast_to(factors, (self.size, *self.descent.axis.ones.shape))
        return np.sqrt(np.maximum(_by_two(of_each), 0.0))

    def meet(self, index: int, after: Array, before: Array) -> Array:
        """The gradient before a sublayer, with what copies of the sublayer add to it. Moves `above`
        down by this sublayer.

        Args:
            after: `[pair]`, the gradient after the sublayer; `before` it without copies.
        """
        of_sum = np.sqrt(np.maximum(self.descent.through_last_sum, 0.0))[:, 0]  # [two]
        self.sums[:, index] = of_sum
        at_sum = self.above * of_sum[:, None]  # G_index · G_k
        at_sum[:, index] = of_sum**2 * after[:, 0]
        later = np.arange(index + self.copies.gains.period, self.size, self.copies.gains.period)
        with_branches = np.zeros((2, self.size))  # U · U_k
        if len(later) and self.descent.steps[index].present:
            with_branches[:, later] = self._with_copies(index, later, at_sum[:, later])
        with_sums = self._with_sums(index, with_branches)
        skip = self.skip[:, [index]]
        self.above[:, index:] = skip * at_sum[:, index:] + with_sums
        # |a G + U|² = a² G² + U² + 2 a U·G: without copies the last part is missing
        gradient: Array = before + 2 * skip * with_sums[:, :1]
        self.descent.bound(gradient)
        return gradient

    def _with_sums(self, index: int, with_branches: Array) -> Array:
        """Overlaps U·G_k of a branch's gradient with the gradients at its own sum and at all above,
        `[two, sublayer]`: by U·g_k = a_k U·G_k + U·U_k, from the last sublayer down.

        Args:
            with_branches: U·U_k of all sublayers, 0 where U_k is of other weights.
        """
        kept = self.skip * self.sums
        downwards = slice(None, index, -1)
        ones = np.ones(self.size - index - 1)
        with_gradients = np.array(
            [
                recurrence(factors[downwards], ones, terms[downwards])[::-1]
                for factors, terms in zip(kept, with_branches, strict=True)
            ]
        )
        return np.asarray(self.sums[:, index:] * with_gradients)

    def _with_copies(self, index: int, later: NDArray[np.intp], at_sums: Array) -> Array:
        """Overlaps U·U_l of a branch's gradient with those of its later copies, `[two, copy]`.
        Notes what weights that all of them share have in `added_up`.

        Args:
            at_sums: the overlaps of the gradients at both sums.
        """
        number = index // self.copies.gains.period  # of this copy, as the later ones count them
        correlations = self.copies.met[:, later, number]
        inputs = self.copies.square(index, later) * correlations
        if self.shared:
            self._add_up_last(index, later, self.copies.outputs[:, later, number], at_sums)
        after = self.final_input[:, [index]] * self.final_input[:, later] * at_sums
        branch = Branch(index, later, correlations, inputs, after)
        before = self._mlp(branch) if index % 2 else self._attention(branch)
        roots = self.before[:, [index]] * self.before[:, later]
        return np.asarray(roots * before)

    def _add_up(self, name: str, position: int, inputs: Array, delta: Array) -> None:
        """Notes of a matrix the sum over copies and pairs of tokens of (x·x′)(δ·δ′).

        Args:
            position: the layer, or the sublayer of "alpha".
            inputs: overlaps x·x′ of what the matrix reads in both layers, `[two, copy]`.
            delta: overlaps δ·δ′ of the gradients after it; of W_Q, W_K and W_V of those before it,
                with its gain, as in `parameters.norms`.
        """
        pairs = self.descent.axis.pair_sum[:, 0]  # ordered pairs of tokens, by `two`
        total = (pairs @ (inputs * delta)).sum()
        self.added_up[name][position] = 2 * total  # layers k, l and l, k

    def _add_up_last(
        self, index: int, later: NDArray[np.intp], outputs: Array, at_sums: Array
    ) -> None:
        """Notes the sums of a branch's last matrix, of W_V, and of the branch's learned multiplier.

        W_V sees what W_O sees, transposed: its sum is that of W_O over values without their biases.

        Args:
            outputs: `[two, copy]`, overlaps of the branch's output with those of later copies.
            at_sums: as in `_with_copies`.
        """
        gains, copies, layer = self.copies.gains, self.copies, index // 2
        norms = copies.output_factor[index] * copies.output_factor[later]
        self._add_up("alpha", index, norms * outputs, at_sums)
        delta = self.branch[:, [index]] * self.branch[:, later] * at_sums
        if index % 2:
            hidden = (outputs - gains.biases.out) / gains.out
            self._add_up("W_out", layer, hidden, delta)
            return
        mixed = (outputs - gains.biases.o) / gains.o
        self._add_up("W_O", layer, mixed, delta)
        self._add_up("W_V", layer, gains.o * (mixed - gains.biases.v), delta)

    def _mlp(self, branch: Branch) -> Array:
        """Overlaps of the gradients before two MLPs, `[two, copy]`.

        A gated MLP's hidden unit has a factor of each matrix that reads the input."""
        gains, after = self.copies.gains, branch.after
        units = self.copies.units(branch.sublayer, branch.later, branch.correlations)
        slopes = []
        for name, part in zip(gains.readers, gains.kernel.parts, strict=True):
            _, slope = part(*units)
            slopes.append(slope)
            if self.shared:
                # a hidden unit has d / d_mlp of what comes down to a coordinate of the input
                delta = gains.out * gains.d_model / gains.d_mlp * slope * after
                self._add_up(name, branch.sublayer // 2, branch.inputs, delta)
        weighted = [ratio * slope for ratio, slope in zip(gains.ratios, slopes, strict=True)]
        return np.asarray(gains.out * gains.hidden * sum(weighted) * after)

    def _attention(self, branch: Branch) -> Array:
        """Overlaps of the gradients before two attentions, `[two, copy]`."""
        copies, axis, paths = self.copies, self.descent.axis, self.descent.paths
        gains, layer, layers = copies.gains, branch.sublayer // 2, branch.later // 2
        rows = copies.rows(branch.sublayer, branch.later, branch.correlations)
        gradient = _by_copy(branch.after)
        shared_weights = _by_copy(copies.rows_met[:, layers, branch.sublayer // gains.period])
        of_values = value_factors(axis, shared_weights[:, 0], shared_weights[:, 1:])
        # `[copy, kind, pair]`: to one key and to two different keys
        received = gains.v * gains.o * of_values * gradient[:, None]
        within = np.broadcast_to(self.logits[layer], axis.ones.shape)
        energy = _mean(paths.energy, layer, layers)
        energy *= (self._alike(rows, within) * gradient)[:, None]
        to_queries = _through_queries(_mean(paths.query, layer, layers), energy, rows.apart)
        if self.shared:
            self._add_up("W_Q", layer, branch.inputs, _by_two(to_queries))
            # by symmetry: the keys' gradient meets queries with their biases, but no key's
            to_keys = _through_queries(_mean(paths.unbiased, layer, layers), energy, rows.apart)
            bias = gains.biases.q / at_least(gains.q, 1e-300)
            self._add_up("W_K", layer, branch.inputs + bias, _by_two(to_keys))
        # through the keys, by how far both layers' queries are alike
        queries = quotient(_by_copy(rows.queries), within)
        received += _mean(paths.key, layer, layers) * (queries * energy[:, 2])[:, None]
        gathered = np.array([axis.gather(of_copy) for of_copy in received])
        return _by_two(to_queries + gathered)

    def _alike(self, rows: RowsOfCopies, within: Array) -> Array:
        """Energy by the logits of two layers, over that within a layer: f times J11 of their rows
        over J, or over J11 of two rows. `[copy, pair]`.

        Args:
            within: `[pair]`, the correlation of logits within a layer.
        """
        logits, spread = _by_copy(rows.logits), rows.spread[:, None]
        of_both = self.table.jacobian(spread, logits)
        of_one = self.table.jacobian(spread, np.broadcast_to(within, of_both.shape))
        return np.asarray(quotient(of_both, of_one) * rows.apart[:, None, None])


def _through_queries(query: Array, energy: Array, apart: Array) -> Array:
    """Overlaps of gradients through the queries, `[copy, pair]`: f for the keys, which both layers
    share so far, and f² for keys that are alike.

    Args:
        query: `[copy, kind, pair]`, factors on the first two kinds of `energy`, see `Paths`.
        apart: `[copy]`, f.
    """
    f = apart[:, None, None]
    of_keys, of_alike_keys = query[:, 0] * energy[:, 0], query[:, 1] * energy[:, 1]
    return np.asarray(f * of_keys + f**2 * of_alike_keys)


def _by_copy(x: Array) -> Array:
    """`[two, copy]` as `[copy, pair]`, which the factors of an attention have."""
    return x.T[..., None]


def _by_two(x: Array) -> Array:
    """`[copy, pair]` as `[two, copy]`."""
    return np.asarray(x[..., 0].T)


def _mean(factors: Array, layer: int, layers: NDArray[np.intp]) -> Array:
    """Geometric mean of a layer's factors and those of others, with the sign of the first."""
    product = np.abs(factors[layer] * factors[layers])
    return np.asarray(np.sign(factors[layer]) * np.sqrt(product))
