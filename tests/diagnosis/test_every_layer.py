"""Mistakes that all layers share are named by what the code does; sound designs that look alike are
not."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer import Profile, diagnose, probe

WORDS, WIDTH, HEADS, LAYERS, TOKENS, BATCH = 67, 32, 4, 3, 12, 4
SIZE = WIDTH // HEADS


def rotated(x: Tensor, places: Tensor, axis: int = 2, base: float = 1e4) -> Tensor:
    """Queries or keys `[batch, head, token, coordinate]`, turned by their places along an axis."""
    angles = places.float()[:, None] * base ** (-torch.arange(0, SIZE, 2) / SIZE)
    shape = [1, 1, 1, SIZE // 2]
    shape[axis] = len(places)
    cos, sin = (part.reshape(shape).to(x) for part in (angles.cos(), angles.sin()))
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Block(nn.Module):
    """A Pre-LN layer; its options are mistakes, or designs that look like one."""

    def __init__(
        self,
        mask: str = "causal",
        axis: int = -1,
        divisor: float = SIZE**0.5,
        rotary: str = "",
        stream: str = "",
        normed: bool = False,
        renormed: bool = False,
        conv: int = 0,
    ) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.one, self.two, self.up = (
            nn.LayerNorm(WIDTH),
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 4 * WIDTH),
        )
        self.down, self.mask, self.axis, self.divisor = (
            nn.Linear(4 * WIDTH, WIDTH),
            mask,
            axis,
            divisor,
        )
        self.rotary, self.stream, self.normed, self.renormed = rotary, stream, normed, renormed
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=conv) if conv else None

    def turned(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        n, kind = q.shape[2], self.rotary
        places = torch.arange(n)
        if kind == "heads":
            return rotated(q, torch.arange(HEADS), 1), rotated(k, torch.arange(HEADS), 1)
        if kind == "restart":
            places = places % 5
        if kind == "one_place":
            places = torch.full((n,), 3)
        q = rotated(q, places) if kind != "keys" else q
        return q, k if kind == "queries" else rotated(k, -places if kind == "apart" else places)

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = (
            part(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.q, self.k, self.v)
        )
        if self.rotary:
            q, k = self.turned(q, k)
        if self.normed:
            q, k = (F.rms_norm(part, part.shape[-1:]) for part in (q, k))
        scores = q @ k.mT / self.divisor
        n = scores.shape[-1]
        later = torch.ones(n, n, dtype=torch.bool)
        hidden = {
            "causal": later.triu(1),
            "none": ~later,
            "reversed": later.tril(-1),
            "ahead": later.triu(2),
            "prefix": later.triu(1) & (torch.arange(n) >= 4),
            "packed": later.triu(1) | (torch.arange(n)[:, None] // 5 != torch.arange(n) // 5),
        }[self.mask]
        pattern = scores.masked_fill(hidden, -math.inf).softmax(self.axis)
        if self.renormed:
            pattern = pattern / pattern.sum(-1, keepdim=True)
        return self.o((pattern @ v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        branch = self.attend(self.one(x))
        if self.stream == "doubled":
            x = branch + branch
        elif self.stream == "replaced":
            x = branch
        elif self.stream == "unused":
            x = x + x
        else:
            x = x + branch
        if self.conv is not None:
            x = x + self.conv(x.mT)[..., : x.shape[1]].mT
        branch = self.down(F.gelu(self.up(self.two(x))))
        return branch if self.stream == "mlp" else x + branch


class Model(nn.Module):
    """A language model; `task` says what its loss asks for, and `again` how its list of layers is
    made."""

    def __init__(
        self, task: str = "next", again: str = "", dropout: float = 0.0, **block: Any
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        one, two = Block(**block), Block(**block)
        made = {"one": [one] * LAYERS, "two": [one, two] * 2}.get(again) or [
            Block(**block) for _ in range(LAYERS)
        ]
        self.blocks, self.dropout = nn.ModuleList(made), nn.Dropout(dropout)
        self.norm, self.head, self.task = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, WORDS, bias=False),
            task,
        )

    def forward(self, ids: Tensor) -> Any:
        x = self.tokens(ids)
        if self.task == "shifts inside":
            x = F.pad(x, (0, 0, 1, 0))[:, :-1]
        x = self.dropout(x + self.places(torch.arange(ids.shape[1])))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if self.task == "none":
            return logits
        targets = torch.full_like(ids, -100)
        if self.task in ("own", "shifts inside"):
            targets = ids
        elif self.task == "masked":
            targets[:, ::5] = ids[:, ::5]
        elif self.task == "reversed":
            targets = ids.flip(1)
        elif self.task == "other":
            targets = torch.randint(WORDS, ids.shape, generator=torch.Generator().manual_seed(5))
        elif self.task == "suffix":
            targets[:, 4:-1] = ids[:, 5:]
        else:
            ahead = 2 if self.task == "second" else 1
            targets[:, :-ahead] = ids[:, ahead:]
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten()), logits


IDS = torch.randint(WORDS, (BATCH, TOKENS), generator=torch.Generator().manual_seed(1))


class ThingForCausalLM(Model):
    """A class that says what it is by its name, as those of transformers do."""


def profile(make: type[Model] = Model, **options: Any) -> Profile:
    return probe(make(**options), IDS)


UNDIVIDED = {"divisor": 1.0}
MISTAKES: dict[str, tuple[dict[str, Any], str, str]] = {
    "not causal": (
        {"mask": "none"},
        "bad",
        "No layer has a causal mask, though the model predicts the next token.",
    ),
    "not causal, other labels": (
        {"mask": "none", "task": "other"},
        "warning",
        "No layer has a causal mask, though each position predicts a token.",
    ),
    "reversed mask": (
        {"mask": "reversed"},
        "bad",
        "The mask hides earlier tokens, not later ones, in all layers.",
    ),
    "one token ahead": (
        {"mask": "ahead"},
        "bad",
        "The mask shows each token the next one, which it predicts, in all layers.",
    ),
    "convolution": (
        {"conv": 1},
        "bad",
        "The output at a position depends on later tokens, which it predicts.",
    ),
    "prefix that is asked": (
        {"mask": "prefix", "task": "suffix", "conv": 1},
        "bad",
        "The output at a position depends on later tokens, which it predicts.",
    ),
    "not shifted": (
        {"task": "own"},
        "bad",
        "The loss asks each position for its own token, which it sees.",
    ),
    "shifted twice": (
        {"task": "second"},
        "warning",
        "The loss asks for the token after the next: its labels are shifted twice.",
    ),
    "over queries": (
        {"axis": -2},
        "bad",
        "The softmax sums to 1 over queries, not over keys, in all layers.",
    ),
    "over heads": (
        {"axis": 1, "mask": "none", "task": "none"},
        "bad",
        "The softmax sums to 1 over heads, not over keys, in all layers.",
    ),
    "over sequences": (
        {"axis": 0, "mask": "none", "task": "none"},
        "bad",
        "The softmax sums to 1 over sequences, not over keys, in all layers.",
    ),
    "undivided": (UNDIVIDED, "warning", "The attention logits are not divided by √d."),
    "multiplied": (
        {"divisor": SIZE**-0.5},
        "warning",
        "The attention logits are divided by 0.354, not by √d = 2.83.",
    ),
    "doubled": (
        {"stream": "doubled"},
        "bad",
        "All layers add the attention output to itself, not to the stream.",
    ),
    "replaced": (
        {"stream": "replaced"},
        "bad",
        "Attention's output takes the place of the stream in all layers.",
    ),
    "MLP alone": (
        {"stream": "mlp"},
        "bad",
        "The MLP's output takes the place of the stream in all layers.",
    ),
    "unused": (
        {"stream": "unused"},
        "bad",
        "Attention's output is not added to the stream, in any layer.",
    ),
    "rotary over heads": (
        {"rotary": "heads"},
        "warning",
        "Rotary positions turn from head to head, not from token to token.",
    ),
    "rotary restarts": (
        {"rotary": "restart"},
        "warning",
        "Rotary positions begin anew at token 5, in all layers.",
    ),
    "rotary in one place": (
        {"rotary": "one_place"},
        "warning",
        "Rotary positions are the same for all tokens.",
    ),
    "rotary queries": (
        {"rotary": "queries"},
        "warning",
        "Rotary positions turn the queries and not the keys, in all layers.",
    ),
    "rotary keys": (
        {"rotary": "keys"},
        "warning",
        "Rotary positions turn the keys and not the queries, in all layers.",
    ),
    "rotary apart": (
        {"rotary": "apart"},
        "warning",
        "Rotary positions turn queries and keys by different angles, in all layers.",
    ),
    "one module": (
        {"again": "one"},
        "warning",
        "All 3 layers are one module: they share their weights.",
    ),
    "two modules": (
        {"again": "two"},
        "warning",
        "The 4 layers are 2 modules again and again: they share their weights.",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_of_all_layers_is_named_first(name: str) -> None:
    options, severity, meaning = MISTAKES[name]
    first, *others = diagnose(profile(**options))
    assert (first.severity, first.meaning) == (severity, meaning)
    assert first.remedy
    assert first.evidence
    assert not any("matches no known design" in other.meaning for other in others)


SOUND: dict[str, dict[str, Any]] = {
    "causal": {},
    "rotary": {"rotary": "tokens"},
    "no loss": {"mask": "none", "task": "none"},
    "masked tokens": {"mask": "none", "task": "masked"},
    "every token itself": {"mask": "none", "task": "own"},
    "rearranged": {"mask": "none", "task": "reversed"},
    "prefix": {"mask": "prefix", "task": "suffix"},
    "shifts inside": {"task": "shifts inside"},
    "packed": {"mask": "packed", "rotary": "restart"},
    "slots": {"axis": -2, "renormed": True, "mask": "none", "task": "none"},
    "queries and keys are normalized": {"normed": True, **UNDIVIDED},
    "μP": {"divisor": float(SIZE)},
    "causal convolution": {"conv": 2},
    "dropout": {"dropout": 0.2},
}
"""Designs and losses that look like a mistake, and are none."""


@pytest.mark.parametrize("name", SOUND)
def test_sound_designs_are_not_alarmed(name: str) -> None:
    shared = {meaning for _, _, meaning in MISTAKES.values()}
    assert not shared & {finding.meaning for finding in diagnose(profile(**SOUND[name]))}


def test_smaller_queries_make_up_for_the_divisor() -> None:
    """As T5 draws them."""
    model = Model(**UNDIVIDED)
    with torch.no_grad():
        for block in model.blocks:
            block.q.weight.mul_(SIZE**-0.5)
    assert "divided" not in diagnose(probe(model, IDS))[0].meaning
    with torch.no_grad():
        for block in model.blocks:
            block.q.weight.mul_(SIZE**0.5)
            block.one.weight.fill_(SIZE**-0.25)  # and so do gains before both
    assert "divided" not in diagnose(probe(model, IDS))[0].meaning


def test_a_class_says_that_it_predicts_the_next_token() -> None:
    first, *_ = diagnose(profile(ThingForCausalLM, mask="none", task="none"))
    assert (
        first.meaning
        == "No layer has a causal mask, though ThingForCausalLM predicts the next token."
    )
    assert first.severity == "warning"
    assert diagnose(profile(ThingForCausalLM, task="none"))[0].severity == "good"
    masked = diagnose(profile(ThingForCausalLM, mask="none", task="masked"))
    assert "causal" not in masked[0].meaning  # the loss says more than the name


def test_what_follows_from_a_mistake_has_no_remedy_of_its_own() -> None:
    first, *others = diagnose(profile(stream="doubled", divisor=SIZE**0.5))
    assert first.remedy == "Add the branch to its input"
    assert all(not other.remedy for other in others if "alike" in other.meaning)


def test_the_share_is_that_of_gradients_and_the_model_is_as_it_was() -> None:
    """Beside autograd's own, of the same row; parameters' gradients, buffers and random states
    stay."""
    model = Model(mask="none", dropout=0.3)
    model.register_buffer("count", torch.ones(2))
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    held = {name: value.clone() for name, value in model.state_dict().items()}
    states = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    facts = probe(model, IDS).facts
    assert torch.equal(torch.random.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert (np.random.get_state()[1] == states[2]).all()  # noqa: NPY002
    assert all(torch.equal(value, held[name]) for name, value in model.state_dict().items())
    assert all(bool((weight.grad == 1).all()) for weight in model.parameters())
    model.eval()
    facts = probe(model, IDS).facts
    embedded: list[Tensor] = []
    hook = model.tokens.register_forward_hook(lambda _, __, out: embedded.append(out))
    _, logits = model(IDS)
    hook.remove()
    rows = TOKENS - 1
    value = (
        logits[0, rows // 2] * torch.randn(WORDS, generator=torch.Generator().manual_seed(0))
    ).sum()
    sizes = torch.autograd.grad(value, embedded[0])[0][0].square().sum(-1)
    expected = float((sizes[rows // 2 + 1 :].sum() / sizes.sum()).sqrt())
    assert facts["ahead"] == pytest.approx(expected, rel=1e-4)


def test_numbers_that_are_no_tokens_have_no_later_ones() -> None:
    """Inputs that no table holds, and drawn ones: nothing says which token a row is to predict."""

    class Numbers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Block(mask="none") for _ in range(3))
            self.head = nn.Linear(WIDTH, WORDS)

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = block(x + torch.randn_like(x))
            return self.head(x)  # type: ignore[no-any-return]

    facts = probe(Numbers(), torch.randn(BATCH, TOKENS, WIDTH)).facts
    assert "target" not in facts
    assert facts["mask"] == "none"


def test_facts_are_kept_in_json() -> None:
    found_in = profile(mask="none")
    again = Profile.from_json(found_in.to_json())
    assert dict(again.facts) == dict(found_in.facts)
    assert [finding.meaning for finding in diagnose(again)] == [
        finding.meaning for finding in diagnose(found_in)
    ]


@pytest.mark.parametrize("batch", [{"ids": IDS}, (IDS,), lambda model: model(IDS)])
def test_batches_of_every_kind(batch: Any) -> None:
    assert probe(Model(mask="none"), batch).facts["target"] == "next"


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: x.bfloat16()])
def test_types(wrap: Callable[[Any], Any]) -> None:
    wrong, right = (
        probe(wrap(Model(mask=mask, rotary="tokens")), IDS).facts for mask in ("none", "causal")
    )
    assert wrong["ahead"]
    assert not right["ahead"]
    assert "rotary" not in right
