"""The table of verdicts against the rules: each sentence is said, and the rules give what it asks
for."""

from __future__ import annotations

from collections.abc import Iterator
from string import Formatter
from typing import Any

from placeholders import code_of, texts_and_names

import explorer.diagnosis
from explorer.config import Config
from explorer.diagnosis.finding import VERDICTS
from explorer.diagnosis.remedies import CURES, STEPS

WORDS, NAMES = texts_and_names(code_of(explorer.diagnosis))
RULES = VERDICTS.keys() - {"quantity", "step", "cure"}
SUFFIXES = ("_evidence", "_after", "_swapped", "_leaves", "_stays", "_many", "_steps")
"""Endings that rules put to a key."""


def sentences(part: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every text of the table with its path."""
    if isinstance(part, str):
        yield path, part
    elif isinstance(part, dict):
        for key, value in part.items():
            yield from sentences(value, f"{path}.{key}".removeprefix("."))


def test_each_placeholder_has_a_value_somewhere() -> None:
    for path, sentence in sentences(VERDICTS):
        fields = {field for _, field, _, _ in Formatter().parse(sentence) if field is not None}
        assert fields <= NAMES, (path, fields - NAMES)
        assert "" not in fields, path


def test_each_sentence_is_named_by_a_rule() -> None:
    changes = {"level", "grows", "shrinks"}
    known = WORDS | {word.partition(".")[2] for word in WORDS if word.startswith("fate.")}
    for rule in RULES:
        assert rule in WORDS or any(word.startswith(f"{rule}.") for word in WORDS), rule
        for key in VERDICTS[rule]:
            stems = {key, *(key.removesuffix(suffix) for suffix in SUFFIXES)}
            assert stems & known or set(key.split("_")) <= changes, (rule, key)


def test_steps_are_changes_of_a_config_and_cures_are_named_by_a_rule() -> None:
    for name, step in STEPS.items():
        assert step.field in Config.specs(), name
        assert name in WORDS
    for name in CURES:
        assert name in WORDS, name
