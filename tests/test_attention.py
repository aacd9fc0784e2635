"""Queries, keys and values in one product, where the matrices are small: the same numbers as in
three."""

import pytest
import torch
from torch import Tensor

from explorer import PRESETS, Config, preset
from explorer.model import Transformer, batch
from explorer.model.attention import SMALL, Attention

SIZE = {"n_layers": 2, "d_model": 32, "n_heads": 4, "n_ctx": 8, "batch_size": 2}


def attentions(model: Transformer) -> list[Attention]:
    return [part for part in model.modules() if isinstance(part, Attention)]


def passed(config: Config, together: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """The output, and the gradient by every parameter, with one product or with three."""
    model, inputs = Transformer(config, 0), batch.draw(config, 0)
    for attention in attentions(model):
        attention.together = together
    output = model(model.embed(inputs))
    model.loss(output, inputs).backward()
    return output.detach(), {
        name: one.grad for name, one in model.named_parameters() if one.grad is not None
    }


@pytest.mark.parametrize("name", PRESETS)
def test_one_product_computes_what_three_do(name: str) -> None:
    """In every published design: up to the rounding of sums that are added up in another order."""
    config = preset(name, **SIZE)
    (output, by_weight), (expected, by_each) = passed(config, True), passed(config, False)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
    assert by_weight.keys() == by_each.keys()
    for path, gradient in by_each.items():
        error = torch.linalg.vector_norm(by_weight[path] - gradient)
        assert error <= 1e-4 * torch.linalg.vector_norm(gradient), path


@pytest.mark.parametrize(
    ("width", "kv_heads", "together"),
    [
        (32, 0, True),
        (148, 0, False),
        (144, 0, True),
        (256, 0, False),
        (176, 1, True),
    ],
)
def test_small_matrices_make_one_product(width: int, kv_heads: int, together: bool) -> None:
    """3 · 144² numbers are fewer than 2^16 and 3 · 148² are more; fewer heads of keys make smaller
    matrices."""
    config = Config(**SIZE | {"d_model": width, "n_heads": 2, "n_kv_heads": kv_heads})
    for attention in attentions(Transformer(config, 0)):
        count = sum(matrix.numel() for matrix in (attention.W_Q, attention.W_K, attention.W_V))
        assert attention.together == together == (count <= SMALL)


def test_outputs_follow_the_weights_after_a_step_and_after_a_round_trip() -> None:
    """Nothing remembers the weights of an earlier pass."""
    config = Config(**SIZE)
    model, other, inputs = Transformer(config, 0), Transformer(config, 1), batch.draw(config, 0)
    assert [name for name, _ in attentions(model)[0].named_parameters()] == [
        "W_Q",
        "W_K",
        "W_V",
        "W_O",
    ]
    before = model(model.embed(inputs))
    model.loss(before, inputs).backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    after = model(model.embed(inputs))
    assert not torch.allclose(before, after)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(other.embed(inputs)), after)
