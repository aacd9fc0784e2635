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
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from explorer.theory.attention import value_factors
from explorer.theory.forward import Copies, recurrence
from explorer.theory.several import at_least, quotient
from explorer.theory.tables import Tables
from explorer.vocabulary import Array

if TYPE_CHECKING:
    from explorer.theory.backward import Descent


class Returning:
    """Keeps the overlaps of the present gradient with those at all sums above.

    On the axis `two`, 0 is a token with itself and 1 two different tokens.

    Args:
        copies: the overlaps of the tokens, on the way forward.
        descent: the factors of the sublayers; it goes down by one sublayer at a time.
    """

    def __init__(self, copies: Copies, table: Tables, descent: Descent) -> None:
        self.copies, self.table, self.descent = copies, table, descent
        self.size = len(descent.steps)
        factors = descent.before, descent.skip, descent.branch, descent.final_input
        self.before, self.skip, self.branch, self.final_input = map(self._roots, factors)
        self.sums = np.ones((2, self.size))
        """`[two, sublayer]`: factor of the norm on a sum, 1 without one."""
        self.above = np.zeros((2, self.size))
        """`[two, sublayer]`: overlaps of the present gradient with those at the sums above."""
        self.logits = [step.attention.logits.rho for step in descent.steps if step.attention]
        """By layer, the correlation of two rows' logits."""
        self.added_up: defaultdict[str, Array] = defaultdict(lambda: np.zeros(self.size))
        """See `Backward.added_up`."""

    def _roots(self, factors: Array) -> Array:
        """Roots of factors on products of gradients, `[two, sublayer]`."""
        pairs = self.descent.axis.ones.shape
        by_sublayer = np.broadcast_to(factors, (self.size, *pairs))
        return np.asarray(np.sqrt(np.maximum(by_sublayer[..., 0].T, 0.0)))

    def meet(self, index: int, after: Array, before: Array) -> Array:
        """The gradient before a sublayer, with what copies of the sublayer add to it.

        Args:
            after: `[pair]`, the gradient after the sublayer; `before` it without copies.
        """
        period = self.copies.gains.period
        factor = np.sqrt(np.maximum(self.descent.through_last_sum, 0.0))[:, 0]  # [two]
        self.sums[:, index] = factor
        at_sum = self.above * factor[:, None]  # G_index with the gradients at all sums above
        at_sum[:, index] = factor**2 * after[:, 0]
        later = np.arange(index + period, self.size, period)
        of_branches = np.zeros((2, self.size))
        if len(later) and self.descent.steps[index].present:
            of_branches[:, later] = self._of_copies(index, later, at_sum[:, later])
        # U·g_k = a_k U·G_k + U·U_k, from the last sublayer down; then with the sums' norms U·G_k
        kept = self.skip * self.sums
        above = slice(None, index, -1)
        ones = np.ones(self.size - index - 1)
        with_gradients = np.array(
            [
                recurrence(factors[above], ones, terms[above])[::-1]
                for factors, terms in zip(kept, of_branches, strict=True)
            ]
        )
        with_sums = self.sums[:, index:] * with_gradients
        skip = self.skip[:, [index]]
        self.above[:, index:] = skip * at_sum[:, index:] + with_sums
        gradient: Array = before + 2 * skip * with_sums[:, :1]
        self.descent.bound(gradient)
        return gradient

    def _of_copies(self, index: int, later: NDArray[np.intp], at_sums: Array) -> Array:
        """Overlaps U·U_l of a branch's gradient with those of later copies, `[two, copy]`.

        Args:
            at_sums: the overlaps of the gradients at both sums.
        """
        copy = index // self.copies.gains.period
        correlations = self.copies.met[:, later, copy]
        before = self.before[:, [index]] * self.before[:, later]
        after = self.final_input[:, [index]] * self.final_input[:, later] * at_sums
        x = self.copies.square(index, later) * correlations
        self._add_up_last(index, later, self.copies.outputs[:, later, copy], at_sums)
        if index % 2:
            return np.asarray(before * self._mlp(index, later, correlations, x, after))
        return np.asarray(before * self._attention(index, later, correlations, x, after))

    def _add_up(self, name: str, position: int, x: Array, delta: Array) -> None:
        """Notes the sum over pairs of tokens of the product of two overlaps, `[two, copy]`: of what
        a matrix reads in a layer and in its later copies, and of the gradients after it."""
        pairs = self.descent.axis.pair_sum[:, 0]  # [two]
        self.added_up[name][position] = 2 * (pairs @ (x * delta)).sum()

    def _add_up_last(
        self, index: int, later: NDArray[np.intp], outputs: Array, at_sums: Array
    ) -> None:
        """Notes the sums of the last matrix of a branch, of W_V, which sees what W_O sees, and of a
        learned multiplier.

        Args:
            outputs: `[two, copy]`, overlaps of the branch's output with those of later copies.
        """
        gains, copies, layer = self.copies.gains, self.copies, index // 2
        of_output = self.branch[:, [index]] * self.branch[:, later] * at_sums
        factor = copies.output_factor[index] * copies.output_factor[later]
        self._add_up("alpha", index, factor * outputs, at_sums)
        if index % 2:
            self._add_up("W_out", layer, (outputs - gains.biases.out) / gains.out, of_output)
            return
        mixed = (outputs - gains.biases.o) / gains.o
        self._add_up("W_O", layer, mixed, of_output)
        self._add_up("W_V", layer, gains.o * (mixed - gains.biases.v), of_output)

    def _mlp(
        self, index: int, later: NDArray[np.intp], correlations: Array, x: Array, after: Array
    ) -> Array:
        """Overlaps of the gradients before two MLPs, `[two, copy]`; see `_attention`."""
        gains, units = self.copies.gains, self.copies.units(index, later, correlations)
        slopes = [part(*units)[1] for part in gains.kernel.parts]
        of_unit = gains.out * gains.d_model / gains.d_mlp * after
        for name, slope in zip(gains.readers, slopes, strict=True):
            self._add_up(name, index // 2, x, of_unit * slope)
        weighted = [ratio * slope for ratio, slope in zip(gains.ratios, slopes, strict=True)]
        return np.asarray(gains.out * gains.hidden * sum(weighted) * after)

    def _attention(
        self, index: int, later: NDArray[np.intp], correlations: Array, x: Array, after: Array
    ) -> Array:
        """Overlaps of the gradients before two attentions, `[two, copy]`.

        Args:
            x: overlaps of what the attentions read, of `correlations`.
            after: those of the gradients after them.
        """
        gains, axis = self.copies.gains, self.descent.axis
        rows = self.copies.rows(index, later, correlations)
        overlap = self.copies.rows_met[:, later // 2, index // self.copies.gains.period]
        # from here on `[copy, pair]`
        overlap, logits, queries, after = (
            part.T[..., None] for part in (overlap, rows.logits, rows.queries, after)
        )
        factors = value_factors(axis, overlap[:, 0], overlap[:, 1:])  # [copy, kind, pair]
        received = gains.v * gains.o * factors * after[:, None]

        # energy by the logits: J11 of the two layers' rows over that within a layer
        within = np.broadcast_to(self.logits[index // 2], axis.ones.shape)
        spread, f = rows.spread[:, None], rows.apart[:, None, None]
        alike = self.table.jacobian(spread, logits)
        same = self.table.jacobian(spread, np.broadcast_to(within, alike.shape))
        paths, layers = self.descent.paths, later // 2
        energy = _mean(paths.energy, index // 2, layers)
        energy *= (quotient(alike, same) * f * after)[:, None]
        query = _mean(paths.query, index // 2, layers)
        by_queries = f * (query[:, 0] * energy[:, 0] + f * query[:, 1] * energy[:, 1])
        self._add_up("W_Q", index // 2, x, by_queries[..., 0].T)
        unbiased = _mean(paths.unbiased, index // 2, layers)
        by_keys = f * (unbiased[:, 0] * energy[:, 0] + f * unbiased[:, 1] * energy[:, 1])
        bias = gains.biases.q / at_least(gains.q, 1e-300)
        self._add_up("W_K", index // 2, x + bias, by_keys[..., 0].T)
        correlation = quotient(queries, np.broadcast_to(within, after.shape))
        key = _mean(paths.key, index // 2, layers)
        received += key * (correlation * energy[:, 2])[:, None]
        gathered = np.array([axis.gather(given) for given in received])
        return np.asarray((by_queries + gathered)[..., 0].T)


def _mean(factors: Array, layer: int, layers: NDArray[np.intp]) -> Array:
    """Geometric mean of a layer's factors and those of others, with the sign of the first."""
    product = np.abs(factors[layer] * factors[layers])
    return np.asarray(np.sign(factors[layer]) * np.sqrt(product))
