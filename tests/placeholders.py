"""The texts and names of a package's code, by which tables of sentences are held against it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType


def code_of(package: ModuleType) -> list[ast.Module]:
    """The syntax trees of a package's own modules."""
    files = Path(str(package.__file__)).parent.glob("*.py")
    return [ast.parse(path.read_text(encoding="utf-8")) for path in files]


def texts_and_names(code: Iterable[ast.Module]) -> tuple[set[str], set[str]]:
    """Every text of some code, among them the keys of its tables; and every name that a placeholder
    may be filled by: the texts, and the keywords of calls."""
    texts, names = set[str](), set[str]()
    for tree in code:
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value)
            elif isinstance(node, ast.keyword) and node.arg:
                names.add(node.arg)
    return texts, names | texts
