"""A `Profile` as JSON: what is written, and what is accepted when it is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from explorer.config import Config
from explorer.display import shown
from explorer.foreign import Fault, Learning, Part, State
from explorer.sites import STREAM
from explorer.vocabulary import Array, Key

if TYPE_CHECKING:
    from explorer.profile import Profile


def plain_record(profile: Profile) -> dict[str, Any]:
    """A profile as JSON has it; parts that only a model that is not ours may have are left out
    where they are empty."""
    return {
        "origin": profile.origin,
        "config": None if profile.config is None else profile.config.model_dump(),
        "model": profile.model,
        "layers": profile.layers,
        "shapes": dict(profile.shapes),
        "dtype": profile.dtype,
        "twin": None if profile.twin is None else profile.twin.model_dump(),
        "differences": profile.differences,
        **({"kinds": profile.kinds} if profile.kinds else {}),
        "remarks": profile.remarks,
        "absent": [[*key, *layers] for key, layers in profile.absent.items()],
        "seeds": profile.seeds,
        "seconds": _plain(profile.seconds),
        "notes": dict(profile.notes),
        "first_nonfinite": first._asdict() if (first := profile.first_nonfinite) else None,
        "values": _rows(profile.values),
        **({"scatter": _rows(profile.scatter)} if profile.scatter else {}),
        "others": [plain_record(other) for other in profile.others],
        "step": profile.step,
        **({"logits": dict(profile.logits)} if profile.logits else {}),
        **({"faults": [tuple(fault) for fault in profile.faults]} if profile.faults else {}),
        **({"traits": profile.traits} if profile.traits else {}),
        **({"learning": profile.learning._asdict()} if profile.learning.parts else {}),
        **({"waits": dict(profile.waits)} if profile.waits else {}),
        **({"coverage": profile.coverage} if profile.coverage else {}),
        **({"facts": dict(profile.facts)} if profile.facts else {}),
    }


def _rows(arrays: Mapping[Key, Array]) -> list[dict[str, Any]]:
    """Arrays by statistic and site, as JSON has them: see `_Row`."""
    return [
        {"statistic": statistic, "site": site, "values": _plain(array.tolist())}
        for (statistic, site), array in arrays.items()
    ]


def fields_of(text: str) -> dict[str, Any]:
    """The fields of the profile that a text holds; those of `others` are such dicts themselves.

    Raises:
        ValueError, OverflowError: it is something else; see `refusal`.
    """
    return _Stored.model_validate_json(text).fields()


def refusal(error: Exception) -> ValueError:
    """The error of a text that is no profile: it names the field, the rule and the value."""
    words = _first_wrong(error) if isinstance(error, ValidationError) else error
    return ValueError(f"a profile must be what Profile.to_json wrote; {words}")


def _plain(value: Any) -> Any:
    """Numbers that JSON can hold: finite ones as they are, the others as the strings nan, inf and
    -inf."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if math.isfinite(value) else str(value)


MOST = 1e300
"""The largest number of seconds, or of a logit: a whole number of JSON may have any size."""


def _seconds(value: Any) -> Any:
    """A duration; one that is not finite is a text in JSON."""
    if isinstance(value, int | float) and abs(value) > MOST:
        raise ValueError(f"must be a number of at most {MOST:g}")
    return float(value) if value in ("nan", "inf", "-inf") else value


class _Row(BaseModel, strict=True):
    """One array of a profile as JSON."""

    statistic: str
    site: str
    values: Any


class _StoredLearning(BaseModel, strict=True):
    """`Learning` as JSON."""

    parts: tuple[tuple[State, str, tuple[int, ...], int, bool], ...] = ()
    steps: int = 0
    projected: bool = False
    facts: tuple[str, ...] = ()

    def learning(self) -> Learning:
        """The record."""
        return Learning(
            tuple(Part(*row) for row in self.parts), self.steps, self.projected, self.facts
        )


class _Stored(BaseModel, strict=True):
    """A profile as JSON; parts without a default must be there."""

    origin: Literal["measured", "predicted"]
    values: tuple[_Row, ...]
    scatter: tuple[_Row, ...] = ()
    config: dict[str, Any] | None
    seeds: tuple[int, ...]
    notes: dict[str, str]
    seconds: Annotated[float, BeforeValidator(_seconds)]
    model: str = ""
    layers: tuple[str, ...] = ()
    shapes: dict[str, tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]] = {}
    dtype: str = ""
    twin: dict[str, Any] | None = None
    remarks: tuple[str, ...] = ()
    absent: tuple[
        Annotated[
            tuple[str, str, tuple[int, ...]],
            BeforeValidator(
                lambda row: (*row[:2], tuple(row[2:])) if isinstance(row, list) else row
            ),
        ],
        ...,
    ] = ()
    differences: tuple[tuple[int, str, str], ...] = ()
    faults: tuple[
        Annotated[
            Fault,
            BeforeValidator(
                lambda row: Fault(*row) if isinstance(row, list) and 4 <= len(row) <= 5 else row
            ),
        ],
        ...,
    ] = ()
    traits: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    others: tuple[_Stored, ...] = ()
    step: int = 0
    logits: dict[str, Annotated[float, Field(ge=0, lt=MOST)]] = {}
    learning: _StoredLearning = Field(default_factory=lambda: _StoredLearning())
    waits: dict[str, tuple[int, ...]] = {}
    coverage: tuple[str, ...] = ()
    facts: dict[str, Annotated[float, Field(gt=-MOST, lt=MOST)] | str] = {}

    def fields(self, at: str = "") -> dict[str, Any]:
        """The fields of the profile; `at` is its place in the file, before the name of a part."""
        values, scatter = (
            {
                (row.statistic, row.site): _numbers(row.values, f"{at}{name}[{place}].values")
                for place, row in enumerate(rows)
            }
            for name, rows in (("values", self.values), ("scatter", self.scatter))
        )
        _must_fit(values, f"{at}values")
        absent = {(statistic, site): layers for statistic, site, layers in self.absent}
        others = [other.fields(f"{at}others[{place}].") for place, other in enumerate(self.others)]
        return {
            **dict(self),
            "values": values,
            "scatter": scatter,
            "absent": absent,
            "learning": self.learning.learning(),
            "others": others,
            "config": Config(**self.config) if self.config else None,
            "twin": Config(**self.twin) if self.twin else None,
        }


def _must_fit(values: Mapping[Key, Array], at: str) -> None:
    """Refuses arrays that cannot be of one model: those along the stream are drawn as one line.

    Args:
        values: `[seed, layer]` or `[seed, layer, …]` each.
        at: their place in the file.
    """
    layers: dict[str, int] = {"embed": 1}
    others: dict[str, tuple[int, ...]] = {}
    for (statistic, site), array in values.items():
        if site not in STREAM or array.ndim < 2:  # of fewer axes `Profile` speaks
            continue
        count = layers.setdefault(site, array.shape[1])
        if array.shape[1] != count:
            raise ValueError(
                f"{at} must have one number of layers at {site}; got {array.shape[1]} beside {count}, "
                f"of {statistic}"
            )
        seeds, _, *rest = array.shape
        first = others.setdefault(statistic, (seeds, *rest))
        if (seeds, *rest) != first:
            raise ValueError(
                f"{at} must have as many seeds, and heads or positions, at all sites of {statistic}; got "
                f"{(seeds, *rest)} at {site} beside {first}"
            )


def _first_wrong(error: ValidationError) -> str:
    """The first thing that is wrong with a file: its place, the rule and the value."""
    first = error.errors()[0]
    place = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]
    ).lstrip(".")
    if first["type"] == "missing":
        return f"it has no {place}"
    if first["type"] == "json_invalid":
        return f"it is no JSON: {first['msg']}"
    rule = (
        first["msg"]
        .replace("Input should", "must")
        .replace("Tuple should", "must")
        .removeprefix("Value error, ")
    )
    return f"{place or 'it'} {rule}; got {shown(first['input'])}"


def _numbers(rows: Any, at: str) -> Array:
    """An array; nan and infinities are strings in JSON."""
    try:
        if not isinstance(rows, list) or None in np.array(rows, dtype=object).ravel():
            raise TypeError
        return np.array(rows, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"{at} must be numbers, [seed, layer] or [seed, layer, head]; got {shown(rows)}"
        ) from None
