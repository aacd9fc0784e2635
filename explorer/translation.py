"""Sentences of the package in the language of the process: English, or the one that `language` has
set.

The messages of a language are `locale/NAME/LC_MESSAGES/explorer.po`, as gettext's tools write and
merge them. The file is used as it is, so that no compiled one can be older than it.
`python -m benchmarks.lessons --translate` collects the messages."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from explorer.display import shown

LOCALE = Path(__file__).with_name("locale")
LANGUAGES: Mapping[str, str] = {"en": "", "zh": "zh_CN"}
"""The languages, and the folders of their messages; English has none."""
FIELD = re.compile(r'^(msgid|msgstr) ((?:"(?:[^"\\]|\\.)*"\n?)+)', re.MULTILINE)
"""A message or its translation: strings in quotation marks, a line each."""
_current = "en"  # of the process, not of a context: figures are computed on threads of their own


def language(name: str) -> None:
    """Sets the language of checks, hints and live figures: English is "en", Chinese "zh".

    A sentence that has no translation stays English. The setting is the process's, so that every
    thread has it.

    Raises:
        ValueError: there is no such language.

    Example:
        >>> ex.language("zh")
        >>> ex.check("02.1", lambda n, m, v: m * v)
        正确。
        >>> ex.language("en")
    """
    global _current
    if name not in LANGUAGES:
        raise ValueError(f"name must be one of {', '.join(LANGUAGES)}; got {shown(name)}")
    _current = name


def translated(message: str, /, **values: object) -> str:
    """A message in the language of the process, with values in place of its named fields.

    Args:
        message: a whole sentence, a clause or a name in English, such as "the value is {name}".
        values: of the fields, in words or numbers; without any, braces are no fields.
    """
    text = catalog(LANGUAGES[_current]).get(message) or message
    return text.format(**values) if values else text


class TranslatedError(ValueError):
    """An error whose message is in the language of the process; see `translated`."""

    def __init__(self, message: str, /, **values: object) -> None:
        super().__init__(translated(message, **values))


@cache
def catalog(folder: str) -> Mapping[str, str]:
    """The translation of each message; none of English."""
    if not folder:
        return {}
    file = LOCALE / folder / "LC_MESSAGES" / "explorer.po"
    fields = FIELD.findall(file.read_text(encoding="utf-8"))
    texts = ["".join(map(ast.literal_eval, quoted.splitlines())) for _, quoted in fields]
    # the first message is empty: its translation is the file's head
    return dict(zip(texts[2::2], texts[3::2], strict=True))
