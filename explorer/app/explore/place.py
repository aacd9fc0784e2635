"""Two small controls that choose the layer and the head whose attention pattern is shown."""

from __future__ import annotations

from collections.abc import Callable

from explorer.app.widgets.controls import ControlBox, describe
from explorer.config import Config
from explorer.fields import About, Spec

MANY = 64
"""Layers beyond which the slider becomes logarithmic."""


class Place(ControlBox):
    """Layer (from 1) and head (from 0) within the bounds of a config.

    Args:
        config: gives the bounds; see `fit`.
        on_read: called when a person chose another place, or one that there is not: see `refusal`.
    """

    def __init__(self, config: Config, on_read: Callable[[], None] = lambda: None) -> None:
        super().__init__(label="Attention pattern shown")
        self.layer, self.head, self.refusal = 1, 0, ""
        self._on_read = on_read
        self._specs: dict[str, Spec] = {}
        self.fit(config)
        self.observe(self._read, names="values")

    @property
    def pattern_of(self) -> tuple[int, int]:
        """Layer and head, as arguments of `measure`."""
        return self.layer, self.head

    def fit(self, config: Config) -> None:
        """Takes the bounds of another config; a choice beyond them moves to the last one."""
        specs = {
            "layer": Spec("layer", "integer", 1, "Layer whose attention is shown.",
                          About("Layer", "Attention", log=config.n_layers > MANY), 1, config.n_layers),
            "head": Spec("head", "integer", 0, "Head whose attention is shown, counted from 0.",
                         About("Head", "Attention"), 0, config.n_heads - 1),
        }
        self.layout.display = "none" if config.attention == "none" else None  # then there is nothing to choose
        self.layer, self.head = min(self.layer, config.n_layers), min(self.head, config.n_heads - 1)
        if specs != self._specs:
            self._specs = specs
            with self.hold_sync():
                self.sections = [{"title": "", "fields": [describe(spec) for spec in specs.values()]}]
                self.set_trait("values", {"layer": self.layer, "head": self.head})

    def _read(self, _: object = None) -> None:
        self.refusal = "; ".join(
            f"{spec.about.label} must be {spec.rule()}; got {str(self.values.get(name))[:80]!r}"
            for name, spec in self._specs.items() if not _fits(self.values.get(name), spec)
        )
        self.refused = [name for name, spec in self._specs.items() if not _fits(self.values.get(name), spec)]
        chosen = (self.layer, self.head) if self.refusal else (self.values["layer"], self.values["head"])
        if self.refusal or chosen != self.pattern_of:
            self.layer, self.head = chosen
            self._on_read()


def _fits(value: object, spec: Spec) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and spec.low <= value <= spec.high
