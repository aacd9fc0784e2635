"""The tabs of the page: those of this package, and those that plug-ins bring.

Each is registered by a reference to its `Tab`, and loaded with all others when a page is built."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from explorer import plugins
from explorer.app.page import Tab

OWN: Mapping[str, str] = MappingProxyType(
    {
        "explore": "explorer.app.explore.tab:TAB",
        "map": "explorer.app.map.panel:TAB",
        "lessons": "explorer.app.learn:TAB",
    }
)
"""The first one is open at the start."""


@cache
def tabs() -> Mapping[str, Tab]:
    """All tabs by name, in their order.

    Raises:
        ValueError: a plug-in's tab stands behind one that there is not.
    """
    rows: dict[str, Tab] = plugins.rows("tabs", OWN)
    order = list(OWN)
    for name, tab in rows.items():
        if name in OWN:
            continue
        if tab.after and tab.after not in order:
            raise ValueError(f"after must be a tab, one of {', '.join(order)}; got {tab.after!r}")
        place = order.index(tab.after) + 1 if tab.after else len(order)
        order.insert(place, name)
    return MappingProxyType({name: rows[name] for name in order})
