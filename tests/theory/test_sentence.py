"""A sentence as the input: its own share of equal characters, and what the notes claim and
withdraw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from trial import ALLOWANCE, agrees, both, by_layer

from explorer import Config, ConfigError, predict
from explorer.schemes.data import POSITIONS
from explorer.schemes.placement import PLACEMENTS
from explorer.theory import inputs
from explorer.theory.coverage import BY_POSITION, SENTENCE_SPREAD
from explorer.vocabulary import STATISTICS

SENTENCES = ("the cat sat on the mat", "mississippi", "aaab aaab")
SENTENCE, SENTENCE_ALIKE = 0.25, 0.1
"""Relative error of the largest coordinate and of the gradient's square, and error of the token
correlation."""
SENTENCE_ROWS, SENTENCE_LOGITS = 0.15, 0.2
"""Error of rows of attention to equal characters, and relative error of the logits' spread."""
OF_ROWS = ("attention_entropy", "attention_entropy_normalized", "attention_max")
SIZE: dict[str, Any] = {"n_layers": 4, "d_model": 128, "n_seeds": 24, "input": "sentence"}


def test_the_share_of_equal_pairs_is_counted() -> None:
    assert inputs.repeated("ab") == 0
    assert inputs.repeated("aaa") == 1
    assert inputs.repeated("aab") == pytest.approx(1 / 3)


@pytest.mark.parametrize("sentence", ["abcdefgh", "mississippi", "aaab aaab"])
def test_the_overlap_of_its_tokens_is_that_of_its_equal_characters(
    sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config(**SIZE | {"n_layers": 1, "d_model": 256, "sentence": sentence})
    key = ("token_correlation", "embed")
    measured, predicted = both(config)
    assert agrees(*by_layer(measured, predicted, *key), 0.0, absolute=True)
    monkeypatch.setattr(inputs, "repeated", lambda text: inputs.coincidence(len(text)))
    assert not agrees(*by_layer(measured, predict(config), *key), 0.0, absolute=True)


@pytest.mark.parametrize("sentence", SENTENCES)
@pytest.mark.parametrize(
    "choices", [{}, {"norm_placement": "post"}, {"causal": True}], ids=["pre", "post", "causal"]
)
def test_it_holds_under_the_root(choices: dict[str, Any], sentence: str) -> None:
    measured, predicted = both(Config(**SIZE | choices | {"sentence": sentence}))
    assert np.nanmax(predicted["logit_std", "attn_scores"]) < SENTENCE_SPREAD
    bounds = {
        "second_moment": ALLOWANCE["second_moment"],
        "max_abs": SENTENCE,
        "activation_gradient": SENTENCE,
    }
    for statistic, allowance in {**bounds, "token_correlation": SENTENCE_ALIKE}.items():
        for site in ("embed", "resid_mid", "resid_post"):
            found, expected = by_layer(measured, predicted, statistic, site)
            assert agrees(found, expected, allowance, STATISTICS[statistic].bounded), (
                statistic,
                site,
            )


@pytest.mark.parametrize("choices", [{"attention_scale": "none"}, {"init_variance": 4.0}], ids=str)
def test_uneven_attention_to_it_is_measured_only(choices: dict[str, Any]) -> None:
    config = Config(**SIZE | choices)
    predicted = predict(config)
    assert {
        name: note for name, note in predicted.notes.items() if not note.startswith("not covered")
    } == {}
    assert predicted.notes.keys() == STATISTICS.keys()
    assert np.isfinite(predicted["second_moment", "embed"]).all()
    for (statistic, site), value in predicted.values.items():
        if site != "embed" or statistic == "activation_gradient":
            assert np.isnan(value).all(), (statistic, site)
    assert np.isfinite(predict(config.replace(input="text"))["second_moment", "resid_post"]).all()


def test_what_was_withdrawn_before_is_not_called_rough() -> None:
    choices = {"layer_weights": "shared", "causal": True}
    notes = predict(Config(**SIZE | choices)).notes
    assert notes["max_abs"].startswith("not covered")
    assert notes["activation_gradient"].startswith("not covered")
    assert not any("rough" in note for note in notes.values())


def test_what_depends_on_which_characters_are_equal_is_measured_only() -> None:
    predicted = predict(Config(**SIZE))
    for (statistic, site), value in predicted.values.items():
        withdrawn = statistic in ("parameter_gradient", *BY_POSITION)
        assert withdrawn <= np.isnan(value).all(), (statistic, site)
        assert not withdrawn or predicted.notes[statistic].startswith(
            "not covered: it depends on which characters"
        )
    assert np.isfinite(predicted["second_moment", "resid_post"]).all()
    assert np.isfinite(predicted["activation_gradient", "embed"]).all()


ODD = (
    "aa",
    "ab",
    "aaaa",
    "abab",
    "a" * 32,
    "a" * 31 + "b",
    "abcdefghijklmnopqrstuvwxyzABCDEF",
    "  ",
    "日日",
    "é😀",
)
"""One character, two tokens, all different, the longest, and characters of several bytes."""


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("sentence", ODD)
def test_every_text_is_predicted_or_its_note_says_why_not(sentence: str) -> None:
    for position in POSITIONS:
        for placement in PLACEMENTS:
            choices = {
                "position": position,
                "norm_placement": placement,
                "causal": position in ("alibi", "rotary"),
            }
            config = Config(
                input="sentence", sentence=sentence, n_layers=2, d_model=64, n_heads=2, **choices
            )
            predicted = predict(config)
            for (statistic, site), value in predicted.values.items():
                assert not np.isinf(value).any(), (choices, statistic, site)
                assert np.isfinite(value).all() or statistic in predicted.notes, (
                    choices,
                    statistic,
                    site,
                )


@pytest.mark.parametrize("sentence", ["", "a", "a" * 33, "tab\there"])
def test_a_text_that_is_no_sentence_is_refused_by_its_name(sentence: str) -> None:
    with pytest.raises(
        ConfigError, match="sentence must be a text of 2 to 32 printable characters; got "
    ):
        Config(input="sentence", sentence=sentence)


@pytest.mark.parametrize(
    "choices",
    [
        {"position": "nope"},
        {"position": "rotary"},
        {"position": "rotary", "causal": True, "norm_placement": "post"},
        {"position": "alibi", "causal": True},
    ],
    ids=str,
)
def test_one_character_without_vectors_for_positions_is_one_vector_throughout(
    choices: dict[str, Any],
) -> None:
    """As tokens whose correlation is 1, which is measured, too."""
    measured, predicted = both(Config(**SIZE | choices | {"sentence": "aaaa"}))
    same = predict(
        Config(**SIZE | choices | {"input": "correlated", "input_correlation": 1.0, "n_ctx": 4})
    )
    for statistic, allowance in (
        ("second_moment", 0.02),
        ("token_correlation", 0.01),
        ("kurtosis", 0.03),
    ):
        for site in ("embed", "resid_mid", "resid_post"):
            found, expected = by_layer(measured, predicted, statistic, site)
            assert expected == pytest.approx(by_layer(measured, same, statistic, site)[1], rel=3e-3)
            assert agrees(found, expected, allowance, STATISTICS[statistic].bounded), (
                statistic,
                site,
            )
    assert predicted["token_correlation", "resid_post"] == pytest.approx(1.0)


@pytest.mark.parametrize("sentence", ["aab", "a" * 31 + "b", "aaaaaaaabbbbbbbb", "mississippi"])
@pytest.mark.parametrize(
    "choices",
    [{"causal": True}, {"position": "nope"}, {"position": "rotary", "causal": True}],
    ids=str,
)
def test_rows_of_attention_to_equal_characters_are_rough(
    choices: dict[str, Any], sentence: str
) -> None:
    measured, predicted = both(Config(**SIZE | choices | {"sentence": sentence}))
    for statistic in OF_ROWS[1:]:
        found, expected = by_layer(measured, predicted, statistic, "pattern")
        assert agrees(found, expected, SENTENCE_ROWS, absolute=True), statistic
    spread = predicted["logit_std", "attn_scores"][0, :, 0]
    if "position" in choices:
        assert np.isnan(spread).all()
        assert predicted.notes["logit_std"].startswith(
            "not covered: it depends on which characters"
        )
    else:
        found = (measured["logit_std", "attn_scores"] ** 2).mean(-1)
        assert agrees(found, spread**2, 2 * SENTENCE_LOGITS)
