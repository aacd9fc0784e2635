"""A cross-entropy of the output: recognized by its gradient, far above ln V at first, or standing
there."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from small_models import joined, split
from torch import Tensor, nn
from torch.nn import functional as F

import explorer as ex

WORDS, TOKENS, WIDTH = 200, 32, 64
EVEN = math.log(WORDS)
Loss = Callable[[Any], Tensor]


class Block(nn.Module):
    """A layer as nanoGPT has it."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.mlp_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = split(4, *self.c_attn(self.ln_1(x)).split(WIDTH, 2))
        x = x + self.c_proj(joined(F.scaled_dot_product_attention(q, k, v, is_causal=True)))
        out: Tensor = x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x))))
        return out


class GPT(nn.Module):
    """Returns logits and loss, as nanoGPT does; std is of the readout's entries."""

    def __init__(self, std: float = 0.02, tied: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.wte, self.wpe = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(2))
        self.ln_f, self.lm_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        for weight in self.parameters():
            if weight.ndim > 1:
                nn.init.normal_(weight, std=0.02)
        nn.init.normal_(self.lm_head.weight, std=std)
        if tied:
            self.wte.weight = self.lm_head.weight

    def forward(self, words: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        x = self.wte(words) + self.wpe.weight
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, None if targets is None else F.cross_entropy(
            logits.flatten(0, 1), targets.flatten()
        )


def text(step: int) -> Tensor:
    """`[batch, token + 1]`: words of which a few are frequent."""
    draws = torch.Generator().manual_seed(step)
    return torch.randint(WORDS, (4, TOKENS + 1), generator=draws) // torch.randint(
        1, WORDS, (4, TOKENS + 1), generator=draws
    )


PAIR = text(0)[:, :-1], text(0)[:, 1:].contiguous()


def entropy(out: Any, **options: Any) -> Tensor:
    return F.cross_entropy(out[0].flatten(0, 1), PAIR[1].flatten(), **options)


def told(profile: ex.Profile) -> list[ex.Finding]:
    return [finding for finding in ex.diagnose(profile) if "ln V" in finding.meaning]


@pytest.mark.parametrize(
    ("batch", "loss"),
    [
        (PAIR, None),
        (PAIR[0], entropy),
        (PAIR[0], lambda out: 1e4 * entropy(out)),
    ],
)
def test_a_probe_reads_the_logits_of_a_cross_entropy(batch: Any, loss: Loss | None) -> None:
    """Whoever computes it, in the model or beside it, and whatever it is multiplied by."""
    model = GPT()
    profile = ex.probe(model, batch, loss)
    logits = model(PAIR[0])[0].detach().flatten(0, 1).double()
    each = F.cross_entropy(logits, PAIR[1].flatten(), reduction="none")
    expected = {
        "loss": each.mean(),
        "error": each.std() / len(each) ** 0.5,
        "classes": WORDS,
        "variance": logits.var(1, correction=0).mean(),
        "rms": logits.square().mean().sqrt(),
        "largest": logits.abs().max(),
        "square_log_sum": logits.logsumexp(1).square().mean(),
    }
    assert profile.logits == {
        name: pytest.approx(float(value), rel=1e-5) for name, value in expected.items()
    }
    assert not told(profile)
    assert ex.Profile.from_json(profile.to_json()).logits == profile.logits


@pytest.mark.parametrize(
    "loss",
    [
        None,
        lambda out: out[0].square().mean(),
        lambda out: entropy(out, label_smoothing=0.1),
        lambda out: entropy(out) + out[0].logsumexp(-1).square().mean(),
        lambda out: out[0][..., 3].sum(),
        lambda out: (out[0].softmax(-1) - 1 / WORDS).square().mean(),
        lambda out: entropy((out[0] * 3,)),
    ],
)
def test_another_loss_is_none(loss: Loss | None) -> None:
    profile = ex.probe(GPT(std=1.0), PAIR[0], loss)
    assert profile.logits == {}
    assert not told(profile)


def test_rows_without_a_target_do_not_count() -> None:
    target = PAIR[1].clone()
    target[:, ::2] = -100
    model = GPT()
    held = ex.probe(model, (PAIR[0], target)).logits
    assert held["loss"] == pytest.approx(float(model(PAIR[0], target)[1].detach()), rel=1e-5)


@pytest.mark.parametrize("tied", [False, True])
def test_a_readout_that_is_too_large(tied: bool) -> None:
    """The law of independent Gaussian logits gives the loss, within standard errors over rows that
    share a readout."""
    model = GPT(std=1.0, tied=tied)
    profile = ex.probe(model, PAIR)
    held = profile.logits
    (finding,) = told(profile)
    assert finding.severity == "warning"
    assert (
        finding.meaning
        == f"The loss is {held['loss']:.2f}, far above ln V = 5.298: its logits are large."
    )
    assert "Draw the readout smaller" in finding.remedy
    with torch.no_grad():
        model.lm_head.weight /= 8.0 if not tied else 50.0
    assert not told(ex.probe(model, PAIR))


def test_what_a_file_says_is_checked() -> None:
    data = json.loads(ex.probe(GPT(std=1.0), PAIR).to_json())
    for value in (-1.0, "much", None):
        with pytest.raises(
            ValueError, match=r"logits.loss must be (greater than or equal to 0|a valid number)"
        ):
            ex.Profile.from_json(json.dumps({**data, "logits": {**data["logits"], "loss": value}}))
    for logits in ({}, {"loss": 30.0}, {**data["logits"], "classes": 0}):
        assert not told(ex.Profile.from_json(json.dumps({**data, "logits": logits})))
    for classes, variance in ((1e299, 1.0), (200, 1e299)):
        huge = {**data["logits"], "classes": classes, "variance": variance, "loss": 1e299}
        assert told(ex.Profile.from_json(json.dumps({**data, "logits": huge})))


def watched(
    rate: float = 1e-3,
    std: float = 0.02,
    noise: bool = False,
    freeze: float | None = None,
    steps: int = 101,
    watching: bool = True,
) -> tuple[ex.Watch | None, list[float]]:
    """A training, and its losses. `noise`: targets are drawn; `freeze`: a readout of that size does
    not learn."""
    model = GPT(std)
    if freeze is not None:
        model.lm_head.weight.requires_grad_(False).mul_(freeze)
    watch = ex.watch(model, every=20) if watching else None
    optimizer = torch.optim.AdamW(
        [w for w in model.parameters() if w.requires_grad], lr=rate, weight_decay=0.0
    )
    losses = []
    for step in range(steps):
        words = text(step)
        drawn = torch.randint(WORDS, (4, TOKENS), generator=torch.Generator().manual_seed(step))
        target = drawn if noise else words[:, 1:]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(words[:, :-1])[0].flatten(0, 1), target.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
    if watch is not None:
        watch.remove()
    return watch, losses


def of_loss(watch: ex.Watch | None) -> list[ex.Finding]:
    assert watch is not None
    return [finding for finding in watch.diagnose() if "ln V" in finding.meaning]


def test_a_training_that_learns_has_no_finding_and_is_what_it_was() -> None:
    watch, losses = watched()
    assert watch is not None
    assert not of_loss(watch)
    assert losses[-1] < EVEN - 2
    np.testing.assert_allclose(
        [reading.logits["loss"] for reading in watch.readings], losses[::20], rtol=1e-6
    )
    assert losses == watched(watching=False)[1]


@pytest.mark.parametrize(
    ("choices", "severity", "words", "remedy"),
    [
        ({"rate": 1e-9}, "bad", "A step moves the matrices by at most", "learning rate"),
        ({"noise": True}, "warning", "The matrices move, by up to", "targets"),
        ({"freeze": 0.0}, "bad", "No gradient reaches the layers.", "readout"),
        ({"freeze": 1e-3}, "warning", "The logits of a row are all alike.", "readout"),
    ],
)
def test_a_loss_that_stands_at_ln_v(
    choices: dict[str, Any], severity: str, words: str, remedy: str
) -> None:
    """Only what the readings tell apart is named as the cause."""
    (finding,) = of_loss(watched(**choices)[0])
    assert "stands at ln V = 5.298 from step 0 on" in finding.meaning
    assert finding.severity == severity
    assert words in finding.evidence
    assert "In 6 readings, up to step 100" in finding.evidence
    assert remedy in finding.remedy


def test_a_start_that_is_too_large_is_told_to_the_end() -> None:
    for steps in (1, 21):
        (finding,) = of_loss(watched(std=1.0, steps=steps)[0])
        assert "far above ln V" in finding.meaning
    assert finding.evidence.startswith("At step 0: ")


def test_passes_without_gradients_and_other_outputs_are_left_alone() -> None:
    model = GPT()
    with ex.watch(model, every=1, evaluation=True) as watch, torch.no_grad():
        model(PAIR[0])
        with pytest.warns(UserWarning, match="no gradients are left"):
            watch.step()
    assert watch.readings[0].logits == {}
