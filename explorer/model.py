"""The Transformer under study: attention written out, every choice of `Config` visible, every site tapped.

It has no biases and no learned gains, which are zero and one at initialization and would only blur what is measured.
A tap is a function `(site, layer, tensor)` that is shown each named tensor as it is made; it must not change it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer import noise, text
from explorer.activations import activation
from explorer.batch import Batch
from explorer.config import Config
from explorer.initializers import readout_variance, shapes, variances
from explorer.residuals import PLACEMENTS, RESIDUAL_RULES, multipliers

Tap = Callable[[str, int, Tensor], None]
EPSILON = 1e-5
"""Added to the variance by every norm, as torch does by default."""


def ignore(site: str, layer: int, tensor: Tensor) -> None:
    """The tap of a bare pass."""


def norm(config: Config) -> Callable[[Tensor], Tensor]:
    """The norm over the last axis, without learned parameters."""
    if config.norm == "rms":
        return lambda x: F.rms_norm(x, x.shape[-1:], eps=EPSILON)
    return lambda x: F.layer_norm(x, x.shape[-1:], eps=EPSILON)


class Attention(nn.Module):
    """Multi-head self-attention, scores and pattern in the open."""

    def __init__(self, config: Config, layer: int, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.config, self.layer = config, layer
        self.multiplier = forward_multipliers(config)
        self.W_Q, self.W_K, self.W_V, self.W_O = (nn.Parameter(weights[name]) for name in ("W_Q", "W_K", "W_V", "W_O"))
        self.divisor = {"sqrt_d": math.sqrt(config.d_head), "none": 1.0, "d": float(config.d_head)}[
            config.attention_scale
        ]
        self.norm = norm(config)

    def forward(self, x: Tensor, tap: Tap) -> Tensor:
        """`[batch, token, d_model]` to the same."""
        scale = self.multiplier
        q = self.split(linear(x, self.W_Q, scale["W_Q"]))  # [batch, head, query, d_head]
        k = self.split(linear(x, self.W_K, scale["W_K"]))  # [batch, head, key, d_head]
        v = self.split(linear(x, self.W_V, scale["W_V"]))  # [batch, head, key, d_head]
        if self.config.qk_norm:
            q, k = self.norm(q), self.norm(k)
        scores = (q / self.divisor) @ k.transpose(-2, -1)  # [batch, head, query, key]
        tap("attn_scores", self.layer, scores)
        if self.config.causal:
            scores = scores.masked_fill(~visible(scores.shape[-1], scores.device), -math.inf)
        pattern = scores.softmax(dim=-1)  # [batch, head, query, key]
        tap("pattern", self.layer, pattern)
        mixed = (pattern @ v).transpose(1, 2).flatten(2)  # [batch, query, d_model]
        return linear(mixed, self.W_O, scale["W_O"])

    def split(self, x: Tensor) -> Tensor:
        """`[batch, token, d_model]` to `[batch, head, token, d_head]`."""
        return x.reshape(*x.shape[:-1], self.config.n_heads, self.config.d_head).transpose(1, 2)


class MLP(nn.Module):
    """Two matrices with a nonlinearity between."""

    def __init__(self, config: Config, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.multiplier = forward_multipliers(config)
        self.W_in, self.W_out = nn.Parameter(weights["W_in"]), nn.Parameter(weights["W_out"])
        self.activation = activation(config)

    def forward(self, x: Tensor, tap: Tap) -> Tensor:  # noqa: ARG002 - both branches are called alike
        """`[batch, token, d_model]` to the same, through `[batch, token, d_mlp]`."""
        hidden = self.activation(linear(x, self.W_in, self.multiplier["W_in"]))
        return linear(hidden, self.W_out, self.multiplier["W_out"])


class Layer(nn.Module):
    """An attention and an MLP sublayer, each `skip · x + branch · F(x)`, with norms where the design has them."""

    def __init__(self, config: Config, layer: int, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.layer = layer
        self.attention, self.mlp = Attention(config, layer, weights), MLP(config, weights)
        self.norm, self.placement = norm(config), PLACEMENTS[config.norm_placement]
        self.skip, self.branch, _ = multipliers(config)
        learned = RESIDUAL_RULES[config.residual].learned
        self.alpha = nn.Parameter(torch.tensor(self.branch)) if learned else None
        # Every parameter by its name in the vocabulary, in a plain dict: quicker to reach than through the modules.
        self.weights = {name.split(".")[-1]: parameter for name, parameter in self.named_parameters()}

    def forward(self, x: Tensor, tap: Tap = ignore) -> Tensor:
        """`[batch, token, d_model]` to the same."""
        x = self.sublayer(x, self.attention, "attn_out", tap)
        tap("resid_mid", self.layer, x)
        x = self.sublayer(x, self.mlp, "mlp_out", tap)
        tap("resid_post", self.layer, x)
        return x

    def sublayer(self, x: Tensor, branch: nn.Module, site: str, tap: Tap) -> Tensor:
        """One branch and its way back into the stream."""
        out = branch(self.norm(x) if self.placement.before else x, tap)
        if self.placement.behind:
            out = self.norm(out)
        tap(site, self.layer, out)
        total = self.join(x, out)
        return self.norm(total) if self.placement.after else total

    def join(self, x: Tensor, out: Tensor) -> Tensor:
        """`skip · x + branch · F(x)`; without a skip the stream is the branch alone."""
        if self.skip == 0:
            return out * self.branch if self.branch != 1 else out
        stream = x * self.skip if self.skip != 1 else x
        return stream + self.alpha * out if self.alpha is not None else torch.add(stream, out, alpha=self.branch)


class Transformer(nn.Module):
    """The whole stack for one config and one seed.

    Args:
        config: every choice.
        seed: which draw of the noise.
        check: called while weights are drawn; what it raises ends the construction.
    """

    def __init__(self, config: Config, seed: int, check: noise.Check = lambda: None) -> None:
        super().__init__()
        self.config = config
        weights = draw_weights(config, seed, check)
        self.layers = nn.ModuleList(
            Layer(config, index + 1, {name: stacked[index] for name, stacked in weights.items()})
            for index in range(config.n_layers)
        )
        self.norm = norm(config) if PLACEMENTS[config.norm_placement].final else None
        vocabulary = len(text.prose().vocabulary) if config.input == "text" else 0
        self.E = self.P = self.W_U = None
        if config.input == "text":
            self.E = nn.Parameter(noise.stack(seed, "E", vocabulary, (config.d_model,)).clone())
            self.P = nn.Parameter(noise.stack(seed, "P", config.n_ctx, (config.d_model,)).clone())
        if config.loss == "next_token":
            readout = noise.stack(seed, "W_U", vocabulary, (config.d_model,))
            self.W_U = nn.Parameter(readout * math.sqrt(readout_variance(config)))

    def embed(self, batch: Batch) -> Tensor:
        """The stream before the first layer, `[batch, token, d_model]`, of unit second moment."""
        if self.E is None or self.P is None:
            return batch.input
        return (F.embedding(batch.input, self.E) + self.P) / math.sqrt(2)

    def forward(self, x: Tensor, tap: Tap = ignore) -> Tensor:
        """The embedded stream `[batch, token, d_model]` to the output of the same shape."""
        tap("embed", 0, x)
        for layer in self.layers:
            x = layer(x, tap)
        return x if self.norm is None else self.norm(x)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """A scalar: the output's projection on a random direction, or the mean cross-entropy of the next character."""
        if self.W_U is None:
            return (output * batch.target).sum()
        return F.cross_entropy(F.linear(output, self.W_U).flatten(0, 1), batch.target.flatten())


def draw_weights(config: Config, seed: int, check: noise.Check = lambda: None) -> dict[str, Tensor]:
    """All matrices of all layers, `[layer, fan_out, fan_in]` each: the seed's noise times the scale.

    Under the NTK parametrization the stored weights have unit variance; the scale is in the forward pass.
    """
    spread = {name: 1.0 if config.parametrization == "ntk" else math.sqrt(v) for name, v in variances(config).items()}
    return {
        name: spread[name] * noise.stack(seed, name, config.n_layers, (fan_out, fan_in), config.distribution, check)
        for name, (fan_in, fan_out) in shapes(config).items()
    }


@lru_cache(maxsize=32)
def forward_multipliers(config: Config) -> Mapping[str, float]:
    """What each matrix product is multiplied by in the forward pass: 1, or σ under the NTK parametrization."""
    return {name: math.sqrt(v) if config.parametrization == "ntk" else 1.0 for name, v in variances(config).items()}


def linear(x: Tensor, weight: Tensor, multiplier: float) -> Tensor:
    """`x Wᵀ`, times the multiplier of the parametrization."""
    y = F.linear(x, weight)
    return y if multiplier == 1 else y * multiplier


def visible(n: int, device: torch.device) -> Tensor:
    """`[query, key]`, true where a causal token may look."""
    return torch.ones(n, n, dtype=torch.bool, device=device).tril()
