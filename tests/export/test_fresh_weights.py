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
from explorer.schemes.distribution import DISTRIBUTIONS
from explorer.schemes.residual import RESIDUALS
from explorer.schemes.scale import SCALE_RULES
from explorer_race.optimize import kind_of

SIZES = {"n_layers": 4, "d_model": 64, "n_heads": 4, "n_ctx": 16, "n_seeds": 8}
TEXT = {"input": "text", "loss": "next_token"}
CHOICES: list[dict[str, Any]] = [
    *({"scale_rule": name, "n_kv_heads": 2} for name in SCALE_RULES),
    *({"residual": name, "mlp": "gated"} for name in RESIDUALS),
    *({"distribution": name, "scale_rule": "t5"} for name in DISTRIBUTIONS),
    *({**TEXT, "readout": name, "position": "rotary"} for name in READOUTS),
    {**TEXT, "readout": "tied"},
    {**TEXT, "parametrization": "mup"},
    {"parametrization": "ntk", "attention_variance": 0.3, "mlp_variance": 3.0},
    {"bias_variance": 1 / 3, "biases": "all", "attention_gate": "coordinate"},
    {"sink": "learned", "init_variance": 0.7},
]


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_every_parameter_is_drawn_by_its_rule(
    choices: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all noise is ½, entries are what the distribution makes of it, times the design's σ."""
    if choices.get("residual") == "admin_profiled":
        choices = choices | {"norm_placement": "post"}
    config = Config(**SIZES | choices, input_second_moment=0.04)
    design = config.design

    def half(*shape: int) -> torch.Tensor:
        return torch.full(shape, 0.5, dtype=torch.float64)

    monkeypatch.setattr(torch, "randn", half)
    matrix = float(DISTRIBUTIONS[config.distribution].transform(half(1)))
    expected = {name: matrix * row.stored for name, row in design.matrices.items()}
    expected |= {
        name.replace("W", "b"): math.sqrt(variance) / 2 for name, variance in design.biases.items()
    }
    expected |= {"E": 0.5, "P": 0.5, "sink": 0.01, "alpha": design.branches[0]}
    readout = math.sqrt(design.readout_variance) / 2
    expected |= {"E": readout} if design.tied else {"W_U": readout}
    model = imported(torch_code(config), tmp_path).Transformer()
    assert {*dict(model.named_parameters())} == {*dict(Transformer(config, 0).named_parameters())}
    for path, parameter in model.named_parameters():
        *place, name = path.split(".")
        layer = int(place[1]) if place else 0
        entry = expected[name] * math.sqrt(design.factors_by_layer(name)[layer])
        # α is stored in single precision
        np.testing.assert_allclose(
            parameter.detach(), entry, rtol=1e-9 if name != "alpha" else 1e-7
        )


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
