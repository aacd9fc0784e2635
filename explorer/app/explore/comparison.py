"""Pinned designs of the Explore panel: what their buttons do, and the marks in which each is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from explorer.app.design_names import choice_words
from explorer.app.explore.compare import Column, Compare, Diagnose
from explorer.app.explore.pins import NOW, Pin, Pins
from explorer.app.explore.sentences import legend_entry, marks, residual_words
from explorer.app.roster import RosterError, quoted
from explorer.app.widgets.roster_box import RosterBox, swatch
from explorer.config import Config
from explorer.figures import Design
from explorer.presets import differences
from explorer.profile import Profile


class Comparison:
    """The pins of a panel. Callers must hold the panel's lock.

    Args:
        click: called with what a button of `box` sends: must hold the lock and call `obey`.
        current: gives the design of the controls, and its profiles so far.
        load: sets the controls, given every field.
        redraw: draws every chart anew; called when pins have changed.
        diagnose: findings of a measured profile, or None.
    """

    def __init__(
        self, click: Callable[[object], None], current: Callable[[], Pin],
        load: Callable[[Mapping[str, object]], None], redraw: Callable[[], None], diagnose: Diagnose | None = None,
    ) -> None:
        self.pins = Pins()
        self.box = RosterBox(click, noun="pinned design", heading="Designs on the charts",
                             verbs=["hide", "load", "remove"])
        self.table = Compare()
        self._current, self._load, self._redraw, self._diagnose = current, load, redraw, diagnose

    def obey(self, message: object) -> None:
        """Handles a click in a browser; messages that make no sense are ignored."""
        try:
            match message:
                case ["load", int() as number] if number in self.pins:
                    self._load(self.pins[number].config.model_dump())
                    said = f"The controls show {quoted(self.pins[number].name)}."
                case ["pin"]:
                    pin = self.pins.add(self._current())
                    said = f"Pinned as {quoted(pin.name)}: it stays on the charts while the controls move on."
                    self._changed()
                case _:
                    said = self.pins.obey(message)
                    self._changed()
        except RosterError as error:
            said = str(error)
        self.box.answer(said)

    def restore(self, records: object, predict: Callable[[Config], Profile | None]) -> list[str]:
        """Replaces the pins by those of a record, see `Roster`; measured profiles are kept."""
        sentences = self.pins.restore(records)
        for pin in self.pins:
            if pin.predicted is None:
                self.pins.change(pin.number, predicted=predict(pin.config))
        return sentences

    def _changed(self) -> None:
        self.follow()
        self._redraw()

    def move(self) -> None:
        """Removes the message about the last click, after the controls have moved."""
        self.follow()
        self.box.said = ""

    def follow(self) -> None:
        """Updates the legend, after pins have changed or one was measured."""
        config = self._current().config
        with self.box.hold_sync():
            name, about = self.pins.name_for(config), residual_words(config)
            self.box.now = {"name": name, "about": about, **swatch(Design(NOW, config, ""))}
            self.box.show(self.pins, lambda pin: about_pin(pin, config))

    def drawn(self, now: Sequence[Profile], secret: str = "") -> tuple[list[Profile], list[Design]]:
        """Everything to be drawn, and the design of each profile; the current design comes last and so lies on top.

        A visible pin of the current config is not drawn a second time.

        Args:
            now: the profiles of the current design.
            secret: the reason why the table shows nothing of it, if there is one.
        """
        config, designs = now[0].config if now else None, self.pins.designs()
        pinned = [(designs[pin.number], profile) for pin in self.pins if pin.visible and pin.config != config
                  for profile in pin.profiles]
        when = "now" if config == self._current().config else "before"
        name = f"{self.pins.name_for(config)} ({when})" if pinned and config else ""
        rows = [*pinned, *((Design(NOW, config, name), profile) for profile in now)]
        profiles = [profile for _, profile in rows]
        self.box.marks = marks(profiles)
        self.table.show(self._columns(now, secret), self._diagnose)
        return profiles, [design for design, _ in rows]

    def visible(self) -> list[Design]:
        """The designs of the visible pins."""
        designs = self.pins.designs()
        return [designs[pin.number] for pin in self.pins if pin.visible]

    def _columns(self, now: Sequence[Profile], secret: str) -> list[Column]:
        """The columns of the table: the design that is drawn as the current one, then the pins; none without pins."""
        current = self._current()
        config = now[0].config if now and now[0].config else current.config
        known: dict[str, Profile] = {
            profile.origin: profile for profile in now if profile.config == config and not profile.partial}
        when = "now" if config == current.config else "before"
        first = Column(Design(NOW, config, ""), config, self.pins.name_for(config), when, known.get("predicted"),
                       known.get("measured"), secret)
        pins = [pin for pin in self.pins if pin.visible]
        return [first, *(
            Column(Design(pin.index, pin.config, pin.name), pin.config, pin.name, "", pin.predicted, pin.measured,
                   pin.trouble) for pin in pins if pin.config != config)] if pins else []

    def legend(self, whose: Sequence[Design]) -> list[dict[str, str]]:
        """The designs that are drawn, each once, for a picture that is saved."""
        return [
            legend_entry(design, design.label or self.pins.name_for(design.config), design.config)
            for design in dict.fromkeys(whose) if design.config
        ]


def about_pin(pin: Pin, config: Config) -> str:
    """The line of a chip: differences from the current design, and whether it still waits."""
    waits = pin.trouble or ("" if pin.measured else "not measured yet")
    apart = choice_words(pin.config, differences(pin.config, config))
    return " · ".join(filter(None, (apart or "same as now", waits)))
