"""Named designs of papers and models, as changes to `Config`: the tables of `presets.toml`, each
with its source.

A preset says what makes the design, and nothing of size, input or seeds: `preset("deepnorm",
n_layers=100)`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

from explorer.display import table
from explorer.translation import Texts, translated, with_messages

if TYPE_CHECKING:
    import pandas as pd


@with_messages("words", "differs")
class Preset(NamedTuple):
    """One design; the keys of a table of `presets.toml`."""

    title: str
    group: str
    """A key of `GROUPS`."""
    words: str
    """The design in a sentence."""
    changes: Mapping[str, Any]
    """Fields of `Config` that differ from the defaults."""
    source: str
    differs: str = ""
    """Differences of the model or the paper; empty where none is known."""
    aliases: str = ""
    """Other names that somebody may look for."""
    by_width: bool = False
    """Whether embeddings are multiplied by √d: the input's second moment is that of the default's
    width, and grows."""


def _letters(text: str) -> str:
    """The letters and digits of a text, in lower case."""
    return "".join(filter(str.isalnum, text.lower()))


class Presets(dict[str, Preset]):
    """Named designs: a key is an argument of `preset`, a value has words, source and
    differences."""

    def grouped(self) -> list[tuple[str, str, Preset]]:
        """Words of the group, name and row of each design, group by group."""
        return [
            (words, name, row)
            for group, words in GROUPS.items()
            for name, row in self.items()
            if row.group == group
        ]

    def near(self, text: str) -> list[str]:
        """Up to three names: of designs whose name, title, alias or source begins with the text,
        else of similar words.

        Case, spaces and punctuation do not matter.
        """
        wanted = _letters(text)
        if not wanted:
            return []
        spelled = [
            (_letters(word), name)
            for name, row in self.items()
            for word in (name, row.title, *row.aliases.split(), *row.source.split())
        ]
        names = [name for word, name in spelled if word.startswith(wanted)]
        # designs whose own name begins so are first; the sort keeps the order of the others
        names.sort(key=lambda name: not _letters(name).startswith(wanted))
        if not names:
            for match in get_close_matches(wanted, {word for word, _ in spelled}):
                names += [name for word, name in spelled if word == match]
        return list(dict.fromkeys(names))[:3]

    def __repr__(self) -> str:
        groups: dict[str, list[str]] = {}
        for words, name, _ in self.grouped():
            groups.setdefault(words, []).append(name)
        return "\n".join(
            fill(f"{words}: {', '.join(names)}", 100, subsequent_indent="  ")
            for words, names in groups.items()
        )

    def _repr_html_(self) -> str:
        header = [*map(translated, ("Name", "Design", "Words", "Differs", "Source"))]
        rows = [(name, row.title, row.words, row.differs, row.source) for name, row in self.items()]
        return table(translated("Named designs"), header, rows)

    def frame(self) -> pd.DataFrame:
        """A row a design, by its name; columns as `Preset` has them."""
        import pandas as pd

        return pd.DataFrame(
            list(self.values()), index=pd.Index(self, name="name"), columns=list(Preset._fields)
        )


GROUPS: Mapping[str, str] = Texts(
    {
        "model": "Real models",
        "norm": "Norms and their place",
        "residual": "Residual and streams",
        "attention": "Attention and positions",
        "mlp": "MLP",
    }
)
"""Groups of designs, in the order of a list, and their words."""

TABLE = Path(__file__).with_name("presets.toml")
PRESETS = Presets(
    {name: Preset(**row) for name, row in tomllib.loads(TABLE.read_text(encoding="utf-8")).items()}
)
