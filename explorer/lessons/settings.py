"""Controls of a function: its parameters as a record of settings, from type hints with defaults or
from keywords."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import create_model

from explorer.choices import Choices, ConfigError
from explorer.display import shown
from explorer.fields import Option, setting
from explorer.translation import translated

PROGRESS = "progress"
"""The parameter that no control sets: a function that takes it is handed a callback, see `live`."""


@dataclass(frozen=True)
class Slider:
    """A slider from `low` to `high`; see `slider`."""

    low: float
    high: float
    start: float | None = None
    log: bool = False
    label: str = ""
    unit: str = ""

    def __post_init__(self) -> None:
        """Raises: ConfigError: a bound is no finite number, they are not in order, or the start
        lies outside."""
        start = self.low if self.start is None else self.start
        for name, value in (("low", self.low), ("high", self.high), ("start", start)):
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not math.isfinite(value)
            ):
                raise ConfigError(f"{name} of a slider must be a finite number; got {shown(value)}")
        if not self.low < self.high:
            raise ConfigError(
                f"high of a slider must be above low; got {self.high:g} and {self.low:g}"
            )
        if self.log and self.low <= 0:
            raise ConfigError(f"low of a logarithmic slider must be above 0; got {self.low:g}")
        if self.start is not None and not self.low <= self.start <= self.high:
            raise ConfigError(
                f"start of a slider must be between {self.low:g} and {self.high:g}; got {self.start:g}"
            )


def slider(
    low: float,
    high: float,
    start: float | None = None,
    *,
    log: bool = False,
    label: str = "",
    unit: str = "",
) -> Any:
    """A slider for a number, as a parameter's default or as a keyword of `live`.

    Args:
        low: the least value; above 0 where `log` is set.
        high: the largest value.
        start: the value at first; the parameter's default when left out.
        log: whether equal distances on the slider are equal factors.
        label: the control's name; the parameter's name when left out.
        unit: stands beside the value, such as "layers".
    Raises:
        ConfigError: a bound is not finite, the bounds are not in order, or the start lies outside.

    Example:
        >>> ex.slider(0.001, 1, 0.1, log=True, label="learning rate").start
        0.1
    """
    return Slider(low, high, start, log, label, unit)


def settings_of(function: Callable[..., Any], controls: Mapping[str, object]) -> type[Choices]:
    """The record of the function's settings; each of its fields has a control.

    Raises:
        ConfigError: a control that is no parameter, or a parameter that cannot have a control.
    """
    parameters, hints = inspect.signature(function).parameters, get_type_hints(function)
    title = getattr(function, "__name__", type(function).__name__)
    takes_any = any(item.kind is item.VAR_KEYWORD for item in parameters.values())
    if unknown := [name for name in controls if name not in parameters and not takes_any]:
        names = ", ".join(name for name in parameters if name != PROGRESS) or "none"
        raise ConfigError(
            f"{unknown[0]} must be a parameter of {title}, which has {names}; "
            f"got {shown(controls[unknown[0]])}"
        )
    defaults = {
        name: item.default
        for name, item in parameters.items()
        if name != PROGRESS and item.kind not in (item.VAR_KEYWORD, item.VAR_POSITIONAL)
    }
    fields: dict[str, Any] = {}
    for name in {**defaults, **controls}:
        default, hint = defaults.get(name, inspect.Parameter.empty), hints.get(name)
        has_default = default is not inspect.Parameter.empty
        if (
            name not in controls
            and hint is None
            and has_default
            and not isinstance(default, Slider)
        ):
            continue  # it keeps its default
        if hasattr(Choices, name) or name.startswith("_"):
            raise ConfigError(
                f"a parameter of {title} must have a name that a record can have; got {shown(name)}"
            )
        fields[name] = _field(name, hint, default, controls.get(name, default))
    record: type[Choices] = create_model(title, __base__=Choices, **fields)
    return record


def _field(name: str, hint: Any, default: Any, control: Any) -> tuple[type, Any]:
    """Type and field of one setting: a slider's number, a switch, or one of some words."""
    label = name if len(name) < 3 else translated(name.replace("_", " ").capitalize())
    if isinstance(control, Slider):
        is_number = isinstance(default, int | float) and not isinstance(default, bool)
        if control.start is None and is_number:
            control = replace(control, start=default)
        return _number_field(name, label, hint, control)
    if isinstance(control, bool):
        return bool, setting(control, label, "", "")
    words = get_args(hint) if get_origin(hint) is Literal and isinstance(control, str) else control
    if isinstance(words, list | tuple) and words and all(isinstance(word, str) for word in words):
        start = control if isinstance(control, str) else default
        options = {word: Option("", label=word) for word in words}
        return str, setting(start if start in words else words[0], label, "", "", options=options)
    got = "nothing" if control is inspect.Parameter.empty else shown(control)
    raise ConfigError(
        f"{name} must have a control: ex.slider(low, high, start) for a number, True or False for a "
        f"switch, a tuple of words or Literal[…] for a choice; got {got}"
    )


def _number_field(name: str, label: str, hint: Any, control: Slider) -> tuple[type, Any]:
    """Type and field of a number: of the type of its hint, else whole where all of its slider's
    numbers are."""
    if control.start is None:
        raise ConfigError(
            f"start of {name} must be given, as the parameter has no default; got none"
        )
    numbers = (control.low, control.high, control.start)
    kind: type = float
    if hint in (int, float):
        kind = hint
    elif all(isinstance(number, int) for number in numbers):
        kind = int
    if kind is int and any(number != int(number) for number in numbers):
        raise ConfigError(
            f"the slider of {name} must have whole numbers, as its type is int; got {numbers}"
        )
    start, label = kind(control.start), control.label or label
    low, high, log, unit = control.low, control.high, control.log, control.unit
    return kind, setting(start, label, "", "", low, high, log=log, unit=unit)
