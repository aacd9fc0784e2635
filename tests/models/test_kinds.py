"""Which layers are of one kind: a design that mixes layers on purpose has no odd ones, a mistake in
it is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from explorer import Profile, diagnose, probe
from explorer_models.kinds import periodic

D, TOKENS = 64, 16


class Block(nn.Module):
    """Rotary or bare attention, causal with a window or without, and one MLP or experts."""

    def __init__(
        self,
        *,
        window: int = TOKENS,
        rotary: bool = True,
        experts: bool = False,
        state: bool = False,
        epsilon: float = 1e-5,
    ) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(D), nn.LayerNorm(D, eps=epsilon)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.window, self.rotary, self.causal = window, rotary, True
        self.state = nn.Linear(D, 2 * D) if state else None
        self.up, self.down = nn.Linear(D, 2 * D), nn.Linear(2 * D, D)
        self.router = nn.Linear(D, 4) if experts else None
        self.experts = nn.ModuleList(nn.Linear(D, D) for _ in range(4 * experts))

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        if self.rotary:
            q, k = turned(q), turned(k)
        seen = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
        seen = seen.tril().triu(1 - self.window) if self.causal else seen
        scores = (q @ k.mT / 4).masked_fill(~seen, -torch.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def mix(self, x: Tensor) -> Tensor:
        if self.state is None:
            return self.attend(x)
        gate, value = self.state(x).chunk(2, -1)
        return self.out(torch.sigmoid(gate) * value.cumsum(1))

    def mlp(self, x: Tensor) -> Tensor:
        if self.router is None:
            return self.down(torch.relu(self.up(x)))
        weight, chosen = self.router(x).softmax(-1).topk(1)
        every = torch.stack([expert(x) for expert in self.experts], -2)
        return weight * every.gather(-2, chosen[..., None].expand(*chosen.shape, D)).squeeze(-2)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mix(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


def turned(x: Tensor) -> Tensor:
    angles = torch.outer(torch.arange(TOKENS), 1e4 ** (-torch.arange(8) / 8))
    first, second = x.chunk(2, -1)
    return torch.cat(
        [
            first * angles.cos() - second * angles.sin(),
            second * angles.cos() + first * angles.sin(),
        ],
        -1,
    )


DESIGNS: dict[str, tuple[Callable[[int], dict[str, Any]], str, int]] = {
    "no positions in every fourth layer": (
        lambda layer: {"rotary": layer % 4 != 0},
        "attention, no positions",
        8,
    ),
    "a window in all layers but every fourth": (
        lambda layer: {"window": 4 if layer % 4 else TOKENS},
        "attention, a window",
        6,
    ),
    "no window where there are no positions": (
        lambda layer: {"window": 4 if layer % 4 else TOKENS, "rotary": layer % 4 != 0},
        "attention, a window",
        6,
    ),
    "a dense first layer": (lambda layer: {"experts": layer > 1}, "attention, experts", 6),
    "attention in every fourth layer": (lambda layer: {"state": layer % 4 != 0}, "no attention", 6),
    "attention where it happens to be": (
        lambda layer: {"state": layer not in (3, 5)},
        "no attention",
        8,
    ),
}
"""What a layer from 1 is, the name of a kind, and how many layers there are."""


def seen(design: str, n_layers: int, *changes: tuple[int, Callable[[Block], None]]) -> Profile:
    torch.manual_seed(0)
    blocks = [Block(**DESIGNS[design][0](layer)) for layer in range(1, n_layers + 1)]
    for layer, change in changes:
        change(blocks[layer - 1])
    return probe(nn.Sequential(*blocks), torch.randn(2, TOKENS, D))


@pytest.mark.parametrize("design", DESIGNS)
def test_layers_that_are_mixed_on_purpose_are_no_mistakes(design: str) -> None:
    profile = seen(design, DESIGNS[design][2])
    assert profile.differences == ()
    assert DESIGNS[design][1] in profile.kinds
    assert len(set(profile.kinds)) == 2
    findings = diagnose(profile)
    assert not any(
        "sibling" in finding.meaning + finding.evidence + finding.remedy for finding in findings
    )
    assert any("of 2 kinds" in finding.meaning for finding in findings)
    assert Profile.from_json(profile.to_json()).kinds == profile.kinds


def epsilon(block: Block) -> None:
    block.norm_2.eps = 0.1


def bare(block: Block) -> None:
    block.norm_2 = nn.Identity()  # type: ignore[assignment]


@pytest.mark.parametrize("design", DESIGNS)
def test_mistakes_among_layers_of_their_kind_are_named(design: str) -> None:
    first, second = seen(design, 8, (2, epsilon), (6, bare)).differences
    assert (first[0], second[0]) == (2, 6)
    assert "ε 0.1" in first[2]
    assert "no norm on the MLP's input" in second[2]


def unmasked(block: Block) -> None:
    block.causal = False


def unplaced(block: Block) -> None:
    block.rotary = False


@pytest.mark.parametrize(
    "design", ["a window in all layers but every fourth", "a dense first layer"]
)
def test_no_design_sees_later_tokens_in_one_layer_or_drops_positions_at_no_distance(
    design: str,
) -> None:
    said = [
        (layer, words.partition(", where")[0])
        for layer, _, words in seen(design, 8, (2, unmasked), (3, unplaced)).differences
    ]
    assert (2, "has a mask of the kind none") in said
    assert (3, "has positions of the kind none") in said


def test_a_kind_of_two_layers_has_no_siblings() -> None:
    """Of two layers that differ nothing says which is the odd one."""
    profile = seen("attention in every fourth layer", 8, (4, epsilon))
    assert profile.differences == ()
    note = next(finding for finding in diagnose(profile) if "kinds" in finding.meaning)
    assert "no attention: layers 1–3, 5–7; attention: layers 4, 8" in note.evidence
    assert "fewer than 3 layers" in note.evidence


def test_a_first_layer_that_reads_a_norms_output_needs_no_norm() -> None:
    """As ModernBERT's; without a norm before it, it is a mistake."""
    torch.manual_seed(0)
    blocks = nn.Sequential(*(Block() for _ in range(6)))
    blocks[0].norm_1 = nn.Identity()
    x = torch.randn(2, TOKENS, D)
    assert probe(blocks, nn.functional.layer_norm(x, (D,))).differences == ()
    assert [difference[:2] for difference in probe(blocks, x).differences] == [(1, "attn_out")]


@pytest.mark.parametrize(
    ("at", "count", "expected"),
    [
        ([3], 6, True),
        ([3, 7], 8, True),
        ([3, 7, 11], 12, True),
        ([0, 4], 8, True),
        ([1, 4, 7], 9, True),
        ([2], 12, False),
        ([3], 12, False),
        ([10], 12, False),
        ([0], 6, False),
        ([3, 5], 12, False),
        ([4, 5], 6, False),
        ([3, 7], 16, False),
        ([1, 5], 8, False),
    ],
)
def test_layers_at_one_distance_from_end_to_end(at: list[int], count: int, expected: bool) -> None:
    assert periodic(at, count) == expected
