"""A script that is taken home gives the numbers of the page, bit for bit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from scripts import SIZE, run

import explorer as ex
from explorer.export import snippet
from explorer.schemes.preset import PRESETS


@pytest.fixture(autouse=True)
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(go.Figure, "show", lambda figure: None)


@pytest.mark.parametrize("name", PRESETS)
def test_a_design_is_written_as_what_it_is(name: str) -> None:
    for config in (ex.preset(name), ex.preset(name, n_layers=3, alpha=0.1, seed=7)):
        assert eval(snippet.design(config), {"ex": ex}) == config  # noqa: S307
    assert snippet.design(ex.preset(name)).startswith(("ex.preset(", "ex.Config("))


def test_the_shorter_call_is_chosen() -> None:
    assert snippet.design(ex.Config()) == "ex.Config()"
    assert snippet.design(ex.preset("gpt2", n_layers=24)) == 'ex.preset("gpt2", n_layers=24)'


@pytest.mark.parametrize("sentence", ['it\'s, as "they" say', "\\n {x} <b>", "我喜欢猫", '"""'])
def test_a_sentence_is_the_same_in_a_script(sentence: str) -> None:
    config = ex.Config(**{**SIZE, "input": "sentence", "sentence": sentence})
    left = run(snippet.explore(config, {}))
    assert left["design"] == config
    pd.testing.assert_frame_equal(
        left["measured"].frame(), ex.measure(config).frame(), check_exact=True
    )


def test_floats_are_the_same_floats() -> None:
    for alpha, variance in np.random.default_rng(0).uniform(0.01, 4, (100, 2)).tolist():
        config = ex.Config(alpha=alpha, init_variance=variance)
        assert eval(snippet.design(config), {"ex": ex}) == config  # noqa: S307


def test_the_explore_page(capsys: pytest.CaptureFixture[str]) -> None:
    config, pin = ex.preset("post_ln", **SIZE), ex.preset("gemma2", **SIZE, alpha=1 / 3)
    names = ["a \"b\"\n'c' \\", "import os; os.abort()"]
    left = run(snippet.explore(config, {names[0]: pin, names[1]: config}, "kurtosis", (2, 1)))
    for got, expected in (
        (left["measured"], ex.measure(config)),
        (left["predicted"], ex.predict(config)),
        (left["pinned"][names[0]], ex.measure(pin)),
    ):
        pd.testing.assert_frame_equal(got.frame(), expected.frame(), check_exact=True)
    np.testing.assert_array_equal(
        left["measured"].pattern, ex.measure(config, pattern_of=(2, 1)).pattern
    )
    assert list(left["pins"]) == names
    assert "Healthy: signal" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("statistic", "layer", "call"),
    [
        ("attention_received", 2, '"attention_received", predicted, layer=2)'),
        ("attention_received", 0, '"attention_received", predicted)'),
        ("kurtosis", 2, '"kurtosis", predicted)'),
    ],
)
def test_the_layer_of_a_chart_by_position(
    monkeypatch: pytest.MonkeyPatch, statistic: str, layer: int, call: str
) -> None:
    shown: list[go.Figure] = []
    monkeypatch.setattr(go.Figure, "show", lambda figure: shown.append(figure))
    code = snippet.explore(ex.Config(**SIZE), {}, statistic, layer=layer)
    assert f"measured.plot({call}.show()" in code
    left = run(code)
    dots = next(trace for trace in shown[0].data if trace.mode == "markers")
    drawn = (
        left["measured"][statistic, "pattern"][:, layer - 1]
        if statistic == "attention_received"
        else left["measured"].stream(statistic)[1]
    )
    np.testing.assert_allclose(dots.y, drawn.mean(0), rtol=1e-5)


def test_what_is_usual_is_not_written() -> None:
    code = snippet.explore(ex.Config(**SIZE), {}, "attention_received")
    assert "measured = ex.measure(design)\n" in code
    assert 'measured.plot("attention_received", predicted).show()' in code
