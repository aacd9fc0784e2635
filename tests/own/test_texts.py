"""The instruments' texts against their code: each is used, and the code gives what it asks for."""

from __future__ import annotations

import ast
from pathlib import Path
from string import Formatter

import pytest

import explorer.own
from explorer.own import TEXTS, text
from explorer.own.differences import FACTS, _difference, norm_difference
from explorer.own.findings import Jump
from explorer.own.stack import gradient_note, tokens_note
from explorer.own.sums import Breakdown
from explorer.own.twin import _sentence
from explorer.profile import ALMOST_ZERO, BRANCHES, FIRST_STEP, OTHER_TOKENS, Profile
from explorer.schemes.placement import PLACEMENTS

CODE = [ast.parse(path.read_text(encoding="utf-8")) for path in Path(explorer.own.__file__).parent.glob("*.py")]
WORDS = {node.value for tree in CODE for node in ast.walk(tree)
         if isinstance(node, ast.Constant) and isinstance(node.value, str)}
"""Every text of the code, among them the keys of the tables."""
NAMES = {node.arg for tree in CODE for node in ast.walk(tree) if isinstance(node, ast.keyword)} | WORDS
"""Every name that a placeholder may be filled by."""
SUFFIXES = ("_missing", "_extra", "_more", "_zero", "_input", "_step")
"""Endings that the code puts to a key."""
SITES = ("attn_out", "mlp_out", "attn_scores", "layer")
"""Tables of what a layer has and its siblings have not."""


def fields(sentence: str) -> set[str]:
    return {field for _, field, _, _ in Formatter().parse(sentence) if field is not None}


def test_each_placeholder_has_a_value_somewhere() -> None:
    for table, rows in TEXTS.items():
        for key, sentence in rows.items():
            assert fields(sentence) <= ({"value", "usual"} if table in SITES else NAMES - {""}), (table, key)


def test_each_call_gives_what_its_text_asks_for() -> None:
    checked = 0
    for call in (node for tree in CODE for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if not (isinstance(call.func, ast.Name) and call.func.id == "text" and all(
                isinstance(arg, ast.Constant) for arg in call.args)):
            continue
        table, key = (arg.value for arg in call.args if isinstance(arg, ast.Constant))
        given = {word.arg for word in call.keywords}
        given = (given - {None}) | {"layer", "more"} if None in given else given  # of `stack._first`
        asked = {field for ending in ("", "_more") for field in fields(TEXTS[table].get(f"{key}{ending}", ""))}
        assert asked | {"more"} == given | {"more"}, (table, key)
        checked += 1
    assert checked > 30


def test_each_text_is_named_by_the_code() -> None:
    for table, rows in TEXTS.items():
        assert table in WORDS, table
        for key in rows:
            assert {key, *(key.removesuffix(suffix) for suffix in SUFFIXES)} & WORDS, (table, key)


def test_each_sentence_of_a_table_that_has_another_for_more_says_how_many() -> None:
    for table, rows in TEXTS.items():
        for key in rows:
            if key.endswith("_more"):
                assert "more" in fields(rows[key])
                assert "more" not in fields(rows[key.removesuffix("_more")]), (table, key)


@pytest.mark.parametrize(("site", "name"), FACTS)
def test_each_fact_has_a_sentence_whatever_a_layer_has(site: str, name: str) -> None:
    flag = f"{name}_missing" in TEXTS[site] and name not in TEXTS[site]
    pairs = [(True, False), (False, True)] if flag else [(2.0, 4.0), (0.0, 4.0), (2.0, 0.0)]
    said = {_difference(2, site, name, *pair) for pair in pairs}
    assert len(said) == len(pairs)
    assert {words[:2] for words in said} == {(3, site)}


def test_each_norm_that_a_placement_may_have_has_a_sentence() -> None:
    norms = {(BRANCHES[index % 2], name) for row in PLACEMENTS.values() for index in range(24)
             for name in row.sublayer(index, 12).norms}
    assert all(" on , " not in norm_difference(site, name, missing=True) for site, name in norms)
    assert norm_difference("attn_out", "input", missing=True) == (
        "has no norm on attention's input, where its siblings have one")
    assert norm_difference("mlp_out", "sum", missing=False) == (
        "has a norm on the sum after the MLP, where its siblings have none")


def test_what_is_0_has_a_sentence_of_its_own() -> None:
    assert _difference(0, "mlp_out", "skip", 0.0, 1.0)[2].startswith("leaves out the stream that the MLP is added to")
    assert _difference(0, "mlp_out", "skip", 0.12345, 1.0)[2] == (
        "multiplies the stream that the MLP is added to by 0.123, where its siblings have 1")
    assert _difference(0, "attn_scores", "cap", 0.0, 30.0)[2] == (
        "has no cap on its attention logits, where its siblings have 30")
    assert _difference(0, "attn_out", "learned", "", "vector")[2] == (
        "does not multiply the output of attention by a learned vector, where its siblings do")


def test_notes_begin_and_end_as_the_diagnosis_knows_them() -> None:
    assert gradient_note(True, ["head.weight", "gate", "scale"], (0, 8)) == {
        "activation_gradient": f"{FIRST_STEP} head.weight, gate and scale alone"}
    assert gradient_note(True, [], (2, 8)) == {"activation_gradient": "the gradient at the last layer is exactly 0"}
    assert gradient_note(False, [], (1, 8)) == {"activation_gradient": f"1 of 8 tokens is {ALMOST_ZERO}"}
    assert tokens_note([8, 8, 4]) == {"token_correlation": f"{OTHER_TOKENS} from 8 to 4 in layer 2"}
    assert tokens_note([8, 8, 8]) == tokens_note([]) == {}
    assert gradient_note(False, [], (2, 8)) == {"activation_gradient": f"2 of 8 tokens are {ALMOST_ZERO}"}
    assert gradient_note(False, ["gate"], (0, 8)) == {}


def test_more_layers_take_another_text() -> None:
    assert text("note", "site", site="pattern", layer=3, more=0) == "at pattern it was not read in layer 3"
    assert text("note", "site", site="pattern", layer=3, more=2) == "at pattern it was not read in layer 3 and 2 more"
    assert text("unread", "attention", block="h.2", more=4, error="no") == "the attention of h.2 and 4 more: no"


def test_a_jump_in_words() -> None:
    layers = ["h.0", "h.1"]
    assert Jump("norm", "c_proj", 2, 1.25, 360.0).sentence(layers, 4) == (
        "The norm of c_proj in layer 2 (h.1) goes from 1.25 to 360.")
    assert Jump("norm", "c_proj", 2, 1.25, 0.0).sentence(layers, 4).endswith("goes from 1.25 to exactly 0.")
    assert Jump("gradient", "c_fc and c_proj", 1, 0.5, 0.0).sentence(layers, 4) == (
        "The gradient of c_fc and c_proj in layer 1 (h.0) goes from 0.5 at step 4 to exactly 0, and stays so.")
    assert Jump("max_abs", "", 0, 1.0, 90.0).sentence(layers, 4) == (
        "The largest |x| of the input of layer 1 goes from 1 to 90.")
    assert Jump("second_moment", "", 2, 1.0, 90.0).sentence(layers, 4) == (
        "The second moment after layer 2 (h.1) goes from 1 to 90.")
    for jump in (Jump("norm", "c_proj", 2, 1, 2), Jump("max_abs", "", 0, 1, 2), Jump("max_abs", "", 2, 1, 2)):
        assert {jump.place, f"{jump.place}_step"} <= TEXTS["jump"].keys()


def test_a_breakdown_in_words() -> None:
    assert str(Breakdown(3, "h.1", "forward")) == "step 3, forward: the output of h.1"
    assert str(Breakdown(3, "h.1", "backward")) == "step 3, backward: the gradient by the output of h.1"


def test_a_gap_has_a_ratio_where_it_says_something() -> None:
    profile, key = Profile("measured", {}, layers=("h.0",)), ("activation_gradient", "resid_post")
    place = "the gradient by layer at stream after MLP of layer 1 (h.0) is"
    assert _sentence(key, profile, 0, 1550.0, 8.19e-48) == f"{place} 1,550 where practically 0 is expected"
    assert _sentence(key, profile, 0, 8.19e-48, 1550.0) == f"{place} practically 0 where 1,550 is expected"
    assert _sentence(key, profile, 0, 3e20, 1.5) == f"{place} 3·10²⁰ where 1.5 is expected: 2·10²⁰ ×"
