"""What a layer shares, drops or cannot tell apart is named: a module used twice, W_Q = W_K, a rank
of 1, dropout."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from explorer import diagnose, probe, twin

D, N = 64, 6


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.LayerNorm(D), nn.LayerNorm(D)
        self.q, self.k, self.v, self.o = (nn.Linear(D, D, bias=False) for _ in range(4))
        self.up, self.down, self.drop = nn.Linear(D, 128), nn.Linear(128, D), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part(self.one(x)).unflatten(-1, (4, 16)).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        mixed = ((q @ k.mT / 4).softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = x + self.drop(self.o(mixed))
        return x + self.drop(self.down(torch.relu(self.up(self.two(x)))))


class Run(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Block() for _ in range(N))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


INPUTS = torch.randn(2, 16, D, generator=torch.Generator().manual_seed(1))


def twice(model: Run, layer: int) -> None:
    model.layers[layer] = model.layers[1]


def attention_twice(model: Run, layer: int) -> None:
    for name in "qkvo":
        setattr(model.layers[layer], name, getattr(model.layers[1], name))


def one_matrix(model: Run, layer: int) -> None:
    model.layers[layer].k = model.layers[layer].q


def equal_matrices(model: Run, layer: int) -> None:
    model.layers[layer].k.load_state_dict(model.layers[layer].q.state_dict())  # type: ignore[operator, union-attr]


def rank(model: Run, layer: int) -> None:
    model.layers[layer].up.weight.data = torch.outer(torch.randn(128), torch.randn(D)) / 8  # type: ignore[union-attr]


def dropout(model: Run, layer: int) -> None:
    model.layers[layer].drop.p = 0.9  # type: ignore[union-attr, assignment]


MISTAKES: dict[Callable[[Run, int], None], str] = {
    twice: "uses W_Q, W_K, W_V, W_O, W_out, W_in of layer 2",
    attention_twice: "uses W_Q, W_K, W_V, W_O of layer 2",
    one_matrix: "has one matrix for queries and keys",
    equal_matrices: "has one matrix for queries and keys",
    rank: "has W_in of effective rank 1",
    dropout: "has dropout of 0.9, where its siblings have 0.1",
}


@pytest.mark.parametrize(
    ("mistake", "train"),
    [
        *((mistake, False) for mistake in MISTAKES),
        (dropout, True),
        (attention_twice, True),
        (rank, True),
    ],
)
def test_it_is_named(mistake: Callable[[Run, int], None], train: bool) -> None:
    model = Run().train(train)
    mistake(model, 3)
    finding = diagnose(probe(model, INPUTS))[0]
    assert finding.severity != "good"
    assert finding.meaning.startswith("Layer 4")
    assert MISTAKES[mistake] in finding.meaning


@pytest.mark.parametrize("mistake", [one_matrix, equal_matrices, rank])
def test_so_it_is_where_all_layers_have_it(mistake: Callable[[Run, int], None]) -> None:
    model = Run().eval()
    for layer in range(N):
        mistake(model, layer)
    words = MISTAKES[mistake].removesuffix(", where")
    assert any(words in finding.meaning for finding in diagnose(probe(model, INPUTS)))
    tied = "its queries and keys have one matrix; the twin has two" in twin(model, INPUTS).differs
    assert tied == (mistake is not rank)


def test_dropout_of_a_function() -> None:
    class Dropped(Block):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.dropout(super().forward(x), 0.9)

    model = Run()
    model.layers[3] = Dropped()
    assert any("has dropout of 0.9" in words for _, _, words in probe(model, INPUTS).differences)


def test_a_healthy_model_has_none_of_it() -> None:
    for model in (Run(), Run().eval()):
        assert probe(model, INPUTS).differences == ()


def test_layers_that_share_by_design_are_not_named() -> None:
    """All of one block, or in pairs."""
    for period in (1, 2):
        model = Run()
        for layer in range(N):
            model.layers[layer] = model.layers[layer // period * period]
        assert probe(model, INPUTS).differences == ()
