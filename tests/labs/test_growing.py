"""Labs that train: the result so far can be drawn at any step, and who looks changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from explorer.labs.lab import Lab
from explorer.labs.residual_streams.experiment import StreamsResult
from explorer.labs.table import LABS, on
from explorer.labs.trained import Trained
from explorer.profile import Array

RACES = [row for row in on("Training") if row.name != "17_trainability"]
"""Each is one race; that one's cells are races of their own, and its test has what is asked here."""
SMALL = {"steps": 20, "n_layers": 2}
"""The least of both, where the lab has them."""


def trained(result: Any) -> Trained[Any]:
    return result.trained if isinstance(result, StreamsResult) else result


def test_the_labs_on_training_grow_and_no_others() -> None:
    assert {row.name for row in LABS.values() if row.grows} == {row.name for row in on("Training")}


@pytest.mark.parametrize("row", RACES, ids=lambda row: row.name)
def test_what_is_there_so_far_is_drawn_and_looking_changes_nothing(row: Lab) -> None:
    settings = row.settings(**{name: value for name, value in SMALL.items() if name in row.settings.specs()})
    parts: list[Any] = []

    def look(make: Callable[[], Any]) -> None:
        if len(parts) < 12:  # the first dozen of steps, from the first on
            parts.append(make())

    seen, unseen = (trained(one) for one in (row.run(settings, look=look), row.run(settings)))
    for name in unseen.histories:
        pd.testing.assert_frame_equal(seen.histories[name].frame(), unseen.histories[name].frame(), check_exact=True)
    assert repr(seen.ends) == repr(unseen.ends)  # nan is no nan
    lengths = [len(next(iter(trained(one).histories.values())).losses) for one in parts]
    assert lengths == list(range(1, 13)), "a result so far does not grow any more"
    for plot in row.plots:
        assert any(drawn(trace) for trace in plot.draw(parts[0]).data), plot.name


def drawn(trace: Any) -> bool:
    values: Array | None = trace.z if trace.type == "heatmap" else trace.y
    return values is not None and len(values) > 0
