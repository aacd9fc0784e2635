"""Records of a person's choices: plain dicts that JSON can hold, read back without trust. Links are made of them.

A record is never refused as a whole for one wrong part: each part that is not understood is said in a sentence, and
the rest counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from explorer.app.widgets.controls import Controls
from explorer.app.widgets.wording import refusal_in_words
from explorer.choices import Choices, ConfigError
from explorer.display import shown

VERSION = 1
Chosen = TypeVar("Chosen", bound=Choices)


@runtime_checkable
class Recorded(Protocol):
    """Whatever has a state that can be read and restored."""

    def state(self) -> dict[str, Any]:
        """Everything that a person chose, as JSON has it."""

    def restore(self, state: object) -> list[str]:
        """Makes the choices of a `state()`; a part that is not understood, or not there, leaves what there is.

        Returns:
            A sentence for each part that was not understood.
        """


def record(**parts: Any) -> dict[str, Any]:
    """A record of these parts, with its version."""
    return {"version": VERSION, **parts}


def changed(config: Choices) -> dict[str, object]:
    """The fields that differ from the defaults."""
    return dict(config.__repr_args__())


def restore_parts(state: object, parts: Mapping[str, Callable[[Any], list[str]]]) -> list[str]:
    """Hands each part of a record to the function that restores it, in the order of the functions.

    Returns:
        Their sentences, and those about what is no part, or no record of this version.
    """
    if not isinstance(state, Mapping):
        return [f"a record must be an object; got {shown(state)}"]
    if state.get("version") != VERSION:
        return [f"version must be {VERSION}; got {shown(state.get('version'))}"]
    strange = [name for name in state if name not in ("version", *parts)]
    sentences = [f"{shown(name)} is not a part of a record; the parts are {', '.join(parts)}" for name in strange]
    return sentences + [sentence for name in parts if name in state for sentence in parts[name](state[name])]


def restore_controls(controls: Controls[Any], fields: object, part: str) -> list[str]:
    """Sets all controls from the fields that were recorded; see `parse_choices`."""
    choices, sentences = parse_choices(type(controls.config), fields, part)
    if choices:
        controls.apply(choices.model_dump())
    return sentences


def parse_choices(kind: type[Chosen], fields: object, part: str) -> tuple[Chosen | None, list[str]]:
    """Choices of a kind from the fields that were recorded of them; those that are refused keep their defaults.

    Args:
        part: their name in the sentences.
    Returns:
        The choices, None when there are no fields to read; and the sentences.
    """
    if not isinstance(fields, Mapping):
        return None, [f"{part} must be an object of fields; got {shown(fields)}"]
    waiting = {str(name): value for name, value in fields.items()}
    try:
        return kind(**waiting), []
    except ConfigError:
        config = kind()
    while True:  # one by one, again as long as that helps: a field may need another one first
        refused = {}
        for name, value in waiting.items():
            try:
                config = config.replace(**{name: value})
            except ConfigError as error:
                refused[name] = refusal_in_words(error)
        if len(refused) == len(waiting):
            return config, [f"{part}: {sentence}" for sentence in refused.values()]
        waiting = {name: waiting[name] for name in refused}
