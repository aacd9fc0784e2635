"""`text`: what the instruments say of a model, as it stands in `texts.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from explorer.numbers import filled

TEXTS: Mapping[str, Mapping[str, str]] = tomllib.loads(
    Path(__file__).with_name("texts.toml").read_text(encoding="utf-8")
)
"""The tables of `texts.toml`."""


def text(table: str, key: str, /, **values: object) -> str:
    """A text with its placeholders filled, see `numbers.filled`; where `more` is not 0, the text of
    `{key}_more`."""
    return filled(TEXTS[table][f"{key}_more" if values.get("more") else key], **values)
