"""Models that are not ours, for who has none at hand: torch's own, one of transformers, one with a
mistake in it."""

from __future__ import annotations

import pickle
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.profile import Profile
from explorer.tasks.pool import Call
from explorer.text import prose
from explorer_models.probe import probe

LAYERS, WIDTH, HEADS, TOKENS, BATCH = 12, 128, 4, 64, 2
FAULTY_LAYER = 8


def compute(_: Call) -> bytes:
    """The profile of `encoder`, computed in a worker; a pickle, for JSON leaves some of it out."""
    return pickle.dumps(encoder())


def encoder() -> Profile:
    """`nn.TransformerEncoder` as it is drawn, whose layers are copies of one (pytorch#86274), on
    Gaussian tokens."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
        model = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        return probe(model, torch.randn(BATCH, TOKENS, WIDTH))


def gpt2() -> tuple[nn.Module, Tensor]:
    """GPT-2 with random weights, of Hugging Face transformers (extra `models`), and a batch of
    English prose."""
    import transformers

    sizes: dict[str, Any] = {
        "n_layer": LAYERS,
        "n_embd": WIDTH,
        "n_head": HEADS,
        "n_positions": TOKENS,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.GPT2Model(
            transformers.GPT2Config(vocab_size=len(prose().vocabulary), **sizes)
        )
    return model.train(False), text(0)


def net(faulty: bool = True) -> tuple[Net, Tensor]:
    """A Transformer written by hand, with or without a mistake in one of its layers, and a batch of
    English prose.

    The mistake is a common one: the last matrix of an MLP is drawn with the width of the stream as
    its fan_in."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Net(len(prose().vocabulary))
        if faulty:
            wrong = model.get_submodule(f"blocks.{FAULTY_LAYER - 1}.down")
            nn.init.normal_(wrong.get_parameter("weight"), std=WIDTH**-0.5)
    return model, text(0)


def text(step: int, batch: int = BATCH) -> Tensor:
    """`[batch, token]` characters of Python's prose, from another position at each step."""
    codes, size = torch.tensor(prose().codes), TOKENS * batch
    start = step * size % (len(codes) - size)
    return codes[start : start + size].view(batch, TOKENS)


def train(model: Net, steps: int = 60, learning_rate: float = 1e-3) -> float:
    """Teaches a `Net` the next character by Adam; the last loss, in nats a character."""
    optimizer = torch.optim.Adam(model.parameters(), learning_rate)
    for step in range(steps):
        codes = text(step, 8)
        loss = F.cross_entropy(model(codes[:, :-1]).flatten(0, 1), codes[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return float(loss.detach())


class Block(nn.Module):
    """Pre-LN attention and MLP, as many write them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.mix = (
            nn.Linear(WIDTH, 3 * WIDTH, bias=False),
            nn.Linear(WIDTH, WIDTH, bias=False),
        )
        self.up, self.down = (
            nn.Linear(WIDTH, 4 * WIDTH, bias=False),
            nn.Linear(4 * WIDTH, WIDTH, bias=False),
        )
        for linear in (self.qkv, self.mix, self.up, self.down):
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """`[batch, token, d]` to the same."""
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(heads.transpose(1, 2).reshape(x.shape))
        out: Tensor = x + self.down(F.gelu(self.up(self.second(x))))
        return out


class Net(nn.Module):
    """Embedding, blocks, readout."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(vocabulary, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.read = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary, bias=False)

    def forward(self, codes: Tensor) -> Tensor:
        """`[batch, token]` characters to logits of the next ones."""
        x = self.embed(codes) + self.place.weight[: codes.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.read(self.norm(x))
        return logits
