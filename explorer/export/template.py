"""Templates: Python text of which a config keeps some lines, and only the constants and functions that these use."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from string import Template

TAG = re.compile(r"(.*?)\s*#\? ([\w !]+)")


def fill(template: str, flags: Collection[str], values: Mapping[str, str]) -> str:
    """The lines of a template that hold, with values for `${name}`.

    A line that ends in `#? a !b` is kept where the flag a is set and b is not; where such a tag is a line of its own,
    it decides on its whole paragraph, up to the next empty line.

    Raises:
        KeyError: the template names a value that is not given.
    """
    paragraphs = [_kept(paragraph, flags) for paragraph in re.split(r"\n\n+", template.strip("\n"))]
    return Template("\n\n".join(filter(None, paragraphs))).substitute(values)


def _kept(paragraph: str, flags: Collection[str]) -> str:
    lines = []
    for line in paragraph.splitlines():
        if not (tag := TAG.fullmatch(line)):
            lines.append(line)
        elif _holds(tag[2], flags):
            lines += [tag[1]] if tag[1].strip() else []
        elif not tag[1].strip():
            return ""
    return "\n".join(lines)


def _holds(condition: str, flags: Collection[str]) -> bool:
    return all((flag.lstrip("!") in flags) != flag.startswith("!") for flag in condition.split())


def used(pieces: Mapping[str, str], body: str) -> list[str]:
    """The pieces whose names occur in a text, or in another piece that is used; in their order."""
    names: list[str] = []
    waiting = [body]
    while waiting:
        reader = waiting.pop()
        for name, piece in pieces.items():
            if name not in names and re.search(rf"(?<![\w.]){name}\b", reader):
                names.append(name)
                waiting.append(piece)
    return [piece for name, piece in pieces.items() if name in names]
