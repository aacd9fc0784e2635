"""`Answer`: a box for the answer to an exercise, with buttons for a hint and the solution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import traitlets

from explorer.app.widgets.parts import Part
from explorer.translation import translated

Reply = Callable[[object], tuple[str, bool] | None]
"""From a visitor's message, which may say anything, to a sentence and whether the answer is right;
or to None."""


class Answer(Part):
    """The box of one exercise, its buttons, and a sentence about the last answer.

    Traits:
        takes: the kind of text that the box takes, in words.
        longest: characters that it may have.
        said: the sentence about the last answer, or a hint.
        right: whether the last answer was right.
        words: of label, entry, buttons and waiting, by the names that the script has for them.

    Args:
        reply: answers a visitor.
        exercise: its number.
        example: a text that the box takes.
        traits: all of the above but the words.
    """

    view = "answer"
    takes = traitlets.Unicode().tag(sync=True)
    longest = traitlets.Int().tag(sync=True)
    said = traitlets.Unicode().tag(sync=True)
    right = traitlets.Bool(False).tag(sync=True)
    words = traitlets.Dict().tag(sync=True)

    def __init__(self, reply: Reply, exercise: str, example: str, **traits: Any) -> None:
        super().__init__(words=box_words(exercise, example), **traits)
        self._reply = reply
        self.on_msg(self._take)

    def _take(self, _: Part, content: object, __: object) -> None:
        reply = self._reply(content)
        if reply:
            self.said, self.right = reply


def box_words(exercise: str, example: str) -> dict[str, str]:
    """Words of the box, by the names that its script has for them."""
    return {
        "label": translated("Your answer to {number}", number=exercise),
        "example": translated("such as {example}", example=example),
        "check": translated("Check"),
        "hint": translated("Hint"),
        "solution": translated("Solution"),
        "sent": translated("Checking…"),
        "gone": translated("Python does not answer"),
    }
