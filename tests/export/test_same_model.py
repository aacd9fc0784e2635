"""The file of a design is that design: with the same weights it gives what the model under study
gives."""

from __future__ import annotations

import ast
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exported import WRITTEN, Pair, imported

from benchmarks import fuzz
from explorer import PRESETS, Config, ConfigError, preset, torch_code, twin
from explorer.schemes.activation import ACTIVATIONS, Activation
from explorer.schemes.attention import ATTENTION_GATES, DIVISORS, SINKS, Divisor, OutputGate, Sink
from explorer.schemes.distribution import DISTRIBUTIONS, Distribution
from explorer.schemes.mlp import MLPS, MLPKind
from explorer.schemes.placement import NORMS, PLACEMENTS, Norm, PlacementRule, normed
from explorer.schemes.residual import RESIDUALS, ResidualRule, Rule
from explorer.schemes.scale import SCALE_RULES, ScaleRule

SIZES = {"n_layers": 3, "d_model": 32, "n_heads": 4, "n_ctx": 8, "batch_size": 2, "n_seeds": 1}
TEXT = {"input": "text", "loss": "next_token"}
DESIGNS = 64
WORDS = ("made up", "nobody")


@pytest.mark.parametrize("name", WRITTEN)
def test_a_named_design(name: str, tmp_path: Path) -> None:
    Pair(preset(name, **SIZES), tmp_path).agree()


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"readout": "tied"},
        {"readout": "tied_scaled", "position": "rotary"},
        {"parametrization": "mup"},
        {"output_cap": 0.5},
        {"output_cap": 0.5, "readout": "tied_scaled"},
    ],
    ids=str,
)
def test_logits_of_text(choices: dict[str, Any], tmp_path: Path) -> None:
    pair = Pair(Config(**SIZES, **TEXT, **choices, input_second_moment=0.01), tmp_path)
    pair.agree()
    pair.agree_backward()


@pytest.mark.parametrize(
    "sentence", ['"""+exit()+"""', "'''", '\\"""', 'end"', "\\N{x}{{7}}", "plain"]
)
def test_a_sentence_is_words_of_the_file_and_nothing_of_its_code(
    sentence: str, tmp_path: Path
) -> None:
    config = Config(**SIZES, input="sentence", sentence=sentence)
    assert repr(sentence) in (ast.get_docstring(ast.parse(torch_code(config))) or "")
    Pair(config, tmp_path).agree()


def test_a_share_of_a_head_is_rounded(tmp_path: Path) -> None:
    """0.29 · 200 is a little below 58 in floating point."""
    Pair(Config(**SIZES, position="rotary", head_size=200, rope_fraction=0.29), tmp_path).agree()


@pytest.mark.parametrize("name", ["keel", "t5", "gemma2", "gptj", "rezero", "olmo2"])
def test_its_twin_is_the_design(name: str, tmp_path: Path) -> None:
    """What `twin` reads in the file's model, without its source, is what the file was made from."""
    config = preset(name, **SIZES | {"d_model": 64, "n_ctx": 16})
    torch.manual_seed(0)
    model = imported(torch_code(config), tmp_path).Transformer()
    found = twin(model, torch.randn(2, 16, 64) * config.input_second_moment**0.5).config
    for field, spec in Config.specs().items():
        if spec.about.group != "Input and loss":
            value = getattr(config, field)
            assert getattr(found, field) == (
                pytest.approx(value) if isinstance(value, float) else value
            ), field


@pytest.mark.parametrize("name", ["llama3", "gpt_oss", "realformer", "albert"])
def test_gradients(name: str, tmp_path: Path) -> None:
    Pair(preset(name, **SIZES), tmp_path, torch.float64).agree_backward()


def test_loops(tmp_path: Path) -> None:
    """Two layers, three times: one set of parameters of each, and the factor on its branches."""
    config = Config(
        **SIZES | {"n_layers": 6}, layer_weights="looped", n_loops=3, residual="looped", alpha=0.5
    )
    pair = Pair(config, tmp_path, torch.float64)
    pair.agree_backward()
    assert len({id(layer.mlp.W_in) for layer in pair.theirs.layers}) == 2


def written_designs(seed: int) -> list[Config]:
    """Random designs that can be written as a file of torch."""
    drawn = fuzz.designs(seed, 2 * DESIGNS)
    return list(islice((config for config in drawn if not config.design.stream.mixes), DESIGNS))


def test_random_designs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All fields at random, in twice the precision: what amplifies rounding is no other design."""
    monkeypatch.setattr(
        fuzz,
        "SIZES",
        {
            "d_model": (32, 48),
            "n_heads": (1, 2, 4, 6),
            "n_layers": (1, 2, 3, 4),
            "n_ctx": (4, 8),
            "batch_size": (2,),
            "n_kv_heads": (0, 0, 1, 2),
            "head_size": (0, 0, 6),
        },
    )
    for name in ("init_variance", "attention_variance", "mlp_variance"):
        monkeypatch.setitem(fuzz.RANGES, name, (0.2, 5.0))
    seen = written_designs(4)
    for config in seen:
        try:
            Pair(config, tmp_path, torch.float64).agree()
        except AssertionError as error:
            raise AssertionError(f"{config!r}: {error}") from error
    fields = {name for name, spec in Config.specs().items() if spec.choices}
    for name in fields - {"residual", "norm_placement", "stream"}:
        assert {getattr(config, name) for config in seen} >= {*Config.specs()[name].choices}, name


OPTIONS = [(name, choice) for name, spec in Config.specs().items() for choice in spec.choices]
NEEDS: list[dict[str, Any]] = [
    {},
    {"norm_placement": "post"},
    {"causal": True},
    {"input": "text"},
    {"n_layers": 6},
]
"""Other choices without which some options are refused."""


@pytest.mark.parametrize(("name", "choice"), [pair for pair in OPTIONS if pair[0] != "stream"])
def test_every_option(name: str, choice: str, tmp_path: Path) -> None:
    """Its text is its row's function, to rounding, whatever other rows do to it in a random
    design."""
    small = Config(**SIZES | {"n_layers": 5})
    needed = next(needed for needed in NEEDS if small.accepts(**needed | {name: choice}))
    for rescaled in (True, False):
        config = small.replace(**needed | {name: choice}, activation_rescaled=rescaled)
        Pair(config, tmp_path, torch.float64).agree()


def test_the_first_pass_finds_the_factors_and_the_second_keeps_them(tmp_path: Path) -> None:
    pair = Pair(Config(**SIZES, norm_placement="post", residual="admin_profiled"), tmp_path)
    pair.agree()
    found = {name: value.clone() for name, value in pair.theirs.named_buffers()}
    for name, value in pair.ours.named_buffers():
        torch.testing.assert_close(found[name], value)
    assert bool(found["profiled"])
    assert float(found["layers.2.skip"].min()) > 1
    pair.theirs(10 * pair.batch.input)
    assert all(torch.equal(value, found[name]) for name, value in pair.theirs.named_buffers())


ROWS: dict[str, tuple[dict[str, Any], Any]] = {
    "norm_placement": (
        PLACEMENTS,
        PlacementRule(
            *WORDS,
            final=False,
            sublayer=lambda index, n_layers: normed(
                "sum",
                "read",
                *(["input"] if index != 3 else []),
                *([] if index % 2 else ["heads"]),
                skip=0.7 + 0.1 * index,
                branch=0.5,
            )._replace(scale=0.9),
        ),
    ),
    "norm": (NORMS, Norm(*WORDS, ("norm_alpha",), title="ELU", short="ELU", point="elu")),
    "residual": (
        RESIDUALS,
        ResidualRule(*WORDS, multipliers=lambda config: Rule(0.8, 0.6, {"W_V": 1.7})),
    ),
    "scale_rule": (
        SCALE_RULES,
        ScaleRule(*WORDS, variance=lambda config, matrix, fan_in, fan_out: 1.3 / fan_in),
    ),
    "mlp": (MLPS, MLPKind(*WORDS, gated=True, shift=2.0)),
    "attention_scale": (
        DIVISORS,
        Divisor(*WORDS, short="q·k", of=lambda d_head: 0.5 * d_head**0.75),
    ),
    "sink": (SINKS, Sink(*WORDS, logit=2.0)),
    "attention_gate": (ATTENTION_GATES, OutputGate(*WORDS, per_head=lambda d_head: d_head // 2)),
    "activation": (
        ACTIVATIONS,
        Activation(*WORDS, value=np.sin, slope=np.cos, torch=lambda F, z: z.sin()),
    ),
    "distribution": (DISTRIBUTIONS, Distribution(*WORDS, transform=lambda z: z.sign_())),
}


@pytest.mark.parametrize("field", ROWS)
def test_a_row_that_is_made_up(field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is decided by a row's name."""
    table, row = ROWS[field]
    monkeypatch.setitem(table, "invented", row)
    Pair(Config(**SIZES, **{field: "invented"}), tmp_path).agree()


@pytest.mark.parametrize(
    ("field", "table", "row"),
    [
        (
            "attention_scale",
            DIVISORS,
            Divisor(*WORDS, short="q·k", of=float, row=lambda config, n: n**0.1),
        ),
        (
            "norm_placement",
            PLACEMENTS,
            PlacementRule(
                *WORDS,
                final=False,
                sublayer=lambda index, n_layers: normed("sum", *([] if index else ["heads"])),
            ),
        ),
        (
            "activation",
            ACTIVATIONS,
            Activation(*WORDS, value=np.sin, slope=np.cos, torch=lambda F, z: torch.sin(z)),
        ),
        (
            "distribution",
            DISTRIBUTIONS,
            Distribution(*WORDS, transform=lambda z: z if z > 0 else -z),
        ),
    ],
    ids=["factor by row", "norms within some layers", "activation", "distribution"],
)
def test_a_row_that_cannot_be_written_is_refused(
    field: str, table: dict[str, Any], row: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(table, "invented", row)
    with pytest.raises(
        ConfigError, match=rf"^{field} must .*, to be written as torch; got {field} = invented$"
    ):
        # no config whose placements are remembered
        torch_code(Config(**SIZES | {"n_ctx": 9}, **{field: "invented"}))


@pytest.mark.parametrize("name", sorted({*PRESETS} - {*WRITTEN}))
def test_several_streams_and_attention_over_depth_are_refused(name: str) -> None:
    config = preset(name, **SIZES)
    with pytest.raises(
        ConfigError,
        match="^stream must be one or parallel to be written as torch, because the file "
        f"has one residual stream; got stream = {config.stream}$",
    ):
        torch_code(config)


def test_these_named_designs_are_refused() -> None:
    assert {*PRESETS} - {*WRITTEN} == {"hyper_connections", "mhc", "attn_res"}


def test_it_needs_only_torch_and_is_clean(tmp_path: Path) -> None:
    """The files of all named designs and of random ones import torch and math, and pass ruff."""
    for index, config in enumerate(
        [*(preset(name, **SIZES) for name in WRITTEN), *written_designs(4)]
    ):
        text = torch_code(config)
        (tmp_path / f"design_{index}.py").write_text(text, encoding="utf-8")
        statements = [
            node
            for node in ast.walk(ast.parse(text))
            if isinstance(node, (ast.Import, ast.ImportFrom))
        ]
        names = {
            name
            for node in statements
            for name in (
                [node.module]
                if isinstance(node, ast.ImportFrom)
                else [one.name for one in node.names]
            )
        }
        assert names <= {"torch", "math", "torch.nn.functional"}
    rules = ["--isolated", "--select", "E,F", "--line-length", "120"]
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", *rules, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_it_says_which_design_it_is() -> None:
    """Title and source of the named design whatever its sizes, or none; and a call that makes the
    config again."""
    for name in WRITTEN:
        row, text = PRESETS[name], torch_code(preset(name, d_model=128, n_layers=5))
        assert text.startswith(f'"""{row.title}: ')
        assert f"Source: {row.source}."[:60] in text
    other = preset("llama3", alpha=0.5, residual_attention="scores", d_model=48)
    text = torch_code(other)
    assert text.startswith('"""A Transformer of this design:\n')
    assert "Residual attention: A_l = q_l·k_l + A_(l−1) (RealFormer: He et al. 2020)" in text
    call = " ".join(text.split("Made from ")[1].split('.\n"""')[0].split())
    assert eval(call, {"Config": Config}) == other  # noqa: S307 - what is tested


def test_it_names_no_choice_that_makes_no_difference() -> None:
    assert "\n    Divide by √d: " in torch_code(Config(n_layers=1))
    assert "\n    Divide by √d: " not in torch_code(Config(n_layers=1, attention="none"))


def test_what_is_no_config_is_refused() -> None:
    with pytest.raises(TypeError, match=r"config must be a Config; got 'llama3' of type str"):
        torch_code("llama3")  # type: ignore[arg-type]


def test_numbers_stand_beside_the_rule_that_they_come_from() -> None:
    """To twelve digits; as a list where layers differ."""
    text = torch_code(preset("deepnorm", n_layers=6, d_model=64))
    assert f"\nSKIP = {12**0.25:.12g}\n" in text
    assert "# On the stream. Norm placement: N(x + F(x))" in text
    assert f'"W_O": (64, 64, {64**-0.5 * 48**-0.25:.12g}),' in text
    text = torch_code(preset("layernorm_scaling", n_layers=4))
    assert "\nSCALE = [1.0, 1.0, 0.707106781187, 0.707106781187, 0.57735026919, " in text
    assert "Norm placement: x + F(N(x) / √l) in layer l" in text
    assert "numbers\nfor this depth and width" in text
    text = torch_code(Config(n_layers=1, activation="gelu", activation_rescaled=False))
    assert "F.gelu(x)\n" in text
    assert "* 1.0" not in text


def test_a_file_of_another_design_is_told_apart(tmp_path: Path) -> None:
    """The comparison can fail: the same parameters in Post-LN, or with another activation."""
    pair = Pair(preset("llama3", **SIZES), tmp_path)
    for other in (
        {"norm_placement": "post"},
        {"activation": "gelu"},
        {"rope_base": 5e3},
        {"causal": False},
    ):
        theirs = imported(
            torch_code(preset("llama3", **SIZES).replace(**other)), tmp_path
        ).Transformer()
        theirs.load_state_dict(pair.theirs.state_dict())
        pair.theirs = theirs
        with pytest.raises(AssertionError):
            pair.agree()
