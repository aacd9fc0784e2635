"""Stories: every step is a link that opens without complaint, and every number it says is measured
there."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from explorer.app.explore.question import Choose, Draw
from explorer.app.link.links import Links
from explorer.app.stories.story import STORIES, VERDICT, Step
from explorer.app.tabs import tabs
from explorer.config import Config
from explorer.figures import FIGURES
from explorer.measuring import measure
from explorer.profile import Profile
from explorer.vocabulary import STATISTICS, geometric_mean

LINKS = Links(tabs())
STEPS = [
    (f"{story.name}-{number}", step)
    for story in STORIES.values()
    for number, step in enumerate(story.steps, 1)
]
EACH, NAMED = (
    pytest.mark.parametrize(
        names,
        [
            pytest.param(
                *row[-count:], id=row[0], marks=[pytest.mark.plugins] * ("tab=" in row[1].link)
            )
            for row in STEPS
        ],
    )
    for names, count in (("step", 1), (("name", "step"), 2))
)


def config_of(step: Step) -> Config:
    config: Config = LINKS.parse(step.link)[0].panels["explore"].design
    return config


@cache
def measured(config: Config) -> Profile:
    return measure(config.replace(n_seeds=1) if config.n_layers > 12 else config)


def end(profile: Profile, statistic: str, at: int) -> float:
    return float(STATISTICS[statistic].mean(profile.stream(statistic)[1])[at])


def gradient(profile: Profile) -> float:
    return end(profile, "activation_gradient", 0)


def entropy(profile: Profile, layer: int) -> float:
    return float(np.median(profile["attention_entropy_normalized"][:, layer - 1]))


def spread(profile: Profile) -> float:
    return float(profile["logit_std"][:, 0].mean())


def matrix_gradient(profile: Profile) -> float:
    return float(profile["parameter_gradient", "W_Q"].mean())


def undivided(profile: Profile) -> float:
    """Variance of the logits of layer 1 without the division."""
    return spread(measured(profile.config.replace(attention_scale="none"))) ** 2


FIRST_STEPS = 20
"""Steps of the stored race after which a gradient is compared with its first value."""


def gradient_left(name: str) -> float:
    """The norm of the first layer's gradient after those steps, over that of the first step, of a
    contender of the stored race."""
    from explorer_race.page.racefile import stored

    track = next(track for track in stored().course.tracks if track.name == name)
    steps, norms = track.history.layer_gradient()
    (at,) = np.flatnonzero(steps == FIRST_STEPS)
    return float(norms[at, 0] / norms[0, 0])


def warmup_steps() -> int:
    """Steps of warm-up of a contender of the stored race."""
    from explorer_race.page.lineup import WARMUP

    return WARMUP


def furthest(profile: Profile, other: Config) -> float:
    """The largest relative difference of two second moments."""
    one, two = (
        geometric_mean(each.stream("second_moment")[1]) for each in (profile, measured(other))
    )
    return float(np.max(np.abs(one / two - 1)))


PLAIN = Config()
GPT2 = config_of(STORIES["gpt2_llama"].steps[0])
Claim = tuple[str, float, Callable[[Profile], float], float]
"""The words, the value that they claim, what it is of the step's profile, and the relative
tolerance."""

CLAIMS: dict[str, list[Claim]] = {
    "root_d-1": [
        ("64 coordinates", 64, lambda p: p.config.d_head, 0),
        ("√64 = 8", 8, lambda p: p.config.d_head**0.5, 0),
        ("by about 1,", 1, spread, 0.05),
        ("is 0.89 of", 0.89, lambda p: entropy(p, 1), 0.01),
    ],
    "root_d-2": [
        ("8 times as far in layer 1", 8, lambda p: spread(p) / spread(measured(PLAIN)), 0.05),
        ("is 0.14 of the uniform one in layer 1", 0.14, lambda p: entropy(p, 1), 0.05),
        ("0.20 in layer 12", 0.20, lambda p: entropy(p, 12), 0.05),
    ],
    "root_d-3": [
        ("about 31,000 times", 31_000, gradient, 0.05),
        ("it was 12 times", 12, lambda p: gradient(measured(PLAIN)), 0.05),
    ],
    "root_d-4": [
        ("√64 = 8 times smaller", 8, lambda p: p.config.d_head**0.5, 0),
        ("by about 1 in layer 1", 1, spread, 0.05),
        ("back at 0.89", 0.89, lambda p: entropy(p, 1), 0.01),
    ],
    "root_d-5": [
        ("sum of 64 products", 64, lambda p: p.config.d_head, 0),
        ("each has variance 1", 1, lambda p: undivided(p) / p.config.d_head, 0.05),
        ("sum has variance 64", 64, lambda p: undivided(p), 0.05),
        ("√64", 64, lambda p: p.config.d_head, 0),
        ("it has variance 1, however", 1, lambda p: spread(p) ** 2, 0.05),
        (
            "however wide a head is",
            1,
            lambda p: spread(measured(p.config.replace(n_heads=16))) ** 2,
            0.05,
        ),
    ],
    "warmup-1": [("is 12 times", 12, gradient, 0.05)],
    "warmup-2": [
        ("layer 12", 12, lambda p: p.config.n_layers, 0),
        ("0.10 of the last layer's at the input", 0.10, gradient, 0.05),
        (
            "0.03 in between",
            0.03,
            lambda p: min(geometric_mean(p.stream("activation_gradient")[1])),
            0.1,
        ),
    ],
    "warmup-3": [
        ("is 0.999", 0.999, lambda p: end(p, "token_correlation", -1), 5e-4),
        ("after 12 layers", 12, lambda p: p.config.n_layers, 0),
        ("the uniform one", 1, lambda p: entropy(p, 12), 1e-3),
    ],
    "warmup-4": [
        ("Twice as deep", 24, lambda p: p.config.n_layers, 0),
        ("less than a millionth", 0, lambda p: (1 - end(p, "token_correlation", -1)) > 1e-6, 0),
    ],
    "warmup-5": [
        ("0.004", 0.004, lambda _: gradient_left("Post-LN, no warm-up"), 0.06),
        ("over 300 steps", 300, lambda _: warmup_steps(), 0),
        ("0.30", 0.30, lambda _: gradient_left(f"Post-LN, warm-up {warmup_steps()}"), 0.02),
        ("first 20 steps", 20, lambda _: FIRST_STEPS, 0),
        ("the same 20", 20, lambda _: FIRST_STEPS, 0),
    ],
    "thousand-1": [
        ("1000 layers", 1000, lambda p: p.config.n_layers, 0),
        ("32 wide", 32, lambda p: p.config.d_model, 0),
        ("2000 branches", 2000, lambda p: 2 * p.config.n_layers, 0),
        ("about 2,200", 2200, lambda p: end(p, "second_moment", -1), 0.05),
    ],
    "thousand-2": [
        ("From layer 69 on", 69, lambda p: p.first_nonfinite.layer, 0),
        ("before layer 100", 1, lambda p: p.first_nonfinite.layer < 100, 0),
        (
            "about 2,200",
            2200,
            lambda p: end(measured(p.config.replace(norm_placement="pre")), "second_moment", -1),
            0.05,
        ),
    ],
    "thousand-3": [
        ("by 6.69", 6.69, lambda p: (2 * p.config.n_layers) ** 0.25, 1e-3),
        ("is 1.1 times", 1.1, gradient, 0.05),
    ],
    "thousand-4": [
        ("from 0", 0, lambda p: np.ptp(p.stream("second_moment")[1]), 0),
        ("1000 layers", 1000, lambda p: p.config.n_layers, 0),
        ("so does the gradient", 1, gradient, 1e-6),
    ],
    "mup-1": [
        ("variance 1", 1, lambda p: p.config.parametrization == "ntk", 0),
        ("√256 = 16", 16, lambda p: p.config.d_model**0.5, 0),
        ("dots lie on dots", 0, lambda p: furthest(p, PLAIN) > 1e-3, 0),
    ],
    "mup-2": [
        (
            "16 times smaller",
            16,
            lambda p: matrix_gradient(measured(PLAIN)) / matrix_gradient(p),
            1e-3,
        ),
        ("divides by 16", 16, lambda p: p.config.d_model**0.5, 0),
    ],
    "mup-3": [],
    "gpt2_llama-1": [
        ("0.0008", 0.0008, lambda p: end(p, "second_moment", 0), 0.05),
        ("√24 = 4.9", 4.9, lambda p: (2 * p.config.n_layers) ** 0.5, 0.01),
        ("10-fold", 10, lambda p: end(p, "second_moment", -1) / end(p, "second_moment", 0), 0.06),
        ("over 12 layers", 12, lambda p: p.config.n_layers, 0),
    ],
    "gpt2_llama-2": [("within 1 %", 0, lambda p: furthest(p, GPT2) > 0.01, 0)],
    "gpt2_llama-3": [
        ("N(0, 0.02²)", 1, lambda p: p.config.scale_rule == "bert", 0),
        ("of 0.0084", 0.0084, lambda p: end(measured(GPT2), "second_moment", -1), 0.01),
        ("to 0.23", 0.23, lambda p: end(p, "second_moment", -1), 0.03),
        (
            "27 times",
            27,
            lambda p: end(p, "second_moment", -1) / end(measured(GPT2), "second_moment", -1),
            0.03,
        ),
    ],
    "gpt2_llama-4": [
        (
            "Llama 3",
            1,
            lambda p: p.config.mlp == "gated" and p.config.n_kv_heads < p.config.n_heads,
            0,
        ),
        ("of 0.87", 0.87, lambda p: end(p, "token_correlation", -1), 0.01),
        ("after 12 layers", 12, lambda p: p.config.n_layers, 0),
        ("has 0.29", 0.29, lambda p: end(measured(GPT2), "token_correlation", -1), 0.02),
    ],
}


NAMES = re.compile(r"GPT-2|T5|layer 1\b")


def said(step: Step) -> str:
    question = step.question
    options = " ".join(question.options) if isinstance(question, Choose) else ""
    return " ".join((step.words, *((question.text, options, question.reveal) if question else ())))


@NAMED
def test_what_a_step_claims_is_measured_there(name: str, step: Step) -> None:
    words = said(step)
    for claim, value, found, tolerance in CLAIMS[name]:
        assert claim in words
        profile = measured(config_of(step))
        assert found(profile) == pytest.approx(value, rel=tolerance, abs=1e-12), (
            f"{claim}: {found(profile)}"
        )


@NAMED
def test_no_number_is_said_that_nobody_measures(name: str, step: Step) -> None:
    words = said(step)
    for claim, *_ in CLAIMS[name]:
        words = words.replace(claim, "")
    assert not re.findall(r"\d", NAMES.sub("", words)), words


@EACH
def test_a_step_is_a_link_that_a_person_could_have_made(step: Step) -> None:
    page, sentences = LINKS.parse(step.link)
    assert not sentences
    assert LINKS.write(page) == step.link


@EACH
def test_what_to_look_at_is_on_the_page_that_opens(step: Step) -> None:
    page = LINKS.parse(step.link)[0]
    assert step.look_at in ([*FIGURES, VERDICT] if page.open == "explore" else [""])


def test_stories_are_short_and_at_least_three_ask_something() -> None:
    assert [story.title for story in STORIES.values()] == [
        "The forgotten √d",
        "Why deep Post-LN needs warm-up",
        "A thousand layers",
        "Same function, other training (μP)",
        "From GPT-2 to Llama",
    ]
    asked = [step.question for story in STORIES.values() for step in story.steps if step.question]
    assert all(3 <= len(story.steps) <= 5 for story in STORIES.values())
    assert len(asked) >= 3
    assert sum(isinstance(question, Draw) for question in asked) >= 2


@EACH
def test_a_question_has_its_answer_within_its_axis(step: Step) -> None:
    question = step.question
    if isinstance(question, Choose):
        assert question.right(measured(config_of(step))) == 2
    elif question is not None:
        values = measured(config_of(step))
        row = question.statistic
        held = (
            values.stream(row.name)[1]
            if row.on_stream
            else np.median(values[row.name], axis=(0, 2))
        )
        low, high = question.extent
        held = np.log10(held) if row.log else held
        assert low < np.min(held) <= np.max(held) < high
