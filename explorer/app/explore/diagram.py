"""`Stack`: the picture of all layers of the current design; `Diagram`: the drawing of the one that
is chosen in it."""

from __future__ import annotations

from collections.abc import Sequence

import traitlets

from explorer.app.widgets.parts import Part, together
from explorer.config import Config
from explorer.figures.diagram import diagram, layer_words
from explorer.figures.stack import description, stack
from explorer.profile import Profile


def head(layer: int, layers: int, origin: str) -> str:
    """The line above the drawing of a layer, as HTML: its number, how many there are, and whether
    the numbers are predicted or measured."""
    return f"<span>Layer {layer} of {layers}</span><span>{origin}</span>"


class Stack(Part):
    """A card with the picture of all layers, in which a person chooses one.

    Traits:
        picture: the picture, as HTML.
        description: the picture in words.
        layer: the chosen layer, from 1. A browser asks for another by the message `["layer",
            number]`.
        layers: how many there are.
        words: what the chosen layer does, in words.
    """

    view = "stack"
    picture = traitlets.Unicode().tag(sync=True)
    description = traitlets.Unicode().tag(sync=True)
    layer = traitlets.Int(1).tag(sync=True)
    layers = traitlets.Int(1).tag(sync=True)
    words = traitlets.Unicode().tag(sync=True)


class Diagram(Part):
    """A card with the drawing of the layer that is chosen in its `stack`.

    Traits:
        svg: the drawing.
        head: the line above it, see `head`.
    """

    view = "diagram"
    svg = traitlets.Unicode().tag(sync=True)
    head = traitlets.Unicode().tag(sync=True)

    def __init__(self) -> None:
        super().__init__()
        self.stack = Stack()
        self.stack.on_msg(self._choose)
        self._wanted = 0  # the layer that a person chose; 0 for the last
        self._shown: tuple[Config, Profile | None, Config] | None = None

    def show(self, config: Config, profiles: Sequence[Profile | None], reference: Config) -> None:
        """Draws a design.

        Args:
            config: the design.
            profiles: the last one that is of this design gives the numbers.
            reference: a design; parts in which the drawn one differs from it are marked.
        """
        profile = next(
            (profile for profile in reversed(profiles) if profile and profile.config == config),
            None,
        )
        self._shown = config, profile, reference
        with together():
            self.stack.layers = config.n_layers
            self.stack.description = description(config, profile)
            self.stack.picture = stack(config, profile)
            self._show_layer(config, profile, reference)

    def _show_layer(self, config: Config, profile: Profile | None, reference: Config) -> None:
        """Draws the chosen layer of a design, see `show`."""
        layer = min(self._wanted or config.n_layers, config.n_layers)
        self.stack.layer = layer
        self.stack.words = layer_words(config, layer, profile)
        self.head = head(layer, config.n_layers, profile.origin if profile else "")
        self.svg = diagram(config, layer, profile, reference)

    def _choose(self, _: object, content: object, __: object) -> None:
        match content:
            case ["layer", int() as layer] if self._shown and 1 <= layer <= self.stack.layers:
                self._wanted = layer
                self._show_layer(*self._shown)
