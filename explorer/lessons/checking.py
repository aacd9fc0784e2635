"""`check` compares an answer to an exercise with its oracle; `hint` and `solution` help on.

An answer that is not right gets a sentence: the name of the mistake and a question, or where the
answer is off and to which side. It never says how far off it is, which would give the solution
away."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from explorer.app.widgets.parts import in_voila
from explorer.config import Config, ConfigError
from explorer.display import must_be, shown
from explorer.lessons.answers import AnswerBox
from explorer.lessons.exercises import EXERCISES, TEXTS, Exercise, only
from explorer.lessons.expressions import ExpressionError, evaluated, settings
from explorer.translation import TranslatedError, translated
from explorer.vocabulary import Array


class AnswerError(TranslatedError):
    """An answer that cannot be compared; the message is a clause that says why."""


@dataclass(frozen=True)
class Checked:
    """The result of a check: true or false, and a sentence."""

    number: str
    right: bool
    sentence: str

    def __bool__(self) -> bool:
        return self.right

    def __repr__(self) -> str:
        return self.sentence

    def _repr_mimebundle_(self, **_: object) -> Any:
        """A box for another answer where the page is served, whose code nobody can change; else the
        sentence."""
        return self.box()._repr_mimebundle_() if in_voila() else None

    def box(self) -> AnswerBox:
        """A box for another answer."""
        said = translated(
            "The code above gives an answer already. {sentence}", sentence=self.sentence
        )
        return AnswerBox(self.number, said, self.right, partial(reply, self.number))


class Sentence(str):
    """A text that a cell shows as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def check(number: str, answer: object) -> Checked:
    """Compares the answer to an exercise with what is right.

    Args:
        number: of the exercise, such as "02.1": lesson and place.
        answer: a number, an array, a function or a `Config`, as the exercise asks.
    Returns:
        A record that is true if the answer is right, and shows a sentence: a mistake that is often
        made, with a question, or where the answer is too large or too small.
    Raises:
        ValueError: there is no such exercise.

    Example:
        >>> answer = ex.check("02.1", lambda n, m, v: n * v)  # the sum has m terms, not n
        >>> bool(answer), str(answer).startswith("Not yet")
        (False, True)
    """
    exercise = _exercise(number)
    try:
        given = _values(number, exercise, answer)
    except AnswerError as error:
        return _not_yet(number, error)
    places = exercise.places
    rights = [np.asarray(exercise.oracle(*place.values()), dtype=float) for place in places]
    faults = [
        fault
        for values, right, place in zip(given, rights, places, strict=True)
        for fault in _faults(values, right, place, exercise)
    ]
    if not faults:
        return Checked(number, True, translated("Right."))
    for mistake in TEXTS[number].mistakes:
        if all(map(_alike, given, _values(number, exercise, written(number, mistake.answer)))):
            sentence = translated(
                "Not yet: {mistake}. {question}",
                mistake=translated(mistake.words),
                question=translated(mistake.question),
            )
            return Checked(number, False, sentence)
    return _not_yet(number, faults[0])


def _not_yet(number: str, clause: object) -> Checked:
    """The result for an answer that is not right; the clause may end in a question."""
    if str(clause).endswith(("?", "？")):
        return Checked(number, False, translated("Not yet: {clause}", clause=clause))
    return Checked(number, False, translated("Not yet: {clause}.", clause=clause))


def hint(number: str) -> Sentence:
    """Where to look for the answer to an exercise, in a sentence or two.

    Raises:
        ValueError: there is no such exercise.

    Example:
        >>> ex.hint("02.1")
        The gradient at x_j is a sum over the outputs. How many are there?
    """
    _exercise(number)
    return Sentence(translated(TEXTS[number].hint))


def solution(number: str) -> Sentence:
    """The way to the answer of an exercise, and the answer.

    Raises:
        ValueError: there is no such exercise.

    Example:
        >>> str(ex.solution("02.1")).endswith("Answer: m*v")
        True
    """
    _exercise(number)
    text = TEXTS[number]
    way = translated(text.solution)
    return Sentence(translated("{way} Answer: {answer}", way=way, answer=text.answer))


def checked_text(number: str, text: str) -> Checked:
    """Checks an answer that was written into a box; its text is parsed, and never run.

    Raises:
        ValueError: there is no such exercise.
    """
    _exercise(number)
    try:
        return check(number, written(number, text))
    except (ExpressionError, AnswerError) as error:
        return _not_yet(number, error)


def reply(number: str, message: object) -> tuple[str, bool] | None:
    """The reply to a visitor's message from a box: a sentence, and whether the answer is right;
    None to any other."""
    match message:
        case ["check", str() as text]:
            checked = checked_text(number, text)
            return checked.sentence, checked.right
        case ["hint"]:
            return translated("Hint: {hint}", hint=hint(number)), False
        case ["solution"]:
            return translated("Solution: {solution}", solution=solution(number)), False
    return None


def written(number: str, text: str) -> object:
    """The answer that a text in a box stands for: numbers, a function of an exercise's arguments,
    or a design.

    Raises:
        ExpressionError: the text is no expression, or has no value at a place of the exercise.
        AnswerError: it is several numbers where one is asked for, or settings that no design has.
    """
    exercise = EXERCISES[number]
    if exercise.base:
        return _design(exercise.base, exercise.fields, text)
    if exercise.build:
        return exercise.build(_one(evaluated(text, {})))
    names = list(exercise.places[0])
    if not names:
        values = evaluated(text, {})
        return values[0] if len(values) == 1 else np.array(values)
    for place in exercise.places:
        # a text without a value is told at once, and not as an error of a function
        evaluated(text, place)

    def function(*arguments: float) -> Any:
        values = evaluated(text, dict(zip(names, arguments, strict=True)))
        return values[0] if len(values) == 1 else np.array(values)

    return _of_arguments(function, names)


def _of_arguments(function: Callable[..., Any], names: list[str]) -> Callable[..., Any]:
    """The function, which says that it takes arguments of these names."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind) for name in names]
    )
    return function


def _design(base: Config, fields: tuple[str, ...], text: str) -> Config:
    """A design from the value of its only field, or from settings such as "alpha = 0.2"."""
    try:
        if len(fields) == 1 and "=" not in text:
            return base.replace(**{fields[0]: _one(evaluated(text, {}))})
        chosen = settings(text)
        if strange := [name for name in chosen if name not in fields]:
            raise AnswerError(
                "the settings that may be changed are {names}; got {name}",
                names=", ".join(fields),
                name=strange[0],
            )
        return base.replace(**chosen)
    except ConfigError as error:
        raise AnswerError(str(error)) from None


def _one(values: tuple[float, ...]) -> float:
    if len(values) != 1:
        raise AnswerError(
            "one number is asked for; got {count}. Decimals have a point: 0.5", count=len(values)
        )
    return values[0]


def _exercise(number: str) -> Exercise:
    if must_be(str, "number", number) not in EXERCISES:
        raise ValueError(f"number must be one of {', '.join(EXERCISES)}; got {shown(number)}")
    return EXERCISES[number]


# --- from an answer to numbers --------------------------------------------------------------------


def _values(number: str, exercise: Exercise, answer: Any) -> list[Array]:
    """The numbers of an answer at each place, each of the oracle's shape.

    Raises:
        AnswerError: it is of another kind, breaks, or gives something else.
    """
    asked = translated("{number} asks for {kind}", number=number, kind=translated(exercise.asks))
    _must_fit(asked, exercise, answer)
    values = []
    for place in exercise.places:
        try:
            value = exercise.reduce(answer(*place.values()) if place else answer)
        except Exception as error:  # noqa: BLE001 - the student's code; the sentence says what it did
            words = (
                f"{error}" if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
            )
            raise AnswerError(_at(place, words)) from None
        shape = np.shape(exercise.oracle(*place.values()))
        values.append(_numbers(value, shape, _at(place, asked)))
    return values


def _must_fit(asked: str, exercise: Exercise, answer: Any) -> None:
    """Raises: AnswerError: an answer is of another kind than the exercise asks for, or takes other
    arguments."""
    names = tuple(exercise.places[0])
    if exercise.base:
        if not isinstance(answer, Config):
            raise _unfit(asked, _kind(answer))
        try:
            only(answer, exercise.base, exercise.fields)
        except ConfigError as error:
            raise AnswerError(str(error)) from None
    elif callable(answer) != bool(names):
        raise _unfit(asked, _kind(answer))
    elif names:
        try:
            inspect.signature(answer).bind(*names)
        except TypeError:
            arguments = ", ".join(inspect.signature(answer).parameters)
            raise AnswerError(
                "{asked}; got one of {arguments}",
                asked=asked,
                arguments=arguments or translated("no arguments"),
            ) from None
        except ValueError:
            return  # a function of C may not say what it takes


def _numbers(value: Any, shape: tuple[int, ...], asked: str) -> Array:
    """A value as numbers of a shape; a tensor counts as its numbers.

    Raises:
        AnswerError: it is none.
    """
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    try:
        array = np.asarray(value)
    except ValueError:
        uneven = translated("a list whose parts differ in length")
        raise _unfit(asked, uneven) from None
    if array.dtype.kind not in "iuf":
        raise _unfit(asked, _kind(value))
    if array.size == 1 and not shape:
        array = array.reshape(())
    if array.shape != shape:
        answer = translated("an array of shape {shape}", shape=array.shape)
        if array.ndim == 1:
            answer = translated("{count} numbers", count=array.size)
        elif not array.ndim:
            answer = translated("one number")
        raise _unfit(asked, answer)
    return array.astype(float)


def _unfit(asked: str, answer: str) -> AnswerError:
    """The error that an answer is not what was asked for."""
    return AnswerError("{asked}; got {answer}", asked=asked, answer=answer)


def _kind(value: Any) -> str:
    """A value that is no answer, in words."""
    if value is None:
        return translated("None: is a return missing?")
    if isinstance(value, str):
        return translated("the text {text}: numbers have no quotation marks", text=shown(value))
    if isinstance(value, bool | np.bool_):
        return translated("{value}, which is no number", value=value)
    if isinstance(value, complex):
        return translated("the complex number {value}: a root of a negative number?", value=value)
    if isinstance(value, Config):
        return translated("a Config")
    if callable(value):
        name = getattr(value, "__name__", translated("without a name"))
        return translated("the function {name}: call it", name=name)
    kind = type(value).__name__
    return translated("{value} of type {kind}", value=shown(value), kind=kind)


# --- comparing ------------------------------------------------------------------------------------


def _faults(
    given: Array, wanted: Array, place: Mapping[str, float], exercise: Exercise
) -> list[str]:
    """Words for each number of an answer that is not right."""
    faults = []
    for index, (value, right) in enumerate(zip(given.ravel(), wanted.ravel(), strict=True)):
        off = abs(value / right - 1) if np.isfinite(value) else np.inf
        is_near_step = value == np.round(value) and abs(value - right) < exercise.reach
        is_close = off <= exercise.tolerance or is_near_step
        is_right = value == right if index in exercise.whole else is_close
        if is_right:
            continue
        if exercise.parts:
            name = translated(exercise.parts[index])
        elif wanted.ndim:
            name = translated("number {index}", index=index)
        else:
            name = translated("the value")
        faults.append(_at(place, _side(name, value, right)))
    return faults


def _at(place: Mapping[str, float], clause: str) -> str:
    """The clause, and the place of which it is true."""
    if not place:
        return clause
    arguments = ", ".join(f"{name} = {value:g}" for name, value in place.items())
    return translated("at {arguments} {clause}", arguments=arguments, clause=clause)


def _side(name: str, value: float, right: float) -> str:
    """To which side a value is off; how far is left to the student."""
    if np.isnan(value):
        return translated(
            "{name} is nan, which is no number: 0/0, or a root of a negative number?", name=name
        )
    if np.isinf(value):
        return translated("{name} is infinite: is something divided by 0?", name=name)
    if value == 0:
        return translated("{name} is 0", name=name)
    if value / right < 0:
        return translated("{name} has the wrong sign", name=name)
    if value / right > 1:
        return translated("{name} is too large", name=name)
    return translated("{name} is too small", name=name)


def _alike(given: Array, mistake: Array) -> bool:
    """Whether an answer is a mistake, to three digits."""
    return bool(np.allclose(given, mistake, rtol=1e-2, atol=5e-3 * (mistake == 0)))
