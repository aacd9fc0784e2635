"""What a notebook's cell shows of a profile: the verdict and four charts, or the table."""

from __future__ import annotations

import dataclasses
import json

import pytest

from explorer import Config, Profile, diagnose, measure
from explorer.figures import FIGURES
from explorer.figures.pages import MIME, SHOWN, overview

CONFIG = Config(n_layers=3, d_model=32, n_heads=2, n_ctx=8, n_seeds=1)


@pytest.fixture(scope="module")
def profile() -> Profile:
    return measure(CONFIG)


def test_a_cell_has_the_charts_and_for_those_without_script_the_table(profile: Profile) -> None:
    bundle = profile._repr_mimebundle_()
    assert bundle["text/html"] == profile._repr_html_()
    assert bundle["text/plain"] == repr(profile)
    json.dumps(bundle[MIME], allow_nan=False)
    assert bundle[MIME]["config"]["showSendToCloud"] is False


def test_the_verdict_stands_above_the_charts_of_the_page(profile: Profile) -> None:
    figure = overview(profile)
    assert diagnose(profile)[0].meaning in figure.layout.title.text
    assert [note.text for note in figure.layout.annotations] == [
        f"<b>{FIGURES[name].title}</b>" for name in SHOWN
    ]
    for number, name in enumerate(SHOWN, start=1):
        own = "" if number == 1 else str(number)
        drawn = [trace for trace in figure.data if trace.yaxis == f"y{own}"]
        names = {trace.name for trace in drawn}
        assert {"measured", "predicted"} <= names, name
        assert (
            figure.layout[f"yaxis{own}"].title.text
            == FIGURES[name].draw([profile]).layout.yaxis.title.text
        )


def test_a_model_without_a_twin_has_dots_alone_and_what_it_lacks_is_left_out(
    profile: Profile,
) -> None:
    values = {key: value for key, value in profile.values.items() if key[0] == "second_moment"}
    figure = overview(dataclasses.replace(profile, config=None, model="<b>", values=values))
    assert [note.text for note in figure.layout.annotations] == ["<b>Second moment</b>"]
    assert "predicted" not in {trace.name for trace in figure.data}
