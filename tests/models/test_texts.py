"""The instruments' texts against their code: each is used, and the code gives what it asks for."""

from __future__ import annotations

import ast
from string import Formatter

import pytest
from placeholders import code_of, texts_and_names

import explorer_models
from explorer.profile import ALMOST_ZERO, FIRST_STEP, OTHER_TOKENS, Profile
from explorer.schemes.placement import PLACEMENTS
from explorer.sites import BRANCHES
from explorer_models.differences import FACTS, _difference, norm_difference
from explorer_models.stack import gradient_note, tokens_note
from explorer_models.texts import TEXTS
from explorer_models.twin import _sentence

CODE = code_of(explorer_models)
WORDS, NAMES = texts_and_names(CODE)
SUFFIXES = ("_missing", "_extra", "_more", "_zero", "_input", "_step")
"""Endings that the code puts to a key."""
SITES = ("attn_out", "mlp_out", "attn_scores", "layer")
"""Tables of what a layer has and its siblings have not."""


def fields(sentence: str) -> set[str]:
    return {field for _, field, _, _ in Formatter().parse(sentence) if field is not None}


def test_each_placeholder_has_a_value_somewhere() -> None:
    for table, rows in TEXTS.items():
        for key, sentence in rows.items():
            assert fields(sentence) <= ({"value", "usual"} if table in SITES else NAMES - {""}), (
                table,
                key,
            )


def test_each_call_gives_what_its_text_asks_for() -> None:
    checked = 0
    for call in (node for tree in CODE for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if not (
            isinstance(call.func, ast.Name)
            and call.func.id == "text"
            and len(call.args) == 2
            and all(isinstance(arg, ast.Constant) for arg in call.args)
        ):
            continue
        table, key = (arg.value for arg in call.args if isinstance(arg, ast.Constant))
        given = {word.arg for word in call.keywords}
        # of `stack._first`
        given = (given - {None}) | {"layer", "more"} if None in given else given
        asked = {
            field
            for ending in ("", "_more")
            for field in fields(TEXTS[table].get(f"{key}{ending}", ""))
        }
        assert asked | {"more"} == given | {"more"}, (table, key)
        checked += 1
    assert checked > 30


def test_each_text_is_named_by_the_code() -> None:
    for table, rows in TEXTS.items():
        assert table in WORDS, table
        for key in rows:
            assert {key, *(key.removesuffix(suffix) for suffix in SUFFIXES)} & WORDS, (table, key)


@pytest.mark.parametrize(("site", "name"), FACTS)
def test_each_fact_has_a_sentence_whatever_a_layer_has(site: str, name: str) -> None:
    flag = f"{name}_missing" in TEXTS[site] and name not in TEXTS[site]
    pairs = [(True, False), (False, True)] if flag else [(2.0, 4.0), (0.0, 4.0), (2.0, 0.0)]
    said = {_difference(2, site, name, *pair) for pair in pairs}
    assert len(said) == len(pairs)
    assert {words[:2] for words in said} == {(3, site)}


def test_each_norm_that_a_placement_may_have_has_a_sentence() -> None:
    norms = {
        (BRANCHES[index % 2], name)
        for row in PLACEMENTS.values()
        for index in range(24)
        for name in row.sublayer(index, 12).norms
    }
    said = {norm_difference(*norm, missing=missing) for norm in norms for missing in (True, False)}
    assert len(said) == 2 * len(norms)
    assert not any(" on , " in words for words in said)


def test_notes_begin_and_end_as_the_diagnosis_knows_them() -> None:
    note = gradient_note(True, ["head.weight", "gate", "scale"], (0, 8))["activation_gradient"]
    assert note.startswith(FIRST_STEP)
    assert "head.weight, gate and scale" in note
    assert "exactly 0" in gradient_note(True, [], (2, 8))["activation_gradient"]
    for count in (1, 2):
        note = gradient_note(False, [], (count, 8))["activation_gradient"]
        assert note.startswith(f"{count} of 8 ")
        assert note.endswith(ALMOST_ZERO)
    assert gradient_note(False, ["gate"], (0, 8)) == {}
    changed = tokens_note([8, 8, 4])["token_correlation"]
    assert changed.startswith(OTHER_TOKENS)
    assert changed.endswith("from 8 to 4 in layer 2")
    assert tokens_note([8, 8, 8]) == tokens_note([]) == {}


def test_a_gap_has_a_ratio_where_it_says_something() -> None:
    profile, key = Profile("measured", {}, layers=("h.0",)), ("activation_gradient", "resid_post")
    for pair in ((1550.0, 8.19e-48), (8.19e-48, 1550.0)):
        said = _sentence(key, profile, 0, *pair)
        assert "practically 0" in said
        assert "×" not in said
    assert _sentence(key, profile, 0, 3e20, 1.5).endswith(" 2·10²⁰ ×")
