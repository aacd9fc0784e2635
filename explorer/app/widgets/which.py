"""A small control that chooses the matrix whose gradient is compared, where several designs are drawn together."""

from __future__ import annotations

from collections.abc import Callable

from explorer.app.widgets.controls import ControlBox, choice
from explorer.profile import MATRICES

FIELD, ALL = "matrix", "all"
CHOICES = dict(zip((*MATRICES, "alpha"), (
    "queries", "keys", "values", "attention output", "MLP input", "MLP output", "residual α"), strict=True))
"""Words, for a list cannot show W_Q with its Q below the line."""


class Which(ControlBox):
    """A select.

    Args:
        on_read: called when a person chose another matrix.
    """

    def __init__(self, on_read: Callable[[], None] = lambda: None) -> None:
        super().__init__(label="Gradient compared", sections=[{"title": "", "fields": [_field()]}])
        self._on_read = on_read
        self.matrix = ""
        self.values = {FIELD: ALL}
        self.several(there_are=False)
        self.observe(self._read, names="values")

    def several(self, *, there_are: bool) -> None:
        """Whether there is anything to choose: a design alone shows each of its matrices."""
        self.layout.display = None if there_are else "none"

    def _read(self, _: object = None) -> None:
        """Reads a person's choice; ignored when there is no such matrix."""
        wanted = self.values.get(FIELD)
        matrix = wanted if isinstance(wanted, str) and wanted in CHOICES else "" if wanted == ALL else self.matrix
        if matrix != self.matrix:
            self.matrix = matrix
            self._on_read()
        self.values = {FIELD: self.matrix or ALL}


def _field() -> dict[str, object]:
    whole = {"value": ALL, "label": "all of a layer together"}
    matrices = [{"value": name, "label": words, "formula": name} for name, words in CHOICES.items()]
    return choice(FIELD, "Matrix", "Matrix whose gradient is drawn for each design; all together: √Σ‖∂L/∂W‖².",
                  [whole, *matrices], ALL)
