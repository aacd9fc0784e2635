"""Four norms on one tensor `[batch, token, feature]`: which axes each averages, and what comes out.

A norm divides by √(v + ε), v the variance (or, where it does not center, the second moment) over the axes it averages.
So what comes out has second moment v/(v + ε), exactly. torch's own functions are measured; the formula is the line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from explorer.choices import Choices
from explorer.fields import setting
from explorer.labs import Verdict, stages
from explorer.profile import Array
from explorer.stopping import Progress, Stop

if TYPE_CHECKING:
    from torch import Tensor

LARGEST, SHOWN = 2**20, 48
"""Entries of the tensor; tokens or features that are drawn one by one."""
UNIT = 0.9
"""Second moment from which on what a norm returns counts as one."""
OFFSETS = np.linspace(-20, 20, 81)
SCALES = np.geomspace(1e-4, 1e4, 65)


class Norm(NamedTuple):
    """Axes (batch, token, feature) that a norm averages over, and whether it subtracts the mean."""

    label: str
    axes: tuple[int, ...]
    centers: bool
    shares: str
    """Values averaged together, in words."""


NORMS: Mapping[str, Norm] = {
    "layer": Norm("LayerNorm", (2,), True, "the features of one token"),
    "rms": Norm("RMSNorm", (2,), False, "the features of one token"),
    "batch": Norm("BatchNorm", (0, 1), True, "one feature over all tokens of all sequences"),
    "instance": Norm("InstanceNorm", (1,), True, "one feature over the tokens of one sequence"),
}


class Normalization(Choices):
    """The tensor that is normalized, and ε."""

    offset: float = setting(3.0, "Constant offset", "Input and loss",
                            "Added to every entry, in standard deviations of the noise.", -20, 20, symbol="c",
                            unit="std", pinned=True)
    batch_size: int = setting(8, "Batch size", "Size", "Sequences in the tensor; 1 is a batch of one.", 1, 64,
                              symbol="B", unit="sequences", log=True, pinned=True)
    n_tokens: int = setting(16, "Sequence length", "Size", "Tokens in a sequence.", 1, 256, symbol="n", unit="tokens",
                            log=True, pinned=True)
    n_features: int = setting(64, "Width", "Size", "Features of a token.", 2, 1024, symbol="d", unit="features",
                              log=True, pinned=True)
    token_spread: float = setting(10.0, "Spread of tokens", "Input and loss",
                                  "Largest standard deviation of a token over the smallest.", 1, 100, unit="×",
                                  log=True)
    feature_spread: float = setting(10.0, "Spread of features", "Input and loss",
                                    "Largest standard deviation of a feature over the smallest.", 1, 100, unit="×",
                                    log=True)
    scale: float = setting(1.0, "Input scale", "Input and loss",
                           "Factor on the whole tensor; a norm removes it unless the variance is near ε.", 1e-4, 1e4,
                           symbol="s", unit="×", log=True, pinned=True)
    epsilon: float = setting(1e-5, "ε", "Normalization", "Added to the variance before the square root.", 1e-12, 1,
                             symbol="ε", log=True, pinned=True)
    zero_vector: bool = setting(False, "A zero vector", "Input and loss",
                                "Makes the first token of the first sequence all zeros.", pinned=True)
    seed: int = setting(0, "Seed", "Input and loss", "Seed of the noise.", 0, 2**31 - 1)

    @model_validator(mode="after")
    def _fits(self) -> Normalization:
        size = self.batch_size * self.n_tokens * self.n_features
        if size > LARGEST:
            raise self.refusal(
                f"{{batch_size}} × {{n_tokens}} × {{n_features}} must be at most {LARGEST:,}; got {size:,}"
            )
        return self


@dataclass(frozen=True, eq=False)
class Output:
    """One norm's result, or the input's own numbers."""

    second_moment: float
    by_token: Array
    """Second moment of the tokens drawn, quietest first, `[token]`."""
    by_feature: Array
    """Second moment of the features drawn, quietest first, `[feature]`."""
    constant_share: float
    """Share of the second moment that is one constant added everywhere: (mean y)² / mean y²."""


@dataclass(frozen=True, eq=False)
class NormalizationResult:
    """All norms on one tensor."""

    settings: Normalization
    before: Output
    after: Mapping[str, Output]
    share_by_offset: Mapping[str, Array]
    """Expected constant share over `OFFSETS`."""
    moment_by_scale: Mapping[str, Array]
    """Expected second moment over `SCALES`."""
    alone: Mapping[str, bool]
    """A norm has a single value to average and centers: nothing is left."""


def tensor(settings: Normalization) -> Array:
    """`[batch, token, feature]`: scale · (offset + loudness of token × loudness of feature × noise)."""
    rng = np.random.default_rng(settings.seed)
    shape = settings.batch_size, settings.n_tokens, settings.n_features
    loud = [
        rng.permutation(_loudness(count, spread))
        for count, spread in ((shape[0] * shape[1], settings.token_spread), (shape[2], settings.feature_spread))
    ]
    x = settings.offset + loud[0].reshape(*shape[:2], 1) * loud[1] * rng.standard_normal(shape)
    if settings.zero_vector:
        x[0, 0] = 0
    return np.asarray(settings.scale * x)


def _loudness(count: int, spread: float) -> Array:
    """Even steps of the logarithm, the largest `spread` times the smallest, mean square 1."""
    steps = spread ** np.linspace(-0.5, 0.5, count) if count > 1 else np.ones(1)
    return np.asarray(steps / np.sqrt(np.mean(steps**2)))


def normalize(name: str, x: Tensor, epsilon: float) -> Tensor:
    """torch's own norm in training, without learned parameters, `[batch, token, feature]` to the same."""
    import torch
    from torch.nn import functional as F

    if name == "layer":
        return F.layer_norm(x, x.shape[-1:], eps=epsilon)
    if name == "rms":
        return F.rms_norm(x, x.shape[-1:], eps=epsilon)
    channels = x.transpose(1, 2)  # [batch, feature, token]
    # torch.nn.functional refuses a single value in training; the functions below it compute what would come out.
    if name == "batch":
        y: Tensor = torch.batch_norm(channels, None, None, None, None, True, 0.0, epsilon, False)
    else:
        y = torch.instance_norm(channels, None, None, None, None, True, 0.0, epsilon, False)
    return y.transpose(1, 2)


def spread(name: str, x: Array) -> Array:
    """v of each group that a norm averages: variance, or second moment where it does not center."""
    norm = NORMS[name]
    center = x.mean(norm.axes, keepdims=True) if norm.centers else 0.0
    return np.asarray(np.mean((x - center) ** 2, norm.axes))


def run(settings: Normalization, stop: Stop = lambda: False, progress: Progress = lambda _: None
        ) -> NormalizationResult:
    """Normalizes the tensor in four ways.

    Raises:
        Stopped: `stop()` said true.
    """
    import torch

    x = tensor(settings)
    order = _order(x, (0, 1)), _order(x, (2,))
    after, shares, moments, alone = {}, {}, {}, {}
    for name in stages(tuple(NORMS), stop, progress):
        groups = spread(name, x)
        after[name] = _read(normalize(name, torch.from_numpy(x), settings.epsilon).numpy(), order)
        shares[name] = _shares(name, settings)
        moments[name] = np.array([expected(groups * (scale / settings.scale) ** 2, settings.epsilon)
                                  for scale in SCALES])
        alone[name] = NORMS[name].centers and groups.size == x.size
    return NormalizationResult(settings, _read(x, order), after, shares, moments, alone)


def expected(groups: Array, epsilon: float) -> float:
    """Second moment of a norm's output: the mean of v/(v + ε) over its groups."""
    return float(np.mean(groups / (groups + epsilon)))


def _order(x: Array, axes: tuple[int, ...]) -> NDArray[np.intp]:
    """Tokens (axes 0, 1) or features (axis 2) to be drawn, by rising second moment: evenly chosen ranks."""
    rest = tuple({0, 1, 2} - set(axes))
    ranked = np.argsort(np.mean(x**2, rest).ravel(), kind="stable")
    return np.asarray(ranked[np.linspace(0, len(ranked) - 1, min(SHOWN, len(ranked))).round().astype(int)])


def _read(y: Array, order: tuple[NDArray[np.intp], NDArray[np.intp]]) -> Output:
    square = y * y
    total = float(square.mean())
    constant_share = float(y.mean() ** 2 / total) if total > 0 else 0.0
    return Output(total, square.mean(2).ravel()[order[0]], square.mean((0, 1))[order[1]], constant_share)


def _shares(name: str, settings: Normalization) -> Array:
    """(mean y)² / mean y² over `OFFSETS`: nothing where the mean is subtracted. ε is left out."""
    x = tensor(settings.replace(offset=0.0, scale=1.0)).reshape(-1, settings.n_features)
    own = x[np.any(x != 0, 1)]  # a zero vector stays zero
    if NORMS[name].centers or not len(own):
        return np.zeros_like(OFFSETS)
    mean, square = own.mean(1)[:, None], np.mean(own**2, 1)[:, None]
    outputs = (mean + OFFSETS) / np.sqrt(square + 2 * mean * OFFSETS + OFFSETS**2)
    return np.asarray((outputs.sum(0) / len(x)) ** 2 / (len(own) / len(x)))


def verdict(result: NormalizationResult) -> Verdict:
    """Verdict on this tensor: nothing left, ε too large, an offset kept, or all as expected."""
    lost = [NORMS[name].label for name, alone in result.alone.items() if alone]
    moments = ", ".join(f"{norm.label} {result.after[name].second_moment:.3g}" for name, norm in NORMS.items())
    if lost:
        return ("bad", f"{' and '.join(lost)} return{'s' * (len(lost) == 1)} nothing but zeros.",
                "There is one value to average, which equals its mean; torch refuses to train like this.")
    zeros = _zero_share(result.settings)
    small = [NORMS[name].label for name, output in result.after.items()
             if output.second_moment < UNIT * (1 - zeros if NORMS[name].axes == (2,) else 1)]
    if small:
        return "warning", f"ε is no longer small beside the signal for {', '.join(small)}.", f"Mean y²: {moments}."
    share = result.after["rms"].constant_share
    if share > 0.5:
        return ("warning", "RMSNorm keeps the constant offset; the norms that center remove it.",
                f"{100 * share:.0f} % of its output's second moment is one constant. Mean y²: {moments}.")
    zero = ", but for the zero vector, which stays zero in LayerNorm and RMSNorm" if zeros else ""
    return "good", f"Every norm returns a unit second moment{zero}.", f"Mean y²: {moments}; {UNIT:g} counts as one."


def _zero_share(settings: Normalization) -> float:
    """Share of the tokens that is zero: norms over features leave them so, whatever ε is."""
    return settings.zero_vector / (settings.batch_size * settings.n_tokens)


def invariants(settings: Normalization = Normalization()) -> dict[str, float]:  # noqa: B008 - frozen
    """Second moment after each norm, the constant's share after LayerNorm and RMSNorm, a batch of one, ε alone."""
    import torch

    after = run(settings).after
    single = torch.from_numpy(tensor(settings.replace(batch_size=1, n_tokens=1)))
    zero = torch.zeros(1, 1, settings.n_features, dtype=torch.float64)
    return {
        **{f"mean y², {NORMS[name].label}": output.second_moment for name, output in after.items()},
        "constant's share, LayerNorm": after["layer"].constant_share,
        "constant's share, RMSNorm": after["rms"].constant_share,
        "BatchNorm of one token": float(normalize("batch", single, settings.epsilon).abs().max()),
        "LayerNorm of a zero vector": float(normalize("layer", zero, settings.epsilon).abs().max()),
    }
