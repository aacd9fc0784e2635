"""The heat map shows the pattern it was given, names what it shows, and stays small."""

from __future__ import annotations

import json

import numpy as np
import pytest
from handmade import measured

from explorer.config import Config
from explorer.figures import attention_pattern
from explorer.figures.layers import MOST_CELLS, coarse


def uniform(tokens: int) -> np.ndarray:
    return np.full((tokens, tokens), 1 / tokens)


def draw(pattern: np.ndarray, **choices: object):
    return attention_pattern(
        measured(config=Config(n_layers=4, **choices), pattern=pattern, pattern_of=(3, 2))
    )


def test_rows_are_queries_and_columns_are_keys():
    pattern = np.arange(1.0, 17).reshape(4, 4)
    figure = draw(pattern / pattern.sum(axis=1, keepdims=True))
    heat = figure.data[0]
    np.testing.assert_allclose(heat.z, pattern / pattern.sum(axis=1, keepdims=True), rtol=1e-6)
    assert heat.z.dtype == np.float32
    assert figure.layout.xaxis.title.text == "key position (tokens)"
    assert figure.layout.yaxis.title.text == "query position (tokens)"
    assert figure.layout.xaxis.range == (-0.5, 3.5)
    assert figure.layout.yaxis.range == (3.5, -0.5)  # the first query on top


@pytest.mark.parametrize("tokens", [2, 3, 5, 7])
def test_few_tokens_have_a_tick_each(tokens: int) -> None:
    figure = draw(uniform(tokens))
    for axis in (figure.layout.xaxis, figure.layout.yaxis):
        assert (axis.tick0, axis.dtick) == (0, 1)


def test_the_title_says_which_layer_and_head():
    assert draw(uniform(8)).layout.title.text == "layer 3, head 3"


def test_colors_run_from_zero_to_the_largest_weight_and_mark_uniform():
    pattern = uniform(4)
    pattern[0] = [0.7, 0.1, 0.1, 0.1]
    heat = draw(pattern).data[0]
    assert (heat.zmin, heat.zmax) == (0, 0.7)
    assert dict(zip(heat.colorbar.ticktext, heat.colorbar.tickvals, strict=True)) == {
        "0": 0,
        "0.7": 0.7,
        "1/4": 0.25,
    }
    assert heat.colorbar.title.text == "weight (share of its row)"


def test_uniform_attention_is_called_so():
    assert draw(uniform(8)).data[0].colorbar.ticktext == ("0", "1/8")


def test_what_a_causal_mask_hides_is_blank():
    pattern = np.tril(np.ones((3, 3))) / np.arange(1, 4)[:, None]
    z = draw(pattern, causal=True).data[0].z
    assert np.isnan(z).tolist() == np.isnan(np.where(np.tri(3) > 0, 1, np.nan)).tolist()
    np.testing.assert_allclose(z[2], 1 / 3, rtol=1e-6)
    assert not np.isnan(draw(pattern).data[0].z).any()


def test_a_long_pattern_is_shown_in_blocks_of_equal_mean():
    tokens = 4 * MOST_CELLS
    pattern = uniform(tokens)
    pattern[0, :4] += [0.4, 0.2, 0.1, 0.1]
    figure = draw(pattern)
    heat = figure.data[0]
    assert heat.z.shape == (MOST_CELLS, MOST_CELLS)
    np.testing.assert_allclose(heat.z[0, 0], 1 / tokens + 0.8 / 16, rtol=1e-6)
    assert (heat.x0, heat.dx) == (1.5, 4)
    assert "blocks of 4 × 4 tokens" in figure.layout.title.text
    assert len(json.dumps(figure.to_dict())) < 400_000


@pytest.mark.parametrize("tokens", [257, 300, 511])
def test_blocks_at_the_edge_average_only_what_is_there(tokens):
    shown, block = coarse(uniform(tokens))
    assert block == 2
    np.testing.assert_allclose(shown, 1 / tokens)


def test_a_pattern_that_is_not_finite_says_so():
    pattern = uniform(4)
    pattern[1] = np.nan
    figure = draw(pattern)
    assert "not finite" in figure.layout.title.text
    assert "not finite" in figure.layout.meta["description"]
    assert np.isnan(figure.data[0].z[1]).all()


def test_without_a_pattern_the_axes_say_so():
    figure = attention_pattern(measured())
    assert len(figure.data) == 0
    assert figure.layout.title.text == "no pattern was kept"


def axes_of(sentence: str) -> list[tuple[list[float], list[str]]]:
    layout = draw(uniform(len(sentence)), input="sentence", sentence=sentence).layout
    return [(list(axis.tickvals), list(axis.ticktext)) for axis in (layout.xaxis, layout.yaxis)]


def test_each_character_of_a_short_sentence_is_a_tick_of_both_axes():
    assert axes_of("to be") == [([0, 1, 2, 3, 4], ["t", "o", "␣", "b", "e"])] * 2


def test_words_of_a_longer_sentence_stand_at_their_middle_and_long_ones_in_parts():
    assert (
        axes_of("the cat in Mississippi")
        == [([1, 5, 8.5, 13.5, 19], ["the", "cat", "in", "Missis", "sippi"])] * 2
    )


def test_a_cell_of_a_sentence_says_its_two_characters_and_what_came_from_outside_is_escaped():
    heat = draw(uniform(4), input="sentence", sentence='<b>"').data[0]
    assert list(heat.text[0]) == ["&lt; → &lt;", "&lt; → b", "&lt; → &gt;", '&lt; → "']
    assert heat.hovertemplate.endswith("to key token %{x:.0f}<br>%{text}<extra></extra>")
    assert (
        axes_of("<a href='javascript:x'>")
        == [([0.5, 5.5, 11.5, 17.5, 21.5], ["&lt;a", "href='", "javasc", "ript:x", "'&gt;"])] * 2
    )


def test_tokens_that_are_drawn_have_positions_alone():
    for kind in ("gaussian", "text"):
        figure = draw(uniform(9), input=kind, n_ctx=9)
        assert figure.layout.xaxis.ticktext is None
        assert figure.data[0].text is None


def test_hover_text_reads_as_a_sentence():
    text = draw(uniform(4)).data[0].hovertemplate
    assert (
        text
        == "Query token %{y:.0f}<br>gives %{z:.3g} of its attention<br>to key token %{x:.0f}<extra></extra>"
    )
