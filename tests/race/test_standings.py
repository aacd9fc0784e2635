"""What is said of a race: who comes first, in which words; and how often it may be said."""

from __future__ import annotations

import math
import re

import pytest

from explorer.app.widgets import worker
from explorer.config import Config
from explorer.figures.palette import LegendEntry
from explorer.stopping import Throttle
from explorer_race.page.lineup import USUAL, Contender, Lineup, field_words, recipe_words
from explorer_race.page.standings import judged, ranked, ratio, row
from explorer_race.race import Outcome
from explorer_race.recipe import Recipe
from explorer_race.tasks import Levels

LEVELS = Levels(3.0, 2.0)


def outcome(name: str, loss: float, retired_at: int | None = None, steps: int = 100) -> Outcome:
    return Outcome(
        name,
        steps,
        loss,
        40 if loss < 3 else None,
        retired_at,
        "" if retired_at is None else "it broke",
        math.nan,
        0.5,
    )


FAST, SLOW = outcome("fast", 2.1), outcome("slow", 2.95)
EARLY, LATE = (outcome(f"gone at {step}", math.nan, step, step) for step in (3, 30))


def test_the_best_comes_first_and_who_fell_out_last() -> None:
    assert ranked([EARLY, SLOW, LATE, FAST]) == [FAST, SLOW, LATE, EARLY]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "none"),
        (1.234, "1.2"),
        (0.0, "0"),
        (1e-5, "10⁻⁵"),
        (2.5e7, "2.5·10⁷"),
        (0.0123, "0.012"),
    ],
)
def test_ratios_are_short(value: float, words: str) -> None:
    assert ratio(value) == words


def test_a_row_says_what_is_so_far_and_what_will_never_be() -> None:
    def cells(one: Outcome, *, final: bool) -> list[str]:
        found: list[str] = row(one, LegendEntry(3, None, one.name), final=final)["cells"]
        return found

    assert cells(FAST, final=True) == ["2.100", "step 40", "no", "none → 0.5"]
    assert cells(outcome("on", 3.5), final=False) == ["3.500", "not yet", "no", "none → 0.5"]
    assert cells(EARLY, final=False)[:3] == ["none", "never", "at step 3: it broke"]


@pytest.mark.parametrize(
    ("outcomes", "severity", "best", "named"),
    [
        ([FAST], "good", "“fast”", []),
        ([SLOW, FAST], "warning", "“fast”", ["slow"]),
        ([outcome("blind", 4.0), FAST, EARLY], "warning", "“fast”", ["gone at 3", "blind"]),
        ([EARLY, FAST, LATE], "warning", "“fast”", ["gone at 3", "gone at 30"]),
        ([EARLY], "bad", "Every contender", []),
    ],
)
def test_the_verdict(outcomes: list[Outcome], severity: str, best: str, named: list[str]) -> None:
    found = judged(outcomes, LEVELS)
    assert (found["severity"], found["remedy"]) == (severity, "")
    assert found["meaning"].startswith(best)
    assert ("2.10 nats" in found["meaning"]) == (FAST in outcomes)
    assert re.findall("“(.+?)”", found["evidence"]) == named


def test_who_ends_worse_than_a_guess_has_diverged() -> None:
    lost = outcome("lost", 100.0)._replace(worse_from=20)
    found = row(lost, LegendEntry(3, None, "lost"), final=True)
    assert found["cells"][:3] == ["100", "never", "from step 20: worse than a uniform guess"]
    assert found["out"]
    assert judged([FAST, lost], LEVELS)["evidence"] == "Diverged: “lost”."
    assert judged([lost], LEVELS)["severity"] == "bad"


def test_recipes_in_words() -> None:
    assert recipe_words(USUAL) == "adam 0.0005"
    assert recipe_words(
        Recipe(optimizer="sgd", learning_rate=1.0, warmup=7, decay="cosine", clip=2.0)
    ) == ("sgd 1, T 7, gradient clipping 2, cosine")
    assert field_words("warmup", USUAL) == "no warm-up"
    assert field_words("decay", Recipe(decay="linear")) == "linear"


def test_a_long_name_is_cut_and_stays_one_of_a_kind() -> None:
    lineup = Lineup()
    for _ in range(2):
        lineup.add(
            Contender(
                Config(),
                base="A design with a name of nearly forty",
                recipe=USUAL.replace(warmup=100 + len(lineup)),
            )
        )
    names = list(lineup.names().values())
    assert len(set(names)) == 2
    assert all(len(name) <= 40 for name in names)


def test_the_throttle_opens_when_its_share_of_the_time_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(worker.time, "monotonic", lambda: now)
    limit = Throttle(1.0, share=0.1, most=5.0)
    waits = []
    for cost in (0.0625, 0.25, 3.0):
        assert limit.due
        with limit:
            now += cost
        began = now
        while not limit.due:
            now += 0.125
        waits.append(now - began)
    assert waits == [1.0, 2.5, 5.0]
    with limit:
        pass
    assert not limit.due
    limit.now()
    assert limit.due
