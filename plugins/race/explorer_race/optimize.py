"""Recipes in torch: torch's own optimizers and scheduler, μP's rates, the schedules of α, and
QK-clip."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.optimizer import Optimizer

from explorer.config import Config
from explorer.model import Layer, Transformer
from explorer.model.attention import visible
from explorer.model.taps import Tap
from explorer_race.recipe import OPTIMIZERS, Recipe, Stepper

ADAMS_EPSILON = 1e-8
"""torch's own."""


class Group(NamedTuple):
    """Settings shared by the parameters that are stepped alike."""

    stepper: Stepper
    rate: float
    """Learning rate over the recipe's."""
    decay: float
    epsilon: float


def optimizers(model: nn.Module, config: Config, recipe: Recipe) -> list[Optimizer]:
    """The recipe's optimizer, or two, over everything that learns; parameters that are stepped
    alike in one group."""
    groups: defaultdict[Group, list[nn.Parameter]] = defaultdict(list)
    for path, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups[group(path, parameter, config, recipe)].append(parameter)
    packed: defaultdict[Stepper, list[dict[str, Any]]] = defaultdict(list)
    for key, parameters in groups.items():
        epsilon = {"eps": key.epsilon} if key.stepper.powers == "adam" else {}
        packed[key.stepper].append(
            {
                "params": parameters,
                "lr": recipe.learning_rate * key.rate,
                "weight_decay": key.decay,
                **epsilon,
                **({"full_decay": key.decay} if key.stepper.decay_follows else {}),
            }
        )
    made: list[Optimizer] = [
        stepper.torch(torch.optim, parts, recipe) for stepper, parts in packed.items()
    ]
    for optimizer, stepper in zip(made, packed, strict=True):
        if stepper.decay_follows:
            optimizer.register_step_pre_hook(lambda optimizer, *_: decay_with_rate(optimizer))
    return made


def decay_with_rate(optimizer: Optimizer) -> None:
    """Weight decay λ η/η_max for a step: what normalized matrices' ‖g‖/‖W‖ then rests at is the
    same at any rate.

    AdamC: Defazio 2025, arXiv 2506.02285, who corrects all matrices but the output's; here it is
    those of the layers."""
    for group in optimizer.param_groups:
        group["weight_decay"] = (
            group["full_decay"] * group["lr"] / group.get("initial_lr", group["lr"])
        )


def group(path: str, parameter: Tensor, config: Config, recipe: Recipe) -> Group:
    """The stepper of a parameter, with its learning rate, weight decay and ε.

    Under μP and its kin each kind has its own multiple of the learning rate, and of the weight
    decay the inverse, so that a step's ηλ is the same at every width, as in microsoft/mup. α has
    its own rate where the recipe says so. Neither it nor a vector decays: a decaying branch would
    be another design."""
    rule, kind = OPTIMIZERS[recipe.optimizer], kind_of(path, parameter)
    stepper = rule.matrices if rule.matrices and kind == "hidden" else rule.stepper
    factors = config.design.factors
    factor, epsilon = factors(stepper.powers)[kind], ADAMS_EPSILON * factors("epsilon")[kind]
    if path.endswith(".alpha"):
        return Group(stepper, recipe.alpha_rule.rate(recipe), 0.0, epsilon)
    # Adam divides gradient and λW by the size of their sum; mup's W_U, before its multiplier, is
    # 1/factor of ours
    power = 2 if kind == "output" and stepper.divides_decay else 1
    decay = 0.0 if kind == "vector" else recipe.weight_decay / factor**power
    return Group(stepper, factor * stepper.rate(recipe), decay, epsilon)


def kind_of(path: str, parameter: Tensor) -> str:
    """Kind of a parameter, as in `factors`, by its place and shape: what a new design brings along
    has one.

    The matrices of the layers are those named W_…; what else they have, such as LayerScale's α, is
    a vector or several."""
    *place, name = path.split(".")
    if parameter.ndim < 2 or (place and not name.startswith("W_")):
        return "vector"
    return "hidden" if place else "output" if name == "W_U" else "input"


def schedule(over: Optimizer, recipe: Recipe, steps: int) -> LambdaLR:
    """The learning rates of a race of so many steps: `step()` once after each of the optimizer's.

    One closed form for warm-up and decay, so that its state is a count of steps and nothing drifts;
    it equals torch's own LinearLR, CosineAnnealingLR and similar ones, one after the other."""
    return LambdaLR(over, lambda step: recipe.factor(step, steps))


def alphas(model: nn.Module) -> list[nn.Parameter]:
    """The residual αs of a model, by layer; empty for a design that has none."""
    return [
        parameter for path, parameter in model.named_parameters() if path.split(".")[-1] == "alpha"
    ]


def total_norm(gradients: list[Tensor]) -> float:
    """Euclidean norm of all gradients together: inf or nan if one of their numbers is, and only
    then."""
    size = float(torch.stack(torch._foreach_norm(gradients)).norm())
    if math.isfinite(size):
        return size
    return float(
        torch.stack(
            [torch.linalg.vector_norm(part, dtype=torch.float64) for part in gradients]
        ).norm()
    )


class QKClip:
    """Keeps each head's largest logit at a bound: Kimi K2's QK-clip, Bai et al. 2025, algorithm 1.

    The logits of a step's own pass say which heads exceeded it, and by how much; after the step
    those heads' W_Q and W_K are scaled, each by the root, so that these logits would not have.
    Heads that share a key leave it as it is.

    Args:
        model: the contender's.
        most: the bound.
    """

    def __init__(self, model: Transformer, most: float) -> None:
        layers: list[Layer] = list(model.layers)  # type: ignore[arg-type]
        self.weights, self.most = [layer.weights for layer in layers], most
        self.biases = {
            layer.weights[name]: layer.biases[bias]
            for layer in layers
            for name, bias in (("W_Q", "b_Q"), ("W_K", "b_K"))
            if bias in layer.biases
        }
        self.mask = (
            visible(model.config.n_ctx, self.weights[0]["W_Q"].device)
            if model.config.causal
            else None
        )
        self.largest: dict[nn.Parameter, Tensor] = {}
        """Largest logit by W_Q, which several layers may have in common: `[head]`."""

    def watching(self, tap: Tap) -> Tap:
        """A tap that reads the logits for the clip, too."""

        def clip_tap(site: str, layer: int, tensor: Tensor) -> None:
            if site == "attn_scores":
                scores = tensor.detach()
                if self.mask is not None:
                    scores = scores.masked_fill(~self.mask, -math.inf)
                largest, by = scores.amax((0, 2, 3)), self.weights[layer - 1]["W_Q"]
                self.largest[by] = torch.maximum(largest, self.largest.get(by, largest))
            tap(site, layer, tensor)

        return clip_tap

    @torch.no_grad()
    def step_is_done(self) -> None:
        """After the optimizer's step: scales the heads that exceeded the bound."""
        for queries, keys in {weights["W_Q"]: weights["W_K"] for weights in self.weights}.items():
            # exactly 1 within the bound
            factor = self.most / self.largest.pop(queries).clamp(min=self.most)
            each = [queries, keys] if keys.shape == queries.shape else [queries]
            for weight in each:
                for part in (weight, self.biases.get(weight)):
                    if part is not None:
                        by_head = part.view(len(factor), -1)
                        by_head *= factor[:, None] ** (1 / len(each))
