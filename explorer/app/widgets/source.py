"""Scripts and styles of widgets that share something: none can import, so what they share is put before their own."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent.parent


def source(*names: str) -> str:
    """The files of these names as one: those that several widgets share first, a widget's own last."""
    return "\n".join((HERE / name).read_text(encoding="utf-8") for name in names)
