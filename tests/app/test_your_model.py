"""The panel for a model that is not ours: a profile from a file, its twin's lines, and files that are none."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

import numpy as np
import pytest

from explorer import Config, Profile, diagnose, measure, predict
from explorer.app.yours.panel import YourModel
from explorer.app.yours.profile_file import EXAMPLE, LARGEST_BYTES
from tests.app.watched import Watched

CONFIG = Config(n_layers=3, d_model=32, n_heads=2, n_ctx=8, n_seeds=1)


@pytest.fixture(scope="module")
def foreign() -> Profile:
    """What `probe` would make of a model with a twin."""
    return dataclasses.replace(measure(CONFIG), config=None, model="<b>Net</b>", layers=("h.0", "h.1", "h.2"),
                               dtype="float32", twin=CONFIG)


@pytest.fixture
def page(foreign: Profile) -> Iterator[Watched[YourModel]]:
    example = dataclasses.replace(foreign, model="Example", twin=None)
    panel = YourModel(lambda: example, predict, diagnose)
    watched = Watched(panel)
    watched.until("idle", EXAMPLE)
    yield watched
    panel.close()


def bring(page: Watched[YourModel], text: str | bytes, name: str = "mine.json") -> None:
    raw = text.encode() if isinstance(text, str) else text
    page.panel.file._handle_custom_msg(["file", name], [memoryview(raw)])


def names(page: Watched[YourModel], chart: str) -> list[str]:
    return [trace["name"] for trace in page.panel.charts[chart].figure["data"] if "name" in trace]


def test_the_example_stands_there_first(page: Watched[YourModel]) -> None:
    assert "Example" in page.panel.about.value
    assert "No theory" in page.panel.about.value
    assert page.panel.verdict.findings
    assert "predicted" not in names(page, "second_moment")


def test_a_profile_is_drawn_beside_its_twin(page: Watched[YourModel], foreign: Profile) -> None:
    bring(page, foreign.to_json())
    page.until("idle", "from mine.json")
    assert "&lt;b&gt;Net&lt;/b&gt;" in page.panel.about.value, "what came from elsewhere is escaped"
    assert "3 layers of width 32" in page.panel.about.value
    assert {"measured", "predicted"} <= set(names(page, "second_moment"))
    assert page.panel.charts["second_moment"].badge
    assert page.panel.cells["attention_pattern"].layout.display == "none", "a file has no pattern"
    assert page.panel.cells["weight_variance"].layout.display == "none", "this one has none either"
    page.panel.file._handle_custom_msg(["other"], [])
    page.until("idle", EXAMPLE)
    assert "predicted" not in names(page, "second_moment")


def test_what_is_not_finite_is_shown(page: Watched[YourModel], foreign: Profile) -> None:
    values = {key: np.array(value) for key, value in foreign.values.items()}
    values["second_moment", "resid_post"][0, 1] = np.inf
    bring(page, dataclasses.replace(foreign, values=values).to_json())
    page.until("idle", "from mine.json")
    assert page.panel.verdict.findings[0]["meaning"] == "The signal stops being finite."


@pytest.mark.parametrize(("text", "words"), [
    (b"\xff\xfe\x00", "the file must be text, UTF-8"),
    ("no json", "it is no JSON"),
    ("[" * 100_000, "a profile must be what Profile.to_json wrote"),
    ("[]", "a profile must be what Profile.to_json wrote"),
    ("{}", "it has no 'origin'"),
    (b" " * (LARGEST_BYTES + 1), "the file must be at most 4 MB long"),
])
def test_a_file_that_is_no_profile_is_refused_in_a_sentence(page: Watched[YourModel], text: str | bytes, words: str
                                                            ) -> None:
    bring(page, text)
    assert words in page.panel.file.said
    assert page.panel.file.said.endswith(f"The charts stay those of {EXAMPLE}.")
    assert page.panel.file.refused
    assert page.panel.status.state == "idle"


@pytest.mark.parametrize(("change", "words"), [
    ({"origin": "predicted"}, "must be a measured one"),
    ({"values": []}, "with a second_moment at resid_post"),
    ({"values": [{"statistic": "second_moment", "site": "resid_post", "values": [[1, 2], [3]]}]}, "to_json wrote"),
    ({"values": [{"statistic": "second_moment", "site": "resid_post", "values": [[]]}]}, "1 to 1024 layers; got 0"),
    ({"values": [{"statistic": "<i>", "site": "x", "values": [[1]]}]}, "statistic must be one of"),
    ({"twin": {"n_layers": 10**9}}, "n_layers must be"),
    ({"seconds": "soon"}, "could not convert"),
])
def test_a_profile_that_was_tampered_with_is_refused(page: Watched[YourModel], foreign: Profile,
                                                     change: dict[str, object], words: str) -> None:
    bring(page, json.dumps({**json.loads(foreign.to_json()), **change}))
    assert words in page.panel.file.said
    assert page.panel.status.state == "idle"
