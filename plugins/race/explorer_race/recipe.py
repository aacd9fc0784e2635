"""`Recipe`: training of one contender: optimizer, learning rate over the steps, schedule of the
residual α."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from explorer.choices import Choices, ConfigError
from explorer.config import Config
from explorer.fields import Option, setting
from explorer.schemes.parametrization import Quantity

LONGEST = 1_000_000
"""Steps of a training, at most."""


@dataclass(frozen=True, kw_only=True)
class Stepper:
    """One of torch's optimizers, and its learning rate under each parametrization."""

    torch: Callable[[Any, Any, Recipe], Any]
    """The optimizer, from torch.optim, groups of parameters and the recipe. (Handed in: settings do
    without torch.)"""
    powers: Quantity
    """The powers of width and depth on its learning rate; see `schemes.scale.Powers`."""
    rate: Callable[[Recipe], float] = lambda recipe: 1.0
    """Its learning rate over the recipe's."""
    divides_decay: bool = False
    """The weight decay joins the gradient before both are divided by the size of their sum."""
    decay_follows: bool = False
    """The weight decay is multiplied by the learning rate over its largest one, too."""


@dataclass(frozen=True, kw_only=True)
class OptimizerRule(Option):
    """An optimizer: turns gradients into steps."""

    stepper: Stepper
    matrices: Stepper | None = None
    """Another one for the matrices of the layers, where they have one."""


def _muon(name: Literal["original", "match_rms_adamw"]) -> Callable[[Any, Any, Recipe], Any]:
    """torch's Muon, with the name that it has for the scale of a step."""
    return lambda optim, groups, recipe: optim.Muon(
        groups, momentum=recipe.muon_momentum, adjust_lr_fn=name
    )


BETAS = ("beta1", "beta2")
ADAMW = Stepper(
    powers="adam", torch=lambda optim, groups, recipe: optim.AdamW(groups, betas=recipe.betas)
)
OPTIMIZERS: dict[str, OptimizerRule] = {
    "sgd": OptimizerRule(
        "W − η g",
        stepper=Stepper(powers="sgd", torch=lambda optim, groups, recipe: optim.SGD(groups)),
    ),
    "momentum": OptimizerRule(
        "W − η m, m ← β₁ m + g",
        "Polyak 1964",
        ("beta1",),
        stepper=Stepper(
            powers="sgd",
            torch=lambda optim, groups, recipe: optim.SGD(groups, momentum=recipe.beta1),
        ),
    ),
    "adam": OptimizerRule(
        "W − η m / √v",
        "Kingma & Ba 2014",
        BETAS,
        stepper=Stepper(
            powers="adam",
            divides_decay=True,
            torch=lambda optim, groups, recipe: optim.Adam(groups, betas=recipe.betas),
        ),
    ),
    "adamw": OptimizerRule(
        "Adam, weight decay separate", "Loshchilov & Hutter 2017", BETAS, stepper=ADAMW
    ),
    "adamc": OptimizerRule(
        "AdamW, weight decay of the layers follows η",
        "AdamC: Defazio 2025",
        BETAS,
        stepper=ADAMW,
        matrices=replace(ADAMW, decay_follows=True),
    ),
    "radam": OptimizerRule(
        "Adam, held back while v is uncertain",
        "Liu et al. 2019",
        BETAS,
        stepper=Stepper(
            powers="adam",
            divides_decay=True,
            torch=lambda optim, groups, recipe: optim.RAdam(groups, betas=recipe.betas),
        ),
    ),
    "muon": OptimizerRule(
        "layers: W − r η √max(1, fan_out / fan_in) U Vᵀ, m = U S Vᵀ; E, W_U, vectors: AdamW",
        "Muon: Jordan et al. 2024",
        (*BETAS, "muon_momentum", "muon_rate"),
        stepper=ADAMW,
        matrices=Stepper(
            powers="muon", torch=_muon("original"), rate=lambda recipe: recipe.muon_rate
        ),
    ),
    "muon_rms": OptimizerRule(
        "layers: W − 0.2 η √max(fan_out, fan_in) U Vᵀ, m = U S Vᵀ; E, W_U, vectors: AdamW",
        "Moonlight: Liu et al. 2025",
        (*BETAS, "muon_momentum"),
        stepper=ADAMW,
        matrices=Stepper(powers="muon_rms", torch=_muon("match_rms_adamw")),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Decay(Option):
    """The learning rate after the warm-up, over the full one."""

    factor: Callable[[float, float], float]
    """Of u, the share of the decay that is done (0 at the first step of it, 1 would be one step
    after the last), and of T/t, the warm-up over the steps so far."""
    whole: bool = True
    """Whether the decay lasts from the warm-up on; else for the last share of the race's steps."""


DECAYS: dict[str, Decay] = {
    "constant": Decay("η", factor=lambda u, warmed: 1.0),
    "cosine": Decay(
        "η (1 + cos π u) / 2, u from 0 to 1",
        "Loshchilov & Hutter 2016",
        factor=lambda u, warmed: (1 + math.cos(math.pi * u)) / 2,
    ),
    "linear": Decay("η (1 − u), u from 0 to 1", factor=lambda u, warmed: 1 - u),
    "inverse_sqrt": Decay(
        "η √(T / t)", "Vaswani et al. 2017", factor=lambda u, warmed: math.sqrt(warmed)
    ),
    "wsd": Decay(
        "η, then η (1 − √u), u from 0 to 1 over the last steps",
        "WSD: Hu et al. 2024; 1 − √u: Hägele et al. 2024",
        ("decay_share",),
        factor=lambda u, warmed: 1 - math.sqrt(u),
        whole=False,
    ),
    "wsd_linear": Decay(
        "η, then η (1 − u), u from 0 to 1 over the last steps",
        "Hägele et al. 2024",
        ("decay_share",),
        factor=lambda u, warmed: 1 - u,
        whole=False,
    ),
    "wsd_cosine": Decay(
        "η, then η (1 + cos π u) / 2, u from 0 to 1 over the last steps",
        "Hägele et al. 2024",
        ("decay_share",),
        factor=lambda u, warmed: (1 + math.cos(math.pi * u)) / 2,
        whole=False,
    ),
}


@dataclass(frozen=True, kw_only=True)
class AlphaSchedule(Option):
    """Training of the residual α, where a design learns it."""

    value: Callable[[Recipe, int, int], float] | None = None
    """α at a step (from 0) in a layer (from 1); None where it is learned."""
    rate: Callable[[Recipe], float] = lambda recipe: 1.0
    """Its learning rate over the others'."""


ALPHA_SCHEDULES: dict[str, AlphaSchedule] = {
    "learned": AlphaSchedule("with the other weights"),
    "own_rate": AlphaSchedule(
        "with the other weights, at its own learning rate",
        uses=("alpha_rate",),
        rate=lambda recipe: recipe.alpha_rate,
    ),
    "ramp": AlphaSchedule(
        "not learned: rises by a constant step to its end, then fixed",
        uses=("alpha_step", "alpha_end"),
        value=lambda recipe, step, layer: min(recipe.alpha_end, (step + 1) * recipe.alpha_step),
    ),
    "fixed": AlphaSchedule(
        "not learned: at its end from the first step",
        uses=("alpha_end",),
        value=lambda recipe, step, layer: recipe.alpha_end,
    ),
    "prores": AlphaSchedule(
        "not learned: min(1, t / (T l)) in layer l at step t, from 0; the first layers come first",
        "ProRes: Chen et al. 2026",
        ("alpha_steps",),
        value=lambda recipe, step, layer: min(1.0, step / (recipe.alpha_steps * layer)),
    ),
}


class Recipe(Choices):
    """One contender's training, beside its `Config`.

    Raises:
        ConfigError: an unknown field, a wrong type, or a value out of range.

    Example:
        >>> ex.Recipe(optimizer="adamw", weight_decay=0.1, warmup=100)
        Recipe(optimizer='adamw', weight_decay=0.1, warmup=100)
    """

    optimizer: str = setting(
        "adam",
        "Optimizer",
        "Optimizer",
        "Rule that turns gradients into steps, as implemented in torch.",
        pinned=True,
        options=OPTIMIZERS,
        usual="adamw: most language models",
    )
    learning_rate: float = setting(
        1e-3,
        "Learning rate",
        "Optimizer",
        "The largest learning rate of the schedule; μP's powers of the width come on top.",
        1e-7,
        100,
        symbol="η",
        log=True,
        pinned=True,
        usual="1e-4–3e-3: Adam, larger for smaller models",
    )
    beta1: float = setting(
        0.9,
        "β₁",
        "Optimizer",
        "Share of the mean gradient that is kept from step to step.",
        0,
        0.9999,
        symbol="β₁",
        advanced=True,
        usual="0.9: nearly all",
    )
    beta2: float = setting(
        0.999,
        "β₂",
        "Optimizer",
        "Share of the mean squared gradient that is kept from step to step.",
        0,
        0.99999,
        symbol="β₂",
        advanced=True,
        usual="0.95–0.999: GPT-3 and Llama to Adam's paper",
    )
    muon_rate: float = setting(
        20.0,
        "Muon's rate",
        "Optimizer",
        "Learning rate of the layers' matrices, as a multiple of the others'.",
        1e-4,
        1e4,
        symbol="r",
        unit="× η",
        log=True,
        usual="20: a rate of 0.02 beside Adam's 1e-3",
    )
    muon_momentum: float = setting(
        0.95,
        "Muon's momentum",
        "Optimizer",
        "Share of the mean gradient of the layers' matrices that is kept from step to step.",
        0,
        0.9999,
        symbol="μ",
        advanced=True,
        usual="0.95: Muon's author",
    )
    weight_decay: float = setting(
        0.0,
        "Weight decay",
        "Optimizer",
        "Pulls matrices to zero, as part of the gradient or, with adamw and muon, separately; never vectors or α.",
        0,
        10,
        symbol="λ",
        usual="0–0.1: GPT-3, Llama 0.1",
    )
    clip: float = setting(
        0.0,
        "Gradient clipping",
        "Optimizer",
        "The norm of all gradients together is cut to this; 0: no clipping.",
        0,
        1e6,
        symbol="‖g‖ ≤",
        usual="1: most language models; 0 is none",
    )
    qk_clip: float = setting(
        0.0,
        "QK-clip",
        "Optimizer",
        "Where a head's largest logit in a step exceeds this, its W_Q and W_K are scaled after the step, so that it "
        "would not have (W_Q alone where heads share keys); 0: no clipping (Kimi K2, Bai et al. 2025: 100).",
        0,
        1000,
        symbol="q·k ≤",
        usual="0: most; 100 is Kimi K2's",
    )
    z_loss: float = setting(
        0.0,
        "z-loss",
        "Optimizer",
        "Adds this times the mean of (ln Σ e^logit)² to the loss that is learned, not to "
        "the one that is shown (PaLM, Chowdhery et al. 2022: 1e-4).",
        0,
        1,
        advanced=True,
        usual="0: most; 1e-4 is PaLM's",
    )

    warmup: int = setting(
        1,
        "Warm-up",
        "Schedule",
        "Steps until the full learning rate, in even increments; 1 is no warm-up.",
        1,
        1_000_000,
        symbol="T",
        unit="steps",
        log=True,
        pinned=True,
        usual="500–4000: steps of long runs; here some 10–300",
    )
    decay: str = setting(
        "constant",
        "Decay",
        "Schedule",
        "The learning rate after the warm-up, until the last step of the race.",
        options=DECAYS,
        usual="cosine: most language models",
    )
    decay_share: float = setting(
        0.2,
        "Decaying share",
        "Schedule",
        "Share of the race's steps, its last ones, in which the learning rate decays.",
        0.01,
        1,
        usual="0.1–0.2: MiniCPM, Hägele et al.",
    )

    alpha_schedule: str = setting(
        "learned",
        "α schedule",
        "Residual α",
        "Training of the α of ReZero, SkipInit and LayerScale.",
        options=ALPHA_SCHEDULES,
        usual="learned: ReZero, SkipInit, LayerScale",
    )
    alpha_rate: float = setting(
        10.0,
        "α's rate",
        "Residual α",
        "α's learning rate, as a multiple of the others'.",
        1e-4,
        1e4,
        unit="× η",
        log=True,
        usual="1–10: as the others, or faster",
    )
    alpha_step: float = setting(
        1e-2,
        "α's step",
        "Residual α",
        "Increase of α before each step of a ramp.",
        1e-7,
        4,
        log=True,
        usual="1e-3–1e-2: full after 1000 or 100 steps",
    )
    alpha_end: float = setting(
        1.0,
        "α's end",
        "Residual α",
        "Last value of a ramp, and value of a fixed α.",
        0,
        4,
        usual="1: the full network",
    )
    alpha_steps: int = setting(
        20,
        "α's steps",
        "Residual α",
        "Steps in which the first layer's α rises to 1; layer l takes l times as many.",
        1,
        1_000_000,
        symbol="T",
        unit="steps",
        log=True,
        usual="10–1000: a share of the race's steps",
    )

    @property
    def betas(self) -> tuple[float, float]:
        """β₁ and β₂."""
        return self.beta1, self.beta2

    @property
    def alpha_rule(self) -> AlphaSchedule:
        """The row of the schedule of α."""
        return ALPHA_SCHEDULES[self.alpha_schedule]

    def factor(self, step: int, steps: int) -> float:
        """Factor on the learning rate at a step (from 0) of a race of so many steps: at most 1.

        t/T while warming up, t counted from 1, so that the first step already moves; then the
        decay."""
        t, rule = step + 1, DECAYS[self.decay]
        if t < self.warmup:
            return t / self.warmup
        steps = max(steps, t)
        length = steps - self.warmup + 1
        if not rule.whole:
            length = min(length, max(1, round(self.decay_share * steps)))
        return rule.factor(max(0.0, (t + length - steps - 1) / length), self.warmup / t)

    def alphas(self, step: int, n_layers: int) -> list[float]:
        """Values of α at a step (from 0), by layer; none where it is learned."""
        value = self.alpha_rule.value
        return (
            [] if value is None else [value(self, step, layer) for layer in range(1, n_layers + 1)]
        )

    def check(self, config: Config, name: str) -> None:
        """Raises ConfigError if a choice can do nothing for the design of a contender of this
        name."""
        for field, (reason, cause) in idle(config).items():
            value, off = getattr(self, field), self.specs()[field].default
            if value != off:
                raise ConfigError(
                    self.field_name(field),
                    f" must be {off or 0} where {reason}; got ",
                    self.field_name(field, value),
                    " with ",
                    config.field_name(cause, getattr(config, cause)),
                    f" ({name})",
                )


def idle(config: Config) -> dict[str, tuple[str, str]]:
    """Fields of a recipe that can do nothing for a design: the reason, and the field of the design
    that it lies in."""
    reasons = {}
    if config.design.alpha_shape is None:
        reasons["alpha_schedule"] = (
            "the residual has no α to learn (ReZero, SkipInit and LayerScale have one)",
            "residual",
        )
    for field, is_so, reason in (
        ("attention", not config.design.attends, "there is no attention"),
        ("qk_norm", config.qk_norm, "a norm gives queries and keys their length"),
        ("logit_cap", config.logit_cap > 0, "the logits have a soft cap"),
        ("residual_attention", bool(config.design.inherits), "logits are sums over the layers"),
    ):
        if is_so:
            reasons.setdefault("qk_clip", (reason, field))
    return reasons
