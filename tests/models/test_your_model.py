"""The panel for a model that is not ours: a profile from a file, its twin's lines, and files that
are none."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

import numpy as np
import pytest
from handed import bring
from watched import Watched

from explorer import Config, Profile, diagnose, measure, predict
from explorer_models.page import EXAMPLE, LARGEST_BYTES, YourModel

CONFIG = Config(n_layers=3, d_model=32, n_heads=2, n_ctx=8, n_seeds=1)


@pytest.fixture(scope="module")
def foreign() -> Profile:
    """What `probe` would make of a model with a twin."""
    return dataclasses.replace(
        measure(CONFIG),
        config=None,
        model="<b>Net</b>",
        layers=("h.0", "h.1", "h.2"),
        dtype="float32",
        twin=CONFIG,
    )


@pytest.fixture
def page(foreign: Profile) -> Iterator[Watched[YourModel]]:
    example = dataclasses.replace(foreign, model="Example", twin=None)
    panel = YourModel(lambda: example, predict, diagnose)
    watched = Watched(panel)
    watched.until("idle", EXAMPLE)
    yield watched
    panel.close()


def show(page: Watched[YourModel], text: str | bytes, name: str = "mine.json") -> None:
    bring(page.panel.file, name, text.encode() if isinstance(text, str) else text)


def names(page: Watched[YourModel], chart: str) -> list[str]:
    return [trace["name"] for trace in page.panel.charts[chart].figure["data"] if "name" in trace]


def test_the_example_stands_there_first(page: Watched[YourModel]) -> None:
    assert "Example" in page.panel.about.value
    assert "No theory" in page.panel.about.value
    assert page.panel.verdict.findings
    assert "predicted" not in names(page, "second_moment")


def test_a_profile_is_drawn_beside_its_twin(page: Watched[YourModel], foreign: Profile) -> None:
    show(page, foreign.to_json())
    page.until("idle", "from mine.json")
    assert "&lt;b&gt;Net&lt;/b&gt;" in page.panel.about.value, "what came from elsewhere is escaped"
    assert "3 layers of width 32" in page.panel.about.value
    assert {"measured", "predicted"} <= set(names(page, "second_moment"))
    assert page.panel.charts["second_moment"].badge
    assert page.panel.cells["attention_pattern"].hidden, "a file has no pattern"
    assert page.panel.cells["weight_variance"].hidden, "this one has none either"
    page.panel.file.handle(["other"], [])
    page.until("idle", EXAMPLE)
    assert "predicted" not in names(page, "second_moment")


def test_what_is_not_finite_is_shown(page: Watched[YourModel], foreign: Profile) -> None:
    values = {key: np.array(value) for key, value in foreign.values.items()}
    values["second_moment", "resid_post"][0, 1] = np.inf
    show(page, dataclasses.replace(foreign, values=values).to_json())
    page.until("idle", "from mine.json")
    assert page.panel.verdict.findings[0]["meaning"] == "The signal stops being finite."


NO_PROFILES: list[tuple[str | bytes, str]] = [
    (b"\xff\xfe\x00", "the file must be text, UTF-8"),
    ("no json", "it is no JSON"),
    ("[" * 100_000, "a profile must be what Profile.to_json wrote"),
    ("[]", "a profile must be what Profile.to_json wrote"),
    ("{}", "it has no origin"),
    ("[1, 2]", "it must be an object; got [1, 2]"),
    ("3", "it must be an object; got 3"),
    ("null", "it must be an object; got None"),
    ('"a"', "it must be an object; got 'a'"),
    (" ", "it is no JSON"),
    ("9" * 5000, "a profile must be what Profile.to_json wrote"),
    ("NaN", "it must be an object; got nan"),
]
"""Files, and words of their refusals."""


def test_a_file_that_is_no_profile_is_refused_in_a_sentence(page: Watched[YourModel]) -> None:
    for text, words in NO_PROFILES:
        show(page, text)
        assert words in page.panel.file.said, text
        assert page.panel.file.said.endswith(f"The charts stay those of {EXAMPLE}.")
        assert page.panel.file.refused
        assert page.panel.status.state == "idle"


def test_a_profile_that_is_too_large_is_not_sent(page: Watched[YourModel]) -> None:
    show(page, b" " * (LARGEST_BYTES + 1))
    assert page.panel.file.said.startswith("Refused: mine.json must have at most 4.0 MB to be sent")
    assert (page.panel.file.refused, page.panel.file.now) == (True, EXAMPLE)


TAMPERED: list[tuple[dict[str, object], str]] = [
    ({"origin": "predicted"}, "must be a measured one"),
    ({"values": []}, "with a second_moment at resid_post"),
    (
        {"values": [{"statistic": "second_moment", "site": "resid_post", "values": [[1, 2], [3]]}]},
        "to_json wrote",
    ),
    (
        {"values": [{"statistic": "second_moment", "site": "resid_post", "values": [[]]}]},
        "1 to 1024 layers; got 0",
    ),
    (
        {"values": [{"statistic": "<i>", "site": "x", "values": [[1]]}]},
        "statistic must be one of",
    ),
    ({"twin": {"n_layers": 10**9}}, "n_layers must be"),
    ({"seconds": "soon"}, "seconds must be a valid number; got 'soon'"),
    ({"origin": ["measured"]}, "origin must be 'measured' or 'predicted'; got ['measured']"),
    ({"values": 3}, "values must be a valid array; got 3"),
    ({"values": [[1]]}, "values[0] must be an object; got [1]"),
    (
        {"values": [{"statistic": ["a"], "site": "b", "values": []}]},
        "values[0].statistic must be a valid string",
    ),
    (
        {"values": [{"statistic": "max_abs", "site": "embed", "values": [[None]]}]},
        "values[0].values must be numbers",
    ),
    (
        {"values": [{"statistic": "max_abs", "site": "embed", "values": {"a": 1}}]},
        "values[0].values must be numbers",
    ),
    (
        {"values": [{"statistic": "max_abs", "site": "embed", "values": [["one"]]}]},
        "got [['one']]",
    ),
    (
        {"values": [{"statistic": "max_abs", "site": "embed", "values": [[10**400]]}]},
        "values[0].values must be",
    ),
    (
        {"values": [{"statistic": "max_abs", "site": "embed", "values": [1]}]},
        "max_abs at embed must be [seed, layer",
    ),
    ({"config": [1]}, "config must be an object; got [1]"),
    ({"twin": "gpt2"}, "twin must be an object; got 'gpt2'"),
    ({"twin": {"no such field": 1}}, "no such field"),
    ({"model": 7}, "model must be a valid string; got 7"),
    ({"layers": "abc"}, "layers must be a valid array; got 'abc'"),
    ({"layers": [1]}, "layers[0] must be a valid string; got 1"),
    (
        {"shapes": {"W_Q": [1, 2, 3]}},
        "shapes.W_Q must have at most 2 items after validation, not 3; got [1, 2, 3]",
    ),
    ({"shapes": [4]}, "shapes must be an object; got [4]"),
    ({"dtype": None}, "dtype must be a valid string; got None"),
    ({"remarks": [3]}, "remarks[0] must be a valid string; got 3"),
    ({"absent": [["logit_std", 3]]}, "absent[0][1] must be a valid string; got 3"),
    ({"step": "2"}, "step must be a valid integer; got '2'"),
    ({"differences": [[1, "embed"]]}, "it has no differences[0][2]"),
    ({"seeds": None}, "seeds must be a valid array; got None"),
    ({"seeds": [True]}, "seeds[0] must be a valid integer; got True"),
    ({"notes": []}, "notes must be an object; got []"),
    ({"notes": {"a": 1}}, "notes.a must be a valid string; got 1"),
    ({"seconds": None}, "seconds must be a valid number; got None"),
    ({"seconds": 10**400}, "seconds must be a number of at most 1e+300"),
    ({"seconds": 1e301}, "seconds must be a number of at most 1e+300; got 1e+301"),
    ({"others": {"a": 1}}, "others must be a valid array"),
    ({"others": [3]}, "others[0] must be an object; got 3"),
    (
        {"others": [{"origin": "me"}]},
        "others[0].origin must be 'measured' or 'predicted'; got 'me'",
    ),
]
"""Changes of a stored profile, and words of their refusals."""


def test_a_profile_that_was_tampered_with_is_refused(
    page: Watched[YourModel], foreign: Profile
) -> None:
    stored = json.loads(foreign.to_json())
    for change, words in TAMPERED:
        show(page, json.dumps({**stored, **change}))
        assert words in page.panel.file.said, change
        assert page.panel.status.state == "idle"
