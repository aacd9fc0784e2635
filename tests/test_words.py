"""Words that hide what a sentence or a name is about, and how often each still stands in the
package. Counts only fall.

python tests/test_words.py    # prints the counts as they are now
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import explorer

HOUSES = (Path(explorer.__file__).parent, Path(__file__).parents[1] / "plugins")
"""The package and its plug-ins."""
NAMES = ("one", "those", "found", "told", "seen", "read", "what")
"""Names of variables, arguments, functions and fields that say nothing."""
SCRIPT_NAMES = (*NAMES, "said", "asked", "held", "taken", "backs", "known", "ahead", "ours")
"""The same of scripts, for the names that a script gives; those of traits and of fields of a
message are Python's."""
WORDS = {
    "mend": r"\b(mend|mends|mended|mending)\b",
    "foretell": r"\b(foretell|foretells|foretold)\b",
    "its like": r"\b(its|their) like\b",
    "and says so": r"\band (says|said|says so)\b",
}
"""Words of comments, docstrings and texts for which the field has a plain one: fix, predict,
similar."""
OPENINGS = {
    "What …": r"What\b",
    "Those …": r"Those\b",
    "That …": r"That\b",
    "The same …": r"The same\b",
}
"""Openings of a docstring, or of a script's comment, that name nothing."""
ROWS: dict[str, int] = {}


def names(tree: ast.AST) -> Iterator[str]:
    """Every name that a module gives, where it is given."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name


def docstrings(tree: ast.AST) -> Iterator[str]:
    """Texts that stand alone: of modules, classes and functions, and below constants and fields."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.value.value


COMMENT = re.compile(r"/\*+\s*(.*?)\*/|(?:^|\s)//\s*(.*?)$", re.DOTALL | re.MULTILINE)
PARTS = r"(?:[^{}\[\]]|\{[^{}]*\}|\[[^\[\]]*\])*"
"""Names between the brackets of a destructuring pattern, which may hold another pattern."""
ARGUMENTS = r"\(((?:[^()]|\([^()]*\))*)\)"
GIVEN = re.compile(
    rf"""
    \b(?:const|let|class)\s+([\w$]+|\{{{PARTS}\}}|\[{PARTS}\])           # const name; let {{ name, key: name }}
    | {ARGUMENTS}\s*=>                                                 # (name, {{ name }}) =>
    | ([\w$]+)\s*=>                                                   # name =>
    | (?!\b(?:if|for|while|switch|catch)\b)\b([\w$]+){ARGUMENTS}\s*\{{  # function name(name) {{; a method
    """,
    re.VERBOSE,
)
"""Places in a script that give names."""
NO_NAME = re.compile(r""" "[^"]*" | =\s*[^,}\])]* | [\w$]+\s*: """, re.VERBOSE)
"""Strings, defaults, and the keys that a destructuring pattern renames."""


def script_names(text: str) -> Iterator[str]:
    """Every name that a script gives to a variable, an argument or a function, where it is
    given."""
    for match in GIVEN.finditer(COMMENT.sub("", text)):
        for pattern in filter(None, match.groups()):
            yield from re.findall(r"[\w$]+", NO_NAME.sub("", pattern))


def comments(text: str) -> Iterator[str]:
    """A script's comments, without their marks."""
    for match in COMMENT.finditer(text):
        yield match[1] or match[2] or ""


def sources(suffix: str) -> Iterator[Path]:
    """The files of package and plug-ins with a suffix."""
    for house in HOUSES:
        yield from house.rglob(f"*{suffix}")


@cache
def counted() -> dict[str, int]:
    """How often each stands in the package."""
    counts: Counter[str] = Counter()
    for path in sources(".js"):
        text = path.read_text(encoding="utf-8")
        counts.update(
            f"script's name {name}" for name in script_names(text) if name in SCRIPT_NAMES
        )
        counts.update(
            f"script's opening {title}"
            for comment in comments(text)
            for title, pattern in OPENINGS.items()
            if re.match(pattern, comment)
        )
    for path in sources(".py"):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        counts.update(f"name {name}" for name in names(tree) if name in NAMES)
        counts.update(
            f"word {word}"
            for word, pattern in WORDS.items()
            for _ in re.finditer(pattern, text, re.IGNORECASE)
        )
        counts.update(
            f"opening {title}"
            for text in docstrings(tree)
            for title, pattern in OPENINGS.items()
            if re.match(pattern, text)
        )
    return dict(sorted(counts.items()))


def test_no_word_is_more_frequent_than_its_row() -> None:
    more = {
        word: (count, ROWS.get(word, 0))
        for word, count in counted().items()
        if count > ROWS.get(word, 0)
    }
    assert not more, f"(now, row): {more}"


def test_a_row_is_lowered_with_its_word() -> None:
    now = counted()
    fewer = {word: (now.get(word, 0), row) for word, row in ROWS.items() if now.get(word, 0) < row}
    assert not fewer, f"lower these rows, (now, row): {fewer}"


def test_names_and_comments_of_a_script_are_seen() -> None:
    script = """/** What it is. */
function pressed(one, { two: told = read(1) }) { // Those
  const [found, { what }] = seen(held), url = "https://ahead";
  for (const one of ours) taken((asked) => { known.backs = asked; });
  return { said: one, held: found.seen };
}"""
    assert sorted(set(script_names(script)) & set(SCRIPT_NAMES)) == [
        "asked",
        "found",
        "one",
        "told",
        "what",
    ]
    assert list(script_names(script)).count("one") == 2
    assert [comment.strip() for comment in comments(script)] == ["What it is.", "Those"]


if __name__ == "__main__":
    sys.stdout.write("".join(f'    "{word}": {count},\n' for word, count in counted().items()))
