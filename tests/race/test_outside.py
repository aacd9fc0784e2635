"""A race in a worker: the same numbers bit for bit, however often it stands still; told in parts,
refused in words."""

from __future__ import annotations

import json

import here
import numpy as np
import pandas as pd
import pytest
from contenders import (
    MASKED,
    POST,
    PRE,
    REZERO,
    TASK,
    WILD,
    assert_equal,
    assert_same,
    assert_same_numbers,
)

from explorer import tasks, text
from explorer.choices import ConfigError, FieldName
from explorer.config import Config
from explorer.stopping import Stopped
from explorer.tasks.frames import packed, unpacked
from explorer.tasks.pool import Call
from explorer_race import telling
from explorer_race.archive import from_bytes
from explorer_race.history import History, Record, Terms, news_of, request
from explorer_race.race import Contender, race_of
from explorer_race.recipe import Recipe

OWN = text.encode("".join(text.prose().vocabulary[code] for code in text.prose().codes[:60_000]))
TERMS = Terms([POST, PRE, REZERO], TASK, 20, 7)


@pytest.fixture(autouse=True)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes, which take two seconds to start, for one test of all that a race has."""
    if "apart" not in request.node.name:
        monkeypatch.setattr(tasks, "place", here.place)


def run(record: Record, until: int | None = None) -> Record:
    """Until so many steps are told of, or to the end."""
    for _ in record.follow(
        lambda: False, lambda: until is not None and record.step >= until, lambda _: None
    ):
        pass
    return record


def computed(
    verb: str, data: bytes, *, stop: bool = False
) -> tuple[dict[str, object], list[bytes]]:
    """What a worker would answer, computed here, and what it would tell before."""
    shown: list[bytes] = []
    call = Call(
        request(verb, data).body, data, lambda: stop, lambda: False, lambda _: None, shown.append
    )
    return news_of(telling.compute(call)), shown


@pytest.mark.parametrize(
    "terms",
    [TERMS, Terms([PRE], TASK, 20, 7, OWN), Terms([WILD, POST], TASK, 20, 3)],
    ids=["three, apart", "own text", "diverging"],
)
def test_a_race_that_stood_still_ends_as_if_it_had_not(terms: Terms) -> None:
    record = run(Record(terms), until=1)
    assert 0 < record.step < terms.steps
    paused = from_bytes(record.archive, "race.zip")
    assert_same_numbers(record, paused)
    run(record)
    assert record.finished
    whole = race_of(terms).run()
    assert_same(from_bytes(record.archive, "race.zip"), whole)
    pd.testing.assert_frame_equal(record.frame(), whole.frame(), check_exact=True)
    pd.testing.assert_frame_equal(
        pd.DataFrame(record.outcomes), pd.DataFrame(whole.verdict()), check_exact=True
    )
    assert record.levels == whole.levels
    assert [(one.step, one.retired) for one in record.runners] == [
        (one.step, one.retired) for one in whole.runners
    ]
    assert record.lines.keys() >= {one.name for one in whole.runners if not one.retired}


def test_a_refusal_comes_with_its_fields() -> None:
    refused = Contender("refused", PRE.config, Recipe(alpha_schedule="ramp"))
    with pytest.raises(
        ConfigError, match=r"alpha_schedule must be learned where .* \(refused\)"
    ) as raised:
        run(Record(Terms([refused], TASK, 2, 1)))
    assert Recipe.field_name("alpha_schedule") in raised.value.phrases


def test_a_race_that_nobody_wants_is_stopped() -> None:
    with pytest.raises(Stopped):
        computed("begin", packed(TERMS.plain()), stop=True)


def test_no_two_races_are_one_task() -> None:
    """Or who stops a race would stop another's, which is the same."""
    assert request("begin", b"").key != request("begin", b"").key


def test_a_race_that_is_too_large_to_be_sent_is_told_without_its_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = packed(TERMS.plain())
    whole, shown = computed("begin", data)
    assert len(whole["archive"]) > 0  # type: ignore[arg-type]
    assert shown
    monkeypatch.setattr(telling, "MOST_DATA", len(whole["archive"]) - 1)  # type: ignore[arg-type]
    less, _ = computed("begin", data)
    assert whole.keys() - less.keys() == {"archive"}


def test_terms_survive_as_plain_values() -> None:
    for terms in (TERMS, Terms([PRE], MASKED, 3, 2, OWN)):
        again = Terms.of(unpacked(packed(terms.plain())))
        assert again[:4] == ([tuple(one) for one in terms.contenders], *terms[1:4])
        assert (again.text is None) == (terms.text is None)
        if again.text and terms.text:
            assert again.text.vocabulary == terms.text.vocabulary
            np.testing.assert_array_equal(again.text.codes, terms.text.codes)
    assert isinstance(again.contenders[0][1], Config)


# --- what is new ----------------------------------------------------------------------------------


def grown(readings: int) -> History:
    """A history whose last reading has a statistic that the others have not."""
    history, rng = History(), np.random.default_rng(0)
    for number in range(readings):
        history.losses += rng.random(2).tolist()
        late = {("kurtosis", "embed"): rng.random((1, 3))} if number >= 2 else {}
        history.record(
            2 * number,
            {("alpha", ""): np.array(rng.random()), ("max_abs", "embed"): rng.random(4), **late},
        )
    history.losses.append(float("inf"))
    return history


def tell(told: History, history: History, losses: int, readings: int) -> None:
    told.add(unpacked(packed(history.since(losses, readings))))


def test_parts_make_the_whole() -> None:
    told, whole = History(), grown(4)
    tell(told, History(), 0, 0)
    tell(told, grown(2), 0, 0)
    tell(told, whole, 4, 2)
    tell(told, whole, 9, 4)  # nothing new
    assert_equal(told, whole)
    tell(told, whole, 2, 1)  # by a worker that began again
    assert_equal(told, whole)
    tell(told, History(), 0, 0)  # by one that has made no step yet
    assert (told.losses, told.steps, any(told.values.values())) == ([], [], False)


def test_a_part_that_is_missing_is_noticed() -> None:
    told = grown(2)
    with pytest.raises(ValueError, match="news of a race must go on at loss 5; got some from 6 on"):
        tell(told, grown(4), 6, 2)


def test_a_field_that_is_refused_is_plain_on_its_way() -> None:
    phrases = ("a ", FieldName("n_ctx", "Sequence length", 7), " b")
    with pytest.raises(ConfigError) as raised:
        news_of(packed({"refused": phrases}))
    assert raised.value.phrases == phrases
    assert json.dumps(phrases)
