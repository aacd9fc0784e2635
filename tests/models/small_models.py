"""Small real models to watch, and the loop that trains them; transformers is imported where it is
asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from explorer.diagnosis import Finding

WORDS, TOKENS, WIDTH, HEADS, LAYERS = 32, 12, 16, 4, 3


def gpt2(attention: str = "sdpa", dropout: float = 0.0, n_layers: int = LAYERS) -> nn.Module:
    """GPT-2's own code, with random weights."""
    import transformers

    config = transformers.GPT2Config(
        n_layer=n_layers,
        n_embd=WIDTH,
        n_head=HEADS,
        n_positions=TOKENS,
        vocab_size=WORDS,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        attn_implementation=attention,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    model: nn.Module = transformers.GPT2Model(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5.0)  # so that attention is not uniform
    return model


def llama(attention: str = "sdpa") -> nn.Module:
    """Llama's own code, with two heads of queries for one of keys."""
    import transformers

    config = transformers.LlamaConfig(
        num_hidden_layers=LAYERS,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        vocab_size=WORDS,
        max_position_embeddings=TOKENS,
        initializer_range=0.2,
        attn_implementation=attention,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    model: nn.Module = transformers.LlamaModel(config)
    return model


def split(n_heads: int, *tensors: Tensor) -> Iterator[Tensor]:
    """`[batch, head, token, d_head]` of queries, keys or values `[batch, token, d]`."""
    return (x.unflatten(-1, (n_heads, -1)).transpose(1, 2) for x in tensors)


def joined(heads: Tensor) -> Tensor:
    """`[batch, token, d]` of heads."""
    return heads.transpose(1, 2).flatten(2)


class Encoder(nn.Module):
    """torch's own encoder over an embedding."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout, batch_first=True)
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        out: Tensor = self.encoder(self.embedding(input_ids))
        return out


def check(finding: Finding, severity: str, *facts: str) -> None:
    """Asserts how serious a finding is, and which names, layers and numbers its meaning has."""
    assert finding.severity == severity, finding
    for fact in facts:
        assert fact in finding.meaning, finding


def batch(step: int, size: int = 4) -> Tensor:
    """A step's own words, [batch, token]."""
    return torch.randint(WORDS, (size, TOKENS), generator=torch.Generator().manual_seed(step))


def loss_of(model: nn.Module, words: Tensor) -> Tensor:
    """A loss that every coordinate of the output takes part in."""
    out = model(input_ids=words)
    x: Tensor = out if isinstance(out, Tensor) else out.last_hidden_state
    return (x * torch.linspace(-1, 1, x.shape[-1])).square().mean()


def adam(model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of these tests."""
    return torch.optim.Adam(model.parameters(), lr=1e-3)


def train(
    model: nn.Module,
    steps: int,
    optimizer: torch.optim.Optimizer | None = None,
    parts: int = 1,
    loss: Callable[[nn.Module, Tensor], Tensor] = loss_of,
) -> list[float]:
    """Some steps, each over so many parts of its batch; their losses."""
    optimizer = adam(model) if optimizer is None else optimizer
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        for words in batch(step).chunk(parts):
            part = loss(model, words) / parts
            part.backward()  # type: ignore[no-untyped-call]
            losses.append(float(part.detach()))
        optimizer.step()
    return losses
