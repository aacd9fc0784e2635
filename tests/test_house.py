"""The house: how much there is to read in each room, in tokens, which no layout changes.

python tests/test_house.py    # prints the table as it is now
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path

import explorer

HOUSE = Path(explorer.__file__).parent
PLUGINS = Path(__file__).parents[1] / "plugins"
ROOMS: dict[str, int] = {
    ".": 24_800,
    "app": 98_800,
    "diagnosis": 24_500,
    "explorer_models": 86_800,
    "explorer_race": 29_900,
    "explorer_serve": 17_000,
    "export": 8_000,
    "figures": 28_000,
    "glossary": 1_500,
    "lessons": 13_100,
    "measuring": 8_500,
    "model": 9_000,
    "plotlyjs": 500,
    "schemes": 8_500,
    "sweeping": 9_100,
    "tasks": 8_000,
    "theory": 54_900,
}
"""The most tokens that a room may have; the modules beside the rooms are ".", a plug-in is one
room. A row has room for
one more tab, statistic or activation. A change that needs more lowers another row, or says why in
its commit."""
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def docstring_lines(tree: ast.AST) -> set[int]:
    """Lines on which strings stand alone: docstrings of modules, classes, functions and fields."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def python_tokens(text: str) -> int:
    """Names, numbers, strings and signs: no comments, docstrings and layout."""
    docstrings = docstring_lines(ast.parse(text))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type not in LAYOUT and token.start[0] not in docstrings for token in tokens)


def script_tokens(text: str) -> int:
    """The same of JavaScript, CSS and Jinja."""
    text = re.sub(r"/\*.*?\*/|\{#.*?#\}", "", text, flags=re.DOTALL)
    text = re.sub(r"(^|\s)//\s.*$", r"\1", text, flags=re.MULTILINE)
    word, number, string = (
        r"[A-Za-z_$][\w$-]*",
        r"\d[\w.%]*",
        r"\"(?:\\.|[^\"\n])*\"|'(?:\\.|[^'\n])*'",
    )
    return len(re.findall(rf"{word}|{number}|{string}|[^\s\w]", text))


COUNT = {".py": python_tokens, ".js": script_tokens, ".css": script_tokens, ".jinja": script_tokens}


def measured() -> Counter[str]:
    """The tokens of each room as they are now."""
    rooms: Counter[str] = Counter()
    for path in HOUSE.rglob("*"):
        if path.suffix in COUNT and path.is_file():
            room, *below = path.relative_to(HOUSE).parts
            rooms[room if below else "."] += tokens_of(path)
    for path in PLUGINS.rglob("*"):
        if path.suffix in COUNT and path.is_file():
            rooms[path.relative_to(PLUGINS).parts[1]] += tokens_of(path)
    return rooms


def tokens_of(path: Path) -> int:
    """The tokens of one file."""
    return COUNT[path.suffix](path.read_text(encoding="utf-8"))


def test_no_room_is_larger_than_its_row() -> None:
    now = measured()
    assert now.keys() == ROOMS.keys()
    larger = {
        room: f"{tokens:,} of {ROOMS[room]:,}"
        for room, tokens in now.items()
        if tokens > ROOMS[room]
    }
    assert not larger


def test_only_code_is_counted() -> None:
    assert (
        python_tokens('"""Words."""\n\nx = 1  # why\n# more\n\ndef f():\n    """Words."""\n')
        == 3 + 5
    )
    assert python_tokens("x = (1,\n     2)\n") == python_tokens("x = (1, 2)\n")
    assert script_tokens("/* words\n*/\n\n// words\nlet x = 1; // why\n") == 5


if __name__ == "__main__":
    rooms = measured()
    rows = [f"{tokens:8,}  {room}" for room, tokens in rooms.most_common()]
    sys.stdout.write("\n".join([*rows, f"{rooms.total():8,}  in all", ""]))
