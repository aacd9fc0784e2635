"""The course's character model: `Model`, which lesson 1 writes wrong on purpose, and its repairs.

Each lesson repairs one method: `Lesson2` derives from `Model`, `Lesson3` from `Lesson2`, and so on.
The notebooks show the same lines. Everything that a lesson may repair is a method of `Choices`.
`train` is the same for all: 200 steps of Adam on English prose that ships with Python."""

from __future__ import annotations

import re
from pydoc_data.topics import topics
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, ModuleList, Parameter, ParameterList
from torch.nn.functional import cross_entropy, silu

LETTERS, LENGTH = " abcdefghijklmnopqrstuvwxyz", 16
"""The characters, and how many the model sees."""
PROSE = re.sub("[^a-z]+", " ", " ".join(topics[name] for name in sorted(topics)).lower())
TEXT = torch.tensor([LETTERS.index(letter) for letter in PROSE])


def batch(count: int = 32) -> tuple[Tensor, Tensor]:
    """Numbers of letters `[sequence, position]`, and those that follow them."""
    start = torch.randint(len(TEXT) - LENGTH, (count, 1))
    rows = TEXT[start + torch.arange(LENGTH + 1)]
    return rows[:, :-1], rows[:, 1:]


class Choices:
    """The choices of the model: all of them are wrong, and each has its lesson."""

    def weight(self, fan_in: int, *shape: int) -> Tensor:  # noqa: ARG002 - for repairs
        """Weights of one matrix; each output adds up `fan_in` of them."""
        return torch.randn(*shape)

    def activate(self, x: Tensor) -> Tensor:
        """The activation, number by number."""
        return torch.tanh(x)

    def normalize(self, x: Tensor) -> Tensor:
        """The norm over the last axis."""
        return x

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        """Logits `[sequence, query, key]` of attention."""
        return q @ k.mT

    def join(self, x: Tensor, branch: Any, matrices: Any) -> Tensor:
        """The stream after a layer."""
        return self.normalize(branch(x, *matrices))

    def finish(self, x: Tensor) -> Tensor:
        """The stream as the readout receives it."""
        return x

    def rate(self, matrix: Tensor, step: int) -> float:  # noqa: ARG002 - for repairs
        """Adam's learning rate."""
        return 3e-3


class Weights(Choices, Module):
    """All weights of the model: every `every`-th layer is attention, the others are one matrix.

    Args:
        seed: of the weights, and of the text that is drawn in training.
        layers: attention included.
        width: of the stream.
        every: distance between layers of attention; the first layer is one.
    """

    def __init__(self, seed: int, layers: int = 24, width: int = 64, every: int = 24) -> None:
        super().__init__()
        torch.manual_seed(seed)
        # a letter's row and its position's row are added: two weights for each number
        self.letters = Parameter(self.weight(2, len(LETTERS), width))
        self.positions = Parameter(self.weight(2, LENGTH, width))
        self.layers = ModuleList()
        for layer in range(layers):
            count = 1 if layer % every else 4
            matrices = [Parameter(self.weight(width, width, width)) for _ in range(count)]
            self.layers.append(ParameterList(matrices))
        self.readout = Parameter(self.weight(width, width, len(LETTERS)))


class Model(Weights):
    """The model that predicts each next letter, with the choices of lesson 1."""

    def attend(self, x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> Tensor:
        """One head of attention over the letters so far."""
        future = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        scores = self.scores(x @ W_Q, x @ W_K).masked_fill(future, -torch.inf)
        return scores.softmax(-1) @ (x @ W_V) @ W_O

    def dense(self, x: Tensor, W: Tensor) -> Tensor:
        """The activation and one matrix."""
        return self.activate(x) @ W

    def stream(self, text: Tensor) -> list[Tensor]:
        """The stream `[sequence, position, width]` before the first layer and after each layer."""
        stream = [self.letters[text] + self.positions]
        for matrices in self.layers:
            branch = self.attend if len(matrices) == 4 else self.dense  # type: ignore[arg-type]
            stream.append(self.join(stream[-1], branch, matrices))
        return stream

    def forward(self, text: Tensor) -> Tensor:
        """Logits `[sequence, position, letter]` of the next letters."""
        return self.finish(self.stream(text)[-1]) @ self.readout


def train(model: Model, steps: int = 200) -> list[float]:
    """Loss of each step in nats a letter; the model is trained by Adam."""
    groups = [{"params": [matrix]} for matrix in model.parameters()]
    adam, losses = torch.optim.Adam(groups), []
    for step in range(steps):
        for group in adam.param_groups:
            group["lr"] = model.rate(group["params"][0], step)
        text, following = batch()
        loss = cross_entropy(model(text).flatten(0, 1), following.flatten())
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
        losses.append(loss.item())
    return losses


class Lesson2(Model):
    """Weights of variance 1/fan_in instead of 1."""

    def weight(self, fan_in: int, *shape: int) -> Tensor:
        return torch.randn(*shape) * fan_in**-0.5  # type: ignore[no-any-return]


class Lesson3(Lesson2):
    """A relu with He's factor instead of tanh."""

    def activate(self, x: Tensor) -> Tensor:
        return 2**0.5 * torch.relu(x)


class Lesson4(Lesson3):
    """An RMSNorm after each layer."""

    def normalize(self, x: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


class Lesson5(Lesson4):
    """μP's learning rate: that of a square matrix falls as 1/width."""

    def rate(self, matrix: Tensor, step: int) -> float:  # noqa: ARG002 - for later repairs
        rows, columns = matrix.shape
        return 3e-3 * 16 / rows if rows == columns else 3e-3


class Lesson6(Lesson5):
    """Logits of attention divided by √d."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT / q.shape[-1] ** 0.5  # type: ignore[no-any-return]


class Lesson7(Lesson6):
    """A residual: each layer is added to the stream."""

    def join(self, x: Tensor, branch: Any, matrices: Any) -> Tensor:
        return self.normalize(x + branch(x, *matrices))


class Lesson8(Lesson7):
    """Each layer is multiplied by 1/√N before it is added to the stream."""

    def join(self, x: Tensor, branch: Any, matrices: Any) -> Tensor:
        return self.normalize(x + branch(x, *matrices) / len(self.layers) ** 0.5)


class Lesson9(Lesson8):
    """The norm before each layer, and before the readout, instead of after the addition."""

    def join(self, x: Tensor, branch: Any, matrices: Any) -> Tensor:
        return x + branch(self.normalize(x), *matrices) / len(self.layers) ** 0.5  # type: ignore[no-any-return]

    def finish(self, x: Tensor) -> Tensor:
        return self.normalize(x)


class Lesson10(Lesson9):
    """A warm-up: the learning rate grows over the first 20 steps."""

    def rate(self, matrix: Tensor, step: int) -> float:
        return super().rate(matrix, step) * min(1, (step + 1) / 20)


class Lesson11(Lesson10):
    """Four layers of attention instead of one, each of which adds the logits of those before."""

    def __init__(self, seed: int, layers: int = 24, width: int = 64, every: int = 6) -> None:
        super().__init__(seed, layers, width, every)

    def stream(self, text: Tensor) -> list[Tensor]:
        self.past = torch.zeros(())
        return super().stream(text)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        self.past = self.past + super().scores(q, k)
        return self.past


class Lesson12(Lesson11):
    """Ten times as many layers, each multiplied by √24/N instead of 1/√N."""

    def __init__(self, seed: int, layers: int = 240, width: int = 64, every: int = 60) -> None:
        super().__init__(seed, layers, width, every)

    def join(self, x: Tensor, branch: Any, matrices: Any) -> Tensor:
        return x + branch(self.normalize(x), *matrices) * 24**0.5 / len(self.layers)  # type: ignore[no-any-return]


def rotated(x: Tensor) -> Tensor:
    """Queries or keys `[…, position, d]`; each pair (i, i + d/2) is turned by position × θ_i.

    θ_i is 10000^(−2i/d); source: Su et al. 2021, arXiv 2104.09864.
    """
    n, d = x.shape[-2:]
    angles = torch.arange(n)[:, None] * 1e4 ** (-2 * torch.arange(d // 2) / d)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


class Lesson13(Lesson12):
    """The block people train now: attention with rotary positions, then a gated MLP, 12 times."""

    def __init__(self, seed: int, layers: int = 24, width: int = 64, every: int = 2) -> None:
        super().__init__(seed, layers, width, every)
        for matrices in self.layers:
            if len(matrices) == 1:  # type: ignore[arg-type]
                more = [Parameter(self.weight(width, width, width)) for _ in range(2)]
                matrices.extend(more)  # type: ignore[operator]
        self.positions.requires_grad_(False).zero_()
        self.letters.data *= 2**0.5  # a row is alone now

    def dense(self, x: Tensor, W_gate: Tensor, W_in: Tensor, W_out: Tensor) -> Tensor:  # type: ignore[override]
        """The gated MLP; 0.3558 is E silu²."""
        return 0.3558**-0.5 * silu(x @ W_gate) * (x @ W_in) @ W_out  # type: ignore[no-any-return]

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return rotated(q) @ rotated(k).mT / q.shape[-1] ** 0.5  # type: ignore[no-any-return]


MODELS: dict[int, type[Model]] = {
    1: Model,
    2: Lesson2,
    3: Lesson3,
    4: Lesson4,
    5: Lesson5,
    6: Lesson6,
    7: Lesson7,
    8: Lesson8,
    9: Lesson9,
    10: Lesson10,
    11: Lesson11,
    12: Lesson12,
    13: Lesson13,
}
"""The model after each lesson's repair."""
