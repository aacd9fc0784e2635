"""Stacks in which only some layers attend: their attention's statistics are kept, and the others
have a gap."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from small_models import joined, split
from torch import Tensor, nn

import explorer as ex
from explorer import Profile, diagnose

WIDTH, HEADS, TOKENS, N = 32, 4, 12, 8
STATISTICS = (
    "logit_std",
    "attention_entropy",
    "attention_entropy_normalized",
    "attention_max",
    "attention_entropy_by_position",
    "attention_received",
)


class Block(nn.Module):
    """Attention, or a mean over the tokens before it in its place."""

    def __init__(self, attends: bool) -> None:
        super().__init__()
        self.attends = attends
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.one, self.two = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def mix(self, x: Tensor) -> Tensor:
        if not self.attends:
            return self.o(self.v(x).cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None])  # type: ignore[no-any-return]
        q, k, v = split(HEADS, self.q(x), self.k(x), self.v(x))
        return self.o(joined((q @ k.mT / 8**0.5).softmax(-1) @ v))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mix(self.one(x))
        return x + self.down(nn.functional.gelu(self.up(self.two(x))))  # type: ignore[no-any-return]


class Hybrid(nn.Module):
    def __init__(self, attending: tuple[int, ...], sharp: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Block(layer in attending) for layer in range(N))
        for layer in attending:
            self.layers[layer].q.weight.data *= sharp  # type: ignore[operator, union-attr]

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


INPUTS = torch.randn(2, TOKENS, WIDTH, generator=torch.Generator().manual_seed(1))


@cache
def read(attending: tuple[int, ...], sharp: float = 1.0) -> Profile:
    """Kept: several tests read one profile."""
    return ex.probe(Hybrid(attending, sharp), INPUTS)


@pytest.mark.parametrize("attending", [(4,), (3, 7), (0, 1, 2, 4, 5, 6, 7)])
def test_the_layers_that_attend_keep_their_statistics(attending: tuple[int, ...]) -> None:
    """And their gaps are no numbers that are not finite."""
    profile, whole = read(attending), read(tuple(range(N)))
    without = tuple(layer + 1 for layer in range(N) if layer not in attending)
    for statistic in STATISTICS:
        key = next(key for key in profile if key[0] == statistic)
        assert profile.absent[key] == without
        known = np.isfinite(profile[key]).all(axis=(0, 2))
        assert np.flatnonzero(known).tolist() == list(attending)
        if attending[0] == 0:  # the tokens that it reads are those of the other model
            np.testing.assert_allclose(profile[key][:, 0], whole[key][:, 0], rtol=1e-6)
        assert statistic in profile.notes
    assert profile.first_nonfinite is None
    assert dict(Profile.from_json(profile.to_json()).absent) == dict(profile.absent)


def test_gaps_are_drawn_as_such() -> None:
    profile = read((4,))
    assert "nan" not in profile._repr_html_()
    for statistic in STATISTICS:
        figure = profile.plot(
            statistic, layer=5 if statistic.endswith(("position", "received")) else 0
        )
        words = figure.to_json()
        assert "not finite" not in words, statistic
        assert "has no such statistic" not in words, statistic
    assert "has no such statistic" in profile.plot("attention_received", layer=1).to_json()


def test_attention_that_is_one_hot_is_found_in_the_one_layer_that_attends() -> None:
    sharp = diagnose(read((4,), 200.0))
    assert any(
        "close to one-hot" in one.meaning and "layer 5 (layers.4)" in one.evidence for one in sharp
    )
    mild = diagnose(read((4,)))
    assert not any("one-hot" in one.meaning for one in mild)
    assert any(number.name.startswith("Least attention entropy") for number in mild[0].numbers)


def test_a_watch_keeps_them_too() -> None:
    model = Hybrid((4,), sharp=200.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    with ex.watch(model, every=1) as watch:
        for _ in range(2):
            optimizer.zero_grad()
            model(INPUTS).square().mean().backward()
            optimizer.step()
    profile = watch.profile(0)
    assert profile.absent["attention_entropy", "pattern"] == (1, 2, 3, 4, 6, 7, 8)
    assert np.isfinite(profile["attention_entropy", "pattern"][0, 4]).all()
    assert profile.first_nonfinite is None
    assert any("close to one-hot" in one.meaning for one in watch.diagnose())
