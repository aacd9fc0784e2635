"""Constants of a config for the theory: gains, multipliers, norms, and the statistics of its
softmax."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from explorer.config import Config
from explorer.schemes.closed_forms import Kernel, gated
from explorer.schemes.mlp import MLPS
from explorer.schemes.placement import SITES
from explorer.sites import MATRICES
from explorer.theory.gaussian import flatness, kernel, tabulated
from explorer.theory.several import equals
from explorer.vocabulary import Array

Real = TypeVar("Real", float, Array)
SMALL = 1e-5
"""The largest ε beside which a stream that does not shrink is of unit second moment after its
norms."""


class Gate(NamedTuple):
    """Sigmoid gates on attention's output."""

    gain: float
    """Gain of W_G."""
    kernel: Kernel
    noise: float
    """Relative variance of a token's squared length, for one of unit second moment: f/gates, f the
    variance of σ² over (E σ²)², times 1 + 2/m for the m Gaussian coordinates that each gate
    multiplies."""
    bias: float
    """Variance of the biases beside W_G."""
    number: int
    """Number of gates."""

    def regained(self, alike: Array) -> Array:
        """Factor on the overlap of two tokens through a norm that divides by what their gates have
        multiplied.

        Of one head's gates σ and σ′ nothing is left, σσ′ / √(σ² σ′²) = 1: the norm divides them
        out, a factor of 1 / `alike`. Of many, Σ σσ′ / √(Σσ² Σσ′²) is `alike`. Between, 1 − `alike`
        falls as 1 / count for gates that are nearly the same, and faster for others: the power is
        fitted to draws of 2, 4 and 8 gates at gains of 1 to 12, to .02.

        Args:
            alike: E σσ′ / √(E σ² E σ′²).
        """
        missing = 1 - alike
        return 1 + missing * self.number ** -(1 + 2 * missing) / alike

    def units(self, q: Real, rho: Real) -> tuple[Real, Real]:
        """Second moment and correlation of the gates' inputs, of tokens of second moment q and
        correlation ρ."""
        return biased(self.gain * q, rho, self.bias)


class Point(NamedTuple):
    """A function of each coordinate in the norms' place."""

    kernel: Kernel
    square: float
    """Factor on the second moment that it is given."""


class Biases(NamedTuple):
    """Variances of the biases beside the matrices of the same names in `Gains`; 0 where there are
    none."""

    q: float = 0.0
    k: float = 0.0
    v: float = 0.0
    o: float = 0.0
    hidden: float = 0.0
    out: float = 0.0


class Gains:
    """One config in the theory's terms. A gain is fan_in · Var W: the factor on the second
    moment."""

    def __init__(self, config: Config) -> None:
        design = config.design
        gain = dict.fromkeys(MATRICES, 0.0) | {
            name: matrix.gain for name, matrix in design.matrices.items()
        }
        bias = design.biases
        self.readers = first, *others = design.readers
        """Matrices that read the MLP's input: one for each of `kernel.parts`."""
        self.q, self.k, self.v, self.o = (gain[name] for name in ("W_Q", "W_K", "W_V", "W_O"))
        self.hidden = gain[first]
        """Gain of the matrix before the MLP's activation, W_gate where there is one, else W_in."""
        self.out = gain["W_out"]
        self.ratios = (1.0, *(gain[name] / self.hidden for name in others))
        """Gains of the `readers` over the first's."""
        self.biases = Biases(
            *(bias.get(name, 0.0) for name in ("W_Q", "W_K", "W_V", "W_O", first, "W_out"))
        )
        self.placements = design.sublayers
        self.skip = list(design.skips)
        """Factor on the stream by sublayer; the forward recursion sets those that are profiled."""
        self.branch = design.branches
        """Factor on the branch by sublayer."""
        self.norm_widths = [
            {
                name: config.d_head if site.by_head else design.widths[site.numbers[half]]
                for name, site in SITES.items()
            }
            for half in (0, 1)
        ]
        """Coordinates that each norm averages, in attention and in the MLP."""
        self.last = design.last
        """One more factor on the gain of the last matrix, by sublayer."""
        self.profiled = design.profiled
        """Whether the factors on the stream follow from the branches below, see
        `residual.profiled_factor`."""
        self.final = design.final_norm
        """Whether the stream is normalized once more at the end."""
        self.centers = design.centers
        """Whether norms subtract the mean."""
        self.epsilon = config.norm_epsilon
        """Added by every norm to what it divides by, before the root."""
        self.point: Point | None = None
        """Function of each coordinate that replaces the norms; None where norms divide."""
        if design.point:
            self.point = Point(kernel(design.point, False, None), config.norm_alpha**2)
        self.attends = design.attends
        self.parallel = design.stream.parallel
        """Whether both branches of a layer read the same stream."""
        self.adds = design.inherits
        """Kind of logits that layers inherit from those below: "scores", "qk", or nothing."""
        self.value_residual = config.value_residual
        self.cap = config.logit_cap
        """Soft cap on the logits; 0 is none."""
        self.sink = design.sink.logit
        """Logit of the sink, or None."""
        self.shared = design.shared
        """Whether layers that start alike are one set of parameters."""
        self.period = 2 * design.unique
        """Sublayers after which their weights return."""
        self.d_model, self.d_mlp, self.batch_size = config.d_model, config.d_mlp, config.batch_size
        self.matrices = design.matrices
        self.d_head, self.n_heads = config.d_head, config.n_heads
        self.d_kv = config.kv_heads * config.d_head
        """Coordinates of all key-value heads together."""
        self._logits(config)
        unit = keeps_unit(config)
        # what reads the input itself, before any norm, reads its second moment
        raw = config.input_second_moment != 1 and not design.sublayers[0].has("input")
        self._units(config, unit and not (raw and not design.attends))
        self.gate: Gate | None = None
        """Gates on attention's output; None where there are none."""
        if design.gates:
            self.gate = _gate(config, gain["W_G"], bias.get("W_G", 0.0), unit and not raw)

    def _logits(self, config: Config) -> None:
        """Sets the constants of the queries and keys."""
        design = config.design
        self.qk_norm = design.normalizes_heads
        self.fixed = self.qk_norm and not design.joins
        """Whether each head's queries and keys are of one length."""
        self.tilted = 1.0
        """Share of a gradient along a head's query that passes the QK-norm. A norm by head removes
        that direction, and passes 0. A norm over all heads removes the direction of their joint
        query, which has 1/n_heads of its square in each head. Without a norm all passes."""
        if self.fixed:
            self.tilted = 0.0
        elif self.qk_norm:
            self.tilted = 1 - 1 / config.n_heads
        self.sphere = config.d_head - design.centers if self.fixed else 0
        """Dimensions in which a head's normalized keys lie; 0 where they are not normalized, or
        summed over layers."""
        self.scale = config.d_head / design.divisor**2
        """Factor on the logits' variance: 1 with the divisor √d_head, d_head without one."""
        # centered heads live in one dimension less; a single one is nothing
        if self.fixed and design.centers:
            self.scale *= config.d_head / (config.d_head - 1) if config.d_head > 1 else 0.0
        if config.qk_norm:
            self.scale *= config.qk_gain**2
        # without a mask all rows have n keys and one factor; else see `Positions.logit_factor`
        if not config.causal:
            self.scale *= design.row_factors[0] ** 2

    def _units(self, config: Config, unit: bool) -> None:
        """Sets the constants of the MLP.

        Args:
            unit: whether it reads unit second moments in every layer.
        """
        design, total = config.design, self.hidden + self.biases.hidden
        self.activation = config.activation, config.activation_rescaled
        self.fixed_q: Any = total if unit and tabulated(config.activation) else None
        """Second moment of the activation's input, where a table for that alone is read."""
        self.products: list[tuple[float, float]] = []
        """Arguments of `closed_forms.gated`, for each factor of a hidden unit beside the
        activation."""
        self.degree, shift = float(design.degree), MLPS[config.mlp].shift
        """Power of its input with which the MLP's output grows, at unit input."""
        flat = flatness(config.activation)
        for name, ratio in zip(self.readers[1:], self.ratios[1:], strict=True):
            # the hidden unit is multiplied by a factor N(shift, square)
            matrix, constant = design.matrices[name], shift * shift
            square = matrix.gain + matrix.bias
            second = square + constant
            fourth = 3 * square**2 + 6 * square * constant + constant**2
            self.products.append((ratio, constant + (1 - ratio) * matrix.bias))
            flat = fourth / second**2 * (1 + flat) - 1
            self.degree -= constant / second
        self.noise = 2 / config.d_model + 2 / self.d_kv, 2 / config.d_model + flat / config.d_mlp
        """Relative variance of a token's squared length after attention and after the MLP, from
        finite widths: a sum of m squares of Gaussians scatters by 2/m, after W_V, W_O and W_out;
        the MLP's hidden units by their flatness."""

    @cached_property
    def kernel(self) -> Kernel:
        """Kernel of the MLP's hidden units, by the second moment of the activation's input."""
        fixed_q = self.fixed_q
        if isinstance(fixed_q, np.ndarray):
            fixed_q = tuple(fixed_q.tolist())
        of_units = kernel(*self.activation, fixed_q)
        for ratio, constant in self.products:
            of_units = gated(of_units, ratio, constant)
        return of_units

    def factors(self, q: Any, of_keys: Any) -> tuple[Any, Any, Any, Any]:
        """Factors on the second moments and overlaps of queries and of keys, and the variances of
        their biases: (W_Q's, W_K's, query biases', key biases').

        All are divided by what a QK-norm divides by, with it of the shape of q.

        Args:
            q: second moment of the tokens that make queries, and `of_keys` of those that make keys.
        """
        if not self.qk_norm:
            return self.q, self.k, self.biases.q, self.biases.k
        over = self.q * q + self.biases.q + self.epsilon
        under = self.k * of_keys + self.biases.k + self.epsilon
        return self.q / over, self.k / under, self.biases.q / over, self.biases.k / under

    def keys(self, q: Real, rho: Real) -> Real:
        """Correlation of the keys of tokens of second moment q and correlation ρ."""
        return biased(self.k * q, rho, self.biases.k)[1]

    def units(self, q: Real, rho: Real) -> tuple[Real, Real]:
        """Second moment and correlation of the inputs of an MLP's activation, of tokens of second
        moment q and correlation ρ."""
        return biased(q if equals(self.hidden, 1) else self.hidden * q, rho, self.biases.hidden)


def column(values: Iterable[float]) -> Array:
    """Numbers by sublayer as `[sublayer, 1, 1]`, to multiply `[sublayer, pair]`."""
    return np.array(list(values))[:, None, None]


def biased(square: Real, rho: Real, bias: float) -> tuple[Real, Real]:
    """Second moment and correlation with a bias of this variance, the same for all tokens, which
    adds to second moment and overlap alike."""
    if equals(bias, 0):
        return square, rho
    return square + bias, (square * rho + bias) / (square + bias)


def keeps_unit(config: Config) -> bool:
    """Whether branches read unit second moments in every layer: all after a norm, of a stream that
    does not shrink, which else may come near the norm's ε."""
    design, q = config.design, config.input_second_moment
    if design.point or config.norm_epsilon > SMALL * min(q, 1.0) or min(design.skips) < 1:
        return False
    if design.profiled and q < 1:
        return False
    return all(
        placement.has("input", "sum") and placement.scale == 1 and placement.reads >= 1
        for placement in design.sublayers
    )


def _gate(config: Config, gain: float, bias: float, unit: bool) -> Gate:
    """The sigmoid gates on attention's output.

    A gate σ multiplies m coordinates. Let f be the relative variance of σ²; the squared length of m
    Gaussian coordinates has 2/m. Their product has (1 + f)(1 + 2/m) − 1, of which 2/m is there
    without gates, too: gates add f (1 + 2/m), and of a sum over independent gates 1/count of it.

    Args:
        gain: of W_G, and `bias` the variance of the biases beside it.
        unit: whether gates read unit second moments in every layer. Then the kernel is tabulated
            for their inputs' one second moment, else for any.
    """
    count, total = config.design.gates, gain + bias
    coordinates = config.n_heads * config.d_head / count  # m, that each gate multiplies
    noise = flatness("sigmoid", total) / count * (1 + 2 / coordinates)
    of_gates = kernel("sigmoid", rescaled=False, fixed_q=total if unit else None)
    return Gate(gain, of_gates, noise, bias, count)
