"""`Selection`: lists and sliders below or above charts, which choose among what there is at the moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from explorer.app.widgets.controls import ControlBox

Field = Mapping[str, Any]
"""A control, as `choice` or `describe` makes it."""


class Selection(ControlBox):
    """Some controls, each with a value that is always one of those offered.

    A browser's choice in a list that has no such option is ignored; a number that somebody typed and that is out of
    range is refused in words, and stays where it was typed.

    Args:
        label: of the choice, for a screen reader.
        on_choice: called after `chosen` or `refusal` has changed.
    """

    def __init__(self, label: str, on_choice: Callable[[], None] = lambda: None) -> None:
        super().__init__(label=label)
        self.chosen: dict[str, Any] = {}
        self.refusal = ""
        self._fields: list[Field] = []
        self._on_choice = on_choice
        self.observe(self._read, names="values")

    def offer(self, fields: Sequence[Field], **chosen: object) -> None:
        """Replaces the controls and their values."""
        with self.hold_sync():
            if list(fields) != self._fields:
                self._fields = list(fields)
                self.sections = [{"title": "", "fields": self._fields}]
            self.show(**chosen)

    def show(self, **chosen: object) -> None:
        """Changes what is chosen, as if it had never been otherwise; also takes back what was refused."""
        self.chosen |= chosen
        self.values = dict(self.chosen)
        self._refuse({})

    def restore(self, values: object) -> list[str]:
        """Makes recorded choices; where one is not offered, nothing changes, and a sentence says why."""
        choices = values if isinstance(values, Mapping) else {}
        reasons = self._reasons(choices)
        if not reasons:
            self.values = {name: choices[name] for name in self.chosen}
        return ["; ".join(reasons.values())] if reasons else []

    def _read(self, _: object = None) -> None:
        """Reads a person's choice."""
        reasons, before = self._reasons(self.values), self.refusal
        self._refuse({field["name"]: reasons[field["name"]] for field in self._fields
                      if field["steps"] and field["name"] in reasons})
        if self.refusal:
            self._on_choice()
            return
        chosen = {name: old if name in reasons else self.values[name] for name, old in self.chosen.items()}
        changed, self.chosen = chosen != self.chosen, chosen
        self.values = dict(chosen)
        if changed or before:
            self._on_choice()

    def _refuse(self, reasons: Mapping[str, str]) -> None:
        self.refusal, self.refused = "; ".join(reasons.values()), list(reasons)

    def _reasons(self, values: Mapping[str, object]) -> dict[str, str]:
        """The values that are not offered, by field, each with a sentence."""
        reasons = {}
        for field in self._fields:
            value, options, steps = values.get(field["name"]), field["options"], field["steps"]
            names = [option["value"] for option in options]
            rule = f"one of {', '.join(names)}" if options else f"a whole number between {steps[0]} and {steps[-1]}"
            if not (value in names if options else type(value) is int and steps[0] <= value <= steps[-1]):
                reasons[field["name"]] = f"{field['label']} must be {rule}; got {str(value)[:80]!r}"
        return reasons
