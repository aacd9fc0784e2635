"""Scripts of widgets that show a design's marks: a widget's own file behind what they share."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def marked(name: str) -> str:
    """The script `name`, with `make`, `button` and `swatch` of `marks.js` before it: a widget's script imports none."""
    return "\n".join((HERE / part).read_text(encoding="utf-8") for part in ("marks.js", name))
