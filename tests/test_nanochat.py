"""The preset nanochat against the model of github.com/karpathy/nanochat, as its gpt.py of July 2026
computes it.

The package is not installed: `Authors` does the same, written anew, and `pieces` are what the
preset leaves out."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from explorer import Config, preset
from explorer.model import Transformer
from explorer.model.batch import draw
from explorer.theory import initial_loss

SIZES: dict[str, Any] = {
    "n_layers": 4,
    "d_model": 64,
    "n_heads": 4,
    "n_ctx": 24,
    "batch_size": 2,
    "n_seeds": 1,
    "input": "text",
    "loss": "next_token",
}
VOCABULARY = 103
BASE, GAIN, CAP = 1e5, 1.2, 15.0
"""The rotary base, the factor on normalized queries and on keys, and the soft cap of the output's
logits."""
ROUNDING = 3e-5


def norm(x: Tensor) -> Tensor:
    """Of no learned gain; its ε is that of the number format."""
    return F.rms_norm(x, x.shape[-1:])


def uniform(*shape: int, bound: float) -> Tensor:
    return torch.empty(shape).uniform_(-bound, bound)


def turn(x: Tensor) -> Tensor:
    """Turns the pairs i and i + half of `[batch, token, head, coordinate]` by −position · base^(−i
    / half)."""
    half = x.shape[-1] // 2
    angles = torch.outer(torch.arange(x.shape[1]), BASE ** (-torch.arange(half) / half))[:, None]
    first, second = x[..., :half], x[..., half:]
    return torch.cat(
        [
            first * angles.cos() + second * angles.sin(),
            second * angles.cos() - first * angles.sin(),
        ],
        -1,
    )


class Authors:
    """Their model of one draw; `pieces` says whether it has what the preset leaves out."""

    def __init__(self, config: Config, pieces: bool = True) -> None:
        torch.manual_seed(0)
        d, n = config.d_model, config.n_layers
        bound = math.sqrt(3 / d)
        self.heads, self.pieces = config.n_heads, pieces
        self.E, self.readout = 0.8 * torch.randn(VOCABULARY, d), 0.001 * torch.randn(VOCABULARY, d)
        self.layers = [
            {
                "W_Q": uniform(d, d, bound=bound),
                "W_K": uniform(d, d, bound=bound),
                "W_V": uniform(d, d, bound=bound),
                "W_O": torch.zeros(d, d),
                "W_in": uniform(4 * d, d, bound=0.4 * bound),
                "W_out": torch.zeros(d, 4 * d),
            }
            for _ in range(n)
        ]
        share = [layer / max(n - 1, 1) for layer in range(n)]
        self.stays, self.returns = (
            [1.15 - 0.1 * part for part in share],
            [0.2 - 0.15 * part for part in share],
        )
        self.smear, self.smear_gate, self.backout = 0.0, 0.02 * torch.rand(24), 0.2
        self.values = {
            layer: (uniform(VOCABULARY, d, bound=bound), 0.02 * torch.rand(self.heads, 12))
            for layer in range(n)
            if layer % 2 == (n - 1) % 2
        }

    def run(self, ids: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor, Tensor]:
        """The stream and each layer's output, the patterns `[batch, head, query, key]`, the output,
        and its logits."""
        x = norm(self.E[ids])
        if self.pieces:
            gate = self.smear * torch.sigmoid(x[:, 1:, :24] @ self.smear_gate)[..., None]
            x = torch.cat([x[:, :1], x[:, 1:] + gate * x[:, :-1]], dim=1)
        first, stream, patterns = x, [x], []
        for layer, matrices in enumerate(self.layers):
            if self.pieces:
                x = self.stays[layer] * x + self.returns[layer] * first
            out, pattern = self.attention(norm(x), ids, layer, matrices)
            x = x + out
            x = x + F.relu(norm(x) @ matrices["W_in"].T).square() @ matrices["W_out"].T
            stream.append(x)
            patterns.append(pattern)
        if self.pieces:
            x = x - self.backout * stream[1 + len(self.layers) // 2]
        output = norm(x)
        return stream, patterns, output, CAP * torch.tanh(output @ self.readout.T / CAP)

    def attention(
        self, x: Tensor, ids: Tensor, layer: int, matrices: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The branch `[batch, token, d_model]`, and its pattern."""
        q, k, v = (
            (x @ matrices[name].T).unflatten(-1, (self.heads, -1)) for name in ("W_Q", "W_K", "W_V")
        )
        if self.pieces and layer in self.values:
            table, gate = self.values[layer]
            v = v + 3 * torch.sigmoid(x[..., :12] @ gate.T)[..., None] * table[ids].view_as(v)
        q, k = GAIN * norm(turn(q)), GAIN * norm(turn(k))
        logits = torch.einsum("bqhi,bkhi->bhqk", q, k) / math.sqrt(q.shape[-1])
        later = torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1)
        pattern = logits.masked_fill(later, -math.inf).softmax(-1)
        return torch.einsum("bhqk,bkhi->bqhi", pattern, v).flatten(2) @ matrices["W_O"].T, pattern


def largest(config: Config, start: bool = False, pieces: bool = False) -> dict[str, float]:
    """Largest difference of our model of a config, with the weights of theirs, over their root mean
    square.

    Args:
        start: with the weights as they are drawn; else the last matrices are large, and so is the
            readout.
        pieces: theirs has what the preset leaves out.
    """
    theirs, ours, batch = Authors(config, pieces), Transformer(config, 0), draw(config, 0)
    if not start:
        theirs.readout = theirs.readout * 1000
        for matrices in theirs.layers:
            for name in ("W_O", "W_out"):
                matrices[name] = torch.randn_like(matrices[name]) / math.sqrt(config.d_model)
    half = config.d_head // 2
    with torch.no_grad():
        for layer, matrices in zip(ours.layers, theirs.layers, strict=True):
            for name, parameter in layer.weights.items():
                value = matrices[name]
                if name in ("W_Q", "W_K"):  # ours turns the other way
                    value = value.unflatten(0, (-1, config.d_head)).roll(half, 1).flatten(0, 1)
                parameter.copy_(value)
        ours.W_U.copy_(theirs.readout)
        patterns: list[Tensor] = []
        streams: list[Tensor] = []
        taken = {"pattern": patterns, "embed": streams, "resid_post": streams}
        output = ours(
            norm(theirs.E[batch.input]),
            lambda site, layer, tensor: taken.get(site, []).append(tensor),
        )
        expected = theirs.run(batch.input)
        found = (torch.stack(streams), torch.stack(patterns), output, ours.logits(output))
        return {
            name: float((one - two).abs().max() / two.square().mean().sqrt())
            for name, one, two in zip(
                ("stream", "pattern", "output", "logits"),
                found,
                (torch.stack(expected[0]), torch.stack(expected[1]), *expected[2:]),
                strict=True,
            )
        }


def test_the_same_weights_give_the_same_numbers() -> None:
    assert max(largest(preset("nanochat", **SIZES)).values()) < ROUNDING


def test_what_is_left_out_changes_the_stream_s_length_alone_at_the_start() -> None:
    """Patterns, output and logits are those of the whole model; the stream is x_0 times a
    number."""
    config = preset("nanochat", **SIZES)
    found = largest(config, start=True, pieces=True)
    assert found.pop("stream") > 0.1
    assert max(found.values()) < ROUNDING
    theirs = Authors(config)
    stream = theirs.run(draw(config, 0).input)[0]
    factor = 1.0
    for layer, x in enumerate(stream[1:]):
        factor = theirs.stays[layer] * factor + theirs.returns[layer]
        torch.testing.assert_close(x, factor * stream[0])
    assert factor > 1.5


def test_once_the_last_matrices_have_learned_what_is_left_out_tells() -> None:
    assert min(largest(preset("nanochat", **SIZES), pieces=True).values()) > 1e-2


def test_a_readout_as_small_as_theirs_starts_at_ln_V() -> None:
    """Ours, of variance 1/d, half a nat above."""
    config = preset("nanochat", **SIZES)
    batch = draw(config, 0)
    loss = F.cross_entropy(
        Authors(config).run(batch.input)[3].flatten(0, 1), batch.target.flatten()
    )
    # of the mean of the targets' logits
    chance = 0.001 * math.sqrt(config.d_model / batch.target.numel())
    assert float(loss) == pytest.approx(math.log(VOCABULARY), abs=4 * chance)
    assert initial_loss(config) == pytest.approx(math.log(VOCABULARY) + 0.5, abs=0.02)
