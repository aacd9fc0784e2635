"""What is told about a field of `Config` beside its type and bounds: the words a person reads.

A field's `About` and its pydantic bounds are the single source for controls, tooltips, permalinks and error
messages: `Spec` is the two put together, and `rule()` is the one sentence that says what is accepted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic.fields import FieldInfo

GROUPS = ("Size", "Initialization", "Normalization", "Residual", "Attention", "Input and loss")


class Option(NamedTuple):
    """One value that a choice can take."""

    formula: str
    """What it does, short enough to stand beside a control."""
    source: str = ""
    """The paper it comes from; empty where there is none to credit."""


@dataclass(frozen=True)
class About:
    """The words and the manner of one field: attached to its annotation in `Config`."""

    label: str
    group: str
    symbol: str = ""
    unit: str = ""
    log: bool = False
    """The field's natural axis is logarithmic."""
    pinned: bool = False
    """Always visible, above the groups."""
    options: Mapping[str, Option] = field(default_factory=lambda: MappingProxyType({}))
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Other fields and the values they must have for this one to matter: `{"residual": ("constant",)}`."""


@dataclass(frozen=True)
class Spec:
    """Everything known of one field: enough to draw its control and to explain a refusal."""

    name: str
    kind: Literal["integer", "number", "switch", "choice"]
    default: Any
    description: str
    about: About
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()

    def rule(self) -> str:
        """What the field accepts, as it stands after 'must be' in an error."""
        if self.kind == "choice":
            return "one of " + ", ".join(self.choices)
        if self.kind == "switch":
            return "true or false"
        noun = "a whole number" if self.kind == "integer" else "a finite number"
        return f"{noun} between {self.low:g} and {self.high:g}" if self.kind == "number" else (
            f"{noun} between {int(self.low)} and {int(self.high)}"
        )


def spec(name: str, info: FieldInfo) -> Spec:
    """Reads a pydantic field: its type gives the kind, its metadata the bounds and the words."""
    about = next(item for item in info.metadata if isinstance(item, About))
    kind: Literal["integer", "number", "switch", "choice"]
    if get_origin(info.annotation) is Literal:
        kind = "choice"
    else:
        kind = {bool: "switch", int: "integer", float: "number"}[info.annotation]  # type: ignore[index, assignment]
    bound = {type(item).__name__: item for item in info.metadata}
    return Spec(
        name=name,
        kind=kind,
        default=info.default,
        description=info.description or "",
        about=about,
        low=getattr(bound.get("Ge"), "ge", -math.inf),
        high=getattr(bound.get("Le"), "le", math.inf),
        choices=tuple(get_args(info.annotation)) if kind == "choice" else (),
    )
