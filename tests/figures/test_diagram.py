"""The diagram of a layer: what it shows is what the model under study does, for every design."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
import torch.nn.functional as F

import explorer as ex
from explorer.config import Config
from explorer.figures.diagram import Part, branches, diagram, layer_words
from explorer.model import batch
from explorer.model.transformer import Transformer
from explorer.numbers import number
from explorer.schemes.placement import NORMS, PLACEMENTS
from explorer.schemes.preset import PRESETS
from explorer.vocabulary import geometric_mean

DESIGNS = {name: ex.preset(name) for name in PRESETS}
SMALL = {
    "n_layers": 4,
    "d_model": 32,
    "n_heads": 2,
    "head_size": 0,
    "n_kv_heads": 0,
    "n_ctx": 8,
    "batch_size": 1,
}


def drawn(config: Config, layer: int) -> ElementTree.Element:
    return parsed(diagram(config, layer, ex.predict(config), Config()))


def parsed(svgs: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<div>{svgs}</div>")  # noqa: S314 - our own


def parts(config: Config, layer: int) -> list[Part]:
    return [
        part
        for branch in branches(config, layer)
        for part in (*branch.parts, *branch.skip, *branch.after)
    ]


@pytest.mark.parametrize("name", DESIGNS)
def test_each_part_opens_a_choice_that_matters(name: str) -> None:
    config = DESIGNS[name]
    for layer in {1, config.n_layers}:
        parts = drawn(config, layer).findall(".//g")
        assert parts
        assert all(
            config.matters(part.attrib["data-opens"]) and part.attrib["aria-label"]
            for part in parts
        )


@pytest.mark.parametrize("name", DESIGNS)
def test_parts_stand_beside_each_other(name: str) -> None:
    config = DESIGNS[name]
    for layer in {1, config.n_layers}:
        for svg in drawn(config, layer).findall("svg"):
            boxes = sorted(
                (float(box.attrib["y"]), float(box.attrib["x"]), float(box.attrib["width"]))
                for box in svg.iter("rect")
            )
            ends = [(y, x + width) for y, x, width in boxes]
            assert all(
                left <= x
                for (above, left), (y, x, _) in zip(ends, boxes[1:], strict=False)
                if above == y
            )
            assert all(end <= float(svg.attrib["width"]) for _, end in ends)


@pytest.mark.parametrize("name", [*PLACEMENTS, "qk_norm"])
def test_it_has_the_norms_of_the_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = {"qk_norm": True} if name == "qk_norm" else {"norm_placement": name}
    config, calls = Config(**SMALL, **choice), []
    divide = F.layer_norm
    monkeypatch.setattr(
        F, "layer_norm", lambda *inputs, **options: calls.append(1) or divide(*inputs, **options)
    )
    model = Transformer(config, seed=0)
    x = model.embed(batch.draw(config, seed=0))
    for layer, module in enumerate(model.layers, start=1):
        calls.clear()
        x, _ = module(x)
        labels = [part.label for part in parts(config, layer)]
        norms = sum(label.startswith(NORMS["layer"].short) for label in labels) + 2 * labels.count(
            "QK-norm"
        )
        assert norms == len(calls), (layer, labels)


def test_it_has_the_factors_of_the_stream_and_of_the_branches() -> None:
    keel = Config(**SMALL, norm_placement="keel")
    assert [part.label for part in branches(keel, 2)[1].skip] == ["× 8"]
    assert [part.label for part in branches(Config(residual="inverse_depth"), 3)[0].parts][
        -1
    ] == "× 0.0417"
    assert [part.label for part in branches(Config(alpha=0.5), 3)[0].parts][-1] == "α = 0.5"
    scaled = branches(Config(residual="scaled_skip", alpha=0.5), 3)[0]
    assert [part.label for part in scaled.skip] == ["α = 0.5"]
    assert "α" not in scaled.parts[-1].label
    assert not branches(Config(residual="absent"), 3)[0].has_stream


def test_its_numbers_are_the_second_moments_of_the_profile() -> None:
    config = Config(n_layers=3, n_seeds=2, d_model=64, n_heads=1)
    measured = ex.measure(config)
    svgs = parsed(diagram(config, 2, measured)).findall("svg")
    texts = [
        text.text for svg in svgs for text in svg.iter("text") if "number" in text.attrib["class"]
    ]
    at = {
        site: number(float(geometric_mean(measured["second_moment", site])[index]))
        for site, index in (("resid_mid", 1), ("attn_out", 1), ("mlp_out", 1), ("resid_post", 1))
    }
    before = number(float(geometric_mean(measured["second_moment", "resid_post"])[0]))
    assert texts == [
        f"signal {before}",
        f"→ {at['resid_mid']}",
        f"adds {at['attn_out']}",
        f"→ {at['resid_post']}",
        f"adds {at['mlp_out']}",
    ]


def test_what_differs_from_another_design_is_marked() -> None:
    config = Config(attention_scale="none", norm_placement="peri")
    svg = parsed(diagram(config, 5, None, Config()))
    marked = {
        part.attrib["data-opens"] for part in svg.iter("g") if "ex-changed" in part.attrib["class"]
    }
    assert marked == {"attention_scale", "norm_placement"}
    assert "ex-changed" not in diagram(config, 5, None, config)


def test_a_layer_without_attention_is_one_drawing() -> None:
    assert diagram(Config(attention="none"), 1).count("<svg") == 1
    assert diagram(Config(), 1).count("<svg") == 2


def test_a_size_that_is_not_finite_is_said_to_be_so() -> None:
    healthy = ex.predict(Config(n_layers=4, n_ctx=8))
    for value in (float("nan"), float("inf")):
        values = dict(healthy.values)
        for site in ("resid_post", "mlp_out"):
            values["second_moment", site] = np.full((1, 4), value)
        drawn = parsed(diagram(healthy.config, 4, ex.Profile("measured", values, healthy.config)))
        texts = {text.text or "" for text in drawn.findall(".//text")}
        assert {"→ not finite", "adds not finite"} <= texts
        assert not any("nan" in text or "inf" in text for text in texts if "not finite" not in text)


def test_what_a_branch_adds_has_its_factor() -> None:
    config = Config(n_layers=4, n_ctx=8, alpha=0.5)
    profile = ex.predict(config)
    size = float(profile["second_moment", "mlp_out"][0, 1])
    assert f">adds {number(size / 4)}<" in diagram(config, 2, profile)


def test_a_layer_is_said_in_words() -> None:
    config = Config(n_layers=4, n_ctx=8)
    profile = ex.predict(config)
    at = {
        site: number(float(profile["second_moment", site][0, 1]))
        for site in ("attn_out", "mlp_out", "resid_post")
    }
    before = number(float(profile["second_moment", "resid_post"][0, 0]))
    assert layer_words(config, 2, profile) == (
        f"Layer 2 of 4. Attention adds {at['attn_out']} and MLP adds {at['mlp_out']}; "
        f"signal {before} → {at['resid_post']}"
    )
    assert layer_words(config, 2, None) == "Layer 2 of 4"
