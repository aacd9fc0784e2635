"""The house: how many lines of code and files each room has. The numbers only fall.

    python tests/test_house.py    # prints the table as it would be now
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import explorer


class Room(NamedTuple):
    lines: int
    files: int


HOUSE = Path(explorer.__file__).parent
ROOMS: dict[str, Room] = {
    ".": Room(2071, 17),
    "app": Room(8147, 86),
    "diagnosis": Room(1091, 9),
    "export": Room(507, 5),
    "figures": Room(2196, 16),
    "glossary": Room(79, 1),
    "jupyter": Room(158, 2),
    "lessons": Room(414, 4),
    "measuring": Room(595, 7),
    "model": Room(590, 8),
    "own": Room(4072, 27),
    "plotlyjs": Room(22, 1),
    "schemes": Room(809, 12),
    "serve": Room(1149, 7),
    "sweeping": Room(741, 6),
    "tasks": Room(656, 5),
    "theory": Room(2639, 18),
    "training": Room(1195, 9),
}
"""The modules beside the rooms are ".". A change that makes a room smaller lowers its row; a room that must grow takes
its lines from another's row."""
SLACK = 25
"""Lines by which a room may be below its row before the row has to be lowered."""
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
          tokenize.ENDMARKER}


def python_lines(text: str) -> int:
    """Lines with code: no blanks, comments and docstrings."""
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            code.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(code)


def script_lines(text: str) -> int:
    """The same of JavaScript and CSS."""
    lines = map(str.strip, re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).splitlines())
    return sum(bool(line) and not line.startswith("//") for line in lines)


COUNT = {".py": python_lines, ".js": script_lines, ".css": script_lines}


def measured() -> dict[str, Room]:
    """Each room as it is now."""
    counts: defaultdict[str, list[int]] = defaultdict(list)
    for path in sorted(HOUSE.rglob("*")):
        if path.suffix in COUNT:
            room, *below = path.relative_to(HOUSE).parts
            counts[room if below else "."].append(COUNT[path.suffix](path.read_text(encoding="utf-8")))
    return {room: Room(sum(lines), len(lines)) for room, lines in sorted(counts.items())}


def test_no_room_is_larger_than_its_row() -> None:
    now = measured()
    assert now.keys() == ROOMS.keys()
    larger = {room: (now[room], row) for room, row in ROOMS.items() if now[room].lines > row.lines
              or now[room].files > row.files}
    assert not larger, f"(now, row): {larger}"


def test_a_row_is_lowered_with_its_room() -> None:
    now = measured()
    lower = {room: (now[room], row) for room, row in ROOMS.items() if now[room].lines < row.lines - SLACK
             or now[room].files < row.files}
    assert not lower, f"lower these rows, (now, row): {lower}"


def test_only_code_is_counted() -> None:
    assert python_lines('"""Words."""\n\nx = 1  # why\n# more\ny = """a\nb"""\n\ndef f():\n    """Words."""\n') == 4
    assert script_lines("/* words\n*/\n\n// words\nlet x = 1; // why\n") == 1


if __name__ == "__main__":
    rooms = measured()
    text = [f'    "{room}": Room({row.lines}, {row.files}),' for room, row in rooms.items()]
    total = f"{sum(row.lines for row in rooms.values()):,} lines in {sum(row.files for row in rooms.values())} files"
    sys.stdout.write("\n".join([*text, total, ""]))
