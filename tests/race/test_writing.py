"""Lines that contenders write: shown as they are, and without any effect on their training."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from contenders import MASKED, POST, PRE, REZERO, TASK, assert_same, contender

from explorer.text import encode
from explorer_race.race import Race
from explorer_race.telling import LENGTH, PROMPT, line

TEXT = encode(
    "".join(
        map(
            " ".join,
            itertools.permutations(["norm\n", "and", "α", "a\tstep,", "then", "more", "."]),
        )
    )
)
"""Other characters than Python's prose has, some of which cannot be shown."""


def test_a_race_in_which_contenders_write_is_the_same_bit_for_bit() -> None:
    """Weights, numbers, torch's own random numbers, and modes."""
    field = [POST, PRE, REZERO]
    plain, watched = (Race(field, TASK, 12, every=3) for _ in range(2))
    torch.manual_seed(7)
    plain.run()
    drawn = torch.rand(3)

    def write(race: Race) -> None:
        for runner in race.runners:
            before = [parameter.grad is None for parameter in runner.model.parameters()]
            line(runner)
            assert before == [parameter.grad is None for parameter in runner.model.parameters()]
            assert runner.model.training

    torch.manual_seed(7)
    watched.run(on_step=write)
    assert torch.equal(torch.rand(3), drawn)
    assert_same(plain, watched)


def test_a_line_continues_the_held_out_text() -> None:
    race = Race([POST], TASK, 1, text=TEXT)
    race.run()
    (runner,) = race.runners
    given, written = line(runner)
    held = "".join(TEXT.vocabulary[code] for code in runner.data.held)
    assert given.replace("↵", "\n").replace("·", "\t") in held
    assert 0 < len(given) <= PROMPT
    assert len(written) == LENGTH
    assert written.isprintable()
    assert line(runner) == (given, written), "the same weights write the same"


def test_characters_come_as_often_as_the_model_says() -> None:
    """A model whose logits are the same everywhere: c times out of all, so that its line is one
    character."""
    race = Race([PRE], TASK, 1)
    race.run()
    (runner,) = race.runners
    favorite = runner.data.text.vocabulary.index("q")
    logits = torch.zeros(1, runner.config.n_ctx, runner.data.vocabulary)
    logits[..., favorite] = 100.0
    runner.model.logits = lambda output: logits
    assert line(runner).written == "q" * LENGTH
    runner.model.logits = lambda output: logits * np.nan
    assert line(runner).written == ""


def test_a_line_that_takes_too_long_is_cut() -> None:
    race = Race([PRE], TASK, 1)
    race.run()
    asked = iter([False, False, True])
    assert len(line(race.runners[0], lambda: next(asked)).written) == 2


def test_hidden_characters_are_filled_in() -> None:
    race = Race([contender("pre_ln", task=MASKED)], MASKED, 1)
    race.run()
    (runner,) = race.runners
    given, written = line(runner)
    inputs, targets, _ = runner.data.held_out
    assert given == ""
    hidden = [at for at in range(len(inputs[0])) if targets[0][at] >= 0]
    assert written.count("[") >= len(hidden) > 0
    rest, places = written, []
    for at in range(len(inputs[0])):
        if at in hidden:
            assert (rest[0], rest[2]) == ("[", "]")
            rest = rest[3:]
            places.append(at)
        else:
            rest = rest[1:]
    assert (rest, places) == ("", hidden)


@pytest.mark.parametrize("name", ["gpt2", "t5", "gpt_oss", "realformer", "attn_res"])
def test_every_kind_of_model_can_write(name: str) -> None:
    race = Race([contender(name)], TASK, 1)
    race.run()
    assert line(race.runners[0]).written
