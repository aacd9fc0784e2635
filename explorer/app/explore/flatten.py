"""`Flatten`: buttons beside two controls that ask the theory for the value at which a signal stays
flat."""

from __future__ import annotations

import threading
from collections.abc import Callable

from explorer.app.widgets.controls import Controls
from explorer.app.widgets.parts import LOCK
from explorer.config import Config
from explorer.theory.solve import Solution

Solve = Callable[[Config, str, str], Solution]
TARGETS = {
    "flat_signal": (
        "Flat signal",
        "The value at which theory expects the last second moment to equal the first",
    ),
    "flat_gradient": (
        "Flat gradient",
        "The value at which theory expects the same gradient at both ends",
    ),
}
"""Questions to the theory: the target, the button's label and its tooltip."""
BETTER = {
    "label": "Branches of 1/√(2N)",
    "title": "Instead: all 2N branches together add about as much as the input",
}
"""Label and tooltip of the offer that replaces a trivial answer."""
SOLVED = ("init_variance", "alpha")
"""The fields with such buttons."""


class Flatten:
    """The buttons.

    Args:
        controls: the design's; the buttons set them.
        solve: the theory run backwards.
        on_failure: called with `Class: message` when the theory breaks.
    """

    def __init__(
        self, controls: Controls[Config], solve: Solve, on_failure: Callable[[str], None]
    ) -> None:
        self._controls, self._solve, self._on_failure = controls, solve, on_failure
        self._better: dict[str, Config | None] = {}
        buttons = [{"label": label, "title": title} for label, title in TARGETS.values()]
        controls.offer(dict.fromkeys(SOLVED, buttons), self._take)

    def _take(self, name: str, index: int) -> None:
        """Sets the better design, which is known already, or solves on a thread: a deep model takes
        a second."""
        if index < len(TARGETS):
            threading.Thread(
                target=self._find,
                args=(name, list(TARGETS)[index]),
                name="explorer-solve",
                daemon=True,
            ).start()
        elif better := self._better[name]:
            self._controls.apply({field: getattr(better, field) for field in ("residual", *SOLVED)})

    def _find(self, name: str, target: str) -> None:
        try:
            solution = self._solve(self._controls.config, name, target)
            value = float(f"{getattr(solution.config, name):.6g}")  # an entry holds no more
            with LOCK:
                self._controls.apply({name: value})
                self._better[name] = solution.better
                self._controls.remark(
                    name, solution.message, *([BETTER] if solution.better else [])
                )
                if page := self._controls.page:
                    page.follow()
        except Exception as error:  # noqa: BLE001 - shown, and the page goes on
            with LOCK:
                self._on_failure(f"{type(error).__name__}: {error}")
