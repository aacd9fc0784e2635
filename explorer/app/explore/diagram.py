"""`Diagram`: the drawing of one layer of the current design, with the size of the signal along
it."""

from __future__ import annotations

from collections.abc import Sequence

import traitlets

from explorer.app.widgets.parts import Part
from explorer.config import Config
from explorer.figures.diagram import diagram
from explorer.profile import Profile


def head(layer: int, layers: int, words: str, *, disabled: bool = False) -> str:
    """The line above the drawing, as HTML: an entry for the layer, how many there are, and what the
    numbers are."""
    return (
        f'<p class="ex-diagram-head">Layer <input class="ex-entry" type="number" min="1" max="{layers}" '
        f'value="{layer}" aria-label="Layer of the diagram"{" disabled" * disabled}>'
        f"<span> of {layers}</span><span>{words}</span></p>"
    )


class Diagram(Part):
    """A card with the drawing.

    Traits:
        svg: the drawing.
        head: the line above it, see `head`.
        layer: its number, from 1. A browser asks for another by the message `["layer", number]`.
    """

    view = "diagram"
    svg = traitlets.Unicode().tag(sync=True)
    head = traitlets.Unicode(head(1, 1, "")).tag(sync=True)
    layer = traitlets.Int().tag(sync=True)

    def __init__(self) -> None:
        super().__init__()
        self._wanted = 0  # the layer that a person chose; 0 for the last
        self._shown: tuple[Config, Profile | None, Config] | None = None
        self.on_msg(self._choose)

    def show(self, config: Config, profiles: Sequence[Profile | None], reference: Config) -> None:
        """Draws a design.

        Args:
            config: the design.
            profiles: give the numbers, the last one that is of this design.
            reference: a design; parts in which the drawn one differs from it are marked.
        """
        profile = next(
            (profile for profile in reversed(profiles) if profile and profile.config == config),
            None,
        )
        self._shown = config, profile, reference
        self.layer = min(self._wanted or config.n_layers, config.n_layers)
        self.head = head(
            self.layer, config.n_layers, f"q = mean x², {profile.origin}" if profile else ""
        )
        self.svg = diagram(config, self.layer, profile, reference)

    def _choose(self, _: object, content: object, __: object) -> None:
        match content:
            case ["layer", int() as layer] if self._shown and 1 <= layer <= self._shown[0].n_layers:
                self._wanted = layer
                config, profile, reference = self._shown
                self.show(config, [profile], reference)
