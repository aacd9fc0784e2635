"""Real text without a network: the English prose that ships with Python."""

from __future__ import annotations

from functools import cache
from pydoc_data.topics import topics
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Text(NamedTuple):
    """A text as numbers: `vocabulary[codes[i]]` is its i-th character."""

    codes: NDArray[np.int64]
    vocabulary: tuple[str, ...]


@cache
def prose() -> Text:
    """Python's own documentation topics, about 465,000 characters with about 100 distinct ones."""
    characters = "\n\n".join(topics[name] for name in sorted(topics))
    vocabulary, codes = np.unique(np.array(list(characters)), return_inverse=True)
    codes = codes.astype(np.int64)
    codes.setflags(write=False)
    return Text(codes, tuple(str(character) for character in vocabulary))
