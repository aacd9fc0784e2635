"""What is wrong in itself: it is named first, with its place; nothing is told from zeros, constants
and NaN."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from small_models import check, joined, split
from torch import Tensor, nn
from torch.nn import functional as F

import explorer as ex
from explorer import Profile, diagnose
from explorer.diagnosis import Findings

WIDTH, HEADS, TOKENS, WORDS, N = 64, 4, 16, 53, 4
NAN, INF = math.nan, math.inf


class Block(nn.Module):
    """One layer; `mistake` says what its code does otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.one, self.two = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mistake = ""
        self.register_buffer("shift", torch.zeros(()))

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = split(HEADS, self.q(x), self.k(x), self.v(x))
        first = 0 if self.mistake in ("empty row", "empty row, written out") else 1
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(first)
        scores = (q @ k.mT / 4).masked_fill(hidden, -INF)
        if self.mistake == "empty row, written out":
            weights = (scores - scores.amax(-1, keepdim=True)).exp()
            pattern = weights / weights.sum(-1, keepdim=True)
        else:
            pattern = scores.softmax(-1)
        return self.o(joined(pattern @ v))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        branch = self.attend(self.one(x))
        x = branch + branch if self.mistake == "doubled" else x + branch
        x = x + self.down(F.gelu(self.up(self.two(x)))) + self.shift
        if self.mistake == "0 / 0":
            zero = x * 0
            x = x + zero / zero.square().mean(-1, keepdim=True).sqrt()
        return x


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(N))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        for name, weight in self.named_parameters():
            if weight.ndim > 1:
                nn.init.normal_(
                    weight, std=0.006 if name.endswith(("o.weight", "down.weight")) else 0.02
                )
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, ids: Tensor, labels: Tensor) -> Any:
        x = self.words(ids) + self.places.weight
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


IDS, LABELS = torch.randint(WORDS, (2, 2, TOKENS), generator=torch.Generator().manual_seed(1))
BATCH = {"ids": IDS, "labels": LABELS}
Change = Callable[[GPT], object]


def set_to(value: float, *names: str) -> Change:
    """Sets whole parameters."""
    return lambda model: [model.get_parameter(name).data.fill_(value) for name in names]


def one_entry(name: str, value: float) -> Change:
    """Sets one number of a parameter."""

    def change(model: GPT) -> None:
        model.get_parameter(name).data.view(-1)[5] = value

    return change


def in_layers(value: float, name: str) -> Change:
    """Sets a parameter of every layer."""
    return lambda model: [block.get_parameter(name).data.fill_(value) for block in model.blocks]


def louder(factor: float) -> Change:
    """Multiplies both matrices of each MLP."""

    def change(model: GPT) -> None:
        for block in model.blocks:
            block.up.weight.data *= factor  # type: ignore[operator, union-attr]
            block.down.weight.data *= factor  # type: ignore[operator, union-attr]

    return change


def mistaken(mistake: str, *layers: int) -> Change:
    """Has layers, from 0, do otherwise."""
    return lambda model: [setattr(model.blocks[layer], "mistake", mistake) for layer in layers]


def zero(model: GPT, keep: Callable[[str, Tensor], bool] = lambda name, weight: False) -> None:
    """Sets parameters to 0, but those to keep."""
    for name, weight in model.named_parameters():
        if not keep(name, weight):
            weight.data.zero_()


def garbage(name: str) -> Change:
    """Numbers as memory holds them."""
    return lambda model: nn.init.normal_(model.get_parameter(name), std=1e30)


def told(change: Change, batch: Any = BATCH) -> tuple[Findings, Profile]:
    """Findings and profile, of which no number may raise a warning."""
    model = GPT()
    change(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        profile = ex.probe(model, batch)
        found = diagnose(profile)
    assert Profile.from_json(profile.to_json()).faults == profile.faults
    return found, profile


ALONE: dict[str, tuple[Change, str]] = {
    "all parameters 0": (zero, "Every parameter is zero."),
    "all matrices 0": (
        lambda model: zero(model, lambda _, weight: weight.ndim < 2),
        "Every matrix is zero.",
    ),
    "the layers' 0": (
        lambda model: zero(model, lambda name, _: "blocks" not in name),
        "Every matrix of the layers is zero.",
    ),
    "one layer's parameters 0": (
        lambda model: zero(model, lambda name, _: "blocks.2." not in name),
        "All matrices of layer 3 (blocks.2) are zero.",
    ),
    "W_Q 0": (set_to(0.0, "blocks.2.q.weight"), "W_Q of layer 3 (blocks.2) is zero."),
    "both 0": (
        set_to(0.0, "blocks.2.q.weight", "blocks.2.k.weight"),
        "W_Q and W_K of layer 3 (blocks.2) are zero.",
    ),
    "a constant": (
        set_to(0.05, "blocks.2.up.weight"),
        "All entries of W_in in layer 3 (blocks.2) are 0.05.",
    ),
    "gain 0": (
        set_to(0.0, "blocks.2.two.weight"),
        "Layer 3 (blocks.2): the norm before the MLP has gain 0.",
    ),
    "gain 0 everywhere": (
        in_layers(0.0, "two.weight"),
        "Layer 1 (blocks.0): the norm before the MLP has gain 0.",
    ),
    "units 0": (
        set_to(-1e3, "blocks.2.up.bias"),
        "Every hidden unit of the MLP of layer 3 (blocks.2) is 0.",
    ),
}


@pytest.mark.parametrize(("change", "meaning"), ALONE.values(), ids=ALONE.keys())
def test_it_is_all_that_is_told(change: Change, meaning: str) -> None:
    """No other sentence is true of these models: the rest of them is as in the model without the
    fault."""
    found, profile = told(change)
    assert [one.meaning for one in found] == [meaning], found
    assert found[0].remedy
    assert profile.differences == ()
    compile(found[0].code, "remedy", "exec")


FIRST: dict[str, tuple[Change, str, str]] = {
    "garbage gain": (
        garbage("blocks.3.one.weight"),
        "Layer 4 (blocks.3): the gains of the norm before attention",
        "Set these gains to 1",
    ),
    "garbage matrix": (
        garbage("blocks.3.up.weight"),
        "blocks.3.up.weight is of size ",
        "blocks.3.up.weight anew",
    ),
    "all NaN": (
        set_to(NAN, "blocks.2.up.weight"),
        "blocks.2.up.weight holds 16,384 values that are",
        "anew",
    ),
    "one inf": (
        one_entry("blocks.2.up.weight", INF),
        "blocks.2.up.weight holds a value that is not finite.",
        "anew",
    ),
    "a bias": (
        one_entry("blocks.1.k.bias", NAN),
        "blocks.1.k.bias holds a value that is not finite.",
        "anew",
    ),
    "a word": (
        one_entry("words.weight", NAN),
        "words.weight holds a value that is not finite.",
        "anew",
    ),
    "the last gain": (
        one_entry("norm.weight", NAN),
        "norm.weight holds a value that is not finite.",
        "anew",
    ),
    "empty row": (
        mistaken("empty row", *range(N)),
        "Attention in layer 1 (blocks.0) has a row without a visible key.",
        "Let each query see a key",
    ),
    "empty row, one layer": (
        mistaken("empty row, written out", 3),
        "Attention in layer 4 (blocks.3) has a row",
        "Let each query see a key",
    ),
    "0 / 0": (
        mistaken("0 / 0", 3),
        "Layer 4 (blocks.3) divides by 0, in the MLP.",
        "Add a small number",
    ),
    "a buffer": (
        lambda model: model.blocks[2].shift.fill_(NAN),  # type: ignore[operator, union-attr]
        "Layer 3 (blocks.2) is given values that are not finite",
        "",
    ),
    "float16": (
        lambda model: (louder(2e3)(model), model.half()),
        "Layer 1 (blocks.0) leaves the range of float16, in ",
        "Keep the stream in float32 or bfloat16",
    ),
    "float32": (louder(1e12), "blocks.0.up.weight is of size ", "anew"),
}


@pytest.mark.parametrize(("change", "meaning", "remedy"), FIRST.values(), ids=FIRST.keys())
def test_the_cause_comes_first_and_has_the_remedy(
    change: Change, meaning: str, remedy: str
) -> None:
    found, profile = told(change)
    assert found[0].severity == "bad"
    assert found[0].meaning.startswith(meaning), found
    assert remedy in found[0].remedy
    assert bool(found[0].remedy) == bool(remedy)
    assert profile.differences == ()
    for one in found:
        assert "matches no known design" not in one.meaning
        assert "1/fan_in" not in one.remedy, one
        assert "norm before each branch" not in one.remedy, one
        compile(one.code, "remedy", "exec")
    assert not any("gains of 0" in remark or "activation" in remark for remark in profile.remarks)


def test_the_first_value_that_is_not_finite_may_be_outside_the_layers() -> None:
    found, _ = told(lambda model: None, BATCH | {"labels": torch.full_like(LABELS, -100)})
    assert [(one.meaning, one.remedy) for one in found] == [
        ("After the layers the operation nll_loss_forward gives no number.", "")
    ]
    found, _ = told(
        lambda model: (model.words.weight.data.zero_(), model.places.weight.data.zero_())
    )
    check(found[0], "bad", "input of layer 1", "0 for every token")
    assert not any("finite" in one.meaning or "learns" in one.meaning for one in found)
    blocks = nn.Sequential(*GPT().blocks)
    x = torch.randn(2, TOKENS, WIDTH)
    x[0, 1, 2] = NAN
    first = diagnose(ex.probe(blocks, x))[0]
    assert (first.meaning, first.remedy) == (
        "The batch holds values that are not finite.",
        "Take these values out of the batch",
    )


def test_a_branch_that_is_added_to_itself_is_named() -> None:
    """BitNet's x = x + x, where x is the branch: the norms are there, and no further one would
    help."""
    found, _ = told(mistaken("doubled", *range(N)))
    check(found[0], "bad", "All layers", "attention output to itself")
    assert found[0].remedy == "Add the branch to its input"
    assert not any(one.remedy for one in found[1:])  # what follows from it
    assert not any("norm before each branch" in one.remedy for one in found)


def test_a_gain_of_0_after_the_last_layer_is_named() -> None:
    found, _ = told(set_to(0.0, "norm.weight"))
    check(found[0], "warning", "norm after the last layer", "gain 0")
    assert 'model.get_parameter("norm.weight")' in found[0].code


def test_the_remedy_of_a_gain_fixes_it() -> None:
    model = GPT()
    set_to(0.0, "blocks.2.two.weight")(model)
    exec(diagnose(ex.probe(model, BATCH))[0].code, {"nn": nn, "model": model})  # noqa: S102
    assert diagnose(ex.probe(model, BATCH))[0].severity == "good"


@pytest.mark.parametrize("value", [0.0, 0.02], ids=["zeros", "constants"])
def test_matrices_that_are_equal_without_having_been_drawn_are_not_tied(value: float) -> None:
    _, profile = told(
        lambda model: (in_layers(value, "q.weight")(model), in_layers(value, "k.weight")(model))
    )
    assert not any("one matrix" in words for _, _, words in profile.differences)
    assert not any("one matrix" in remark for remark in profile.remarks)


def test_one_parameter_for_queries_and_keys_is_tied_whatever_it_holds() -> None:
    def share(model: GPT) -> None:
        for block in model.blocks:
            block.k = block.q
            block.q.weight.data.fill_(0.02)

    _, profile = told(share)
    assert any("one matrix" in words for _, _, words in profile.differences)


class Scaled(nn.Module):
    """Two linear layers around a function, to be read as an MLP."""

    def __init__(self, function: Callable[[Tensor], Tensor], size: float) -> None:
        super().__init__()
        self.norm, self.function, self.size = nn.LayerNorm(WIDTH), function, size
        self.up, self.down = nn.Linear(WIDTH, 128, bias=False), nn.Linear(128, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.function(self.size * self.up(self.norm(x))))  # type: ignore[no-any-return]


@pytest.mark.parametrize("function", [F.gelu, F.silu, torch.tanh])
def test_a_function_is_read_where_its_argument_shows_it(
    function: Callable[[Tensor], Tensor],
) -> None:
    """Next to 0 all of them are straight lines: one such layer among others is not said to have
    another function."""
    torch.manual_seed(0)
    sizes = [1.0, 1.0, 1e-9, 1.0, 0.01, 1.0]
    model = nn.Sequential(*(Scaled(function, size) for size in sizes))
    assert ex.probe(model, torch.randn(2, TOKENS, WIDTH)).differences == ()


def test_rotary_positions_are_not_told_from_zeros() -> None:
    import transformers

    config = transformers.LlamaConfig(
        num_hidden_layers=4,
        hidden_size=32,
        intermediate_size=64,
        num_attention_heads=4,
        vocab_size=WORDS,
        max_position_embeddings=TOKENS,
        attn_implementation="eager",
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    model = transformers.LlamaModel(config)
    model.layers[1].self_attn.q_proj.weight.data.zero_()
    assert ex.probe(model, IDS).differences == ()


def test_gains_that_start_at_0_after_branches_are_a_design() -> None:
    class After(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down, self.norm = (
                nn.Linear(WIDTH, 128),
                nn.Linear(128, WIDTH),
                nn.LayerNorm(WIDTH),
            )

        def forward(self, x: Tensor) -> Tensor:
            return x + self.norm(self.down(F.gelu(self.up(x))))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    model = nn.Sequential(*(After() for _ in range(N)))
    one = nn.Sequential(*(After() for _ in range(N)))
    for block in model:
        block.norm.weight.data.zero_()
    one[2].norm.weight.data.zero_()
    x = torch.randn(2, TOKENS, WIDTH)
    assert not any("gain 0" in found.meaning for found in diagnose(ex.probe(model, x)))
    check(diagnose(ex.probe(one, x))[0], "warning", "Layer 3 (2)", "norm after the MLP", "gain 0")
