"""Statistics by token position, against hooks by hand: on our model, and on models that are not
ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from explorer import Config, measure, probe
from explorer.model import Transformer, batch

SIZES: dict[str, Any] = {
    "n_layers": 3,
    "d_model": 32,
    "n_heads": 2,
    "n_ctx": 8,
    "batch_size": 3,
    "n_seeds": 1,
}


def by_hand(x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Second moment by token of `[batch, token, d]`, and its mean overlap with each other token
    over their lengths."""
    rows = x.detach().double().numpy()
    n = rows.shape[1]
    gram = np.array([[(rows[:, t] * rows[:, s]).mean() for s in range(n)] for t in range(n)])
    q = gram.diagonal()
    return q, np.array(
        [
            sum(gram[t, s] for s in range(n) if s != t)
            / sum(np.sqrt(q[t] * q[s]) for s in range(n) if s != t)
            for t in range(n)
        ]
    )


@pytest.mark.parametrize(
    "design",
    [
        {},
        {"causal": True},
        {"sink": "zero"},
        {"causal": True, "sink": "learned"},
        {"causal": True, "norm_placement": "none", "init_variance": 2.0},
    ],
    ids=str,
)
def test_our_model_has_what_taps_by_hand_see(design: dict[str, Any]) -> None:
    config = Config(**SIZES | design)
    taken: dict[str, list[Tensor]] = {}
    model, inputs = Transformer(config, config.seed), batch.draw(config, config.seed)
    with torch.no_grad():
        model.through(
            model.layers,
            model.embed(inputs),
            lambda site, _, tensor: taken.setdefault(site, []).append(tensor.clone()),
        )
    profile = measure(config)
    for layer in range(3):
        q, correlation = by_hand(taken["resid_post"][layer])
        np.testing.assert_allclose(profile["second_moment_by_position"][0, layer], q, rtol=1e-5)
        np.testing.assert_allclose(
            profile["token_correlation_by_position"][0, layer], correlation, atol=1e-5
        )
        pattern = taken["pattern"][layer].double()
        received = np.array([float(pattern[..., j].sum()) for j in range(8)]) / (3 * 2 * 8)
        np.testing.assert_allclose(profile["attention_received"][0, layer], received, rtol=1e-5)
        shares = pattern / pattern.sum(-1, keepdim=True)  # of what a sink leaves
        entropy = torch.special.entr(shares).sum(-1).mean((0, 1))
        np.testing.assert_allclose(
            profile["attention_entropy_by_position"][0, layer], entropy, atol=1e-5
        )
    whole = profile["attention_received"].sum(-1)
    assert (whole < 0.99).all() if "sink" in design else np.allclose(whole, 1)
    np.testing.assert_allclose(
        profile["second_moment_by_position"].mean(-1),
        profile["second_moment", "resid_post"],
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        profile["attention_entropy_by_position"].mean(-1),
        profile["attention_entropy"].mean(-1),
        rtol=1e-4,
    )


class Block(nn.Module):
    """Pre-norm attention of two heads and an MLP; masked, or not."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal, self.seen = causal, list[Tensor]()
        self.norm, self.norm_2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (2, 8)).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        scores = q @ k.transpose(-1, -2) / 8**0.5
        if self.causal:
            scores = scores.masked_fill(
                ~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), float("-inf")
            )
        pattern = scores.softmax(-1)
        self.seen.append(pattern.detach())
        x = x + self.out((pattern @ v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_2(x))


@pytest.mark.parametrize("causal", [False, True])
def test_a_model_that_is_not_ours_has_what_hooks_by_hand_see(causal: bool) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(*(Block(causal) for _ in range(3))), torch.randn(2, 6, 16)
    seen: list[Tensor] = []
    for block in model:
        block.register_forward_hook(lambda _module, _args, out: seen.append(out.detach()))
    model(x)
    streams, patterns = list(seen), [block.seen[0].double() for block in model]  # type: ignore[union-attr]
    profile = probe(model, x)
    for layer, (stream, pattern) in enumerate(zip(streams, patterns, strict=True)):
        q, correlation = by_hand(stream)
        np.testing.assert_allclose(profile["second_moment_by_position"][0, layer], q, rtol=1e-5)
        np.testing.assert_allclose(
            profile["token_correlation_by_position"][0, layer], correlation, atol=1e-5
        )
        np.testing.assert_allclose(
            profile["attention_received"][0, layer], pattern.mean((0, 1, 2)), rtol=1e-5
        )
        entropy = torch.special.entr(pattern).sum(-1).mean((0, 1))
        np.testing.assert_allclose(
            profile["attention_entropy_by_position"][0, layer], entropy, atol=1e-5
        )


def test_one_token_has_no_other_to_correlate_with() -> None:
    profile = probe(nn.Sequential(*(Block(causal=False) for _ in range(2))), torch.randn(2, 1, 16))
    assert "token_correlation_by_position" not in profile
    assert profile["second_moment_by_position"].shape == (1, 2, 1)
