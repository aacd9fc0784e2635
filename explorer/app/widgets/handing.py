"""Files for a person to keep: the kernel makes the bytes, and the browser saves them."""

from __future__ import annotations

from ipywidgets import Widget

from explorer.choices import ConfigError

MOST = 200_000_000
"""Bytes that are sent through a browser's connection at once."""


def hand_over(widget: Widget, name: str, media: str, content: bytes) -> None:
    """Sends a file to the views of a widget, which save it by `savesFiles`.

    Raises:
        ConfigError: it is too large for that.
    """
    if len(content) > MOST:
        raise ConfigError(f"{name} must have at most {size_words(MOST)} to go through a browser; "
                          f"got {size_words(len(content))}")
    widget.send({"file": name, "media": media}, [content])


def size_words(count: int) -> str:
    """'31 kB' or '2.4 MB'."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{max(1, round(count / 1e3))} kB"
