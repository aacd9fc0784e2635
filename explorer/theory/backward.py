"""The backward recursion: mean square γ_q and token overlap γ_p of ∂L/∂x, sublayer by sublayer, from the output down.

Gradients start from the linear loss's independent directions, (1, 0), and meet weights as independent as the forward
pass does. A norm divides by the second moment, averaged over the scatter of the tokens' lengths, and removes what
points along the token, and along the ones when it centers: 1/d of an isotropic gradient each. In a post-norm design
the stream's gradient is not isotropic, for the norms above have been there already; `Along` keeps that account.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from explorer.theory.attention import Inherited, Pair, collect, inherit, paths, unbiased
from explorer.theory.forward import Step, columns
from explorer.theory.gains import Gains
from explorer.theory.grids import Array
from explorer.theory.tables import Softmax
from explorer.theory.tokens import NOTHING, Norm, Tokens


class Backward(NamedTuple):
    """Gradients relative to that at the last layer's output; a `[pair]` is (γ_q, γ_p), under a mask see `Positions`."""

    site: Array
    """`[2N + 1, pair]`: at the embedding and after every sublayer."""
    total: Array
    """`[2N, pair]`: at each sum of stream and branch, before a norm on it."""
    branch: Array
    """`[2N, pair]`: at what each branch computes, before any norm on its output."""
    read: Array
    """`[2N, pair]`: the same, divided as by the norm before the branch's last matrix where there is one."""
    query: Array
    """`[N, pair]`: at the input of each attention, the gradient through its queries."""
    key: Array
    """`[N, pair]`: at that input, through its keys where queries and keys add up; else `query` without keys' biases."""
    value: Array
    """`[N, pair]`: at that input, through all values that the attention mixes."""
    alike: Array
    """`[N]` or `[N, position]`: of γ_q in `query`, over γ_q after the branch, the part of keys that are alike."""
    hidden: dict[str, Array]
    """`[N, pair]`: at the inputs of each MLP's hidden units, by the matrix that they come from."""
    gates: dict[str, Array]
    """`[N, pair]` by parameter, see `attention.Paths`."""


class Along(NamedTuple):
    """Energy of the stream's gradient along its own token and along the ones, over the isotropic 1/d."""

    token: float
    ones: float


def run(gains: Gains, softmax: Softmax, steps: list[Step], first: Tokens, overlap: float) -> Backward:
    """The recursion from (1, `overlap`) at the output of the last of the steps; `first` is the embedding."""
    q, p = columns(steps[1::2], "inside")
    units = gains.units(q, np.clip(p / q, 0.0, 1.0))
    slopes = np.stack(gains.kernel.slopes(*units), -1)
    through = np.zeros((len(steps), 2, 2))
    through[1::2] = gains.out * gains.hidden * slopes[:, None] * np.eye(2)
    logits: list[list[float]] = []
    gates: dict[str, Array] = {}
    if gains.attends:
        through[::2], energies, uneven, gates = paths(gains, softmax, steps[::2])
        opened = gates.get("W_G", np.zeros((len(energies), 2)))
        logits = np.column_stack([energies, uneven, opened]).tolist()
    back = Descent(gains, steps, first, softmax.n - 1).run(through, logits, overlap)
    after = gains.out * gains.d_model / gains.d_mlp * back.read[1::2]
    parts = zip(gains.readers, gains.kernel.parts, strict=True)
    return back._replace(hidden={name: after * np.stack(part(*units), -1) for name, part in parts},
                         gates={name: factor * back.read[::2] for name, factor in gates.items()})


class Descent:
    """The scalar loop, from the last step to the first."""

    def __init__(self, gains: Gains, steps: list[Step], first: Tokens, others: int) -> None:
        self.gains, self.steps, self.first, self.others = gains, steps, first, others
        self.sites: list[Pair] = []
        self.totals: list[Pair] = []
        self.branches: list[Pair] = []
        self.reads: list[Pair] = []
        self.queries: list[Pair] = []
        self.keys: list[Pair] = []
        self.values: list[Pair] = []
        self.alike: list[float] = []
        self.borrowed = 0.0, 0.0
        self.inherited = Inherited()
        self.beside = (0.0, 0.0)
        """Through a parallel MLP, to what its layer reads."""
        self.kept = 1.0
        """Factor on deviations of overlaps from this layer to the next."""
        self.longer = -1.0 if gains.final else 0.0
        """See `longer`."""

    def run(self, through: Array, logits: list[list[float]], overlap: float) -> Backward:
        """`through` is what each sublayer's values or hidden units make of a gradient, `logits` as in `Paths`, with
        its `uneven` and what comes down through gates the last of each."""
        gradient = (1.0, overlap)
        along = Along(0.0, 0.0) if self.gains.final and not self.gains.point else ISOTROPIC
        entries = through.reshape(-1, 4).tolist()
        self.sites.append(gradient)
        for index in range(len(self.steps) - 1, -1, -1):
            own = logits[index // 2] if logits and index % 2 == 0 else None
            gradient, along = self.sublayer(index, gradient, along, entries[index], own)
            # overlaps of n vectors of square q lie between −q/(n − 1) and q; the first order may overstep
            square = max(gradient[0], 0.0)
            gradient = square, min(max(gradient[1], -square / self.others), square)
            self.sites.append(gradient)
        columns = (self.sites, self.totals, self.branches, self.reads, self.queries, self.keys, self.values)
        site, total, branch, read, query, key, value = (np.array(pairs[::-1]) for pairs in columns)
        key = key if self.keys else query
        return Backward(site, total, branch, read, query, key, value, np.array(self.alike[::-1]), {}, {})

    def sublayer(self, index: int, gradient: Pair, along: Along, entry: list[float], logits: list[float] | None
                 ) -> tuple[Pair, Along]:
        """Gradients from a sublayer's output to its input."""
        gains, step = self.gains, self.steps[index]
        if step.branch is NOTHING:  # a sublayer that is not there
            self.totals.append(gradient)
            self.branches.append((0.0, 0.0))
            self.reads.append((0.0, 0.0))
            self.alike.append(0.0)
            beside, self.beside = self.beside, (0.0, 0.0)
            return (gradient[0] + beside[0], gradient[1] + beside[1]), along
        read = index - 1 if index % 2 and gains.parallel else index
        tokens = self.steps[read - 1].site if read else self.first
        if step.placement.on_sum:
            gradient = across(gradient, step.on_sum, along, step.site.rho, gains, 1 - step.kept)
        self.totals.append(gradient)
        scale = step.scale**2
        inner = (gradient[0] * scale, gradient[1] * scale)
        if step.placement.on_output:
            inner = across(inner, step.on_output, ISOTROPIC, step.branch.rho, gains)
        self.branches.append(inner)
        if step.placement.on_read:
            inner = across(inner, step.on_read, ISOTROPIC, step.read.rho, gains)
        self.reads.append(inner)
        a, b, c, d = entry
        after, inner = inner, (a * inner[0] + b * inner[1], c * inner[0] + d * inner[1])
        if step.placement.on_heads:
            inner = across(inner, step.on_heads, ISOTROPIC, step.values.rho, gains)
        if logits is not None:
            self.values.append(inner)
            inner = self.attention(step, logits, after, self.by_values(index, inner))
        if step.placement.on_input:
            square = (step.placement.scale * step.placement.reads) ** 2
            inner = across((inner[0] * square, inner[1] * square), step.on_input, ISOTROPIC, tokens.rho, gains)
        if step.placement.on_input and not gains.point:
            more = 1 - self.longer * step.kept * step.on_input.same
            inner = inner[0] * more, inner[1] * more
            self.longer = longer(self.longer * step.kept, step.skip**2 * gradient[0], inner[0])
        self.kept *= step.followed
        skip, along = step.skip**2, ISOTROPIC
        if step.placement.on_sum:
            along, meet = left(gains, step, skip * gradient[0], inner[0], mlp=index % 2 == 1)
            skip *= 1 - meet
        gradient = (skip * gradient[0], skip * gradient[1])
        if gains.parallel and index % 2:  # what it reads is before the attention
            self.beside = inner
            return gradient, along
        beside, self.beside = self.beside, (0.0, 0.0)
        return (gradient[0] + inner[0] + beside[0], gradient[1] + inner[1] + beside[1]), along

    def attention(self, step: Step, logits: list[float], after: Pair, value: Pair) -> Pair:
        """The three paths together."""
        *energies, uneven, gate, gate_p = logits
        self.inherited = inherit(self.gains, step, energies, uneven, after, self.inherited, self.kept)
        self.kept = 1.0
        query, alike, key = collect(self.gains, step, uneven, self.inherited, self.others)
        square = self.branches[-1][0]
        self.alike.append(alike / square if square > 0 else 0.0)
        self.queries.append(query)
        if self.gains.adds == "qk":
            self.keys.append(key)
        elif self.gains.biases.k:
            self.keys.append(unbiased(self.gains, step, uneven, self.inherited))
        return value[0] + query[0] + key[0] + gate * after[0], value[1] + query[1] + key[1] + gate_p * after[1]

    def by_values(self, index: int, value: Pair) -> Pair:
        """Gradient (γ_q, γ_p) through a layer's own values, given that through the values it mixes.

        A value residual mixes ½ (V_1 + V_l): a quarter goes to each, so V_1 collects one from every layer above.
        """
        if not self.gains.value_residual:
            return value
        q, p = self.borrowed
        if index == 0:
            return value[0] + q, value[1] + p
        own = value[0] / 4, value[1] / 4
        self.borrowed = q + own[0], p + own[1]
        return own


ISOTROPIC = Along(1.0, 1.0)


def across(gradient: Pair, norm: Norm, along: Along, rho: float, gains: Gains, mean: float = 1.0) -> Pair:
    """Through a norm, from its output to its input; `mean` as in `through_norm`."""
    if norm.slopes:
        return gradient[0] * norm.slopes[0], gradient[1] * norm.slopes[1]
    token, ones, mean = _shares(gains, along, mean, norm.width)
    if mean == 1:
        return 0.0, 0.0
    factor = 1 / (norm.q * (1 - mean) + gains.epsilon)
    even, even_2 = 1 + norm.same, 1 + 0.75 * norm.same + 0.25 * norm.cross
    lost, lost_2 = token + ones, token * (2 - rho * rho) + ones
    return gradient[0] * factor * even * (1 - lost), gradient[1] * factor * even_2 * (1 - lost_2)


def through_norm(gains: Gains, along: Along, mean: float, width: int) -> float:
    """Factor on a gradient through a norm, times what it divides by.

    A norm's Jacobian removes what points along the token, and along the ones if it centers. Then it divides by the
    variance, not by the second moment; `mean` is the tokens' square of mean over the isotropic 1/d.
    """
    token, ones, mean = _shares(gains, along, mean, width)
    return (1 - token - ones) / (1 - mean) if mean < 1 else 0.0


def _shares(gains: Gains, along: Along, mean: float, d: int) -> tuple[float, float, float]:
    """Along the token, along the ones, and the tokens' own along the ones, as parts of the whole."""
    return (along.token / d, along.ones / d, mean / d) if gains.centers else (along.token / d, 0.0, 0.0)


def longer(above: float, skip: float, branch: float) -> float:
    """Power of a token's squared length with which its gradient's square grows; norms above divide by that length.

    Of the stream's gradient it is `above`; what comes through the norm of a branch, which does not see the length, was
    divided by it once: −1.
    """
    total = skip + branch
    return (above * skip - branch) / total if total > 0 else 0.0


def left(gains: Gains, step: Any, skip: float, branch: float, mlp: bool) -> tuple[Along, float]:
    """After a norm on the sum and a sublayer: what is left along its input's tokens, and what cancels.

    The norm has removed what pointed along the sum, of which the stream's gradient keeps the part 1 − `kept` along the
    stream; along the ones all of it. An MLP is nearly homogeneous of a degree k: J x = k F, so of what the stream has
    along x the branch has −k times as much: for k = 1 the two cancel, and they meet in 2k times the stream's energy.
    A branch that begins or ends with a norm does not see the length of x: nothing of its gradient is along x.

    Args:
        step: the sublayer's, masked or not.
        skip: energy of the stream's gradient; `branch` of that through the branch.
    Returns:
        the gradient's part along, and the part of the stream's gradient lost to the meeting.
    """
    total, lost = skip + branch, 1 - step.kept
    if total <= 0 or gains.point:
        return ISOTROPIC, 0.0
    ones = 0.0 if step.placement.on_input else branch / total
    if step.placement.forgets_length:
        return Along(skip * lost / total, ones), 0.0
    if mlp:
        return Along((1 - gains.degree) ** 2 * skip * lost / total, ones), 2 * gains.degree * lost / gains.d_model
    return Along((skip * lost + branch) / total, ones), 0.0
