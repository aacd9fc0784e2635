"""The weights that a file draws are those of its design: their variances, and what the signal makes
of them."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exported import imported

from explorer import Config, measure, preset, torch_code
from explorer.model import Transformer
from explorer.schemes.data import READOUTS
from explorer.schemes.residual import LAST, RESIDUALS
from explorer.schemes.scale import SCALE_RULES
from explorer.training.optimize import kind_of

SIZES = {"n_layers": 4, "d_model": 64, "n_heads": 4, "n_ctx": 16, "n_seeds": 8}
TEXT = {"input": "text", "loss": "next_token"}
DRAWN: list[dict[str, Any]] = [
    *({"scale_rule": name} for name in SCALE_RULES),
    *({"residual": name} for name in RESIDUALS if name != "admin_profiled"),
    {"distribution": "uniform"},
    {"distribution": "truncated_normal", "scale_rule": "t5", "n_kv_heads": 2},
    {
        "bias_variance": 1 / 3,
        "biases": "all",
        "n_kv_heads": 1,
        "scale_rule": "torch_default",
        "mlp": "gated",
    },
    {
        "parametrization": "ntk",
        "attention_variance": 0.3,
        "mlp_variance": 3.0,
        "bias_variance": 2.0,
    },
    {"residual": "fixup", "mlp": "gated", "init_variance": 0.5},
    {"sink": "learned", "attention_gate": "head"},
    {**TEXT, "parametrization": "mup"},
    {**TEXT, "readout": "tied", "input_second_moment": 8e-4},
    {**TEXT, "readout": "tied_scaled", "position": "rotary"},
    {"residual": "layer_scale", "n_layers": 20},
]


@pytest.mark.parametrize("choices", DRAWN, ids=str)
def test_second_moments_of_every_parameter(choices: dict[str, Any], tmp_path: Path) -> None:
    """Against the model under study, over all layers, to five standard errors; exactly, where
    nothing is drawn."""
    config = Config(
        **SIZES | choices | ({"norm_placement": "post"} if "deepnorm" in str(choices) else {})
    )
    torch.manual_seed(0)
    theirs = imported(torch_code(config), tmp_path).Transformer()
    found, expected = by_name(theirs), by_name(Transformer(config, 0))
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert len(found[name]) == len(values)
        error = 5 * math.sqrt(values.square().var() / len(values) * 2)
        assert abs(found[name].square().mean() - values.square().mean()) <= error + 1e-12, name
        # a distribution without tails has none in the file
        assert (
            name.startswith(("b_", "E", "P", "sink"))
            or found[name].abs().max() <= 1.5 * values.abs().max()
        ), name


EXACT: list[dict[str, Any]] = [
    *({"scale_rule": name, "n_kv_heads": heads} for name in SCALE_RULES for heads in (0, 2)),
    *(
        {"residual": name, "mlp": mlp}
        for name in RESIDUALS
        if name != "admin_profiled"
        for mlp in ("plain", "gated")
    ),
    *(
        {**TEXT, "readout": name, "position": position}
        for name in READOUTS
        for position in ("none", "rotary")
    ),
    {**TEXT, "parametrization": "mup"},
    {**TEXT, "parametrization": "completep"},
    {
        "attention_gate": "coordinate",
        "attention_variance": 0.3,
        "mlp_variance": 3.0,
        "init_variance": 0.7,
    },
]


@pytest.mark.parametrize("choices", EXACT, ids=str)
def test_every_standard_deviation(
    choices: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all noise is 1, a matrix's entries are its standard deviation: each formula gives its
    row's number."""
    config = Config(**SIZES | choices, input_second_moment=0.04)
    monkeypatch.setattr(torch, "randn", lambda *shape: torch.ones(*shape, dtype=torch.float64))
    model = imported(torch_code(config), tmp_path).Transformer()
    expected = {name: math.sqrt(matrix.variance) for name, matrix in config.design.matrices.items()}
    if config.loss == "next_token":
        expected["E" if config.design.tied else "W_U"] = math.sqrt(config.design.readout_variance)
    found = by_name(model)
    assert expected.keys() == {
        name for name in found if name.startswith("W_")
    } | expected.keys() & {"E"}
    for name, value in expected.items():
        by_layer = config.design.last if name in LAST else (1.0,)
        ends = [value * math.sqrt(end(by_layer)) for end in (min, max)]
        assert [float(found[name].min()), float(found[name].max())] == pytest.approx(
            ends, rel=1e-9
        ), name


def by_name(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """All numbers of a kind of parameter together."""
    found: dict[str, list[torch.Tensor]] = {}
    for path, parameter in model.named_parameters():
        found.setdefault(path.split(".")[-1], []).append(parameter.detach().flatten().double())
    return {name: torch.cat(parts) for name, parts in found.items()}


ALONE = """
import json, sys
sys.modules["explorer"] = None  # from here on, its import fails
import torch
found = {}
for name in sys.argv[1:]:
    space = {"__name__": name}
    exec(compile(open(name + ".py", encoding="utf-8").read(), name, "exec"), space)
    found[name] = []
    for seed in range(16):
        torch.manual_seed(seed)
        model, x, seen = space["Transformer"](), torch.load(name + ".pt")[seed], []
        for layer in model.layers:
            layer.register_forward_hook(lambda layer, given, out: seen.append(float(out.square().mean())))
        with torch.no_grad():
            model(x)
        found[name].append(seen)
assert not [name for name in sys.modules if name.startswith("explorer.")]
print(json.dumps(found))
"""


def test_the_signal_of_files_that_run_alone(tmp_path: Path) -> None:
    """Second moments after every layer, where `explorer` cannot be imported: as measured, within
    the seeds' spread."""
    sizes = SIZES | {"n_seeds": 16}
    configs = {name: preset(name, **sizes) for name in ("llama3", "layernorm_scaling", "gpt2")}
    configs["wrong"] = configs["llama3"].replace(init_variance=1.2)
    for name, config in configs.items():
        (tmp_path / f"{name}.py").write_text(torch_code(config), encoding="utf-8")
        inputs = torch.randn(
            16, 2, config.n_ctx, config.d_model, generator=torch.Generator().manual_seed(3)
        )
        torch.save(inputs * math.sqrt(config.input_second_moment), tmp_path / f"{name}.pt")
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *configs],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    configs["wrong"] = configs["llama3"]
    for name, moments in json.loads(done.stdout).items():
        found, expected = np.array(moments), measure(configs[name])["second_moment", "resid_post"]
        error = np.hypot(found.std(0, ddof=1), expected.std(0, ddof=1)) / math.sqrt(16)
        assert found.shape == expected.shape == (16, 4)
        same = (abs(found.mean(0) - expected.mean(0)) <= 4 * error).all()
        assert same == (name != "wrong"), (name, found.mean(0), expected.mean(0), error)


@pytest.mark.parametrize(
    "choices",
    [{"parametrization": "mup"}, {"parametrization": "completep", "base_depth": 3}],
    ids=str,
)
def test_adams_rates(choices: dict[str, Any], tmp_path: Path) -> None:
    """Each parameter's multiples of the learning rate and of ε are those that a race has."""
    config = Config(**SIZES | {"d_model": 128, "n_layers": 6} | choices, **TEXT, bias_variance=1.0)
    module = imported(torch_code(config), tmp_path)
    model = module.Transformer()
    paths = {id(parameter): path for path, parameter in model.named_parameters()}
    seen = []
    for group in module.adam_groups(model, lr=0.5, eps=1e-6):
        for parameter in group["params"]:
            kind = kind_of(paths[id(parameter)], parameter)
            seen.append(kind)
            assert group["lr"] == pytest.approx(0.5 * config.design.factors("adam")[kind])
            assert group["eps"] == pytest.approx(1e-6 * config.design.factors("epsilon")[kind])
    assert len(seen) == len(paths)
    assert {*seen} == {"input", "hidden", "vector", "output"}
    assert "adam_groups" not in torch_code(config.replace(parametrization="standard"))
