"""The Explore panel's schedule: what is drawn after which events, without widgets and threads."""

from __future__ import annotations

import pytest
from explored import some

from explorer.app.explore.schedule import Drawn, ExploreSchedule, Job
from explorer.config import Config
from explorer.measuring import measure
from explorer.profile import Profile
from explorer.theory import predict

SMALL = Config(n_layers=2, d_model=16, n_ctx=8, batch_size=1, n_heads=2, n_seeds=4)
OTHER = SMALL.replace(n_layers=3)
THIRD = SMALL.replace(n_layers=4)


def job(config: Config) -> Job:
    return Job(config, (1, 0))


class Hand:
    """A schedule whose slider rests, or is moved, as the test says."""

    def __init__(self) -> None:
        self.rest = 0.0
        self.schedule = ExploreSchedule(predict, lambda: self.rest)

    def move(self, config: Config) -> None:
        """A move within a drag, where `rest` is long; else one by itself."""
        self.schedule.ask(job(config))
        self.schedule.predict()
        self.schedule.moved()

    def draw(self) -> None:
        self.schedule.drawn = Drawn(self.schedule.line, self.schedule.dots)

    def done(self, config: Config) -> Profile:
        result = measure(config)
        self.schedule.receive(result, refused=False)
        return result


@pytest.fixture
def hand() -> Hand:
    return Hand()


def test_the_first_line_is_drawn_before_any_dots(hand: Hand) -> None:
    hand.move(SMALL)
    assert hand.schedule.draws_at_once
    assert hand.schedule.dots is None
    assert hand.schedule.line is hand.schedule.theory_of(SMALL)[0]


def test_measuring_waits_while_theory_answers_a_move_of_a_drag(hand: Hand) -> None:
    hand.rest = 60.0
    hand.move(SMALL)
    hand.move(OTHER)
    hand.schedule.ask(job(THIRD))
    hand.rest = 0.0  # theory takes longer than the rest
    assert hand.schedule.measuring_waits
    hand.schedule.moved()
    assert not hand.schedule.measuring_waits


def test_a_single_move_draws_line_and_dots_together(hand: Hand) -> None:
    hand.move(SMALL)
    hand.draw()
    hand.done(SMALL)
    hand.draw()
    hand.move(OTHER)
    schedule = hand.schedule
    assert not schedule.draws_at_once
    assert not schedule.measuring_waits
    assert schedule.stale
    result = hand.done(OTHER)
    assert schedule.settle()
    assert not schedule.stale
    assert schedule.dots is result
    assert schedule.line is schedule.theory_of(OTHER)[0]
    hand.draw()
    assert not schedule.settle()


def test_measuring_waits_while_a_slider_is_dragged(hand: Hand) -> None:
    hand.rest = 1e9
    hand.move(SMALL)
    assert not hand.schedule.measuring_waits
    hand.move(OTHER)
    assert hand.schedule.dragging
    assert hand.schedule.measuring_waits
    assert hand.schedule.draws_at_once
    hand.rest = 0.0
    assert not hand.schedule.measuring_waits
    hand.move(THIRD)
    assert not hand.schedule.dragging


def test_far_dots_let_the_line_go_first(hand: Hand) -> None:
    hand.move(SMALL)
    hand.draw()
    hand.done(SMALL)
    hand.draw()
    hand.move(OTHER)
    assert not hand.schedule.lines_go_first(0.1, 0.1)
    assert hand.schedule.lines_go_first(2.0, 0.1)
    hand.draw()
    assert not hand.schedule.lines_go_first(2.0, 0.1)


def test_some_seeds_are_drawn_while_the_others_take_long(hand: Hand) -> None:
    whole = measure(SMALL)
    hand.move(SMALL)
    schedule = hand.schedule
    assert not schedule.take_seeds(job(SMALL), some(whole, 1, 0.001))
    first = some(whole, 1, 1.0)
    assert schedule.take_seeds(job(SMALL), first)
    assert schedule.dots is first
    assert not schedule.take_seeds(job(OTHER), first)
    hand.done(SMALL)
    assert schedule.settle()
    assert schedule.dots is schedule.result


def test_a_refusal_keeps_the_last_result_and_its_own_line(hand: Hand) -> None:
    hand.move(SMALL)
    hand.done(SMALL)
    hand.move(OTHER)
    assert hand.schedule.line is hand.schedule.theory_of(OTHER)[0]
    hand.schedule.halt()
    assert hand.schedule.stale
    assert hand.schedule.line is hand.schedule.theory_of(SMALL)[0]


def test_pins_are_measured_after_the_controls(hand: Hand) -> None:
    hand.move(SMALL)
    schedule = hand.schedule
    assert schedule.pins_to_measure([OTHER]) is None
    schedule.keep(SMALL, hand.done(SMALL), [SMALL, OTHER])
    assert schedule.pins_to_measure([SMALL, OTHER]) == [job(OTHER)]
    schedule.keep(OTHER, "OSError: gone", [SMALL, OTHER])
    assert schedule.known(OTHER).trouble == "OSError: gone"
    assert schedule.pins_to_measure([SMALL, OTHER]) == []


def test_a_measured_pin_keeps_its_numbers_when_it_fails_later(hand: Hand) -> None:
    result = measure(SMALL)
    hand.schedule.keep(SMALL, result, [SMALL])
    hand.schedule.keep(SMALL, "OSError: gone", [SMALL])
    known = hand.schedule.known(SMALL)
    assert known.measured is not None
    assert known.measured.pattern is None
    assert not known.trouble


def test_outcomes_of_other_designs_are_forgotten(hand: Hand) -> None:
    hand.schedule.keep(SMALL, measure(SMALL), [SMALL])
    hand.schedule.keep(OTHER, measure(OTHER), [])
    assert hand.schedule.known(SMALL).measured is None


def test_a_theory_that_breaks_is_told_and_leaves_the_dots() -> None:
    def broken(_: Config) -> Profile:
        raise ZeroDivisionError("q")

    schedule = ExploreSchedule(broken, lambda: 0.0)
    schedule.ask(job(SMALL))
    schedule.predict()
    assert schedule.line is None
    assert schedule.theory_of(SMALL)[1] == "no prediction: ZeroDivisionError: q"
    result = measure(SMALL)
    schedule.receive(result, refused=False)
    assert schedule.dots is result
