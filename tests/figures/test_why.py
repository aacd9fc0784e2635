"""The line below a chart against the predicted numbers of the design that is drawn, read from the
line itself."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from functools import cache
from string import Formatter

import numpy as np
import pytest

from explorer.config import Config, ConfigError, preset
from explorer.figures.why import LAWS, SENTENCES, WHYS, Why, why
from explorer.numbers import number
from explorer.profile import Profile
from explorer.schemes.placement import NORMS, PLACEMENTS
from explorer.schemes.preset import PRESETS
from explorer.schemes.residual import RESIDUALS, STREAMS
from explorer.theory import predict

VARIANTS = (
    {"alpha": 0.3},
    {"alpha": 0.0},
    {"alpha": 2.0},
    {"norm_epsilon": 0.5},
    {"init_variance": 1e-3},
    {"attention": "none"},
    {"layer_weights": "copied"},
    {"layer_weights": "shared"},
    {"input_second_moment": 1e-8},
    {"causal": True},
    {"attention_scale": "none"},
    {"sink": "zero"},
    {"parametrization": "completep"},
    {"parametrization": "ntk"},
    {"qk_norm": True},
    {"logit_cap": 5.0},
    {"value_residual": True},
    {"residual_attention": "scores"},
    {"bias_variance": 0.333},
    {"n_layers": 1},
    {"position": "rotary"},
    {"attention_scale": "ssmax"},
    *({"norm": name} for name in NORMS),
    *({"stream": name} for name in STREAMS),
)


def configs() -> Iterator[Config]:
    """Every placement with every residual rule, each with some other choices, as far as they are
    accepted; presets."""
    for placement in PLACEMENTS:
        pairs = [{"residual": name} for name in RESIDUALS] + [
            {"residual": "constant", **more} for more in VARIANTS
        ]
        for more in [*pairs, *({"residual": "scaled_skip", **more} for more in VARIANTS)]:
            try:
                yield Config(**{"n_layers": 4, "norm_placement": placement, **more})
            except ConfigError:
                continue
    yield from (preset(name, n_layers=4) for name in PRESETS)


@cache
def predicted() -> list[Profile]:
    """Each of the designs as theory has it; not at the import, which every process of the tests
    makes."""
    return [predict(config) for config in dict.fromkeys(configs())]


def along(profile: Profile, statistic: str) -> list[float]:
    """At the input and after each sublayer that is there; nan where it is not known."""
    sites = ("resid_mid", "resid_post") if profile.config.attention != "none" else ("resid_post",)
    layers = np.array([profile.mean_over_draws((statistic, site))[0] for site in sites])
    embed = profile.mean_over_draws((statistic, "embed"))
    return [float(embed[0, 0]), *map(float, layers.T.ravel())]


def sums(profile: Profile) -> list[tuple[float, float, float]]:
    """Of each sublayer q before and after it, and E F²."""
    q, both = along(profile, "second_moment"), profile.config.attention != "none"
    outputs = np.array(
        [
            profile.mean_over_draws(("second_moment", site))[0]
            for site in ("attn_out", "mlp_out")[not both :]
        ]
    ).T.ravel()
    return list(zip(q, q[1:], outputs, strict=False))


def growth(words: str) -> tuple[float, float]:
    """The factors on q and on E F² that a line states."""
    law = re.search(r"q_l = ([^.]*(?:\.\d[^.]*)*)", words)[1]
    skip = re.search(r"([\d.,]+ )?q_\(l−1\)", law)
    branch = re.search(r"([\d.,]+ )?E F²", law)
    return tuple(
        float((found[1] or "1").replace(",", "")) if found else 0.0 for found in (skip, branch)
    )


def label(profile: Profile) -> str:
    return str(profile.config)


def test_the_law_of_the_second_moment_holds_for_each_sum_of_each_design() -> None:
    said = 0
    for profile in predicted():
        words = why("second_moment", profile).words
        norms = [place.has("sum") for place in profile.config.design.sublayers]
        norms = norms if profile.config.attention != "none" else norms[1::2]
        rows = list(zip(norms, sums(profile), strict=False))
        if "resets q to 1" in words:
            assert all(norms), label(profile)
        if counted := re.search(r"on (\d+) of (\d+) sums", words):
            assert (int(counted[1]), int(counted[2])) == (sum(norms), len(norms))
        for norm, (before, after, output) in rows if words else ():
            if math.isnan(after):
                continue
            skip, branch = (0.0, 0.0) if norm else growth(words)
            expected = 1.0 if norm else skip * before + branch * output
            assert after == pytest.approx(expected, rel=0.015), (words, label(profile))
        said += bool(words)
    assert said > 0.75 * len(predicted()), "silence is no answer where the law is known"


def test_what_a_design_passes_back_is_what_its_line_says() -> None:
    """χ ≥ 0 is unknown, so the stream's part is a bound, and all where branches start at 0."""
    said = 0
    for profile in predicted():
        words = why("activation_gradient", profile).words
        if not words:
            continue
        said += 1
        gradient = along(profile, "activation_gradient")
        stream = float(
            (re.search(r"γ_l \(?([\d.,]+)", words) or ["", "1" if "χ" not in words else "0"])[1]
        )
        present = slice(None) if profile.config.attention != "none" else slice(1, None, 2)
        places, branches = (
            profile.config.design.sublayers[present],
            profile.config.design.branches[present],
        )
        for index, (one, place) in enumerate(zip(sums(profile), places, strict=True)):
            weight = branches[index] ** 2
            total = stream * one[0] + weight * one[2] if "q of the sum" in words else 1.0
            assert ("q of the sum" in words) == place.has("sum")
            assert ("/ q_(l−1)" in words) == (place.has("input") and "χ" in words)
            passed = gradient[index] / gradient[index + 1] * total
            if math.isnan(passed):
                continue
            assert passed >= 0.985 * stream, (words, label(profile))
            assert "χ" in words or passed == pytest.approx(stream, rel=0.02), (
                words,
                label(profile),
            )
    assert said > 0.4 * len(predicted())


@pytest.mark.parametrize(
    ("placement", "law"),
    [
        ("none", "γ_l (1 + χ)."),
        ("pre", "γ_l (1 + χ / q_(l−1))."),
        ("post", "γ_l (1 + χ) / q, q of the sum before its norm."),
        ("peri", "γ_l (1 + χ / q_(l−1)), χ of branch and norm."),
        ("mix", ""),
        ("subln", ""),
    ],
)
def test_the_gradient_depends_on_the_branch_as_its_line_says(placement: str, law: str) -> None:
    """The factor times the sum's q is affine in α², with 1 at α = 0; the last sublayer's input is
    held by one layer."""
    base = {"n_layers": 1, "norm_placement": placement, "attention": "none"}
    passed = {alpha: predict(Config(alpha=alpha, **base)) for alpha in (0.0, 1.0, 2.0)}
    assert why(
        "activation_gradient", predict(Config(n_layers=4, norm_placement=placement))
    ).words.endswith(law)
    if not law:
        return
    found = []
    for alpha, profile in passed.items():
        (before, _, output), gradient = sums(profile)[0], along(profile, "activation_gradient")
        total = before + alpha**2 * output if placement == "post" else 1.0
        found.append(gradient[0] / gradient[1] * total)
    assert found[0] == pytest.approx(1, rel=1e-3)
    assert found[2] - found[0] == pytest.approx(4 * (found[1] - found[0]), rel=1e-2)


def test_the_entropy_follows_the_spread_where_the_line_says_so() -> None:
    for profile in predicted():
        words, config = why("attention_entropy_normalized", profile).words, profile.config
        if not words:
            assert config.attention == "none" or config.sink != "none"
            continue
        spread = profile["logit_std", "attn_scores"][0].mean(axis=-1)
        entropy = profile["attention_entropy", "pattern"][0].mean(axis=-1)
        rows = range(1, config.n_ctx + 1) if config.causal else [config.n_ctx]
        assert ("row t" in words) == config.causal
        expected = np.mean(np.log(rows)) - spread**2 / 2
        small = spread < 0.5
        assert np.allclose(entropy[small], expected[small], atol=0.03), label(profile)


def test_attention_is_said_to_average_only_where_correlation_rises_with_it() -> None:
    said = 0
    for profile in predicted():
        if why("token_correlation", profile).words:
            said += 1
            before = [
                profile["token_correlation", "embed"][0, 0],
                *profile["token_correlation", "resid_post"][0, :-1],
            ]
            after = profile["token_correlation", "resid_mid"][0]
            assert all(
                after[index] >= rho - 2e-3
                for index, rho in enumerate(before)
                if math.isfinite(after[index])
            )
    assert said > 0.4 * len(predicted())


def test_the_spread_of_the_logits_is_proportional_to_what_its_line_says() -> None:
    checked = 0
    for profile in predicted():
        words, config = why("logit_std", profile).words, profile.config
        if not words:
            continue
        every = [(place.has("input"), place.scale) for place in config.design.sublayers[::2]]
        q = np.array(
            [
                profile["second_moment", "embed"][0, 0],
                *profile["second_moment", "resid_post"][0, :-1],
            ]
        )
        rho = [
            profile["token_correlation", "embed"][0, 0],
            *profile["token_correlation", "resid_post"][0, :-1],
        ]
        read = np.array(
            [
                scale**2 * one / (one + config.norm_epsilon) if norm else one
                for (norm, scale), one in zip(every, q, strict=True)
            ]
        )
        law = read**2 * (1 - np.array(rho))
        spread = profile["logit_std", "attn_scores"][0].mean(axis=-1) ** 2
        known = np.isfinite(law) & np.isfinite(spread) & (law > 1e-9)
        share = (spread / law)[known]
        assert share.size < 2 or share.max() < 1.1 * share.min(), (share, label(profile))
        checked += 1
    assert checked > 0.4 * len(predicted())


def test_designs_that_differ_in_a_law_are_not_told_it_together() -> None:
    pre, post = predict(Config(n_layers=4)), predict(Config(n_layers=4, norm_placement="post"))
    assert why("second_moment", pre, post) == Why("", "07_residual_variance", "Xiong et al. 2020")
    assert why("second_moment", pre, pre).words == why("second_moment", pre).words
    assert why("parameter_gradient", pre, post).words
    assert not any(why(name).words for name in LAWS), "nothing is known of no design"
    assert why("nothing") == Why()


def test_each_sentence_of_the_table_holds_for_some_design_and_has_no_other_placeholders() -> None:
    for name, law_of in LAWS.items():
        laws = [law for profile in predicted() if (law := law_of(profile, profile.config))]
        assert {law.key for law in laws} == set(SENTENCES[name]), name
        for law in laws:
            fields = {
                field for _, field, _, _ in Formatter().parse(SENTENCES[name][law.key]) if field
            }
            assert fields <= set(law.values), (name, law.key)
    assert not any(SENTENCES[name] for name in SENTENCES.keys() - LAWS.keys()), (
        "laws that no design is asked for"
    )
    assert not any(WHYS[name].words for name in LAWS), (
        "words that hold for every design, beside laws that do not"
    )


@pytest.mark.parametrize("name", ["second_moment", "activation_gradient"])
def test_a_kind_of_sublayer_is_put_into_words_once_however_deep_the_design(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def noted(value: float) -> str:
        asked.append(value)
        return number(value)

    monkeypatch.setattr(sys.modules[why.__module__], "number", noted)
    profiles = [predict(Config(n_layers=n, alpha=0.3)) for n in (2, 40)]
    counts = []
    for profile in profiles:
        asked.clear()
        assert why(name, profile).words
        counts.append(len(asked))
    assert counts[0] == counts[1] > 0, counts
