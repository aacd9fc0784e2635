"""Every control of the labs, at each of its ends or options: every picture shows data."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from explorer.fields import Spec, users
from explorer.labs.lab import Lab
from explorer.labs.table import LABS

ROWS = [row for row in LABS.values() if row.name not in ("11_warmup", "12_alpha_schedule", "17_trainability")]
"""Those three are trained at their ends by their own tests."""
COSTLY = ("n_seeds", "draws", "steps", "widest", "n_layers")
"""Fields that a lab's time goes with: they stay at the least beside the others, and are moved alone (in a training not
at all)."""


def ends(spec: Spec) -> list[Any]:
    """A field's ends, or options, the least first; its default is none of them."""
    values = {"choice": list(spec.choices), "switch": [True, False]}.get(spec.kind, [spec.low, spec.high])
    kind = int if spec.kind == "integer" else lambda value: value
    return [kind(value) for value in values if value != spec.default]


def shows(figure: go.Figure) -> bool:
    """Whether any number of it is finite."""
    values = (trace.z if trace.type == "heatmap" else trace.y for trace in figure.data)
    return any(np.isfinite(np.asarray(part, dtype=float)).any() for part in values if part is not None)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_picture_shows_data_at_every_end(row: Lab) -> None:
    specs = row.settings.specs()
    least = {name: ends(specs[name])[0] for name in COSTLY if name in specs}
    for spec in specs.values():
        needed = {name: values[0] for name, values in users(specs, spec.name).items()
                  if specs[name].default not in values}  # a control may only matter beside a certain choice
        for value in ends(spec)[1 if spec.name in least else 0:]:
            if row.grows and spec.name in least:
                continue
            result = row.run(row.settings(**{**least, **needed, spec.name: value}))
            for plot in row.plots:
                assert shows(plot.draw(result)), f"{plot.title} at {spec.name} = {value}"
