"""Visitors in line, at a clock that the tests set."""

from __future__ import annotations

import pytest

from explorer_serve import server as module
from explorer_serve.server import KEPT, MOST_IN_LINE, PRESENT, Line, place


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_places_are_in_the_order_of_coming(clock: list[float]) -> None:
    line = Line()
    tokens = [line.wait("") for _ in range(3)]
    assert [line.wait(token) for token in tokens] == tokens
    assert [line.ahead(token) for token in (*tokens, "", "made up")] == [0, 1, 2, 3, 3]
    line.leave(tokens[0])
    line.leave("made up")
    assert [line.ahead(token) for token in tokens[1:]] == [0, 1]


def test_who_does_not_ask_lets_others_ahead_and_then_loses_the_place(clock: list[float]) -> None:
    line = Line()
    away, here = (line.wait(line.wait("")) for _ in range(2))
    clock[0] += PRESENT - 1
    assert line.ahead(here) == 1
    clock[0] += 1
    line.wait(here)
    assert (line.ahead(here), line.ahead(away)) == (0, 0)
    line.wait(away)
    assert (line.ahead(here), line.ahead(away)) == (1, 0)
    clock[0] += KEPT
    assert (line.ahead(""), line.wait(here) == here, line.wait(away) == away) == (0, False, False)


def test_a_browser_that_keeps_nothing_does_not_wait_for_itself(clock: list[float]) -> None:
    line = Line()
    line.wait("")
    assert line.ahead("") == 1
    clock[0] += 15
    assert line.ahead("") == 0


def test_the_line_does_not_grow_without_limit(clock: list[float]) -> None:
    line = Line()
    tokens = [line.wait(f"made up {number}") for number in range(MOST_IN_LINE + 10)]
    assert tokens[MOST_IN_LINE:] == [""] * 10
    assert line.ahead("") == MOST_IN_LINE
    assert line.wait(tokens[5]) == tokens[5]
    clock[0] += KEPT
    assert line.wait("")


def test_a_place_is_said_in_words() -> None:
    assert [place(ahead) for ahead in (0, 2, 9, 10)] == [
        "You are first in line.",
        "You are third in line.",
        "You are tenth in line.",
        "You are number 11 in line.",
    ]
