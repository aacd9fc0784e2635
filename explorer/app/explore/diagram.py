"""`Diagram`: the drawing of one layer of the current design, with the size of the signal along it."""

from __future__ import annotations

from collections.abc import Sequence

import traitlets

from explorer.app.widgets.parts import Part
from explorer.config import Config
from explorer.figures.diagram import diagram
from explorer.profile import Profile


class Diagram(Part):
    """A card with the drawing.

    Traits:
        svg: the drawing.
        layer: its number, 1 … `layers`. A browser asks for another by the message `["layer", number]`.
        words: what the numbers are.
    """

    view = "diagram"
    svg = traitlets.Unicode().tag(sync=True)
    layer = traitlets.Int().tag(sync=True)
    layers = traitlets.Int().tag(sync=True)
    words = traitlets.Unicode().tag(sync=True)

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
        profile = next((profile for profile in reversed(profiles) if profile and profile.config == config), None)
        self._shown = config, profile, reference
        self.layers = config.n_layers
        self.layer = min(self._wanted or config.n_layers, config.n_layers)
        self.words = f"q = mean x², {profile.origin}" if profile else ""
        self.svg = diagram(config, self.layer, profile, reference)

    def _choose(self, _: object, content: object, __: object) -> None:
        match content:
            case ["layer", int() as layer] if 1 <= layer <= self.layers and self._shown:
                self._wanted = layer
                config, profile, reference = self._shown
                self.show(config, [profile], reference)
