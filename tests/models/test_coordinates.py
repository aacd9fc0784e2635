"""`coord_check`: a right μP Transformer shows nothing, each planted mistake is named, and sizes are
those of mup."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small_models import joined, split
from torch import Tensor, nn

import explorer as ex
from explorer_models.coordinates import Slope, fitted

BASE, HEADS, VOCABULARY, RATE = 32, 4, 32, 0.01
WIDTHS = (32, 64, 128)
"""Heads of 8 to 32 coordinates."""
DEPTHS = (2, 4, 8, 16)
"""At width 32: branches 2 / depth, so that depth 2 is the base."""


class Attention(nn.Module):
    def __init__(self, width: int, root: bool) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        size, least = width // HEADS, BASE // HEADS
        # the same at the base width
        self.divisor = math.sqrt(size) if root else size / math.sqrt(least)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = split(HEADS, self.q(x), self.k(x), self.v(x))
        scores = q @ k.mT / self.divisor
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        pattern = scores.masked_fill(hidden, -math.inf).softmax(-1)
        return self.o(joined(pattern @ v))  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self, width: int, branch: float, root: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention, self.branch = Attention(width, root), branch
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.branch * self.attention(self.norms[0](x))
        return x + self.branch * self.down(torch.relu(self.up(self.norms[1](x))))  # type: ignore[no-any-return]


class Model(nn.Module):
    """A Transformer under μP and, with branches of 2 / depth, CompleteP; one mistake may be
    planted."""

    def __init__(self, width: int, depth: int, mistake: str = "") -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        branch = 1.0 if mistake == "branch" else 2 / depth
        self.layers = nn.ModuleList(Block(width, branch, mistake == "root") for _ in range(depth))
        self.norm, self.readout = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.scale, self.mistake = width / BASE, mistake
        for name, weight in self.named_parameters():
            if weight.ndim > 1 and "embedding" not in name:
                nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)
        with torch.no_grad():
            if mistake != "readout":
                self.readout.weight /= math.sqrt(self.scale)
            for layer in self.layers:  # of which these four are sizes at initialization alone
                if mistake == "wide up and narrow down":
                    layer.up.weight *= math.sqrt(self.scale)
                if mistake in ("narrow down", "wide up and narrow down"):
                    layer.down.weight /= math.sqrt(self.scale)
                if mistake == "small output":
                    layer.attention.o.weight *= 0.01 * math.sqrt(self.scale)
            if mistake == "wide embedding":
                self.embedding.weight *= math.sqrt(self.scale)

    def forward(self, codes: Tensor) -> Tensor:
        x = self.embedding(codes)
        for layer in self.layers:
            x = layer(x)
        return self.readout(self.norm(x))  # type: ignore[no-any-return]

    def optimizer(self) -> torch.optim.Optimizer:
        """Adam with the rates of Yang et al. 2022, table 3."""
        groups = []
        for name, weight in self.named_parameters():
            kind = (
                "embedding"
                if "embedding" in name
                else "biases"
                if weight.ndim < 2
                else "readout"
                if "readout" in name
                else "hidden"
            )
            divided = (kind in ("readout", "hidden")) != (self.mistake == kind)
            groups.append({"params": [weight], "lr": RATE / self.scale if divided else RATE})
        return torch.optim.Adam(groups)


def drawn(
    width: int, depth: int, mistake: str = ""
) -> tuple[nn.Module, Tensor, Callable[[Tensor], Tensor]]:
    codes = torch.randint(VOCABULARY, (8, 17), generator=torch.Generator().manual_seed(1))
    return (
        Model(width, depth, mistake),
        codes[:, :-1],
        lambda logits: F.cross_entropy(logits.flatten(0, 1), codes[:, 1:].flatten()),
    )


def rates(model: nn.Module) -> torch.optim.Optimizer:
    assert isinstance(model, Model)
    return model.optimizer()


@cache
def checked(mistake: str = "", over: str = "width") -> ex.CoordCheck:
    sizes = {"widths": WIDTHS} if over == "width" else {"widths": (32, 64), "depths": DEPTHS}
    return ex.coord_check(partial(drawn, mistake=mistake), optimizer=rates, **sizes)


def slope(check: ex.CoordCheck, quantity: str, axis: str = "width", step: int = 3) -> Slope:
    (row,) = (
        row for row in check.slopes if (row.quantity, row.axis, row.step) == (quantity, axis, step)
    )
    return row


@pytest.mark.parametrize("over", ["width", "depth"])
def test_a_right_model_has_no_finding(over: str) -> None:
    check = checked(over=over)
    assert check.findings == []
    assert "CompleteP" in str(check)
    assert {row.quantity for row in check.slopes} == {
        "embedding",
        "input of the layers",
        "gains",
        "biases",
        "attention.q",
        "attention.k",
        "attention.v",
        "attention.o",
        "up",
        "down",
        "attention logits",
        "stream after the last layer",
        "readout",
    }


@pytest.mark.parametrize(
    ("mistake", "over", "quantities", "remedy"),
    [
        (
            "readout",
            "width",
            ["readout grows as width^"],
            "Draw the readout with variance 1/width²",
        ),
        (
            "root",
            "width",
            ["attention logits at initialization goes as (head width)^"],
            "Divide q·k by the head's width",
        ),
        (
            "biases",
            "width",
            ["biases falls as width^-", "gains falls as width^-"],
            "biases and gains the same",
        ),
        (
            "embedding",
            "width",
            ["embedding falls as width^-", "input of the layers falls as width^-"],
            "of the embeddings the same at every width",
        ),
        (
            "branch",
            "depth",
            [
                "stream after the last layer grows as depth^1.",
                "stream after the last layer at initialization grows as depth^0.",
                "attention.q grows",
                "attention.k grows",
                "attention.v grows",
            ],
            "Multiply each branch by 1/depth",
        ),
    ],
)
def test_a_planted_mistake_is_named(
    mistake: str, over: str, quantities: list[str], remedy: str
) -> None:
    findings = checked(mistake, over).findings
    assert len(findings) == len(quantities) or over == "depth"  # whatever follows from the stream
    for part in quantities:
        assert any(part in finding.meaning for finding in findings), part
    assert remedy in findings[0].remedy
    assert all(
        finding.remedy.startswith("First the stream")
        for finding in findings
        if over == "depth" and "stream" not in finding.meaning
    )


@pytest.mark.parametrize(
    ("mistake", "named", "remedy"),
    [
        ("wide up and narrow down", [("up", "grows")], "Draw up with variance 1/fan_in"),
        ("narrow down", [("down", "falls")], "Draw down with variance 1/fan_in"),
        ("small output", [("attention.o", "grows")], "Draw attention.o with variance 1/fan_in"),
        (
            "wide embedding",
            [("embedding", "grows"), ("input of the layers", "grows")],
            "Draw the embeddings with the same variance at every width",
        ),
    ],
)
def test_a_size_at_the_start_that_depends_on_the_width_is_named(
    mistake: str, named: list[tuple[str, str]], remedy: str
) -> None:
    """Also where nothing after it shows it: another matrix makes up for it, or the stream is larger
    than the branch."""
    starts = [
        finding for finding in checked(mistake).findings if "at initialization" in finding.meaning
    ]
    for name, verb in named:
        assert any(
            f"The size of {name} at initialization {verb} as width^" in finding.meaning
            for finding in starts
        )
    first = next(finding for finding in starts if f"of {named[0][0]} at" in finding.meaning)
    assert first.remedy == remedy
    assert first.severity == ("bad" if named[0][1] == "grows" else "warning")
    assert "the size should be the same at every width" in first.evidence
    power = slope(checked(mistake), named[0][0], step=0).slope
    assert power == pytest.approx(0.5 if named[0][1] == "grows" else -0.5, abs=0.1)


def test_few_tokens_show_the_whole_power_of_the_root() -> None:
    """The part of a change along the keys exceeds the part across them where tokens are fewer than
    coordinates."""

    def few(width: int, depth: int, mistake: str) -> Any:
        model, codes, _ = drawn(width, depth, mistake)
        return model, codes[:1, :4], lambda out: F.cross_entropy(out.flatten(0, 1), codes[0, 1:5])

    right, wrong = (
        ex.coord_check(partial(few, mistake=mistake), optimizer=rates, steps=6, seeds=2)
        for mistake in ("", "root")
    )
    apart = (
        slope(wrong, "attention logits", step=6).slope
        - slope(right, "attention logits", step=6).slope
    )
    assert apart == pytest.approx(
        0.5,
        abs=2 * slope(right, "attention logits", step=6).error
        + 2 * slope(wrong, "attention logits", step=6).error,
    )
    assert right.findings == []
    assert [finding.meaning.split(" as ")[0] for finding in wrong.findings] == [
        "The change of attention logits grows",
        "The size of attention logits at initialization goes",
    ]


@pytest.mark.parametrize(("mistake", "power"), [("", 0), ("embedding", -1)])
def test_adams_first_step_moves_each_row_of_the_table_by_the_rate(mistake: str, power: int) -> None:
    for row in checked(mistake).sizes:
        if row.quantity == "embedding" and row.step == 1:
            assert row.change == pytest.approx(RATE * (row.width / BASE) ** power, rel=1e-2)


def test_sizes_are_those_of_mups_coordinate_check() -> None:
    """Its statistic l2, (x**2).mean()**0.5 of each module's output, whose t counts from 1 (mup 1.0,
    coord_check.py)."""
    torch.manual_seed(0)
    model, codes, loss = drawn(64, 2)
    optimizer, held = rates(model), dict[tuple[str, int], float]()
    for step in range(4):

        def record(_: nn.Module, __: Any, out: Tensor, *, name: str, step: int = step) -> None:
            held[name, step] = float((out.detach() ** 2).mean() ** 0.5)

        hooks = [
            part.register_forward_hook(partial(record, name=name))
            for name, part in model.named_modules()
        ]
        value = loss(model(codes))
        for hook in hooks:
            hook.remove()
        optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    ours = {
        (row.quantity, row.step): row.size
        for row in checked().sizes
        if (row.width, row.seed) == (64, 0)
    }
    for step in range(4):
        for quantity, name in (
            ("embedding", "embedding"),
            ("readout", "readout"),
            ("stream after the last layer", "layers.1"),
        ):
            assert ours[quantity, step] == pytest.approx(held[name, step], rel=1e-5)
        for part in ("attention.o", "up", "down"):  # after their biases, which are 0 at first
            layers = [held[f"layers.{layer}.{part}", step] for layer in range(2)]
            assert ours[part, step] == pytest.approx(np.sqrt(np.mean(np.square(layers))), rel=1e-5)


class Stack(nn.Module):
    """Layers that attend by torch's own kernel; each matrix has unit variance and 1/√fan_in after
    it."""

    def __init__(
        self, width: int, depth: int, norm: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        super().__init__()
        self.norm = norm
        self.layers = nn.ModuleList(
            nn.ModuleDict({name: nn.Linear(width, width, bias=False) for name in "qko"})
            for _ in range(depth)
        )
        self.readout, self.width = nn.Linear(width, 4, bias=False), width
        for weight in self.parameters():
            nn.init.normal_(weight)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            q, k, o = (part(x) for part in layer.values())  # type: ignore[operator]
            # a norm stands in the factor's place
            norm = self.norm or (lambda x: x / self.width**0.5)
            q, k, o = split(2, norm(q), norm(k), o / self.width**0.5)
            x = x + joined(F.scaled_dot_product_attention(q, k, o, scale=2 / self.width))
        return self.readout(x) / self.width  # type: ignore[no-any-return]


def stack(width: int, depth: int) -> tuple[nn.Module, Tensor]:
    return Stack(width, depth), torch.randn(
        2, 5, width, generator=torch.Generator().manual_seed(width)
    )


def test_a_factor_after_a_matrix_cancels() -> None:
    """Its output and the change of it grow as √width before the factor; layers are no modules that
    are called."""
    check = ex.coord_check(
        stack,
        widths=(32, 64, 128),
        blocks=None,
        optimizer=lambda model: torch.optim.Adam(
            [
                {
                    "params": [weight],
                    "lr": 0.01 if name == "readout.weight" else 0.01 / model.width**0.5,
                }  # type: ignore[arg-type,operator]
                for name, weight in model.named_parameters()
            ]
        ),
    )
    changes = [
        np.log(row.change)
        for row in check.sizes
        if (row.quantity, row.step, row.seed) == ("o", 3, 0)
    ]
    assert (changes[-1] - changes[0]) / np.log(4) > 0.25
    assert not [finding for finding in check.findings if " o " in finding.meaning]
    assert {row.quantity for row in check.sizes} == {"q", "k", "o", "attention logits", "readout"}
    heads = {(row.width, row.head) for row in check.sizes if row.kind == "attention"}
    assert heads == {(32, 16), (64, 32), (128, 64)}


def test_a_norm_after_a_matrix_takes_its_size_away() -> None:
    """Before the first step nothing is said of queries and keys that are normalized, however they
    are drawn."""

    def starts(norm: Callable[[Tensor], Tensor]) -> set[str]:
        check = ex.coord_check(
            lambda width, depth: (Stack(width, depth, norm), stack(width, depth)[1]),
            widths=(32, 64, 128),
            steps=1,
        )
        return {
            name
            for finding in check.findings
            for name in ("q", "k", "o")
            if f"The size of {name} at initialization" in finding.meaning
        }

    assert starts(lambda x: F.rms_norm(x, x.shape[-1:])) == set()
    assert starts(lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)) == set()
    assert starts(lambda x: x / x.norm(dim=-1, keepdim=True)) == set()
    assert starts(nn.Identity()) == {"q", "k"}


def test_a_model_without_layers_has_matrices_by_their_names() -> None:
    def mlp(width: int, depth: int) -> tuple[nn.Module, Any, Any]:
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
        model = nn.Sequential(
            nn.Linear(8, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )
        return model, (x,), lambda out: (out - x[:, :1]).square().mean()

    check = ex.coord_check(mlp, widths=(64, 128, 256))
    assert {row.quantity for row in check.sizes} == {"0", "2", "biases", "readout"}
    grown = {
        finding.meaning.split(" ")[3] for finding in check.findings if "grows" in finding.meaning
    }
    assert grown == {"2", "readout"}  # the standard parametrization, under Adam


def test_what_is_not_finite_is_named() -> None:
    check = ex.coord_check(
        drawn,
        widths=(64, 128),
        seeds=1,
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=1e30),
    )
    named = [finding.meaning for finding in check.findings if "not finite" in finding.meaning]
    assert "The size of readout is not finite at width 64, depth 2, step 1." in named
    assert math.isnan(slope(check, "readout").slope)
    assert "nan" in check._repr_html_()
    assert not check.frame()["size"].map(math.isfinite).all()
    assert len(check.plot().data) == len({row.quantity for row in check.sizes}) + 1


def test_two_sizes_have_a_slope_without_an_error() -> None:
    check = ex.coord_check(
        partial(drawn, mistake="embedding"), widths=(64, 128), seeds=1, steps=1, optimizer=rates
    )
    row = slope(check, "embedding", step=1)
    assert row.slope == pytest.approx(-1, abs=1e-2)
    assert math.isnan(row.error)
    assert "± nan" in check.findings[0].meaning


def test_what_changes_its_shape_is_left_out() -> None:
    class Routed(Stack):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(x) + self.layers[0]["q"](x[:, : self.calls]).sum() * 1e-3  # type: ignore[index]

    def routed(width: int, depth: int) -> tuple[nn.Module, Tensor]:
        return Routed(width, depth), stack(width, depth)[1]

    check = ex.coord_check(routed, widths=(32, 64), steps=2)
    assert check.left_out == ("q",)
    assert "q" not in {row.quantity for row in check.sizes}


@pytest.mark.parametrize("form", ["tensor", "tuple", "mapping", "function"])
def test_a_batch_is_what_a_probe_takes(form: str) -> None:
    def make(width: int, depth: int) -> Any:
        model, codes, _ = drawn(width, depth)
        return model, {
            "tensor": codes,
            "tuple": (codes,),
            "mapping": {"codes": codes},
            "function": lambda model: SimpleNamespace(
                logits=model(codes), loss=model(codes).mean()
            ),
        }[form]

    before = torch.random.get_rng_state()
    check = ex.coord_check(
        make,
        widths=(64, 128),
        seeds=1,
        steps=1,
        loss=lambda out: getattr(out, "logits", out).mean(),
    )
    assert torch.equal(torch.random.get_rng_state(), before)
    assert {"readout", "attention logits"} <= {row.quantity for row in check.sizes}


def test_gpt2_reads_its_logits_in_the_fused_kernel() -> None:
    transformers = pytest.importorskip("transformers")

    def gpt2(width: int, depth: int) -> tuple[nn.Module, dict[str, Tensor]]:
        codes = torch.arange(32).reshape(2, 16)
        config = transformers.GPT2Config(
            n_embd=width, n_layer=depth, n_head=2, vocab_size=64, n_positions=16
        )
        return transformers.GPT2LMHeadModel(config), {"input_ids": codes, "labels": codes}

    check = ex.coord_check(gpt2, widths=(32, 64, 128))
    assert {
        row.quantity: row.kind for row in check.slopes if row.kind in ("embedding", "matrix")
    } == {
        "transformer.wte": "embedding",
        "transformer.wpe": "embedding",
        "input of the layers": "embedding",
        "attn.c_attn": "matrix",
        "attn.c_proj": "matrix",
        "mlp.c_fc": "matrix",
        "mlp.c_proj": "matrix",
    }
    assert {row.head for row in check.sizes if row.kind == "attention"} == {16, 32, 64}
    # it divides by √d
    assert any("attention logits" in finding.meaning for finding in check.findings)


CONFIG = ex.Config(
    n_heads=4, n_ctx=16, batch_size=4, norm_placement="pre", parametrization="completep"
)


def test_a_config_has_its_own_rates() -> None:
    sizes: dict[str, Any] = {"widths": (64, 128, 256), "depths": (4, 8, 16)}
    right = ex.coord_check(CONFIG.replace(attention_scale="d"), **sizes)
    assert right.findings == []
    assert {"attention.W_Q", "attention.W_K", "attention.W_V"} <= {
        row.quantity for row in right.sizes
    }
    wrong = ex.coord_check(
        lambda width, depth: CONFIG.replace(d_model=width, n_layers=depth),
        widths=(64, 128, 256),
        depths=(4,),
    )
    assert [finding.remedy.partition(",")[0] for finding in wrong.findings] == [
        "Divide q·k by the head's width"
    ]
    fixed = ex.coord_check(
        lambda width, depth: CONFIG.replace(d_model=width, n_layers=depth, n_heads=width // 16),
        widths=(64, 128, 256),
        depths=(4,),
        optimizer=ex.Recipe(learning_rate=2e-3),
    )
    assert fixed.findings == []  # heads of one width may be divided by any number
    standard = ex.coord_check(CONFIG.replace(parametrization="standard"), widths=(64, 128, 256))
    assert standard.findings[0].remedy.startswith("Divide Adam's learning rate of attention.W_")
    assert "First the matrices of the layers, whose changes grow: this may follow" in {
        finding.remedy for finding in standard.findings
    }


def test_the_slope_is_that_of_least_squares() -> None:
    x = [1.0, 2.0, 4.0, 8.0]
    assert fitted(x, np.array([3.0 * number**0.7 for number in x])) == pytest.approx(
        (0.7, 0), abs=1e-7
    )
    power, error = fitted([1, math.e, math.e**2], np.exp([0.0, 1.0, 1.0]))
    assert power == pytest.approx(0.5)
    # residuals −1/6, 1/3, −1/6; Σ (x − x̄)² = 2
    assert error == pytest.approx(math.sqrt((1 / 6) / 1 / 2))
    assert math.isnan(fitted(x, np.array([1, 2, 0, 4]))[0])


def test_a_check_shows_copies_and_draws_itself() -> None:
    check = checked("branch", "depth")
    assert deepcopy(check) == check
    frame = check.frame()
    assert list(frame.columns) == [
        "quantity",
        "kind",
        "width",
        "depth",
        "seed",
        "step",
        "size",
        "change",
        "start",
        "head",
        "factor",
    ]
    assert len(frame) == len(check.sizes) == 13 * 5 * 2 * 4
    assert (frame[frame.step == 0].change == 0).all()
    assert "CompleteP" in check._repr_html_()
    figure = check.plot("depth")
    stream = next(trace for trace in figure.data if trace.name == "stream after the last layer")
    assert list(stream.x) == list(DEPTHS)
    assert stream.y[0] == 1
    assert np.polyfit(np.log(stream.x), np.log(stream.y), 1)[0] == pytest.approx(
        slope(check, "stream after the last layer", "depth").slope, rel=1e-4
    )
    with pytest.raises(
        ValueError, match="axis must be one with two sizes or more: width, depth; got 'head'"
    ):
        check.plot("head")


@pytest.mark.parametrize(
    ("error", "sentence", "given"),
    [
        (
            ValueError,
            r"widths must be two or more increasing whole numbers from 1 on; got \[64\]",
            {"widths": [64]},
        ),
        (ValueError, r"widths must be two or more .* got \(128, 64\)", {"widths": (128, 64)}),
        (ValueError, r"widths must be two or more .* got 64", {"widths": 64}),
        (
            ValueError,
            r"depths must be one or more increasing whole numbers from 1 on; got \(2, 2\)",
            {"depths": (2, 2)},
        ),
        (ValueError, r"depths must be one or more .* got \(\)", {"depths": ()}),
        (ValueError, "steps must be a whole number from 1 on; got 0", {"steps": 0}),
        (ValueError, "seeds must be a whole number from 1 on; got True", {"seeds": True}),
        (TypeError, "factory must be a Config; got 3 of type int", {"factory": 3}),
        (
            TypeError,
            "factory must return .* it returned 64 of type int",
            {"factory": lambda width, depth: width},
        ),
        (TypeError, "optimizer must be a Recipe; got 0.1 of type float", {"optimizer": 0.1}),
        (
            TypeError,
            "optimizer must be a function of the model .* got a Recipe",
            {"optimizer": ex.Recipe()},
        ),
        (
            TypeError,
            "the result of optimizer must be an Optimizer; got None",
            {"optimizer": lambda model: None},
        ),
        (ValueError, "blocks must name modules of the model", {"blocks": "h.*"}),
        (ValueError, "d_model", {"factory": ex.Config(n_heads=4), "widths": (63, 64)}),
    ],
)
def test_what_will_not_do_is_named(
    error: type[Exception], sentence: str, given: dict[str, Any]
) -> None:
    arguments = {"factory": drawn, "widths": (64, 128)} | given
    with pytest.raises(error, match=sentence):
        ex.coord_check(arguments.pop("factory"), **arguments)
