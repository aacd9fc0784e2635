"""`explorer probe --expect`: models of transformers start as their presets say, and a planted
mistake is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.models import MODELS, build, ours_of
from explorer import preset
from explorer.__main__ import main
from explorer_models.expecting import Verdict, expectation, verdict

transformers = pytest.importorskip("transformers", reason="needs the extra `models`")

Made = tuple[nn.Module, Any]
IDS = torch.randint(0, 2000, (4, 32), generator=torch.Generator().manual_seed(1))


def llama(**fields: Any) -> Made:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        **{
            "num_hidden_layers": 4,
            "hidden_size": 64,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "intermediate_size": 224,
            "vocab_size": 2000,
            "rope_theta": 5e5,
            **fields,
        }
    )
    return transformers.LlamaForCausalLM(config).eval(), {"input_ids": IDS}


def gpt2() -> Made:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=4,
        n_embd=64,
        n_head=4,
        vocab_size=2000,
        n_positions=32,
        bos_token_id=0,
        eos_token_id=0,
    )
    return transformers.GPT2LMHeadModel(config).eval(), IDS


def wide_output() -> Made:
    model, batch = llama()
    with torch.no_grad():
        model.get_parameter("model.layers.2.self_attn.o_proj.weight").mul_(2)
    return model, batch


def no_norm() -> Made:
    model, batch = llama()
    model.get_submodule("model.layers.1").input_layernorm = nn.Identity()
    return model, batch


def not_shrunk() -> Made:
    """GPT-2 whose c_proj lack the factor 1/√(2N)."""
    model, batch = gpt2()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("c_proj.weight"):
                weight.mul_(8**0.5)
    return model, batch


def another_activation() -> Made:
    """Small inputs are halved by SiLU, mean square ¼; ReLU leaves half of them, mean square ½."""
    return llama(hidden_act="relu")


@pytest.mark.parametrize(("name", "make"), [("llama3", llama), ("gpt2", gpt2)])
def test_a_model_starts_as_its_preset(name: str, make: Callable[[], Made]) -> None:
    found = verdict(name, expectation(name), *make())
    assert found.agrees, str(found)
    assert re.match(
        rf"\w+LM\w* starts as {name} says\. They part nowhere by more than 25 %", str(found)
    ), str(found)
    assert {site for _, site, *_ in found.comparison.differences} >= {
        "embed",
        "W_Q",
        "attn_scores",
        "pattern",
        "attn_out",
        "resid_mid",
        "W_out",
        "mlp_out",
        "resid_post",
    }


@pytest.mark.parametrize("name", ["nanochat", "gemma3"])
def test_models_that_others_wrote_start_as_their_presets(name: str) -> None:
    config = ours_of(name, n_layers=4, d_model=64, n_heads=4, n_ctx=16, batch_size=2)
    torch.manual_seed(0)
    model = build(MODELS[name], config)
    found = verdict(name, expectation(name), model, torch.randperm(32).view(2, 16))
    if name == "nanochat":  # which transformers writes without the factor 1.2 on queries and keys
        assert f"the logit spread at the attention logits is {1 / 1.44:.3f} × as large" in str(
            found
        )
        assert "In all, 1 of 17 statistics and sites part." in str(found)
    else:
        assert found.agrees, str(found)


def test_the_loss_is_left_aside() -> None:
    """A language model's own loss has another gradient: from labels in the batch, or as the factory
    gives it."""
    model, batch = llama()
    plain = verdict("llama3", expectation("llama3"), model, batch)
    labels = verdict("llama3", expectation("llama3"), model, {**batch, "labels": IDS})
    given = verdict(
        "llama3", expectation("llama3"), model, batch, lambda out: out.logits[:, :1].square().sum()
    )
    for other in (labels, given):
        for key in plain.profile:
            np.testing.assert_allclose(other.profile[key], plain.profile[key], rtol=1e-4, atol=1e-7)


def larger() -> Made:
    return llama(initializer_range=0.02 * 1.66)


@cache
def judged(make: Callable[[], Made], design: str) -> Verdict:
    """Kept: several tests read one verdict."""
    return verdict(design, expectation(design), *make())


@pytest.mark.parametrize(
    ("make", "design", "place", "factor", "words"),
    [
        (
            wide_output,
            "llama3",
            ("weight_variance", "W_O", 3),
            4.0,
            "layer 3 (model.layers.2): the weight variance at W_O",
        ),
        (
            wide_output,
            "llama3",
            ("second_moment", "attn_out", 3),
            4.0,
            "the second moment at the attention output is",
        ),
        (
            larger,
            "llama3",
            ("second_moment", "embed", 0),
            1.66**2,
            "the input: the second moment at the input is 2.",
        ),
        (
            larger,
            "llama3",
            ("logit_std", "attn_scores", 1),
            1.66**2,
            "layer 1 (model.layers.0): the logit spread at the attention logits is",
        ),
        (
            no_norm,
            "llama3",
            ("logit_std", "attn_scores", 2),
            5e-4,
            "layer 2 (model.layers.1), attention output: norms around the branch is none, expected input",
        ),
        (
            not_shrunk,
            "gpt2",
            ("weight_variance", "W_O", 1),
            8.0,
            "layer 1 (transformer.h.0): the weight variance at W_O",
        ),
        (
            not_shrunk,
            "gpt2",
            ("second_moment", "mlp_out", 1),
            8.0,
            "the second moment at the MLP output is",
        ),
        (
            another_activation,
            "llama3",
            ("second_moment", "mlp_out", 1),
            2.0,
            "the second moment at the MLP output is",
        ),
    ],
)
def test_a_planted_mistake_is_named(
    make: Callable[[], Made], design: str, place: tuple[str, str, int], factor: float, words: str
) -> None:
    found = judged(make, design)
    assert not found.agrees
    rows = {row[:3]: row for row in found.comparison.partings}
    assert place in rows, str(found)
    assert np.log(rows[place].factor) == pytest.approx(
        np.log(factor), abs=0.35 if factor > 0.01 else 1.0
    )
    assert words in str(found).partition("\n")[2]
    if make in (wide_output, no_norm):  # the layers before are as they were
        assert all(
            row.layer >= place[2]
            for row in found.comparison.partings
            if "gradient" not in row.statistic
        )


def test_an_odd_layer_that_the_signal_does_not_show_is_named() -> None:
    model, batch = llama()
    vars(model.get_submodule("model.layers.3.input_layernorm"))["variance_epsilon"] = 1e-9
    found = verdict("llama3", expectation("llama3"), model, batch)
    assert not found.comparison.partings
    assert not found.agrees
    assert "layer 4 (model.layers.3) has norms around attention with ε 10⁻⁹" in str(found)


# Facts, which come before what follows from them.


def not_causal() -> Made:
    model, batch = gpt2()
    for block in model.transformer.h:
        block.attn.is_causal = False
    return model, {"input_ids": batch, "attention_mask": torch.ones(4, 1, 32, 32, dtype=torch.bool)}


def not_divided() -> Made:
    model, batch = llama()
    for layer in model.model.layers:
        layer.self_attn.scaling = 1.0
    return model, batch


def other_base_and_no_final_norm() -> Made:
    model, batch = llama(rope_theta=1e4)
    model.model.norm = nn.Identity()
    return model, batch


def one_module() -> Made:
    model, batch = llama()
    model.model.layers = nn.ModuleList([model.model.layers[0]] * 4)
    return model, batch


def softmax_over_queries() -> Made:
    """Eager attention, whose softmax is over the axis of the queries."""
    model, batch = llama(attn_implementation="eager")
    over_keys = torch.nn.functional.softmax

    def run(whole: nn.Module) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                torch.nn.functional,
                "softmax",
                lambda x, dim, dtype=None: over_keys(x, dim=-2, dtype=dtype),
            )
            return whole(**batch)

    return model, run


@pytest.mark.parametrize(
    ("make", "design", "fact", "follows"),
    [
        (
            not_causal,
            "gpt2",
            "all layers: mask is none, expected causal",
            "the second moment at the attention output is",
        ),
        (
            not_divided,
            "llama3",
            "all layers: divisor of the logits is 1, expected 4",
            "the logit spread at the attention logits is",
        ),
        (
            another_activation,
            "llama3",
            "all layers, MLP output: activation is relu, expected silu",
            "the second moment at the MLP output is",
        ),
        (
            one_module,
            "llama3",
            "all layers: weights of the layers is shared, expected independent",
            "",
        ),
        (
            softmax_over_queries,
            "llama3",
            "all layers: axis of the softmax is queries, expected keys",
            "",
        ),
        (
            other_base_and_no_final_norm,
            "llama3",
            "all layers: base of rotary positions is 10,000, expected 500,000",
            "",
        ),
        (gpt2, "llama3", "all layers, MLP output: kind of the MLP is plain, expected gated", ""),
        (
            other_base_and_no_final_norm,
            "llama3",
            "all layers: norm after the last layer is no, expected yes",
            "",
        ),
        (llama, "qwen3", "all layers: norms on queries and keys is no, expected yes", ""),
    ],
)
def test_a_fact_is_said_and_what_follows_from_it_below(
    make: Callable[[], Made], design: str, fact: str, follows: str
) -> None:
    found = judged(make, design)
    assert not found.agrees
    assert fact in [row.words for row in found.stated]
    first, *lines = str(found).splitlines()
    assert f"does not start as {design} says: {found.stated[0].words}." in first
    assert f"  {fact}" in lines
    if follows:
        places = [line for line in lines if follows in line]
        assert places
        assert all(line.startswith("    so layer ") for line in places)
        assert lines.index(f"  {fact}") < lines.index(places[0])


def test_a_statistic_that_only_the_design_has_is_a_departure() -> None:
    found = judged(softmax_over_queries, "llama3")
    assert {("logit_std", "attn_scores"), ("attention_entropy_normalized", "pattern")} <= {
        *found.unseen
    }
    assert (
        "\n  the logit spread at the attention logits was not seen, where the design has one"
        in str(found)
    )


def test_what_a_design_never_has_is_not_missed() -> None:
    """The stream between two branches that read the same one, and a gate's matrix within
    another."""
    config = ours_of("gptj", n_layers=4, d_model=64, n_heads=4, n_ctx=16, batch_size=2)
    model = build(MODELS["gptj"], config)
    found = verdict("gptj", expectation("gptj"), model, torch.randperm(32).view(2, 16))
    assert ("second_moment", "resid_mid") not in found.profile.values
    assert not found.unseen


# From the command line.


CODE = """
import test_expecting as here
good, wide, no_norm = here.llama, here.wide_output, here.no_norm
narrow = lambda: here.llama(hidden_size=4, num_attention_heads=1)
"""


def test_exit_codes_and_text(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "mine:good", "--expect", "llama3", "--json", "profile.json"]) == 0
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "")
    assert out.startswith("LlamaForCausalLM starts as llama3 says.")
    assert main(["probe", "mine:wide", "--expect", "llama3", "--html", "page.html"]) == 1
    out = capsys.readouterr().out
    first, *places = out.splitlines()
    assert first.startswith(
        "LlamaForCausalLM does not start as llama3 says. They first part at layer 3 (model.layers."
        "2): the weight variance at W_O is "
    )
    assert len(places) == int(re.findall(r"In all, (\d+) of", first)[0]) > 1
    assert {*out} & {"<", "\x1b", "{"} == set()
    assert (mine / "page.html").exists()


def test_beside_a_config(mine: Path) -> None:
    """At the model's own size: that of the file is left aside."""
    (mine / "right.json").write_text(
        preset("llama3", n_layers=20, d_model=128).to_json(), encoding="utf-8"
    )
    (mine / "wrong.json").write_text(
        preset("llama3", norm_placement="post").to_json(), encoding="utf-8"
    )
    assert main(["probe", "mine:good", "--expect", "right.json"]) == 0
    assert main(["probe", "mine:good", "--expect", "wrong.json"]) == 1


@pytest.mark.parametrize(
    ("factory", "design", "complaint"),
    [
        (
            "mine:good",
            "lama3",
            "expect must be a preset, such as llama3, or a file that can be read; got 'lama3' (No such",
        ),
        (
            "mine:good",
            "q\0q",
            "expect must be a preset, such as llama3, gpt2, or a file that can be read; got 'q",
        ),
        (
            "mine:good",
            "broken.json",
            "expect must hold a start or a config; 'broken.json' does not: config must be JSON",
        ),
        (
            "mine:good",
            "field.json",
            "expect must hold a start or a config; 'field.json' does not: width is not a field",
        ),
        (
            "mine:good",
            "profile.json",
            "expect must hold a start or a config; 'profile.json' does not: origin is not a field",
        ),
        (
            "mine:good",
            "broken.toml",
            "expect must hold a start or a config; 'broken.toml' does not: a start must be TOML: ",
        ),
        (
            "mine:good",
            "tables.toml",
            "expect must hold a start or a config; 'tables.toml' does not: a start has the tables ",
        ),
        *(
            (
                "mine:good",
                name,
                (
                    f"expect must hold a start or a config; '{name}' does not: a start must state facts "
                    "or numbers; it has nothing to compare"
                ),
            )
            for name in ("empty.toml", "top.toml", "other.toml")
        ),
        (
            "mine:narrow",
            "llama3",
            "expect must be a design that can have the model's size; d_model must be a whole num",
        ),
    ],
)
def test_what_is_wrong_is_one_line(
    mine: Path, factory: str, design: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (mine / "broken.json").write_text("{", encoding="utf-8")
    (mine / "field.json").write_text('{"width": 3}', encoding="utf-8")
    (mine / "profile.json").write_text('{"origin": "measured"}', encoding="utf-8")
    (mine / "broken.toml").write_text("std = [", encoding="utf-8")
    (mine / "tables.toml").write_text("[weights]", encoding="utf-8")
    (mine / "empty.toml").write_text("", encoding="utf-8")
    (mine / "top.toml").write_text('dtype = "float32"', encoding="utf-8")
    (mine / "other.toml").write_text("[layer]\nmask = 1\n[std]\n[mean]\nx = 1.0", encoding="utf-8")
    code = main(["probe", factory, "--expect", design])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith(f"explorer: {complaint}")
    assert err.count("\n") == 1
