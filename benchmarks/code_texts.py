"""Texts of a notebook's code that people read: strings and comments, which a translation replaces.

A message is a literal or a comment as it stands in the code, with prefix and quotation marks. What
is a name or a setting ("post", "markers") is its own translation. The same text has the same
translation wherever it stands in a notebook, so that keys still match."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

READABLE = re.compile(r"[A-Za-z]{3}|\b[a-z]{2} ")
"""Text with a word in it."""
NUMBER = re.compile(r"(?<![A-Za-z_.\d])\d+(?:[.,]\d+)*")


class Text(NamedTuple):
    """A literal or a comment of a piece of code."""

    start: int
    end: int
    """Places in the code, in characters."""
    source: str


def texts(code: str) -> list[Text]:
    """The texts of a piece of code, in their order; strings without a word are none."""
    lines = code.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def place(row: int, column: int) -> int:
        """Place of what the syntax tree has at so many bytes of a row."""
        return starts[row - 1] + len(lines[row - 1].encode()[:column].decode())

    result = []
    for node in literals(ast.parse(code)):
        start = place(node.lineno, node.col_offset)
        end = place(node.end_lineno or 0, node.end_col_offset or 0)
        if READABLE.search(words(node)):
            result.append(Text(start, end, code[start:end]))
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT and READABLE.search(token.string):
            start = starts[token.start[0] - 1] + token.start[1]
            result.append(Text(start, start + len(token.string), token.string))
    return sorted(result)


def literals(tree: ast.AST) -> list[ast.expr]:
    """The strings of a tree, but for those within another."""
    nodes: list[ast.expr] = []
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.JoinedStr) or (
            isinstance(child, ast.Constant) and isinstance(child.value, str)
        ):
            nodes.append(child)
        else:
            nodes += literals(child)
    return nodes


def words(literal: ast.expr) -> str:
    """The constant text of a string, and that of strings within its fields."""
    nodes = [node for node in ast.walk(literal) if isinstance(node, ast.Constant)]
    return " ".join(node.value for node in nodes if isinstance(node.value, str))


def replaced(code: str, translations: Mapping[str, str]) -> str:
    """The code with its texts translated, where there is a translation."""
    for text in reversed(texts(code)):
        code = code[: text.start] + translations.get(text.source, text.source) + code[text.end :]
    return code


def kept(source: str) -> Counter[str]:
    """Parts that a translation of a text takes over as they are: fields and their formats, numbers.

    Strings within a field may be others."""
    if source.startswith("#"):
        return Counter(NUMBER.findall(source))
    literal = ast.parse(f"({source})", mode="eval").body  # it may have two pieces on two lines
    if isinstance(literal, ast.Constant):
        return Counter(NUMBER.findall(str(literal.value)))
    parts: Counter[str] = Counter()
    for value in getattr(literal, "values", []):
        if isinstance(value, ast.FormattedValue):
            for node in ast.walk(value.value):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    node.value = ""
            parts[ast.dump(value)] += 1
        else:
            parts.update(NUMBER.findall(value.value))
    return parts
