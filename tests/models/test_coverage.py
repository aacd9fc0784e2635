"""Notes on what was read, where that is not all of a model: several streams, stages, branches, and
skipped blocks."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from small_models import joined, split
from torch import Tensor, nn

import explorer as ex
from explorer import Profile

WIDTH = 16


class Mlp(nn.Sequential):
    def __init__(self, width: int = WIDTH) -> None:
        super().__init__(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )


class Branches(nn.Module):
    """A layer of up to three MLPs, each added to the stream."""

    def __init__(self, count: int = 1, width: int = WIDTH) -> None:
        super().__init__()
        for name in ("first", "second", "third")[:count]:
            self.add_module(name, Mlp(width))

    def forward(self, x: Tensor) -> Tensor:
        for branch in self.children():
            x = x + branch(x)
        return x


class Joint(nn.Module):
    """Image and text tokens: one attention over both, an MLP each; `order` says which comes first
    in the output."""

    def __init__(self, order: str = "image, text", apart: bool = False) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.image, self.text, self.order, self.apart = Mlp(), Mlp(), order, apart

    def forward(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        if not self.apart:
            both = torch.cat([image, text], 1)
            q, k, v = split(2, self.q(both), self.k(both), self.v(both))
            added = self.o(joined(F.scaled_dot_product_attention(q, k, v)))
            image, text = image + added[:, : image.shape[1]], text + added[:, image.shape[1] :]
        image, text = image + self.image(image), text + self.text(text)
        return (image, text) if self.order == "image, text" else (text, image)


class Both(nn.Module):
    def __init__(self, **block: object) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(Joint(**block) for _ in range(3))  # type: ignore[arg-type]

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        for block in self.blocks:
            image, text = (
                block(image, text) if block.order == "image, text" else block(image, text)[::-1]
            )
        return torch.cat([image, text], 1)


IMAGE, TEXT = torch.randn(2, 9, WIDTH), torch.randn(2, 5, WIDTH)


@pytest.mark.parametrize("block", [{}, {"order": "text, image"}, {"apart": True}], ids=str)
def test_blocks_that_put_out_two_streams(block: dict[str, object]) -> None:
    """The one that goes on from the first input is read, whatever their order, and the other one is
    named."""
    profile = ex.probe(Both(**block), (IMAGE, TEXT))
    (sentence,) = profile.coverage
    assert sentence == (
        "In 3 of 3 layers the block puts out 2 streams: that of shape (2, 9, 16) was read, (2, 5, 16) not."
    )
    note = ex.diagnose(profile)[-1]
    assert (note.severity, note.meaning, note.evidence) == (
        "good",
        "A part of the model was read.",
        sentence,
    )
    assert Profile.from_json(profile.to_json()).coverage == profile.coverage


def test_a_watch_says_so_too() -> None:
    model = Both()
    with ex.watch(model) as watch:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        model(IMAGE, TEXT).square().mean().backward()
        optimizer.step()
    assert watch.coverage() == (
        "In 3 of 3 layers the block puts out 2 streams: that of shape (2, 9, 16) was read, (2, 5, 16) not.",
    )
    assert watch.profile().coverage == watch.coverage()
    assert any("2 streams" in one.evidence for one in watch.diagnose())


class Stages(nn.Module):
    """Two stages of unlike width, as of a hierarchical image model; `skipped` names a layer that
    does not run."""

    def __init__(self, skipped: int = -1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fine, self.coarse = (
            nn.ModuleList(Branches() for _ in range(2)),
            nn.ModuleList(Branches(width=2 * WIDTH) for _ in range(4)),
        )
        self.merge, self.skipped = nn.Linear(WIDTH, 2 * WIDTH), skipped

    def forward(self, x: Tensor) -> Tensor:
        for block in self.fine:
            x = block(x)
        x = self.merge(x)
        for layer, block in enumerate(self.coarse):
            x = x if layer == self.skipped else block(x)
        return x


def test_stages_of_which_one_is_read() -> None:
    model, x = Stages(), torch.randn(2, 6, WIDTH)
    profile = ex.probe(model, x)
    assert profile.coverage == (
        "Read here: 4 blocks of coarse.*. Beside them, in others: 2 blocks of fine.*.",
    )
    assert [other.layers for other in profile.others] == [("fine.0", "fine.1")]
    assert ex.diagnose(profile)[-1].evidence == profile.coverage[0]
    with ex.watch(model) as watch:
        model(x).square().mean().backward()
        torch.optim.SGD(model.parameters(), lr=0.01).step()
    assert watch.coverage() == ("Read: 4 blocks of coarse.*. Not read: 2 blocks of fine.*.",)


def test_blocks_that_did_not_run() -> None:
    profile = ex.probe(Stages(skipped=2), torch.randn(2, 6, WIDTH))
    assert profile.layers == ("coarse.0", "coarse.1", "coarse.3")
    assert "1 of 4 blocks did not run in this pass: coarse.2." in profile.coverage


def test_blocks_that_were_named_are_a_part_of_a_stack() -> None:
    (sentence,) = ex.probe(
        nn.Sequential(*(Branches() for _ in range(4))), torch.randn(2, 6, WIDTH), blocks=["1", "2"]
    ).coverage
    assert sentence == "Read: 2 blocks, as named, of the 4 of *."


def test_branches_of_which_some_are_read() -> None:
    x = torch.randn(2, 6, WIDTH)
    for count in (1, 2):
        assert not ex.probe(nn.Sequential(*(Branches(count) for _ in range(3))), x).coverage
    assert ex.probe(nn.Sequential(*(Branches(3) for _ in range(3))), x).coverage == (
        "In 3 of 3 layers 3 branches are added: 2 were read, the last of each kind, the others not.",
    )


class Gated(nn.Module):
    """Two gated MLPs in one branch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.parts = nn.LayerNorm(WIDTH), nn.ModuleList()
        for scale in (1.0, 3.0):
            part = nn.ModuleList([nn.Linear(WIDTH, 32), nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)])
            nn.init.normal_(part[1].weight, std=scale * WIDTH**-0.5)  # type: ignore[arg-type]
            self.parts.append(part)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        first, second = (down(F.silu(gate(y)) * value(y)) for gate, value, down in self.parts)  # type: ignore[misc]
        return x + (first + second)


def test_both_mlps_of_a_branch_are_read() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Gated() for _ in range(3)))
    profile = ex.probe(model, torch.randn(2, 6, WIDTH))
    both = [
        [float(WIDTH * part[1].weight.detach().square().mean()) for part in block.parts]
        for block in model
    ]
    assert profile["weight_variance", "W_in"][0].tolist() == pytest.approx(
        [sum(pair) / 2 for pair in both], rel=1e-5
    )
