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
        label: what is chosen, said to a screen reader.
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

    def _read(self, _: object = None) -> None:
        """Reads a person's choice."""
        sent = {field["name"]: self.values.get(field["name"]) for field in self._fields}
        wrong = {field["name"]: field for field in self._fields if not _offers(field, sent[field["name"]])}
        typed = {name: field for name, field in wrong.items() if field["steps"]}
        before = self.refusal
        self._refuse({name: f"{field['label']} must be a whole number between {field['steps'][0]} and "
                            f"{field['steps'][-1]}; got {str(sent[name])[:80]!r}" for name, field in typed.items()})
        if typed:
            self._on_choice()
            return
        chosen = {name: self.chosen[name] if name in wrong else value for name, value in sent.items()}
        changed, self.chosen = chosen != self.chosen, chosen
        self.values = dict(chosen)
        if changed or before:
            self._on_choice()

    def _refuse(self, reasons: Mapping[str, str]) -> None:
        self.refusal, self.refused = "; ".join(reasons.values()), list(reasons)


def _offers(field: Field, value: object) -> bool:
    """Whether a control has such a value: an option of its list, or a whole number on its slider."""
    if field["options"]:
        return isinstance(value, str) and any(option["value"] == value for option in field["options"])
    return type(value) is int and field["steps"][0] <= value <= field["steps"][-1]
