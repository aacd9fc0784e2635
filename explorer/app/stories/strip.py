"""`Strip`: the cards that offer stories, and the step of the one that is told, below the header."""

from __future__ import annotations

import traitlets

from explorer.app.widgets.runtime import PageWidget, view

OFFER = (
    "Move a slider: ", "a Transformer is drawn at random, and every chart shows what its signal does, layer by layer. ",
    "New here? Take a tour of a few minutes:",
)
"""What stands above the cards: in bold, plainly, and where there is room."""


class Strip(PageWidget):
    """Cards, and a step.

    Traits:
        offer: see `OFFER`.
        cards: `[{name, title, words}]`; none where the page tells no stories.
        shown: whether the cards are shown. A browser that was here before closes them itself.
        told: `{title, number, count, words, look, text, options, said, open}`; empty while no story is told. `look` is
            the title of what to look at, `text` a question, `options` its answers (none: a line is drawn), `said` what
            came of it, `open` whether it still stands.

    Messages are lists: `["tell", name]`, `["next"]`, `["back"]`, `["leave"]`, `["cards", open]`, `["reveal", guess]`
    and `["skip"]`.
    """

    _esm = view("strip")
    offer = traitlets.Tuple(OFFER, read_only=True).tag(sync=True)
    cards = traitlets.List(traitlets.Dict()).tag(sync=True)
    shown = traitlets.Bool(True).tag(sync=True)
    told = traitlets.Dict().tag(sync=True)
