"""Real text without a network: the English prose that ships with Python, or a text of the user's
own."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from pydoc_data.topics import topics
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from explorer.choices import ConfigError, opening
from explorer.translation import translated

SHORTEST, LARGEST_BYTES = 2_000, 5_000_000
"""Bounds on the text that a person brings: characters at least, bytes at most."""
LARGEST_VOCABULARY = 8_192
"""Distinct characters at most: each is a row of the embedding and of the readout."""
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""First bytes of such a file."""


class Text(NamedTuple):
    """A text as numbers: `vocabulary[codes[i]]` is its i-th character."""

    codes: NDArray[np.int64]
    vocabulary: tuple[str, ...]


@cache
def prose() -> Text:
    """Python's own documentation topics, about 465,000 characters with about 100 distinct ones."""
    return encode("\n\n".join(topics[name] for name in sorted(topics)))


def load(path: str | Path) -> Text:
    """A text file of the user's own.

    Raises:
        ConfigError: there is no such file, it is too large or too short, or it is not UTF-8.
    """
    file = Path(path)
    if not file.is_file():
        raise ConfigError(
            translated("text must be a file; got {path!r}, which is not a file", path=str(file))
        )
    with opening(file, "text must be a file that can be read"), file.open("rb") as opened:
        raw = opened.read(LARGEST_BYTES + 1)
    return decode(raw)


def decode(raw: bytes) -> Text:
    """A text from the bytes of a file: UTF-8, with or without a byte order mark, any line ends.

    Raises:
        ConfigError: too large, too short, too many distinct characters, or not UTF-8.
    """
    if len(raw) > LARGEST_BYTES:
        raise ConfigError(
            translated("text must have at most {most:,} bytes; got more", most=LARGEST_BYTES)
        )
    try:
        characters = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        cause = translated(
            "{byte!r} at byte {place:,}, as in GBK or Latin-1",
            byte=raw[error.start : error.start + 1],
            place=error.start,
        )
        raise _not_utf8("UTF-16" if raw.startswith(UTF_16) else cause) from None
    if "\0" in characters:
        raise _not_utf8(translated("NUL characters, as in UTF-16 or in what is no text"))
    text = encode(characters.replace("\r\n", "\n").replace("\r", "\n"))
    if len(text.codes) < SHORTEST:
        raise ConfigError(
            translated(
                "text must have at least {least:,} characters; got {count:,}",
                least=SHORTEST,
                count=len(text.codes),
            )
        )
    if not 2 <= len(text.vocabulary) <= LARGEST_VOCABULARY:
        raise ConfigError(
            translated(
                "text must have between 2 and {most:,} distinct characters; got {count:,}",
                most=LARGEST_VOCABULARY,
                count=len(text.vocabulary),
            )
        )
    return text


def _not_utf8(cause: str) -> ConfigError:
    message = translated(
        "text must be encoded in UTF-8; got {cause}: save it as UTF-8", cause=cause
    )
    return ConfigError(message)


def encode(characters: str) -> Text:
    """Characters to numbers, numbered in the order of their code points."""
    points = np.frombuffer(characters.encode("utf-32-le"), dtype="<u4")
    vocabulary, codes = np.unique(points, return_inverse=True)
    codes = codes.astype(np.int64)
    codes.setflags(write=False)
    return Text(codes, tuple(map(chr, vocabulary.tolist())))
