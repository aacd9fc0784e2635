"""The `state` of a link: what a visitor has set beside the design, in JSON, by panel and setting.

    state={"map":{"plan":{"x":"alpha","x_from":0,"x_to":1}}}

It says what differs from the page as it opens. A panel's part is taken whole, or refused in a
sentence."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from explorer.app.page import ExplorePart, Tab
from explorer.app.roster import Entry, Roster
from explorer.app.widgets.wording import refusal_in_words
from explorer.choices import Choices, ConfigError
from explorer.config import Config
from explorer.display import shown

DESIGN = ("explore", "design")
"""The setting that a link says by fields of its own."""
USUAL = Config()
State = dict[str, dict[str, Any]]


def write(parts: Mapping[str, Any]) -> State:
    """The settings of some panels that differ from the page as it opens.

    Example:
        >>> write({"explore": ExplorePart(tokens_of=2)})
        {'explore': {'tokens_of': 2}}
    """
    state: State = {}
    for panel, part in parts.items():
        first = type(part)()._asdict()
        changed = {
            name: plain(value)
            for name, value in part._asdict().items()
            if value != first[name] and (panel, name) != DESIGN
        }
        if changed:
            state[panel] = changed
    return state


def text_of(state: State) -> str:
    """A state as it stands in a link."""
    return json.dumps(state, ensure_ascii=False, separators=(",", ":"))


def plain(value: Any) -> Any:
    """A setting as JSON has it. Choices and entries say what differs from their defaults; an entry
    always says its config, too."""
    if isinstance(value, Choices):
        return value.changed
    if isinstance(value, Entry):
        usual = type(value)(USUAL)
        return {
            name: plain(of_entry)
            for name, of_entry in vars(value).items()
            if of_entry != getattr(usual, name) or name == "config"
        }
    return [plain(item) for item in value] if isinstance(value, tuple) else value


def parse(text: str, tabs: Mapping[str, Tab]) -> tuple[dict[str, Any], list[str]]:
    """The parts of panels that a state has, and a sentence for each that was refused."""
    kinds = {panel: tab.part for panel, tab in tabs.items() if tab.part}
    parts, sentences = {panel: kind() for panel, kind in kinds.items()}, list[str]()
    try:
        state = json.loads(text or "{}")
    except (ValueError, RecursionError):
        state = None
    if not isinstance(state, dict):
        return parts, [f"state must be a JSON object; got {shown(text)}"]
    for panel, settings in state.items():
        if panel not in kinds:
            sentences.append(f"state must be of {', '.join(kinds)}; got {shown(panel)}")
            continue
        try:
            parts[panel], refused = part_of(panel, settings, tabs[panel])
        except ConfigError as error:
            refused = [str(error)]
        sentences += [f"{panel}: {sentence}" for sentence in refused]
    return parts, sentences


def part_of(panel: str, settings: object, tab: Tab) -> tuple[Any, list[str]]:
    """A panel's part from its settings, and a sentence for each entry that a roster refused.

    Raises:
        ConfigError: the panel has no part, a setting that there is not, or a value that it cannot
            have.
    """
    if tab.part is None:
        raise ConfigError(f"a state must be of a panel with settings; got {shown(panel)}")
    if not isinstance(settings, dict):
        raise ConfigError(f"its state must be an object; got {shown(settings)}")
    known = [name for name in tab.part()._asdict() if (panel, name) != DESIGN]
    for name in settings:
        one_of("a setting", name, known)
    try:
        part = _adapter(tab.part).validate_python(settings)
    except ValidationError as error:
        raise ConfigError("; ".join(map(_refusal, error.errors()))) from None
    return tab.check(part) if tab.check else (part, [])


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _refusal(error: Any) -> str:
    """One of pydantic's refusals as 'contenders 2 config: Depth must be …'."""
    where = " ".join(str(at + 1 if isinstance(at, int) else at) for at in error["loc"])
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        return f"{where}: {refusal_in_words(cause)}"
    rule = error["msg"][:1].lower() + error["msg"][1:]
    return f"{where}: {rule}; got {shown(error['input'])}"


# The rules that types do not say.


def fit_design(part: ExplorePart) -> list[str]:
    """A sentence for each layer or head that the part's design does not have."""
    layers, heads = part.design.n_layers, part.design.n_heads
    ranges = {
        "layer of the pattern": (part.pattern_of[0], 1, layers),
        "head of the pattern": (part.pattern_of[1], 0, heads - 1),
        "tokens_of": (part.tokens_of, 0, layers),
    }
    return [
        f"explore: {name} must be a whole number between {low} and {high}; got {value}"
        for name, (value, low, high) in ranges.items()
        if not low <= value <= high
    ]


def one_of(name: str, value: str, options: Iterable[str]) -> None:
    """Refuses a value that is none of a setting's options.

    Raises:
        ConfigError: it is none.
    """
    if value not in options:
        raise ConfigError(f"{name} must be one of {', '.join(options)}; got {shown(value)}")


def seated(entries: tuple[Any, ...], roster: Roster[Any]) -> tuple[tuple[Any, ...], list[str]]:
    """Entries as a roster has them: with hues, and names of their own; and its sentences."""
    sentences = roster.restore(entries)
    return roster.entries, sentences
