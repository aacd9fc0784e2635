"""The Map panel's part of a link: `map.design=post_ln,d_model:64&map.x=alpha&map.x_from=0`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from explorer.app.link.params import Params
from explorer.app.link.values import field_named, plain, read_design, typed, write_design, write_value
from explorer.app.map.maps import FIRST_DESIGN
from explorer.app.map.plan import Plan
from explorer.app.widgets.record import changed, record
from explorer.config import Config
from explorer.display import shown

PREFIX = "map."
DESIGN = PREFIX + "design"


def write(state: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Parts of a link, of a panel's record; the first map is left out."""
    first = changed(FIRST_DESIGN)
    design = plain(Config, state.get("design", first))
    if design != first:
        preset, fields = write_design(design)
        yield DESIGN, ",".join([preset, *(f"{name}:{write_value(value)}" for name, value in fields.items())])
    yield from ((PREFIX + name, write_value(value)) for name, value in plain(Plan, state.get("plan", {})).items())


def read(params: Params) -> dict[str, Any]:
    """A panel's record from the parts of a link."""
    design = _design(params.take(DESIGN), params) if params.has(DESIGN) else changed(FIRST_DESIGN)
    return record(design=design, plan=params.accepted(Plan, params.fields(Plan, PREFIX), "map"))


def _design(text: str, params: Params) -> dict[str, object]:
    """The fields of `post_ln,n_layers:24`; of the default design where it is empty."""
    preset, _, rest = text.partition(",")
    fields, sentences = read_design(preset, DESIGN)
    params.sentences += sentences
    for part in filter(None, rest.split(",")):
        name, colon, value = part.partition(":")
        if (field := field_named(Config, name)) and colon:
            fields |= typed(Config, {field: value})
        else:
            params.sentences.append(f"{DESIGN}: {shown(part)} is not understood")
    return params.accepted(Config, fields, DESIGN)
