"""A sentence as the input: its own share of equal characters, and what the notes claim and withdraw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from trial import ALLOWANCE, agrees, both, by_layer

from explorer import Config, predict
from explorer.profile import STATISTICS
from explorer.theory import inputs
from explorer.theory.coverage import BY_POSITION, SENTENCE, SENTENCE_ALIKE, SENTENCE_SPREAD

SENTENCES = ("the cat sat on the mat", "mississippi", "aaab aaab")
SIZE: dict[str, Any] = {"n_layers": 4, "d_model": 128, "n_seeds": 24, "input": "sentence"}


def test_the_share_of_equal_pairs_is_counted() -> None:
    assert inputs.repeated("ab") == 0
    assert inputs.repeated("aaa") == 1
    assert inputs.repeated("aab") == pytest.approx(1 / 3)


@pytest.mark.parametrize("sentence", ["abcdefgh", "mississippi", "aaab aaab"])
def test_the_overlap_of_its_tokens_is_that_of_its_equal_characters(
        sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(**SIZE | {"n_layers": 1, "d_model": 256, "sentence": sentence})
    key = ("token_correlation", "embed")
    measured, predicted = both(config)
    assert agrees(*by_layer(measured, predicted, *key), 0.0, absolute=True)
    monkeypatch.setattr(inputs, "repeated", lambda text: inputs.coincidence(len(text)))
    assert not agrees(*by_layer(measured, predict(config), *key), 0.0, absolute=True)


@pytest.mark.parametrize("sentence", SENTENCES)
@pytest.mark.parametrize("choices", [{}, {"norm_placement": "post"}, {"causal": True}], ids=["pre", "post", "causal"])
def test_it_holds_under_the_root_as_its_notes_say(choices: dict[str, Any], sentence: str) -> None:
    measured, predicted = both(Config(**SIZE | choices | {"sentence": sentence}))
    assert np.nanmax(predicted["logit_std", "attn_scores"]) < SENTENCE_SPREAD
    bounds = {"second_moment": ALLOWANCE["second_moment"], "max_abs": SENTENCE, "activation_gradient": SENTENCE}
    for statistic, allowance in {**bounds, "token_correlation": SENTENCE_ALIKE}.items():
        for site in ("embed", "resid_mid", "resid_post"):
            found, expected = by_layer(measured, predicted, statistic, site)
            assert agrees(found, expected, allowance, STATISTICS[statistic].bounded), (statistic, site)


@pytest.mark.parametrize("choices", [{"attention_scale": "none"}, {"init_variance": 4.0}], ids=str)
def test_uneven_attention_to_it_is_measured_only(choices: dict[str, Any]) -> None:
    config = Config(**SIZE | choices)
    predicted = predict(config)
    assert {name: note for name, note in predicted.notes.items() if not note.startswith("not covered")} == {}
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
    assert predict(Config(**SIZE)).notes["max_abs"].startswith("rough, by up to 25 %")


def test_what_depends_on_which_characters_are_equal_is_measured_only() -> None:
    predicted = predict(Config(**SIZE))
    for (statistic, site), value in predicted.values.items():
        withdrawn = statistic in ("parameter_gradient", *BY_POSITION)
        assert withdrawn <= np.isnan(value).all(), (statistic, site)
        assert not withdrawn or predicted.notes[statistic].startswith("not covered: it depends on which characters")
    assert np.isfinite(predicted["second_moment", "resid_post"]).all()
    assert np.isfinite(predicted["activation_gradient", "embed"]).all()
