"""`AnswerBox`: the box in which a visitor of a served lesson answers an exercise.

A visitor cannot change a page's code. What is written into the box is parsed and never run, see `expressions`.
"""

from __future__ import annotations

import numpy as np
import traitlets

from explorer.app.widgets.parts import PageWidget, Part
from explorer.lessons.checking import Checked, checked_text, hint, solution
from explorer.lessons.exercises import EXERCISES
from explorer.lessons.expressions import LONGEST


class Answer(Part):
    """The box of one exercise, its buttons, and what is said of an answer.

    Traits:
        exercise: its number.
        takes: what is written into the box, in words.
        example: what such a text looks like.
        longest: characters that it may have.
        said: the sentence about the last answer, or a hint.
        right: whether the last answer was right.
    """

    view = "answer"
    exercise = traitlets.Unicode().tag(sync=True)
    takes = traitlets.Unicode().tag(sync=True)
    example = traitlets.Unicode().tag(sync=True)
    longest = traitlets.Int(LONGEST).tag(sync=True)
    said = traitlets.Unicode().tag(sync=True)
    right = traitlets.Bool(False).tag(sync=True)

    def __init__(self, checked: Checked) -> None:
        takes, example = form(checked.number)
        super().__init__(exercise=checked.number, takes=takes, example=example, right=checked.right,
                         said=f"The code above gives an answer already. {checked.sentence}")
        self.on_msg(self._take)

    def _take(self, _: Part, content: object, __: object) -> None:
        """Handles a visitor's message, which may say anything."""
        match content:
            case ["check", str() as text]:
                result = checked_text(self.exercise, text)
                self.said, self.right = result.sentence, result.right
            case ["hint"]:
                self.said = f"Hint: {hint(self.exercise)}"
            case ["solution"]:
                self.said = f"Solution: {solution(self.exercise)}"


def form(number: str) -> tuple[str, str]:
    """What the box of an exercise takes, in words, and an example of such a text."""
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
        checked: the result of the answer that stands in the code.
    """

    def __init__(self, checked: Checked) -> None:
        super().__init__(Part([Answer(checked)], classes=("ex-root", "ex-answers")))
