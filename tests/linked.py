"""The `state` of a link, as the page writes it."""

from __future__ import annotations

import json
from urllib.parse import quote_plus

from explorer.app.link.links import SAFE


def state(**panels: object) -> str:
    """The last part of a link: `&state=…`."""
    text = json.dumps(panels, ensure_ascii=False, separators=(",", ":"))
    return f"&state={quote_plus(text, safe=SAFE)}"
