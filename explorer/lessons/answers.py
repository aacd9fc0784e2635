"""`AnswerBox`: the box in which a visitor of a served lesson answers an exercise.

A visitor cannot change a page's code. What is written into the box is parsed and never run, see
`expressions`."""

from __future__ import annotations

import numpy as np

from explorer.app.widgets.answer import Answer, Reply
from explorer.app.widgets.parts import PageWidget, Part
from explorer.lessons.exercises import EXERCISES
from explorer.lessons.expressions import LONGEST
from explorer.translation import translated


def form(number: str) -> tuple[str, str]:
    """The kind of text that the box of an exercise takes, in words, and an example of it."""
    exercise = EXERCISES[number]
    place = exercise.places[0]
    if exercise.box:
        return translated(exercise.box), "0.02 * 1.5"
    if len(exercise.fields) > 1:
        names = ", ".join(exercise.fields)
        return translated("settings: {names}", names=names), "norm_placement = peri, alpha = 0.5"
    if exercise.fields:
        return translated("the value of {name}", name=exercise.fields[0]), "2**-0.5"
    names, count = ", ".join(place), np.size(exercise.oracle(*place.values()))
    example = f"sqrt(2*{next(iter(place))})" if place else "2*exp(-1/2)"
    takes = translated(exercise.asks)
    if place:
        takes = translated("an expression of {names}", names=names)
    if count == 1:
        return takes, example
    several = translated("{kind}: {count} of them, with commas between", kind=takes, count=count)
    return several, ", ".join([example] * min(count, 3))


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
