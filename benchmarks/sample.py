"""`python -m benchmarks.sample`: runs the race that the Race panel opens with, and stores its numbers."""

from __future__ import annotations

import json
import sys

from explorer import __version__
from explorer.app.race.lineup import Plan, first_lineup
from explorer.app.race.panel import assemble
from explorer.app.race.preparation import Start
from explorer.app.race.sample import FILE, packed
from explorer.training.race import Race

EVERY = 20
"""Steps between readings: as many as fit into a small file."""


def main() -> int:
    """Takes some minutes."""
    lineup, plan = first_lineup(), Plan()
    start = Start.of(lineup, plan.replace(every=EVERY))
    race = assemble(start).run(on_step=say)
    FILE.write_text(json.dumps(packed(race, lineup, plan, __version__), separators=(",", ":")) + "\n", encoding="utf-8")
    sys.stdout.write(f"\n{FILE}: {FILE.stat().st_size / 1000:.0f} kB\n")
    return 0


def say(race: Race) -> None:
    """Says how far it is."""
    sys.stdout.write(f"\rstep {race.step} of {race.steps}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
