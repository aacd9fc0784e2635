"""Words of a field, beside its type and bounds: label, group, symbol, unit and options.

A field's `About` and its pydantic bounds are the single source for controls, tooltips, permalinks
and error messages: `Spec` is the two put together, and `rule()` is the one sentence that says what
is accepted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field, GetCoreSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from explorer.translation import translated, with_messages

Kind = Literal["integer", "number", "switch", "choice", "text"]
KINDS: Mapping[Any, Kind] = {bool: "switch", int: "integer", float: "number", str: "text"}
GROUPS = ("Size", "Initialization", "Normalization", "Residual", "Attention", "Input and loss")


@with_messages("formula", "label")
@dataclass(frozen=True)
class Option:
    """One value of a choice; the rows of `schemes` add its formulas."""

    formula: str
    """Its formula or effect, short enough to stand beside a control."""
    source: str = ""
    """The paper it comes from; empty where there is none to credit."""
    uses: tuple[str, ...] = ()
    """Fields that matter only with this value, or with others that use them too."""
    label: str = ""
    """Words for it in a list; empty where its name serves."""


@with_messages("label", "unit", "usual")
@dataclass(frozen=True)
class About:
    """The words and the manner of one field: attached to its annotation in `Config`."""

    label: str
    group: str
    symbol: str = ""
    unit: str = ""
    usual: str = ""
    """Values in use, and after a colon those who use them: '12–126: GPT-2 small to Llama 3
    405B'."""
    step: float = 0.0
    """Distance of a slider's steps on an even axis; 0 leaves it to the slider."""
    log: bool = False
    """The field's natural axis is logarithmic."""
    pinned: bool = False
    """Always visible, above the groups."""
    advanced: bool = False
    """Rarely changed: folded away within its group as long as it is at its default."""
    options: Mapping[str, Option] = field(default_factory=lambda: MappingProxyType({}))
    """The values of a choice; a `str` field that has some accepts only these."""
    uses: tuple[str, ...] = ()
    """Fields that matter while this switch is on, or this number above 0; a choice's options say so
    themselves."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        inner = handler(source)
        return (
            core_schema.no_info_after_validator_function(self.check, inner)
            if source is str
            else inner
        )

    def check(self, value: str) -> str:
        """The value, if it is one of the options; of a text, if it is one line without invisible
        characters."""
        if value not in self.options if self.options else not value.isprintable():
            raise ValueError("no such option")
        return value


def setting(
    default: Any,
    label: str,
    group: str,
    description: str,
    low: float | None = None,
    high: float | None = None,
    **words: Any,
) -> Any:
    """A field of a record of choices, in its class body; `words` are whatever else `About` takes.

    Args:
        low, high: bounds of a number, or of the length of a text.
    """
    names = ("min_length", "max_length") if isinstance(default, str) else ("ge", "le")
    bounds: dict[str, Any] = dict(zip(names, (low, high), strict=True))
    info: FieldInfo = Field(default, description=description, **bounds)
    info.metadata.append(About(label, group, **words))
    return info


@with_messages("description")
@dataclass(frozen=True)
class Spec:
    """Everything known of one field: enough to draw its control and to explain a refusal."""

    name: str
    kind: Kind
    default: Any
    description: str
    about: About
    low: float = -math.inf
    high: float = math.inf

    @property
    def choices(self) -> tuple[str, ...]:
        """Accepted values of a choice: the current rows of its table."""
        return tuple(self.about.options)

    @property
    def annotation(self) -> object:
        """Type of the values, for the record's signature."""
        return Literal.__getitem__(self.choices) if self.choices else type(self.default)

    @property
    def bounded(self) -> bool:
        """Whether a number has both bounds."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def rule(self) -> str:
        """The accepted values, in the words that follow 'must be' in an error."""
        if self.kind == "choice":
            return translated("one of {choices}", choices=", ".join(self.choices))
        if self.kind == "switch":
            return translated("true or false")
        low, high = f"{self.low:g}", f"{self.high:g}"
        if self.kind == "text":
            return translated("a text of {low} to {high} printable characters", low=low, high=high)
        if self.kind == "integer":
            low, high = f"{self.low:.0f}", f"{self.high:.0f}"
            return translated("a whole number between {low} and {high}", low=low, high=high)
        if self.bounded:
            return translated("a finite number between {low} and {high}", low=low, high=high)
        return translated("a finite number")


def spec(name: str, info: FieldInfo) -> Spec:
    """Reads a pydantic field: its options or its type give the kind, its metadata the bounds and
    the words."""
    by_type = {type(item).__name__: item for item in info.metadata}
    about = by_type["About"]
    return Spec(
        name=name,
        kind="choice" if about.options else KINDS[info.annotation],
        default=info.default,
        description=info.description or "",
        about=about,
        low=getattr(
            by_type.get("Ge"), "ge", getattr(by_type.get("MinLen"), "min_length", -math.inf)
        ),
        high=getattr(
            by_type.get("Le"), "le", getattr(by_type.get("MaxLen"), "max_length", math.inf)
        ),
    )
