"""`MapControls`: the axes, the statistic and what is computed; a choice brings with it what must change as well."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from explorer.app.map.plan import Plan, fitted
from explorer.app.widgets.controls import Controls


class MapControls(Controls[Plan]):
    """Controls of a `Plan`. What a person chooses is fitted; what the page itself sets is taken as it is.

    Args:
        plan: where they start.
        on_read: see `Controls`.
    """

    def __init__(self, plan: Plan, on_read: Callable[[], None]) -> None:
        self._exact = True
        super().__init__(plan, on_read, label="Axes and statistic of the map")
        self._exact = False

    def apply(self, changes: Mapping[str, object]) -> None:
        """Changes some choices; see `Controls.apply`."""
        self._exact = True
        try:
            super().apply(changes)
        finally:
            self._exact = False

    def _exclusions(self, _: Plan) -> dict[str, Any]:
        return {}

    def _read(self, change: object = None) -> None:
        if not self._exact and (whole := fitted(self.config, self.values)) != self.values:
            self.apply(whole)  # which is read in turn
            return
        super()._read(change)
