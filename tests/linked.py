"""The `state` of a link, as the page writes it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote_plus

from explorer.app.link.links import SAFE
from explorer.app.link.state import text_of


def state(**panels: Any) -> str:
    """The last part of a link: `&state=…`."""
    return f"&state={quote_plus(text_of(panels), safe=SAFE)}"
