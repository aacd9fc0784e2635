"""x + α F(x): second moments add, a norm after the sum fades the input, one before the branch lets the stream grow.

And designs whose branches start at zero: the stack is the identity, exactly, and so are most of its gradients zero.
All stacks are the Transformer of the Explore page; tokens are independent and normal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from explorer.choices import Choices
from explorer.config import Config
from explorer.fields import About
from explorer.labs import Progress, Stop, Verdict, check, plus_minus, stages
from explorer.presets import PRESETS, preset
from explorer.profile import MATRICES, Profile
from explorer.theory.depth import identity_path

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[np.float64]

CORRELATIONS = np.linspace(-1, 1, 9)
"""Of a branch with its stream."""
TOKENS = 32
ERRORS = 3
"""Standard errors by which a draw's coefficient of x_0 may differ from the theory's."""
FLAT = 0.5
"""Share of the output's gradient² from which on a gradient that is nowhere lower counts as flat."""
PARAMETERS = (*MATRICES, "alpha")
STARTS = ("post_ln", "pre_ln", "layer_scale", "rezero", "skipinit", "fixup")
"""Presets whose first gradients are compared; the last three start as the identity."""
IDENTITY = STARTS[3:]
LABELS: Mapping[str, str] = MappingProxyType({name: PRESETS[name].title for name in STARTS})
GROWTHS: Mapping[str, str] = MappingProxyType({"post": "Post-LN", "pre": "Pre-LN", "peri": "Peri-LN"})
GRADIENTS: Mapping[str, str] = MappingProxyType({"none": "MLPs only", "softmax": "with attention"})


class Residual(Choices):
    """The branch's multiplier, and the sizes of the stacks."""

    alpha: Annotated[float, Field(ge=0, le=2), About("Residual α", "", "α")] = Field(
        1.0, description="Factor on each branch: x + α F(x)."
    )
    n_layers: Annotated[int, Field(ge=2, le=48), About("Depth", "", "N", "layers", log=True)] = Field(
        12, description="Layers. With attention a layer has two branches, else one."
    )
    width: Annotated[int, Field(ge=16, le=256), About("Width", "", "d", "coordinates", log=True)] = Field(
        128, description="Width of the stream and of the MLPs' hidden layer."
    )
    n_seeds: Annotated[int, Field(ge=1, le=8), About("Seeds", "", unit="draws", log=True)] = Field(
        3, description="Independent draws of weights and inputs; dots are their mean, bars their range."
    )
    seed: Annotated[int, Field(ge=0, le=2**31 - 64), About("First seed", "")] = Field(
        0, description="Seed of the first draw."
    )

    def design(self, norm_placement: str, attention: str = "softmax") -> Config:
        """A stack with the norm somewhere, with or without attention."""
        return Config(**self._sizes(), norm_placement=norm_placement, attention=attention, alpha=self.alpha)

    def start(self, name: str) -> Config:
        """One of `STARTS`, a single draw; α matters to the first two, the others have their own."""
        return preset(name, **self._sizes() | {"n_seeds": 1, "alpha": self.alpha})

    def _sizes(self) -> dict[str, object]:
        return {
            "n_layers": self.n_layers, "d_model": self.width, "n_heads": 2, "mlp_ratio": 1, "n_ctx": TOKENS,
            "batch_size": 1, "norm": "rms", "n_seeds": self.n_seeds, "seed": self.seed,
        }

    def zeros(self, name: str) -> set[str]:
        """Parameters whose gradient is exactly zero in one of `STARTS`, by what the design multiplies by zero."""
        if name == "fixup":  # a zero last matrix passes no gradient back, and has one itself
            return {"W_Q", "W_K", "W_V", "W_in"}
        shut = name in ("rezero", "skipinit") or (name in STARTS[:2] and self.alpha == 0)
        return set(MATRICES) if shut else set()


class Stack(NamedTuple):
    """A statistic along a stack, measured and predicted."""

    depth: Array
    """`[site]`, in layers."""
    measured: Array
    """`[seed, site]`."""
    predicted: Array
    """`[site]`."""


class Start(NamedTuple):
    """A design before its first step."""

    moved: float
    """Largest |x_N − x_0| of any coordinate."""
    norms: Mapping[str, float]
    """‖∂L/∂W‖ of each kind of parameter that it has, all layers together."""
    depth: Array
    gradient: Array
    """`[site]` mean squared ∂L/∂x, relative to the output."""


@dataclass(frozen=True, eq=False)
class ResidualResult:
    """Everything about one α."""

    settings: Residual
    sums: Array
    """Second moment of x + α F over `CORRELATIONS`, x and F of unit second moment."""
    branches: Array
    """`[branch, 2]` of a real stack: correlation of a branch with its stream, and what their sum's second moment is."""
    path: Array
    """`[seed, branch + 1]` coefficient of x_0 in the post-norm stream."""
    growth: Mapping[str, Stack]
    """Second moment of the stream, by norm placement."""
    gradient: Mapping[str, Stack]
    """Gradient² of Post-LN relative to the output, without and with attention."""
    starts: Mapping[str, Start]

    @property
    def noise(self) -> float:
        """Largest standard error of the final coefficient of x_0, for the mean of the seeds.

        Drawing n tokens costs 1/(d n), the matrices' own diagonals at most 1/d²; and the second moment of each sum
        varies by at most α²(2 + α²)·2/d, as much as it does where all tokens are alike.
        """
        d, square = self.settings.width, self.settings.alpha**2
        moments = self.settings.n_layers * square * (2 + square) / (2 * d * (1 + square) ** 2)
        left = float(identity_path(self.settings.n_layers, 1.0, self.settings.alpha)[-1])
        return float(((1 / (d * TOKENS) + 1 / d**2 + left**2 * moments) / self.settings.n_seeds) ** 0.5)

    @property
    def fades_as_expected(self) -> bool:
        """Whether the final coefficient of x_0 is within `ERRORS` standard errors of (1 + α²)^(−N/2)."""
        expected = identity_path(self.settings.n_layers, 1.0, self.settings.alpha)[-1]
        return bool(abs(self.path[:, -1].mean() - expected) <= ERRORS * self.noise)


def run(settings: Residual, stop: Stop = lambda: False, progress: Progress = lambda _: None) -> ResidualResult:
    """Sums, streams and gradients.

    Raises:
        Stopped: `stop()` said true.
    """
    seeds = range(settings.seed, settings.seed + settings.n_seeds)
    mlps = settings.design("post", "none")
    paths = [path(mlps, seed, stop) for seed in stages(seeds, stop, lambda part: progress(0.1 * part))]
    growth = {
        name: _stack(settings.design(name), "second_moment", stop)
        for name in stages(tuple(GROWTHS), stop, lambda part: progress(0.1 + 0.3 * part))
    }
    gradient = {
        name: _stack(settings.design("post", name), "activation_gradient", stop)
        for name in stages(tuple(GRADIENTS), stop, lambda part: progress(0.4 + 0.3 * part))
    }
    starts = {
        name: _start(settings.start(name), stop)
        for name in stages(STARTS, stop, lambda part: progress(0.7 + 0.3 * part))
    }
    return ResidualResult(
        settings, _sums(settings), _branches(settings, stop), np.stack(paths), growth, gradient, starts
    )


def _sums(settings: Residual) -> Array:
    """Second moment of x + α (c x + √(1−c²) z), x and z independent and normal, for each correlation c."""
    x, z = np.random.default_rng([settings.seed, 0]).standard_normal((2, TOKENS, settings.width))
    return np.array([np.mean((x + settings.alpha * (c * x + np.sqrt(1 - c * c) * z)) ** 2) for c in CORRELATIONS])


def path(config: Config, seed: int, stop: Stop = lambda: False) -> Array:
    """Coefficient of x_0 in the regression of the stream on it, after 0 … N layers, `[layer + 1]`."""
    seen = _tapped(config, seed, stop)
    start = seen["embed"][0]
    return np.array([float((x * start).mean() / start.square().mean()) for x in (start, *seen["resid_post"])])


def _branches(settings: Residual, stop: Stop) -> Array:
    """Of every branch of a Peri-LN stack, both at unit second moment: correlation with its stream, moment of the sum.

    All of this is one seed's; streams and branches are compared as they are met, x + α F.
    """
    seen = _tapped(settings.design("peri"), settings.seed, stop)
    before = [seen["embed"][0], *(x for pair in zip(seen["resid_mid"], seen["resid_post"], strict=True) for x in pair)]
    branches = [out for pair in zip(seen["attn_out"], seen["mlp_out"], strict=True) for out in pair]
    rows = []
    for stream, branch in zip(before, branches, strict=False):  # the last stream is no branch's
        x, out = (part / part.square().mean().sqrt() for part in (stream, branch))
        rows.append([float((x * out).mean()), float((x + settings.alpha * out).square().mean())])
    return np.array(rows)


def _tapped(config: Config, seed: int, stop: Stop) -> dict[str, list[Tensor]]:
    """Every tensor of the stream and the branches in one forward pass, by site."""
    import torch

    from explorer import batch
    from explorer.model import Transformer

    seen: dict[str, list[Tensor]] = {}

    def tap(site: str, _: int, tensor: Tensor) -> None:
        check(stop)
        seen.setdefault(site, []).append(tensor)

    model = Transformer(config, seed, lambda: check(stop))
    with torch.no_grad():
        model(model.embed(batch.draw(config, seed)), tap)
    return seen


def _stack(config: Config, statistic: str, stop: Stop) -> Stack:
    from explorer.probe import measure
    from explorer.theory import predict

    depth, measured = measure(config, stop).stream(statistic)
    line_depth, predicted = predict(config).stream(statistic)
    return Stack(depth, measured, np.interp(depth, line_depth, predicted.mean(0)))


def _start(config: Config, stop: Stop) -> Start:
    from explorer.probe import measure

    profile: Profile = measure(config, stop)
    norms = {
        name: float(np.linalg.norm(profile["parameter_gradient", name]))
        for name in PARAMETERS if ("parameter_gradient", name) in profile.values
    }
    seen = _tapped(config, config.seed, stop)
    moved = float((seen["resid_post"][-1] - seen["embed"][0]).abs().max())
    depth, gradient = profile.stream("activation_gradient")
    return Start(moved, norms, depth, gradient[0])


def verdict(result: ResidualResult) -> Verdict:
    """Verdict: are identities exact, does the input fade as predicted, does the gradient stay flat."""
    settings = result.settings
    n, left = settings.n_layers, float(result.path[:, -1].mean())
    expected = float(identity_path(n, 1.0, settings.alpha)[-1])
    flat, bent = (float(result.gradient[name].measured.mean(0).min()) for name in GRADIENTS)
    evidence = (
        f"The input's coefficient after {n} post-norm MLPs is {left:.2g}, theory {expected:.2g}; draws scatter by "
        f"±{ERRORS * result.noise:.2g} ({ERRORS} standard errors). Their gradient², at its lowest, "
        f"is {flat:.2g} × the output's (flat: {FLAT:g} or more); with attention {bent:.2g}. Peri-LN's stream ends at "
        f"q = {plus_minus(result.growth['peri'].measured[:, -1])}, theory {1 + 2 * n * settings.alpha**2:.3g}."
    )
    broken = [name for name, start in result.starts.items() if exact(settings, name, start)]
    if broken:
        return "bad", f"Not as designed: {', '.join(LABELS[name] for name in broken)}.", evidence
    if settings.alpha == 0:
        return "warning", "At α = 0 every stack is the identity, and its matrices have no gradient.", evidence
    if not result.fades_as_expected:
        return "warning", "The input's share differs from theory's by more than the error of the draws.", evidence
    if left > 0.5:
        return "good", "Branches this small or few leave most of the input in the stream.", evidence
    if not flat >= FLAT:
        return "warning", "The input fades as expected after post-norm, but its MLPs' gradient is not flat.", evidence
    return "good", "The input fades as expected after post-norm; its MLPs' gradient does not fade with it.", evidence


def exact(settings: Residual, name: str, start: Start) -> str:
    """Errors of a start: gradients that should be zero and are not, or the reverse; empty when there are none."""
    zeros = {parameter for parameter, norm in start.norms.items() if norm == 0}
    if zeros != settings.zeros(name):
        return f"zero gradients of {', '.join(sorted(zeros ^ settings.zeros(name)))}"
    return f"moved by {start.moved:.2g}" if name in IDENTITY and start.moved else ""


def invariants() -> dict[str, float]:
    """Coefficients after post-norm branches, gradients, Peri-LN's growth, and three identities with their zeros."""
    settings = Residual(n_layers=8, width=256, n_seeds=8)
    stop = lambda: False  # noqa: E731
    left = np.mean([path(settings.design("post", "none"), seed) for seed in range(8)], axis=0)
    gradient = _stack(settings.design("post", "none"), "activation_gradient", stop)
    peri = _stack(settings.replace(n_layers=24).design("peri", "none"), "second_moment", stop)
    starts = {name: _start(settings.start(name), stop) for name in IDENTITY}
    return {
        **{f"coefficient of x_0, {n} branches": float(left[n]) for n in (1, 2, 4, 8)},
        "gradient², input over output": float(gradient.measured[:, 0].mean()),
        "Peri-LN, q after 24 branches": float(peri.measured[:, -1].mean()),
        **{f"{LABELS[name]}, |x_N − x_0|": start.moved for name, start in starts.items()},
        **{f"{LABELS[name]}, matrices without a gradient": float(sum(norm == 0 for norm in start.norms.values()))
           for name, start in starts.items()},
    }
