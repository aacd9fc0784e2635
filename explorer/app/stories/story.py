"""`Story` and `Step`: what a tour of the page is made of. Data alone."""

from __future__ import annotations

from typing import NamedTuple

from explorer.app.explore.question import Question

VERDICT = "verdict"
"""Stands for the verdict, where a step says what to look at."""
OFFER = (
    "Move a slider: ", "a Transformer is drawn at random, and every chart shows what its signal does, layer by layer. ",
    "New here? Take a tour of a few minutes:",
)
"""The line above the cards: its bold part, its plain part, and the part shown only where there is room."""


class Step(NamedTuple):
    """A state of the page, with the words for it."""

    link: str
    """The page as a person could have set it, as `Links.write` writes it, without the version."""
    words: str
    """One or two sentences. What they claim, the page shows."""
    look_at: str
    """Name of a chart of the open panel, or `VERDICT`."""
    question: Question | None = None
    """Asked before the page shows what the answer is."""


class Story(NamedTuple):
    """A tour in a few steps."""

    name: str
    """As it stands in a link."""
    title: str
    words: str
    """One line, for its card."""
    steps: tuple[Step, ...]
