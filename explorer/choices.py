"""`Choices`: a frozen record of settings that refuses in one sentence and knows the words for its
controls.

`Config` is one; a race's plan is another. What is accepted is decided by the record and nowhere
else: a slider's bounds, a permalink and a message from a browser are all only suggestions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache
from inspect import Parameter, Signature
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, NoReturn, Self, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from explorer.display import reason, shown, table
from explorer.fields import Spec, spec
from explorer.translation import translated

LastRows = tuple[tuple[int, tuple[str, ...]], ...]
NO_VALUES: Mapping[str, object] = MappingProxyType({})
Conditions = Mapping[str, tuple[str | bool, ...]]
"""Other fields, each with the values that use the field in question."""


class FieldName(NamedTuple):
    """A field, or a field and a value, within a sentence: Python says its name, a page its
    label."""

    name: str
    label: str
    value: object = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name} = {self.value}"


def phrases(sentence: str, phrase: Callable[[str], object]) -> list[str | FieldName]:
    """A message in the language that is spoken, cut at its braces.

    Args:
        phrase: from what stands between braces to what takes its place.
    """
    texts = re.split(r"\{([^}]*)\}", translated(sentence))
    parts: list[str | FieldName] = []
    for index, text in enumerate(texts):
        part = phrase(text) if index % 2 else text
        parts.append(part if isinstance(part, FieldName) else str(part))
    return parts


class ConfigError(ValueError):
    """A choice was refused; the message is one sentence with the field, the rule and the value.

    Args:
        phrases: the sentence, in which fields may stand as `FieldName`.
        fixes: values by field: each alone satisfies the rule that was broken, though other rules
            may refuse it.

    Example:
        >>> try:
        ...     ex.Config(d_model=64, n_heads=5)
        ... except ex.ConfigError as error:
        ...     print(error)
        ...     print(error.fixes)
        d_model must be divisible by n_heads; got 64 and 5
        {'n_heads': 4, 'd_model': 60}
    """

    def __init__(
        self, *phrases: str | FieldName, fixes: Mapping[str, object] | None = None
    ) -> None:
        super().__init__("".join(map(str, phrases)))
        self.phrases, self.fixes = phrases, dict(fixes or {})


@contextmanager
def opening(path: object, rule: str) -> Iterator[None]:
    """A block that opens a file.

    Args:
        rule: what the file must be, for a refusal.
    Raises:
        ConfigError: the block raised OSError or ValueError.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        raise ConfigError(
            translated(
                "{rule}; got {path} ({reason})",
                rule=translated(rule),
                path=repr(str(path)),
                reason=reason(path, error),
            )
        ) from None


class Choices(BaseModel):
    """Settings, each with a type, bounds, a default, a description and an `About`.

    Raises:
        ConfigError: an unknown field, a wrong type, a value out of range, or fields that exclude
            each other.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    _specs: ClassVar[dict[str, Spec]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls._specs = {name: spec(name, info) for name, info in cls.model_fields.items()}
        cls.__signature__ = Signature(
            [  # pydantic's would print every bound and every word
                Parameter(
                    item.name,
                    Parameter.KEYWORD_ONLY,
                    default=item.default,
                    annotation=item.annotation,
                )
                for item in cls._specs.values()
            ]
        )

    def __init__(self, /, **choices: Any) -> None:
        """Validates the choices; those left out keep their defaults."""
        try:
            super().__init__(**choices)
        except ValidationError as error:
            refusals = [self._refusal(item) for item in error.errors()]
            parts = [part for refusal in refusals for part in ("; ", *refusal.phrases)]
            raise ConfigError(
                *parts[1:], fixes=refusals[0].fixes if len(refusals) == 1 else None
            ) from None

    @classmethod
    def specs(cls) -> dict[str, Spec]:
        """Every field with its bounds, choices and words, in order."""
        return dict(cls._specs)

    @classmethod
    def field_name(cls, name: str, value: object = None) -> FieldName:
        """A field, and a value of it where one is given, for a refusal."""
        return FieldName(name, cls._specs[name].about.label, value)

    def refusal(
        self, sentence: str, values: Mapping[str, object] = NO_VALUES, **fixes: object
    ) -> ConfigError:
        """An error to be raised by a rule between fields.

        Args:
            sentence: a message with fields in braces: `{loss}` is the field, `{loss=}` the field
                with its value, `{loss=linear}` the field with the value "linear", and `{loss:}`
                the value alone.
            values: of other names in braces: words, or fields by `field_name`.
            fixes: values by field, each of which alone satisfies the rule.
        """

        def phrase(name: str) -> object:
            """Words or a field in the place of a name in braces."""
            if name in values:
                return values[name]
            # "loss=linear" into "loss", "=" and "linear"; "loss" into "loss", "" and ""
            field, sign, value = re.split("([=:]|$)", name, maxsplit=1)
            if sign == ":":
                given = getattr(self, field)
                return f"{given:g}" if isinstance(given, float) else given
            if sign == "=":
                return self.field_name(field, value or getattr(self, field))
            return self.field_name(field)

        return ConfigError(*phrases(sentence, phrase), fixes=fixes)

    @property
    def unmet(self) -> Mapping[str, Conditions]:
        """The fields that make no difference with these choices, each with the conditions under
        which it would."""
        return _unmet(self, _last_rows(type(self)))

    def matters(self, name: str) -> bool:
        """Whether a field makes a difference with these choices."""
        return name not in self.unmet

    def replace(self, **changes: Any) -> Self:
        """A copy with some choices changed, validated as a whole."""
        return type(self)(**{**self.model_dump(), **changes})

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:  # noqa: ARG002
        """As `replace`, for pydantic's own copies and `copy.replace`, which would not validate the
        changes."""
        return self.replace(**update or {})

    def __setattr__(self, name: str, value: object) -> None:
        """Refuses: a change of one field may need others, and a hashable record may not change.

        Raises:
            ConfigError: always; says how to make another record.
        """
        message = (
            "{field} cannot be changed, because a {kind} is frozen: {call} makes another; "
            "got {value}"
        )
        self._stay(name, message, value=shown(value))

    def __delattr__(self, name: str) -> None:
        """Refuses, as assignment does."""
        message = (
            "{field} cannot be changed, because a {kind} is frozen: {call} makes another; "
            "it was to be deleted"
        )
        self._stay(name, message)

    def _stay(self, name: str, sentence: str, **values: object) -> NoReturn:
        values["field"] = self.field_name(name) if name in self._specs else name
        values["kind"] = type(self).__name__
        values["call"] = f"replace({name}=…)"
        raise self.refusal(sentence, values)

    def accepts(self, **changes: Any) -> bool:
        """Whether `replace` would accept the changes."""
        try:
            self.replace(**changes)
        except ConfigError:
            return False
        return True

    @property
    def changed(self) -> dict[str, object]:
        """The fields that differ from their defaults.

        Example:
            >>> Config(norm_placement="post").changed
            {'norm_placement': 'post'}
        """
        return {name: value for name, value in self if value != self._specs[name].default}

    def __repr_args__(self) -> Iterable[tuple[str, object]]:
        """The shortest call that makes the same record again."""
        return self.changed.items()

    __str__ = BaseModel.__repr__

    def _repr_html_(self) -> str:
        """A row for every field that differs from the defaults, and one for all the others."""
        changed, specs = self.changed, self._specs
        rows = [
            (specs[name].about.label, f"{name} = {value!r}", specs[name].about.unit)
            for name, value in changed.items()
        ]
        others = ", ".join(f"{name} = {value!r}" for name, value in self if name not in changed)
        return table(type(self).__name__, (), [*rows, ("Defaults", others, "")])

    def to_json(self) -> str:
        """Every field, as one JSON object that `from_json` reads back."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Reads a JSON object of fields; those left out keep their defaults.

        Raises:
            ConfigError: not JSON, not an object, or refused as the record itself would refuse it.
        """
        try:
            choices = json.loads(text)
        except ValueError as error:  # JSONDecodeError and UnicodeDecodeError alike
            message = translated(
                "config must be JSON; got {text} ({error})", text=shown(text), error=error
            )
            raise ConfigError(message) from None
        if not isinstance(choices, dict):
            raise ConfigError(
                translated(
                    "config must be a JSON object of fields; got {value}", value=shown(choices)
                )
            )
        return cls(**choices)

    @classmethod
    def _refusal(cls, item: Any) -> ConfigError:
        """One pydantic error as 'field must be rule; got value'."""
        if not item["loc"]:
            cause = item["ctx"]["error"]
            return cause if isinstance(cause, ConfigError) else ConfigError(str(cause))
        name, got = str(item["loc"][0]), shown(item["input"])
        if name not in cls._specs:
            return ConfigError(
                translated(
                    "{name} is not a field; the fields are {fields}; got {value}",
                    name=shown(name)[1:-1],
                    fields=", ".join(cls._specs),
                    value=got,
                )
            )
        values = {"field": cls.field_name(name), "rule": cls._specs[name].rule(), "value": got}
        return ConfigError(*phrases("{field} must be {rule}; got {value}", values.__getitem__))


def _uses(value: object, values: tuple[str | bool, ...]) -> bool:
    """Whether a field of this value uses another one; a number does above 0."""
    return value > 0 if isinstance(value, float) else value in values


@lru_cache(maxsize=256)
def _unmet(choices: Choices, rows: LastRows) -> Mapping[str, Conditions]:
    """`Choices.unmet`, kept for as long as no table has another row: a page asks at every change.

    A field is used where any of the fields that may use it does, and is used itself.
    """
    deciding = _deciding(type(choices), rows)

    def conditions(name: str) -> Conditions:
        using = [
            conditions(other)
            for other, values in deciding[name].items()
            if _uses(getattr(choices, other), values)
        ]
        if not deciding[name] or {} in using:
            return {}
        return using[0] if using else deciding[name]

    return {name: needed for name in deciding if (needed := conditions(name))}


@lru_cache(maxsize=64)
def _deciding(kind: type[Choices], _: LastRows) -> Mapping[str, Conditions]:
    """For each field the others that decide whether it matters, with their values for which it
    does; kept as long.

    A number uses a field where it is above 0, and stands here as a switch.
    """
    deciding: dict[str, dict[str, tuple[str | bool, ...]]] = {name: {} for name in kind.specs()}
    for other, item in kind.specs().items():
        for name in item.about.uses:
            deciding[name][other] = (True,)
        for value, option in item.about.options.items():
            for name in option.uses:
                deciding[name][other] = (*deciding[name].get(other, ()), value)
    return deciding


def _last_rows(kind: type[Choices]) -> LastRows:
    """Of each table of options the number of rows, and the fields that the last one uses: a new row
    changes them."""
    return tuple([(len(table), next(reversed(table.values())).uses) for table in _tables(kind)])


@cache
def _tables(kind: type[Choices]) -> tuple[dict[str, Any], ...]:
    """The tables that the options come from, each once."""
    tables = {
        id(item.about.options): item.about.options
        for item in kind.specs().values()
        if item.about.options
    }
    return cast("tuple[dict[str, Any], ...]", tuple(tables.values()))
