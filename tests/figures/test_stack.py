"""The picture of the stack: what it shows is in the profile, for every design and depth."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

import explorer as ex
from explorer.config import Config
from explorer.figures.diagram import diagram
from explorer.figures.palette import DIVERGING, diverging
from explorer.figures.stack import BRANCH, GRADIENT, SIGNAL, Band, description, places, stack
from explorer.profile import Profile
from explorer.schemes.preset import PRESETS
from explorer.vocabulary import Array, geometric_mean

SHALLOW = Config(n_layers=4, d_model=64, n_ctx=8, n_seeds=2)


def views(config: Config, profile: Profile | None = None) -> dict[str, ElementTree.Element]:
    """The pictures by the word of their class: "whole", or "wide" and "narrow"."""
    page = ElementTree.fromstring(f"<div>{stack(config, profile)}</div>")  # noqa: S314 - our own
    pictures = [node for node in page if node.tag == "div"]
    return {node.attrib["class"].rpartition("-")[2]: node for node in pictures}


def named(view: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    """All paths of a class."""
    return [node for node in view.iter("path") if node.get("class") == f"ex-stack-{name}"]


def pieces(view: ElementTree.Element, which: int) -> list[list[float]]:
    """From the left: both ends across and half the thickness at them, of the signal, 0, or the
    gradient, 1."""
    group = view.findall(".//g")[which]
    numbers = [[float(n) for n in re.findall(r"-?[\d.]+", path.attrib["d"])] for path in group]
    return [
        [left, right, (down_left - up_left) / 2, (down_right - up_right) / 2]
        for left, up_left, right, up_right, _, down_right, _, down_left in numbers
    ]


def thickness(band: Band, values: Array, reference: float) -> Array:
    return band.half + band.decade * np.log10(values / reference)


def stream(profile: Profile, statistic: str) -> Array:
    """Values after each half layer, from the input."""
    halves = [profile[statistic, site] for site in ("resid_mid", "resid_post")]
    both = np.stack([geometric_mean(values) for values in halves], axis=1).ravel()
    return np.concatenate([geometric_mean(profile[statistic, "embed"]), both])


def test_bands_are_as_thick_as_the_second_moments_on_a_log_scale() -> None:
    profile = ex.measure(SHALLOW)
    view = views(SHALLOW, profile)["whole"]
    for which, (band, name, last) in enumerate(
        [(SIGNAL, "second_moment", 0), (GRADIENT, "activation_gradient", -1)]
    ):
        values = stream(profile, name)
        expected = thickness(band, values, values[last])
        _, *inner, _ = pieces(view, which)  # beyond them the band goes on as it is at its ends
        assert [piece[2] for piece in inner] == pytest.approx(expected[:-1], abs=0.11)
        assert [piece[3] for piece in inner] == pytest.approx(expected[1:], abs=0.11)
    assert view.attrib["data-origin"] == "measured"


def test_branches_are_as_thick_as_what_they_add() -> None:
    config = SHALLOW.replace(alpha=2)
    profile = ex.predict(config)
    view = views(config, profile)["whole"]
    for kind, site in (("attention", "attn_out"), ("mlp", "mlp_out")):
        widths = [float(arch.attrib["stroke-width"]) for arch in named(view, kind)]
        adds = 4 * profile["second_moment", site][0] / profile["second_moment", "embed"][0]
        assert widths == pytest.approx(2 * thickness(BRANCH, adds, 1.0), abs=0.06)


@pytest.mark.parametrize("n_layers", [17, 28, 29, 200, 1000])
def test_a_deep_stack_is_folded_and_says_so(n_layers: int) -> None:
    config = Config(n_layers=n_layers)
    profile = ex.predict(config)
    for name, view in views(config, profile).items():
        most = {"wide": 24, "narrow": 12}[name]
        drawn = n_layers if n_layers < most + 5 else most  # a fold has room for four layers
        assert len(named(view, "mlp")) == drawn
        words = [span.text for span in view.findall("span")]
        assert words == ([f"{n_layers - drawn} layers"] if n_layers > drawn else [])
        knots = [tuple(map(float, knot.split(":"))) for knot in view.attrib["data-knots"].split()]
        depths, shares = zip(*knots, strict=True)
        assert (depths[0], depths[-1]) == (0, n_layers)
        assert sorted(shares) == list(shares)
        # layers in the fold are drawn, too: the band does not jump over them
        values, points = stream(profile, "second_moment"), places(n_layers, most).points
        expected = np.minimum(thickness(SIGNAL, values[points], values[0]), SIGNAL.most)
        assert [piece[2] for piece in pieces(view, 0)][1:] == pytest.approx(expected, abs=0.11)


def test_a_stack_that_fits_on_a_phone_is_drawn_once() -> None:
    assert list(views(Config(n_layers=16))) == ["whole"]
    assert list(views(Config(n_layers=17))) == ["wide", "narrow"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_where_numbers_are_not_finite_a_band_is_hatched(value: float) -> None:
    profile = ex.predict(SHALLOW)
    values = dict(profile.values)
    for site, layer in (("resid_mid", 3), ("resid_post", 2), ("mlp_out", 2)):
        broken = values["second_moment", site].copy()
        broken[:, layer:] = value
        values["second_moment", site] = broken
    profile = Profile("measured", values, SHALLOW)
    view = views(SHALLOW, profile)["whole"]
    assert len(pieces(view, 0)) == 1 + 5  # up to the middle of layer 3
    hatching, finite = named(view, "hatching")
    assert hatching.attrib["d"]
    assert not finite.attrib["d"]
    assert len(named(view, "mlp")) == 2
    markup = stack(SHALLOW, profile)
    assert "not finite from layer 3" in markup
    assert not re.search(r"\b(nan|inf)\b", markup)


def test_nothing_is_the_thinnest_line() -> None:
    profile = ex.predict(SHALLOW)
    values = dict(profile.values)
    values["second_moment", "resid_post"] = np.zeros((1, 4))
    view = views(SHALLOW, Profile("predicted", values, SHALLOW))["whole"]
    assert pieces(view, 0)[-1][2:] == pytest.approx([0.5, 0.5], abs=0.01)


@pytest.mark.parametrize("name", PRESETS)
def test_each_norm_is_a_dot(name: str) -> None:
    config = ex.preset(name).replace(n_layers=6)
    (dots,) = named(views(config, ex.predict(config))["whole"], "norm")
    design, attends = config.design, config.design.attends
    kinds = [place.norms for place in design.sublayers]
    norms = sum(len(names) for names in (kinds if attends else kinds[1::2]))
    heads = sum("heads" in names for names in kinds[1::2])  # attention alone has them
    assert dots.attrib["d"].count("M") == norms - heads + design.final_norm


def test_the_stream_has_a_gap_where_it_does_not_go_on() -> None:
    gaps = {}
    for residual in ("constant", "absent"):
        config = SHALLOW.replace(residual=residual)
        gaps[residual], _ = named(views(config)["whole"], "gap")
    assert not gaps["constant"].attrib["d"]
    assert gaps["absent"].attrib["d"].count("M") == 8


def test_a_design_without_attention_has_no_branch_of_it() -> None:
    config = SHALLOW.replace(attention="none")
    view = views(config, ex.predict(config))["whole"]
    assert not named(view, "attention")
    assert len(named(view, "mlp")) == 4


def test_parallel_branches_begin_at_the_same_place() -> None:
    config = SHALLOW.replace(stream="parallel")
    view = views(config, ex.predict(config))["whole"]
    begins = [
        [path.attrib["d"].split()[0] for path in named(view, kind)] for kind in ("attention", "mlp")
    ]
    assert begins[0] == begins[1]


def test_without_numbers_it_shows_the_design_alone() -> None:
    view = views(SHALLOW)["whole"]
    assert view.attrib["data-origin"] == "withheld"
    assert {piece[2] for piece in pieces(view, 0)} == {SIGNAL.half}
    assert description(SHALLOW, None) == "4 layers; their numbers are withheld."


def test_it_is_said_in_words() -> None:
    config = Config(n_layers=12)
    assert description(config, ex.predict(config)) == (
        "12 layers, predicted. The signal, mean x², goes from 1 at the input to 19 at the end. The "
        "gradient, mean squared, is 12 × the last layer's at the input."
    )


def test_a_number_that_theory_withdraws_is_not_said_to_be_infinite() -> None:
    """Logits run away here: theory has no gradient, which a draw has."""
    config = Config(norm_placement="none", n_layers=12)
    predicted = ex.predict(config)
    assert "run away" in predicted.notes["activation_gradient"]
    for words in (description(config, predicted), stack(config, predicted)):
        assert "not covered" in words
        assert "not finite" not in words
    assert description(config, predicted).endswith("is not covered at the input.")
    deep = Config(norm_placement="none", n_layers=200)
    drawing = diagram(deep, 200, ex.predict(deep))
    assert "adds not covered" in drawing
    assert "not finite" not in drawing


@pytest.mark.parametrize(
    ("layer", "signal"),
    [(0, "is not finite at the input"), (3, "is 1 at the input and not finite from layer 3")],
)
def test_what_is_not_finite_is_said_in_whole_sentences(layer: int, signal: str) -> None:
    values = dict(ex.predict(SHALLOW).values)
    for site in ("embed", "resid_mid", "resid_post"):
        # the gradient is lost everywhere, the signal from a layer on
        values["activation_gradient", site] = values["activation_gradient", site] * np.nan
        if site != "embed" or layer == 0:
            broken = values["second_moment", site].copy()
            broken[:, max(layer - 1, 0) :] = np.inf
            values["second_moment", site] = broken
    assert description(SHALLOW, Profile("measured", values, SHALLOW)) == (
        f"4 layers, measured. The signal, mean x², {signal}. The gradient, mean squared, is not "
        "finite at the input."
    )


def test_one_layer_is_one_layer() -> None:
    assert description(Config(n_layers=1), None) == "1 layer; their numbers are withheld."


def test_colors_go_from_too_little_over_the_same_to_too_much() -> None:
    assert diverging([-2, -1, 0, 1, 7]) == [DIVERGING[at] for at in (0, 0, 3, 6, 6)]
