"""Four norms on one tensor `[batch, token, feature]`: which axes each averages, and what comes out.

A norm divides by √(v + ε), v the variance (or, where it does not center, the second moment) over the axes it averages.
So what comes out has second moment v/(v + ε), exactly. torch's own functions are measured; the formula is the line.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from explorer.choices import Choices
from explorer.fields import About
from explorer.labs import Progress, Stop, Verdict, check, stages

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[np.float64]

LARGEST, SHOWN = 2**20, 48
"""Entries of the tensor; tokens or features that are drawn one by one."""
UNIT = 0.9
"""Second moment from which on what a norm returns counts as one."""
ROUNDS, FEWEST_ENTRIES = 30, 2**16
"""Calls of each norm that are timed, on a tensor of at least so many entries."""
OFFSETS = np.linspace(-20, 20, 81)
SCALES = np.geomspace(1e-4, 1e4, 65)


class Norm(NamedTuple):
    """Axes (batch, token, feature) that a norm averages over, and whether it subtracts the mean."""

    label: str
    axes: tuple[int, ...]
    centers: bool
    shares: str
    """Values averaged together, in words."""


NORMS: Mapping[str, Norm] = MappingProxyType({
    "layer": Norm("LayerNorm", (2,), True, "the features of one token"),
    "rms": Norm("RMSNorm", (2,), False, "the features of one token"),
    "batch": Norm("BatchNorm", (0, 1), True, "one feature over all tokens of all sequences"),
    "instance": Norm("InstanceNorm", (1,), True, "one feature over the tokens of one sequence"),
})


class Normalization(Choices):
    """The tensor that is normalized, and ε."""

    offset: Annotated[
        float, Field(ge=-20, le=20), About("Constant offset", "Input and loss", "c", "std", pinned=True)
    ] = Field(3.0, description="Added to every entry, in standard deviations of the noise.")
    batch_size: Annotated[
        int, Field(ge=1, le=64), About("Batch size", "Size", "B", "sequences", log=True, pinned=True)
    ] = Field(8, description="Sequences in the tensor; 1 is a batch of one.")
    n_tokens: Annotated[
        int, Field(ge=1, le=256), About("Sequence length", "Size", "n", "tokens", log=True, pinned=True)
    ] = Field(16, description="Tokens in a sequence.")
    n_features: Annotated[
        int, Field(ge=2, le=1024), About("Width", "Size", "d", "features", log=True, pinned=True)
    ] = Field(64, description="Features of a token.")
    token_spread: Annotated[
        float, Field(ge=1, le=100), About("Spread of tokens", "Input and loss", "", "×", log=True)
    ] = Field(10.0, description="Largest standard deviation of a token over the smallest.")
    feature_spread: Annotated[
        float, Field(ge=1, le=100), About("Spread of features", "Input and loss", "", "×", log=True)
    ] = Field(10.0, description="Largest standard deviation of a feature over the smallest.")
    scale: Annotated[
        float, Field(ge=1e-4, le=1e4), About("Input scale", "Input and loss", "s", "×", log=True, pinned=True)
    ] = Field(1.0, description="Factor on the whole tensor; a norm removes it unless the variance is near ε.")
    epsilon: Annotated[
        float, Field(ge=1e-12, le=1), About("ε", "Normalization", "ε", "", log=True, pinned=True)
    ] = Field(1e-5, description="Added to the variance before the square root.")
    zero_vector: Annotated[bool, About("A zero vector", "Input and loss", pinned=True)] = Field(
        False, description="Makes the first token of the first sequence all zeros."
    )
    seed: Annotated[int, Field(ge=0, le=2**31 - 1), About("Seed", "Input and loss")] = Field(
        0, description="Seed of the noise."
    )

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
    zero_token: float
    """Second moment of the first token of the first sequence."""


@dataclass(frozen=True, eq=False)
class NormalizationResult:
    """All norms on one tensor."""

    settings: Normalization
    before: Output
    after: Mapping[str, Output]
    expected: Mapping[str, float]
    """Mean of v/(v + ε) over a norm's groups."""
    share_by_offset: Mapping[str, Array]
    """Expected constant share over `OFFSETS`."""
    moment_by_scale: Mapping[str, Array]
    """Expected second moment over `SCALES`."""
    cost: Mapping[str, Array]
    """Time of a call over that of x + x in the same round: lower quartile, median, upper quartile."""
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
    """Normalizes the tensor in four ways, and times them.

    Raises:
        Stopped: `stop()` said true.
    """
    import torch

    check(stop)
    x = tensor(settings)
    order = _order(x, (0, 1)), _order(x, (2,))
    after = {
        name: _read(normalize(name, torch.from_numpy(x), settings.epsilon).numpy(), order) for name in NORMS
    }
    groups = {name: spread(name, x) for name in NORMS}
    base = {name: group / settings.scale**2 for name, group in groups.items()}
    return NormalizationResult(
        settings=settings,
        before=_read(x, order),
        after=after,
        expected={name: _kept(group, settings.epsilon) for name, group in groups.items()},
        share_by_offset={name: _shares(name, settings) for name in NORMS},
        moment_by_scale={
            name: np.array([_kept(group * scale**2, settings.epsilon) for scale in SCALES])
            for name, group in base.items()
        },
        cost=_cost(x, settings.epsilon, stop, progress),
        alone={name: norm.centers and groups[name].size == x.size for name, norm in NORMS.items()},
    )


def _kept(groups: Array, epsilon: float) -> float:
    return float(np.mean(groups / (groups + epsilon)))


def _order(x: Array, axes: tuple[int, ...]) -> NDArray[np.intp]:
    """Tokens (axes 0, 1) or features (axis 2) to be drawn, by rising second moment: evenly chosen ranks."""
    rest = tuple({0, 1, 2} - set(axes))
    ranked = np.argsort(np.mean(x**2, rest).ravel(), kind="stable")
    drawn: NDArray[np.intp] = ranked[np.linspace(0, len(ranked) - 1, min(SHOWN, len(ranked))).round().astype(int)]
    return drawn


def _read(y: Array, order: tuple[NDArray[np.intp], NDArray[np.intp]]) -> Output:
    square = y * y
    total = float(square.mean())
    return Output(
        second_moment=total,
        by_token=square.mean(2).ravel()[order[0]],
        by_feature=square.mean((0, 1))[order[1]],
        constant_share=float(y.mean() ** 2 / total) if total > 0 else 0.0,
        zero_token=float(square[0, 0].mean()),
    )


def _shares(name: str, settings: Normalization) -> Array:
    """(mean y)² / mean y² over `OFFSETS`: nothing where the mean is subtracted. ε is left out."""
    x = tensor(settings.replace(offset=0.0, scale=1.0)).reshape(-1, settings.n_features)
    own = x[np.any(x != 0, 1)]  # a zero vector stays zero
    if NORMS[name].centers or not len(own):
        return np.zeros_like(OFFSETS)
    mean, square = own.mean(1)[:, None], np.mean(own**2, 1)[:, None]
    outputs = (mean + OFFSETS) / np.sqrt(square + 2 * mean * OFFSETS + OFFSETS**2)
    return np.asarray((outputs.sum(0) / len(x)) ** 2 / (len(own) / len(x)))


def _cost(x: Array, epsilon: float, stop: Stop, progress: Progress) -> dict[str, Array]:
    """Quartiles of each norm's time over that of x + x, interleaved, so that a busy machine slows all alike."""
    import torch

    short = torch.from_numpy(x).float()
    copies = -(-FEWEST_ENTRIES // short.numel())
    block = short.repeat(copies, 1, 1)
    calls: dict[str, Callable[[], Tensor]] = {name: partial(normalize, name, block, epsilon) for name in NORMS}
    ratios: dict[str, list[float]] = {name: [] for name in NORMS}
    for call in calls.values():  # the first call of each is not typical
        call()
    for _ in stages(range(ROUNDS), stop, progress):
        base = _seconds(partial(torch.add, block, block))
        for name, call in calls.items():
            ratios[name].append(_seconds(call) / base)
    return {name: np.quantile(values, (0.25, 0.5, 0.75)) for name, values in ratios.items()}


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


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

    x = torch.from_numpy(tensor(settings))
    order = _order(x.numpy(), (0, 1)), _order(x.numpy(), (2,))
    after = {name: _read(normalize(name, x, settings.epsilon).numpy(), order) for name in NORMS}
    single = torch.from_numpy(tensor(settings.replace(batch_size=1, n_tokens=1)))
    zero = torch.zeros(1, 1, settings.n_features, dtype=torch.float64)
    return {
        **{f"mean y², {NORMS[name].label}": output.second_moment for name, output in after.items()},
        "constant's share, LayerNorm": after["layer"].constant_share,
        "constant's share, RMSNorm": after["rms"].constant_share,
        "BatchNorm of one token": float(normalize("batch", single, settings.epsilon).abs().max()),
        "LayerNorm of a zero vector": float(normalize("layer", zero, settings.epsilon).abs().max()),
    }
