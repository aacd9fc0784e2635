"""x + α F(x): second moments add, a norm after the sum fades the input, one before the branch lets the stream grow.

And designs whose branches start at zero: the stack is the identity, exactly, and so are most of its gradients zero.
All stacks are the Transformer of the Explore page; tokens are independent and normal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from explorer.choices import Choices
from explorer.config import Config, preset
from explorer.fields import setting
from explorer.labs import Verdict, plus_minus, stages
from explorer.labs.stacks import FirstSeed, Pair, Seeds, gradient, pairs, tensors
from explorer.profile import Array, Profile
from explorer.schemes.preset import PRESETS
from explorer.stopping import Progress, Stop
from explorer.theory.depth import identity_path

TOKENS = 32
ERRORS = 3
"""Standard errors by which a draw's coefficient of x_0 may differ from the theory's."""
FLAT = 0.5
"""Share of the output's gradient² from which on a gradient that is nowhere lower counts as flat."""
PARAMETERS = (*Config().design.shapes, "alpha")
STARTS = ("post_ln", "pre_ln", "layer_scale", "rezero", "skipinit", "fixup")
"""Presets whose first gradients are compared; the last three start as the identity."""
IDENTITY = STARTS[3:]
LABELS: Mapping[str, str] = {name: PRESETS[name].title for name in STARTS}
GROWTHS: Mapping[str, str] = {"post": "Post-LN", "pre": "Pre-LN", "peri": "Peri-LN"}
BENDS: Mapping[str, str] = {"none": "MLPs only", "softmax": "with attention"}


class Residual(Choices):
    """The branch's multiplier, and the sizes of the stacks."""

    alpha: float = setting(1.0, "Residual α", "", "Factor on each branch: x + α F(x).", 0, 2, symbol="α")
    n_layers: int = setting(12, "Depth", "", "Layers. With attention a layer has two branches, else one.", 2, 48,
                            symbol="N", unit="layers", log=True)
    width: int = setting(128, "Width", "", "Width of the stream and of the MLPs' hidden layer.", 16, 256, symbol="d",
                         unit="coordinates", log=True)
    n_seeds: Seeds = 3
    seed: FirstSeed = 0

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
        return set(Config().design.shapes) if shut else set()


class Start(NamedTuple):
    """A design before its first step."""

    moved: float
    """Largest |x_N − x_0| of any coordinate."""
    measured: Profile

    @property
    def norms(self) -> dict[str, float]:
        """‖∂L/∂W‖ of each kind of parameter that it has, all layers together."""
        return {
            name: float(np.linalg.norm(self.measured["parameter_gradient", name]))
            for name in PARAMETERS if ("parameter_gradient", name) in self.measured.values
        }


@dataclass(frozen=True, eq=False)
class ResidualResult:
    """Measurements at one α."""

    settings: Residual
    path: Array
    """`[seed, branch + 1]` coefficient of x_0 in the post-norm stream."""
    growth: Mapping[str, Pair]
    """By norm placement."""
    bends: Mapping[str, Pair]
    """Post-LN, without and with attention."""
    starts: Mapping[str, Start]

    @property
    def expected(self) -> Array:
        """`[branch + 1]` what the path should be: (1 + α²)^(−l/2)."""
        return identity_path(self.settings.n_layers, 1.0, self.settings.alpha)

    @property
    def noise(self) -> float:
        """Largest standard error of the final coefficient of x_0, for the mean of the seeds.

        Drawing n tokens costs 1/(d n), the matrices' own diagonals at most 1/d²; and the second moment of each sum
        varies by at most α²(2 + α²)·2/d, as much as it does where all tokens are alike.
        """
        d, square = self.settings.width, self.settings.alpha**2
        moments = self.settings.n_layers * square * (2 + square) / (2 * d * (1 + square) ** 2)
        left = float(self.expected[-1])
        return float(((1 / (d * TOKENS) + 1 / d**2 + left**2 * moments) / self.settings.n_seeds) ** 0.5)


def run(settings: Residual, stop: Stop = lambda: False, progress: Progress = lambda _: None) -> ResidualResult:
    """Streams and gradients.

    Raises:
        Stopped: `stop()` said true.
    """
    seeds, mlps = range(settings.seed, settings.seed + settings.n_seeds), settings.design("post", "none")
    paths = [path(mlps, seed, stop) for seed in stages(seeds, stop, lambda part: progress(0.1 * part))]
    designs = {name: settings.design(name) for name in GROWTHS} | {"mlps": mlps}
    stacks = pairs(designs, stop, lambda part: progress(0.1 + 0.6 * part))
    starts = {
        name: start(settings.start(name), stop)
        for name in stages(STARTS, stop, lambda part: progress(0.7 + 0.3 * part))
    }
    return ResidualResult(
        settings, np.stack(paths), {name: stacks[name] for name in GROWTHS},
        {"none": stacks["mlps"], "softmax": stacks["post"]}, starts,
    )


def path(config: Config, seed: int, stop: Stop = lambda: False) -> Array:
    """Coefficient of x_0 in the regression of the stream on it, after 0 … N layers, `[layer + 1]`."""
    streams = tensors(config, seed, ("embed", "resid_post"), stop)
    first = streams[0]
    return np.array([float((x * first).mean() / first.square().mean()) for x in streams])


def start(config: Config, stop: Stop = lambda: False) -> Start:
    """One of `STARTS`, drawn and measured."""
    first, *_, last = tensors(config, config.seed, ("embed", "resid_post"), stop)
    (pair,) = pairs({0: config}, stop).values()
    return Start(float((last - first).abs().max()), pair.measured)


def verdict(result: ResidualResult) -> Verdict:
    """Verdict: are identities exact, does the input fade as predicted, does the gradient stay flat."""
    settings = result.settings
    n, left = settings.n_layers, float(result.path[:, -1].mean())
    expected = float(result.expected[-1])
    flat, bent = (float(gradient(result.bends[name].measured).mean(0).min()) for name in BENDS)
    grown = result.growth["peri"].measured["second_moment", "resid_post"][:, -1]
    evidence = (
        f"The input's coefficient after {n} post-norm MLPs is {left:.2g}, theory {expected:.2g}; draws scatter by "
        f"±{ERRORS * result.noise:.2g} ({ERRORS} standard errors). Their gradient², at its lowest, "
        f"is {flat:.2g} × the output's (flat: {FLAT:g} or more); with attention {bent:.2g}. Peri-LN's stream ends at "
        f"q = {plus_minus(grown)}, theory {1 + 2 * n * settings.alpha**2:.3g}."
    )
    broken = [name for name, start in result.starts.items() if exact(settings, name, start)]
    if broken:
        return "bad", f"Not as designed: {', '.join(LABELS[name] for name in broken)}.", evidence
    if settings.alpha == 0:
        return "warning", "At α = 0 every stack is the identity, and its matrices have no gradient.", evidence
    if not abs(left - expected) <= ERRORS * result.noise:
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
    mlps, peri = settings.design("post", "none"), settings.replace(n_layers=24).design("peri", "none")
    left = np.mean([path(mlps, seed) for seed in range(8)], axis=0)
    stacks = pairs({"post": mlps, "peri": peri})
    starts = {name: start(settings.start(name)) for name in IDENTITY}
    return {
        **{f"coefficient of x_0, {n} branches": float(left[n]) for n in (1, 2, 4, 8)},
        "gradient², input over output": float(gradient(stacks["post"].measured)[:, 0].mean()),
        "Peri-LN, q after 24 branches": float(stacks["peri"].measured["second_moment", "resid_post"][:, -1].mean()),
        **{f"{LABELS[name]}, |x_N − x_0|": start.moved for name, start in starts.items()},
        **{f"{LABELS[name]}, matrices without a gradient": float(sum(norm == 0 for norm in start.norms.values()))
           for name, start in starts.items()},
    }
