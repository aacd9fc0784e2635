"""`AnswerBox`: the box in which a visitor of a served lesson answers an exercise.

A visitor cannot change a page's code. What is written into the box is parsed and never run, see
`expressions`."""

from __future__ import annotations

import numpy as np

from explorer.app.widgets.answer import Answer, Reply
from explorer.app.widgets.parts import PageWidget, Part
from explorer.lessons.exercises import EXERCISES
from explorer.lessons.expressions import LONGEST


def form(number: str) -> tuple[str, str]:
    """The kind of text that the box of an exercise takes, in words, and an example of it."""
    exercise = EXERCISES[number]
    place = exercise.places[0]
    if exercise.box:
        return exercise.box, "0.02 * 1.5"
    if len(exercise.fields) > 1:
        return f"settings: {', '.join(exercise.fields)}", "norm_placement = peri, alpha = 0.5"
    if exercise.fields:
        return f"the value of {exercise.fields[0]}", "2**-0.5"
    names, count = ", ".join(place), np.size(exercise.oracle(*place.values()))
    example = f"sqrt(2*{next(iter(place))})" if place else "2*exp(-1/2)"
    takes = f"an expression of {names}" if place else exercise.asks
    if count == 1:
        return takes, example
    return f"{takes}: {count} of them, with commas between", ", ".join([example] * min(count, 3))


class AnswerBox(PageWidget):
    """The box as a cell of a served lesson shows it.

    Args:
        number: of the exercise.
        said: the first sentence.
        right: whether the answer in the code is right.
        reply: answers a visitor.
    """

    def __init__(self, number: str, said: str, right: bool, reply: Reply) -> None:
        takes, example = form(number)
        box = Answer(
            reply,
            exercise=number,
            takes=takes,
            example=example,
            longest=LONGEST,
            said=said,
            right=right,
        )
        super().__init__(Part([box], classes=("ex-root", "ex-answers")))
