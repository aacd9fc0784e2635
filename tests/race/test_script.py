"""The script of a race gives its numbers, bit for bit."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
import pytest
from scripts import SIZE, run

import explorer as ex
from explorer import text
from explorer_race.page.files import script
from explorer_race.recipe import Recipe
from explorer_race.tasks import Task


@pytest.fixture(autouse=True)
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(go.Figure, "show", lambda figure: None)


@pytest.mark.parametrize(
    "task", [Task(seed=3), Task(kind="masked_character", held_out=0.2)], ids=str
)
def test_a_race(task: Task) -> None:
    size = SIZE | {"n_seeds": 1}
    runs = [
        (
            "a 'b', \"c\"",
            task.fit(ex.preset("post_ln", **size)),
            Recipe(warmup=2, optimizer="radam"),
        ),
        ("b", task.fit(ex.preset("rezero", **size)), Recipe()),
    ]
    left = run(script(runs, task, 2, 1))
    expected = ex.race([ex.Contender(*one) for one in runs], task, 2, every=1)
    pd.testing.assert_frame_equal(left["race"].frame(), expected.frame(), check_exact=True)
    assert left["race"].contenders == tuple(ex.Contender(*one) for one in runs)


def test_a_race_of_a_text_of_one_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    own = text.encode(
        "".join(text.prose().vocabulary[code] for code in text.prose().codes[:60_000])
    )
    monkeypatch.setattr(text, "load", lambda _: own)
    task = Task()
    runs = [("b", task.fit(ex.preset("rezero", **SIZE | {"n_seeds": 1})), Recipe())]
    left = run(script(runs, task, 1, 1, own_text=True))
    expected = ex.race([ex.Contender(*one) for one in runs], task, 1, every=1, text=own)
    pd.testing.assert_frame_equal(left["race"].frame(), expected.frame(), check_exact=True)
