"""`explorer probe`: a person's own model from the command line, as JSON or as a page that loads
nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import explorer
from explorer.__main__ import main
from explorer.config import Config
from explorer.figures import BY_CHOICE, FIGURES
from explorer.figures.pages import page
from explorer.profile import Profile

CODE = """
import torch
from torch import nn

def model():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)

def make():
    return model(), torch.randn(2, 6, 16)

def with_loss():
    return model(), torch.randn(2, 6, 16), lambda out: out.square().mean()

def alone():
    return model()

def empty():
    return model(), torch.randn(2, 0, 16)

def wrong():
    return model(), torch.randn(2, 6, 17)

def broken():
    return 1 / 0
"""


def test_json_on_standard_output(mine: Path) -> None:
    """As a shell sees it: exit code, standard output, standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "explorer", "probe", "mine:make"],
        cwd=mine,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(Path(explorer.__file__).parent.parent)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    profile = Profile.from_json(done.stdout)
    assert profile.model == "TransformerEncoder"
    assert profile.layers == ("layers.0", "layers.1", "layers.2")
    assert profile["second_moment", "resid_post"].shape == (1, 3)


def test_a_page(mine: Path) -> None:
    assert main(["probe", "mine:make", "--html", "page.html"]) == 0
    html = (mine / "page.html").read_text(encoding="utf-8")
    assert html.count("plotly.js v") == 1
    # of a readout by layer, which only our model shows
    unread = {
        "output_logit_rms",
        "output_logit_largest",
    }
    assert html.count('class="plotly-graph-div"') == len(
        {*FIGURES, *BY_CHOICE, "weight_variance"} - unread
    )
    assert "<h2>3 layers: layers.0 … layers.2</h2>" in html
    assert not re.search(r'<(script|link|img)[^>]*(src|href)="?(https?:)?//', html)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("mine",), "factory must be package.module:function; got 'mine'"),
        (("mine:absent",), "factory must be a function; mine has no absent"),
        (
            ("not_there:make",),
            "factory must be importable; not_there is not: ModuleNotFoundError: No module named 'not_there'",
        ),
        (
            ("mine:broken",),
            "factory must run without arguments; mine:broken raised ZeroDivisionError: division by zero",
        ),
        (
            ("mine:alone",),
            "factory must return (model, batch) or (model, batch, loss); mine:alone returned Transformer",
        ),
        (("mine:empty",), "batch must hold at least one token; got [(2, 0, 16)]"),
        (
            ("mine:wrong",),
            "model must run on its batch; it raised AssertionError: was expecting embedding dimension of 16",
        ),
        (
            ("mine:make", "--json", "no/such/folder.json"),
            "file must be one that can be written; got 'no/such/folder.json' (No such file or directory)",
        ),
        (
            ("mine:make", "--json", "a\0b"),
            r"file must be one that can be written; got 'a\x00b' (no path has the character NUL)",
        ),
    ],
)
def test_what_is_wrong_is_one_line(
    mine: Path, arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["probe", *arguments])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith(f"explorer: {complaint}")
    assert err.count("\n") == 1


def test_a_page_escapes_names_and_shows_theory_and_other_stacks() -> None:
    values = {
        ("second_moment", site): np.ones((1, length))
        for site, length in (("embed", 1), ("resid_mid", 2), ("resid_post", 2))
    }
    values |= {
        (name, site): value
        for (_, site), value in values.items()
        for name in ("activation_gradient", "token_correlation")
    }
    inner = Profile("measured", values, model="<i>inner</i>", layers=("a<b", "c"), seeds=(0,))
    outer = Profile(
        "measured",
        values,
        model="<b>mine</b>",
        layers=("x.0", "x.1"),
        seeds=(0,),
        twin=Config(n_layers=2, d_model=16),
        notes={"logit_std": "1 < 2"},
        others=(inner,),
    )
    html = page(outer)
    assert "<b>mine" not in html.split("<script")[0]
    assert "&lt;b&gt;mine" in html
    assert "<h2>2 layers: a&lt;b … c</h2>" in html
    assert "logit_std: 1 &lt; 2." in html
    assert "nearest design: Config(" in html
    assert "<i>inner</i>" not in html
    assert html.count("plotly.js v") == 1
