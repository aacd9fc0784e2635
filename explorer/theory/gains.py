"""Constants of a config for the theory: gains, multipliers, norms, and the statistics of its softmax."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from explorer.config import Config
from explorer.profile import MATRICES
from explorer.schemes.closed_forms import Kernel, gated
from explorer.schemes.mlp import MLPS
from explorer.schemes.placement import Placement
from explorer.theory.gaussian import flatness, kernel
from explorer.theory.grids import Array

Real = TypeVar("Real", float, Array)
SMALL = 1e-5
"""The largest ε beside which a stream that does not shrink is of unit second moment after its norms."""


class Gate(NamedTuple):
    """Sigmoid gates on attention's output."""

    gain: float
    """Gain of W_G."""
    kernel: Kernel
    noise: float
    """Relative variance of a token's squared length, for one of unit second moment: f/gates, f the variance of σ² over
    (E σ²)², times 1 + 2/m for the m Gaussian coordinates that each gate multiplies."""
    bias: float
    """Variance of the biases beside W_G."""

    def units(self, q: Real, rho: Real) -> tuple[Real, Real]:
        """Second moment and correlation of what the gates see of tokens that have these."""
        return biased(self.gain * q, rho, self.bias)


class Point(NamedTuple):
    """A function of each coordinate in the norms' place."""

    kernel: Kernel
    square: float
    """Factor on the second moment that it is given."""


class Biases(NamedTuple):
    """Variances of the biases beside the matrices of the same names in `Gains`; 0 where there are none."""

    q: float = 0.0
    k: float = 0.0
    v: float = 0.0
    o: float = 0.0
    hidden: float = 0.0
    out: float = 0.0


class Gains(NamedTuple):
    """One config in the theory's terms. A gain is fan_in · Var W: the factor on the second moment."""

    q: float
    k: float
    v: float
    o: float
    hidden: float
    """Gain of the matrix before the MLP's activation: W_gate where there is one, else W_in."""
    out: float
    """Gain of W_out."""
    biases: Biases
    scale: float
    """Factor on the logits' variance: 1 with the divisor √d_head, d_head without one."""
    skip: list[float]
    """Factor on the stream, by sublayer, as the next two; the forward recursion sets those that are profiled."""
    branch: tuple[float, ...]
    placements: tuple[Placement, ...]
    profiled: bool
    """The factors on the stream are made of the branches below, see `residual.profiled_factor`."""
    epsilon: float
    """Added by every norm to what it divides by, before the root."""
    point: Point | None
    """Function of each coordinate that replaces the norms; None where norms divide."""
    final: bool
    """The stream is normalized once more at the end."""
    centers: bool
    """The norm subtracts the mean."""
    attends: bool
    parallel: bool
    """Both branches of a layer read the same stream."""
    adds: str
    value_residual: bool
    qk_norm: bool
    fixed: bool
    """Each head's queries and keys are of one length."""
    tilted: float
    """Share of a gradient along a head's query that passes the QK-norm: 1 without one, 0 if it is by head."""
    sphere: int
    """Dimensions in which a head's normalized keys lie; 0 where they are not normalized, or summed over the layers."""
    cap: float
    """Soft cap on the logits; 0 is none."""
    gate: Gate | None
    """On attention's output; None where there is none."""
    sink: float | None
    """Logit of the sink; None where there is none."""
    kernel: Kernel
    """Of the MLP's hidden units, by the second moment of what the activation sees."""
    readers: tuple[str, ...]
    """Matrices that read the MLP's input: one for each of `kernel.parts`."""
    ratios: tuple[float, ...]
    """Their gains over the first's."""
    degree: float
    """Power of its input with which the MLP's output grows, at unit input."""
    copies: bool
    """All layers have the same weights."""
    d_model: int
    d_mlp: int
    d_head: int
    d_kv: int
    """Coordinates of all key-value heads together."""
    n_heads: int
    noise: tuple[float, float]
    """Relative variance of a token's squared length after attention and after the MLP, from finite widths: a sum of m
    squares of Gaussians scatters by 2/m, after W_V, W_O and W_out; the MLP's hidden units by their flatness."""

    def keys(self, q: Real, rho: Real) -> Real:
        """Correlation of the keys of tokens that have these."""
        return biased(self.k * q, rho, self.biases.k)[1]

    def units(self, q: Real, rho: Real) -> tuple[Real, Real]:
        """Second moment and correlation of what an MLP's activation sees of tokens that have these."""
        return biased(q if self.hidden == 1 else self.hidden * q, rho, self.biases.hidden)


def biased(square: Real, rho: Real, bias: float) -> tuple[Real, Real]:
    """Second moment and correlation with a bias, the same for all tokens, which adds to square and overlap alike."""
    return (square + bias, (square * rho + bias) / (square + bias)) if bias else (square, rho)


def gains(config: Config) -> Gains:
    """Reads a config."""
    design = config.design
    gain = dict.fromkeys(MATRICES, 0.0) | {name: matrix.gain for name, matrix in design.matrices.items()}
    scale = config.d_head / design.divisor**2
    normalized = design.normalizes_heads
    fixed = normalized and not design.joins
    if fixed and design.centers:  # centered heads live in one dimension less; a single one is nothing
        scale *= config.d_head / (config.d_head - 1) if config.d_head > 1 else 0.0
    if config.qk_norm:
        scale *= config.qk_gain**2
    if not config.causal:
        scale *= design.row_factors[0] ** 2
    sphere = config.d_head - design.centers if fixed else 0
    places = design.sublayers
    # a stream that shrinks may come near a norm's ε, and is then no longer of unit second moment after it
    function = design.point
    unit = not function and config.norm_epsilon <= SMALL * min(config.input_second_moment, 1.0)
    unit &= min(design.skips) >= 1 and not (design.profiled and config.input_second_moment < 1)
    unit &= all(place.reads_norm and place.scale == 1 and place.reads >= 1 for place in places)
    first, *others = design.readers
    bias = design.biases
    total = gain[first] + bias.get(first, 0.0)
    units = kernel(config.activation, config.activation_rescaled, total if unit else None)
    flat = flatness(config.activation)
    power, shift = float(design.degree), MLPS[config.mlp].shift
    for name in others:
        ratio, square, constant = gain[name] / gain[first], gain[name] + bias.get(name, 0.0), shift * shift
        units = gated(units, ratio, constant + (1 - ratio) * bias.get(name, 0.0))
        # the fourth moment of a factor N(shift, square) over its second moment's square
        flat = (3 * square**2 + 6 * square * constant + constant**2) / (square + constant) ** 2 * (1 + flat) - 1
        power -= constant / (square + constant)
    return Gains(
        gain["W_Q"], gain["W_K"], gain["W_V"], gain["W_O"], gain[first], gain["W_out"],
        biases=Biases(*(bias.get(name, 0.0) for name in ("W_Q", "W_K", "W_V", "W_O", first, "W_out"))),
        scale=scale,
        skip=list(design.skips),
        profiled=design.profiled,
        branch=design.branches,
        placements=places,
        epsilon=config.norm_epsilon,
        point=Point(kernel(function, False, None), config.norm_alpha**2) if function else None,
        final=design.final_norm,
        centers=design.centers,
        attends=design.attends,
        parallel=design.stream.parallel,
        adds=design.inherits,
        value_residual=config.value_residual,
        qk_norm=normalized,
        fixed=fixed,
        tilted=0.0 if fixed else 1 - 1 / config.n_heads if normalized else 1.0,
        sphere=sphere,
        cap=config.logit_cap,
        gate=_gate(config, gain["W_G"], bias.get("W_G", 0.0), unit) if design.gates else None,
        sink=design.sink.logit,
        copies=design.copied,
        d_model=config.d_model,
        d_mlp=config.d_mlp,
        d_head=config.d_head,
        d_kv=config.kv_heads * config.d_head,
        n_heads=config.n_heads,
        noise=(2 / config.d_model + 2 / (config.kv_heads * config.d_head), 2 / config.d_model + flat / config.d_mlp),
        kernel=units,
        readers=design.readers,
        ratios=(1.0, *(gain[name] / gain[first] for name in others)),
        degree=power,
    )


def _gate(config: Config, gain: float, bias: float, unit: bool) -> Gate:
    """The gates of a config, whose branches read unit second moments or others."""
    count, total = config.design.gates, gain + bias
    scatter = flatness("sigmoid", total) / count * (1 + 2 * count / (config.n_heads * config.d_head))
    return Gate(gain, kernel("sigmoid", False, total if unit else None), scatter, bias)
