"""Scripts of widgets that share something: a widget's script imports none, so what they share is put before it."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def script(*names: str) -> str:
    """The files of these names as one script: `moves.js` and `marks.js` where the widget needs them, then its own."""
    return "\n".join((HERE / name).read_text(encoding="utf-8") for name in names)
