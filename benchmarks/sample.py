"""`python -m benchmarks.sample`: runs the race that the Race panel opens with, and stores its
numbers.

Of the instruments, what the pictures show is kept, to three digits: of several heads the median,
and of a layer's matrices the norm of their gradients and the median of their updates, each in the
place of the first matrix."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from explorer import __version__
from explorer.app.link.state import plain
from explorer.sites import MATRICES, STREAM
from explorer.vocabulary import Array
from explorer_race.history import History
from explorer_race.page.lineup import Lineup, Plan, first_lineup
from explorer_race.page.preparation import Start
from explorer_race.page.racefile import SAMPLE
from explorer_race.race import Race, race_of

EVERY = 20
"""Steps between readings: as many as fit into a small file."""
HEADS = ("pattern", "attn_scores")
LEFT_OUT = ("attention_entropy", "attention_max")
"""Statistics that no picture shows."""


def main() -> int:
    """Takes some minutes."""
    lineup, plan = first_lineup(), Plan()
    start = Start.of(lineup, plan.replace(every=EVERY))
    race = race_of(start.terms).run(on_step=say)
    content = json.dumps(packed(race, lineup, plan, __version__), separators=(",", ":"))
    SAMPLE.write_text(f"{content}\n", encoding="utf-8")
    sys.stdout.write(f"\n{SAMPLE}: {SAMPLE.stat().st_size / 1000:.0f} kB\n")
    return 0


def say(race: Race) -> None:
    """Says how far it is."""
    sys.stdout.write(f"\rstep {race.step} of {race.steps}")
    sys.stdout.flush()


def packed(race: Race, lineup: Lineup, plan: Plan, version: str) -> dict[str, Any]:
    """A race as plain values, with the line-up and the plan that it was started from."""
    from explorer_race.telling import line

    return {
        "version": version,
        "contenders": plain(lineup.entries),
        "plan": plan.changed,
        "levels": list(race.levels),
        "outcomes": [
            {name: None if part != part else part for name, part in outcome._asdict().items()}
            for outcome in race.verdict()
        ],
        "lines": [list(line(runner)) for runner in race.runners],
        "histories": [_packed(history) for history in race.histories.values()],
    }


def _packed(history: History) -> dict[str, Any]:
    kept = {
        key: np.stack(values)
        for key, values in history.values.items()
        if key[0] not in LEFT_OUT and (key[0] == "alpha" or key[1] in ("", *STREAM, *HEADS))
    }
    kept["parameter_gradient", MATRICES[0]] = history.layer_gradient()[1]
    kept["update_ratio", MATRICES[0]] = np.median(history.matrices("update_ratio")[1], axis=0)
    return {
        "losses": _digits(np.array(history.losses), 4),
        "steps": history.steps,
        "values": [
            [*key, _digits(np.median(values, axis=2) if values.ndim == 3 else values, 3)]
            for key, values in kept.items()
        ],
    }


def _digits(values: Array, digits: int) -> Any:
    """Values to so many digits, as lists; None where there is no number."""
    if values.ndim:
        return [_digits(part, digits) for part in values]
    short = float(f"{values:.{digits}g}")
    return None if np.isnan(short) else int(short) if short.is_integer() else short


if __name__ == "__main__":
    sys.exit(main())
