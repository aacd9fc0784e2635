"""How a model starts as a file: what it says, that the same code starts so again with other numbers
drawn, and that a departure is named by layer, site, factor, both values and line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
import torch
from test_expecting import Made, gpt2, llama, not_causal, not_shrunk, wide_output
from torch import nn

import explorer as ex
import explorer_models
from benchmarks.start import PLANTS, TOKENS, Plant, made
from explorer.__main__ import main
from explorer_models.expecting import Verdict, expectation, verdict
from explorer_models.probe import probed
from explorer_models.reporting import chart, report, summary, workflow_commands
from explorer_models.starts import Start, departures

transformers = pytest.importorskip("transformers", reason="needs the extra `models`")

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads(
    Path(explorer_models.__file__).with_name("report.schema.json").read_text(encoding="utf-8")
)


@cache
def stored(make: Callable[[], Made]) -> str:
    """The file of a model's start."""
    model, batch = make()
    return str(Start.of(model, *probed(model, batch)))


def beside(file: str, made: Made) -> Verdict:
    return verdict("start.toml", Start.from_toml(file), *made)


def test_a_file_says_what_the_code_says() -> None:
    tables = Start.from_toml(stored(gpt2)).tables
    assert tables[""]["tied"] == ["lm_head.weight = transformer.wte.weight"]
    assert tables[""]["dtype"] == "float32"
    scores = tables["attn_scores"]
    assert (scores["mask"], scores["divisor"], scores["softmax"]) == ("causal", 4.0, "keys")
    assert tables["mlp_out"]["activation"] == "gelu_tanh"
    assert tables["std"]["transformer.h.*.attn.c_attn.weight"] == 0.02
    assert tables["std"]["transformer.h.*.mlp.c_proj.weight"] == pytest.approx(0.02 / 8**0.5, 1e-3)
    norms = ("h.*.ln_1", "h.*.ln_2", "ln_f")
    assert tables["mean"] == {f"transformer.{norm}.weight": 1.0 for norm in norms}
    assert "0.007071  # initializer_range / √(2 · n_layers)" in stored(gpt2)


@pytest.mark.parametrize("make", [gpt2, llama])
def test_another_draw_starts_as_the_file_says(make: Callable[[], Made]) -> None:
    model, batch = make()
    for seed in (1, 2, 3):
        torch.manual_seed(seed)
        again = type(model)(model.config).eval()
        judged = beside(stored(make), (again, batch))
        assert judged.agrees, str(judged)


@pytest.mark.parametrize(("name", "make"), [("gpt2", gpt2), ("llama", llama)])
def test_classes_of_transformers_start_as_was_reviewed(name: str, make: Callable[[], Made]) -> None:
    """`starts/` has a file for each, which a change of transformers may part from."""
    file = ROOT / "starts" / f"{name}.toml"
    judged = verdict(file.name, expectation(str(file)), *make())
    assert judged.agrees, str(judged)


def halved_gain() -> Made:
    model, batch = llama()
    with torch.no_grad():
        model.model.layers[1].input_layernorm.weight.mul_(0.5)
    return model, batch


def untied() -> Made:
    model, batch = gpt2()
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    return model, batch


def bias() -> Made:
    model, batch = gpt2()
    nn.init.normal_(model.transformer.h[2].mlp.c_fc.bias, std=0.02)
    return model, batch


def half() -> Made:
    model, batch = llama()
    return model.to(torch.bfloat16), batch


def infinite() -> Made:
    model, batch = gpt2()
    with torch.no_grad():
        model.transformer.h[1].mlp.c_fc.weight[0, 0] = torch.inf
        model.transformer.h[2].mlp.c_fc.weight[0, 0] = torch.nan
    return model, batch


def weak_branch() -> Made:
    """Multiplies the output of attention by ½."""
    model, batch = llama()
    for layer in model.model.layers:
        layer.self_attn.register_forward_hook(lambda *given: (given[-1][0] / 2, *given[-1][1:]))
    return model, batch


@pytest.mark.parametrize(
    ("make", "usual", "words", "line"),
    [
        (
            not_shrunk,
            gpt2,
            "W_O (transformer.h.*.attn.c_proj.weight, 4 of 4): standard deviation is 2.84 × as large, 0.0201 ",
            '"transformer.h.*.attn.c_proj.weight" = 0.007071',
        ),
        (
            wide_output,
            llama,
            "layer 3 (model.layers.2): W_O (model.layers.2.self_attn.o_proj.weight): standard deviation is ",
            '"model.layers.*.self_attn.o_proj.weight" = 0.02',
        ),
        (
            halved_gain,
            llama,
            "model.layers.1.input_layernorm.weight: mean is 0.5 × as large, 0.5 beside 1",
            '"model.layers.*.input_layernorm.weight" = 1.0',
        ),
        (
            bias,
            gpt2,
            "transformer.h.2.mlp.c_fc.bias: standard deviation is 0.0",
            '"transformer.h.*.mlp.c_fc.bias" = 0.0',
        ),
        (not_causal, gpt2, "all layers: mask is none, expected causal", 'mask = "causal"'),
        (
            weak_branch,
            llama,
            "all layers, attention output: factor on the branch is 0.5, expected 1",
            "branch = 1.0",
        ),
        (
            untied,
            gpt2,
            "lm_head.weight = transformer.wte.weight are not one parameter",
            "tied = [",
        ),
        (half, llama, "dtype is bfloat16, expected float32", 'dtype = "float32"'),
    ],
)
def test_a_departure_is_named_with_the_line_of_the_file(
    make: Callable[[], Made], usual: Callable[[], Made], words: str, line: str
) -> None:
    judged = beside(stored(usual), make())
    assert not judged.agrees
    rows = [row for row in judged.departures if row.words.startswith(words)]
    assert rows, str(judged)
    assert stored(usual).splitlines()[rows[0].line - 1].startswith(line)
    assert f"start.toml:{rows[0].line}: {words}" in str(judged)


def test_parameters_and_layers_that_come_or_go_are_named() -> None:
    model, batch = llama(num_hidden_layers=3)
    model.model.layers[0].extra = nn.Linear(2, 2, bias=False)
    said = str(beside(stored(llama), (model, batch)))
    assert "n_layers is 3, expected 4" in said
    assert "model.layers.*.extra.weight is not in what is expected" in said
    assert "model.layers.*.mlp.gate_proj.weight" not in said


def test_a_file_of_another_class_is_said_beside_departures() -> None:
    judged = beside(stored(gpt2), llama())
    assert judged.remarks == ("the file is of GPT2LMHeadModel",)
    assert str(judged).endswith("\n  note: the file is of GPT2LMHeadModel")
    assert not beside(stored(gpt2), not_shrunk()).remarks
    same = beside(stored(gpt2).replace("GPT2LMHeadModel", "Mine"), gpt2())
    assert (same.agrees, same.remarks) == (True, ())


def test_a_layer_that_a_person_has_approved_is_not_named_again() -> None:
    def odd() -> Made:
        model, batch = llama()
        vars(model.model.layers[3].input_layernorm)["variance_epsilon"] = 1e-9
        return model, batch

    file = stored(odd)
    assert re.search(r"epsilon = \[1e-06, 1e-06, 1e-06, 1e-09\]", file)
    assert beside(file, odd()).agrees
    said = str(beside(stored(llama), odd()))
    assert (
        "layer 4 (model.layers.3), attention output: ε of the norms is 10⁻⁹, expected 10⁻⁶" in said
    )
    assert said.count("model.layers.3") == 2  # in the sentence and in its line


def test_expect_is_what_the_class_says() -> None:
    model, batch = wide_output()
    start = ex.expect(model)
    assert isinstance(start, ex.Start)
    assert start.tables["std"]["model.layers.*.self_attn.o_proj.weight"] == pytest.approx(
        0.02, 0.05
    )
    judged = verdict("class", expectation("class"), model, batch)
    assert str(judged).startswith("LlamaForCausalLM does not start as its class says: layer 3 ")
    assert verdict("class", None, *llama()).agrees
    with pytest.raises(ValueError, match="model must have a config that its class is built from"):
        ex.expect(nn.Linear(2, 2))


def test_expect_leaves_the_random_state() -> None:
    model, batch = llama()
    before = torch.random.get_rng_state()
    ex.expect(model, batch)
    assert torch.equal(torch.random.get_rng_state(), before)


def frozen_out(model: nn.Module) -> torch.optim.Optimizer:
    """An optimizer without the embeddings."""
    names = [name for name, _ in model.named_parameters() if "embed" not in name]
    return torch.optim.SGD([model.get_parameter(name) for name in names])


def test_tests_from_outside() -> None:
    model, batch = llama()
    before = torch.random.get_rng_state()
    held = torch.optim.SGD(model.parameters())
    assert verdict("class", None, model, batch, outside=True, optimizer=held).agrees
    assert torch.equal(torch.random.get_rng_state(), before)
    judged = verdict("class", None, model, batch, outside=True, optimizer=frozen_out(model))
    assert [row.words for row in judged.departures] == [
        "model.embed_tokens.weight trains, and the optimizer does not hold it"
    ]


@pytest.mark.parametrize("plant", [plant for plant in PLANTS if plant.outside])
def test_a_test_from_outside_fails(plant: Plant) -> None:
    model = made(plant.model, 0)
    expected = Start.of(model, *probed(model, TOKENS))
    plant.change(model)
    judged = verdict("start.toml", expected, model, TOKENS, outside=True)
    assert any(plant.named in row.words for row in judged.departures), str(judged)


def odd_layer() -> Made:
    """A layer unlike its siblings, with a layer norm of the design's kind."""
    model, batch = llama()
    vars(model.model.layers[3].input_layernorm)["variance_epsilon"] = 1e-9
    return model, batch


def test_a_file_and_a_verdict_are_the_same_in_every_language(
    mine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (mine / "start.toml").write_text(stored(gpt2), encoding="utf-8")
    cases = [("bad", "start.toml"), ("bad", "gpt2"), ("odd", "llama3")]

    def said(locale: str) -> list[str]:
        """The file, its titles included, and all that the check prints and reports."""
        monkeypatch.setenv("LC_ALL", locale)
        assert main(["probe", "mine:good", "--write", f"{locale}.toml"]) == 0
        rows = [(mine / f"{locale}.toml").read_text(encoding="utf-8")]
        for name, expect in cases:
            arguments = ["--expect", expect, "--outside", "--report", "a.json", "--github"]
            assert main(["probe", f"mine:{name}", *arguments]) == 1
            rows += [capsys.readouterr().out, (mine / "a.json").read_text(encoding="utf-8")]
            rows.append((mine / "a.svg").read_text(encoding="utf-8"))
        return rows

    assert said("zh_CN.UTF-8") == said("C.UTF-8")


def test_a_process_in_another_language_writes_the_same_file(mine: Path) -> None:
    """Where the first sentence that it reads is Chinese."""
    paths = ":".join([str(mine), *filter(None, sys.path)])
    subprocess.run(
        [sys.executable, "-m", "explorer", "probe", "mine:good", "--write", "start.toml"],
        cwd=mine,
        check=True,
        env={"PYTHONPATH": paths, "LC_ALL": "zh_CN.UTF-8"},
    )
    assert (mine / "start.toml").read_text(encoding="utf-8") == stored(gpt2)


# For other programs.


def test_a_report_is_of_its_schema() -> None:
    for judged in (
        beside(stored(gpt2), gpt2()),
        beside(stored(gpt2), not_shrunk()),
        verdict("gpt2", expectation("gpt2"), *not_shrunk()),
    ):
        data = json.loads(json.dumps(report(judged), allow_nan=False))
        jsonschema.validate(data, SCHEMA)
        assert data["starts"] == (not data["departures"]) == judged.agrees
    row = next(row for row in report(beside(stored(gpt2), not_shrunk()))["departures"])
    assert (row["site"], row["layer"], row["table"]) == ("W_O", 0, "std")
    assert row["factor"] == pytest.approx(8**0.5, rel=0.05)


def test_workflow_commands_and_summary() -> None:
    judged = beside(stored(gpt2), not_shrunk())
    lines = [*workflow_commands(judged)]
    assert len(lines) == len(judged.departures)
    assert re.match(
        r"::error file=start\.toml,line=\d+,title=not as start\.toml says::W_O \(.+\): standard",
        lines[0],
    )
    table = summary(judged)
    assert table.startswith("### GPT2LMHeadModel does not start as start.toml says: W\\_O")
    assert table.count("\n| ") == len(judged.departures) + 1
    assert "| 0.0201 | 0.00707 | 2.84 |" in table


def test_the_chart_has_a_curve_and_what_is_expected_of_each_site() -> None:
    for judged in (
        beside(stored(gpt2), not_shrunk()),
        verdict("gpt2", expectation("gpt2"), *gpt2()),
    ):
        root = ElementTree.fromstring(chart(judged))  # noqa: S314 - our own
        lines = [node for node in root.iter() if node.tag.endswith("polyline")]
        assert len(lines) == 6
        assert sum("stroke-dasharray" in line.attrib for line in lines) == 3
        assert len([node for node in root.iter() if node.tag.endswith("circle")]) == 12


# From the command line, and from pytest.


CODE = """
import test_starts as here
good, bad, infinite = here.gpt2, here.not_shrunk, here.infinite
odd = here.odd_layer
"""


def test_written_once_and_compared_ever_after(
    mine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["probe", "mine:good", "--write", "start.toml"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["probe", "mine:good", "--expect", "start.toml"]) == 0
    assert capsys.readouterr().out == "GPT2LMHeadModel starts as start.toml says.\n"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(mine / "summary.md"))
    arguments = ["--expect", "start.toml", "--report", "report.json", "--github"]
    assert main(["probe", "mine:bad", *arguments]) == 1
    out = capsys.readouterr().out
    assert "  start.toml:" in out
    assert "\n::error file=start.toml,line=" in out
    assert json.loads((mine / "report.json").read_text())["starts"] is False
    assert (mine / "report.svg").read_text().startswith("<svg")
    assert (mine / "summary.md").read_text().startswith("### GPT2LMHeadModel does not start")
    assert main(["probe", "mine:good", "--report", "report.json"]) == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--write", "start.toml"], "expect and write must be two files; got 'start.toml'"),
        (["--write", "link.toml"], "expect and write must be two files; got 'link.toml'"),
        (["--json", "x/../start.toml"], "expect and json must be two files; got 'x/../start.toml'"),
        (["--report", "start.toml"], "report must end with .json; got 'start.toml'"),
        (["--report", "report.svg"], "report must end with .json; got 'report.svg'"),
        (
            ["--report", "a.json", "--html", "a.svg"],
            "html and the report's chart must be two files; got 'a.svg'",
        ),
    ],
)
def test_no_file_is_overwritten_by_another(
    mine: Path, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (mine / "start.toml").write_text(stored(gpt2), encoding="utf-8")
    (mine / "link.toml").symlink_to("start.toml")
    (mine / "x").mkdir()
    files = {*mine.iterdir()}
    assert main(["probe", "mine:bad", "--expect", "start.toml", *arguments]) == 2
    assert capsys.readouterr().err == f"explorer: {complaint}\n"
    assert (mine / "start.toml").read_text(encoding="utf-8") == stored(gpt2)
    assert {*mine.iterdir()} - files <= {mine / "__pycache__"}


def test_a_report_does_not_overwrite_the_design(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    design = ex.preset("gpt2").to_json()
    (mine / "design.json").write_text(design, encoding="utf-8")
    arguments = ["--expect", "design.json", "--report", "./design.json"]
    assert main(["probe", "mine:bad", *arguments]) == 2
    assert "expect and report must be two files; got 'design.json'" in capsys.readouterr().err
    assert (mine / "design.json").read_text(encoding="utf-8") == design


def test_a_start_that_is_renewed_is_said(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (mine / "start.toml").write_text("", encoding="utf-8")
    assert main(["probe", "mine:good", "--write", "start.toml"]) == 0
    assert capsys.readouterr().out == "wrote start.toml, which was there before\n"
    assert (mine / "start.toml").read_text(encoding="utf-8") == stored(gpt2)


def test_a_start_that_is_not_finite_is_not_stored(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", "mine:infinite", "--write", "start.toml"]) == 2
    words = "a start that is stored must be finite; transformer.h.1.mlp.c_fc.weight is not"
    assert capsys.readouterr().err == f"explorer: {words}\n"
    code = TESTS.format(name="infinite", expect="start.toml")
    (mine / "test_mine.py").write_text(code, encoding="utf-8")
    assert words in run_pytest(mine, "--write-starts").stdout
    assert not (mine / "start.toml").exists()


TESTS = """
import mine

def test_start(explorer_start):
    explorer_start(*mine.{name}(), expect={expect!r})
"""


@pytest.mark.parametrize(
    ("name", "expect", "code", "words"),
    [
        ("good", "gpt2", 0, "1 passed"),
        ("good", "class", 0, "1 passed"),
        ("good", "starts/absent.toml", 1, "starts/absent.toml is not there: pytest --write-starts"),
        ("bad", "starts/gpt2.toml", 1, "starts/gpt2.toml:6"),
    ],
)
def test_the_fixture(mine: Path, name: str, expect: str, code: int, words: str) -> None:
    (mine / "starts").mkdir()
    (mine / "starts" / "gpt2.toml").write_text(stored(gpt2), encoding="utf-8")
    (mine / "test_mine.py").write_text(TESTS.format(name=name, expect=expect), encoding="utf-8")
    done = run_pytest(mine)
    assert done.returncode == code, done.stdout
    assert words in done.stdout
    assert "Traceback" not in done.stdout


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """pytest in a folder, in a process of its own, with the plug-in alone."""
    plugin = ["-p", "explorer_models.pytest_start", "-p", "no:cacheprovider", "--rootdir", "."]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": ":".join([str(folder), *filter(None, sys.path)]),
        },
    )


def test_the_fixture_stores_a_start(mine: Path) -> None:
    code = TESTS.format(name="good", expect="starts/new.toml")
    (mine / "test_mine.py").write_text(code, encoding="utf-8")
    done = run_pytest(mine, "--write-starts", "-rs")
    assert "wrote starts/new.toml: review it, and commit it" in done.stdout
    assert (mine / "starts" / "new.toml").read_text(encoding="utf-8") == stored(gpt2)


def test_departures_need_nothing_but_two_starts() -> None:
    model, ids = gpt2()
    profile, stack = probed(model, ids)
    own = Start.of(model, profile, stack)
    assert departures(Start({"": {}}), own, profile) == []
    assert departures(own, own, profile) == []
